"""Every exception a user can meet.

RL4SysError
├── ConfigError          a setting is unknown, missing, of the wrong type or does not fit the others
│   └── MissingExtraError    the setting needs a package that is not installed
├── SpecError            data does not fit the declared spaces
│   └── ExportError      a network cannot be written as a policy program
├── NumericalError       NaN or infinity in observations, rewards, losses or gradients
└── RunError             a run directory cannot be written, read or resumed
    ├── CheckpointError  a checkpoint is missing, damaged or of another run
    └── ReplayError      an environment does not come back to where it was

Each message says what was given, what was expected and what to do. The command line prints it
without a traceback and exits with code 2.
"""


class RL4SysError(Exception):
    """Base of all errors raised on purpose by rl4sys."""


class ConfigError(RL4SysError):
    """A setting is unknown, missing, of the wrong type or does not fit the others."""


class MissingExtraError(ConfigError):
    """The setting needs a package that is not installed."""


class SpecError(RL4SysError):
    """Data does not fit the declared spaces."""


class ExportError(SpecError):
    """A network cannot be written as a policy program."""


class NumericalError(RL4SysError):
    """NaN or infinity where a number was expected."""


class RunError(RL4SysError):
    """A run directory cannot be written, read or resumed."""


class CheckpointError(RunError):
    """A checkpoint is missing, damaged or of another run."""


class ReplayError(RunError):
    """An environment does not come back to where it was."""
