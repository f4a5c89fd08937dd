"""Virtual environments of the compared libraries, because they need different versions of the same packages."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).parent.parent.parent
PLACE = PROJECT / "build" / "peers"
# Packages of the box2d extra of current Gymnasium; older releases use another build of Box2D.
_PHYSICS = ("gymnasium", "box2d", "pygame-ce")
# Without a pinned version, pip may install torch with gigabytes of GPU libraries.
_TESTED = ("torch", "numpy", "tensorboard", *_PHYSICS)


@dataclass(frozen=True)
class Environment:
    """Virtual environment of one library."""

    name: str
    packages: tuple[str, ...]
    constrained: tuple[str, ...] = _TESTED
    """Packages pinned to the versions in constraints.txt; pip chooses all others."""

    @property
    def python(self) -> Path:
        return PLACE / self.name / "bin" / "python"

    @property
    def _stamp(self) -> Path:
        return PLACE / self.name / "ready.json"

    @property
    def _wanted(self) -> str:
        return json.dumps([*self.packages, *self._constraints()])

    def is_ready(self) -> bool:
        """Return True if the environment exists with the packages and constraints that it should have."""
        return self._stamp.is_file() and self._stamp.read_text() == self._wanted

    def make(self) -> None:
        """Create the environment, which takes minutes. Does nothing if it is ready."""
        if self.is_ready():
            return
        print(f"creating the environment of {self.name}", file=sys.stderr, flush=True)
        if not self.python.exists():
            subprocess.run([sys.executable, "-m", "venv", str(PLACE / self.name)], check=True)
        constraints = PLACE / self.name / "constraints.txt"
        constraints.write_text("\n".join(self._constraints()) + "\n")
        pip = [str(self.python), "-m", "pip", "install", "--disable-pip-version-check", "-c", str(constraints)]
        done = subprocess.run([*pip, *self.packages], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"the environment of {self.name} could not be created:\n{done.stderr}")
        self._stamp.write_text(self._wanted)

    def _constraints(self) -> list[str]:
        lines = (PROJECT / "constraints.txt").read_text().splitlines()
        return [line for line in lines if line.partition("==")[0] in self.constrained]


ENVIRONMENTS = {
    made.name: made
    for made in (
        Environment("sb3", ("stable-baselines3==2.9.*", *_PHYSICS)),
        Environment("sbx", ("sbx-rl==0.28.*", *_PHYSICS)),
        Environment("cleanrl", ("torch", "tensorboard", *_PHYSICS)),
        Environment("torchrl", ("torchrl==0.14.*", *_PHYSICS)),
        # RLlib requires a specific Gymnasium.
        Environment("rllib", ("ray[rllib]==2.60.*", "torch", *_PHYSICS), ("torch", "box2d", "pygame-ce")),
    )
}
