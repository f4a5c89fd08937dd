"""Write the tables of docs/algorithms.md: the action spaces and network types that each algorithm supports.

python scripts/algorithm_table.py            # write the tables
python scripts/algorithm_table.py --check    # exit code 1 if the tables are out of date
"""

from __future__ import annotations

import sys
from pathlib import Path

from rl4sys.algorithms.actions import ActionKind, supported_actions
from rl4sys.errors import ConfigError, ExportError
from rl4sys.learner.config import LearnerConfig, parse_algorithm, parse_buffer, parse_networks
from rl4sys.learner.learner import Learner, build_learner
from rl4sys.registry import ALGORITHMS
from rl4sys.spec import Box, Discrete, DiscreteSpace, MultiDiscrete, Space, Spec, mask_box

PAGE = Path(__file__).parent.parent / "docs" / "algorithms.md"
BEGIN, END = "<!-- tables: begin -->\n", "<!-- tables: end -->\n"

STATE, ITEMS = {"state": Box((3,))}, {"items": Box((4, 3))}
SPACES: dict[ActionKind, Space] = {
    ActionKind.DISCRETE: Discrete(4),
    ActionKind.MULTI_DISCRETE: MultiDiscrete((3, 2)),
    ActionKind.BOUNDED: Box((2,), low=(-1.0,), high=(1.0,)),
    ActionKind.UNBOUNDED: Box((2,)),
}
SEEN: dict[str, dict[str, Box]] = {
    "mlp": STATE,
    "cnn": {"image": Box((36, 36, 3), "uint8")},
    "transformer": ITEMS,
    "items": ITEMS,
    "dict": STATE | ITEMS,
    "gru": STATE,
    "lstm": STATE,
}
RECURRENT = ("gru", "lstm")


def main() -> int:
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    made = before + BEGIN + "\n" + tables() + "\n" + END + after
    if "--check" not in sys.argv:
        PAGE.write_text(made, encoding="utf-8")
        return 0
    if made != text:
        print(f"{PAGE.name} is out of date: run scripts/algorithm_table.py")
    return int(made != text)


def tables() -> str:
    names = ALGORITHMS.names()
    spaces = [[name, *(mark(kind in supported_actions(name)) for kind in SPACES)] for name in names]
    networks = [[name, *(mark(works(name, *seen_by(name, network))) for network in SEEN)] for name in names]
    return "\n\n".join([table(["algorithm, actions", *SPACES], spaces), table(["algorithm, network", *SEEN], networks)])


def specs(kind: ActionKind) -> list[Spec]:
    """Return the specs to test for a kind of action: one without and, for discrete kinds, one with an action mask."""
    space = SPACES[kind]
    return [Spec(STATE, space)] if isinstance(space, Box) else [Spec(STATE, space), masked(space)]


def masked(space: DiscreteSpace) -> Spec:
    return Spec(STATE | {"mask": mask_box(space)}, space)


def works(algorithm: str, spec: Spec, network: str) -> bool:
    """Return True if the learner can be built and clients can run its policy."""
    try:
        build(algorithm, spec, network).snapshot()
    except (ConfigError, ExportError):
        return False
    return True


def build(algorithm: str, spec: Spec, network: str) -> Learner:
    """Build a learner with this network in every role, or only as the actor if it is recurrent."""
    roles = ("actor",) if network in RECURRENT else ALGORITHMS.get(algorithm).roles
    config = LearnerConfig(
        algorithm=parse_algorithm({"name": algorithm}),
        networks=parse_networks({role: {"type": network} for role in roles}, algorithm),
        buffer=parse_buffer({"size": 64}, algorithm),
        total_timesteps=1000,
    )
    return build_learner(spec, config, seed=0)


def seen_by(algorithm: str, network: str) -> tuple[Spec, str]:
    return Spec(SEEN[network], SPACES[supported_actions(algorithm)[0]]), network


def mark(works: bool) -> str:
    return "yes" if works else "–"


def table(head: list[str], lines: list[list[str]]) -> str:
    rows = [head, ["---"] * len(head), *([f"`{line[0]}`", *line[1:]] for line in lines)]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


if __name__ == "__main__":
    sys.exit(main())
