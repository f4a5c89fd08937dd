"""Tests of reading, merging, overriding and validating config files."""

from __future__ import annotations

from pathlib import Path

import pytest

from rl4sys.algorithms.ppo import PPOConfig
from rl4sys.config import Config, load, override, parse, to_yaml
from rl4sys.errors import ConfigError
from rl4sys.runs.config import parse_experiment

from ..conftest import small_config


class Inner(Config):
    """Inner block of the test config."""

    width: int = 3
    """Inner width."""


class Outer(Config):
    """Test config with an inner block."""

    inner: Inner = Inner()
    """Inner block."""
    rate: float | None = None
    """Learning rate."""


@pytest.mark.parametrize(("text", "value"), [("3e-4", 3e-4), ("1E5", 1e5), ("-2e3", -2e3), ("1.5e-3", 1.5e-3)])
def test_scientific_notation_is_read_as_a_number(tmp_path: Path, text: str, value: float) -> None:
    (tmp_path / "a.yaml").write_text(f"lr: {text}\n")
    assert load(tmp_path / "a.yaml") == {"lr": value}


def test_strings_similar_to_numbers_stay_strings(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("a: 3e\nb: e4\nc: 1e4x\n")
    assert load(tmp_path / "a.yaml") == {"a": "3e", "b": "e4", "c": "1e4x"}


def test_integer_setting_may_have_an_exponent() -> None:
    assert small_config("ppo", "training.total_timesteps=1e6").training.total_timesteps == 1_000_000


def test_json_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"inner": {"width": 7}}')
    assert parse(Outer, load(tmp_path / "a.json")).inner.width == 7


def test_file_is_merged_over_the_files_it_extends(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("inner: {width: 7}\nrate: 1\n")
    (tmp_path / "other.yaml").write_text("rate: 2\n")
    (tmp_path / "mine.yaml").write_text("extends: [base.yaml, other.yaml]\ninner: {width: 8}\n")
    assert load(tmp_path / "mine.yaml") == {"inner": {"width": 8}, "rate": 2}


def test_shipped_file_can_be_extended_by_name(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("extends: [algorithms/dqn, environments/cartpole]\n")
    assert parse_experiment(load(tmp_path / "mine.yaml")).algorithm.name == "dqn"


def test_override_changes_a_copy_of_the_settings() -> None:
    settings = {"inner": {"width": 1}}
    changed = override(settings, ["inner.width=2", "rate=1e-3", "list=[1, 2]", "text='3'"])
    assert changed == {"inner": {"width": 2}, "rate": 1e-3, "list": [1, 2], "text": "3"}
    assert settings == {"inner": {"width": 1}}


def test_config_is_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Outer().rate = 1.0  # type: ignore[misc]


def test_all_mistakes_of_a_block_are_reported() -> None:
    with pytest.raises(ConfigError) as caught:
        parse(Outer, {"inner": {"widht": 1, "width": "x"}, "rate": True}, at="block")
    assert str(caught.value).splitlines() == [
        "block.inner.width is 'x'; expected an integer (Inner width)",
        "block.inner.widht is not a setting; did you mean width?",
        "block.rate is True; expected a number, not true or false (Learning rate)",
        "Known in block.inner: width.",
    ]


def test_resolved_config_round_trips_through_settings(algorithm: str) -> None:
    config = small_config(algorithm)
    assert parse_experiment(config.to_settings()) == config


def test_resolved_config_round_trips_through_yaml(tmp_path: Path, algorithm: str) -> None:
    config = small_config(algorithm)
    (tmp_path / "a.yaml").write_text(to_yaml(config.to_settings()))
    assert parse_experiment(load(tmp_path / "a.yaml")) == config


@pytest.mark.parametrize("text", ["1e5", "12e7", "-3E+2", "true", "null", "1.5", "05"])
def test_string_similar_to_another_type_stays_a_string_in_yaml(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.yaml").write_text(to_yaml({"name": text}))
    assert load(tmp_path / "a.yaml") == {"name": text}


def test_every_option_has_a_description() -> None:
    from rl4sys.algorithms.dqn import DQNConfig
    from rl4sys.buffers.rollout import RolloutConfig
    from rl4sys.environments.config import EnvironmentConfig
    from rl4sys.networks.mlp import MLPConfig
    from rl4sys.runs import config as blocks

    models = [PPOConfig, DQNConfig, RolloutConfig, EnvironmentConfig, MLPConfig, blocks.RunConfig]
    models += [blocks.TrainingConfig, blocks.LoggingConfig, blocks.WandbConfig]
    undocumented = [f"{m.__name__}.{n}" for m in models for n, f in m.model_fields.items() if not f.description]
    assert undocumented == []
