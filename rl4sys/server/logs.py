"""Log of the server: readable lines on stderr, and JSON lines in ``server.log``."""

from __future__ import annotations

import json
import logging
from logging.handlers import RotatingFileHandler
from pathlib import Path

from rl4sys.errors import RunError
from rl4sys.server.sanitize import escape_unprintable

FILE = "server.log"
_MAX_BYTES, _BACKUPS = 10 * 2**20, 3
_STANDARD_FIELDS = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def set_up_logging(root: Path, *, debug: bool) -> None:
    """Send the log of `rl4sys` to stderr and to a rotating file in `root`."""
    logger = logging.getLogger("rl4sys")
    logger.setLevel(logging.DEBUG if debug else logging.INFO)
    try:
        root.mkdir(parents=True, exist_ok=True)
        file = RotatingFileHandler(root / FILE, maxBytes=_MAX_BYTES, backupCount=_BACKUPS, delay=True)
    except OSError as error:
        raise RunError(f"cannot write a log in {root}: {error.strerror}; choose another --root") from error
    file.setFormatter(_JsonFormatter())
    terminal = logging.StreamHandler()
    terminal.setFormatter(_LineFormatter())
    for handler in (file, terminal):
        logger.addHandler(handler)


def _extra_fields(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD_FIELDS}


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        trace = {"traceback": self.formatException(record.exc_info)} if record.exc_info else {}
        return json.dumps(fields | _extra_fields(record) | trace, default=str)


class _LineFormatter(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:
        fields = "".join(f"  {name}={value}" for name, value in _extra_fields(record).items())
        return escape_unprintable(super().formatMessage(record) + fields)
