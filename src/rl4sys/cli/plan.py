"""What ``--dry-run`` shows: the resolved config and what would be built from it."""

from __future__ import annotations

import math
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rl4sys.cli.notes import Notes
from rl4sys.cli.show import show_settings
from rl4sys.errors import ExportError
from rl4sys.experiment.config import ExperimentConfig
from rl4sys.experiment.machine import in_words
from rl4sys.learner import Learner, learner_cost
from rl4sys.policy.snapshot import input_size
from rl4sys.spec import Box, Spec, outline
from rl4sys.trainer import build_actor, build_local_learner


def show_plan(console: Console, configs: list[ExperimentConfig], root: Path) -> None:
    """Builds the parts, to be sure that they fit, but steps no environment and writes no file."""
    first = configs[0]
    show_settings(console, first.to_settings())
    actor = build_actor(first)
    learner = build_local_learner(first, actor, Notes(console))
    table = Table(title="would build", show_header=False, title_justify="left")
    for what, value in _describe_spec(actor.spec):
        table.add_row(what, value)
    table.add_row("policy", _describe_policy(learner))
    table.add_row("buffer", _describe_buffer(first, actor.spec))
    environments = first.environment.num_envs
    steps_each = -(-learner.wants() // environments)
    table.add_row("first update", f"after {steps_each * environments:,} steps")
    table.add_row("training", f"{first.training.total_timesteps:,} steps, environments: {environments}")
    table.add_row(
        "runs", ", ".join(escape(f"{root}/{c.experiment.name}_… (seed {c.experiment.seed})") for c in configs)
    )
    console.print(table)
    actor.close()


def _describe_buffer(config: ExperimentConfig, spec: Spec) -> str:
    cost = learner_cost(spec, config.learner("cpu"))
    memory, disk = in_words(cost.buffer_bytes - cost.disk_bytes), in_words(cost.disk_bytes)
    return (
        f"{config.buffer.type}, {memory} of memory" + (f" and {disk} on disk" if cost.disk_bytes else "") + " when full"
    )


def _describe_policy(learner: Learner) -> str:
    try:
        weights = learner.snapshot().weights.values()
    except ExportError as problem:
        return f"acts through torch alone: {problem}"
    return f"{sum(math.prod(array.shape) for array in weights):,} parameters, as clients get them"


def _describe_spec(spec: Spec) -> list[tuple[str, str]]:
    action = f"{spec.action.size} numbers" if isinstance(spec.action, Box) else outline(spec.action)
    return [
        (
            "observation",
            f"{input_size(spec)} numbers: " + ", ".join(f"{n} {b.shape}" for n, b in spec.observation.items()),
        ),
        ("action", action + (", masked" if spec.masked else "")),
    ]
