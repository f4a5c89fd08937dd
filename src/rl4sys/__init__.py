"""A learning policy inside a running system, and the research lab to make one. Start at README.md."""

from typing import Any


def __getattr__(name: str) -> Any:
    # Looked up when asked for, so that a client pays nothing for it.
    if name == "__version__":
        from importlib.metadata import version

        return version("rl4sys")
    raise AttributeError(f"module 'rl4sys' has no attribute {name!r}")
