"""Tests of `RunMonitor`, which reads the progress of a run from its files."""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from rl4sys.config import to_yaml
from rl4sys.machine import ProcessUsage, process_usage, resident_memory
from rl4sys.runs.monitor import RunMonitor, last_activity

SETTINGS: dict[str, Any] = {
    "experiment": {"name": "pole", "seed": 7},
    "algorithm": {"name": "ppo"},
    "environment": {"name": "CartPole-v1"},
    "training": {"total_timesteps": 1000},
}


def write_run(path: Path, status: dict[str, Any], rows: list[dict[str, Any]], **settings: Any) -> Path:
    """Write a run directory with the files that training writes."""
    (path / "configs").mkdir(parents=True)
    (path / "configs/config.yaml").write_text(to_yaml({**SETTINGS, **settings}))
    (path / "status.json").write_text(json.dumps({"pid": os.getpid(), "total_timesteps": 1000, **status}))
    (path / ".lock").touch()
    add_rows(path, rows)
    return path


def add_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    with (path / "metrics.jsonl").open("a") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


ROWS = [{"step": 100, "episode/return": 10.0, "loss/value": 2.0}, {"step": 200, "evaluation/return": 15.0}]
RUNNING = {"status": "running", "steps": 250, "steps_per_second": 50.0, "best_evaluation_return": 15.0, "version": 3}


def test_monitor_reads_progress_of_running_run(tmp_path: Path) -> None:
    path = write_run(tmp_path / "pole_1", RUNNING, ROWS)
    with (path / ".lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        progress = RunMonitor(path).read()
    assert (progress.name, progress.algorithm, progress.environment, progress.seed) == ("pole", "ppo", "CartPole-v1", 7)
    assert (progress.state, progress.steps, progress.total_steps, progress.share) == ("running", 250, 1000, 0.25)
    assert (progress.seconds_left, progress.recent_return, progress.evaluation, progress.best) == (
        15.0,
        10.0,
        15.0,
        15.0,
    )
    assert progress.row == {"episode/return": 10.0, "loss/value": 2.0, "evaluation/return": 15.0}
    assert progress.curves["episode/return"] == progress.reward_curve() == [(100, 10.0)]
    assert progress.memory_bytes is not None
    assert progress.memory_bytes > 10**6
    assert progress.problem == ""


def test_run_without_process_is_interrupted(tmp_path: Path) -> None:
    progress = RunMonitor(write_run(tmp_path / "a", RUNNING, ROWS)).read()
    assert progress.state == "interrupted"
    assert progress.seconds_left is None
    assert progress.problem == "no process trains this run; continue with rl4sys train --resume"


def test_monitor_detects_added_and_removed_rows(tmp_path: Path) -> None:
    path = write_run(tmp_path / "a", RUNNING, ROWS)
    watched = RunMonitor(path)
    watched.read()
    with (path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 300, "episode/ret')
    assert watched.read().curves["episode/return"] == [(100, 10.0)]
    with (path / "metrics.jsonl").open("a") as file:
        file.write('urn": 30.0}\n')
    assert watched.read().curves["episode/return"] == [(100, 10.0), (300, 30.0)]
    (path / "metrics.jsonl").write_text(json.dumps(ROWS[0]) + "\n")
    assert watched.read().curves["episode/return"] == [(100, 10.0)]


def test_long_curve_is_thinned_evenly(tmp_path: Path) -> None:
    rows = [{"step": step, "episode/return": float(step)} for step in range(10_000)]
    curve = RunMonitor(write_run(tmp_path / "a", RUNNING, rows)).read().curves["episode/return"]
    steps = [step for step, _ in curve]
    assert 1000 <= len(curve) <= 2001
    assert steps == [*range(0, 9999, 8), 9999]


@pytest.mark.parametrize("damage", ["", "{", "[]", "null"])
def test_monitor_ignores_corrupt_files(tmp_path: Path, damage: str) -> None:
    path = write_run(tmp_path / "a", RUNNING, ROWS)
    (path / "status.json").write_text(damage)
    (path / "configs/config.yaml").write_text("]")
    add_rows(path, [])
    (path / "metrics.jsonl").write_bytes(b'{"step": 5, "x": 1}\n\xff\n{"step": "five"}\n[]\n{"step": 6, "x": 2}\n')
    progress = RunMonitor(path).read()
    assert (progress.name, progress.state, progress.steps) == ("a", "created", 6)
    assert progress.curves == {"x": [(5, 1.0), (6, 2.0)]}


def alert(rule: str, status: str, message: str = "m") -> str:
    return json.dumps({"rule": rule, "status": status, "message": message, "step": 1}) + "\n"


def test_problem_is_the_newest_firing_alert(tmp_path: Path) -> None:
    path = write_run(tmp_path / "a", {**RUNNING, "status": "stopped"}, ROWS)
    (path / "alerts.jsonl").write_text(
        alert("slow", "firing") + alert("nan", "firing", "loss") + alert("kl", "firing") + alert("kl", "cleared")
    )
    progress = RunMonitor(path).read()
    assert progress.problem == "nan: loss"
    assert [a["rule"] for a in progress.alerts] == ["slow", "nan", "kl", "kl"]


def test_hanging_run_is_detected_by_no_progress_rule(tmp_path: Path) -> None:
    rules = {"quiet": {"kind": "no_progress", "seconds": 60.0}, "nan": None}
    path = write_run(tmp_path / "a", RUNNING, ROWS, alerts={"rules": rules})
    os.utime(path / "status.json", (0, 0))
    with (path / ".lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert RunMonitor(path).read().problem.startswith("no_progress: no metrics row for 1,")


def test_hosted_policy_has_no_total_steps(tmp_path: Path) -> None:
    status = {"status": "stopped", "steps": 5, "total_timesteps": None}
    progress = RunMonitor(write_run(tmp_path / "a", status, [], training={"total_timesteps": 10**12})).read()
    assert (progress.total_steps, progress.share) == (None, None)


def test_last_activity_returns_state_and_time(tmp_path: Path) -> None:
    path = write_run(tmp_path / "a", RUNNING, [])
    os.utime(path / "status.json", (5, 5))
    status, at = last_activity(path)
    assert status == "running"
    assert at == pytest.approx(5.0, abs=1.0)
    (path / "status.json").unlink()
    os.utime(path / "configs/config.yaml", (7, 7))
    assert last_activity(path) == ("created", 7.0)
    assert last_activity(tmp_path / "nothing") == ("created", 0.0)


def test_process_usage_is_read_from_proc(tmp_path: Path) -> None:
    (tmp_path / "proc/7").mkdir(parents=True)
    fields = ["S", *["0"] * 10, "250", "50", *["0"] * 6, "1000", "0", "300", "0"]
    (tmp_path / "proc/7/stat").write_text(f"7 (a (b) c) {' '.join(fields)}\n")
    (tmp_path / "proc/uptime").write_text("16.00 30.00\n")
    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGESIZE")
    usage = process_usage(7, tmp_path)
    assert usage == ProcessUsage(300 / ticks, 16 - 1000 / ticks, 300 * page)
    assert process_usage(8, tmp_path) is None


def test_cpu_share_is_measured_since_the_last_reading() -> None:
    first, second = ProcessUsage(10.0, 20.0, 1), ProcessUsage(13.0, 22.0, 1)
    assert first.cpu_share(None) == 0.5
    assert second.cpu_share(first) == 1.5
    assert first.cpu_share(first) is None


def test_cpu_and_memory_of_a_running_process_are_measured(tmp_path: Path) -> None:
    path = write_run(tmp_path / "a", RUNNING, ROWS)
    monitor = RunMonitor(path)
    with (path / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        before = monitor.read()
        started = time.process_time()
        while time.process_time() - started < 0.2:
            pass
        after = monitor.read()
    assert before.cpu_share is not None
    assert after.cpu_share is not None
    assert 0.05 < after.cpu_share < 5
    assert after.memory_bytes == pytest.approx(resident_memory(), rel=0.2)
    ended = monitor.read()
    assert (ended.state, ended.cpu_share) == ("interrupted", None)
