"""Commands that the display suggests after a training."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rl4sys.cli.views.display import _command


def test_suggested_command_exists_for_every_way_of_starting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    environment, scripts = tmp_path / "bin", tmp_path / "scripts"
    for folder in (environment, scripts):
        folder.mkdir()
    (environment / "rl4sys").touch()
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "executable", str(environment / "python"))
    for started in (environment / "rl4sys", scripts / "train.py"):
        monkeypatch.setattr(sys, "argv", [str(started)])
        assert _command("rl4sys") == str(environment / "rl4sys")
