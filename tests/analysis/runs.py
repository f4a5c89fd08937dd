"""Run directories with given metrics, written without training."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rl4sys.config import Settings, override, to_yaml

BASE: Settings = {
    "version": 1,
    "experiment": {"name": "ppo_cartpole", "seed": 0, "device": "cpu", "threads": 1},
    "algorithm": {"name": "ppo", "lr": 0.001, "gamma": 0.99},
    "environment": {"name": "CartPole-v1", "wrapper": "gym", "num_envs": 4},
    "network": {"actor": {"type": "mlp", "hidden_dims": [64, 64]}},
    "training": {"total_timesteps": 1000, "checkpoint_frequency": 500},
    "logging": {"terminal": True},
}
COMPLETED = {"status": "completed", "steps": 1000, "total_timesteps": 1000, "steps_per_second": 500.0}

Row = Mapping[str, Any]


def write_run(
    path: Path,
    rows: Iterable[Row] | bytes = (),
    changes: Iterable[str] = (),
    status: Mapping[str, Any] | None = COMPLETED,
) -> Path:
    (path / "configs").mkdir(parents=True)
    (path / "configs" / "config.yaml").write_text(to_yaml(override(BASE, changes)))
    provenance = {"started": "2026-01-02T03:04:05", "git_hash": "0123456789abcdef", "packages": {"rl4sys": "0.1.0"}}
    (path / "configs" / "provenance.json").write_text(json.dumps(provenance))
    if status is not None:
        (path / "status.json").write_text(json.dumps(status))
    written = rows if isinstance(rows, bytes) else "".join(f"{json.dumps(row)}\n" for row in rows).encode()
    (path / "metrics.jsonl").write_bytes(written)
    return path


def returns(*values: float, every: int = 100, metric: str = "evaluation/return") -> list[Row]:
    """Return rows of one metric at steps `every`, 2 * `every`, and so on."""
    return [{"step": every * number, metric: value} for number, value in enumerate(values, 1)]


def write_seeds(root: Path, name: str, curves: Iterable[list[Row]], *changes: str) -> list[Path]:
    """Write one run per curve, with the seeds 0, 1, 2 and so on."""
    return [
        write_run(
            root / f"{name}_20260102-03040{seed}",
            rows,
            [f"experiment.name={name}", f"experiment.seed={seed}", *changes],
        )
        for seed, rows in enumerate(curves)
    ]
