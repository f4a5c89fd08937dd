"""When an alert rule holds: pure judgements of what is seen of a run."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Protocol

from rl4sys.experiment.alerts import (
    AnyRule,
    MemoryRule,
    NoProgressRule,
    SlowRule,
    StaleClientsRule,
    StalledRule,
    ThresholdRule,
)
from rl4sys.experiment.machine import Memory, in_words
from rl4sys.spec import State

_FIRST_RATES = 20


@dataclass(frozen=True)
class Seen:
    """What there is to judge at one moment; what is not known then is left out."""

    step: int
    seconds: float
    """By a clock that only goes forward."""
    row: Mapping[str, float] = field(default_factory=dict)
    memory: Memory | None = None
    needed_bytes: int = 0
    """What the buffer will still take of memory until it is full."""
    silent_seconds: float | None = None
    """Since the last row."""
    clients: Mapping[str, float] = field(default_factory=dict)
    """Live: seconds since each client was heard of."""
    problem: str = ""
    """What the run failed of."""
    numerical: bool = False
    """Whether that was a number that is none."""


@dataclass(frozen=True)
class Verdict:
    """Whether a rule holds: it does if there is something to say."""

    message: str = ""
    value: float | None = None


_FINE = Verdict()
_NOT_YET = Verdict()
"""It is not long enough to be told, nor over if it was."""


class Condition(Protocol):
    def judge(self, seen: Seen) -> Verdict | None:
        """None where ``seen`` says nothing about it."""

    def state(self) -> State | None:
        """What a resumed run goes on from; None of what depends on machine and clock, and begins anew."""

    def restore(self, state: State) -> None: ...


class _Plain:
    """A condition that remembers nothing."""

    def state(self) -> State | None:
        return {}

    def restore(self, state: State) -> None:
        """Nothing to restore."""


class _Passing(_Plain):
    """A condition of machine and clock."""

    def state(self) -> State | None:
        return None


class Nan(_Plain):
    def __init__(self, rule: AnyRule) -> None:
        """Nothing to be told."""

    def judge(self, seen: Seen) -> Verdict | None:
        if seen.numerical:
            return Verdict(seen.problem)
        if not seen.row:
            return None
        bad = [name for name, value in seen.row.items() if not math.isfinite(value)]
        if not bad:
            return _FINE
        others = f", and {len(bad) - 1} more" if len(bad) > 1 else ""
        return Verdict(f"{bad[0]} is {seen.row[bad[0]]}{others}: lower algorithm.lr, or look at the rewards")


class Failed(_Plain):
    def __init__(self, rule: AnyRule) -> None:
        """Nothing to be told."""

    def judge(self, seen: Seen) -> Verdict | None:
        return Verdict(f"the run failed: {seen.problem}") if seen.problem and not seen.numerical else None


class _Column:
    """One metric in rows; once one of several names for it was seen, those after it count no longer."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names

    def read(self, row: Mapping[str, float]) -> float | None:
        for place, name in enumerate(self.names):
            if name in row:
                self.names = self.names[: place + 1]
                return row[name]
        return None


class Stalled:
    def __init__(self, rule: StalledRule) -> None:
        self._rule, self._column = rule, _Column(rule.columns)
        self._best: float | None = None
        self._since = 0

    def judge(self, seen: Seen) -> Verdict | None:
        names = self._column.names
        value = self._column.read(seen.row)
        if value is None or math.isnan(value):
            return None
        renamed = names != self._column.names
        if self._best is None or renamed or self._gain(value) > self._rule.min_change:
            self._best, self._since = value, seen.step
        if seen.step - self._since < self._rule.steps:
            return _FINE
        by = f" by more than {self._rule.min_change:g}" if self._rule.min_change else ""
        return Verdict(
            f"{self._rule.metric} has not got better{by} for {seen.step - self._since:,} steps: "
            f"{value:.4g}, best {self._best:.4g} at step {self._since:,}",
            value,
        )

    def state(self) -> State | None:
        return {"best": self._best, "since": self._since, "names": list(self._column.names)}

    def restore(self, state: State) -> None:
        self._best, self._since = state["best"], state["since"]
        self._column.names = tuple(state["names"])

    def _gain(self, value: float) -> float:
        assert self._best is not None  # the first value is the best so far
        return value - self._best if self._rule.goal == "max" else self._best - value


class Threshold:
    def __init__(self, rule: ThresholdRule) -> None:
        self._rule, self._column, self._rows = rule, _Column(rule.columns), 0

    def judge(self, seen: Seen) -> Verdict | None:
        value = self._column.read(seen.row)
        if value is None:
            return None
        beyond = self._beyond(value)
        self._rows = self._rows + 1 if beyond else 0
        if not beyond:
            return _FINE
        if self._rows < self._rule.rows:
            return _NOT_YET
        lasting = f", for {self._rows} rows" if self._rule.rows > 1 else ""
        return Verdict(f"{self._rule.metric} is {value:.4g}, {beyond}{lasting}", value)

    def state(self) -> State | None:
        return {"rows": self._rows, "names": list(self._column.names)}

    def restore(self, state: State) -> None:
        self._rows, self._column.names = state["rows"], tuple(state["names"])

    def _beyond(self, value: float) -> str:
        above, below = self._rule.above, self._rule.below
        if above is not None and value > above:
            return f"above {above:g}"
        return f"below {below:g}" if below is not None and value < below else ""


class MemoryShort(_Passing):
    def __init__(self, rule: MemoryRule) -> None:
        self._rule = rule

    def judge(self, seen: Seen) -> Verdict | None:
        memory = seen.memory
        if memory is None:
            return None
        limit = self._rule.process_bytes
        if limit is not None and memory.process_bytes > limit:
            return Verdict(
                f"the process takes {in_words(memory.process_bytes)}, more than {in_words(limit)}", memory.process_bytes
            )
        used = memory.used_share
        if used is None or self._rule.share is None:
            return _FINE
        left = f"{in_words(memory.left_bytes or 0)} are left of {in_words(memory.total_bytes or 0)}"
        if used >= self._rule.share:
            return Verdict(f"{used:.0%} of memory is in use: {left}", used)
        if seen.needed_bytes > (memory.left_bytes or 0):
            return Verdict(f"the buffer will take {in_words(seen.needed_bytes)} more, and {left}", used)
        return _FINE


class Slow(_Passing):
    """Rates are taken between rows of updates; the first of them are what later ones are compared with."""

    def __init__(self, rule: SlowRule) -> None:
        self._rule = rule
        self._marks: deque[tuple[int, float]] = deque(maxlen=rule.rows + 1)
        self._first: list[float] = []

    def judge(self, seen: Seen) -> Verdict | None:
        if not seen.row.get("learner/version"):
            return None
        if self._marks and len(self._first) < _FIRST_RATES:
            self._first.append(_rate(self._marks[-1], (seen.step, seen.seconds)))
        self._marks.append((seen.step, seen.seconds))
        if len(self._marks) <= self._rule.rows:
            return _FINE
        rate = _rate(self._marks[0], self._marks[-1])
        bounds = [bound for bound in (self._rule.below, self._usual()) if bound is not None]
        if not bounds or rate >= max(bounds):
            return _FINE
        before = f"; it began with {median(self._first):,.0f}" if self._rule.fraction else ""
        return Verdict(f"{rate:,.1f} steps a second over the last {self._rule.rows} rows{before}", rate)

    def _usual(self) -> float | None:
        """The bound that the run's own beginning sets, once there is enough of it."""
        if self._rule.fraction is None or len(self._first) < self._rule.rows:
            return None
        return self._rule.fraction * median(self._first)


class StaleClients(_Passing):
    def __init__(self, rule: StaleClientsRule) -> None:
        self._rule = rule

    def judge(self, seen: Seen) -> Verdict | None:
        lag = seen.row.get("learner/staleness")
        if lag is not None and self._rule.versions is not None and lag > self._rule.versions:
            return Verdict(f"recent trajectories lag {lag:.1f} versions behind, more than {self._rule.versions:g}", lag)
        if not seen.clients or self._rule.seconds is None:
            return None if lag is None or self._rule.versions is None else _FINE
        client, longest = max(seen.clients.items(), key=lambda heard: heard[1])
        if longest <= self._rule.seconds:
            return _FINE
        silent = [seconds for seconds in seen.clients.values() if seconds > self._rule.seconds]
        others = f", nor from {len(silent) - 1} more" if len(silent) > 1 else ""
        return Verdict(f"nothing came from client {client} for {longest:,.0f} seconds{others}", longest)


class NoProgress(_Passing):
    def __init__(self, rule: NoProgressRule) -> None:
        self._rule = rule

    def judge(self, seen: Seen) -> Verdict | None:
        if seen.silent_seconds is None:
            return None
        if seen.silent_seconds <= self._rule.seconds:
            return _FINE
        return Verdict(f"no row for {seen.silent_seconds:,.0f} seconds", seen.silent_seconds)


_CONDITIONS: dict[str, Callable[[Any], Condition]] = {
    "nan": Nan,
    "failed": Failed,
    "stalled": Stalled,
    "threshold": Threshold,
    "memory": MemoryShort,
    "slow": Slow,
    "stale_clients": StaleClients,
    "no_progress": NoProgress,
}


@dataclass(frozen=True)
class Alert:
    """Something to tell; ``cleared`` if it is that what was told is over."""

    rule: str
    kind: str
    message: str
    step: int
    value: float | None = None
    cleared: bool = False


class Standing:
    """One rule and whether it is being told: once until it has cleared, or again at intervals."""

    def __init__(self, name: str, rule: AnyRule) -> None:
        self.name, self.rule = name, rule
        self._condition = _CONDITIONS[rule.kind](rule)
        self.message = ""
        """What is the matter; empty where nothing is."""
        self._quiet = 0
        self._told_at: float | None = None

    def judge(self, seen: Seen) -> Alert | None:
        verdict = self._condition.judge(seen)
        if verdict is None:
            return None
        if verdict is _NOT_YET:
            self._quiet = 0
            return None
        if verdict.message:
            return self._hold(verdict, seen)
        return self._fade(seen.step) if self.message else None

    def state(self) -> State | None:
        condition = self._condition.state()
        if condition is None:
            return None
        rule = self.rule.model_dump(mode="json")
        return {"rule": rule, "message": self.message, "quiet": self._quiet, "condition": condition}

    def restore(self, state: State) -> None:
        """Of the same rule; one that was changed since begins anew."""
        if state["rule"] != self.rule.model_dump(mode="json"):
            return
        self.message, self._quiet = state["message"], state["quiet"]
        self._condition.restore(state["condition"])

    def _hold(self, verdict: Verdict, seen: Seen) -> Alert | None:
        known, self.message, self._quiet = bool(self.message), verdict.message, 0
        if known and self._told_at is None:
            # Told by an earlier life of the run.
            self._told_at = seen.seconds
        if known and not self._due(seen.seconds):
            return None
        self._told_at = seen.seconds
        return Alert(self.name, self.rule.kind, verdict.message, seen.step, verdict.value)

    def _due(self, seconds: float) -> bool:
        repeat = self.rule.repeat_seconds
        return repeat is not None and self._told_at is not None and seconds - self._told_at >= repeat

    def _fade(self, step: int) -> Alert | None:
        self._quiet += 1
        if self._quiet < self.rule.clear_rows:
            return None
        over, self.message, self._quiet, self._told_at = self.message, "", 0, None
        return Alert(self.name, self.rule.kind, over, step, cleared=True)


def _rate(earlier: tuple[int, float], later: tuple[int, float]) -> float:
    return (later[0] - earlier[0]) / max(later[1] - earlier[1], 1e-9)
