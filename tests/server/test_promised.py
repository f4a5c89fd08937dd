"""The documented application loop and both documented config files work unchanged, except for the port."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from inspect import signature
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import torch

from rl4sys.client import RL4SysAgent
from rl4sys.errors import ConfigError
from tests.live import LiveServer, running_server

PROMISED = Path(__file__).parents[1] / "data"
PORT = "50051"


@pytest.fixture(scope="module")
def promised_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with running_server(tmp_path_factory.mktemp("promised")) as server:
        yield server


def config_for(server: LiveServer, name: str, folder: Path) -> str:
    """Copy a documented config with the port of the server in its address; return the path."""
    text = (PROMISED / name).read_text()
    assert text.count(PORT) == 1
    path = folder / name
    path.write_text(text.replace(PORT, str(server.port)))
    return str(path)


class Lander:
    """Documented application, completed where the documentation shows an excerpt."""

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


def test_first_documented_config_trains_with_the_documented_loop(promised_server: LiveServer, tmp_path: Path) -> None:
    env = gymnasium.make("LunarLander-v3")
    with RL4SysAgent(conf_path=config_for(promised_server, "promised_001.json", tmp_path), debug=True) as agent:
        assert agent.wait_for_model(60.0, version=0)
        Lander(agent, env).run_application(260, 200)
        assert agent.flush(30.0)
        assert agent.wait_for_model(60.0, version=1)
        statistics = agent.statistics()
    assert statistics.fallback_decisions == 0
    assert statistics.dropped_steps == 0
    policy = promised_server.wait_for_policy("luna-landing", lambda policy: policy.version >= 1)
    assert policy.algorithm == "ppo"
    assert policy.steps_refused == 0
    assert policy.steps_received == statistics.steps_acknowledged


def test_second_documented_config_is_rejected_without_spaces() -> None:
    with pytest.raises(ConfigError) as caught:
        RL4SysAgent(conf_path=str(PROMISED / "promised_003.json"))
    assert str(caught.value) == (
        "the size of observation and of action are missing from the config. "
        "Give RL4SysAgent(conf_path, observation_space=..., action_space=...), with spaces of Gymnasium or "
        "rl4sys.spec, or write `observation: 8` (length of the vector) and `action: 4` (number of discrete actions) "
        "in the config"
    )


def test_agent_module_has_the_documented_parameter_names() -> None:
    from rl4sys.client.agent import RL4SysAction, RL4SysAgent, RL4SysTrajectory

    def names(function: Callable[..., Any]) -> list[str]:
        return [name for name in signature(function).parameters if name != "self"]

    assert names(RL4SysAgent)[:2] == ["conf_path", "debug"]
    assert names(RL4SysAgent.request_for_action)[:2] == ["traj", "obs"]
    for method in (RL4SysAgent.add_to_trajectory, RL4SysAgent.mark_end_of_trajectory):
        assert names(method)[:2] == ["traj", "action"]
    assert names(RL4SysAction.update_reward) == ["reward"]
    assert RL4SysTrajectory.__module__.startswith("rl4sys.client")


def test_second_documented_config_trains_with_given_spaces(promised_server: LiveServer, tmp_path: Path) -> None:
    env = gymnasium.make("LunarLander-v3")
    with RL4SysAgent(
        config_for(promised_server, "promised_003.json", tmp_path),
        observation_space=env.observation_space,
        action_space=env.action_space,
        client_id="lunar_lander",
    ) as agent:
        assert agent.wait_for_model(60.0, version=0)
        Lander(agent, env).run_application(40, 200)
        assert agent.wait_for_model(60.0, version=1)
    promised_server.wait_for_policy("lunar_lander", lambda policy: policy.version >= 1)
    config = (promised_server.root / "lunar_lander/configs/config.yaml").read_text()
    for setting in ("lr: 0.0003", "gamma: 0.99", "target_kl: 0.01", "entropy_coef: 0.01", "hidden_dims: [64, 64]"):
        assert setting in config
