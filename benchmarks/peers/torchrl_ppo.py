"""Measure the training speed of TorchRL's PPO, assembled as in its tutorials.

It uses a collector, GAE, a replay buffer with sampling without replacement, and the clipped loss.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium
import torch
from clock import Clock, read_workload
from gymnasium.vector import AutoresetMode
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModule
from torch import nn
from torch.distributions import Categorical
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, SamplerWithoutReplacement, TensorDictReplayBuffer
from torchrl.envs import EnvBase, GymWrapper
from torchrl.modules import MLP, ProbabilisticActor, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE


def make_environments(work: dict[str, Any]) -> EnvBase:
    """Create Gymnasium's sequential vector environment, which is faster on one core than SerialEnv and processes."""
    sequential = gymnasium.vector.SyncVectorEnv(
        [lambda: gymnasium.make(work["environment"])] * work["num_envs"], autoreset_mode=AutoresetMode.SAME_STEP
    )
    return GymWrapper(sequential, categorical_action_encoding=True, device="cpu")


def make_networks(environments: EnvBase, hidden: list[int]) -> tuple[ProbabilisticActor, ValueOperator]:
    size = environments.observation_spec["observation"].shape[-1]
    actions = int(environments.action_spec.space.n)
    shape = {"in_features": size, "num_cells": hidden, "activation_class": nn.Tanh}
    logits = TensorDictModule(MLP(out_features=actions, **shape), ["observation"], ["logits"])
    actor = ProbabilisticActor(
        logits,
        in_keys=["logits"],
        spec=environments.action_spec,
        distribution_class=Categorical,
        return_log_prob=True,
    )
    return actor, ValueOperator(MLP(out_features=1, **shape), in_keys=["observation"])


class Learning:
    """PPO update on a rollout."""

    def __init__(self, actor: ProbabilisticActor, critic: ValueOperator, work: dict[str, Any]) -> None:
        self._epochs = work["epochs"]
        self._advantages = GAE(gamma=0.99, lmbda=0.95, value_network=critic)
        self._loss = ClipPPOLoss(
            actor, critic, clip_epsilon=0.2, entropy_coeff=0.0, critic_coeff=0.5, normalize_advantage=True
        )
        self._optimizer = torch.optim.Adam(self._loss.parameters(), lr=3e-4, eps=1e-5)
        self._buffer = TensorDictReplayBuffer(
            storage=LazyTensorStorage(work["num_envs"] * work["length"]),
            sampler=SamplerWithoutReplacement(),
            batch_size=work["minibatch"],
        )

    def learn(self, rollout: TensorDictBase) -> None:
        with torch.no_grad():
            self._advantages(rollout)
        self._buffer.empty()
        self._buffer.extend(rollout.reshape(-1))
        for rows in self._minibatches():
            losses = self._loss(rows)
            loss = losses["loss_objective"] + losses["loss_critic"] + losses["loss_entropy"]
            loss.backward()
            nn.utils.clip_grad_norm_(self._loss.parameters(), 0.5)
            self._optimizer.step()
            self._optimizer.zero_grad()

    def _minibatches(self) -> Iterator[TensorDictBase]:
        for _ in range(self._epochs):
            yield from self._buffer


def main() -> None:
    work = read_workload()
    torch.set_num_threads(1)
    torch.manual_seed(work["seed"])
    environments = make_environments(work)
    actor, critic = make_networks(environments, work["hidden"])
    frames = work["num_envs"] * work["length"]
    collector = Collector(environments, actor, frames_per_batch=frames, total_frames=work["total"])
    learning, clock, steps = Learning(actor, critic, work), Clock(work["warm"]), 0
    for rollout in collector:
        learning.learn(rollout)
        steps += rollout.numel()
        clock.record(steps)
    collector.shutdown()
    clock.report("torchrl", "tensordict", "torch", "gymnasium")


if __name__ == "__main__":
    main()
