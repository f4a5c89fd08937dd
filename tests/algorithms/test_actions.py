"""Action spaces that each algorithm supports: declaration, actual behavior and error messages."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from rl4sys.algorithms.actions import ActionKind, action_kind, check_actions, supported_actions
from rl4sys.errors import ConfigError
from rl4sys.registry import ALGORITHMS
from rl4sys.spec import Box, Discrete, MultiDiscrete

SCRIPT = Path(__file__).parents[2] / "scripts" / "algorithm_table.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    location = importlib.util.spec_from_file_location("algorithm_table", SCRIPT)
    assert location is not None
    assert location.loader is not None
    module = importlib.util.module_from_spec(location)
    location.loader.exec_module(module)
    return module


@pytest.mark.parametrize("kind", ActionKind)
@pytest.mark.parametrize("name", ALGORITHMS.names())
def test_algorithm_supports_exactly_the_declared_actions(script: ModuleType, name: str, kind: ActionKind) -> None:
    for spec in script.specs(kind):
        assert action_kind(spec.action) == kind
        assert script.works(name, spec, "mlp") == (kind in supported_actions(name))


@pytest.mark.parametrize(
    ("name", "space", "message"),
    [
        (
            "dqn",
            MultiDiscrete((3, 2)),
            "dqn supports discrete actions, but the action space is MultiDiscrete; "
            "use a2c, bc, iql, ppo, reinforce or trpo",
        ),
        (
            "sac",
            Box((2,), low=(-1.0,), high=(1.0, np.inf)),
            "sac supports discrete or bounded continuous actions, but the action space is unbounded continuous; "
            "set finite low and high bounds for the action space, or use a2c, bc, ppo, reinforce, rpo or trpo",
        ),
        (
            "rpo",
            Discrete(3),
            "rpo supports bounded continuous or unbounded continuous actions, but the action space is discrete; "
            "use a2c, bc, c51, dqn, iql, ppo, qr_dqn, rainbow, reinforce, sac or trpo",
        ),
    ],
)
def test_error_for_unsupported_action_space_lists_alternatives(name: str, space: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        check_actions(name, space)


def test_plugin_without_declared_actions_accepts_any_action_space(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ALGORITHMS, "_own", {"own": object})
    check_actions("own", MultiDiscrete((2, 2)))
    with pytest.raises(ConfigError) as error:
        check_actions("dqn", MultiDiscrete((2, 2)))
    assert "own" not in str(error.value), "a plugin without declared actions is not recommended"
