"""What a learner starts from: the recorded experience that its config names."""

from __future__ import annotations

from rl4sys.algorithms.base import Metrics
from rl4sys.dataset import check_same_spec, load_dataset
from rl4sys.experiment.config import ExperimentConfig
from rl4sys.learner import Learner
from rl4sys.spec import Spec


def warm_start(learner: Learner, spec: Spec, config: ExperimentConfig) -> Metrics:
    """As the config says, if it does; for a learner that has learnt nothing yet."""
    if config.warm_start is None:
        return {}
    dataset = load_dataset(config.warm_start.dataset)
    check_same_spec(dataset.spec, spec, "the policy that is to start from it")
    return learner.warm_start(dataset.trajectories)
