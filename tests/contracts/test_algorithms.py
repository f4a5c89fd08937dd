"""Contract of all algorithms, tested through the Learner. `rl4sys.testing` defines the rules."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from rl4sys.algorithms.actions import ActionKind, supported_actions
from rl4sys.algorithms.base import AlgorithmConfig
from rl4sys.errors import NumericalError
from rl4sys.learner.config import LearnerConfig, parse_algorithm, parse_buffer, parse_networks
from rl4sys.learner.learner import Learner, build_learner
from rl4sys.policy.draws import Draws
from rl4sys.registry import ALGORITHMS
from rl4sys.spec import Box, Discrete, MultiDiscrete, Spec, mask_box
from rl4sys.testing.configs import config_class_is_frozen_and_typed, config_is_restored_from_its_settings
from rl4sys.testing.contents import contents
from rl4sys.testing.learners import (
    LearnerCase,
    global_generators_are_left_alone,
    learners_are_independent,
    restored_learner_continues,
    rewarded_action_is_learned,
    seed_determines_the_learner,
    update_returns_finite_metrics,
)
from rl4sys.testing.policies import illegal_actions_are_never_taken, snapshot_acts_like_the_policy
from rl4sys.testing.task import RewardedTask, episode, observe, reward
from rl4sys.trajectory import Trajectory

DISCRETE = Spec({"state": Box((4,)), "mask": mask_box(Discrete(4))}, Discrete(4))
MULTI_DISCRETE = Spec({"state": Box((6,)), "mask": mask_box(MultiDiscrete((4, 2)))}, MultiDiscrete((4, 2)))
CONTINUOUS = Spec({"state": Box((2,))}, Box((1,), low=(-1.0,), high=(1.0,)))

BANDIT_DQN = {
    "learning_starts": 64,
    "train_frequency": 16,
    "gradient_steps": 8,
    "batch_size": 32,
    "lr": 5e-3,
    "gamma": 0.0,
    "exploration": 0.3,
    "target_update_interval": 32,
}
BANDIT_REPLAY = {
    "learning_starts": 64,
    "train_frequency": 16,
    "gradient_steps": 4,
    "batch_size": 64,
    "lr": 5e-3,
    "gamma": 0.0,
    "tau": 0.05,
}
BANDIT_TD3 = {
    **BANDIT_REPLAY,
    "learning_starts": 256,
    "gradient_steps": 8,
    "lr": 2e-3,
    "exploration_noise": 0.5,
}
BANDIT_SQL = {**BANDIT_REPLAY, "learning_starts": 256, "gradient_steps": 8, "lr": 2e-3}
CASES = {
    "ppo, discrete": ("ppo", DISCRETE, {"minibatch_size": 64, "lr": 1e-2, "gamma": 0.0}, {"size": 256}),
    "ppo, continuous": ("ppo", CONTINUOUS, {"minibatch_size": 64, "lr": 1e-2}, {"size": 256}),
    "ppo, MultiDiscrete": ("ppo", MULTI_DISCRETE, {"minibatch_size": 64, "lr": 1e-2, "gamma": 0.0}, {"size": 256}),
    "ppo, two learning rates, gradient steps": (
        "ppo",
        DISCRETE,
        {"minibatch_size": 64, "gamma": 0.0, "lr": 1e-2, "critic_lr": 5e-3, "gradient_steps": 30},
        {"size": 256, "episodes": 24},
    ),
    "ppo, recurrent": ("ppo", DISCRETE, {"minibatch_size": 64, "lr": 1e-2, "gamma": 0.0, "window": 3}, {"size": 256}),
    "ppo, shared trunk, two learning rates": (
        "ppo",
        DISCRETE,
        {"minibatch_size": 64, "gamma": 0.0, "lr": 1e-2, "critic_lr": 5e-3},
        {"size": 256},
    ),
    "rpo": ("rpo", CONTINUOUS, {"minibatch_size": 64, "lr": 1e-2, "perturbation": 0.2}, {"size": 256}),
    "a2c, discrete": ("a2c", DISCRETE, {"gamma": 0.0, "lr": 1e-2}, {"size": 64}),
    "a2c, MultiDiscrete": ("a2c", MULTI_DISCRETE, {"gamma": 0.0, "lr": 2e-2}, {"size": 64}),
    "a2c, continuous": ("a2c", CONTINUOUS, {"gamma": 0.0, "lr": 1e-2}, {"size": 64}),
    "a2c, shared trunk": ("a2c", DISCRETE, {"gamma": 0.0, "lr": 1e-2}, {"size": 64}),
    "reinforce": ("reinforce", DISCRETE, {"gamma": 0.0, "lr": 1e-2}, {"size": 64}),
    "reinforce, MultiDiscrete": ("reinforce", MULTI_DISCRETE, {"gamma": 0.0, "lr": 2e-2}, {"size": 64}),
    "reinforce, no baseline": ("reinforce", CONTINUOUS, {"gamma": 0.0, "lr": 1e-2, "baseline": "none"}, {"size": 64}),
    "trpo, discrete": ("trpo", DISCRETE, {"gamma": 0.0, "max_kl": 0.05}, {"size": 128}),
    "trpo, MultiDiscrete": ("trpo", MULTI_DISCRETE, {"gamma": 0.0, "max_kl": 0.1}, {"size": 128}),
    "trpo, continuous": ("trpo", CONTINUOUS, {"gamma": 0.0, "max_kl": 0.05}, {"size": 128}),
    "sac, continuous": ("sac", CONTINUOUS, BANDIT_REPLAY, {"size": 2000}),
    "sac, discrete": ("sac", DISCRETE, {**BANDIT_REPLAY, "temperature": 0.05}, {"size": 2000}),
    "sql": ("sql", CONTINUOUS, {**BANDIT_SQL, "reward_scale": 20, "particles": 16}, {"size": 2000}),
    "iql, MultiDiscrete": (
        "iql",
        MULTI_DISCRETE,
        {**BANDIT_REPLAY, "gradient_steps": 2, "expectile": 0.9, "temperature": 10.0},
        {"size": 2000},
    ),
    "iql, continuous": ("iql", CONTINUOUS, {**BANDIT_REPLAY, "expectile": 0.9, "initial_log_std": 0.0}, {"size": 2000}),
    "td3": ("td3", CONTINUOUS, BANDIT_TD3, {"size": 2000}),
    "ddpg": ("ddpg", CONTINUOUS, BANDIT_TD3, {"size": 2000}),
    "dqn": ("dqn", DISCRETE, BANDIT_DQN, {"size": 2000}),
    "c51": ("c51", DISCRETE, {**BANDIT_DQN, "lowest": -1, "highest": 2, "atoms": 16}, {"size": 2000}),
    "c51, dueling": (
        "c51",
        DISCRETE,
        {**BANDIT_DQN, "lowest": -1, "highest": 2, "atoms": 16, "dueling": True},
        {"size": 2000},
    ),
    "rainbow": (
        "rainbow",
        DISCRETE,
        {**BANDIT_DQN, "lowest": -1, "highest": 2, "atoms": 16, "n_step": 1},
        {"type": "prioritized", "size": 2000},
    ),
    "qr_dqn": ("qr_dqn", DISCRETE, {**BANDIT_DQN, "quantiles": 16}, {"size": 2000}),
    "dqn, prioritized": ("dqn", DISCRETE, BANDIT_DQN, {"type": "prioritized", "size": 2000}),
    "dqn, dueling, 3 steps": ("dqn", DISCRETE, {**BANDIT_DQN, "dueling": True, "n_step": 3}, {"size": 2000}),
}


NETWORKS = {
    "ppo, recurrent": {"actor": {"type": "gru", "hidden_dims": [32], "hidden_size": 16}},
    "ppo, shared trunk, two learning rates": {"trunk": {"hidden_dims": [32]}, "actor": {"hidden_dims": []}},
    "a2c, shared trunk": {"trunk": {"hidden_dims": [32]}, "actor": {"hidden_dims": []}},
    "sql": {"critic": {"hidden_dims": [64, 64]}},
}


def learner_case(case: str) -> LearnerCase:
    name, spec, options, buffer = CASES[case]
    config = LearnerConfig(
        algorithm=parse_algorithm({"name": name, **options}),
        networks=parse_networks({"critic": {"hidden_dims": [16]}, **NETWORKS.get(case, {})}, name),
        buffer=parse_buffer(buffer, name),
    )
    return LearnerCase(spec, config, episodes=70)


def make_learner(case: str, seed: int = 1, **changes: bool | str) -> Learner:
    return learner_case(case).build(seed, **changes)


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def feed(learner: Learner, case: str, episodes: int, seed: int = 0) -> None:
    RewardedTask(CASES[case][1], seed).feed(learner, episodes)


def test_learns_rewarded_action(case: str) -> None:
    goal = -0.2 if isinstance(CASES[case][1].action, Box) else 0.85
    rewarded_action_is_learned(learner_case(case), episodes=700, goal=goal)


def test_result_depends_on_the_seed_alone(case: str) -> None:
    assert seed_determines_the_learner(learner_case(case)) == "", "another seed should give another algorithm"


@pytest.mark.parametrize("normalize", [True, False])
def test_restored_learner_continues_bit_exactly(case: str, normalize: bool) -> None:
    restored_learner_continues(learner_case(case), normalize=normalize)


def test_interleaved_learners_are_independent(case: str) -> None:
    learners_are_independent(learner_case(case))


def test_update_returns_finite_metrics(case: str) -> None:
    assert update_returns_finite_metrics(learner_case(case)) == ""


def test_global_random_generators_are_left_alone(case: str) -> None:
    global_generators_are_left_alone(learner_case(case))


@pytest.mark.parametrize("name", ALGORITHMS.names())
def test_config_is_frozen_and_typed(name: str) -> None:
    config_class_is_frozen_and_typed(ALGORITHMS.get(name).Config, AlgorithmConfig)
    config_is_restored_from_its_settings(parse_algorithm({"name": name}))


def test_learners_in_threads_are_independent(case: str) -> None:
    alone = make_learner(case)
    feed(alone, case, 60)
    results: dict[int, Learner] = {}

    def run(seed: int) -> None:
        results[seed] = make_learner(case, seed)
        feed(results[seed], case, 60)

    threads = [threading.Thread(target=run, args=(seed,)) for seed in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert contents(results[1]) == contents(alone)


def test_snapshot_for_clients_acts_like_the_live_policy(case: str) -> None:
    learner, spec = make_learner(case, normalize_obs=True), CASES[case][1]
    feed(learner, case, 70)
    seen = observe(spec, np.random.default_rng(3), 500)
    snapshot_acts_like_the_policy(learner._live_policy(), seen, exact=False)


def test_snapshot_contains_no_critic(case: str) -> None:
    names = make_learner(case).snapshot().weights
    assert names
    assert all(name.startswith(("actor.", "log_std", "low", "high", "choices")) for name in names)


MASKED = {ActionKind.DISCRETE: DISCRETE, ActionKind.MULTI_DISCRETE: MULTI_DISCRETE}


@pytest.mark.parametrize(
    ("name", "kind"),
    [(name, kind) for name in ALGORITHMS.names() for kind in MASKED if kind in supported_actions(name)],
)
def test_illegal_action_is_never_drawn(name: str, kind: ActionKind) -> None:
    """Check sampled and greedy actions before training, when some algorithms act at random, and after training."""
    spec, replays = MASKED[kind], "learning_starts" in ALGORITHMS.get(name).Config.model_fields
    config = LearnerConfig(
        algorithm=parse_algorithm({"name": name, **({"learning_starts": 64} if replays else {})}),
        networks=parse_networks({}, name),
        buffer=parse_buffer({"size": 2000 if replays else 64}, name),
        total_timesteps=1000,
    )
    learner, rng, draws = build_learner(spec, config, seed=1), np.random.default_rng(0), Draws(0)
    seen = observe(spec, rng, 100_000)

    illegal_actions_are_never_taken(learner.policy(), seen)
    for number in range(12):
        learner.learn([episode(learner, spec, rng, draws, number)])
    assert learner.version > 0
    illegal_actions_are_never_taken(learner.policy(), seen)


def test_behavior_cloning_learns_multi_discrete_actions() -> None:
    config = LearnerConfig(
        algorithm=parse_algorithm({"name": "bc", "train_frequency": 16, "gradient_steps": 2, "lr": 5e-3}),
        networks=parse_networks({}, "bc"),
        buffer=parse_buffer({"size": 4000}, "bc"),
    )
    learner, rng = build_learner(MULTI_DISCRETE, config, seed=1), np.random.default_rng(0)
    for number in range(400):
        seen = observe(MULTI_DISCRETE, rng, 9)
        values = np.where(seen["mask"], seen["state"], -np.inf)[:8]
        action = np.stack([values[:, :4].argmax(1), values[:, 4:].argmax(1)], axis=1)
        columns = {f"obs.{name}": column for name, column in seen.items()} | {"action": action}
        columns |= {name: np.zeros(8, np.float32) for name in ("reward", "log_prob")}
        learner.learn([Trajectory(learner.version, columns, episode=number, terminated=True)])
    seen = observe(MULTI_DISCRETE, rng, 2000)
    assert reward(MULTI_DISCRETE, seen, learner.policy().greedy().act(seen, {}, Draws(0)).action).mean() > 0.85


def test_rejected_steps_are_counted() -> None:
    learner = make_learner("ppo, discrete")
    feed(learner, "ppo, discrete", 40)
    assert learner.version == 1
    rng, draws = np.random.default_rng(0), Draws(0)
    stale = episode(learner, DISCRETE, rng, draws, 1)
    old = Trajectory(0, stale.columns, terminated=True)
    steps = learner.steps
    learner.learn([old])
    assert (learner.steps, learner.refused) == (steps, 8)


@pytest.mark.parametrize("column", ["obs.state", "reward", "log_prob"])
def test_non_finite_value_is_rejected_with_its_position(column: str) -> None:
    learner = make_learner("ppo, discrete")
    good = episode(learner, DISCRETE, np.random.default_rng(0), Draws(0), 1)
    invalid = good.columns[column].copy()
    invalid[5] = np.inf
    before = contents(learner)
    with pytest.raises(NumericalError, match=rf"{column} is .*inf.* at step 5, 5 steps into its episode"):
        learner.learn([Trajectory(0, {**good.columns, column: invalid})])
    assert contents(learner) == before


def test_stale_steps_have_lower_importance_weight() -> None:
    name, spec, options, buffer = CASES["ppo, discrete"]
    config = LearnerConfig(
        algorithm=parse_algorithm({"name": name, **options}),
        networks=parse_networks({}, name),
        buffer=parse_buffer({**buffer, "max_staleness": 1}, name),
    )
    learner = build_learner(spec, config, seed=1)
    rng, draws = np.random.default_rng(0), Draws(0)
    first, second = ([episode(learner, spec, rng, draws, number) for number in range(32)] for _ in range(2))
    metrics = [learner.learn(trajectories)[0] for trajectories in (first, second)]
    assert (learner.version, learner.refused) == (2, 0)
    assert [(m["policy/staleness"], m["policy/importance"] < 1) for m in metrics] == [(0, False), (1, True)]
