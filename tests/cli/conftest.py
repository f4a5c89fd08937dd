"""Fixtures that call ``rl4sys`` commands in this process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from rl4sys.cli.main import main
from rl4sys.config import to_yaml

from ..conftest import SMALL


@dataclass(frozen=True)
class Outcome:
    exit_code: int
    out: str
    err: str


Rl4sys = Callable[..., Outcome]


@pytest.fixture
def rl4sys(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., Outcome]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments: str | Path) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["rl4sys", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return Outcome(int(ended.value.code or 0), captured.out, captured.err)

    return call


@pytest.fixture
def small_file(tmp_path: Path) -> Path:
    """Config file of a small PPO experiment."""
    path = tmp_path / "small.yaml"
    path.write_text(to_yaml(SMALL["ppo"]))
    return path


@pytest.fixture
def finished_run(rl4sys: Rl4sys, small_file: Path, tmp_path: Path) -> Path:
    assert rl4sys("train", small_file, "--total-timesteps", "200").exit_code == 0
    return runs_in(tmp_path / "experiments")[0]


def runs_in(root: Path) -> list[Path]:
    """Return the run directories in a folder, without its index file."""
    return sorted(path for path in root.iterdir() if path.is_dir())
