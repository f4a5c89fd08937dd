"""The virtual environments that peers run in: one for each, since they want different versions of the same packages."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).parent.parent.parent
PLACE = PROJECT / "build" / "peers"
# LunarLander as Gymnasium's extra box2d installs it today; older Gymnasiums name another build of Box2D there.
_PHYSICS = ("gymnasium", "box2d", "pygame-ce")
# Named without its version, torch may come as gigabytes for graphics cards.
_TESTED = ("torch", "numpy", "tensorboard", *_PHYSICS)


@dataclass(frozen=True)
class Environment:
    """What is installed for one peer."""

    name: str
    packages: tuple[str, ...]
    constrained: tuple[str, ...] = _TESTED
    """Packages whose versions are those of the project's constraints.txt; the peer decides about all others."""

    @property
    def python(self) -> Path:
        return PLACE / self.name / "bin" / "python"

    @property
    def _stamp(self) -> Path:
        return PLACE / self.name / "ready.json"

    @property
    def _wanted(self) -> str:
        return json.dumps([*self.packages, *self._constraints()])

    def ready(self) -> bool:
        """Whether it was installed as it is described now."""
        return self._stamp.is_file() and self._stamp.read_text() == self._wanted

    def make(self) -> None:
        """Installs what is missing, which takes minutes; an environment that is ready stays as it is."""
        if self.ready():
            return
        print(f"making the environment of {self.name}", file=sys.stderr, flush=True)
        if not self.python.exists():
            subprocess.run([sys.executable, "-m", "venv", str(PLACE / self.name)], check=True)
        constraints = PLACE / self.name / "constraints.txt"
        constraints.write_text("\n".join(self._constraints()) + "\n")
        pip = [str(self.python), "-m", "pip", "install", "--disable-pip-version-check", "-c", str(constraints)]
        done = subprocess.run([*pip, *self.packages], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"the environment of {self.name} could not be made:\n{done.stderr}")
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
        # RLlib says which Gymnasium it takes.
        Environment("rllib", ("ray[rllib]==2.60.*", "torch", *_PHYSICS), ("torch", "box2d", "pygame-ce")),
    )
}
