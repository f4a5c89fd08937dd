"""Alerts on their way to a command and a webhook, without training having to wait for either."""

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

from rl4sys.errors import ConfigError
from rl4sys.experiment.alerts import AlertSettings

_MOST_WAITING = 32
_GRACE_SECONDS = 2.0
"""To say that a place took too long."""
_LONGEST_OUTPUT = 300

Place = Callable[[Mapping[str, Any]], None]
"""Takes an alert there; raises `_Undelivered` with the reason where it cannot."""


class _Undelivered(Exception):
    """Why an alert did not arrive."""


class Delivery:
    """One thread, started with the first alert, takes them to each place in turn. Beyond a few that wait, new ones are
    dropped; of each place only the first failure is told."""

    def __init__(self, settings: AlertSettings) -> None:
        self._places = _places(settings)
        self._seconds = settings.timeout_seconds
        self._waiting: Queue[Mapping[str, Any] | None] = Queue(_MOST_WAITING)
        self._problems: Queue[str] = Queue()
        self._failed: set[str] = set()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def send(self, record: Mapping[str, Any]) -> None:
        """Returns at once; may be called from any thread."""
        if not self._places:
            return
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._deliver, name="rl4sys alerts", daemon=True)
                self._thread.start()
        try:
            self._waiting.put_nowait(record)
        except Full:
            self._fail("the queue", f"{_MOST_WAITING} alerts wait to be sent; more are dropped")

    def problems(self) -> list[str]:
        """What went wrong since this was last asked."""
        found: list[str] = []
        with suppress(Empty):
            while True:
                found.append(self._problems.get_nowait())
        return found

    def close(self) -> None:
        """Wait for what is on its way, but not for longer than each place may take."""
        if self._thread is not None:
            with suppress(Full):
                self._waiting.put(None, timeout=self._seconds)
            self._thread.join(self._seconds * len(self._places) + _GRACE_SECONDS)
            self._thread = None

    def _deliver(self) -> None:
        while (record := self._waiting.get()) is not None:
            for name, place in self._places.items():
                try:
                    place(record)
                except _Undelivered as problem:
                    self._fail(name, f"an alert could not be sent to {name}: {problem}")

    def _fail(self, place: str, message: str) -> None:
        if place not in self._failed:
            self._failed.add(place)
            self._problems.put(message)


def _places(settings: AlertSettings) -> dict[str, Place]:
    places: dict[str, Place] = {}
    if settings.command:
        places["alerts.command"] = lambda record: _run(settings.command, record, settings.timeout_seconds)
    if settings.webhook:
        address = _address(settings.webhook)
        places["alerts.webhook"] = lambda record: _post(address, record, settings.timeout_seconds)
    return places


def _address(webhook: str) -> str:
    if not webhook.startswith("$"):
        return webhook
    address = os.environ.get(webhook[1:], "")
    if not address.startswith(("http://", "https://")):
        raise ConfigError(
            f"alerts.webhook is {webhook}, and {webhook[1:]} in the environment holds no address that begins with "
            "http:// or https://; set it, or remove the setting"
        )
    return address


def _run(command: list[str], record: Mapping[str, Any], seconds: float) -> None:
    environment = {**os.environ, **{f"RL4SYS_ALERT_{name.upper()}": str(value) for name, value in record.items()}}
    try:
        # A session of its own: Ctrl-C is for the run, and one that takes too long ends with all that it started.
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
    except (OSError, ValueError) as problem:
        raise _Undelivered(f"{command[0]}: {problem}") from problem
    with process:
        try:
            _, errors = process.communicate(json.dumps(record).encode(), timeout=seconds)
        except subprocess.TimeoutExpired as problem:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise _Undelivered(f"{command[0]} took longer than {seconds:g} seconds") from problem
    if process.returncode:
        said = errors.decode(errors="replace").strip()[-_LONGEST_OUTPUT:]
        raise _Undelivered(f"{command[0]} ended with code {process.returncode}" + (f": {said}" if said else ""))


def _post(address: str, record: Mapping[str, Any], seconds: float) -> None:
    request = urllib.request.Request(  # noqa: S310 - http and https only, as the settings make sure
        address,
        data=json.dumps(record).encode(),
        headers={"Content-Type": "application/json", "User-Agent": "rl4sys"},
        method="POST",
    )
    try:
        with urllib.request.urlopen(request, timeout=seconds):  # noqa: S310
            pass
    except (OSError, HTTPException, ValueError) as problem:
        # The address is left out: whoever knows it may post there.
        raise _Undelivered(str(problem)) from problem
