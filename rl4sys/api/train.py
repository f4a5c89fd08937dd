"""Function `train`, which creates the same runs as the command ``rl4sys train``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, overload

from rl4sys.api.callbacks import Callback, as_callbacks
from rl4sys.api.execution import ROOT, run_in_parallel, train_run
from rl4sys.api.experiment import ExperimentArguments, Source
from rl4sys.api.run import RunHandle
from rl4sys.api.runs import RunList
from rl4sys.environments.provided import is_recorded
from rl4sys.errors import ConfigError
from rl4sys.runs.config import ExperimentConfig
from rl4sys.runs.run import Run, with_absolute_source
from rl4sys.sweeps.parallel import check_parallel
from rl4sys.training.progress import LoggingObserver


@overload
def train(
    config: Source | None = ...,
    *,
    algorithm: Any = ...,
    environment: Any = ...,
    seed: int | None = ...,
    total_timesteps: int | None = ...,
    root: str | Path = ...,
    jobs: int = ...,
    callbacks: Any = ...,
    progress: bool = ...,
    **settings: Any,
) -> RunHandle: ...


@overload
def train(
    config: Source | None = ...,
    *,
    algorithm: Any = ...,
    environment: Any = ...,
    seed: Sequence[int],
    total_timesteps: int | None = ...,
    root: str | Path = ...,
    jobs: int = ...,
    callbacks: Any = ...,
    progress: bool = ...,
    **settings: Any,
) -> RunList: ...


def train(  # noqa: PLR0913 - each is a keyword of the public function
    config: Source | None = None,
    *,
    algorithm: Any = None,
    environment: Any = None,
    seed: int | Sequence[int] | None = None,
    total_timesteps: int | None = None,
    root: str | Path = ROOT,
    jobs: int = 1,
    callbacks: Any = (),
    progress: bool = True,
    **settings: Any,
) -> RunHandle | RunList:
    """Train a policy and return its run; with several seeds, one run per seed.

    ``config`` is the name of a shipped experiment, a config file, settings or a typed config. Without ``config``, give
    ``algorithm`` (a name or a registered class) and ``environment`` (a Gymnasium id, a class, a function that creates
    an environment, or an environment that can be created again). Other keyword arguments are settings by dotted name
    or as blocks. With several seeds, ``jobs`` runs are trained in parallel. Ctrl-C saves a checkpoint.

    >>> import rl4sys
    >>> run = rl4sys.train("ppo_cartpole", seed=1, total_timesteps=512, progress=False, **{"algorithm.lr": 1e-3})
    >>> run.config.algorithm.lr.start
    0.001
    >>> run = rl4sys.train(
    ...     algorithm="ppo", environment="CartPole-v1", training={"total_timesteps": 2048}, progress=False
    ... )
    >>> run.steps
    2048
    """
    note = LoggingObserver().note
    changes = {**settings, **_changes(total_timesteps)}
    arguments = [
        ExperimentArguments(config, algorithm, environment, {**changes, **change}) for change in _seed_changes(seed)
    ]
    experiments = [with_absolute_source(argument.parse(note), Path(root)) for argument in arguments]
    called = as_callbacks(callbacks)
    check_parallel(experiments, jobs)
    if jobs > 1 and called:
        raise ConfigError(
            f"jobs is {jobs}, but callbacks run in this process only; use jobs=1, or remove the callbacks"
        )
    if jobs > 1:
        runs = [Run.create(Path(root), experiment, datetime.now()) for experiment in experiments]
        run_in_parallel(runs, jobs, progress=progress)
    else:
        runs = [_train_one(experiment, Path(root), called, note, progress=progress) for experiment in experiments]
    handles = RunList(map(RunHandle, runs))
    return handles if _is_several(seed) else handles[0]


def _train_one(
    config: ExperimentConfig, root: Path, callbacks: list[Callback], note: Callable[[str], None], *, progress: bool
) -> Run:
    """Train an experiment in a new run directory."""
    run = Run.create(root, config, datetime.now())
    if not is_recorded(config.environment):
        note(
            f"the environment {config.environment.name!r} cannot be imported, so a command or another process cannot "
            "create it. Pass environment= to resume, evaluate and verify the run, or move the environment into a module"
        )
    train_run(run, callbacks, progress=progress)
    return run


def _changes(total_timesteps: int | None) -> dict[str, Any]:
    return {} if total_timesteps is None else {"training.total_timesteps": total_timesteps}


def _is_several(seed: int | Sequence[int] | None) -> bool:
    return seed is not None and not isinstance(seed, int)


def _seed_changes(seed: int | Sequence[int] | None) -> list[dict[str, Any]]:
    """Return the seed setting for each run; without a seed, one empty dict. Raises `ConfigError` for non-integers."""
    if seed is None:
        return [{}]
    seeds = [seed] if isinstance(seed, int) else list(seed) if isinstance(seed, Iterable) else []
    if not seeds or not all(isinstance(one, int) for one in seeds):
        raise ConfigError(
            f"seed is {seed!r:.80}; expected an integer such as 1, or a list of integers such as [1, 2, 3]"
        )
    return [{"experiment.seed": one} for one in seeds]
