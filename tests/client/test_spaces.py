"""Conversion of spaces: a client and a local run with the same spaces have equal specs."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from rl4sys.client.spaces import Sizes, make_spaces
from rl4sys.environments.encoding import Encoding
from rl4sys.errors import ConfigError, SpecError
from rl4sys.spec import Box, Discrete, MultiDiscrete, Spec


class StaticEnvironment(gymnasium.Env[Any, Any]):
    """Environment with the given spaces and no dynamics."""

    def __init__(self, observation: spaces.Space[Any], action: spaces.Space[Any]) -> None:
        self.observation_space, self.action_space = observation, action

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return self.observation_space.sample(), {}


OBSERVATIONS = [
    spaces.Box(-1.0, 1.0, (8,), np.float64),
    spaces.Box(0, 255, (4, 4, 3), np.uint8),
    spaces.Box(np.array([-1.0, -np.inf], np.float32), np.array([1.0, np.inf], np.float32)),
    spaces.Dict({"b": spaces.Box(-1, 1, (2, 2)), "a": spaces.Box(0, 9, (3,), np.int64)}),
    spaces.Dict({"b": spaces.Box(-1, 1, (2,)), "action_mask": spaces.Box(0, 1, (4,), np.int8)}),
]


@pytest.mark.parametrize("observation", OBSERVATIONS, ids=str)
def test_client_and_local_run_have_same_spec(observation: spaces.Space[Any]) -> None:
    for action in (spaces.Discrete(4), spaces.Discrete(4, start=7)):
        made = make_spaces(Sizes(), observation, action)
        assert made.spec == Encoding(StaticEnvironment(observation, action)).spec
        assert made.start == action.start


MULTI_DISCRETE = [
    spaces.MultiDiscrete([3, 1, 2]),
    spaces.MultiDiscrete([[3, 2], [1, 4]], start=[[5, 0], [-1, 2]]),
    spaces.MultiDiscrete([3, 2], dtype=np.int8),
    spaces.MultiBinary(3),
    spaces.MultiBinary([2, 2]),
]


@pytest.mark.parametrize("action", MULTI_DISCRETE, ids=str)
def test_multi_discrete_actions_match_the_host_space(action: spaces.Space[Any]) -> None:
    made = make_spaces(Sizes(), OBSERVATIONS[0], action)
    encoding = Encoding(StaticEnvironment(OBSERVATIONS[0], action))
    assert made.spec == encoding.spec
    assert isinstance(made.spec.action, MultiDiscrete)
    rng, seen = np.random.default_rng(0), set()
    for _ in range(50):
        drawn = rng.integers(made.spec.action.choices)
        given, locally = made.decode_action(drawn), encoding.decode_actions(drawn[None])[0]
        assert action.contains(given)
        assert action.contains(locally)
        assert (given == locally).all()
        seen.add(given.tobytes())
    assert len(seen) > 5


@pytest.mark.parametrize("bounds", [(-2.0, 2.0), (np.array([-1.0, -0.1]), np.array([1.0, 0.3]))], ids=str)
def test_continuous_actions_keep_their_bounds(bounds: tuple[Any, Any]) -> None:
    action = spaces.Box(*bounds, shape=(2,), dtype=np.float64)
    observation = OBSERVATIONS[0]
    assert make_spaces(Sizes(), observation, action).spec == Encoding(StaticEnvironment(observation, action)).spec


def test_rl4sys_spaces_and_plain_sizes_are_accepted() -> None:
    spec = Spec({"state": Box((3,))}, Discrete(2))
    assert make_spaces(Sizes(), spec).spec == spec
    assert make_spaces(Sizes(), Box((3,)), Discrete(2)).spec == spec
    assert make_spaces(Sizes(), 3, 2).spec == spec
    assert make_spaces(Sizes(observation=3), None, Discrete(2)).spec == spec
    several = Spec({"state": Box((3,))}, MultiDiscrete((3, 2)))
    assert make_spaces(Sizes(), 3, MultiDiscrete((3, 2))).spec == several
    assert make_spaces(Sizes(observation=3, action=[3, 2])).spec == several
    assert make_spaces(Sizes(observation=3, action=[3, 2]), None, spaces.MultiDiscrete([3, 2])).spec == several


def test_space_may_add_bounds_to_config_but_not_contradict_it() -> None:
    box = spaces.Box(-1.0, 1.0, (8,))
    assert make_spaces(Sizes(observation=8, action=4), box).spec.observation["state"].low == (-1.0,)
    with pytest.raises(ConfigError, match=r"the config's observation is \(9,\), and observation_space is \(8,\)"):
        make_spaces(Sizes(observation=9, action=4), box)
    with pytest.raises(ConfigError, match=r"the config's action is Discrete\(3\), and action_space is Discrete\(4\)"):
        make_spaces(Sizes(observation=8, action=3), None, spaces.Discrete(4))
    with pytest.raises(
        ConfigError, match=r"the config's action is MultiDiscrete\(3, 2\), and action_space is MultiDiscrete\(2, 2\)"
    ):
        make_spaces(Sizes(observation=8, action=[3, 2]), None, spaces.MultiBinary(2))


@pytest.mark.parametrize(
    ("observation", "action"),
    [
        (spaces.Discrete(3), spaces.Discrete(2)),
        (8, spaces.Tuple([spaces.Discrete(2), spaces.Discrete(2)])),
        (8, spaces.Box(0, 5, (2,), np.int64)),
    ],
)
def test_unsupported_spaces_are_rejected(observation: Any, action: Any) -> None:
    with pytest.raises(SpecError, match=r"a client cannot send observations|are not supported"):
        make_spaces(Sizes(), observation, action)
