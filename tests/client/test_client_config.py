"""Client config files in the current and both older formats."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from rl4sys.algorithms.schedule import Schedule
from rl4sys.client.agent import _draws_key
from rl4sys.client.config import ClientConfig, load_client_config
from rl4sys.client.spaces import Sizes, make_spaces
from rl4sys.errors import ConfigError
from rl4sys.learner.config import parse_algorithm
from rl4sys.spec import Box, Discrete, Spec

DATA = Path(__file__).parents[1] / "data"


def test_first_documented_client_config_loads() -> None:
    config = load_client_config(DATA / "promised_001.json")
    assert config.client_id == config.policy_id == "luna-landing"
    assert (config.observation, config.action, config.mask) == (8, 4, False)
    assert config.server.address == "localhost:50051"
    assert (config.max_traj_length, config.send_frequency, config.seed) == (1000, 10, 0)
    assert config.learner_settings() == {
        "seed": 0,
        "algorithm": {
            "name": "ppo",
            "minibatch_size": 512,
            "clip_ratio": 0.2,
            "gamma": 0.99,
            "gae_lambda": 0.95,
            "lr": 3e-4,
            "critic_lr": 1e-3,
            "gradient_steps": 80,
            "target_kl": None,
        },
        "buffer": {"episodes": 256, "size": 256_000},
    }


def test_second_documented_client_config_loads() -> None:
    config = load_client_config(DATA / "promised_003.json")
    assert config.client_id == config.policy_id == "promised_003"
    assert (config.observation, config.action) == (None, None)
    assert (config.server.address, config.server.timeout_seconds) == ("localhost:50051", 10.0)
    assert config.learner_settings() == {
        "algorithm": {
            "name": "ppo",
            "lr": 3e-4,
            "gamma": 0.99,
            "gae_lambda": 0.95,
            "clip_ratio": 0.2,
            "target_kl": 0.01,
            "entropy_coef": 0.01,
            "minibatch_size": 64,
            "epochs": 10,
        },
        "network": {"all": {"hidden_dims": [64, 64], "activation": "tanh"}},
    }


def test_dqn_config_of_first_format_is_migrated() -> None:
    old = {
        "algorithm_name": "DQN",
        "algorithm_parameters": {
            "batch_size": 64,
            "q_lr": 1e-3,
            "epsilon": 0.9,
            "epsilon_min": 0.1,
            "target_update_freq": 500,
            "traj_per_epoch": 3,
            "act_dim": 2,
            "input_size": 4,
            "something": 1,
        },
        "type": "off-policy",
    }
    config = load_client_config(old)
    assert config.algorithm == {
        "name": "dqn",
        "batch_size": 64,
        "lr": 1e-3,
        "exploration": {"start": 0.9, "end": 0.1},
        "target_update_interval": 500,
        "something": 1,
    }
    assert (config.buffer, config.action, config.observation) == ({}, 2, 4)


def migrated(name: str, **parameters: Any) -> dict[str, Any]:
    config = load_client_config({"algorithm_name": name, "algorithm_parameters": parameters})
    assert config.algorithm["name"] == name.lower()
    return {key: value for key, value in config.algorithm.items() if key != "name"}


def test_gradient_steps_of_actor_and_critic_are_migrated_separately() -> None:
    assert migrated("PPO", train_pi_iters=20, train_v_iters=80) == {"gradient_steps": 20, "critic_gradient_steps": 80}
    assert migrated("PPO", train_pi_iters=80, train_v_iters=80) == {"gradient_steps": 80}
    assert migrated("PPO", train_pi_iters=20) == {"gradient_steps": 20}
    assert migrated("PPO", train_v_iters=80) == {"critic_gradient_steps": 80}


def test_epsilon_decay_is_converted_to_a_number_of_steps() -> None:
    parameters = {"epsilon": 1.0, "epsilon_min": 0.01, "epsilon_decay": 5e-4}
    exploration = migrated("DQN", **parameters)["exploration"]
    assert exploration == {"start": 1.0, "end": 0.01, "steps": 1980}
    schedule, epsilon = Schedule.model_validate(exploration), 1.0
    for decisions in range(2500):
        assert schedule.at(decisions, None) == pytest.approx(max(epsilon, 0.01))
        epsilon -= 5e-4


@pytest.mark.parametrize("name", ["SAC", "TD3", "DDPG"])
def test_learning_rates_and_polyak_of_off_policy_algorithms_are_migrated(name: str) -> None:
    migrated_settings = migrated(name, pi_lr=1e-4, q_lr=1e-3, polyak=0.995, train_iters=4, batch_size=32)
    assert migrated_settings.pop("tau") == pytest.approx(0.005)
    assert migrated_settings == {"actor_lr": 1e-4, "lr": 1e-3, "gradient_steps": 4, "batch_size": 32}
    parse_algorithm({"name": name.lower(), **migrated_settings})


def test_sac_alpha_is_migrated_to_fixed_or_initial_temperature() -> None:
    assert migrated("SAC", alpha=0.2) == migrated("SAC", alpha=0.2, adaptive_alpha=False) == {"temperature": 0.2}
    assert migrated("SAC", alpha=0.2, adaptive_alpha=True) == {"initial_temperature": 0.2}


def test_act_limit_applies_to_continuous_actions_only() -> None:
    old: dict[str, Any] = {"algorithm_name": "PPO", "algorithm_parameters": {"act_dim": 2}, "act_limit": 0.5}
    assert load_client_config(old).action == 2
    old["algorithm_parameters"]["discrete"] = False
    assert load_client_config(old).action == {"size": 2, "low": -0.5, "high": 0.5}


@pytest.mark.parametrize(("name", "kind"), [("PPO", "offpolicy"), ("dqn", "onpolicy")])
def test_type_that_contradicts_algorithm_name_is_rejected(name: str, kind: str) -> None:
    with pytest.raises(ConfigError, match=rf"type is '{kind}', but algorithm_name {name.lower()} is"):
        load_client_config({"algorithm_name": name, "type": kind})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"algorithm_name": "PPO", "max_traj_len": 5}, "max_traj_len is not a setting of a client; did you mean max_t"),
        ({"algorithm": "PPO", "comunication": {}}, "comunication is not a setting of a client; did you mean communi"),
        ({"algorithm": "PPO", "training": 3}, "training is 3; expected a block"),
        ({"patience": 3}, "patience is not a setting"),
        ({"server": {"adress": "x"}}, "server.adress is not a setting; did you mean address?"),
        ({"client_id": "a/b"}, "client_id is 'a/b'; expected text that matches ^"),
        ({"max_traj_length": 0}, "max_traj_length is 0; expected a value greater than 0"),
        ({"inference": "there"}, "inference is 'there'; expected 'local' or 'remote'"),
        ({"version": 7}, "the config has version 7"),
    ],
)
def test_invalid_setting_is_reported(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as problem:
        load_client_config({"client_id": "x", **settings})
    assert message in str(problem.value)


def test_missing_config_file_is_reported() -> None:
    with pytest.raises(ConfigError, match=r"no config file 'nowhere\.json'"):
        load_client_config("nowhere.json")


@pytest.mark.parametrize("write", [json.dumps, yaml.safe_dump])
def test_json_and_yaml_are_equivalent(tmp_path: Path, write: Any) -> None:
    path = tmp_path / "cache-1.conf"
    path.write_text(write({"observation": 8, "action": 4, "server": {"token_file": "secret", "tls": {"ca": "ca.pem"}}}))
    config = load_client_config(path)
    assert config.client_id == "cache-1"
    assert config.server.token_file == tmp_path / "secret"
    assert config.server.tls is not None
    assert config.server.tls.ca == tmp_path / "ca.pem"
    assert config.server.tls.key is None


def test_overrides_replace_single_settings() -> None:
    content = {"client_id": "a", "server": {"address": "here:1", "token": "t"}, "algorithm": {"name": "ppo", "lr": 1}}
    config = load_client_config(content, {"server.address": "there:2", "algorithm.lr": 2, "policy_id": "shared"})
    assert (config.server.address, config.server.token) == ("there:2", "t")
    assert (config.algorithm, config.policy_id) == ({"name": "ppo", "lr": 2}, "shared")
    assert content["server"] == {"address": "here:1", "token": "t"}
    assert load_client_config(content, {"server": {"token": "u"}}).server.address == "here:1"


def test_every_client_setting_is_documented() -> None:
    assert all(field.description for field in ClientConfig.model_fields.values())


def spec_of(**sizes: Any) -> Spec:
    return make_spaces(Sizes(**sizes)).spec


def test_all_forms_of_observation_and_action_are_accepted() -> None:
    assert spec_of(observation=8, action=4) == Spec({"state": Box((8,))}, Discrete(4))
    assert spec_of(observation=[4, 4, 2], action=4).observation == {"state": Box((4, 4, 2))}
    image = {"shape": [4, 4], "dtype": "uint8", "low": 0, "high": 255}
    assert spec_of(observation=image, action=4).observation == {"state": Box((4, 4), "uint8", (0.0,), (255.0,))}
    named = spec_of(observation={"b": [2, 2], "a": 3, "c": image}, action={"size": 2, "low": [-1, -2], "high": 1.0})
    assert named.observation == {"a": Box((3,)), "b": Box((2, 2)), "c": Box((4, 4), "uint8", (0.0,), (255.0,))}
    assert named.action == Box((2,), "float32", (-1.0, -2.0), (1.0,))
    assert spec_of(observation=8, action=4, mask=True).observation["mask"] == Box((4,), "bool", (0.0,), (1.0,))


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"action": 4}, "the size of observation is missing from the config. Give RL4SysAgent(conf_path, obser"),
        ({"observation": 8}, "action_space=...), with spaces of Gymnasium or rl4sys.spec, or write `action: 4`"),
        ({}, "the size of observation and of action are missing"),
        ({"observation": 0, "action": 4}, "observation is 0; expected a size such as 8"),
        ({"observation": "x", "action": 4}, "observation is 'x'"),
        ({"observation": {"shape": [2], "kind": 1}, "action": 4}, "expected a block with shape and"),
        ({"observation": {"shape": 2, "low": [1, 2, 3]}, "action": 4}, "observation: low has 3 values"),
        ({"observation": {"shape": 2, "low": "x"}, "action": 4}, "observation.low is 'x'"),
        ({"observation": {"shape": 2, "dtype": "float64"}, "action": 4}, "observation.dtype is 'float64'"),
        ({"observation": {}, "action": 4}, "observation is an empty block"),
        ({"observation": 8, "action": 0}, "action is 0; expected the number of discrete actions"),
        ({"observation": 8, "action": {"size": 2, "max": 3}}, "expected a block with size and"),
        ({"observation": 8, "action": {"size": 2}, "mask": True}, "only discrete actions can be masked"),
    ],
)
def test_invalid_observation_or_action_is_reported(sizes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as problem:
        spec_of(**sizes)
    assert message in str(problem.value)


def test_draws_differ_between_clients_unless_seeded() -> None:
    """With equal random draws, all clients of a policy would explore identically."""
    assert _draws_key(None) != _draws_key(None)
    assert _draws_key(3) == _draws_key(3) != _draws_key(4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_traj_length": None, "algorithm_parameters": {"traj_per_epoch": 3}}, "max_traj_length is None"),
        ({"algorithm_parameters": {"train_pi_iters": None, "train_v_iters": 3}}, "train_pi_iters is None"),
        ({"server": 5, "train_server_address": "localhost:1"}, "server is 5; expected a block"),
        ({"observaton": 3}, "observaton is not a setting of a client; did you mean observation"),
    ],
)
def test_invalid_setting_of_first_format_is_reported(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_client_config({"algorithm_name": "PPO", **settings})


def test_shape_with_too_many_axes_is_rejected() -> None:
    with pytest.raises(ConfigError, match="observation: a box has 9 axes"):
        make_spaces(Sizes([1] * 9, 2))


def test_error_for_unknown_setting_lists_known_settings() -> None:
    with pytest.raises(ConfigError, match="Known in the config: "):
        load_client_config({"observaton": 3})


@pytest.mark.parametrize("address", ["localhost:65536", "localhost:117980", "[::1]:99999999999999999999"])
def test_invalid_port_is_rejected(address: str) -> None:
    with pytest.raises(ConfigError, match="expected a port of at most 65535"):
        load_client_config({"client_id": "c"}, {"server.address": address})
    load_client_config({"client_id": "c"}, {"server.address": "unix:/run/rl4sys"})
