"""Entry point of ``python -m rl4sys.server.server``, the same command as ``rl4sys serve``."""

from __future__ import annotations

from collections.abc import Sequence

from rl4sys.command_errors import errors_as_messages


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a training server; ``arguments`` are those of ``rl4sys serve`` (default: those of this process)."""
    with errors_as_messages():
        # Imported only here: each learner process imports this module again as its main module, and a missing package
        # is reported as a message.
        from rl4sys.server.command import main as serve

        serve(arguments)


if __name__ == "__main__":
    main()
