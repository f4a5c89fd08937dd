"""Turns a policy into trajectories by stepping local environments."""

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
    """What a finished episode came to."""

    total_reward: float
    length: int


class Standing(Protocol):
    """Which episode an environment is in, and how many steps that has had."""

    @property
    def episode(self) -> int: ...

    @property
    def steps(self) -> int: ...


@dataclass
class _Place:
    """One environment and where its present episode stands.

    An episode is decided by its seed and the actions since, and each has a seed of its own: so that is all
    the state there is to keep, for any environment that obeys Gymnasium's contract of reset.
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
        """A number no other episode of this actor has."""
        return self.episodes * self.stride + self.index

    @property
    def steps(self) -> int:
        """How many the episode has had."""
        return len(self.actions)

    def reset(self) -> tuple[Any, dict[str, Any]]:
        if self.remake:
            self.environment.close()
            self.environment = self.make()
        self.actions, self.total_reward = [], 0.0
        return self.environment.reset(seed=episode_seed(self.entropy, self.episode))

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        # A copy, since the environment may change the array it is given.
        self.actions.append(np.copy(action) if isinstance(action, np.ndarray) else action)
        observation, reward, terminated, truncated, info = self.environment.step(action)
        self.total_reward += float(reward)
        return observation, float(reward), bool(terminated), bool(truncated), info

    def state(self) -> State:
        return {"entropy": self.entropy, "episodes": self.episodes, "actions": np.array(self.actions)}

    def replay(self, state: State) -> tuple[Any, dict[str, Any]]:
        """Back to the saved point; what the environment shows there."""
        self.entropy, self.episodes = int(state["entropy"]), int(state["episodes"])
        observation, info = self.reset()
        for action in _as_given(state["actions"]):
            observation, *_, info = self.step(action)
        return observation, info


class Actor:
    """Steps ``num_envs`` environments in turn with one policy for all, in one thread."""

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
        self._places = [_Place(make, make(), entropy, num_envs, index, remake) for index in range(num_envs)]
        self._encoding = Encoding(self._places[0].environment)
        self._draws = Draws(key)
        self._observation = self._encoding.empty(num_envs)
        self._largest_reward = math.inf if clip_reward is None else clip_reward
        self._memory: Columns = {}
        self._finished: list[Episode] = []
        for row, place in enumerate(self._places):
            self._encoding.write(self._observation, row, *place.reset())

    @property
    def spec(self) -> Spec:
        return self._encoding.spec

    def collect(self, policy: Policy, version: int, steps: int) -> list[Trajectory]:
        """At least ``steps`` steps, as many in each environment; every trajectory is cut at the end."""
        length = -(-steps // len(self._places))
        recording = Recording(self._encoding, len(self._places), length, version)
        for step in range(length):
            decision = policy.act(self._observation, self._memory, self._draws)
            recording.write(step, self._observation, self._memory, decision)
            self._memory = decision.memory
            for row, action in enumerate(self._encoding.to_system(decision.action)):
                self._step(row, step, action, recording)
        for row, place in enumerate(self._places):
            recording.cut(row, length, place, self._observation)
        return recording.trajectories

    def take_finished(self) -> list[Episode]:
        """The episodes that ended since the last call."""
        finished, self._finished = self._finished, []
        return finished

    def close(self) -> None:
        for place in self._places:
            place.environment.close()

    def state(self) -> State:
        return {
            "draws": self._draws.state(),
            "memory": {name: column.copy() for name, column in self._memory.items()},
            "observation": {name: column.copy() for name, column in self._observation.items()},
            "places": [place.state() for place in self._places],
        }

    def restore(self, state: State) -> None:
        """Back to the saved point; `ReplayError` if an environment, given the same actions, shows something else."""
        self._draws.restore(state["draws"])
        self._memory = {name: np.array(column) for name, column in state["memory"].items()}
        for row, (place, saved) in enumerate(zip(self._places, state["places"], strict=True)):
            self._encoding.write(self._observation, row, *place.replay(saved))
        check_replayed(self._observation, state["observation"])

    def _step(self, row: int, step: int, action: Any, recording: Recording) -> None:
        place = self._places[row]
        observation, reward, terminated, truncated, info = place.step(action)
        recording.reward[row, step] = min(max(reward, -self._largest_reward), self._largest_reward)
        self._encoding.write(self._observation, row, observation, info)
        if terminated or truncated:
            recording.cut(row, step + 1, place, self._observation, terminated=terminated, truncated=truncated)
            self._finished.append(Episode(place.total_reward, place.steps))
            place.episodes += 1
            self._encoding.write(self._observation, row, *place.reset())
            for column in self._memory.values():
                column[row] = 0


class Recording:
    """The columns of one round of `Actor.collect`, environment by environment."""

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
        """What was seen and remembered before the step, and what was decided."""
        for name, column in observation.items():
            self._observation[f"obs.{name}"][:, step] = column
        self._action[:, step] = decision.action
        self._log_prob[:, step] = decision.log_prob
        if MEMORY in decision.memory:
            self._write_memory(step, memory, decision.memory[MEMORY])

    def cut(
        self, row: int, end: int, place: Standing, led_to: Columns, *, terminated: bool = False, truncated: bool = False
    ) -> None:
        """Hand over the steps of one environment since its last cut; ``led_to`` is what it shows now."""
        start, self._starts[row] = self._starts[row], end
        if start == end:
            return
        columns: dict[str, Array] = {
            name: np.concatenate([column[row, start:end], led_to[name.removeprefix("obs.")][row : row + 1]])
            for name, column in self._observation.items()
        }
        columns["action"], columns["log_prob"] = self._action[row, start:end], self._log_prob[row, start:end]
        columns["reward"] = self.reward[row, start:end]
        if self._memory is not None:
            columns[MEMORY] = self._memory[row : row + 1].copy()
        offset = place.steps - (end - start)
        self.trajectories.append(
            Trajectory(self._version, columns, place.episode, offset, terminated=terminated, truncated=truncated)
        )

    def _write_memory(self, step: int, before: Columns, after: Array) -> None:
        """Keep what the policy remembered where a trajectory begins at this step."""
        if self._memory is None:
            self._memory = np.zeros_like(after)
        if MEMORY in before:
            beginning = [start == step for start in self._starts]
            self._memory[beginning] = before[MEMORY][beginning]


def check_replayed(shown: Columns, saved: Columns) -> None:
    """`ReplayError` unless environments show what they did when they were saved."""
    for name, column in shown.items():
        if not np.array_equal(column, saved[name], equal_nan=column.dtype.kind == "f"):
            raise ReplayError(
                f"{name} is not what it was when the checkpoint was made: this environment's reset(seed) does not "
                "decide its episode alone, so it cannot be resumed exactly. Start a new run with "
                "environment.remake=true, which makes it anew for every episode"
            )


def episode_seed(entropy: int, episode: int) -> int:
    return int(np.random.SeedSequence([entropy, episode]).generate_state(1)[0])


def _as_given(actions: Array) -> list[Any]:
    """Saved actions in the form they were first given: plain ints, or arrays."""
    return actions.tolist() if actions.ndim == 1 and actions.dtype.kind == "i" else list(actions.copy())
