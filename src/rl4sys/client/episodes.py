"""The rare events of a client's trajectories: they begin, are cut, end, break off, and are handed to the link."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial

from rl4sys.client.fragments import Fragment, Layout
from rl4sys.client.outbox import Fresh, Outbox
from rl4sys.client.pace import Episode, Pace
from rl4sys.client.recorder import Recorder
from rl4sys.spec import Array

_log = logging.getLogger("rl4sys.client")


class Episodes:
    """All episodes of a client. Several threads may use it, each for episodes of its own."""

    def __init__(
        self,
        pace: Pace,
        layout: Layout,
        outbox: Outbox,
        make_recorder: Callable[[], Recorder],
        wake: Callable[[], None],
        patience_seconds: float,
    ) -> None:
        self._pace, self._layout, self._outbox = pace, layout, outbox
        self._make_recorder, self._wake, self._patience_seconds = make_recorder, wake, patience_seconds
        self._abandoned: deque[Episode] = deque()
        self._impatient = False

    @property
    def abandon(self) -> Callable[[Episode], None]:
        """Notes that nobody can go on with an episode; takes no lock, so that a finaliser may call it anywhere."""
        return self._abandoned.append

    def begin(self) -> Episode:
        """A new episode by the newest model, of which there must be one."""
        self._keep_abandoned()
        episode = Episode(self._pace.number_episode(), self._make_recorder(), self._late)
        self._start_fragment(episode)
        return episode

    def go_on(self, episode: Episode, row: Array, mask: Array | None, *, must_cut: bool = False) -> None:
        """Where a fragment has reached its limit: cut it before ``row``, unless rewards are missing; or let it be."""
        if episode.recorder.steps == 0:
            self._start_fragment(episode)
        elif self._pace.is_to_be_cut(episode) or must_cut:
            self._ship(self._take(episode, row, mask))
            self._start_fragment(episode)

    def end(self, episode: Episode, row: Array | None, mask: Array | None, *, truncated: bool) -> None:
        """The episode is over; ``row`` is what the last action led to, if that is known."""
        if episode.recorder.steps > 0:
            self._ship(self._take(episode, row, mask, terminated=not truncated, truncated=truncated))
        self._pace.stop(episode)

    def break_off(self, episode: Episode, row: Array | None = None, mask: Array | None = None) -> None:
        """Its next step is unknown. Without ``row`` so is what the last action led to, and that step is left out."""
        if episode.recorder.steps > 0:
            fragment = self._take(episode, row, mask)
            self._ship(fragment if row is not None else fragment.without_last_step())
        self._pace.stop(episode)

    def break_off_all(self) -> None:
        for episode in self._pace.running():
            episode.pending = None
            self.break_off(episode)

    def _take(
        self,
        episode: Episode,
        row: Array | None,
        mask: Array | None,
        *,
        terminated: bool = False,
        truncated: bool = False,
    ) -> Fragment:
        recorder, offset = episode.recorder, episode.recorder.offset
        rows = recorder.take(row, mask)
        return Fragment(rows, episode.version, episode.number, offset, terminated=terminated, truncated=truncated)

    def _ship(self, fragment: Fragment) -> None:
        if fragment.steps > 0:
            self._pace.ship(fragment.steps, partial(self._send, fragment))
            self._wake()

    def _send(self, fragment: Fragment, sequence: int, urgent: bool) -> None:
        encode = partial(self._layout.encode, fragment, sequence)
        self._outbox.put(Fresh(sequence, fragment.steps, fragment.size, encode, urgent))

    def _start_fragment(self, episode: Episode) -> None:
        if not self._pace.wait_until_fresh(self._patience_seconds) and not self._impatient:
            self._impatient = True
            _log.warning(
                "no newer model came within %g s; going on with steps that may be too stale to be learnt from",
                self._patience_seconds,
            )
        if self._pace.start_fragment(episode):
            # The server is told which version is acted by.
            self._wake()

    def _keep_abandoned(self) -> None:
        while self._abandoned:
            self.break_off(self._abandoned.popleft())

    def _late(self) -> None:
        if self._pace.count_late_reward():
            _log.warning(
                "a reward came after its trajectory had ended or been cut, and is lost; raise max_traj_length if "
                "rewards take long. Further ones are only counted"
            )
