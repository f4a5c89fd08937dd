"""Measure the training speed of RLlib's PPO on its new API stack, with environments and learner in the main process."""

from __future__ import annotations

import logging
from typing import Any

import ray
import torch
from clock import Clock, read_workload
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig


def settings_of(work: dict[str, Any]) -> PPOConfig:
    network = DefaultModelConfig(fcnet_hiddens=work["hidden"], fcnet_activation="tanh", vf_share_layers=False)
    return (
        PPOConfig()
        .environment(work["environment"])
        .env_runners(num_env_runners=0, num_envs_per_env_runner=work["num_envs"])
        .learners(num_learners=0)
        .rl_module(model_config=network)
        .training(
            train_batch_size_per_learner=work["num_envs"] * work["length"],
            minibatch_size=work["minibatch"],
            num_epochs=work["epochs"],
            lr=3e-4,
            grad_clip=0.5,
            # The other libraries have no KL term.
            use_kl_loss=False,
        )
        .debugging(seed=work["seed"], log_level="ERROR")
    )


def main() -> None:
    work = read_workload()
    torch.set_num_threads(1)
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    algorithm = settings_of(work).build_algo()
    clock, steps = Clock(work["warm"]), 0
    while steps < work["total"]:
        steps = int(algorithm.train()["num_env_steps_sampled_lifetime"])
        clock.record(steps)
    clock.report("ray", "torch", "gymnasium")
    algorithm.stop()
    ray.shutdown()


if __name__ == "__main__":
    main()
