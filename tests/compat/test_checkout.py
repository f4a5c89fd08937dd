"""Scripts and modules at the root of a checkout, called as documented."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rl4sys.config import to_yaml

from ..conftest import ROOT, SMALL


def python(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run Python in the directory ``cwd``, with the checkout on the module search path."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory in which scripts/train.py trained one run."""
    folder = tmp_path_factory.mktemp("checkout")
    (folder / "small.yaml").write_text(to_yaml(SMALL["ppo"]))
    done = python(ROOT / "scripts/train.py", "--config", "small.yaml", "--total_timesteps", "192", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


def run_of(folder: Path) -> Path:
    (run,) = (path for path in (folder / "experiments").iterdir() if path.is_dir())
    return run


def test_run_is_resumed_by_a_path_prefix(trained: Path) -> None:
    done = python(ROOT / "scripts/train.py", "--resume", "experiments/small_ppo_2/", cwd=trained)
    assert done.returncode == 0, done.stderr
    assert "has already finished its 192 steps" in done.stdout


def test_scripts_evaluate_and_analyze_a_run(trained: Path) -> None:
    evaluated = python(ROOT / "scripts/evaluate.py", run_of(trained), "--episodes", "1", cwd=trained)
    assert "mean return" in evaluated.stdout
    analyzed = python(ROOT / "scripts/analyze.py", run_of(trained), cwd=trained)
    assert "evaluation/return" in analyzed.stdout


def test_sweep_script_plans_the_shipped_sweep(tmp_path: Path) -> None:
    done = python(ROOT / "scripts/sweep.py", "--config", "configs/sweeps/ppo_sweep.yaml", "--dry-run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "27 trials" in done.stdout


def test_rlrepo_lists_compares_exports_and_cleans(trained: Path) -> None:
    name = run_of(trained).name
    listed = python("-m", "rlrepo", "list", "--filter", "algorithm=ppo", "--sort", "reward", cwd=trained)
    assert "small_ppo" in listed.stdout
    compared = python("-m", "rlrepo", "compare", name, name, "--metrics", "reward,loss", cwd=trained)
    assert compared.returncode == 0, compared.stderr
    exported = python("-m", "rlrepo", "export", name, "--format", "latex", cwd=trained)
    assert "\\begin{tabular}" in exported.stdout
    cleaned = python("-m", "rlrepo", "cleanup", "--keep-best", "10", "--keep-recent", "30", cwd=trained)
    assert "nothing to do" in cleaned.stdout


def test_quickstart_config_is_loaded_from_any_directory(tmp_path: Path) -> None:
    quickstart = "configs/quickstart/ppo_cartpole.yaml"
    done = python(ROOT / "scripts/train.py", "--config", quickstart, "--dry-run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "name: ppo_cartpole" in done.stdout


def test_example_simulates_a_checkpoint(trained: Path) -> None:
    checkpoint = sorted((run_of(trained) / "checkpoints").glob("step_*"))[-1]
    options = ("--max-path-length", "20", "--num-rollouts", "1", "--render-kwargs", '{"mode": "rgb_array"}')
    done = python("-m", "examples.development.simulate_policy", f"{checkpoint}/", *options, cwd=trained)
    assert done.returncode == 0, done.stderr
    assert "mean return" in done.stdout


def test_script_error_is_printed_as_a_message(tmp_path: Path) -> None:
    done = python(ROOT / "scripts/train.py", "--config", "nowhere.yaml", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("rl4sys: no config file 'nowhere.yaml'")


def test_tests_of_the_example_pass(tmp_path: Path) -> None:
    # Without the cache plugin, pytest creates no files in the checkout.
    done = python("-m", "pytest", "-q", "-p", "no:cacheprovider", "examples/development/main_test.py", cwd=ROOT)
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout or "[100%]" in done.stdout
