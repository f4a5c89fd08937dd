"""Classes of the mono-repo document (trainer, checkpoint manager, tracker, tools), implemented with RL4Sys modules.

====================================  =====================================================
name                                  equivalent command or module
====================================  =====================================================
`Trainer`                             ``rl4sys train``, `training.loop`
`DistributedTrainer`                  not supported; raises `ConfigError`
`CheckpointManager`                   `runs.checkpoint`
`ExperimentTracker`                   ``rl4sys list`` and ``rl4sys compare``, `runs.store`
`ReproducibilityChecker`              ``rl4sys verify``
`AutoTuner`                           ``rl4sys tune``, `sweeps.ask_tell`
`DebugMode`                           ``rl4sys train --debug``, `diagnostics.update_checks`
`TrainingMonitor`                     the ``alerts`` block, `alerts`
`ExperimentCleaner`                   ``rl4sys cleanup``
====================================  =====================================================
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import torch

from rl4sys.alerts.delivery import Delivery
from rl4sys.alerts.rules import AlertConfig
from rl4sys.analysis.comparison import ComparisonOptions, compare
from rl4sys.analysis.comparison_report import to_json
from rl4sys.analysis.groups import group_runs
from rl4sys.analysis.selection import select_runs
from rl4sys.config import find, load, parse
from rl4sys.diagnostics.update_checks import UpdateChecks
from rl4sys.errors import ConfigError
from rl4sys.machine import measure_memory_usage
from rl4sys.networks.global_random import capture_random_states
from rl4sys.networks.plain_tree import from_plain, to_plain
from rl4sys.runs.checkpoint import LATEST, CheckpointStore
from rl4sys.runs.cleanup import CleanupRules, plan_cleanup, strip_run
from rl4sys.runs.config import ExperimentConfig, parse_experiment
from rl4sys.runs.directory import RunDirectory
from rl4sys.runs.query import Filter, filter_runs
from rl4sys.runs.run import Run
from rl4sys.runs.store import FILE, RunStore, register
from rl4sys.runs.summary import RunSummary, read_summary
from rl4sys.sweeps.ask_tell import AskTellSearch
from rl4sys.training.loop import TrainingLoop
from rl4sys.training.progress import LoggingObserver, Progress
from rl4sys.training.session import open_loop
from rl4sys.verification.report import VerificationReport
from rl4sys.verification.verify import verify

_log = logging.getLogger("rl4sys.monitor")

ROOT = Path("experiments")


class Trainer:
    """Trains the experiment of a config file as ``rl4sys train`` does. If ``config_path`` is a run, it is resumed."""

    def __init__(self, config_path: str | Path, root: str | Path = ROOT) -> None:
        path = Path(config_path)
        self._run = Run.open(path) if Run.exists(path) else _create_run(str(config_path), Path(root))
        self.config: ExperimentConfig = self._run.config
        self.exp_dir = self._run.path
        self._loop: TrainingLoop | None = None

    def train(self) -> Progress:
        """Train until all steps are taken or `stop` is called, and return the progress."""
        with self._run.locked():
            self._loop = open_loop(self._run, TrainingLoop, LoggingObserver())
            return self._loop.progress() if self._loop.progress().finished else self._loop.train()

    def stop(self) -> None:
        """Request a stop after the current round; may be called from a signal handler."""
        if self._loop is not None:
            self._loop.stop()

    @property
    def global_step(self) -> int:
        """Number of steps taken so far; 0 before `train` is called."""
        return self._loop.progress().steps if self._loop else 0


class DistributedTrainer(Trainer):
    """Trainer over several GPUs or machines. Needs Ray, which this release does not support."""

    def __init__(self, config_path: str | Path, root: str | Path = ROOT) -> None:
        raise ConfigError(
            f"DistributedTrainer({str(config_path)!r}) needs Ray, which this release does not support; use Trainer, or "
            "`rl4sys sweep` for many runs on one machine"
        )


def _create_run(source: str, root: Path) -> Run:
    config = parse_experiment(load(source), beside=find(source).parent)
    return Run.create(root, config, datetime.now())


class CheckpointManager:
    """Checkpoints of a custom training loop, in the format of RL4Sys: JSON and safetensors, never pickle."""

    def __init__(self, experiment_dir: str | Path) -> None:
        self.experiment_dir = Path(experiment_dir)
        self.checkpoint_dir = RunDirectory(self.experiment_dir).checkpoints
        self._store = CheckpointStore(self.checkpoint_dir)

    def save(self, trainer_state: Mapping[str, Any], name: str = "checkpoint") -> Path:
        """Save the state as ``name_STEP`` with the global random states, link ``latest`` to it, and return its path.

        ``trainer_state`` must have algorithm and buffer (objects with ``save_checkpoint()``), global_step, episode and
        metrics.
        """
        missing = [key for key in _STATE_KEYS if key not in trainer_state]
        if missing:
            raise ConfigError(f"trainer_state lacks {', '.join(missing)}; expected the keys {', '.join(_STATE_KEYS)}")
        checkpoint = {key: trainer_state[key] for key in _STATE_KEYS}
        for key in ("algorithm", "buffer"):
            checkpoint[key] = trainer_state[key].save_checkpoint()
        checkpoint["rng_states"] = {
            **capture_random_states(torch.device("cpu")),
            "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        }
        saved = self._store.save_named(f"{name}_{trainer_state['global_step']}", to_plain(checkpoint))
        return self.checkpoint_dir / saved

    def load_latest(self) -> dict[str, Any] | None:
        """Return the last saved checkpoint with its tensors, arrays and tuples, or None if no checkpoint exists."""
        if not (self.checkpoint_dir / LATEST).exists():
            return None
        checkpoint: dict[str, Any] = from_plain(self._store.load(self._store.resolve(LATEST)).state)
        return checkpoint

    def auto_save(self, trainer_state: Mapping[str, Any], frequency: int = 10_000) -> Path | None:
        """Save if ``global_step`` is a multiple of ``frequency``; return the path, or None if nothing was saved."""
        return self.save(trainer_state, "auto") if trainer_state["global_step"] % frequency == 0 else None


_STATE_KEYS = ("algorithm", "buffer", "global_step", "episode", "metrics")


class ExperimentTracker:
    """Searchable index of experiments: the run store of ``root``."""

    def __init__(self, root: str | Path = ROOT) -> None:
        self.root = Path(root)
        self.experiments_db = self.root / FILE

    def register_experiment(self, config: Any, exp_dir: str | Path) -> dict[str, Any]:
        """Add an experiment below ``root`` to the index and return its metadata.

        If the directory is not a run, because a custom training loop wrote it, config and provenance are added.
        """
        path = Path(exp_dir)
        if not Run.exists(path):
            parsed = config if isinstance(config, ExperimentConfig) else parse_experiment(config)
            Run.create_at(path, parsed, datetime.now())
        register(path)
        return _metadata(read_summary(path))

    def find_experiments(self, **filters: Any) -> list[dict[str, Any]]:
        """Return the metadata of matching experiments: ``find_experiments(algorithm="ppo", seed=1)``, oldest first."""
        conditions = [Filter(key, "=", str(value)) for key, value in filters.items()]
        return [_metadata(run) for run in filter_runs(RunStore(self.root).runs(), conditions)]

    def compare_experiments(self, exp_ids: Sequence[str], metrics: Sequence[str] = ("reward",)) -> dict[str, Any]:
        """Return final and best values, curves and differing settings, as ``rl4sys compare --json`` prints them."""
        groups = group_runs(select_runs(exp_ids, self.root).chosen, "run")
        return to_json(compare(groups, metrics, ComparisonOptions()))


def _metadata(run: RunSummary) -> dict[str, Any]:
    return {
        "id": run.id,
        "name": run.name,
        "algorithm": run.algorithm,
        "environment": run.environment,
        "timestamp": run.started,
        "git_hash": run.git_hash,
        "config_hash": run.config_hash,
        "directory": str(run.path),
        "seed": run.seed,
        "status": run.status,
        "reward": run.reward,
    }


class ReproducibilityChecker:
    """Repeats runs and compares the results bit for bit."""

    def verify_experiment(self, exp_dir: str | Path) -> VerificationReport:
        """Repeat a run from its config and seed; ``identical`` of the report is True if all results are equal."""
        return verify(Run.open(Path(exp_dir)))


class AutoTuner:
    """Bayesian search over settings: suggests settings and uses the reported performance for later suggestions.

    ``search`` has a range or a list of values for each setting, as in a study: ``{"algorithm.lr": {"low": 1e-5, "high":
    1e-2, "log": True}}``. The results are stored in ``directory``.
    """

    def __init__(
        self,
        search: Mapping[str, Any],
        directory: str | Path = ROOT / "auto_tuner",
        direction: Literal["maximize", "minimize"] = "maximize",
        seed: int = 0,
    ) -> None:
        self._search = AskTellSearch(search, Path(directory), direction, seed)

    def suggest_next_config(self, history: Iterable[tuple[Mapping[str, Any], float]] = ()) -> dict[str, Any]:
        """Return the next settings to try. ``history`` adds earlier results: pairs of settings and performance."""
        self._search.tell_all(history)
        return self._search.ask()

    def update_with_result(self, config: Mapping[str, Any], performance: float) -> None:
        """Store the performance of the settings in ``config``."""
        self._search.tell(config, performance)


class DebugMode(UpdateChecks):
    """Checks of each call of ``algorithm.update``.

    Enable them with ``algorithm.update = DebugMode(algorithm).wrap_update(algorithm.update)``.
    """


class TrainingMonitor:
    """Alerts on the metrics of a custom training loop.

    ``alerts`` has the settings of the config block of the same name, such as ``{"command": ["notify-send", "alert"]}``.
    To add a condition, add a function of the metrics to ``alert_conditions``. Call `close` at the end to wait until all
    alerts are sent.
    """

    def __init__(self, alerts: Mapping[str, Any] | None = None, threshold: float = -math.inf) -> None:
        """Create a monitor; the condition slow_progress is true for a reward below ``threshold``."""
        self.metrics_buffer: deque[Mapping[str, float]] = deque(maxlen=1000)
        self.alert_conditions: dict[str, Callable[[Mapping[str, float]], bool]] = {
            "nan_loss": lambda metrics: not math.isfinite(metrics.get("loss", 0.0)),
            "slow_progress": lambda metrics: metrics.get("reward", math.inf) < threshold,
            "memory_high": lambda metrics: metrics.get("memory_usage", _memory_usage()) > _HIGH_MEMORY,
        }
        self._delivery = Delivery(parse(AlertConfig, alerts or {}, "alerts"))

    def check_alerts(self, metrics: Mapping[str, float]) -> list[str]:
        """Send an alert for each condition that is true, and return the names of these conditions."""
        self.metrics_buffer.append(metrics)
        active = [name for name, condition in self.alert_conditions.items() if condition(metrics)]
        for name in active:
            self.send_alert(name, metrics)
        return active

    def send_alert(self, name: str, metrics: Mapping[str, float]) -> None:
        """Write an alert to Python's log, and send it to the configured command and webhook in the background."""
        values = ", ".join(f"{key} {value:g}" for key, value in metrics.items())
        _log.warning("alert %s: %s", name, values)
        time = datetime.now().isoformat(timespec="seconds")
        self._delivery.send(
            {"rule": name, "status": "fired", "time": time, "message": values, "metrics": dict(metrics)}
        )

    def close(self) -> None:
        """Wait until all pending alerts are sent, and log failed deliveries."""
        self._delivery.close()
        for error in self._delivery.errors():
            _log.warning("%s", error)


_HIGH_MEMORY = 0.9


def _memory_usage() -> float:
    return measure_memory_usage().used_share or 0.0


class ExperimentCleaner:
    """Removes checkpoints, logs and videos of old experiments; configs and metrics are kept."""

    def __init__(self, root: str | Path = ROOT) -> None:
        self.root = Path(root)

    def cleanup_old_experiments(self, keep_best_n: int = 10, keep_recent_days: int = 30) -> list[Path]:
        """Clean up old experiments, except the best of each environment; return the directories of the cleaned ones."""
        rules = CleanupRules(keep_best_n, timedelta(days=keep_recent_days))
        plan = plan_cleanup(RunStore(self.root).runs(), rules, datetime.now())
        for path in plan.strip:
            strip_run(path, datetime.now())
        return list(plan.strip)
