"""Workloads of the speed benchmarks: same networks, same number and size of updates per step for all libraries."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Workload:
    """Training task for all libraries. Steps are counted over all parallel environments."""

    name: str
    title: str
    libraries: tuple[str, ...]
    settings: dict[str, Any] = field(hash=False)
    warm: int
    """Number of steps before the clock starts."""
    timed: int
    quick: int | None = None
    """Timed steps with --quick; None if --quick skips the workload."""

    def described(self, seed: int, *, quick: bool) -> dict[str, Any]:
        timed = self.quick if quick and self.quick is not None else self.timed
        return {**self.settings, "seed": seed, "warm": self.warm, "total": self.warm + timed}


def ppo(environment: str, num_envs: int, length: int, epochs: int, minibatch: int) -> dict[str, Any]:
    shape = {"num_envs": num_envs, "length": length, "epochs": epochs, "minibatch": minibatch}
    return {"algorithm": "ppo", "environment": environment, "hidden": [64, 64], **shape}


def off_policy(algorithm: str, environment: str, **options: int) -> dict[str, Any]:
    usual = {"batch_size": 256, "learning_starts": 100, "train_frequency": 1, "gradient_steps": 1}
    shared = {"num_envs": 1, "hidden": [256, 256], "buffer_size": 100_000}
    return {"algorithm": algorithm, "environment": environment, **shared, **usual, **options}


FEW, MORE = ("ours", "sb3", "sbx"), ("ours", "sb3", "sbx", "cleanrl")
ALL = (*MORE, "rllib", "torchrl")
LANDER, CARTPOLE, PENDULUM = "LunarLander-v3", "CartPole-v1", "Pendulum-v1"
OFTEN_COPIED = {"learning_starts": 1000, "target_update_interval": 256}
WORKLOADS = (
    Workload(
        "A", "PPO, LunarLander-v3, 8 × 128, 10 epochs of 64", ALL, ppo(LANDER, 8, 128, 10, 64), 2048, 61440, 16384
    ),
    Workload("B", "PPO, LunarLander-v3, 8 × 128, 4 epochs of 256", MORE, ppo(LANDER, 8, 128, 4, 256), 2048, 65536),
    Workload(
        "C",
        "PPO, LunarLander-v3, 16 × 1024, 4 epochs of 64",
        (*MORE, "envpool", "envpool_two", "pipeline", "both", "sb3_two", "sbx_two"),
        ppo(LANDER, 16, 1024, 4, 64),
        16384,
        98304,
        49152,
    ),
    Workload("D", "PPO, CartPole-v1, 8 × 128, 10 epochs of 64", ALL, ppo(CARTPOLE, 8, 128, 10, 64), 2048, 81920, 24576),
    Workload("SAC", "SAC, Pendulum-v1, 256 × 256, batch 256", FEW, off_policy("sac", PENDULUM), 500, 3000, 1000),
    Workload("TD3", "TD3, Pendulum-v1, 256 × 256, batch 256", FEW, off_policy("td3", PENDULUM), 500, 3000),
    Workload(
        "DQN",
        "DQN, CartPole-v1, batch 64, 128 updates every 256 steps",
        FEW,
        off_policy("dqn", CARTPOLE, batch_size=64, train_frequency=256, gradient_steps=128, **OFTEN_COPIED),
        2048,
        20480,
        8192,
    ),
    Workload(
        "DQN-lander",
        "DQN, LunarLander-v3, batch 128, 4 updates every 4 steps",
        FEW,
        off_policy("dqn", LANDER, batch_size=128, train_frequency=4, gradient_steps=4, **OFTEN_COPIED),
        1500,
        8000,
    ),
)
