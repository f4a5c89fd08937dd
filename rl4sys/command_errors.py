"""Reporting of command errors: a message on stderr and exit code 2 instead of a traceback."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rl4sys.errors import MissingExtraError, RL4SysError
from rl4sys.extras import needed_by

_EXIT_ERROR = 2


@contextmanager
def errors_as_messages(command: str = "rl4sys") -> Iterator[None]:
    """Print an `RL4SysError` of the command as a message and exit with code 2.

    With ``--debug`` the error is raised instead, except for missing packages.
    """
    try:
        with needed_by("this command"):
            yield
    except RL4SysError as error:
        # The name of the missing package is enough; a traceback would not help.
        if "--debug" in sys.argv and not isinstance(error, MissingExtraError):
            raise
        print(f"{command}: {error}", file=sys.stderr)
        sys.exit(_EXIT_ERROR)
