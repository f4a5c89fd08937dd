"""Modules that clients and read-only commands must not import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from .runs.runs import make_run


def loaded_by(code: str) -> set[str]:
    script = f"{code}\nimport sys; print(' '.join(sys.modules))"
    return set(
        subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout.split()
    )


def test_client_does_not_import_torch_gymnasium_or_pandas() -> None:
    loaded = loaded_by("import rl4sys.client")
    assert "rl4sys.client" in loaded
    assert not loaded & {"torch", "gymnasium", "pandas", "matplotlib", "typer", "rich", "tensorboard", "wandb"}


def test_command_line_app_does_not_import_torch() -> None:
    assert "torch" not in loaded_by("import rl4sys.cli.app")


READ_ONLY_COMMANDS = [
    ["list", "--root", "{root}"],
    ["list", "--filter", "reward>1", "--json", "--root", "{root}"],
    ["show", "{root}/pole"],
    ["compare", "{root}/pole", "{root}/other", "--html", "{root}/page.html"],
    ["analyze", "{root}/pole", "--html", "{root}/page.html"],
    ["analyze", "{root}"],
    ["monitor", "--once", "--root", "{root}"],
    ["export", "{root}/pole"],
    ["tag", "{root}/pole", "baseline"],
    ["cleanup", "--dry-run", "--root", "{root}"],
    ["store", "rebuild", "--root", "{root}"],
    ["config", "show", "algorithms/ppo"],
    ["config", "list"],
]


@pytest.mark.parametrize("command", READ_ONLY_COMMANDS, ids=" ".join)
def test_read_only_commands_do_not_import_torch(tmp_path: Path, command: list[str]) -> None:
    make_run(tmp_path, "pole")
    make_run(tmp_path, "other", settings={"algorithm": {"lr": 0.01}})
    arguments = [word.format(root=tmp_path) for word in command]
    code = f"from rl4sys.cli.app import app\napp({arguments!r}, standalone_mode=False)"
    loaded = loaded_by(code)
    assert f"rl4sys.cli.commands.{command[0]}" in loaded
    assert not loaded & {"torch", "gymnasium"}


def test_analyze_reads_solved_threshold_without_importing_torch(tmp_path: Path) -> None:
    make_run(tmp_path, "pole", settings={"environment": {"wrapper": "gym"}})
    code = f"from rl4sys.cli.app import app\napp(['analyze', '{tmp_path}/pole'], standalone_mode=False)"
    loaded = loaded_by(code)
    assert "gymnasium" in loaded
    assert "torch" not in loaded


def test_list_does_not_import_numpy(tmp_path: Path) -> None:
    make_run(tmp_path, "pole")
    loaded = loaded_by(f"from rl4sys.cli.app import app\napp(['list', '--root', '{tmp_path}'], standalone_mode=False)")
    assert "rl4sys.runs.query" in loaded
    assert "numpy" not in loaded


MODULES_WITHOUT_TORCH = [
    "rl4sys.config",
    "rl4sys.registry",
    "rl4sys.runs.directory",
    "rl4sys.runs.store",
    "rl4sys.runs.query",
    "rl4sys.runs.monitor",
    "rl4sys.runs.scoring",
    "rl4sys.runs.cleanup",
    "rl4sys.runs.series_files",
    "rl4sys.analysis.history",
    "rl4sys.analysis.comparison_report",
    "rl4sys.analysis.run_report",
    "rl4sys.analysis.sweep_report",
]


@pytest.mark.parametrize("module", MODULES_WITHOUT_TORCH)
def test_modules_that_read_runs_do_not_import_torch(module: str) -> None:
    loaded = loaded_by(f"import {module}")
    assert module in loaded
    assert not loaded & {"torch", "gymnasium"}


def test_config_handling_does_not_import_torch() -> None:
    code = """
from rl4sys import config
from rl4sys.config.migration import migrate
settings = config.override(config.load("ppo_cartpole"), ["algorithm.lr=1e-4"])
draft = migrate({**settings, "version": 0}, {0: lambda draft: draft.move("training", "trained")}, 0)
assert draft.settings["algorithm"]["lr"] == 1e-4 and "trained" in draft.settings
"""
    assert "torch" not in loaded_by(code)


def test_disabled_native_core_is_not_imported() -> None:
    code = """
import os, sys
os.environ['RL4SYS_NUMPY'] = '1'
from rl4sys.policy import native_program
assert not native_program.NATIVE
"""
    assert "rl4sys._core" not in loaded_by(code)
