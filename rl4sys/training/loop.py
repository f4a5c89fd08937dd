"""Local training: an actor and a learner in one process, in a run directory, with bit-exact resume."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial

from rl4sys.algorithms.base import Metrics
from rl4sys.algorithms.device import use_threads
from rl4sys.buffers.base import BufferResources
from rl4sys.environments.envpool import INEXACT_RESUME_NOTE
from rl4sys.environments.evaluation import EvaluationStopped
from rl4sys.errors import CheckpointError, ConfigError, NumericalError, RunError
from rl4sys.learner.learner import Learner
from rl4sys.policy.base import Policy
from rl4sys.policy.draws import NATIVE
from rl4sys.policy.snapshot import Snapshot
from rl4sys.runs.run import Run
from rl4sys.spec import State
from rl4sys.tracking.videos import VideoRecorder
from rl4sys.training.backend_notes import backend_notes
from rl4sys.training.checkpointing import Checkpointing
from rl4sys.training.evaluation import PeriodicEvaluation
from rl4sys.training.initialization import initialize
from rl4sys.training.pipeline import run_concurrently
from rl4sys.training.progress import Observer, Progress
from rl4sys.training.reporting import Reporter
from rl4sys.training.setup import build_actor, build_local_learner, check_before_training, with_fitting_buffer
from rl4sys.training.warm_start import load_pools, warm_start
from rl4sys.trajectory import Trajectory


class TrainingLoop:
    """Alternates collecting and learning in rounds, and evaluates, logs and saves at the configured step intervals.

    A round collects the steps the buffer needs for the next update. Every round ends in a resumable state.
    """

    def __init__(self, run: Run, observer: Observer, clock: Callable[[], float] = time.perf_counter) -> None:
        config = run.config
        self._run, self._config, self._observer = run, config, observer
        use_threads(config.experiment.threads)
        if not NATIVE:
            observer.note("the native core is not in use; policies act with numpy, which is slower")
        check_before_training(config, observer)
        if config.environment.vectorized is not None:
            observer.note(INEXACT_RESUME_NOTE)
        self._actor = build_actor(config)
        self._config = config = with_fitting_buffer(config, self._actor.spec, observer)
        if config is not run.config:
            run.complete_config(config)
        self._evaluation = PeriodicEvaluation(config, self._actor.spec)
        has_videos = config.logging.video_frequency is not None and self._evaluation.possible
        self._video_recorder = VideoRecorder(run, observer.note) if has_videos else None
        self._checkpointing = Checkpointing(run, observer)
        self._learner = self._make_learner()
        self._reporter = Reporter(run, self._actor.spec, observer, clock)
        if not self._checkpointing.exists:
            if config.initialize_from is not None:
                observer.note(initialize(self._learner, config.initialize_from))
            self._reporter.logbook.add(warm_start(self._learner, self._actor.spec, config))
        self._pending: list[Trajectory] = []
        """Trajectories of the previous round that a pipeline has not learned from yet."""
        self._policy: tuple[int, Policy] | None = None
        self._steps = 0
        self._round_start: int | None = None
        """First step of the current round until its evaluation, logging and saving are finished; otherwise None."""
        self._stopping = self._is_resumed = False

    def resume(self, checkpoint: str = "latest") -> None:
        """Restore a checkpoint. `train` then continues bit for bit as if training had not stopped."""
        name, state = self._checkpointing.load(checkpoint)
        try:
            self.restore(state)
        except (KeyError, ValueError, RuntimeError, TypeError) as problem:
            raise CheckpointError(
                f"checkpoint {name} does not fit the config of {self._run.path}: {problem}; "
                "resume with the settings the run was started with"
            ) from problem
        self._is_resumed = True

    def train(self) -> Progress:
        """Train up to ``training.total_timesteps``, or to the end of the round in which `stop` was called."""
        with (
            self._run.locked(),
            _gc_frozen(),
            self._closing_actor(),
            self._reporter.opened(self._steps),
        ):
            if self._is_resumed:
                self._run.note_resume(datetime.now(), self._steps)
                self._is_resumed = False
            self._write_status("running")
            try:
                self._run_rounds()
            except BaseException as problem:
                self._record_failure(problem)
                raise
            self._write_status("completed" if self.progress().finished else "stopped")
        return self.progress()

    def stop(self) -> None:
        """Request a stop after the current round; may be called from a signal handler."""
        self._stopping = True

    def progress(self) -> Progress:
        return Progress(
            steps=self._steps,
            total_timesteps=self._config.training.total_timesteps,
            version=self._learner.version,
            steps_per_second=self._reporter.steps_per_second(self._steps),
            recent_return=self._reporter.recent_return,
            evaluation=self._evaluation.latest,
            evaluated_at=self._evaluation.step,
            saved_at=self._checkpointing.saved_at,
            finished=self._all_steps_taken and self._round_start is None,
        )

    def snapshot_or_none(self) -> Snapshot | None:
        """Return the snapshot for clients, or None if only torch can run the network."""
        return self._learner.snapshot_or_none()

    def state(self) -> State:
        return {
            "actor": self._actor.state(),
            "learner": self._learner.state(),
            "logbook": self._reporter.logbook.state(),
            "recent": self._reporter.recent_state(),
            **self._evaluation.state(),
            "steps": self._steps,
            "unsettled_since": self._round_start,
            "alerts": self._reporter.alerts.state(),
            "pending": [trajectory.state() for trajectory in self._pending],
        }

    def restore(self, state: State) -> None:
        self._actor.restore(state["actor"])
        self._learner.restore(state["learner"])
        self._reporter.restore(state)
        self._evaluation.restore(state)
        self._steps = self._checkpointing.saved_at = int(state["steps"])
        self._round_start = state["unsettled_since"]
        self._pending = [Trajectory.of_state(trajectory) for trajectory in state.get("pending", [])]

    def _make_learner(self) -> Learner:
        """Build the learner. Datasets of a `union` buffer are loaded for a new run only; checkpoints contain them."""
        config, is_new = self._config, not self._checkpointing.exists
        pools = load_pools(config.buffer, self._actor.spec) if is_new else {}
        resources = BufferResources(scratch=self._run.path, pools=pools)
        learner = build_local_learner(config, self._actor, self._observer, resources)
        problem = learner.export_error()
        for note in backend_notes(learner, problem):
            self._observer.note(note)
        if problem and config.training.pipeline:
            raise ConfigError(
                "training.pipeline does not support this network: the policy acts while the network is updated, and in "
                "torch it would use half-updated weights; use another network or set training.pipeline=false"
            )
        return learner

    def _run_rounds(self) -> None:
        if self._checkpointing.saved_at is None:
            if self._config.training.eval_at_start:
                self._round_start = self._steps
            self._save()
        self._finish_round()
        while not self._all_steps_taken and not self._stopping:
            self._round_start = self._steps
            self._round()
            self._finish_round()
        if self._checkpointing.saved_at != self._steps:
            self._save()

    def _round(self) -> None:
        """Collect the steps the next update needs, and learn from them."""
        for metrics in self._pipelined_round() if self._config.training.pipeline else self._plain_round():
            self._reporter.logbook.add(metrics)

    def _plain_round(self) -> list[Metrics]:
        return self._learn(
            self._collect(self._current_policy(), self._learner.version, self._learner.steps_to_next_update())
        )

    def _pipelined_round(self) -> list[Metrics]:
        """Collect with the current policy while learning from the trajectories of the previous round."""
        collect: Callable[[], list[Trajectory]] = partial(
            self._collect, self._current_policy(), self._learner.version, self._learner.steps_to_next_update()
        )
        learn: Callable[[], list[Metrics]] = partial(self._learn, self._pending) if self._pending else list
        self._pending = []
        collected, metrics = self._collect_and_learn(collect, learn)
        if self._all_steps_taken:
            # No further round follows, so learn from the last trajectories now.
            return [*metrics, *self._learn(collected)]
        self._pending = collected
        return metrics

    def _collect_and_learn(
        self, collect: Callable[[], list[Trajectory]], learn: Callable[[], list[Metrics]]
    ) -> tuple[list[Trajectory], list[Metrics]]:
        return run_concurrently(collect, learn)

    def _collect(self, policy: Policy, version: int, steps: int) -> list[Trajectory]:
        trajectories = self._actor.collect(policy, version, steps)
        self._steps += sum(len(trajectory) for trajectory in trajectories)
        self._reporter.logbook.add_experience(trajectories)
        self._reporter.add_episodes(self._actor.take_finished())
        return trajectories

    def _learn(self, trajectories: list[Trajectory]) -> list[Metrics]:
        return self._learner.learn(trajectories)

    def _finish_round(self) -> None:
        """Record a video, evaluate, log and save, each if due. A resumed run repeats whatever a stop interrupted."""
        if self._round_start is None:
            return
        training = self._config.training
        try:
            self._record_video()
            is_due = self._steps == 0 or self._is_due(training.eval_frequency)
            improved = self._evaluation.possible and is_due and self._evaluate()
        except EvaluationStopped:
            self._save()
            return
        if self._is_due(self._config.logging.frequency):
            self._log_means()
        saves = improved or self._is_due(training.checkpoint_frequency)
        self._round_start = None
        if saves:
            self._save(best=improved)
        self._observer.progress(self.progress())

    def _is_due(self, frequency: int) -> bool:
        """Return True if the last round crossed a multiple of ``frequency`` or the end of training."""
        assert self._round_start is not None  # called by `_finish_round` only
        crossed = self._round_start // frequency != self._steps // frequency
        return crossed or self._all_steps_taken

    @property
    def _all_steps_taken(self) -> bool:
        return self._steps >= self._config.training.total_timesteps

    def _current_policy(self) -> Policy:
        if self._policy is None or self._policy[0] != self._learner.version:
            self._policy = self._learner.version, self._learner.policy()
        return self._policy[1]

    def _record_video(self) -> None:
        """Record a video if due. Called before the evaluation, so that a resumed run never logs an evaluation twice."""
        frequency = self._config.logging.video_frequency
        if self._video_recorder is None or frequency is None or not self._is_due(frequency):
            return
        video = self._video_recorder.record(self._steps, self._current_policy().greedy(), lambda: self._stopping)
        if video is not None:
            self._reporter.logbook.write_video(self._steps, video)

    def _evaluate(self) -> bool:
        """Evaluate the current policy; return True if it is the best so far."""
        improved = self._evaluation.run(self._current_policy(), self._steps, lambda: self._stopping)
        self._reporter.write(self._steps, self._evaluation.metrics())
        return improved

    def _log_means(self) -> None:
        self._reporter.write_means(self._steps, self._learner)
        self._write_status("running")

    def _save(self, *, best: bool = False) -> None:
        self._checkpointing.save(self._steps, self.state(), self._learner.snapshot_or_none(), best=best)

    def _record_failure(self, problem: BaseException) -> None:
        self._reporter.alerts.fail(self._steps, problem)
        if isinstance(problem, NumericalError):
            self._checkpointing.save_failed(self._steps, self.state(), self._learner.snapshot_or_none())
        # An unwritable status (full disk) must not hide the original error.
        with suppress(RunError):
            self._write_status("failed")

    def _write_status(self, status: str) -> None:
        self._reporter.write_status(status, self.progress(), self._evaluation.best)

    @contextmanager
    def _closing_actor(self) -> Iterator[None]:
        try:
            yield
        finally:
            self._actor.close()


@contextmanager
def _gc_frozen() -> Iterator[None]:
    """Exclude all existing objects from garbage collection.

    Otherwise, a tenth of the time of a short run is spent on scanning imported modules for garbage. Garbage that exists
    at the start is kept until the end, because collecting it first would take longer than it saves.
    """
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
