"""Report the errors of a command as a message on stderr and exit code 2."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rl4sys.errors import MissingExtraError, RL4SysError
from rl4sys.extras import needed_by

_EXIT_ERROR = 2


@contextmanager
def errors_as_messages(command: str = "rl4sys") -> Iterator[None]:
    """Print an `RL4SysError` or a missing package as a message and exit; ``--debug`` raises the former instead."""
    try:
        with needed_by("this command"):
            yield
    except RL4SysError as error:
        # A traceback adds nothing to the name of a missing package.
        if "--debug" in sys.argv and not isinstance(error, MissingExtraError):
            raise
        print(f"{command}: {error}", file=sys.stderr)
        sys.exit(_EXIT_ERROR)
