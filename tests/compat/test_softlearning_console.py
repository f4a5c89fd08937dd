"""Tests of the command ``softlearning``."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from rl4sys.cli.experiment_options import ExperimentOptions
from rl4sys.compat.softlearning.console import get_parser, import_example, main, read_trials
from rl4sys.config import differences, load
from rl4sys.runs.config import ExperimentConfig, parse_experiment

from ..cli.conftest import Outcome, runs_in

EXAMPLE = """\
def get_variant_spec(args):
    network = {"hidden_layer_sizes": [8]}
    return {
        "algorithm_params": {
            "class_name": args.algorithm,
            "config": {"n_epochs": 2, "epoch_length": 50, "num_warmup_samples": 20, "batch_size": 8,
                       "eval_n_episodes": 1},
        },
        "environment_params": {"training": {"universe": "gym", "domain": args.domain, "task": args.task}},
        "policy_params": {"class_name": "GaussianPolicy", "config": network},
        "Q_params": {"class_name": "double_feedforward_Q_function", "config": network},
        "replay_pool_params": {"class_name": "SimpleReplayPool", "config": {"max_size": 100}},
        "sampler_params": {"class_name": "SimpleSampler", "config": {"max_path_length": 20}},
        "run_params": {"seed": 5},
    }
"""
SHORT = ["tiny_example", "--algorithm", "SAC", "--domain", "Pendulum", "--task", "v1"]

Softlearning = Callable[..., Outcome]


@pytest.fixture
def softlearning(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., Outcome]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "tiny_example", raising=False)
    (tmp_path / "tiny_example.py").write_text(EXAMPLE)

    def call(*arguments: str | Path) -> Outcome:
        code: str | int | None = 0
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as ended:
            code = ended.code
        captured = capsys.readouterr()
        return Outcome(int(code or 0), captured.out, captured.err)

    return call


def trials(*arguments: str, command: str = "run_example_local") -> list[ExperimentConfig]:
    args = get_parser().parse_args([command, *arguments])
    return read_trials(import_example(args.example).get_variant_spec(args), args)


@pytest.mark.parametrize("algorithm", ["SAC", "SQL"])
@pytest.mark.parametrize(
    ("universe", "domain", "task"),
    [
        ("gym", "HalfCheetah", "v3"),
        ("gym", "Reacher", "v2"),
        ("gym", "Pendulum", None),
        ("dm_control", "cheetah", "run"),
        ("dm_control", "lqr", "lqr_2_1"),
    ],
)
def test_example_config_equals_that_of_rl4sys_train(
    algorithm: str, universe: str, domain: str, task: str | None
) -> None:
    options = [
        "--algorithm",
        algorithm,
        "--universe",
        universe,
        "--domain",
        domain,
        *(["--task", task] if task else []),
    ]
    (found,) = trials("examples.development", *options)
    settings = ExperimentOptions(algorithm, universe, domain, task).to_settings(lambda note: None)
    differing = differences(parse_experiment(settings).to_settings(), found.to_settings())
    assert differing.keys() <= {"environment.max_episode_steps", "training.num_eval_episodes"}
    assert found.training.total_timesteps == settings["training"]["total_timesteps"]


def test_multi_goal_example_config_equals_the_shipped_experiment() -> None:
    (found,) = trials("examples.multi_goal", "--algorithm", "SQL")
    differing = differences(parse_experiment(load("sql_multigoal")).to_settings(), found.to_settings())
    assert differing.keys() == {"experiment.device", "environment.name"}


def test_options_are_applied_to_each_trial() -> None:
    options = ["--exp-name", "my-experiment", "--checkpoint-frequency", "1000", "--cpus", "4", "--gpus", "1"]
    more = ["--video-save-frequency", "500", "--num-samples", "3"]
    found = trials("examples.development", "--domain", "HalfCheetah", "--task", "v3", *options, *more)
    assert [config.experiment.seed for config in found] == [0, 1, 2]
    for config in found:
        assert config.experiment.name == "my-experiment"
        assert config.training.checkpoint_frequency == 1000
        assert (config.experiment.threads, config.experiment.device) == (4, "cuda")
        assert config.logging.video_frequency == 500


def test_checkpoint_frequency_zero_saves_only_at_the_end() -> None:
    (found,) = trials("examples.development", "--domain", "Pendulum", "--checkpoint-frequency", "0")
    assert found.training.checkpoint_frequency > found.training.total_timesteps


def test_trials_train_with_different_seeds(softlearning: Softlearning, tmp_path: Path) -> None:
    outcome = softlearning("run_example_local", *SHORT, "--num-samples", "2", "--exp-name", "mine")
    assert outcome.exit_code == 0, outcome.err
    runs = runs_in(tmp_path / "experiments")
    seeds = [yaml.safe_load((run / "configs/config.yaml").read_text())["experiment"]["seed"] for run in runs]
    assert sorted(seeds) == [5, 6]
    assert all(run.name.startswith("mine_") for run in runs)


def test_restore_requires_the_newest_checkpoint_of_the_same_experiment(
    softlearning: Softlearning, tmp_path: Path
) -> None:
    assert softlearning("run_example_local", *SHORT).exit_code == 0
    (run,) = runs_in(tmp_path / "experiments")
    first, *_, newest = sorted((run / "checkpoints").glob("step_*"))
    restored = softlearning("run_example_local", *SHORT, "--restore", f"{newest}/")
    assert "has already finished its 100 steps" in restored.out
    assert runs_in(tmp_path / "experiments") == [run]
    older = softlearning("run_example_local", *SHORT, "--restore", first)
    assert f"training continues only from the newest checkpoint of a run; use --restore {run}" in older.err
    other = ["tiny_example", "--algorithm", "SQL", "--domain", "Pendulum", "--task", "v1"]
    assert (
        "was trained with the algorithm 'sac', but the options give 'sql'"
        in softlearning("run_example_local", *other, "--restore", newest).err
    )


def test_dry_run_prints_settings_and_creates_no_run(softlearning: Softlearning, tmp_path: Path) -> None:
    outcome = softlearning(
        "run_example_dry", "examples.development", "--algorithm", "SAC", "--domain", "HalfCheetah", "--task", "v3"
    )
    assert outcome.exit_code == 0, outcome.err
    assert "note: HalfCheetah-v3 is not available in this version of Gymnasium; using HalfCheetah-v5" in outcome.out
    assert "total_timesteps: 3000000" in outcome.out
    assert not (tmp_path / "experiments").exists()


def test_debug_command_prints_a_profile(softlearning: Softlearning) -> None:
    outcome = softlearning("run_example_debug", *SHORT)
    assert outcome.exit_code == 0, outcome.err
    assert "checks of --debug" in outcome.out


IGNORED = {
    "--run-eagerly": "torch always runs eagerly",
    "--confirm-remote=False": "no machine is started",
    "--checkpoint-at-end=True": "a checkpoint is always written at the end",
    "--checkpoint-replay-pool=True": "checkpoints always contain the replay buffer",
    "--max-failures=3": "continue it with --restore",
    "--mode=local": "the command selects the mode",
    "--resources={}": "Ray, which is not used",
    "--resources-per-trial={}": "Ray, which is not used",
    "--trial-extra-cpus=1": "a trial is a single process",
    "--trial-extra-gpus=1": "a trial is a single process",
    "--trial-name-template=x": "named after the experiment and the time",
    "--temp-dir=/tmp/ray": "Ray, which is not used",
    "--include-webui": "`rl4sys monitor` shows running trials",
    "--with-server": "`rl4sys monitor` shows running trials",
}


def test_options_without_an_effect_are_noted(softlearning: Softlearning) -> None:
    outcome = softlearning("run_example_dry", *SHORT, *IGNORED)
    assert outcome.exit_code == 0, outcome.err
    for option, reason in IGNORED.items():
        (line,) = (line for line in outcome.out.splitlines() if line.startswith(f"note: {option.partition('=')[0]} "))
        assert "has no effect: " in line
        assert reason in line


MISTAKES = {
    "two GPUs": (["run_example_local", *SHORT, "--gpus", "2"], "--gpus 2 requests 2 GPUs, but a run trains"),
    "two GPUs of a trial": (
        ["run_example_local", *SHORT, "--trial-gpus", "2"],
        "but a run trains on at most one (this machine has",
    ),
    "upload": (["run_example_local", *SHORT, "--upload-dir", "gs://x"], "runs are not uploaded; copy the run"),
    "no such example": (["run_example_local", "examples.devel"], "'examples.devel' is not an example: no module"),
    "module without variants": (["run_example_local", "json"], "'json' is not an example"),
    "no domain": (["run_example_local", "examples.development"], "--domain is missing; give an environment"),
    "no task": (
        ["run_example_local", "examples.development", "--universe", "dm_control", "--domain", "walker"],
        "--task is missing; --domain walker needs one",
    ),
    "other universe": (
        ["run_example_local", "examples.development", "--universe", "robosuite", "--domain", "Lift", "--task", "x"],
        "--universe is 'robosuite'; this example supports gym, dm_control",
    ),
    "other algorithm": (
        ["run_example_local", "examples.development", "--algorithm", "PPO", "--domain", "Hopper"],
        "This example supports SAC and SQL; for other algorithms use: rl4sys train --algorithm PPO --domain Hopper",
    ),
    "other environment": (
        ["run_example_local", "examples.multi_goal", "--domain", "Hopper"],
        "this example has only MultiGoal",
    ),
    "unknown option": (["run_example_local", *SHORT, "--fast"], "unrecognized arguments: --fast"),
    "negative number": (
        ["run_example_local", *SHORT, "--cpus", "-1"],
        "argument --cpus: the value is '-1'; expected an integer of at least 0",
    ),
    "no trials": (["run_example_local", *SHORT, "--num-samples", "0"], "--num-samples is 0, but at least one trial"),
    "cluster": (["run_example_cluster", *SHORT], "softlearning run_example_cluster needs an existing Ray cluster"),
    "Google": (["launch_example_gce", *SHORT], "needs Ray and machines of Google Compute Engine"),
    "Amazon": (["launch_example_ec2", *SHORT], "train on one machine with: softlearning run_example_local"),
}


@pytest.mark.parametrize(("arguments", "message"), MISTAKES.values(), ids=MISTAKES.keys())
def test_invalid_command_is_rejected(softlearning: Softlearning, arguments: list[str], message: str) -> None:
    outcome = softlearning(*arguments)
    assert outcome.exit_code == 2
    assert message in outcome.err
    assert "Traceback" not in outcome.err


def test_help_lists_all_commands(softlearning: Softlearning) -> None:
    shown = softlearning("--help").out
    for command in ("run_example_local", "run_example_debug", "run_example_dry", "run_example_cluster"):
        assert command in shown
    assert "launch_example_gce" in shown
    assert "launch_example_ec2" in shown


def test_example_of_the_package_is_used_outside_a_checkout(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rl4sys.compat.softlearning.console", "run_example_dry", "examples.multi_goal"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "name: sql_multigoal" in done.stdout


def test_import_error_inside_an_example_is_raised(softlearning: Softlearning, tmp_path: Path) -> None:
    (tmp_path / "broken_example.py").write_text("import no_such_module\n")
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        softlearning("run_example_dry", "broken_example")
