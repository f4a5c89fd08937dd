"""Episode in progress in a client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rl4sys.client.recorder import AnyProgram, Recorder


class Episode:
    """Episode in progress: its recorder and the model of the current recording."""

    __slots__ = (
        "commit",
        "core",
        "cut_due",
        "decide",
        "number",
        "on_late_reward",
        "pending",
        "recorder",
        "reward",
        "version",
    )

    def __init__(self, number: int, recorder: Recorder, on_late_reward: Callable[[], None]) -> None:
        self.number, self.recorder, self.on_late_reward = number, recorder, on_late_reward
        # Store the bound methods of the recorder, because looking them up takes more time than calling them.
        self.decide: Callable[..., Any] = recorder.decide
        self.commit, self.reward = recorder.commit, recorder.reward
        self.core: AnyProgram | None = None
        self.version = 0
        self.pending: object = None
        """Latest decision, which becomes the next step if it is committed."""
        self.cut_due = False

    @property
    def is_full(self) -> bool:
        """True if the recording has reached its step limit. The next decision then checks first if a cut is due."""
        return self.recorder.steps >= self.recorder.limit
