"""Policies that need torch for inference: the server trains them and selects the actions for their clients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import gymnasium
import numpy as np
import pytest

from rl4sys.client import RL4SysAgent
from rl4sys.config import to_yaml
from rl4sys.learner.learner import build_learner
from rl4sys.policy.draws import Draws
from rl4sys.registry import load_plugins
from rl4sys.runs.run import Run
from rl4sys.server.live_config import live_learner_config
from rl4sys.spec import Box, Discrete, Spec
from rl4sys.wire.call import Credentials, open_channel
from rl4sys.wire.columns import decode_column, encode_column
from rl4sys.wire.messages import ActReply, ActRequest
from rl4sys.wire.service import ACT
from tests.live import LiveServer, WireClient, running_server

PLUGIN = """
import torch
from torch import nn

from rl4sys.networks.base import NetworkConfig, flatten
from rl4sys.policy.snapshot import input_size
from rl4sys.registry import register_network


@register_network("waves")
class Waves(nn.Module):
    Config = NetworkConfig

    def __init__(self, config, blueprint):
        super().__init__()
        self.spec = blueprint.spec
        self.body = nn.Linear(input_size(blueprint.spec), 16)
        self.out = nn.Linear(16, blueprint.outputs)

    def forward(self, observation):
        if observation["state"].max() > 90:
            raise ValueError("input too large")
        return self.out(torch.sin(self.body(flatten(observation, self.spec))))


@register_network("softened")
def softened(config, blueprint):
    size = input_size(blueprint.spec)
    return nn.Sequential(nn.Linear(size, 8), nn.Softplus(), nn.Linear(8, blueprint.outputs))


softened.Config = NetworkConfig
"""

CARTPOLE = Spec({"state": Box((4,))}, Discrete(2))


def settings_of(network: str) -> dict[str, Any]:
    return {
        "algorithm": {"name": "ppo", "epochs": 2, "minibatch_size": 32},
        "network": {"actor": {"type": network}, "critic": {"hidden_dims": [8]}},
        "buffer": {"size": 64},
    }


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    root = tmp_path_factory.mktemp("own")
    (root / "networks.py").write_text(PLUGIN)
    (root / "server.yaml").write_text(to_yaml({"plugins": [str(root / "networks.py")]}))
    with running_server(root / "live", "--config", str(root / "server.yaml")) as running:
        yield running


def patient_connection(server: LiveServer) -> dict[str, Any]:
    """Return a ``server`` block with long timeouts, because a busy learner process may answer requests late."""
    return {"address": server.address, "timeout_seconds": 60.0, "act_timeout_seconds": 60.0}


def act_in_cartpole(agent: RL4SysAgent, steps: int) -> list[int | None]:
    """Play CartPole and return the model version of each decision."""
    system, trajectory, versions = gymnasium.make("CartPole-v1"), None, []
    state, _ = system.reset(seed=0)
    for _ in range(steps):
        trajectory, action = agent.request_for_action(trajectory, state)
        versions.append(action.version)
        state, reward, terminated, truncated, _ = system.step(action.act)
        agent.add_to_trajectory(trajectory, action)
        action.update_reward(float(reward))
        if terminated or truncated:
            agent.mark_end_of_trajectory(trajectory, action, truncated=not terminated)
            state, _ = system.reset()
    return versions


def ask(server: LiveServer, policy_id: str, state: np.ndarray, draws: Draws) -> ActReply:
    request = ActRequest(
        client_id=policy_id,
        policy_id=policy_id,
        observation=[encode_column("obs.state", state)],
        draws_key=draws.key,
        draws_counter=draws.counter,
    )
    with open_channel(server.address, Credentials()) as channel:
        act = channel.unary_unary(ACT, ActRequest.SerializeToString, ActReply.FromString)
        return act(request, timeout=30)


def test_remote_decisions_equal_decisions_of_the_restored_learner(server: LiveServer) -> None:
    space = gymnasium.make("CartPole-v1")
    client = {"version": 1, "client_id": "waves", **settings_of("waves"), "inference": "remote", "max_traj_length": 16}
    with RL4SysAgent(
        {**client, "server": patient_connection(server)},
        observation_space=space.observation_space,
        action_space=space.action_space,
    ) as agent:
        versions = act_in_cartpole(agent, 250)
        agent.flush(60.0)
    assert None not in versions, "no decision was a fallback"
    assert versions == sorted(versions, key=int)
    trained = server.wait_for_policy("waves", lambda policy: policy.steps_waiting == 0 and policy.version > 2)
    state = np.array([[0.1, -0.5, 0.05, 0.3]], np.float32)
    replies = [ask(server, "waves", state, Draws(7, counter)) for counter in range(10)]
    assert {reply.version for reply in replies} == {trained.version}
    server.stop()
    load_plugins([str(server.root.parent / "networks.py")])
    run = Run.open(server.root / "waves")
    learner = build_learner(CARTPOLE, live_learner_config(run.config, "cpu"), run.config.experiment.seed)
    learner.restore(run.checkpoints.load().state["learner"])
    policy = learner.policy()
    for counter, reply in enumerate(replies):
        decision = policy.act({"state": state}, {}, Draws(7, counter))
        assert decode_column(reply.action).tolist() == decision.action.tolist()
        assert reply.log_prob == pytest.approx(float(decision.log_prob[0]), abs=1e-6)
    server.start()
    again = ask(server, "waves", state, Draws(7, 0))
    assert (again.version, again.log_prob) == (trained.version, replies[0].log_prob)


@pytest.mark.parametrize(
    ("network", "expected"),
    [
        ("waves", "Waves has its own forward code and no export(prefix) method"),
        ("softened", "module 1 of the network, Softplus("),
    ],
)
def test_local_inference_with_unexportable_network_is_rejected(server: LiveServer, network: str, expected: str) -> None:
    with WireClient(server.address) as client:
        client.hello(f"new-{network}", settings=settings_of(network))
        message = client.wait_for_refusal().message
    assert expected in message
    assert "set `inference: remote` in the clients" in message
    assert not (server.root / f"new-{network}").exists()
    with WireClient(server.address) as client:
        client.hello(f"held-{network}", settings=settings_of(network), remote=True)
        client.receive("welcome")
    with WireClient(server.address) as client:
        client.hello(f"held-{network}", settings=settings_of(network))
        assert expected in client.wait_for_refusal().message
    assert ask(server, f"held-{network}", np.zeros((1, 3), np.float32), Draws(1)).version == 0


def test_error_in_custom_network_does_not_affect_next_decision(server: LiveServer) -> None:
    with WireClient(server.address) as client:
        client.hello("weak", settings=settings_of("waves"), remote=True)
        client.receive("welcome")
    with pytest.raises(grpc.RpcError, match=r"the policy failed to select an action: ValueError\('input too large'\)"):
        ask(server, "weak", np.full((1, 3), 99, np.float32), Draws(1))
    assert ask(server, "weak", np.zeros((1, 3), np.float32), Draws(1)).version == 0
