"""Entry point of ``python -m rl4sys.server.server``, the same command as ``rl4sys serve``."""

from __future__ import annotations

from collections.abc import Sequence

from rl4sys.command_errors import errors_as_messages


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a training server; ``arguments`` are options of ``rl4sys serve`` (default: ``sys.argv``)."""
    with errors_as_messages():
        # Imported here for two reasons: learner processes import this module as their main module, but do not need the
        # command, and inside the context a missing package is reported without a traceback.
        from rl4sys.server.command import main as serve

        serve(arguments)


if __name__ == "__main__":
    main()
