"""Running means and deviations of what a learner sees.

Statistics are gathered with every trajectory but come into force only when a new policy version does, so
that learner and clients always see an observation the same way for one version. Trajectories and buffers
hold observations and rewards as the system gave them.
"""

from __future__ import annotations

import numpy as np

from rl4sys.policy.base import Decision, Policy
from rl4sys.policy.draws import Draws
from rl4sys.policy.program import Operation
from rl4sys.policy.snapshot import Snapshot
from rl4sys.spec import MASK, Array, Box, Columns, Spec, State
from rl4sys.trajectory import Trajectory

LIMIT = 10.0
"""Normalised values are clipped to -LIMIT..LIMIT."""
_EPSILON = 1e-8
_REMEMBERED_EPISODES = 4096


class Moments:
    """Mean and variance of all rows seen so far (Chan et al. 1979, for merging batches)."""

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
        """One over the standard deviation; 1 before anything was seen."""
        if not self.count:
            return np.ones_like(self._squares)
        return np.asarray(1 / np.sqrt(self._squares / self.count + _EPSILON))

    def state(self) -> State:
        # np.array, not copy: arithmetic on an array of no dimensions gives a number, which has no place among arrays.
        return {"count": self.count, "mean": np.array(self.mean), "squares": np.array(self._squares)}

    def restore(self, state: State) -> None:
        self.count = int(state["count"])
        self.mean, self._squares = np.array(state["mean"]), np.array(state["squares"])


class ObservationNormalizer:
    """Shifts and scales every observation but the mask, element by element, to mean 0 and deviation 1."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._moments = {name: Moments(space.shape) for name, space in spec.observation.items() if name != MASK}
        self._in_force: dict[str, tuple[Array, Array]] = {}
        self.put_in_force()

    @property
    def spec(self) -> Spec:
        """What networks are given: of bytes, too, numbers that no one need scale any more."""
        seen = {name: Box(self._spec.observation[name].shape, low=(-LIMIT,), high=(LIMIT,)) for name in self._moments}
        return Spec({**self._spec.observation, **seen}, self._spec.action)

    def see(self, trajectory: Trajectory) -> None:
        for name, moments in self._moments.items():
            moments.add(trajectory.columns[f"obs.{name}"][:-1])

    def put_in_force(self) -> None:
        """Use all that was seen until now; called when a new version is made."""
        self._in_force = {
            name: (moments.mean.astype(np.float32), moments.scale().astype(np.float32))
            for name, moments in self._moments.items()
        }

    def apply(self, columns: Columns, prefix: str) -> dict[str, Array]:
        """A copy of the columns in which those named ``prefix`` + observation are normalised."""
        changed = {prefix + name: _normalize(columns[prefix + name], *use) for name, use in self._in_force.items()}
        return {**columns, **changed}

    def prepend_to(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot of a policy for normalised observations, made one for plain observations."""
        mean, scale = (np.concatenate([use[i].ravel() for use in self._in_force.values()]) for i in range(2))
        names = ("normalizer.mean", "normalizer.scale")
        program = snapshot.program.after(Operation("normalize", names, {"limit": LIMIT}))
        weights = {**snapshot.weights, names[0]: mean, names[1]: scale}
        return Snapshot(snapshot.version, self._spec, program, weights)

    def state(self) -> State:
        return {
            "moments": {name: moments.state() for name, moments in self._moments.items()},
            "in_force": {name: {"mean": mean, "scale": scale} for name, (mean, scale) in self._in_force.items()},
        }

    def restore(self, state: State) -> None:
        for name, moments in self._moments.items():
            moments.restore(state["moments"][name])
        self._in_force = {name: (np.array(u["mean"]), np.array(u["scale"])) for name, u in state["in_force"].items()}


class RewardNormalizer:
    """Divides rewards by the deviation of the discounted return so far, which keeps their sign."""

    def __init__(self, gamma: float) -> None:
        self._gamma = gamma
        self._moments = Moments(())
        self._returns: dict[int, float] = {}
        self._scale = np.float32(1)

    def see(self, trajectory: Trajectory) -> None:
        running = self._returns.pop(trajectory.episode, 0.0)
        returns = np.empty(len(trajectory))
        for step, reward in enumerate(trajectory.columns["reward"].tolist()):
            running = self._gamma * running + reward
            returns[step] = running
        self._moments.add(returns)
        if not trajectory.ended:
            self._remember(trajectory.episode, running)

    def put_in_force(self) -> None:
        """Use all that was seen until now; called when a new version is made."""
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
        if len(self._returns) > _REMEMBERED_EPISODES:
            del self._returns[next(iter(self._returns))]


class NormalizedPolicy:
    """A live policy for normalised observations, given plain ones."""

    def __init__(self, policy: Policy, normalizer: ObservationNormalizer) -> None:
        self._policy, self._normalizer = policy, normalizer

    def act(self, observation: Columns, memory: Columns, draws: Draws) -> Decision:
        return self._policy.act(self._normalizer.apply(observation, ""), memory, draws)

    def greedy(self) -> NormalizedPolicy:
        return NormalizedPolicy(self._policy.greedy(), self._normalizer)

    def snapshot(self, version: int) -> Snapshot:
        return self._normalizer.prepend_to(self._policy.snapshot(version))


def _normalize(rows: Array, mean: Array, scale: Array) -> Array:
    return np.asarray(np.clip((rows - mean) * scale, -LIMIT, LIMIT), np.float32)
