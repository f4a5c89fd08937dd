"""Stable-Baselines3, and SBX, which has the same interface, as their documentation has one use them."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import torch
from clock import Clock, given_work
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.noise import NormalActionNoise

PACKAGES = {"sb3": ("stable_baselines3", "torch"), "sbx": ("sbx", "sbx-rl", "jax")}
"""What each peer imports, and whose versions are told besides."""


class Timed(BaseCallback):
    """Tells the clock of every rollout, each of which begins when all work of those before is done."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def _on_rollout_start(self) -> None:
        self._clock.see(self.num_timesteps)

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
    work = given_work()
    torch.set_num_threads(1)
    package, *versions = PACKAGES[work["peer"]]
    algorithm = getattr(importlib.import_module(package), work["algorithm"].upper())
    # Without a render mode: with the usual one Gymnasium's environments do more at each step.
    environments = make_vec_env(work["environment"], work["num_envs"], env_kwargs={"render_mode": None})
    shape = {"net_arch": work["hidden"]}
    model = algorithm("MlpPolicy", environments, policy_kwargs=shape, device="cpu", seed=work["seed"], **learning(work))
    clock = Clock(work["warm"])
    model.learn(work["total"], callback=Timed(clock))
    clock.see(model.num_timesteps)
    clock.report("stable-baselines3", "gymnasium", *versions)


if __name__ == "__main__":
    main()
