"""Multi-agent environments with one shared policy."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl4sys.environments.config import EnvironmentConfig
from rl4sys.environments.evaluation import evaluate
from rl4sys.environments.factory import make_environment
from rl4sys.environments.families.pettingzoo import MultiAgentActor
from rl4sys.errors import ConfigError, SpecError
from rl4sys.runs.run import Run
from rl4sys.spec import Box, Discrete
from rl4sys.training.loop import TrainingLoop
from tests.conftest import SilentObserver, small_config

from .random_policy import Random, as_bytes


def actor_of(seed: int = 1, **settings: Any) -> MultiAgentActor:
    given = {"wrapper": "pettingzoo", "name": "mpe.simple_spread_v3", "num_envs": 2, **settings}
    return MultiAgentActor(EnvironmentConfig(**given), np.random.SeedSequence(seed))


def test_each_agent_has_its_own_trajectories() -> None:
    actor = actor_of(options={"N": 3})
    assert actor.spec.action == Discrete(5)
    assert isinstance(actor.spec.observation["state"], Box)
    trajectories = actor.collect(Random(actor.spec.action), 0, 6 * 30)
    assert [(len(t), t.episode, t.truncated) for t in trajectories] == [
        *[(25, episode, True) for episode in range(6)],
        *[(5, 6 + episode, False) for episode in range(6)],
    ]
    assert len({t.columns["obs.state"][0].tobytes() for t in trajectories}) == 12, "each agent has its own observations"
    finished = actor.take_finished()
    assert [episode.length for episode in finished] == [25] * 6
    assert finished[0].total_reward == pytest.approx(trajectories[0].columns["reward"].sum(), rel=1e-4)


@pytest.mark.parametrize("continuous", [False, True])
def test_restored_multi_agent_actor_continues_identically(continuous: bool) -> None:
    options = {"continuous_actions": continuous}
    one, other = actor_of(options=options), actor_of(options=options, seed=2)
    policy = Random(one.spec.action)
    before = one.collect(policy, 0, 6 * 31)
    other.restore(one.state())
    expected = as_bytes(one.collect(policy, 0, 6 * 31))
    assert as_bytes(other.collect(policy, 0, 6 * 31)) == expected != as_bytes(before)


def test_multi_agent_episodes_are_truncated_and_rewards_clipped() -> None:
    actor = actor_of(max_episode_steps=4, clip_reward=0.01)
    first = actor.collect(Random(actor.spec.action), 0, 6 * 4)[0]
    assert (len(first), first.truncated, first.terminated) == (4, True, False)
    assert np.abs(first.columns["reward"]).max() == pytest.approx(0.01)
    assert abs(actor.take_finished()[0].total_reward) > 0.04


def test_multi_agent_run_resumes_exactly(tmp_path: Path) -> None:
    changes = [
        "environment.name=mpe.simple_spread_v3",
        "environment.family=pettingzoo",
        "environment.num_envs=1",
        "training.total_timesteps=192",
    ]
    whole = TrainingLoop(
        Run.create(tmp_path / "whole", small_config("ppo", *changes), datetime(2026, 1, 1)), SilentObserver()
    )
    progress = whole.train()
    run = Run.create(tmp_path / "stopped", small_config("ppo", *changes), datetime(2026, 1, 1))
    observer = Stopping(96)
    observer.loop = TrainingLoop(run, observer)
    assert not observer.loop.train().finished
    resumed = TrainingLoop(run, SilentObserver())
    resumed.resume()
    assert resumed.train().finished
    assert resumed._learner.snapshot().to_bytes() == whole._learner.snapshot().to_bytes()
    assert progress.evaluation is not None


class Stopping(SilentObserver):
    """Observer that stops training after a number of steps."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self._steps = steps
        self.loop: TrainingLoop | None = None

    def progress(self, progress: Any) -> None:
        if progress.steps >= self._steps and self.loop:
            self.loop.stop()


def test_multi_agent_evaluation_counts_one_episode_per_agent() -> None:
    config = EnvironmentConfig(wrapper="pettingzoo", name="mpe.simple_spread_v3", max_episode_steps=5)
    actor = actor_of()
    assert evaluate(config, Random(actor.spec.action), 4, 0).lengths == [5] * 4


def test_agents_with_different_spaces_are_rejected() -> None:
    with pytest.raises(SpecError, match=r"the agents of mpe\.simple_tag_v3 share one policy, but agent_0 has Box"):
        actor_of(name="mpe.simple_tag_v3")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "mpe.simple_sprea_v3"}, "which PettingZoo does not provide; write its group and module"),
        ({"frame_stack": 2}, r"environment\.frame_stack is not supported with environment\.family=pettingzoo"),
        ({"options": {"agents": 4}}, r"environment\.options is \{'agents': 4\}, but 'mpe\.simple_spread_v3' cannot"),
    ],
)
def test_invalid_pettingzoo_settings_are_rejected(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        actor_of(**settings)


def test_multi_agent_environment_cannot_be_created_as_single_agent() -> None:
    with pytest.raises(ConfigError, match="is a multi-agent environment"):
        make_environment(EnvironmentConfig(wrapper="pettingzoo", name="mpe.simple_spread_v3"))
