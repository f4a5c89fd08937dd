"""Tests of ``initialize_from``, which copies the weights of another run to a new run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rl4sys
from rl4sys.errors import ConfigError, RL4SysError
from rl4sys.verification.verify import verify

SMALL = {"total_timesteps": 512, "progress": False, "buffer": {"size": 256}}


def train(root: Path, **changes: Any) -> Any:
    settings = {"algorithm": "ppo", "environment": "CartPole-v1", **SMALL, **changes}
    return rl4sys.train(root=root, **settings)


def weights(run: Any, checkpoint: str) -> dict[str, Any]:
    networks: dict[str, Any] = run._run.checkpoints.load(checkpoint).state["learner"]["algorithm"]["networks"]
    return networks


def first_checkpoint(run: Any) -> dict[str, Any]:
    return weights(run, run.checkpoints[0])


def test_new_run_starts_with_the_weights_of_another(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = train(tmp_path, seed=1)
    started = train(tmp_path, seed=2, initialize_from=str(source.path))
    wanted, found = weights(source, "latest"), first_checkpoint(started)
    assert wanted.keys() == found.keys()
    assert all(np.array_equal(wanted[name], found[name]) for name in wanted)
    assert not all(np.array_equal(wanted[name], array) for name, array in first_checkpoint(train(tmp_path)).items())
    assert f"copied {len(wanted)} of {len(wanted)} weight arrays from {source.path}" in caplog.text


def test_source_given_by_the_name_of_both_runs_is_the_earlier_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = train(tmp_path, seed=1)
    name = source.config.experiment.name
    for started in train(tmp_path, seed=[2, 3], initialize_from=name):
        assert started.config.initialize_from == f"{source.path}@latest"
    assert caplog.text.count(f"weight arrays from {source.path}") == 2


def test_checkpoint_of_the_source_can_be_selected(tmp_path: Path) -> None:
    source = train(tmp_path, seed=1)
    started = train(tmp_path, seed=2, initialize_from=f"{source.id}@{source.checkpoints[0]}")
    wanted, found = first_checkpoint(source), first_checkpoint(started)
    assert all(np.array_equal(wanted[name], found[name]) for name in wanted)
    assert not all(np.array_equal(weights(source, "latest")[name], found[name]) for name in wanted)


def test_arrays_of_other_shapes_keep_their_initial_values(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = train(tmp_path, seed=1)
    started = train(tmp_path, seed=2, environment="Acrobot-v1", initialize_from=str(source.path))
    wanted, found = weights(source, "latest"), first_checkpoint(started)
    same = {name for name in wanted if wanted[name].shape == found[name].shape}
    assert same
    assert same < wanted.keys()
    assert all(np.array_equal(wanted[name], found[name]) for name in same)
    assert "initial values are kept for networks." in caplog.text


def test_observation_statistics_are_copied(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    normalized = {"environment.normalize_obs": True}
    source = train(tmp_path, seed=1, **normalized)
    started = train(tmp_path, seed=2, initialize_from=str(source.path), **normalized)
    states = [
        run._run.checkpoints.load(name).state["learner"]["observations"]
        for run, name in ((source, "latest"), (started, started.checkpoints[0]))
    ]
    assert str(states[0]) == str(states[1])
    assert "and the observation statistics" in caplog.text


def test_initialized_run_resumes_and_is_verified_without_its_source_directory(tmp_path: Path) -> None:
    source = train(tmp_path / "a", seed=1)
    started = train(tmp_path / "b", seed=2, initialize_from=str(source.path))
    assert verify(started._run).identical
    source.path.rename(tmp_path / "moved")
    assert rl4sys.load_run(started.path).resume(1024, progress=False).steps == 1024


@pytest.mark.parametrize(
    ("source", "message"),
    [("nowhere", "nowhere"), ("{run}@step_9", "no checkpoint 'step_9'")],
    ids=["no run", "no checkpoint"],
)
def test_invalid_source_is_rejected_and_leaves_no_run(tmp_path: Path, source: str, message: str) -> None:
    run = train(tmp_path, seed=1)
    with pytest.raises(RL4SysError, match=message):
        train(tmp_path, seed=2, initialize_from=source.format(run=run.path))
    assert len(rl4sys.find_runs(root=tmp_path)) == 1


def test_source_of_another_algorithm_is_rejected(tmp_path: Path) -> None:
    source = train(tmp_path, algorithm="dqn", buffer={"size": 1000})
    with pytest.raises(ConfigError, match="has no weights that fit this run"):
        train(tmp_path, initialize_from=str(source.path))
