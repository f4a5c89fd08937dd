"""Runs of several seeds, trained in parallel, are the same as those of one after the other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import rl4sys
from rl4sys.errors import ConfigError, RunError
from tests.api.thermostat import Thermostat

COMMAND = [sys.executable, "-m", "rl4sys", "train", "ppo_cartpole", "--seed", "1,2,3", "--root", "runs"]


def metrics(root: Path) -> dict[int, bytes]:
    return {run.seed: (run.path / "metrics.jsonl").read_bytes() for run in rl4sys.find_runs(root=root)}


def test_parallel_runs_equal_sequential_runs(tmp_path: Path) -> None:
    for name, jobs in (("parallel", 2), ("sequential", 1)):
        runs = rl4sys.train("ppo_cartpole", seed=[1, 2, 3], jobs=jobs, total_timesteps=2048, root=tmp_path / name)
        assert [run.seed for run in runs] == [1, 2, 3]
        assert [run.status for run in runs] == ["completed"] * 3
    found = metrics(tmp_path / "parallel")
    assert found == metrics(tmp_path / "sequential")
    assert len({*found.values()}) == 3


def test_command_trains_seeds_in_parallel(tmp_path: Path) -> None:
    line = [*COMMAND, "--jobs", "3", "training.total_timesteps=1024"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "seed 3: completed, 1,024 steps" in done.stdout
    assert sorted(metrics(tmp_path / "runs")) == [1, 2, 3]


def test_interrupted_parallel_runs_are_saved_and_resumed(tmp_path: Path) -> None:
    line = [*COMMAND, "--jobs", "2", "training.total_timesteps=4000000"]
    with subprocess.Popen(line, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        deadline = time.monotonic() + 60
        while not any(run.steps > 0 for run in rl4sys.find_runs(root=tmp_path / "runs")):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        os.kill(process.pid, signal.SIGINT)
        output = process.stdout.read()
    assert process.returncode == 130, output
    assert "stopped; resume each run" in output
    stopped = next(run for run in rl4sys.find_runs(root=tmp_path / "runs") if run.steps > 0)
    assert stopped.status == "stopped"
    assert stopped.resume(stopped.steps + 256, progress=False).status == "completed"


def test_failed_run_is_reported_and_others_are_completed(tmp_path: Path) -> None:
    block = {"name": "tests.sweeps.test_parallel:FailsOnce", "options": {"marker": str(tmp_path / "marker")}}
    with pytest.raises(RunError, match=r"(?s)the run with seed \d failed: .*first step"):
        rl4sys.train(
            algorithm="ppo", environment=block, seed=[1, 2], jobs=2, total_timesteps=256, root=tmp_path / "runs"
        )
    assert sorted(run.status for run in rl4sys.find_runs(root=tmp_path / "runs")) == ["completed", "failed"]


class FailsOnce(Thermostat):
    """Environment whose first step in any process fails."""

    def __init__(self, marker: str) -> None:
        super().__init__()
        self._marker = Path(marker)

    def step(self, action: int) -> Any:
        with suppress(FileExistsError):
            self._marker.touch(exist_ok=False)
            raise RuntimeError("first step")
        return super().step(action)


def test_local_environment_and_callbacks_need_one_job(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="child processes cannot import the environment"):
        rl4sys.train(algorithm="ppo", environment=lambda: Thermostat(22.0), seed=[1, 2], jobs=2, root=tmp_path)
    with pytest.raises(ConfigError, match="callbacks run in this process only"):
        rl4sys.train("ppo_cartpole", seed=[1, 2], jobs=2, callbacks=print, root=tmp_path)
    assert list(tmp_path.iterdir()) == []
