"""Which algorithm takes which actions: as each says of itself, in the docs, in errors, and when it is tried."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from rl4sys.algorithms.actions import Actions, check_actions, kind_of, takes
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


@pytest.mark.parametrize("kind", Actions)
@pytest.mark.parametrize("name", ALGORITHMS.names())
def test_an_algorithm_takes_what_it_says_and_nothing_else(script: ModuleType, name: str, kind: Actions) -> None:
    for spec in script.specs(kind):
        assert kind_of(spec.action) == kind
        assert script.works(name, spec, "mlp") == (kind in takes(name))


@pytest.mark.parametrize(
    ("name", "space", "message"),
    [
        (
            "dqn",
            MultiDiscrete((3, 2)),
            "dqn takes actions that are choices, and these are several choices at once; "
            "use a2c, bc, iql, ppo, reinforce or trpo",
        ),
        (
            "sac",
            Box((2,), low=(-1.0,), high=(1.0, np.inf)),
            "sac takes actions that are choices or numbers within bounds, and these are numbers without bounds; "
            "give the action space finite low and high, or use a2c, bc, ppo, reinforce, rpo or trpo",
        ),
        (
            "rpo",
            Discrete(3),
            "rpo takes actions that are numbers within bounds or numbers without bounds, and these are choices; "
            "use a2c, bc, c51, dqn, iql, ppo, qr_dqn, rainbow, reinforce, sac or trpo",
        ),
    ],
)
def test_what_it_does_not_take_is_refused_with_the_names_of_those_that_do(name: str, space: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        check_actions(name, space)


def test_one_of_the_users_own_that_does_not_say_is_tried_with_any(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ALGORITHMS, "_own", {"own": object})
    check_actions("own", MultiDiscrete((2, 2)))
    with pytest.raises(ConfigError) as refusal:
        check_actions("dqn", MultiDiscrete((2, 2)))
    assert "own" not in str(refusal.value), "nobody knows whether it would do"
