"""Actor over envpool environments."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

from rl4sys.environments.config import EnvironmentConfig
from rl4sys.environments.envpool import EnvPoolActor
from rl4sys.errors import ConfigError
from rl4sys.spec import Box

from .random_policy import Random, as_bytes

pytest.importorskip("envpool")


def make_actor(seed: int = 1, **settings: Any) -> EnvPoolActor:
    config = EnvironmentConfig(**{"num_envs": 3, "vectorized": "envpool", **settings})
    return EnvPoolActor(config, np.random.SeedSequence(seed))


def test_envpool_trajectories_are_consecutive() -> None:
    actor = make_actor(name="CartPole-v1")
    trajectories = [t for _ in range(3) for t in actor.collect(Random(actor.spec.action), 0, 120)]
    assert sum(len(t) for t in trajectories) == 360
    ended = [t for t in trajectories if t.ended]
    assert len(ended) == len(actor.take_finished()) > 5
    by_episode: dict[int, int] = {}
    for trajectory in trajectories:
        assert trajectory.offset == by_episode.get(trajectory.episode, 0), (
            "the trajectories of an episode are consecutive"
        )
        by_episode[trajectory.episode] = trajectory.offset + len(trajectory)
        states = trajectory.columns["obs.state"]
        # The cart moves by its velocity, so each state follows from the previous one.
        assert states[1:, 0] == pytest.approx(states[:-1, 0] + 0.02 * states[:-1, 1], abs=1e-5)
    assert all(abs(t.columns["obs.state"][-1, 2]) > 0.2 for t in ended), "the last row is the final observation"
    assert all(t.terminated and not t.truncated for t in ended)


def test_envpool_episodes_respect_seed_and_step_limit() -> None:
    one, again, other = (make_actor(name="Pendulum-v1", max_episode_steps=7, seed=seed) for seed in (1, 1, 2))
    trajectories = [a.collect(Random(a.spec.action), 0, 30) for a in (one, again, other)]
    assert as_bytes(trajectories[0]) == as_bytes(trajectories[1]) != as_bytes(trajectories[2])
    assert [(len(t), t.truncated, t.terminated) for t in trajectories[0][:3]] == [(7, True, False)] * 3
    assert {length for _, length in one.take_finished()} == {7}


def test_restored_envpool_actor_starts_new_episodes() -> None:
    one, other = make_actor(name="CartPole-v1"), make_actor(name="CartPole-v1", seed=9)
    before = one.collect(Random(one.spec.action), 0, 60)
    other.restore(one.state())
    after = other.collect(Random(other.spec.action), 0, 60)
    assert not {t.episode for t in after} & {t.episode for t in before}
    assert {t.offset for t in after[:3]} == {0}
    starts = {t.columns["obs.state"][0].tobytes() for t in before + after if t.offset == 0}
    assert len(starts) == len({t.episode for t in before + after}), "the episodes start in different states"


@pytest.mark.parametrize(
    ("settings", "shape"), [({"name": "HalfCheetah-v5"}, (17,)), ({"wrapper": "atari", "name": "Pong"}, (4, 84, 84))]
)
def test_envpool_observations_match_plain_environment(settings: dict[str, Any], shape: tuple[int, ...]) -> None:
    actor = make_actor(**settings)
    assert isinstance(actor.spec.observation["state"], Box)
    assert actor.spec.observation["state"].shape == shape
    trajectory = actor.collect(Random(actor.spec.action), 0, 12)[0]
    assert trajectory.columns["obs.state"].std() > 0
    assert trajectory.columns["obs.state"].shape == (5, *shape)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "BipedalWalker-v3", "action_repeat": 2}, r"does not support environment\.action_repeat"),
        ({"name": "PointReach", "wrapper": "goal"}, "does not support the family goal"),
        ({"name": "OwnCart-v0"}, r"envpool does not provide the environment 'OwnCart-v0'; remove environment\.v"),
        (
            {"name": "CliffWalking-v1"},
            r"envpool's CliffWalking-v1 has observations of shape \(\), "
            r"but the environment for evaluation has \{'state': \(48,\)\}",
        ),
    ],
)
def test_unsupported_envpool_settings_are_rejected(settings: dict[str, Any], message: str) -> None:
    if "OwnCart-v0" not in gymnasium.registry:
        gymnasium.register("OwnCart-v0", entry_point="gymnasium.envs.classic_control:CartPoleEnv")
    with pytest.raises(ConfigError, match=message):
        make_actor(**settings)
