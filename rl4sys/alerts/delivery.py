"""Background delivery of alerts to a command and a webhook."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.client import HTTPException
from queue import Empty, Full, Queue
from typing import Any

from rl4sys.alerts.rules import AlertConfig
from rl4sys.errors import ConfigError

_QUEUE_SIZE = 32
_GRACE_SECONDS = 2.0
"""Time that `close` waits after the timeout of a receiver, so that the timeout can be reported."""
_MAX_OUTPUT = 300

Receiver = Callable[[Mapping[str, Any]], None]
"""Function that sends one alert; raises `_DeliveryError` with the reason on failure."""


class _DeliveryError(Exception):
    """Failed delivery of an alert; the message gives the reason."""


class Delivery:
    """Sender of alerts with one background thread, which starts with the first alert.

    The queue is bounded: if it is full, new alerts are dropped. Only the first failure of each receiver is reported.
    """

    def __init__(self, config: AlertConfig) -> None:
        self._receivers = _receivers(config)
        self._seconds = config.timeout_seconds
        self._queue: Queue[Mapping[str, Any] | None] = Queue(_QUEUE_SIZE)
        self._errors: Queue[str] = Queue()
        self._failed: set[str] = set()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def send(self, record: Mapping[str, Any]) -> None:
        """Queue an alert. Does not block; thread-safe."""
        if not self._receivers:
            return
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._deliver, name="rl4sys alerts", daemon=True)
                self._thread.start()
        try:
            self._queue.put_nowait(record)
        except Full:
            self._fail("the queue", f"{_QUEUE_SIZE} alerts are waiting to be sent; further alerts are dropped")

    def errors(self) -> list[str]:
        """Return the delivery errors since the last call."""
        found: list[str] = []
        with suppress(Empty):
            while True:
                found.append(self._errors.get_nowait())
        return found

    def close(self) -> None:
        """Wait until the queued alerts are sent, for at most about one timeout per receiver."""
        if self._thread is not None:
            with suppress(Full):
                self._queue.put(None, timeout=self._seconds)
            self._thread.join(self._seconds * len(self._receivers) + _GRACE_SECONDS)
            self._thread = None

    def _deliver(self) -> None:
        while (record := self._queue.get()) is not None:
            for name, receiver in self._receivers.items():
                try:
                    receiver(record)
                except _DeliveryError as error:
                    self._fail(name, f"an alert could not be sent to {name}: {error}")

    def _fail(self, receiver: str, message: str) -> None:
        if receiver not in self._failed:
            self._failed.add(receiver)
            self._errors.put(message)


def _receivers(config: AlertConfig) -> dict[str, Receiver]:
    receivers: dict[str, Receiver] = {}
    if config.command:
        receivers["alerts.command"] = lambda record: _run(config.command, record, config.timeout_seconds)
    if config.webhook:
        address = _address(config.webhook)
        receivers["alerts.webhook"] = lambda record: _post(address, record, config.timeout_seconds)
    return receivers


def _address(webhook: str) -> str:
    if not webhook.startswith("$"):
        return webhook
    address = os.environ.get(webhook[1:], "")
    if not address.startswith(("http://", "https://")):
        raise ConfigError(
            f"alerts.webhook is {webhook}, but the environment variable {webhook[1:]} does not contain an address "
            "that begins with http:// or https://; set the variable, or remove alerts.webhook"
        )
    return address


def _run(command: list[str], record: Mapping[str, Any], seconds: float) -> None:
    environment = {**os.environ, **{f"RL4SYS_ALERT_{name.upper()}": str(value) for name, value in record.items()}}
    try:
        # In a separate session, Ctrl-C does not reach the command, and a timeout kills all child processes.
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise _DeliveryError(f"{command[0]}: {error}") from error
    with process:
        try:
            _, errors = process.communicate(json.dumps(record).encode(), timeout=seconds)
        except subprocess.TimeoutExpired as error:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise _DeliveryError(f"{command[0]} took longer than {seconds:g} seconds") from error
    if process.returncode:
        output = errors.decode(errors="replace").strip()[-_MAX_OUTPUT:]
        raise _DeliveryError(f"{command[0]} exited with code {process.returncode}" + (f": {output}" if output else ""))


def _post(address: str, record: Mapping[str, Any], seconds: float) -> None:
    request = urllib.request.Request(  # noqa: S310 - the config allows only http and https
        address,
        data=json.dumps(record).encode(),
        headers={"Content-Type": "application/json", "User-Agent": "rl4sys"},
        method="POST",
    )
    try:
        with urllib.request.urlopen(request, timeout=seconds):  # noqa: S310
            pass
    except (OSError, HTTPException, ValueError) as error:
        # The message omits the address, because it may contain a secret.
        raise _DeliveryError(str(error)) from error
