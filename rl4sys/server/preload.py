"""Preload module: imports torch and the learner once, in the fork server of learner processes."""

import signal
from contextlib import suppress

import numpy as np

import rl4sys.server.learner_process  # noqa: F401
from rl4sys.algorithms.device import use_threads
from rl4sys.learner.config import LearnerConfig, parse_algorithm, parse_buffer
from rl4sys.learner.learner import build_learner
from rl4sys.spec import Array, Box, Discrete, Spec
from rl4sys.trajectory import Trajectory
from rl4sys.workers.fork_server import freeze_loaded_modules


def _learn_once() -> None:
    """Run one small PPO update.

    Torch allocates about 100 MB of RAM at its first use. All learner processes share this RAM if the fork server
    allocates it.
    """
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


# With one thread, torch starts no thread pool, which would not survive a fork.
use_threads(1)
_learn_once()
# Learners that write TensorBoard event files use these modules.
with suppress(ModuleNotFoundError):
    import tensorboard.compat.proto.event_pb2
    import tensorboard.summary.writer.event_file_writer  # noqa: F401
freeze_loaded_modules()
# A SIGTERM to the process group is ignored here, because the server also receives it and tells each learner to save.
signal.signal(signal.SIGTERM, signal.SIG_IGN)
