"""Environments and wrappers in a config: classes and functions of modules, and registered names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rl4sys.components import register_environment, register_wrapper
from rl4sys.config import merged, override
from rl4sys.environments.config import EnvironmentConfig
from rl4sys.environments.envpool import EnvPoolActor
from rl4sys.environments.factory import make_environment
from rl4sys.errors import ConfigError
from rl4sys.registry import ENVIRONMENTS, WRAPPERS
from tests.api.thermostat import ScaledReward, Thermostat

SCALED = "tests.api.thermostat:ScaledReward"


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undo registrations after the test."""
    monkeypatch.setattr(ENVIRONMENTS, "_own", dict(ENVIRONMENTS._own))
    monkeypatch.setattr(WRAPPERS, "_own", dict(WRAPPERS._own))


def first_reward(config: dict[str, Any]) -> float:
    environment = make_environment(
        EnvironmentConfig.model_validate({"name": "tests.api.thermostat:Thermostat", **config})
    )
    environment.reset(seed=1)
    return float(environment.step(1)[1])


def test_wrappers_are_applied_in_order(own: None) -> None:
    register_wrapper("plus one")(type("PlusOne", (ScaledReward,), {"reward": lambda self, reward: reward + 1.0}))
    plain = first_reward({})
    assert first_reward({"wrappers": [SCALED]}) == pytest.approx(plain * 0.5)
    scaled = {"name": SCALED, "options": {"factor": 3.0}}
    assert first_reward({"wrappers": [scaled, "plus one"]}) == pytest.approx(plain * 3.0 + 1.0)
    assert first_reward({"wrappers": ["plus one", scaled]}) == pytest.approx((plain + 1.0) * 3.0)


@pytest.mark.parametrize(
    ("wrapper", "message"),
    [
        ("no_module:Wrapper", "the module 'no_module' cannot be found"),
        ("tests.api.thermostat:Nothing", "the module 'tests.api.thermostat' has no 'Nothing'"),
        ("scald", "no wrapper is named 'scald'"),
        ({"name": SCALED, "options": {"facter": 2}}, r"does not accept the options {'facter': 2}: .*facter"),
    ],
    ids=["no module", "no class", "not registered", "wrong option"],
)
def test_invalid_wrapper_is_rejected(wrapper: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        first_reward({"wrappers": [wrapper]})


def test_envpool_rejects_wrappers() -> None:
    config = EnvironmentConfig.model_validate({"name": "CartPole-v1", "vectorized": "envpool", "wrappers": [SCALED]})
    with pytest.raises(ConfigError, match=r"envpool, which does not support environment\.wrappers"):
        EnvPoolActor(config, np.random.SeedSequence(0))


def test_registered_function_receives_options(own: None) -> None:
    register_environment("by options")(lambda target=20.0: Thermostat(target))
    made = make_environment(EnvironmentConfig(name="by options", options={"target": 25.0}))
    assert made.unwrapped.target == 25.0


def test_registered_function_with_config_parameter_receives_the_environment_config(own: None) -> None:
    register_environment("by config")(lambda config: Thermostat(config.options["target"]))
    assert make_environment(EnvironmentConfig(name="by config", options={"target": 25.0})).unwrapped.target == 25.0


def test_passing_the_config_as_only_parameter_is_deprecated(own: None, caplog: pytest.LogCaptureFixture) -> None:
    register_environment("earlier form")(lambda settings: Thermostat(settings.options["target"]))
    made = make_environment(EnvironmentConfig(name="earlier form", options={"target": 25.0}))
    assert made.unwrapped.target == 25.0
    assert "its only parameter, settings, is not in environment.options" in caplog.text


def test_setting_wrapper_is_an_alias_of_family() -> None:
    assert EnvironmentConfig.model_validate({"name": "Pong", "wrapper": "atari"}).family == "atari"
    with pytest.raises(ConfigError, match="earlier name"):
        merged({}, {"environment": {"name": "Pong", "wrapper": "atari", "family": "gym"}})


@pytest.mark.parametrize(("first", "second"), [("wrapper", "family"), ("family", "wrapper")])
def test_overrides_of_family_and_its_alias_wrapper_are_equivalent(first: str, second: str) -> None:
    settings = override({"environment": {first: "goal"}}, [f"environment.{second}=atari"])
    assert settings == {"environment": {"family": "atari"}}
