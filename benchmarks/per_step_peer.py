"""Baseline for `live.py`: a client that decides in eager torch and sends one message per step, and its server.

The baseline is small and efficient, but has a typical design: the policy is a torch module, an action is an object that
contains its observation, and every step is a message, sent immediately or together with its trajectory. The server
converts the messages to columns for a learner and writes them to disk.
"""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import torch
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from torch import nn

_SEND_STEPS, _SEND_TRAJECTORIES = "/peer.Training/SendSteps", "/peer.Training/SendTrajectories"
_FIELDS = {"observation": 12, "action": 3, "reward": 2, "log_prob": 2, "done": 8}
"""Fields of a step with their protobuf type numbers: bytes, int64, float, float, bool."""


def _message_classes() -> tuple[Any, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="peer.proto", package="peer", syntax="proto3")
    step = file.message_type.add(name="Step")
    for number, (name, kind) in enumerate(_FIELDS.items(), 1):
        step.field.add(name=name, number=number, type=kind, label=1)  # type: ignore[arg-type]
    trajectory = file.message_type.add(name="Trajectory")
    trajectory.field.add(name="steps", number=1, type=11, type_name=".peer.Step", label=3)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    step_class, trajectory_class = (
        message_factory.GetMessageClass(pool.FindMessageTypeByName(f"peer.{name}")) for name in ("Step", "Trajectory")
    )
    return step_class, trajectory_class


Step, PeerTrajectory = _message_classes()


class TorchAction:
    def __init__(self, observation: Any, act: int, log_prob: float) -> None:
        self.observation, self.act, self.log_prob, self.reward = observation, act, log_prob, 0.0

    def update_reward(self, reward: float) -> None:
        self.reward = reward


class TorchClient:
    """Client whose policy is a torch module in eager mode."""

    def __init__(self) -> None:
        self._network = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 4))

    @torch.no_grad()
    def request_for_action(self, trajectory: list[TorchAction] | None, observation: Any) -> tuple[Any, TorchAction]:
        given = torch.as_tensor(observation)
        distribution = torch.distributions.Categorical(logits=self._network(given))
        action = distribution.sample()  # type: ignore[no-untyped-call]
        log_prob = distribution.log_prob(action)  # type: ignore[no-untyped-call]
        return ([] if trajectory is None else trajectory), TorchAction(given, int(action), float(log_prob))

    def add_to_trajectory(self, trajectory: list[TorchAction], action: TorchAction) -> None:
        trajectory.append(action)


def send_steps(address: str, count: int, length: int) -> None:
    """Send one message per step, in trajectories of `length`; return when all are on the server's disk."""
    _send(address, _SEND_STEPS, (step for n in range(count // length) for step in _steps(length)), count // length)


def send_trajectories(address: str, count: int, length: int) -> None:
    """Send one message per trajectory, with a nested message per step; return when all are on the server's disk."""
    messages = (PeerTrajectory(steps=_steps(length)) for _ in range(count // length))
    _send(address, _SEND_TRAJECTORIES, messages, count // length)


def _steps(length: int) -> Iterator[Any]:
    observation = np.zeros(8, np.float32)
    for n in range(1, length + 1):
        yield Step(observation=observation.tobytes(), action=1, reward=1.0, log_prob=-1.4, done=n == length)


def _send(address: str, method: str, messages: Iterator[Any], expected: int) -> None:
    with grpc.insecure_channel(address) as channel:
        call = channel.stream_stream(method, lambda message: message.SerializeToString(), lambda content: content)
        assert sum(1 for _ in call(messages)) == expected


@contextmanager
def running_peer() -> Iterator[str]:
    """Run the baseline server in a separate process; yield its address."""
    with tempfile.TemporaryDirectory(dir=".", prefix=".live-benchmark-") as folder:
        command = [sys.executable, __file__, str(Path(folder) / "peer.db")]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()
            process.wait(60)
            process.stdout.close()


class _Store:
    """SQLite store of complete trajectories as columns, synced on every commit."""

    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = FULL")
        self._database.execute("CREATE TABLE IF NOT EXISTS trajectories (columns BLOB)")

    def add(self, steps: Iterable[Any]) -> None:
        observations = np.stack([np.frombuffer(step.observation, np.float32) for step in steps])
        actions = np.array([step.action for step in steps])
        numbers = np.array([(step.reward, step.log_prob) for step in steps], np.float32)
        content = observations.tobytes() + actions.tobytes() + numbers.tobytes()
        self._database.execute("INSERT INTO trajectories VALUES (?)", (content,))
        self._database.commit()


def serve(path: Path) -> None:
    def receive_steps(steps: Iterable[Any], context: Any) -> Iterator[bytes]:
        store, trajectory = _Store(path), []
        for step in steps:
            trajectory.append(step)
            if step.done:
                store.add(trajectory)
                trajectory = []
                yield b"ok"

    def receive_trajectories(trajectories: Iterable[Any], context: Any) -> Iterator[bytes]:
        store = _Store(path)
        for trajectory in trajectories:
            store.add(trajectory.steps)
            yield b"ok"

    server = grpc.server(ThreadPoolExecutor(4))
    methods = {
        "SendSteps": grpc.stream_stream_rpc_method_handler(receive_steps, Step.FromString, bytes),
        "SendTrajectories": grpc.stream_stream_rpc_method_handler(
            receive_trajectories, PeerTrajectory.FromString, bytes
        ),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("peer.Training", methods),))
    print(f"localhost:{server.add_insecure_port('localhost:0')}", flush=True)
    server.start()
    server.wait_for_termination()


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
