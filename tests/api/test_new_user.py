"""A new user trains in an environment of their own, compares two algorithms and uses the policy, in 25 lines."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).with_name("new_user.py")
BARE = (
    "import rl4sys\n"
    'policy = rl4sys.load_policy("room.safetensors")\n'
    "print(policy.act([-1.0], deterministic=True), policy.act([1.0], deterministic=True))\n"
)


def run(code: str, folder: Path) -> str:
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_new_user_trains_compares_and_uses_a_policy_in_25_lines(tmp_path: Path) -> None:
    lines = [line for line in PROGRAM.read_text().splitlines() if line]
    assert len(lines) <= 25
    compared = run(PROGRAM.read_text(), tmp_path)
    assert "evaluation/return" in compared
    assert "\nppo " in compared
    assert "\na2c " in compared
    assert run(BARE, tmp_path) == "1 0\n", "the policy heats a cold room and no warm room"
