"""Minari datasets: loading and learning."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces
from minari.data_collector.episode_buffer import EpisodeBuffer

from rl4sys.config import to_yaml
from rl4sys.dataset import Dataset, DatasetConfig, load_dataset
from rl4sys.environments.encoding import Encoding
from rl4sys.environments.factory import make_environment
from rl4sys.errors import ConfigError, MissingExtraError, SpecError
from rl4sys.spec import Box, Discrete, Spec

from ..cli.conftest import Rl4sys, rl4sys
from ..recorded import balance, record, swing, write_minari, write_minari_dataset
from .test_families import config_of

__all__ = ["rl4sys"]

ROOMS = spaces.Dict({"room": spaces.Discrete(3), "view": spaces.Box(0, 255, (2, 2), np.uint8)})


@pytest.fixture(autouse=True)
def datasets_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set the directory of local Minari datasets and return it."""
    path = tmp_path / "minari"
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(path))
    return path


def load(path: str | Path) -> Dataset:
    return load_dataset(DatasetConfig(type="minari", path=str(path)))


def rooms_episode(**changes: object) -> EpisodeBuffer:
    """Return a recorded episode of three steps with the actions 5 and 6; the arguments replace columns."""
    steps = {
        "observations": {"room": [0, 2, 1, 0], "view": list(np.arange(16, dtype=np.uint8).reshape(4, 2, 2))},
        "actions": [5, 6, 5],
        "rewards": [1.0, 0.5, 0.0],
        "terminations": [False, False, True],
        "truncations": [False, False, False],
        "infos": {"action_mask": np.array([[1, 0], [1, 1], [1, 0], [0, 1]])},
    }
    return EpisodeBuffer(**{**steps, **changes})  # type: ignore[arg-type]


def rooms_dataset(*episodes: EpisodeBuffer) -> Dataset:
    write_minari("own/rooms-v0", list(episodes), ROOMS, spaces.Discrete(2, start=5))
    return load("own/rooms-v0")


def test_minari_dataset_equals_the_recorded_trajectories() -> None:
    recorded = [*record(balance, 1), *record(lambda state, rng: int(rng.integers(2)), 2, seed=1)]
    write_minari_dataset("cartpole/mixed-v0", recorded)
    dataset = load("cartpole/mixed-v0")
    assert dataset.spec == Encoding(make_environment(config_of(name="CartPole-v1"))).spec
    assert [(t.terminated, t.truncated) for t in dataset.trajectories] == [(False, True), (True, False), (True, False)]
    assert len({t.episode for t in dataset.trajectories}) == 3
    for read, written in zip(dataset.trajectories, recorded, strict=True):
        for name, column in written.columns.items():
            np.testing.assert_array_equal(read.columns[name], column)


def test_minari_dataset_is_encoded_like_environment_data() -> None:
    dataset = rooms_dataset(rooms_episode())
    view, mask = Box((2, 2), "uint8", (0.0,), (255.0,)), Box((2,), "bool", (0.0,), (1.0,))
    assert dataset.spec == Spec({"room": Box((3,)), "view": view, "mask": mask}, Discrete(2))
    (trajectory,) = dataset.trajectories
    np.testing.assert_array_equal(trajectory.columns["obs.room"].argmax(-1), [0, 2, 1, 0])
    np.testing.assert_array_equal(trajectory.columns["obs.view"].reshape(-1), np.arange(16))
    np.testing.assert_array_equal(trajectory.columns["obs.mask"][:, 1], [False, True, False, True])
    assert trajectory.columns["action"].tolist() == [0, 1, 0]


def test_recorded_episode_without_end_flags_has_not_ended() -> None:
    (trajectory,) = rooms_dataset(rooms_episode(terminations=[False] * 3)).trajectories
    assert not trajectory.ended


def test_episode_that_continues_after_its_end_is_rejected() -> None:
    with pytest.raises(
        ConfigError, match=r"own/rooms-v0 cannot be read: .*episode 0 continues after its end at step 1"
    ):
        rooms_dataset(rooms_episode(terminations=[False, True, True]))


def test_episode_without_final_observation_is_rejected() -> None:
    short = {"room": [0, 2, 1], "view": list(np.zeros((3, 2, 2), np.uint8))}
    with pytest.raises(SpecError, match="of a trajectory of 3 steps has 3 rows; expected 4"):
        rooms_dataset(rooms_episode(observations=short, infos={"action_mask": np.ones((3, 2))}))


def test_minari_dataset_can_be_given_as_directory(datasets_path: Path) -> None:
    write_minari_dataset("cartpole/rule-v0", record(balance, 1))
    for path in (datasets_path / "cartpole/rule-v0", datasets_path / "cartpole/rule-v0/data"):
        assert load(path).steps == 500


def test_minari_dataset_that_would_run_code_is_rejected(datasets_path: Path) -> None:
    write_minari_dataset("cartpole/rule-v0", record(balance, 1))
    file = datasets_path / "cartpole/rule-v0/data/metadata.json"
    metadata = json.loads(file.read_text())
    harmful = {name: value for name, value in metadata.items() if name != "action_space"}
    command = {"args": ["touch", str(datasets_path / "harm")]}
    harmful["env_spec"] = json.dumps(
        {"id": "x-v0", "entry_point": "subprocess:run", "kwargs": command, "additional_wrappers": []}
    )
    for change, message in (
        (harmful, "lacks the observation or action space"),
        ({**metadata, "data_format": "arrow"}, "only hdf5"),
    ):
        file.write_text(json.dumps(change))
        with pytest.raises(ConfigError, match=message):
            load("cartpole/rule-v0")
    assert not (datasets_path / "harm").exists()


def test_missing_minari_dataset_error_contains_the_download_command(rl4sys: Rl4sys, tmp_path: Path) -> None:
    (tmp_path / "bc.yaml").write_text(
        to_yaml(
            {
                "algorithm": {"name": "bc"},
                "dataset": {"type": "minari", "path": "D4RL/door/human-v2"},
                "environment": {"name": "CartPole-v1"},
            }
        )
    )
    outcome = rl4sys("train", "bc.yaml")
    assert outcome.exit_code == 2
    assert "download it with `minari download D4RL/door/human-v2`" in outcome.err
    assert not list((tmp_path / "experiments").glob("*/configs"))


def test_missing_minari_package_error_contains_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "minari", None)
    with pytest.raises(
        MissingExtraError, match=r"needs minari, which is not installed; .* pip install -e '\.\[minari\]'"
    ):
        load("cartpole/rule-v0")


def test_bc_and_iql_learn_from_minari(rl4sys: Rl4sys, tmp_path: Path) -> None:
    write_minari_dataset("cartpole/rule-v0", record(balance, 4))
    write_minari_dataset("pendulum/swing-v0", record(swing, 2, environment="Pendulum-v1"), "Pendulum-v1")
    training = {"total_timesteps": 4000, "num_eval_episodes": 2}
    plan = {
        "bc": (
            "cartpole/rule-v0",
            "CartPole-v1",
            {"train_frequency": 100, "gradient_steps": 10, "lr": 3e-3, "batch_size": 128},
        ),
        "iql": ("pendulum/swing-v0", "Pendulum-v1", {"train_frequency": 400, "batch_size": 64}),
    }
    for name, (path, environment, options) in plan.items():
        settings = {
            "algorithm": {"name": name, **options},
            "dataset": {"type": "minari", "path": path},
            "environment": {"name": environment},
            "training": training,
            "logging": {"terminal": False, "tensorboard": False},
        }
        (tmp_path / f"{name}.yaml").write_text(to_yaml(settings))
        outcome = rl4sys("train", f"{name}.yaml", "--root", name)
        assert outcome.exit_code == 0, outcome.err
    status = json.loads(next((tmp_path / "bc").glob("*/status.json")).read_text())
    assert status["evaluation_return"] > 450
