"""Tests of the commands that ``rl4sys train`` suggests after training."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rl4sys.cli.views.display import _command


def test_command_off_the_path_is_suggested_with_its_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    environment, scripts = tmp_path / "bin", tmp_path / "scripts"
    for folder in (environment, scripts):
        folder.mkdir()
    (environment / "rl4sys").touch()
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "executable", str(environment / "python"))
    for started in (environment / "rl4sys", scripts / "train.py"):
        monkeypatch.setattr(sys, "argv", [str(started)])
        assert _command("rl4sys") == str(environment / "rl4sys")
