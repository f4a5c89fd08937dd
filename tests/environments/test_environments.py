"""Actors over local environments."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from rl4sys.environments.actor import Actor
from rl4sys.environments.config import EnvironmentConfig
from rl4sys.environments.encoding import Encoding
from rl4sys.environments.evaluation import evaluate
from rl4sys.environments.factory import make_environment
from rl4sys.errors import ReplayError, SpecError
from rl4sys.policy.base import Decision
from rl4sys.policy.draws import Draws
from rl4sys.policy.program import Operation, Program
from rl4sys.policy.snapshot import Snapshot
from rl4sys.policy.snapshot_policy import SnapshotPolicy
from rl4sys.spec import Box, Columns, Discrete, MultiDiscrete, Spec, is_allowed, mask_box

from .random_policy import as_bytes


class Counter(gymnasium.Env[Any, Any]):
    """Environment that returns the step count as observation and ends an episode after ``length`` steps."""

    def __init__(self, length: int = 4, masked: bool = False, terminates: bool = True) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
        self.action_space = spaces.Discrete(3, start=5)
        self.length, self.masked, self.terminates, self.step_count = length, masked, terminates, 0
        self.given: list[int] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.step_count = 0
        return self._show()

    def step(self, action: int) -> Any:
        self.given.append(action)
        self.step_count += 1
        over = self.step_count == self.length
        observation, info = self._show()
        return observation, 1.0, over and self.terminates, over and not self.terminates, info

    def _show(self) -> Any:
        info = {"action_mask": np.array([True, False, self.step_count % 2 == 0])} if self.masked else {}
        return np.array([self.step_count], np.float32), info


class Uniform:
    """Policy that samples uniformly from the allowed actions."""

    def act(self, observation: Columns, memory: Columns, draws: Draws) -> Decision:
        rows = len(observation["state"])
        uniform = draws.uniforms(rows)
        if "mask" in observation:
            action = np.array(
                [np.flatnonzero(m)[int(u * m.sum())] for m, u in zip(observation["mask"], uniform, strict=True)]
            )
        else:
            action = (uniform * 2).astype(np.int64)
        return Decision(action, np.zeros(rows, np.float32), memory)

    def greedy(self) -> Uniform:
        return self

    def snapshot(self, version: int) -> Snapshot:
        raise NotImplementedError


def actor_over(environment: str, num_envs: int, seed: int = 1) -> Actor:
    config = EnvironmentConfig(name=environment)
    return Actor(lambda: make_environment(config), num_envs, np.random.SeedSequence(seed))


@pytest.mark.parametrize("terminates", [True, False])
def test_trajectories_contain_the_steps_of_the_episodes(terminates: bool) -> None:
    actor = Actor(lambda: Counter(terminates=terminates), 2, np.random.SeedSequence(0))
    first = actor.collect(Uniform(), version=3, steps=12)
    second = actor.collect(Uniform(), version=4, steps=4)
    over = (terminates, not terminates)
    assert [(t.version, t.episode, t.offset, len(t), (t.terminated, t.truncated)) for t in first + second] == [
        (3, 0, 0, 4, over),
        (3, 1, 0, 4, over),
        (3, 2, 0, 2, (False, False)),
        (3, 3, 0, 2, (False, False)),
        (4, 2, 2, 2, over),
        (4, 3, 2, 2, over),
    ]
    assert first[0].columns["obs.state"].ravel().tolist() == [0, 1, 2, 3, 4], "the last row is the final observation"
    assert second[0].columns["obs.state"].ravel().tolist() == [2, 3, 4]
    assert actor.take_finished() == [(4.0, 4)] * 4
    assert actor.take_finished() == []


def test_discrete_actions_are_shifted_by_the_space_start() -> None:
    made: list[Counter] = []

    def make() -> Counter:
        made.append(Counter())
        return made[-1]

    actor = Actor(make, 1, np.random.SeedSequence(0))
    (*_, last) = actor.collect(Uniform(), version=0, steps=50)
    assert set(made[0].given) == {5, 6}
    assert set(last.columns["action"].tolist()) <= {0, 1, 2}


def test_action_masks_are_recorded_with_observations() -> None:
    actor = Actor(lambda: Counter(masked=True), 1, np.random.SeedSequence(0))
    assert actor.spec.masked
    first = actor.collect(Uniform(), version=0, steps=9)[0]
    assert first.columns["obs.mask"][:, 2].tolist() == [True, False, True, False, True]
    chosen = first.columns["obs.mask"][np.arange(4), first.columns["action"]]
    assert chosen.all()


@pytest.mark.parametrize("environment", ["CartPole-v1", "LunarLander-v3", "Pendulum-v1"])
@pytest.mark.parametrize("steps", [30, 333])
def test_restored_actor_continues_identically(environment: str, steps: int) -> None:
    class Wander(Uniform):
        def act(self, observation: Columns, memory: Columns, draws: Draws) -> Decision:
            rows = len(observation["state"])
            if environment == "Pendulum-v1":
                return Decision(
                    (4 * draws.uniforms(rows) - 2).astype(np.float32)[:, None], np.zeros(rows, np.float32), memory
                )
            return super().act(observation, memory, draws)

    one, other = actor_over(environment, 3), actor_over(environment, 3, seed=99)
    one.collect(Wander(), version=0, steps=steps)
    one.take_finished()
    other.restore(one.state())
    expected = one.collect(Wander(), version=1, steps=600)
    assert as_bytes(other.collect(Wander(), version=1, steps=600)) == as_bytes(expected)
    assert other.take_finished() == one.take_finished() != []


def test_seed_and_environment_index_determine_the_episodes() -> None:
    first, again, other = (
        actor_over("CartPole-v1", 2, 1),
        actor_over("CartPole-v1", 2, 1),
        actor_over("CartPole-v1", 2, 2),
    )
    starts = [a.collect(Uniform(), 0, 2) for a in (first, again, other)]
    assert as_bytes(starts[0]) == as_bytes(starts[1])
    states = {t.columns["obs.state"][0].tobytes() for trajectories in (starts[0], starts[2]) for t in trajectories}
    assert len(states) == 4


def test_evaluation_repeats_the_same_episodes() -> None:
    config = EnvironmentConfig(name="CartPole-v1")
    first, second = (evaluate(config, Uniform(), episodes=7, seed=4) for _ in range(2))
    assert first == second
    assert len(first.episodes) == 7
    assert first.returns == [float(length) for length in first.lengths]
    assert len(set(first.lengths)) > 1
    assert evaluate(config, Uniform(), episodes=7, seed=5) != first


def test_max_episode_steps_sets_the_time_limit() -> None:
    config = EnvironmentConfig(name="Pendulum-v1", max_episode_steps=17)
    assert make_environment(config).spec.max_episode_steps == 17  # type: ignore[union-attr]


def test_render_mode_is_off_by_default() -> None:
    assert make_environment(EnvironmentConfig(name="LunarLander-v3")).render_mode is None


class SpaceOnly(gymnasium.Env[Any, Any]):
    def __init__(self, space: spaces.Space[Any], actions: spaces.Space[Any] | None = None) -> None:
        self.observation_space, self.action_space = space, actions or spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}


def test_discrete_observations_are_one_hot() -> None:
    encoding = Encoding(SpaceOnly(spaces.Discrete(3)))
    columns = encoding.empty(2)
    encoding.write(columns, 1, 2, {})
    assert columns["state"].tolist() == [[0, 0, 0], [0, 0, 1]]


def test_dict_observations_keep_their_names() -> None:
    space = spaces.Dict(
        {
            "speed": spaces.Box(0, 9, (2,), np.float64),
            "mode": spaces.Discrete(2),
            "pair": spaces.Tuple([spaces.Discrete(2), spaces.Box(0, 1, (1,), np.float32)]),
            "action_mask": spaces.Box(0, 1, (2,), np.int8),
        }
    )
    encoding = Encoding(SpaceOnly(space))
    assert list(encoding.spec.observation) == ["mask", "mode", "pair.0", "pair.1", "speed"]
    assert encoding.spec.observation["speed"] == Box((2,), "float32", (0.0,), (9.0,))
    columns = encoding.empty(1)
    shown = {"speed": np.array([1.5, 2]), "mode": 1, "pair": (0, np.array([0.5])), "action_mask": np.array([0, 1])}
    encoding.write(columns, 0, shown, {})
    assert columns["speed"].tolist() == [[1.5, 2]]
    assert columns["mode"].tolist() == [[0, 1]]
    assert columns["pair.0"].tolist() == [[1, 0]]
    assert columns["pair.1"].tolist() == [[0.5]]
    assert columns["mask"].tolist() == [[False, True]]


def test_nested_observations_are_named_by_path() -> None:
    space = spaces.Dict(
        {
            "arm": spaces.Dict({"joint": spaces.Box(-1, 1, (2,), np.float32), "grip": spaces.MultiBinary(2)}),
            "sensors": spaces.Tuple([spaces.MultiDiscrete([2, 3]), spaces.Discrete(2, start=4)]),
        }
    )
    encoding = Encoding(SpaceOnly(space))
    columns = encoding.empty(1)
    shown = {
        "arm": {"joint": np.array([0.5, -0.5], np.float32), "grip": np.array([1, 0], np.int8)},
        "sensors": (np.array([1, 2]), 5),
    }
    encoding.write(columns, 0, shown, {})
    assert {name: column.tolist() for name, column in columns.items()} == {
        "arm.grip": [[1, 0]],
        "arm.joint": [[0.5, -0.5]],
        "sensors.0": [[0, 1, 0, 0, 1]],
        "sensors.1": [[0, 1]],
    }


def test_tuple_observations_are_named_by_index() -> None:
    encoding = Encoding(SpaceOnly(spaces.Tuple([spaces.Discrete(2), spaces.Box(0, 9, (1,), np.int64)])))
    columns = encoding.empty(1)
    encoding.write(columns, 0, (1, np.array([7])), {})
    assert {name: column.tolist() for name, column in columns.items()} == {"0": [[0, 1]], "1": [[7]]}


def test_duplicate_observation_names_are_rejected() -> None:
    box = spaces.Box(0, 1, (1,), np.float32)
    with pytest.raises(SpecError, match=r"two observations would be named 'a\.b'; rename one"):
        Encoding(SpaceOnly(spaces.Dict({"a.b": box, "a": spaces.Dict({"b": box})})))


def test_integer_box_actions_are_rejected() -> None:
    with pytest.raises(SpecError, match=r"actions of Box\(.*int64\) \(integers\) are not supported"):
        Encoding(SpaceOnly(spaces.Discrete(2), spaces.Box(0, 5, (2,), np.int64)))


def test_unsupported_action_spaces_are_rejected() -> None:
    with pytest.raises(
        SpecError, match=r"actions of Text.* are not supported; use Discrete, MultiDiscrete, MultiBinary"
    ):
        Encoding(SpaceOnly(spaces.Discrete(2), spaces.Text(5)))


class MultiDiscreteActions(gymnasium.Env[Any, Any]):
    """Environment that asserts that each action is in its space, and reports the action mask ``allowed``, if given."""

    def __init__(self, space: spaces.Space[Any], allowed: Any = None) -> None:
        self.observation_space, self.action_space = spaces.Box(0, 9, (1,), np.float32), space
        self.allowed, self.step_count = allowed, 0
        self.given: list[Any] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.step_count = 0
        return self._show()

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        self.given.append(action)
        self.step_count += 1
        observation, info = self._show()
        return observation, 1.0, self.step_count == 4, False, info

    def _show(self) -> Any:
        return np.array([self.step_count], np.float32), {} if self.allowed is None else {"action_mask": self.allowed}


SOME_ALLOWED = np.array([True, False, True, True, False, True])
MULTI_DISCRETE_SPACES = {
    "binary": (spaces.MultiBinary(3), None),
    "binary in rows": (spaces.MultiBinary([2, 2]), None),
    "discrete": (spaces.MultiDiscrete([3, 1, 4]), None),
    "discrete in rows": (spaces.MultiDiscrete([[3, 2], [2, 4]], start=[[1, 0], [-1, 5]]), None),
    "narrow": (spaces.MultiDiscrete([3, 2], dtype=np.uint8), None),
    "masked": (spaces.MultiBinary(3), SOME_ALLOWED),
    "masked by part": (
        spaces.MultiDiscrete([2, 2, 2], start=[7, 0, 0]),
        tuple(SOME_ALLOWED.reshape(3, 2).astype(np.int8)),
    ),
}


def multi_discrete_policy(space: MultiDiscrete) -> SnapshotPolicy:
    """Return a policy that samples each dimension of an action uniformly from the values that the mask allows."""
    weights = {
        "w": np.zeros((sum(space.choices), 1), np.float32),
        "b": np.zeros(sum(space.choices), np.float32),
        "choices": np.array(space.choices, np.float32),
    }
    program = Program((Operation("linear", ("w", "b")),), Operation("multi_categorical", ("choices",)))
    return SnapshotPolicy(Snapshot(0, Spec({"state": Box((1,)), "mask": mask_box(space)}, space), program, weights))


@pytest.mark.parametrize("name", MULTI_DISCRETE_SPACES)
def test_multi_discrete_actions_are_converted_to_the_environment_space(name: str) -> None:
    made: list[MultiDiscreteActions] = []

    def make() -> MultiDiscreteActions:
        made.append(MultiDiscreteActions(*MULTI_DISCRETE_SPACES[name]))
        return made[-1]

    actor = Actor(make, 2, np.random.SeedSequence(0))
    assert isinstance(actor.spec.action, MultiDiscrete)
    assert actor.spec.action.choices == tuple(
        getattr(made[0].action_space, "nvec", np.full(made[0].action_space.shape, 2)).ravel()
    )
    policy = multi_discrete_policy(actor.spec.action)

    class UniformParts(Uniform):
        def act(self, observation: Columns, memory: Columns, draws: Draws) -> Decision:
            rows = len(observation["state"])
            mask = observation.get("mask", np.ones((rows, sum(actor.spec.action.choices)), np.bool_))
            return policy.act({"state": observation["state"], "mask": mask}, memory, draws)

    trajectories = actor.collect(UniformParts(), version=0, steps=40)
    given = np.concatenate([np.array(environment.given).reshape(20, -1) for environment in made])
    drawn = np.concatenate([t.columns["action"] for t in trajectories])
    assert drawn.dtype == np.int64
    assert len(np.unique(given, axis=0)) > 1
    assert sorted((drawn - drawn.min(0)).tolist()) == sorted((given - given.min(0)).tolist())
    if MULTI_DISCRETE_SPACES[name][1] is not None:
        assert all(is_allowed(actor.spec.action, t.columns["action"], t.columns["obs.mask"][:-1]) for t in trajectories)
    resumed = Actor(make, 2, np.random.SeedSequence(0))
    resumed.restore(actor.state())
    assert as_bytes(resumed.collect(UniformParts(), 0, 8)) == as_bytes(actor.collect(UniformParts(), 0, 8))


def test_non_numeric_observations_are_rejected() -> None:
    with pytest.raises(SpecError, match="cannot be encoded as numbers"):
        Encoding(SpaceOnly(spaces.Sequence(spaces.Discrete(2))))


def test_decoded_actions_are_within_float64_bounds() -> None:
    space = spaces.Box(-0.1, 0.1, (1,), np.float64)
    encoding = Encoding(SpaceOnly(spaces.Discrete(2), space))
    for action in encoding.decode_actions(np.array([[7.0], [-7.0], [0.1]], np.float32)):
        assert space.contains(action)


def test_environment_can_modify_the_action_array() -> None:
    class Doubles(Counter):
        def __init__(self) -> None:
            super().__init__(length=50)
            self.action_space = spaces.Box(-1, 1, (1,), np.float32)

        def step(self, action: Any) -> Any:
            action *= 2
            observation, *rest = super().step(0)
            return observation + action, *rest

    class Wander(Uniform):
        def act(self, observation: Columns, memory: Columns, draws: Draws) -> Decision:
            rows = len(observation["state"])
            return Decision(draws.uniforms(rows).astype(np.float32)[:, None], np.zeros(rows, np.float32), memory)

    one, other = (Actor(Doubles, 2, np.random.SeedSequence(0)) for _ in range(2))
    one.collect(Wander(), version=0, steps=20)
    other.restore(one.state())
    assert as_bytes(other.collect(Wander(), 0, 20)) == as_bytes(one.collect(Wander(), 0, 20))


class LeakingState(Counter):
    """Environment that adds its total step count to observations, which reset(seed) does not determine."""

    ever = 0

    def step(self, action: int) -> Any:
        self.ever += 1
        observation, *rest = super().step(action)
        return observation + self.ever, *rest


def test_restore_fails_if_replayed_observations_differ() -> None:
    one, other = (Actor(LeakingState, 2, np.random.SeedSequence(0)) for _ in range(2))
    one.collect(Uniform(), version=0, steps=20)
    with pytest.raises(
        ReplayError, match=r"observation 'state' differs from the checkpoint .* environment\.remake=true"
    ):
        other.restore(one.state())


@pytest.mark.parametrize("make", [LeakingState, lambda: make_environment(EnvironmentConfig(name="BipedalWalker-v3"))])
def test_environment_recreated_for_each_episode_replays_exactly(make: Any) -> None:
    class Wander(Uniform):
        def act(self, observation: Columns, memory: Columns, draws: Draws) -> Decision:
            if make is LeakingState:
                return super().act(observation, memory, draws)
            rows = len(observation["state"])
            action = 2 * draws.uniforms(4 * rows).reshape(rows, 4).astype(np.float32) - 1
            return Decision(action, np.zeros(rows, np.float32), memory)

    one, other = (Actor(make, 2, np.random.SeedSequence(0), remake=True) for _ in range(2))
    one.collect(Wander(), version=0, steps=500)
    assert len(one.take_finished()) > 2
    other.restore(one.state())
    assert as_bytes(other.collect(Wander(), 0, 300)) == as_bytes(one.collect(Wander(), 0, 300))


def test_actions_are_clipped_to_bounds() -> None:
    encoding = Encoding(
        SpaceOnly(spaces.Discrete(2), spaces.Box(np.array([-1, -2]), np.array([1, 2]), dtype=np.float32))
    )
    assert encoding.spec.action == Box((2,), "float32", (-1.0, -2.0), (1.0, 2.0))
    assert [a.tolist() for a in encoding.decode_actions(np.array([[5.0, -5.0]]))] == [[1.0, -2.0]]
    assert Encoding(SpaceOnly(spaces.Discrete(2))).spec.action == Discrete(2)
