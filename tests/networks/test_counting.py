"""Parameter counts of networks, computed without building them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from rl4sys.errors import ConfigError
from rl4sys.networks.base import Blueprint, NetworkConfig, build_network, count_parameters
from rl4sys.networks.mlp import MLPConfig
from rl4sys.registry import NETWORKS
from rl4sys.spec import Box, Discrete, Spec

SPEC = Spec({"state": Box((3, 2)), "extra": Box((5,)), "mask": Box((4,), "bool")}, Discrete(4))


@pytest.mark.parametrize("initialization", ["orthogonal", "uniform"])
@pytest.mark.parametrize("hidden_dims", [[], [7], [16, 8, 4]])
def test_parameter_count_matches_the_built_network(initialization: str, hidden_dims: list[int]) -> None:
    config = MLPConfig.model_validate({"hidden_dims": hidden_dims, "initialization": initialization})
    built = build_network(config, Blueprint(SPEC, 4), seed=1)
    assert count_parameters(config, Blueprint(SPEC, 4)) == sum(p.numel() for p in built.parameters())


class _PluginNetwork(nn.Module):
    Config = NetworkConfig

    def __init__(self, config: NetworkConfig, blueprint: Blueprint) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(2, 3, 3)
        self.scale = nn.Parameter(torch.ones(5))
        nn.init.xavier_normal_(self.convolution.weight)
        with torch.no_grad():
            self.scale[0].fill_(torch.rand(()) + 1)
        self.register_buffer("constant", torch.zeros(1000))


class _WeightReadingNetwork(_PluginNetwork):
    def __init__(self, config: NetworkConfig, blueprint: Blueprint) -> None:
        super().__init__(config, blueprint)
        self.first = float(self.scale.sum())


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NETWORKS, "_own", {"own": _PluginNetwork, "reading": _WeightReadingNetwork})


@pytest.mark.usefixtures("own")
def test_parameters_of_a_plugin_network_are_counted() -> None:
    generator = torch.get_rng_state()
    assert count_parameters(NetworkConfig(type="own"), Blueprint(SPEC, 4)) == 2 * 3 * 3 + 3 + 5
    assert torch.equal(torch.get_rng_state(), generator), "the global generator should keep its state"
    assert torch.zeros(1).device.type == "cpu"


@pytest.mark.usefixtures("own")
def test_network_that_reads_its_weights_in_init_is_rejected() -> None:
    with pytest.raises(
        ConfigError, match=r"the size of the reading network cannot be computed: .*do not read weights in __init__"
    ):
        count_parameters(NetworkConfig(type="reading"), Blueprint(SPEC, 4))


@pytest.mark.parametrize("inputs", [10**15, 2**62])
def test_network_with_overflowing_size_is_rejected(inputs: int) -> None:
    spec = Spec({"state": Box((inputs,))}, Discrete(2))
    with pytest.raises(
        ConfigError, match=r"the size of the mlp network cannot be computed: .*; make the network smaller"
    ):
        count_parameters(MLPConfig(hidden_dims=[16384]), Blueprint(spec, 2))
