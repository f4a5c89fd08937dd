"""One algorithm, its buffer and its version: the unit that learns, wherever it runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import SerializeAsAny

from rl4sys.algorithms.actor_critic import TRUNK
from rl4sys.algorithms.base import Algorithm, AlgorithmConfig, Backend, Metrics, Recipe
from rl4sys.algorithms.imitation import WarmStartConfig, imitate
from rl4sys.buffers.base import NOTHING, Batch, BufferConfig, Provided, Room, space_bytes, transitions
from rl4sys.config import Config, did_you_mean, parse
from rl4sys.errors import ConfigError, ExportError, NumericalError
from rl4sys.networks.base import Blueprint, NetworkConfig, action_outputs, count_parameters
from rl4sys.normalization import NormalizedPolicy, ObservationNormalizer, RewardNormalizer
from rl4sys.policy.base import Policy
from rl4sys.policy.portable import SnapshotPolicy
from rl4sys.policy.snapshot import Snapshot
from rl4sys.registry import ALGORITHMS, BUFFERS, NETWORKS
from rl4sys.spec import Columns, Spec, State
from rl4sys.trajectory import OBSERVATION, Trajectory


class LearnerConfig(Config):
    """Everything that decides how a Learner learns, and nothing about who acts or where."""

    algorithm: SerializeAsAny[AlgorithmConfig]
    networks: dict[str, SerializeAsAny[NetworkConfig]]
    buffer: SerializeAsAny[BufferConfig]
    normalize_obs: bool = False
    normalize_reward: bool = False
    warm_start: WarmStartConfig | None = None
    device: str = "cpu"
    backend: Backend = "auto"
    total_timesteps: int | None = None


class Learner:
    """Driven the same way by the local trainer, the server's sessions and Ray actors."""

    def __init__(
        self, spec: Spec, config: LearnerConfig, seed: np.random.SeedSequence, provided: Provided = NOTHING
    ) -> None:
        algorithm_seed, batch_seed = seed.spawn(2)
        self._observations = ObservationNormalizer(spec) if config.normalize_obs else None
        seen = self._observations.spec if self._observations else spec
        self.algorithm = _build_algorithm(_recipe(seen, config, algorithm_seed, provided))
        self._buffer = self.algorithm.make_buffer()
        self._rng = np.random.default_rng(batch_seed)
        self._start = config.warm_start
        gamma = float(getattr(config.algorithm, "gamma", 1.0))
        self._rewards = RewardNormalizer(gamma) if config.normalize_reward else None
        self.version = 0
        self.steps = 0
        self.refused = 0

    def warm_start(self, trajectories: Sequence[Trajectory]) -> Metrics:
        """Have the first version act as was recorded; for a learner that has learnt nothing yet."""
        assert self._start is not None  # asked only where the config has the block
        for trajectory in trajectories:
            _check_finite(trajectory, steps=0)
            if self._observations:
                self._observations.see(trajectory)
        if self._observations:
            self._observations.put_in_force()
        return imitate(self.algorithm, self._start, self._seen(_decisions(trajectories)), self._rng)

    def learn(self, trajectories: Iterable[Trajectory]) -> list[Metrics]:
        """Take experience in and run every update that is now due."""
        for trajectory in trajectories:
            self._take_in(trajectory)
        metrics = [self._update(batch) for batch in self._buffer.batches(self._rng)]
        if metrics:
            self._make_version()
        return metrics

    def wants(self) -> int:
        """Steps that would make the next update due."""
        return self._buffer.wants()

    def policy(self) -> Policy:
        """The policy of the present version: without torch where its network allows, else live."""
        snapshot = self.portable()
        return self._live_policy() if snapshot is None else SnapshotPolicy(snapshot)

    def snapshot(self) -> Snapshot:
        """The policy for clients; `ExportError` where they cannot run its network."""
        return self._live_policy().snapshot(self.version)

    def portable(self) -> Snapshot | None:
        """The policy for clients, or None where they cannot run its network."""
        try:
            return self.snapshot()
        except ExportError:
            return None

    def state(self) -> State:
        return {
            "algorithm": self.algorithm.state(),
            "buffer": self._buffer.state(),
            "rng": self._rng.bit_generator.state,
            "observations": self._observations.state() if self._observations else None,
            "rewards": self._rewards.state() if self._rewards else None,
            "version": self.version,
            "steps": self.steps,
            "refused": self.refused,
        }

    def restore(self, state: State) -> None:
        self.algorithm.restore(state["algorithm"])
        self._buffer.restore(state["buffer"])
        self._rng.bit_generator.state = state["rng"]
        if self._observations:
            self._observations.restore(state["observations"])
        if self._rewards:
            self._rewards.restore(state["rewards"])
        self.version, self.steps, self.refused = state["version"], state["steps"], state["refused"]

    def _take_in(self, trajectory: Trajectory) -> None:
        _check_finite(trajectory, self.steps)
        accepted = self._buffer.add(trajectory, self.version)
        self.steps += accepted
        self.refused += len(trajectory) - accepted
        for statistics in (self._observations, self._rewards):
            if statistics and accepted:
                statistics.see(trajectory)

    def _update(self, batch: Batch) -> Metrics:
        update = self.algorithm.update(self._normalized(batch), self.steps)
        if update.feedback:
            self._buffer.feedback(batch, update.feedback)
        return update.metrics

    def _normalized(self, batch: Batch) -> Batch:
        batch = self._seen(self._seen(batch), "next_obs.")
        if self._rewards:
            batch = {**batch, "reward": self._rewards.apply(batch["reward"])}
        return batch

    def _seen(self, batch: Batch, prefix: str = "obs.") -> Batch:
        return self._observations.apply(batch, prefix) if self._observations else batch

    def _make_version(self) -> None:
        for statistics in (self._observations, self._rewards):
            if statistics:
                statistics.put_in_force()
        # Clients compare versions, so it changes only after all that it names is in place.
        self.version += 1

    def _live_policy(self) -> Policy:
        policy = self.algorithm.policy(self.steps)
        return NormalizedPolicy(policy, self._observations) if self._observations else policy


def build_learner(spec: Spec, config: LearnerConfig, seed: int, provided: Provided = NOTHING) -> Learner:
    """The only way any host makes a Learner; the seed decides all its randomness."""
    return Learner(spec, config, np.random.SeedSequence(seed), provided)


@dataclass(frozen=True)
class Cost:
    """What a Learner would take up."""

    parameters: int
    """Weights of its networks, each role once; optimisers and target networks keep as much again."""
    buffer_bytes: int
    """The experience it would hold when its buffer is full."""
    disk_bytes: int = 0
    """So much of that on disk."""


def learner_cost(spec: Spec, config: LearnerConfig) -> Cost:
    """What `build_learner` would take up, told at once, so that a host can refuse what it has no room for."""
    recipe = _recipe(spec, config, np.random.SeedSequence(0))
    counts = [count_parameters(recipe.network(role), needed) for role, needed in _blueprints(recipe).items()]
    room = _room(spec, config.buffer)
    return Cost(sum(counts), room.memory + room.disk, room.disk)


def parse_algorithm(settings: Any) -> AlgorithmConfig:
    """The ``algorithm`` block, as the options of the algorithm it names."""
    options: AlgorithmConfig = parse(
        ALGORITHMS.get(_named(settings, "algorithm", "name")).Config, settings, "algorithm"
    )
    return options


def parse_networks(settings: Any, algorithm: str) -> dict[str, NetworkConfig]:
    """The ``network`` block: the options of one network per role that the algorithm has."""
    roles = (*ALGORITHMS.get(algorithm).roles, *getattr(ALGORITHMS.get(algorithm), "optional_roles", ()))
    if not isinstance(settings, Mapping):
        raise ConfigError(f"network is {settings!r:.80}; it should be a block with {' and '.join(roles)}")
    for role in settings:
        if role not in roles:
            why = " Its actor and critic are moved apart, and share nothing." if role == TRUNK else ""
            raise ConfigError(
                f"network.{role} is not a network of {algorithm}{did_you_mean(str(role), roles)} "
                f"It has: {', '.join(roles)}.{why * ('actor' in roles)}"
            )
    return {str(role): _parse_network(options, f"network.{role}") for role, options in settings.items()}


def parse_buffer(settings: Any, algorithm: str) -> BufferConfig:
    """The ``buffer`` block, as the options of the buffer it names; what it leaves out is the algorithm's custom."""
    if isinstance(settings, Mapping):
        settings = {**ALGORITHMS.get(algorithm).usual_buffer, **settings}
    options: BufferConfig = parse(BUFFERS.get(_named(settings, "buffer", "type")).Config, settings, "buffer")
    return options


def _parse_network(settings: Any, at: str) -> NetworkConfig:
    kind = _named({"type": "mlp", **settings} if isinstance(settings, Mapping) else settings, at, "type")
    options: NetworkConfig = parse(NETWORKS.get(kind).Config, settings, at)
    return options


def _named(settings: Any, at: str, key: str) -> str:
    if not isinstance(settings, Mapping) or not isinstance(settings.get(key), str):
        given = settings.get(key, "missing") if isinstance(settings, Mapping) else settings
        raise ConfigError(f"{at}.{key} is {given!r:.80}; it should be the name of the {at.partition('.')[0]}")
    return str(settings[key])


def _build_algorithm(recipe: Recipe[AlgorithmConfig]) -> Algorithm:
    algorithm: Algorithm = ALGORITHMS.get(recipe.options.name)(recipe)
    return algorithm


def _recipe(
    spec: Spec, config: LearnerConfig, seed: np.random.SeedSequence, provided: Provided = NOTHING
) -> Recipe[AlgorithmConfig]:
    return Recipe(
        spec=spec,
        options=config.algorithm,
        networks=config.networks,
        buffer=config.buffer,
        seed=seed,
        device=config.device,
        backend=config.backend,
        total_timesteps=config.total_timesteps,
        warm=config.warm_start is not None,
        provided=provided,
    )


def _blueprints(recipe: Recipe[AlgorithmConfig]) -> Mapping[str, Blueprint]:
    algorithm = ALGORITHMS.get(recipe.options.name)
    if hasattr(algorithm, "blueprints"):
        blueprints: Mapping[str, Blueprint] = algorithm.blueprints(recipe)
        return blueprints
    # An algorithm of the user's own need not say; an actor gives the most that is usual.
    return {role: Blueprint(recipe.spec, action_outputs(recipe.spec)) for role in algorithm.roles}


def _room(spec: Spec, config: BufferConfig) -> Room:
    buffer = BUFFERS.get(config.type)
    if hasattr(buffer, "room"):
        room: Room = buffer.room(config, spec)
        return room
    # A buffer of the user's own need not say; what was seen before and after a step is the most that is usual.
    return Room(config.size * (2 * space_bytes(*spec.observation.values()) + space_bytes(spec.action)))


def _decisions(trajectories: Sequence[Trajectory]) -> Columns:
    """What was seen before each step, and what was done."""
    parts = [transitions(trajectory) for trajectory in trajectories]
    names = [name for name in parts[0] if name.startswith(OBSERVATION) or name == "action"]
    return {name: np.concatenate([part[name] for part in parts]) for name in names}


def _check_finite(trajectory: Trajectory, steps: int) -> None:
    for name, column in trajectory.columns.items():
        if column.dtype.kind == "f" and not np.isfinite(column).all():
            row = int(np.argwhere(~np.isfinite(column))[0][0])
            raise NumericalError(
                f"{name} is {column[row]!s:.80} at step {steps + row}, "
                f"{trajectory.offset + row} steps into its episode: {_LIKELY.get(name, _SYSTEM)}"
            )


_SYSTEM = "the system under control reports values that are not numbers"
_LIKELY = {
    "reward": "look at how the system computes its reward (a division by zero, the logarithm of 0?)",
    "log_prob": "the policy's weights are not finite; lower algorithm.lr",
    "action": "the policy's weights are not finite; lower algorithm.lr",
    "memory": "the policy's weights are not finite; lower algorithm.lr",
}
