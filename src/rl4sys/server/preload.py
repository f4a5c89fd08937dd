"""Run once in the process that learners are forked from: loads what they need, and outlives a SIGTERM to the group.

The server is told to stop by the same signal, and needs its learners alive to save.
"""

import gc
import signal
from contextlib import suppress

import numpy as np

from rl4sys.algorithms.device import use_threads
from rl4sys.learner import LearnerConfig, build_learner, parse_algorithm, parse_buffer
from rl4sys.server import worker
from rl4sys.spec import Array, Box, Discrete, Spec
from rl4sys.trajectory import Trajectory

__all__ = ["worker"]


def _learn_once() -> None:
    """Torch loads half of itself when first used: a hundred megabytes that every learner would have for itself."""
    spec = Spec({"state": Box((1,))}, Discrete(2))
    config = LearnerConfig(
        algorithm=parse_algorithm({"name": "ppo", "epochs": 1}),
        networks={},
        buffer=parse_buffer({"size": 2}, "ppo"),
    )
    columns: dict[str, Array] = {
        "obs.state": np.zeros((3, 1), np.float32),
        "action": np.zeros(2, np.int64),
        "reward": np.zeros(2, np.float32),
        "log_prob": np.zeros(2, np.float32),
    }
    learner = build_learner(spec, config, seed=0)
    learner.learn([Trajectory(0, columns, terminated=True)])
    learner.snapshot()


# A pool of threads does not survive a fork.
use_threads(1)
_learn_once()
# For logs, if they are on.
with suppress(ModuleNotFoundError):
    import tensorboard.compat.proto.event_pb2
    import tensorboard.summary.writer.event_file_writer  # noqa: F401
# What is loaded now is never garbage. Left to the collector, every learner would write to, and so copy, all its pages.
gc.collect()
gc.freeze()
signal.signal(signal.SIGTERM, signal.SIG_IGN)
