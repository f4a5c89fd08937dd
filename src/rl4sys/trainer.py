"""Local training: an actor and a learner in one process, in a run directory, resumable exactly."""

from __future__ import annotations

import gc
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Protocol

import numpy as np

from rl4sys.algorithms.base import Metrics
from rl4sys.algorithms.device import available_device, use_threads
from rl4sys.buffers.base import NOTHING, GoalReward, Provided
from rl4sys.buffers.her import DESIRED_GOAL
from rl4sys.dataset import check_same_spec, load_dataset
from rl4sys.environments.acting import AnyActor, make_actor
from rl4sys.environments.actor import Episode
from rl4sys.environments.check import check_environment
from rl4sys.environments.encoding import Encoding
from rl4sys.environments.evaluate import Evaluation, EvaluationStopped, evaluate
from rl4sys.environments.goals import goal_reward
from rl4sys.environments.gym import make_environment
from rl4sys.environments.player import Player
from rl4sys.environments.pool import NOT_EXACT
from rl4sys.errors import CheckpointError, ConfigError, NumericalError, RunError, SpecError
from rl4sys.experiment.config import ExperimentConfig
from rl4sys.experiment.filming import Filming
from rl4sys.experiment.logbook import Logbook
from rl4sys.experiment.machine import available_memory, in_words
from rl4sys.experiment.memory import needs_of
from rl4sys.experiment.recorded import load_pools, warm_start
from rl4sys.experiment.run import Run
from rl4sys.experiment.watch import Subject, Watch
from rl4sys.learner import Learner, build_learner
from rl4sys.policy.base import Policy
from rl4sys.policy.native_form import NATIVE
from rl4sys.policy.portable import SnapshotPolicy
from rl4sys.policy.snapshot import Snapshot
from rl4sys.spec import Spec, State
from rl4sys.trajectory import Trajectory

_RECENT_EPISODES = 100
_LARGE_BUFFER = 10**9


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
    finished: bool
    """All steps were taken, and all they made due was done."""


class Observer(Protocol):
    """Whoever watches a run, such as the terminal."""

    def note(self, message: str) -> None:
        """Something the user should know once."""

    def progress(self, progress: Progress) -> None:
        """Called after every round of collecting and learning."""


@dataclass(frozen=True)
class Errand:
    """What to collect: so many steps, by a policy of this version."""

    policy: Policy
    version: int
    steps: int


class Trainer:
    """Collects, learns, evaluates, logs and saves, round by round; every round ends in a state it can resume from."""

    def __init__(self, run: Run, observer: Observer, clock: Callable[[], float] = time.perf_counter) -> None:
        config = run.config
        self._run, self._config, self._observer, self._clock = run, config, observer, clock
        use_threads(config.experiment.threads)
        if not NATIVE:
            observer.note("the native core is not in use; policies act with numpy, which is slower")
        check_before_training(config, observer)
        if config.environment.vectorized is not None:
            observer.note(NOT_EXACT)
        self._actor = build_actor(config)
        if config.dataset is not None and self._judged:
            judged_in = Encoding(make_environment(config.environment)).spec
            check_same_spec(self._actor.spec, judged_in, "the environment to judge its policy by")
        filmed = config.logging.video_frequency is not None and self._judged
        self._filming = Filming(run, observer.note) if filmed else None
        self._logbook = Logbook(run, observer.note)
        self._learner = self._make_learner()
        self._alerts = self._make_alerts()
        self._pending: list[Trajectory] = []
        """What a pipeline has collected and not learnt from yet."""
        self._policy: tuple[int, Policy] | None = None
        self._recent: deque[Episode] = deque(maxlen=_RECENT_EPISODES)
        self._evaluation: Evaluation | None = None
        self._evaluated_at: int | None = None
        self._best: float | None = None
        self._steps = 0
        self._unsettled_since: int | None = None
        self._saved_at: int | None = None
        self._stopping = False
        self._started_at, self._started_steps = clock(), 0

    def resume(self, checkpoint: str = "latest") -> None:
        """Go on from a checkpoint of the run as if never stopped; the run's provenance remembers it."""
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
        self._run.note_resume(datetime.now(), self._steps)

    def train(self) -> Progress:
        """Run to ``training.total_timesteps``, or to the end of the round in which `stop` was called."""
        with (
            self._run.locked(),
            _collecting_only_what_is_new(),
            self._closing_actor(),
            self._logbook.opened(self._steps),
            self._alerts.opened(alone=True),
        ):
            self._started_at, self._started_steps = self._clock(), self._steps
            self._write_status("running")
            try:
                self._run_rounds()
            except BaseException as problem:
                self._record_failure(problem)
                raise
            self._write_status("completed" if self.progress().finished else "stopped")
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
            finished=self._trained and self._unsettled_since is None,
        )

    def portable(self) -> Snapshot | None:
        """The policy for clients, or None where they cannot run its network."""
        return self._learner.portable()

    def state(self) -> State:
        return {
            "actor": self._actor.state(),
            "learner": self._learner.state(),
            "logbook": self._logbook.state(),
            "recent": [list(episode) for episode in self._recent],
            "evaluation": [list(episode) for episode in self._evaluation.episodes] if self._evaluation else None,
            "evaluated_at": self._evaluated_at,
            "best": self._best,
            "steps": self._steps,
            "unsettled_since": self._unsettled_since,
            "alerts": self._alerts.state(),
            "pending": [trajectory.state() for trajectory in self._pending],
        }

    def restore(self, state: State) -> None:
        self._actor.restore(state["actor"])
        self._learner.restore(state["learner"])
        self._logbook.restore(state["logbook"])
        self._recent.extend(Episode(*episode) for episode in state["recent"])
        if state["evaluation"] is not None:
            self._evaluation = Evaluation(tuple(Episode(*episode) for episode in state["evaluation"]))
        self._evaluated_at, self._best = state["evaluated_at"], state["best"]
        self._steps = self._saved_at = int(state["steps"])
        self._unsettled_since = state["unsettled_since"]
        self._alerts.restore(state.get("alerts", {}))
        self._pending = [Trajectory.of_state(trajectory) for trajectory in state.get("pending", [])]

    def _make_learner(self) -> Learner:
        """One that starts from what its config names; a run that is resumed holds all of that already."""
        config, spec, new = self._config, self._actor.spec, not self._run.checkpoints.names()
        provided = Provided(scratch=self._run.path, pools=load_pools(config.buffer, spec) if new else {})
        learner = build_local_learner(config, self._actor, self._observer, provided)
        if config.training.pipeline and learner.portable() is None:
            raise ConfigError(
                "training.pipeline has the policy act while its network learns, and this network only torch can run, "
                "which would act with weights that are changing; use another network, or leave pipeline out"
            )
        if new:
            self._logbook.add(warm_start(learner, spec, config))
        return learner

    def _make_alerts(self) -> Watch:
        config, run = self._config, self._run
        needs = needs_of(self._actor.spec, config.learner("cpu"))
        subject = Subject(run.path, run.facts(), needs.still, needs.advice)
        return Watch(config.alerts, subject, self._observer.note)

    def _run_rounds(self) -> None:
        if self._saved_at is None:
            self._save()
        self._settle()
        while not self._trained and not self._stopping:
            self._unsettled_since = self._steps
            self._round()
            self._settle()
        if self._saved_at != self._steps:
            self._save()

    def _round(self) -> None:
        """Collect what makes the next update due, and learn from it."""
        pipeline = self._config.training.pipeline
        for metrics in self._learn_behind() if pipeline else self._learn(self._collect(self._errand())):
            self._logbook.add(metrics)

    def _learn_behind(self) -> list[Metrics]:
        """Learn from what the round before collected, while the policy of now collects for the next."""
        collect: Callable[[], list[Trajectory]] = partial(self._collect, self._errand())
        learn: Callable[[], list[Metrics]] = partial(self._learn, self._pending) if self._pending else list
        self._pending = []
        collected, metrics = self._at_once(collect, learn)
        if self._trained:
            # Nothing more is to be collected meanwhile.
            return [*metrics, *self._learn(collected)]
        self._pending = collected
        return metrics

    def _at_once(
        self, collect: Callable[[], list[Trajectory]], learn: Callable[[], list[Metrics]]
    ) -> tuple[list[Trajectory], list[Metrics]]:
        """The core lets other threads go on while it learns, so that this takes as long as the longer one."""
        with _taking_turns_often(), ThreadPoolExecutor(max_workers=1) as aside:
            learning = aside.submit(learn)
            return collect(), learning.result()

    def _errand(self) -> Errand:
        return Errand(self._current_policy(), self._learner.version, self._learner.wants())

    def _collect(self, errand: Errand) -> list[Trajectory]:
        trajectories = self._actor.collect(errand.policy, errand.version, errand.steps)
        self._steps += sum(len(trajectory) for trajectory in trajectories)
        self._logbook.see(trajectories)
        self._recent.extend(self._actor.take_finished())
        return trajectories

    def _learn(self, trajectories: list[Trajectory]) -> list[Metrics]:
        return self._learner.learn(trajectories)

    def _settle(self) -> None:
        """Evaluate, log and save as the last round made due. A stop may break this off; a resumed run does it again."""
        if self._unsettled_since is None:
            return
        training = self._config.training
        try:
            self._film()
            improved = self._judged and self._due(training.eval_frequency) and self._evaluate()
        except EvaluationStopped:
            self._save()
            return
        if self._due(self._config.logging.frequency):
            self._log_means()
        saves = improved or self._due(training.checkpoint_frequency)
        self._unsettled_since = None
        if saves:
            self._save(best=improved)
        self._observer.progress(self.progress())

    def _due(self, frequency: int) -> bool:
        """Whether the last round crossed a multiple of ``frequency``, or the end of training."""
        assert self._unsettled_since is not None  # asked only while a round is being settled
        crossed = self._unsettled_since // frequency != self._steps // frequency
        return crossed or self._trained

    @property
    def _judged(self) -> bool:
        """A live system cannot be stepped here, so a policy learnt from its journal is not judged here."""
        return self._config.environment.wrapper != "live"

    @property
    def _trained(self) -> bool:
        return self._steps >= self._config.training.total_timesteps

    def _current_policy(self) -> Policy:
        if self._policy is None or self._policy[0] != self._learner.version:
            self._policy = self._learner.version, self._learner.policy()
        return self._policy[1]

    def _film(self) -> None:
        """Comes before evaluation: a stop in either leaves nothing that the resumed run would do twice."""
        frequency = self._config.logging.video_frequency
        if self._filming is None or frequency is None or not self._due(frequency):
            return
        video = self._filming.shoot(self._steps, self._current_policy().greedy(), lambda: self._stopping)
        if video is not None:
            self._logbook.write_video(self._steps, video)

    def _evaluate(self) -> bool:
        """Judge the policy as it is now; true if it is the best so far."""
        config = self._config
        self._evaluation = evaluate(
            config.environment,
            self._current_policy().greedy(),
            config.training.num_eval_episodes,
            config.experiment.seed,
            stopping=lambda: self._stopping,
        )
        self._evaluated_at = self._steps
        mean = self._evaluation.mean_return
        row = {
            "evaluation/return": mean,
            "evaluation/return_std": self._evaluation.std_return,
            "evaluation/length": float(np.mean(self._evaluation.lengths)),
        }
        self._logbook.write(self._steps, row)
        self._alerts.see(self._steps, row)
        improved = self._best is None or mean > self._best
        self._best = mean if improved else self._best
        return improved

    def _log_means(self) -> None:
        row = {"learner/version": float(self._learner.version), "learner/refused_steps": float(self._learner.refused)}
        if self._recent:
            row["episode/return"] = float(np.mean([e.total_reward for e in self._recent]))
            row["episode/length"] = float(np.mean([e.length for e in self._recent]))
        self._alerts.see(self._steps, self._logbook.write_means(self._steps, row))
        self._write_status("running")

    def _save(self, *, best: bool = False) -> None:
        self._run.checkpoints.save(self._steps, self.state(), self._learner.portable(), best=best)
        self._saved_at = self._steps

    def _record_failure(self, problem: BaseException) -> None:
        self._alerts.fail(self._steps, problem)
        if isinstance(problem, NumericalError):
            name = self._run.checkpoints.save_aside(f"failed_{self._steps}", self.state(), self._learner.portable())
            self._observer.note(f"the state at the failure is kept in {self._run.path}/checkpoints/{name}")
        # A full disk must not hide what went wrong behind a status that cannot be written.
        with suppress(RunError):
            self._write_status("failed")

    @contextmanager
    def _closing_actor(self) -> Iterator[None]:
        try:
            yield
        finally:
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


@contextmanager
def _taking_turns_often() -> Iterator[None]:
    """What learns needs Python's lock between its calls of the core; at 5 ms a turn it would get nowhere meanwhile."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    try:
        yield
    finally:
        sys.setswitchinterval(usual)


@contextmanager
def _collecting_only_what_is_new() -> Iterator[None]:
    """Python's collector would look at all that was imported again and again, for a tenth of the time of quick runs.

    What is garbage already stays until the end: looking for it would take longer than it is worth.
    """
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def check_before_training(config: ExperimentConfig, observer: Observer) -> None:
    """Try the environment for a few steps; what would spoil the run is refused, what it costs is noted."""
    environment = config.environment
    if environment.wrapper in ("live", "pettingzoo"):
        return
    found = check_environment(lambda: make_environment(environment), remake=environment.remake)
    errors = [finding.text for finding in found if finding.severity == "error"]
    if errors:
        raise SpecError(f"nothing can be learnt in {environment.name} as it is:\n" + "\n".join(errors))
    for finding in found:
        if finding.severity == "warning":
            observer.note(f"{environment.name}: {finding.text}")


def build_actor(config: ExperimentConfig) -> AnyActor | Player:
    """What experience comes from: environments, or a data set."""
    seed = np.random.SeedSequence([config.experiment.seed, 0])
    if config.dataset is not None:
        return Player(load_dataset(config.dataset), seed)
    return make_actor(config.environment, seed)


def build_local_learner(
    config: ExperimentConfig, actor: AnyActor | Player, observer: Observer, provided: Provided = NOTHING
) -> Learner:
    """The learner of a local run, on the device asked for if this machine has it."""
    wanted = config.experiment.device
    device = available_device(wanted)
    if wanted not in (device, "auto"):
        observer.note(f"experiment.device is {wanted}, which this machine does not have; training on {device}")
    settings = config.learner(device)
    needs = needs_of(actor.spec, settings)
    needs.check(available_memory())
    if needs.cost.buffer_bytes > _LARGE_BUFFER:
        observer.note(f"the buffer takes {in_words(needs.cost.buffer_bytes)} when full")
    provided = replace(provided, goal_reward=_goal_reward(config, actor.spec))
    return build_learner(actor.spec, settings, config.experiment.seed, provided)


def _goal_reward(config: ExperimentConfig, spec: Spec) -> GoalReward | None:
    """How the environment rewards goals, from one made for that alone: the actor's may be in other processes."""
    return goal_reward(make_environment(config.environment)) if DESIRED_GOAL in spec.observation else None


def trained_policy(run: Run, checkpoint: str, observer: Observer) -> Policy:
    """The policy of a checkpoint: from its frozen form, or from the whole learner where there is none."""
    snapshot = run.checkpoints.load_policy(checkpoint)
    return SnapshotPolicy(snapshot) if snapshot is not None else trained_learner(run, checkpoint, observer).policy()


def trained_learner(run: Run, checkpoint: str, observer: Observer) -> Learner:
    """The learner as it was at a checkpoint, with all that it had learnt and kept."""
    actor = build_actor(run.config)
    learner = build_local_learner(run.config, actor, observer)
    learner.restore(run.checkpoints.load(checkpoint).state["learner"])
    actor.close()
    return learner
