"""What a system under control imports: light, without torch or Gymnasium."""

from typing import TYPE_CHECKING, Any

from rl4sys.policy.draws import Draws
from rl4sys.policy.portable import SnapshotPolicy, load_policy

if TYPE_CHECKING:
    from rl4sys.client.agent import RL4SysAction, RL4SysAgent, RL4SysTrajectory, Statistics

_AGENT = ("RL4SysAction", "RL4SysAgent", "RL4SysTrajectory", "Statistics")


def __getattr__(name: str) -> Any:
    """The agent and its network only for those who ask for them."""
    if name not in _AGENT:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rl4sys.client import agent

    return getattr(agent, name)


__all__ = ["Draws", "RL4SysAction", "RL4SysAgent", "RL4SysTrajectory", "SnapshotPolicy", "Statistics", "load_policy"]
