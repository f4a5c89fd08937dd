"""Operations outside the hot path: begin, cut, end and abandon an episode, and submit its recordings."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from rl4sys.client.episode import Episode
from rl4sys.client.outbox import Outbox
from rl4sys.client.pace import Pace
from rl4sys.client.recorder import Recorder
from rl4sys.client.recording import Recording
from rl4sys.spec import Array

_log = logging.getLogger("rl4sys.client")


class Episodes:
    """Manages all episodes of a client. Thread-safe if each thread uses its own episodes."""

    def __init__(
        self,
        pace: Pace,
        outbox: Outbox,
        make_recorder: Callable[[], Recorder],
        wake: Callable[[], None],
        patience_seconds: float,
    ) -> None:
        self._pace, self._outbox = pace, outbox
        self._make_recorder, self._wake, self._patience_seconds = make_recorder, wake, patience_seconds
        self._unreferenced: deque[Episode] = deque()
        self._submission_lock = threading.Lock()
        self._warned_stale = False

    @property
    def abandon_later(self) -> Callable[[Episode], None]:
        """Function for finalizers of handles; queues the episode for `abandon` without taking a lock."""
        return self._unreferenced.append

    def begin(self) -> Episode:
        """Begin an episode with the newest model. A model must have arrived before."""
        self._abandon_unreferenced()
        episode = Episode(self._pace.next_episode_number(), self._make_recorder(), self._on_late_reward)
        self._start_recording(episode)
        return episode

    def cut_if_due(self, episode: Episode, row: Array, mask: Array | None, *, must_cut: bool = False) -> None:
        """Cut a full recording if a cut is due and no rewards are missing; otherwise raise its step limit.

        ``row`` is the next observation and becomes the final observation of the cut recording. ``must_cut`` cuts the
        recording in any case.
        """
        if episode.recorder.steps == 0:
            self._start_recording(episode)
        elif self._pace.should_cut(episode) or must_cut:
            self._submit(self._close_recording(episode, row, mask))
            self._start_recording(episode)

    def end(self, episode: Episode, row: Array | None, mask: Array | None, *, truncated: bool) -> None:
        """End the episode. ``row`` is the observation after the last action; None if unknown."""
        if episode.recorder.steps > 0:
            self._submit(self._close_recording(episode, row, mask, terminated=not truncated, truncated=truncated))
        self._pace.end_episode(episode)

    def abandon(self, episode: Episode, row: Array | None = None, mask: Array | None = None) -> None:
        """End an episode that cannot continue; its last trajectory is neither terminated nor truncated.

        If ``row``, the next observation, is None, the last step is dropped, because its outcome is unknown.
        """
        if episode.recorder.steps > 0:
            recording = self._close_recording(episode, row, mask)
            self._submit(recording if row is not None else recording.without_last_step())
        self._pace.end_episode(episode)

    def submit_all(self) -> None:
        """End all running episodes and submit their steps. No other thread may use the episodes."""
        for episode in self._pace.running_episodes():
            episode.pending = None
            self.abandon(episode)

    def _close_recording(
        self,
        episode: Episode,
        row: Array | None,
        mask: Array | None,
        *,
        terminated: bool = False,
        truncated: bool = False,
    ) -> Recording:
        recorder, offset = episode.recorder, episode.recorder.offset
        columns = recorder.take(row, mask)
        return Recording(columns, episode.version, episode.number, offset, terminated=terminated, truncated=truncated)

    def _submit(self, recording: Recording) -> None:
        if recording.steps == 0:
            return
        # The server ignores sequence numbers below those that it has, so recordings must enter the outbox in order.
        with self._submission_lock:
            sequence, urgent = self._pace.assign_sequence(recording.steps)
            self._outbox.put(replace(recording, sequence=sequence, urgent=urgent))
        self._wake()

    def _start_recording(self, episode: Episode) -> None:
        if not self._pace.wait_until_fresh(self._patience_seconds) and not self._warned_stale:
            self._warned_stale = True
            _log.warning(
                "no newer model arrived within patience_seconds (%g s); continuing with steps that may be too stale "
                "for training",
                self._patience_seconds,
            )
        if self._pace.start_recording(episode):
            # Wake the link to report the adopted version.
            self._wake()

    def _abandon_unreferenced(self) -> None:
        while self._unreferenced:
            self.abandon(self._unreferenced.popleft())

    def _on_late_reward(self) -> None:
        if self._pace.count_late_reward():
            _log.warning(
                "a reward arrived after its trajectory had ended or been cut and is ignored; increase "
                "max_traj_length if rewards are delayed. Further late rewards are only counted"
            )
