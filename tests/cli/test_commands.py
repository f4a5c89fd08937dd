"""The commands as a user calls them."""

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
from pathlib import Path

import jsonschema
import pytest
import yaml

from rl4sys.config import load, to_yaml
from rl4sys.experiment.metrics import read_metrics

from ..conftest import SMALL
from .conftest import Rl4sys, runs_in

PROMISED = Path(__file__).parent.parent / "data" / "promised.yaml"


def test_train_makes_the_promised_directory(finished_run: Path) -> None:
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


def test_the_promised_file_trains_verbatim(rl4sys: Rl4sys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_several_seeds_give_several_runs(rl4sys: Rl4sys, small_file: Path, tmp_path: Path) -> None:
    outcome = rl4sys("train", "--config", small_file, "training.total_timesteps=100", "--seed", "1,2")
    assert outcome.exit_code == 0, outcome.err
    seeds = [
        yaml.safe_load((run / "configs/config.yaml").read_text())["experiment"]["seed"]
        for run in runs_in(tmp_path / "experiments")
    ]
    assert sorted(seeds) == [1, 2]


def test_several_seeds_are_shown_side_by_side(rl4sys: Rl4sys, small_file: Path) -> None:
    outcome = rl4sys("train", small_file, "logging.terminal=true", "--total-timesteps", "1e2", "--seed", "5,6")
    overview = outcome.out.partition("all seeds")[2]
    assert re.search(r"5\s+│ \d+\.\d", overview)
    assert re.search(r"6\s+│ \d+\.\d", overview)


def test_a_finished_run_is_left_as_it_is(rl4sys: Rl4sys, finished_run: Path) -> None:
    before = (finished_run / "metrics.jsonl").read_bytes()
    outcome = rl4sys("train", "--resume", finished_run)
    assert outcome.exit_code == 0
    assert "has its 288 steps; a larger --total-timesteps trains on" in outcome.out
    assert (finished_run / "metrics.jsonl").read_bytes() == before


def test_a_part_to_extend_can_be_shown(rl4sys: Rl4sys) -> None:
    assert "clip_ratio: 0.2" in rl4sys("config", "show", "algorithms/ppo").out


def test_evaluation_with_chance_differs_from_greedy(rl4sys: Rl4sys, finished_run: Path) -> None:
    greedy, chance = (
        json.loads(rl4sys("evaluate", finished_run, "--json", "--episodes", "20", *more).out)
        for more in ([], ["--stochastic"])
    )
    assert greedy["returns"] != chance["returns"]
    assert re.fullmatch(r"step_\d{12}", greedy["checkpoint"])


def test_dry_run_shows_the_plan_and_runs_nothing(rl4sys: Rl4sys, small_file: Path, tmp_path: Path) -> None:
    outcome = rl4sys("train", small_file, "--dry-run", "algorithm.gamma=0.5")
    assert outcome.exit_code == 0, outcome.err
    assert "\n  gamma: 0.5\n" in outcome.out
    assert "hidden_dims: [8]" in outcome.out
    assert re.search(r"action\s+│ 2 choices", outcome.out)
    assert re.search(r"first update\s+│ after 96 steps", outcome.out)
    assert not (tmp_path / "experiments").exists()


def test_training_ends_with_a_summary(rl4sys: Rl4sys, small_file: Path) -> None:
    outcome = rl4sys("train", small_file, "logging.terminal=true")
    assert re.search(r"evaluation return │ \d+\.\d ± \d+\.\d", outcome.out)
    assert re.search(r"steps\s+│ 960 \([\d,]+ per second\)", outcome.out)
    assert re.search(r"evaluate:  \S*rl4sys evaluate \S+small_ppo_", outcome.out)


def test_evaluate_agrees_with_what_training_measured(rl4sys: Rl4sys, finished_run: Path) -> None:
    outcome = rl4sys("evaluate", finished_run, "--episodes", "2", "--json")
    result = json.loads(outcome.out)
    measured = [row for row in read_metrics(finished_run / "metrics.jsonl") if "evaluation/return" in row][-1]
    assert result["mean_return"] == measured["evaluation/return"]
    assert result["std"] == measured["evaluation/return_std"]
    assert len(result["returns"]) == len(result["lengths"]) == 2


def test_evaluate_shows_a_table(rl4sys: Rl4sys, finished_run: Path) -> None:
    outcome = rl4sys("evaluate", finished_run, "--episodes", "3", "--checkpoint", "best")
    assert re.search(r"mean return\s+│ \d+\.\d+ ± ", outcome.out)


def test_resume_trains_a_finished_run_longer(rl4sys: Rl4sys, finished_run: Path) -> None:
    outcome = rl4sys("train", "--resume", finished_run, "--total-timesteps", "500")
    assert outcome.exit_code == 0, outcome.err
    assert json.loads((finished_run / "status.json").read_text())["steps"] >= 500
    assert "training.total_timesteps was 200 and is 500; schedules now end there" in outcome.out
    provenance = json.loads((finished_run / "configs/provenance.json").read_text())
    assert "500" in provenance["resumed"][0]["command"]


def test_a_resumed_run_may_be_told_of_by_other_rules(rl4sys: Rl4sys, finished_run: Path) -> None:
    rule = "alerts.rules.always={kind: threshold, metric: learner/version, above: -1}"
    outcome = rl4sys("train", "--resume", finished_run, rule, "--total-timesteps", "400")
    assert outcome.exit_code == 0, outcome.err
    assert "alert always: learner/version is " in outcome.out


def test_a_dry_run_of_a_resume_trains_nothing(rl4sys: Rl4sys, finished_run: Path) -> None:
    before = {path: path.read_bytes() for path in finished_run.rglob("*") if path.is_file()}
    outcome = rl4sys("train", "--resume", finished_run, "--total-timesteps", "500", "--dry-run")
    assert "total_timesteps: 500" in outcome.out
    assert {path: path.read_bytes() for path in finished_run.rglob("*") if path.is_file()} == before


def test_a_place_with_brackets_in_its_name_is_a_place(rl4sys: Rl4sys, small_file: Path, tmp_path: Path) -> None:
    arguments = ["logging.terminal=true", "training.total_timesteps=100", "--root", str(tmp_path / "[/x]")]
    outcome = rl4sys("train", small_file, *arguments)
    assert outcome.exit_code == 0
    assert "[/x]/small_ppo_" in outcome.out


def test_seeds_are_decimal(rl4sys: Rl4sys, small_file: Path) -> None:
    assert "seed: 10\n" in rl4sys("train", small_file, "--seed", "010", "--dry-run").out


@pytest.mark.parametrize("name", ["ppo_cartpole", "ppo_lunarlander", "ppo_pendulum", "dqn_cartpole"])
def test_shipped_experiments_are_right(rl4sys: Rl4sys, name: str) -> None:
    assert rl4sys("config", "check", name).out == f"{name}: ok\n"
    assert name in rl4sys("config", "list").out


def test_config_show_spells_out_everything_and_reads_back_the_same(rl4sys: Rl4sys, tmp_path: Path) -> None:
    shown = rl4sys("config", "show", "dqn_cartpole", "algorithm.n_step=3").out
    (tmp_path / "again.yaml").write_text(shown)
    assert yaml.safe_load(shown)["algorithm"]["n_step"] == 3
    assert rl4sys("config", "show", "again.yaml").out == shown


def test_the_schema_accepts_what_ships_and_refuses_a_misspelling(rl4sys: Rl4sys) -> None:
    schema = json.loads(rl4sys("config", "schema").out)
    for name in ("ppo_cartpole", "dqn_cartpole", "ppo_pendulum"):
        settings = load(name)
        jsonschema.validate(settings, schema)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**settings, "algorithm": {**settings["algorithm"], "lrr": 1}}, schema)
    assert "Discount of later rewards" in json.dumps(schema)


@pytest.mark.parametrize("command", [[], ["train"], ["evaluate"], ["config"], ["config", "show"]])
def test_every_command_has_help_that_teaches(rl4sys: Rl4sys, command: list[str]) -> None:
    outcome = rl4sys(*command, "--help")
    assert outcome.exit_code == 0
    assert len(outcome.out.splitlines()) > 5


def test_the_version_is_shown(rl4sys: Rl4sys) -> None:
    assert re.fullmatch(r"rl4sys \d+\.\d+\.\d+\n", rl4sys("--version").out)


def start(*arguments: str | Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "rl4sys.cli.main", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def content(run: Path) -> dict[str, str]:
    """Weights, buffers, environments and metrics of a finished run, by checksum."""
    latest = run / "checkpoints" / "latest"
    files = [latest / "state.json", latest / "state.safetensors", latest / "policy.safetensors", run / "metrics.jsonl"]
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def wait_for_steps(run_root: Path, steps: int, process: subprocess.Popen[bytes]) -> None:
    """Until the run has logged past ``steps``: a moment decided by the run, not by this machine's speed."""
    while process.poll() is None:
        statuses = list(run_root.glob("*/status.json"))
        if statuses and json.loads(statuses[0].read_text())["steps"] >= steps:
            return
        time.sleep(0.005)


def test_a_run_killed_at_random_moments_ends_as_if_never_killed(tmp_path: Path, algorithm: str) -> None:
    config = tmp_path / "small.yaml"
    config.write_text(to_yaml(SMALL[algorithm]))
    change = "training.total_timesteps=4000"
    assert start("train", config, change, "--root", tmp_path / "straight").wait() == 0
    chance = random.Random(algorithm)
    process = start("train", config, change, "--root", tmp_path / "killed")
    kills = 0
    for steps in sorted(chance.sample(range(200, 3800), 3)):
        wait_for_steps(tmp_path / "killed", steps, process)
        process.send_signal(signal.SIGKILL)
        kills += process.wait() == -signal.SIGKILL
        process = start("train", "--resume", runs_in(tmp_path / "killed")[0])
    assert process.wait() == 0
    straight, killed = (runs_in(tmp_path / name)[0] for name in ("straight", "killed"))
    assert kills == 3, "a run that was never killed proves nothing"
    assert content(killed) == content(straight)


def test_an_interrupt_saves_and_says_how_to_go_on(tmp_path: Path) -> None:
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
