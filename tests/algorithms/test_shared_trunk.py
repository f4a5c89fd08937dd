"""Actor and critic with a shared trunk."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rl4sys.algorithms.actor_critic import ActorCritic
from rl4sys.algorithms.base import AlgorithmSetup
from rl4sys.errors import ConfigError
from rl4sys.learner.config import LearnerConfig, parse_algorithm, parse_buffer, parse_networks
from rl4sys.learner.footprint import learner_cost
from rl4sys.learner.learner import Learner, build_learner
from rl4sys.networks.base import observation_of
from rl4sys.networks.chained import Chained
from rl4sys.policy.draws import Draws
from rl4sys.policy.snapshot_policy import SnapshotPolicy
from rl4sys.spec import Box, Discrete, Spec

IMAGES = Spec({"camera": Box((36, 36, 3), "uint8", (0.0,), (255.0,)), "speed": Box((2,))}, Discrete(3))
SHARED = {
    "trunk": {"type": "cnn", "architecture": "impala", "hidden_dims": [12]},
    "actor": {"hidden_dims": []},
    "critic": {"hidden_dims": [8]},
}


def config_of(name: str = "ppo", networks: dict[str, Any] = SHARED, **options: Any) -> LearnerConfig:
    return LearnerConfig(
        algorithm=parse_algorithm({"name": name, **options}),
        networks=parse_networks(networks, name),
        buffer=parse_buffer({"size": 16}, name),
    )


def networks() -> ActorCritic:
    config = config_of()
    return ActorCritic(
        AlgorithmSetup(IMAGES, config.algorithm, config.networks, config.buffer, np.random.SeedSequence(0)), 0.0
    )


def rows(count: int = 5) -> dict[str, torch.Tensor]:
    rng = np.random.default_rng(0)
    return {
        "obs.camera": torch.from_numpy(rng.integers(0, 256, (count, 36, 36, 3), dtype=np.uint8)),
        "obs.speed": torch.from_numpy(rng.standard_normal((count, 2), np.float32)),
        "action": torch.from_numpy(rng.integers(0, 3, count)),
    }


def learner_of(**options: Any) -> Learner:
    return build_learner(IMAGES, config_of(**options), seed=1)


def changed_by(shared: ActorCritic, loss: torch.Tensor) -> set[str]:
    shared.zero_grad()
    loss.sum().backward()  # type: ignore[no-untyped-call]
    return {name for name, p in shared.named_parameters() if p.grad is not None and p.grad.any()}


def test_actor_and_critic_share_only_the_trunk() -> None:
    shared = networks()
    by_actor = changed_by(shared, shared.action_terms(rows())[0])
    by_critic = changed_by(shared, shared.value(observation_of(rows(), "obs.")))
    assert by_actor & by_critic
    assert all(".trunk." in name for name in by_actor & by_critic)
    assert all(name.startswith("critic.head.") for name in by_critic - by_actor)
    assert by_critic - by_actor


def test_trunk_runs_once_for_actor_and_critic() -> None:
    shared, calls = networks(), []
    separately = shared.action_terms(rows())[0], shared.value(observation_of(rows(), "obs."))
    assert isinstance(shared.actor, Chained)
    shared.actor.trunk.register_forward_hook(lambda *_: calls.append(True))
    seen = shared.with_features(rows())
    together = shared.action_terms(seen)[0], shared.value(observation_of(seen, "obs."))
    assert calls == [True]
    assert all(torch.equal(one, other) for one, other in zip(separately, together, strict=True))


@pytest.mark.parametrize("options", [{}, {"critic_lr": 1e-4}])
def test_shared_parameters_are_counted_and_optimized_once(options: dict[str, float]) -> None:
    algorithm = learner_of(**options).algorithm
    trained = [p for group in algorithm._optimizer.param_groups for p in group["params"]]
    assert len(trained) == len({id(p) for p in trained}) == len(list(algorithm._networks.parameters()))
    assert learner_cost(IMAGES, config_of()).parameters == sum(p.numel() for p in trained)


def test_snapshot_contains_trunk_and_actor_and_acts_like_the_live_policy() -> None:
    learner = learner_of()
    sent = learner.snapshot()
    assert {name.split(".")[1] for name in sent.weights} == {"trunk", "head"}
    seen = {name: column.numpy() for name, column in observation_of(rows(64), "obs.").items()}
    live, portable = (policy.act(seen, {}, Draws(3)) for policy in (learner._live_policy(), SnapshotPolicy(sent)))
    np.testing.assert_array_equal(live.action, portable.action)
    np.testing.assert_allclose(live.log_prob, portable.log_prob, atol=1e-5)
    assert len(set(live.action.tolist())) == 3


@pytest.mark.parametrize(
    ("name", "networks", "message"),
    [
        ("trpo", SHARED, "network.trunk is not a network of trpo.* in separate steps, so they cannot share"),
        ("sac", SHARED, "network.trunk is not a network of sac.* in separate steps, so they cannot share"),
        ("dqn", {"trunk": {}}, r"network.trunk is not a network of dqn. Networks of dqn: critic.$"),
        (
            "ppo",
            {"trunk": {"type": "gru"}},
            "network.trunk is recurrent, but recurrent networks cannot be combined with network.trunk",
        ),
        (
            "ppo",
            {"trunk": {}, "actor": {"type": "lstm"}},
            "network.actor is recurrent, but recurrent networks cannot be combined with network.trunk",
        ),
    ],
)
def test_unsupported_trunk_is_rejected(name: str, networks: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_learner(IMAGES, config_of(name, networks), seed=1)


def test_unequal_actor_and_critic_step_counts_are_rejected_with_a_trunk() -> None:
    with pytest.raises(ConfigError, match=r"critic_gradient_steps is 80 and .*gradient_steps is 20.* network\.trunk"):
        learner_of(gradient_steps=20, critic_gradient_steps=80)
    learner_of(gradient_steps=20, critic_gradient_steps=20)
