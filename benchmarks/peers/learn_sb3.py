"""Train PPO of Stable-Baselines3 and print its learning curve."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from clock import print_result, read_workload
from evaluation import Act, Evaluation
from numpy.typing import NDArray
from stable_baselines3 import PPO
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env


class EvaluatedTraining(BaseCallback):
    """Callback that evaluates the policy between rollouts, after all earlier updates."""

    def __init__(self, evaluation: Evaluation) -> None:
        super().__init__()
        self._evaluation = evaluation

    def _on_rollout_start(self) -> None:
        self._evaluation.evaluate_if_due(self.num_timesteps, lambda: greedy(self.model))

    def _on_step(self) -> bool:
        return not self._evaluation.passed


def greedy(model: BaseAlgorithm) -> Act:
    def act(rows: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(model.predict(rows, deterministic=True)[0])

    return act


def falling(start: float) -> Callable[[float], float]:
    """Return a linear schedule from `start` to 0."""
    return lambda remaining: remaining * start


def main() -> None:
    work = read_workload()
    torch.set_num_threads(1)
    scheduled = {name: falling(start) for name, start in work.get("falling", {}).items()}
    environments = make_vec_env(work["environment"], work["num_envs"], env_kwargs={"render_mode": None})
    model = PPO("MlpPolicy", environments, device="cpu", seed=work["seed"], **work["options"], **scheduled)
    evaluation = Evaluation(work)
    evaluation.start()
    model.learn(work["total"], callback=EvaluatedTraining(evaluation))
    evaluation.evaluate_if_due(model.num_timesteps, lambda: greedy(model))
    versions = ("stable-baselines3", "torch", "gymnasium")
    print_result({"curve": evaluation.curve, "returns": evaluation.returns}, *versions)


if __name__ == "__main__":
    main()
