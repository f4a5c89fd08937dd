"""Prioritized experience replay (Schaul et al. 2016): samples steps with a large TD error more often."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from rl4sys.buffers.base import Batch, BufferBytes, Demand
from rl4sys.buffers.ring import slots_for
from rl4sys.buffers.sum_tree import SumTree, tree_bytes
from rl4sys.buffers.uniform import Replay, UniformConfig
from rl4sys.errors import ConfigError
from rl4sys.spec import Array, Columns, Spec, State
from rl4sys.trajectory import Trajectory

PRIORITY = "priority"
"""Feedback column with the priority of each row, such as its absolute TD error."""


class PrioritizedConfig(UniformConfig):
    """Options of the `prioritized` buffer."""

    alpha: float = Field(default=0.6, ge=0, le=1)
    """Priority exponent: 0 samples uniformly, 1 in proportion to the priorities."""
    beta_start: float = Field(default=0.4, ge=0, le=1)
    """Initial exponent of the importance weights; 1 corrects the bias fully."""
    beta_steps: int = Field(default=100_000, gt=0)
    """Number of steps over which beta grows from beta_start to 1."""
    epsilon: float = Field(default=1e-6, gt=0)
    """Constant added to every priority, so that every step can be sampled."""


class Prioritized(Replay):
    """Replay buffer that samples steps by the priorities from `feedback`; new steps get the largest priority so far.

    In addition to the columns of `Replay`, a batch has weight (importance weight, at most 1) and index (step numbers).
    The algorithm multiplies each row's loss by its weight and returns ``priority``.
    """

    Config = PrioritizedConfig

    def __init__(self, config: PrioritizedConfig, demand: Demand) -> None:
        super().__init__(config, demand)
        self._options = config
        self._tree = SumTree(slots_for(config.size))
        self._max_priority = 1.0
        self._awaits_priorities = False

    @staticmethod
    def required_bytes(config: UniformConfig, spec: Spec) -> BufferBytes:
        replay = Replay.required_bytes(config, spec)
        return BufferBytes(replay.ram + tree_bytes(slots_for(config.size)), replay.disk)

    def add(self, trajectory: Trajectory, version: int) -> int:
        oldest = self._ring.oldest
        numbers = self._ring.add(trajectory)
        overwritten = np.arange(oldest, min(self._ring.oldest, int(numbers[0])))
        self._prioritize(overwritten, np.zeros(len(overwritten)))
        stored = numbers[numbers >= self._ring.oldest]
        self._prioritize(stored, np.full(len(stored), self._max_priority))
        return len(trajectory)

    def sample(self, rng: np.random.Generator, rows: int) -> Batch:
        if self._awaits_priorities:
            raise _no_priorities()
        self._awaits_priorities = True
        # Stratified sampling: divide the sum of the priorities into equal intervals, and draw once in each.
        values = (np.arange(rows) + rng.random(rows)) / rows * self._tree.total
        numbers = self._numbers(self._tree.find(values))
        return self._transitions(numbers, self._recorded) | {"weight": self._weights(numbers), "index": numbers}

    def feedback(self, batch: Batch, feedback: Columns) -> None:
        if PRIORITY not in feedback:
            raise _no_priorities()
        self._awaits_priorities = False
        error = np.abs(np.asarray(feedback[PRIORITY], np.float64))
        # Round to single precision, the precision of priorities in checkpoints.
        priorities = ((error + self._options.epsilon) ** self._options.alpha).astype(np.float32).astype(np.float64)
        stored = batch["index"] >= self._ring.oldest
        self._prioritize(batch["index"][stored], priorities[stored])
        self._max_priority = max(self._max_priority, float(priorities.max(initial=0.0)))

    def state(self) -> State:
        priorities = self._tree.get(self._ring.slots(self._stored_numbers()))
        return {**super().state(), "priorities": priorities.astype(np.float32), "largest": self._max_priority}

    def restore(self, state: State) -> None:
        super().restore(state)
        self._prioritize(self._stored_numbers(), state["priorities"].astype(np.float64))
        self._max_priority = float(state["largest"])

    def _stored_numbers(self) -> Array:
        return np.arange(self._ring.oldest, self._ring.seen)

    def _prioritize(self, numbers: Array, priorities: Array) -> None:
        self._tree.set(self._ring.slots(numbers), priorities)

    def _numbers(self, slots: Array) -> Array:
        """Return the step numbers of the steps in the given slots."""
        oldest = self._ring.oldest
        return oldest + self._ring.slots(slots - oldest)

    def _weights(self, numbers: Array) -> Array:
        """Return the importance weights (1 / (N P(i))) ** beta, divided by the largest weight of the batch."""
        progress = min(1.0, self._ring.seen / self._options.beta_steps)
        beta = self._options.beta_start + progress * (1.0 - self._options.beta_start)
        priorities = self._tree.get(self._ring.slots(numbers))
        return np.asarray((priorities / priorities.min()) ** -beta, np.float32)


def _no_priorities() -> ConfigError:
    return ConfigError(
        "buffer.type is 'prioritized', but the algorithm returned no priorities for its last batch; use 'uniform', or "
        'let the algorithm return Update(metrics, {"priority": absolute TD error of each row})'
    )
