"""Documented commands, run in the folders of a checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from rl4sys.tracking.loggers import TensorBoardLogger
from tests.live import LiveServer

ROOT = Path(__file__).parent.parent
LUNAR = ROOT / "rl4sys/examples/lunar"
SHORT = ["--seed", "1", "--number-of-iterations", "3", "--number-of-moves", "200", "--render", "False"]


class CheckoutServer(LiveServer):
    """Server started with ``cd rl4sys && python start_server.py --debug`` in a copy of the checkout."""

    def __init__(self, checkout: Path) -> None:
        super().__init__(checkout / "rl4sys/logs", "--debug")
        self.folder = checkout / "rl4sys"
        self.folder.mkdir(exist_ok=True)
        for name in ("start_server.py", "start_server.yaml"):
            shutil.copy(ROOT / "rl4sys" / name, self.folder)

    def command(self) -> list[str]:
        return ["start_server.py"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CheckoutServer]:
    server = CheckoutServer(tmp_path_factory.mktemp("checkout"))
    # Python would import this file instead of the package if the folder of the script stayed on the path.
    (server.folder / "typer.py").write_text("raise AssertionError('the folder of the script is on the path')")
    server.start()
    yield server
    if server.running:
        server.stop()


def fly(command: Sequence[str], server: LiveServer, *options: str, folder: Path = LUNAR) -> str:
    done = subprocess.run(
        [sys.executable, *command, "--server-address", server.address, *options],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("command", "policy", "algorithm"),
    [
        (["lunar_lander.py", "--debug"], "lunar_lander", "ppo"),
        (["lunar_lander_dqn.py", "--debug"], "lunar_lander_dqn", "dqn"),
        (["-m", "rl4sys.examples.lunar.lunar_lander.py"], "lunar_lander", "ppo"),
        (["-m", "rl4sys.examples.lunar.lunar_lander_dqn.py"], "lunar_lander_dqn", "dqn"),
        (["-m", "rl4sys.examples.lunar.lunar_lander"], "lunar_lander", "ppo"),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else value,
)
def test_documented_lander_command_runs(
    command: list[str], policy: str, algorithm: str, server: CheckoutServer
) -> None:
    output = fly(command, server, *SHORT)
    assert "3 episodes" in output
    assert "dropped 0" in output
    found = server.wait_for_policy(policy, lambda found: found.steps_received > 0)
    assert found.algorithm == algorithm


def test_event_files_are_linked_below_their_algorithm(server: CheckoutServer) -> None:
    fly(["lunar_lander.py"], server, *SHORT, "--client-id", "logged")
    linked = server.root / "rl4sys-ppo-info/logged"
    assert linked.resolve() == (server.root / "logged/logs").resolve()
    assert list(linked.glob("events.out.tfevents.*"))
    assert not list(server.root.glob("rl4sys-dqn-info/logged"))


def test_event_file_link_moves_if_the_algorithm_changes(server: CheckoutServer) -> None:
    fly(["lunar_lander.py"], server, *SHORT, "--client-id", "moved")
    server.stop()
    shutil.rmtree(server.root / "moved")
    server.start()
    fly(["lunar_lander_dqn.py"], server, *SHORT, "--client-id", "moved")
    assert [path.parent.name for path in server.root.glob("rl4sys-*-info/moved")] == ["rl4sys-dqn-info"]


def test_tensorboard_reads_linked_event_files(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer

    logs = tmp_path / "policy/logs"
    logger = TensorBoardLogger(logs, 0)
    logger.log(1, {"episode/return": 3.0})
    logger.close()
    (tmp_path / "rl4sys-ppo-info").mkdir()
    (tmp_path / "rl4sys-ppo-info/policy").symlink_to(Path("../policy/logs"))
    multiplexer = EventMultiplexer().AddRunsFromDirectory(str(tmp_path / "rl4sys-ppo-info")).Reload()
    assert list(multiplexer.Runs()) == ["policy"]


def test_documented_client_file_works_with_the_shipped_lander(server: CheckoutServer) -> None:
    config = ROOT / "tests/data/promised_001.json"
    output = fly(["lunar_lander.py"], server, "--config", str(config), "--number-of-iterations", "260")
    assert "dropped 0" in output
    server.wait_for_policy("luna-landing", lambda policy: policy.version >= 1 and policy.steps_refused == 0)


def test_files_next_to_a_script_do_not_shadow_modules(server: CheckoutServer, tmp_path: Path) -> None:
    for name in ("lunar_lander.py", "lunar_lander_dqn.py", "luna_conf.json", "luna_dqn_conf.json"):
        shutil.copy(LUNAR / name, tmp_path)
    (tmp_path / "gymnasium.py").write_text("raise AssertionError('the folder of the script is on the path')")
    for script in ("lunar_lander.py", "lunar_lander_dqn.py"):
        assert "3 episodes" in fly([script], server, *SHORT, folder=tmp_path)


def test_proto_script_generates_the_committed_files(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHON": sys.executable}
    script = ["./generate_proto.sh", str(tmp_path)]
    subprocess.run(script, cwd=ROOT / "rl4sys/proto", check=True, capture_output=True, env=environment)
    for name in ("training.binpb", "messages.pyi"):
        assert (tmp_path / name).read_bytes() == (ROOT / "rl4sys/wire" / name).read_bytes()


def test_proto_script_without_grpcio_tools_prints_the_install_command(tmp_path: Path) -> None:
    done = subprocess.run(
        ["./generate_proto.sh", str(tmp_path)],
        cwd=ROOT / "rl4sys/proto",
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHON": "/usr/bin/false"},
    )
    remedy = "install it in this checkout: pip install -e ."
    assert (done.returncode, done.stderr) == (1, f"generate_proto: /usr/bin/false has no grpcio-tools; {remedy}\n")


def configure_cpp(build: Path, *options: str) -> subprocess.CompletedProcess[str]:
    if shutil.which("cmake") is None or shutil.which("grpc_cpp_plugin") is None:
        pytest.skip("the libraries of the C++ client are not installed; run make cpp")
    command = ["cmake", str(ROOT / "rl4sys/cppclient"), *options]
    return subprocess.run(command, cwd=build, check=False, capture_output=True, text=True)


def test_cppclient_configures_the_client_with_tests_and_examples(tmp_path: Path) -> None:
    configured = configure_cpp(tmp_path)
    assert configured.returncode == 0, configured.stderr
    targets = subprocess.run(["make", "help"], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    for target in ("test", "rl4sys_client", "rl4sys_tests", "lunar_lander"):
        assert f"... {target}\n" in targets
    tests = subprocess.run(["ctest", "-N"], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert "rl4sys_tests" in tests


def test_cppclient_without_libraries_prints_the_setup_script(tmp_path: Path) -> None:
    configured = configure_cpp(
        tmp_path, "-DCMAKE_DISABLE_FIND_PACKAGE_gRPC=ON", "-DCMAKE_DISABLE_FIND_PACKAGE_GTest=ON"
    )
    assert configured.returncode != 0
    message = " ".join(configured.stderr.split())
    assert "The C++ client needs the missing packages gRPC, GTest. On Debian or Ubuntu, run: bash" in message
    assert "scripts/setup_cpp.sh" in message
