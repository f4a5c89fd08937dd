"""Export of user-defined torch networks, and the errors for unsupported modules."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from rl4sys.errors import ExportError
from rl4sys.networks.base import Blueprint, NetworkConfig, Tensors, action_outputs, build_network, export
from rl4sys.networks.noisy import NoisyLinear
from rl4sys.networks.torch_policy import to_tensors
from rl4sys.registry import NETWORKS
from rl4sys.spec import Box, Discrete, Spec
from tests.networks.test_forms_agree import BOXES, Outputs, close, observations, perturbed, snapshot_of

FLAT = Spec({"state": Box((5,))}, Discrete(3))
IMAGE = Spec({"pixels": Box((2, 9, 8))}, Discrete(3))
TABLE = Spec({"rows": Box((4, 5))}, Discrete(3))

PLAIN: dict[str, tuple[Spec, Callable[[], nn.Module]]] = {
    "layers": (
        FLAT,
        lambda: nn.Sequential(
            nn.Linear(5, 8), nn.ReLU(), nn.Sequential(nn.LayerNorm(8), nn.GELU()), nn.Linear(8, 3, bias=False)
        ),
    ),
    "activations": (FLAT, lambda: nn.Sequential(nn.Tanh(), nn.ELU(), nn.SiLU(), nn.Identity(), nn.Linear(5, 3))),
    "noisy": (FLAT, lambda: nn.Sequential(NoisyLinear(5, 4), nn.Tanh(), NoisyLinear(4, 3))),
    "two observations": (BOXES, lambda: nn.Sequential(nn.Linear(10, 4), nn.Tanh(), nn.Linear(4, 2))),
    "image": (
        IMAGE,
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 3, (2, 3), stride=1, bias=False),
            nn.LayerNorm([3, 3, 2], elementwise_affine=False), nn.Flatten(), nn.Linear(18, 3),
        ),
    ),
    "table": (TABLE, lambda: nn.Sequential(nn.LayerNorm(5), nn.Linear(5, 2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3))),
}  # fmt: skip


def registered(monkeypatch: pytest.MonkeyPatch, make: Callable[[], nn.Module], spec: Spec) -> nn.Module:
    monkeypatch.setattr(NETWORKS, "_own", {"own": lambda config, blueprint: make()})
    return build_network(NetworkConfig(type="own"), Blueprint(spec, action_outputs(spec)), seed=0)


@pytest.mark.parametrize("case", PLAIN)
def test_exported_sequential_network_matches_torch(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spec, make = PLAIN[case]
    network = perturbed(registered(monkeypatch, make, spec))
    columns = observations(spec, rows=4)
    with torch.no_grad():
        expected = network(to_tensors(columns, torch.device("cpu")))
    close(Outputs(snapshot_of(spec, network)).of(columns), expected)


class Own(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(5, 3)

    def forward(self, observation: Tensors) -> Tensor:
        outputs: Tensor = self.layer(observation["state"])
        return outputs


class Residual(nn.Sequential):
    def forward(self, x: Tensor) -> Tensor:
        return x + super().forward(x)


@pytest.mark.parametrize(
    ("spec", "make", "message"),
    [
        (FLAT, lambda: nn.Sequential(nn.Linear(5, 3), nn.Softmax(-1)), r"module 1 of the network, Softmax\(dim=-1\)"),
        (FLAT, lambda: nn.Sequential(nn.Sequential(nn.Tanh(), nn.Dropout())), r"module 0\.1 of the network, Dropout"),
        (FLAT, lambda: nn.Sequential(nn.ELU(0.5)), "only alpha=1"),
        (FLAT, lambda: nn.Sequential(nn.Conv2d(1, 1, 1)), r"it needs an image with 3 axes, got shape \(5,\)"),
        (IMAGE, lambda: nn.Sequential(nn.Conv2d(2, 2, 1, groups=2)), "only groups=1"),
        (
            IMAGE,
            lambda: nn.Sequential(nn.Conv2d(2, 2, 3, padding="same")),
            "only a single number is supported as padding",
        ),
        (IMAGE, lambda: nn.Sequential(nn.Conv2d(2, 2, 3, stride=(1, 2))), r"as stride, got \(1, 2\)"),
        (IMAGE, lambda: nn.Sequential(nn.Conv2d(2, 2, 3, dilation=2)), "only dilation=1"),
        (IMAGE, lambda: nn.Sequential(nn.MaxPool2d(2, ceil_mode=True)), "only ceil_mode=False"),
        (IMAGE, lambda: nn.Sequential(nn.Flatten(2)), "only start_dim=1"),
        (FLAT, lambda: nn.Sequential(Residual(nn.Linear(5, 5))), "module 0 of the network, Residual"),
        (FLAT, Own, r"Own has its own forward code and no export\(prefix\) method"),
    ],
)
def test_export_error_identifies_the_unsupported_module(
    spec: Spec, make: Callable[[], nn.Module], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = registered(monkeypatch, make, spec)
    with pytest.raises(ExportError, match=message) as caught:
        export(network, "actor")
    assert "set `inference: remote` in the clients" in str(caught.value)
