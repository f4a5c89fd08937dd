"""Alerts about policies that learn from live systems."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml

from rl4sys.errors import ConfigError
from rl4sys.experiment.alertbook import read_alerts
from rl4sys.server.config import ServerConfig
from rl4sys.server.settings import live_config
from tests.live import SMALL_PPO, WireClient, eventually, running_server, some_trajectory


def test_policies_are_judged_by_the_rules_of_their_server(tmp_path: Path) -> None:
    alerts = {
        "rules": {
            "learns": {"kind": "threshold", "metric": "learner/version", "above": 0.5},
            "stale_clients": {"seconds": 0.01},
        },
        "command": ["sh", "-c", f'cat >> "{tmp_path}/sent"; echo >> "{tmp_path}/sent"'],
    }
    settings = tmp_path / "server.yaml"
    settings.write_text(yaml.safe_dump({"log_frequency": 64, "alerts": alerts}))
    with running_server(tmp_path / "live", "--config", str(settings)) as server, WireClient(server.address) as client:
        client.hello("watched")
        client.hear("welcome")
        client.send_trajectories(some_trajectory(1), some_trajectory(2))
        client.hear_ack(2)
        policy = server.await_policy("watched", lambda policy: "stale_clients" in policy.problem)
        assert policy.state == "learning"
        assert "learns: learner/version is 1, above 0.5" in policy.problem
        told = {alert["rule"]: alert["message"] for alert in read_alerts(server.root / "watched/alerts.jsonl")}
        assert "nothing came from client" in told["stale_clients"]
        eventually(lambda: (tmp_path / "sent").is_file() and '"learns"' in (tmp_path / "sent").read_text())
        assert any("alert learns: learner/version is 1, above 0.5" in line for line in server.output)
        with WireClient(server.address) as diverges:
            diverges.hello("diverges")
            absurd = np.full(32, 3e38, np.float32)
            diverges.send_trajectories(some_trajectory(1, reward=absurd), some_trajectory(2, reward=-absurd))
            server.await_policy("diverges", lambda policy: policy.state == "failed")
        alerts = [alert["rule"] for alert in read_alerts(server.root / "diverges/alerts.jsonl")]
        assert alerts.count("nan") == 1, "every attempt fails of the same, which is told once"


def test_a_client_has_no_say_in_what_its_server_runs() -> None:
    with pytest.raises(ConfigError, match="alerts is not a setting of a learner"):
        live_config("policy", {**SMALL_PPO, "alerts": {"command": ["reboot"]}}, ServerConfig())
