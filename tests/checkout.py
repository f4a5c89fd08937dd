"""Copies of this checkout for tests that install or change it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent


def copy_checkout(target: Path, *skipped: str) -> list[str]:
    """Copy the tracked and new files, except those below ``skipped``. Returns the names of the copied files."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    names = [name for name in names if (ROOT / name).exists() and not name.startswith(skipped)]
    for name in names:
        copy = target / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, copy, follow_symlinks=False)
    return names
