"""Actor: steps local environments with a policy and returns trajectories."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from rl4sys.environments.base import Environment
from rl4sys.environments.encoding import Encoding
from rl4sys.errors import ReplayError
from rl4sys.policy.base import Decision, Policy
from rl4sys.policy.draws import Draws
from rl4sys.spec import Array, Columns, Spec, State
from rl4sys.trajectory import MEMORY, Trajectory


class Episode(NamedTuple):
    """Total reward and length of a finished episode."""

    total_reward: float
    length: int


class EpisodePosition(Protocol):
    """Position in an environment: number of the current episode and number of steps taken in this episode."""

    @property
    def episode(self) -> int: ...

    @property
    def steps(self) -> int: ...


@dataclass
class _EnvironmentSlot:
    """One environment and the state of its current episode.

    Each episode has its own seed. In an environment that follows Gymnasium's reset contract, the seed and the actions
    determine the episode, so a checkpoint stores only the seed and the actions.
    """

    make: Callable[[], Environment]
    environment: Environment
    entropy: int
    stride: int
    index: int
    remake: bool = False
    episodes: int = 0
    actions: list[Any] = field(default_factory=list)
    total_reward: float = 0.0

    @property
    def episode(self) -> int:
        """Number of the current episode; unique within this actor."""
        return self.episodes * self.stride + self.index

    @property
    def steps(self) -> int:
        """Number of steps taken in the current episode."""
        return len(self.actions)

    def reset(self) -> tuple[Any, dict[str, Any]]:
        if self.remake:
            self.environment.close()
            self.environment = self.make()
        self.actions, self.total_reward = [], 0.0
        return self.environment.reset(seed=episode_seed(self.entropy, self.episode))

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        # Store a copy, because the environment may modify the array.
        self.actions.append(np.copy(action) if isinstance(action, np.ndarray) else action)
        observation, reward, terminated, truncated, info = self.environment.step(action)
        self.total_reward += float(reward)
        return observation, float(reward), bool(terminated), bool(truncated), info

    def state(self) -> State:
        return {"entropy": self.entropy, "episodes": self.episodes, "actions": np.array(self.actions)}

    def replay(self, state: State) -> tuple[Any, dict[str, Any]]:
        """Replay the saved actions of the current episode and return the last observation and info."""
        self.entropy, self.episodes = int(state["entropy"]), int(state["episodes"])
        observation, info = self.reset()
        for action in _to_plain_actions(state["actions"]):
            observation, *_, info = self.step(action)
        return observation, info


class Actor:
    """Steps ``num_envs`` environments in turn with one policy, in one thread."""

    def __init__(
        self,
        make: Callable[[], Environment],
        num_envs: int,
        seed: np.random.SeedSequence,
        *,
        remake: bool = False,
        clip_reward: float | None = None,
    ) -> None:
        entropy, key = (int(n) for n in seed.generate_state(2, np.uint64))
        self._slots = [_EnvironmentSlot(make, make(), entropy, num_envs, index, remake) for index in range(num_envs)]
        self._encoding = Encoding(self._slots[0].environment)
        self._draws = Draws(key)
        self._observation = self._encoding.empty(num_envs)
        self._max_reward = math.inf if clip_reward is None else clip_reward
        self._memory: Columns = {}
        self._finished: list[Episode] = []
        for row, slot in enumerate(self._slots):
            self._encoding.write(self._observation, row, *slot.reset())

    @property
    def spec(self) -> Spec:
        return self._encoding.spec

    def collect(self, policy: Policy, version: int, steps: int) -> list[Trajectory]:
        """Collect at least ``steps`` steps, the same number in each environment, and return them as trajectories.

        An episode that is unfinished at the end continues in the next call, as a new trajectory.
        """
        length = -(-steps // len(self._slots))
        builder = TrajectoryBuilder(self._encoding, len(self._slots), length, version)
        for step in range(length):
            decision = policy.act(self._observation, self._memory, self._draws)
            builder.write(step, self._observation, self._memory, decision)
            self._memory = decision.memory
            for row, action in enumerate(self._encoding.decode_actions(decision.action)):
                self._step(row, step, action, builder)
        for row, slot in enumerate(self._slots):
            builder.cut(row, length, slot, self._observation)
        return builder.trajectories

    def take_finished(self) -> list[Episode]:
        """Return the episodes that ended since the last call."""
        finished, self._finished = self._finished, []
        return finished

    def close(self) -> None:
        for slot in self._slots:
            slot.environment.close()

    def state(self) -> State:
        return {
            "draws": self._draws.state(),
            "memory": {name: column.copy() for name, column in self._memory.items()},
            "observation": {name: column.copy() for name, column in self._observation.items()},
            "places": [slot.state() for slot in self._slots],
        }

    def restore(self, state: State) -> None:
        """Restore the saved state by replaying actions. Raises ReplayError if the observations then differ."""
        self._draws.restore(state["draws"])
        self._memory = {name: np.array(column) for name, column in state["memory"].items()}
        for row, (slot, saved) in enumerate(zip(self._slots, state["places"], strict=True)):
            self._encoding.write(self._observation, row, *slot.replay(saved))
        check_replay(self._observation, state["observation"])

    def _step(self, row: int, step: int, action: Any, builder: TrajectoryBuilder) -> None:
        slot = self._slots[row]
        observation, reward, terminated, truncated, info = slot.step(action)
        builder.reward[row, step] = min(max(reward, -self._max_reward), self._max_reward)
        self._encoding.write(self._observation, row, observation, info)
        if terminated or truncated:
            builder.cut(row, step + 1, slot, self._observation, terminated=terminated, truncated=truncated)
            self._finished.append(Episode(slot.total_reward, slot.steps))
            slot.episodes += 1
            self._encoding.write(self._observation, row, *slot.reset())
            for column in self._memory.values():
                column[row] = 0


class TrajectoryBuilder:
    """Builds the trajectories of one `collect` call from preallocated columns, one row per environment."""

    def __init__(self, encoding: Encoding, num_envs: int, length: int, version: int) -> None:
        self.trajectories: list[Trajectory] = []
        self.reward = np.zeros((num_envs, length), np.float32)
        self._observation = {
            f"obs.{name}": np.empty((num_envs, length, *box.shape), box.dtype)
            for name, box in encoding.spec.observation.items()
        }
        action = encoding.spec.action
        self._action = np.empty((num_envs, length, *action.shape), action.dtype)
        self._log_prob = np.empty((num_envs, length), np.float32)
        self._memory: Array | None = None
        self._starts = [0] * num_envs
        self._version = version

    def write(self, step: int, observation: Columns, memory: Columns, decision: Decision) -> None:
        """Record one step of all environments: the observations and memory before the step, and the decisions."""
        for name, column in observation.items():
            self._observation[f"obs.{name}"][:, step] = column
        self._action[:, step] = decision.action
        self._log_prob[:, step] = decision.log_prob
        if MEMORY in decision.memory:
            self._write_memory(step, memory, decision.memory[MEMORY])

    def cut(
        self,
        row: int,
        end: int,
        position: EpisodePosition,
        next_observation: Columns,
        *,
        terminated: bool = False,
        truncated: bool = False,
    ) -> None:
        """Append the trajectory of environment ``row`` from its last cut to step ``end`` (exclusive).

        ``next_observation`` has one row per environment.
        """
        start, self._starts[row] = self._starts[row], end
        if start == end:
            return
        columns: dict[str, Array] = {
            name: np.concatenate([column[row, start:end], next_observation[name.removeprefix("obs.")][row : row + 1]])
            for name, column in self._observation.items()
        }
        columns["action"], columns["log_prob"] = self._action[row, start:end], self._log_prob[row, start:end]
        columns["reward"] = self.reward[row, start:end]
        if self._memory is not None:
            columns[MEMORY] = self._memory[row : row + 1].copy()
        offset = position.steps - (end - start)
        self.trajectories.append(
            Trajectory(self._version, columns, position.episode, offset, terminated=terminated, truncated=truncated)
        )

    def _write_memory(self, step: int, before: Columns, after: Array) -> None:
        """Store the memory of environments whose trajectory begins at this step."""
        if self._memory is None:
            self._memory = np.zeros_like(after)
        if MEMORY in before:
            beginning = [start == step for start in self._starts]
            self._memory[beginning] = before[MEMORY][beginning]


def check_replay(replayed: Columns, saved: Columns) -> None:
    """Raise ReplayError if the observations after a replay differ from the saved observations."""
    for name, column in replayed.items():
        if not np.array_equal(column, saved[name], equal_nan=column.dtype.kind == "f"):
            raise ReplayError(
                f"observation '{name}' differs from the checkpoint after replay: the environment's reset(seed) does "
                "not determine the episode, so the run cannot be resumed exactly. Start a new run with "
                "environment.remake=true, which creates a new environment for every episode"
            )


def episode_seed(entropy: int, episode: int) -> int:
    return int(np.random.SeedSequence([entropy, episode]).generate_state(1)[0])


def _to_plain_actions(actions: Array) -> list[Any]:
    """Convert saved actions to the plain ints or arrays that the environment received."""
    return actions.tolist() if actions.ndim == 1 and actions.dtype.kind == "i" else list(actions.copy())
