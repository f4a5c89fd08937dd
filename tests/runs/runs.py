"""Hand-written run directories for tests, without any components."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rl4sys.config import to_yaml


def make_run(root: Path, name: str, **facts: Any) -> Path:
    """Write a run of PPO on CartPole. `facts` may be seed, settings, status, rows, id, started and tags."""
    path = root / name
    (path / "configs").mkdir(parents=True)
    provenance = {"id": facts.get("id", f"id-{name}"), "started": facts.get("started", "2026-03-01T10:00:00")}
    (path / "configs/provenance.json").write_text(json.dumps({**provenance, "git_hash": "abc123"}))
    (path / "configs/config.yaml").write_text(to_yaml(settings(facts.get("seed", 0), facts.get("settings", {}))))
    status = {"status": "completed", "steps": 100, "time": "2026-03-01T11:00:00"}
    (path / "status.json").write_text(json.dumps(status | facts.get("status", {})))
    write_rows(path, *facts.get("rows", [{"step": 100, "episode/return": 10.0}]))
    if "tags" in facts:
        (path / "tags.json").write_text(json.dumps(facts["tags"]))
    return path


def settings(seed: int, changes: Mapping[str, Any]) -> dict[str, Any]:
    blocks: dict[str, Any] = {
        "version": 1,
        "experiment": {"name": "pole", "seed": seed},
        "algorithm": {"name": "ppo", "lr": 0.001},
        "environment": {"name": "CartPole-v1"},
        "training": {"total_timesteps": 100, "checkpoint_frequency": 50},
    }
    return {**blocks, **{name: blocks.get(name, {}) | change for name, change in changes.items()}}


def write_rows(path: Path, *rows: Mapping[str, Any]) -> None:
    with (path / "metrics.jsonl").open("a") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
