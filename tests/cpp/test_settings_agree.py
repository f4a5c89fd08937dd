"""Agreement of the C++ and the Python client on config files: the same settings and the same errors."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl4sys.client.agent import _draws_key
from rl4sys.client.config import ClientConfig, load_client_config
from rl4sys.client.fallback import Fallback
from rl4sys.client.spaces import Sizes, make_spaces
from rl4sys.client.stream import Endpoint
from rl4sys.errors import ConfigError, SpecError
from tests.cpp.conftest import Binary

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"
SIZES = {"observation": 8, "action": 4}
NUMBERS = {"observation": 3, "action": {"size": 2, "low": -1, "high": [1, 2]}}

ShowConfig = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def show_config(binary: Binary) -> ShowConfig:
    """Return a function that runs the C++ program show_config on a config file."""

    def run(path: Path, changes: dict[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
        overrides = [] if changes is None else [json.dumps(changes)]
        return subprocess.run([binary("show_config"), path, *overrides], capture_output=True, text=True, check=False)

    return run


def read_by_python(path: Path, changes: dict[str, Any] | None) -> dict[str, Any]:
    """Return the settings that the Python client reads, in the format of the C++ program show_config."""
    config = load_client_config(path, changes)
    spaces = make_spaces(Sizes(config.observation, config.action, config.mask))
    fallback = fallback_of(config, Fallback(spaces, config.fallback_action, None))
    same = config.model_dump(
        include={"client_id", "policy_id", "seed", "max_staleness", "pin_version", "max_traj_length", "send_frequency"}
        | {"patience_seconds", "flush_seconds"}
    )
    return same | {
        "draws_key": None if config.seed is None else _draws_key(config.seed),
        "spec": spaces.spec.to_json(),
        "learner_settings": config.learner_settings(),
        "remote": config.inference == "remote",
        "server": server_of(config),
        "outbox": json.loads(config.outbox.model_dump_json()),
        **fallback,
    }


def fallback_of(config: ClientConfig, fallback: Fallback) -> dict[str, Any]:
    action = None if config.fallback_action is None else fallback.choose(None, None, "away")[0]
    written = [] if action is None else np.ravel(action).tolist()
    numbers = isinstance(action, np.ndarray) and action.dtype == np.float32
    return {"fallback_acts": [] if numbers else written, "fallback_values": written if numbers else []}


def server_of(config: ClientConfig) -> dict[str, Any]:
    token = Endpoint.from_config(config.server).credentials.token
    return json.loads(config.server.model_dump_json(exclude={"token_file"})) | {"token": token}


def read_by_cpp(shown: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Return the settings that the C++ program show_config prints, with None for empty strings."""
    assert shown.returncode == 0, shown.stderr
    settings: dict[str, Any] = json.loads(shown.stdout)
    for block in (settings["server"], settings["outbox"], settings["server"]["tls"] or {}):
        block.update({name: None for name, value in block.items() if value == ""})
    return settings


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("promised_001", None),
        ("promised_001", {"observation": 9, "server": {"address": "there:1"}}),
        ("promised_003", SIZES),
        ("promised_003", {**NUMBERS, "algorithm.lr": 1e-3, "network": {"all": {"activation": "relu"}}}),
    ],
)
def test_cpp_and_python_clients_read_documented_configs_identically(
    show_config: ShowConfig, name: str, changes: dict[str, Any] | None
) -> None:
    path = DATA / f"{name}.json"
    assert read_by_cpp(show_config(path, changes)) == read_by_python(path, changes)


NATIVE = [
    SIZES,
    {**SIZES, "version": 1, "client_id": "cache-1.a_B", "policy_id": "shared"},
    {**SIZES, "version": 1.0, "client_id": None, "policy_id": None, "seed": None},
    {**SIZES, "client_id": "größe-λ", "mask": True, "fallback_action": 3},
    {**SIZES, "seed": 2**32 + 5, "max_staleness": 0, "pin_version": 12, "inference": "remote"},
    {**SIZES, "seed": 2**64 - 1, "normalize_obs": False, "normalize_reward": True},
    {**SIZES, "max_traj_length": 50, "send_frequency": 4, "patience_seconds": 2.5, "flush_seconds": 0},
    {**SIZES, "outbox": {"memory_bytes": 0, "spool": "kept/here", "spool_bytes": 1}},
    {**SIZES, "outbox": {"spool": "~/kept"}, "server": {}},
    {**SIZES, "outbox": {"spool": "/var/kept"}},
    {**SIZES, "outbox": {"spool": None}, "server": {"tls": None, "token": None, "token_file": None}},
    {**SIZES, "server": {"address": "a:1", "token": "secret", "timeout_seconds": 3600, "act_timeout_seconds": 0.01}},
    {**SIZES, "server": {"token": "ignored", "token_file": "token"}},
    {**SIZES, "server": {"tls": {}}},
    {**SIZES, "server": {"tls": {"ca": "./ca.pem", "cert": "cert.pem", "key": "key.pem"}}},
    {
        **SIZES,
        "algorithm": {"name": "dqn", "exploration": {"start": 1, "end": 0.05, "fraction": 0.1}, "odd": [1, None, "é"]},
        "network": {"hidden_dims": [64, 64]},
        "buffer": {"size": 10**12},
        "training": {"total_timesteps": 5000},
    },
    {**SIZES, "algorithm": {}, "network": {}, "normalize_obs": None, "max_staleness": None},
    {"observation": [4, 4, 2], "action": 1},
    {"observation": {"shape": [4, 4], "dtype": "uint8", "low": 0, "high": 255}, "action": 4},
    {"observation": {"b": [2, 2], "a": 3, "c": {"shape": 2, "low": [0.1, -2]}}, "action": 2, "mask": True},
    {"observation": {"shape": [2, 2], "low": [[0, 1], [2, 3]], "high": [[5, 5], [5, 5]]}, "action": 4},
    {"observation": {"x": 2, "mask": 7}, "action": 5},
    {"observation": {"shape": 2, "low": None, "high": 1e39}, "action": {"size": [2, 3]}},
    {"observation": 3, "action": [3, 2], "mask": True, "fallback_action": [2, 0]},
    {"observation": 3, "action": [1]},
    {**NUMBERS, "fallback_action": [0.5, 2]},
    {**NUMBERS, "fallback_action": ["-1", 0.1]},
    {"observation": 1, "action": {"size": [2, 1], "high": 7}, "fallback_action": [[7], [-1e9]]},
]
LENIENT = [
    {**SIZES, "max_traj_length": 5.0, "send_frequency": " +1_0.00 ", "seed": "007", "pin_version": "-0"},
    {**SIZES, "patience_seconds": "1_0.5e0", "flush_seconds": " 3 ", "server": {"timeout_seconds": "+1e3"}},
    *({**SIZES, "mask": word} for word in (1, 0, 1.0, "yes", "OFF", "t", "N", "1", "False")),
]
FIRST: dict[str, Any] = {"algorithm_name": "PPO", "algorithm_parameters": {"act_dim": 2, "input_size": 3}}
OLD = [
    FIRST,
    {
        "algorithm_name": "DQN",
        "type": "off-policy",
        "algorithm_parameters": {
            "batch_size": 64, "q_lr": 1e-3, "epsilon": 0.9, "epsilon_min": 0.1, "target_update_freq": 500,
            "traj_per_epoch": 3, "act_dim": 2, "input_size": 4, "something": 1, "buf_size": 9, "train_pi_iters": 3,
        },
    },
    {**FIRST, "algorithm_parameters": {"act_dim": 2, "input_size": 3, "discrete": False}, "act_limit": 0.5},
    {**FIRST, "algorithm_parameters": {"act_dim": 2, "input_size": 3, "discrete": 0}, "act_limit": "wide"},
    {**FIRST, "algorithm_parameters": {**SIZES, "act_dim": 2, "input_size": 3, "pi_lr": 1, "lr": 2, "a.b": 3}},
    {**FIRST, "algorithm_parameters": {"input_size": 3, "lr": 2, "pi_lr": 1, "act_dim": 2, "train_v_iters": None}},
    {**FIRST, "max_traj_length": "20", "server": {"token": "t"}, "train_server_address": "x:1", "buffer": {"type": "a"}}
    | {"algorithm_parameters": {"act_dim": 2, "input_size": 3, "traj_per_epoch": 4, "train_pi_iters": 3.5}},
    {**FIRST, "algorithm_parameters": {"act_dim": 2, "input_size": 3, "train_pi_iters": 3, "train_v_iters": 7}},
    {**FIRST, "algorithm_parameters": {"act_dim": 2, "input_size": 3, "train_pi_iters": 20, "train_v_iters": 20}},
    {**FIRST, "algorithm_parameters": {"act_dim": 2, "input_size": 3, "train_v_iters": 80}},
    *({**FIRST, "algorithm_name": "dqn", "algorithm_parameters": {"act_dim": 2, "input_size": 3, **parameters}}
      for parameters in (
          {"epsilon": 0.9, "epsilon_min": 0.1, "epsilon_decay": 5e-4}, {"epsilon_decay": 1}, {"epsilon_decay": 3e-4},
          {"epsilon_start": 1, "epsilon_end": 0.01, "epsilon_decay": 0.36}, {"epsilon": 0, "epsilon_decay": 1e-300},
          {"epsilon": 0.5, "epsilon_decay": 0.1, "exploration": {"start": 1}},
      )),
    *({**FIRST, "algorithm_name": name, "type": "offpolicy",
       "algorithm_parameters": {"act_dim": 2, "input_size": 3, "discrete": False, "pi_lr": 1e-4, "q_lr": 1e-3,
                                "polyak": 0.995, "alpha": 0.2, "train_iters": 4, "buf_size": 9, **more}}
      for name in ("SAC", "TD3", "DDPG", "mine")
      for more in ({}, {"adaptive_alpha": True, "tau": 0.1, "polyak": 1, "train_update_freq": 3})
      if name != "mine" or not more),
    {**SIZES, "algorithm": "SAC", "algorithm_parameters": {"polyak": 0.9, "alpha": 1, "pi_lr": 1},
     "training": {"batch_size": 3, "epochs": 2}},
    {**SIZES, "algorithm": "DQN", "algorithm_parameters": {"epsilon_decay": 0.01}},
    {**FIRST, "algorithm_name": "mine", "type": "whatever", "max_staleness": 3, "version": 1},
    {**SIZES, "algorithm": "ppo", "algorithm_parameters": None, "training": [], "seed": 4},
    {**SIZES, "algorithm": "Dqn", "training": {"batch_size": 3, "epochs": 2, "total": 9}, "communication": {}},
    {**SIZES, "algorithm": "mine", "training": {"steps": 3}, "network_architecture": {"hidden_sizes": [4], "x": 1}},
]  # fmt: skip


def write_files(folder: Path, settings: Any) -> Path:
    for name in ("token", "ca.pem", "cert.pem", "key.pem"):
        (folder / name).write_text("the first line\nanother\n")
    path = folder / "cache-1.json"
    path.write_text(settings if isinstance(settings, str) else json.dumps(settings, ensure_ascii=False))
    return path


# Bounds beyond float32 become infinite.
@pytest.mark.filterwarnings("ignore:overflow encountered")
@pytest.mark.parametrize("settings", [*NATIVE, *LENIENT, *OLD])
def test_cpp_and_python_clients_read_configs_identically(
    show_config: ShowConfig, tmp_path: Path, settings: dict[str, Any]
) -> None:
    path = write_files(tmp_path, settings)
    expected = read_by_python(path, None)
    read = read_by_cpp(show_config(path))
    read["outbox"]["spool"] = read["outbox"]["spool"] and str(Path(read["outbox"]["spool"]))
    if read["server"]["tls"]:
        read["server"]["tls"] = {name: file and str(Path(file)) for name, file in read["server"]["tls"].items()}
    assert read == expected


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"server.address": "there:2", "algorithm.lr": 2, "policy_id": "other"},
        {"server": {"token": "u"}, "algorithm": {"exploration": {"start": 1}}, "outbox.spool_bytes": 3},
        {"server": {"tls": {"ca": "ca.pem"}}, "algorithm": {"lr": {"start": 1}}, "seed.of": {"a": 1}, "seed": 5},
        {"action": {"size": 3, "high": 1}, "fallback_action": [0, 0, 1], "algorithm": {"name": None}, "buffer": {}},
        {"observation": {"a": 3, "b": {"shape": 2}}, "client_id": None},
    ],
)
def test_cpp_and_python_clients_apply_overrides_identically(
    show_config: ShowConfig, tmp_path: Path, changes: dict[str, Any]
) -> None:
    content = {**SIZES, "client_id": "a", "server": {"address": "here:1", "tls": None}}
    path = write_files(tmp_path, content | {"algorithm": {"name": "ppo", "lr": 1}})
    assert read_by_cpp(show_config(path, changes)) == read_by_python(path, changes)


def test_cpp_and_python_clients_read_extended_configs_identically(show_config: ShowConfig, tmp_path: Path) -> None:
    (tmp_path / "fleet").mkdir()
    (tmp_path / "fleet" / "all.json").write_text(json.dumps({**SIZES, "algorithm": {"name": "ppo", "lr": 1}}))
    (tmp_path / "fleet" / "here.json").write_text(json.dumps({"extends": ["all.json"], "server": {"address": "a:1"}}))
    path = write_files(tmp_path, {"extends": ["fleet/here.json"], "algorithm": {"lr": 2}, "server": {"token": "t"}})
    read = read_by_cpp(show_config(path))
    assert read == read_by_python(path, None)
    assert read["learner_settings"] == {"algorithm": {"name": "ppo", "lr": 2}}


ERRORS: list[tuple[Any, str]] = [
    ({"patience": 3}, "patience is not a setting"),
    ({"observations": 3}, "observations is not a setting; did you mean observation?"),
    ({"server": {"adress": "x"}}, "server.adress is not a setting; did you mean address?"),
    ({"server": {"tls": {"certificate": "x"}}}, "server.tls.certificate is not a setting"),
    ({"outbox": {"memory": 1}}, "outbox.memory is not a setting; did you mean memory_bytes?"),
    ({"client_id": "a/b"}, "client_id is"),
    ({"client_id": ""}, "client_id is"),
    ({"client_id": "a" * 101}, "client_id is"),
    ({"policy_id": ".hidden"}, "policy_id is"),
    ({"policy_id": 5}, "policy_id is 5; expected a string"),
    ({"version": 7}, "the config has version 7, but this release of rl4sys reads version 1"),
    ({"version": "1"}, "the config has version "),
    ({"version": True}, "version is"),
    ({"seed": -1}, "seed is -1; expected a value greater than or equal to 0"),
    ({"seed": True}, "seed is"),
    ({"seed": 1.5}, "seed is 1.5; expected an integer"),
    ({"seed": 1e19}, "seed is 1e+19"),
    ({"seed": "x"}, "seed is"),
    ({"seed": "1e3"}, "seed is"),
    ({"mask": "maybe"}, "mask is"),
    ({"mask": None}, "mask is"),
    ({"mask": 2}, "mask is 2; expected true or false"),
    ({"normalize_obs": "x"}, "normalize_obs is"),
    ({"algorithm": 5}, "algorithm is 5; expected a"),
    ({"network": None}, "network is"),
    ({"buffer": []}, "buffer is []; expected a"),
    ({"max_staleness": -1}, "max_staleness is -1; expected a value greater than or equal to 0"),
    ({"pin_version": [1]}, "pin_version is [1]; expected an integer"),
    ({"server": 5}, "server is 5; expected a"),
    ({"server": None}, "server is"),
    ({"server": {"address": ""}}, "server.address is"),
    ({"server": {"address": 5}}, "server.address is 5; expected a string"),
    ({"server": {"token": 5}}, "server.token is 5; expected a string"),
    ({"server": {"token_file": 5}}, "server.token_file is 5"),
    ({"server": {"token_file": "nowhere"}}, "server.token_file is"),
    ({"server": {"token_file": ""}}, "server.token_file is"),
    ({"server": {"tls": True}}, "server.tls is"),
    ({"server": {"tls": {"cert": "cert.pem"}}}, "server.tls has only one of cert and key"),
    ({"server": {"timeout_seconds": 0}}, "server.timeout_seconds is 0; expected a value greater than 0"),
    (
        {"server": {"timeout_seconds": 3601}},
        "server.timeout_seconds is 3601; expected a value less than or equal to 3600",
    ),
    ({"server": {"act_timeout_seconds": True}}, "server.act_timeout_seconds is"),
    ({"inference": "there"}, "expected 'local' or 'remote'"),
    ({"max_traj_length": 0}, "max_traj_length is 0; expected a value greater than 0"),
    ({"max_traj_length": None}, "max_traj_length is"),
    ({"send_frequency": -3}, "send_frequency is -3; expected a value greater than 0"),
    ({"patience_seconds": -0.5}, "patience_seconds is -0.5; expected a value greater than or equal to 0"),
    ({"patience_seconds": "soon"}, "patience_seconds is"),
    ({"flush_seconds": None}, "flush_seconds is"),
    ({"outbox": {"memory_bytes": -1}}, "outbox.memory_bytes is -1; expected a value greater than or equal to 0"),
    ({"outbox": {"spool": 5}}, "outbox.spool is 5"),
    ({"observation": None}, "the size of observation is missing from the config."),
    ({"action": None}, "the size of action is missing from the config."),
    ({"observation": None, "action": None}, "the size of observation and of action are missing"),
    ({"observation": 0}, "observation is 0; expected a size such as 8"),
    ({"observation": True}, "observation is"),
    ({"observation": 8.0}, "observation is 8.0; expected a size such as 8"),
    ({"observation": []}, "observation is []; expected a size such as 8"),
    ({"observation": [4, -1]}, "; expected a size such as 8"),
    ({"observation": [1] * 9}, "a box has 9 axes; the maximum is 8"),
    ({"observation": {}}, "observation is an empty block; write a size for each name"),
    ({"observation": {"a": "x"}}, "observation.a is"),
    ({"observation": {"shape": [2], "kind": 1}}, "expected a block with shape and"),
    ({"observation": {"a": {"low": 1}}}, "observation.a is"),
    ({"observation": {"shape": 2, "low": [1, 2, 3]}}, "observation: low has 3 values"),
    ({"observation": {"shape": 2, "low": []}}, "observation: low has 0 values"),
    ({"observation": {"shape": 3, "low": [[1, 2], [3]]}}, "observation.low is"),
    ({"observation": {"shape": 2, "low": "x"}}, "observation.low is"),
    ({"observation": {"shape": 2, "high": -1e39}}, "observation: high of a box holds NaN or"),
    ({"observation": {"shape": 2, "dtype": "float64"}}, "observation.dtype is"),
    ({"observation": {"mask": 4}}, "the spec has no observation besides the mask"),
    ({"action": 0}, "action is 0; expected the number of discrete actions"),
    ({"action": True}, "action is"),
    ({"action": "4"}, "action is"),
    (
        {"action": []},
        "expected the number of discrete actions, a list of numbers (MultiDiscrete), or a block with size (Box)",
    ),
    (
        {"action": [3, 0]},
        "expected the number of discrete actions, a list of numbers (MultiDiscrete), or a block with size (Box)",
    ),
    ({"action": [3, 2.0]}, "expected the number of discrete actions, a list of numbers"),
    ({"action": [3, 2], "fallback_action": [2, 2]}, "expected one discrete action per dimension, from"),
    ({"action": [3, 2], "fallback_action": [2]}, "expected one discrete action per dimension, from"),
    ({"action": [3, 2], "fallback_action": 1}, "expected one discrete action per dimension, from"),
    ({"fallback_action": [1]}, "fallback_action is [1]"),
    ({"action": {"size": 2, "max": 3}}, "expected a block with size and"),
    ({"action": {"size": 0}}, "action.size is 0"),
    ({"action": {"size": 2, "low": {}}}, "action.low is {}"),
    ({"action": {"size": 2}, "mask": True}, "only discrete actions can be masked"),
    ({"fallback_action": 4}, "fallback_action is 4; expected a discrete action from 0 to 3"),
    ({"fallback_action": "left"}, "fallback_action is"),
    ({"fallback_action": 1.0}, "fallback_action is 1.0"),
    ({**NUMBERS, "fallback_action": [0.0]}, "fallback_action is [0.0]; expected an array of shape"),
    ({**NUMBERS, "fallback_action": [0, 3]}, "within the action's bounds"),
    ({**NUMBERS, "fallback_action": [0, "x"]}, "fallback_action is"),
    ({**FIRST, "max_traj_len": 5}, "max_traj_len is not a setting of a client; did you mean max_traj_length?"),
    ({**FIRST, "algorithm": {}}, "algorithm is not a setting of a client; did you mean algorithm_name?"),
    ({**FIRST, "type": "offpolicy"}, "but algorithm_name ppo is onpolicy; remove type, or choose another algorithm"),
    ({**FIRST, "algorithm_parameters": 5}, "algorithm_parameters is 5; expected a block of settings"),
    *(
        ({**FIRST, "algorithm_name": name, "algorithm_parameters": {"act_dim": 2, "input_size": 3, **parameters}}, why)
        for name, parameters, why in (
            ("ppo", {"train_pi_iters": 3.5, "train_v_iters": 2}, "train_pi_iters is 3.5; expected an integer"),
            ("ppo", {"train_pi_iters": 3, "train_v_iters": None}, "; expected an integer"),
            ("dqn", {"epsilon_decay": 0}, "algorithm_parameters.epsilon_decay is 0; expected a number above 0"),
            ("dqn", {"epsilon_decay": -0.5}, "epsilon_decay is -0.5; expected a number above 0"),
            ("dqn", {"epsilon_decay": True}, "; expected a number"),
            ("dqn", {"epsilon_decay": 0.1, "epsilon": [1]}, "algorithm_parameters.epsilon is [1]; expected a"),
            ("sac", {"polyak": None}, "; expected a number"),
        )
    ),
    ({"algorithm": "PPO", "comunication": {}}, "comunication is not a setting of a client; did you mean communica"),
    ({"algorithm": "PPO", "training": 3}, "training is 3; expected a block"),
    ({"algorithm": "PPO", "communication": {"adress": 3}}, "server.adress is not a setting; did you mean address?"),
    ({"algorithm": "PPO", "communication": {"timeout": -3}}, "server.timeout_seconds is -3"),
    ({"extends": "other.json"}, "extends is"),
    ({"extends": ["nowhere.json"]}, "nowhere.json"),
    ({"extends": ["cache-1.json"]}, "cache-1.json extends itself"),
    ('{"client_id": "a", "server": {"token": "a", "token": "b"}}', "is given twice"),
    ('{"client_id": "a",', "cache-1.json is not valid"),
    ("[1, 2]", "cache-1.json contains"),
    ("", "cache-1.json is empty"),
    ('{"seed":' + "[" * 2000 + "]" * 2000 + "}", "is nested too deeply for a config"),
]


@pytest.mark.filterwarnings("ignore:overflow encountered")
@pytest.mark.parametrize(("settings", "message"), ERRORS)
def test_cpp_and_python_clients_report_config_errors_identically(
    show_config: ShowConfig, tmp_path: Path, settings: Any, message: str
) -> None:
    old = isinstance(settings, dict) and "algorithm_name" in settings
    path = write_files(tmp_path, settings if isinstance(settings, str) or old else {**SIZES, **settings})
    with pytest.raises((ConfigError, SpecError)) as problem:
        read_by_python(path, None)
    shown = show_config(path)
    assert shown.returncode == 2
    assert message in str(problem.value)
    assert message in shown.stderr
    assert re.findall("did you mean.*", shown.stderr) == re.findall("did you mean.*", str(problem.value))


def test_cpp_and_python_clients_report_all_errors_in_the_same_order(show_config: ShowConfig, tmp_path: Path) -> None:
    mistakes = {"flush_seconds": "x", "server": {"tls": {"caa": 1}, "adress": 1, "token": 2}, "seed": -1, "wrong": 0}
    path = write_files(tmp_path, SIZES | mistakes)
    with pytest.raises(ConfigError) as problem:
        read_by_python(path, None)
    named = re.findall(r"^([\w.]+) is ", str(problem.value), re.MULTILINE)
    assert re.findall(r"^([\w.]+) is ", show_config(path).stderr, re.MULTILINE) == named
    assert named == ["seed", "server.token", "server.tls.caa", "server.adress", "flush_seconds", "wrong"]
    known = "Known in server: act_timeout_seconds, address, timeout_seconds, tls, token, token_file."
    assert known in show_config(path).stderr
    assert known in str(problem.value)


def test_cpp_and_python_clients_report_a_missing_file_identically(show_config: ShowConfig, tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere.json", tmp_path):
        with pytest.raises(ConfigError, match="no config file"):
            load_client_config(path)
        assert f"no config file '{path}'" in show_config(path).stderr


def test_cpp_client_rejects_yaml_and_prints_a_conversion_command(show_config: ShowConfig, tmp_path: Path) -> None:
    path = tmp_path / "cache-1.yaml"
    path.write_text("observation: 8\naction: 4\nalgorithm: {name: ppo, lr: 3e-4}\n")
    shown = show_config(path)
    assert shown.returncode == 2
    assert "the C++ client reads JSON" in shown.stderr
    command = shown.stderr.split("convert it: ")[1].strip()
    subprocess.run(f"PATH={ROOT / '.venv' / 'bin'}:$PATH; {command}", shell=True, cwd=tmp_path, check=True)
    assert read_by_cpp(show_config(tmp_path / "cache-1.json")) == read_by_python(path, None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"seed": 18446744073709551616}', "seed is 18446744073709551616; the number is too large"),
        ('{"buffer": {"size": [1, 99999999999999999999]}}', "buffer.size is 99999999999999999999"),
        ('{"patience_seconds": 1e400}', "patience_seconds is 1e400; the number is too large"),
        ('{"patience_seconds": NaN}', "is not valid JSON: parse error at line 1, column 22"),
        ('{"seed": 1} x', "is not valid JSON"),
        ('{"client_id": "\udcff"}', "is not valid JSON"),
        ('{"client_id": "a\\n"}', "client_id is"),
        ('{"server": {"token": "a\\u0000b"}}', "server.token or its file contains"),
        ('{"outbox": {"spool": "a\\u0000b"}}', "outbox.spool is"),
        ('{"outbox": {"spool": "~nobody-of-this-name/x"}}', "outbox.spool is"),
        ('{"observation": [4294967296, 4294967296]}', "the maximum is 2**31 elements"),
        ('{"action": 4294967296}', "the maximum is 2**31"),
        ('{"fallback_action": true}', "fallback_action is true"),
    ],
)
def test_values_unsupported_by_cpp_client_are_rejected(
    show_config: ShowConfig, tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "client.json"
    path.write_bytes(text.encode(errors="surrogateescape"))
    shown = show_config(path, {name: size for name, size in SIZES.items() if f'"{name}"' not in text})
    assert shown.returncode == 2
    assert message in shown.stderr
