"""Live and local training give bit-identical learners for the same seed if no step is stale."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest

from rl4sys.client import RL4SysAgent
from rl4sys.environments.actor import episode_seed
from rl4sys.runs.checkpoint import CheckpointStore
from rl4sys.runs.config import ExperimentConfig
from rl4sys.runs.state_tree import split_state
from rl4sys.training.loop import TrainingLoop
from tests.conftest import small_config
from tests.live import LiveServer

CHANGES = ("environment.num_envs=1", "training.checkpoint_frequency=960", "training.total_timesteps=960")


def client_settings(config: ExperimentConfig, address: str, policy_id: str) -> dict[str, Any]:
    settings = config.to_settings()
    return {
        "version": 1,
        "client_id": policy_id,
        "seed": config.experiment.seed,
        **{block: settings[block] for block in ("algorithm", "network", "buffer")},
        "training": {"total_timesteps": config.training.total_timesteps},
        "normalize_obs": config.environment.normalize_obs,
        "normalize_reward": config.environment.normalize_reward,
        "max_staleness": 0,
        "patience_seconds": 60.0,
        "server": {"address": address, "timeout_seconds": 60.0},
    }


def act_in_cartpole(agent: RL4SysAgent, seed: int, steps: int) -> None:
    """Play CartPole with the same episode seeds as the local actor."""
    entropy = int(np.random.SeedSequence([seed, 0]).generate_state(2, np.uint64)[0])
    env = gymnasium.make("CartPole-v1")
    trajectory, taken, episode = None, 0, 0
    observation, _ = env.reset(seed=episode_seed(entropy, episode))
    while taken < steps:
        trajectory, action = agent.request_for_action(trajectory, observation)
        assert action.fallback_reason is None
        observation, reward, terminated, truncated, _ = env.step(action.act)
        agent.add_to_trajectory(trajectory, action)
        action.update_reward(float(reward))
        taken += 1
        if terminated or truncated:
            agent.mark_end_of_trajectory(trajectory, action, truncated=not terminated, final_observation=observation)
            episode += 1
            observation, _ = env.reset(seed=episode_seed(entropy, episode))
    # The next request ends the last trajectory, because each trajectory contains actions of only one version.
    agent.request_for_action(trajectory, observation)
    env.close()


@pytest.mark.parametrize(
    ("algorithm", "changes"),
    [
        ("ppo", ()),
        ("ppo", ("network.actor.type=gru", "network.actor.hidden_dims=[8]")),
        ("dqn", ()),
        ("sac", ()),
    ],
)
def test_live_and_local_training_give_identical_learners(
    algorithm: str,
    changes: tuple[str, ...],
    own_server: LiveServer,
    make_loop: Callable[..., TrainingLoop],
    tmp_path: Any,
) -> None:
    trainer = make_loop(algorithm, *CHANGES, *changes)
    progress = trainer.train()
    config, policy_id = small_config(algorithm, *CHANGES, *changes), f"same-{algorithm}"
    space = gymnasium.make("CartPole-v1")
    with RL4SysAgent(
        client_settings(config, own_server.address, policy_id),
        observation_space=space.observation_space,
        action_space=space.action_space,
    ) as agent:
        act_in_cartpole(agent, config.experiment.seed, progress.steps)
        own_server.wait_for_policy(policy_id, lambda policy: policy.version == progress.version)
    own_server.stop()
    local = CheckpointStore(next(tmp_path.glob("small_*")) / "checkpoints")
    live = CheckpointStore(own_server.root / policy_id / "checkpoints")
    assert progress.version > 5
    assert local.load_policy().to_bytes() == live.load_policy().to_bytes()
    states = [store.load().state["learner"] for store in (local, live)]
    for part in ("algorithm", "observations", "rng", "version", "steps", "refused"):
        documents, arrays = zip(*(split_state(state[part]) for state in states), strict=True)
        assert documents[0] == documents[1], part
        for name, array in arrays[0].items():
            np.testing.assert_array_equal(array, arrays[1][name], err_msg=f"{part} {name}")
