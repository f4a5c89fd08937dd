"""``--debug``: the same run, seen from close by."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from rl4sys.errors import NumericalError
from rl4sys.experiment.run import Run
from rl4sys.lab.debug import DebugTrainer, MemoryWatch, small
from rl4sys.trainer import Trainer

from ..conftest import Silent, small_config

MakeTrainer = Callable[..., Trainer]


@pytest.fixture
def debugged(make_trainer: MakeTrainer, tmp_path: Path) -> Callable[..., DebugTrainer]:
    def make(algorithm: str, *changes: str, observer: Any = None) -> DebugTrainer:
        run = Run.create_at(tmp_path / "debugged", small_config(algorithm, *changes), datetime.now())
        return DebugTrainer(run, observer or Silent())

    return make


@pytest.mark.parametrize("algorithm", ["ppo", "dqn", "sac"])
def test_a_debugged_run_measures_what_a_plain_one_does(
    make_trainer: MakeTrainer, debugged: Callable[..., DebugTrainer], algorithm: str
) -> None:
    # Whole updates in the core are not to be looked into: torch makes them then, which differs in the last digits.
    changes = (SHORT, "experiment.backend=torch")
    plain, seen = make_trainer(algorithm, *changes), debugged(algorithm, *changes)
    plain.train()
    seen.train()
    assert plain.progress().version > 2
    assert seen._run.metrics.read_bytes() == plain._run.metrics.read_bytes()
    assert seen._run.digests.read_bytes() == plain._run.digests.read_bytes()


SHORT = "training.total_timesteps=400"


def test_what_was_seen_is_in_the_logs(debugged: Callable[..., DebugTrainer]) -> None:
    trainer = debugged("dqn", SHORT)
    trainer.train()
    events = EventAccumulator(str(trainer.folder), size_guidance={"histograms": 0})
    events.Reload()
    histograms, figures = events.Tags()["histograms"], events.Tags()["scalars"]
    layer = "critic.network.hidden.layers.0"
    assert {f"weights/{layer}.weight", f"gradients/{layer}.weight", f"activations/{layer}.relu"} <= set(histograms)
    assert {"memory/resident_bytes", f"dead/{layer}.relu", f"gradient_norm/{layer}.weight"} <= set(figures)
    assert not any(name.startswith("weights/target") for name in histograms)
    assert len(events.Histograms(f"weights/{layer}.weight")) > 2
    trace = json.loads((trainer.folder / "trace.json").read_text())
    names = {event.get("name", "") for event in trace["traceEvents"]}
    assert "aten::linear" in names
    assert any(name.startswith("autograd::engine::evaluate_function") for name in names)


def test_the_profile_accounts_for_every_kind_of_work(debugged: Callable[..., DebugTrainer]) -> None:
    trainer = debugged("ppo", SHORT)
    assert trainer.profile() == []
    trainer.train()
    spent = {one.what: one for one in trainer.profile()}
    assert set(spent) == {
        "environment",
        "acting",
        "buffer",
        "update: forward",
        "update: backward",
        "update: optimiser",
        "checks of --debug",
        "evaluation",
        "logging",
        "checkpoint",
        "everything else",
    }
    rounds = trainer.progress().steps // 96
    assert spent["environment"].times == spent["update: forward"].times == rounds
    assert spent["acting"].times == 32 * rounds
    written = json.loads((trainer.folder / "profile.json").read_text())
    assert [row["what"] for row in written] == [one.what for one in trainer.profile()]


def test_a_finding_is_told_once(debugged: Callable[..., DebugTrainer]) -> None:
    observer = Silent()
    trainer = debugged("ppo", SHORT, "environment.name=MountainCar-v0", observer=observer)
    trainer._inspection._outputs.findings = lambda: iter([("dead x", "half of x is dead")])  # type: ignore[method-assign]
    trainer.train()
    assert [note for note in observer.notes if "half of x is dead" in note] == ["at step 192: half of x is dead"]
    assert (trainer.folder / "findings.txt").read_text().endswith("half of x is dead\n")


def test_numbers_that_fail_leave_the_profile_and_the_state_behind(debugged: Callable[..., DebugTrainer]) -> None:
    trainer = debugged("ppo", SHORT, "algorithm.lr=1e38")
    with pytest.raises(NumericalError, match=r"networks\.(actor|critic)"):
        trainer.train()
    assert (trainer.folder / "profile.json").is_file()
    assert list((trainer._run.path / "checkpoints").glob("failed_*"))


def test_debug_makes_a_run_small_unless_told_otherwise() -> None:
    config = small_config("dqn", "training.total_timesteps=1000000", "training.num_eval_episodes=10")
    made, said = small(config, [])
    assert (made.training.total_timesteps, made.training.num_eval_episodes) == (5064, 2)
    assert said[0].startswith("--debug makes training.total_timesteps 5,064 instead of 1,000,000")
    kept, said = small(config, ["training.total_timesteps", "training.num_eval_episodes"])
    assert kept == config
    assert said == []
    assert small(small_config("ppo"), []) == (small_config("ppo"), [])


def test_memory_that_only_grows_is_told() -> None:
    watch = MemoryWatch(expected_bytes=50 * 10**6)
    assert watch.see(0, 300 * 10**6) == []
    assert watch.see(1000, 440 * 10**6) == []
    [(_, text)] = watch.see(2000, 460 * 10**6)
    assert text == (
        "memory grew by 160.0 MB to 460.0 MB since step 0, and the buffer takes 50.0 MB at most: something keeps what "
        "it should let go"
    )
    assert watch.see(3000, 470 * 10**6) == []
