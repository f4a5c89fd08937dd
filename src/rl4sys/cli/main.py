"""The command ``rl4sys``: one module per command, errors as messages."""

from __future__ import annotations

import sys

from rl4sys.errors import MissingExtraError, RL4SysError

_TRAINING_PACKAGES = ("torch", "gymnasium", "typer", "rich", "tensorboard")
_EXIT_ERROR = 2


def main() -> None:
    """Entry point. A mistake of the user's ends in a message and exit code 2; ``--debug`` shows the traceback."""
    try:
        _run()
    except RL4SysError as error:
        _fail(error)
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] not in _TRAINING_PACKAGES:
            raise
        _fail(
            MissingExtraError(f"this command needs {error.name}, which is not installed: pip install 'rl4sys[train]'")
        )


def _run() -> None:
    from rl4sys.cli.app import app

    app()


def _fail(error: RL4SysError) -> None:
    if "--debug" in sys.argv:
        raise error
    print(f"rl4sys: {error}", file=sys.stderr)
    sys.exit(_EXIT_ERROR)


if __name__ == "__main__":
    main()
