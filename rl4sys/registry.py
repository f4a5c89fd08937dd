"""Registry of components by their names in config files; modules are imported on first use.

Register a component of your own with a decorator::

    @register_algorithm("my_algorithm")
    class MyAlgorithm: ...

List its module under ``plugins:`` in the config, or install it with an entry point in the group
``rl4sys.plugins``.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, TypeVar

from rl4sys.config import did_you_mean
from rl4sys.errors import ConfigError, RL4SysError
from rl4sys.extras import needed_by

PLUGIN_GROUP = "rl4sys.plugins"

Component = TypeVar("Component")


class Registry:
    """Mapping from names to components of one kind, such as algorithms. Assigning an item registers a component.

    A component may have a class method ``component_adapter`` that returns an adapter class. ``registry[name]`` returns
    the component as it was registered; ``registry.get(name)`` returns the adapter class, or else the component.
    """

    def __init__(self, kind: str, shipped: dict[str, str], required: Sequence[str] = ()) -> None:
        """``required`` lists the attributes that every component must have."""
        self._kind = kind
        self._shipped = shipped
        self._required = required
        self._own: dict[str, Any] = {}

    def register(self, name: str) -> Callable[[Component], Component]:
        """Return a decorator that registers a component under ``name``."""

        def add(component: Component) -> Component:
            existing = self._own.get(name)
            if name in self._shipped or (
                existing is not None and _qualified_name(existing) != _qualified_name(component)
            ):
                raise ConfigError(
                    f"{self._article} {self._kind} named {name!r} is already registered; choose another name"
                )
            self._check(name, component)
            self._own[name] = component
            return component

        return add

    def get(self, name: str) -> Any:
        """Return the component ``name``, or its adapter if it has one. Raises `ConfigError` if the name is unknown."""
        return _adapted(self[name])

    def __getitem__(self, name: str) -> Any:
        """Return the component ``name`` as it was registered. Raises `ConfigError` if the name is unknown."""
        if name not in self._own and name not in self._shipped:
            _load_installed_plugins()
        if name in self._own:
            return self._own[name]
        if name in self._shipped:
            return self._import(name)
        raise ConfigError(
            f"no {self._kind} is named {name!r}{did_you_mean(name, self.names())} Known: {', '.join(self.names())}. "
            "To use a component of your own, list its module under `plugins:`."
        )

    @contextmanager
    def under_a_name(self, component: Any) -> Iterator[str]:
        """Context that yields the name of a component. An unregistered component has a name only inside the context."""
        known = [*self._own.items(), *((name, self._import(name)) for name in self._shipped_names(component))]
        found = next((name for name, existing in known if existing is component), None)
        if found is not None:
            yield found
            return
        name = _title(component)
        while name in self:
            name += "_"
        self._check(name, component)
        self._own[name] = component
        try:
            yield name
        finally:
            del self._own[name]

    def names(self) -> list[str]:
        return sorted({*self._own, *self._shipped})

    def own_names(self) -> list[str]:
        """Return the names that were registered by plugins or by the program, in alphabetical order."""
        return sorted(self._own)

    def is_shipped(self, name: str) -> bool:
        """Return True if the component is part of RL4Sys, False if a plugin registered it."""
        return name in self._shipped

    def __setitem__(self, name: str, component: Any) -> None:
        self.register(name)(component)

    def __contains__(self, name: object) -> bool:
        return name in self._own or name in self._shipped

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __len__(self) -> int:
        return len(self.names())

    def _check(self, name: str, component: Any) -> None:
        """Raise ConfigError if a class lacks required attributes. A function may get its attributes later."""
        adapted = _adapted(component)
        required = self._required if isinstance(component, type) else ()
        missing = [attribute for attribute in required if not hasattr(adapted, attribute)]
        if missing:
            raise ConfigError(
                f"{self._article} {self._kind} must have {', '.join(self._required)}; {_title(component)}, registered "
                f"as {name!r}, has no {', '.join(missing)}. Add them{_EASIER.get(self._kind, '')}"
            )

    @property
    def _article(self) -> str:
        return "an" if self._kind[0] in "aeiou" else "a"

    def _shipped_names(self, component: Any) -> list[str]:
        """Return the names of the shipped components that are defined in the module of ``component``."""
        module = getattr(component, "__module__", None)
        return [name for name, place in self._shipped.items() if place.partition(":")[0] == module]

    def _import(self, name: str) -> Any:
        module, _, attribute = self._shipped[name].partition(":")
        with needed_by(f"the {self._kind} {name!r}"):
            return getattr(importlib.import_module(module), attribute)


_EASIER = {"algorithm": ", or derive the class from rl4sys.components.BaseAlgorithm, which needs only act and update"}
"""Advice in the error about missing attributes, by kind of component."""

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
    required=("Config", "roles", "default_buffer", "make_buffer", "policy", "update", "state", "restore"),
)
NETWORKS = Registry(
    "network",
    {
        "cnn": "rl4sys.networks.cnn:CNN",
        "dict": "rl4sys.networks.dict:DictNetwork",
        "gru": "rl4sys.networks.recurrent:GRU",
        "items": "rl4sys.networks.items:Items",
        "lstm": "rl4sys.networks.recurrent:LSTM",
        "mlp": "rl4sys.networks.mlp:MLP",
        "transformer": "rl4sys.networks.transformer:Transformer",
    },
    required=("Config",),
)
BUFFERS = Registry(
    "buffer",
    {
        "her": "rl4sys.buffers.her:Her",
        "prioritized": "rl4sys.buffers.prioritized:Prioritized",
        "sequence": "rl4sys.buffers.sequence:Sequence",
        "trajectory": "rl4sys.buffers.rollout:Rollout",
        "uniform": "rl4sys.buffers.uniform:Replay",
        "union": "rl4sys.buffers.union:Union",
    },
    required=("Config", "add", "steps_to_next_update", "batches", "feedback", "state", "restore"),
)
GOAL_REWARDS = Registry("goal reward", {"distance": "rl4sys.buffers.goals:distance"})
ENVIRONMENTS = Registry(
    "environment",
    {
        "atari": "rl4sys.environments.families.atari:make_atari",
        "dm_control": "rl4sys.environments.families.dm_control:make_dm_control",
        "goal": "rl4sys.environments.families.goal:make_goal",
        "gym": "rl4sys.environments.families.gym:make_gym",
        "live": "rl4sys.environments.families.live:make_live",
        "multigoal": "rl4sys.environments.families.multigoal:make_multigoal",
        "pettingzoo": "rl4sys.environments.families.pettingzoo:make_pettingzoo",
    },
)
DATASETS = Registry(
    "dataset",
    {
        "file": "rl4sys.datasets.file:load_file",
        "journal": "rl4sys.server.dataset:load_journal",
        "minari": "rl4sys.environments.minari:load_minari",
    },
)
WRAPPERS = Registry("wrapper", {})
LOGGERS = Registry("logger", {}, required=("log",))

register_algorithm = ALGORITHMS.register
register_network = NETWORKS.register
register_buffer = BUFFERS.register
register_goal_reward = GOAL_REWARDS.register
register_environment = ENVIRONMENTS.register
register_dataset = DATASETS.register
register_logger = LOGGERS.register
register_wrapper = WRAPPERS.register


def load_plugins(plugins: Iterable[str], beside: Path | None = None) -> list[str]:
    """Import each plugin: a dotted module name, or a Python file in the current directory or next to the config file.

    Returns the names of the modules and the absolute paths of the files.
    """
    found = [find_plugin(plugin, beside or Path()) for plugin in plugins]
    return [_import_file(Path(p)) if p.endswith(".py") else _import_module(p) for p in found]


def _import_module(name: str) -> str:
    try:
        return importlib.import_module(name).__name__
    except ModuleNotFoundError as problem:
        if problem.name is None or not name.startswith(problem.name):
            raise
        raise ConfigError(f"plugins: the module {name!r} cannot be found; install it, or correct its name") from problem


def find_plugin(name: str, beside: Path) -> str:
    """Return a module name unchanged, or the absolute path of a file. Raises `ConfigError` if the file is missing."""
    if not name.endswith(".py"):
        return name
    path = next((p.resolve() for p in (beside / name, Path(name)) if p.is_file()), None)
    if path is None:
        raise ConfigError(f"plugins: the file {name!r} is neither in the current directory nor next to the config file")
    return str(path)


def _import_file(path: Path) -> str:
    module_name = f"rl4sys_plugin_{path.stem}_{abs(hash(path)):x}"
    if module_name in sys.modules:
        return str(path)
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None  # .py files always have a loader
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    # Allow the plugin file to import modules in its directory, as a script can.
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    try:
        spec.loader.exec_module(module)
    except RL4SysError as problem:
        del sys.modules[module_name]
        raise ConfigError(f"the plugin {path} could not be imported: {problem}") from problem
    except Exception as problem:
        del sys.modules[module_name]
        raise ConfigError(
            f"the plugin {path} could not be imported: {problem!r}; --debug shows the traceback"
        ) from problem
    return str(path)


def _load_installed_plugins() -> None:
    for entry_point in entry_points(group=PLUGIN_GROUP):
        entry_point.load()


def _adapted(component: Any) -> Any:
    """Return the adapter of a component, or the component itself if it has no adapter."""
    is_adapted = isinstance(component, type) and hasattr(component, "component_adapter")
    return component.component_adapter() if is_adapted else component


def _title(component: Any) -> str:
    return str(getattr(component, "__name__", repr(component)))


def _qualified_name(component: Any) -> tuple[str, str]:
    return component.__module__, component.__qualname__
