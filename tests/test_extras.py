"""Missing packages are reported in one sentence with the command that installs them."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from rl4sys.errors import MissingExtraError
from rl4sys.extras import check_installed, extra_of, missing_package, needed_by

from .blocked import environment_without

ROOT = Path(__file__).parent.parent
LUNAR = "rl4sys.examples.lunar"
TRAIN = ["-m", "rl4sys", "train", "ppo_cartpole"]


@pytest.mark.parametrize(
    ("missing", "arguments", "message"),
    [
        ("typer", ["-m", "rl4sys.server.server", "--debug", "--port", "0"], "rl4sys: this command needs typer"),
        ("grpc_health", ["-m", "rl4sys.server.server", "--port", "0"], "rl4sys: this command needs grpc_health"),
        ("grpc_health", ["rl4sys/start_server.py", "--debug"], "rl4sys: this command needs grpc_health"),
        ("grpc_reflection", ["-m", "rl4sys", "serve", "--debug"], "rl4sys: this command needs grpc_reflection"),
        ("torch", ["-m", "rl4sys.server.server", "--port", "0"], "rl4sys: a training server needs torch"),
        ("gymnasium", ["-m", f"{LUNAR}.lunar_lander", "--debug"], "lunar_lander: Lunar Lander needs gymnasium"),
        ("gymnasium", ["-m", f"{LUNAR}.lunar_lander.py"], "lunar_lander: Lunar Lander needs gymnasium"),
        ("gymnasium", ["rl4sys/examples/lunar/lunar_lander_dqn.py"], "lunar_lander: Lunar Lander needs gymnasium"),
        ("Box2D", ["rl4sys/examples/lunar/lunar_lander.py", "--debug"], "lunar_lander: Lunar Lander needs Box2D"),
        ("Box2D", ["-m", f"{LUNAR}.quickstart"], "rl4sys: Lunar Lander needs Box2D"),
        ("torch", [*TRAIN, "--debug"], "rl4sys: this command needs torch"),
        ("gymnasium", [*TRAIN, "--dry-run"], "rl4sys: this command needs gymnasium"),
        ("typer", ["-m", "rl4sys", "list"], "rl4sys: this command needs typer"),
    ],
)
def test_missing_package_is_reported_in_one_line_without_traceback(
    missing: str, arguments: list[str], message: str, tmp_path: Path
) -> None:
    words = [str(ROOT / word) if word.endswith(".py") and "/" in word else word for word in arguments]
    done = subprocess.run(
        [sys.executable, *words],
        cwd=tmp_path,
        env=environment_without(tmp_path, missing),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    remedy = "which is not installed; install it in a checkout of RL4Sys: pip install -e '.[train]'"
    assert done.returncode == 2
    assert done.stderr == f"{message}, {remedy}\n"


def test_error_message_contains_extra_and_alternative() -> None:
    error = missing_package("logging.mlflow", "mlflow.tracking", "turn the setting off")
    assert str(error) == (
        "logging.mlflow needs mlflow, which is not installed; turn the setting off, or install it in a checkout of "
        "RL4Sys: pip install -e '.[mlflow]'"
    )


def test_error_for_missing_module_without_extra_is_unchanged() -> None:
    with pytest.raises(ModuleNotFoundError, match="No module named 'of_a_plugin'"), needed_by("this command"):
        import of_a_plugin  # noqa: F401


def test_check_reports_only_missing_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    check_installed("a server", "torch", "gymnasium")
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(MissingExtraError, match="a server needs gymnasium, which"):
        check_installed("a server", "torch", "gymnasium")


def test_every_requirement_is_assigned_to_its_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    client = tomllib.loads((ROOT / "packaging/client/pyproject.toml").read_text())["project"]["dependencies"]
    extras = {**project["optional-dependencies"], "train": set(project["dependencies"]) - set(client)}
    reported = {(name, extra_of(module)) for module, names in packages_distributions().items() for name in names}
    required = {(Requirement(line).name, extra) for extra, lines in extras.items() for line in lines}
    # Minari imports pillow and raises its own error if pillow is missing.
    required = {(name, extra) for name, extra in required if extra not in ("all", "dev") and name != "pillow"}
    installed = {(name, extra) for name, extra in required if name in {name for name, _ in reported}}
    assert len(installed) > 15
    assert installed <= reported
