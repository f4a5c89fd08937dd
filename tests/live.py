"""Helpers for tests with a real server: its process, and a client that sends single protocol messages."""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from rl4sys.server.journal import read_trajectories
from rl4sys.spec import Box, Discrete, Spec
from rl4sys.trajectory import Trajectory
from rl4sys.wire.call import Credentials, ask_status, open_channel
from rl4sys.wire.messages import ClientMessage, Hello, PolicyStatus, Problem, ServerMessage, Trajectories
from rl4sys.wire.service import CONNECT, PROTOCOL
from rl4sys.wire.trajectories import encode_trajectory

SPEC = Spec({"state": Box((3,))}, Discrete(2))
SMALL_PPO = {
    "algorithm": {"name": "ppo", "epochs": 2, "minibatch_size": 32},
    "network": {"actor": {"hidden_dims": [8]}, "critic": {"hidden_dims": [8]}},
    "buffer": {"size": 64},
}
WAIT_SECONDS = 60.0
LEARNING_SECONDS = 180.0
"""Timeout in seconds for a learner to process all waiting steps, even those of two minutes on a busy machine."""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class LiveServer:
    """Process of ``rl4sys serve`` on a free loopback port, which can be killed, stopped and restarted."""

    folder: Path | None = None
    """Working directory of the server; None for the working directory of the tests."""

    def __init__(self, root: Path, *options: str) -> None:
        self.root, self._options = root, options
        self.port = free_port()
        self.address = f"localhost:{self.port}"
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, *self.command(), "--port", str(self.port), *self._options],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        first = self._process.stdout.readline()
        assert re.search(r"serves on .*:\d+", first), first + self._process.stdout.read()
        # Keep reading, or the server would block once the pipe is full.
        self.output = [first]
        self._reader = threading.Thread(target=self.output.extend, args=(self._process.stdout,), daemon=True)
        self._reader.start()

    def command(self) -> list[str]:
        return ["-m", "rl4sys.server.server", "--root", str(self.root)]

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        self._wait()

    def stop(self) -> int:
        os.kill(self.pid, signal.SIGTERM)
        return self._wait()

    def _wait(self) -> int:
        assert self._process is not None
        code = self._process.wait(WAIT_SECONDS)
        self._reader.join(WAIT_SECONDS)
        assert self._process.stdout is not None
        self._process.stdout.close()
        return code

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def policy(self, policy_id: str) -> PolicyStatus | None:
        """Return the status of a policy, or None if the server has no such policy."""
        found = ask_status(self.address, Credentials()).policies
        return next((policy for policy in found if policy.policy_id == policy_id), None)

    def wait_for_policy(self, policy_id: str, condition: Callable[[PolicyStatus], bool]) -> PolicyStatus:
        """Wait until the status of a policy satisfies `condition`, and return it."""

        def check() -> PolicyStatus | None:
            policy = self.policy(policy_id)
            return policy if policy is not None and condition(policy) else None

        return eventually(check, LEARNING_SECONDS)

    def archived_steps(self, policy_id: str) -> int:
        """Return the number of steps in the journal of a policy. With `journal: archive`, it contains all steps."""
        return sum(len(trajectory) for trajectory in read_trajectories(self.root / policy_id))


@contextmanager
def running_server(root: Path, *options: str) -> Iterator[LiveServer]:
    server = LiveServer(root, *options)
    server.start()
    try:
        yield server
    finally:
        if server.running:
            server.stop()


def eventually(check: Callable[[], Any], seconds: float = WAIT_SECONDS) -> Any:
    """Call `check` until it returns a true value, and return this value. Fails after a timeout."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if result := check():
            return result
        time.sleep(0.02)
    raise AssertionError(f"the condition was not met within {seconds} s: {check}")


class WireClient:
    """Client that sends and receives single protocol messages."""

    def __init__(self, address: str, credentials: Credentials | None = None) -> None:
        credentials = credentials or Credentials()
        self._channel = open_channel(address, credentials)
        self._outgoing: queue.Queue[ClientMessage | bytes | None] = queue.Queue()
        call = self._channel.stream_stream(CONNECT, _as_bytes, ServerMessage.FromString)
        self._incoming = call(iter(self._outgoing.get, None), metadata=credentials.metadata())
        self.acknowledged = 0

    def hello(self, name: str, **fields: Any) -> None:
        settings = fields.pop("settings", SMALL_PPO)
        spec = fields.pop("spec", SPEC)
        hello = {
            "protocol": PROTOCOL,
            "client_id": name,
            "policy_id": name,
            "instance": 1,
            "spec": spec if isinstance(spec, str) else json.dumps(spec.to_json()),
            "settings": settings if isinstance(settings, str) else json.dumps(settings),
        }
        self.send(ClientMessage(hello=Hello(**{**hello, **fields})))

    def send(self, message: ClientMessage | bytes) -> None:
        self._outgoing.put(message)

    def send_trajectories(self, *contents: bytes) -> None:
        self.send(ClientMessage(trajectories=Trajectories(trajectory=contents)))

    def receive_any(self, *kinds: str) -> tuple[str, Any]:
        """Return the kind and content of the next message of one of `kinds`. Other messages are skipped."""
        for message in self._incoming:
            kind = message.WhichOneof("kind")
            if kind in kinds:
                return kind, getattr(message, kind)
        raise AssertionError(f"the stream ended before any of {kinds}")

    def receive(self, kind: str) -> Any:
        """Return the next message of `kind`. Other messages are skipped."""
        for message in self._incoming:
            if message.WhichOneof("kind") == kind:
                return getattr(message, kind)
        raise AssertionError(f"the stream ended before a {kind}")

    def wait_for_ack(self, sequence: int) -> None:
        while self.acknowledged < sequence:
            self.acknowledged = self.receive("ack").sequence

    def wait_for_error(self) -> grpc.RpcError:
        """Wait for the end of the stream and return its error."""
        try:
            for _ in self._incoming:
                pass
        except grpc.RpcError as error:
            return error
        raise AssertionError("the stream ended without an error")

    def wait_for_refusal(self) -> Problem:
        """Return the Problem message that the server sends before it ends the stream."""
        problem = self.receive("problem")
        assert self.wait_for_error().code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNAVAILABLE)
        return problem

    def close(self) -> None:
        self._outgoing.put(None)
        self._incoming.cancel()
        self._channel.close()

    def __enter__(self) -> WireClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _as_bytes(message: ClientMessage | bytes) -> bytes:
    return message if isinstance(message, bytes) else message.SerializeToString()


def make_trajectory(sequence: int, *, version: int = 0, steps: int = 32, **changes: Any) -> bytes:
    """Return an encoded trajectory with random data; the seed is `sequence`."""
    rng = np.random.default_rng(sequence)
    columns = {
        "obs.state": rng.standard_normal((steps + 1, 3)).astype(np.float32),
        "action": rng.integers(0, 2, steps),
        "reward": rng.standard_normal(steps).astype(np.float32),
        "log_prob": np.full(steps, np.log(0.5), np.float32),
    }
    trajectory = Trajectory(version, {**columns, **changes}, episode=sequence, terminated=True)
    return encode_trajectory(trajectory, sequence)
