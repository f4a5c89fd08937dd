"""Run once in the process that learners are forked from: loads what they need, and outlives a SIGTERM to the group.

The server is told to stop by the same signal, and needs its learners alive to save.
"""

import signal

import rl4sys.algorithms.dqn
import rl4sys.algorithms.ppo
import rl4sys.server.worker  # noqa: F401

signal.signal(signal.SIGTERM, signal.SIG_IGN)
