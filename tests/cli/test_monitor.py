"""Tests of ``rl4sys monitor`` without a terminal, and of terminal plots."""

from __future__ import annotations

import fcntl
import json
import os
import re
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from rl4sys.cli.commands.monitor import MonitoredRuns
from rl4sys.cli.views.text_plots import format_compact, plot, sparkline

from ..runs.test_monitor import RUNNING, add_rows, alert, write_run
from .conftest import Rl4sys

ENDED = {**RUNNING, "status": "completed", "steps": 1000}


def rows(count: int = 20) -> list[dict[str, float]]:
    return [{"step": 50 * i, "episode/return": float(i), "evaluation/return": 2.0 * i} for i in range(1, count + 1)]


def test_folder_without_runs_suggests_a_command(rl4sys: Rl4sys) -> None:
    outcome = rl4sys("monitor", "--once")
    assert outcome.exit_code == 0
    assert "no runs in experiments; start one with `rl4sys train ppo_cartpole`" in outcome.out
    assert rl4sys("monitor", "--json").out == "[]\n"


def test_monitor_lists_runs_with_problems(rl4sys: Rl4sys, tmp_path: Path) -> None:
    write_run(tmp_path / "experiments/pole_1", ENDED, rows())
    dead = write_run(tmp_path / "experiments/sweep/pole_2", RUNNING, rows(5))
    (dead / "alerts.jsonl").write_text(alert("nan", "firing"))
    lines = rl4sys("monitor", "--once").out.splitlines()
    assert lines[0] == "0 running, 2 ended"
    first, second = (line.split() for line in lines[3:5])
    assert first[:4] == ["pole_2", "interrupted", 12 * "━", "25%"]
    assert second[:4] == ["pole_1", "completed", 12 * "━", "100%"]
    assert "▁▁▂▂▂▃▃▄▄▄▅▅▅▆▆▇▇▇██" in second
    assert {"ppo", "CartPole-v1", "7", "15"} <= set(second)
    assert lines[-1] == "pole_2: no process trains this run; continue with rl4sys train --resume"


def test_monitor_shows_one_run_in_detail(rl4sys: Rl4sys, tmp_path: Path) -> None:
    path = write_run(tmp_path / "experiments/pole_1", ENDED, rows())
    (path / "alerts.jsonl").write_text(alert("kl", "firing", "too far") + alert("kl", "cleared"))
    for name in ("pole_1", "experiments/pole_1"):
        out = rl4sys("monitor", name).out
        assert "ppo in CartPole-v1, seed 7" in out
        assert "1,000 of 1,000, version 3" in out
        assert "recent 20, evaluation 40, best 15" in out
        assert "20 ┤" in out
        assert "1,000 steps" in out
        assert "step 1  kl: too far" in out
        assert "step 1  kl has cleared" in out
        assert "problem" not in out
    (path / "alerts.jsonl").write_text(alert("kl", "firing", "too far"))
    assert re.search(r"\nproblem +kl: too far\n", re.sub(" +\n", "\n", rl4sys("monitor", "pole_1").out))


def test_monitor_json_contains_progress_and_metrics(rl4sys: Rl4sys, tmp_path: Path) -> None:
    write_run(tmp_path / "experiments/pole_1", ENDED, rows())
    (found,) = json.loads(rl4sys("monitor", "--json").out)
    assert (found["name"], found["state"], found["steps"], found["recent_return"]) == ("pole", "completed", 1000, 20)
    assert found["metrics"] == {"episode/return": 20.0, "evaluation/return": 40.0}


def test_old_runs_are_hidden_if_there_are_newer_runs(rl4sys: Rl4sys, tmp_path: Path) -> None:
    old = write_run(tmp_path / "experiments/old", ENDED, rows())
    os.utime(old / "status.json", (0, 0))
    assert "old" in rl4sys("monitor", "--once").out
    write_run(tmp_path / "experiments/new", ENDED, rows())
    assert "old" not in rl4sys("monitor", "--once").out
    assert "old" in rl4sys("monitor", "--once", "--all").out


def test_trial_is_labeled_with_sweep_name(rl4sys: Rl4sys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(tmp_path / "experiments/ppo_sweep_20260101-000000/trial_007", ENDED, rows())
    assert "\nppo_sweep_20260101-000000/trial_007 " in rl4sys("monitor", "--once").out
    monkeypatch.setenv("COLUMNS", "80")
    assert "\nppo_sweep_2026010…/trial_007 " in rl4sys("monitor", "--once").out


def test_folder_of_runs_can_be_monitored(rl4sys: Rl4sys, tmp_path: Path) -> None:
    write_run(tmp_path / "experiments/sweep/a", ENDED, rows())
    write_run(tmp_path / "experiments/b", ENDED, rows())
    out = rl4sys("monitor", "experiments/sweep", "--once").out
    assert "0 running, 1 ended" in out


def test_monitor_rejects_unknown_run(rl4sys: Rl4sys, tmp_path: Path) -> None:
    outcome = rl4sys("monitor", "nobody", "--once")
    assert outcome.exit_code == 2
    assert "nobody" in outcome.err


@pytest.mark.parametrize("width", [60, 80, 90, 100, 112, 120, 130, 140, 180])
@pytest.mark.parametrize("chosen", [[], ["experiments/ppo_cartpole_20260101-000000"]])
def test_output_fits_width_of_terminal(
    tmp_path: Path, width: int, chosen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "experiments/ppo_cartpole_20260101-000000", RUNNING, rows())
    console = Console(width=width, height=50, file=StringIO(), force_terminal=False)
    console.print(MonitoredRuns(chosen, Path("experiments"), everything=True).view(console))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert max(map(len, lines)) <= width
    if width >= 80:
        assert any("ppo_cartpole_20260101-000000" in line for line in lines), "the name is not truncated"
        assert any("▁" in line and "█" in line for line in lines)


def test_cpu_and_memory_of_running_runs_are_shown(tmp_path: Path) -> None:
    path = write_run(tmp_path / "pole", RUNNING, rows())
    write_run(tmp_path / "ended", ENDED, rows())
    monitored = MonitoredRuns([], tmp_path, everything=False)
    with (path / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for chosen in (monitored, MonitoredRuns([str(path)], tmp_path, everything=False)):
            console = Console(width=140, height=50, file=StringIO(), force_terminal=False)
            console.print(chosen.view(console))
            text = console.file.getvalue()  # type: ignore[attr-defined]
            assert "cpu" in text
            assert "memory" in text
            line = next(line for line in text.splitlines() if re.search(r"\d+%.*\d [MG]B|^cpu +\d+%", line))
            assert "ended" not in line
    found = {run.path.name: (run.cpu_share, run.memory_bytes) for run in monitored.read()}
    assert found["ended"][0] is None


def test_monitor_shows_new_rows_and_runs(tmp_path: Path) -> None:
    path = write_run(tmp_path / "a", ENDED, rows(3))
    monitored = MonitoredRuns([], tmp_path, everything=False)
    assert monitored.read()[0].recent_return == 3
    add_rows(path, [{"step": 900, "episode/return": 99.0}])
    write_run(tmp_path / "b", ENDED, rows(3))
    assert {summary.path.name: summary.recent_return for summary in monitored.read()} == {"a": 99.0, "b": 3.0}


def test_sparkline_averages_values() -> None:
    assert sparkline([0, 0, 7, 7], 2) == "▁█"
    assert sparkline([1, 2, 3], 8) == "▁▅█"
    assert sparkline([5, 5], 8) == "▄▄"
    assert sparkline([float("nan"), 1, 2], 8) == "▁█"
    assert sparkline([], 8) == sparkline([float("inf")], 8) == ""


def test_plot_is_labeled_with_range_and_steps() -> None:
    assert plot([(0, 0.0), (100, 10.0)], width=14, height=4) == [
        "10 ┤⠀⠀⠀⠀⠀⠀⢀⡠⠔⠊",
        "   ┤⠀⠀⠀⢀⠤⠒⠁⠀⠀⠀",
        " 0 ┤⡠⠔⠊⠁⠀⠀⠀⠀⠀⠀",
        "    0 100 steps",
    ]
    assert plot([], 10, 5) == plot([(1, float("nan"))], 10, 5) == ["no data yet"]
    assert all(len(line) == 30 for line in plot([(i, i % 7) for i in range(500)], 30, 8))


def test_interval_is_plotted_with_dotted_lines() -> None:
    assert plot([(0, 0.0), (100, 10.0)], width=14, height=4, dotted=[[(0, 10.0), (100, 20.0)]]) == [
        "20 ┤⠀⠀⠀⠀⡀⠀⠄⠀⠂⠀",
        "   ┤⠄⠀⠂⠀⠀⠀⠀⣀⣀⠤",
        " 0 ┤⣀⠤⠤⠒⠒⠉⠉⠀⠀⠀",
        "    0 100 steps",
    ]


def test_numbers_are_formatted_with_few_characters() -> None:
    numbers = [None, 0.0, 40.0, 1.23456, 123.456, 12345.6, 1e8, 1e-5, float("nan")]
    assert [format_compact(number) for number in numbers] == [
        "", "0", "40", "1.23", "123.5", "12,346", "1.00e+08", "1.00e-05", "nan"
    ]  # fmt: skip
