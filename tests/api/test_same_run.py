"""Runs are identical in Python, on the command line and in a notebook; models are identical from both servers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import nbformat
import numpy as np
from nbclient import NotebookClient

import rl4sys
from rl4sys.runs.checkpoint import CheckpointStore
from rl4sys.runs.run import Run
from tests.live import running_server

STEPS = 4096
CALL = f'rl4sys.train("ppo_cartpole", seed=5, total_timesteps={STEPS}, root="runs", **{{"algorithm.lr": 1e-3}})'


def results(root: Path) -> tuple[bytes, bytes]:
    """Return the metrics and the weights of the only run below ``root``."""
    (run,) = [path for path in root.iterdir() if Run.exists(path)]
    checkpoint = CheckpointStore(run / "checkpoints").resolve("latest")
    return (run / "metrics.jsonl").read_bytes(), (run / "checkpoints" / checkpoint / "state.safetensors").read_bytes()


def run_in_python(folder: Path) -> None:
    subprocess.run([sys.executable, "-c", f"import rl4sys\n{CALL}"], cwd=folder, check=True, capture_output=True)


def run_in_shell(folder: Path) -> None:
    command = ["train", "ppo_cartpole", "--seed", "5", f"training.total_timesteps={STEPS}", "algorithm.lr=1e-3"]
    line = [sys.executable, "-m", "rl4sys", *command, "--root", "runs"]
    subprocess.run(line, cwd=folder, check=True, capture_output=True)


def run_in_notebook(folder: Path) -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(f"import rl4sys\n{CALL}")])
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(folder)}}).execute()


def test_runs_in_python_shell_and_notebook_are_identical(tmp_path: Path) -> None:
    found = {}
    for start in (run_in_python, run_in_shell, run_in_notebook):
        folder = tmp_path / start.__name__
        folder.mkdir()
        start(folder)
        found[start.__name__] = results(folder / "runs")
    assert found["run_in_python"] == found["run_in_shell"] == found["run_in_notebook"]
    metrics, weights = found["run_in_python"]
    assert metrics.count(b"\n") > 3
    rl4sys.train("ppo_cartpole", seed=6, total_timesteps=STEPS, root=tmp_path / "other", progress=False)
    assert results(tmp_path / "other")[1] != weights, "another seed gives other weights"


def learn_live(address: str) -> None:
    """Send 256 steps of a deterministic system, and wait for each new model so that the experience is reproducible."""
    settings = {"seed": 3, "max_staleness": 0, "patience_seconds": 60.0, "server.timeout_seconds": 60.0}
    algorithm = {"name": "ppo", "epochs": 2, "minibatch_size": 32}
    observations = np.random.default_rng(0).normal(size=(257, 4)).astype(np.float32)
    with rl4sys.Agent(
        address, observation=4, action=2, client_id="same", algorithm=algorithm, buffer={"size": 64}, **settings
    ) as agent:
        assert agent.wait_for_model(60.0)
        trajectory = None
        for observation in observations[:-1]:
            trajectory, action = agent.request_for_action(trajectory, observation)
            assert action.fallback_reason is None
            agent.add_to_trajectory(trajectory, action)
            action.update_reward(float(observation[action.act]))
        agent.request_for_action(trajectory, observations[-1])
        assert agent.flush(60.0)


def model_bytes(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((root / "same" / "versions").iterdir())}


def test_models_of_both_servers_are_identical(tmp_path: Path) -> None:
    with rl4sys.serve(port=0, root=tmp_path / "inside") as server:
        learn_live(server.address)
    with running_server(tmp_path / "process") as process:
        learn_live(process.address)
        process.stop()
    inside, process_models = model_bytes(tmp_path / "inside"), model_bytes(tmp_path / "process")
    assert len(inside) > 2
    assert inside == process_models
