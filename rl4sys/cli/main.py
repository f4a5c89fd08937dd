"""Entry point of the command ``rl4sys``."""

from __future__ import annotations

from collections.abc import Sequence

from rl4sys.command_errors import errors_as_messages


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line with ``arguments``, or with the arguments of this process if None.

    Errors are printed as a message with exit code 2; ``--debug`` shows the traceback.
    """
    with errors_as_messages():
        # Imported here so that a missing package is reported as a message.
        from rl4sys.cli.app import app

        app(None if arguments is None else list(arguments), prog_name="rl4sys")


if __name__ == "__main__":
    main()
