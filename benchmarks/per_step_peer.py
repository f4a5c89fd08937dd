"""What `live.py` compares with: a client that decides in eager torch and sends a message per step.

Small and without needless work, but built the way such systems usually are: the policy is a torch module, an
action is an object with its observation, and every step crosses the network as a message of its own, which the
server parses and keeps until the trajectory is whole and can be written to disk.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import torch
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from torch import nn

_METHOD = "/peer.Training/Send"
_FIELDS = {"observation": 12, "action": 3, "reward": 2, "log_prob": 2, "done": 8}
"""Names and protobuf types: bytes, int64, float, float, bool."""


def _step_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="peer.proto", package="peer", syntax="proto3")
    message = file.message_type.add(name="Step")
    for number, (name, kind) in enumerate(_FIELDS.items(), 1):
        message.field.add(name=name, number=number, type=kind, label=1)  # type: ignore[arg-type]
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("peer.Step"))


Step = _step_class()


class TorchAction:
    def __init__(self, observation: Any, act: int, log_prob: float) -> None:
        self.observation, self.act, self.log_prob, self.reward = observation, act, log_prob, 0.0

    def update_reward(self, reward: float) -> None:
        self.reward = reward


class TorchClient:
    """Decides as eager torch does."""

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


def send(address: str, steps: int, length: int) -> None:
    """Send so many steps in trajectories of ``length``, a message each, and wait until all are on the server's disk."""
    observation = np.zeros(8, np.float32)

    def messages() -> Iterator[Any]:
        for n in range(1, steps + 1):
            yield Step(observation=observation.tobytes(), action=1, reward=1.0, log_prob=-1.4, done=n % length == 0)

    with grpc.insecure_channel(address) as channel:
        call = channel.stream_stream(_METHOD, Step.SerializeToString, lambda content: content)
        acknowledged = sum(1 for _ in call(messages()))
    assert acknowledged == steps // length


class PeerServer:
    """Receives steps and writes whole trajectories, synced, to SQLite."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._server = grpc.server(ThreadPoolExecutor(4))
        handler = grpc.stream_stream_rpc_method_handler(self._receive, Step.FromString, lambda content: content)
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("peer.Training", {"Send": handler}),)
        )
        self.address = f"localhost:{self._server.add_insecure_port('localhost:0')}"

    def __enter__(self) -> PeerServer:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(None).wait()

    def _receive(self, steps: Iterable[Any], context: Any) -> Iterator[bytes]:
        database = sqlite3.connect(self._path)
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        database.execute("CREATE TABLE IF NOT EXISTS trajectories (steps BLOB)")
        trajectory: list[Any] = []
        for step in steps:
            trajectory.append(step)
            if step.done:
                database.execute(
                    "INSERT INTO trajectories VALUES (?)", (b"".join(s.SerializeToString() for s in trajectory),)
                )
                database.commit()
                trajectory = []
                yield b"ok"
        database.close()
