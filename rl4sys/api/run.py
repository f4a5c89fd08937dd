"""Handle of a run, to evaluate, resume and verify it, read and plot its metrics, and load its policy."""

from __future__ import annotations

import math
from contextlib import suppress
from pathlib import Path
from typing import Any

from rl4sys.analysis.charts import comparison_chart
from rl4sys.analysis.comparison import ComparisonOptions
from rl4sys.analysis.comparison import compare as compare_groups
from rl4sys.analysis.groups import group_runs
from rl4sys.analysis.history import open_history
from rl4sys.api.callbacks import as_callbacks
from rl4sys.api.execution import ROOT, train_run
from rl4sys.api.policy import DecodeActions, Policy
from rl4sys.api.views import Plot, VideoFile, as_table, html_table
from rl4sys.environments.config import EnvironmentConfig
from rl4sys.environments.encoding import to_space_actions
from rl4sys.environments.evaluation import Evaluation
from rl4sys.environments.evaluation import evaluate as run_episodes
from rl4sys.environments.factory import make_environment
from rl4sys.environments.provided import environment_settings, is_recorded, provide_environment
from rl4sys.errors import ConfigError, RL4SysError
from rl4sys.metric_names import REWARD, reward_metric
from rl4sys.runs.config import ExperimentConfig, parse_experiment
from rl4sys.runs.run import Run
from rl4sys.runs.summary import RunSummary, read_summary, with_current_status
from rl4sys.training.policy_source import check_compatible, find_policy_source, policy_source
from rl4sys.training.progress import LoggingObserver
from rl4sys.training.session import apply_resumed_config, check_resumable, resumed_config
from rl4sys.verification.report import VerificationReport
from rl4sys.verification.verify import verify


class RunHandle:
    """Handle of a training run, as returned by `rl4sys.train` and `rl4sys.load_run`.

    >>> import rl4sys
    >>> run = rl4sys.train("ppo_cartpole", total_timesteps=1024, progress=False)
    >>> run.status, run.steps
    ('completed', 1024)
    >>> len(run.evaluate(episodes=3).returns)
    3
    """

    def __init__(self, run: Run) -> None:
        self._run = run

    @property
    def path(self) -> Path:
        """Run directory."""
        return self._run.path

    @property
    def config(self) -> ExperimentConfig:
        """Complete config of the run."""
        return self._run.config

    @property
    def summary(self) -> RunSummary:
        """Properties that `rl4sys list` shows, such as status and reward. Each access reads the run directory."""
        return with_current_status(read_summary(self.path))

    @property
    def id(self) -> str:
        """Id of the run. Commands accept it instead of the path."""
        return self.summary.id

    @property
    def status(self) -> str:
        """State of the run: created, running, completed, stopped, interrupted or failed."""
        return self.summary.status

    @property
    def steps(self) -> int:
        """Number of environment steps trained so far."""
        return self.summary.steps

    @property
    def reward(self) -> float | None:
        """Mean return of the last evaluation, or of recent training episodes if there was no evaluation."""
        return self.summary.reward

    @property
    def seed(self) -> int:
        """Seed of the run."""
        return self.config.experiment.seed

    @property
    def checkpoints(self) -> list[str]:
        """Names of the checkpoints, oldest first, then "latest" and "best" if they exist."""
        return self._run.checkpoints.names()

    def evaluate(
        self,
        episodes: int = 100,
        *,
        checkpoint: str | int | None = None,
        environment: Any = None,
        deterministic: bool = True,
        seed: int | None = None,
    ) -> Evaluation:
        """Play whole episodes with the trained policy and return their returns and lengths.

        ``checkpoint`` is "latest" (the default), "best", a name or a step. ``seed`` defaults to the seed of the run.
        """
        if episodes < 1:
            raise ConfigError(f"episodes is {episodes}; expected at least 1")
        policy = policy_source(self._run, self._checkpoint(checkpoint)).load_policy(LoggingObserver())
        where = self._environment(environment)
        if environment is not None:
            check_compatible(where, policy)
        return run_episodes(
            where, policy.greedy() if deterministic else policy, episodes, self.seed if seed is None else seed
        )

    def metrics(self, *names: str) -> Any:
        """Return the metrics over time: a pandas DataFrame if pandas is installed, else a mapping of columns.

        Without ``names``, all metrics are returned. Each logged step is a row; missing values are NaN. "reward" is the
        evaluation return, or the return of training episodes if the run has no evaluations.
        """
        rows = self._run.directory.metric_rows()
        known = list(dict.fromkeys(key for row in rows for key in row if key != "step"))
        own = reward_metric([known], lambda metrics, name: name in metrics)
        source = {name: own if name == REWARD and REWARD not in known else name for name in names or known}
        unknown = [name for name in source if source[name] not in known]
        if unknown:
            raise ConfigError(f"{self.path} has no metric {unknown[0]!r}. Known: {', '.join(known) or 'none yet'}.")
        merged: dict[int, dict[str, float]] = {}
        for row in rows:
            merged.setdefault(int(row["step"]), {}).update(row)
        columns: dict[str, list[float]] = {"step": list(merged)}
        columns |= {name: [row.get(key, math.nan) for row in merged.values()] for name, key in source.items()}
        return as_table(columns)

    def plot(self, *metrics: str, smooth: int = 1) -> Plot:
        """Plot the given metrics over steps; without ``metrics``, plot the reward."""
        groups = group_runs([(self.path.name, [open_history(self.path)])], "run")
        return Plot(comparison_chart(compare_groups(groups, metrics or ("reward",), ComparisonOptions("iqm", smooth))))

    def video(
        self, path: str | Path | None = None, *, episodes: int = 1, checkpoint: str | int | None = None
    ) -> VideoFile:
        """Record episodes of the greedy policy in an ``.mp4`` or ``.gif`` file, by default in ``videos`` of the run."""
        from rl4sys.environments.rendering import Rollouts, roll_out
        from rl4sys.environments.video import Video, check_video

        source = policy_source(self._run, self._checkpoint(checkpoint))
        target = Path(path) if path is not None else self._run.directory.videos / f"{source.checkpoint}.mp4"
        check_video(target)
        policy = source.load_policy(LoggingObserver()).greedy()
        length = self.config.logging.video_length
        with Video(target) as video:
            result = roll_out(self._environment(None), policy, Rollouts(episodes, length, self.seed), video)
        return VideoFile(target, result)

    def policy(self, checkpoint: str | int | None = None, *, seed: int | None = None) -> Policy:
        """Load the policy of a checkpoint: "latest" (the default), "best", a name or a step."""
        policy = policy_source(self._run, self._checkpoint(checkpoint)).load_policy(LoggingObserver())
        return Policy(policy, seed=seed, decode=self._decoder())

    def resume(
        self,
        total_timesteps: int | None = None,
        *,
        environment: Any = None,
        callbacks: Any = (),
        progress: bool = True,
    ) -> RunHandle:
        """Continue the run exactly from its newest checkpoint, up to ``total_timesteps`` if given."""
        called = as_callbacks(callbacks)
        check_resumable(self._run)
        if environment is not None:
            self._provide(environment)
        with self._run.locked():
            if total_timesteps is not None:
                settings = self.config.to_settings()
                settings["training"]["total_timesteps"] = total_timesteps
                wanted = resumed_config(self._run, parse_experiment(settings))
                apply_resumed_config(self._run, wanted, LoggingObserver().note)
            train_run(self._run, called, progress=progress)
        return self

    def verify(self, *, environment: Any = None) -> VerificationReport:
        """Train again with the config and seed of the run, and compare the results with the run bit by bit."""
        if environment is not None:
            self._provide(environment)
        return verify(self._run)

    def __repr__(self) -> str:
        found = self.summary
        reward = "" if found.reward is None else f", reward {found.reward:.1f}"
        return f"Run({str(self.path)!r}, {found.status}, {found.steps:,} steps{reward})"

    def _repr_html_(self) -> str:
        found = self.summary
        rows = [
            ["algorithm", found.algorithm],
            ["environment", found.environment],
            ["seed", str(found.seed)],
            ["status", f"{found.status} after {found.steps:,} steps"],
            ["reward", "none yet" if found.reward is None else f"{found.reward:.1f}"],
            ["directory", str(self.path)],
        ]
        return html_table(["", ""], rows, found.name)

    def _checkpoint(self, wanted: str | int | None) -> str | None:
        """Return the name of a checkpoint that is given by name or step; None selects the default."""
        if wanted is None or isinstance(wanted, str):
            return wanted
        return next((name for name in self.checkpoints if name == f"step_{wanted:012d}"), str(wanted))

    def _environment(self, wanted: Any) -> EnvironmentConfig:
        """Return the environment for an evaluation: ``wanted``, or by default the environment of the run."""
        own = self.config.environment
        if wanted is None:
            return own
        if not is_recorded(own) and not isinstance(wanted, str | dict):
            self._provide(wanted)
            return own
        return EnvironmentConfig.model_validate(environment_settings(wanted))

    def _provide(self, environment: Any) -> None:
        """Provide the environment of a run that was trained in an environment that cannot be imported."""
        own = self.config.environment
        if is_recorded(own):
            raise ConfigError(
                f"environment was given, but the config of {self.path} already has environment.name {own.name!r}; "
                "remove environment, or start a new run"
            )
        provide_environment(own.name, environment)

    def _decoder(self) -> DecodeActions | None:
        """Return a function that converts actions for the environment; None if the environment cannot be created."""
        with suppress(RL4SysError):
            made = make_environment(self.config.environment)
            space = made.action_space
            made.close()
            return lambda actions: to_space_actions(space, actions)
        return None


def load_policy_of(source: str, checkpoint: str | int | None, seed: int | None) -> Policy:
    """Load the policy of a run, given by path, name or id, or of a checkpoint directory."""
    found = find_policy_source(source, ROOT, None)
    if found.run is None or _is_checkpoint(found.run, source):
        if checkpoint is not None:
            raise ConfigError(
                f"checkpoint is {checkpoint!r}, but {source} is a checkpoint directory; remove checkpoint, which is "
                "only for runs"
            )
        return Policy(found.load_policy(LoggingObserver()), seed=seed)
    return RunHandle(found.run).policy(checkpoint, seed=seed)


def _is_checkpoint(run: Run, source: str) -> bool:
    """Return True if ``source`` is a checkpoint directory of the run, False if it is the run directory."""
    return Path(source).parent == run.directory.checkpoints
