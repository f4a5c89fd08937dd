"""``rl4sys config migrate``: files in the present form, comments kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from rl4sys.cli.yaml_text import rewritten
from rl4sys.client.config import load_client_config
from rl4sys.config import SHIPPED, load
from rl4sys.migration import Change

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


def test_the_result_is_printed_with_its_comments_and_the_changes_are_listed(rl4sys: Rl4sys, old: Path) -> None:
    outcome = rl4sys("config", "migrate", old)
    assert outcome.exit_code == 0, outcome.err
    assert outcome.out == NEW
    assert "algorithm.batch_size → algorithm.minibatch_size\n" in outcome.err
    assert outcome.err.endswith("version: 1\n")
    assert old.read_text() == OLD


def test_the_result_goes_where_it_is_told_to(rl4sys: Rl4sys, old: Path, tmp_path: Path) -> None:
    assert rl4sys("config", "migrate", old, "--output", tmp_path / "new.yaml").out == ""
    assert (tmp_path / "new.yaml").read_text() == NEW
    shown = rl4sys("config", "migrate", old, "--in-place", "--diff").out
    assert "-  discount: 0.98\n+  gamma: 0.98\n" in shown
    assert old.read_text() == NEW
    again = rl4sys("config", "migrate", old, "--in-place")
    assert again.err == f"{old}: nothing to change; it is of the present version, 1\n"
    assert old.read_text() == NEW


def test_what_a_file_extends_decides_what_its_names_mean(rl4sys: Rl4sys, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "extends: [algorithms/dqn, environments/cartpole]\nalgorithm: {batch_size: 32, learning_rate: 1e-3}\n"
    )
    shown = rl4sys("config", "migrate", "mine.yaml").out
    assert shown == (
        "version: 1\nextends: [algorithms/dqn, environments/cartpole]\nalgorithm: {batch_size: 32, lr: 1e-3}\n"
    )


def test_the_promised_experiment_needs_only_a_version(rl4sys: Rl4sys) -> None:
    promised = DATA / "promised.yaml"
    outcome = rl4sys("config", "migrate", promised)
    assert outcome.err == "version: 1\n"
    assert yaml.safe_load(outcome.out) == {"version": 1, **yaml.safe_load(promised.read_text())}


@pytest.mark.parametrize("name", ["promised_001.json", "promised_003.json"])
def test_promised_client_files_mean_the_same_when_migrated(rl4sys: Rl4sys, tmp_path: Path, name: str) -> None:
    outcome = rl4sys("config", "migrate", DATA / name, "--output", tmp_path / name)
    assert outcome.exit_code == 0, outcome.err
    assert " → algorithm.name" in outcome.err
    written = json.loads((tmp_path / name).read_text())
    assert written["version"] == 1
    assert isinstance(written["algorithm"], dict)
    assert load_client_config(tmp_path / name) == load_client_config(DATA / name)
    assert "nothing to change" in rl4sys("config", "migrate", tmp_path / name).err


def test_sweeps_and_studies_are_left_as_they_are(rl4sys: Rl4sys) -> None:
    shipped = SHIPPED / "sweeps" / "ppo_sweep.yaml"
    outcome = rl4sys("config", "migrate", shipped)
    assert outcome.out == shipped.read_text()
    assert "nothing to change" in outcome.err


MISTAKES = {
    "what cannot be understood": ("algo: ppo\nenv: CartPole-v1\nfoo: 1\n", "foo is not a block"),
    "a value of the wrong kind": ("algo: ppo\nenv: CartPole-v1\nlearning_rate: fast\n", "algorithm.lr"),
    "a later version": ("version: 9\n", "the config says version: 9, and this rl4sys reads version 1"),
    "one setting twice": ("algo: ppo\nalgorithm: {name: ppo}\n", "algo and algorithm.name are the same setting"),
    "no YAML": ("a: [", "is not valid YAML"),
}


@pytest.mark.parametrize(("text", "message"), MISTAKES.values(), ids=MISTAKES.keys())
def test_mistakes_are_told_and_nothing_is_written(rl4sys: Rl4sys, tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    outcome = rl4sys("config", "migrate", path, "--in-place")
    assert outcome.exit_code == 2
    assert message in outcome.err
    assert path.read_text() == text


def test_what_was_changed_is_told_with_what_is_left(rl4sys: Rl4sys, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("algo: ppo\nenv: CartPole-v1\nfoo: 1\n")
    assert rl4sys("config", "migrate", "bad.yaml").err.endswith(
        "Changed so far:\n  algo → algorithm.name\n  env → environment.name\n  version: 1\n"
    )


def test_files_and_places_that_are_not_there_are_told(rl4sys: Rl4sys, old: Path) -> None:
    assert "cannot read nowhere.yaml" in rl4sys("config", "migrate", "nowhere.yaml").err
    assert "cannot write nowhere/new.yaml" in rl4sys("config", "migrate", old, "--output", "nowhere/new.yaml").err
    assert "do not go together" in rl4sys("config", "migrate", old, "--output", "x.yaml", "--in-place").err


def test_text_that_cannot_be_edited_is_written_anew() -> None:
    """An alias stands for settings that are written elsewhere."""
    text = "base: &base {a: 1}  # shared\nmine: *base\n"
    settings = {"version": 1, "base": {"a": 1}, "mine": {"b": 1}}
    changed, kept = rewritten(text, [Change(None, "version", 1), Change("mine.a", "mine.b", 1)], settings)
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
def test_text_is_edited_in_place(text: str, change: Change, expected: str) -> None:
    changed, kept = rewritten(text, [change], yaml.safe_load(expected))
    assert (changed, kept) == (expected, True)


def test_a_file_that_was_migrated_trains(rl4sys: Rl4sys, old: Path) -> None:
    assert rl4sys("config", "migrate", old, "--in-place").exit_code == 0
    assert load(old)["training"] == {"total_timesteps": 1000}
    assert rl4sys("config", "check", old).out == f"{old}: ok\n"
