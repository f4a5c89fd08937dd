"""Client API. Lightweight: imports neither torch nor Gymnasium."""

from typing import TYPE_CHECKING, Any

from rl4sys.policy.draws import Draws
from rl4sys.policy.snapshot_policy import SnapshotPolicy, load_policy

if TYPE_CHECKING:
    from rl4sys.client.agent import RL4SysAction, RL4SysAgent, RL4SysTrajectory, Statistics

_AGENT = ("RL4SysAction", "RL4SysAgent", "RL4SysTrajectory", "Statistics")


def __getattr__(name: str) -> Any:
    """Import the agent classes on first use, because their module imports gRPC."""
    if name not in _AGENT:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rl4sys.client import agent

    return getattr(agent, name)


__all__ = ["Draws", "RL4SysAction", "RL4SysAgent", "RL4SysTrajectory", "SnapshotPolicy", "Statistics", "load_policy"]
