"""Normalization of observations and rewards by running statistics.

Statistics are updated with every trajectory but take effect only with a new policy version. The learner and the
clients therefore normalize equally for the same version. Trajectories and buffers contain raw observations and rewards.
"""

from __future__ import annotations

import numpy as np

from rl4sys.policy.base import Decision, Policy
from rl4sys.policy.draws import Draws
from rl4sys.policy.program import Operation
from rl4sys.policy.snapshot import Snapshot
from rl4sys.spec import MASK, Array, Box, Columns, Spec, State, check_observation
from rl4sys.trajectory import Trajectory

LIMIT = 10.0
"""Normalized values are clipped to -LIMIT..LIMIT."""
_EPSILON = 1e-8
_MAX_OPEN_EPISODES = 4096


class Moments:
    """Running mean and variance of array elements, updated with batches of rows (Chan et al. 1979)."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.count = 0
        self.mean, self._squares = np.zeros(shape), np.zeros(shape)

    def add(self, rows: Array) -> None:
        if not len(rows):
            return
        rows = rows.astype(np.float64)
        mean, total = rows.mean(0), self.count + len(rows)
        shift = mean - self.mean
        self._squares += ((rows - mean) ** 2).sum(0) + shift**2 * self.count * len(rows) / total
        self.mean = self.mean + shift * len(rows) / total
        self.count = total

    def scale(self) -> Array:
        """Return the reciprocal of the standard deviation; 1 before the first row."""
        if not self.count:
            return np.ones_like(self._squares)
        return np.asarray(1 / np.sqrt(self._squares / self.count + _EPSILON))

    def state(self) -> State:
        # Use np.array instead of copy: arithmetic on 0-dimensional arrays gives scalars, and the state needs arrays.
        return {"count": self.count, "mean": np.array(self.mean), "squares": np.array(self._squares)}

    def restore(self, state: State) -> None:
        self.count = int(state["count"])
        self.mean, self._squares = np.array(state["mean"]), np.array(state["squares"])


class ObservationNormalizer:
    """Normalizes each observation element to mean 0 and standard deviation 1; the action mask is left unchanged."""

    def __init__(self, spec: Spec) -> None:
        self.raw_spec = spec
        """Spec of the observations before normalization."""
        self._moments = {name: Moments(space.shape) for name, space in spec.observation.items() if name != MASK}
        self._active: dict[str, tuple[Array, Array]] = {}
        self.activate()

    @property
    def spec(self) -> Spec:
        """Spec of the normalized observations, which the networks receive; images become float32 arrays."""
        seen = {
            name: Box(self.raw_spec.observation[name].shape, low=(-LIMIT,), high=(LIMIT,)) for name in self._moments
        }
        return Spec({**self.raw_spec.observation, **seen}, self.raw_spec.action)

    def update(self, trajectory: Trajectory) -> None:
        """Add the observations of all steps, without the final observation, to the running statistics."""
        for name, moments in self._moments.items():
            moments.add(trajectory.columns[f"obs.{name}"][:-1])

    def activate(self) -> None:
        """Normalize with the current statistics from now on. The learner calls this for each new policy version."""
        self._active = {
            name: (moments.mean.astype(np.float32), moments.scale().astype(np.float32))
            for name, moments in self._moments.items()
        }

    def apply(self, columns: Columns, prefix: str) -> dict[str, Array]:
        """Return a copy of the columns with normalized observations. Their column names start with ``prefix``."""
        changed = {prefix + name: _normalize(columns[prefix + name], *use) for name, use in self._active.items()}
        return {**columns, **changed}

    def prepend_to(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot with a normalization operation before its program, which then takes raw observations."""
        mean, scale = (np.concatenate([use[i].ravel() for use in self._active.values()]) for i in range(2))
        names = ("normalizer.mean", "normalizer.scale")
        program = snapshot.program.after(Operation("normalize", names, {"limit": LIMIT}))
        weights = {**snapshot.weights, names[0]: mean, names[1]: scale}
        return Snapshot(snapshot.version, self.raw_spec, program, weights)

    def state(self) -> State:
        return {
            "moments": {name: moments.state() for name, moments in self._moments.items()},
            "in_force": {name: {"mean": mean, "scale": scale} for name, (mean, scale) in self._active.items()},
        }

    def restore(self, state: State) -> None:
        for name, moments in self._moments.items():
            moments.restore(state["moments"][name])
        self._active = {name: (np.array(u["mean"]), np.array(u["scale"])) for name, u in state["in_force"].items()}


class RewardNormalizer:
    """Divides rewards by the running standard deviation of the discounted return; the sign of a reward is kept."""

    def __init__(self, gamma: float) -> None:
        self._gamma = gamma
        self._moments = Moments(())
        self._returns: dict[int, float] = {}
        self._scale = np.float32(1)

    def update(self, trajectory: Trajectory) -> None:
        """Add the discounted returns of a trajectory to the statistics. Episodes may span several trajectories."""
        running = self._returns.pop(trajectory.episode, 0.0)
        returns = np.empty(len(trajectory))
        for step, reward in enumerate(trajectory.columns["reward"].tolist()):
            running = self._gamma * running + reward
            returns[step] = running
        self._moments.add(returns)
        if not trajectory.ended:
            self._remember(trajectory.episode, running)

    def activate(self) -> None:
        """Normalize with the current statistics from now on. The learner calls this for each new policy version."""
        self._scale = np.float32(self._moments.scale())

    def apply(self, reward: Array) -> Array:
        return np.clip(reward * self._scale, -LIMIT, LIMIT)

    def state(self) -> State:
        return {
            "moments": self._moments.state(),
            "episodes": np.array(list(self._returns), np.int64),
            "returns": np.array(list(self._returns.values()), np.float64),
            "scale": float(self._scale),
        }

    def restore(self, state: State) -> None:
        self._moments.restore(state["moments"])
        self._returns = dict(zip(state["episodes"].tolist(), state["returns"].tolist(), strict=True))
        self._scale = np.float32(state["scale"])

    def _remember(self, episode: int, running: float) -> None:
        self._returns[episode] = running
        if len(self._returns) > _MAX_OPEN_EPISODES:
            del self._returns[next(iter(self._returns))]


class NormalizedPolicy:
    """Policy that normalizes raw observations and passes them to another policy."""

    def __init__(self, policy: Policy, normalizer: ObservationNormalizer) -> None:
        self._policy, self._normalizer = policy, normalizer

    @property
    def spec(self) -> Spec:
        return self._normalizer.raw_spec

    def act(self, observation: Columns, memory: Columns, draws: Draws) -> Decision:
        # Check the shapes before normalization, because numpy would broadcast a wrong shape.
        check_observation(self._normalizer.raw_spec, observation)
        return self._policy.act(self._normalizer.apply(observation, ""), memory, draws)

    def greedy(self) -> NormalizedPolicy:
        return NormalizedPolicy(self._policy.greedy(), self._normalizer)

    def snapshot(self, version: int) -> Snapshot:
        return self._normalizer.prepend_to(self._policy.snapshot(version))


def _normalize(rows: Array, mean: Array, scale: Array) -> Array:
    return np.asarray(np.clip((rows - mean) * scale, -LIMIT, LIMIT), np.float32)
