"""State of one stream to the server, and the selection of trajectories to send on this stream."""

from __future__ import annotations

import logging
import time

from rl4sys.client.outbox import Outbox
from rl4sys.client.recording import EncodedTrajectory
from rl4sys.client.stream import Stream
from rl4sys.wire.messages import ClientMessage, Trajectories, Welcome
from rl4sys.wire.service import MAX_MESSAGE_BYTES

_log = logging.getLogger("rl4sys.client")

MAX_SEND_DELAY_SECONDS = 1.0
"""Maximum time in seconds that a trajectory waits until its message is full; also the minimum report interval."""
WELCOME_TIMEOUT_SECONDS = 30.0
"""Time limit in seconds for the Welcome message of the server to arrive."""
_MESSAGE_BYTES = 2**20
_ENVELOPE_BYTES = 1024


class Connection:
    """Stream to the server, with the server's Welcome message. Used by the link's thread only."""

    def __init__(self, stream: Stream, outbox: Outbox, send_frequency: int) -> None:
        self.stream, self._outbox, self._send_frequency = stream, outbox, send_frequency
        self.welcome: Welcome | None = None
        self.send_immediately = False
        """True to send all waiting trajectories now, without waiting until a message is full."""
        self._started_at = time.monotonic()
        self._waiting_since: float | None = None
        self._warned_oversized = False
        outbox.rewind()

    @property
    def age_seconds(self) -> float:
        return time.monotonic() - self._started_at

    def on_welcome(self, welcome: Welcome) -> None:
        self.welcome = welcome
        self._outbox.acknowledge(welcome.acknowledged)
        # Trajectories recorded before this connection have waited long enough, so they are sent immediately.
        self.send_immediately = self._outbox.unsent_count > 0

    def send_waiting(self) -> int:
        """Send due trajectories as long as the stream accepts messages. Returns the number of steps sent."""
        self.send_immediately |= any(recording.urgent for recording in self._outbox.encode_incoming())
        if self._outbox.unsent_count > 0 and self._waiting_since is None:
            self._waiting_since = time.monotonic()
        steps = 0
        while self.welcome is not None and self.stream.ready and self._is_due():
            trajectories = self._outbox.next_batch(min(_MESSAGE_BYTES, self._max_trajectory_bytes()))
            if len(trajectories[0].content) > self._max_trajectory_bytes():
                self._drop_oversized(trajectories[0])
                continue
            contents = [trajectory.content for trajectory in trajectories]
            self.stream.send(ClientMessage(trajectories=Trajectories(trajectory=contents)))
            steps += sum(trajectory.steps for trajectory in trajectories)
        if self._outbox.unsent_count == 0:
            self.send_immediately, self._waiting_since = False, None
        return steps

    def seconds_until_due(self) -> float:
        """Return the seconds until the next waiting trajectory must be sent, at most ``MAX_SEND_DELAY_SECONDS``."""
        if self._waiting_since is None or self.welcome is None:
            return MAX_SEND_DELAY_SECONDS
        return max(0.0, self._waiting_since + MAX_SEND_DELAY_SECONDS - time.monotonic())

    def _drop_oversized(self, trajectory: EncodedTrajectory) -> None:
        if not self._warned_oversized:
            self._warned_oversized = True
            _log.error(
                "a trajectory of %d bytes exceeds the limit of the server and is dropped", len(trajectory.content)
            )
        self._outbox.drop_last()

    def _is_due(self) -> bool:
        if self._outbox.unsent_count == 0:
            return False
        waited = self._waiting_since is not None and time.monotonic() - self._waiting_since >= MAX_SEND_DELAY_SECONDS
        return self.send_immediately or waited or self._outbox.unsent_count >= self._send_frequency

    def _max_trajectory_bytes(self) -> int:
        limit = self.welcome.max_message_bytes if self.welcome is not None else 0
        return (min(limit, MAX_MESSAGE_BYTES) if limit else MAX_MESSAGE_BYTES) - _ENVELOPE_BYTES
