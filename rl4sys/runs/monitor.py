"""Progress of a run for `rl4sys monitor`, read from the files of the run. Reading never blocks training."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rl4sys.machine import ProcessUsage, process_usage
from rl4sys.metric_names import RETURN_METRICS
from rl4sys.runs.directory import CONFIG, CREATED, INTERRUPTED, RUNNING, STATUS, RunDirectory, reported_state
from rl4sys.runs.metrics import Points

_UNLIMITED_STEPS = 10**11
"""Smallest value of `total_timesteps` that means unlimited training, as for hosted policies."""


@dataclass(frozen=True)
class RunProgress:
    """Progress of one run at one moment. Unknown values are None or empty."""

    path: Path
    name: str
    algorithm: str = ""
    environment: str = ""
    seed: int | None = None
    state: str = CREATED
    """State of the run: created, running, completed, stopped, failed or interrupted."""
    steps: int = 0
    total_steps: int | None = None
    version: int | None = None
    steps_per_second: float | None = None
    evaluation: float | None = None
    best: float | None = None
    memory_bytes: int | None = None
    """RAM of the process that trains the run, or the last recorded value if no process trains the run."""
    cpu_share: float | None = None
    """Mean number of CPU cores used by the training process since the last reading; at first, since its start."""
    silent_seconds: float | None = None
    """Seconds since the status was written."""
    row: Mapping[str, float] = field(default_factory=dict)
    """Newest value of every metric."""
    curves: Mapping[str, Points] = field(default_factory=dict)
    alerts: tuple[Mapping[str, Any], ...] = ()
    """All fired and cleared alerts, oldest first."""
    problem: str = ""
    """Most urgent problem of the run; empty if there is none."""

    @property
    def recent_return(self) -> float | None:
        return self.row.get("episode/return")

    @property
    def share(self) -> float | None:
        """Fraction of the training steps that are done; None for unlimited training."""
        return min(1.0, self.steps / self.total_steps) if self.total_steps else None

    @property
    def seconds_left(self) -> float | None:
        if self.state != RUNNING or not self.total_steps or not self.steps_per_second:
            return None
        return max(0, self.total_steps - self.steps) / self.steps_per_second

    def reward_curve(self) -> Points:
        """Return the curve of training returns, which has the most points, or else the curve of evaluation returns."""
        return next((self.curves[name] for name in reversed(RETURN_METRICS) if self.curves.get(name)), [])


class RunMonitor:
    """Reader of the progress of one run, for repeated use. Parses only new metrics rows and changed configs.

    Corrupt files are treated as missing, because one corrupt run must not stop the monitor.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._run = RunDirectory(path)
        self._metrics = self._run.metrics_tail()
        self._usage: tuple[Any, ProcessUsage] | None = None
        """Process id and last measurement of the process that trains the run."""

    def read(self) -> RunProgress:
        self._metrics.refresh()
        status = self._run.status_or_empty()
        age = _status_age(self._run) if status else None
        settings = self._run.config_or_empty().settings
        state = self._run.state(status)
        alerts = tuple(self._run.alerts())
        usage, cpu_share = self._measure(status.get("pid") if state == RUNNING else None)
        total = status.get("total_timesteps") or _block(settings, "training").get("total_timesteps")
        return RunProgress(
            path=self.path,
            name=str(_block(settings, "experiment").get("name", self.path.name)),
            algorithm=str(_block(settings, "algorithm").get("name", "")),
            environment=str(_block(settings, "environment").get("name", "")),
            seed=_block(settings, "experiment").get("seed"),
            state=state,
            steps=int(status.get("steps") or self._metrics.step),
            total_steps=int(total) if total and total < _UNLIMITED_STEPS else None,
            version=status.get("version"),
            steps_per_second=status.get("steps_per_second"),
            evaluation=status.get("evaluation_return", self._metrics.last.get("evaluation/return")),
            best=status.get("best_evaluation_return"),
            memory_bytes=usage.resident_bytes if usage else status.get("memory_bytes"),
            cpu_share=cpu_share,
            silent_seconds=age,
            row=self._metrics.last,
            curves=self._metrics.curves(),
            alerts=alerts,
            problem=_problem(state, alerts, age, settings),
        )

    def _measure(self, pid: Any) -> tuple[ProcessUsage | None, float | None]:
        """Measure RAM and CPU use of the process `pid`. Return None for both if the process does not exist."""
        usage = process_usage(pid) if isinstance(pid, int) else None
        if usage is None:
            self._usage = None
            return None, None
        before = self._usage[1] if self._usage and self._usage[0] == pid else None
        self._usage = pid, usage
        return usage, usage.cpu_share(before)


def last_activity(path: Path) -> tuple[str, float]:
    """Return the reported state of a run and the Unix time of its status file, else of its config file, else 0."""
    run = RunDirectory(path)
    status = run.status_or_empty()
    return reported_state(status), (run.modified(STATUS) if status else run.modified(CONFIG)) or 0.0


def _status_age(run: RunDirectory) -> float | None:
    written = run.modified(STATUS)
    return None if written is None else max(0.0, time.time() - written)


def _problem(state: str, alerts: tuple[Mapping[str, Any], ...], age: float | None, settings: Mapping[str, Any]) -> str:
    """Return the most urgent problem: no process, no progress, or the newest active alert; empty if there is none."""
    if state == INTERRUPTED:
        return "no process trains this run; continue with rl4sys train --resume"
    limit = _silence_limit(settings)
    if state == RUNNING and age is not None and limit is not None and age > limit:
        return f"no_progress: no metrics row for {age:,.0f} seconds"
    firing: dict[Any, str] = {}
    for alert in alerts:
        firing.pop(alert.get("rule"), None)
        if alert.get("status") == "firing":
            firing[alert.get("rule")] = f"{alert.get('rule')}: {alert.get('message')}"
    return next(reversed(firing.values()), "")


def _silence_limit(settings: Mapping[str, Any]) -> float | None:
    """Return the shortest limit of the `no_progress` alert rules in seconds, or None without such a rule."""
    rules = _block(_block(settings, "alerts"), "rules").values()
    limits = [rule.get("seconds") for rule in rules if isinstance(rule, Mapping) and rule.get("kind") == "no_progress"]
    return min((float(limit) for limit in limits if limit), default=None)


def _block(settings: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    block = settings.get(name)
    return block if isinstance(block, Mapping) else {}
