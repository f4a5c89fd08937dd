"""Alerts from their rules in a config to whoever is told of them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from rl4sys.errors import ConfigError, NumericalError
from rl4sys.experiment.alertbook import read_alerts
from rl4sys.experiment.alerts import AlertSettings, StalledRule
from rl4sys.experiment.config import parse_experiment
from rl4sys.experiment.run import Run
from rl4sys.experiment.watch import Subject, Watch

from ..conftest import Silent, small_config
from ..live import eventually


def settings(**options: Any) -> AlertSettings:
    return AlertSettings.model_validate(options)


HIGH = {"high": {"kind": "threshold", "metric": "x", "above": 0.0}}


class Told:
    """A run that is watched, by a clock of its own, and what was noted."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.notes: list[str] = []
        self.now = 0.0
        subject = Subject(path, {"seed": 3}, lambda steps: 0, lambda left: f"make do with {left}")
        self.watch = Watch(settings(**options), subject, self.notes.append, lambda: self.now)


def test_rules_that_nobody_misses_are_on_unless_turned_off() -> None:
    assert list(small_config("ppo").alerts.in_force()) == ["nan", "failed", "memory"]
    assert list(small_config("ppo", "alerts.rules.memory=null").alerts.in_force()) == ["nan", "failed"]
    assert small_config("ppo", "alerts.enabled=false").alerts.in_force() == {}


def test_rules_are_given_by_name_and_changed_one_setting_at_a_time() -> None:
    changes = ["alerts.rules.stalled.steps=500", "alerts.rules.slowly={kind: slow, below: 3}"]
    config = small_config("ppo", *changes)
    assert config.alerts.rules["stalled"] == StalledRule(steps=500)
    assert list(config.alerts.in_force()) == ["nan", "failed", "memory", "stalled", "slowly"]
    assert parse_experiment(config.to_settings()) == config
    off = small_config("ppo", "alerts.rules.nan=null")
    assert parse_experiment(off.to_settings()) == off


MISTAKES = {
    "alerts.rules.stalled.stepz=5": r"alerts.rules.stalled.stepz is not a setting; did you mean steps\?",
    "alerts.rules.x=5": r"alerts.rules.x.kind is 'x', which is no kind of rule. Known: nan, failed, memory, stalled",
    "alerts.rules.x={kind: stallled}": r"which is no kind of rule; did you mean stalled\?",
    "alerts.rules.nan=5": r"alerts.rules.nan is 5; it should be a block of settings",
    "alerts.rules=[nan]": r"alerts.rules is \['nan'\]; it should be a block of rules by name",
    "alerts.rules.threshold.metric=x": r"alerts.rules.threshold is .*; it should have above or below",
    "alerts.rules.slow.rows=true": r"alerts.rules.slow.rows is True; it should be a number",
    "alerts.webhook=ftp://x": r"alerts.webhook is 'ftp://x'; it does not have the right form \(An address",
    "alerts.comand=[x]": r"alerts.comand is not a setting; did you mean command\?",
}


@pytest.mark.parametrize("change", MISTAKES)
def test_mistakes_in_rules_are_explained(change: str) -> None:
    with pytest.raises(ConfigError, match=MISTAKES[change]):
        small_config("ppo", change)


def test_an_alert_is_shown_logged_and_told_once(tmp_path: Path) -> None:
    told = Told(tmp_path, rules=HIGH)
    with told.watch.opened(alone=True):
        for step, value in ((100, -1.0), (200, 1.0), (300, 2.0)):
            told.watch.see(step, {"x": value})
        assert told.watch.active() == ["high: x is 2, above 0"]
    assert told.notes == ["alert high: x is 1, above 0"]
    (alert,) = read_alerts(tmp_path / "alerts.jsonl")
    assert (alert["rule"], alert["kind"], alert["status"], alert["step"]) == ("high", "threshold", "firing", 200)
    assert (alert["value"], alert["seed"], alert["run"]) == (1.0, 3, str(tmp_path))
    assert alert["text"] == f"{tmp_path.name}: high: x is 1, above 0 (step 200)"


def test_what_a_resumed_run_finds_out_again_is_not_told_again(tmp_path: Path) -> None:
    for _ in range(2):
        told = Told(tmp_path, rules=HIGH)
        told.watch.see(200, {"x": 1.0})
    assert told.notes == []
    told.watch.see(300, {"x": -1.0})
    later = Told(tmp_path, rules=HIGH)
    later.watch.see(400, {"x": 1.0})
    assert later.notes == ["alert high: x is 1, above 0"]
    assert [alert["step"] for alert in read_alerts(tmp_path / "alerts.jsonl")] == [200, 400]


def test_a_line_cut_short_spoils_nothing(tmp_path: Path) -> None:
    (tmp_path / "alerts.jsonl").write_bytes(b'{"rule": "high"}\n[1]\n\xff\n{"rule": "hi')
    assert read_alerts(tmp_path / "alerts.jsonl") == [{"rule": "high"}]
    assert read_alerts(tmp_path / "none.jsonl") == []


def test_short_memory_comes_with_advice(tmp_path: Path) -> None:
    told = Told(tmp_path, rules={"memory": {"process_bytes": 1}})
    told.watch.see(1, {"x": 0.0})
    assert "the process takes " in told.notes[0]
    assert "; make do with " in told.notes[0]


def test_memory_is_looked_at_every_five_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(tmp_path)
    looks: list[float] = []
    monkeypatch.setattr("rl4sys.experiment.watch.measure_memory", lambda: looks.append(told.now))
    for told.now in (0.0, 0.5, 4.9, 5.0, 9.0, 30.0):
        told.watch.see(1, {"x": 0.0})
    assert looks == [0.0, 5.0, 30.0]


def test_a_command_gets_the_alert_as_json_and_in_its_environment(tmp_path: Path) -> None:
    script = 'cat > alert.json; echo "$RL4SYS_ALERT_RULE $RL4SYS_ALERT_STEP $RL4SYS_ALERT_MESSAGE" > words'
    told = Told(tmp_path, rules=HIGH, command=["sh", "-c", f'cd "{tmp_path}"; {script}'])
    with told.watch.opened(alone=True):
        told.watch.see(200, {"x": 1.0})
    assert json.loads((tmp_path / "alert.json").read_text()) == read_alerts(tmp_path / "alerts.jsonl")[0]
    assert (tmp_path / "words").read_text() == "high 200 x is 1, above 0\n"
    assert told.notes == ["alert high: x is 1, above 0"]


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        (["sh", "-c", "echo no such channel >&2; exit 3"], "sh ended with code 3: no such channel"),
        (["/nowhere/notify"], "/nowhere/notify: [Errno 2] No such file or directory: '/nowhere/notify'"),
    ],
)
def test_what_cannot_be_sent_is_noted_once_and_training_goes_on(
    tmp_path: Path, command: list[str], problem: str
) -> None:
    told = Told(tmp_path, rules={"high": {**HIGH["high"], "repeat_seconds": 1.0}}, command=command)
    with told.watch.opened(alone=True):
        for told.now in (0.0, 5.0, 10.0):
            told.watch.see(int(told.now), {"x": 1.0})
    assert [note for note in told.notes if not note.startswith("alert ")] == [
        f"an alert could not be sent to alerts.command: {problem}"
    ]
    assert len(read_alerts(tmp_path / "alerts.jsonl")) == 3


def test_a_command_that_hangs_holds_up_nothing_and_is_ended_with_all_it_started(tmp_path: Path) -> None:
    script = f'sleep 600 & echo $! > "{tmp_path}/child"; wait'
    told = Told(tmp_path, rules=HIGH, command=["sh", "-c", script], timeout_seconds=0.3)
    with told.watch.opened(alone=True):
        told.watch.see(200, {"x": 1.0})
        assert told.notes == ["alert high: x is 1, above 0"], "the alert is told before the command has ended"
    assert told.notes[-1] == "an alert could not be sent to alerts.command: sh took longer than 0.3 seconds"
    child = int((tmp_path / "child").read_text())
    eventually(lambda: not is_alive(child))


def is_alive(pid: int) -> bool:
    """One that has ended and that nobody has asked after is not."""
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
        """Quiet."""


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


def test_a_webhook_gets_the_alert_as_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with inbox() as server:
        monkeypatch.setenv("ALERT_HOOK", f"http://127.0.0.1:{server.server_port}/hook")
        told = Told(tmp_path, rules=HIGH, webhook="$ALERT_HOOK")
        with told.watch.opened(alone=True):
            told.watch.see(200, {"x": 1.0})
        ((path, kind, body),) = server.received  # type: ignore[attr-defined]
    assert (path, kind) == ("/hook", "application/json")
    assert json.loads(body) == read_alerts(tmp_path / "alerts.jsonl")[0]
    assert len(told.notes) == 1


def test_a_webhook_that_refuses_is_noted_without_its_address(tmp_path: Path) -> None:
    with inbox(answer=403) as server:
        told = Told(tmp_path, rules=HIGH, webhook=f"http://127.0.0.1:{server.server_port}/secret")
        with told.watch.opened(alone=True):
            told.watch.see(200, {"x": 1.0})
    assert told.notes[1] == "an alert could not be sent to alerts.webhook: HTTP Error 403: Forbidden"


def test_a_webhook_named_by_a_variable_that_is_not_set_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"alerts.webhook is \$NOWHERE, and NOWHERE in the environment holds no addr"):
        Told(tmp_path, webhook="$NOWHERE")


def test_a_rule_may_be_kept_from_being_sent(tmp_path: Path) -> None:
    told = Told(tmp_path, rules={"high": {**HIGH["high"], "send": False}}, command=["touch", f"{tmp_path}/sent"])
    with told.watch.opened(alone=True):
        told.watch.see(200, {"x": 1.0})
    assert len(told.notes) == 1
    assert not (tmp_path / "sent").exists()


def test_a_host_that_hangs_is_told_of_by_a_thread(tmp_path: Path) -> None:
    heard = threading.Event()
    subject = Subject(tmp_path, {}, lambda steps: 0, lambda left: "")
    rules = {"no_progress": {"seconds": 0.02}}
    watch = Watch(settings(rules=rules), subject, lambda note: heard.set())
    with watch.opened(alone=True):
        assert heard.wait(60), "no row was written, and nobody was told"
    assert read_alerts(tmp_path / "alerts.jsonl")[0]["rule"] == "no_progress"


def test_a_host_that_looks_by_itself_is_told_of_silence_and_of_clients(tmp_path: Path) -> None:
    told = Told(tmp_path, rules={"no_progress": {"seconds": 5.0}, "stale_clients": {"seconds": 3.0}})
    with told.watch.opened(alone=False):
        told.now = 6.0
        told.watch.look(1, {"a": 4.0})
        told.watch.see(2, {"x": 0.0})
        told.watch.look(2, {"a": 0.0})
    assert told.notes == [
        "alert stale_clients: nothing came from client a for 4 seconds",
        "alert no_progress: no row for 6 seconds",
        "alert stale_clients has cleared",
        "alert no_progress has cleared",
    ]


def test_a_disk_that_is_full_keeps_no_alert_from_being_sent(tmp_path: Path) -> None:
    sent = tmp_path / "sent"
    told = Told(tmp_path / "gone", rules=HIGH, command=["touch", str(sent)])
    with told.watch.opened(alone=True):
        told.watch.see(200, {"x": 1.0})
    assert told.notes[0] == f"cannot write to {tmp_path}/gone/alerts.jsonl: No such file or directory"
    assert sent.exists()


def test_a_run_that_stops_for_a_number_sends_its_alert(make_trainer: Any, tmp_path: Path) -> None:
    command = f"alerts.command=[touch, {tmp_path}/sent]"
    trainer = make_trainer("dqn", "algorithm.lr=1e30", "environment.normalize_obs=false", command)
    with pytest.raises(NumericalError):
        trainer.train()
    (alert,) = read_alerts(trainer._run.path / "alerts.jsonl")
    assert alert["rule"] == "nan"
    assert "is not finite at step" in alert["message"]
    assert (tmp_path / "sent").exists()


def test_alerts_change_nothing_that_is_learnt(make_trainer: Any) -> None:
    loud = "alerts.rules={always: {kind: threshold, metric: learner/version, above: -1, repeat_seconds: 1e-9}}"
    watched, alone = make_trainer("ppo", loud), make_trainer("ppo", "alerts.enabled=false")
    watched.train()
    alone.train()
    assert len(read_alerts(watched._run.path / "alerts.jsonl")) > 3
    assert not (alone._run.path / "alerts.jsonl").exists()
    assert watched._run.metrics.read_bytes() == alone._run.metrics.read_bytes()


def test_the_alerts_of_a_resumed_run_are_those_of_one_never_stopped(make_trainer: Any) -> None:
    class StopsAfter(Silent):
        rounds = 0

        def progress(self, progress: Any) -> None:
            self.rounds += 1
            if self.rounds == 5:
                stopped.stop()

    rule = "alerts.rules.stalled={metric: episode/return, steps: 300, min_change: 1000}"
    straight, stopped = make_trainer("ppo", rule), make_trainer("ppo", rule, observer=StopsAfter())
    straight.train()
    stopped.train()
    resumed = make_trainer("ppo", run=Run.open(stopped._run.path))
    resumed.resume()
    resumed.train()
    told = [
        [(alert["step"], alert["status"], alert["message"]) for alert in read_alerts(run._run.path / "alerts.jsonl")]
        for run in (straight, resumed)
    ]
    assert told[0] == told[1]
    assert told[0] != []
