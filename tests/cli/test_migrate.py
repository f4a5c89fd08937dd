"""Tests of ``rl4sys config migrate``, which converts configs to the current format and keeps comments."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from rl4sys.cli.yaml_text import rewrite_yaml
from rl4sys.client.config import load_client_config
from rl4sys.config import SHIPPED, load
from rl4sys.config.migration import Change

from .conftest import Rl4sys

DATA = Path(__file__).parent.parent / "data"

OLD = """\
# My old experiment.

algo: PPO   # the algorithm
seed: 7
env_id: CartPole-v1  # what it balances
algorithm:
  batch_size: 32
  # how far to look ahead
  discount: 0.98
network:
  actor: {net_arch: [32, 32], activation: tanh}
  critic:
    hidden_sizes:
      - 32
      - 32
training:
  total_steps: 1000   # short
# the end
"""

NEW = """\
# My old experiment.

version: 1
algorithm:
  minibatch_size: 32
  # how far to look ahead
  gamma: 0.98
  name: ppo   # the algorithm
network:
  actor: {hidden_dims: [32, 32], activation: tanh}
  critic:
    hidden_dims:
      - 32
      - 32
training:
  total_timesteps: 1000   # short
environment:
  name: CartPole-v1  # what it balances
experiment:
  seed: 7
# the end
"""


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "old.yaml"
    path.write_text(OLD)
    return path


def test_migration_keeps_comments_and_lists_changes(rl4sys: Rl4sys, old: Path) -> None:
    outcome = rl4sys("config", "migrate", old)
    assert outcome.exit_code == 0, outcome.err
    assert outcome.out == NEW
    assert "algorithm.batch_size → algorithm.minibatch_size\n" in outcome.err
    assert outcome.err.endswith("version: 1\n")
    assert old.read_text() == OLD


def test_output_in_place_and_diff_options_give_the_migrated_config(rl4sys: Rl4sys, old: Path, tmp_path: Path) -> None:
    assert rl4sys("config", "migrate", old, "--output", tmp_path / "new.yaml").out == ""
    assert (tmp_path / "new.yaml").read_text() == NEW
    shown = rl4sys("config", "migrate", old, "--in-place", "--diff").out
    assert "-  discount: 0.98\n+  gamma: 0.98\n" in shown
    assert old.read_text() == NEW
    again = rl4sys("config", "migrate", old, "--in-place")
    assert again.err == f"{old}: nothing to change; the config is already in the current format\n"
    assert old.read_text() == NEW


def test_migration_uses_algorithm_of_extended_config(rl4sys: Rl4sys, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "extends: [algorithms/dqn, environments/cartpole]\nalgorithm: {batch_size: 32, learning_rate: 1e-3}\n"
    )
    shown = rl4sys("config", "migrate", "mine.yaml").out
    assert shown == (
        "version: 1\nextends: [algorithms/dqn, environments/cartpole]\nalgorithm: {batch_size: 32, lr: 1e-3}\n"
    )


def test_migration_adds_version_and_renames_family_in_documented_experiment(rl4sys: Rl4sys) -> None:
    promised = yaml.safe_load((DATA / "promised.yaml").read_text())
    outcome = rl4sys("config", "migrate", DATA / "promised.yaml")
    assert outcome.err == "environment.wrapper → environment.family\nversion: 1\n"
    promised["environment"]["family"] = promised["environment"].pop("wrapper")
    assert yaml.safe_load(outcome.out) == {"version": 1, **promised}


@pytest.mark.parametrize("name", ["promised_001.json", "promised_003.json"])
def test_migrated_client_config_is_equivalent(rl4sys: Rl4sys, tmp_path: Path, name: str) -> None:
    outcome = rl4sys("config", "migrate", DATA / name, "--output", tmp_path / name)
    assert outcome.exit_code == 0, outcome.err
    assert " → algorithm.name" in outcome.err
    written = json.loads((tmp_path / name).read_text())
    assert written["version"] == 1
    assert isinstance(written["algorithm"], dict)
    assert load_client_config(tmp_path / name) == load_client_config(DATA / name)
    assert "nothing to change" in rl4sys("config", "migrate", tmp_path / name).err


def test_sweep_config_is_not_changed(rl4sys: Rl4sys) -> None:
    shipped = SHIPPED / "sweeps" / "ppo_sweep.yaml"
    outcome = rl4sys("config", "migrate", shipped)
    assert outcome.out == shipped.read_text()
    assert "nothing to change" in outcome.err


MISTAKES = {
    "unknown key": ("algo: ppo\nenv: CartPole-v1\nfoo: 1\n", "foo is not a block"),
    "invalid value": ("algo: ppo\nenv: CartPole-v1\nlearning_rate: fast\n", "algorithm.lr"),
    "later version": ("version: 9\n", "the config has version 9, but rl4sys"),
    "same setting twice": (
        "algo: ppo\nalgorithm: {name: ppo}\n",
        "algo and algorithm.name are names of the same setting",
    ),
    "invalid YAML": ("a: [", "is not valid YAML"),
}


@pytest.mark.parametrize(("text", "message"), MISTAKES.values(), ids=MISTAKES.keys())
def test_invalid_config_is_not_migrated(rl4sys: Rl4sys, tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    outcome = rl4sys("config", "migrate", path, "--in-place")
    assert outcome.exit_code == 2
    assert message in outcome.err
    assert path.read_text() == text


def test_migration_error_lists_the_changes(rl4sys: Rl4sys, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("algo: ppo\nenv: CartPole-v1\nfoo: 1\n")
    assert rl4sys("config", "migrate", "bad.yaml").err.endswith(
        "Changes made:\n  algo → algorithm.name\n  env → environment.name\n  version: 1\n"
    )


def test_unreadable_and_unwritable_files_are_reported(rl4sys: Rl4sys, old: Path) -> None:
    assert "cannot read nowhere.yaml" in rl4sys("config", "migrate", "nowhere.yaml").err
    assert "cannot write nowhere/new.yaml" in rl4sys("config", "migrate", old, "--output", "nowhere/new.yaml").err
    assert (
        "--output and --in-place cannot be combined"
        in rl4sys("config", "migrate", old, "--output", "x.yaml", "--in-place").err
    )


def test_yaml_with_alias_is_rewritten_without_comments() -> None:
    """Settings that a YAML alias refers to cannot be edited in place."""
    text = "base: &base {a: 1}  # shared\nmine: *base\n"
    settings = {"version": 1, "base": {"a": 1}, "mine": {"b": 1}}
    changed, kept = rewrite_yaml(text, [Change(None, "version", 1), Change("mine.a", "mine.b", 1)], settings)
    assert yaml.safe_load(changed) == settings
    assert not kept


@pytest.mark.parametrize(
    ("text", "change", "expected"),
    [
        ("a: {x: 1, y: 2}\n", Change("a.x", None), "a: {y: 2}\n"),
        ("a: {x: 1, y: 2}\n", Change("a.y", None), "a: {x: 1}\n"),
        ("a: {x: 1}\nb: 2\n", Change("a.x", None), "b: 2\n"),
        ("a: {}\n", Change(None, "a.x", [1, 2]), "a: {x: [1, 2]}\n"),
        ("a:\n  x: 1\n\n# b\nb: 1\n", Change(None, "a.y", {"z": 2}), "a:\n  x: 1\n  y:\n    z: 2\n\n# b\nb: 1\n"),
        ("a:\n  x: old  # why\n", Change(None, "a.x", "new"), "a:\n  x: new  # why\n"),
        ("a:\n  x: 1\n  y: 2\nb: {z: 1}", Change("a.x", "b.x", 1), "a:\n  y: 2\nb: {z: 1, x: 1}\n"),
    ],
)
def test_yaml_text_is_edited_in_place(text: str, change: Change, expected: str) -> None:
    changed, kept = rewrite_yaml(text, [change], yaml.safe_load(expected))
    assert (changed, kept) == (expected, True)


def test_migrated_config_passes_config_check(rl4sys: Rl4sys, old: Path) -> None:
    assert rl4sys("config", "migrate", old, "--in-place").exit_code == 0
    assert load(old)["training"] == {"total_timesteps": 1000}
    assert rl4sys("config", "check", old).out == f"{old}: ok\n"
