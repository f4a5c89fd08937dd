"""Contract of all networks. `rl4sys.testing` defines the rules."""

from __future__ import annotations

import pytest

from rl4sys.errors import ContractError
from rl4sys.networks.base import NetworkConfig
from rl4sys.registry import NETWORKS
from rl4sys.testing.configs import config_class_is_frozen_and_typed, config_is_restored_from_its_settings
from rl4sys.testing.networks import (
    NetworkCase,
    all_parameters_receive_gradients,
    check_built_network,
    exported_network_computes_the_same,
)
from rl4sys.testing.rules import Check

from ..networks.test_forms_agree import CASES, config_of

RECURRENT = ("gru", "lstm")


def network_case(case: str) -> NetworkCase:
    spec, settings = CASES[case]
    return NetworkCase(spec, config_of(settings))


@pytest.mark.parametrize("case", CASES)
def test_network_follows_all_rules(case: str) -> None:
    check = Check(case)
    check_built_network(check, network_case(case))
    assert len(check.report().rules) == (9 if case.startswith(RECURRENT) else 8)
    assert check.report().remarks == (), "all shipped networks should be exported"


@pytest.mark.parametrize("name", NETWORKS.names())
def test_config_is_frozen_and_typed(name: str) -> None:
    config_class_is_frozen_and_typed(NETWORKS.get(name).Config, NetworkConfig)
    config_is_restored_from_its_settings(NETWORKS.get(name).Config(type=name))


def test_rules_are_checked_with_perturbed_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    case = network_case("mlp")
    assert (case.build().state_dict()["hidden.layers.0.bias"] != 0).all(), "initial biases are 0"
    all_parameters_receive_gradients(case)
    monkeypatch.setattr("rl4sys.networks.mlp.MLP.export", lambda network, prefix: 1 / 0)
    with pytest.raises(ContractError, match="ZeroDivisionError"):
        exported_network_computes_the_same(case)
