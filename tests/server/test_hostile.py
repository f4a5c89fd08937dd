"""A server among clients that lie: every answer is in words, nobody else notices, and memory stays where it was."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rl4sys.server.status import memory_bytes
from rl4sys.wire.call import Credentials, open_channel
from rl4sys.wire.columns import encode_column
from rl4sys.wire.messages import ActReply, ActRequest, Column, DType, Trajectory
from rl4sys.wire.service import ACT, CONNECT, STATUS
from tests.live import SMALL_PPO, SPEC, LiveServer, WireClient, running_server, some_trajectory

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
    assert memory_bytes(target.pid) - before < MOST_GROWTH_BYTES
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


def test_refused_clients_leave_no_process_and_no_directory(target: LiveServer) -> None:
    before, names = workers(target), set(target.root.iterdir())
    for n in range(20):
        with WireClient(target.address) as client:
            client.hello(f"refused-{n}", settings={"algorithm": {"name": "ppo", "lr": -1 - n}})
            client.refused()
    assert workers(target) <= before
    assert set(target.root.iterdir()) == names


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
