"""Measure the training speed of Stable-Baselines3, or of SBX, which has the same interface."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import torch
from clock import Clock, read_workload
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.noise import NormalActionNoise

PACKAGES = {"sb3": ("stable_baselines3", "torch"), "sbx": ("sbx", "sbx-rl", "jax")}
"""Name of the module to import and of other packages whose versions are reported, by library."""


class Timed(BaseCallback):
    """Callback that records the time at the start of each rollout, when all earlier updates are complete."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def _on_rollout_start(self) -> None:
        self._clock.record(self.num_timesteps)

    def _on_step(self) -> bool:
        return True


def learning(work: dict[str, Any]) -> dict[str, Any]:
    if work["algorithm"] == "ppo":
        return {"n_steps": work["length"], "n_epochs": work["epochs"], "batch_size": work["minibatch"]}
    same = ("batch_size", "learning_starts", "buffer_size", "gradient_steps")
    options = {**{key: work[key] for key in same}, "train_freq": work["train_frequency"]}
    if work["algorithm"] == "dqn":
        options["target_update_interval"] = work["target_update_interval"]
    if work["algorithm"] == "td3":
        options["action_noise"] = NormalActionNoise(np.zeros(1), 0.1 * np.ones(1))
    return options


def main() -> None:
    work = read_workload()
    torch.set_num_threads(1)
    package, *versions = PACKAGES[work["peer"]]
    algorithm = getattr(importlib.import_module(package), work["algorithm"].upper())
    # The default render mode of make_vec_env slows down each step.
    environments = make_vec_env(work["environment"], work["num_envs"], env_kwargs={"render_mode": None})
    shape = {"net_arch": work["hidden"]}
    model = algorithm("MlpPolicy", environments, policy_kwargs=shape, device="cpu", seed=work["seed"], **learning(work))
    clock = Clock(work["warm"])
    model.learn(work["total"], callback=Timed(clock))
    clock.record(model.num_timesteps)
    clock.report("stable-baselines3", "gymnasium", *versions)


if __name__ == "__main__":
    main()
