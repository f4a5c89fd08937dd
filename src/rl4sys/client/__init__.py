"""What a system under control imports: light, without torch or Gymnasium."""

from rl4sys.policy.draws import Draws
from rl4sys.policy.portable import SnapshotPolicy, load_policy

__all__ = ["Draws", "SnapshotPolicy", "load_policy"]
