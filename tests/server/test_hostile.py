"""Malformed and malicious input: clear errors, no effect on other clients, bounded RAM."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rl4sys.errors import SpecError
from rl4sys.server.config import Limits
from rl4sys.server.connection import Connection
from rl4sys.server.intake import Intake
from rl4sys.server.journal import Sender
from rl4sys.server.learner_process import describe_failure
from rl4sys.server.logs import set_up_logging
from rl4sys.server.sanitize import encodable
from rl4sys.server.status import memory_bytes
from rl4sys.spec import Box, Spec
from rl4sys.wire.call import Credentials, open_channel
from rl4sys.wire.columns import decode_column, encode_column
from rl4sys.wire.messages import ActReply, ActRequest, ClientMessage, Column, DType, Problem, Trajectory
from rl4sys.wire.service import ACT, CONNECT, STATUS
from rl4sys.wire.unpack import unpack
from tests.live import SMALL_PPO, SPEC, LiveServer, WireClient, eventually, make_trajectory, running_server

PROBES = itertools.count()
MAX_GROWTH_BYTES = 64 * 2**20
HOSTILE = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
ERROR_CODES = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.INTERNAL,
)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with running_server(tmp_path_factory.mktemp("hostile")) as running:
        yield running


@pytest.fixture(scope="module")
def neighbor(target: LiveServer) -> Iterator[WireClient]:
    """Well-behaved client that stays connected."""
    with WireClient(target.address) as client:
        client.hello("neighbor", settings={**SMALL_PPO, "max_staleness": 10**6})
        client.receive("snapshot")
        yield client


@pytest.fixture(autouse=True)
def other_clients_are_unaffected(target: LiveServer, neighbor: WireClient) -> Iterator[None]:
    """Check after each test that the neighbor is served and the RAM of the server has not grown."""
    before = memory_bytes(target.pid)
    yield
    assert target.running
    neighbor.send_trajectories(make_trajectory(neighbor.acknowledged + 1))
    neighbor.wait_for_ack(neighbor.acknowledged + 1)
    eventually(lambda: memory_bytes(target.pid) - before < MAX_GROWTH_BYTES)
    assert {name.partition("-")[0] for name in policies(target)} <= {"neighbor", "hostile", "probe"}


def policies(server: LiveServer) -> set[str]:
    return {path.parent.parent.name for path in server.root.glob("*/configs/live.json")}


def learner_processes(server: LiveServer) -> int:
    """Return the number of live learner processes: children of the server's fork server."""
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
    return sum(len(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()) for pid in children)


def assert_is_clear(text: str) -> None:
    assert text
    assert "Traceback" not in text
    assert len(text) < 5000


NUMBERS = st.one_of(
    st.integers(-(2**70), 2**70), st.floats(allow_nan=True), st.just(10**400), st.booleans(), st.text(max_size=5)
)
NONSENSE = st.recursive(
    st.one_of(st.none(), NUMBERS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)
OPTIONS = {
    "algorithm": ["lr", "gamma", "epochs", "minibatch_size", "clip_ratio", "gradient_steps", "target_kl", "name"],
    "network": ["actor", "critic", "all", "other"],
    "buffer": ["size", "type", "max_staleness", "episodes"],
    "training": ["total_timesteps", "eval_frequency"],
}


@st.composite
def invalid_settings(draw: st.DrawFn) -> dict[str, Any]:
    """Return valid settings with one value or block replaced by random data."""
    made: dict[str, Any] = json.loads(json.dumps(SMALL_PPO))
    block = draw(st.sampled_from([*OPTIONS, "seed", "max_staleness", "normalize_obs"]))
    if block in OPTIONS and draw(st.booleans()):
        made.setdefault(block, {})[draw(st.sampled_from(OPTIONS[block]))] = draw(NONSENSE)
    else:
        made[block] = draw(NONSENSE)
    return made


@settings(HOSTILE, max_examples=30)
@given(wanted=invalid_settings())
def test_random_settings_are_accepted_or_rejected_with_a_clear_error(
    target: LiveServer, wanted: dict[str, Any]
) -> None:
    """Each example uses a new policy. A rejected policy leaves no directory."""
    name = f"probe-{next(PROBES)}"
    with WireClient(target.address) as client:
        client.hello(name, settings=json.dumps(wanted))
        kind, answer = client.receive_any("welcome", "problem")
        if kind == "problem":
            assert_is_clear(answer.message)
            assert not (target.root / name).exists()


SPECS = st.recursive(
    st.one_of(st.none(), NUMBERS),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["observation", "action", "kind", "shape", "dtype", "low", "high", "choices", "state"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@HOSTILE
@given(spec=SPECS)
def test_random_specs_are_rejected(target: LiveServer, spec: Any) -> None:
    with WireClient(target.address) as client:
        client.hello("hostile", spec=json.dumps(spec))
        problem = client.wait_for_refusal()
    assert_is_clear(problem.message)


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("shape", [2**62, 2**62]),
        ("shape", [10**400]),
        ("shape", [0]),
        ("shape", [1] * 10_000),
        ("dtype", "O"),
        ("dtype", "V100000000"),
        ("low", [1e400]),
        ("low", [0.0] * 100_000),
        ("high", "x"),
    ],
)
def test_invalid_box_spaces_are_rejected(target: LiveServer, part: str, value: Any) -> None:
    spec = SPEC.to_json()
    spec["observation"]["state"][part] = value
    with WireClient(target.address) as client:
        client.hello("hostile", spec=json.dumps(spec))
        assert_is_clear(client.wait_for_refusal().message)


COLUMNS = st.builds(
    Column,
    name=st.sampled_from(["obs.state", "action", "reward", "log_prob", "", "obs.", "\x00", "x" * 1000]),
    dtype=st.sampled_from([DType.Name(number) for number in DType.values()]),
    shape=st.lists(st.one_of(st.integers(0, 5), st.integers(0, 2**64 - 1)), max_size=4),
    values=st.binary(max_size=64),
)
TRAJECTORIES = st.builds(
    Trajectory,
    sequence=st.integers(0, 2**64 - 1),
    version=st.integers(0, 2**64 - 1),
    episode=st.integers(0, 2**64 - 1),
    offset=st.integers(0, 2**64 - 1),
    terminated=st.booleans(),
    truncated=st.booleans(),
    columns=st.lists(COLUMNS, max_size=6),
)


@HOSTILE
@given(contents=st.lists(st.one_of(st.binary(max_size=60), TRAJECTORIES.map(Trajectory.SerializeToString)), min_size=1))
def test_random_trajectories_are_rejected(target: LiveServer, contents: list[bytes]) -> None:
    with WireClient(target.address) as client:
        client.hello("hostile", instance=np.random.default_rng().integers(2**63).item())
        client.receive("welcome")
        client.send_trajectories(*contents)
        problem = client.receive("problem")
    assert_is_clear(problem.message)
    assert "refused" in problem.message


@HOSTILE
@given(content=st.binary(max_size=200))
@pytest.mark.parametrize("method", [ACT, STATUS, CONNECT])
def test_random_request_bytes_return_a_clear_error_status(target: LiveServer, method: str, content: bytes) -> None:
    error = call_error(target, method, content)
    if error is not None:
        assert error.code() in ERROR_CODES
        assert_is_clear(str(error.details()))


def call_error(server: LiveServer, method: str, content: bytes) -> grpc.RpcError | None:
    """Return the error of a call, or None if it succeeded."""
    with open_channel(server.address, Credentials()) as channel:
        try:
            if method == CONNECT:
                list(channel.stream_stream(method)(iter([content]), timeout=30))
            else:
                channel.unary_unary(method)(content, timeout=30)
        except grpc.RpcError as error:
            return error
    return None


@pytest.mark.parametrize(
    "observation",
    [
        np.full((1, 3), np.nan, np.float32),
        np.zeros((0, 3), np.float32),
        np.zeros((2, 3), np.float32),
        np.zeros((1, 3), np.uint8),
    ],
)
def test_invalid_observation_is_rejected(target: LiveServer, observation: np.ndarray) -> None:
    request = ActRequest(
        client_id="neighbor", policy_id="neighbor", observation=[encode_column("obs.state", observation)]
    )
    with open_channel(target.address, Credentials()) as channel:
        act = channel.unary_unary(ACT, ActRequest.SerializeToString, ActReply.FromString)
        with pytest.raises(grpc.RpcError) as caught:
            act(request, timeout=30)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert_is_clear(str(caught.value.details()))


def directories(target: LiveServer) -> set[str]:
    """Return the directories of policies. Files of the run store are excluded, because they are temporary."""
    return {path.name for path in target.root.iterdir() if path.is_dir()}


def test_rejected_client_leaves_no_process_or_directory(target: LiveServer) -> None:
    before, names = learner_processes(target), directories(target)
    for n in range(20):
        with WireClient(target.address) as client:
            client.hello(f"refused-{n}", settings={"algorithm": {"name": "ppo", "lr": -1 - n}})
            client.wait_for_refusal()
    assert learner_processes(target) <= before
    assert directories(target) == names


def test_reserved_and_invalid_policy_ids_are_rejected(target: LiveServer) -> None:
    for name in ("server.log", ".lock", "..", "a/b", "a\x00b", "ü" * 101):
        with WireClient(target.address) as client:
            client.hello(name, client_id="hostile")
            assert_is_clear(client.wait_for_refusal().message)
    assert (target.root / "server.log").is_file()


def test_silent_connection_is_closed(target: LiveServer) -> None:
    with WireClient(target.address) as client:
        assert "the first message must be Hello" in str(client.wait_for_error().details())


def test_limits_on_clients_and_policies_are_enforced(tmp_path: Path) -> None:
    (tmp_path / "server.yaml").write_text("limits: {max_clients: 3, max_policies: 2}\n")
    with running_server(tmp_path / "live", "--config", str(tmp_path / "server.yaml")) as server:
        clients = [WireClient(server.address) for _ in range(5)]
        for n, client in enumerate(clients[:3]):
            client.hello("one", client_id=f"c{n}", instance=n)
            client.receive("welcome")
        clients[3].hello("one", client_id="c3")
        assert "already has 3 clients, the maximum" in clients[3].wait_for_refusal().message
        clients[2].close()
        with WireClient(server.address) as other:
            other.hello("two")
            other.receive("welcome")
        with WireClient(server.address) as third:
            third.hello("three")
            assert "already has 2 policies, the maximum" in third.wait_for_refusal().message
        clients[0].send_trajectories(make_trajectory(1))
        clients[0].wait_for_ack(1)
        for client in clients:
            client.close()


MAX_WAIT_SECONDS = 20.0
"""Maximum waiting time for an acknowledgement. Without the checks of message sizes it was up to a minute."""


class BackgroundClient(threading.Thread):
    """Client that sends continuously and records waiting times and the peak RAM of the server."""

    def __init__(self, server: LiveServer) -> None:
        super().__init__(daemon=True)
        self._server, self._client = server, WireClient(server.address)
        self._client.hello("probe-background", settings={**SMALL_PPO, "max_staleness": 10**6}, instance=next(PROBES))
        self._client.receive("snapshot")
        self._stopping = threading.Event()
        self.waited_seconds: list[float] = []
        self.peak_bytes = 0

    def run(self) -> None:
        while not (self.waited_seconds and self._stopping.wait(0.02)):
            began = time.monotonic()
            sequence = self._client.acknowledged + 1
            self._client.send_trajectories(make_trajectory(sequence))
            self._client.wait_for_ack(sequence)
            self.waited_seconds.append(time.monotonic() - began)
            self.peak_bytes = max(self.peak_bytes, memory_bytes(self._server.pid))

    def stop(self) -> None:
        self._stopping.set()
        self.join(60)
        assert not self.is_alive(), "the background client is blocked"
        self._client.close()


@pytest.fixture
def background_client(target: LiveServer) -> Iterator[BackgroundClient]:
    """Check that a client is served in time and the server's RAM is bounded while a test runs."""
    before = memory_bytes(target.pid)
    client = BackgroundClient(target)
    client.start()
    yield client
    client.stop()
    assert client.waited_seconds
    assert max(client.waited_seconds) < MAX_WAIT_SECONDS
    assert client.peak_bytes - before < MAX_GROWTH_BYTES


def delimited(number: int, content: bytes) -> bytes:
    """Encode a length-delimited protobuf field."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(number: int) -> bytes:
    low = b""
    while number > 127:
        low, number = low + bytes([number & 127 | 128]), number >> 7
    return low + bytes([number])


MANY = 3_000_000
MANY_AXES = delimited(7, b"\x10\x01" + delimited(3, b"\x7f" * 30_000))


@pytest.mark.parametrize(
    "message",
    [delimited(2, delimited(1, b"") * MANY), (delimited(1, b"") + delimited(2, b"")) * MANY],
    ids=["trajectories", "alternating"],
)
def test_message_with_too_many_fields_is_rejected_before_parsing(
    target: LiveServer, background_client: BackgroundClient, message: bytes
) -> None:
    with WireClient(target.address) as client:
        client.hello("hostile")
        client.receive("welcome")
        client.send(message)
        assert "bytes with more than 32768 fields and list elements" in str(client.wait_for_error().details())


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (delimited(7, b"") * MANY, "6000000 bytes with more than 32768 fields and list elements"),
        (MANY_AXES, "has 30000 axes; the maximum is 9"),
        (b"", "needs the column 'reward'"),
    ],
    ids=["columns", "axes", "empty"],
)
def test_malformed_trajectory_is_rejected_without_delaying_other_clients(
    target: LiveServer, background_client: BackgroundClient, content: bytes, expected: str
) -> None:
    with WireClient(target.address) as client:
        client.hello("hostile")
        client.receive("welcome")
        client.send_trajectories(content, *[b""] * 20_000 if not content else [])
        assert expected in client.receive("problem").message


@pytest.mark.parametrize(
    "request_bytes",
    [
        delimited(3, b"") * MANY,
        ActRequest(policy_id="x" * 1_000_000).SerializeToString(),
        ActRequest(policy_id="\U0001d400" * 10_000).SerializeToString(),
        ActRequest(
            policy_id="neighbor",
            observation=[Column(name=f"{n}" * 20, dtype="DTYPE_BOOL", shape=[0]) for n in range(2000)],
        ).SerializeToString(),
        ActRequest(
            policy_id="neighbor", observation=[Column(name="obs.state", dtype="DTYPE_BOOL", shape=[2**63, 0])]
        ).SerializeToString(),
    ],
    ids=["parts", "long", "unicode", "names", "empty array"],
)
def test_invalid_act_request_returns_a_short_error(
    target: LiveServer, background_client: BackgroundClient, request_bytes: bytes
) -> None:
    with open_channel(target.address, Credentials()) as channel, pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary(ACT)(request_bytes, timeout=30)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert 0 < len(caught.value.details()) < 1100


def test_last_client_message_is_freed_from_ram(target: LiveServer) -> None:
    """Neither the unknown fields of a report nor its message stay in the RAM of the server."""
    before = memory_bytes(target.pid)
    clients = [WireClient(target.address) for _ in range(12)]
    for n, client in enumerate(clients):
        client.hello("hostile", client_id=f"hostile-{n}")
        client.receive("welcome")
        client.send(delimited(3, b"\x10\x07" + delimited(100, bytes(20 * 2**20))))
    policy = target.wait_for_policy("hostile", lambda found: sum(c.report.decisions == 7 for c in found.clients) == 12)
    assert len(policy.SerializeToString()) < 2**20
    eventually(lambda: memory_bytes(target.pid) - before < 12 * 20 * 2**20 / 4)
    for client in clients:
        client.close()


def test_oversized_hello_is_rejected(target: LiveServer) -> None:
    with WireClient(target.address) as client:
        client.send(delimited(1, delimited(100, bytes(6 * 2**20))))
        assert "a Hello message has at most 5242880" in str(client.wait_for_error().details())


def test_rejected_clients_do_not_delay_other_clients(target: LiveServer, background_client: BackgroundClient) -> None:
    clients = [WireClient(target.address) for _ in range(48)]
    for n, client in enumerate(clients):
        client.hello(f"storm-{n}", settings={"algorithm": {"name": "ppo", "lr": -1}})
    for client in clients:
        assert "algorithm.lr" in client.wait_for_refusal().message
        client.close()
    assert not list(target.root.glob("storm-*"))


def state(**changes: Any) -> str:
    """Return the spec as JSON text, with changes to its observation space."""
    spec = SPEC.to_json()
    spec["observation"]["state"].update(changes)
    return json.dumps(spec)


def ppo(**options: Any) -> dict[str, Any]:
    return {**SMALL_PPO, "algorithm": {"name": "ppo", **options}}


MASK_OF_THREE = {"kind": "box", "shape": [3], "dtype": "bool", "low": [None], "high": [None]}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"spec": state(shape=[2**63 - 1] * 40_000)}, "a box has 40000 axes; the maximum is 8"),
        ({"spec": state(shape=[2**63, 0])}, "every axis length must be at least 0 and below 2**63"),
        ({"spec": state(shape=[0, 2**62])}, "expected at least 1 element"),
        ({"spec": state(shape="333")}, "cannot be interpreted as an integer"),
        ({"spec": state(low=[float("nan")])}, "low of a box holds NaN or inf"),
        ({"spec": state(high=[float("-inf")])}, "high of a box holds NaN or -inf"),
        ({"spec": state().replace('"kind": "discrete"', '"king": "discrete"')}, "'kind' is missing"),
        (
            {"spec": state().replace('"observation": {', f'"observation": {{"mask": {json.dumps(MASK_OF_THREE)}, ')},
            "the mask is bool of shape (3,); expected bool of shape (2,)",
        ),
        ({"spec": state().replace('"state"', '"\\ud800"')}, "printable characters"),
        ({"spec": state().replace('"state"', '"../\\u0000"')}, "printable characters"),
        ({"spec": Spec({"state": Box((3,))}, Box((2,), "int64"))}, "continuous actions must be float32"),
        ({"settings": '{"\\ud800": 1}'}, "'?' is not a learner setting"),
        ({"settings": ppo(lr=10**400)}, "algorithm.lr is 1000"),
        ({"settings": ppo(lr=float("inf"))}, "algorithm.lr is inf; expected a number between -2**63 and 2**63"),
        ({"settings": ppo(initial_log_std=1e300)}, "algorithm.initial_log_std is 1e+300"),
        ({"settings": {**SMALL_PPO, "max_staleness": 2**64}}, "max_staleness is 18446744073709551616"),
        ({"settings": {"algorithm": {"name": "dqn", "learning_starts": 10**30}}}, "algorithm.learning_starts is 1000"),
        (
            {"settings": {**SMALL_PPO, "network": {"actor": {"hidden_dims": [2100] * 3}}}},
            "a message has at most 33,554,432",
        ),
        ({"settings": {"k" * 60_000: 1}}, "kkk"),
        ({"policy_id": "server.log.1"}, "reserved: the server uses it for its log"),
        ({"policy_id": "registry.db-wal"}, "reserved: the server uses it for the run store"),
        ({"policy_id": "rl4sys-ppo-info"}, "reserved: the server uses it for TensorBoard"),
        ({"policy_id": "\U0001d400" * 100}, "1 to 100 letters"),
        ({"pinned_version": 0}, "version 0 is pinned, but policy 'nobody' does not exist"),
    ],
)
def test_invalid_hello_is_rejected_and_creates_no_directory(
    target: LiveServer, fields: dict[str, Any], expected: str
) -> None:
    before = directories(target)
    with WireClient(target.address) as client:
        client.hello("nobody", **fields)
        problem = client.wait_for_refusal()
    assert problem.kind == Problem.REFUSED
    assert expected in problem.message
    assert_is_clear(problem.message)
    assert directories(target) == before


@pytest.mark.parametrize("column", ["reward", "log_prob"])
def test_extreme_values_stop_only_the_policy_that_received_them(target: LiveServer, column: str) -> None:
    name = f"probe-poisoned-{column}"
    changes = {column: np.full(64, -3.4e38, np.float32)}
    with WireClient(target.address) as client:
        client.hello(name)
        client.send_trajectories(make_trajectory(1, steps=64, **changes))
        assert "is not finite at step 64" in client.receive("problem").message
    assert_is_clear(target.wait_for_policy(name, lambda policy: policy.state == "failed").problem)
    with WireClient(target.address) as client:
        client.hello(name)
        client.receive("welcome")
        assert "is not finite at step 64" in client.receive("problem").message, "later clients get the error too"


def test_client_limit_includes_connecting_clients(tmp_path: Path) -> None:
    (tmp_path / "server.yaml").write_text("limits: {max_clients: 2}\n")
    with running_server(tmp_path / "live", "--config", str(tmp_path / "server.yaml")) as server:
        clients = [WireClient(server.address) for _ in range(6)]
        for n, client in enumerate(clients):
            client.hello("one", client_id=f"c{n}", instance=n)
        kinds = [client.receive_any("welcome", "problem")[0] for client in clients]
        for client in clients:
            client.close()
        assert kinds.count("welcome") == 2
        eventually(lambda: not server.policy("one").clients)
        # Without a limit, each progress message would list all client instances that ever connected.
        taken = {instance: taken_before_and_after(server, instance) for instance in (11, 12, 13)}
        assert taken == {11: [0, 1], 12: [0, 1], 13: [0, 1]}
        assert taken_before_and_after(server, 11)[0] == 0, "only max_clients instances are remembered"
        assert taken_before_and_after(server, 13)[0] == 1


def taken_before_and_after(server: LiveServer, instance: int) -> list[int]:
    """Return `taken` in the first snapshot of a client instance, before and after it sends one trajectory."""
    taken = []
    for _ in range(2):
        used = server.policy("one").steps_used
        with WireClient(server.address) as client:
            client.hello("one", instance=instance)
            new = client.receive("welcome").acknowledged == 0
            taken.append(client.receive("snapshot").taken)
            client.send_trajectories(make_trajectory(1, steps=1))
            server.wait_for_policy("one", lambda policy, due=used + new: policy.steps_used == due)
        eventually(lambda: not server.policy("one").clients)
    return taken


def test_intake_removes_disconnected_senders(tmp_path: Path) -> None:
    async def connect_and_disconnect() -> tuple[int, list[int]]:
        written: list[dict[Sender, int]] = []
        with ThreadPoolExecutor(1) as executor:
            intake = Intake(SPEC, 0, Limits(), executor)
            await intake.open(tmp_path / "journal.db", written.append, pytest.fail)
            for instance in range(100):
                await intake.add_sender(Sender("c", instance))
                intake.remove_sender(Sender("c", instance))
            connection = Connection(Sender("c", 0), "peer")
            for _ in range(2):
                await intake.add_sender(connection.sender)
                await intake.receive(connection, [make_trajectory(1)])
                intake.remove_sender(connection.sender)
            await intake.close()
        return len(intake._newest), [n for newest in written for n in newest.values()]

    known, acknowledged = asyncio.run(connect_and_disconnect())
    assert known <= 1
    assert acknowledged == [1], "a queued trajectory of a disconnected sender is written once"


def test_client_text_cannot_inject_log_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("rl4sys")
    handlers, level = list(logger.handlers), logger.level
    try:
        set_up_logging(tmp_path, debug=False)
        logger.warning("unknown token", extra={"client": "x\n12:00:00 INFO policy open\x1b[2J\ud800"})
    finally:
        for handler in logger.handlers[len(handlers) :]:
            logger.removeHandler(handler)
            handler.close()
        logger.setLevel(level)
    assert capsys.readouterr().err.count("\n") == 1
    assert (tmp_path / "server.log").read_text().count("\n") == 1


def test_error_text_is_truncated_and_valid_utf8() -> None:
    assert encodable("plain") == "plain"
    assert encodable("\ud800") == "?"
    assert encodable("ä" * 10, max_bytes=5) == "ää …"


def test_unexpected_error_reaches_clients_without_traceback() -> None:
    described = describe_failure(ValueError("seven"))
    assert described["message"] == (
        "unexpected error in the learner (traceback in the server's log): ValueError: seven"
    )
    assert "traceback" in described


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (Column(name="x", dtype="DTYPE_BOOL", shape=[2], values=b"\x01\x02"), "a byte other than 0 and 1"),
        (Column(name="x", dtype="DTYPE_FLOAT32", shape=[2**63, 0]), "Maximum allowed dimension"),
        (Column(name="x", dtype="DTYPE_FLOAT32", shape=[2**62, 0, 2**62]), "array is too big"),
        (Column(name="x", dtype="DTYPE_FLOAT32", shape=[2**64 - 1] * 10_000), "has 10000 axes"),
    ],
)
def test_invalid_columns_are_rejected(column: Column, expected: str) -> None:
    with pytest.raises(SpecError, match=expected):
        decode_column(column)


def test_unpack_equals_protobuf_parsing_for_large_messages() -> None:
    content = make_trajectory(1, steps=100_000)
    assert unpack(Trajectory, content) == Trajectory.FromString(content)
    many = ClientMessage()
    many.trajectories.trajectory.extend([make_trajectory(n, steps=1) for n in range(1, 5000)])
    assert unpack(ClientMessage, many.SerializeToString()) == many
    for end in (70_000, len(content) - 1):
        with pytest.raises(SpecError, match=f"not a Trajectory: {end} bytes"):
            unpack(Trajectory, content[:end])
    column = Column(name="x", dtype="DTYPE_FLOAT32", shape=[1] * 70_000)
    with pytest.raises(SpecError, match="with more than 32768 fields and list elements"):
        unpack(Column, column.SerializeToString())
