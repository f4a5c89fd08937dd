"""Loggers of one's own, registered with ``@register_logger`` and listed in ``logging.loggers``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rl4sys.errors import ConfigError
from rl4sys.registry import LOGGERS
from rl4sys.runs.run import Run


class OwnLogger:
    """Calls a logger of one's own.

    Its ``log`` has either the parameters (step, metrics), or (metrics, step), optionally with a prefix, which is empty
    because the names of metrics have theirs. ``log_video(step, path)`` and ``close()`` are optional. An exception turns
    the logger off and is reported once, because logging must not change the run.
    """

    def __init__(self, name: str, run: Run, note: Callable[[str], None]) -> None:
        self._name, self._note, self._is_on = name, note, True
        self._logger = _create(name, run)
        self._takes_step_first = next(iter(inspect.signature(self._logger.log).parameters), "") == "step"

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        row = dict(metrics)
        self._call("log", *((step, row) if self._takes_step_first else (row, step)))

    def log_video(self, step: int, video: Path) -> None:
        self._call("log_video", step, video)

    def close(self) -> None:
        self._call("close")

    def _call(self, method: str, *arguments: Any) -> None:
        if not self._is_on or not hasattr(self._logger, method):
            return
        try:
            getattr(self._logger, method)(*arguments)
        except Exception as problem:
            # Third-party code may raise anything.
            self._is_on = False
            self._note(f"the logger {self._name!r} failed in {method} and is off from now on: {problem!r}")


def _create(name: str, run: Run) -> Any:
    """Create a logger with the run directory and the logging config, if its constructor takes two arguments."""
    make = LOGGERS.get(name)
    arguments = (run.path, run.config.logging)
    signature = inspect.signature(make)
    for given in (arguments, ()):
        try:
            signature.bind(*given)
        except TypeError:
            continue
        return make(*given)
    raise ConfigError(
        f"the logger {name!r} is called as {name}(exp_dir, config) or {name}(), but takes {signature}; change its "
        "constructor"
    )
