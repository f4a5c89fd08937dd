"""Local training: an actor and a learner in one process, in a run directory, resumable exactly."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from rl4sys.algorithms.device import available_device, use_threads
from rl4sys.environments.actor import Actor, Episode
from rl4sys.environments.evaluate import Evaluation, evaluate
from rl4sys.environments.gym import make_environment
from rl4sys.errors import CheckpointError, ExportError, NumericalError
from rl4sys.experiment.config import ExperimentConfig
from rl4sys.experiment.loggers import make_loggers
from rl4sys.experiment.metrics import Logger, MetricsFile, Window
from rl4sys.experiment.run import Run
from rl4sys.learner import Learner, build_learner
from rl4sys.policy.base import Policy
from rl4sys.policy.native_form import NATIVE
from rl4sys.policy.portable import SnapshotPolicy
from rl4sys.policy.snapshot import Snapshot
from rl4sys.spec import State

_RECENT_EPISODES = 100


@dataclass(frozen=True)
class Progress:
    """Where a run stands; ``recent_return`` is the mean of the last 100 training episodes."""

    steps: int
    total_timesteps: int
    version: int
    steps_per_second: float
    recent_return: float | None
    evaluation: Evaluation | None
    evaluated_at: int | None


class Observer(Protocol):
    """Whoever watches a run, such as the terminal."""

    def note(self, message: str) -> None:
        """Something the user should know once."""

    def progress(self, progress: Progress) -> None:
        """Called after every round of collecting and learning."""


class Trainer:
    """Collects, learns, evaluates, logs and saves, round by round; every round ends in a state it can resume from."""

    def __init__(self, run: Run, observer: Observer, clock: Callable[[], float] = time.perf_counter) -> None:
        config = run.config
        self._run, self._config, self._observer, self._clock = run, config, observer, clock
        use_threads(config.experiment.threads)
        if not NATIVE:
            observer.note("the native core is not in use; policies act with numpy, which is slower")
        self._actor = build_actor(config)
        self._learner = build_local_learner(config, self._actor, observer)
        self._policy: tuple[int, Policy] | None = None
        self._window = Window()
        self._recent: deque[Episode] = deque(maxlen=_RECENT_EPISODES)
        self._evaluation: Evaluation | None = None
        self._evaluated_at: int | None = None
        self._best: float | None = None
        self._steps = 0
        self._stopping = False
        self._metrics_size = 0
        self._loggers: list[Logger] = []
        self._started_at, self._started_steps = clock(), 0

    def resume(self, checkpoint: str = "latest") -> None:
        """Go on from a checkpoint of the run as if never stopped."""
        found = self._run.checkpoints.load(checkpoint)
        for damage in found.passed_over:
            self._observer.note(f"{damage}; going back to {found.name}")
        try:
            self.restore(found.state)
        except (KeyError, ValueError, RuntimeError, TypeError) as problem:
            raise CheckpointError(
                f"checkpoint {found.name} does not fit the config of {self._run.path}: {problem}; "
                "resume with the settings the run was started with"
            ) from problem

    def train(self) -> Progress:
        """Run to ``training.total_timesteps``, or to the end of the round in which `stop` was called."""
        with self._run.locked():
            self._open_logs()
            self._started_at, self._started_steps = self._clock(), self._steps
            if self._steps == 0:
                self._save()
            try:
                self._run_rounds()
            except NumericalError:
                self._keep_failure()
                raise
            finally:
                self._close()
        return self.progress()

    def stop(self) -> None:
        """Ask for a stop after the present round; may be called from a signal handler."""
        self._stopping = True

    def progress(self) -> Progress:
        elapsed = max(self._clock() - self._started_at, 1e-9)
        return Progress(
            steps=self._steps,
            total_timesteps=self._config.training.total_timesteps,
            version=self._learner.version,
            steps_per_second=(self._steps - self._started_steps) / elapsed,
            recent_return=float(np.mean([e.total_reward for e in self._recent])) if self._recent else None,
            evaluation=self._evaluation,
            evaluated_at=self._evaluated_at,
        )

    def state(self) -> State:
        return {
            "actor": self._actor.state(),
            "learner": self._learner.state(),
            "steps": self._steps,
            "window": self._window.state(),
            "recent": [list(episode) for episode in self._recent],
            "evaluation": [list(episode) for episode in self._evaluation.episodes] if self._evaluation else None,
            "evaluated_at": self._evaluated_at,
            "best": self._best,
            "metrics_size": self._metrics_size,
        }

    def restore(self, state: State) -> None:
        self._actor.restore(state["actor"])
        self._learner.restore(state["learner"])
        self._steps = int(state["steps"])
        self._window.restore(state["window"])
        self._recent.extend(Episode(*episode) for episode in state["recent"])
        if state["evaluation"] is not None:
            self._evaluation = Evaluation(tuple(Episode(*episode) for episode in state["evaluation"]))
        self._evaluated_at, self._best = state["evaluated_at"], state["best"]
        self._metrics_size = int(state["metrics_size"])

    def _run_rounds(self) -> None:
        training = self._config.training
        while self._steps < training.total_timesteps and not self._stopping:
            before = self._steps
            self._round()
            finished = self._steps >= training.total_timesteps
            improved = self._evaluate() if finished or self._crossed(before, training.eval_frequency) else False
            if finished or self._crossed(before, self._config.logging.frequency):
                self._log_window()
            if finished or improved or self._stopping or self._crossed(before, training.checkpoint_frequency):
                self._save(best=improved)
            self._observer.progress(self.progress())

    def _round(self) -> None:
        """Collect what makes the next update due, and learn from it."""
        trajectories = self._actor.collect(self._current_policy(), self._learner.version, self._learner.wants())
        self._steps += sum(len(trajectory) for trajectory in trajectories)
        self._recent.extend(self._actor.take_finished())
        for metrics in self._learner.learn(trajectories):
            self._window.add(metrics)

    def _current_policy(self) -> Policy:
        if self._policy is None or self._policy[0] != self._learner.version:
            self._policy = self._learner.version, self._learner.policy()
        return self._policy[1]

    def _evaluate(self) -> bool:
        """Judge the policy as it is now; true if it is the best so far."""
        config = self._config
        self._evaluation = evaluate(
            config.environment,
            self._current_policy().greedy(),
            config.training.num_eval_episodes,
            config.experiment.seed,
        )
        self._evaluated_at = self._steps
        mean = self._evaluation.mean_return
        self._log(
            {
                "evaluation/return": mean,
                "evaluation/return_std": self._evaluation.std_return,
                "evaluation/length": float(np.mean(self._evaluation.lengths)),
            }
        )
        improved = self._best is None or mean > self._best
        self._best = mean if improved else self._best
        return improved

    def _log_window(self) -> None:
        row = self._window.take()
        if self._recent:
            row["episode/return"] = float(np.mean([e.total_reward for e in self._recent]))
            row["episode/length"] = float(np.mean([e.length for e in self._recent]))
        row["learner/version"] = float(self._learner.version)
        row["learner/refused_steps"] = float(self._learner.refused)
        self._log(row)
        self._write_status("running")

    def _log(self, row: dict[str, float]) -> None:
        for logger in self._loggers:
            logger.log(self._steps, row)
        self._metrics_size = self._run.metrics.stat().st_size

    def _save(self, *, best: bool = False) -> None:
        self._run.checkpoints.save(self._steps, self.state(), self._snapshot(), best=best)

    def _keep_failure(self) -> None:
        name = self._run.checkpoints.save_aside(f"failed_{self._steps}", self.state(), self._snapshot())
        self._observer.note(f"the state at the failure is kept in {self._run.path}/checkpoints/{name}")
        self._write_status("failed")

    def _snapshot(self) -> Snapshot | None:
        try:
            return self._learner.snapshot()
        except ExportError:
            return None

    def _open_logs(self) -> None:
        self._loggers = make_loggers(self._config, self._run.logs, self._run.path.name, self._steps)
        self._loggers.append(MetricsFile(self._run.metrics, self._metrics_size))
        self._write_status("running")

    def _close(self) -> None:
        if self._steps >= self._config.training.total_timesteps:
            self._write_status("completed")
        elif self._stopping:
            self._write_status("stopped")
        for logger in self._loggers:
            logger.close()
        self._actor.close()

    def _write_status(self, status: str) -> None:
        progress = self.progress()
        self._run.write_status(
            {
                "status": status,
                "steps": progress.steps,
                "total_timesteps": progress.total_timesteps,
                "version": progress.version,
                "steps_per_second": round(progress.steps_per_second, 1),
                "evaluation_return": self._evaluation.mean_return if self._evaluation else None,
                "best_evaluation_return": self._best,
            }
        )

    def _crossed(self, before: int, frequency: int) -> bool:
        return before // frequency != self._steps // frequency


def build_actor(config: ExperimentConfig) -> Actor:
    seed = np.random.SeedSequence([config.experiment.seed, 0])
    return Actor(lambda: make_environment(config.environment), config.environment.num_envs, seed)


def trained_policy(run: Run, checkpoint: str, observer: Observer) -> Policy:
    """The policy of a checkpoint: from its frozen form, or from the whole learner where there is none."""
    snapshot = run.checkpoints.load_policy(checkpoint)
    if snapshot is not None:
        return SnapshotPolicy(snapshot)
    actor = build_actor(run.config)
    learner = build_local_learner(run.config, actor, observer)
    learner.restore(run.checkpoints.load(checkpoint).state["learner"])
    actor.close()
    return learner.policy()


def build_local_learner(config: ExperimentConfig, actor: Actor, observer: Observer) -> Learner:
    """The learner of a local run, on the device asked for if this machine has it."""
    wanted = config.experiment.device
    device = available_device(wanted)
    if wanted not in (device, "auto"):
        observer.note(f"experiment.device is {wanted}, which this machine does not have; training on {device}")
    return build_learner(actor.spec, config.learner(device), config.experiment.seed)
