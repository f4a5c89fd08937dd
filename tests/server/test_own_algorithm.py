"""Training of a custom `BaseAlgorithm` on a server, for clients with remote inference."""

from __future__ import annotations

import re
from pathlib import Path

import gymnasium

from rl4sys.client import RL4SysAgent
from rl4sys.config import to_yaml
from tests.live import WireClient, running_server

from .test_own_network import act_in_cartpole, patient_connection

TUTORIAL = Path(__file__).parents[2] / "docs" / "own_algorithm.md"


def test_server_trains_custom_algorithm_with_remote_inference(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(re.findall(r"```python\n(.*?)```", TUTORIAL.read_text(), re.DOTALL)[0])
    (tmp_path / "server.yaml").write_text(to_yaml({"plugins": [str(tmp_path / "mine.py")]}))
    settings = {"algorithm": {"name": "my_algorithm", "lr": 1e-2}, "buffer": {"size": 64}}
    space = gymnasium.make("CartPole-v1")
    with running_server(tmp_path / "live", "--config", str(tmp_path / "server.yaml")) as server:
        client = {"version": 1, "client_id": "own", **settings, "inference": "remote", "max_traj_length": 16}
        with RL4SysAgent(
            {**client, "server": patient_connection(server)},
            observation_space=space.observation_space,
            action_space=space.action_space,
        ) as agent:
            versions = act_in_cartpole(agent, 250)
            agent.flush(60.0)
        assert None not in versions, "no decision was a fallback"
        assert server.wait_for_policy("own", lambda policy: policy.steps_waiting == 0 and policy.version > 2)
        with WireClient(server.address) as local:
            local.hello("local", settings=settings)
            message = local.wait_for_refusal().message
    assert "MyAlgorithm chooses actions in its own act(), so its policy runs only with torch" in message
