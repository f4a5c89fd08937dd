"""Trains PPO of Stable-Baselines3 and tells how well it did when."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from clock import given_work, hand_over
from judging import Act, Examination
from numpy.typing import NDArray
from stable_baselines3 import PPO
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env


class Examined(BaseCallback):
    """Has the policy judged between rollouts, when all work of those before is done."""

    def __init__(self, examination: Examination) -> None:
        super().__init__()
        self._examination = examination

    def _on_rollout_start(self) -> None:
        self._examination.see(self.num_timesteps, lambda: greedy(self.model))

    def _on_step(self) -> bool:
        return not self._examination.passed


def greedy(model: BaseAlgorithm) -> Act:
    def act(rows: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(model.predict(rows, deterministic=True)[0])

    return act


def falling(start: float) -> Callable[[float], float]:
    """Falls to nothing as training goes on."""
    return lambda remaining: remaining * start


def main() -> None:
    work = given_work()
    torch.set_num_threads(1)
    scheduled = {name: falling(start) for name, start in work.get("falling", {}).items()}
    environments = make_vec_env(work["environment"], work["num_envs"], env_kwargs={"render_mode": None})
    model = PPO("MlpPolicy", environments, device="cpu", seed=work["seed"], **work["options"], **scheduled)
    examination = Examination(work)
    examination.begin()
    model.learn(work["total"], callback=Examined(examination))
    examination.see(model.num_timesteps, lambda: greedy(model))
    versions = ("stable-baselines3", "torch", "gymnasium")
    hand_over({"curve": examination.curve, "returns": examination.returns}, *versions)


if __name__ == "__main__":
    main()
