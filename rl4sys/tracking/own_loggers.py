"""Custom loggers, registered with ``@register_logger`` and listed in ``logging.loggers``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rl4sys.errors import ConfigError
from rl4sys.registry import LOGGERS
from rl4sys.runs.run import Run


class OwnLogger:
    """Adapter that calls a custom logger of a plugin.

    The method ``log`` of a custom logger takes (step, metrics) or (metrics, step). It may have more parameters, such as
    ``prefix``, if they have default values. The methods ``log_video(step, path)`` and ``close()`` are optional. An
    exception turns the custom logger off and is reported once, because logging must not change the run.
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
            # A plugin may raise any exception.
            self._is_on = False
            self._note(f"the logger {self._name!r} failed in {method}() and is turned off: {problem!r}")


def _create(name: str, run: Run) -> Any:
    """Create a custom logger. Pass the run directory and logging config if the constructor takes two arguments."""
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
