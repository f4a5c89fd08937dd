"""Checks of your own components against the rules that the components of RL4Sys follow (docs/own_algorithm.md).

>>> from rl4sys.algorithms.reinforce import Reinforce
>>> from rl4sys.testing import check_algorithm
>>> report = check_algorithm(Reinforce, {"lr": 1e-2, "baseline": "none"})

Each check returns a `Report` of the rules that hold. The first violated rule raises a `ContractError` with the rule,
the observed behavior and a remedy. A `ContractError` is also an `AssertionError`, so a check is a complete test of a
component.
"""

from rl4sys.errors import ContractError
from rl4sys.testing.algorithms import check_algorithm
from rl4sys.testing.buffers import check_buffer
from rl4sys.testing.environments import check_environment
from rl4sys.testing.networks import check_network
from rl4sys.testing.rules import Report

__all__ = ["ContractError", "Report", "check_algorithm", "check_buffer", "check_environment", "check_network"]
