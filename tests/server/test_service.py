"""Protocol of the server over a real socket: valid clients and invalid requests."""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from rl4sys.client import RL4SysAgent, load_policy
from rl4sys.errors import SpecError
from rl4sys.policy.draws import Draws
from rl4sys.policy.snapshot import Snapshot
from rl4sys.runs.metrics import read_metrics
from rl4sys.runs.query import find_run
from rl4sys.runs.store import RunStore
from rl4sys.server.acting import decide_without_memory
from rl4sys.server.journal import read_trajectories
from rl4sys.spec import Box, Discrete, MultiDiscrete, Spec, is_allowed, mask_box
from rl4sys.wire.call import Credentials, open_channel
from rl4sys.wire.columns import decode_column, encode_column
from rl4sys.wire.delta import apply_delta, digest
from rl4sys.wire.messages import ActReply, ActRequest, ClientMessage, Held, Problem
from rl4sys.wire.service import ACT, SERVICE
from tests.live import SMALL_PPO, SPEC, LiveServer, WireClient, eventually, make_trajectory


def test_client_receives_welcome_model_acknowledgement_and_delta(server: LiveServer) -> None:
    with WireClient(server.address) as client:
        client.hello("whole-protocol")
        welcome = client.receive("welcome")
        assert re.fullmatch("[0-9a-f]{16}", welcome.lineage)
        assert welcome.max_staleness == 4
        assert welcome.acknowledged == 0
        first = client.receive("snapshot")
        assert (first.version, first.wants, first.taken) == (0, 64, 0)
        snapshot = Snapshot.from_bytes(first.full)
        assert snapshot.spec == SPEC
        assert set(snapshot.weights) == {w for o in snapshot.program.operations for w in o.weights}, "no critic"
        client.send_trajectories(make_trajectory(1), make_trajectory(2))
        client.wait_for_ack(2)
        second = client.receive("snapshot")
        assert (second.version, second.taken) == (1, 2)
        assert second.delta.base_version == 0
        assert len(second.delta.compressed) < len(first.full)
        content = apply_delta(first.full, second.delta.compressed)
        assert digest(content) == second.digest
        assert Snapshot.from_bytes(content).version == 1


def test_server_learns_masked_multidiscrete_policy(server: LiveServer) -> None:
    space = MultiDiscrete((3, 2))
    config = {**SMALL_PPO, "client_id": "several", "observation": 5, "action": [3, 2], "mask": True, "seed": 1}
    config |= {"algorithm": {"name": "ppo", "lr": 0.01, "gamma": 0.0}, "max_staleness": 0, "patience_seconds": 60.0}
    rng, trajectory, rewards, last = np.random.default_rng(0), None, [], 3000
    with RL4SysAgent({**config, "server": {"address": server.address, "timeout_seconds": 60.0}}) as agent:
        for step in range(last):
            observation, mask = rng.normal(size=5).astype(np.float32), rng.random(5) < 0.7
            mask[[rng.integers(3), 3 + rng.integers(2)]] = True
            trajectory, action = agent.request_for_action(trajectory, observation, mask)
            assert is_allowed(space, action.act[None], mask[None])
            value = np.where(mask, observation, -np.inf)
            rewards.append(np.mean(action.act == [value[:3].argmax(), value[3:].argmax()]))
            agent.add_to_trajectory(trajectory, action)
            action.update_reward(rewards[-1])
            if step % 16 == 15:
                agent.mark_end_of_trajectory(trajectory, action)
        assert agent.flush(60)
        assert agent.statistics().trajectories_refused == 0
    assert np.mean(rewards[-300:]) > 0.85 > np.mean(rewards[:300]) + 0.1
    server.wait_for_policy("several", lambda policy: policy.steps_used >= last - 64)
    policy = load_policy(next((server.root / "several").rglob("policy.safetensors")))
    assert policy.spec == Spec({"mask": mask_box(space), "state": Box((5,))}, space)


def test_unsupported_action_space_is_rejected_with_suggested_algorithms(server: LiveServer) -> None:
    with WireClient(server.address) as client:
        spec = Spec({"state": Box((3,))}, MultiDiscrete((3, 2)))
        client.hello("no-values", spec=spec, settings={"algorithm": {"name": "dqn"}})
        problem = client.receive("problem")
        assert "the action space is MultiDiscrete; use a2c, bc, iql, ppo, reinforce or trpo" in problem.message


def test_policy_is_stored_as_run_directory(server: LiveServer) -> None:
    with WireClient(server.address) as client:
        client.hello("a-run", settings={**SMALL_PPO, "max_staleness": 1000})
        client.send_trajectories(*(make_trajectory(n, steps=64) for n in range(1, 40)))
        client.wait_for_ack(39)
        server.wait_for_policy("a-run", lambda policy: policy.steps_waiting == 0)
    run = server.root / "a-run"
    assert load_policy(run / "checkpoints/latest/policy.safetensors").spec == SPEC
    assert json.loads((run / "status.json").read_text())["status"] == "running"
    assert list(run.glob("logs/events.out.tfevents*"))
    assert "name: ppo" in (run / "configs/config.yaml").read_text()
    rows = read_metrics(run / "metrics.jsonl")
    assert rows[0]["learner/version"] > 0
    assert {"loss/policy", "episode/return", "learner/refused_steps", "learner/staleness"} <= set(rows[0])
    kept = sorted(path for path in (run / "versions").iterdir())
    assert 1 < len(kept) <= 20
    assert load_policy(kept[-1]).version == int(kept[-1].stem)
    [listed] = [record for record in RunStore(server.root).runs() if record.path == run]
    assert (listed.name, listed.algorithm, listed.status) == ("a-run", "ppo", "running")
    assert listed.reward == rows[-1]["episode/return"]
    assert find_run("a-run", server.root) == run


def test_acknowledged_trajectories_are_stored_in_journal(server: LiveServer) -> None:
    with WireClient(server.address) as client:
        client.hello("data-set")
        client.send_trajectories(make_trajectory(1), make_trajectory(2, steps=7))
        client.wait_for_ack(2)
    assert [len(t) for t in read_trajectories(server.root / "data-set")] == [32, 7]


def test_duplicate_trajectory_is_written_once(server: LiveServer) -> None:
    for _ in range(2):
        with WireClient(server.address) as client:
            client.hello("twice")
            client.send_trajectories(make_trajectory(1), make_trajectory(2), make_trajectory(2), make_trajectory(1))
            client.wait_for_ack(2)
    with WireClient(server.address) as client:
        client.hello("twice")
        assert client.receive("welcome").acknowledged == 2
    assert len(list(read_trajectories(server.root / "twice"))) == 2
    policy = server.wait_for_policy("twice", lambda policy: policy.steps_used == 64)
    assert policy.steps_received == 64


def test_sequence_numbers_of_client_instances_are_independent(server: LiveServer) -> None:
    for instance in (5, 2**64 - 1):
        with WireClient(server.address) as client:
            client.hello("instances", instance=instance)
            assert client.receive("welcome").acknowledged == 0
            client.send_trajectories(make_trajectory(1))
            client.wait_for_ack(1)
    assert len(list(read_trajectories(server.root / "instances"))) == 2


def test_two_clients_with_same_name_share_one_policy(server: LiveServer) -> None:
    with WireClient(server.address) as one, WireClient(server.address) as two:
        one.hello("shared", client_id="same", instance=1)
        one.receive("snapshot")
        two.hello("shared", client_id="same", instance=2)
        assert "another client with client_id 'same' is connected" in two.receive("problem").message
        one.send_trajectories(make_trajectory(1))
        two.send_trajectories(make_trajectory(1))
        assert one.receive("snapshot").version == 1
        assert two.receive("snapshot").version in (0, 1)
        policy = server.wait_for_policy("shared", lambda policy: policy.version == 1)
        assert [client.client_id for client in policy.clients] == ["same", "same"]


def test_reconnecting_client_receives_delta(server: LiveServer) -> None:
    with WireClient(server.address) as client:
        client.hello("reconnects")
        lineage, model = client.receive("welcome").lineage, client.receive("snapshot")
    with WireClient(server.address) as client:
        client.hello("reconnects", held=Held(lineage=lineage, version=0, digest=model.digest))
        snapshot = client.receive("snapshot")
    assert not snapshot.full
    assert len(snapshot.delta.compressed) < 200
    assert apply_delta(model.full, snapshot.delta.compressed) == model.full


def test_only_pinned_version_is_sent(server: LiveServer) -> None:
    with WireClient(server.address) as client:
        client.hello("pinned")
        for n in range(1, 4):
            client.send_trajectories(make_trajectory(n, steps=64))
            server.wait_for_policy("pinned", lambda policy, n=n: policy.version == n)
    with WireClient(server.address) as client:
        client.hello("pinned", pinned_version=1, instance=2)
        assert client.receive("snapshot").version == 1
        client.send_trajectories(make_trajectory(1, version=1), make_trajectory(2, version=1))
        client.wait_for_ack(2)
        server.wait_for_policy("pinned", lambda policy: policy.version == 4)
    with WireClient(server.address) as client:
        client.hello("pinned", pinned_version=77)
        problem = client.wait_for_refusal()
    assert problem.kind == Problem.REFUSED
    assert "version 77 of policy 'pinned' is not stored; available versions: 0, 1, 2, 3, 4" in problem.message


def test_trajectories_above_staleness_limit_are_rejected(server: LiveServer) -> None:
    settings = {**SMALL_PPO, "max_staleness": 1}
    with WireClient(server.address) as client:
        client.hello("stale", settings=settings)
        assert client.receive("welcome").max_staleness == 1
        client.send_trajectories(*(make_trajectory(n, steps=64) for n in range(1, 4)))
        client.wait_for_ack(3)
        policy = server.wait_for_policy("stale", lambda policy: policy.steps_waiting == 0)
    assert (policy.version, policy.steps_used, policy.steps_refused) == (2, 128, 64)


def test_remote_decision_equals_local_decision(server: LiveServer) -> None:
    with WireClient(server.address) as client:
        client.hello("remote")
        model = client.receive("snapshot")
    (server.root / "m.safetensors").write_bytes(model.full)
    policy = load_policy(server.root / "m.safetensors")
    row = np.array([0.5, -1.0, 2.0], np.float32)
    with open_channel(server.address, Credentials()) as channel:
        act = channel.unary_unary(ACT, ActRequest.SerializeToString, ActReply.FromString)
        for counter in range(20):
            draws = Draws(99, counter)
            request = ActRequest(
                client_id="remote",
                policy_id="remote",
                observation=[encode_column("obs.state", row[None])],
                draws_key=99,
                draws_counter=counter,
            )
            reply = act(request, timeout=10)
            action, log_prob = policy.decide(row, None, draws)
            assert decode_column(reply.action).tolist() == [action]
            assert reply.log_prob == pytest.approx(log_prob, abs=1e-6)
            assert reply.draws_counter == draws.counter
        request.observation[0].CopyFrom(encode_column("obs.state", np.zeros((1, 4), np.float32)))
        with pytest.raises(grpc.RpcError, match=r"expected float32 of shape \(1, 3\)"):
            act(request, timeout=10)
        request.policy_id = "nowhere"
        with pytest.raises(grpc.RpcError, match="policy 'nowhere' does not exist"):
            act(request, timeout=10)


def test_remote_decision_of_recurrent_policy_is_rejected() -> None:
    policy = load_policy(Path(__file__).parents[2] / "cpp" / "tests" / "data" / "golden" / "gru.safetensors")
    observation = {"grid": np.zeros((1, 2, 1), np.float32), "state": np.zeros((1, 6), np.float32)}
    with pytest.raises(SpecError, match="the server stores no recurrent state for clients; set 'inference' to 'local'"):
        decide_without_memory(policy, 0, observation, Draws(0))


def test_health_reflection_and_metrics_are_available(server: LiveServer) -> None:
    with WireClient(server.address) as client:
        client.hello("watched")
        client.send_trajectories(make_trajectory(1))
        client.wait_for_ack(1)
    with grpc.insecure_channel(server.address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        assert health.Check(health_pb2.HealthCheckRequest()).status == health_pb2.HealthCheckResponse.SERVING
        listing = reflection_pb2.ServerReflectionRequest(list_services="")
        replies = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(iter([listing]))
        names = [service.name for service in next(iter(replies)).list_services_response.service]
        assert SERVICE in names
    address = eventually(lambda: next((line for line in server.output if "metrics:" in line), None)).split()[1]
    text = urllib.request.urlopen(address).read().decode()
    assert 'rl4sys_steps_received_total{policy="watched"} 32.0' in text
    assert "rl4sys_server_memory_bytes" in text


def test_server_process_does_not_load_torch(server: LiveServer) -> None:
    maps = Path(f"/proc/{server.pid}/maps").read_text()
    assert "libtorch" not in maps


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"protocol": 99}, "uses protocol version 99, but this server uses version 1"),
        ({"client_id": "../../etc"}, "client_id is '../../etc'; expected 1 to 100 letters"),
        ({"policy_id": "."}, "policy_id is '.'"),
        ({"policy_id": ""}, "policy_id is ''"),
        ({"spec": "{"}, "spec is not JSON"),
        ({"spec": "[" * 100_000}, "spec is not JSON"),
        ({"spec": "{}"}, "invalid spec: "),
        ({"settings": "nope"}, "settings are not JSON"),
        ({"settings": "[]"}, "settings are []; expected a JSON object"),
        ({"settings": " " * 70_000}, "settings are too long; the limits are 1,000,000 and 64,000 characters"),
        ({"settings": {"algorithm": {"name": "pp"}}}, "no algorithm is named 'pp'"),
        ({"settings": {"algorithm": {"name": "ppo", "learning_rat": 1}}}, "algorithm.learning_rat is not a setting"),
        ({"settings": {"plugins": ["os"]}}, "'plugins' is not a learner setting"),
        ({"settings": {**SMALL_PPO, "network": {"actor": {"hidden_dims": [10_000_000]}}}}, "hidden_dims"),
        ({"settings": {**SMALL_PPO, "network": {"actor": {"hidden_dims": [16384] * 9}}}}, "weights; the maximum is"),
        ({"settings": {**SMALL_PPO, "buffer": {"size": 10**9}}}, "bytes when full; the maximum is"),
        ({"settings": {"algorithm": {"name": "ppo", "lr": {"start": 1.0}}}}, "this training run has no fixed length"),
        ({"spec": json.dumps(SPEC.to_json()).replace("float32", "object")}, "a box has dtype 'object'"),
        ({"spec": json.dumps(SPEC.to_json()).replace("float32", "float64")}, "which the protocol does not support"),
        ({"spec": json.dumps(SPEC.to_json()).replace("[3]", "[-3]")}, "every axis length must be at least 0"),
        ({"spec": Spec({"state": Box((10**9,))}, Discrete(2))}, "the observation has 1,000,000,000 elements"),
        ({"spec": Spec({"state": Box((3,))}, Discrete(10**9))}, "the action space has the size 1,000,000,000"),
        ({"spec": Spec({"state": Box((3,))}, Box((2,))), "settings": {"algorithm": {"name": "dqn"}}}, "dqn"),
    ],
)
def test_invalid_hello_is_rejected(server: LiveServer, fields: dict[str, object], expected: str) -> None:
    with WireClient(server.address) as client:
        client.hello("invalid", **fields)
        problem = client.wait_for_refusal()
    assert problem.kind == Problem.REFUSED
    assert expected in problem.message
    assert not (server.root / "invalid").exists()


def test_different_spec_for_existing_policy_is_rejected(server: LiveServer) -> None:
    with WireClient(server.address) as client:
        client.hello("spec")
        client.receive("snapshot")
    with WireClient(server.address) as client:
        client.hello("spec", spec=Spec({"state": Box((4,))}, Discrete(2)))
        assert '"shape": [4]' in client.wait_for_refusal().message


def test_different_settings_for_existing_policy_are_reported(server: LiveServer) -> None:
    with WireClient(server.address) as client:
        client.hello("existing")
        client.receive("snapshot")
    with WireClient(server.address) as client:
        client.hello("existing", settings={"algorithm": {"name": "dqn"}})
        problem = client.receive("problem")
    assert problem.kind == Problem.NOTE
    assert "this client differs in algorithm.name, algorithm.epochs, algorithm.minibatch_size." in problem.message


def test_invalid_trajectory_is_rejected_and_next_is_accepted(server: LiveServer) -> None:
    with WireClient(server.address) as client:
        client.hello("bad-trajectory")
        client.receive("welcome")
        nan = make_trajectory(1, reward=np.full(32, np.nan, np.float32))
        client.send_trajectories(nan, b"\xff\xff\xff", make_trajectory(2))
        problems = [client.receive("problem") for _ in range(2)]
        client.wait_for_ack(2)
    assert [problem.kind for problem in problems] == [Problem.TRAJECTORY_REFUSED] * 2
    assert "trajectory 1 was refused: column 'reward' is nan at step 0" in problems[0].message
    assert problems[0].sequence == 1
    assert "not a trajectory" in problems[1].message
    assert len(list(read_trajectories(server.root / "bad-trajectory"))) == 1


def test_invalid_message_closes_only_its_own_stream(server: LiveServer) -> None:
    with WireClient(server.address) as good, WireClient(server.address) as bad:
        good.hello("good")
        good.receive("snapshot")
        bad.send(b"\xff\xff\xff\xff")
        error = bad.wait_for_error()
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert "not a ClientMessage: 4 bytes" in str(error.details())
        good.send_trajectories(make_trajectory(1))
        good.wait_for_ack(1)


def test_oversized_message_is_rejected(server: LiveServer) -> None:
    with WireClient(server.address) as client:
        client.hello("huge")
        client.receive("welcome")
        with open_channel(server.address, Credentials(), [("grpc.max_send_message_length", -1)]) as channel:
            call = channel.unary_unary(ACT)
            with pytest.raises(grpc.RpcError) as caught:
                call(bytes(40 * 2**20), timeout=20)
        assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


def test_first_message_must_be_hello(server: LiveServer) -> None:
    with WireClient(server.address) as client:
        client.send_trajectories(make_trajectory(1))
        assert "the first message must be Hello" in str(client.wait_for_error().details())
    with WireClient(server.address) as client:
        client.hello("hello-hello")
        client.hello("hello-hello")
        assert "expected trajectories or a report after Hello, got hello" in str(client.wait_for_error().details())
    with WireClient(server.address) as client:
        client.send(ClientMessage())
        assert "the first message must be Hello" in str(client.wait_for_error().details())
