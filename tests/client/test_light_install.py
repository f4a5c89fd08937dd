"""The client needs only the requirements of the distribution `rl4sys-client`."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

from tests.blocked import environment_without, modules_outside
from tests.live import running_server

ROOT = Path(__file__).parents[2]

LOOP = """
from rl4sys.client import RL4SysAgent

config = {{
    "client_id": "light", "observation": 3, "action": 2, "algorithm": {{"name": "ppo"}}, "buffer": {{"size": 64}},
    "server": {{"address": {address!r}}}, "outbox": {{"spool": {spool!r}}}
}}
with RL4SysAgent(config, debug=True) as agent:
    assert agent.wait_for_model(60.0)
    trajectory = None
    for step in range(200):
        trajectory, action = agent.request_for_action(trajectory, [step / 200, 0, 0])
        agent.add_to_trajectory(trajectory, action)
        action.update_reward(1.0)
    agent.mark_end_of_trajectory(trajectory, action)
    assert agent.wait_for_model(60.0, version=1)
"""


def run_light(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python without the packages that `rl4sys-client` does not install."""
    project = tomllib.loads((ROOT / "packaging/client/pyproject.toml").read_text())["project"]
    blocked = modules_outside(project["dependencies"])
    assert {"torch", "gymnasium", "typer", "rich", "grpc_health", "pytest"} <= set(blocked)
    environment = environment_without(folder, *blocked)
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, check=False, capture_output=True, text=True
    )


def test_light_client_trains_with_a_server(tmp_path: Path) -> None:
    with running_server(tmp_path / "live") as server:
        done = run_light(tmp_path, "-c", LOOP.format(address=server.address, spool=str(tmp_path / "spool")))
        assert done.returncode == 0, done.stderr
        server.wait_for_policy("light", lambda policy: policy.version >= 1)


def test_server_in_light_install_reports_missing_package(tmp_path: Path) -> None:
    done = run_light(tmp_path, "-m", "rl4sys.server.server")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("rl4sys: this command needs typer, which is not installed; install it in a checkout")
