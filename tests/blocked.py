"""Subprocesses in which installed packages cannot be imported, as if they were not installed."""

from __future__ import annotations

import os
import re
from importlib.metadata import packages_distributions, requires
from pathlib import Path

from packaging.requirements import Requirement

_HOOK = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocker())
"""


def environment_without(folder: Path, *modules: str) -> dict[str, str]:
    """Return environment variables that block the import of modules. The import hook is written to ``folder``."""
    (folder / "sitecustomize.py").write_text(_HOOK.format(blocked=set(modules)))
    return {**os.environ, "PYTHONPATH": str(folder)}


def modules_outside(requirements: list[str]) -> list[str]:
    """Return the modules of all installed distributions that the requirements do not install."""
    wanted = _closure([Requirement(line) for line in requirements])
    provided = packages_distributions()
    return [module for module, names in provided.items() if not wanted & {_normalized(name) for name in names}]


def _closure(requirements: list[Requirement]) -> set[str]:
    found: set[str] = {"rl4sys"}
    waiting = list(requirements)
    while waiting:
        requirement = waiting.pop()
        name = _normalized(requirement.name)
        if name in found or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        found.add(name)
        waiting += [Requirement(line) for line in requires(name) or []]
    return found


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
