"""Tests of the commands train, evaluate and config, and of resuming killed runs."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
import yaml

from rl4sys.config import load, to_yaml
from rl4sys.policy.snapshot import Snapshot
from rl4sys.runs.metrics import read_metrics

from ..conftest import SMALL
from .conftest import Rl4sys, runs_in

PROMISED = Path(__file__).parent.parent / "data" / "promised.yaml"


def test_train_creates_the_documented_run_directory(finished_run: Path) -> None:
    names = {path.name for path in finished_run.iterdir()}
    assert {"checkpoints", "logs", "videos", "configs", "metrics.jsonl", "status.json"} <= names
    assert re.fullmatch(r"small_ppo_\d{8}-\d{6}", finished_run.name)
    stored = yaml.safe_load((finished_run / "configs/config.yaml").read_text())
    assert stored["version"] == 1
    assert stored["training"]["total_timesteps"] == 200
    provenance = json.loads((finished_run / "configs/provenance.json").read_text())
    assert provenance["seed"] == 3
    assert {"torch", "numpy", "gymnasium", "rl4sys"} <= set(provenance["packages"])
    assert (finished_run / "checkpoints/latest/policy.safetensors").is_file()


def test_documented_config_trains_unchanged(rl4sys: Rl4sys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    outcome = rl4sys("train", PROMISED, "--total-timesteps", "4096")
    assert outcome.exit_code == 0, outcome.err
    if "this machine does not have" in outcome.out:
        assert outcome.out.count("experiment.device is cuda") == 1
    run = runs_in(tmp_path / "experiments")[0]
    assert run.name.startswith("ppo_cartpole_baseline_")
    assert list(run.glob("logs/events.out.tfevents.*"))
    assert list(run.glob("logs/wandb/offline-run-*"))
    assert "evaluation/return" in read_metrics(run / "metrics.jsonl")[-2]
    stored = yaml.safe_load((run / "configs/config.yaml").read_text())
    assert stored["algorithm"]["lr"] == 3e-4


def test_each_seed_gets_its_own_run(rl4sys: Rl4sys, small_file: Path, tmp_path: Path) -> None:
    outcome = rl4sys("train", "--config", small_file, "training.total_timesteps=100", "--seed", "1,2")
    assert outcome.exit_code == 0, outcome.err
    seeds = [
        yaml.safe_load((run / "configs/config.yaml").read_text())["experiment"]["seed"]
        for run in runs_in(tmp_path / "experiments")
    ]
    assert sorted(seeds) == [1, 2]


def test_seeds_are_summarized_in_a_table(rl4sys: Rl4sys, small_file: Path) -> None:
    outcome = rl4sys("train", small_file, "logging.terminal=true", "--total-timesteps", "1e2", "--seed", "5,6")
    overview = outcome.out.partition("all seeds")[2]
    assert re.search(r"5\s+│ \d+\.\d", overview)
    assert re.search(r"6\s+│ \d+\.\d", overview)


def content_and_times(folder: Path) -> dict[Path, tuple[bytes, int]]:
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()}


def test_resume_of_finished_run_changes_no_file(rl4sys: Rl4sys, finished_run: Path) -> None:
    before = content_and_times(finished_run)
    outcome = rl4sys("train", "--resume", finished_run)
    assert outcome.exit_code == 0
    assert "has already finished its 288 steps; to continue, give a larger --total-timesteps" in outcome.out
    assert content_and_times(finished_run) == before


def test_config_show_prints_a_partial_config(rl4sys: Rl4sys) -> None:
    assert "clip_ratio: 0.2" in rl4sys("config", "show", "algorithms/ppo").out


def test_stochastic_evaluation_differs_from_greedy(rl4sys: Rl4sys, finished_run: Path) -> None:
    greedy, stochastic = (
        json.loads(rl4sys("evaluate", finished_run, "--json", "--episodes", "20", *more).out)
        for more in ([], ["--stochastic"])
    )
    assert greedy["returns"] != stochastic["returns"]
    assert re.fullmatch(r"step_\d{12}", greedy["checkpoint"])


def test_dry_run_shows_the_plan_without_training(rl4sys: Rl4sys, small_file: Path, tmp_path: Path) -> None:
    outcome = rl4sys("train", small_file, "--dry-run", "algorithm.gamma=0.5")
    assert outcome.exit_code == 0, outcome.err
    assert "\n  gamma: 0.5\n" in outcome.out
    assert "hidden_dims: [8]" in outcome.out
    assert re.search(r"action\s+│ Discrete\(2\)", outcome.out)
    assert re.search(r"first update\s+│ after 96 steps", outcome.out)
    assert not (tmp_path / "experiments").exists()


def test_train_prints_a_summary_at_the_end(rl4sys: Rl4sys, small_file: Path) -> None:
    outcome = rl4sys("train", small_file, "logging.terminal=true")
    assert re.search(r"evaluation return │ \d+\.\d ± \d+\.\d", outcome.out)
    assert re.search(r"steps\s+│ 960 \([\d,]+ per second\)", outcome.out)
    assert re.search(r"evaluate:  \S*rl4sys evaluate \S+small_ppo_", outcome.out)


def test_evaluate_reproduces_last_evaluation_of_training(rl4sys: Rl4sys, finished_run: Path) -> None:
    outcome = rl4sys("evaluate", finished_run, "--episodes", "2", "--json")
    result = json.loads(outcome.out)
    measured = [row for row in read_metrics(finished_run / "metrics.jsonl") if "evaluation/return" in row][-1]
    assert result["mean_return"] == measured["evaluation/return"]
    assert result["std"] == measured["evaluation/return_std"]
    assert len(result["returns"]) == len(result["lengths"]) == 2


def test_evaluate_prints_mean_return_in_a_table(rl4sys: Rl4sys, finished_run: Path) -> None:
    outcome = rl4sys("evaluate", finished_run, "--episodes", "3", "--checkpoint", "best")
    assert re.search(r"mean return\s+│ \d+\.\d+ ± ", outcome.out)


@pytest.fixture
def live_run(finished_run: Path) -> Path:
    """Hosted policy at version 13, with stored versions 7 and 12 and an older checkpoint."""
    (finished_run / "configs/live.json").write_text("{}")
    (finished_run / "versions").mkdir()
    snapshot = Snapshot.from_bytes((finished_run / "checkpoints/latest/policy.safetensors").read_bytes())
    assert snapshot.version < 7
    for version in (7, 12):
        blob = replace(snapshot, version=version).to_bytes()
        (finished_run / f"versions/{version:012d}.safetensors").write_bytes(blob)
    status = json.loads((finished_run / "status.json").read_text())
    (finished_run / "status.json").write_text(json.dumps({**status, "version": 13}))
    return finished_run


def test_evaluate_uses_newest_stored_version_of_hosted_policy(rl4sys: Rl4sys, live_run: Path) -> None:
    outcome = rl4sys("evaluate", live_run, "--episodes", "2")
    assert re.search(rf"{live_run.name},\s+version_12\s", outcome.out)
    assert "version_12 contains version 12 of the policy, but the server is at version 13" in outcome.err


def test_evaluate_accepts_stored_version_of_hosted_policy(rl4sys: Rl4sys, live_run: Path) -> None:
    outcome = rl4sys("evaluate", live_run, "--episodes", "2", "--checkpoint", "version_7", "--json")
    assert json.loads(outcome.out)["checkpoint"] == "version_7"
    refused = rl4sys("evaluate", live_run, "--checkpoint", "version_8")
    assert refused.exit_code == 2
    assert "version_8 is not stored in" in refused.err
    assert "stored versions: version_7, version_12" in refused.err


def test_evaluate_notes_that_server_has_newer_version(rl4sys: Rl4sys, live_run: Path) -> None:
    outcome = rl4sys("evaluate", live_run, "--episodes", "2", "--checkpoint", "latest", "--json")
    assert json.loads(outcome.out)["checkpoint"].startswith("step_")
    assert "but the server is at version 13; use --checkpoint version_12" in outcome.err


def test_finished_run_can_be_extended(rl4sys: Rl4sys, finished_run: Path) -> None:
    outcome = rl4sys("train", "--resume", finished_run, "--total-timesteps", "500")
    assert outcome.exit_code == 0, outcome.err
    assert json.loads((finished_run / "status.json").read_text())["steps"] >= 500
    assert "training.total_timesteps changed from 200 to 500; schedules now end at step 500" in outcome.out
    provenance = json.loads((finished_run / "configs/provenance.json").read_text())
    assert "500" in provenance["resumed"][0]["command"]


def test_alert_rules_can_change_on_resume(rl4sys: Rl4sys, finished_run: Path) -> None:
    rule = "alerts.rules.always={kind: threshold, metric: learner/version, above: -1}"
    outcome = rl4sys("train", "--resume", finished_run, rule, "--total-timesteps", "400")
    assert outcome.exit_code == 0, outcome.err
    assert "alert always: learner/version is " in outcome.out


def test_dry_run_of_resume_changes_no_file(rl4sys: Rl4sys, finished_run: Path) -> None:
    before = {path: path.read_bytes() for path in finished_run.rglob("*") if path.is_file()}
    outcome = rl4sys("train", "--resume", finished_run, "--total-timesteps", "500", "--dry-run")
    assert "total_timesteps: 500" in outcome.out
    assert {path: path.read_bytes() for path in finished_run.rglob("*") if path.is_file()} == before


def test_path_of_root_may_contain_brackets(rl4sys: Rl4sys, small_file: Path, tmp_path: Path) -> None:
    arguments = ["logging.terminal=true", "training.total_timesteps=100", "--root", str(tmp_path / "[/x]")]
    outcome = rl4sys("train", small_file, *arguments)
    assert outcome.exit_code == 0
    assert "[/x]/small_ppo_" in outcome.out


def test_seed_with_leading_zero_is_decimal(rl4sys: Rl4sys, small_file: Path) -> None:
    assert "seed: 10\n" in rl4sys("train", small_file, "--seed", "010", "--dry-run").out


@pytest.mark.parametrize("name", ["ppo_cartpole", "ppo_lunarlander", "ppo_pendulum", "dqn_cartpole"])
def test_shipped_experiments_pass_config_check(rl4sys: Rl4sys, name: str) -> None:
    assert rl4sys("config", "check", name).out == f"{name}: ok\n"
    assert name in rl4sys("config", "list").out


def test_output_of_config_show_reads_back_unchanged(rl4sys: Rl4sys, tmp_path: Path) -> None:
    shown = rl4sys("config", "show", "dqn_cartpole", "algorithm.n_step=3").out
    (tmp_path / "again.yaml").write_text(shown)
    assert yaml.safe_load(shown)["algorithm"]["n_step"] == 3
    assert rl4sys("config", "show", "again.yaml").out == shown


def test_schema_accepts_shipped_configs_and_rejects_typos(rl4sys: Rl4sys) -> None:
    schema = json.loads(rl4sys("config", "schema").out)
    for name in ("ppo_cartpole", "dqn_cartpole", "ppo_pendulum"):
        settings = load(name)
        jsonschema.validate(settings, schema)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**settings, "algorithm": {**settings["algorithm"], "lrr": 1}}, schema)
    assert "Discount factor." in json.dumps(schema)


@pytest.mark.parametrize("command", [[], ["train"], ["evaluate"], ["config"], ["config", "show"]])
def test_commands_have_help(rl4sys: Rl4sys, command: list[str]) -> None:
    outcome = rl4sys(*command, "--help")
    assert outcome.exit_code == 0
    assert len(outcome.out.splitlines()) > 5


def test_version_option_prints_the_version(rl4sys: Rl4sys) -> None:
    assert re.fullmatch(r"rl4sys \d+\.\d+\.\d+\n", rl4sys("--version").out)


def start(*arguments: str | Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "rl4sys.cli.main", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def content(run: Path) -> dict[str, str]:
    """Return checksums of the weights, buffers, environments and metrics of a finished run."""
    latest = run / "checkpoints" / "latest"
    files = [latest / "state.json", latest / "state.safetensors", latest / "policy.safetensors", run / "metrics.jsonl"]
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def wait_for_steps(run_root: Path, steps: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until the run has reached ``steps`` or its process has ended."""
    while process.poll() is None:
        statuses = list(run_root.glob("*/status.json"))
        if statuses and json.loads(statuses[0].read_text())["steps"] >= steps:
            return
        time.sleep(0.005)


def test_resume_is_bit_exact_after_sigkill(tmp_path: Path, algorithm: str) -> None:
    config = tmp_path / "small.yaml"
    config.write_text(to_yaml(SMALL[algorithm]))
    change = "training.total_timesteps=4000"
    assert start("train", config, change, "--root", tmp_path / "straight").wait() == 0
    generator = random.Random(algorithm)
    process = start("train", config, change, "--root", tmp_path / "killed")
    kills = 0
    for steps in sorted(generator.sample(range(200, 3800), 3)):
        wait_for_steps(tmp_path / "killed", steps, process)
        process.send_signal(signal.SIGKILL)
        kills += process.wait() == -signal.SIGKILL
        process = start("train", "--resume", runs_in(tmp_path / "killed")[0])
    assert process.wait() == 0
    straight, killed = (runs_in(tmp_path / name)[0] for name in ("straight", "killed"))
    assert kills == 3, "the run must have been killed three times"
    assert content(killed) == content(straight)


def test_interrupt_saves_checkpoint_and_prints_resume_command(tmp_path: Path) -> None:
    config = tmp_path / "small.yaml"
    config.write_text(to_yaml(SMALL["ppo"]))
    command = [sys.executable, "-m", "rl4sys.cli.main", "train", str(config), "logging.terminal=true"]
    command += ["training.total_timesteps=10000000", "--root", str(tmp_path / "runs")]
    environment = {**os.environ, "COLUMNS": "200"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        wait_for_steps(tmp_path / "runs", 300, process)  # type: ignore[arg-type]
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate()
    assert process.returncode == 130
    run = runs_in(tmp_path / "runs")[0]
    assert re.search(rf"resume:    \S*rl4sys train --resume {run}\n", out)
    status = json.loads((run / "status.json").read_text())
    assert status["status"] == "stopped"
    assert int((run / "checkpoints/latest").readlink().name.removeprefix("step_")) == status["steps"]


VARIANT = """\
algorithm_params:
  class_name: SAC
  config: {epoch_length: 50, n_epochs: 2, num_warmup_samples: 20, batch_size: 8, eval_n_episodes: 1, Q_lr: 1.0e-3}
environment_params: {training: {universe: gym, domain: Pendulum, task: v0}}
policy_params: {class_name: FeedforwardGaussianPolicy, config: {hidden_layer_sizes: [8], squash: true}}
Q_params: {class_name: double_feedforward_Q_function, config: {hidden_layer_sizes: [8]}}
replay_pool_params: {class_name: SimpleReplayPool, config: {max_size: 100}}
sampler_params: {class_name: SimpleSampler, config: {max_path_length: 20}}
run_params: {seed: 7, checkpoint_frequency: 50}
"""


def test_softlearning_variant_trains_with_one_note(rl4sys: Rl4sys, tmp_path: Path) -> None:
    (tmp_path / "variant.yaml").write_text(VARIANT)
    outcome = rl4sys("train", "variant.yaml", "algorithm.lr=2e-3", "--seed", "8")
    assert outcome.exit_code == 0, outcome.err
    (line,) = (line for line in outcome.out.splitlines() if "softlearning variant" in line)
    assert "algorithm_params.class_name → algorithm.name" in line
    assert "environment_params.training.task: v1" in line
    (run,) = runs_in(tmp_path / "experiments")
    settings = yaml.safe_load((run / "configs/config.yaml").read_text())
    assert settings["environment"]["name"] == "Pendulum-v1"
    assert settings["experiment"]["seed"] == 8
    assert settings["algorithm"]["lr"] == 2e-3
    assert settings["network"]["actor"]["activation"] == "relu"
    assert settings["training"]["total_timesteps"] == 100


def test_config_and_sweep_commands_accept_softlearning_variant(rl4sys: Rl4sys, tmp_path: Path) -> None:
    (tmp_path / "variant.yaml").write_text(VARIANT)
    shown = rl4sys("config", "show", "variant.yaml", "algorithm.gamma=0.9")
    assert yaml.safe_load(shown.out)["algorithm"]["gamma"] == 0.9
    assert "note: the config is a softlearning variant" in shown.err
    assert rl4sys("config", "check", "variant.yaml").out == "variant.yaml: ok\n"
    (tmp_path / "sweep.yaml").write_text("base_config: variant.yaml\nsweep: {algorithm.lr: [1e-3, 1e-4]}\n")
    assert "2 trials" in rl4sys("sweep", "sweep.yaml", "--dry-run").out
