"""Alerts for policies trained on a server."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml

from rl4sys.alerts.log import read_alerts
from rl4sys.errors import ConfigError
from rl4sys.server.config import ServerConfig
from rl4sys.server.live_config import live_config
from tests.live import SMALL_PPO, WireClient, eventually, make_trajectory, running_server


def test_server_alert_rules_apply_to_all_policies(tmp_path: Path) -> None:
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
        client.receive("welcome")
        client.send_trajectories(make_trajectory(1), make_trajectory(2))
        client.wait_for_ack(2)
        policy = server.wait_for_policy("watched", lambda policy: "stale_clients" in policy.problem)
        assert policy.state == "learning"
        assert "learns: learner/version is 1, above 0.5" in policy.problem
        messages = {alert["rule"]: alert["message"] for alert in read_alerts(server.root / "watched/alerts.jsonl")}
        assert "no trajectory from client" in messages["stale_clients"]
        eventually(lambda: (tmp_path / "sent").is_file() and '"learns"' in (tmp_path / "sent").read_text())
        assert any("alert learns: learner/version is 1, above 0.5" in line for line in server.output)
        with WireClient(server.address) as diverges:
            diverges.hello("diverges")
            absurd = np.full(32, 3e38, np.float32)
            diverges.send_trajectories(make_trajectory(1, reward=absurd), make_trajectory(2, reward=-absurd))
            server.wait_for_policy("diverges", lambda policy: policy.state == "failed")
        alerts = [alert["rule"] for alert in read_alerts(server.root / "diverges/alerts.jsonl")]
        assert alerts.count("nan") == 1, "the learner is restarted several times, but the alert fires once"


def test_client_cannot_set_alerts() -> None:
    with pytest.raises(ConfigError, match="'alerts' is not a learner setting"):
        live_config("policy", {**SMALL_PPO, "alerts": {"command": ["reboot"]}}, ServerConfig())
