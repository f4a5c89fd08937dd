"""Tests of user errors: each gives exit code 2 and a helpful message without a traceback."""

from __future__ import annotations

import errno
import os
import re
import sys
from pathlib import Path

import pytest

from rl4sys.runs.run import Run

from .conftest import Rl4sys, runs_in

# Arguments after `rl4sys train small.yaml`, and the expected message.
SETTINGS = {
    "misspelled setting": (
        ["algorithm.clip_ration=0.1"],
        r"algorithm\.clip_ration is not a setting; did you mean clip_ratio\?\nKnown in algorithm: accumulate, clip_",
    ),
    "misspelled block": (["trainning.total_timesteps=5"], r"trainning is not a block; did you mean training\?"),
    "text instead of a number": (
        ["algorithm.gamma=high"],
        r"algorithm\.gamma is 'high'; expected a number.*Discount",
    ),
    "name from another library": (
        ["algorithm.learning_rate=0.1"],
        r"algorithm\.learning_rate is not a setting; did you mean lr\?",
    ),
    "setting without its block": (["lr=0.1"], r"lr is not a block; did you mean algorithm\.lr\?"),
    "text instead of a schedule": (
        ["algorithm.lr=fast"],
        r"algorithm\.lr is 'fast'; expected a number, or a schedule such as \{start: 1e-3, end: 0\.0\}",
    ),
    "negative learning rate": (
        ["algorithm.lr=-0.1"],
        r"algorithm\.lr\.start is -0\.1; expected a value greater than or equal to 0",
    ),
    "boolean instead of a number": (
        ["algorithm.gamma=true"],
        r"algorithm\.gamma is True; expected a number, not true or false",
    ),
    "discount above 1": (
        ["algorithm.gamma=1.5"],
        r"algorithm\.gamma is 1\.5; expected a value less than or equal to 1",
    ),
    "fractional number of environments": (
        ["environment.num_envs=1.5"],
        r"environment\.num_envs is 1\.5; expected an integer",
    ),
    "zero environments": (["environment.num_envs=0"], r"environment\.num_envs is 0; expected a value greater than 0"),
    "zero timesteps": (
        ["training.total_timesteps=0"],
        r"training\.total_timesteps is 0; expected a value greater than 0",
    ),
    "number instead of a list": (
        ["network.actor.hidden_dims=64"],
        r"network\.actor\.hidden_dims is 64; expected a list of layer widths, such as \[64",
    ),
    "layer of width 0": (
        ["network.actor.hidden_dims=[8,0]"],
        r"hidden_dims is \[8, 0\]; expected at most 64 widths from 1 to",
    ),
    "unknown activation": (
        ["network.actor.activation=sigmoid"],
        r"network\.actor\.activation is 'sigmoid'; expected 'tanh', 'relu', 'elu', 'gelu' or 'silu'",
    ),
    "unknown algorithm": (
        ["algorithm.name=ppoo"],
        r"no algorithm is named 'ppoo'; did you mean ppo\? Known: a2c, bc, c51.*`plugins:`",
    ),
    "unknown network": (["network.actor.type=mpl"], r"no network is named 'mpl'; did you mean mlp\?"),
    "unknown buffer": (["buffer.type=trajectry"], r"no buffer is named 'trajectry'; did you mean trajectory\?"),
    "unknown environment family": (["environment.family=gim"], r"no environment is named 'gim'; did you mean gym\?"),
    "unknown environment": (
        ["environment.name=CartPol-v1"],
        r"environment\.name is 'CartPol-v1', which Gymnasium cannot create; did you mean CartPole-v1\?",
    ),
    "unknown environment option": (
        ["environment.options={wind: 3}"],
        r"environment\.options is \{'wind': 3\}, but 'CartPole-v1' cannot be .*unexpected keyword argument 'wind'",
    ),
    "network not used by the algorithm": (
        ["network.actr.type=mlp"],
        r"network\.actr is not a network of ppo; did you mean actor\? Networks of ppo: actor, critic, trunk\.",
    ),
    "block replaced by text": (
        ["algorithm=dqn"],
        r"algorithm='dqn' would replace a whole block; give a single setting, such as algorithm\.name=",
    ),
    "override without a value": (["algorithm.lr"], r"'algorithm\.lr' is not an override; write key\.path=value"),
    "unknown device": (
        ["experiment.device=gpu"],
        r"experiment\.device is 'gpu'; expected text that matches .*auto, cpu, cuda",
    ),
    "slash in the name": (["experiment.name=a/b"], r"experiment\.name is 'a/b'; .*letters, digits, dot, dash"),
    "future version": (["version=99"], r"the config has version 99, but rl4sys .* supports only versions up to 1"),
    "missing plugin file": (
        ["plugins=[mine.py]"],
        r"plugins: the file 'mine\.py' is neither in the current directory",
    ),
    "missing plugin module": (
        ["plugins=[my_lab]"],
        r"plugins: the module 'my_lab' cannot be found",
    ),
    "replay buffer for an on-policy algorithm": (
        ["buffer.type=uniform"],
        r"buffer\.type is 'uniform', but ppo does not support this buffer type; use 'trajectory'",
    ),
    "environment of a missing module": (
        ["environment.name=nomodule:Env-v0"],
        r"environment\.name is 'nomodule:Env-v0', which Gymnasium cannot create.*No module named 'nomodule'",
    ),
    "network too wide": (
        ["network.actor.hidden_dims=[100000000]"],
        r"network\.actor\.hidden_dims is \[100000000\]; expected at most 64 widths from 1 to 16384",
    ),
    "buffer too large": (
        ["buffer.size=1e15"],
        r"buffer\.size is 1000000000000000.*; expected a value less",
    ),
    "too many threads": (
        ["experiment.threads=100000000"],
        r"experiment\.threads is 100000000; expected",
    ),
    "seeds that are not numbers": (
        ["--seed", "1,two"],
        r"--seed is '1,two'; expected an integer such as 1, or a list",
    ),
}


@pytest.mark.parametrize("case", SETTINGS)
def test_invalid_setting_is_rejected(rl4sys: Rl4sys, small_file: Path, tmp_path: Path, case: str) -> None:
    arguments, message = SETTINGS[case]
    outcome = rl4sys("train", small_file, *arguments)
    assert outcome.exit_code == 2
    assert re.search(message, outcome.err), outcome.err
    assert "Traceback" not in outcome.err


FILES = {
    "invalid YAML": ("experiment: [", r"(?s)broken\.yaml is not valid YAML: .*in broken\.yaml, line 1"),
    "empty file": ("", r"broken\.yaml is empty; write blocks such as"),
    "list instead of a mapping": ("- ppo\n", r"broken\.yaml contains a list, not a block of settings"),
    "duplicate key": ("experiment: {seed: 1}\nexperiment: {seed: 2}\n", r"'experiment' is given twice"),
    "config that extends itself": ("extends: [broken.yaml]\n", r"broken\.yaml extends itself through"),
    "extends is not a list": ("extends: algorithms/ppo\n", r"extends is 'algorithms/ppo'; expected a list"),
    "no algorithm": (
        "environment: {name: CartPole-v1}\n",
        r"algorithm\.name is missing; add it\. Known: a2c, bc, c51, .*, trpo\b",
    ),
    "algorithm name is not text": (
        "algorithm: {name: 5}\nenvironment: {name: CartPole-v1}\n",
        r"algorithm\.name is 5; give it a name\. Known: a2c, bc",
    ),
    "no buffer type": (
        "algorithm: {name: ppo}\nbuffer: {type: null}\nenvironment: {name: CartPole-v1}\n",
        r"buffer\.type is None; give it a name\. Known: her, prioritized, ",
    ),
    "no environment": ("algorithm: {name: ppo}\n", r"environment\.name is missing; add it \(A Gymnasium id such as"),
    "text instead of a block": (
        "algorithm: {name: ppo}\nenvironment: CartPole-v1\n",
        r"environment is 'CartPole-v1'; expected",
    ),
    "several errors": (
        "algorithm: {name: ppo, gama: 1}\nenvironment: {name: CartPole-v1, nums: 2}\n",
        r"algorithm\.gama is not a setting; did you mean gamma\?\nKnown in .*\nenvironment\.nums is not a setting",
    ),
    "probability above 1": (
        "algorithm: {name: dqn, exploration: 1.5}\nenvironment: {name: CartPole-v1}\n",
        r"algorithm\.exploration is 1\.5; expected a probability of at most 1",
    ),
    "invalid option value": (
        "algorithm: {name: ppo}\nenvironment: {name: FrozenLake-v1, options: {map_name: foo}}\n",
        r"environment\.options is \{'map_name': 'foo'\}, but 'FrozenLake-v1' cannot be created .*: KeyError\('foo'\)",
    ),
    "too deep nesting": ("a: " + "[" * 3000, r"broken\.yaml is (nested too deeply|not valid YAML)"),
    "continuous actions for dqn": (
        "algorithm: {name: dqn}\nenvironment: {name: Pendulum-v1}\n",
        r"dqn supports discrete actions, but the action space is bounded continuous; use a2c, bc, .* or trpo",
    ),
}


@pytest.mark.parametrize("case", FILES)
def test_invalid_config_file_is_rejected(rl4sys: Rl4sys, tmp_path: Path, case: str) -> None:
    content, message = FILES[case]
    (tmp_path / "broken.yaml").write_text(content)
    outcome = rl4sys("train", "broken.yaml")
    assert outcome.exit_code == 2
    assert re.search(message, outcome.err), outcome.err
    assert "Traceback" not in outcome.err


def test_unknown_config_lists_shipped_configs(rl4sys: Rl4sys) -> None:
    outcome = rl4sys("train", "ppo_cartpol")
    assert outcome.exit_code == 2
    assert "no config file 'ppo_cartpol'" in outcome.err
    assert "did you mean ppo_cartpole? Shipped: a2c_cartpole" in outcome.err


def test_very_long_config_name_is_reported_as_missing_file(rl4sys: Rl4sys) -> None:
    outcome = rl4sys("train", "x" * 3000)
    assert outcome.exit_code == 2
    assert "no config file 'xxx" in outcome.err


def test_failed_start_leaves_no_run_directory(rl4sys: Rl4sys, small_file: Path, tmp_path: Path) -> None:
    assert rl4sys("train", small_file, "environment.name=CartPol-v1").exit_code == 2
    assert runs_in(tmp_path / "experiments") == []


def test_locked_run_is_not_resumed(rl4sys: Rl4sys, finished_run: Path) -> None:
    stored = (finished_run / "configs/config.yaml").read_bytes()
    with Run.open(finished_run).locked():
        outcome = rl4sys("train", "--resume", finished_run, "--total-timesteps", "99999")
    assert outcome.exit_code == 2
    assert "is being trained by another process; stop that process, or wait" in outcome.err
    assert (finished_run / "configs/config.yaml").read_bytes() == stored


def test_missing_config_suggests_a_command(rl4sys: Rl4sys) -> None:
    outcome = rl4sys("train")
    assert outcome.exit_code == 2
    assert "no config given; try `rl4sys train ppo_cartpole`" in outcome.err


def test_root_that_is_a_file_is_rejected(rl4sys: Rl4sys, small_file: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    outcome = rl4sys("train", small_file, "--root", tmp_path / "file")
    assert outcome.exit_code == 2
    assert re.search(r"cannot create a run directory in .*file: .*; choose another folder with --root", outcome.err)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_read_only_root_is_rejected(rl4sys: Rl4sys, small_file: Path, tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    outcome = rl4sys("train", small_file, "--root", tmp_path / "locked")
    assert outcome.exit_code == 2
    assert "Permission denied; choose another folder with --root" in outcome.err


def test_full_disk_keeps_earlier_checkpoints(
    rl4sys: Rl4sys, finished_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = sorted(p.name for p in (finished_run / "checkpoints").iterdir())

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("rl4sys.runs.checkpoint.write_synced", lambda path, content: full(0))
    outcome = rl4sys("train", "--resume", finished_run, "--total-timesteps", "400")
    assert outcome.exit_code == 2
    assert "No space left on device; earlier checkpoints are unchanged" in outcome.err
    assert sorted(p.name for p in (finished_run / "checkpoints").iterdir()) == before


def test_resume_of_unknown_run_lists_runs(rl4sys: Rl4sys, finished_run: Path) -> None:
    outcome = rl4sys("train", "--resume", finished_run.parent / "typo")
    assert outcome.exit_code == 2
    assert f"typo is not a run directory: it has no configs/config.yaml. Runs in {finished_run.parent}" in outcome.err
    assert finished_run.name in outcome.err


def test_evaluate_of_folder_lists_its_runs(rl4sys: Rl4sys, finished_run: Path) -> None:
    outcome = rl4sys("evaluate", finished_run.parent)
    assert outcome.exit_code == 2
    assert f"Runs in {finished_run.parent}: {finished_run.name}" in outcome.err


def test_config_with_different_suffix_is_suggested(rl4sys: Rl4sys, small_file: Path) -> None:
    assert "no config file 'small.yml', and no shipped experiment of that name; did you mean small.yaml?" in (
        rl4sys("train", "small.yml").err
    )


def test_config_check_builds_the_algorithm(rl4sys: Rl4sys) -> None:
    outcome = rl4sys("config", "check", "dqn_cartpole", "environment.name=Pendulum-v1")
    assert outcome.exit_code == 2
    assert "dqn supports discrete actions" in outcome.err


def test_resume_with_changed_settings_is_rejected(rl4sys: Rl4sys, finished_run: Path) -> None:
    outcome = rl4sys("train", "--resume", finished_run, "algorithm.gamma=0.5")
    assert outcome.exit_code == 2
    assert "was started with other settings: algorithm.gamma (was 0.99, now 0.5)" in outcome.err
    assert "only training.total_timesteps and alerts can change" in outcome.err


def test_resume_with_seed_is_rejected(rl4sys: Rl4sys, finished_run: Path) -> None:
    outcome = rl4sys("train", "--resume", finished_run, "--seed", "1,2")
    assert outcome.exit_code == 2
    message = "--seed 1,2 cannot be combined with --resume, because a resumed run keeps its seed; remove --seed"
    assert message in outcome.err


def test_resume_with_changed_network_size_is_rejected(rl4sys: Rl4sys, finished_run: Path) -> None:
    stored = finished_run / "configs" / "config.yaml"
    stored.write_text(stored.read_text().replace("hidden_dims: [8]", "hidden_dims: [9]"))
    outcome = rl4sys("train", "--resume", finished_run)
    assert outcome.exit_code == 2
    assert re.search(r"(?s)checkpoint step_\d+ does not fit the config of .*size mismatch", outcome.err)


def test_unknown_checkpoint_lists_available_checkpoints(rl4sys: Rl4sys, finished_run: Path) -> None:
    outcome = rl4sys("evaluate", finished_run, "--checkpoint", "step_7")
    assert outcome.exit_code == 2
    assert re.search(r"no checkpoint 'step_7' in .*; available: step_0+, step_\d+, latest, best", outcome.err)


def test_damaged_policy_is_not_evaluated(rl4sys: Rl4sys, finished_run: Path) -> None:
    policy = finished_run / "checkpoints" / "latest" / "policy.safetensors"
    policy.write_bytes(policy.read_bytes()[:-1])
    outcome = rl4sys("evaluate", finished_run)
    assert outcome.exit_code == 2
    assert re.search(r"checkpoint \w+ is damaged: policy\.safetensors does not match its checksum", outcome.err)


def test_resume_without_usable_checkpoint_is_rejected(rl4sys: Rl4sys, finished_run: Path) -> None:
    for state in finished_run.glob("checkpoints/step_*/state.json"):
        state.unlink()
    outcome = rl4sys("train", "--resume", finished_run)
    assert outcome.exit_code == 2
    assert re.search(r"no usable checkpoint in .*: checkpoint step_\d+ is damaged: FileNotFoundError", outcome.err)


def test_missing_logger_package_is_reported(rl4sys: Rl4sys, small_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    outcome = rl4sys("train", small_file, "logging.wandb.enabled=true")
    assert outcome.exit_code == 2
    assert "logging.wandb needs wandb, which is not installed; turn the setting off, or install it in" in outcome.err


def test_missing_environment_package_is_reported(
    rl4sys: Rl4sys, small_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "Box2D", None)
    monkeypatch.delitem(sys.modules, "gymnasium.envs.box2d", raising=False)
    monkeypatch.delitem(sys.modules, "gymnasium.envs.box2d.lunar_lander", raising=False)
    outcome = rl4sys("train", small_file, "environment.name=LunarLander-v3")
    assert outcome.exit_code == 2
    assert re.search(
        r"environment 'LunarLander-v3' needs Box2D, which is not installed; .*pip install -e '\.\[train\]'", outcome.err
    )


def test_missing_package_error_shows_install_command(
    rl4sys: Rl4sys, small_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("rl4sys.cli") and name != "rl4sys.cli.main"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "typer", None)
    outcome = rl4sys("train", small_file)
    assert outcome.exit_code == 2
    assert "this command needs typer, which is not installed; install it in a checkout of RL4Sys: pip" in outcome.err


def test_debug_option_does_not_catch_the_error(small_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rl4sys.cli.main import main
    from rl4sys.errors import ConfigError

    monkeypatch.setattr(sys, "argv", ["rl4sys", "train", str(small_file), "algorithm.lr=-1", "--debug"])
    with pytest.raises(ConfigError, match=r"algorithm\.lr\.start is -1"):
        main()
