"""Facts about files of an earlier version, computed with public entry points only.

`scripts/make_legacy_data.py` runs this module in the environment of the earlier version and stores the facts.
`tests/test_legacy_formats.py` computes the facts with the current version and expects the same results.
"""

from __future__ import annotations

import hashlib
import io
import json
import sqlite3
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import closing, redirect_stderr, redirect_stdout
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from rl4sys.client import Draws, RL4SysAgent, load_policy

EVALUATION_EPISODES = 3
LISTED = ("id", "name", "algorithm", "environment", "seed", "status", "steps", "tags", "reward", "best_reward")
STORED = ("checkpoint", "returns", "lengths", "shown", "policy")
_SPOOL_HEADER = struct.Struct("<QIII")

Facts = dict[str, Any]


def command(*arguments: str | Path) -> str:
    """Run a command of ``rl4sys`` in this process and return its output. Raises AssertionError if the command fails."""
    (script,) = entry_points(group="console_scripts", name="rl4sys")
    out, err, code = io.StringIO(), io.StringIO(), 0
    with patch.object(sys, "argv", ["rl4sys", *map(str, arguments)]), redirect_stdout(out), redirect_stderr(err):
        try:
            script.load()()
        except SystemExit as ended:
            code = int(ended.code or 0)
    if code != 0:
        raise AssertionError(
            f"rl4sys {' '.join(map(str, arguments))}: exit code {code}\n{out.getvalue()}{err.getvalue()}"
        )
    return out.getvalue()


def stored_run(path: Path) -> Facts:
    """Return the policy and evaluation of the latest checkpoint, and the record printed by ``show``."""
    evaluation = json.loads(command("evaluate", path, "--episodes", str(EVALUATION_EPISODES), "--json"))
    shown = json.loads(command("show", path, "--json"))
    return {
        "checkpoint": evaluation["checkpoint"],
        "returns": evaluation["returns"],
        "lengths": evaluation["lengths"],
        "shown": {name: shown[name] for name in LISTED},
        "policy": policy(path / "checkpoints" / "latest" / "policy.safetensors"),
    }


def resumed_run(path: Path, total_timesteps: int) -> Facts:
    """Train up to ``total_timesteps`` and return all recorded outputs."""
    command("train", "--resume", path, "--total-timesteps", str(total_timesteps))
    return recorded(path)


def recorded(path: Path) -> Facts:
    """Return the deterministic outputs of a run: metrics, digests of experience, weights of the latest checkpoint."""
    return {
        "status": json.loads((path / "status.json").read_text())["status"],
        "metrics": _rows(path / "metrics.jsonl"),
        "experience": _rows(path / "digests.jsonl"),
        "weights": weights(path / "checkpoints" / "latest"),
    }


def listed(root: Path) -> list[Facts]:
    """Return the runs below a folder, as ``list`` prints them."""
    runs = json.loads(command("list", "--root", root, "--json"))
    kept = [{name: run[name] for name in (*LISTED, "config_hash")} for run in runs]
    return sorted(kept, key=lambda run: str(run["id"]))


def policy(path: Path) -> Facts:
    """Return greedy and sampled actions for fixed observations, in three consecutive steps of four episodes."""
    loaded = load_policy(path)
    return {
        "version": loaded.version,
        "memory_size": loaded.memory_size,
        "spec": loaded.spec.to_json(),
        "greedy": _decisions(loaded.greedy()),
        "sampled": _decisions(loaded),
    }


def _decisions(acting: Any) -> list[Facts]:
    numbers, draws = np.random.default_rng(5), Draws(7)
    memory: Facts = {}
    found: list[Facts] = []
    for _ in range(3):
        observation = {
            name: numbers.standard_normal((4, *box.shape)).astype(box.dtype)
            for name, box in acting.spec.observation.items()
        }
        decision = acting.act(observation, memory, draws)
        memory = decision.memory
        found.append({"action": decision.action.tolist(), "log_prob": decision.log_prob.tolist()})
    return found


def weights(checkpoint: Path) -> str:
    """Return a digest of all tensors of a checkpoint, without their names."""
    tensors = [tensor for name in ("state", "policy") for tensor in _tensors(checkpoint / f"{name}.safetensors")]
    return hashlib.sha256("".join(sorted(tensors)).encode()).hexdigest()


def _tensors(path: Path) -> Iterator[str]:
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    for name, tensor in json.loads(content[8:start]).items():
        if name != "__metadata__":
            first, end = (start + offset for offset in tensor["data_offsets"])
            yield hashlib.sha256(f"{tensor['dtype']}{tensor['shape']}".encode() + content[first:end]).hexdigest()


def series(path: Path) -> Facts:
    """Return the ranking and the trials of a sweep or study."""
    trials = json.loads((path / "plan.json").read_text())["trials"]
    return {
        "ranking": json.loads((path / "ranking.json").read_text()),
        "trials": [{**trial, **recorded(path / trial["directory"])} for trial in trials],
    }


def journal(path: Path) -> Facts:
    """Return the number of rows and steps in the journal of a hosted policy, and its clients."""
    with closing(sqlite3.connect(path)) as database:
        rows, steps = database.execute("SELECT COUNT(*), SUM(steps) FROM trajectories").fetchone()
        clients = database.execute("SELECT client, instance, sequence FROM clients ORDER BY client, instance")
        return {"rows": rows, "steps": steps, "clients": [list(client) for client in clients]}


def spool(directory: Path) -> Facts:
    """Return the sequence numbers, steps and bytes in the spool of one client instance."""
    sequences, steps, total = [], 0, 0
    for segment in sorted(directory.glob("*.segment")):
        content, position = segment.read_bytes(), 0
        while position < len(content):
            sequence, count, length, _ = _SPOOL_HEADER.unpack_from(content, position)
            position += _SPOOL_HEADER.size + length
            sequences.append(sequence)
            steps += count
        total += len(content)
    return {"instance": directory.name, "sequences": sequences, "steps": steps, "bytes": total}


def live(data: Path) -> Facts:
    """Return the facts of all policies below a server root, and of the spools of clients."""
    policies = {
        path.name: {
            "journal": journal(path / "journal.db"),
            "weights": weights(path / "checkpoints" / "latest"),
            "policy": policy(path / "checkpoints" / "latest" / "policy.safetensors"),
        }
        for path in sorted((data / "live_root").iterdir())
        if (path / "journal.db").is_file()
    }
    return {"policies": policies, "spools": {path.parent.name: spool(path) for path in data.glob("spools/*/*")}}


def migrated(path: Path) -> Facts:
    """Return a config file as rewritten by ``config migrate``; for experiments also all settings with defaults."""
    import yaml

    result = path.with_name(f"migrated_{path.name}")
    command("config", "migrate", path, "--output", result)
    facts: Facts = {"migrated": yaml.safe_load(result.read_text())}
    if path.parent.name == "experiment":
        facts["settings"] = yaml.safe_load(command("config", "show", result))
    return facts


def machine(run: Path) -> Facts:
    """Return the processor features and package versions that affect rounding in results."""
    record = json.loads((run / "configs" / "provenance.json").read_text())
    packages = {name: record["packages"][name] for name in ("torch", "numpy", "gymnasium")}
    return {"instructions": record["instructions"], "native_core": record["native_core"], **packages}


def drive(agent: RL4SysAgent, steps: int, pause_seconds: float = 0.0) -> None:
    """Control CartPole with an agent for a number of steps. The last episode is truncated."""
    import gymnasium

    system, trajectory = gymnasium.make("CartPole-v1", max_episode_steps=40), None
    observation, _ = system.reset(seed=1)
    for step in range(1, steps + 1):
        trajectory, action = agent.request_for_action(trajectory, observation)
        observation, reward, terminated, truncated, _ = system.step(action.act)
        action.update_reward(float(reward))
        agent.add_to_trajectory(trajectory, action)
        if terminated or truncated or step == steps:
            agent.mark_end_of_trajectory(trajectory, action, not terminated, None if terminated else observation)
            observation, _ = system.reset()
        time.sleep(pause_seconds)


def _rows(path: Path) -> list[Facts]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _expected_runs(data: Path, plan: Path) -> Facts:
    """Return the facts of all runs. The file ``plan`` has the directory of each run and the step to resume to."""
    facts: Facts = {"machine": {}, "list": listed(Path("runs")), "runs": {}, "sweep": {}, "study": {}}
    wanted = json.loads(plan.read_text())
    for name, (directory, total) in wanted["runs"].items():
        path = data / "runs" / directory
        facts["machine"] = machine(path)
        stored = {"directory": directory, "resume_to": total, "weights": weights(path / "checkpoints" / "latest")}
        facts["runs"][name] = stored | stored_run(path) | {"resumed": resumed_run(path, total)}
    sweep, study = (data / "runs" / wanted[kind] for kind in ("sweep", "study"))
    command("sweep", "--resume", sweep)
    facts["sweep"] = {"directory": sweep.name, "resumed": series(sweep)}
    before = series(study)
    trials = len(before["trials"]) + 1
    command("tune", "--resume", study, f"n_trials={trials}")
    facts["study"] = {"directory": study.name, **before, "n_trials": trials, "resumed": series(study)}
    return facts


def _main(task: str, *arguments: str) -> None:
    if task == "runs":
        print(json.dumps(_expected_runs(Path(), Path(arguments[0]))))
    elif task == "live":
        print(json.dumps(live(Path())))
    elif task == "configs":
        files = sorted(path for path in Path("configs").glob("*/*") if path.is_file())
        print(json.dumps({path.relative_to("configs").as_posix(): migrated(path) for path in files}))
    elif task == "client":
        with RL4SysAgent(arguments[0]) as agent:
            drive(agent, int(arguments[1]), float(arguments[2]))
            agent.flush(30.0)
            print(agent.version, flush=True)


if __name__ == "__main__":
    _main(*sys.argv[1:])
