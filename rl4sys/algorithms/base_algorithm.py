"""`BaseAlgorithm`: simple base class of user-defined algorithms, with ``act`` and ``update`` on plain arrays.

A subclass registered with ``@register_algorithm`` is trained, resumed and evaluated like any other algorithm. Its
policy runs only with torch, so it cannot be exported to clients; see docs/own_algorithm.md for the portable form.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import gymnasium
import numpy as np
import torch
from pydantic import ConfigDict, Field

from rl4sys.algorithms.actions import ActionKind
from rl4sys.algorithms.base import AlgorithmConfig, AlgorithmSetup, Metrics, Update
from rl4sys.buffers.base import Batch, Buffer, Demand
from rl4sys.environments.encoding import to_gymnasium
from rl4sys.errors import ConfigError, ExportError, SpecError
from rl4sys.networks.base import to_array
from rl4sys.networks.global_random import GlobalRandom
from rl4sys.networks.plain_tree import from_plain, to_plain
from rl4sys.policy.base import Decision
from rl4sys.policy.draws import Draws
from rl4sys.policy.snapshot import Snapshot
from rl4sys.spec import STATE, Array, Box, Columns, Spec, State, check_observation, in_range

_PREFIXES = {"observation": "obs.", "next_observation": "next_obs."}
_SEEDS = 2**53


class MissingOptionError(ConfigError, AttributeError):
    """Error for an option that the algorithm reads but the config does not contain.

    Derived from `AttributeError`, so that `hasattr` works on configs.
    """


class BaseAlgorithmConfig(AlgorithmConfig):
    """Options of a `BaseAlgorithm`. Any keys are allowed, and available as config.lr and config["lr"]."""

    model_config = ConfigDict(extra="allow")

    gamma: float = Field(default=0.99, ge=0, le=1)
    """Discount factor."""
    batch_size: int = Field(default=64, gt=0)
    """With a replay buffer: number of transitions in a batch."""
    learning_starts: int = Field(default=1000, ge=0)
    """With a replay buffer: number of steps before the first update."""
    train_frequency: int = Field(default=1, gt=0)
    """With a replay buffer: number of steps between updates."""
    gradient_steps: int = Field(default=1, gt=0)
    """With a replay buffer: number of batches per update."""
    n_step: int = Field(default=1, gt=0)
    """With a replay buffer: number of rewards summed before bootstrapping (n-step return)."""

    def __getattr__(self, name: str) -> Any:
        extra = self.__pydantic_extra__ or {}
        if name in extra or name.startswith("_"):
            return extra[name] if name in extra else super().__getattr__(name)  # type: ignore[misc]
        raise MissingOptionError(
            f"algorithm.{name} is missing; algorithm {self.name!r} needs it, so add it to the config"
        )

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    def __contains__(self, name: object) -> bool:
        return name in self.model_dump()

    def get(self, name: str, default: Any = None) -> Any:
        """Return an option, or ``default`` if the config does not have it."""
        return getattr(self, name, default)


class BaseAlgorithm:
    """Base class of algorithms that act and learn with torch.

    A subclass implements `act` and `update`, and keeps its modules in ``networks`` and its optimizers in
    ``optimizers``. ``observation_space``, ``action_space`` and ``device`` are set before ``__init__`` is called. Random
    numbers from the global generators of torch, numpy and `random` are reproducible: the generators are seeded for each
    decision, and their states in `update` are part of the checkpoint.
    """

    Config: ClassVar[type[AlgorithmConfig]] = BaseAlgorithmConfig
    roles: ClassVar[tuple[str, ...]] = ()
    default_buffer: ClassVar[Mapping[str, Any]] = {"type": "trajectory", "size": 2048}
    """Defaults of the ``buffer:`` block. For a replay buffer, use ``{"type": "uniform", "size": 100_000}``."""
    actions: ClassVar[tuple[ActionKind, ...]] = ()
    """Kinds of action spaces that the algorithm supports; an empty tuple accepts all kinds."""

    observation_space: gymnasium.Space[Any]
    """Space of the observations that `act` receives: a Box, or a Dict for several observations or an action mask."""
    action_space: gymnasium.Space[Any]
    device: torch.device
    total_timesteps: int | None = None
    """Total number of environment steps of the run; None in live training."""
    environment_steps: int = 0
    """Number of environment steps so far, for schedules. Set by RL4Sys before each update and before acting."""

    def __init__(self, config: Any) -> None:
        self.config = config
        self.networks: dict[str, torch.nn.Module] = {}
        self.optimizers: dict[str, torch.optim.Optimizer] = {}
        self.step = 0
        """Counter that the subclass may use for any purpose; saved in checkpoints."""
        self.metrics: Metrics = {}
        """Metrics of the last update that returned metrics."""

    def act(self, observation: Any, deterministic: bool = False) -> Any:
        """Return the action for one observation, or a tuple (action, log-probability).

        The action is a tensor, array or number. Gradient tracking is disabled during the call. Evaluations pass
        ``deterministic=True`` if the method has this parameter.
        """
        raise NotImplementedError

    def update(self, batch: Mapping[str, Any]) -> Metrics | None:
        """Learn from a batch of arrays, and return metrics.

        Columns: observation, action, reward, next_observation, terminated and done. ``terminated`` is True where the
        environment ended the episode. A batch of a rollout buffer is a complete rollout, one trajectory after
        another. It also has ``truncated`` (episode cut by a limit), ``last`` (last row of an episode, or of the
        rollout) and ``log_prob``; ``done`` is terminated or truncated. A batch of a replay buffer also has ``discount``
        (factor of the value of next_observation); ``done`` equals terminated.
        """
        raise NotImplementedError

    def save_checkpoint(self, path: None = None) -> dict[str, Any]:
        """Return the state of networks, optimizers and step counter, with the config.

        A subclass adds everything else that changes during training. The method writes no file: `rl4sys train` saves
        the result in the run directory; in your own training loop, use `rl4sys.compat.monorepo.CheckpointManager`.
        """
        if path is not None:
            raise ConfigError(
                f"save_checkpoint was called with the path {str(path)!r}, but it returns the state and writes no file; "
                "to write files, use rl4sys.compat.monorepo.CheckpointManager(directory).save(...)"
            )
        return {
            "networks": {name: network.state_dict() for name, network in self.networks.items()},
            "optimizers": {name: optimizer.state_dict() for name, optimizer in self.optimizers.items()},
            "step": self.step,
            "config": dict(self.config),
        }

    def load_checkpoint(self, checkpoint: Mapping[str, Any]) -> None:
        """Restore the state that `save_checkpoint` returned."""
        for name, state in checkpoint["networks"].items():
            self.networks[name].load_state_dict(state)
        for name, state in checkpoint["optimizers"].items():
            self.optimizers[name].load_state_dict(state)
        self.step = checkpoint["step"]

    def get_metrics(self) -> Metrics:
        """Return the metrics to report after an update: by default the last metrics that `update` returned."""
        return self.metrics

    @classmethod
    def component_adapter(cls) -> type[AdaptedAlgorithm]:
        """Return a class that adapts this class to the `Algorithm` protocol.

        Raises `ConfigError` if a method is missing or has the wrong signature.
        """
        return _adapter_of(cls)


_adapters: dict[type[BaseAlgorithm], type[AdaptedAlgorithm]] = {}


def _adapter_of(kind: type[BaseAlgorithm]) -> type[AdaptedAlgorithm]:
    if kind not in _adapters:
        _check_class(kind)
        _adapters[kind] = _make_adapter(kind)
    return _adapters[kind]


def _make_adapter(kind: type[BaseAlgorithm]) -> type[AdaptedAlgorithm]:
    attributes = {name: getattr(kind, name) for name in ("Config", "roles", "default_buffer", "actions")}
    return type(kind.__name__, (AdaptedAlgorithm,), {**attributes, "kind": kind, "__module__": kind.__module__})


_SIGNATURES = {
    "__init__": ("__init__(self, config)", (2,)),
    "act": ("act(self, observation, deterministic=False)", (2,)),
    "update": ("update(self, batch)", (2,)),
    "save_checkpoint": ("save_checkpoint(self, path=None)", (1, 2)),
    "load_checkpoint": ("load_checkpoint(self, checkpoint)", (2,)),
    "get_metrics": ("get_metrics(self)", (1,)),
}
"""Signature of each method, and the numbers of positional arguments (including self) that the method may accept."""


def _check_class(kind: type[BaseAlgorithm]) -> None:
    lacking = [
        _SIGNATURES[name][0] for name in ("act", "update") if getattr(kind, name) is getattr(BaseAlgorithm, name)
    ]
    if lacking:
        raise ConfigError(
            f"the algorithm class {kind.__name__!r} does not define {' and '.join(lacking)}; define act and update"
        )
    for name, (signature, counts) in _SIGNATURES.items():
        method = getattr(kind, name)
        if not callable(method) or not any(_accepts(method, count) for count in counts):
            given = f"{name}{inspect.signature(method)}" if callable(method) else f"{name} = {method!r:.60}"
            raise ConfigError(f"the algorithm class {kind.__name__!r} defines {given}; expected {signature}")


def _accepts(method: Any, count: int, **named: Any) -> bool:
    try:
        inspect.signature(method).bind(*[None] * count, **named)
    except TypeError:
        return False
    return True


class AdaptedAlgorithm:
    """Adapter from `BaseAlgorithm` to the `Algorithm` protocol."""

    kind: ClassVar[type[BaseAlgorithm]]

    def __init__(self, setup: AlgorithmSetup[AlgorithmConfig]) -> None:
        self._setup = setup
        device = torch.device(setup.device)
        self._random = GlobalRandom(int(setup.seed.generate_state(1)[0]), device)
        self._algorithm = self.kind.__new__(self.kind)
        self._algorithm.observation_space = _observation_space(setup.spec)
        self._algorithm.action_space = to_gymnasium(setup.spec.action)
        self._algorithm.device, self._algorithm.total_timesteps = device, setup.total_timesteps
        with self._random.in_use():
            self._algorithm.__init__(setup.options)  # type: ignore[misc]
        if not hasattr(self._algorithm, "networks"):
            raise ConfigError(f"{self.kind.__name__}.__init__ does not call super().__init__(config); add the call")

    def make_buffer(self) -> Buffer:
        options = self._setup.options
        settings = {
            name: getattr(options, name)
            for name in ("batch_size", "learning_starts", "train_frequency", "gradient_steps", "n_step", "gamma")
            if hasattr(options, name)
        }
        return self._setup.make_buffer(Demand(**settings), fitting=("trajectory", "uniform"))

    def policy(self, steps: int) -> ActingPolicy:
        self._algorithm.environment_steps = steps
        return ActingPolicy(self._algorithm, self._setup.spec, self._random)

    def update(self, batch: Batch, steps: int) -> Update:
        self._algorithm.environment_steps = steps
        with self._random.in_use():
            result = self._algorithm.update(_documented(batch, self._setup.spec))
        if result is not None:
            self._algorithm.metrics = self._checked(result)
        return Update({name: _to_float(value) for name, value in (self._algorithm.get_metrics() or {}).items()})

    def state(self) -> State:
        save = self._algorithm.save_checkpoint
        checkpoint = save(None) if _accepts(save, 1) else save()
        return {"checkpoint": to_plain(checkpoint), "random": self._random.state()}

    def restore(self, state: State) -> None:
        self._algorithm.load_checkpoint(from_plain(state["checkpoint"]))
        self._random.restore(state["random"])

    def _checked(self, result: Any) -> Metrics:
        if isinstance(result, Mapping):
            return result
        raise SpecError(
            f"{self.kind.__name__}.update returned {type(result).__name__}; return a dict of metrics such as "
            '{"loss": loss.item()}, or None'
        )


@dataclass(frozen=True)
class ActingPolicy:
    """Policy that calls `BaseAlgorithm.act` for each observation."""

    algorithm: BaseAlgorithm
    spec: Spec
    random: GlobalRandom
    is_greedy: bool = False

    def act(self, observation: Columns, memory: Columns, draws: Draws) -> Decision:
        check_observation(self.spec, observation)
        rows = len(next(iter(observation.values())))
        actions = np.empty((rows, *self.spec.action.shape), self.spec.action.dtype)
        log_probs = np.zeros(rows, np.float32)
        with torch.no_grad(), self.random.for_decisions():
            for row, uniform in enumerate(draws.uniforms(rows)):
                self.random.seed(int(uniform * _SEEDS))
                seen = {name: column[row].copy() for name, column in observation.items()}
                actions[row], log_probs[row] = self._decide(_unnamed(seen))
        return Decision(actions, log_probs, {})

    def greedy(self) -> ActingPolicy:
        """Return the policy with deterministic actions; unchanged if ``act`` has no parameter ``deterministic``."""
        return replace(self, is_greedy=_accepts(self.algorithm.act, 1, deterministic=True))

    def snapshot(self, version: int) -> Snapshot:
        """Raise `ExportError`: only torch can run ``act``."""
        raise ExportError(
            f"{type(self.algorithm).__name__} chooses actions in its own act(), so its policy runs only with torch. "
            "To run the policy in the native core, on clients without torch or with training.pipeline, write the "
            "algorithm in the portable form, which returns a network and a head (docs/own_algorithm.md). To let the "
            "server act for clients, set `inference: remote` in the clients"
        )

    def _decide(self, observation: Any) -> tuple[Array, float]:
        act = self.algorithm.act
        chosen = act(observation, deterministic=True) if self.is_greedy else act(observation)
        action, log_prob = chosen if isinstance(chosen, tuple) and len(chosen) == 2 else (chosen, 0.0)
        return self._legal_array(action), _to_float(log_prob)

    def _legal_array(self, action: Any) -> Array:
        """Convert the action to an array. Raises `SpecError` if it is not an element of the action space."""
        space = self.spec.action
        array = np.asarray(to_array(action) if isinstance(action, torch.Tensor) else action)
        if array.size == space.size and array.dtype.kind in "biuf":
            array = array.reshape(space.shape)
            if isinstance(space, Box):
                fits = bool(np.isfinite(array).all())
            else:
                fits = array.dtype.kind in "iu" and in_range(space, array[np.newaxis])
            if fits:
                return array
        raise SpecError(
            f"{type(self.algorithm).__name__}.act returned {action!r:.100}; expected an element of "
            f"{self.algorithm.action_space}, or a tuple (action, log-probability)"
        )


def _documented(batch: Batch, spec: Spec) -> dict[str, Any]:
    """Return the batch with the column names documented in `BaseAlgorithm.update`."""
    prefixes = tuple(_PREFIXES.values())
    named = {name: column for name, column in batch.items() if name != "ended" and not name.startswith(prefixes)}
    for name, prefix in _PREFIXES.items():
        named[name] = _unnamed({key: batch[prefix + key] for key in spec.observation if prefix + key in batch})
    named["done"] = batch.get("ended", batch["terminated"])
    if "ended" in batch:
        named["truncated"] = batch["ended"] & ~batch["terminated"]
    return named


def _unnamed(observation: Columns) -> Any:
    """Return the array if ``state`` is the only observation, else the dict of all observations."""
    return observation[STATE] if set(observation) == {STATE} else observation


def _observation_space(spec: Spec) -> gymnasium.Space[Any]:
    boxes = {name: to_gymnasium(box) for name, box in spec.observation.items()}
    return boxes[STATE] if set(boxes) == {STATE} else gymnasium.spaces.Dict(boxes)


def _to_float(value: Any) -> float:
    return float(to_array(value) if isinstance(value, torch.Tensor) else value)
