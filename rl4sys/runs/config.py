"""Config of an experiment: typed models of its blocks, and the parser."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, SerializeAsAny, field_validator

from rl4sys.alerts.rules import AlertConfig
from rl4sys.algorithms.base import AlgorithmConfig, Backend
from rl4sys.algorithms.imitation import WarmStartConfig
from rl4sys.buffers.base import BufferConfig
from rl4sys.buffers.rollout import RolloutConfig
from rl4sys.config import VERSION, Config, Settings, did_you_mean, parse
from rl4sys.dataset import DatasetConfig
from rl4sys.environments.config import EnvironmentConfig
from rl4sys.errors import ConfigError
from rl4sys.learner.config import LearnerConfig, parse_algorithm, parse_buffer, parse_networks
from rl4sys.networks.base import NetworkConfig
from rl4sys.registry import LOGGERS, load_plugins
from rl4sys.runs.directory import TAG_PATTERN, is_run, split_checkpoint
from rl4sys.runs.migration import is_variant, migrate_experiment


class RunConfig(Config):
    """Block `experiment`: name, seed, tags and hardware of a run."""

    name: str = Field(default="experiment", pattern=r"^[\w.-]+$")
    """First part of the name of the run directory: letters, digits, dot, dash and underscore."""
    seed: int = Field(default=0, ge=0)
    """Seed of all random number generators of the run."""
    tags: list[Annotated[str, Field(pattern=TAG_PATTERN)]] = Field(default_factory=list)
    """Labels for filtering runs, such as baseline. `rl4sys tag` changes the tags of an existing run."""
    device: str = Field(default="auto", pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$")
    """Device to train on: auto, cpu, cuda, cuda:1 or mps. If the device is not available, training runs on the cpu."""
    backend: Backend = "auto"
    """Implementation of fully connected networks on a CPU: auto uses the native core for supported networks and torch
    for others; torch always uses torch; native always uses the native core and fails for unsupported networks."""
    threads: int = Field(default=1, gt=0, le=1024)
    """Number of torch threads. One thread is fastest for small networks and makes results reproducible."""


class TrainingConfig(Config):
    """Block `training`: training length, evaluations and checkpoints."""

    total_timesteps: int = Field(default=100_000, gt=0)
    """Total number of steps over all environments. The rollout that reaches this number is completed."""
    eval_frequency: int = Field(default=10_000, gt=0)
    """Number of steps between evaluations of the greedy policy."""
    eval_at_start: bool = False
    """Also evaluate the initial policy, at step 0."""
    num_eval_episodes: int = Field(default=10, gt=0)
    """Number of episodes per evaluation. All evaluations use the same environment seeds."""
    checkpoint_frequency: int = Field(default=50_000, gt=0)
    """Number of steps between checkpoints. A checkpoint is also written at the start and at the end."""
    keep_checkpoints: int = Field(default=3, gt=0)
    """Number of newest checkpoints to keep, in addition to the one with the best evaluation."""
    pipeline: bool = False
    """Learn from one rollout while the next one is collected on another core. The policy that collects is then one
    version older; the algorithm corrects for this. Only for algorithms that learn from rollouts."""


class WandbConfig(Config):
    """Block `logging.wandb`: Weights & Biases logger. Records offline without an API key or a network connection."""

    enabled: bool = False
    """Log to Weights & Biases."""
    project: str = "rl4sys"
    """Name of the Weights & Biases project."""
    tags: list[str] = Field(default_factory=list)
    """Tags of the run in Weights & Biases."""


class MlflowConfig(Config):
    """Block `logging.mlflow`: MLflow logger. If the tracking server is unreachable, metrics are sent later."""

    enabled: bool = False
    """Log to MLflow."""
    tracking_uri: str | None = None
    """Address of a tracking server, or a database such as sqlite:///mlflow.db. Null uses mlflow.db in the
    parent folder of the run directory, shared by all runs in this folder."""
    experiment: str = "rl4sys"
    """Name of the MLflow experiment."""


class LoggingConfig(Config):
    """Block `logging`: destinations of metrics in addition to metrics.jsonl, and videos."""

    terminal: bool = True
    """Show progress on the terminal."""
    tensorboard: bool = True
    """Write TensorBoard event files to logs/."""
    frequency: int = Field(default=1000, gt=0)
    """Number of steps between metrics rows. Each row holds the means of update metrics since the previous row, and the
    means over the last 100 episodes."""
    wandb: WandbConfig = WandbConfig()
    """Settings of the Weights & Biases logger."""
    mlflow: MlflowConfig = MlflowConfig()
    """Settings of the MLflow logger."""
    loggers: list[str] = Field(default_factory=list)
    """Names of custom loggers that plugins registered with `register_logger`."""
    video_frequency: int | None = Field(default=None, gt=0)
    """Number of steps between videos of the greedy policy in videos/; null for no videos."""
    video_episodes: int = Field(default=1, gt=0)
    """Number of episodes per video."""
    video_length: int = Field(default=1000, gt=0)
    """Maximum number of steps per episode of a video."""

    @field_validator("loggers")
    @classmethod
    def _check_registered(cls, loggers: list[str]) -> list[str]:
        for name in loggers:
            if name not in LOGGERS:
                known = ", ".join(LOGGERS.names()) or "none"
                raise ValueError(f"the logger {name!r} is not registered; add its module to `plugins:`. Known: {known}")
        return loggers


class ExperimentConfig(Config):
    """Complete config of an experiment. Only `algorithm.name` and `environment.name` are required."""

    version: int = VERSION
    """Version of the config format."""
    plugins: list[str] = Field(default_factory=list)
    """Modules or Python files with custom components, imported before component names are resolved."""
    experiment: RunConfig = RunConfig()
    """Name, seed, tags and hardware of the run."""
    algorithm: SerializeAsAny[AlgorithmConfig]
    """Algorithm, selected by name, and its hyperparameters."""
    environment: EnvironmentConfig
    """Environment to train in. With a dataset: environment for evaluations, or `family: live` for no evaluations."""
    dataset: DatasetConfig | None = None
    """Recorded experience for offline training."""
    initialize_from: str | None = None
    """Run whose weights a new run starts with, as RUN or RUN@checkpoint (latest, best or a name). Weights with the same
    name and shape are copied; a note lists the others. RUN is a run directory, or an id or name below the same root."""
    warm_start: WarmStartConfig | None = None
    """Recorded decisions, such as those of a heuristic, that the initial policy imitates."""
    network: dict[str, SerializeAsAny[NetworkConfig]]
    """Networks of the algorithm by role, such as actor and critic."""
    buffer: SerializeAsAny[BufferConfig]
    """Buffer for experience; the default depends on the algorithm."""
    training: TrainingConfig = TrainingConfig()
    """Training length, evaluations and checkpoints."""
    logging: LoggingConfig = LoggingConfig()
    """Destinations of metrics and videos."""
    alerts: AlertConfig = AlertConfig()
    """Alert rules and their delivery."""

    def learner(self, device: str) -> LearnerConfig:
        """Return the config of the learner on `device`."""
        return LearnerConfig(
            algorithm=self.algorithm,
            networks=self.network,
            buffer=self._buffer(),
            normalize_obs=self.environment.normalize_obs,
            normalize_reward=self.environment.normalize_reward,
            warm_start=self.warm_start,
            device=device,
            backend=self.experiment.backend,
            total_timesteps=self.training.total_timesteps,
        )

    def _buffer(self) -> BufferConfig:
        """Return the buffer config. With a pipeline, the buffer also accepts rollouts that are one version old."""
        if not self.training.pipeline or not isinstance(self.buffer, RolloutConfig):
            return self.buffer
        return self.buffer.model_copy(update={"max_staleness": max(1, self.buffer.max_staleness)})

    def with_buffer_size(self, size: int) -> ExperimentConfig:
        """Return a copy of the config with another buffer size."""
        return self.model_copy(update={"buffer": self.buffer.model_copy(update={"size": size})})

    def to_settings(self) -> Settings:
        """Return all settings, as stored with a run. Parsing these settings gives an equal config."""
        return self.model_dump(mode="json")


def parse_experiment(settings: Settings, beside: Path | None = None) -> ExperimentConfig:
    """Parse the settings of an experiment. Raises one `ConfigError` that lists all mistakes.

    `beside` is the directory of the config file. Plugin files may lie in this directory.
    """
    settings = migrate_experiment(settings, BLOCK_FIELDS, unmarked=VERSION).settings
    plugins = load_plugins(_plugins(settings), beside)
    mistakes: list[str] = []
    algorithm = _attempt(parse_algorithm, _block(settings, "algorithm"), mistakes)
    blocks: dict[str, Any] = {**settings, "plugins": plugins, "algorithm": algorithm}
    if algorithm is not None:
        name = algorithm.name
        blocks["network"] = _attempt(lambda s: parse_networks(s, name), settings.get("network", {}), mistakes)
        blocks["buffer"] = _attempt(lambda s: parse_buffer(s, name), settings.get("buffer", {}), mistakes)
    for block, model in _OPTIONAL_BLOCKS.items():
        if settings.get(block) is not None:
            blocks[block] = _attempt(partial(parse, model, at=block), settings[block], mistakes)
    for block, model in _PLAIN_BLOCKS.items():
        blocks[block] = _attempt(partial(parse, model, at=block), _block(settings, block), mistakes)
    for key in settings:
        if key not in ExperimentConfig.model_fields:
            mistakes.append(_explain_unknown_block(str(key), algorithm))
    if mistakes:
        raise ConfigError("\n".join(mistakes))
    blocks["initialize_from"] = _absolute_source(settings.get("initialize_from"), beside)
    config = parse(ExperimentConfig, blocks)
    _check_pipeline(config)
    return config


def _absolute_source(source: Any, beside: Path | None) -> Any:
    """Return ``RUN@checkpoint`` with the absolute path of a run directory, so that it is valid in other directories."""
    if not isinstance(source, str):
        return source
    name, checkpoint = split_checkpoint(source)
    folder = next((path for path in ((beside or Path()) / name, Path(name)) if is_run(path)), None)
    return source if folder is None else f"{folder.resolve()}@{checkpoint}"


def convert_variant(settings: Settings, note: Callable[[str], None] | None = None) -> Settings:
    """Convert a softlearning variant to a config, and `note` the list of changes. Return other settings unchanged."""
    if not is_variant(settings):
        return settings
    draft = migrate_experiment(settings, BLOCK_FIELDS)
    if note is not None:
        note(f"the config is a softlearning variant and was converted: {'; '.join(map(str, draft.changes))}")
    return draft.settings


def _check_pipeline(config: ExperimentConfig) -> None:
    if not config.training.pipeline or (config.dataset is None and isinstance(config.buffer, RolloutConfig)):
        return
    unsupported = "a dataset" if config.dataset is not None else f"the buffer {config.buffer.type}"
    raise ConfigError(
        f"training.pipeline does not support {unsupported}; set training.pipeline=false, or use an algorithm that "
        "learns from rollouts, such as ppo"
    )


def _explain_unknown_block(key: str, algorithm: AlgorithmConfig | None) -> str:
    models = {**_PLAIN_BLOCKS, **({"algorithm": type(algorithm)} if algorithm else {})}
    inside = [f"{block}.{key}" for block, model in models.items() if key in model.model_fields]
    known = list(ExperimentConfig.model_fields)
    meant = f"; did you mean {inside[0]}?" if inside else did_you_mean(key, known)
    return f"{key} is not a block{meant} Known blocks: {', '.join(known)}."


_PLAIN_BLOCKS: dict[str, type[Config]] = {
    "experiment": RunConfig,
    "environment": EnvironmentConfig,
    "training": TrainingConfig,
    "logging": LoggingConfig,
    "alerts": AlertConfig,
}


BLOCK_FIELDS = {name: frozenset(model.model_fields) for name, model in _PLAIN_BLOCKS.items()}
"""Names of the settings in each block, for blocks whose settings are the same for all components."""


_OPTIONAL_BLOCKS: dict[str, type[Config]] = {"dataset": DatasetConfig, "warm_start": WarmStartConfig}


def _attempt(parse_block: Callable[[Any], Any], settings: Any, mistakes: list[str]) -> Any:
    try:
        return parse_block(settings)
    except ConfigError as problem:
        mistakes.append(str(problem))
        return None


def _block(settings: Settings, name: str) -> Any:
    value = settings.get(name, {})
    return {} if value is None else value


def _plugins(settings: Mapping[str, Any]) -> list[str]:
    plugins = settings.get("plugins") or []
    if not isinstance(plugins, list) or not all(isinstance(plugin, str) for plugin in plugins):
        raise ConfigError(f"plugins is {plugins!r}; expected a list of modules or Python files")
    return plugins
