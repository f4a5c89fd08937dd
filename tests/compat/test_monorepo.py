"""Classes of the mono-repo document."""

from __future__ import annotations

import json
import logging
import random
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rl4sys.compat.monorepo import (
    AutoTuner,
    CheckpointManager,
    DebugMode,
    DistributedTrainer,
    ExperimentCleaner,
    ExperimentTracker,
    ReproducibilityChecker,
    Trainer,
    TrainingMonitor,
)
from rl4sys.config import to_yaml
from rl4sys.errors import CheckpointError, ConfigError, NumericalError, SpecError
from rl4sys.runs.metrics import read_metrics
from rl4sys.training.progress import LoggingObserver

from ..conftest import SMALL

# ruff: noqa: NPY002 - these tests are about numpy's global generator


@pytest.fixture
def config_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    settings = {**SMALL["ppo"], "training": {**SMALL["ppo"]["training"], "total_timesteps": 600}}
    (tmp_path / "small.yaml").write_text(to_yaml(settings))
    return "small.yaml"


def test_trainer_trains_a_config_file(config_file: str) -> None:
    trainer = Trainer(config_file)
    assert trainer.config.algorithm.name == "ppo"
    assert trainer.exp_dir.parent == Path("experiments")
    progress = trainer.train()
    assert progress.finished
    assert trainer.global_step == progress.steps >= 600
    assert read_metrics(trainer.exp_dir / "metrics.jsonl")
    assert (trainer.exp_dir / "checkpoints" / "latest").is_symlink()


def test_trainer_resumes_a_run_directory_exactly(config_file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    straight, stopped = Trainer(config_file), Trainer(config_file, root="stopped")
    straight.train()
    with monkeypatch.context() as patch:
        patch.setattr(LoggingObserver, "progress", lambda self, progress: stopped.stop())
        assert not stopped.train().finished
    resumed = Trainer(stopped.exp_dir)
    assert resumed.train().finished
    latest = "checkpoints/latest/state.safetensors"
    states = [(trainer.exp_dir / latest).read_bytes() for trainer in (straight, resumed)]
    assert states[0] == states[1]
    assert Trainer(stopped.exp_dir).train().finished, "a finished run is not trained further"


def test_trainer_leaves_no_run_directory_if_the_environment_is_unusable(config_file: str, tmp_path: Path) -> None:
    settings = {**SMALL["ppo"], "environment": {"name": "CartPole-v1", "options": {"nothing": 1}}}
    (tmp_path / "bad.yaml").write_text(to_yaml(settings))
    with pytest.raises((ConfigError, SpecError)):
        Trainer("bad.yaml").train()
    assert [path for path in Path("experiments").iterdir() if path.is_dir()] == []


class Checkpointable:
    def __init__(self, state: Any) -> None:
        self.state = state

    def save_checkpoint(self) -> Any:
        return self.state


def make_state(step: int) -> dict[str, Any]:
    network = torch.nn.Linear(2, 1)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.5)
    network(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    algorithm = Checkpointable({"networks": {"actor": network.state_dict()}, "optimizer": optimizer.state_dict()})
    buffer = Checkpointable({"rewards": np.arange(3.0), "next": 3})
    return {"algorithm": algorithm, "buffer": buffer, "global_step": step, "episode": 4, "metrics": {"loss": [0.5]}}


def test_checkpoint_manager_restores_the_saved_state(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path)
    assert manager.load_latest() is None
    state = make_state(500)
    torch.manual_seed(3)
    np.random.seed(3)
    random.seed(3)
    path = manager.save(state)
    expected = torch.rand(2).tolist(), np.random.normal(), random.random()
    assert path == tmp_path / "checkpoints" / "checkpoint_500"
    loaded = CheckpointManager(tmp_path).load_latest()
    assert loaded is not None
    np.random.set_state(loaded["rng_states"]["numpy"])
    torch.set_rng_state(loaded["rng_states"]["torch"])
    random.setstate(loaded["rng_states"]["python"])
    assert (torch.rand(2).tolist(), np.random.normal(), random.random()) == expected
    assert (loaded["global_step"], loaded["episode"], loaded["metrics"]) == (500, 4, {"loss": [0.5]})
    assert loaded["buffer"]["rewards"].tolist() == [0.0, 1.0, 2.0]
    network = torch.nn.Linear(2, 1)
    optimizer = torch.optim.Adam(network.parameters())
    network.load_state_dict(loaded["algorithm"]["networks"]["actor"])
    optimizer.load_state_dict(loaded["algorithm"]["optimizer"])
    assert torch.equal(network.weight, state["algorithm"].state["networks"]["actor"]["weight"])
    assert optimizer.param_groups[0]["lr"] == 0.5
    assert set(path.iterdir()) == {path / name for name in ("state.json", "state.safetensors", "manifest.json")}


def test_auto_save_respects_the_frequency_and_latest_is_the_last_save(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path)
    assert manager.auto_save(make_state(150), frequency=100) is None
    assert manager.auto_save(make_state(200), frequency=100) == tmp_path / "checkpoints" / "auto_200"
    manager.save(make_state(90), name="earlier")
    loaded = manager.load_latest()
    assert loaded is not None
    assert loaded["global_step"] == 90


def test_checkpoint_manager_rejects_incomplete_unsupported_and_damaged_states(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path)
    with pytest.raises(ConfigError, match="trainer_state lacks episode, metrics; expected the keys algorithm, buffer"):
        manager.save({"algorithm": Checkpointable({}), "buffer": Checkpointable({}), "global_step": 1})
    with pytest.raises(CheckpointError, match="algorithm/model is Linear, which cannot be saved; use tensors, arrays"):
        manager.save({**make_state(1), "algorithm": Checkpointable({"model": torch.nn.Linear(1, 1)})})
    assert manager.load_latest() is None
    path = manager.save(make_state(1))
    (path / "state.safetensors").write_bytes(b"damaged")
    with pytest.raises(CheckpointError, match="does not match its checksum"):
        manager.load_latest()


def test_tracker_finds_and_compares_experiments(config_file: str) -> None:
    runs = [Trainer(config_file) for _ in range(2)]
    for trainer in runs:
        trainer.train()
    tracker = ExperimentTracker()
    found = tracker.find_experiments(algorithm="ppo", environment="CartPole-v1")
    assert [one["directory"] for one in found] == [str(trainer.exp_dir) for trainer in runs]
    assert {"id", "name", "algorithm", "environment", "timestamp", "git_hash", "config_hash"} < set(found[0])
    assert tracker.find_experiments(algorithm="dqn") == []
    compared = tracker.compare_experiments([one["id"] for one in found])
    assert len(compared["groups"]) == 2
    assert compared["metrics"]
    assert tracker.experiments_db.is_file()


def test_tracker_registers_an_experiment_of_another_training_loop(config_file: str, tmp_path: Path) -> None:
    tracker = ExperimentTracker()
    metadata = tracker.register_experiment(SMALL["ppo"], Path("experiments") / "mine")
    assert metadata["algorithm"] == "ppo"
    assert [one["id"] for one in tracker.find_experiments(name=metadata["name"])] == [metadata["id"]]


def test_reproducibility_checker_detects_changed_metrics(config_file: str) -> None:
    trainer = Trainer(config_file)
    trainer.train()
    assert ReproducibilityChecker().verify_experiment(trainer.exp_dir).identical
    metrics = trainer.exp_dir / "metrics.jsonl"
    rows = [json.loads(line) for line in metrics.read_text().splitlines()]
    rows[0][next(name for name in rows[0] if name.startswith("loss"))] = 123.0
    metrics.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert not ReproducibilityChecker().verify_experiment(trainer.exp_dir).identical


def test_auto_tuner_suggests_better_settings_with_more_results(tmp_path: Path) -> None:
    search = {"algorithm.lr": {"low": 1e-5, "high": 1e-1, "log": True}, "network.actor.hidden_dims": [[8], [8, 8]]}

    def performance(config: Any) -> float:
        return -abs(np.log10(config["algorithm.lr"]) + 3)

    tuner, values = AutoTuner(search, tmp_path / "tuner"), []
    for number in range(30):
        if number == 15:
            tuner = AutoTuner(search, tmp_path / "tuner")
        config = tuner.suggest_next_config()
        assert tuner.suggest_next_config() == config, "without a result, the same settings are suggested"
        values.append(performance(config))
        tuner.update_with_result(config, values[-1])
    assert np.mean(values[-10:]) > np.mean(values[:10]), "the search should use the results"


def test_auto_tuner_uses_results_from_the_history(tmp_path: Path) -> None:
    search = {"algorithm.lr": {"low": 0.0, "high": 1.0}}
    history = [({"algorithm.lr": lr}, -abs(lr - 0.3)) for lr in np.linspace(0, 1, 20).tolist()]
    tuner = AutoTuner(search, tmp_path)
    suggested = tuner.suggest_next_config(history)
    assert abs(suggested["algorithm.lr"] - 0.3) < 0.3
    again = AutoTuner(search, tmp_path).suggest_next_config(history)
    assert again == suggested, "results that are already stored have no effect"
    with pytest.raises(ConfigError, match=r"'algorithm\.lr' is 2\.0, which is outside its search range"):
        tuner.update_with_result({"algorithm.lr": 2.0}, 1.0)
    with pytest.raises(ConfigError, match=r"the searched setting 'algorithm\.lr' is missing; the settings are lr"):
        tuner.update_with_result({"lr": 2.0}, 1.0)
    with pytest.raises(ConfigError, match="the search range of 'lr' is 3; expected a list of values"):
        AutoTuner({"lr": 3}, tmp_path / "other")


class Algorithm:
    def __init__(self) -> None:
        self.networks = {"actor": torch.nn.Linear(2, 1)}
        self.loss = torch.ones(())

    def update(self, batch: Any) -> dict[str, Any]:
        self.networks["actor"].zero_grad()
        loss = (self.networks["actor"](batch["observation"]) * self.loss).sum()
        loss.backward()
        return {"loss": loss.item()}


BATCH = {"observation": torch.ones(4, 2)}


def test_debug_mode_checks_logs_and_profiles_an_update(caplog: pytest.LogCaptureFixture) -> None:
    algorithm = Algorithm()
    debug = DebugMode(algorithm)
    with caplog.at_level(logging.INFO, "rl4sys.debug"):
        result = debug.wrap_update(algorithm.update)(BATCH)
    assert result == algorithm.update(BATCH)
    assert debug.diagnostics["gradient_norm/networks.actor.bias"] == 4.0
    assert any("weight_norm/networks.actor.weight" in record.getMessage() for record in caplog.records)
    assert debug.profile is not None
    assert "aten::linear" in {event.key for event in debug.profile.key_averages()}


def test_debug_mode_error_contains_the_name_of_the_nonfinite_value() -> None:
    algorithm = Algorithm()
    debug = DebugMode(algorithm)
    debug.profile_performance = False
    update = debug.wrap_update(algorithm.update)
    with pytest.raises(NumericalError, match=r"argument 0\.observation contains NaN in 2 of 2 values"):
        update({"observation": torch.full((1, 2), torch.nan)})
    algorithm.loss = torch.tensor(torch.inf)
    with pytest.raises(NumericalError, match=r"the gradient of networks\.actor\.\w+ contains infinity in"):
        update(BATCH)
    debug.enable_gradient_checking = False
    with pytest.raises(NumericalError, match=r"result\.loss contains"):
        update(BATCH)
    debug.check_nan_inf = False
    update(BATCH)
    assert debug.profile is None


def test_monitor_sends_alerts_through_the_configured_command(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    script = tmp_path / "receive.py"
    script.write_text(
        f"import os, sys\nopen({str(tmp_path / 'sent')!r}, 'a').write(os.environ['RL4SYS_ALERT_RULE'] + '\\n')\n"
    )
    monitor = TrainingMonitor({"command": [sys.executable, str(script)]}, threshold=10.0)
    assert set(monitor.alert_conditions) == {"nan_loss", "slow_progress", "memory_high"}
    monitor.alert_conditions["too_short"] = lambda metrics: metrics["length"] < 5
    fine = {"loss": 0.1, "reward": 20.0, "memory_usage": 0.5, "length": 9.0}
    assert monitor.check_alerts(fine) == []
    assert monitor.check_alerts({**fine, "loss": float("nan"), "length": 1.0}) == ["nan_loss", "too_short"]
    assert monitor.check_alerts({**fine, "reward": 1.0, "memory_usage": 0.95}) == ["slow_progress", "memory_high"]
    monitor.close()
    sent = (tmp_path / "sent").read_text().split()
    assert sent == ["nan_loss", "too_short", "slow_progress", "memory_high"]
    assert len(monitor.metrics_buffer) == 3
    assert "alert nan_loss: loss nan, reward 20" in caplog.text


def test_cleaner_keeps_configs_and_metrics_of_old_experiments(config_file: str) -> None:
    runs = [Trainer(config_file) for _ in range(2)]
    for trainer in runs:
        trainer.train()
    assert ExperimentCleaner().cleanup_old_experiments() == [], "both experiments are recent"
    assert ExperimentCleaner().cleanup_old_experiments(keep_best_n=2, keep_recent_days=0) == []
    cleaned = ExperimentCleaner().cleanup_old_experiments(keep_best_n=1, keep_recent_days=0)
    assert len(cleaned) == 1
    assert (cleaned[0] / "configs" / "config.yaml").is_file()
    assert (cleaned[0] / "metrics.jsonl").is_file()
    assert not list((cleaned[0] / "checkpoints").glob("step_*"))


def test_examples_in_the_training_page_run(config_file: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "training_in_python.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        exec(block.replace("ppo_cartpole.yaml", config_file), {"__name__": "page"})
    assert Path("mine/2/checkpoints/latest").readlink().name == "auto_20"


def test_distributed_trainer_error_mentions_ray() -> None:
    with pytest.raises(ConfigError, match="needs Ray, which this release does not support; use Trainer"):
        DistributedTrainer("ppo_cartpole")
