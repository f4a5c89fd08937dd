"""What can be seen of a run from its files."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any

import pytest

from rl4sys.config import to_yaml
from rl4sys.experiment.glance import Watched, last_word

SETTINGS: dict[str, Any] = {
    "experiment": {"name": "pole", "seed": 7},
    "algorithm": {"name": "ppo"},
    "environment": {"name": "CartPole-v1"},
    "training": {"total_timesteps": 1000},
}


def write_run(path: Path, status: dict[str, Any], rows: list[dict[str, Any]], **settings: Any) -> Path:
    """A run directory as training leaves it."""
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


def test_a_run_in_training_shows_how_far_it_is(tmp_path: Path) -> None:
    path = write_run(tmp_path / "pole_1", RUNNING, ROWS)
    with (path / ".lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        glance = Watched(path).look()
    assert (glance.name, glance.algorithm, glance.environment, glance.seed) == ("pole", "ppo", "CartPole-v1", 7)
    assert (glance.state, glance.steps, glance.total_steps, glance.share) == ("running", 250, 1000, 0.25)
    assert (glance.seconds_left, glance.recent_return, glance.evaluation, glance.best) == (15.0, 10.0, 15.0, 15.0)
    assert glance.row == {"episode/return": 10.0, "loss/value": 2.0, "evaluation/return": 15.0}
    assert glance.curves["episode/return"] == glance.reward_curve() == [(100, 10.0)]
    assert glance.memory_bytes is not None
    assert glance.memory_bytes > 10**6
    assert glance.problem == ""


def test_a_run_whose_process_is_gone_is_interrupted(tmp_path: Path) -> None:
    glance = Watched(write_run(tmp_path / "a", RUNNING, ROWS)).look()
    assert glance.state == "interrupted"
    assert glance.seconds_left is None
    assert glance.problem == "no process trains it any more: rl4sys train --resume goes on with it"


def test_looking_again_reads_what_was_added_and_notices_what_was_taken_back(tmp_path: Path) -> None:
    path = write_run(tmp_path / "a", RUNNING, ROWS)
    watched = Watched(path)
    watched.look()
    with (path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 300, "episode/ret')
    assert watched.look().curves["episode/return"] == [(100, 10.0)]
    with (path / "metrics.jsonl").open("a") as file:
        file.write('urn": 30.0}\n')
    assert watched.look().curves["episode/return"] == [(100, 10.0), (300, 30.0)]
    (path / "metrics.jsonl").write_text(json.dumps(ROWS[0]) + "\n")
    assert watched.look().curves["episode/return"] == [(100, 10.0)]


def test_of_very_many_rows_the_whole_course_is_kept(tmp_path: Path) -> None:
    rows = [{"step": step, "episode/return": float(step)} for step in range(10_000)]
    curve = Watched(write_run(tmp_path / "a", RUNNING, rows)).look().curves["episode/return"]
    steps = [step for step, _ in curve]
    assert 1000 <= len(curve) <= 2001
    assert steps == [*range(0, 9999, 8), 9999]


@pytest.mark.parametrize("damage", ["", "{", "[]", "null"])
def test_damaged_files_are_looked_past(tmp_path: Path, damage: str) -> None:
    path = write_run(tmp_path / "a", RUNNING, ROWS)
    (path / "status.json").write_text(damage)
    (path / "configs/config.yaml").write_text("]")
    add_rows(path, [])
    (path / "metrics.jsonl").write_bytes(b'{"step": 5, "x": 1}\n\xff\n{"step": "five"}\n[]\n{"step": 6, "x": 2}\n')
    glance = Watched(path).look()
    assert (glance.name, glance.state, glance.steps) == ("a", "created", 6)
    assert glance.curves == {"x": [(5, 1.0), (6, 2.0)]}


def alert(rule: str, status: str, message: str = "m") -> str:
    return json.dumps({"rule": rule, "status": status, "message": message, "step": 1}) + "\n"


def test_the_newest_alert_that_has_not_cleared_is_the_problem(tmp_path: Path) -> None:
    path = write_run(tmp_path / "a", {**RUNNING, "status": "stopped"}, ROWS)
    (path / "alerts.jsonl").write_text(
        alert("slow", "firing") + alert("nan", "firing", "loss") + alert("kl", "firing") + alert("kl", "cleared")
    )
    glance = Watched(path).look()
    assert glance.problem == "nan: loss"
    assert [a["rule"] for a in glance.alerts] == ["slow", "nan", "kl", "kl"]


def test_a_run_that_hangs_is_noticed_by_its_own_rule(tmp_path: Path) -> None:
    rules = {"quiet": {"kind": "no_progress", "seconds": 60.0}, "nan": None}
    path = write_run(tmp_path / "a", RUNNING, ROWS, alerts={"rules": rules})
    os.utime(path / "status.json", (0, 0))
    with (path / ".lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert Watched(path).look().problem.startswith("no_progress: no row for 1,")


def test_a_policy_of_a_server_has_no_end(tmp_path: Path) -> None:
    status = {"status": "stopped", "steps": 5, "total_timesteps": None}
    glance = Watched(write_run(tmp_path / "a", status, [], training={"total_timesteps": 10**12})).look()
    assert (glance.total_steps, glance.share) == (None, None)


def test_the_last_word_of_a_run_is_what_it_said_and_when(tmp_path: Path) -> None:
    path = write_run(tmp_path / "a", RUNNING, [])
    os.utime(path / "status.json", (5, 5))
    status, at = last_word(path)
    assert status == "running"
    assert at == pytest.approx(5.0, abs=1.0)
    (path / "status.json").unlink()
    os.utime(path / "configs/config.yaml", (7, 7))
    assert last_word(path) == ("created", 7.0)
    assert last_word(tmp_path / "nothing") == ("created", 0.0)
