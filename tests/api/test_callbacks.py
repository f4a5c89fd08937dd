"""Tests of callbacks, which can observe and stop runs but do not change the results."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import rl4sys
from rl4sys.errors import ConfigError
from rl4sys.training.progress import Progress
from tests.api.test_same_run import results


class Recorder(rl4sys.Callback):
    """Callback that records all calls and draws from the global random generators."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    def on_round(self, progress: Progress) -> None:
        import numpy as np
        import torch

        np.random.rand(), torch.rand(1)  # noqa: NPY002 - must not change the run
        self.calls.append(("round", progress.steps))

    def on_evaluation(self, progress: Progress) -> None:
        assert progress.evaluation is not None
        self.calls.append(("evaluation", progress.evaluated_at))

    def on_checkpoint(self, path: Path) -> None:
        assert (path / "policy.safetensors").exists()
        self.calls.append(("checkpoint", path.name))


def train(root: Path, name: str = "ppo_cartpole", **arguments: Any) -> Any:
    steps = {"total_timesteps": 2048, "training": {"eval_frequency": 1024, "checkpoint_frequency": 1024}}
    return rl4sys.train(name, root=root, progress=False, **{**steps, **arguments})


@pytest.mark.parametrize("name", ["ppo_cartpole", "dqn_cartpole"])
def test_run_is_bit_identical_with_and_without_callbacks(tmp_path: Path, name: str) -> None:
    recorder = Recorder()
    train(tmp_path / "with", name, callbacks=recorder)
    train(tmp_path / "without", name)
    assert results(tmp_path / "with") == results(tmp_path / "without")
    counts = Counter(kind for kind, _ in recorder.calls)
    assert counts["round"] > 1
    assert counts["evaluation"] == 2
    assert counts["checkpoint"] >= 2


def test_callback_stops_the_run_and_resume_continues_exactly(tmp_path: Path) -> None:
    stopped = train(tmp_path / "stopped", callbacks=lambda progress: progress.steps < 1024)
    assert stopped.status == "stopped"
    assert 1024 <= stopped.steps < 2048
    stopped.resume(progress=False)
    train(tmp_path / "whole")
    assert results(tmp_path / "stopped") == results(tmp_path / "whole")


def test_run_stops_at_the_given_return(tmp_path: Path) -> None:
    run = train(tmp_path, total_timesteps=100_000, callbacks=rl4sys.StopAtReturn(30.0))
    assert run.steps < 50_000
    assert run.reward >= 30.0


def test_run_stops_without_improvement(tmp_path: Path) -> None:
    arguments = {"callbacks": rl4sys.StopWithoutImprovement(2), "algorithm.lr": 1e-12}
    run = train(tmp_path, total_timesteps=100_000, **arguments)
    assert run.status == "stopped"
    assert run.steps < 50_000


def test_exception_in_a_callback_ends_the_run_with_its_traceback(tmp_path: Path) -> None:
    def broken(progress: Progress) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        train(tmp_path, callbacks=broken)
    (run,) = rl4sys.find_runs(root=tmp_path)
    assert run.status == "failed"


@pytest.mark.parametrize("callback", [7, rl4sys.Callback, "stop"], ids=["number", "class", "text"])
def test_invalid_callback_is_rejected(tmp_path: Path, callback: Any) -> None:
    with pytest.raises(ConfigError, match=r"expected instances of rl4sys\.Callback"):
        train(tmp_path, callbacks=callback)
    assert not tmp_path.exists() or list(tmp_path.iterdir()) == []
