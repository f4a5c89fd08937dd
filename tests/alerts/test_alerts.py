"""End-to-end tests of alerts: rules in a config, log, command and webhook."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from rl4sys.alerts.log import read_alerts
from rl4sys.alerts.rules import AlertConfig, StalledRule
from rl4sys.alerts.watch import Watch, WatchedRun
from rl4sys.errors import ConfigError, NumericalError
from rl4sys.runs.config import parse_experiment
from rl4sys.runs.run import Run

from ..conftest import SilentObserver, small_config
from ..live import eventually


def settings(**options: Any) -> AlertConfig:
    return AlertConfig.model_validate(options)


HIGH = {"high": {"kind": "threshold", "metric": "x", "above": 0.0}}


class Watched:
    """Watch of a run, with a manual clock and a list of its notes."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.notes: list[str] = []
        self.now = 0.0
        run = WatchedRun(path, {"seed": 3}, lambda steps: 0, lambda left: f"use less than {left}")
        self.watch = Watch(settings(**options), run, self.notes.append, lambda: self.now)


def test_standard_rules_are_enabled_by_default() -> None:
    assert list(small_config("ppo").alerts.active_rules()) == ["nan", "failed", "memory"]
    assert list(small_config("ppo", "alerts.rules.memory=null").alerts.active_rules()) == ["nan", "failed"]
    assert small_config("ppo", "alerts.enabled=false").alerts.active_rules() == {}


def test_rules_are_set_and_overridden_by_name() -> None:
    changes = ["alerts.rules.stalled.steps=500", "alerts.rules.slowly={kind: slow, below: 3}"]
    config = small_config("ppo", *changes)
    assert config.alerts.rules["stalled"] == StalledRule(steps=500)
    assert list(config.alerts.active_rules()) == ["nan", "failed", "memory", "stalled", "slowly"]
    assert parse_experiment(config.to_settings()) == config
    off = small_config("ppo", "alerts.rules.nan=null")
    assert parse_experiment(off.to_settings()) == off


MISTAKES = {
    "alerts.rules.stalled.stepz=5": r"alerts.rules.stalled.stepz is not a setting; did you mean steps\?",
    "alerts.rules.x=5": r"alerts.rules.x.kind is 'x', which is not a kind of rule. Known: nan, failed, memory, stalled",
    "alerts.rules.x={kind: stallled}": r"which is not a kind of rule; did you mean stalled\?",
    "alerts.rules.nan=5": r"alerts.rules.nan is 5; expected a block of settings",
    "alerts.rules=[nan]": r"alerts.rules is \['nan'\]; expected a block of rules by name",
    "alerts.rules.threshold.metric=x": r"alerts.rules.threshold is .*; expected above or below",
    "alerts.rules.slow.rows=true": r"alerts.rules.slow.rows is True; expected a number",
    "alerts.webhook=ftp://x": r"alerts.webhook is 'ftp://x'; expected text that matches .* \(HTTP or HTTPS address",
    "alerts.comand=[x]": r"alerts.comand is not a setting; did you mean command\?",
}


@pytest.mark.parametrize("change", MISTAKES)
def test_invalid_rules_are_rejected(change: str) -> None:
    with pytest.raises(ConfigError, match=MISTAKES[change]):
        small_config("ppo", change)


def test_alert_is_noted_and_logged_once(tmp_path: Path) -> None:
    watched = Watched(tmp_path, rules=HIGH)
    with watched.watch.opened(watchdog=True):
        for step, value in ((100, -1.0), (200, 1.0), (300, 2.0)):
            watched.watch.check_row(step, {"x": value})
        assert watched.watch.active() == ["high: x is 2, above 0"]
    assert watched.notes == ["alert high: x is 1, above 0"]
    (alert,) = read_alerts(tmp_path / "alerts.jsonl")
    assert (alert["rule"], alert["kind"], alert["status"], alert["step"]) == ("high", "threshold", "firing", 200)
    assert (alert["value"], alert["seed"], alert["run"]) == (1.0, 3, str(tmp_path))
    assert alert["text"] == f"{tmp_path.name}: high: x is 1, above 0 (step 200)"


def test_resumed_run_does_not_repeat_alerts(tmp_path: Path) -> None:
    for _ in range(2):
        watched = Watched(tmp_path, rules=HIGH)
        watched.watch.check_row(200, {"x": 1.0})
    assert watched.notes == []
    watched.watch.check_row(300, {"x": -1.0})
    later = Watched(tmp_path, rules=HIGH)
    later.watch.check_row(400, {"x": 1.0})
    assert later.notes == ["alert high: x is 1, above 0"]
    assert [alert["step"] for alert in read_alerts(tmp_path / "alerts.jsonl")] == [200, 400]


def test_truncated_line_in_alert_log_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "alerts.jsonl").write_bytes(b'{"rule": "high"}\n[1]\n\xff\n{"rule": "hi')
    assert read_alerts(tmp_path / "alerts.jsonl") == [{"rule": "high"}]
    assert read_alerts(tmp_path / "none.jsonl") == []


def test_memory_alert_includes_advice(tmp_path: Path) -> None:
    watched = Watched(tmp_path, rules={"memory": {"process_bytes": 1}})
    watched.watch.check_row(1, {"x": 0.0})
    assert "the process uses " in watched.notes[0]
    assert "; use less than " in watched.notes[0]


def test_ram_is_measured_at_most_every_five_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(tmp_path)
    measured: list[float] = []
    monkeypatch.setattr("rl4sys.alerts.watch.measure_memory_usage", lambda: measured.append(watched.now))
    for watched.now in (0.0, 0.5, 4.9, 5.0, 9.0, 30.0):
        watched.watch.check_row(1, {"x": 0.0})
    assert measured == [0.0, 5.0, 30.0]


def test_command_receives_alert_as_json_and_environment(tmp_path: Path) -> None:
    script = 'cat > alert.json; echo "$RL4SYS_ALERT_RULE $RL4SYS_ALERT_STEP $RL4SYS_ALERT_MESSAGE" > text'
    watched = Watched(tmp_path, rules=HIGH, command=["sh", "-c", f'cd "{tmp_path}"; {script}'])
    with watched.watch.opened(watchdog=True):
        watched.watch.check_row(200, {"x": 1.0})
    assert json.loads((tmp_path / "alert.json").read_text()) == read_alerts(tmp_path / "alerts.jsonl")[0]
    assert (tmp_path / "text").read_text() == "high 200 x is 1, above 0\n"
    assert watched.notes == ["alert high: x is 1, above 0"]


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (["sh", "-c", "echo no such channel >&2; exit 3"], "sh exited with code 3: no such channel"),
        (["/nowhere/notify"], "/nowhere/notify: [Errno 2] No such file or directory: '/nowhere/notify'"),
    ],
)
def test_delivery_failure_is_noted_once(tmp_path: Path, command: list[str], error: str) -> None:
    watched = Watched(tmp_path, rules={"high": {**HIGH["high"], "repeat_seconds": 1.0}}, command=command)
    with watched.watch.opened(watchdog=True):
        for watched.now in (0.0, 5.0, 10.0):
            watched.watch.check_row(int(watched.now), {"x": 1.0})
    assert [note for note in watched.notes if not note.startswith("alert ")] == [
        f"an alert could not be sent to alerts.command: {error}"
    ]
    assert len(read_alerts(tmp_path / "alerts.jsonl")) == 3


def test_hanging_command_does_not_block_and_is_killed_with_its_children(tmp_path: Path) -> None:
    script = f'sleep 600 & echo $! > "{tmp_path}/child"; wait'
    watched = Watched(tmp_path, rules=HIGH, command=["sh", "-c", script], timeout_seconds=0.3)
    with watched.watch.opened(watchdog=True):
        watched.watch.check_row(200, {"x": 1.0})
        assert watched.notes == ["alert high: x is 1, above 0"], "the alert is noted before the command has ended"
    assert watched.notes[-1] == "an alert could not be sent to alerts.command: sh took longer than 0.3 seconds"
    child = int((tmp_path / "child").read_text())
    eventually(lambda: not is_alive(child))


def is_alive(pid: int) -> bool:
    """Return True if the process runs and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


class _Inbox(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        self.server.received.append((self.path, self.headers["Content-Type"], self.rfile.read(length)))  # type: ignore[attr-defined]
        self.send_response(self.server.answer)  # type: ignore[attr-defined]
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Suppress the request log of the server."""


@contextmanager
def inbox(answer: int = 200) -> Iterator[HTTPServer]:
    server = HTTPServer(("127.0.0.1", 0), _Inbox)
    server.received, server.answer = [], answer  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_webhook_receives_alert_as_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with inbox() as server:
        monkeypatch.setenv("ALERT_HOOK", f"http://127.0.0.1:{server.server_port}/hook")
        watched = Watched(tmp_path, rules=HIGH, webhook="$ALERT_HOOK")
        with watched.watch.opened(watchdog=True):
            watched.watch.check_row(200, {"x": 1.0})
        ((path, kind, body),) = server.received  # type: ignore[attr-defined]
    assert (path, kind) == ("/hook", "application/json")
    assert json.loads(body) == read_alerts(tmp_path / "alerts.jsonl")[0]
    assert len(watched.notes) == 1


def test_webhook_error_is_noted_without_the_address(tmp_path: Path) -> None:
    with inbox(answer=403) as server:
        watched = Watched(tmp_path, rules=HIGH, webhook=f"http://127.0.0.1:{server.server_port}/secret")
        with watched.watch.opened(watchdog=True):
            watched.watch.check_row(200, {"x": 1.0})
    assert watched.notes[1] == "an alert could not be sent to alerts.webhook: HTTP Error 403: Forbidden"


def test_unset_webhook_variable_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"alerts.webhook is \$NOWHERE, but the environment variable NOWHERE does not"
    ):
        Watched(tmp_path, webhook="$NOWHERE")


def test_alert_of_rule_with_send_false_is_not_sent(tmp_path: Path) -> None:
    watched = Watched(tmp_path, rules={"high": {**HIGH["high"], "send": False}}, command=["touch", f"{tmp_path}/sent"])
    with watched.watch.opened(watchdog=True):
        watched.watch.check_row(200, {"x": 1.0})
    assert len(watched.notes) == 1
    assert not (tmp_path / "sent").exists()


def test_watchdog_thread_reports_a_hanging_host(tmp_path: Path) -> None:
    noted = threading.Event()
    run = WatchedRun(tmp_path, {}, lambda steps: 0, lambda left: "")
    rules = {"no_progress": {"seconds": 0.02}}
    watch = Watch(settings(rules=rules), run, lambda note: noted.set())
    with watch.opened(watchdog=True):
        assert noted.wait(60), "the watchdog did not report the missing rows"
    assert read_alerts(tmp_path / "alerts.jsonl")[0]["rule"] == "no_progress"


def test_check_clients_reports_missing_rows_and_stale_clients(tmp_path: Path) -> None:
    watched = Watched(tmp_path, rules={"no_progress": {"seconds": 5.0}, "stale_clients": {"seconds": 3.0}})
    with watched.watch.opened(watchdog=False):
        watched.now = 6.0
        watched.watch.check_clients(1, {"a": 4.0})
        watched.watch.check_row(2, {"x": 0.0})
        watched.watch.check_clients(2, {"a": 0.0})
    assert watched.notes == [
        "alert stale_clients: no trajectory from client a for 4 seconds",
        "alert no_progress: no metrics row for 6 seconds",
        "alert stale_clients has cleared",
        "alert no_progress has cleared",
    ]


def test_alert_is_sent_when_the_log_cannot_be_written(tmp_path: Path) -> None:
    sent = tmp_path / "sent"
    watched = Watched(tmp_path / "gone", rules=HIGH, command=["touch", str(sent)])
    with watched.watch.opened(watchdog=True):
        watched.watch.check_row(200, {"x": 1.0})
    assert watched.notes[0] == f"cannot write an alert to {tmp_path}/gone/alerts.jsonl: No such file or directory"
    assert sent.exists()


def test_run_stopped_by_nan_sends_alert(make_loop: Any, tmp_path: Path) -> None:
    command = f"alerts.command=[touch, {tmp_path}/sent]"
    trainer = make_loop("dqn", "algorithm.lr=1e30", "environment.normalize_obs=false", command)
    with pytest.raises(NumericalError):
        trainer.train()
    (alert,) = read_alerts(trainer._run.path / "alerts.jsonl")
    assert alert["rule"] == "nan"
    assert "is not finite at step" in alert["message"]
    assert (tmp_path / "sent").exists()


def test_alerts_do_not_change_training(make_loop: Any) -> None:
    loud = "alerts.rules={always: {kind: threshold, metric: learner/version, above: -1, repeat_seconds: 1e-9}}"
    watched, unwatched = make_loop("ppo", loud), make_loop("ppo", "alerts.enabled=false")
    watched.train()
    unwatched.train()
    assert len(read_alerts(watched._run.path / "alerts.jsonl")) > 3
    assert not (unwatched._run.path / "alerts.jsonl").exists()
    assert watched._run.metrics.read_bytes() == unwatched._run.metrics.read_bytes()


def test_resumed_run_has_the_alerts_of_an_uninterrupted_run(make_loop: Any) -> None:
    class StopsAfter(SilentObserver):
        rounds = 0

        def progress(self, progress: Any) -> None:
            self.rounds += 1
            if self.rounds == 5:
                stopped.stop()

    rule = "alerts.rules.stalled={metric: episode/return, steps: 300, min_change: 1000}"
    straight, stopped = make_loop("ppo", rule), make_loop("ppo", rule, observer=StopsAfter())
    straight.train()
    stopped.train()
    resumed = make_loop("ppo", run=Run.open(stopped._run.path))
    resumed.resume()
    resumed.train()
    alerts = [
        [(alert["step"], alert["status"], alert["message"]) for alert in read_alerts(run._run.path / "alerts.jsonl")]
        for run in (straight, resumed)
    ]
    assert alerts[0] == alerts[1]
    assert alerts[0] != []
