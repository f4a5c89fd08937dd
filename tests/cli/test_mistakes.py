"""Mistakes a user can make: each ends in exit code 2 and a message that helps, never in a traceback."""

from __future__ import annotations

import errno
import os
import re
import sys
from pathlib import Path

import pytest

from rl4sys.experiment.run import Run

from .conftest import Rl4sys, runs_in

# What is typed after `rl4sys train small.yaml`, and what the message must say.
SETTINGS = {
    "a misspelt setting": (
        ["algorithm.clip_ration=0.1"],
        r"algorithm\.clip_ration is not a setting; did you mean clip_ratio\?\nKnown in algorithm: clip_ratio, crit",
    ),
    "a misspelt block": (["trainning.total_timesteps=5"], r"trainning is not a block; did you mean training\?"),
    "a word for a number": (
        ["algorithm.gamma=high"],
        r"algorithm\.gamma is 'high'; it should be a valid number.*Discount",
    ),
    "a setting by another library's name": (
        ["algorithm.learning_rate=0.1"],
        r"algorithm\.learning_rate is not a setting; did you mean lr\?",
    ),
    "a setting without its block": (["lr=0.1"], r"lr is not a block; did you mean algorithm\.lr\?"),
    "a word for a schedule": (
        ["algorithm.lr=fast"],
        r"algorithm\.lr is 'fast'; it should be a number, or a line such as \{start: 1e-3, end: 0\.0\}",
    ),
    "a negative rate": (
        ["algorithm.lr=-0.1"],
        r"algorithm\.lr\.start is -0\.1; it should be greater than or equal to 0",
    ),
    "true for a number": (
        ["algorithm.gamma=true"],
        r"algorithm\.gamma is True; it should be a number, not true or false",
    ),
    "a discount over 1": (["algorithm.gamma=1.5"], r"algorithm\.gamma is 1\.5; it should be less than or equal to 1"),
    "half an environment": (
        ["environment.num_envs=1.5"],
        r"environment\.num_envs is 1\.5; it should be a valid integer",
    ),
    "no environments": (["environment.num_envs=0"], r"environment\.num_envs is 0; it should be greater than 0"),
    "no training": (["training.total_timesteps=0"], r"training\.total_timesteps is 0; it should be greater than 0"),
    "a text for a list": (
        ["network.actor.hidden_dims=64"],
        r"network\.actor\.hidden_dims is 64; it should be a list of widths, such as \[64",
    ),
    "a layer of no width": (
        ["network.actor.hidden_dims=[8,0]"],
        r"hidden_dims is \[8, 0\]; it should hold at most 64 widths between 1 and",
    ),
    "an unknown activation": (
        ["network.actor.activation=sigmoid"],
        r"network\.actor\.activation is 'sigmoid'; it should be 'tanh', 'relu', 'elu', 'gelu' or 'silu'",
    ),
    "an unknown algorithm": (
        ["algorithm.name=ppoo"],
        r"no algorithm is named 'ppoo'; did you mean ppo\? Known: a2c, bc, c51.*`plugins:`",
    ),
    "an unknown network": (["network.actor.type=mpl"], r"no network is named 'mpl'; did you mean mlp\?"),
    "an unknown buffer": (["buffer.type=trajectry"], r"no buffer is named 'trajectry'; did you mean trajectory\?"),
    "an unknown wrapper": (["environment.wrapper=gim"], r"no environment is named 'gim'; did you mean gym\?"),
    "an unknown environment": (
        ["environment.name=CartPol-v1"],
        r"environment\.name is 'CartPol-v1', which Gymnasium cannot make; did you mean CartPole-v1\?",
    ),
    "options the environment lacks": (
        ["environment.options={wind: 3}"],
        r"environment\.options \{'wind': 3\} do not fit CartPole-v1: .*unexpected keyword argument 'wind'",
    ),
    "a network the algorithm lacks": (
        ["network.actr.type=mlp"],
        r"network\.actr is not a network of ppo; did you mean actor\? It has: actor, critic, trunk\.",
    ),
    "a block replaced by a word": (
        ["algorithm=dqn"],
        r"algorithm='dqn' would replace a whole block; name the setting, such as algorithm\.name=",
    ),
    "an override without a value": (["algorithm.lr"], r"'algorithm\.lr' is not an override; write key\.path=value"),
    "an unknown device": (
        ["experiment.device=gpu"],
        r"experiment\.device is 'gpu'; it does not have the right form .*auto, cpu, cuda",
    ),
    "a slash in the name": (["experiment.name=a/b"], r"experiment\.name is 'a/b'; .*letters, digits, dot, dash"),
    "a version from the future": (["version=99"], r"the config says version: 99, and this rl4sys reads version 1"),
    "a plugin file that is absent": (
        ["plugins=[mine.py]"],
        r"plugins names the file 'mine\.py', which is neither here",
    ),
    "a plugin module that is absent": (
        ["plugins=[my_lab]"],
        r"plugins names the module 'my_lab', which Python cannot find",
    ),
    "replay for an on-policy algorithm": (
        ["buffer.type=uniform"],
        r"buffer\.type is 'uniform', which ppo cannot learn from; use trajectory",
    ),
    "an environment of an absent module": (
        ["environment.name=nomodule:Env-v0"],
        r"environment\.name is 'nomodule:Env-v0', which Gymnasium cannot make.*No module named 'nomodule'",
    ),
    "a network too wide for any machine": (
        ["network.actor.hidden_dims=[100000000]"],
        r"network\.actor\.hidden_dims is \[100000000\]; it should hold at most 64 widths between 1 and 16384",
    ),
    "a buffer too large for any machine": (
        ["buffer.size=1e15"],
        r"buffer\.size is 1000000000000000.*; it should be less",
    ),
    "more threads than any machine has": (
        ["experiment.threads=100000000"],
        r"experiment\.threads is 100000000; it should",
    ),
    "seeds that are no numbers": (
        ["--seed", "1,two"],
        r"--seed is '1,two'; it should be a number such as 1, or several",
    ),
}


@pytest.mark.parametrize("mistake", SETTINGS)
def test_a_mistake_in_the_settings_is_explained(rl4sys: Rl4sys, small_file: Path, tmp_path: Path, mistake: str) -> None:
    arguments, message = SETTINGS[mistake]
    outcome = rl4sys("train", small_file, *arguments)
    assert outcome.exit_code == 2
    assert re.search(message, outcome.err), outcome.err
    assert "Traceback" not in outcome.err


FILES = {
    "not YAML": ("experiment: [", r"(?s)broken\.yaml is not valid YAML: .*in broken\.yaml, line 1"),
    "nothing": ("", r"broken\.yaml is empty; write blocks such as"),
    "a list": ("- ppo\n", r"broken\.yaml holds list, not a block of settings"),
    "a key given twice": ("experiment: {seed: 1}\nexperiment: {seed: 2}\n", r"'experiment' is given twice"),
    "a file that extends itself": ("extends: [broken.yaml]\n", r"broken\.yaml extends itself through"),
    "extends of a word": ("extends: algorithms/ppo\n", r"extends is 'algorithms/ppo'; it should be a list"),
    "no algorithm": (
        "environment: {name: CartPole-v1}\n",
        r"algorithm\.name is 'missing'; it should be the name of the",
    ),
    "no environment": ("algorithm: {name: ppo}\n", r"environment\.name is missing; add it \(A Gymnasium id such as"),
    "a word for a block": (
        "algorithm: {name: ppo}\nenvironment: CartPole-v1\n",
        r"environment is 'CartPole-v1'; it should",
    ),
    "several mistakes": (
        "algorithm: {name: ppo, gama: 1}\nenvironment: {name: CartPole-v1, nums: 2}\n",
        r"algorithm\.gama is not a setting; did you mean gamma\?\nKnown in .*\nenvironment\.nums is not a setting",
    ),
    "a chance over 1": (
        "algorithm: {name: dqn, exploration: 1.5}\nenvironment: {name: CartPole-v1}\n",
        r"algorithm\.exploration is 1\.5; it should be a probability, at most 1",
    ),
    "options of a wrong kind": (
        "algorithm: {name: ppo}\nenvironment: {name: FrozenLake-v1, options: {map_name: foo}}\n",
        r"environment\.options \{'map_name': 'foo'\} do not fit FrozenLake-v1: KeyError\('foo'\)",
    ),
    "nesting without end": ("a: " + "[" * 3000, r"broken\.yaml is (nested too deeply|not valid YAML)"),
    "continuous actions for dqn": (
        "algorithm: {name: dqn}\nenvironment: {name: Pendulum-v1}\n",
        r"dqn takes actions that are choices, and these are numbers within bounds; use a2c, bc, .* or trpo",
    ),
}


@pytest.mark.parametrize("mistake", FILES)
def test_a_mistake_in_the_file_is_explained(rl4sys: Rl4sys, tmp_path: Path, mistake: str) -> None:
    content, message = FILES[mistake]
    (tmp_path / "broken.yaml").write_text(content)
    outcome = rl4sys("train", "broken.yaml")
    assert outcome.exit_code == 2
    assert re.search(message, outcome.err), outcome.err
    assert "Traceback" not in outcome.err


def test_a_config_that_does_not_exist_lists_those_that_ship(rl4sys: Rl4sys) -> None:
    outcome = rl4sys("train", "ppo_cartpol")
    assert outcome.exit_code == 2
    assert "no config file 'ppo_cartpol'" in outcome.err
    assert "did you mean ppo_cartpole? Shipped: a2c_cartpole" in outcome.err


def test_a_name_too_long_to_be_a_file_is_just_not_found(rl4sys: Rl4sys) -> None:
    outcome = rl4sys("train", "x" * 3000)
    assert outcome.exit_code == 2
    assert "no config file 'xxx" in outcome.err


def test_a_run_that_cannot_be_built_leaves_no_directory(rl4sys: Rl4sys, small_file: Path, tmp_path: Path) -> None:
    assert rl4sys("train", small_file, "environment.name=CartPol-v1").exit_code == 2
    assert runs_in(tmp_path / "experiments") == []


def test_a_run_in_use_is_left_alone(rl4sys: Rl4sys, finished_run: Path) -> None:
    stored = (finished_run / "configs/config.yaml").read_bytes()
    with Run.open(finished_run).locked():
        outcome = rl4sys("train", "--resume", finished_run, "--total-timesteps", "99999")
    assert outcome.exit_code == 2
    assert "is being trained by another process; wait for it or stop it" in outcome.err
    assert (finished_run / "configs/config.yaml").read_bytes() == stored


def test_no_config_at_all_says_what_to_type(rl4sys: Rl4sys) -> None:
    outcome = rl4sys("train")
    assert outcome.exit_code == 2
    assert "no config given; try `rl4sys train ppo_cartpole`" in outcome.err


def test_a_place_that_cannot_hold_runs_is_named(rl4sys: Rl4sys, small_file: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    outcome = rl4sys("train", small_file, "--root", tmp_path / "file")
    assert outcome.exit_code == 2
    assert re.search(r"cannot create a run directory in .*file: .*; choose another place with --root", outcome.err)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_place_is_named(rl4sys: Rl4sys, small_file: Path, tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    outcome = rl4sys("train", small_file, "--root", tmp_path / "locked")
    assert outcome.exit_code == 2
    assert "Permission denied; choose another place with --root" in outcome.err


def test_a_disk_that_fills_up_costs_no_checkpoint_that_was_there(
    rl4sys: Rl4sys, finished_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = sorted(p.name for p in (finished_run / "checkpoints").iterdir())

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("rl4sys.experiment.checkpoint.write_synced", lambda path, content: full(0))
    outcome = rl4sys("train", "--resume", finished_run, "--total-timesteps", "400")
    assert outcome.exit_code == 2
    assert "No space left on device; earlier checkpoints are as they were" in outcome.err
    assert sorted(p.name for p in (finished_run / "checkpoints").iterdir()) == before


def test_resuming_what_is_no_run_lists_the_runs_beside_it(rl4sys: Rl4sys, finished_run: Path) -> None:
    outcome = rl4sys("train", "--resume", finished_run.parent / "typo")
    assert outcome.exit_code == 2
    assert f"typo is not a run directory: it has no configs/config.yaml. Runs in {finished_run.parent}" in outcome.err
    assert finished_run.name in outcome.err


def test_a_folder_of_runs_is_no_run_but_they_are_listed(rl4sys: Rl4sys, finished_run: Path) -> None:
    outcome = rl4sys("evaluate", finished_run.parent)
    assert outcome.exit_code == 2
    assert f"Runs in {finished_run.parent}: {finished_run.name}" in outcome.err


def test_a_file_with_another_ending_is_suggested(rl4sys: Rl4sys, small_file: Path) -> None:
    assert "no config file 'small.yml', and no shipped experiment of that name; did you mean small.yaml?" in (
        rl4sys("train", "small.yml").err
    )


def test_check_notices_what_only_building_shows(rl4sys: Rl4sys) -> None:
    outcome = rl4sys("config", "check", "dqn_cartpole", "environment.name=Pendulum-v1")
    assert outcome.exit_code == 2
    assert "dqn takes actions that are choices" in outcome.err


def test_resuming_with_other_settings_names_them(rl4sys: Rl4sys, finished_run: Path) -> None:
    outcome = rl4sys("train", "--resume", finished_run, "algorithm.gamma=0.5")
    assert outcome.exit_code == 2
    assert "was started with other settings: algorithm.gamma (0.99 then, 0.5 now)" in outcome.err
    assert "only training.total_timesteps and alerts may change" in outcome.err


def test_resuming_with_a_seed_is_refused(rl4sys: Rl4sys, finished_run: Path) -> None:
    outcome = rl4sys("train", "--resume", finished_run, "--seed", "1,2")
    assert outcome.exit_code == 2
    assert "--seed 1,2 does not go with --resume, which goes on with the seed the run has" in outcome.err


def test_resuming_from_a_checkpoint_of_another_network_says_so(rl4sys: Rl4sys, finished_run: Path) -> None:
    stored = finished_run / "configs" / "config.yaml"
    stored.write_text(stored.read_text().replace("hidden_dims: [8]", "hidden_dims: [9]"))
    outcome = rl4sys("train", "--resume", finished_run)
    assert outcome.exit_code == 2
    assert re.search(r"(?s)checkpoint step_\d+ does not fit the config of .*size mismatch", outcome.err)


def test_a_checkpoint_that_does_not_exist_lists_those_that_do(rl4sys: Rl4sys, finished_run: Path) -> None:
    outcome = rl4sys("evaluate", finished_run, "--checkpoint", "step_7")
    assert outcome.exit_code == 2
    assert re.search(r"no checkpoint 'step_7' in .*; there are: step_0+, step_\d+, latest, best", outcome.err)


def test_a_damaged_policy_is_not_evaluated(rl4sys: Rl4sys, finished_run: Path) -> None:
    policy = finished_run / "checkpoints" / "latest" / "policy.safetensors"
    policy.write_bytes(policy.read_bytes()[:-1])
    outcome = rl4sys("evaluate", finished_run)
    assert outcome.exit_code == 2
    assert re.search(r"checkpoint \w+ is damaged: policy\.safetensors does not match its checksum", outcome.err)


def test_a_run_without_any_whole_checkpoint_cannot_be_resumed(rl4sys: Rl4sys, finished_run: Path) -> None:
    for state in finished_run.glob("checkpoints/step_*/state.json"):
        state.unlink()
    outcome = rl4sys("train", "--resume", finished_run)
    assert outcome.exit_code == 2
    assert re.search(r"no usable checkpoint in .*: checkpoint step_\d+ is damaged: FileNotFoundError", outcome.err)


def test_a_logger_that_is_not_installed_is_named_with_the_remedy(
    rl4sys: Rl4sys, small_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    outcome = rl4sys("train", small_file, "logging.wandb.enabled=true")
    assert outcome.exit_code == 2
    assert "logging.wandb is on but wandb is not installed: pip install 'rl4sys[train]', or turn" in outcome.err


def test_an_environment_whose_package_is_missing_is_named_with_the_remedy(
    rl4sys: Rl4sys, small_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "Box2D", None)
    monkeypatch.delitem(sys.modules, "gymnasium.envs.box2d", raising=False)
    monkeypatch.delitem(sys.modules, "gymnasium.envs.box2d.lunar_lander", raising=False)
    outcome = rl4sys("train", small_file, "environment.name=LunarLander-v3")
    assert outcome.exit_code == 2
    assert re.search(r"environment 'LunarLander-v3' needs a package that is missing: .*box2d", outcome.err)


def test_training_without_torch_says_which_extra_brings_it(
    rl4sys: Rl4sys, small_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("rl4sys.cli") and name != "rl4sys.cli.main"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "typer", None)
    outcome = rl4sys("train", small_file)
    assert outcome.exit_code == 2
    assert "this command needs typer, which is not installed: pip install 'rl4sys[train]'" in outcome.err


def test_debug_shows_the_traceback(small_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rl4sys.cli.main import main
    from rl4sys.errors import ConfigError

    monkeypatch.setattr(sys, "argv", ["rl4sys", "train", str(small_file), "algorithm.lr=-1", "--debug"])
    with pytest.raises(ConfigError, match=r"algorithm\.lr\.start is -1"):
        main()
