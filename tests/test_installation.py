"""Installations into new virtual environments, followed by the documented first commands."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.checkout import ROOT, copy_checkout
from tests.client.test_light_install import LOOP
from tests.live import free_port, running_server

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(3600)]

Shell = Callable[[str], str]
"""Function that runs shell commands in a checkout, with a virtual environment activated, and returns the output."""

SERVER_AND_LANDER = """
cd rl4sys
python start_server.py --debug --port {port} & server=$!
trap 'kill $server; wait $server' EXIT
cd examples/lunar
python lunar_lander.py --debug --number-of-iterations 5 --server-address localhost:{port}
python -m rl4sys.examples.lunar.lunar_lander.py \\
    --seed 1 \\
    --number-of-iterations 5 \\
    --number-of-moves 200 \\
    --render False \\
    --client-id second --server-address localhost:{port}
cd ../../logs
ls rl4sys-ppo-info/lunar_lander/ rl4sys-ppo-info/second/
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("checkout")
    copy_checkout(target)
    return target


def install(line: str, checkout: Path, environment: Path) -> Shell:
    """Create a virtual environment, run one installation command in it, and return its shell."""
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    variables = {**os.environ, "PIP_CONSTRAINT": str(ROOT / "constraints.txt"), "MUJOCO_GL": "egl"}

    def run(lines: str) -> str:
        script = f". {environment}/bin/activate\nset -eu\n{lines}"
        done = subprocess.run(
            ["bash", "-c", script], cwd=checkout, env=variables, check=False, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{lines}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    run(line)
    return run


@pytest.fixture(scope="module")
def editable(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    return install("pip install -e .", checkout, tmp_path_factory.mktemp("editable"))


def test_editable_install_runs_server_and_lander(editable: Shell) -> None:
    output = editable(SERVER_AND_LANDER.format(port=free_port()))
    assert output.count("  5 episodes, ") == 2
    assert output.count("events.out.tfevents") == 2


@pytest.mark.parametrize(
    "arguments",
    [
        "ppo_cartpole --total-timesteps 4000",
        "--algorithm SAC --universe gym --domain HalfCheetah --task v5 --total-timesteps 600",
        "--algorithm SAC --universe dm_control --domain walker --task walk --total-timesteps 600",
    ],
)
def test_editable_install_trains(editable: Shell, arguments: str) -> None:
    assert "training finished" in editable(f"rl4sys train {arguments}")


def test_editable_install_generates_protocol_files(editable: Shell, checkout: Path) -> None:
    editable("cd rl4sys/proto && ./generate_proto.sh")
    for name in ("training.binpb", "messages.pyi"):
        assert (checkout / "rl4sys/wire" / name).read_bytes() == (ROOT / "rl4sys/wire" / name).read_bytes()


def test_requirements_file_installs_all_extras(checkout: Path, tmp_path: Path) -> None:
    shell = install("pip install -r requirements.txt", checkout, tmp_path / "environment")
    shell("python -c 'import ale_py, imageio_ffmpeg, minari, optuna, pettingzoo, torch; import rl4sys._core'")
    assert "2.13.0" in shell("python -c 'import torch; print(torch.__version__)'")
    shell("pip check")
    shell("pytest tests/test_spec.py")
    assert shell(SERVER_AND_LANDER.format(port=free_port())).count("  5 episodes, ") == 2


def test_client_install_has_few_packages_and_trains(checkout: Path, tmp_path: Path) -> None:
    shell = install("pip install ./packaging/client", checkout, tmp_path / "environment")
    installed = {line.partition("==")[0] for line in shell("pip freeze").splitlines()}
    assert len(installed) < 15
    assert not installed & {"torch", "gymnasium", "rl4sys"}
    with running_server(tmp_path / "live") as server:
        (tmp_path / "loop.py").write_text(LOOP.format(address=server.address, spool=str(tmp_path / "spool")))
        shell(f"cd {tmp_path} && python loop.py")
        server.wait_for_policy("light", lambda policy: policy.version >= 1)
    assert "needs typer" in shell("cd /; python -m rl4sys.server.server || true")


def test_cppclient_builds_and_passes_its_tests(checkout: Path) -> None:
    lines = "cd rl4sys/cppclient && mkdir build && cd build && cmake .. && make -j2 && ctest && make test"
    done = subprocess.run(["bash", "-ec", lines], cwd=checkout, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert done.stdout.count("100% tests passed") == 2
