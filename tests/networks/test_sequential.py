"""Own networks of an nn.Sequential train in the native core, with the results of torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rl4sys.algorithms.base import AlgorithmSetup, Backend
from rl4sys.algorithms.dqn import DQN
from rl4sys.algorithms.native.network import CoreNetwork
from rl4sys.algorithms.native.policy_update import CorePolicyUpdate
from rl4sys.algorithms.ppo import PPO, PPOConfig
from rl4sys.algorithms.sac import SAC
from rl4sys.buffers.rollout import RolloutConfig
from rl4sys.buffers.uniform import UniformConfig
from rl4sys.networks.base import Blueprint, NetworkConfig, Tensors, build_network, concat_observations, export
from rl4sys.networks.native import SupportsNative, compute_natively
from rl4sys.networks.torch_policy import to_tensors
from rl4sys.networks.translate import Translated
from rl4sys.policy.draws import NATIVE
from rl4sys.policy.snapshot import input_size
from rl4sys.registry import NETWORKS
from rl4sys.spec import MASK, Box, Discrete, Spec, mask_box
from tests.algorithms import test_core_replay, test_core_update
from tests.networks.test_forms_agree import Outputs, close, observations, perturbed, snapshot_of
from tests.networks.test_native import assert_close

native_only = pytest.mark.skipif(not NATIVE, reason="the native core is not installed")

Make = Callable[[], nn.Module]

FLAT = Spec({"state": Box((5,))}, Discrete(3))
TABLE = Spec({"rows": Box((4, 5))}, Discrete(3))
TWO = Spec({"a": Box((2, 2)), "b": Box((3,), "float64"), "mask": mask_box(Discrete(3))}, Discrete(3))


def build(monkeypatch: pytest.MonkeyPatch, make: Make, spec: Spec = FLAT) -> nn.Module:
    monkeypatch.setattr(NETWORKS, "_own", {"own": lambda config, blueprint: make()})
    return perturbed(build_network(NetworkConfig(type="own"), Blueprint(spec, 3), seed=0))


SUPPORTED: dict[str, tuple[Spec, Make]] = {
    "linear": (FLAT, lambda: nn.Sequential(nn.Linear(5, 3))),
    "tanh": (FLAT, lambda: nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3))),
    "relu": (FLAT, lambda: nn.Sequential(nn.Linear(5, 8), nn.ReLU(inplace=True), nn.Linear(8, 3))),
    "elu and norms": (
        FLAT,
        lambda: nn.Sequential(
            nn.Linear(5, 8), nn.LayerNorm(8, eps=1e-3), nn.ELU(), nn.Linear(8, 7), nn.LayerNorm(7, eps=1e-3), nn.ELU(),
            nn.Linear(7, 3),
        ),
    ),
    "nested": (
        FLAT,
        lambda: nn.Sequential(nn.Identity(), nn.Sequential(nn.Linear(5, 8), nn.Tanh()), nn.Flatten(), nn.Linear(8, 3)),
    ),
    "flattened table": (TABLE, lambda: nn.Sequential(nn.Flatten(), nn.Linear(20, 6), nn.ReLU(), nn.Linear(6, 3))),
    "two observations": (TWO, lambda: nn.Sequential(nn.Linear(7, 6), nn.ReLU(), nn.Linear(6, 3))),
}  # fmt: skip


def results(network: nn.Module, spec: Spec) -> list[Tensor]:
    """Return the outputs and the gradients of all parameters for a fixed batch."""
    network.zero_grad()
    outputs = network(to_tensors(observations(spec, rows=6)))
    (outputs * torch.arange(1.0, 1 + outputs.numel()).reshape(outputs.shape)).sum().backward()
    found = [parameter.grad for parameter in network.parameters()]
    return [outputs.detach(), *(gradient.clone() for gradient in found if gradient is not None)]


@native_only
@pytest.mark.parametrize("case", SUPPORTED)
def test_core_results_of_sequential_network_match_torch(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spec, make = SUPPORTED[case]
    network = build(monkeypatch, make, spec)
    expected = results(network, spec)
    assert CoreNetwork.of(network) is None
    assert compute_natively(network)
    assert CoreNetwork.of(network) is not None
    found = results(network, spec)
    assert len(found) == 1 + len(list(network.parameters()))
    assert all(float(values.abs().sum()) > 0 for values in found)
    assert_close(found, expected)
    close(Outputs(snapshot_of(spec, network)).of(observations(spec, rows=6)), found[0])


def repeated_linear() -> nn.Module:
    repeated = nn.Linear(5, 5)
    return nn.Sequential(repeated, nn.Tanh(), repeated, nn.Tanh(), nn.Linear(5, 3))


UNSUPPORTED: dict[str, tuple[Spec, Make]] = {
    "gelu": (FLAT, lambda: nn.Sequential(nn.Linear(5, 8), nn.GELU(), nn.Linear(8, 3))),
    "elu with alpha": (FLAT, lambda: nn.Sequential(nn.Linear(5, 8), nn.ELU(0.5), nn.Linear(8, 3))),
    "no bias": (FLAT, lambda: nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3, bias=False))),
    "last activation": (FLAT, lambda: nn.Sequential(nn.Linear(5, 3), nn.Tanh())),
    "two activations": (
        FLAT,
        lambda: nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3)),
    ),
    "one norm of two": (
        FLAT,
        lambda: nn.Sequential(nn.Linear(5, 4), nn.LayerNorm(4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3)),
    ),
    "norm without weights": (
        FLAT,
        lambda: nn.Sequential(
            nn.Linear(5, 4), nn.LayerNorm(4, elementwise_affine=False), nn.Tanh(), nn.Linear(4, 3)
        ),
    ),
    "two epsilons": (
        FLAT,
        lambda: nn.Sequential(
            nn.Linear(5, 4), nn.LayerNorm(4), nn.Tanh(), nn.Linear(4, 4), nn.LayerNorm(4, eps=0.1), nn.Tanh(),
            nn.Linear(4, 3),
        ),
    ),
    "repeated layer": (FLAT, repeated_linear),
    "weight norm": (
        FLAT,
        lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(5, 4)), nn.Tanh(), nn.Linear(4, 3)),
    ),
    "rows of a table": (TABLE, lambda: nn.Sequential(nn.Linear(5, 1), nn.Flatten(), nn.Linear(4, 3))),
    "no layers": (FLAT, lambda: nn.Sequential(nn.Linear(5, 3), nn.Sequential(nn.Softmax(-1)))),
}  # fmt: skip


@pytest.mark.parametrize("case", UNSUPPORTED)
def test_unsupported_sequential_network_runs_in_torch(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spec, make = UNSUPPORTED[case]
    network = build(monkeypatch, make, spec)
    before = results(network, spec)
    assert isinstance(network, SupportsNative)
    assert not compute_natively(network)
    assert all(torch.equal(*pair) for pair in zip(results(network, spec), before, strict=True))


@native_only
def test_forward_hooks_of_sequential_network_are_called(monkeypatch: pytest.MonkeyPatch) -> None:
    network = build(monkeypatch, SUPPORTED["tanh"][1])
    assert compute_natively(network)
    before, called = results(network, FLAT), []
    handle = network.get_submodule("network.1").register_forward_hook(lambda *seen: called.append(seen))
    assert CoreNetwork.of(network) is None
    assert_close(results(network, FLAT), before)
    assert len(called) == 1
    handle.remove()
    assert CoreNetwork.of(network) is not None


def test_export_contains_an_activation_used_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    def make() -> nn.Module:
        activation = nn.ReLU()
        return nn.Sequential(nn.Linear(5, 8), activation, nn.Linear(8, 8), activation, nn.Linear(8, 3))

    network = build(monkeypatch, make)
    assert [operation.name for operation in export(network, "actor").operations].count("relu") == 2
    close(Outputs(snapshot_of(FLAT, network)).of(observations(FLAT, rows=6)), results(network, FLAT)[0])
    assert compute_natively(network) == NATIVE


class Whole(nn.Module):
    """Network class that only applies a Sequential to its observations."""

    Config = NetworkConfig

    def __init__(self, inputs: int = 5) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(inputs, 8), nn.Tanh(), nn.Linear(8, 3))

    def forward(self, observation: Tensors) -> Tensor:
        outputs: Tensor = self.body(observation["state"])
        return outputs


class Flattened(Whole):
    def forward(self, observation: Tensors) -> Tensor:
        outputs: Tensor = self.body(torch.flatten(observation["rows"].float(), start_dim=1))
        return outputs


class Joined(Whole):
    def forward(self, observation: Tensors) -> Tensor:
        outputs: Tensor = self.body(torch.cat([observation["a"].flatten(1), observation["b"].float()], dim=-1))
        return outputs


class Helped(Whole):
    def forward(self, observation: Tensors) -> Tensor:
        outputs: Tensor = self.body(concat_observations(observation, ["a", "b"]))
        return outputs


@pytest.mark.parametrize(
    ("spec", "make"),
    [(FLAT, Whole), (TABLE, lambda: Flattened(20)), (TWO, lambda: Joined(7)), (TWO, lambda: Helped(7))],
)
def test_class_around_a_sequential_is_exported_and_trained_natively(
    spec: Spec, make: Callable[[], Whole], monkeypatch: pytest.MonkeyPatch
) -> None:
    network, plain = build(monkeypatch, make, spec), make()
    plain.load_state_dict(network.state_dict())
    expected = results(plain, spec)
    close(Outputs(snapshot_of(spec, network)).of(observations(spec, rows=6)), expected[0])
    assert compute_natively(network) == NATIVE
    assert_close(results(network, spec), expected)


class Scaled(Whole):
    def forward(self, observation: Tensors) -> Tensor:
        return super().forward({"state": observation["state"] / 2})


class Squashed(Whole):
    def forward(self, observation: Tensors) -> Tensor:
        return super().forward(observation).tanh()


class NoisyInTraining(Whole):
    def forward(self, observation: Tensors) -> Tensor:
        return super().forward(observation) + (0.1 if self.training else 0)


class Silent(Whole):
    def forward(self, observation: Tensors) -> Tensor:
        outputs = super().forward(observation)
        return outputs if self.training else torch.zeros(len(observation["state"]), 3)


class Checked(Whole):
    def forward(self, observation: Tensors) -> Tensor:
        if (observation["state"] > 90).any():
            raise ValueError("input too large")
        return super().forward(observation)


class Counting(Whole):
    def forward(self, observation: Tensors) -> Tensor:
        self.latest = super().forward(observation)
        return self.latest


class Twice(Whole):
    def forward(self, observation: Tensors) -> Tensor:
        super().forward(observation)
        return super().forward(observation)


class WithMethod(Whole):
    def features(self, observation: Tensors) -> Tensor:
        outputs: Tensor = self.body[0](observation["state"])
        return outputs


class WithScale(Whole):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))


class WithExport(Whole):
    def export(self, prefix: str) -> Any:
        raise NotImplementedError


OTHERS = [Scaled, Squashed, NoisyInTraining, Silent, Checked, Counting, Twice, WithMethod, WithScale, WithExport]


@pytest.mark.parametrize("kind", OTHERS)
def test_class_that_computes_more_stays_unchanged(kind: type[Whole], monkeypatch: pytest.MonkeyPatch) -> None:
    network = build(monkeypatch, kind)
    assert type(network) is kind
    assert "latest" not in vars(network)
    assert not compute_natively(network)


@pytest.mark.parametrize("make", [lambda: Joined(7), Whole])
def test_class_that_reads_other_observations_stays_unchanged(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    wider = Spec({**TWO.observation, "c": Box((1,)), "state": Box((5,))}, TWO.action)
    assert not isinstance(build(monkeypatch, make, wider), Translated)


class OwnNetworks:
    """Registered networks of an algorithm: the actor is a class around a Sequential, the critic is a Sequential."""

    @staticmethod
    def body(blueprint: Blueprint) -> nn.Sequential:
        size = input_size(blueprint.spec)
        return nn.Sequential(nn.Linear(size, 16), nn.LayerNorm(16), nn.ELU(), nn.Linear(16, blueprint.outputs))

    @classmethod
    def actor(cls, config: NetworkConfig, blueprint: Blueprint) -> nn.Module:
        class Actor(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.body = cls.body(blueprint)

            def forward(self, observation: Tensors) -> Tensor:
                names = [name for name in blueprint.spec.observation if name != MASK]
                outputs: Tensor = self.body(concat_observations(observation, names))
                return outputs

        return Actor()

    @classmethod
    def critic(cls, config: NetworkConfig, blueprint: Blueprint) -> nn.Module:
        return cls.body(blueprint)


@pytest.fixture
def networks(monkeypatch: pytest.MonkeyPatch) -> dict[str, NetworkConfig]:
    monkeypatch.setattr(NETWORKS, "_own", {"own actor": OwnNetworks.actor, "own critic": OwnNetworks.critic})
    return {role: NetworkConfig(type=f"own {role}") for role in ("actor", "critic")}


def make_ppo(spec: Spec, networks: dict[str, NetworkConfig], backend: Backend) -> PPO:
    config = PPOConfig(name="ppo", minibatch_size=16, epochs=3)
    buffer = RolloutConfig(type="trajectory", size=64)
    return PPO(AlgorithmSetup(spec, config, networks, buffer, np.random.SeedSequence(3), backend=backend))


@native_only
@pytest.mark.parametrize("action", ["discrete", "continuous"])
def test_ppo_update_of_own_networks_in_the_core_matches_torch(action: str, networks: dict[str, NetworkConfig]) -> None:
    spec = test_core_update.make_spec(action)
    native, reference = (make_ppo(spec, networks, backend) for backend in ("native", "torch"))
    assert CorePolicyUpdate.of(native._networks, native._optimizer) is not None
    before = native._networks.actor.body[0].weight.detach().clone()
    test_core_update.compare(native, reference, test_core_update.make_batch(spec, rows=50), updates=2)
    assert not torch.equal(before, native._networks.actor.body[0].weight), "the update must have changed the weights"


@native_only
@pytest.mark.parametrize("name", ["dqn", "sac"])
def test_replay_update_of_own_networks_in_the_core_matches_torch(name: str, networks: dict[str, NetworkConfig]) -> None:
    spec = test_core_replay.make_spec(name)
    kind: Any = {"dqn": DQN, "sac": SAC}[name]
    roles = {role: networks[role] for role in kind.roles}
    config, buffer = kind.Config.model_validate({"name": name, "lr": 1e-3}), UniformConfig(type="uniform", size=64)
    native, reference = (
        kind(AlgorithmSetup(spec, config, roles, buffer, np.random.SeedSequence(3), backend=backend, total_timesteps=9))
        for backend in ("native", "torch")
    )
    assert native._core_update() is not None
    assert reference._core_update() is None
    test_core_replay.compare(native, reference, test_core_replay.make_batch(spec, 20))
