"""Write test data with an earlier version of RL4Sys, to test that the current version can read its files.

    python3 scripts/make_legacy_data.py OLD/.venv/bin/python OLD/build/cpp/tests/drive

``OLD`` is a checkout of the earlier version with its own Python environment and with its C++ client built. The script
writes to ``tests/data/legacy``, in about two minutes. The earlier version writes all files there: runs with ``train``,
``sweep`` and ``tune``, a server root with ``serve``, and the spools of killed clients. It also computes the expected
facts about these files. The config files in ``tests/data/legacy/configs`` are written by hand; the script only copies
them.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
OUTPUT = ROOT / "tests" / "data" / "legacy"
FACTS = ROOT / "tests" / "legacy.py"
WAIT_SECONDS = 120.0
SPOOL_BYTES = 4000

Settings = dict[str, Any]

_MLP = {"hidden_dims": [8]}
_ACTOR_CRITIC = {"actor": _MLP, "critic": _MLP}
_CARTPOLE = {
    "name": "CartPole-v1",
    "num_envs": 2,
    "normalize_obs": True,
    "normalize_reward": True,
    "max_episode_steps": 60,
}
_PENDULUM = {"name": "Pendulum-v1", "max_episode_steps": 40}
_REPLAY = {"batch_size": 16, "learning_starts": 64, "train_frequency": 8, "gradient_steps": 2}


def on_policy(name: str, **options: Any) -> Settings:
    return {
        "algorithm": {"name": name, **options},
        "environment": _CARTPOLE,
        "network": _ACTOR_CRITIC,
        "buffer": {"size": 64},
    }


def value_based(name: str, **options: Any) -> Settings:
    return {
        "algorithm": {"name": name, **_REPLAY, "target_update_interval": 50, **options},
        "environment": _CARTPOLE,
        "network": {"critic": _MLP},
        "buffer": {"size": 150},
    }


def off_policy(name: str, environment: Settings, **options: Any) -> Settings:
    return {
        "algorithm": {"name": name, **_REPLAY, **options},
        "environment": environment,
        "network": _ACTOR_CRITIC,
        "buffer": {"size": 150},
    }


def offline(name: str, roles: Settings) -> Settings:
    return {
        "algorithm": {"name": name, "batch_size": 16},
        "environment": {**_CARTPOLE, "num_envs": 1, "normalize_reward": False},
        "dataset": {"type": "journal", "path": "live_root/pole"},
        "network": roles,
        "buffer": {"size": 600},
    }


_PPO = {"epochs": 2, "minibatch_size": 32, "lr": {"start": 1e-3, "end": 0.0}}
_RUNS: dict[str, tuple[Settings, int, int]] = {
    "ppo": (on_policy("ppo", **_PPO), 256, 512),
    "recurrent_ppo": (
        on_policy("ppo", **_PPO, window=8)
        | {
            "environment": {**_CARTPOLE, "observed": [0, 2]},
            "network": {"actor": {"type": "gru", "hidden_dims": [8], "hidden_size": 8}, "critic": _MLP},
        },
        256,
        384,
    ),
    "a2c": (on_policy("a2c"), 256, 512),
    "trpo": (on_policy("trpo"), 256, 512),
    "reinforce": (on_policy("reinforce"), 256, 512),
    "dqn": (value_based("dqn", n_step=3, dueling=True), 200, 300),
    "rainbow": (
        value_based("rainbow", n_step=3, dueling=True, atoms=11)
        | {"network": {"critic": {**_MLP, "noisy": True}}, "buffer": {"type": "prioritized", "size": 150}},
        200,
        300,
    ),
    "qr_dqn": (value_based("qr_dqn", quantiles=8), 200, 300),
    "sac": (off_policy("sac", _PENDULUM), 200, 300),
    "sac_discrete": (off_policy("sac", _CARTPOLE), 200, 300),
    "td3": (off_policy("td3", _PENDULUM), 200, 300),
    "sql": (off_policy("sql", {"name": "plane", "wrapper": "multigoal", "max_episode_steps": 30}), 120, 160),
    "her": (
        value_based("dqn")
        | {
            "environment": {"name": "BitFlip", "wrapper": "goal", "options": {"bits": 4}},
            "buffer": {"type": "her", "size": 150},
        },
        200,
        300,
    ),
    "bc": (offline("bc", {"actor": _MLP}), 200, 300),
    "iql": (offline("iql", _ACTOR_CRITIC), 200, 300),
}
"""Settings, total number of steps, and total number of steps after a resume, by run name."""

_LIVE = {
    "observation": 4,
    "action": 2,
    "algorithm": {"name": "ppo", "epochs": 2, "minibatch_size": 32},
    "network": {"all": _MLP},
    "buffer": {"size": 64},
    "seed": 5,
    "max_staleness": 1000000,
}
_SERVER = {
    "journal": "archive",
    "tensorboard": False,
    "keep_checkpoints": 1,
    "keep_versions": 2,
    "log_frequency": 64,
    "device": "cpu",
}


class Maker:
    """Runs programs of the earlier version in a temporary directory."""

    def __init__(self, python: Path, drive: Path, folder: Path) -> None:
        self._python, self._drive, self._folder = python, drive, folder

    def rl4sys(self, *arguments: str) -> None:
        subprocess.run([*self._command(*arguments)], cwd=self._folder, check=True, timeout=WAIT_SECONDS)

    def facts(self, folder: Path, *arguments: str) -> Any:
        command = [str(self._python), str(FACTS), *arguments]
        found = subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True, timeout=600)
        return json.loads(found.stdout)

    def write(self, name: str, content: Settings) -> str:
        (self._folder / name).parent.mkdir(exist_ok=True)
        (self._folder / name).write_text(json.dumps(content, indent=1) + "\n")
        return name

    def find(self, pattern: str) -> Path:
        (found,) = self._folder.glob(pattern)
        return found

    def has(self, pattern: str) -> bool:
        return any(self._folder.glob(pattern))

    @contextmanager
    def running(self, *command: str) -> Iterator[subprocess.Popen[str]]:
        """Start a process, and kill it at the end of the `with` block if it still runs."""
        with subprocess.Popen(command, cwd=self._folder, stdout=subprocess.PIPE, text=True) as process:
            try:
                yield process
            finally:
                if process.poll() is None:
                    process.kill()

    @contextmanager
    def training(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        with self.running(*self._command(*arguments)) as process:
            yield process

    @contextmanager
    def server(self) -> Iterator[str]:
        """Run a server and yield its address; stop the server with SIGTERM at the end of the `with` block."""
        config = self.write("server.json", _SERVER)
        command = self._command("serve", "--port", "0", "--root", "live_root", "--config", config)
        with self.running(*command) as process:
            assert process.stdout is not None
            first = process.stdout.readline()
            found = re.search(r"(\S+:\d+)", first)
            assert found, first
            yield found[1]
            stop(process)

    @contextmanager
    def python_client(self, config: str, steps: int, pause_seconds: float) -> Iterator[subprocess.Popen[str]]:
        command = [str(self._python), str(FACTS), "client", config, str(steps), str(pause_seconds)]
        with self.running(*command) as process:
            yield process

    @contextmanager
    def cpp_client(self, config: str) -> Iterator[subprocess.Popen[str]]:
        with self.running(str(self._drive), config, "", "1000000", "1", "5000", "ready") as process:
            yield process

    def _command(self, *arguments: str) -> list[str]:
        return [str(self._python), "-m", "rl4sys", *arguments]


def stop(process: subprocess.Popen[str]) -> None:
    os.kill(process.pid, signal.SIGTERM)
    process.wait(WAIT_SECONDS)


def wait_until(holds: Callable[[], Any]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"condition not met within {WAIT_SECONDS} s")
        time.sleep(0.01)


def experiment(name: str, settings: Settings, steps: int, eval_frequency: int = 100) -> Settings:
    return {
        "experiment": {"name": name, "seed": 3, "device": "cpu"},
        **settings,
        "training": {
            "total_timesteps": steps,
            "eval_frequency": eval_frequency,
            "num_eval_episodes": 2,
            "checkpoint_frequency": 100,
            "keep_checkpoints": 1,
        },
        "logging": {"terminal": False, "tensorboard": False, "frequency": 64},
    }


def make_live(maker: Maker, folder: Path) -> None:
    """Create a server root with two policies, and the spools of two clients killed while the server was stopped."""
    with maker.server() as address:
        clients = {
            name: maker.write(f"clients/{name}.json", live_client(name, policy, size, address))
            for name, policy, size in (("pole-1", "pole", 4), ("pole-2", "pole", 4), ("line-1", "line", 3))
        }
        with maker.python_client(clients["pole-1"], 400, 0.001) as process:
            process.wait(WAIT_SECONDS)
        clients_left = ExitStack()
        clients_left.enter_context(maker.python_client(clients["pole-2"], 1000000, 0.005))
        wait_until(lambda: has_client(folder, "pole-2"))
        clients_left.enter_context(maker.cpp_client(clients["line-1"]))
        wait_until(lambda: has_metrics(folder / "live_root" / "line"))
    with clients_left:
        for client in ("pole-2", "line-1"):
            wait_until(partial(has_spooled, folder / "spools" / client))


def live_client(name: str, policy: str, size: int, address: str) -> Settings:
    server = {"address": address, "timeout_seconds": 60}
    outbox = {"memory_bytes": 0, "spool": "../spools", "spool_bytes": 20 * SPOOL_BYTES}
    return {"client_id": name, "policy_id": policy, **_LIVE, "observation": size, "server": server, "outbox": outbox}


def has_metrics(run: Path) -> bool:
    return (run / "metrics.jsonl").is_file() and bool((run / "metrics.jsonl").read_text())


def has_client(folder: Path, client: str) -> bool:
    journal = folder / "live_root" / "pole" / "journal.db"
    return any(client.encode() in part.read_bytes() for part in journal.parent.glob("journal.db*"))


def has_spooled(client: Path) -> bool:
    return sum(path.stat().st_size for path in client.glob("*/*.segment")) > SPOOL_BYTES


def make_runs(maker: Maker) -> Settings:
    """Train all runs; return for each name the run directory and the total number of steps after a resume."""
    plan: Settings = {}
    for name, (settings, steps, resume_to) in _RUNS.items():
        # Most runs are evaluated only at the end. Their best checkpoint is then the latest one, which saves disk space.
        config = experiment(name, settings, steps, 100 if name in ("ppo", "dqn") else steps)
        maker.rl4sys("train", maker.write(f"{name}.json", config), "--root", "runs")
        plan[name] = (maker.find(f"runs/{name}_2*").name, resume_to)
    for name, end in (("stopped", stop), ("killed", subprocess.Popen.kill)):
        settings = experiment(name, on_policy("ppo", **_PPO), 1000000)
        with maker.training("train", maker.write(f"{name}.json", settings), "--root", "runs") as process:
            wait_until(partial(maker.has, f"runs/{name}_2*/checkpoints/best"))
            end(process)
        run = maker.find(f"runs/{name}_2*")
        plan[name] = (run.name, last_step(run) + 256)
    return plan


def last_step(run: Path) -> int:
    return int((run / "checkpoints" / "latest").resolve().name.removeprefix("step_"))


def make_series(maker: Maker) -> Settings:
    """Create a sweep that is stopped during its second trial, and a completed study."""
    maker.write("base.json", experiment("base", on_policy("ppo", **_PPO), 256))
    sweep = {
        "base_config": "base.json",
        "name": "sweep",
        "sweep": {"algorithm.lr": [1e-3, 3e-3, 1e-2]},
        "parallel_jobs": 1,
    }
    study = {
        "base_config": "base.json",
        "name": "study",
        "search": {"algorithm.lr": {"low": 1e-4, "high": 1e-2, "log": True}, "algorithm.gamma": [0.9, 0.99]},
        "n_trials": 2,
        "startup_trials": 1,
        "seeds": [1],
        "parallel_jobs": 1,
    }
    with maker.training("sweep", maker.write("sweep.json", sweep), "--root", "runs") as process:
        wait_until(lambda: maker.has("runs/sweep_2*/trial_001/configs/config.yaml"))
        stop(process)
    maker.rl4sys("tune", maker.write("study.json", study), "--root", "runs")
    return {"sweep": maker.find("runs/sweep_2*").name, "study": maker.find("runs/study_2*").name}


def clean(folder: Path) -> None:
    """Remove plots, logs, empty directories and details of the machine; merge write-ahead logs into their databases."""
    for path in folder.rglob("*.db"):
        with closing(sqlite3.connect(path)) as database:
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for path in folder.rglob("provenance.json"):
        anonymize(path)
    for path in folder.rglob("status.json"):
        path.write_text(re.sub(r'"pid": \d+', '"pid": 1', path.read_text()))
    remove_generated(folder)


def remove_generated(folder: Path) -> None:
    """Remove plots, logs and empty directories."""
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.suffix in (".png", ".log"):
            path.unlink()
        elif path.is_dir() and not path.is_symlink() and not any(path.iterdir()):
            path.rmdir()


def replace_links(folder: Path) -> None:
    """Replace links to checkpoints with text files that contain the target, because archives may not keep links."""
    for link in [path for path in folder.rglob("*") if path.is_symlink()]:
        target = link.readlink()
        link.unlink()
        link.write_text(str(target))


def anonymize(provenance: Path) -> None:
    record = json.loads(provenance.read_text())
    for part in (record, *record.get("resumed", [])):
        part |= {"command": ["rl4sys", *part["command"][1:]], "platform": "Linux", "cpu": "", "git_hash": None}
    provenance.write_text(json.dumps(record, indent=1))


def write_expected(maker: Maker, data: Path, plan: Settings) -> None:
    """Write the expected facts, computed on a copy of the data, because resuming a run changes its files."""
    expected = data / "expected"
    expected.mkdir()
    with tempfile.TemporaryDirectory() as name:
        copy = Path(name) / "data"
        shutil.copytree(data, copy, symlinks=True)
        (copy / "plan.json").write_text(json.dumps(plan))
        for kind, arguments in (("live", ()), ("configs", ()), ("runs", ("plan.json",))):
            facts = maker.facts(copy, kind, *arguments)
            (expected / f"{kind}.json").write_text(json.dumps(facts, indent=None, separators=(",", ":")) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("python", type=Path, help="Python of the earlier version")
    parser.add_argument("drive", type=Path, help="program build/cpp/tests/drive of the earlier version")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        maker = Maker(arguments.python.absolute(), arguments.drive.absolute(), folder)
        make_live(maker, folder)
        plan = {"runs": make_runs(maker), **make_series(maker)}
        shutil.copytree(OUTPUT / "configs", folder / "data" / "configs")
        for part in ("live_root", "clients", "spools", "runs"):
            (folder / part).rename(folder / "data" / part)
        clean(folder / "data")
        write_expected(maker, folder / "data", plan)
        replace_links(folder / "data")
        shutil.rmtree(OUTPUT)
        shutil.copytree(folder / "data", OUTPUT)


if __name__ == "__main__":
    main()
