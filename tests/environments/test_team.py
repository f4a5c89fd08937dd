"""Agents that act together with one policy."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl4sys.environments.config import EnvironmentConfig
from rl4sys.environments.evaluate import evaluate
from rl4sys.environments.gym import make_environment
from rl4sys.environments.team import TeamActor
from rl4sys.errors import ConfigError, SpecError
from rl4sys.experiment.run import Run
from rl4sys.spec import Box, Discrete
from rl4sys.trainer import Trainer
from tests.conftest import Silent, small_config

from .walking import Random, as_bytes


def team_of(seed: int = 1, **settings: Any) -> TeamActor:
    given = {"wrapper": "pettingzoo", "name": "mpe.simple_spread_v3", "num_envs": 2, **settings}
    return TeamActor(EnvironmentConfig(**given), np.random.SeedSequence(seed))


def test_each_agent_is_a_row() -> None:
    actor = team_of(options={"N": 3})
    assert actor.spec.action == Discrete(5)
    assert isinstance(actor.spec.observation["state"], Box)
    trajectories = actor.collect(Random(actor.spec.action), 0, 6 * 30)
    assert [(len(t), t.episode, t.truncated) for t in trajectories] == [
        *[(25, episode, True) for episode in range(6)],
        *[(5, 6 + episode, False) for episode in range(6)],
    ]
    assert len({t.columns["obs.state"][0].tobytes() for t in trajectories}) == 12, "each sees its own side of things"
    finished = actor.take_finished()
    assert [episode.length for episode in finished] == [25] * 6
    assert finished[0].total_reward == pytest.approx(trajectories[0].columns["reward"].sum(), rel=1e-4)


@pytest.mark.parametrize("continuous", [False, True])
def test_a_restored_team_goes_on_identically(continuous: bool) -> None:
    options = {"continuous_actions": continuous}
    one, other = team_of(options=options), team_of(options=options, seed=2)
    policy = Random(one.spec.action)
    before = one.collect(policy, 0, 6 * 31)
    other.restore(one.state())
    expected = as_bytes(one.collect(policy, 0, 6 * 31))
    assert as_bytes(other.collect(policy, 0, 6 * 31)) == expected != as_bytes(before)


def test_limits_cut_and_rewards_are_clipped() -> None:
    actor = team_of(max_episode_steps=4, clip_reward=0.01)
    first = actor.collect(Random(actor.spec.action), 0, 6 * 4)[0]
    assert (len(first), first.truncated, first.terminated) == (4, True, False)
    assert np.abs(first.columns["reward"]).max() == pytest.approx(0.01)
    assert abs(actor.take_finished()[0].total_reward) > 0.04


def test_a_team_is_trained_judged_and_resumed_like_any_other(tmp_path: Path) -> None:
    changes = [
        "environment.name=mpe.simple_spread_v3",
        "environment.wrapper=pettingzoo",
        "environment.num_envs=1",
        "training.total_timesteps=192",
    ]
    whole = Trainer(Run.create(tmp_path / "whole", small_config("ppo", *changes), datetime(2026, 1, 1)), Silent())
    progress = whole.train()
    run = Run.create(tmp_path / "stopped", small_config("ppo", *changes), datetime(2026, 1, 1))
    observer = Stopping(96)
    observer.trainer = Trainer(run, observer)
    assert not observer.trainer.train().finished
    resumed = Trainer(run, Silent())
    resumed.resume()
    assert resumed.train().finished
    assert resumed._learner.snapshot().to_bytes() == whole._learner.snapshot().to_bytes()
    assert progress.evaluation is not None


class Stopping(Silent):
    """Stops its trainer after so many steps."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self._steps = steps
        self.trainer: Trainer | None = None

    def progress(self, progress: Any) -> None:
        if progress.steps >= self._steps and self.trainer:
            self.trainer.stop()


def test_evaluation_counts_episodes_of_agents() -> None:
    config = EnvironmentConfig(wrapper="pettingzoo", name="mpe.simple_spread_v3", max_episode_steps=5)
    actor = team_of()
    assert evaluate(config, Random(actor.spec.action), 4, 0).lengths == [5] * 4


def test_agents_of_several_kinds_are_refused() -> None:
    with pytest.raises(SpecError, match=r"the agents of mpe\.simple_tag_v3 share one policy, but agent_0 has Box"):
        team_of(name="mpe.simple_tag_v3")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "mpe.simple_sprea_v3"}, "which PettingZoo does not have; write its group and module"),
        ({"frame_stack": 2}, r"environment\.frame_stack does not go with environment\.wrapper=pettingzoo"),
        ({"options": {"agents": 4}}, r"environment\.options \{'agents': 4\} do not fit mpe\.simple_spread_v3"),
    ],
)
def test_mistakes_are_explained(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        team_of(**settings)


def test_a_team_is_not_made_as_one_environment() -> None:
    with pytest.raises(ConfigError, match="is an environment of several agents"):
        make_environment(EnvironmentConfig(wrapper="pettingzoo", name="mpe.simple_spread_v3"))
