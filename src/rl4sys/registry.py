"""Names in config files → the components they stand for, imported when first asked for.

A user's own component joins under a name of its own::

    @register_algorithm("my_algorithm")
    class MyAlgorithm: ...

and is found once its module is listed under ``plugins:`` in the config, or is installed with an entry point
in the group ``rl4sys.plugins``.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, TypeVar

from rl4sys.config import did_you_mean
from rl4sys.errors import ConfigError, MissingExtraError

PLUGIN_GROUP = "rl4sys.plugins"

Component = TypeVar("Component")


class Registry:
    """The components of one kind, by name."""

    def __init__(self, kind: str, shipped: dict[str, str]) -> None:
        self._kind = kind
        self._shipped = shipped
        self._own: dict[str, Any] = {}

    def register(self, name: str) -> Callable[[Component], Component]:
        """Decorator: make the component available under ``name``."""

        def add(component: Component) -> Component:
            taken = self._own.get(name)
            if name in self._shipped or (taken is not None and _home(taken) != _home(component)):
                raise ConfigError(f"there is already {self._article} {self._kind} named {name!r}; choose another name")
            self._own[name] = component
            return component

        return add

    def get(self, name: str) -> Any:
        """The component of that name; a `ConfigError` lists the names there are."""
        if name not in self._own and name not in self._shipped:
            _load_installed_plugins()
        if name in self._own:
            return self._own[name]
        if name in self._shipped:
            return self._import(name)
        raise ConfigError(
            f"no {self._kind} is named {name!r}{did_you_mean(name, self.names())} Known: {', '.join(self.names())}. "
            "A component of your own needs its module listed under `plugins:`."
        )

    def names(self) -> list[str]:
        return sorted({*self._own, *self._shipped})

    def __contains__(self, name: str) -> bool:
        return name in self._own or name in self._shipped

    @property
    def _article(self) -> str:
        return "an" if self._kind[0] in "aeiou" else "a"

    def _import(self, name: str) -> Any:
        module, _, attribute = self._shipped[name].partition(":")
        try:
            return getattr(importlib.import_module(module), attribute)
        except ModuleNotFoundError as problem:
            raise MissingExtraError(
                f"the {self._kind} {name!r} needs {problem.name}, which is not installed: pip install 'rl4sys[train]'"
            ) from problem


ALGORITHMS = Registry(
    "algorithm",
    {
        "a2c": "rl4sys.algorithms.a2c:A2C",
        "bc": "rl4sys.algorithms.bc:BC",
        "c51": "rl4sys.algorithms.c51:C51",
        "ddpg": "rl4sys.algorithms.ddpg:DDPG",
        "dqn": "rl4sys.algorithms.dqn:DQN",
        "iql": "rl4sys.algorithms.iql:IQL",
        "ppo": "rl4sys.algorithms.ppo:PPO",
        "qr_dqn": "rl4sys.algorithms.qr_dqn:QRDQN",
        "rainbow": "rl4sys.algorithms.rainbow:Rainbow",
        "reinforce": "rl4sys.algorithms.reinforce:Reinforce",
        "rpo": "rl4sys.algorithms.rpo:RPO",
        "sac": "rl4sys.algorithms.sac:SAC",
        "sql": "rl4sys.algorithms.sql:SoftQ",
        "td3": "rl4sys.algorithms.td3:TD3",
        "trpo": "rl4sys.algorithms.trpo:TRPO",
    },
)
NETWORKS = Registry(
    "network",
    {
        "cnn": "rl4sys.networks.cnn:CNN",
        "dict": "rl4sys.networks.named:Named",
        "gru": "rl4sys.networks.recurrent:GRU",
        "items": "rl4sys.networks.items:Items",
        "lstm": "rl4sys.networks.recurrent:LSTM",
        "mlp": "rl4sys.networks.mlp:MLP",
        "transformer": "rl4sys.networks.transformer:Transformer",
    },
)
BUFFERS = Registry(
    "buffer",
    {
        "her": "rl4sys.buffers.her:Her",
        "prioritized": "rl4sys.buffers.prioritized:Prioritized",
        "sequence": "rl4sys.buffers.sequence:Sequence",
        "trajectory": "rl4sys.buffers.rollout:Rollout",
        "uniform": "rl4sys.buffers.replay:Replay",
        "union": "rl4sys.buffers.union:Union",
    },
)
GOAL_REWARDS = Registry("goal reward", {"distance": "rl4sys.buffers.goals:distance"})
ENVIRONMENTS = Registry(
    "environment",
    {
        "atari": "rl4sys.environments.atari:make_atari",
        "dm_control": "rl4sys.environments.dm_control:make_dm_control",
        "goal": "rl4sys.environments.goals:make_goal",
        "gym": "rl4sys.environments.gym:make_gym",
        "live": "rl4sys.environments.live:make_live",
        "multigoal": "rl4sys.environments.multigoal:make_multigoal",
        "pettingzoo": "rl4sys.environments.team:make_team",
    },
)
DATASETS = Registry(
    "dataset",
    {"journal": "rl4sys.server.dataset:load_journal", "minari": "rl4sys.environments.minari:load_minari"},
)

register_algorithm = ALGORITHMS.register
register_network = NETWORKS.register
register_buffer = BUFFERS.register
register_goal_reward = GOAL_REWARDS.register
register_environment = ENVIRONMENTS.register
register_dataset = DATASETS.register


def load_plugins(plugins: Iterable[str], beside: Path | None = None) -> list[str]:
    """Import each plugin: a dotted module, or a Python file as written or beside the config file.

    Returns them as they can be found from anywhere: files by their whole path.
    """
    found = [find_plugin(plugin, beside or Path()) for plugin in plugins]
    return [_import_file(Path(p)) if p.endswith(".py") else _import_module(p) for p in found]


def _import_module(name: str) -> str:
    try:
        return importlib.import_module(name).__name__
    except ModuleNotFoundError as problem:
        if problem.name is None or not name.startswith(problem.name):
            raise
        raise ConfigError(f"plugins names the module {name!r}, which Python cannot find; is it installed?") from problem


def find_plugin(name: str, beside: Path) -> str:
    """A plugin as it can be found from anywhere: a file by its whole path."""
    if not name.endswith(".py"):
        return name
    path = next((p.resolve() for p in (beside / name, Path(name)) if p.is_file()), None)
    if path is None:
        raise ConfigError(f"plugins names the file {name!r}, which is neither here nor beside the config file")
    return str(path)


def _import_file(path: Path) -> str:
    module_name = f"rl4sys_plugin_{path.stem}_{abs(hash(path)):x}"
    if module_name in sys.modules:
        return str(path)
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None  # a file ending in .py always has a loader
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    # As for a script: what lies beside the file can be imported by it.
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    try:
        spec.loader.exec_module(module)
    except Exception as problem:
        del sys.modules[module_name]
        raise ConfigError(f"the plugin {path} could not be imported: {problem!r}; --debug shows where") from problem
    return str(path)


def _load_installed_plugins() -> None:
    for entry_point in entry_points(group=PLUGIN_GROUP):
        entry_point.load()


def _home(component: Any) -> tuple[str, str]:
    return component.__module__, component.__qualname__
