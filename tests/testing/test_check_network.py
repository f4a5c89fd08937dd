"""Each rule of networks is followed by the network of docs/networks.md, and catches a network that breaks it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rl4sys.errors import ConfigError, ContractError
from rl4sys.networks.base import Blueprint, NetworkConfig, Tensors, flatten
from rl4sys.networks.body_writer import Body
from rl4sys.networks.mlp import MLP, MLPConfig
from rl4sys.networks.recurrent import GRU
from rl4sys.spec import Box, Discrete, Spec, mask_box
from rl4sys.testing import check_network, networks
from rl4sys.testing.configs import config_class_is_frozen_and_typed, config_is_restored_from_its_settings
from rl4sys.testing.rules import Rule

RULES = {
    config_class_is_frozen_and_typed,
    config_is_restored_from_its_settings,
    networks.outputs_have_the_shape_of_the_blueprint,
    networks.seed_determines_the_initial_weights,
    networks.rows_are_independent,
    networks.observations_are_not_changed,
    networks.all_parameters_receive_gradients,
    networks.state_determines_the_outputs,
    networks.size_is_known_without_weights,
    networks.exported_network_computes_the_same,
}
RECURRENT_RULES = RULES | {networks.sequence_equals_single_steps}


class Good(nn.Module):
    """Network of a user, without an export."""

    Config = NetworkConfig

    def __init__(self, config: NetworkConfig, blueprint: Blueprint) -> None:
        super().__init__()
        self.spec = blueprint.spec
        self.body = nn.Linear(5, 8)
        self.out = nn.Linear(8, blueprint.outputs)

    def forward(self, observation: Tensors) -> Tensor:
        outputs: Tensor = self.out(torch.sin(self.body(self.row(observation))))
        return outputs

    def row(self, observation: Tensors) -> Tensor:
        return flatten(observation, self.spec)


def sequential(config: NetworkConfig, blueprint: Blueprint) -> nn.Module:
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, blueprint.outputs))


sequential.Config = NetworkConfig  # type: ignore[attr-defined]


def test_network_function_follows_all_rules() -> None:
    report = check_network(sequential)
    assert set(report.rules) == {rule.statement for rule in RULES}
    assert report.remarks == ()


def test_network_without_export_follows_all_rules_with_a_remark() -> None:
    report = check_network(Good)
    assert set(report.rules) == {rule.statement for rule in RULES}
    (remark,) = report.remarks
    assert "Good has its own forward code and no export(prefix) method" in remark


def test_sequence_of_a_recurrent_network_is_checked() -> None:
    report = check_network(GRU, {"hidden_size": 4, "hidden_dims": []})
    assert set(report.rules) == {rule.statement for rule in RECURRENT_RULES}


def test_spec_selects_observations_and_outputs() -> None:
    actions = Discrete(4)
    spec = Spec({"image": Box((3, 4), "uint8"), "flag": Box((2,), "bool"), "mask": mask_box(actions)}, actions)
    assert check_network(MLP, {"hidden_dims": [8]}, spec=spec).remarks == ()
    with pytest.raises(ContractError, match="mat1 and mat2 shapes cannot be multiplied"):
        check_network(sequential, spec=spec)


class ConfigWithWrongDefault(NetworkConfig):
    width: int = "wide"  # type: ignore[assignment]


class OtherConfig(Good):
    Config = int  # type: ignore[assignment]


class WrongDefault(Good):
    Config = ConfigWithWrongDefault


class OneOutput(Good):
    def forward(self, observation: Tensors) -> Tensor:
        return super().forward(observation)[:, :1]


class Doubles(Good):
    def forward(self, observation: Tensors) -> Tensor:
        return super().forward(observation).double()


class LogarithmOfNegatives(Good):
    def forward(self, observation: Tensors) -> Tensor:
        return super().forward(observation) + torch.log(self.row(observation)[:, :1])


class Constant(Good):
    def forward(self, observation: Tensors) -> Tensor:
        return super().forward(observation) * 0


class NumpyWeights(Good):
    def __init__(self, config: NetworkConfig, blueprint: Blueprint) -> None:
        super().__init__(config, blueprint)
        weight = np.random.normal(size=(8, 5)).astype(np.float32)  # noqa: NPY002
        self.body.weight = nn.Parameter(torch.from_numpy(weight))


class FixedWeights(Good):
    def __init__(self, config: NetworkConfig, blueprint: Blueprint) -> None:
        super().__init__(config, blueprint)
        for parameter in self.parameters():
            nn.init.constant_(parameter, 0.1)


class BatchNorm(Good):
    def __init__(self, config: NetworkConfig, blueprint: Blueprint) -> None:
        super().__init__(config, blueprint)
        self.norm = nn.BatchNorm1d(5, track_running_stats=False)

    def row(self, observation: Tensors) -> Tensor:
        row = super().row(observation)
        outputs: Tensor = self.norm(row) if len(row) > 1 else row
        return outputs


class Dropout(Good):
    def forward(self, observation: Tensors) -> Tensor:
        return nn.functional.dropout(super().forward(observation), p=0.5)


class InPlace(Good):
    def row(self, observation: Tensors) -> Tensor:
        observation["state"].mul_(0.5)
        return super().row(observation)


class UnusedLayer(Good):
    def __init__(self, config: NetworkConfig, blueprint: Blueprint) -> None:
        super().__init__(config, blueprint)
        self.value = nn.Linear(8, 1)


class PlainTensor(Good):
    def __init__(self, config: NetworkConfig, blueprint: Blueprint) -> None:
        super().__init__(config, blueprint)
        self.shift = torch.randn(5)

    def row(self, observation: Tensors) -> Tensor:
        return super().row(observation) + self.shift


class ReadsWeights(Good):
    def __init__(self, config: NetworkConfig, blueprint: Blueprint) -> None:
        super().__init__(config, blueprint)
        if float(self.body.weight.detach().sum()) > 1e9:
            raise ValueError


class ExportsAnother(MLP):
    def export(self, prefix: str) -> Body:
        body = super().export(prefix)
        return Body(body.operations, {name: 2 * weight for name, weight in body.weights.items()})


class ForgetsMemory(GRU):
    def step(self, observation: Tensors, memory: Tensor) -> tuple[Tensor, Tensor]:
        return super().step(observation, torch.zeros_like(memory))


class SmallMLP(MLPConfig):
    type: str = "mlp"


BROKEN: dict[str, tuple[Callable[[], Any], Rule[Any], str]] = {
    "other config": (lambda: OtherConfig, config_class_is_frozen_and_typed, "derived from NetworkConfig"),
    "no config": (lambda: lambda config, blueprint: None, config_class_is_frozen_and_typed, "Config is None"),
    "wrong default": (lambda: WrongDefault, config_is_restored_from_its_settings, "width"),
    "one output": (lambda: OneOutput, networks.outputs_have_the_shape_of_the_blueprint, r"\(1, 1\).*\(1, 3\)"),
    "doubles": (lambda: Doubles, networks.outputs_have_the_shape_of_the_blueprint, "float64"),
    "not finite": (lambda: LogarithmOfNegatives, networks.outputs_have_the_shape_of_the_blueprint, "NaN or infinite"),
    "constant": (lambda: Constant, networks.outputs_have_the_shape_of_the_blueprint, "do not depend on the obs"),
    "numpy": (lambda: NumpyWeights, networks.seed_determines_the_initial_weights, "body.weight differ between"),
    "fixed": (lambda: FixedWeights, networks.seed_determines_the_initial_weights, "the same for different seeds"),
    "batch norm": (lambda: BatchNorm, networks.rows_are_independent, "by up to"),
    "dropout": (lambda: Dropout, networks.rows_are_independent, "by up to"),
    "in place": (lambda: InPlace, networks.observations_are_not_changed, "state"),
    "unused layer": (lambda: UnusedLayer, networks.all_parameters_receive_gradients, "value.weight has no gradient"),
    "plain tensor": (lambda: PlainTensor, networks.state_determines_the_outputs, "different outputs|other outputs"),
    "reads weights": (lambda: ReadsWeights, networks.size_is_known_without_weights, "cannot be computed"),
    "other export": (lambda: ExportsAnother, networks.exported_network_computes_the_same, "the exported policy"),
    "no memory": (lambda: ForgetsMemory, networks.sequence_equals_single_steps, "step"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_network_is_caught_by_its_rule(case: str) -> None:
    make, rule, observed = BROKEN[case]
    with pytest.raises(ContractError) as caught:
        check_network(make())
    broken, _, rest = str(caught.value).partition("\n  observed: ")
    assert f"breaks a rule: {rule.statement}" in broken
    found, _, remedy = rest.partition("\n  remedy: ")
    assert re.search(observed, found), found
    assert remedy


def test_every_rule_catches_a_broken_network() -> None:
    assert {rule.statement for _, rule, _ in BROKEN.values()} == {rule.statement for rule in RECURRENT_RULES}


def test_invalid_setting_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match=r"network\.width is not a setting"):
        check_network(Good, {"width": 20})
