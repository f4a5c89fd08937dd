"""Output of ``rl4sys train --dry-run``: the complete config and the components built from it."""

from __future__ import annotations

import math
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rl4sys.cli.views.console import ConsoleNotes, show_settings
from rl4sys.errors import ExportError
from rl4sys.learner.footprint import learner_cost
from rl4sys.learner.learner import Learner
from rl4sys.machine import format_bytes
from rl4sys.policy.snapshot import input_size
from rl4sys.runs.config import ExperimentConfig
from rl4sys.spec import Box, Spec, space_summary
from rl4sys.training.setup import build_actor, build_local_learner, with_fitting_buffer


def show_plan(console: Console, configs: list[ExperimentConfig], root: Path) -> None:
    """Print the first config, its components and the planned runs. Steps no environment and writes no file."""
    first = configs[0]
    show_settings(console, first.to_settings())
    actor = build_actor(first)
    first = with_fitting_buffer(first, actor.spec, ConsoleNotes(console))
    learner = build_local_learner(first, actor, ConsoleNotes(console))
    table = Table(title="components", show_header=False, title_justify="left")
    for name, value in _describe_spec(actor.spec):
        table.add_row(name, value)
    table.add_row("policy", _describe_policy(learner))
    table.add_row("buffer", _describe_buffer(first, actor.spec))
    environments = first.environment.num_envs
    steps_each = -(-learner.steps_to_next_update() // environments)
    table.add_row("first update", f"after {steps_each * environments:,} steps")
    table.add_row("training", f"{first.training.total_timesteps:,} steps, environments: {environments}")
    table.add_row(
        "runs", ", ".join(escape(f"{root}/{c.experiment.name}_… (seed {c.experiment.seed})") for c in configs)
    )
    console.print(table)
    actor.close()


def _describe_buffer(config: ExperimentConfig, spec: Spec) -> str:
    cost = learner_cost(spec, config.learner("cpu"))
    memory, disk = format_bytes(cost.buffer_bytes - cost.disk_bytes), format_bytes(cost.disk_bytes)
    return f"{config.buffer.type}, {memory} of RAM" + (f" and {disk} on disk" if cost.disk_bytes else "") + " when full"


def _describe_policy(learner: Learner) -> str:
    try:
        weights = learner.snapshot().weights.values()
    except ExportError as problem:
        return f"runs in torch only: {problem}"
    return f"{sum(math.prod(array.shape) for array in weights):,} parameters in the exported policy"


def _describe_spec(spec: Spec) -> list[tuple[str, str]]:
    action = f"{spec.action.size} values" if isinstance(spec.action, Box) else space_summary(spec.action)
    return [
        (
            "observation",
            f"{input_size(spec)} values: " + ", ".join(f"{n} {b.shape}" for n, b in spec.observation.items()),
        ),
        ("action", action + (", masked" if spec.masked else "")),
    ]
