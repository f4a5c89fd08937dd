"""What users were promised, word for word: the loop, the two config files, the addresses in them."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import torch

from rl4sys.client import RL4SysAgent
from tests.live import LiveServer

PROMISED = Path(__file__).parents[1] / "data"
PORT = 50051


@pytest.fixture(scope="module")
def promised_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """Where the files say it is, unless something else is there already."""
    server = LiveServer(tmp_path_factory.mktemp("promised"))
    with closing(socket.socket()) as probe:
        if probe.connect_ex(("127.0.0.1", PORT)) != 0:
            server.port, server.address = PORT, f"localhost:{PORT}"
    server.start()
    yield server
    server.stop()


def elsewhere(server: LiveServer) -> dict[str, Any]:
    return {} if server.port == PORT else {"server_address": server.address}


class Lander:
    """The promised application, with what its excerpt leaves out."""

    def __init__(self, rlagent: RL4SysAgent, env: gymnasium.Env[Any, Any]) -> None:
        self.rlagent, self.env, self._seed = rlagent, env, 1
        self.rl4sys_traj = None

    def run_application(self, num_iterations: int, max_moves: int) -> None:
        for iteration in range(num_iterations):
            obs, _ = self.env.reset(seed=self._seed + iteration)
            done = False
            moves = 0
            while not done and moves < max_moves:
                obs_tensor = torch.as_tensor(obs)
                self.rl4sys_traj, self.rl4sys_action = self.rlagent.request_for_action(self.rl4sys_traj, obs_tensor)
                action = self.rl4sys_action.act
                next_obs, reward, terminated, truncated, _ = self.env.step(action)
                self.rlagent.add_to_trajectory(self.rl4sys_traj, self.rl4sys_action)
                self.rl4sys_action.update_reward(reward)
                obs, done, moves = next_obs, terminated or truncated, moves + 1
            self.rlagent.mark_end_of_trajectory(self.rl4sys_traj, self.rl4sys_action)


def test_the_first_promised_file_and_loop_train(promised_server: LiveServer) -> None:
    env = gymnasium.make("LunarLander-v3")
    with RL4SysAgent(conf_path=str(PROMISED / "promised_001.json"), **elsewhere(promised_server)) as agent:
        Lander(agent, env).run_application(260, 200)
        assert agent.flush(30.0)
        assert agent.wait_for_model(60.0, version=1)
        statistics = agent.statistics()
    assert statistics.fallback_decisions == 0
    assert statistics.dropped_steps == 0
    policy = promised_server.await_policy("luna-landing", lambda policy: policy.version >= 1)
    assert policy.algorithm == "ppo"
    assert policy.steps_refused == 0
    assert policy.steps_received == statistics.steps_acknowledged


def test_the_second_promised_file_trains_with_the_spaces_it_does_not_name(promised_server: LiveServer) -> None:
    env = gymnasium.make("LunarLander-v3")
    with RL4SysAgent(
        str(PROMISED / "promised_003.json"),
        observation_space=env.observation_space,
        action_space=env.action_space,
        client_id="lunar_lander",
        **elsewhere(promised_server),
    ) as agent:
        Lander(agent, env).run_application(40, 200)
        assert agent.wait_for_model(60.0, version=1)
    promised_server.await_policy("lunar_lander", lambda policy: policy.version >= 1)
    config = (promised_server.root / "lunar_lander/configs/config.yaml").read_text()
    for setting in ("lr: 0.0003", "gamma: 0.99", "target_kl: 0.01", "entropy_coef: 0.01", "hidden_dims: [64, 64]"):
        assert setting in config
