"""Notes at the start of a run with networks of the user: the backend of training and actions, and the remedy."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from rl4sys.networks.base import Blueprint, NetworkConfig, Tensors
from rl4sys.networks.layers import LayersConfig
from rl4sys.policy.draws import NATIVE
from rl4sys.policy.snapshot import input_size
from rl4sys.registry import NETWORKS
from rl4sys.training.loop import TrainingLoop

from ..conftest import SilentObserver

pytestmark = pytest.mark.skipif(not NATIVE, reason="the native core is not installed")

MakeLoop = Callable[..., TrainingLoop]


def sequential(activation: type[nn.Module]) -> Callable[[NetworkConfig, Blueprint], nn.Module]:
    def make(config: NetworkConfig, blueprint: Blueprint) -> nn.Module:
        size = input_size(blueprint.spec)
        return nn.Sequential(nn.Linear(size, 8), activation(), nn.Linear(8, blueprint.outputs))

    make.Config = LayersConfig  # type: ignore[attr-defined]
    return make


class Waves(nn.Module):
    Config = LayersConfig

    def __init__(self, config: NetworkConfig, blueprint: Blueprint) -> None:
        super().__init__()
        self.layer = nn.Linear(input_size(blueprint.spec), blueprint.outputs)

    def forward(self, observation: Tensors) -> Tensor:
        outputs: Tensor = self.layer(torch.sin(observation["state"]))
        return outputs


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    own = {"native": sequential(nn.Tanh), "gelu": sequential(nn.GELU), "softplus": sequential(nn.Softplus)}
    monkeypatch.setattr(NETWORKS, "_own", {**own, "waves": Waves})


def notes_of(make_loop: MakeLoop, *changes: str) -> tuple[list[str], bool]:
    """Train, and return all notes and True if the newest checkpoint contains policy.safetensors."""
    observer = SilentObserver()
    loop = make_loop("ppo", *changes, observer=observer)
    loop.train()
    assert loop.progress().version > 1
    return observer.notes, any(loop._run.path.rglob("policy.safetensors"))


def test_shipped_networks_have_no_notes(make_loop: MakeLoop) -> None:
    assert notes_of(make_loop) == ([], True)


def test_own_networks_in_the_native_core_are_noted_once(make_loop: MakeLoop) -> None:
    notes, has_policy = notes_of(make_loop, "network.actor.type=native")
    assert notes == ["own networks: training uses the native core, actions use the native core"]
    assert has_policy


@pytest.mark.parametrize(
    "changes", [["network.critic.type=gelu"], ["network.actor.type=native", "experiment.backend=torch"]]
)
def test_note_gives_the_layers_that_the_core_trains(make_loop: MakeLoop, changes: list[str]) -> None:
    notes, has_policy = notes_of(make_loop, *changes)
    assert notes == [
        "own networks: training uses torch, actions use the native core. The core trains an nn.Sequential of Linear "
        "layers, each followed by an optional LayerNorm and the same activation (tanh, relu, elu), on the CPU, if the "
        "algorithm and experiment.backend allow this"
    ]
    assert has_policy


@pytest.mark.parametrize(
    ("network", "reason"),
    [("waves", "Waves has its own forward code"), ("softplus", "module 1 of the network, Softplus(")],
)
def test_network_for_torch_only_is_noted_once(make_loop: MakeLoop, network: str, reason: str) -> None:
    notes, has_policy = notes_of(make_loop, f"network.actor.type={network}")
    assert len(notes) == 2
    assert notes[0].startswith(f"actions are computed by torch, not by the native core: {reason}")
    assert notes[1] == (
        "training uses torch; a policy in the native core decides several times faster. No policy.safetensors is "
        "written, so clients, load_policy and ONNX export are not available"
    )
    assert not has_policy
