"""The whole config of an experiment, block by block."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, SerializeAsAny

from rl4sys.algorithms.base import AlgorithmConfig, Backend
from rl4sys.algorithms.imitation import WarmStartConfig
from rl4sys.buffers.base import BufferConfig
from rl4sys.buffers.rollout import RolloutConfig
from rl4sys.config import VERSION, Config, Settings, did_you_mean, parse
from rl4sys.dataset import DatasetConfig
from rl4sys.environments.config import EnvironmentConfig
from rl4sys.errors import ConfigError
from rl4sys.experiment.alerts import AlertSettings
from rl4sys.experiment.migration import migrate_experiment
from rl4sys.experiment.record import TAG
from rl4sys.learner import LearnerConfig, parse_algorithm, parse_buffer, parse_networks
from rl4sys.networks.base import NetworkConfig
from rl4sys.registry import load_plugins


class ExperimentSettings(Config):
    """The ``experiment`` block: what this run is called and where it computes."""

    name: str = Field(default="experiment", pattern=r"^[\w.-]+$")
    """First part of the run directory's name: letters, digits, dot, dash and underscore."""
    seed: int = Field(default=0, ge=0)
    """Decides every random number of the run."""
    tags: list[Annotated[str, Field(pattern=TAG)]] = Field(default_factory=list)
    """Labels to find the run by, such as baseline; `rl4sys tag` changes those of a run."""
    device: str = Field(default="auto", pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$")
    """Where networks are trained: auto, cpu, cuda, cuda:1 or mps; what is absent falls back to cpu."""
    backend: Backend = "auto"
    """Who computes fully connected networks on a processor: auto, the native core where it can; torch, never; native,
    the core, or the run is refused."""
    threads: int = Field(default=1, gt=0, le=1024)
    """Threads torch computes with; small networks are fastest, and results repeatable, with one."""


class TrainingSettings(Config):
    """The ``training`` block: how long, and what happens on the way."""

    total_timesteps: int = Field(default=100_000, gt=0)
    """Environment steps over all environments; the round in which it is reached is completed."""
    eval_frequency: int = Field(default=10_000, gt=0)
    """Steps between evaluations of the policy, acting greedily."""
    num_eval_episodes: int = Field(default=10, gt=0)
    """Episodes of an evaluation, started from the same seeds every time."""
    checkpoint_frequency: int = Field(default=50_000, gt=0)
    """Steps between checkpoints; one is also written at the start and at the end."""
    keep_checkpoints: int = Field(default=3, gt=0)
    """How many of the newest checkpoints stay; the one with the best evaluation always does."""
    pipeline: bool = False
    """Learn from one rollout while the next is collected, on another core: the policy that collects is then one version
    behind, which is corrected for. For algorithms that learn from rollouts."""


class WandbSettings(Config):
    """Weights & Biases; without an account or a network it records offline."""

    enabled: bool = False
    """Record to Weights & Biases."""
    project: str = "rl4sys"
    """The project the run is filed under."""
    tags: list[str] = Field(default_factory=list)
    """Labels to find the run by."""


class MlflowSettings(Config):
    """MLflow; a tracking server that is away stops nothing, and gets what it missed when it is back."""

    enabled: bool = False
    """Record to MLflow."""
    tracking_uri: str | None = None
    """Where: the address of a tracking server, or a database such as sqlite:///mlflow.db; null for mlflow.db beside the
    run directory, which all runs there share."""
    experiment: str = "rl4sys"
    """The experiment the run is filed under."""


class LoggingSettings(Config):
    """The ``logging`` block: where measurements go besides metrics.jsonl, which is always written."""

    terminal: bool = True
    """Show progress on the terminal."""
    tensorboard: bool = True
    """Write TensorBoard event files to logs/."""
    frequency: int = Field(default=1000, gt=0)
    """Steps between rows of metrics: means of the updates since the row before, and of the last 100 episodes."""
    wandb: WandbSettings = WandbSettings()
    """Weights & Biases."""
    mlflow: MlflowSettings = MlflowSettings()
    """MLflow."""
    video_frequency: int | None = Field(default=None, gt=0)
    """Steps between videos of the policy, acting greedily, in videos/; null for none."""
    video_episodes: int = Field(default=1, gt=0)
    """Episodes in a video: the first of an evaluation."""
    video_length: int = Field(default=1000, gt=0)
    """Steps after which each of them is cut."""


class ExperimentConfig(Config):
    """A whole experiment. Write it as YAML; only ``algorithm.name`` and ``environment.name`` must be there."""

    version: int = VERSION
    """Version of the config format."""
    plugins: list[str] = Field(default_factory=list)
    """Modules or Python files with components of your own, imported before names are looked up."""
    experiment: ExperimentSettings = ExperimentSettings()
    """What this run is called and where it computes."""
    algorithm: SerializeAsAny[AlgorithmConfig]
    """How it learns: an algorithm by its name, and its options."""
    environment: EnvironmentConfig
    """With a dataset, what the policy is judged in; wrapper: live for a system that cannot be."""
    dataset: DatasetConfig | None = None
    """Recorded experience to learn from instead of acting."""
    warm_start: WarmStartConfig | None = None
    """Recorded decisions that the first policy repeats, such as those of a heuristic."""
    network: dict[str, SerializeAsAny[NetworkConfig]]
    """The networks of the algorithm, by role, such as actor and critic."""
    buffer: SerializeAsAny[BufferConfig]
    """Where experience waits to be learnt from; by default the algorithm's custom."""
    training: TrainingSettings = TrainingSettings()
    """How long, and what happens on the way."""
    logging: LoggingSettings = LoggingSettings()
    """Where measurements and videos go."""
    alerts: AlertSettings = AlertSettings()
    """What to be told of while it trains, and how."""

    def learner(self, device: str) -> LearnerConfig:
        """The part that decides how the Learner learns."""
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
        """What a pipeline collects is one version old when it is learnt from."""
        if not self.training.pipeline or not isinstance(self.buffer, RolloutConfig):
            return self.buffer
        return self.buffer.model_copy(update={"max_staleness": max(1, self.buffer.max_staleness)})

    def to_settings(self) -> Settings:
        """Everything spelt out, as it is stored with a run; parses back to an equal config."""
        return self.model_dump(mode="json")


def parse_experiment(settings: Settings, beside: Path | None = None) -> ExperimentConfig:
    """Check every block and build the typed config; all mistakes are reported at once.

    ``beside`` is the folder of the config file, where plugins given as files are looked for too.
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
    config = parse(ExperimentConfig, blocks)
    _check_pipeline(config)
    return config


def _check_pipeline(config: ExperimentConfig) -> None:
    if not config.training.pipeline or (config.dataset is None and isinstance(config.buffer, RolloutConfig)):
        return
    what = "a dataset" if config.dataset is not None else f"the buffer {config.buffer.type}"
    raise ConfigError(
        f"training.pipeline is for algorithms that learn from rollouts, such as ppo; it does not go with {what}"
    )


def _explain_unknown_block(key: str, algorithm: AlgorithmConfig | None) -> str:
    models = {**_PLAIN_BLOCKS, **({"algorithm": type(algorithm)} if algorithm else {})}
    inside = [f"{block}.{key}" for block, model in models.items() if key in model.model_fields]
    known = list(ExperimentConfig.model_fields)
    meant = f"; did you mean {inside[0]}?" if inside else did_you_mean(key, known)
    return f"{key} is not a block{meant} Known: {', '.join(known)}."


_PLAIN_BLOCKS: dict[str, type[Config]] = {
    "experiment": ExperimentSettings,
    "environment": EnvironmentConfig,
    "training": TrainingSettings,
    "logging": LoggingSettings,
    "alerts": AlertSettings,
}


BLOCK_FIELDS = {name: frozenset(model.model_fields) for name, model in _PLAIN_BLOCKS.items()}
"""The settings of the blocks that are the same in every experiment."""


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
        raise ConfigError(f"plugins is {plugins!r}; it should be a list of modules or Python files")
    return plugins
