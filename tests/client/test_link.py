"""Communication with the server: retransmission, model updates, refusals and retries."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from rl4sys.client.identity import ClientIdentity
from rl4sys.client.link import Link
from rl4sys.client.outbox import Outbox
from rl4sys.client.pace import Pace
from rl4sys.client.recording import Recording
from rl4sys.client.spool import Spool
from rl4sys.client.stream import Deliver, Ended, Stream
from rl4sys.errors import ConfigError
from rl4sys.wire.delta import digest
from rl4sys.wire.messages import ActReply, ActRequest, ClientMessage, Hello, Problem
from tests.client.scripted import SPEC, TIMEOUT_SECONDS, ScriptedServer, Session, make_snapshot, serve_model
from tests.client.test_agent import MakeAgent, MakeServer, System, received


def serving(version: int, **fields: Any) -> Callable[[Session], None]:
    def script(session: Session) -> None:
        session.welcome()
        session.model(make_snapshot(SPEC, version), **fields)

    return script


def keep_silent(session: Session) -> None:
    """Do not acknowledge the received trajectories."""


def test_hello_identifies_client(server: ScriptedServer, make_agent: MakeAgent) -> None:
    make_agent(server, policy_id="shared", seed=4, network={"all": {}}, max_staleness=3, pin_version=1)
    settings = {"seed": 4, "algorithm": {"name": "ppo"}, "network": {"all": {}}, "max_staleness": 3}
    hello = server.session.hello
    assert (hello.protocol, hello.client_id, hello.policy_id, hello.remote) == (1, "tester", "shared", False)
    assert server.session.spec == SPEC
    assert json.loads(hello.settings) == settings
    assert hello.instance != 0
    assert (hello.pinned_version, hello.HasField("held")) == (1, False)
    assert "authorization" not in server.session.metadata


def test_unacknowledged_trajectories_are_resent_after_reconnect(make_server: MakeServer, make_agent: MakeAgent) -> None:
    server = make_server()
    server.on_trajectories = lambda session: session.ack(2)
    agent = make_agent(server)
    system = System(agent)
    for _ in range(4):
        system.episode(5)
    server.wait_for(lambda: server.session.sequences == [1, 2, 3, 4])
    server.on_trajectories = keep_silent
    server.script = lambda session: session.welcome(acknowledged=3)
    server.session.end()
    server.wait_for(lambda: len(server.sessions) == 2 and server.session.sequences == [4])
    assert server.session.hello.instance == server.sessions[0].hello.instance
    assert server.session.hello.held.version == 1
    assert server.session.hello.held.digest == digest(make_snapshot(SPEC, 1).to_bytes())
    assert agent.statistics().steps_acknowledged == 15
    assert agent.statistics().steps_waiting == 5
    server.session.ack(4)
    assert agent.flush(TIMEOUT_SECONDS)
    assert agent.statistics().steps_acknowledged == 20


def test_no_data_is_lost_when_server_restarts(make_server: MakeServer, make_agent: MakeAgent) -> None:
    server = make_server()
    agent = make_agent(server)
    system = System(agent)
    system.episode(5)
    assert agent.flush(TIMEOUT_SECONDS)
    server.stop()
    for _ in range(3):
        system.episode(5)
    assert {a.version for a in system.actions} == {1}, "the agent continues to use the last model"
    again = make_server(port=server.port)
    assert agent.flush(TIMEOUT_SECONDS)
    assert again.all_steps() == 15
    assert agent.statistics().dropped_steps == 0


def test_client_connects_to_server_started_later(make_server: MakeServer, make_agent: MakeAgent) -> None:
    gone = make_server()
    gone.stop()
    agent = make_agent(gone.address, server={"timeout_seconds": 0.05})
    assert agent.version is None
    make_server(port=gone.port)
    assert agent.wait_for_model(TIMEOUT_SECONDS)
    assert agent.statistics().connected


def test_unreachable_server_does_not_delay_start(make_agent: MakeAgent) -> None:
    started = time.monotonic()
    agent = make_agent("127.0.0.1:9", server={"timeout_seconds": 60.0})
    assert time.monotonic() - started < 10.0
    assert agent.version is None


def test_full_models_and_deltas_are_applied(server: ScriptedServer, make_agent: MakeAgent) -> None:
    agent = make_agent(server)
    first, second, third = (make_snapshot(SPEC, version) for version in (1, 2, 3))
    server.session.model(second, base=first)
    server.session.model(third, base=second)
    assert agent.wait_for_model(TIMEOUT_SECONDS, 3)
    assert len(server.sessions) == 1
    system = System(agent)
    system.episode(20)
    from rl4sys.policy.draws import Draws
    from rl4sys.policy.snapshot_policy import SnapshotPolicy
    from tests.client.test_agent import observation

    draws = Draws(agent._draws.key)
    expected = [SnapshotPolicy(third).decide(observation(number), None, draws)[0] for number in range(20)]
    assert [a.act for a in system.actions] == expected


@pytest.mark.parametrize("damage", ["another base", "another digest", "no difference", "no snapshot"])
def test_full_model_is_requested_after_invalid_model(
    damage: str, server: ScriptedServer, make_agent: MakeAgent
) -> None:
    agent = make_agent(server)
    server.script = serving(3)
    first, second = make_snapshot(SPEC, 1), make_snapshot(SPEC, 2)
    if damage == "another base":
        server.session.model(make_snapshot(SPEC, 3), base=second)
    elif damage == "another digest":
        server.session.model(second, base=first, digest=b"x" * 32)
    elif damage == "no difference":
        from rl4sys.wire.messages import Delta, Snapshot

        server.session.send(snapshot=Snapshot(version=2, delta=Delta(base_version=1, compressed=b"junk")))
    else:
        from rl4sys.wire.messages import Snapshot

        server.session.send(snapshot=Snapshot(version=2, full=b"junk", digest=digest(b"junk")))
    assert agent.wait_for_model(TIMEOUT_SECONDS, 3)
    assert len(server.sessions) == 2
    assert not server.session.hello.HasField("held")
    problem = agent.statistics().last_problem
    assert problem is not None
    assert "the received model is invalid" in problem


def test_model_with_different_spec_is_rejected(make_server: MakeServer, make_agent: MakeAgent) -> None:
    from rl4sys.spec import Box, Discrete, Spec

    def script(session: Session) -> None:
        session.welcome()
        session.model(make_snapshot(Spec({"state": Box((9,))}, Discrete(4)), 1))

    server = make_server(script)
    agent = make_agent(server, server={"timeout_seconds": 0.2})
    server.wait_for(lambda: len(server.sessions) > 1)
    assert agent.version is None
    assert "the server's model is for" in str(agent.statistics().last_problem)


def test_older_model_is_ignored_unless_lineage_differs(server: ScriptedServer, make_agent: MakeAgent) -> None:
    agent = make_agent(server)
    server.session.model(make_snapshot(SPEC, 7))
    assert agent.wait_for_model(TIMEOUT_SECONDS, 7)
    server.session.model(make_snapshot(SPEC, 5))
    server.session.model(make_snapshot(SPEC, 8))
    assert agent.wait_for_model(TIMEOUT_SECONDS, 8)
    system = System(agent)
    system.run(1)
    assert agent.statistics().versions_adopted == 1

    def another(session: Session) -> None:
        session.welcome(lineage="second")
        session.model(make_snapshot(SPEC, 2))

    server.script = another
    server.session.end()
    server.wait_for(lambda: len(server.sessions) == 2)
    until(lambda: agent.version == 2)
    system.run(1)
    assert [a.version for a in system.actions] == [8, 2]


def test_new_lineage_resets_unlearned_steps(make_server: MakeServer, make_agent: MakeAgent) -> None:
    def first(session: Session) -> None:
        session.welcome(max_staleness=0)
        session.model(make_snapshot(SPEC, 1), wants=5)

    def second(session: Session) -> None:
        session.welcome(lineage="second", max_staleness=0)
        session.model(make_snapshot(SPEC, 1), wants=5)

    server = make_server(first)
    system = System(make_agent(server, patience_seconds=TIMEOUT_SECONDS))
    system.run(5)
    server.script = second
    server.session.end()
    started = time.monotonic()
    system.run(5)
    assert time.monotonic() - started < TIMEOUT_SECONDS


def until(condition: Callable[[], bool]) -> None:
    """Poll a condition on the statistics of an agent until it is true."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    waiting = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, "timeout"
        waiting.wait(0.005)


def test_pinned_version_is_used(server: ScriptedServer, make_agent: MakeAgent) -> None:
    server.script = serving(4, wants=0)
    agent = make_agent(server, pin_version=4)
    assert agent.version == 4
    system = System(agent)
    system.episode(50)
    assert len(received(server, agent)) == 1, "a pinned version has no next update"


def test_constructor_raises_if_server_rejects_client(make_server: MakeServer, make_agent: MakeAgent) -> None:
    text = "algorithm.learning_rat is not a setting; did you mean lr?"
    server = make_server(lambda session: session.problem(Problem.REFUSED, text))
    with pytest.raises(ConfigError) as problem:
        make_agent(server)
    assert str(problem.value) == f"the server refused this client: {text}"
    assert len(server.sessions) == 1


def test_rejection_after_start_is_logged_once_and_retried_slowly(
    server: ScriptedServer, make_agent: MakeAgent, caplog: pytest.LogCaptureFixture
) -> None:
    agent = make_agent(server)
    server.script = lambda session: session.problem(Problem.REFUSED, "not any more")
    server.session.end()
    server.wait_for(lambda: len(server.sessions) == 2)
    until(lambda: "not any more" in str(agent.statistics().last_problem))
    until(lambda: not agent.statistics().connected)
    assert threading.Event().wait(0.4) is False, "several attempts would fit into this time"
    assert len(server.sessions) == 2
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [record.message for record in errors] == ["the server refused this client: not any more"]
    assert System(agent).step().version == 1


def test_token_is_sent_and_wrong_token_is_reported(
    make_server: MakeServer, make_agent: MakeAgent, tmp_path: Path
) -> None:
    server = make_server(token="open sesame")
    (tmp_path / "token").write_text("open sesame\n# and a remark\n")
    assert make_agent(server, server={"token": "open sesame"}).version == 1
    assert make_agent(server, server={"token_file": str(tmp_path / "token")}).version == 1
    with pytest.raises(ConfigError) as problem:
        make_agent(server, server={"token": "open barley"})
    assert "unknown token (UNAUTHENTICATED); check server.token" in str(problem.value)
    with pytest.raises(ConfigError, match=r"server\.token_file is '.*nowhere', which cannot be read"):
        make_agent(server, server={"token_file": str(tmp_path / "nowhere")})


def test_rejected_trajectories_are_counted_and_logged(
    server: ScriptedServer, make_agent: MakeAgent, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(session: Session) -> None:
        sequence = session.sequences[-1]
        session.problem(Problem.TRAJECTORY_REFUSED, "too stale", sequence)
        session.problem(Problem.SERVER, "the disk is full")
        session.problem(Problem.NOTE, "nice weather")
        session.ack(sequence)

    server.on_trajectories = refuse
    agent = make_agent(server)
    system = System(agent)
    with caplog.at_level(logging.INFO, "rl4sys.client"):
        for _ in range(2):
            system.episode(3)
            assert agent.flush(TIMEOUT_SECONDS)
    assert agent.statistics().trajectories_refused == 2
    assert agent.statistics().last_problem == "nice weather"
    assert [r.message for r in caplog.records] == ["too stale", "the disk is full", "nice weather"]


def test_send_frequency_batches_trajectories(server: ScriptedServer, make_agent: MakeAgent) -> None:
    agent = make_agent(server, send_frequency=4)
    system = System(agent)
    for _ in range(8):
        system.episode(2)
    server.wait_for(lambda: server.session.steps == 16)
    assert min(server.session.batches) >= 4
    system.episode(2)
    server.wait_for(lambda: server.session.steps == 18)
    assert server.session.batches[-1] == 1, "a trajectory waits at most one second"


def test_messages_respect_limits_of_server(
    make_server: MakeServer, make_agent: MakeAgent, caplog: pytest.LogCaptureFixture
) -> None:
    def script(session: Session) -> None:
        session.welcome(max_message_bytes=1024 + 2000, max_trajectory_steps=30)
        session.model(make_snapshot(session.spec, 1))

    server = make_server(script)
    system = System(make_agent(server))
    system.episode(120)
    assert [len(t) for t in received(server, system.agent)] == [30, 30, 30, 30]
    assert max(server.session.batches) <= 2
    server.script = lambda session: session.welcome(max_message_bytes=1100)
    server.session.end()
    server.wait_for(lambda: len(server.sessions) == 2)
    until(lambda: system.agent.statistics().connected)
    system.episode(30)
    until(lambda: system.agent.statistics().dropped_steps == 30)
    assert "exceeds the limit of the server" in caplog.text


def test_reports_contain_client_statistics(server: ScriptedServer, make_agent: MakeAgent) -> None:
    agent = make_agent(server)
    system = System(agent)
    system.episode(5)
    agent.request_for_action(None, [float("nan"), 0, 0])
    system.actions[0].update_reward(1.0)
    server.wait_for(lambda: bool(server.session.reports) and server.session.reports[-1].decisions == 6)
    report = server.session.reports[-1]
    assert (report.adopted_version, report.fallback_decisions, report.late_rewards) == (1, 1, 1)


def test_outbox_overflow_is_spooled_while_server_is_unreachable(
    make_server: MakeServer, make_agent: MakeAgent, tmp_path: Path
) -> None:
    server = make_server()
    agent = make_agent(server, outbox={"memory_bytes": 2000})
    server.stop()
    system = System(agent)
    for _ in range(50):
        system.episode(10)
        until(lambda: not agent._outbox._incoming)
    assert agent._outbox.spool_bytes > 5000
    again = make_server(port=server.port)
    assert agent.flush(TIMEOUT_SECONDS)
    assert again.session.sequences == list(range(1, 51))
    agent.close()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def leave_episode_on_disk(make_server: MakeServer, make_agent: MakeAgent) -> ScriptedServer:
    """Stop a server and then close its agent, so that seven steps stay in the spool. Returns the server."""
    server = make_server()
    agent = make_agent(server)
    server.stop()
    until(lambda: not agent.statistics().connected)
    System(agent).episode(7)
    agent.close()
    return server


def test_undelivered_trajectories_are_sent_by_next_agent(
    make_server: MakeServer, make_agent: MakeAgent, tmp_path: Path
) -> None:
    server = leave_episode_on_disk(make_server, make_agent)
    again = make_server(port=server.port)
    successor = make_agent(again)
    until(lambda: not [path for path in tmp_path.rglob("*") if path.is_file()])
    own, left = again.sessions
    assert left.hello.instance == server.session.hello.instance
    assert (left.sequences, left.steps, left.hello.remote) == ([1], 7, True)
    assert own.hello.instance != left.hello.instance
    assert successor.version == 1


def test_abandoned_spool_does_not_delay_model(make_server: MakeServer, make_agent: MakeAgent, tmp_path: Path) -> None:
    server = leave_episode_on_disk(make_server, make_agent)
    again = make_server(port=server.port)
    again.on_trajectories = keep_silent
    successor = make_agent(again)
    assert successor.version == 1
    again.wait_for(lambda: len(again.sessions) == 2 and bool(again.sessions[1].sequences))
    assert [path for path in tmp_path.rglob("*.segment")]


def test_spool_of_killed_process_is_sent_or_kept_if_rejected(
    make_server: MakeServer, make_agent: MakeAgent, tmp_path: Path
) -> None:
    server = make_server()
    script = f"""
import os, signal
from rl4sys.client import RL4SysAgent
agent = RL4SysAgent({{"client_id": "tester", "observation": 3, "action": 4, "server": {{"address": {server.address!r}}},
    "outbox": {{"spool": {str(tmp_path / "spool")!r}, "memory_bytes": 0}}}})
trajectory = None
for step in range(60):
    trajectory, action = agent.request_for_action(trajectory, [step, 0, 0])
    agent.mark_end_of_trajectory(trajectory, action)
while agent._outbox.spool_bytes == 0 or agent._outbox._incoming:
    pass
os.kill(os.getpid(), signal.SIGKILL)
"""
    server.on_trajectories = keep_silent
    subprocess.run([sys.executable, "-c", script], check=False, timeout=TIMEOUT_SECONDS)
    died_with = server.session.sequences
    assert len(died_with) < 60
    server.on_trajectories = lambda session: session.ack(session.sequences[-1])

    def refuse_spools(session: Session) -> None:
        if session.hello.remote:
            session.problem(Problem.REFUSED, "the spec has changed")
        else:
            serve_model(session)

    server.script = refuse_spools
    refused = make_agent(server)
    until(lambda: list((tmp_path / "spool" / "tester").glob("*.refused")))
    refused.close()
    (aside,) = (tmp_path / "spool" / "tester").glob("*.refused")
    aside.rename(aside.with_suffix(""))
    server.script = serve_model
    make_agent(server)
    until(lambda: server.sessions[-1].hello.remote and server.sessions[-1].sequences[-1:] == [60])
    left = server.sessions[-1]
    assert left.sequences == list(range(left.sequences[0], 61))
    until(lambda: not list((tmp_path / "spool" / "tester").iterdir()))


def test_unreadable_certificate_is_reported(make_agent: MakeAgent, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="only one of cert and key"):
        make_agent("localhost:1", server={"tls": {"cert": str(tmp_path / "cert.pem")}})
    with pytest.raises(ConfigError, match=r"server\.tls\.ca is '.*ca.pem', which cannot be read"):
        make_agent("localhost:1", server={"tls": {"ca": str(tmp_path / "ca.pem")}})


def test_mutual_tls_rejects_unknown_certificates(
    make_server: MakeServer, make_agent: MakeAgent, tmp_path: Path
) -> None:
    for name in ("server", "client", "stranger"):
        make_certificate(tmp_path, name)
    credentials = grpc.ssl_server_credentials(
        [((tmp_path / "server.key").read_bytes(), (tmp_path / "server.pem").read_bytes())],
        (tmp_path / "client.pem").read_bytes(),
        require_client_auth=True,
    )
    server = make_server(credentials=credentials)
    address = f"localhost:{server.port}"
    files = {"ca": "server.pem", "cert": "client.pem", "key": "client.key"}
    tls = {name: str(tmp_path / file) for name, file in files.items()}
    assert make_agent(address, server={"tls": tls}).version == 1
    for stranger in (
        {**tls, "ca": str(tmp_path / "stranger.pem")},
        {**tls, "cert": str(tmp_path / "stranger.pem"), "key": str(tmp_path / "stranger.key")},
        None,
    ):
        agent = make_agent(address, server={"tls": stranger, "timeout_seconds": 0.3})
        assert (agent.version, agent.statistics().connected) == (None, False)


def make_certificate(folder: Path, name: str) -> None:
    """Create a self-signed certificate for localhost."""
    command = f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN={name}"
    files = ["-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.pem")]
    extension = ["-addext", "subjectAltName=DNS:localhost"]
    subprocess.run([*command.split(), *extension, *files], check=True, capture_output=True)


class _UnreachableStream:
    """Stream to an unreachable server."""

    ready = True

    def __init__(self, deliver: Deliver) -> None:
        deliver(Ended(self, "UNAVAILABLE", "connection refused"))

    def send(self, message: ClientMessage) -> None: ...

    def act(self, request: ActRequest, timeout_seconds: float) -> ActReply:
        raise NotImplementedError

    def close(self) -> None: ...


def make_link(tmp_path: Path, open_stream: Callable[[Deliver], Stream], **options: Any) -> Link:
    outbox = Outbox(10**6, Spool(tmp_path / "spool", 10**6, b""), lambda recording: b"trajectory")
    identity = ClientIdentity(Hello(client_id="tester"), SPEC, tmp_path / "home")
    return Link(identity, open_stream, outbox, Pace(1000), **options)


def test_retry_delay_grows_exponentially_with_jitter(tmp_path: Path) -> None:
    drawn: list[float] = []

    def jitter() -> float:
        drawn.append(link._max_retry_delay())
        return 0.0

    tried_often = threading.Event()

    def open_stream(deliver: Deliver) -> Stream:
        if len(drawn) == 9:
            tried_often.set()
        return _UnreachableStream(deliver)

    link = make_link(tmp_path, open_stream, jitter=jitter)
    link.start()
    assert tried_often.wait(TIMEOUT_SECONDS)
    link.close()
    assert drawn[:8] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]


def test_idle_and_unconnected_clients_use_little_cpu(server: ScriptedServer, make_agent: MakeAgent) -> None:
    connected = make_agent(server)
    absent = make_agent("127.0.0.1:9", server={"timeout_seconds": 0.01}, client_id="other")
    before = time.process_time()
    threading.Event().wait(1.0)
    assert time.process_time() - before < 0.2
    assert connected.statistics().connected
    assert not absent.statistics().connected


def test_link_restarts_after_an_exception(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    opened = threading.Event()

    def open_stream(deliver: Deliver) -> Stream:
        if "is restarted" in caplog.text:
            opened.set()
            return _UnreachableStream(deliver)
        raise RuntimeError("a mistake")

    link = make_link(tmp_path, open_stream, jitter=lambda: 0.0)
    link.start()
    assert opened.wait(TIMEOUT_SECONDS)
    link.close()
    assert "a mistake" in caplog.text


def test_link_persists_unsent_trajectories(tmp_path: Path) -> None:
    link = make_link(tmp_path, _UnreachableStream, jitter=lambda: 0.0)
    link._outbox.put(Recording({"reward": np.zeros(3, np.float32)}, version=0, episode=0, offset=0, sequence=1))
    link.start()
    link.close()
    assert len(list((tmp_path / "spool").glob("*.segment"))) == 1


def test_two_clients_with_same_id_have_different_instances(server: ScriptedServer, make_agent: MakeAgent) -> None:
    first, second = System(make_agent(server)), System(make_agent(server))
    for system in (first, second):
        system.episode(3)
        assert system.agent.flush(TIMEOUT_SECONDS)
    instances = [session.hello.instance for session in server.sessions]
    assert len(set(instances)) == 2
    assert [session.sequences for session in server.sessions] == [[1], [1]]
