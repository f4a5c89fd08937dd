"""Task whose best action is known: episodes of eight steps with independent random observations."""

from __future__ import annotations

import numpy as np

from rl4sys.algorithms.base import Metrics
from rl4sys.learner.learner import Learner
from rl4sys.policy.base import Decision, Policy
from rl4sys.policy.draws import Draws
from rl4sys.spec import MASK, Array, Box, Columns, DiscreteSpace, Spec, encoded_size
from rl4sys.trajectory import Trajectory

STEPS = 8
"""Number of steps of an episode."""

_HIGHEST = 127
"""Highest integer in observations of integers; the most that fits into every dtype."""


class RewardedTask:
    """Source of episodes. Two tasks with the same seed give a learner the same experience."""

    def __init__(self, spec: Spec, seed: int = 0) -> None:
        self._spec = spec
        self._rng, self._draws = np.random.default_rng(seed), Draws(seed)
        self._number = 0

    def feed(self, learner: Learner, episodes: int) -> list[Metrics]:
        """Let a learner act and learn for a number of episodes; return the metrics of its updates."""
        return [metrics for _ in range(episodes) for metrics in learner.learn([self.episode(learner)])]

    def episode(self, learner: Learner) -> Trajectory:
        number, self._number = self._number, self._number + 1
        return episode(learner, self._spec, self._rng, self._draws, number)


def episode(learner: Learner, spec: Spec, rng: np.random.Generator, draws: Draws, number: int) -> Trajectory:
    """Return an episode of eight steps with independent random observations."""
    observation = observe(spec, rng, STEPS + 1)
    acted = {name: column[:STEPS] for name, column in observation.items()}
    decision = act_in_turn(learner.policy(), acted, draws)
    columns = {f"obs.{name}": column for name, column in observation.items()}
    columns |= {"action": decision.action, "log_prob": decision.log_prob}
    columns |= {name: np.zeros_like(memory[:1]) for name, memory in decision.memory.items()}
    columns["reward"] = reward(spec, acted, decision.action)
    return Trajectory(learner.version, columns, episode=number, terminated=True)


def act_in_turn(policy: Policy, observation: Columns, draws: Draws) -> Decision:
    """Act step by step, as in an episode; in one batch if the policy is not recurrent."""
    first = policy.act({name: column[:1] for name, column in observation.items()}, {}, Draws(0))
    if not first.memory:
        return policy.act(observation, {}, draws)
    decisions: list[Decision] = []
    memory: Columns = {}
    for step in range(STEPS):
        decisions.append(policy.act({name: c[step : step + 1] for name, c in observation.items()}, memory, draws))
        memory = decisions[-1].memory
    action, log_prob = (np.concatenate([decision[part] for decision in decisions]) for part in (0, 1))
    return Decision(action, log_prob, memory)


def observe(spec: Spec, rng: np.random.Generator, rows: int) -> dict[str, Array]:
    """Return random observations. A mask forbids some actions, but at least one of each dimension is legal."""
    columns = {name: _values(box, rng, rows) for name, box in spec.observation.items() if name != MASK}
    if not spec.masked or isinstance(spec.action, Box):
        return columns
    mask = rng.random((rows, encoded_size(spec.action))) < 0.7
    for end, size in zip(np.cumsum(spec.action.parts), spec.action.parts, strict=True):
        mask[np.arange(rows), end - 1 - rng.integers(size, size=rows)] = True
    return {**columns, MASK: mask}


def reward(spec: Spec, observation: Columns, action: Array) -> Array:
    """Return the reward of each action.

    The best discrete action is the legal action with the highest of the first numbers of the observation. Each
    dimension of a MultiDiscrete action has its own numbers and share of the reward, which is 1 for the best action. The
    best continuous action has the value of the first number in all dimensions; the reward is minus the distance to it,
    in halves of the range of the action.
    """
    numbers = np.concatenate([_numbers(column) for name, column in observation.items() if name != MASK], axis=1)
    if isinstance(spec.action, Box):
        return _minus_distance(spec.action, numbers[:, :1], action)
    best = best_actions(spec.action, numbers, observation.get(MASK))
    return np.asarray((action.reshape(len(action), -1) == best).mean(-1, dtype=np.float32))


def best_actions(space: DiscreteSpace, numbers: Array, mask: Array | None) -> Array:
    """Return the best legal action of each row, with one column per action dimension."""
    size = encoded_size(space)
    if numbers.shape[1] < size:
        # Observations with fewer numbers than actions: a fixed linear map gives each action its own number.
        numbers = numbers @ np.random.default_rng(0).normal(size=(numbers.shape[1], size))
    values = numbers[:, :size] if mask is None else np.where(mask, numbers[:, :size], -np.inf)
    return np.stack([part.argmax(-1) for part in np.split(values, np.cumsum(space.parts)[:-1], axis=1)], axis=1)


def score(learner: Learner, spec: Spec, rows: int = 2000) -> float:
    """Return the mean reward of the greedy policy for observations that are always the same."""
    seen = observe(spec, np.random.default_rng(5), rows)
    return float(reward(spec, seen, learner.policy().greedy().act(seen, {}, Draws(0)).action).mean())


def _minus_distance(space: Box, wanted: Array, action: Array) -> Array:
    low, high = (bound.reshape(-1) for bound in space.bounds())
    low, high = np.where(np.isfinite(low), low, -1.0), np.where(np.isfinite(high), high, 1.0)
    center, half = (low + high) / 2, np.maximum((high - low) / 2, 1e-6)
    scaled = (action.reshape(len(action), -1) - center) / half
    distance = np.abs(np.clip(scaled, -1, 1) - np.clip(wanted, -1, 1))
    return np.asarray(-distance.mean(-1), np.float32)


def _values(box: Box, rng: np.random.Generator, rows: int) -> Array:
    """Return random elements of a box: normal numbers, booleans, or the highest 128 integers up to 127."""
    shape = (rows, *box.shape)
    if box.dtype.startswith("float"):
        return np.asarray(box.legal(rng.normal(size=shape).astype(box.dtype)), box.dtype)
    if box.dtype == "bool":
        return np.asarray(rng.random(shape) < 0.5)
    low, high = box.bounds()
    highest = np.minimum(high, _HIGHEST).astype(np.int64)
    return rng.integers(np.maximum(low, highest - _HIGHEST).astype(np.int64), highest + 1, size=shape).astype(box.dtype)


def _numbers(column: Array) -> Array:
    flat = column.reshape(len(column), -1)
    return flat if flat.dtype.kind == "f" else flat / _HIGHEST
