"""Pacing of a client: when recordings are cut and which model each episode uses."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import Any

from rl4sys.client.episode import Episode
from rl4sys.client.model import Model

_MAX_SENT_ENTRIES = 1024
"""Maximum length of the list of sent recordings; during an outage, others are merged into the last entry."""


def _decide_nothing(*arguments: Any) -> None:
    """Return None. Replaces `Episode.decide` if the server makes the decisions."""


@dataclass(frozen=True)
class DecisionStatistics:
    """Counters of decisions and models, and the version of the model in use."""

    decisions: int
    fallback_decisions: int
    late_rewards: int
    adopted_version: int | None
    versions_adopted: int


class Pace:
    """Tracks the newest model and the unlearned steps, and decides when recordings are cut.

    *Unlearned* steps are the steps, in sent recordings and recordings in progress, that the newest model was not
    trained on. When their number makes the next update due, all recordings in progress are cut, so that the update
    includes them.
    Recordings are also cut when a newer model arrives, so that episodes switch to the new model immediately. The lock
    of ``changed`` guards all state and is held only briefly.
    """

    def __init__(self, max_steps: int, max_staleness: int | None = None) -> None:
        self.changed = threading.Condition(threading.Lock())
        """Condition that is notified when a model arrives and when the state of the link changes."""
        self.model: Model | None = None
        self.max_staleness = max_staleness
        self.max_steps = max_steps
        self.late_rewards = self.fallback_decisions = 0
        self._cut_at = 0
        self._sent: deque[tuple[int, int]] = deque()
        self._sent_steps = 0
        self._sequence = 0
        self._episodes = 0
        self._running: set[Episode] = set()
        self._recorded_steps = 0
        self._adopted: Model | None = None
        self._versions_adopted = 0

    def publish(self, model: Model) -> None:
        """Make ``model`` the newest model. Recordings in progress are cut at their next decision."""
        with self.changed:
            if self.model is not None and self.model.lineage != model.lineage:
                # A new lineage: earlier trajectories went to another learner.
                self._sent.clear()
                self._sent_steps = 0
            self.model = model
            while self._sent and self._sent[0][0] <= model.learned_sequence:
                self._sent_steps -= self._sent.popleft()[1]
            unlearned = self._unlearned_steps()
            interval = model.steps_to_next_update
            self._cut_at = unlearned - unlearned % interval + interval
            self._request_cuts()
            self.changed.notify_all()

    def is_newer(self, model: Model) -> bool:
        """Return True if there is no current model, or if ``model`` is newer or of another lineage."""
        newest = self.model
        return newest is None or newest.lineage != model.lineage or newest.version < model.version

    def next_episode_number(self) -> int:
        with self.changed:
            self._episodes += 1
            return self._episodes - 1

    def start_recording(self, episode: Episode) -> bool:
        """Start a recording with the newest model. Returns True if this model is used for the first time."""
        with self.changed:
            model = self.model
            assert model is not None  # episodes begin only after a model has arrived
            self._running.add(episode)
            episode.core, episode.version, episode.cut_due = model.core, model.version, False
            if model.core is None:
                episode.decide = _decide_nothing
            self._set_step_limit(episode)
            adopts, self._adopted = self._adopted is not model, model
            self._versions_adopted += adopts
            return adopts

    def should_cut(self, episode: Episode) -> bool:
        """Return True if a full recording should be cut now; otherwise raise its step limit."""
        recorder = episode.recorder
        with self.changed:
            if recorder.steps >= self.max_steps:
                return True
            episode.cut_due |= self._unlearned_steps() >= self._cut_at
            if not episode.cut_due:
                self._set_step_limit(episode)
            elif recorder.unrewarded > 0:
                # A cut would lose the missing rewards; check again at the next decision.
                recorder.limit = recorder.steps + 1
            else:
                return True
            return False

    def assign_sequence(self, steps: int) -> tuple[int, bool]:
        """Return the sequence number of a closed recording, and True if this recording makes the next update due."""
        with self.changed:
            self._sequence += 1
            self._add_sent(steps)
            self._recorded_steps += steps
            unlearned = self._unlearned_steps()
            if self.model is None or unlearned < self._cut_at:
                return self._sequence, False
            self._cut_at = unlearned + self.model.steps_to_next_update
            self._request_cuts()
            return self._sequence, True

    def end_episode(self, episode: Episode) -> None:
        with self.changed:
            self._running.discard(episode)

    def running_episodes(self) -> list[Episode]:
        with self.changed:
            return list(self._running)

    def wait_until_fresh(self, patience_seconds: float) -> bool:
        """Wait for a newer model if the next step would be too stale for training. Returns False on timeout."""
        if patience_seconds <= 0:
            return True
        with self.changed:
            return self.changed.wait_for(lambda: not self._is_too_stale(), patience_seconds)

    def wait_for_model(self, timeout_seconds: float, version: int | None) -> bool:
        """Wait for a model of at least ``version``; None accepts any model. Returns False on timeout."""

        def arrived() -> bool:
            return self.model is not None and (version is None or self.model.version >= version)

        with self.changed:
            return self.changed.wait_for(arrived, timeout_seconds)

    def count_late_reward(self) -> bool:
        """Count a late reward. Returns True for the first one."""
        with self.changed:
            self.late_rewards += 1
            return self.late_rewards == 1

    def count_fallback(self) -> None:
        with self.changed:
            self.fallback_decisions += 1

    def statistics(self) -> DecisionStatistics:
        with self.changed:
            in_progress = sum(episode.recorder.steps for episode in self._running)
            return DecisionStatistics(
                decisions=self._recorded_steps + in_progress + self.fallback_decisions,
                fallback_decisions=self.fallback_decisions,
                late_rewards=self.late_rewards,
                adopted_version=self._adopted.version if self._adopted else None,
                versions_adopted=self._versions_adopted,
            )

    def _add_sent(self, steps: int) -> None:
        self._sent_steps += steps
        if len(self._sent) == _MAX_SENT_ENTRIES:
            steps += self._sent.pop()[1]
        self._sent.append((self._sequence, steps))

    def _unlearned_steps(self) -> int:
        return self._sent_steps + sum(episode.recorder.steps for episode in self._running)

    def _is_too_stale(self) -> bool:
        if self.model is None or self.max_staleness is None:
            return False
        return self._unlearned_steps() >= self.model.steps_to_next_update * (self.max_staleness + 1)

    def _set_step_limit(self, episode: Episode) -> None:
        """Set the step limit of the recording to its share of the steps until the next update."""
        share = -(-max(1, self._cut_at - self._unlearned_steps()) // max(1, len(self._running)))
        episode.recorder.limit = min(self.max_steps, episode.recorder.steps + share)

    def _request_cuts(self) -> None:
        for episode in self._running:
            episode.cut_due = True
            episode.recorder.limit = 0
