"""Conditions of alert rules, evaluated on the observed state of a run."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Protocol

from rl4sys.alerts.rules import (
    AnyRule,
    MemoryRule,
    NoProgressRule,
    SlowRule,
    StaleClientsRule,
    StalledRule,
    ThresholdRule,
)
from rl4sys.machine import MemoryUsage, format_bytes
from rl4sys.spec import State

_FIRST_RATES = 20


@dataclass(frozen=True)
class RuleInput:
    """State of a run at one moment, as the input of alert rules. Unknown values have their defaults."""

    step: int
    seconds: float
    """Time of a monotonic clock in seconds."""
    row: Mapping[str, float] = field(default_factory=dict)
    memory: MemoryUsage | None = None
    needed_bytes: int = 0
    """RAM that the buffer will still allocate until it is full."""
    silent_seconds: float | None = None
    """Seconds since the last metrics row."""
    clients: Mapping[str, float] = field(default_factory=dict)
    """Seconds since the last trajectory of each live client."""
    error: str = ""
    """Message of the error that ended the run; empty if there is none."""
    numerical: bool = False
    """True if the run ended because of a NaN or infinite value."""


@dataclass(frozen=True)
class RuleResult:
    """Result of an alert rule. The rule fires if `message` is not empty."""

    message: str = ""
    value: float | None = None
    pending: bool = False
    """True if the condition holds, but not yet long enough to fire. An active alert then stays active."""


class Condition(Protocol):
    """Condition of one alert rule. Its state persists across metrics rows."""

    def check(self, inputs: RuleInput) -> RuleResult | None:
        """Evaluate the condition. Return None if ``inputs`` has no data for this condition."""

    def state(self) -> State | None:
        """Return the state to save in a checkpoint, or None if the state depends on the machine or clock."""

    def restore(self, state: State) -> None: ...


class _Stateless:
    """Condition without state."""

    def state(self) -> State | None:
        return {}

    def restore(self, state: State) -> None:
        """Do nothing, because the condition has no state."""


class _Unsaved(_Stateless):
    """Condition that depends on the machine or clock. Its state is not saved, so a resumed run starts without state."""

    def state(self) -> State | None:
        return None


class Nan(_Stateless):
    def __init__(self, rule: AnyRule) -> None:
        """Ignore ``rule``, because this kind of rule has no options."""

    def check(self, inputs: RuleInput) -> RuleResult | None:
        if inputs.numerical:
            return RuleResult(inputs.error)
        if not inputs.row:
            return None
        bad = [name for name, value in inputs.row.items() if not math.isfinite(value)]
        if not bad:
            return RuleResult()
        others = f" (other metrics that are not finite: {len(bad) - 1})" if len(bad) > 1 else ""
        return RuleResult(f"{bad[0]} is {inputs.row[bad[0]]}{others}; lower algorithm.lr or check the rewards")


class Failed(_Stateless):
    def __init__(self, rule: AnyRule) -> None:
        """Ignore ``rule``, because this kind of rule has no options."""

    def check(self, inputs: RuleInput) -> RuleResult | None:
        return RuleResult(f"the run failed: {inputs.error}") if inputs.error and not inputs.numerical else None


class _Column:
    """Reader of one metric that may be in one of several columns, listed by priority.

    After the first row with a column, all columns of lower priority are ignored.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names

    def read(self, row: Mapping[str, float]) -> float | None:
        for index, name in enumerate(self.names):
            if name in row:
                self.names = self.names[: index + 1]
                return row[name]
        return None


class Stalled:
    def __init__(self, rule: StalledRule) -> None:
        self._rule, self._column = rule, _Column(rule.columns)
        self._best: float | None = None
        self._since = 0

    def check(self, inputs: RuleInput) -> RuleResult | None:
        names = self._column.names
        value = self._column.read(inputs.row)
        if value is None or math.isnan(value):
            return None
        renamed = names != self._column.names
        if self._best is None or renamed or self._gain(value) > self._rule.min_change:
            self._best, self._since = value, inputs.step
        if inputs.step - self._since < self._rule.steps:
            return RuleResult()
        by = f" by more than {self._rule.min_change:g}" if self._rule.min_change else ""
        return RuleResult(
            f"{self._rule.metric} has not improved{by} for {inputs.step - self._since:,} steps: "
            f"current value {value:.4g}, best value {self._best:.4g} at step {self._since:,}",
            value,
        )

    def state(self) -> State | None:
        return {"best": self._best, "since": self._since, "names": list(self._column.names)}

    def restore(self, state: State) -> None:
        self._best, self._since = state["best"], state["since"]
        self._column.names = tuple(state["names"])

    def _gain(self, value: float) -> float:
        assert self._best is not None  # `check` sets the best value first
        return value - self._best if self._rule.goal == "max" else self._best - value


class Threshold:
    def __init__(self, rule: ThresholdRule) -> None:
        self._rule, self._column, self._rows = rule, _Column(rule.columns), 0

    def check(self, inputs: RuleInput) -> RuleResult | None:
        value = self._column.read(inputs.row)
        if value is None:
            return None
        beyond = self._beyond(value)
        self._rows = self._rows + 1 if beyond else 0
        if not beyond:
            return RuleResult()
        if self._rows < self._rule.rows:
            return RuleResult(pending=True)
        lasting = f", for {self._rows} rows" if self._rule.rows > 1 else ""
        return RuleResult(f"{self._rule.metric} is {value:.4g}, {beyond}{lasting}", value)

    def state(self) -> State | None:
        return {"rows": self._rows, "names": list(self._column.names)}

    def restore(self, state: State) -> None:
        self._rows, self._column.names = state["rows"], tuple(state["names"])

    def _beyond(self, value: float) -> str:
        above, below = self._rule.above, self._rule.below
        if above is not None and value > above:
            return f"above {above:g}"
        return f"below {below:g}" if below is not None and value < below else ""


class LowMemory(_Unsaved):
    def __init__(self, rule: MemoryRule) -> None:
        self._rule = rule

    def check(self, inputs: RuleInput) -> RuleResult | None:
        memory = inputs.memory
        if memory is None:
            return None
        limit = self._rule.process_bytes
        if limit is not None and memory.process_bytes > limit:
            return RuleResult(
                f"the process uses {format_bytes(memory.process_bytes)} of RAM; the limit is {format_bytes(limit)}",
                memory.process_bytes,
            )
        used = memory.used_share
        if used is None or self._rule.share is None:
            return RuleResult()
        left = f"{format_bytes(memory.available_bytes or 0)} of {format_bytes(memory.total_bytes or 0)} are available"
        if used >= self._rule.share:
            return RuleResult(f"{used:.0%} of RAM is in use: {left}", used)
        if inputs.needed_bytes > (memory.available_bytes or 0):
            return RuleResult(f"the buffer will need {format_bytes(inputs.needed_bytes)} more RAM, but {left}", used)
        return RuleResult()


class Slow(_Unsaved):
    """Condition that compares the current speed with a minimum and with the speed after the first update."""

    def __init__(self, rule: SlowRule) -> None:
        self._rule = rule
        self._marks: deque[tuple[int, float]] = deque(maxlen=rule.rows + 1)
        self._first: list[float] = []

    def check(self, inputs: RuleInput) -> RuleResult | None:
        if not inputs.row.get("learner/version"):
            return None
        if self._marks and len(self._first) < _FIRST_RATES:
            self._first.append(_rate(self._marks[-1], (inputs.step, inputs.seconds)))
        self._marks.append((inputs.step, inputs.seconds))
        if len(self._marks) <= self._rule.rows:
            return RuleResult()
        rate = _rate(self._marks[0], self._marks[-1])
        bounds = [bound for bound in (self._rule.below, self._relative_bound()) if bound is not None]
        if not bounds or rate >= max(bounds):
            return RuleResult()
        before = f"; the initial speed was {median(self._first):,.0f}" if self._rule.fraction else ""
        return RuleResult(f"{rate:,.1f} steps per second over the last {self._rule.rows} rows{before}", rate)

    def _relative_bound(self) -> float | None:
        """Return the minimum speed relative to the initial speed, or None if it is disabled or too few rows exist."""
        if self._rule.fraction is None or len(self._first) < self._rule.rows:
            return None
        return self._rule.fraction * median(self._first)


class StaleClients(_Unsaved):
    def __init__(self, rule: StaleClientsRule) -> None:
        self._rule = rule

    def check(self, inputs: RuleInput) -> RuleResult | None:
        lag = inputs.row.get("learner/staleness")
        if lag is not None and self._rule.versions is not None and lag > self._rule.versions:
            return RuleResult(
                f"recent trajectories are {lag:.1f} versions old; the limit is {self._rule.versions:g}", lag
            )
        if not inputs.clients or self._rule.seconds is None:
            return None if lag is None or self._rule.versions is None else RuleResult()
        client, longest = max(inputs.clients.items(), key=lambda item: item[1])
        if longest <= self._rule.seconds:
            return RuleResult()
        silent = [seconds for seconds in inputs.clients.values() if seconds > self._rule.seconds]
        others = f" (silent clients: {len(silent)})" if len(silent) > 1 else ""
        return RuleResult(f"no trajectory from client {client} for {longest:,.0f} seconds{others}", longest)


class NoProgress(_Unsaved):
    def __init__(self, rule: NoProgressRule) -> None:
        self._rule = rule

    def check(self, inputs: RuleInput) -> RuleResult | None:
        if inputs.silent_seconds is None:
            return None
        if inputs.silent_seconds <= self._rule.seconds:
            return RuleResult()
        return RuleResult(f"no metrics row for {inputs.silent_seconds:,.0f} seconds", inputs.silent_seconds)


_CONDITIONS: dict[str, Callable[[Any], Condition]] = {
    "nan": Nan,
    "failed": Failed,
    "stalled": Stalled,
    "threshold": Threshold,
    "memory": LowMemory,
    "slow": Slow,
    "stale_clients": StaleClients,
    "no_progress": NoProgress,
}


@dataclass(frozen=True)
class Alert:
    """Notification that a rule fired or, if ``cleared``, that its alert has ended."""

    rule: str
    kind: str
    message: str
    step: int
    value: float | None = None
    cleared: bool = False


class RuleState:
    """Alert rule with the state of its alert. An active alert is sent once, or every ``repeat_seconds``."""

    def __init__(self, name: str, rule: AnyRule) -> None:
        self.name, self.rule = name, rule
        self._condition = _CONDITIONS[rule.kind](rule)
        self.message = ""
        """Message of the active alert; empty if the alert is not active."""
        self._clear_rows = 0
        self._sent_at: float | None = None

    def check(self, inputs: RuleInput) -> Alert | None:
        result = self._condition.check(inputs)
        if result is None:
            return None
        if result.pending:
            self._clear_rows = 0
            return None
        if result.message:
            return self._fire(result, inputs)
        return self._clear(inputs.step) if self.message else None

    def state(self) -> State | None:
        condition = self._condition.state()
        if condition is None:
            return None
        rule = self.rule.model_dump(mode="json")
        return {"rule": rule, "message": self.message, "quiet": self._clear_rows, "condition": condition}

    def restore(self, state: State) -> None:
        """Restore the state, unless the options of the rule have changed."""
        if state["rule"] != self.rule.model_dump(mode="json"):
            return
        self.message, self._clear_rows = state["message"], state["quiet"]
        self._condition.restore(state["condition"])

    def _fire(self, result: RuleResult, inputs: RuleInput) -> Alert | None:
        known, self.message, self._clear_rows = bool(self.message), result.message, 0
        if known and self._sent_at is None:
            # The alert was sent before the run was resumed.
            self._sent_at = inputs.seconds
        if known and not self._due(inputs.seconds):
            return None
        self._sent_at = inputs.seconds
        return Alert(self.name, self.rule.kind, result.message, inputs.step, result.value)

    def _due(self, seconds: float) -> bool:
        repeat = self.rule.repeat_seconds
        return repeat is not None and self._sent_at is not None and seconds - self._sent_at >= repeat

    def _clear(self, step: int) -> Alert | None:
        self._clear_rows += 1
        if self._clear_rows < self.rule.clear_rows:
            return None
        message, self.message, self._clear_rows, self._sent_at = self.message, "", 0, None
        return Alert(self.name, self.rule.kind, message, step, cleared=True)


def _rate(earlier: tuple[int, float], later: tuple[int, float]) -> float:
    return (later[0] - earlier[0]) / max(later[1] - earlier[1], 1e-9)
