"""Environments of every family, created from configs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl4sys.config import parse
from rl4sys.environments import mujoco
from rl4sys.environments.base import step_limit
from rl4sys.environments.config import EnvironmentConfig
from rl4sys.environments.encoding import Encoding
from rl4sys.environments.evaluation import evaluate
from rl4sys.environments.factory import make_environment
from rl4sys.environments.families.goal import goal_reward
from rl4sys.environments.families.multigoal import GOALS, squared_distances
from rl4sys.errors import ConfigError, MissingExtraError
from rl4sys.spec import Box, Discrete

from .random_policy import Random, actor_in, as_bytes

FAMILIES: dict[str, dict[str, Any]] = {
    "classic control": {"name": "Acrobot-v1"},
    "mujoco": {"name": "HalfCheetah-v5"},
    "mujoco with termination": {"name": "Hopper-v5"},
    "dm_control": {"wrapper": "dm_control", "name": "cheetah-run"},
    "dm_control with a random target": {"wrapper": "dm_control", "name": "reacher-easy", "options": {"flatten": False}},
    "atari": {"wrapper": "atari", "name": "Breakout"},
    "sticky atari": {"wrapper": "atari", "name": "ALE/Breakout-v5", "options": {"repeat_action_probability": 0.25}},
    "BitFlip": {"wrapper": "goal", "name": "BitFlip"},
    "PointReach": {"wrapper": "goal", "name": "PointReach"},
    "multigoal": {"wrapper": "multigoal"},
    "all options": {"name": "Pendulum-v1", "frame_stack": 3, "action_repeat": 2, "rescale_actions": True},
}


def config_of(**settings: Any) -> EnvironmentConfig:
    return parse(EnvironmentConfig, settings, "environment")


@pytest.mark.parametrize("family", FAMILIES)
def test_actor_of_every_family_continues_exactly_after_restore(family: str) -> None:
    config = config_of(**FAMILIES[family])
    one, other = actor_in(config), actor_in(config, seed=2)
    policy = Random(one.spec.action)
    before = one.collect(policy, 0, 60)
    other.restore(one.state())
    expected = as_bytes(one.collect(policy, 0, 60))
    assert as_bytes(other.collect(policy, 0, 60)) == expected
    assert expected[0] != as_bytes(before)[0]
    assert len({t.columns[name].tobytes() for t in before[:2] for name in t.columns if "obs." in name}) > 1


def test_mujoco_warnings_are_logged_once(
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(mujoco, "_logged", set())
    environment = make_environment(config_of(name="HalfCheetah-v5"))
    environment.reset(seed=1)
    physics: Any = environment.unwrapped
    for _ in range(2):
        physics.data.qvel[:] = 1e20
        physics.do_simulation(np.zeros(6), 5)
    assert [record.message.partition(" at ")[0] for record in caplog.records] == [
        "MuJoCo: Nan, Inf or huge value in QVEL"
    ]
    assert capfd.readouterr().err == ""
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("settings", "wrapper", "name"),
    [
        ({"universe": "gym", "domain": "HalfCheetah", "task": "v5"}, "gym", "HalfCheetah-v5"),
        ({"universe": "dm_control", "domain": "cheetah", "task": "run"}, "dm_control", "cheetah-run"),
        ({"wrapper": "dm_control", "domain": "ball_in_cup", "task": "catch"}, "dm_control", "ball_in_cup-catch"),
    ],
)
def test_universe_domain_and_task_select_an_environment(settings: dict[str, str], wrapper: str, name: str) -> None:
    config = config_of(**settings)
    assert config == config_of(wrapper=wrapper, name=name)
    assert config_of(**config.model_dump()) == config, "a stored config can be parsed again"


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "task missing": ({"universe": "gym", "domain": "Hopper"}, "domain and task must be given together"),
    "contradicting names": (
        {"name": "Walker2d-v5", "domain": "Hopper", "task": "v5"},
        "name is 'Walker2d-v5', but universe, domain and task give 'Hopper-v5'; remove one of them",
    ),
    "unknown family": ({"universe": "gymm", "domain": "Hopper", "task": "v5"}, "no environment is named 'gymm'; did"),
    "unknown task": ({"wrapper": "dm_control", "name": "cheetah-runn"}, "did you mean cheetah-run.*Known: acrobot"),
    "unknown game": ({"wrapper": "atari", "name": "Pongg"}, "'Pongg', which is not an Atari game; did you mean Pong?"),
    "unknown goal task": ({"wrapper": "goal", "name": "BitFlop"}, "did you mean BitFlip.*Known: BitFlip, PointReach"),
    "unknown option": (
        {"wrapper": "atari", "name": "Pong", "options": {"frameskip": 4}},
        r"environment\.options\.frameskip is not a setting; did you mean frame_skip",
    ),
    "game without the atari wrapper": ({"name": "ALE/Pong-v9"}, "for Atari games set environment.family=atari"),
    "rescaled discrete actions": (
        {"name": "CartPole-v1", "rescale_actions": True},
        r"rescale_actions is true, but the actions are Discrete\(2\)",
    ),
    "option rejected by Gymnasium": ({"name": "CartPole-v1", "options": {"a": 1}}, "'CartPole-v1' cannot be created"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_invalid_environment_settings_are_rejected(mistake: str) -> None:
    settings, message = MISTAKES[mistake]
    with pytest.raises(ConfigError, match=message):
        make_environment(config_of(**settings))


@pytest.mark.parametrize(
    ("module", "settings", "extra"),
    [
        ("dm_control", {"wrapper": "dm_control", "name": "cheetah-run"}, "train"),
        ("ale_py", {"wrapper": "atari", "name": "Pong"}, "atari"),
    ],
)
def test_missing_package_error_contains_the_extra(
    module: str, settings: dict[str, Any], extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=rf"needs {module}, .*pip install -e '\.\[{extra}\]'"):
        make_environment(config_of(**settings))


def test_dm_control_observations_are_flattened_or_kept_by_name() -> None:
    flat = make_environment(config_of(wrapper="dm_control", name="walker-walk"))
    named = make_environment(config_of(wrapper="dm_control", name="walker-walk", options={"flatten": False}))
    assert {name: box.shape for name, box in Encoding(named).spec.observation.items()} == {
        "height": (1,),
        "orientations": (14,),
        "velocity": (9,),
    }
    seen, parts = flat.reset(seed=4)[0], named.reset(seed=4)[0]
    assert seen.tolist() == np.concatenate([parts[n] for n in ("orientations", "height", "velocity")]).tolist()
    assert step_limit(flat) == 1000


def test_dm_control_tasks_are_truncated_at_time_limit() -> None:
    config = config_of(wrapper="dm_control", name="cartpole-swingup", options={"task": {"time_limit": 0.05}})
    environment = make_environment(config)
    environment.reset(seed=0)
    ends = [environment.step(environment.action_space.sample())[2:4] for _ in range(5)]
    assert ends == [(False, False)] * 4 + [(False, True)]
    assert step_limit(environment) == 5


def test_dm_control_termination_ends_the_episode() -> None:
    environment: Any = make_environment(config_of(wrapper="dm_control", name="lqr-lqr_2_1"))
    environment.reset(seed=0)
    task = environment.unwrapped._environment.task
    task.get_termination = lambda physics: 0.0
    assert environment.step(environment.action_space.sample())[2:4] == (True, False)


def test_dm_control_pixels_need_no_display() -> None:
    options = {"pixels": True, "image_size": 32}
    environment = make_environment(
        config_of(wrapper="dm_control", name="point_mass-easy", options=options, frame_stack=2)
    )
    assert Encoding(environment).spec.observation["state"] == Box((32, 32, 6), "uint8", (0.0,), (255.0,))
    image = environment.reset(seed=1)[0]
    assert image.std() > 1
    later = environment.step(np.ones(2))[0]
    assert (later[..., :3] == image[..., 3:]).all(), "the oldest frame comes first"


def test_atari_games_have_standard_preprocessing() -> None:
    config = config_of(wrapper="atari", name="Pong")
    assert (config.frame_stack, config.clip_reward) == (4, 1.0)
    environment = make_environment(config)
    spec = Encoding(environment).spec
    assert spec.observation["state"] == Box((4, 84, 84), "uint8", (0.0,), (255.0,))
    assert spec.action == Discrete(6)
    assert step_limit(environment) == 27_000
    starts = {environment.reset(seed=seed)[1]["episode_frame_number"] for seed in range(4)}
    assert len(starts) > 1, "the number of initial no-op frames varies"
    colored = make_environment(config_of(wrapper="atari", name="Pong", options={"grayscale": False}))
    assert Encoding(colored).spec.observation["state"].shape == (84, 84, 12)


def test_sticky_actions_change_the_episode() -> None:
    def play(stickiness: float) -> bytes:
        options = {"repeat_action_probability": stickiness, "noop_max": 0}
        environment = make_environment(config_of(wrapper="atari", name="Pong", options=options))
        environment.reset(seed=3)
        return b"".join(environment.step(2 + step % 2)[0].tobytes() for step in range(30))

    assert play(0.25) != play(0.0)


def test_life_loss_ends_episodes_in_training_only() -> None:
    config = config_of(wrapper="atari", name="Breakout", options={"terminal_on_life_loss": True}, max_episode_steps=200)
    actor = actor_in(config, num_envs=1)
    assert any(t.terminated for t in actor.collect(Random(actor.spec.action), 0, 150))
    evaluated = evaluate(config, Random(actor.spec.action), episodes=1, seed=0)
    assert evaluated.lengths[0] > max(episode.length for episode in actor.take_finished())


def test_reported_returns_are_not_clipped() -> None:
    plain = config_of(name="Pendulum-v1", max_episode_steps=20)
    clipped = plain.model_copy(update={"clip_reward": 0.5})
    actors = [actor_in(config, num_envs=1) for config in (plain, clipped)]
    policy = Random(actors[0].spec.action)
    whole, cut = (actor.collect(policy, 0, 20)[0].columns["reward"] for actor in actors)
    assert cut.tolist() == np.clip(whole, -0.5, 0.5).tolist() != whole.tolist()
    finished = [actor.take_finished()[0].total_reward for actor in actors]
    assert finished[0] == finished[1] == pytest.approx(whole.sum())
    assert evaluate(clipped, policy, 2, 0) == evaluate(plain, policy, 2, 0)


def test_action_repeat_sums_rewards() -> None:
    plain = make_environment(config_of(name="Pendulum-v1"))
    repeated = make_environment(config_of(name="Pendulum-v1", action_repeat=3, max_episode_steps=2))
    plain.reset(seed=1)
    repeated.reset(seed=1)
    action = np.array([0.5], np.float32)
    steps = [plain.step(action) for _ in range(3)]
    seen, reward, *_ = repeated.step(action)
    assert seen.tolist() == steps[-1][0].tolist()
    assert reward == pytest.approx(sum(float(step[1]) for step in steps))
    assert repeated.step(action)[3], "step limits count steps of the policy"


def test_rescaled_actions_cover_the_action_bounds() -> None:
    plain = make_environment(config_of(name="Pendulum-v1"))
    rescaled = make_environment(config_of(name="Pendulum-v1", rescale_actions=True))
    assert Encoding(rescaled).spec.action == Box((1,), "float32", (-1.0,), (1.0,))
    plain.reset(seed=1)
    rescaled.reset(seed=1)
    assert plain.step(np.array([-2], np.float32))[0].tolist() == rescaled.step(np.array([-1], np.float32))[0].tolist()


def test_stacked_vector_observations_have_a_frame_axis() -> None:
    environment = make_environment(config_of(name="CartPole-v1", frame_stack=3))
    first = environment.reset(seed=1)[0]
    assert first.shape == (3, 4)
    assert (first == first[0]).all()
    second = environment.step(0)[0]
    assert second[:2].tolist() == first[1:].tolist()
    assert second[2].tolist() != first[2].tolist()


@pytest.mark.parametrize("name", ["BitFlip", "PointReach"])
def test_goal_rewards_match_compute_reward(name: str) -> None:
    environment = make_environment(config_of(wrapper="goal", name=name))
    reward_of = goal_reward(environment)
    assert reward_of is not None
    environment.reset(seed=1)
    environment.action_space.seed(1)
    achieved, desired, given = [], [], []
    for seed in range(40):
        seen, reward, terminated, truncated, _ = environment.step(environment.action_space.sample())
        achieved.append(seen["achieved_goal"])
        desired.append(seen["desired_goal"])
        given.append(reward)
        if terminated or truncated:
            environment.reset(seed=seed)
    assert reward_of(np.array(achieved), np.array(desired)).tolist() == given
    assert reward_of(np.array(achieved), np.array(achieved)).tolist() == [0.0] * 40
    assert -1.0 in given


def test_bit_flip_terminates_at_the_goal() -> None:
    environment = make_environment(config_of(wrapper="goal", name="BitFlip", options={"bits": 5}))
    seen = environment.reset(seed=4)[0]
    wrong = np.flatnonzero(seen["observation"] != seen["desired_goal"])
    assert 1 < len(wrong) < 5
    results = [environment.step(int(bit))[1:3] for bit in wrong]
    assert results == [(-1.0, False)] * (len(wrong) - 1) + [(0.0, True)]
    assert step_limit(environment) == 5


def test_point_reach_gives_zero_reward_at_the_goal() -> None:
    environment = make_environment(config_of(wrapper="goal", name="PointReach"))
    seen = environment.reset(seed=2)[0]
    rewards = []
    for _ in range(50):
        way = seen["desired_goal"] - seen["achieved_goal"]
        seen, reward, terminated, truncated, _ = environment.step(np.clip(10 * way, -1, 1))
        rewards.append(reward)
    assert (terminated, truncated) == (False, True)
    assert rewards[0] == -1.0
    assert rewards[25:] == [0.0] * 25


def test_environments_without_goals_have_no_goal_reward() -> None:
    assert goal_reward(make_environment(config_of(name="CartPole-v1"))) is None


def test_multigoal_rewards_match_the_paper() -> None:
    environment = make_environment(config_of(wrapper="multigoal", options={"start_deviation": 0.0}))
    assert environment.reset(seed=0)[0].tolist() == [0, 0]
    seen, reward, *_ = environment.step(np.array([1, 0], np.float32))
    assert seen.tolist() == [1, 0]
    assert reward == pytest.approx(-30 * 1 - 4**2)
    rewards = [environment.step(np.array([0.99, 0], np.float32))[1:3] for _ in range(4)]
    assert [over for _, over in rewards] == [False, False, False, True]
    assert rewards[-1][0] == pytest.approx(10 - 30 * 0.99**2 - 0.04**2, abs=1e-4)
    assert step_limit(environment) == 30
    assert squared_distances(GOALS).tolist() == [0, 0, 0, 0]


def test_multigoal_plots_show_paths_and_q_values(tmp_path: Any) -> None:
    from rl4sys.environments.multigoal_plots import draw_q, draw_rollouts

    paths = draw_rollouts([np.array([[0, 0], [1, 1], [2, 1]]), np.array([[0, 0], [-1, 0]])])
    assert len(paths.axes[0].lines) == 3, "one line for the goals and one per path"
    values = draw_q(lambda states, actions: -((actions - 0.1 * states) ** 2).sum(-1), lambda states: 0.1 * states)
    assert [len(axes.lines[0].get_xdata()) for axes in values.axes] == [100, 100, 100]
    for name, figure in (("paths", paths), ("values", values)):
        figure.savefig(tmp_path / f"{name}.png")
        assert (tmp_path / f"{name}.png").stat().st_size > 10_000
