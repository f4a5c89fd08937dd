"""Learner: one algorithm with its buffer, normalization and version number."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from rl4sys.algorithms.base import Algorithm, AlgorithmConfig, AlgorithmSetup, Metrics, PlacedModule
from rl4sys.algorithms.imitation import imitate
from rl4sys.buffers.base import NO_RESOURCES, Batch, BufferResources, transitions
from rl4sys.errors import ExportError, NumericalError
from rl4sys.learner.config import LearnerConfig, algorithm_setup
from rl4sys.networks.translate import is_own
from rl4sys.normalization import NormalizedPolicy, ObservationNormalizer, RewardNormalizer
from rl4sys.policy.base import Policy
from rl4sys.policy.snapshot import Snapshot
from rl4sys.policy.snapshot_policy import SnapshotPolicy
from rl4sys.registry import ALGORITHMS
from rl4sys.spec import Columns, Spec, State
from rl4sys.trajectory import OBSERVATION, Trajectory


class Learner:
    """Learns from trajectories and provides the current policy. Not thread-safe."""

    def __init__(
        self, spec: Spec, config: LearnerConfig, seed: np.random.SeedSequence, resources: BufferResources = NO_RESOURCES
    ) -> None:
        algorithm_seed, batch_seed = seed.spawn(2)
        self._observations = ObservationNormalizer(spec) if config.normalize_obs else None
        seen = self._observations.spec if self._observations else spec
        setup = algorithm_setup(seen, config, algorithm_seed, resources)
        self.algorithm = _build_algorithm(setup)
        self._placed = setup.placed
        self._buffer = self.algorithm.make_buffer()
        self._rng = np.random.default_rng(batch_seed)
        self._warm_start = config.warm_start
        gamma = float(getattr(config.algorithm, "gamma", 1.0))
        self._rewards = RewardNormalizer(gamma) if config.normalize_reward else None
        self.version = 0
        self.steps = 0
        self.refused = 0

    def warm_start(self, trajectories: Sequence[Trajectory]) -> Metrics:
        """Pretrain the policy by behavior cloning. Call it once, before the first `learn`."""
        assert self._warm_start is not None  # hosts call this only if the config has a warm_start block
        for trajectory in trajectories:
            _check_finite(trajectory, steps=0)
            if self._observations:
                self._observations.update(trajectory)
        if self._observations:
            self._observations.activate()
        return imitate(
            self.algorithm,
            self._warm_start,
            self._normalize_observations(_observation_action_pairs(trajectories)),
            self._rng,
        )

    def learn(self, trajectories: Iterable[Trajectory]) -> list[Metrics]:
        """Add trajectories to the buffer and run all due updates; returns the metrics of each update."""
        for trajectory in trajectories:
            self._add_trajectory(trajectory)
        metrics = [self._update(batch) for batch in self._buffer.batches(self._rng)]
        if metrics:
            self._publish_version()
        return metrics

    def steps_to_next_update(self) -> int:
        """Return the number of steps until the next update is due."""
        return self._buffer.steps_to_next_update()

    def policy(self) -> Policy:
        """Return the current policy: a frozen snapshot, or the live torch policy if its network cannot be exported."""
        snapshot = self.snapshot_or_none()
        return self._live_policy() if snapshot is None else SnapshotPolicy(snapshot)

    def snapshot(self) -> Snapshot:
        """Return the current policy as a snapshot. Raises `ExportError` if its network cannot be exported."""
        return self._live_policy().snapshot(self.version)

    def snapshot_or_none(self) -> Snapshot | None:
        """Return the current policy as a snapshot, or None if its network cannot be exported."""
        try:
            return self.snapshot()
        except ExportError:
            return None

    def export_error(self) -> str:
        """Return the reason why the policy cannot be exported to clients; empty if the policy can be exported."""
        try:
            self.snapshot()
        except ExportError as error:
            return str(error)
        return ""

    def own_networks(self) -> list[PlacedModule]:
        """Return the modules of the algorithm that contain networks of the user."""
        return [placed for placed in self._placed if any(is_own(part) for part in placed.module.modules())]

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

    def _add_trajectory(self, trajectory: Trajectory) -> None:
        _check_finite(trajectory, self.steps)
        accepted = self._buffer.add(trajectory, self.version)
        self.steps += accepted
        self.refused += len(trajectory) - accepted
        for statistics in (self._observations, self._rewards):
            if statistics and accepted:
                statistics.update(trajectory)

    def _update(self, batch: Batch) -> Metrics:
        update = self.algorithm.update(self._normalized(batch), self.steps)
        if update.feedback:
            self._buffer.feedback(batch, update.feedback)
        return update.metrics

    def _normalized(self, batch: Batch) -> Batch:
        batch = self._normalize_observations(self._normalize_observations(batch), "next_obs.")
        if self._rewards:
            batch = {**batch, "reward": self._rewards.apply(batch["reward"])}
        return batch

    def _normalize_observations(self, batch: Batch, prefix: str = "obs.") -> Batch:
        return self._observations.apply(batch, prefix) if self._observations else batch

    def _publish_version(self) -> None:
        for statistics in (self._observations, self._rewards):
            if statistics:
                statistics.activate()
        # Clients compare versions, so increment only after the new statistics are in use.
        self.version += 1

    def _live_policy(self) -> Policy:
        policy = self.algorithm.policy(self.steps)
        return NormalizedPolicy(policy, self._observations) if self._observations else policy


def build_learner(spec: Spec, config: LearnerConfig, seed: int, resources: BufferResources = NO_RESOURCES) -> Learner:
    """Build a Learner whose random numbers depend only on ``seed``."""
    return Learner(spec, config, np.random.SeedSequence(seed), resources)


def _build_algorithm(setup: AlgorithmSetup[AlgorithmConfig]) -> Algorithm:
    algorithm: Algorithm = ALGORITHMS.get(setup.options.name)(setup)
    return algorithm


def _observation_action_pairs(trajectories: Sequence[Trajectory]) -> Columns:
    """Return the columns of the observations before each step and of the actions taken."""
    parts = [transitions(trajectory) for trajectory in trajectories]
    names = [name for name in parts[0] if name.startswith(OBSERVATION) or name == "action"]
    return {name: np.concatenate([part[name] for part in parts]) for name in names}


def _check_finite(trajectory: Trajectory, steps: int) -> None:
    for name, column in trajectory.columns.items():
        if column.dtype.kind == "f" and not np.isfinite(column).all():
            row = int(np.argwhere(~np.isfinite(column))[0][0])
            raise NumericalError(
                f"{name} is {column[row]!s:.80} at step {steps + row}, "
                f"{trajectory.offset + row} steps into its episode: {_LIKELY_CAUSES.get(name, _DEFAULT_CAUSE)}"
            )


_DEFAULT_CAUSE = "the controlled system reports values that are NaN or infinite"
_LIKELY_CAUSES = {
    "reward": "check how the system computes its reward (division by zero, logarithm of 0?)",
    "log_prob": "the policy's weights are not finite; lower algorithm.lr",
    "action": "the policy's weights are not finite; lower algorithm.lr",
    "memory": "the policy's weights are not finite; lower algorithm.lr",
}
