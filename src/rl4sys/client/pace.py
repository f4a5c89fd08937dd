"""When a trajectory is cut and by which model it goes on: so that experience reaches the learner when it wants it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rl4sys.client.model import Model
from rl4sys.client.recorder import AnyProgram, Recorder

_MOST_SHIPPED = 1024
"""Fragments remembered one by one; beyond, such as while the server is away, they are counted together."""


class Episode:
    """An episode under way: its recorder, and the model of its present fragment."""

    __slots__ = ("commit", "core", "cut_due", "decide", "late", "number", "pending", "recorder", "reward", "version")

    def __init__(self, number: int, recorder: Recorder, late: Callable[[], None]) -> None:
        self.number, self.recorder, self.late = number, recorder, late
        # The recorder's own methods: looking them up costs more than calling them.
        self.decide: Callable[..., Any] = recorder.decide
        self.commit, self.reward = recorder.commit, recorder.reward
        self.core: AnyProgram | None = None
        self.version = 0
        self.pending: object = None
        """The decision that may become the next step."""
        self.cut_due = False

    @property
    def is_full(self) -> bool:
        """Whether it makes no further decision before it was asked whether to cut it."""
        return self.recorder.steps >= self.recorder.limit


def _decided_elsewhere(*arguments: Any) -> None:
    """Where the server decides, nothing is decided here."""


@dataclass(frozen=True)
class Figures:
    """What a client has decided so far, and by what."""

    decisions: int
    fallback_decisions: int
    late_rewards: int
    adopted_version: int | None
    versions_adopted: int


class Pace:
    """The newest model, and how far this client is ahead of what the learner had when it made it.

    *Ahead* are the steps that the newest model has not learnt from: of fragments sent since, and of those under way.
    When they reach what the learner wants, every fragment under way is cut, so that its next update has them; a
    newer model cuts them too, so that it is acted by. All is guarded by ``news``, which is held for moments only.
    """

    def __init__(self, max_steps: int, max_staleness: int | None = None) -> None:
        self.news = threading.Condition(threading.Lock())
        """Notified when a model arrives, and when the link has something else to say."""
        self.model: Model | None = None
        self.max_staleness = max_staleness
        self.max_steps = max_steps
        self.late_rewards = self.fallback_decisions = 0
        self._goal = 0
        self._shipped: deque[tuple[int, int]] = deque()
        self._shipped_steps = 0
        self._sequence = 0
        self._episodes = 0
        self._running: set[Episode] = set()
        self._recorded_steps = 0
        self._adopted: Model | None = None
        self._versions_adopted = 0

    def publish(self, model: Model) -> None:
        """Make ``model`` the newest; fragments under way end with their next request."""
        with self.news:
            if self.model is not None and self.model.lineage != model.lineage:
                # Another learner under the same name: what was sent before was not for it.
                self._shipped.clear()
                self._shipped_steps = 0
            self.model = model
            while self._shipped and self._shipped[0][0] <= model.taken:
                self._shipped_steps -= self._shipped.popleft()[1]
            ahead = self._ahead()
            self._goal = ahead - ahead % model.wants + model.wants
            self._cut_all()
            self.news.notify_all()

    def is_news(self, model: Model) -> bool:
        """Whether it is newer than the newest."""
        newest = self.model
        return newest is None or newest.lineage != model.lineage or newest.version < model.version

    def number_episode(self) -> int:
        with self.news:
            self._episodes += 1
            return self._episodes - 1

    def start_fragment(self, episode: Episode) -> bool:
        """Let the episode go on by the newest model; true if no fragment went by that one before."""
        with self.news:
            model = self.model
            assert model is not None  # no episode starts without one
            self._running.add(episode)
            episode.core, episode.version, episode.cut_due = model.core, model.version, False
            if model.core is None:
                episode.decide = _decided_elsewhere
            self._allot(episode)
            adopts, self._adopted = self._adopted is not model, model
            self._versions_adopted += adopts
            return adopts

    def is_to_be_cut(self, episode: Episode) -> bool:
        """Whether a fragment that has reached its limit ends there; if not, it has a new limit."""
        recorder = episode.recorder
        with self.news:
            if recorder.steps >= self.max_steps:
                return True
            episode.cut_due |= self._ahead() >= self._goal
            if not episode.cut_due:
                self._allot(episode)
            elif recorder.unrewarded > 0:
                # Rewards still to come would be lost; the next request asks again.
                recorder.limit = recorder.steps + 1
            else:
                return True
            return False

    def ship(self, steps: int, send: Callable[[int, bool], None]) -> None:
        """Number a fragment that was closed and call ``send(sequence, urgent)``, in the order of the numbers."""
        with self.news:
            self._sequence += 1
            self._note_shipped(steps)
            self._recorded_steps += steps
            ahead = self._ahead()
            due = self.model is not None and ahead >= self._goal
            if due and self.model is not None:
                self._goal = ahead + self.model.wants
                self._cut_all()
            send(self._sequence, due)

    def stop(self, episode: Episode) -> None:
        """The episode goes on no more."""
        with self.news:
            self._running.discard(episode)

    def running(self) -> list[Episode]:
        with self.news:
            return list(self._running)

    def wait_until_fresh(self, patience_seconds: float) -> bool:
        """Wait while a further step would be too stale to be learnt from; False if patience ran out."""
        if patience_seconds <= 0:
            return True
        with self.news:
            return self.news.wait_for(lambda: not self._too_far_ahead(), patience_seconds)

    def wait_for_model(self, timeout_seconds: float, version: int | None) -> bool:
        def arrived() -> bool:
            return self.model is not None and (version is None or self.model.version >= version)

        with self.news:
            return self.news.wait_for(arrived, timeout_seconds)

    def count_late_reward(self) -> bool:
        """True the first time."""
        with self.news:
            self.late_rewards += 1
            return self.late_rewards == 1

    def count_fallback(self) -> None:
        with self.news:
            self.fallback_decisions += 1

    def figures(self) -> Figures:
        with self.news:
            under_way = sum(episode.recorder.steps for episode in self._running)
            return Figures(
                decisions=self._recorded_steps + under_way + self.fallback_decisions,
                fallback_decisions=self.fallback_decisions,
                late_rewards=self.late_rewards,
                adopted_version=self._adopted.version if self._adopted else None,
                versions_adopted=self._versions_adopted,
            )

    def _note_shipped(self, steps: int) -> None:
        self._shipped_steps += steps
        if len(self._shipped) == _MOST_SHIPPED:
            steps += self._shipped.pop()[1]
        self._shipped.append((self._sequence, steps))

    def _ahead(self) -> int:
        return self._shipped_steps + sum(episode.recorder.steps for episode in self._running)

    def _too_far_ahead(self) -> bool:
        if self.model is None or self.max_staleness is None:
            return False
        return self._ahead() >= self.model.wants * (self.max_staleness + 1)

    def _allot(self, episode: Episode) -> None:
        """Let a fragment go on for its share of the steps that are wanted."""
        share = -(-max(1, self._goal - self._ahead()) // max(1, len(self._running)))
        episode.recorder.limit = min(self.max_steps, episode.recorder.steps + share)

    def _cut_all(self) -> None:
        for episode in self._running:
            episode.cut_due = True
            episode.recorder.limit = 0
