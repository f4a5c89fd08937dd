"""What a system under control must not be made to load."""

from __future__ import annotations

import subprocess
import sys


def loaded_by(code: str) -> set[str]:
    script = f"{code}\nimport sys; print(' '.join(sys.modules))"
    return set(
        subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout.split()
    )


def test_the_client_loads_no_torch_no_gymnasium_no_pandas() -> None:
    loaded = loaded_by("import rl4sys.client")
    assert "rl4sys.client" in loaded
    assert not loaded & {"torch", "gymnasium", "pandas", "matplotlib", "typer", "rich", "tensorboard", "wandb"}


def test_help_loads_no_torch() -> None:
    assert "torch" not in loaded_by("import rl4sys.cli.app")


def test_the_numpy_form_is_used_where_the_core_is_missing_or_unwanted() -> None:
    code = """
import os, sys
os.environ['RL4SYS_NUMPY'] = '1'
from rl4sys.policy import native_form
assert not native_form.NATIVE
"""
    assert "rl4sys._core" not in loaded_by(code)
