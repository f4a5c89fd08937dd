"""A user program with strict types passes mypy and uses every public name."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import rl4sys

CONSUMER = Path(__file__).with_name("consumer.py")


def test_user_program_passes_strict_mypy(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text(CONSUMER.read_text().replace("episodes=20", 'episodes="20"'))
    options = ["--strict", "--follow-imports=silent", "--cache-dir", str(tmp_path / "cache")]
    command = [sys.executable, "-m", "mypy", *options, str(CONSUMER), str(wrong)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    errors = [line for line in checked.stdout.splitlines() if "error:" in line]
    assert [line for line in errors if "wrong.py" not in line] == []
    assert len(errors) == 1, "the wrong program has one error, so types are checked"
    assert 'has incompatible type "str"; expected "int"' in errors[0]


def test_user_program_uses_every_public_name() -> None:
    tree = ast.parse(CONSUMER.read_text())
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    used |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert {*rl4sys.__all__} - used == set()
