"""Factory of learners by the class name of the algorithm."""

from __future__ import annotations

from rl4sys.compat.softlearning.components import learner_config, spec_of, split
from rl4sys.config import Settings
from rl4sys.environments.base import Environment
from rl4sys.learner.learner import Learner, build_learner
from rl4sys.registry import ALGORITHMS


def get(params: Settings, environment: Environment, components: Settings | None = None, seed: int = 0) -> Learner:
    """Return a learner for ``environment``. `learn(trajectories)` updates the learner; `policy()` returns its policy.

    ``params`` is ``{"class_name": "SAC", "config": {…}}`` with the arguments of softlearning or of rl4sys.
    ``components`` are the other blocks of a variant: policy_params, Q_params and replay_pool_params.
    """
    names = [name.upper() for name in ALGORITHMS.names()]
    name, config = split(params, "algorithm", sorted(names, key=lambda known: known not in ("SAC", "SQL")))
    variant = {**(components or {}), "algorithm_params": {"class_name": name, "config": config}}
    return build_learner(spec_of(environment), learner_config(variant), seed)
