"""Local training: reproducible, resumable anywhere, honest about what goes wrong."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rl4sys.environments.actor import Actor
from rl4sys.environments.evaluate import LONGEST_EPISODE
from rl4sys.errors import CheckpointError, ConfigError, NumericalError, RunError
from rl4sys.experiment.metrics import read_metrics
from rl4sys.experiment.run import Run
from rl4sys.experiment.tree import split
from rl4sys.trainer import Errand, Trainer
from rl4sys.trajectory import Trajectory

from .conftest import Silent, small_config

MakeTrainer = Callable[..., Trainer]


def fingerprint(trainer: Trainer) -> tuple[str, dict[str, bytes]]:
    """Everything a trainer holds, in a form that compares bit for bit."""
    document, arrays = split(trainer.state())
    return json.dumps(document), {name: array.tobytes() for name, array in arrays.items()}


def weights(trainer: Trainer) -> dict[str, np.ndarray]:
    return dict(trainer._learner.snapshot().weights)


def test_two_runs_of_one_seed_are_identical(make_trainer: MakeTrainer, algorithm: str) -> None:
    first, second = (make_trainer(algorithm) for _ in range(2))
    first.train()
    second.train()
    assert first.progress().version > 3, "nothing was learnt, so equality would prove nothing"
    assert fingerprint(first) == fingerprint(second)
    assert first._run.metrics.read_bytes() == second._run.metrics.read_bytes()


def test_runs_of_different_seeds_differ(make_trainer: MakeTrainer, algorithm: str) -> None:
    first, second = (make_trainer(algorithm, f"experiment.seed={seed}") for seed in (1, 2))
    first.train()
    second.train()
    a, b = weights(first), weights(second)
    assert not any(np.array_equal(a[name], b[name]) for name in a if name.endswith("weight") and "join" not in name)
    assert first._run.metrics.read_bytes() != second._run.metrics.read_bytes()


@pytest.mark.parametrize("stop_after", [1, 2, 5, 7])
def test_a_run_stopped_anywhere_resumes_as_if_never_stopped(
    make_trainer: MakeTrainer, algorithm: str, stop_after: int
) -> None:
    straight = make_trainer(algorithm)
    straight.train()

    class StopsAfter(Silent):
        rounds = 0

        def progress(self, progress: Any) -> None:
            self.rounds += 1
            if self.rounds == stop_after:
                stopped.stop()

    stopped = make_trainer(algorithm, observer=StopsAfter())
    stopped.train()
    assert stopped.progress().steps < straight.progress().steps
    resumed = make_trainer(algorithm, run=Run.open(stopped._run.path))
    resumed.resume()
    resumed.train()
    assert straight.progress().version > 3, "nothing was learnt, so equality would prove nothing"
    assert fingerprint(resumed) == fingerprint(straight)
    assert resumed._run.metrics.read_bytes() == straight._run.metrics.read_bytes()


@pytest.mark.parametrize("change", ["buffer.type=prioritized", "buffer.storage=disk"])
def test_a_run_with_another_buffer_resumes_as_if_never_stopped(make_trainer: MakeTrainer, change: str) -> None:
    def stop() -> None:
        stopped.stop()

    straight = make_trainer("dqn", change)
    straight.train()
    stopped = make_trainer("dqn", change, observer=Calls(stop, at=20))
    stopped.train()
    assert stopped.progress().steps < straight.progress().steps
    resumed = make_trainer("dqn", run=Run.open(stopped._run.path))
    resumed.resume()
    resumed.train()
    assert straight.progress().steps > 300, "the ring should have wrapped"
    assert fingerprint(resumed) == fingerprint(straight)
    assert resumed._run.metrics.read_bytes() == straight._run.metrics.read_bytes()


def test_the_comparison_of_resumed_runs_notices_one_forgotten_random_number(make_trainer: MakeTrainer) -> None:
    straight = make_trainer("ppo")
    straight.train()
    stopped = make_trainer("ppo", "training.total_timesteps=400")
    stopped.train()
    stopped._run.reconfigure(small_config("ppo"))
    resumed = make_trainer("ppo", run=stopped._run)
    resumed.resume()
    resumed._actor._draws.uniforms(1)
    resumed.train()
    assert fingerprint(resumed) != fingerprint(straight)


def test_training_leaves_the_random_numbers_of_the_process_alone(make_trainer: MakeTrainer, algorithm: str) -> None:
    torch.manual_seed(7)
    np.random.seed(7)  # noqa: NPY002 - the legacy generator is what must not be touched
    before = torch.get_rng_state(), np.random.get_state()[1].tolist()  # noqa: NPY002
    make_trainer(algorithm).train()
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == np.random.get_state()[1].tolist()  # noqa: NPY002


def test_metrics_hold_learning_evaluation_and_episodes(make_trainer: MakeTrainer, algorithm: str) -> None:
    trainer = make_trainer(algorithm)
    trainer.train()
    rows = read_metrics(trainer._run.metrics)
    evaluated = [row["step"] for row in rows if "evaluation/return" in row]
    assert len(evaluated) >= 3
    assert evaluated == sorted(evaluated)
    assert evaluated[-1] == trainer.progress().steps
    assert any(name.startswith("loss/") for row in rows for name in row)
    assert rows[-1]["episode/return"] > 1
    assert rows[-1]["learner/refused_steps"] == 0


def test_the_status_says_how_a_run_ended(make_trainer: MakeTrainer) -> None:
    trainer = make_trainer("ppo")
    trainer.train()
    status = json.loads((trainer._run.path / "status.json").read_text())
    assert status["status"] == "completed"
    assert status["steps"] >= 960
    assert status["best_evaluation_return"] >= status["evaluation_return"]


def test_a_damaged_newest_checkpoint_is_reported_and_the_one_before_is_used(make_trainer: MakeTrainer) -> None:
    straight = make_trainer("dqn")
    straight.train()
    path = straight._run.path / "checkpoints"
    newest = path / (path / "latest").readlink()
    content = bytearray((newest / "state.safetensors").read_bytes())
    content[len(content) // 2] ^= 1
    (newest / "state.safetensors").write_bytes(content)
    observer = Silent()
    again = make_trainer("dqn", run=Run.open(straight._run.path), observer=observer)
    again.resume()
    assert again.progress().steps < straight.progress().steps
    assert f"checkpoint {newest.name} is damaged: state.safetensors does not match its checksum" in observer.notes[0]
    again.train()
    assert fingerprint(again) == fingerprint(straight)


def test_with_every_checkpoint_damaged_resuming_names_them_all(make_trainer: MakeTrainer) -> None:
    trainer = make_trainer("ppo")
    trainer.train()
    for manifest in trainer._run.path.glob("checkpoints/step_*/manifest.json"):
        manifest.write_text("{")
    with pytest.raises(CheckpointError, match=r"no usable checkpoint in .*: checkpoint step_\d+ is damaged"):
        make_trainer("ppo", run=Run.open(trainer._run.path)).resume()


def test_a_run_in_use_is_refused_to_a_second_process(make_trainer: MakeTrainer) -> None:
    trainer = make_trainer("ppo")
    with trainer._run.locked(), pytest.raises(RunError, match="being trained by another process"):
        make_trainer("ppo", run=Run.open(trainer._run.path)).train()


def test_a_reward_that_is_not_a_number_stops_the_run_with_its_state_kept(
    make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    import gymnasium

    step = gymnasium.wrappers.TimeLimit.step
    calls = 0

    def broken(self: Any, action: Any) -> Any:
        nonlocal calls
        calls += 1
        observation, reward, *rest = step(self, action)
        return observation, float("nan") if calls == 250 else reward, *rest

    monkeypatch.setattr(gymnasium.wrappers.TimeLimit, "step", broken)
    observer = Silent()
    trainer = make_trainer("ppo", observer=observer)
    with pytest.raises(NumericalError, match=r"reward is nan at step \d+, \d+ steps into its episode: look at how"):
        trainer.train()
    assert json.loads((trainer._run.path / "status.json").read_text())["status"] == "failed"
    kept = next((trainer._run.path / "checkpoints").glob("failed_*"))
    assert str(kept.name) in observer.notes[-1]
    assert trainer._run.checkpoints.load(kept.name).state["steps"] > 0
    assert trainer._run.checkpoints.load().name.startswith("step_"), "a failure is not what resuming starts from"


def test_exploding_losses_stop_the_run_before_they_spoil_the_weights(make_trainer: MakeTrainer) -> None:
    trainer = make_trainer("dqn", "algorithm.lr=1e30", "environment.normalize_obs=false")
    with pytest.raises(NumericalError, match=r"(the loss 'td'|the gradient of '.*') is not finite at step \d+; likely"):
        trainer.train()
    assert all(np.isfinite(array).all() for array in weights(trainer).values())


def test_only_the_newest_checkpoints_and_the_best_stay(make_trainer: MakeTrainer) -> None:
    trainer = make_trainer("ppo", "training.keep_checkpoints=1", "training.checkpoint_frequency=96")
    trainer.train()
    folder: Path = trainer._run.path / "checkpoints"
    kept = {p.name for p in folder.glob("step_*")}
    assert kept == {(folder / "latest").readlink().name, (folder / "best").readlink().name}


def test_a_device_that_is_absent_falls_back_with_one_note(make_trainer: MakeTrainer) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has the device")
    observer = Silent()
    make_trainer("ppo", "experiment.device=cuda", observer=observer)
    assert observer.notes == ["experiment.device is cuda, which this machine does not have; training on cpu"]


class Calls(Silent):
    """Does something when a round is reported."""

    def __init__(self, action: Callable[[], None], at: int = 1) -> None:
        super().__init__()
        self._action, self._at, self._rounds = action, at, 0

    def progress(self, progress: Any) -> None:
        self._rounds += 1
        if self._rounds == self._at:
            self._action()


def test_a_stop_that_comes_between_rounds_loses_nothing(make_trainer: MakeTrainer) -> None:
    def stop() -> None:
        trainer.stop()

    trainer = make_trainer("dqn", "training.checkpoint_frequency=100000", observer=Calls(stop, at=5))
    trainer.train()
    assert trainer._run.checkpoints.load().state["steps"] == trainer.progress().steps > 0
    assert json.loads((trainer._run.path / "status.json").read_text())["status"] == "stopped"


@pytest.mark.parametrize("which", ["first", "last"])
def test_a_stop_in_the_middle_of_an_evaluation_is_made_up_for(
    make_trainer: MakeTrainer, algorithm: str, which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So many that they do not all end in the first round of acting.
    episodes = "training.num_eval_episodes=40"
    straight = make_trainer(algorithm, episodes)
    straight.train()
    stopped = make_trainer(algorithm, episodes)
    collect = Actor.collect

    def collect_and_stop(self: Actor, policy: Any, version: int, steps: int) -> Any:
        if self is not stopped._actor and (which == "first" or stopped._trained):
            stopped.stop()
        return collect(self, policy, version, steps)

    monkeypatch.setattr(Actor, "collect", collect_and_stop)
    stopped.train()
    monkeypatch.undo()
    assert stopped.progress().evaluated_at != stopped.progress().steps
    assert json.loads((stopped._run.path / "status.json").read_text())["status"] == "stopped"
    resumed = make_trainer(algorithm, run=Run.open(stopped._run.path))
    resumed.resume()
    resumed.train()
    assert fingerprint(resumed) == fingerprint(straight)
    assert resumed._run.metrics.read_bytes() == straight._run.metrics.read_bytes()


def test_a_failure_in_the_last_round_is_no_success(make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = make_trainer("ppo", "training.total_timesteps=96")

    def fail(*_: Any, **__: Any) -> None:
        raise RunError("no space")

    monkeypatch.setattr(trainer, "_log_means", fail)
    with pytest.raises(RunError, match="no space"):
        trainer.train()
    assert json.loads((trainer._run.path / "status.json").read_text())["status"] == "failed"


def test_a_policy_that_goes_in_circles_is_judged_all_the_same(make_trainer: MakeTrainer) -> None:
    changes = ["environment.name=CliffWalking-v1", "environment.num_envs=1", "training.total_timesteps=96"]
    trainer = make_trainer("ppo", *changes, "training.num_eval_episodes=1")
    evaluation = trainer.train().evaluation
    assert evaluation is not None
    assert 0 < evaluation.lengths[0] <= LONGEST_EPISODE


def test_metrics_lost_with_the_power_do_not_spoil_those_to_come(make_trainer: MakeTrainer) -> None:
    trainer = make_trainer("ppo", "training.total_timesteps=400")
    trainer.train()
    trainer._run.metrics.unlink()
    trainer._run.reconfigure(small_config("ppo"))
    again = make_trainer("ppo", run=trainer._run)
    again.resume()
    again.train()
    assert read_metrics(trainer._run.metrics)[0]["step"] > 400


def test_hindsight_uses_the_reward_of_the_environment_and_resumes_exactly(make_trainer: MakeTrainer) -> None:
    def stop() -> None:
        stopped.stop()

    changes = ["environment.name=BitFlip", "environment.wrapper=goal", "buffer.type=her", "training.eval_frequency=400"]
    straight = make_trainer("dqn", *changes)
    straight.train()
    stopped = make_trainer("dqn", *changes, observer=Calls(stop, at=20))
    stopped.train()
    resumed = make_trainer("dqn", run=Run.open(stopped._run.path))
    resumed.resume()
    resumed.train()
    assert stopped.progress().steps < straight.progress().steps
    assert fingerprint(resumed) == fingerprint(straight)
    batch = straight._learner._buffer.sample(np.random.default_rng(0), 500)  # type: ignore[attr-defined]
    assert (batch["obs.desired_goal"] == batch["next_obs.achieved_goal"]).all(-1).mean() > 0.1, (
        "goals that were reached"
    )


PIPELINE = "training.pipeline=true"


def test_a_pipeline_learns_one_version_behind_and_loses_nothing(make_trainer: MakeTrainer) -> None:
    plain, ahead = make_trainer("ppo"), make_trainer("ppo", PIPELINE)
    plain.train()
    ahead.train()
    rows = [row for row in read_metrics(ahead._run.metrics) if "policy/staleness" in row]
    assert rows[-1]["policy/staleness"] == 1
    assert 0.5 < rows[-1]["policy/importance"] <= 1
    assert rows[-1]["learner/refused_steps"] == 0
    assert ahead.progress().version == plain.progress().version > 3
    assert ahead.progress().steps == plain.progress().steps
    assert ahead._learner.steps == ahead.progress().steps
    assert fingerprint(ahead) != fingerprint(plain)


def test_a_pipeline_has_its_threads_take_turns_often_and_leaves_python_as_it_was(
    make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, seen, collect = sys.getswitchinterval(), [], Trainer._collect

    def seeing(trainer: Trainer, errand: Errand) -> list[Trajectory]:
        seen.append(sys.getswitchinterval())
        return collect(trainer, errand)

    monkeypatch.setattr(Trainer, "_collect", seeing)
    make_trainer("ppo", PIPELINE).train()
    assert 0 < max(seen) < usual / 10
    assert sys.getswitchinterval() == usual


def test_two_runs_of_a_pipeline_are_identical(make_trainer: MakeTrainer) -> None:
    first, second = (make_trainer("ppo", PIPELINE) for _ in range(2))
    first.train()
    second.train()
    assert fingerprint(first) == fingerprint(second)
    assert first._run.metrics.read_bytes() == second._run.metrics.read_bytes()


@pytest.mark.parametrize("stop_after", [1, 2, 5, 7])
def test_a_pipeline_stopped_anywhere_resumes_as_if_never_stopped(make_trainer: MakeTrainer, stop_after: int) -> None:
    straight = make_trainer("ppo", PIPELINE)
    straight.train()

    def stop() -> None:
        stopped.stop()

    stopped = make_trainer("ppo", PIPELINE, observer=Calls(stop, at=stop_after))
    stopped.train()
    assert stopped._pending
    resumed = make_trainer("ppo", run=Run.open(stopped._run.path))
    resumed.resume()
    resumed.train()
    assert resumed.progress().finished
    assert fingerprint(resumed) == fingerprint(straight)
    assert resumed._run.metrics.read_bytes() == straight._run.metrics.read_bytes()


def test_the_best_checkpoint_of_a_pipeline_holds_the_policy_that_was_best(make_trainer: MakeTrainer) -> None:
    trainer = make_trainer("ppo", PIPELINE, "training.eval_frequency=64")
    trainer.train()
    assert not trainer._pending
    evaluated = [row["step"] for row in read_metrics(trainer._run.metrics) if "evaluation/return" in row]
    assert evaluated == sorted(set(evaluated)), "no step is judged twice"
    best = trainer._run.checkpoints.load("best").state
    returns = [episode[0] for episode in best["evaluation"]]
    assert np.mean(returns) == trainer._best


def test_what_goes_wrong_while_a_pipeline_learns_is_told(make_trainer: MakeTrainer) -> None:
    trainer = make_trainer("ppo", PIPELINE)
    learn, calls = trainer._learner.learn, []

    def fail(trajectories: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise NumericalError("the loss is not finite")
        return learn(trajectories)

    trainer._learner.learn = fail  # type: ignore[method-assign]
    with pytest.raises(NumericalError, match="the loss is not finite"):
        trainer.train()
    status = json.loads((trainer._run.path / "status.json").read_text())
    assert status["status"] == "failed"


def test_a_pipeline_is_for_algorithms_that_learn_from_rollouts() -> None:
    with pytest.raises(
        ConfigError, match=r"^training\.pipeline is for .* such as ppo; it does not go with the buffer uniform$"
    ):
        small_config("dqn", PIPELINE)
