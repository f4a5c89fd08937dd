"""Tests of custom loggers from plugins."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from rl4sys.components import register_logger
from rl4sys.config import to_yaml
from rl4sys.errors import ConfigError
from rl4sys.registry import LOGGERS
from rl4sys.runs.metrics import read_metrics
from rl4sys.runs.run import Run
from rl4sys.tracking.loggers import make_loggers

from ..cli.conftest import Rl4sys, rl4sys, runs_in  # noqa: F401 - a fixture
from ..conftest import SMALL

TUTORIAL = Path(__file__).parents[2] / "docs" / "own_algorithm.md"


@pytest.fixture(autouse=True)
def own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LOGGERS, "_own", {})


def settings(**logging: Any) -> dict[str, Any]:
    return {**SMALL["ppo"], "logging": {"terminal": False, "tensorboard": False, **logging}}


def test_tutorial_logger_receives_all_rows(rl4sys: Rl4sys, tmp_path: Path) -> None:  # noqa: F811
    section = TUTORIAL.read_text().partition("## A logger of your own")[2]
    (tmp_path / "lines.py").write_text(re.findall(r"```python\n(.*?)```", section, re.DOTALL)[0])
    (tmp_path / "a.yaml").write_text(to_yaml(settings(loggers=["lines"]) | {"plugins": ["lines.py"]}))
    outcome = rl4sys("train", "a.yaml", "--total-timesteps", "300")
    assert outcome.exit_code == 0, outcome.err
    run = runs_in(tmp_path / "experiments")[0]
    rows = [json.loads(line) for line in (run / "logs" / "lines.txt").read_text().splitlines()]
    assert rows == list(read_metrics(run / "metrics.jsonl"))
    assert rows


def make_run(tmp_path: Path, name: str) -> Run:
    from rl4sys.runs.config import parse_experiment

    return Run(tmp_path, parse_experiment(settings(loggers=[name])))


def test_log_method_with_step_as_first_argument_is_supported(tmp_path: Path) -> None:
    seen: list[Any] = []

    @register_logger("ours")
    class Ours:
        def log(self, step: int, metrics: Any) -> None:
            seen.append((step, metrics))

    (logger,) = make_loggers(make_run(tmp_path, "ours"), 0, seen.append)
    logger.log(5, {"x": 1.0})
    logger.log_video(5, tmp_path / "v.mp4")
    logger.close()
    assert seen == [(5, {"x": 1.0})]


def test_failing_logger_is_reported_once_and_turned_off(tmp_path: Path) -> None:
    notes: list[str] = []

    @register_logger("broken")
    class Broken:
        def log(self, metrics: Any, step: int) -> None:
            raise KeyError(step)

    (logger,) = make_loggers(make_run(tmp_path, "broken"), 0, notes.append)
    logger.log(5, {"x": 1.0})
    logger.log(6, {"x": 1.0})
    assert notes == ["the logger 'broken' failed in log() and is turned off: KeyError(5)"]


def test_invalid_loggers_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"the logger 'liens' is not registered; add its module to `plugins:`\. Known: none"
    ):
        make_run(tmp_path, "liens")
    with pytest.raises(ConfigError, match=r"Mute, registered as 'mute', has no log\. Add them"):
        register_logger("mute")(type("Mute", (), {}))

    @register_logger("demanding")
    class Demanding:
        def __init__(self, one: Any, two: Any, three: Any) -> None: ...

        def log(self, metrics: Any, step: int) -> None: ...

    with pytest.raises(ConfigError, match=r"called as demanding\(exp_dir, config\) or demanding\(\), but takes"):
        make_loggers(make_run(tmp_path, "demanding"), 0, print)
