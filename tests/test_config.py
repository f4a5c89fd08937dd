"""Files to settings: what is read, merged and changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from rl4sys.algorithms.ppo import PPOConfig
from rl4sys.config import Config, load, override, parse, to_yaml
from rl4sys.errors import ConfigError
from rl4sys.experiment.config import parse_experiment

from .conftest import small_config


class Inner(Config):
    """A block."""

    width: int = 3
    """How wide."""


class Outer(Config):
    """A block with a block."""

    inner: Inner = Inner()
    """The inside."""
    rate: float | None = None
    """How fast."""


@pytest.mark.parametrize(("text", "value"), [("3e-4", 3e-4), ("1E5", 1e5), ("-2e3", -2e3), ("1.5e-3", 1.5e-3)])
def test_numbers_in_scientific_notation_are_numbers(tmp_path: Path, text: str, value: float) -> None:
    (tmp_path / "a.yaml").write_text(f"lr: {text}\n")
    assert load(tmp_path / "a.yaml") == {"lr": value}


def test_words_that_only_look_like_numbers_stay_words(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("a: 3e\nb: e4\nc: 1e4x\n")
    assert load(tmp_path / "a.yaml") == {"a": "3e", "b": "e4", "c": "1e4x"}


def test_a_whole_number_may_be_written_with_an_exponent() -> None:
    assert small_config("ppo", "training.total_timesteps=1e6").training.total_timesteps == 1_000_000


def test_json_is_read_too(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"inner": {"width": 7}}')
    assert parse(Outer, load(tmp_path / "a.json")).inner.width == 7


def test_a_file_starts_from_what_it_extends(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("inner: {width: 7}\nrate: 1\n")
    (tmp_path / "other.yaml").write_text("rate: 2\n")
    (tmp_path / "mine.yaml").write_text("extends: [base.yaml, other.yaml]\ninner: {width: 8}\n")
    assert load(tmp_path / "mine.yaml") == {"inner": {"width": 8}, "rate": 2}


def test_shipped_parts_can_be_extended_by_name(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("extends: [algorithms/dqn, environments/cartpole]\n")
    assert parse_experiment(load(tmp_path / "mine.yaml")).algorithm.name == "dqn"


def test_overrides_reach_any_depth_and_leave_the_original_alone() -> None:
    settings = {"inner": {"width": 1}}
    changed = override(settings, ["inner.width=2", "rate=1e-3", "list=[1, 2]", "text='3'"])
    assert changed == {"inner": {"width": 2}, "rate": 1e-3, "list": [1, 2], "text": "3"}
    assert settings == {"inner": {"width": 1}}


def test_settings_are_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Outer().rate = 1.0  # type: ignore[misc]


def test_all_mistakes_of_a_block_are_reported_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        parse(Outer, {"inner": {"widht": 1, "width": "x"}, "rate": True}, at="block")
    assert str(caught.value).splitlines() == [
        "block.inner.width is 'x'; it should be a valid integer, unable to parse string as an integer (How wide)",
        "block.inner.widht is not a setting; did you mean width?",
        "block.rate is True; it should be a number, not true or false (How fast)",
        "Known in block.inner: width.",
    ]


def test_a_resolved_config_reads_back_equal(algorithm: str) -> None:
    config = small_config(algorithm)
    assert parse_experiment(config.to_settings()) == config


def test_a_resolved_config_survives_being_written(tmp_path: Path, algorithm: str) -> None:
    config = small_config(algorithm)
    (tmp_path / "a.yaml").write_text(to_yaml(config.to_settings()))
    assert parse_experiment(load(tmp_path / "a.yaml")) == config


@pytest.mark.parametrize("word", ["1e5", "12e7", "-3E+2", "true", "null", "1.5", "05"])
def test_a_word_that_looks_like_something_else_stays_a_word_when_written(tmp_path: Path, word: str) -> None:
    (tmp_path / "a.yaml").write_text(to_yaml({"name": word}))
    assert load(tmp_path / "a.yaml") == {"name": word}


def test_every_option_is_documented_where_it_is_defined() -> None:
    from rl4sys.algorithms.dqn import DQNConfig
    from rl4sys.buffers.rollout import RolloutConfig
    from rl4sys.environments.config import EnvironmentConfig
    from rl4sys.experiment import config as blocks
    from rl4sys.networks.mlp import MLPConfig

    models = [PPOConfig, DQNConfig, RolloutConfig, EnvironmentConfig, MLPConfig, blocks.ExperimentSettings]
    models += [blocks.TrainingSettings, blocks.LoggingSettings, blocks.WandbSettings]
    undocumented = [f"{m.__name__}.{n}" for m in models for n, f in m.model_fields.items() if not f.description]
    assert undocumented == []
