"""Tests of ``rl4sys train --debug``."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from rl4sys.cli.views.profile import show_profile
from rl4sys.diagnostics.debug import DebugTrainingLoop, RamMonitor, shrink_config, tagged_as_debug
from rl4sys.errors import NumericalError
from rl4sys.machine import format_bytes
from rl4sys.runs.run import Run
from rl4sys.training.loop import TrainingLoop

from ..conftest import SilentObserver, small_config

MakeLoop = Callable[..., TrainingLoop]


@pytest.fixture
def debugged(make_loop: MakeLoop, tmp_path: Path) -> Callable[..., DebugTrainingLoop]:
    def make(algorithm: str, *changes: str, observer: Any = None) -> DebugTrainingLoop:
        run = Run.create_at(tmp_path / "debugged", small_config(algorithm, *changes), datetime.now())
        return DebugTrainingLoop(run, observer or SilentObserver())

    return make


@pytest.mark.parametrize("algorithm", ["ppo", "dqn", "sac"])
def test_debug_does_not_change_metrics(
    make_loop: MakeLoop, debugged: Callable[..., DebugTrainingLoop], algorithm: str
) -> None:
    # --debug computes updates with torch, which rounds differently from the native core, so both runs use torch.
    changes = (SHORT, "experiment.backend=torch")
    plain, seen = make_loop(algorithm, *changes), debugged(algorithm, *changes)
    plain.train()
    seen.train()
    assert plain.progress().version > 2
    assert seen._run.metrics.read_bytes() == plain._run.metrics.read_bytes()
    assert seen._run.digests.read_bytes() == plain._run.digests.read_bytes()


SHORT = "training.total_timesteps=400"


def test_histograms_scalars_and_trace_are_written(debugged: Callable[..., DebugTrainingLoop]) -> None:
    loop = debugged("dqn", SHORT)
    loop.train()
    events = EventAccumulator(str(loop.folder), size_guidance={"histograms": 0})
    events.Reload()
    histograms, scalars = events.Tags()["histograms"], events.Tags()["scalars"]
    layer = "critic.network.hidden.layers.0"
    assert {f"weights/{layer}.weight", f"gradients/{layer}.weight", f"activations/{layer}.relu"} <= set(histograms)
    assert {"memory/resident_bytes", f"dead/{layer}.relu", f"gradient_norm/{layer}.weight"} <= set(scalars)
    assert not any(name.startswith("weights/target") for name in histograms)
    assert len(events.Histograms(f"weights/{layer}.weight")) > 2
    trace = json.loads((loop.folder / "trace.json").read_text())
    names = {event.get("name", "") for event in trace["traceEvents"]}
    assert "aten::linear" in names
    assert any(name.startswith("autograd::engine::evaluate_function") for name in names)


def test_profile_lists_all_phases(debugged: Callable[..., DebugTrainingLoop]) -> None:
    loop = debugged("ppo", SHORT)
    assert loop.profile() == []
    loop.train()
    phases = {one.phase: one for one in loop.profile()}
    assert set(phases) == {
        "environment",
        "acting",
        "buffer",
        "update: forward",
        "update: backward",
        "update: optimizer",
        "checks of --debug",
        "evaluation",
        "logging",
        "checkpoint",
        "everything else",
    }
    rounds = loop.progress().steps // 96
    assert phases["environment"].count == phases["update: forward"].count == rounds
    assert phases["acting"].count == 32 * rounds
    written = json.loads((loop.folder / "profile.json").read_text())
    assert [row["what"] for row in written] == [one.phase for one in loop.profile()]


def test_profile_contains_the_ram_of_each_phase(
    debugged: Callable[..., DebugTrainingLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    resident, measured = 10**8, DebugTrainingLoop._evaluate

    def evaluate(loop: DebugTrainingLoop) -> bool:
        nonlocal resident
        with loop._watch.phase("evaluation"):
            resident += 5_000_000
        return measured(loop)

    monkeypatch.setattr("rl4sys.diagnostics.debug.resident_memory", lambda: resident)
    monkeypatch.setattr(DebugTrainingLoop, "_evaluate", evaluate)
    loop = debugged("ppo", SHORT)
    loop.train()
    phases = {one.phase: one for one in loop.profile()}
    grown = phases["evaluation"].memory_growth
    assert grown == resident - 10**8 > 0
    assert sum(one.memory_growth for one in loop.profile()) == grown
    assert phases["evaluation"].memory_peak == resident
    assert all(one.memory_peak >= 10**8 for one in loop.profile())
    written = {row["what"]: row for row in json.loads((loop.folder / "profile.json").read_text())}
    assert written["evaluation"]["memory_growth_bytes"] == grown
    assert written["evaluation"]["memory_peak_bytes"] == resident
    shown = Console(file=StringIO(), width=120)
    show_profile(shown, loop)
    line = next(line for line in shown.file.getvalue().splitlines() if "evaluation" in line)  # type: ignore[attr-defined]
    assert f"+{format_bytes(grown)}" in line
    assert format_bytes(resident) in line


def test_repeated_finding_is_reported_once(debugged: Callable[..., DebugTrainingLoop]) -> None:
    observer = SilentObserver()
    loop = debugged("ppo", SHORT, "environment.name=MountainCar-v0", observer=observer)
    loop._inspection._outputs.findings = lambda: iter([("dead x", "half of x is dead")])  # type: ignore[method-assign]
    loop.train()
    assert [note for note in observer.notes if "half of x is dead" in note] == ["at step 192: half of x is dead"]
    assert (loop.folder / "findings.txt").read_text().endswith("half of x is dead\n")


def test_numerical_error_writes_profile_and_failure_checkpoint(debugged: Callable[..., DebugTrainingLoop]) -> None:
    loop = debugged("ppo", SHORT, "algorithm.lr=1e38")
    with pytest.raises(NumericalError, match=r"networks\.(actor|critic)"):
        loop.train()
    assert (loop.folder / "profile.json").is_file()
    assert list((loop._run.path / "checkpoints").glob("failed_*"))


def test_debug_shortens_training_unless_set_on_command_line() -> None:
    config = small_config("dqn", "training.total_timesteps=1000000", "training.num_eval_episodes=10")
    shrunk, messages = shrink_config(config, [])
    assert (shrunk.training.total_timesteps, shrunk.training.num_eval_episodes) == (5064, 2)
    assert messages[0].startswith("--debug sets training.total_timesteps to 5,064 instead of 1,000,000")
    kept, messages = shrink_config(config, ["training.total_timesteps", "training.num_eval_episodes"])
    assert kept == config
    assert messages == []
    assert shrink_config(small_config("ppo"), []) == (small_config("ppo"), [])


def test_reported_debug_files_exist(debugged: Callable[..., DebugTrainingLoop]) -> None:
    loop = debugged("ppo", "training.total_timesteps=1", "logging.frequency=1000000")
    assert loop.written() == []
    loop.train()
    expected = sorted(path.name for path in loop.folder.iterdir() if "tfevents" not in path.name)
    assert [name for name in loop.written() if name != "histograms"] == expected
    events = EventAccumulator(str(loop.folder))
    events.Reload()
    assert ("histograms" in loop.written()) == bool(events.Tags()["histograms"])


def test_debug_runs_are_tagged() -> None:
    config = small_config("ppo", "experiment.tags=[mine]")
    assert tagged_as_debug(config).experiment.tags == ["mine", "debug"]
    assert tagged_as_debug(tagged_as_debug(config)) == tagged_as_debug(config)


def test_growing_ram_usage_is_reported() -> None:
    monitor = RamMonitor(expected_bytes=50 * 10**6)
    assert monitor.check(0, 300 * 10**6) == []
    assert monitor.check(1000, 440 * 10**6) == []
    [(_, text)] = monitor.check(2000, 460 * 10**6)
    assert text == (
        "RAM usage grew by 160.0 MB to 460.0 MB since step 0, but the buffer takes at most 50.0 MB: "
        "possible memory leak"
    )
    assert monitor.check(3000, 470 * 10**6) == []
