"""Factory of replay buffers by the class name of the replay pool in softlearning."""

from __future__ import annotations

from rl4sys.buffers.base import Demand
from rl4sys.buffers.uniform import Replay
from rl4sys.compat.softlearning.components import check_arguments, split
from rl4sys.config import Settings
from rl4sys.learner.config import parse_buffer
from rl4sys.registry import BUFFERS

_POOLS = {"SimpleReplayPool": "uniform", "PrioritizedReplayPool": "prioritized"}
_ARGUMENTS = {"max_size": "size", "storage": "storage", "unstack": "unstack"}


def get(params: Settings, batch_size: int = 256) -> Replay:
    """Return a replay buffer: `add(trajectory, version)` stores steps, `sample(rng, rows)` draws a batch.

    ``params`` is ``{"class_name": "SimpleReplayPool", "config": {"max_size": 1000000}}``.
    """
    name, config = split(params, "replay pool", tuple(_POOLS))
    check_arguments(config, "replay pool", tuple(_ARGUMENTS))
    settings = {"type": _POOLS[name], **{_ARGUMENTS[key]: value for key, value in config.items()}}
    pool: Replay = BUFFERS.get(settings["type"])(parse_buffer(settings, "sac"), Demand(batch_size=batch_size))
    return pool
