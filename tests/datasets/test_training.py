"""Training from dataset files: paths in configs, shipped experiments, warm starts and live systems."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from rl4sys.config import SHIPPED, Settings, load, to_yaml
from rl4sys.runs.config import parse_experiment

from ..cli.conftest import Outcome, Rl4sys, rl4sys
from ..recorded import balance, record, write_journal

__all__ = ["rl4sys"]

DATA = SHIPPED / "datasets"
ROOT = Path(__file__).parents[2]
QUIET = {"logging": {"terminal": False, "tensorboard": False}}


def experiment(path: str, **blocks: Any) -> Settings:
    return {
        "algorithm": {"name": "bc", "train_frequency": 100, "gradient_steps": 2},
        "environment": {"name": "CartPole-v1"},
        "dataset": {"type": "file", "path": path},
        "training": {"total_timesteps": 1000, "num_eval_episodes": 1},
        **QUIET,
        **blocks,
    }


def write(file: Path, settings: Settings) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(to_yaml(settings))
    return file


def trained(outcome: Outcome, root: Path) -> Path:
    """Return the directory of the only run below a root."""
    assert outcome.exit_code == 0, outcome.err
    (path,) = (entry for entry in root.iterdir() if entry.is_dir())
    return path


@pytest.mark.parametrize("name", ["bc_cartpole", "iql_pendulum", "rpo_pendulum", "ppo_dm_cartpole"])
def test_shipped_experiment_trains_from_any_directory(rl4sys: Rl4sys, tmp_path: Path, name: str) -> None:
    assert rl4sys("config", "check", name).out == f"{name}: ok\n"
    changes = ["training.total_timesteps=300", "training.num_eval_episodes=1", "environment.max_episode_steps=30"]
    run = trained(rl4sys("train", name, *changes, "logging.terminal=false", "--root", "runs"), tmp_path / "runs")
    assert np.isfinite(json.loads((run / "status.json").read_text())["evaluation_return"])


def test_shipped_datasets_are_small_and_can_be_recorded_again(tmp_path: Path) -> None:
    script = ROOT / "scripts" / "record_datasets.py"
    subprocess.run([sys.executable, script, "--folder", tmp_path], check=True, capture_output=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in DATA.iterdir())
    for path in DATA.iterdir():
        assert path.stat().st_size < 200_000
        with np.load(path, allow_pickle=False) as shipped, np.load(tmp_path / path.name, allow_pickle=False) as again:
            assert shipped.files == again.files
            for name in shipped.files:
                # Later steps differ if the last digits of sine and cosine differ.
                np.testing.assert_allclose(shipped[name][:20], again[name][:20], rtol=1e-4, atol=1e-5)


def test_dataset_beside_the_config_file_is_found_from_any_directory(
    rl4sys: Rl4sys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = write(tmp_path / "lab/bc.yaml", experiment("data/pole.npz"))
    (tmp_path / "lab/data").mkdir()
    shutil.copy(DATA / "cartpole.npz", tmp_path / "lab/data/pole.npz")
    run = trained(rl4sys("train", config, "--root", "runs"), tmp_path / "runs")
    stored = yaml.safe_load((run / "configs/config.yaml").read_text())
    assert stored["dataset"]["path"] == str(tmp_path / "lab/data/pole.npz")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    outcome = rl4sys("train", config, "--resume", run, "training.total_timesteps=2000")
    assert outcome.exit_code == 0, outcome.err
    assert json.loads((run / "status.json").read_text())["steps"] >= 2000


def test_paths_of_all_datasets_are_relative_to_their_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = tmp_path / "lab"
    for name in ("own/data", "pool", "start"):
        (lab / name).mkdir(parents=True)
    settings = experiment(
        "data",
        dataset={"type": "minari", "path": "data"},
        warm_start={"dataset": {"type": "journal", "path": "start"}},
        buffer={
            "type": "union",
            "size": 1000,
            "pools": {
                "own": {"share": 1},
                "shown": {"share": 1, "dataset": {"type": "journal", "path": "../lab/pool"}},
            },
        },
    )
    write(lab / "own/base.yaml", settings | {"warm_start": None, "buffer": None, "extends": []})
    child = {name: settings[name] for name in ("warm_start", "buffer")}
    read = load(write(lab / "child.yaml", {"extends": ["own/base.yaml"], **child}))
    config = parse_experiment(read)
    assert config.dataset is not None
    assert config.dataset.path == str(lab / "own/data")
    assert config.warm_start is not None
    assert config.warm_start.dataset.path == str(lab / "start")
    assert read["buffer"]["pools"]["shown"]["dataset"]["path"] == str(lab / "pool")
    sweep = {"fixed": {"dataset.path": "own"}, "sweep": {"dataset.path": ["start", "D4RL/pen/human-v2"]}}
    found = load(write(lab / "sweep.yaml", sweep))
    assert found["fixed"]["dataset.path"] == str(lab / "own")
    assert found["sweep"]["dataset.path"] == [str(lab / "start"), "D4RL/pen/human-v2"]
    policies = {"pole": {"warm_start": {"dataset": {"type": "file", "path": "pool"}}}}
    server = load(write(lab / "server.yaml", {"policies": policies}))
    assert server["policies"]["pole"]["warm_start"]["dataset"]["path"] == str(lab / "pool")
    monkeypatch.chdir(lab)
    assert load("child.yaml") == read


def test_relative_path_of_a_journal_is_found_beside_the_config_file(rl4sys: Rl4sys, tmp_path: Path) -> None:
    write_journal(tmp_path / "lab/live/pole", record(balance, 2))
    settings = experiment("live/pole", dataset={"type": "journal", "path": "live/pole"})
    trained(rl4sys("train", write(tmp_path / "lab/bc.yaml", settings), "--root", "runs"), tmp_path / "runs")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            ["dataset.path=lost.npz"],
            "dataset.path is 'lost.npz', which does not exist; give a path relative to the config",
        ),
        (["environment.name=Acrobot-v1"], "the observation (observations) has the shape (4,) per row; expected (6,)"),
        (["dataset.columns.action=act"], "dataset.columns.action is 'act', which is not a column of"),
    ],
)
def test_unusable_dataset_ends_the_command_and_leaves_no_run(
    rl4sys: Rl4sys, tmp_path: Path, changes: list[str], message: str
) -> None:
    file = write(tmp_path / "bc.yaml", experiment(str(DATA / "cartpole.npz")))
    outcome = rl4sys("train", file, *changes)
    assert outcome.exit_code == 2
    assert message in outcome.err
    assert "Traceback" not in outcome.err
    assert not list((tmp_path / "experiments").glob("*/configs"))
    assert message in rl4sys("config", "check", file, *changes).err


def test_policy_of_a_live_system_learns_from_a_log(rl4sys: Rl4sys, tmp_path: Path) -> None:
    rows = [f"{load},{int(load > 0.5)},1,false" for load in np.linspace(0, 1, 200).round(3)]
    (tmp_path / "log.csv").write_text("\n".join(["queue,choice,gain,ended", *rows]))
    columns = {"observation": "queue", "action": "choice", "reward": "gain", "terminated": "ended"}
    dataset = {"type": "file", "path": "log.csv", "columns": columns, "action": 3}
    live = {"name": "scheduler", "family": "live"}
    file = write(tmp_path / "bc.yaml", experiment("", dataset=dataset, environment=live))
    assert "dataset.action is missing" in rl4sys("train", file, "dataset.action=null").err
    shutil.rmtree(tmp_path / "experiments", ignore_errors=True)
    trained(rl4sys("train", file), tmp_path / "experiments")


def test_warm_start_and_pool_are_filled_from_a_file(rl4sys: Rl4sys, tmp_path: Path) -> None:
    file = {"type": "file", "path": str(DATA / "cartpole.npz")}
    pools = {"shown": {"share": 0.5, "dataset": file}, "own": {"share": 0.5}}
    settings = experiment(
        "",
        algorithm={"name": "dqn", "learning_starts": 50},
        dataset=None,
        warm_start={"dataset": file, "gradient_steps": 200},
        buffer={"type": "union", "size": 6000, "pools": pools},
        training={"total_timesteps": 100, "num_eval_episodes": 1},
    )
    run = trained(rl4sys("train", write(tmp_path / "dqn.yaml", settings)), tmp_path / "experiments")
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    losses = next(row for row in rows if "imitation/first_loss" in row)
    assert losses["imitation/last_loss"] < 0.7 * losses["imitation/first_loss"]
