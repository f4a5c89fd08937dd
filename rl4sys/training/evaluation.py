"""Periodic evaluation of the policy during training."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from rl4sys.dataset import check_same_spec
from rl4sys.environments.actor import Episode
from rl4sys.environments.encoding import Encoding
from rl4sys.environments.evaluation import Evaluation, evaluate
from rl4sys.environments.factory import make_environment
from rl4sys.policy.base import Policy
from rl4sys.runs.config import ExperimentConfig
from rl4sys.spec import Spec, State


class PeriodicEvaluation:
    """Evaluates the greedy policy in fresh environments and keeps the latest result and the best mean return."""

    def __init__(self, config: ExperimentConfig, spec: Spec) -> None:
        """Prepare evaluation. Raises `ConfigError` if the spec of the dataset differs from the environment's spec."""
        self._config = config
        self.latest: Evaluation | None = None
        self.step: int | None = None
        """Step of the latest evaluation."""
        self.best: float | None = None
        if config.dataset is not None and self.possible:
            evaluated_on = Encoding(make_environment(config.environment)).spec
            check_same_spec(spec, evaluated_on, "the evaluation environment")

    @property
    def possible(self) -> bool:
        """True if the environment can be stepped locally; False for a live system."""
        return self._config.environment.family != "live"

    def run(self, policy: Policy, step: int, stopping: Callable[[], bool]) -> bool:
        """Evaluate the policy; return True if it is the best so far. A requested stop raises `EvaluationStopped`."""
        config = self._config
        self.latest = evaluate(
            config.environment,
            policy.greedy(),
            config.training.num_eval_episodes,
            config.experiment.seed,
            stopping=stopping,
        )
        self.step = step
        mean = self.latest.mean_return
        improved = self.best is None or mean > self.best
        self.best = mean if improved else self.best
        return improved

    def metrics(self) -> Mapping[str, float]:
        """Return the metrics row of the latest evaluation."""
        assert self.latest is not None  # called after `run`
        return {
            "evaluation/return": self.latest.mean_return,
            "evaluation/return_std": self.latest.std_return,
            "evaluation/length": float(np.mean(self.latest.lengths)),
        }

    def state(self) -> State:
        return {
            "evaluation": [list(episode) for episode in self.latest.episodes] if self.latest else None,
            "evaluated_at": self.step,
            "best": self.best,
        }

    def restore(self, state: State) -> None:
        if state["evaluation"] is not None:
            self.latest = Evaluation(tuple(Episode(*episode) for episode in state["evaluation"]))
        self.step, self.best = state["evaluated_at"], state["best"]
