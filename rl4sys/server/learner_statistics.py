"""Statistics of a learner process over episodes and clients."""

from __future__ import annotations

import time
from collections import deque

import numpy as np

from rl4sys.server.journal import Sender
from rl4sys.spec import State
from rl4sys.trajectory import Trajectory

RECENT = 100
"""Number of newest episodes in the mean return and length, and of newest trajectories in the mean staleness."""

_MAX_OPEN_EPISODES = 10_000


class EpisodeStatistics:
    """Mean return and length of the last 100 episodes. An episode may arrive in several trajectories."""

    def __init__(self) -> None:
        self._open: dict[int, tuple[float, int]] = {}
        self._recent: deque[tuple[float, int]] = deque(maxlen=RECENT)

    def add(self, trajectory: Trajectory) -> None:
        total, length = self._open.pop(trajectory.episode, (0.0, 0))
        so_far = total + float(trajectory.columns["reward"].sum(dtype=np.float64)), length + len(trajectory)
        if trajectory.ended:
            self._recent.append(so_far)
            return
        self._open[trajectory.episode] = so_far
        if len(self._open) > _MAX_OPEN_EPISODES:
            del self._open[next(iter(self._open))]

    def means(self) -> dict[str, float]:
        """Return the mean episode return and length; empty before the first episode ends."""
        if not self._recent:
            return {}
        totals, lengths = zip(*self._recent, strict=True)
        return {"episode/return": float(np.mean(totals)), "episode/length": float(np.mean(lengths))}

    def state(self) -> State:
        return {
            "open": [[episode, *so_far] for episode, so_far in self._open.items()],
            "recent": [list(episode) for episode in self._recent],
        }

    def restore(self, state: State) -> None:
        self._open = {episode: (total, length) for episode, total, length in state["open"]}
        self._recent.extend((total, length) for total, length in state["recent"])


class ClientSequences:
    """Highest trained sequence number per client instance, for the `max_clients` most recently active instances.

    The number of instances is limited because every progress message contains all sequences.
    """

    def __init__(self, max_clients: int) -> None:
        self._max_clients = max_clients
        self._learned: dict[Sender, int] = {}
        self._last_active: dict[str, float] = {}

    def add(self, sender: Sender, sequence: int) -> None:
        self._learned.pop(sender, None)
        self._learned[sender] = sequence
        self._last_active[sender.client] = time.monotonic()
        if len(self._learned) > self._max_clients:
            del self._learned[next(iter(self._learned))]

    def seconds_inactive(self) -> dict[str, float]:
        """Return the seconds since each client's last trajectory. Clients without one in this process are omitted."""
        now, clients = time.monotonic(), {sender.client for sender in self._learned}
        self._last_active = {client: at for client, at in self._last_active.items() if client in clients}
        return {client: now - at for client, at in self._last_active.items()}

    def state(self) -> list[list[str | int]]:
        """Return a list of [client, instance, sequence], one per client instance."""
        return [[sender.client, sender.instance, sequence] for sender, sequence in self._learned.items()]

    def restore(self, state: list[list[int]]) -> None:
        self._learned = read_client_sequences(state)


def read_client_sequences(rows: list[list[int]]) -> dict[Sender, int]:
    """Convert the result of `ClientSequences.state` to a dictionary from client instance to sequence."""
    return {Sender(str(client), instance): sequence for client, instance, sequence in rows}
