"""Verification of local runs: identical runs, location and size of differences, likely reasons."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl4sys import tensors
from rl4sys.config import load, override, to_yaml
from rl4sys.errors import RunError
from rl4sys.runs.run import Run
from rl4sys.training.loop import TrainingLoop
from rl4sys.verification.report import VerificationReport
from rl4sys.verification.verify import verify

from ..conftest import SilentObserver, small_config

EVERY_ROUND = ("training.checkpoint_frequency=1", "training.keep_checkpoints=100", "training.total_timesteps=480")


def train(root: Path, algorithm: str, *changes: str, observer: Any = None) -> Path:
    run = Run.create(root, small_config(algorithm, *changes), datetime.now())
    observer = observer or SilentObserver()
    loop = observer.loop = TrainingLoop(run, observer)
    loop.train()
    return run.path


def train_further(path: Path, total_timesteps: int) -> None:
    run = Run.open(path)
    training = run.config.training.model_copy(update={"total_timesteps": total_timesteps})
    run.reconfigure(run.config.model_copy(update={"training": training}))
    loop = TrainingLoop(run, SilentObserver())
    loop.resume()
    loop.train()


def edit(path: Path, *changes: str) -> None:
    """Change the stored config file, as a user might."""
    file = path / "configs/config.yaml"
    file.write_text(to_yaml(override(load(file), changes)))


def verify_path(path: Path, **options: Any) -> VerificationReport:
    return verify(Run.open(path), **options)


class StopAt(SilentObserver):
    loop: TrainingLoop

    def __init__(self, step: int) -> None:
        super().__init__()
        self._step = step

    def progress(self, progress: Any) -> None:
        if progress.steps >= self._step:
            self.loop.stop()


@pytest.fixture(scope="module")
def ppo_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """PPO run with a checkpoint after every round."""
    return train(tmp_path_factory.mktemp("ppo"), "ppo", *EVERY_ROUND)


@pytest.fixture
def copy(ppo_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(ppo_run, tmp_path / "copy", symlinks=True))


@pytest.mark.parametrize("algorithm", ["ppo", "dqn", "sac"])
def test_repeated_run_is_identical(tmp_path: Path, algorithm: str) -> None:
    path = train(tmp_path, algorithm, "training.total_timesteps=400")
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    report = verify_path(path)
    assert report.identical, report.differences
    assert report.steps == report.of_steps >= 400
    rows = (path / "metrics.jsonl").read_text().count("\n")
    digests = (path / "digests.jsonl").read_text().count("\n")
    assert digests > 2
    assert report.compared.records == {"metrics": rows, "experience": digests, "checkpoint": 3, "policy": 3}
    assert report.compared.leaves > 100
    assert report.reasons == ()
    after = {file: file.read_bytes() for file in path.rglob("*") if file.is_file() and file.name != ".lock"}
    assert after == {file: content for file, content in before.items() if file.name != ".lock"}


def test_repeated_pipeline_run_is_identical(tmp_path: Path) -> None:
    path = train(tmp_path, "ppo", "training.total_timesteps=400", "training.pipeline=true")
    report = verify_path(path)
    assert report.identical, report.differences
    assert report.steps == report.of_steps >= 400


def test_changed_hyperparameter_is_detected_at_first_update(copy: Path) -> None:
    edit(copy, "algorithm.gae_lambda=0.5")
    report = verify_path(copy)
    assert report.first[0].step == 96
    assert report.agreed_until == 0
    assert {difference.part for difference in report.first} == {"checkpoint", "policy"}
    assert "learner/algorithm/networks/critic.output.weight" in {difference.name for difference in report.first}
    assert report.reasons == (
        "configs/config.yaml was changed after the run started: algorithm.gae_lambda was 0.95 and is 0.5",
    )
    assert report.steps < report.of_steps, "the repetition should stop at the first difference in the metrics"


def test_changed_evaluation_setting_is_detected_at_first_evaluation(copy: Path) -> None:
    edit(copy, "training.num_eval_episodes=3")
    report = verify_path(copy)
    assert report.first[0].step == 384
    assert report.agreed_until == 288
    assert {d.name for d in report.first if d.part == "metrics"} >= {"evaluation/return", "evaluation/length"}
    assert not [d for d in report.first if d.part == "experience"]


def test_changed_seed_is_detected_before_first_step(copy: Path) -> None:
    edit(copy, "experiment.seed=4")
    report = verify_path(copy)
    assert report.first[0].step == 0
    assert report.agreed_until is None
    assert "actor/draws/key" in {difference.name for difference in report.first}
    assert report.reasons == ("configs/config.yaml was changed after the run started: experiment.seed was 3 and is 4",)


def test_changed_seed_is_detected_in_experience_without_checkpoints(copy: Path) -> None:
    shutil.rmtree(copy / "checkpoints")
    (copy / "checkpoints").mkdir()
    edit(copy, "experiment.seed=4")
    report = verify_path(copy)
    assert report.first[0].step == 192
    assert report.first[0].part == "experience"


def flip_bit(run: Path, name: str, tensor: str) -> None:
    """Flip one bit of a weight and update the checksum."""
    folder = run / "checkpoints" / name
    arrays, _ = tensors.decode((folder / "state.safetensors").read_bytes())
    weights = {key: array.copy() for key, array in arrays.items()}
    weights[tensor].reshape(-1).view(np.uint32)[1] ^= 1 << 20
    content = tensors.encode(weights, {})
    (folder / "state.safetensors").write_bytes(content)
    manifest = json.loads((folder / "manifest.json").read_bytes())
    manifest["sha256"]["state.safetensors"] = hashlib.sha256(content).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))


def test_flipped_bit_is_detected_in_its_checkpoint(copy: Path) -> None:
    flip_bit(copy, "step_000000000288", "/learner/algorithm/networks/actor.hidden.layers.0.weight")
    report = verify_path(copy)
    assert [d.step for d in report.differences] == [288]
    found = report.first[0]
    assert (found.part, found.name) == ("checkpoint", "learner/algorithm/networks/actor.hidden.layers.0.weight")
    assert (found.elements, found.of_elements) == (1, 32)
    assert found.largest == pytest.approx(abs(float(found.recorded) - float(found.repeated)), rel=1e-5)
    assert report.agreed_until == 192
    assert report.steps == report.of_steps, "a difference in a checkpoint does not end the comparison"
    assert "everything after step 288 is identical" in report.reasons[0]


def test_changed_metric_is_detected_in_its_row(copy: Path) -> None:
    rows = [json.loads(line) for line in (copy / "metrics.jsonl").read_text().splitlines()]
    changed = [row for row in rows if "loss/value" in row][1]
    changed["loss/value"] += 1e-9
    (copy / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    report = verify_path(copy)
    assert [(d.step, d.part, d.name) for d in report.differences if d.part == "metrics"] == [
        (changed["step"], "metrics", "loss/value")
    ]
    assert report.first[0].largest == pytest.approx(1e-9, rel=1e-3)
    assert "no known condition changed" in report.reasons[0]


@pytest.mark.parametrize("removed", [1, -1])
def test_removed_metrics_row_is_detected(copy: Path, removed: int) -> None:
    lines = (copy / "metrics.jsonl").read_text().splitlines(keepends=True)
    step = json.loads(lines[removed])["step"]
    del lines[removed]
    (copy / "metrics.jsonl").write_text("".join(lines))
    found = [d for d in verify_path(copy).first if d.part == "metrics"]
    assert [(d.step, d.name) for d in found] == [(step, "row")]


def test_added_metrics_row_is_detected(copy: Path) -> None:
    with (copy / "metrics.jsonl").open("a") as file:
        file.write('{"step": 480, "loss/policy": 0.0}\n')
    found = verify_path(copy).first
    assert [(d.step, d.part, d.recorded, d.repeated) for d in found] == [(480, "metrics", "present", "absent")]


def test_steps_option_limits_the_repetition(copy: Path) -> None:
    flip_bit(copy, "step_000000000288", "/learner/algorithm/networks/actor.hidden.layers.0.weight")
    report = verify_path(copy, steps=150)
    assert report.identical
    assert (report.steps, report.of_steps) == (192, 480)


def test_stopped_run_is_repeated_to_its_last_step(tmp_path: Path) -> None:
    path = train(tmp_path, "dqn", observer=StopAt(300))
    report = verify_path(path)
    assert report.identical
    assert 300 <= report.steps == report.of_steps < 800


def test_run_stopped_during_evaluation_is_identical(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stopping(SilentObserver):
        loop: TrainingLoop

        def progress(self, progress: Any) -> None:
            # Stop during the evaluation of the next round.
            if progress.steps == 288:
                self.loop._evaluate = stopped  # type: ignore[method-assign]

    from rl4sys.environments.evaluation import EvaluationStopped

    def stopped() -> bool:
        observer.loop.stop()
        raise EvaluationStopped

    observer = Stopping()
    report = verify_path(train(tmp_path, "ppo", observer=observer))
    assert report.identical
    assert report.steps == 384
    assert report.not_compared == ("results of the evaluation at step 384, which was interrupted by a stop",)


def test_resumed_run_is_identical(tmp_path: Path) -> None:
    path = train(tmp_path, "sac", observer=StopAt(200))
    train_further(path, 800)
    assert verify_path(path, steps=400).identical


def test_extended_run_is_repeated_in_two_attempts(tmp_path: Path) -> None:
    path = train(tmp_path, "ppo", "training.total_timesteps=288")
    train_further(path, 576)
    assert verify_path(path).identical
    # The learning rate decays to 0 at the end of training, so a single attempt gives different results.
    provenance = json.loads((path / "configs/provenance.json").read_text())
    provenance["resumed"] = []
    (path / "configs/provenance.json").write_text(json.dumps(provenance))
    edited = verify_path(path)
    assert not edited.identical
    assert edited.reasons[0].endswith("training.total_timesteps was 288 and is 576")


def test_shorter_repetition_is_reported_as_difference(tmp_path: Path) -> None:
    rows = ("training.eval_frequency=96", "logging.frequency=96")
    path = train(tmp_path, "ppo", "algorithm.lr=1e-3", "training.total_timesteps=192", *rows)
    edit(path, "training.total_timesteps=96")
    report = verify_path(path)
    assert ("length", "continued to step 192", "ended") in {(d.name, d.recorded, d.repeated) for d in report.first}


def test_resume_without_recorded_total_timesteps_is_reported(copy: Path) -> None:
    provenance = json.loads((copy / "configs/provenance.json").read_text())
    del provenance["config"]
    provenance["resumed"] = [{"started": "2026-01-01T00:00:00"}]
    (copy / "configs/provenance.json").write_text(json.dumps(provenance))
    report = verify_path(copy)
    assert report.identical
    assert "did not record total_timesteps" in report.reasons[0]


def test_changed_packages_and_machine_are_reported(copy: Path) -> None:
    provenance = json.loads((copy / "configs/provenance.json").read_text())
    provenance["packages"]["torch"] = "1.0"
    provenance["cpu"], provenance["native_core"] = "an abacus", not provenance["native_core"]
    (copy / "configs/provenance.json").write_text(json.dumps(provenance))
    report = verify_path(copy, steps=100, threads=2)
    text = "\n".join(report.reasons)
    assert "torch was 1.0 and is 2" in text
    assert "the processor was an abacus and is" in text
    assert "the native core was" in text


def test_numerical_error_in_repetition_is_reported_as_difference(copy: Path) -> None:
    edit(copy, "algorithm.lr=1e30")
    report = verify_path(copy)
    assert not report.identical
    assert report.differences[0].step == 96


def test_missing_or_corrupt_records_are_rejected(copy: Path, verification_error: Callable[[Path], str]) -> None:
    (copy / "metrics.jsonl").write_text("{}\n")
    assert "metrics.jsonl is damaged" in verification_error(copy)
    for file in ("metrics.jsonl", "digests.jsonl"):
        (copy / file).unlink()
    shutil.rmtree(copy / "checkpoints")
    assert "has neither metrics nor checkpoints" in verification_error(copy)


def test_step_limit_before_first_record_is_rejected(copy: Path) -> None:
    shutil.rmtree(copy / "checkpoints/step_000000000000")
    with pytest.raises(RunError, match="no records to compare up to step 0; its first record is at step 96"):
        verify_path(copy, steps=0)


@pytest.fixture
def verification_error() -> Callable[[Path], str]:
    def verify_and_fail(path: Path) -> str:
        with pytest.raises(RunError) as problem:
            verify_path(path)
        return str(problem.value)

    return verify_and_fail
