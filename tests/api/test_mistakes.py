"""Typical mistakes in Python calls: each raises an `RL4SysError` with a remedy and creates no run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rl4sys
from tests.api.thermostat import NeedsTarget, Thermostat

TRAIN: dict[str, Any] = {"total_timesteps": 256, "progress": False}

MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "unknown experiment": (
        lambda: rl4sys.train("ppo_cartpol"),
        r"no config file 'ppo_cartpol'.*did you mean ppo_cartpole\?",
    ),
    "unknown setting": (
        lambda: rl4sys.train("ppo_cartpole", **{"algorithm.gama": 0.9}),
        r"algorithm\.gama is not a setting; did you mean gamma\?",
    ),
    "setting without its block": (lambda: rl4sys.train("ppo_cartpole", lr=1e-3), r"did you mean algorithm\.lr\?"),
    "setting of the wrong type": (
        lambda: rl4sys.train("ppo_cartpole", **{"algorithm.gamma": "high"}),
        r"algorithm\.gamma is 'high'; expected a number",
    ),
    "setting out of range": (
        lambda: rl4sys.train("ppo_cartpole", **{"algorithm.gamma": 2}),
        r"algorithm\.gamma is 2; expected a value less than or equal to 1",
    ),
    "block that is a number": (lambda: rl4sys.train("ppo_cartpole", training=7), r"training is 7"),
    "no arguments": (rl4sys.train, r"algorithm is missing: give the name of an experiment"),
    "algorithm without environment": (lambda: rl4sys.train(algorithm="ppo"), r"environment is missing"),
    "environment without algorithm": (lambda: rl4sys.train(environment="CartPole-v1"), r"algorithm is missing"),
    "unknown algorithm": (
        lambda: rl4sys.train(algorithm="pppo", environment="CartPole-v1"),
        r"no algorithm is named 'pppo'; did you mean ppo\?",
    ),
    "class that is not registered": (
        lambda: rl4sys.train(algorithm=object, environment="CartPole-v1"),
        r"expected a name, such as 'ppo', or a class registered with @register_algorithm",
    ),
    "unknown environment": (
        lambda: rl4sys.train(algorithm="ppo", environment="CartPole-v9", **TRAIN),
        r"environment\.name is 'CartPole-v9', which Gymnasium cannot create",
    ),
    "environment that is a number": (
        lambda: rl4sys.train(algorithm="ppo", environment=3),
        r"environment is 3; expected a name such as 'CartPole-v1'",
    ),
    "environment that cannot be created again": (
        lambda: rl4sys.train(algorithm="ppo", environment=NeedsTarget(3.0)),
        r"give a function that creates it",
    ),
    "environment with a wrong option": (
        lambda: rl4sys.train(algorithm="ppo", environment={"name": Thermostat, "options": {"goal": 3}}, **TRAIN),
        r"environment\.options is {'goal': 3}, but .* cannot be created with these options",
    ),
    "environment without a step": (
        lambda: rl4sys.train(algorithm="ppo", environment=type("Empty", (), {"reset": lambda self: 0}), **TRAIN),
        r"has no step; an environment needs both methods",
    ),
    "continuous actions for DQN": (
        lambda: rl4sys.train(algorithm="dqn", environment="Pendulum-v1", **TRAIN),
        r"dqn.*Use one of|dqn .*continuous",
    ),
    "seed that is a text": (lambda: rl4sys.train("ppo_cartpole", seed="one"), r"seed is 'one'; expected an integer"),
    "negative length": (lambda: rl4sys.train("ppo_cartpole", total_timesteps=-5), r"training\.total_timesteps is -5"),
    "experiment that is a number": (lambda: rl4sys.train(5), r"the experiment is 5; expected the name"),
    "callback that is a text": (lambda: rl4sys.train("ppo_cartpole", callbacks="stop"), r"callbacks contains 'stop'"),
    "run that does not exist": (lambda: rl4sys.load_run("experiments/none"), r"none"),
    "policy that does not exist": (lambda: rl4sys.load_policy("none.safetensors"), r"none\.safetensors"),
    "policy of a number": (lambda: rl4sys.load_policy(5), r"cannot load a policy from 5; expected a policy file"),
    "comparison of nothing": (rl4sys.compare, r"compare\(\) needs at least one run"),
    "comparison of a number": (lambda: rl4sys.compare(5), r"cannot compare 5"),
    "unknown filter": (lambda: rl4sys.find_runs("reward"), r"reward"),
    "best of none": (lambda: rl4sys.find_runs(best=0), r"best is 0; expected at least 1"),
    "sweep without an experiment": (lambda: rl4sys.sweep({"sweep": {"algorithm.lr": [1]}}), r"base_config is missing"),
    "sweep of an unknown setting": (
        lambda: rl4sys.sweep({"base_config": "ppo_cartpole", "sweep": {"algorithm.lrr": [1]}}),
        r"algorithm\.lrr is not a setting",
    ),
    "study with a wrong range": (
        lambda: rl4sys.tune({"base_config": "ppo_cartpole", "search": {"algorithm.lr": {"low": 1, "high": 0}}}),
        r"low|high",
    ),
    "server with an unknown setting": (lambda: rl4sys.serve(port=0, max_client=3), r"max_client is not a setting"),
    "agent without sizes": (lambda: rl4sys.Agent("localhost:1"), r"observation"),
    "agent with an unknown setting": (
        lambda: rl4sys.Agent("localhost:1", observation=3, action=2, inferense="local"),
        r"inferense is not a setting",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake_raises_an_error_with_the_remedy(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    call, message = MISTAKES[name]
    with pytest.raises(rl4sys.RL4SysError, match=message):
        call()
    assert rl4sys.find_runs() == []


def test_python_and_command_line_report_the_same_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import subprocess
    import sys

    monkeypatch.chdir(tmp_path)
    line = [sys.executable, "-m", "rl4sys", "train", "ppo_cartpole", "algorithm.gama=0.9", "training.total_timesteps=x"]
    shown = subprocess.run(line, capture_output=True, text=True, check=False)
    assert shown.returncode == 2
    with pytest.raises(rl4sys.RL4SysError) as raised:
        rl4sys.train("ppo_cartpole", **{"algorithm.gama": 0.9, "training.total_timesteps": "x"})
    assert " ".join(str(raised.value).split()) in " ".join(shown.stderr.split())
