"""Local training: reproducibility, exact resume and failures."""

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
from rl4sys.environments.actor_factory import MAX_EVALUATION_STEPS
from rl4sys.errors import CheckpointError, ConfigError, NumericalError, RunError
from rl4sys.runs.metrics import read_metrics
from rl4sys.runs.run import Run
from rl4sys.runs.state_tree import split_state
from rl4sys.training.loop import TrainingLoop
from rl4sys.trajectory import Trajectory

from ..conftest import SilentObserver, small_config

MakeLoop = Callable[..., TrainingLoop]


def fingerprint(loop: TrainingLoop) -> tuple[str, dict[str, bytes]]:
    """Return the complete state of a training loop in a form that can be compared bit for bit."""
    document, arrays = split_state(loop.state())
    return json.dumps(document), {name: array.tobytes() for name, array in arrays.items()}


def weights(loop: TrainingLoop) -> dict[str, np.ndarray]:
    return dict(loop._learner.snapshot().weights)


def test_runs_with_equal_seeds_are_identical(make_loop: MakeLoop, algorithm: str) -> None:
    first, second = (make_loop(algorithm) for _ in range(2))
    first.train()
    second.train()
    assert first.progress().version > 3, "the learner must have learned for equality to mean anything"
    assert fingerprint(first) == fingerprint(second)
    assert first._run.metrics.read_bytes() == second._run.metrics.read_bytes()


def test_runs_with_different_seeds_differ(make_loop: MakeLoop, algorithm: str) -> None:
    first, second = (make_loop(algorithm, f"experiment.seed={seed}") for seed in (1, 2))
    first.train()
    second.train()
    a, b = weights(first), weights(second)
    assert not any(np.array_equal(a[name], b[name]) for name in a if name.endswith("weight") and "join" not in name)
    assert first._run.metrics.read_bytes() != second._run.metrics.read_bytes()


@pytest.mark.parametrize("stop_after", [1, 2, 5, 7])
def test_resume_is_bit_exact_after_a_stop_anywhere(make_loop: MakeLoop, algorithm: str, stop_after: int) -> None:
    straight = make_loop(algorithm)
    straight.train()

    class StopsAfter(SilentObserver):
        rounds = 0

        def progress(self, progress: Any) -> None:
            self.rounds += 1
            if self.rounds == stop_after:
                stopped.stop()

    stopped = make_loop(algorithm, observer=StopsAfter())
    stopped.train()
    assert stopped.progress().steps < straight.progress().steps
    resumed = make_loop(algorithm, run=Run.open(stopped._run.path))
    resumed.resume()
    resumed.train()
    assert straight.progress().version > 3, "the learner must have learned for equality to mean anything"
    assert fingerprint(resumed) == fingerprint(straight)
    assert resumed._run.metrics.read_bytes() == straight._run.metrics.read_bytes()


@pytest.mark.parametrize("change", ["buffer.type=prioritized", "buffer.storage=disk"])
def test_resume_is_bit_exact_with_prioritized_and_disk_buffers(make_loop: MakeLoop, change: str) -> None:
    def stop() -> None:
        stopped.stop()

    straight = make_loop("dqn", change)
    straight.train()
    stopped = make_loop("dqn", change, observer=CallsAtRound(stop, at=20))
    stopped.train()
    assert stopped.progress().steps < straight.progress().steps
    resumed = make_loop("dqn", run=Run.open(stopped._run.path))
    resumed.resume()
    resumed.train()
    assert straight.progress().steps > 300, "the replay buffer must have overwritten old steps"
    assert fingerprint(resumed) == fingerprint(straight)
    assert resumed._run.metrics.read_bytes() == straight._run.metrics.read_bytes()


def test_resume_comparison_detects_one_skipped_random_number(make_loop: MakeLoop) -> None:
    straight = make_loop("ppo")
    straight.train()
    stopped = make_loop("ppo", "training.total_timesteps=400")
    stopped.train()
    stopped._run.reconfigure(small_config("ppo"))
    resumed = make_loop("ppo", run=stopped._run)
    resumed.resume()
    resumed._actor._draws.uniforms(1)
    resumed.train()
    assert fingerprint(resumed) != fingerprint(straight)


def test_training_does_not_touch_global_random_state(make_loop: MakeLoop, algorithm: str) -> None:
    torch.manual_seed(7)
    np.random.seed(7)  # noqa: NPY002 - the legacy global generator must stay untouched
    before = torch.get_rng_state(), np.random.get_state()[1].tolist()  # noqa: NPY002
    make_loop(algorithm).train()
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == np.random.get_state()[1].tolist()  # noqa: NPY002


def test_metrics_contain_losses_evaluations_and_episodes(make_loop: MakeLoop, algorithm: str) -> None:
    loop = make_loop(algorithm)
    loop.train()
    rows = read_metrics(loop._run.metrics)
    evaluated = [row["step"] for row in rows if "evaluation/return" in row]
    assert len(evaluated) >= 3
    assert evaluated == sorted(evaluated)
    assert evaluated[-1] == loop.progress().steps
    assert any(name.startswith("loss/") for row in rows for name in row)
    assert rows[-1]["episode/return"] > 1
    assert rows[-1]["learner/refused_steps"] == 0


def test_status_file_reports_completion(make_loop: MakeLoop) -> None:
    loop = make_loop("ppo")
    loop.train()
    status = json.loads((loop._run.path / "status.json").read_text())
    assert status["status"] == "completed"
    assert status["steps"] >= 960
    assert status["best_evaluation_return"] >= status["evaluation_return"]


def test_damaged_checkpoint_falls_back_to_the_previous_one(make_loop: MakeLoop) -> None:
    straight = make_loop("dqn")
    straight.train()
    path = straight._run.path / "checkpoints"
    newest = path / (path / "latest").readlink()
    content = bytearray((newest / "state.safetensors").read_bytes())
    content[len(content) // 2] ^= 1
    (newest / "state.safetensors").write_bytes(content)
    observer = SilentObserver()
    again = make_loop("dqn", run=Run.open(straight._run.path), observer=observer)
    again.resume()
    assert again.progress().steps < straight.progress().steps
    assert f"checkpoint {newest.name} is damaged: state.safetensors does not match its checksum" in observer.notes[0]
    again.train()
    assert fingerprint(again) == fingerprint(straight)


def test_resume_error_lists_all_damaged_checkpoints(make_loop: MakeLoop) -> None:
    loop = make_loop("ppo")
    loop.train()
    for manifest in loop._run.path.glob("checkpoints/step_*/manifest.json"):
        manifest.write_text("{")
    with pytest.raises(CheckpointError, match=r"no usable checkpoint in .*: checkpoint step_\d+ is damaged"):
        make_loop("ppo", run=Run.open(loop._run.path)).resume()


def test_second_process_cannot_train_a_locked_run(make_loop: MakeLoop) -> None:
    loop = make_loop("ppo")
    with loop._run.locked(), pytest.raises(RunError, match="being trained by another process"):
        make_loop("ppo", run=Run.open(loop._run.path)).train()


def test_nan_reward_stops_the_run_and_saves_its_state(make_loop: MakeLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    import gymnasium

    step = gymnasium.wrappers.TimeLimit.step
    calls = 0

    def broken(self: Any, action: Any) -> Any:
        nonlocal calls
        calls += 1
        observation, reward, *rest = step(self, action)
        return observation, float("nan") if calls == 250 else reward, *rest

    monkeypatch.setattr(gymnasium.wrappers.TimeLimit, "step", broken)
    observer = SilentObserver()
    loop = make_loop("ppo", observer=observer)
    with pytest.raises(NumericalError, match=r"reward is nan at step \d+, \d+ steps into its episode: check how"):
        loop.train()
    assert json.loads((loop._run.path / "status.json").read_text())["status"] == "failed"
    kept = next((loop._run.path / "checkpoints").glob("failed_*"))
    assert str(kept.name) in observer.notes[-1]
    assert loop._run.checkpoints.load(kept.name).state["steps"] > 0
    assert loop._run.checkpoints.load().name.startswith("step_"), "resume never starts from a failed state"


def test_exploding_losses_stop_the_run_before_the_weights_change(make_loop: MakeLoop) -> None:
    loop = make_loop("dqn", "algorithm.lr=1e30", "environment.normalize_obs=false")
    with pytest.raises(NumericalError, match=r"(the loss 'td'|the gradient of '.*') is not finite at step \d+; likely"):
        loop.train()
    assert all(np.isfinite(array).all() for array in weights(loop).values())


def test_only_newest_and_best_checkpoints_are_kept(make_loop: MakeLoop) -> None:
    loop = make_loop("ppo", "training.keep_checkpoints=1", "training.checkpoint_frequency=96")
    loop.train()
    folder: Path = loop._run.path / "checkpoints"
    kept = {p.name for p in folder.glob("step_*")}
    assert kept == {(folder / "latest").readlink().name, (folder / "best").readlink().name}


def test_missing_device_falls_back_to_the_cpu_with_a_note(make_loop: MakeLoop) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has the device")
    observer = SilentObserver()
    make_loop("ppo", "experiment.device=cuda", observer=observer)
    assert observer.notes == ["experiment.device is 'cuda', but this machine has no such device; training on cpu"]


class CallsAtRound(SilentObserver):
    """Observer that calls a function at a given round."""

    def __init__(self, action: Callable[[], None], at: int = 1) -> None:
        super().__init__()
        self._action, self._at, self._rounds = action, at, 0

    def progress(self, progress: Any) -> None:
        self._rounds += 1
        if self._rounds == self._at:
            self._action()


def test_stop_between_rounds_saves_all_steps(make_loop: MakeLoop) -> None:
    def stop() -> None:
        loop.stop()

    loop = make_loop("dqn", "training.checkpoint_frequency=100000", observer=CallsAtRound(stop, at=5))
    loop.train()
    assert loop._run.checkpoints.load().state["steps"] == loop.progress().steps > 0
    assert json.loads((loop._run.path / "status.json").read_text())["status"] == "stopped"


@pytest.mark.parametrize("which", ["start", "first", "last"])
def test_interrupted_evaluation_is_repeated_after_resume(
    make_loop: MakeLoop, algorithm: str, which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # With so many episodes, the evaluation takes more than one round of steps.
    changes = ["training.num_eval_episodes=40", f"training.eval_at_start={which == 'start'}"]
    straight = make_loop(algorithm, *changes)
    straight.train()
    stopped = make_loop(algorithm, *changes)
    collect = Actor.collect

    def collect_and_stop(self: Actor, policy: Any, version: int, steps: int) -> Any:
        if self is not stopped._actor and (which != "last" or stopped._all_steps_taken):
            stopped.stop()
        return collect(self, policy, version, steps)

    monkeypatch.setattr(Actor, "collect", collect_and_stop)
    stopped.train()
    monkeypatch.undo()
    assert stopped.progress().evaluated_at != stopped.progress().steps
    assert json.loads((stopped._run.path / "status.json").read_text())["status"] == "stopped"
    resumed = make_loop(algorithm, run=Run.open(stopped._run.path))
    resumed.resume()
    resumed.train()
    assert fingerprint(resumed) == fingerprint(straight)
    assert resumed._run.metrics.read_bytes() == straight._run.metrics.read_bytes()


@pytest.mark.parametrize("at_start", [True, False])
def test_initial_policy_is_evaluated_only_on_request(make_loop: MakeLoop, at_start: bool) -> None:
    loop = make_loop("ppo", f"training.eval_at_start={at_start}")
    loop.train()
    rows = [row["step"] for row in loop._run.directory.metric_rows() if "evaluation/return" in row]
    assert (rows[0] == 0) == at_start
    assert len(rows) > 1


def test_failure_in_the_last_round_marks_the_run_as_failed(
    make_loop: MakeLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = make_loop("ppo", "training.total_timesteps=96")

    def fail(*_: Any, **__: Any) -> None:
        raise RunError("no space")

    monkeypatch.setattr(loop, "_log_means", fail)
    with pytest.raises(RunError, match="no space"):
        loop.train()
    assert json.loads((loop._run.path / "status.json").read_text())["status"] == "failed"


def test_endless_evaluation_episode_is_truncated(make_loop: MakeLoop) -> None:
    changes = ["environment.name=CliffWalking-v1", "environment.num_envs=1", "training.total_timesteps=96"]
    loop = make_loop("ppo", *changes, "training.num_eval_episodes=1")
    evaluation = loop.train().evaluation
    assert evaluation is not None
    assert 0 < evaluation.lengths[0] <= MAX_EVALUATION_STEPS


def test_run_without_its_metrics_file_can_be_resumed(make_loop: MakeLoop) -> None:
    loop = make_loop("ppo", "training.total_timesteps=400")
    loop.train()
    loop._run.metrics.unlink()
    loop._run.reconfigure(small_config("ppo"))
    again = make_loop("ppo", run=loop._run)
    again.resume()
    again.train()
    assert read_metrics(loop._run.metrics)[0]["step"] > 400


def test_her_uses_environment_reward_and_resumes_exactly(make_loop: MakeLoop) -> None:
    def stop() -> None:
        stopped.stop()

    changes = ["environment.name=BitFlip", "environment.family=goal", "buffer.type=her", "training.eval_frequency=400"]
    straight = make_loop("dqn", *changes)
    straight.train()
    stopped = make_loop("dqn", *changes, observer=CallsAtRound(stop, at=20))
    stopped.train()
    resumed = make_loop("dqn", run=Run.open(stopped._run.path))
    resumed.resume()
    resumed.train()
    assert stopped.progress().steps < straight.progress().steps
    assert fingerprint(resumed) == fingerprint(straight)
    batch = straight._learner._buffer.sample(np.random.default_rng(0), 500)  # type: ignore[attr-defined]
    assert (batch["obs.desired_goal"] == batch["next_obs.achieved_goal"]).all(-1).mean() > 0.1, (
        "some goals were relabeled with achieved ones"
    )


PIPELINE = "training.pipeline=true"


def test_pipeline_learns_from_trajectories_of_the_previous_version(make_loop: MakeLoop) -> None:
    plain, pipelined = make_loop("ppo"), make_loop("ppo", PIPELINE)
    plain.train()
    pipelined.train()
    rows = [row for row in read_metrics(pipelined._run.metrics) if "policy/staleness" in row]
    assert rows[-1]["policy/staleness"] == 1
    assert 0.5 < rows[-1]["policy/importance"] <= 1
    assert rows[-1]["learner/refused_steps"] == 0
    assert pipelined.progress().version == plain.progress().version > 3
    assert pipelined.progress().steps == plain.progress().steps
    assert pipelined._learner.steps == pipelined.progress().steps
    assert fingerprint(pipelined) != fingerprint(plain)


def test_pipeline_restores_the_thread_switch_interval(make_loop: MakeLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    previous, seen, collect = sys.getswitchinterval(), [], TrainingLoop._collect

    def collect_and_record(loop: TrainingLoop, *request: Any) -> list[Trajectory]:
        seen.append(sys.getswitchinterval())
        return collect(loop, *request)

    monkeypatch.setattr(TrainingLoop, "_collect", collect_and_record)
    make_loop("ppo", PIPELINE).train()
    assert 0 < max(seen) < previous / 10
    assert sys.getswitchinterval() == previous


def test_pipelined_runs_with_equal_seeds_are_identical(make_loop: MakeLoop) -> None:
    first, second = (make_loop("ppo", PIPELINE) for _ in range(2))
    first.train()
    second.train()
    assert fingerprint(first) == fingerprint(second)
    assert first._run.metrics.read_bytes() == second._run.metrics.read_bytes()


@pytest.mark.parametrize("stop_after", [1, 2, 5, 7])
def test_pipeline_resume_is_bit_exact_after_a_stop_anywhere(make_loop: MakeLoop, stop_after: int) -> None:
    straight = make_loop("ppo", PIPELINE)
    straight.train()

    def stop() -> None:
        stopped.stop()

    stopped = make_loop("ppo", PIPELINE, observer=CallsAtRound(stop, at=stop_after))
    stopped.train()
    assert stopped._pending
    resumed = make_loop("ppo", run=Run.open(stopped._run.path))
    resumed.resume()
    resumed.train()
    assert resumed.progress().finished
    assert fingerprint(resumed) == fingerprint(straight)
    assert resumed._run.metrics.read_bytes() == straight._run.metrics.read_bytes()


def test_pipeline_best_checkpoint_contains_the_best_policy(make_loop: MakeLoop) -> None:
    loop = make_loop("ppo", PIPELINE, "training.eval_frequency=64")
    loop.train()
    assert not loop._pending
    evaluated = [row["step"] for row in read_metrics(loop._run.metrics) if "evaluation/return" in row]
    assert evaluated == sorted(set(evaluated)), "no step is evaluated twice"
    best = loop._run.checkpoints.load("best").state
    returns = [episode[0] for episode in best["evaluation"]]
    assert np.mean(returns) == loop._evaluation.best


def test_error_in_the_learning_thread_is_raised(make_loop: MakeLoop) -> None:
    loop = make_loop("ppo", PIPELINE)
    learn, calls = loop._learner.learn, []

    def fail(trajectories: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise NumericalError("the loss is not finite")
        return learn(trajectories)

    loop._learner.learn = fail  # type: ignore[method-assign]
    with pytest.raises(NumericalError, match="the loss is not finite"):
        loop.train()
    status = json.loads((loop._run.path / "status.json").read_text())
    assert status["status"] == "failed"


def test_pipeline_with_replay_buffer_is_rejected() -> None:
    with pytest.raises(ConfigError, match=r"^training\.pipeline does not support the buffer uniform; .* such as ppo$"):
        small_config("dqn", PIPELINE)
