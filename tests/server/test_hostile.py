"""A server among clients that lie: every answer is in words, nobody else notices, and memory stays where it was."""

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
from rl4sys.server.logs import set_up_logging
from rl4sys.server.status import memory_bytes
from rl4sys.server.words import fit
from rl4sys.server.worker import _described
from rl4sys.spec import Box, Spec
from rl4sys.wire.call import Credentials, open_channel
from rl4sys.wire.columns import decode_column, encode_column
from rl4sys.wire.messages import ActReply, ActRequest, ClientMessage, Column, DType, Problem, Trajectory
from rl4sys.wire.service import ACT, CONNECT, STATUS
from rl4sys.wire.unpack import unpack
from tests.live import SMALL_PPO, SPEC, LiveServer, WireClient, eventually, running_server, some_trajectory

PROBES = itertools.count()
MOST_GROWTH_BYTES = 64 * 2**20
HOSTILE = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
ANSWERS = (
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
def neighbour(target: LiveServer) -> Iterator[WireClient]:
    """A well-behaved client that is there all the time."""
    with WireClient(target.address) as client:
        client.hello("neighbour", settings={**SMALL_PPO, "max_staleness": 10**6})
        client.hear("snapshot")
        yield client


@pytest.fixture(autouse=True)
def nobody_else_notices(target: LiveServer, neighbour: WireClient) -> Iterator[None]:
    before = memory_bytes(target.pid)
    yield
    assert target.running
    neighbour.send_trajectories(some_trajectory(neighbour.acknowledged + 1))
    neighbour.hear_ack(neighbour.acknowledged + 1)
    eventually(lambda: memory_bytes(target.pid) - before < MOST_GROWTH_BYTES)
    assert {name.partition("-")[0] for name in policies(target)} <= {"neighbour", "liar", "probe"}


def policies(server: LiveServer) -> set[str]:
    return {path.parent.parent.name for path in server.root.glob("*/configs/live.json")}


def workers(server: LiveServer) -> int:
    """Learners of this server that are alive: the children of the process they are forked from."""
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
    return sum(len(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()) for pid in children)


def assert_in_words(text: str) -> None:
    assert text
    assert "Traceback" not in text
    assert len(text) < 5000


NUMBERS = st.one_of(
    st.integers(-(2**70), 2**70), st.floats(allow_nan=True), st.just(10**400), st.booleans(), st.text(max_size=5)
)
ABSURD = st.recursive(
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
def absurd_settings(draw: st.DrawFn) -> dict[str, Any]:
    """The settings of a real learner with one thing in them that makes no sense."""
    made: dict[str, Any] = json.loads(json.dumps(SMALL_PPO))
    block = draw(st.sampled_from([*OPTIONS, "seed", "max_staleness", "normalize_obs"]))
    if block in OPTIONS and draw(st.booleans()):
        made.setdefault(block, {})[draw(st.sampled_from(OPTIONS[block]))] = draw(ABSURD)
    else:
        made[block] = draw(ABSURD)
    return made


@settings(HOSTILE, max_examples=30)
@given(wanted=absurd_settings())
def test_absurd_settings_are_refused_in_words_or_harmless(target: LiveServer, wanted: dict[str, Any]) -> None:
    """Every example is a policy of its own: what is refused leaves nothing behind."""
    name = f"probe-{next(PROBES)}"
    with WireClient(target.address) as client:
        client.hello(name, settings=json.dumps(wanted))
        kind, answer = client.first("welcome", "problem")
        if kind == "problem":
            assert_in_words(answer.message)
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
def test_absurd_specs_are_refused_in_words(target: LiveServer, spec: Any) -> None:
    with WireClient(target.address) as client:
        client.hello("liar", spec=json.dumps(spec))
        problem = client.refused()
    assert_in_words(problem.message)


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
def test_boxes_that_cannot_be_are_refused_in_words(target: LiveServer, part: str, value: Any) -> None:
    spec = SPEC.to_json()
    spec["observation"]["state"][part] = value
    with WireClient(target.address) as client:
        client.hello("liar", spec=json.dumps(spec))
        assert_in_words(client.refused().message)


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
def test_absurd_trajectories_are_refused_in_words(target: LiveServer, contents: list[bytes]) -> None:
    with WireClient(target.address) as client:
        client.hello("liar", instance=np.random.default_rng().integers(2**63).item())
        client.hear("welcome")
        client.send_trajectories(*contents)
        problem = client.hear("problem")
    assert_in_words(problem.message)
    assert "refused" in problem.message


@HOSTILE
@given(content=st.binary(max_size=200))
@pytest.mark.parametrize("method", [ACT, STATUS, CONNECT])
def test_random_bytes_are_answered_with_a_status(target: LiveServer, method: str, content: bytes) -> None:
    error = answer_to(target, method, content)
    if error is not None:
        assert error.code() in ANSWERS
        assert_in_words(str(error.details()))


def answer_to(server: LiveServer, method: str, content: bytes) -> grpc.RpcError | None:
    """How a call ended; None if it was answered."""
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
def test_observations_that_cannot_be_decided_on_are_answered(target: LiveServer, observation: np.ndarray) -> None:
    request = ActRequest(
        client_id="neighbour", policy_id="neighbour", observation=[encode_column("obs.state", observation)]
    )
    with open_channel(target.address, Credentials()) as channel:
        act = channel.unary_unary(ACT, ActRequest.SerializeToString, ActReply.FromString)
        with pytest.raises(grpc.RpcError) as caught:
            act(request, timeout=30)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert_in_words(str(caught.value.details()))


def directories(target: LiveServer) -> set[str]:
    """Of policies; the index beside them has files that come and go."""
    return {path.name for path in target.root.iterdir() if path.is_dir()}


def test_refused_clients_leave_no_process_and_no_directory(target: LiveServer) -> None:
    before, names = workers(target), directories(target)
    for n in range(20):
        with WireClient(target.address) as client:
            client.hello(f"refused-{n}", settings={"algorithm": {"name": "ppo", "lr": -1 - n}})
            client.refused()
    assert workers(target) <= before
    assert directories(target) == names


def test_a_policy_cannot_be_named_after_a_file_of_the_server(target: LiveServer) -> None:
    for name in ("server.log", ".lock", "..", "a/b", "a\x00b", "ü" * 101):
        with WireClient(target.address) as client:
            client.hello(name, client_id="liar")
            assert_in_words(client.refused().message)
    assert (target.root / "server.log").is_file()


def test_who_connects_and_says_nothing_is_sent_away(target: LiveServer) -> None:
    with WireClient(target.address) as client:
        assert "a client says Hello first" in str(client.end().details())


def test_more_clients_and_policies_than_allowed_are_refused_and_the_others_stay(tmp_path: Path) -> None:
    (tmp_path / "server.yaml").write_text("limits: {max_clients: 3, max_policies: 2}\n")
    with running_server(tmp_path / "live", "--config", str(tmp_path / "server.yaml")) as server:
        clients = [WireClient(server.address) for _ in range(5)]
        for n, client in enumerate(clients[:3]):
            client.hello("one", client_id=f"c{n}", instance=n)
            client.hear("welcome")
        clients[3].hello("one", client_id="c3")
        assert "3 clients already, which is its limit" in clients[3].refused().message
        clients[2].close()
        with WireClient(server.address) as other:
            other.hello("two")
            other.hear("welcome")
        with WireClient(server.address) as third:
            third.hello("three")
            assert "2 policies already, which is its limit" in third.refused().message
        clients[0].send_trajectories(some_trajectory(1))
        clients[0].hear_ack(1)
        for client in clients:
            client.close()


LONGEST_WAIT_SECONDS = 20.0
"""For an acknowledgement, on however busy a machine. While these were bombs that went off, it was up to a minute."""


class Witness(threading.Thread):
    """A client that sends a little all the time, and notes how long it waits and how large the server becomes."""

    def __init__(self, server: LiveServer) -> None:
        super().__init__(daemon=True)
        self._server, self._client = server, WireClient(server.address)
        self._client.hello("probe-witness", settings={**SMALL_PPO, "max_staleness": 10**6}, instance=next(PROBES))
        self._client.hear("snapshot")
        self._stopping = threading.Event()
        self.waited_seconds: list[float] = []
        self.peak_bytes = 0

    def run(self) -> None:
        while not (self.waited_seconds and self._stopping.wait(0.02)):
            began = time.monotonic()
            sequence = self._client.acknowledged + 1
            self._client.send_trajectories(some_trajectory(sequence))
            self._client.hear_ack(sequence)
            self.waited_seconds.append(time.monotonic() - began)
            self.peak_bytes = max(self.peak_bytes, memory_bytes(self._server.pid))

    def stop(self) -> None:
        self._stopping.set()
        self.join(60)
        assert not self.is_alive(), "it waits in vain"
        self._client.close()


@pytest.fixture
def witness(target: LiveServer) -> Iterator[Witness]:
    """Served in time and within bounds while a test runs."""
    before = memory_bytes(target.pid)
    client = Witness(target)
    client.start()
    yield client
    client.stop()
    assert client.waited_seconds
    assert max(client.waited_seconds) < LONGEST_WAIT_SECONDS
    assert client.peak_bytes - before < MOST_GROWTH_BYTES


def delimited(number: int, content: bytes) -> bytes:
    """A field of bytes, or a message, on the wire."""
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
def test_a_message_of_very_many_parts_is_refused_before_it_is_unpacked(
    target: LiveServer, witness: Witness, message: bytes
) -> None:
    with WireClient(target.address) as client:
        client.hello("liar")
        client.hear("welcome")
        client.send(message)
        assert "bytes, in more than 32768 parts" in str(client.end().details())


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (delimited(7, b"") * MANY, "6000000 bytes, in more than 32768 parts"),
        (MANY_AXES, "claims 30000 axes; it can have 9"),
        (b"", "needs the column reward"),
    ],
    ids=["columns", "axes", "empty"],
)
def test_a_trajectory_of_very_many_parts_is_refused_before_it_is_unpacked(
    target: LiveServer, witness: Witness, content: bytes, says: str
) -> None:
    with WireClient(target.address) as client:
        client.hello("liar")
        client.hear("welcome")
        client.send_trajectories(content, *[b""] * 20_000 if not content else [])
        assert says in client.hear("problem").message


@pytest.mark.parametrize(
    "request_bytes",
    [
        delimited(3, b"") * MANY,
        ActRequest(policy_id="x" * 1_000_000).SerializeToString(),
        ActRequest(policy_id="\U0001d400" * 10_000).SerializeToString(),
        ActRequest(
            policy_id="neighbour",
            observation=[Column(name=f"{n}" * 20, dtype="DTYPE_BOOL", shape=[0]) for n in range(2000)],
        ).SerializeToString(),
        ActRequest(
            policy_id="neighbour", observation=[Column(name="obs.state", dtype="DTYPE_BOOL", shape=[2**63, 0])]
        ).SerializeToString(),
    ],
    ids=["parts", "long", "unicode", "names", "empty array"],
)
def test_a_request_to_act_that_is_a_bomb_is_answered_in_few_words(
    target: LiveServer, witness: Witness, request_bytes: bytes
) -> None:
    with open_channel(target.address, Credentials()) as channel, pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary(ACT)(request_bytes, timeout=30)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert 0 < len(caught.value.details()) < 1100


def test_what_a_client_said_last_is_not_kept(target: LiveServer) -> None:
    """Neither as a report, whose unknown fields would be passed on to tools, nor as the message it came in."""
    before = memory_bytes(target.pid)
    clients = [WireClient(target.address) for _ in range(12)]
    for n, client in enumerate(clients):
        client.hello("liar", client_id=f"liar-{n}")
        client.hear("welcome")
        client.send(delimited(3, b"\x10\x07" + delimited(100, bytes(20 * 2**20))))
    policy = target.await_policy("liar", lambda found: sum(c.report.decisions == 7 for c in found.clients) == 12)
    assert len(policy.SerializeToString()) < 2**20
    eventually(lambda: memory_bytes(target.pid) - before < 12 * 20 * 2**20 / 4)
    for client in clients:
        client.close()


def test_a_first_message_is_not_endless(target: LiveServer) -> None:
    with WireClient(target.address) as client:
        client.send(delimited(1, delimited(100, bytes(6 * 2**20))))
        assert "a Hello takes at most 5242880" in str(client.end().details())


def test_many_refused_clients_at_once_hold_nobody_up(target: LiveServer, witness: Witness) -> None:
    clients = [WireClient(target.address) for _ in range(48)]
    for n, client in enumerate(clients):
        client.hello(f"storm-{n}", settings={"algorithm": {"name": "ppo", "lr": -1}})
    for client in clients:
        assert "algorithm.lr" in client.refused().message
        client.close()
    assert not list(target.root.glob("storm-*"))


def state(**changes: Any) -> str:
    """The spec, with the box of its observation changed."""
    spec = SPEC.to_json()
    spec["observation"]["state"].update(changes)
    return json.dumps(spec)


def ppo(**options: Any) -> dict[str, Any]:
    return {**SMALL_PPO, "algorithm": {"name": "ppo", **options}}


MASK_OF_THREE = {"kind": "box", "shape": [3], "dtype": "bool", "low": [None], "high": [None]}


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"spec": state(shape=[2**63 - 1] * 40_000)}, "a box of 40000 axes; it can have 8"),
        ({"spec": state(shape=[2**63, 0])}, "no axis can be shorter than 0, or 2**63 long"),
        ({"spec": state(shape=[0, 2**62])}, "should hold at least 1 number"),
        ({"spec": state(shape="333")}, "cannot be interpreted as an integer"),
        ({"spec": state(low=[float("nan")])}, "low of a box holds NaN or inf"),
        ({"spec": state(high=[float("-inf")])}, "high of a box holds NaN or -inf"),
        ({"spec": state().replace('"kind": "discrete"', '"king": "discrete"')}, "'kind' is missing"),
        (
            {"spec": state().replace('"observation": {', f'"observation": {{"mask": {json.dumps(MASK_OF_THREE)}, ')},
            "the mask is bool of shape (3,); it should be bool of (2,)",
        ),
        ({"spec": state().replace('"state"', '"\\ud800"')}, "characters that print"),
        ({"spec": state().replace('"state"', '"../\\u0000"')}, "characters that print"),
        ({"spec": Spec({"state": Box((3,))}, Box((2,), "int64"))}, "continuous actions are float32"),
        ({"settings": '{"\\ud800": 1}'}, "? is not a setting of a learner"),
        ({"settings": ppo(lr=10**400)}, "algorithm.lr is 1000"),
        ({"settings": ppo(lr=float("inf"))}, "algorithm.lr is inf; numbers lie between -2**63 and 2**63"),
        ({"settings": ppo(initial_log_std=1e300)}, "algorithm.initial_log_std is 1e+300"),
        ({"settings": {**SMALL_PPO, "max_staleness": 2**64}}, "max_staleness is 18446744073709551616"),
        ({"settings": {"algorithm": {"name": "dqn", "learning_starts": 10**30}}}, "algorithm.learning_starts is 1000"),
        (
            {"settings": {**SMALL_PPO, "network": {"actor": {"hidden_dims": [2100] * 3}}}},
            "a message carries 33,554,432",
        ),
        ({"settings": {"k" * 60_000: 1}}, "kkk"),
        ({"policy_id": "server.log.1"}, "where the server keeps its log"),
        ({"policy_id": "registry.db-wal"}, "where the server keeps the index of its runs"),
        ({"policy_id": "\U0001d400" * 100}, "1 to 100 letters"),
        ({"pinned_version": 0}, "there is no policy nobody here, so no version 0 of it"),
    ],
)
def test_what_nothing_can_be_made_of_is_refused_and_nothing_is_made(
    target: LiveServer, fields: dict[str, Any], says: str
) -> None:
    before = directories(target)
    with WireClient(target.address) as client:
        client.hello("nobody", **fields)
        problem = client.refused()
    assert problem.kind == Problem.REFUSED
    assert says in problem.message
    assert_in_words(problem.message)
    assert directories(target) == before


@pytest.mark.parametrize("column", ["reward", "log_prob"])
def test_experience_that_cannot_be_learnt_from_ends_its_own_policy_in_words(target: LiveServer, column: str) -> None:
    name = f"probe-poisoned-{column}"
    changes = {column: np.full(64, -3.4e38, np.float32)}
    with WireClient(target.address) as client:
        client.hello(name)
        client.send_trajectories(some_trajectory(1, steps=64, **changes))
        assert "is not finite at step 64" in client.hear("problem").message
    assert_in_words(target.await_policy(name, lambda policy: policy.state == "failed").problem)
    with WireClient(target.address) as client:
        client.hello(name)
        client.hear("welcome")
        assert "is not finite at step 64" in client.hear("problem").message, "who comes later is told as well"


def test_clients_that_wait_for_a_policy_count_as_clients(tmp_path: Path) -> None:
    (tmp_path / "server.yaml").write_text("limits: {max_clients: 2}\n")
    with running_server(tmp_path / "live", "--config", str(tmp_path / "server.yaml")) as server:
        clients = [WireClient(server.address) for _ in range(6)]
        for n, client in enumerate(clients):
            client.hello("one", client_id=f"c{n}", instance=n)
        kinds = [client.first("welcome", "problem")[0] for client in clients]
        for client in clients:
            client.close()
        assert kinds.count("welcome") == 2
        eventually(lambda: not server.policy("one").clients)
        # All versions would otherwise carry a list of all clients there ever were.
        taken = {life: self_taken(server, life) for life in (11, 12, 13)}
        assert taken == {11: [0, 1], 12: [0, 1], 13: [0, 1]}
        assert self_taken(server, 11)[0] == 0, "only as many lives are remembered as can be connected"
        assert self_taken(server, 13)[0] == 1


def self_taken(server: LiveServer, life: int) -> list[int]:
    """What a life of a client is told of its first trajectory, before and after it sends it."""
    told = []
    for _ in range(2):
        used = server.policy("one").steps_used
        with WireClient(server.address) as client:
            client.hello("one", instance=life)
            new = client.hear("welcome").acknowledged == 0
            told.append(client.hear("snapshot").taken)
            client.send_trajectories(some_trajectory(1, steps=1))
            server.await_policy("one", lambda policy, due=used + new: policy.steps_used == due)
        eventually(lambda: not server.policy("one").clients)
    return told


def test_the_intake_forgets_who_left(tmp_path: Path) -> None:
    async def come_and_go() -> tuple[int, list[int]]:
        written: list[dict[Sender, int]] = []
        with ThreadPoolExecutor(1) as executor:
            intake = Intake(SPEC, 0, Limits(), executor)
            await intake.open(tmp_path / "journal.db", written.append, pytest.fail)
            for life in range(100):
                await intake.admit(Sender("c", life))
                intake.dismiss(Sender("c", life))
            connection = Connection(Sender("c", 0), "peer")
            for _ in range(2):
                await intake.admit(connection.sender)
                await intake.receive(connection, [some_trajectory(1)])
                intake.dismiss(connection.sender)
            await intake.close()
        return len(intake._newest), [n for newest in written for n in newest.values()]

    known, acknowledged = asyncio.run(come_and_go())
    assert known <= 1
    assert acknowledged == [1], "what was in line when its sender left is not taken twice"


def test_no_line_of_the_log_is_written_by_a_client(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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


def test_text_is_cut_and_made_fit_for_the_wire() -> None:
    assert fit("plain") == "plain"
    assert fit("\ud800") == "?"
    assert fit("ä" * 10, most_bytes=5) == "ää …"


def test_what_nobody_foresaw_reaches_clients_without_a_traceback() -> None:
    described = _described(ValueError("seven"))
    assert described["message"] == "the learner failed, and the server's log says where: ValueError: seven"
    assert "traceback" in described


@pytest.mark.parametrize(
    ("column", "says"),
    [
        (Column(name="x", dtype="DTYPE_BOOL", shape=[2], values=b"\x01\x02"), "neither 0 nor 1"),
        (Column(name="x", dtype="DTYPE_FLOAT32", shape=[2**63, 0]), "Maximum allowed dimension"),
        (Column(name="x", dtype="DTYPE_FLOAT32", shape=[2**62, 0, 2**62]), "array is too big"),
        (Column(name="x", dtype="DTYPE_FLOAT32", shape=[2**64 - 1] * 10_000), "claims 10000 axes"),
    ],
)
def test_columns_that_no_array_can_be_made_of_are_refused(column: Column, says: str) -> None:
    with pytest.raises(SpecError, match=says):
        decode_column(column)


def test_large_messages_are_unpacked_as_small_ones_are() -> None:
    content = some_trajectory(1, steps=100_000)
    assert unpack(Trajectory, content) == Trajectory.FromString(content)
    many = ClientMessage()
    many.trajectories.trajectory.extend([some_trajectory(n, steps=1) for n in range(1, 5000)])
    assert unpack(ClientMessage, many.SerializeToString()) == many
    for end in (70_000, len(content) - 1):
        with pytest.raises(SpecError, match=f"not a Trajectory: {end} bytes"):
            unpack(Trajectory, content[:end])
    column = Column(name="x", dtype="DTYPE_FLOAT32", shape=[1] * 70_000)
    with pytest.raises(SpecError, match="in more than 32768 parts"):
        unpack(Column, column.SerializeToString())
