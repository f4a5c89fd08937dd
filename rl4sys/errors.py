"""Exceptions raised by rl4sys.

RL4SysError
├── ConfigError          a setting is unknown, missing, of the wrong type or contradicts another one
│   └── MissingExtraError    a setting or command needs a package that is not installed
├── SpecError            data does not fit the declared spaces
│   └── ExportError      a network or policy cannot be exported
├── ContractError        a user-defined component violates its protocol (rl4sys.testing)
├── NumericalError       NaN or infinity in observations, rewards, losses or gradients
└── RunError             a run directory cannot be written, read or resumed
    ├── CheckpointError  a checkpoint is missing, damaged or belongs to another run
    └── ReplayError      an environment does not reach its saved state when its actions are replayed

Each message states the given value, the expected value and the remedy. The command line prints it without a
traceback and exits with code 2.
"""


class RL4SysError(Exception):
    """Base class of all errors that rl4sys raises deliberately.

    >>> import rl4sys
    >>> try:
    ...     rl4sys.train("ppo_cartpole", **{"algorithm.learning_rat": 1e-3})
    ... except rl4sys.RL4SysError as problem:
    ...     print(problem)
    algorithm.learning_rat is not a setting; did you mean lr?...
    """


class ConfigError(RL4SysError):
    """Raised if a setting is unknown, is missing, has the wrong type or contradicts another setting."""


class MissingExtraError(ConfigError):
    """Raised if a setting or command needs a package that is not installed."""


class SpecError(RL4SysError):
    """Raised if data does not fit the declared spaces."""


class ExportError(SpecError):
    """Raised if a network cannot be exported as a policy program, or a policy cannot be exported to a format."""


class ContractError(RL4SysError, AssertionError):
    """Raised by the checks of `rl4sys.testing` if a user-defined component violates its protocol."""


class NumericalError(RL4SysError):
    """Raised for NaN or infinity where a finite number is expected."""


class RunError(RL4SysError):
    """Raised if a run directory cannot be written, read or resumed."""


class CheckpointError(RunError):
    """Raised if a checkpoint is missing, damaged or belongs to another run."""


class ReplayError(RunError):
    """Raised if an environment does not reach its saved state when its actions are replayed."""
