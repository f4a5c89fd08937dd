"""The server's log: lines for people on stderr, and the same as JSON, a record a line, in its directory."""

from __future__ import annotations

import json
import logging
from logging.handlers import RotatingFileHandler
from pathlib import Path

from rl4sys.errors import RunError
from rl4sys.server.words import on_one_line

FILE = "server.log"
_BYTES, _FILES = 10 * 2**20, 3
_PLAIN = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def set_up_logging(root: Path, *, debug: bool) -> None:
    logger = logging.getLogger("rl4sys")
    logger.setLevel(logging.DEBUG if debug else logging.INFO)
    try:
        root.mkdir(parents=True, exist_ok=True)
        file = RotatingFileHandler(root / FILE, maxBytes=_BYTES, backupCount=_FILES, delay=True)
    except OSError as problem:
        raise RunError(
            f"cannot write a log in {root}: {problem.strerror}; choose another place with --root"
        ) from problem
    file.setFormatter(_JsonLines())
    terminal = logging.StreamHandler()
    terminal.setFormatter(_People())
    for handler in (file, terminal):
        logger.addHandler(handler)


def _fields(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in vars(record).items() if name not in _PLAIN}


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        known = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        trace = {"traceback": self.formatException(record.exc_info)} if record.exc_info else {}
        return json.dumps(known | _fields(record) | trace, default=str)


class _People(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:
        fields = "".join(f"  {name}={value}" for name, value in _fields(record).items())
        return on_one_line(super().formatMessage(record) + fields)
