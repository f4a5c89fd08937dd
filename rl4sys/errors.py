"""Exceptions raised by rl4sys.

RL4SysError
├── ConfigError          a setting is unknown, missing, of the wrong type or does not fit the others
│   └── MissingExtraError    a setting or command needs a package that is not installed
├── SpecError            data does not fit the declared spaces
│   └── ExportError      a network cannot be written as a policy program
├── NumericalError       NaN or infinity in observations, rewards, losses or gradients
└── RunError             a run directory cannot be written, read or resumed
    ├── CheckpointError  a checkpoint is missing, damaged or of another run
    └── ReplayError      an environment does not reach its saved state when its actions are replayed

Each message states the given value, the expected value and the remedy. The command line prints it without a
traceback and exits with code 2.
"""


class RL4SysError(Exception):
    """Base class of all errors that rl4sys raises deliberately."""


class ConfigError(RL4SysError):
    """A setting is unknown, missing, of the wrong type or does not fit the others."""


class MissingExtraError(ConfigError):
    """A setting or command needs a package that is not installed."""


class SpecError(RL4SysError):
    """Data does not fit the declared spaces."""


class ExportError(SpecError):
    """A network cannot be written as a policy program."""


class NumericalError(RL4SysError):
    """NaN or infinity where a finite number was expected."""


class RunError(RL4SysError):
    """A run directory cannot be written, read or resumed."""


class CheckpointError(RunError):
    """A checkpoint is missing, damaged or of another run."""


class ReplayError(RunError):
    """An environment does not reach its saved state when its actions are replayed."""
