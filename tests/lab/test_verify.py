"""A run repeated: identical, or where it first differs, by how much and why."""

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
from rl4sys.experiment.run import Run
from rl4sys.lab.verdict import Verdict
from rl4sys.lab.verify import verify
from rl4sys.trainer import Trainer

from ..conftest import Silent, small_config

EVERY_ROUND = ("training.checkpoint_frequency=1", "training.keep_checkpoints=100", "training.total_timesteps=480")


def train(root: Path, algorithm: str, *changes: str, observer: Any = None) -> Path:
    run = Run.create(root, small_config(algorithm, *changes), datetime.now())
    observer = observer or Silent()
    trainer = observer.trainer = Trainer(run, observer)
    trainer.train()
    return run.path


def train_on(path: Path, total_timesteps: int) -> None:
    run = Run.open(path)
    training = run.config.training.model_copy(update={"total_timesteps": total_timesteps})
    run.reconfigure(run.config.model_copy(update={"training": training}))
    trainer = Trainer(run, Silent())
    trainer.resume()
    trainer.train()


def edit(path: Path, *changes: str) -> None:
    """As a user would, in the stored config."""
    file = path / "configs/config.yaml"
    file.write_text(to_yaml(override(load(file), changes)))


def verified(path: Path, **options: Any) -> Verdict:
    return verify(Run.open(path), **options)


class StopsAt(Silent):
    trainer: Trainer

    def __init__(self, step: int) -> None:
        super().__init__()
        self._step = step

    def progress(self, progress: Any) -> None:
        if progress.steps >= self._step:
            self.trainer.stop()


@pytest.fixture(scope="module")
def ppo_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a checkpoint after every round."""
    return train(tmp_path_factory.mktemp("ppo"), "ppo", *EVERY_ROUND)


@pytest.fixture
def copy(ppo_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(ppo_run, tmp_path / "copy", symlinks=True))


@pytest.mark.parametrize("algorithm", ["ppo", "dqn", "sac"])
def test_a_run_repeats_identically(tmp_path: Path, algorithm: str) -> None:
    path = train(tmp_path, algorithm, "training.total_timesteps=400")
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    verdict = verified(path)
    assert verdict.identical, verdict.differences
    assert verdict.steps == verdict.of_steps >= 400
    rows = (path / "metrics.jsonl").read_text().count("\n")
    digests = (path / "digests.jsonl").read_text().count("\n")
    assert digests > 2
    assert verdict.compared.things == {"metrics": rows, "experience": digests, "checkpoint": 3, "policy": 3}
    assert verdict.compared.leaves > 100
    assert verdict.reasons == ()
    after = {file: file.read_bytes() for file in path.rglob("*") if file.is_file() and file.name != ".lock"}
    assert after == {file: content for file, content in before.items() if file.name != ".lock"}


def test_a_pipeline_repeats_identically(tmp_path: Path) -> None:
    path = train(tmp_path, "ppo", "training.total_timesteps=400", "training.pipeline=true")
    verdict = verified(path)
    assert verdict.identical, verdict.differences
    assert verdict.steps == verdict.of_steps >= 400


def test_a_changed_hyper_parameter_is_found_at_the_first_update(copy: Path) -> None:
    edit(copy, "algorithm.gae_lambda=0.5")
    verdict = verified(copy)
    assert verdict.first[0].step == 96
    assert verdict.agreed_until == 0
    assert {difference.part for difference in verdict.first} == {"checkpoint", "policy"}
    assert "learner/algorithm/networks/critic.output.weight" in {difference.name for difference in verdict.first}
    assert verdict.reasons == (
        "configs/config.yaml was changed after the run began: algorithm.gae_lambda was 0.95 and is 0.5",
    )
    assert verdict.steps < verdict.of_steps, "it should have stopped where the metrics parted"


def test_a_setting_that_matters_late_is_found_late(copy: Path) -> None:
    edit(copy, "training.num_eval_episodes=3")
    verdict = verified(copy)
    assert verdict.first[0].step == 384
    assert verdict.agreed_until == 288
    assert {d.name for d in verdict.first if d.part == "metrics"} >= {"evaluation/return", "evaluation/length"}
    assert not [d for d in verdict.first if d.part == "experience"]


def test_a_changed_seed_is_found_before_the_first_step(copy: Path) -> None:
    edit(copy, "experiment.seed=4")
    verdict = verified(copy)
    assert verdict.first[0].step == 0
    assert verdict.agreed_until is None
    assert "actor/draws/key" in {difference.name for difference in verdict.first}
    assert verdict.reasons == ("configs/config.yaml was changed after the run began: experiment.seed was 3 and is 4",)


def test_a_changed_seed_shows_in_experience_where_no_checkpoint_is_left(copy: Path) -> None:
    shutil.rmtree(copy / "checkpoints")
    (copy / "checkpoints").mkdir()
    edit(copy, "experiment.seed=4")
    verdict = verified(copy)
    assert verdict.first[0].step == 192
    assert verdict.first[0].part == "experience"


def flip(run: Path, name: str, tensor: str) -> None:
    """Change one weight by one bit, and the checksum with it."""
    folder = run / "checkpoints" / name
    arrays, _ = tensors.decode((folder / "state.safetensors").read_bytes())
    weights = {key: array.copy() for key, array in arrays.items()}
    weights[tensor].reshape(-1).view(np.uint32)[1] ^= 1 << 20
    content = tensors.encode(weights, {})
    (folder / "state.safetensors").write_bytes(content)
    manifest = json.loads((folder / "manifest.json").read_bytes())
    manifest["sha256"]["state.safetensors"] = hashlib.sha256(content).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))


def test_one_flipped_weight_is_found_in_its_checkpoint(copy: Path) -> None:
    flip(copy, "step_000000000288", "/learner/algorithm/networks/actor.hidden.layers.0.weight")
    verdict = verified(copy)
    assert [d.step for d in verdict.differences] == [288]
    found = verdict.first[0]
    assert (found.part, found.name) == ("checkpoint", "learner/algorithm/networks/actor.hidden.layers.0.weight")
    assert (found.elements, found.of_elements) == (1, 32)
    assert found.largest == pytest.approx(abs(float(found.recorded) - float(found.repeated)), rel=1e-5)
    assert verdict.agreed_until == 192
    assert verdict.steps == verdict.of_steps, "a checkpoint alone does not end the comparison"
    assert "all that came after step 288 is the same again" in verdict.reasons[0]


def test_one_changed_digit_of_a_metric_is_found_in_its_row(copy: Path) -> None:
    rows = [json.loads(line) for line in (copy / "metrics.jsonl").read_text().splitlines()]
    changed = [row for row in rows if "loss/value" in row][1]
    changed["loss/value"] += 1e-9
    (copy / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    verdict = verified(copy)
    assert [(d.step, d.part, d.name) for d in verdict.differences if d.part == "metrics"] == [
        (changed["step"], "metrics", "loss/value")
    ]
    assert verdict.first[0].largest == pytest.approx(1e-9, rel=1e-3)
    assert "nothing that is known of differs" in verdict.reasons[0]


@pytest.mark.parametrize("lost", [1, -1])
def test_a_lost_row_is_found(copy: Path, lost: int) -> None:
    lines = (copy / "metrics.jsonl").read_text().splitlines(keepends=True)
    step = json.loads(lines[lost])["step"]
    del lines[lost]
    (copy / "metrics.jsonl").write_text("".join(lines))
    found = [d for d in verified(copy).first if d.part == "metrics"]
    assert [(d.step, d.name) for d in found] == [(step, "row")]


def test_an_invented_row_is_found(copy: Path) -> None:
    with (copy / "metrics.jsonl").open("a") as file:
        file.write('{"step": 480, "loss/policy": 0.0}\n')
    found = verified(copy).first
    assert [(d.step, d.part, d.recorded, d.repeated) for d in found] == [(480, "metrics", "there", "absent")]


def test_only_the_first_steps_are_repeated_if_asked(copy: Path) -> None:
    flip(copy, "step_000000000288", "/learner/algorithm/networks/actor.hidden.layers.0.weight")
    verdict = verified(copy, steps=150)
    assert verdict.identical
    assert (verdict.steps, verdict.of_steps) == (192, 480)


def test_a_stopped_run_is_repeated_to_where_it_got(tmp_path: Path) -> None:
    path = train(tmp_path, "dqn", observer=StopsAt(300))
    verdict = verified(path)
    assert verdict.identical
    assert 300 <= verdict.steps == verdict.of_steps < 800


def test_a_run_stopped_within_an_evaluation_is_identical(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stopping(Silent):
        trainer: Trainer

        def progress(self, progress: Any) -> None:
            # The next round's evaluation is asked whether to go on.
            if progress.steps == 288:
                self.trainer._evaluate = stopped  # type: ignore[method-assign]

    from rl4sys.environments.evaluate import EvaluationStopped

    def stopped() -> bool:
        observer.trainer.stop()
        raise EvaluationStopped

    observer = Stopping()
    verdict = verified(train(tmp_path, "ppo", observer=observer))
    assert verdict.identical
    assert verdict.steps == 384
    assert verdict.not_compared == ("what the evaluation at step 384 decides, which a stop broke off",)


def test_a_resumed_run_is_identical(tmp_path: Path) -> None:
    path = train(tmp_path, "sac", observer=StopsAt(200))
    train_on(path, 800)
    assert verified(path, steps=400).identical


def test_a_run_made_longer_is_repeated_in_its_two_lives(tmp_path: Path) -> None:
    path = train(tmp_path, "ppo", "training.total_timesteps=288")
    train_on(path, 576)
    assert verified(path).identical
    # The learning rate falls to 0 at the end of training, so one life would not have come out the same.
    provenance = json.loads((path / "configs/provenance.json").read_text())
    provenance["resumed"] = []
    (path / "configs/provenance.json").write_text(json.dumps(provenance))
    edited = verified(path)
    assert not edited.identical
    assert edited.reasons[0].endswith("training.total_timesteps was 288 and is 576")


def test_a_run_whose_repetition_ends_before_it_differs(tmp_path: Path) -> None:
    rows = ("training.eval_frequency=96", "logging.frequency=96")
    path = train(tmp_path, "ppo", "algorithm.lr=1e-3", "training.total_timesteps=192", *rows)
    edit(path, "training.total_timesteps=96")
    verdict = verified(path)
    assert ("length", "went on to step 192", "ended") in {(d.name, d.recorded, d.repeated) for d in verdict.first}


def test_a_resume_that_an_earlier_release_did_not_note_is_named(copy: Path) -> None:
    provenance = json.loads((copy / "configs/provenance.json").read_text())
    del provenance["config"]
    provenance["resumed"] = [{"started": "2026-01-01T00:00:00"}]
    (copy / "configs/provenance.json").write_text(json.dumps(provenance))
    verdict = verified(copy)
    assert verdict.identical
    assert "did not note with how many steps to go" in verdict.reasons[0]


def test_other_versions_and_machines_are_named(copy: Path) -> None:
    provenance = json.loads((copy / "configs/provenance.json").read_text())
    provenance["packages"]["torch"] = "1.0"
    provenance["cpu"], provenance["native_core"] = "an abacus", not provenance["native_core"]
    (copy / "configs/provenance.json").write_text(json.dumps(provenance))
    verdict = verified(copy, steps=100, threads=2)
    text = "\n".join(verdict.reasons)
    assert "torch was 1.0 and is 2" in text
    assert "the processor was an abacus and is" in text
    assert "the native core, which acts, was" in text


def test_numbers_that_fail_only_in_the_repetition_are_a_difference(copy: Path) -> None:
    edit(copy, "algorithm.lr=1e30")
    verdict = verified(copy)
    assert not verdict.identical
    assert verdict.differences[0].step == 96


def test_what_cannot_be_verified_is_told(copy: Path, refused: Callable[[Path], str]) -> None:
    (copy / "metrics.jsonl").write_text("{}\n")
    assert "metrics.jsonl is damaged" in refused(copy)
    for file in ("metrics.jsonl", "digests.jsonl"):
        (copy / file).unlink()
    shutil.rmtree(copy / "checkpoints")
    assert "has neither metrics nor checkpoints" in refused(copy)


def test_a_part_without_records_is_told(copy: Path) -> None:
    shutil.rmtree(copy / "checkpoints/step_000000000000")
    with pytest.raises(RunError, match="nothing to compare up to step 0; its first record is of step 96"):
        verified(copy, steps=0)


@pytest.fixture
def refused() -> Callable[[Path], str]:
    def refuse(path: Path) -> str:
        with pytest.raises(RunError) as problem:
            verified(path)
        return str(problem.value)

    return refuse
