"""Malicious servers: the host program always gets a legal action immediately, with bounded RAM and log output."""

from __future__ import annotations

import json
import logging
import threading
import time
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rl4sys.client import RL4SysAgent
from rl4sys.client.stream import Endpoint, Received
from rl4sys.policy.program import Operation, Program
from rl4sys.policy.snapshot import Snapshot
from rl4sys.spec import Box, Discrete, Spec
from rl4sys.wire.call import Credentials
from rl4sys.wire.columns import encode_column
from rl4sys.wire.delta import digest
from rl4sys.wire.messages import ActReply, ClientMessage, Delta, Hello, Problem
from rl4sys.wire.messages import Snapshot as SnapshotMessage
from tests.client.scripted import ScriptedServer, Session, make_snapshot, serve_model

QUICK = {"timeout_seconds": 0.3}
MAX_DECISION_SECONDS = 5.0
"""Time limit for a decision: ample for a busy machine, too short for a decision that waits for the server."""


def play(agent: RL4SysAgent, steps: int = 20) -> list[Any]:
    """Run steps in episodes of ten, and check that every action is legal and returned without delay."""
    trajectory, actions = None, []
    for step in range(1, steps + 1):
        began = time.perf_counter()
        trajectory, action = agent.request_for_action(trajectory, np.full(3, 0.1, np.float32))
        agent.add_to_trajectory(trajectory, action)
        action.update_reward(1.0)
        assert time.perf_counter() - began < MAX_DECISION_SECONDS
        assert action.act in range(4)
        actions.append(action)
        if step % 10 == 0:
            agent.mark_end_of_trajectory(trajectory, action)
    return actions


def full(session: Session, content: bytes) -> None:
    session.send(snapshot=SnapshotMessage(version=1, digest=digest(content), full=content))


def deep(session: Session) -> None:
    snapshot = make_snapshot(session.spec, 1)
    body = (*snapshot.program.body, *[Operation("tanh")] * 1000)
    session.model(Snapshot(1, snapshot.spec, Program(body, snapshot.program.head), snapshot.weights))


def spec_with_many_axes(session: Session) -> None:
    content = make_snapshot(session.spec, 1).to_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    spec = json.loads(header["__metadata__"]["spec"])
    spec["observation"]["state"]["shape"] = [127] * 60_000
    header["__metadata__"]["spec"] = json.dumps(spec)
    text = json.dumps(header).encode()
    full(session, len(text).to_bytes(8, "little") + text + content[8 + size :])


INVALID_MODELS: dict[str, tuple[Callable[[Session], None], str]] = {
    "wrong digest": (lambda s: s.model(make_snapshot(s.spec, 1), digest=bytes(32)), "its digest does not match"),
    "no content": (lambda s: full(s, b""), "not a safetensors file"),
    "garbage": (lambda s: full(s, b"\xff" * 1000), "not a safetensors file"),
    "other observation": (lambda s: s.model(make_snapshot(Spec({"state": Box((5,))}, Discrete(4)), 1)), "is for"),
    "other action": (lambda s: s.model(make_snapshot(Spec({"state": Box((3,))}, Box((4,))), 1)), "is for"),
    "many axes": (spec_with_many_axes, "a box has 60000 axes"),
    "last version": (lambda s: s.model(make_snapshot(s.spec, 1), version=2**64 - 1), "the highest valid version is"),
    "no base": (
        lambda s: s.send(snapshot=SnapshotMessage(version=2, delta=Delta(base_version=1, compressed=b"x"))),
        "which this client does not have",
    ),
}


@pytest.mark.parametrize("case", INVALID_MODELS)
def test_invalid_model_is_reported_and_fallback_is_used(
    make_server: Callable[..., ScriptedServer], make_agent: Callable[..., RL4SysAgent], case: str
) -> None:
    send, message = INVALID_MODELS[case]

    def script(session: Session) -> None:
        session.welcome()
        send(session)

    agent = make_agent(make_server(script), server=QUICK)
    assert {action.fallback_reason for action in play(agent)} == {"no model has arrived yet"}
    assert message in str(agent.statistics().last_problem)


def test_decompression_bomb_keeps_current_model(
    make_server: Callable[..., ScriptedServer], make_agent: Callable[..., RL4SysAgent]
) -> None:
    bomb = zlib.compress(bytes(64 * 2**20))

    def script(session: Session) -> None:
        serve_model(session)
        session.send(snapshot=SnapshotMessage(version=2, delta=Delta(base_version=1, compressed=bomb)))

    server = make_server(script)
    agent = make_agent(server)
    server.wait_for(lambda: len(server.sessions) > 1)
    assert {action.version for action in play(agent)} == {1}


EXTREME_WELCOMES: dict[str, dict[str, Any]] = {
    "acknowledged": {"acknowledged": 2**64 - 1},
    "message limit of 1": {"max_message_bytes": 1},
    "huge message limit": {"max_message_bytes": 2**64 - 1},
    "one step per trajectory": {"max_trajectory_steps": 1},
    "huge trajectory limit": {"max_trajectory_steps": 2**64 - 1},
    "huge staleness": {"max_staleness": 2**64 - 1},
    "long lineage": {"lineage": "x" * 1_000_000},
}


@pytest.mark.parametrize("case", EXTREME_WELCOMES)
def test_extreme_welcome_message_does_not_block_decisions(
    make_server: Callable[..., ScriptedServer], make_agent: Callable[..., RL4SysAgent], case: str
) -> None:
    def script(session: Session) -> None:
        session.welcome(**EXTREME_WELCOMES[case])
        session.welcome(**EXTREME_WELCOMES[case])
        session.model(make_snapshot(session.spec, 1))

    agent = make_agent(make_server(script), flush_seconds=0.5)
    assert {action.version for action in play(agent)} == {1}
    agent.flush(10.0)
    statistics = agent.statistics()
    assert statistics.steps_acknowledged + statistics.dropped_steps == 20


@pytest.mark.parametrize("fields", [{"wants": 2**64 - 1}, {"wants": 1}, {"wants": 0}, {"taken": 2**64 - 1}])
def test_extreme_model_metadata_does_not_block_decisions(
    make_server: Callable[..., ScriptedServer], make_agent: Callable[..., RL4SysAgent], fields: dict[str, int]
) -> None:
    def script(session: Session) -> None:
        session.welcome()
        session.model(make_snapshot(session.spec, 1), **fields)

    agent = make_agent(make_server(script))
    assert {action.version for action in play(agent)} == {1}
    assert agent.flush(10.0)


def test_invalid_acknowledgements_keep_step_counts_correct(
    make_server: Callable[..., ScriptedServer], make_agent: Callable[..., RL4SysAgent]
) -> None:
    def acknowledge_anything(session: Session) -> None:
        for sequence in (0, 2**64 - 1, 3, 0):
            session.ack(sequence)

    server = make_server(lambda session: (serve_model(session), acknowledge_anything(session)))
    server.on_trajectories = acknowledge_anything
    agent = make_agent(server)
    play(agent)
    assert agent.flush(10.0)
    assert agent.statistics().steps_acknowledged == 20


def test_oversized_trajectories_are_logged_once(
    make_server: Callable[..., ScriptedServer],
    make_agent: Callable[..., RL4SysAgent],
    caplog: pytest.LogCaptureFixture,
) -> None:
    def script(session: Session) -> None:
        session.welcome(max_message_bytes=1)
        session.model(make_snapshot(session.spec, 1))

    agent = make_agent(make_server(script))
    with caplog.at_level(logging.ERROR, "rl4sys.client"):
        play(agent, steps=100)
        assert agent.flush(10.0)
    assert agent.statistics().dropped_steps == 100
    assert len(caplog.records) == 1


def test_program_with_over_1000_operations_is_accepted(
    make_server: Callable[..., ScriptedServer], make_agent: Callable[..., RL4SysAgent]
) -> None:
    agent = make_agent(make_server(lambda session: (session.welcome(), deep(session))))
    assert {action.version for action in play(agent)} == {1}


def test_size_of_stored_error_messages_is_bounded(
    make_server: Callable[..., ScriptedServer], make_agent: Callable[..., RL4SysAgent]
) -> None:
    def script(session: Session) -> None:
        serve_model(session)
        for n in range(300):
            session.problem(Problem.SERVER, f"{n}" + "x" * 100_000)
        session.problem(0, "")
        session.send()
        session.problem(Problem.NOTE, "the last")

    agent = make_agent(make_server(script))
    play(agent)
    deadline = time.monotonic() + 10
    while agent.statistics().last_problem != "the last" and time.monotonic() < deadline:
        time.sleep(0.01)
    assert agent.statistics().last_problem == "the last"
    assert sum(map(len, agent._link.state.logged_errors)) < 500_000


def test_flow_control_limits_unconsumed_messages(make_server: Callable[..., ScriptedServer]) -> None:
    def script(session: Session) -> None:
        for _ in range(20):
            session.problem(Problem.SERVER, "x" * 20_000_000)

    received: list[Any] = []
    some = threading.Semaphore(0)

    def deliver(event: Any) -> None:
        if event is not None:
            received.append(event)
            some.release()

    server = make_server(script)
    stream = Endpoint(server.address, Credentials()).open(deliver)
    try:
        stream.send(ClientMessage(hello=Hello(client_id="slow")))
        for _ in range(4):
            assert some.acquire(timeout=20)
        assert not some.acquire(timeout=0.5), "no further message is read before earlier ones are consumed"
        for event in received[:4]:
            assert isinstance(event, Received)
            event.consume()
        assert some.acquire(timeout=20)
    finally:
        stream.close()
    assert len(received) < 15


INVALID_REPLIES: dict[str, tuple[dict[str, Any], str]] = {
    "no action": ({}, "cannot be read"),
    "beyond": ({"action": np.array([4])}, "the action 4 from the server is not legal"),
    "below": ({"action": np.array([-1])}, "the action -1 from the server is not legal"),
    "forbidden": ({"action": np.array([2])}, "the action 2 from the server is not legal"),
    "float": ({"action": np.array([np.nan], np.float32)}, "the action from the server is float32; expected int64"),
    "two": ({"action": np.array([0, 1])}, "cannot be read"),
    "no probability": ({"action": np.array([1]), "log_prob": float("nan")}, "is not finite"),
}


@pytest.mark.parametrize("case", INVALID_REPLIES)
def test_invalid_remote_decision_is_replaced_by_fallback(
    make_server: Callable[..., ScriptedServer], make_agent: Callable[..., RL4SysAgent], case: str
) -> None:
    fields, message = INVALID_REPLIES[case]
    reply = {name: encode_column("action", value) if name == "action" else value for name, value in fields.items()}

    class MaliciousServer(ScriptedServer):
        def _act(self, request: Any, context: Any) -> ActReply:
            return ActReply(lineage="first", version=1, draws_counter=1, **reply)

    server = MaliciousServer(lambda session: session.welcome())
    try:
        agent = make_agent(server, inference="remote", mask=True)
        mask = np.array([True, True, False, True])
        _, action = agent.request_for_action(None, np.zeros(3, np.float32), mask)
        assert message in str(action.fallback_reason)
        assert action.act in (0, 1, 3)
        agent.close()
    finally:
        server.stop()
