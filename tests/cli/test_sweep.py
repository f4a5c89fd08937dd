"""Tests of ``rl4sys sweep``: trials in child processes that fail, or are killed and resumed."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

import pytest

from rl4sys.config import load, to_yaml
from rl4sys.runs.run import Run
from rl4sys.runs.store import RunStore

from ..conftest import SMALL
from .conftest import Rl4sys

# Environment whose instances, at their step 200, block on a named pipe or raise an error.
GATED = """
import os
import gymnasium
from rl4sys.registry import register_environment

@register_environment("NAME")
class Gated(gymnasium.Wrapper):
    def __init__(self, gate=""):
        super().__init__(gymnasium.make("CartPole-v1"))
        self._gate, self._steps = gate, 0

    def step(self, action):
        self._steps += 1
        if self._steps == 200 and self._gate == "broken":
            raise RuntimeError("the pole broke")
        if self._steps == 200 and os.path.exists(self._gate):
            open(self._gate).read()
        return super().step(action)
"""


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """Named pipe that blocks trials with its path as the environment option `gate`."""
    path = tmp_path / "gate"
    os.mkfifo(path)
    return path


@pytest.fixture
def sweep_file(tmp_path: Path) -> Callable[..., Path]:
    """Function that writes a sweep config with two learning rates and the given gates."""

    def write(gates: list[str], **more: object) -> Path:
        # A registered name cannot be reused in this process, so each test has its own.
        (tmp_path / "gated.py").write_text(GATED.replace("NAME", tmp_path.name))
        base = {**SMALL["ppo"], "plugins": ["gated.py"], "environment": {"name": tmp_path.name, "num_envs": 3}}
        (tmp_path / "base.yaml").write_text(to_yaml(base))
        sweep = {"environment.options.gate": gates, "algorithm.lr": [1e-3, 1e-2]}
        file = tmp_path / "gated_sweep.yaml"
        file.write_text(to_yaml({"base_config": "base.yaml", "sweep": sweep, "parallel_jobs": 2, **more}))
        return file

    return write


def trials_in(root: Path) -> list[Path]:
    return sorted(root.glob("*/trial_*"))


def series_in(root: Path) -> Path:
    (file,) = root.glob("*/sweep.yaml")
    return file.parent


def metrics(root: Path) -> dict[str, bytes]:
    return {trial.name: (trial / "metrics.jsonl").read_bytes() for trial in trials_in(root)}


def status(trial: Path) -> dict[str, object]:
    found = json.loads((trial / "status.json").read_bytes())
    assert isinstance(found, dict)
    return found


def attempts(trial: Path) -> int:
    return 1 + len(json.loads((trial / "configs/provenance.json").read_bytes()).get("resumed", []))


def process_of(trial: Path) -> int:
    return int(str(status(trial)["pid"]))


@contextmanager
def started(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process inside the context, and kill it at the end."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for_reader(gate: Path, process: subprocess.Popen[bytes]) -> int:
    """Wait until a trial blocks at the gate; return the descriptor that keeps it blocked."""
    while process.poll() is None:
        with suppress(OSError):
            return os.open(gate, os.O_WRONLY | os.O_NONBLOCK)
        time.sleep(0.005)
    pytest.fail("the sweep ended before a trial reached the gate")


def kill(pid: int) -> None:
    """Kill a process with SIGKILL and wait until it has ended."""
    descriptor = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    select.select([descriptor], [], [])
    os.close(descriptor)


def test_killed_sweep_has_the_same_results_after_resume(
    rl4sys: Rl4sys, sweep_file: Callable[..., Path], gate: Path, tmp_path: Path
) -> None:
    file = sweep_file(["", str(gate)])
    killed, straight = tmp_path / "killed", tmp_path / "straight"
    command = [sys.executable, "-m", "rl4sys", "sweep", str(file), "parallel_jobs=1", "--root", str(killed)]
    with started(command) as process:
        # Kill the first trial that blocks at the gate. The sweep resumes this trial, and the next trial blocks.
        writer = wait_for_reader(gate, process)
        kill(process_of(trials_in(killed)[2]))
        os.close(writer)
        writer = wait_for_reader(gate, process)
        before = {trial.name: (trial / "status.json").read_bytes() for trial in trials_in(killed)}
        running = os.pidfd_open(process_of(trials_in(killed)[3]))
        kill(process.pid)
        select.select([running], [], [])  # the trial ends with its sweep
        os.close(running)
    os.close(writer)
    gate.unlink()
    assert [json.loads(content)["status"] for content in before.values()] == [*["completed"] * 3, "running"]

    outcome = rl4sys("sweep", "--resume", series_in(killed), "parallel_jobs=2")
    assert outcome.exit_code == 0, outcome.err
    assert "4 trials, 3 already completed" in outcome.out
    assert rl4sys("sweep", file, "--root", straight).exit_code == 0

    assert metrics(killed) == metrics(straight)
    assert len(set(metrics(killed).values())) == 2, "results depend on the learning rate, not on the gate"
    assert [attempts(trial) for trial in trials_in(killed)] == [1, 1, 2, 2]
    assert all(status(trial)["status"] == "completed" for trial in trials_in(killed))
    for trial in trials_in(killed)[:3]:
        assert (trial / "status.json").read_bytes() == before[trial.name], "completed trials are not changed"
    ranking, unbroken = ((series_in(root) / "ranking.json").read_text() for root in (killed, straight))
    assert ranking == unbroken
    assert [run.name for run in RunStore(killed).runs()] == [f"gated_sweep_{point:03d}" for point in range(4)]
    assert not (series_in(killed) / "registry.db").exists(), "trials are in the index of the root"


def test_failed_trial_is_reported_and_retried_on_resume(
    rl4sys: Rl4sys, sweep_file: Callable[..., Path], tmp_path: Path
) -> None:
    file = sweep_file(["broken", ""], **{"sweep": {"environment.options.gate": ["broken", ""]}})
    outcome = rl4sys("sweep", file, "--root", tmp_path / "runs")
    failed, whole = trials_in(tmp_path / "runs")
    assert outcome.exit_code == 1
    assert f'(point 0: gate="broken", seed 3) failed: RuntimeError: the pole broke; output: {failed}' in outcome.out
    assert "1 of 2 trials failed; retry them:   rl4sys sweep --resume" in outcome.out
    assert 'raise RuntimeError("the pole broke")' in (failed / "output.log").read_text()
    assert (status(failed)["status"], status(failed)["error"]) == ("failed", "RuntimeError: the pole broke")
    assert status(whole)["status"] == "completed"
    assert re.search(r"│ 1    │ 1     │ \d+\.\d+\s+│ 1     │ gate=\"\"", outcome.out)
    again = rl4sys("sweep", "--resume", failed.parent)
    assert again.exit_code == 1
    assert (attempts(failed), attempts(whole)) == (2, 1)


def test_interrupt_saves_trials_and_prints_resume_command(
    rl4sys: Rl4sys, sweep_file: Callable[..., Path], gate: Path, tmp_path: Path
) -> None:
    def interrupt() -> None:
        writer = os.open(gate, os.O_WRONLY)
        os.kill(os.getpid(), signal.SIGINT)
        gate.unlink()
        os.close(writer)

    file = sweep_file([str(gate)])
    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    outcome = rl4sys("sweep", file, "parallel_jobs=1")
    interrupting.join()
    (trial,) = trials_in(tmp_path / "experiments")
    assert outcome.exit_code == 130
    assert f"stopped; resume:  rl4sys sweep --resume {trial.parent.relative_to(tmp_path)}" in outcome.out
    assert status(trial)["status"] == "stopped"
    assert Run.open(trial).checkpoints.resolve("latest") == f"step_{status(trial)['steps']:012d}"


def test_dry_run_lists_trials_and_writes_nothing(rl4sys: Rl4sys, tmp_path: Path) -> None:
    outcome = rl4sys("sweep", "--config", "ppo_sweep", "seeds=[1, 2]", "--dry-run")
    assert outcome.exit_code == 0, outcome.err
    assert re.search(r"53\s+│ 26\s+│ 2\s+│ 0\.001\s+│ 0\.3\s+│ \[256, 256\]", outcome.out)
    assert "54 trials of 27 points, " in outcome.out
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no sweep config given; try `rl4sys sweep ppo_sweep --dry-run`"),
        (["ppo_swep"], r"no config file 'ppo_swep', and no shipped sweep of that name; did you mean ppo_sweep\?"),
        (["ppo_cartpole"], "no shipped sweep of that name"),
        (
            ["ppo_sweep", "--resume", "here"],
            "the config 'ppo_sweep' cannot be combined with --resume, because a resumed sweep keeps its settings",
        ),
        (["--resume", "nowhere"], r"nowhere cannot be resumed: it has no sweep\.yaml"),
        (["ppo_sweep", "base_config=nothing"], "no config file 'nothing'"),
        (
            ["ppo_sweep", "algorithm.gama=1"],
            r"base_config configs/experiments/ppo_cartpole\.yaml: algorithm\.gama is not",
        ),
    ],
)
def test_invalid_arguments_are_rejected(rl4sys: Rl4sys, arguments: list[str], message: str) -> None:
    outcome = rl4sys("sweep", *arguments)
    assert outcome.exit_code == 2
    assert re.search(message, outcome.err)


def test_trial_settings_cannot_change_on_resume(
    rl4sys: Rl4sys, sweep_file: Callable[..., Path], tmp_path: Path
) -> None:
    from rl4sys.sweeps.series import read_base, read_series_config
    from rl4sys.sweeps.sweep import SweepConfig, create_sweep

    file = sweep_file([""])
    settings = read_series_config(SweepConfig, str(file), "sweeps", [])
    made = create_sweep(tmp_path / "runs", settings, read_base(settings, file), datetime.now())
    for change, message in {
        "seeds=[1]": "'seeds' cannot be changed when a sweep is resumed; start a new sweep. "
        "Settings that can be changed: parallel_jobs, retries, metric, direction",
        "parallel_jobs=none": "parallel_jobs is 'none'; expected an integer",
    }.items():
        outcome = rl4sys("sweep", "--resume", made.series.path, change)
        assert (outcome.exit_code, message in outcome.err) == (2, True)
    assert (
        "2 trials of 2 points" in rl4sys("sweep", "--resume", made.series.path.name, "--root", "runs", "--dry-run").out
    )


def test_best_config_of_a_sweep_can_be_trained(rl4sys: Rl4sys, sweep_file: Callable[..., Path], tmp_path: Path) -> None:
    file = sweep_file([""], sweep={"algorithm.lr": [1e-3]}, fixed={"training.total_timesteps": 96}, metric="reword")
    outcome = rl4sys("sweep", file)
    assert outcome.exit_code == 0
    message = r"no trial has the metric 'reword'\. Available metrics: episode/length, episode/return, evaluation"
    assert re.search(message, outcome.out)
    series = series_in(tmp_path / "experiments")
    assert "1 trials, 1 already completed" in rl4sys("sweep", "--resume", series, "metric=reward").out
    assert load(series / "best.yaml")["experiment"]["name"] == "gated_sweep_best"
    assert rl4sys("train", series / "best.yaml", "--root", "best").exit_code == 0
    (best,) = (tmp_path / "best").glob("gated_sweep_best_*")
    assert (best / "metrics.jsonl").read_bytes() == (series / "trial_000/metrics.jsonl").read_bytes()
