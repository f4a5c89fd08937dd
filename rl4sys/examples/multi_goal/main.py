"""Train on the multi-goal plane and print the goals that the trained policy reaches.

python -m examples.multi_goal.main                    # soft Q-learning, about a minute
python -m examples.multi_goal.main --algorithm SAC
"""

from __future__ import annotations

from argparse import ArgumentParser
from collections import Counter
from collections.abc import Sequence

import numpy as np

from rl4sys.command_errors import errors_as_messages
from rl4sys.environments.actor_factory import make_evaluation_actor
from rl4sys.environments.config import EnvironmentConfig
from rl4sys.environments.families.multigoal import GOALS
from rl4sys.policy.base import Policy

from ..development.main import ExperimentRunner
from .variants import get_variant_spec

_STEPS = 3000


def reached_goals(environment: EnvironmentConfig, policy: Policy, steps: int = _STEPS) -> Counter[tuple[int, ...]]:
    """Count how often the policy reaches each goal in ``steps`` steps with sampled actions."""
    actor = make_evaluation_actor(environment, np.random.SeedSequence(0))
    trajectories = actor.collect(policy, version=0, steps=steps)
    actor.close()
    ends = [next(iter(t.columns[name] for name in t.columns if name.startswith("obs.")))[-1] for t in trajectories]
    terminated = [end for end, trajectory in zip(ends, trajectories, strict=True) if trajectory.terminated]
    nearest = [np.linalg.norm(GOALS - end, axis=1).argmin() for end in terminated]
    return Counter(tuple(int(x) for x in GOALS[index]) for index in nearest)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train on the multi-goal plane and print how often each goal is reached."""
    parser = ArgumentParser(prog="python -m examples.multi_goal.main", description="Train on the multi-goal plane.")
    parser.add_argument("--algorithm", default="SQL", help="SQL or SAC")
    parser.set_defaults(domain=None)
    with errors_as_messages():
        runner = ExperimentRunner(get_variant_spec(parser.parse_args(arguments)))
        print(f"run directory: {runner.run.path}")
        runner.train()
        assert runner.policy is not None  # fully connected networks always have a snapshot
        for goal, episodes in reached_goals(runner.run.config.environment, runner.policy).items():
            print(f"goal {goal}: {episodes} episodes")


if __name__ == "__main__":
    main()
