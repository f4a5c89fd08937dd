"""DQN: formulas, double Q-learning, target network and exploration."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rl4sys.algorithms.base import AlgorithmSetup
from rl4sys.algorithms.dqn import DQN, DQNConfig, best_legal
from rl4sys.algorithms.off_policy import td_target
from rl4sys.buffers.base import BufferConfig
from rl4sys.config import parse
from rl4sys.errors import ConfigError
from rl4sys.networks.base import NetworkConfig
from rl4sys.networks.dueling import Dueling
from rl4sys.networks.mlp import MLPConfig
from rl4sys.spec import Box, Discrete, Spec

SPEC = Spec({"state": Box((2,)), "mask": Box((2,), "bool")}, Discrete(2))


def make_dqn(**options: object) -> DQN:
    networks: dict[str, NetworkConfig] = {"critic": MLPConfig(hidden_dims=[4])}
    config = DQNConfig.model_validate({"name": "dqn", "exploration": 0.1, **options})
    return DQN(AlgorithmSetup(SPEC, config, networks, BufferConfig(type="uniform", size=10), np.random.SeedSequence(1)))


def test_terminated_step_is_not_bootstrapped() -> None:
    reward, discount = torch.tensor([1.0, 1.0]), torch.tensor([0.9, 0.81])
    target = td_target(reward, discount, torch.tensor([True, False]), torch.tensor([10.0, 10.0]))
    assert torch.allclose(target, torch.tensor([1.0, 1 + 8.1]))


def test_greedy_action_is_legal() -> None:
    values = torch.tensor([[1.0, 2.0], [1.0, 2.0], [-5e8, -6e8]])
    mask = torch.tensor([[True, True], [True, False], [False, True]])
    assert best_legal(values, mask).ravel().tolist() == [1, 0, 1]
    assert best_legal(values, None).ravel().tolist() == [1, 1, 0]


def batch(rows: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "obs.state": rng.normal(size=(rows, 2)).astype(np.float32),
        "next_obs.state": rng.normal(size=(rows, 2)).astype(np.float32),
        "obs.mask": np.ones((rows, 2), bool),
        "next_obs.mask": np.ones((rows, 2), bool),
        "action": rng.integers(2, size=rows),
        "reward": rng.normal(size=rows).astype(np.float32),
        "discount": np.full(rows, 0.9, np.float32),
        "terminated": np.zeros(rows, bool),
    }


def test_double_dqn_selects_with_online_and_evaluates_with_target_network() -> None:
    plain, double = make_dqn(double=False), make_dqn(double=True)
    for dqn in (plain, double):
        for step in range(30):
            dqn.update(batch(16), steps=step)
    rows = {name: torch.from_numpy(column) for name, column in batch(64).items()}
    observation = {"state": rows["next_obs.state"]}
    with torch.no_grad():
        values, chosen = double._target(observation), double._critic(observation).argmax(-1, keepdim=True)
    assert (values.argmax(-1, keepdim=True) != chosen).any(), "the two networks should differ somewhere"
    torch.testing.assert_close(double._next_value(rows), values.gather(-1, chosen).squeeze(-1))
    with torch.no_grad():
        torch.testing.assert_close(plain._next_value(rows), plain._target(observation).amax(-1))


def test_target_network_is_updated_by_tau_at_the_interval() -> None:
    dqn = make_dqn(target_update_interval=100, tau=0.25)
    start = [p.clone() for p in dqn._target.parameters()]
    dqn.update(batch(8), steps=99)
    assert all(torch.equal(p, s) for p, s in zip(dqn._target.parameters(), start, strict=True))
    online = [p.detach().clone() for p in dqn._critic.parameters()]
    dqn.update(batch(8), steps=100)
    for target, first, then in zip(dqn._target.parameters(), start, online, strict=True):
        torch.testing.assert_close(target, first + 0.25 * (then - first))


def test_exploration_follows_its_schedule() -> None:
    networks: dict[str, NetworkConfig] = {"critic": MLPConfig(hidden_dims=[4])}
    config = DQNConfig.model_validate({"name": "dqn", "exploration": {"start": 1.0, "end": 0.2, "fraction": 0.5}})
    buffer = BufferConfig(type="uniform", size=10)
    dqn = DQN(AlgorithmSetup(SPEC, config, networks, buffer, np.random.SeedSequence(1), total_timesteps=1000))
    epsilons = [dqn.policy(steps).head.options["epsilon"] for steps in (0, 250, 500, 900)]
    np.testing.assert_allclose(epsilons, [1.0, 0.6, 0.2, 0.2])


def test_exploration_schedule_needs_steps_in_live_training() -> None:
    with pytest.raises(
        ConfigError, match=r"algorithm\.exploration goes from 1\.0 to 0\.05 .* training run has no fixed length"
    ):
        make_dqn(exploration={"start": 1.0, "end": 0.05})
    dqn = make_dqn(exploration={"start": 1.0, "end": 0.2, "steps": 500})
    epsilons = [dqn.policy(steps).head.options["epsilon"] for steps in (0, 250, 500, 900)]
    np.testing.assert_allclose(epsilons, [1.0, 0.6, 0.2, 0.2])


@pytest.mark.parametrize("setting", [{"batch_size": 10**9}, {"n_step": 10**6}, {"gradient_steps": 10**9}])
def test_option_above_its_maximum_is_rejected(setting: dict[str, int]) -> None:
    ((name, _),) = setting.items()
    with pytest.raises(ConfigError, match=rf"algorithm\.{name} is \d+; expected a value less than or equal to \d+"):
        parse(DQNConfig, {"name": "dqn", **setting}, "algorithm")


def test_dueling_q_values_are_state_value_plus_centered_advantages() -> None:
    class Fixed(torch.nn.Module):
        def forward(self, observation: object) -> torch.Tensor:
            return torch.tensor([[10.0, 1.0, 2.0, 6.0]])

    values = Dueling(Fixed(), 3)({})
    torch.testing.assert_close(values, torch.tensor([[10 - 2.0, 10 - 1.0, 10 + 3.0]]))
