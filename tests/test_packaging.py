"""Contents of both distributions, ignored files, generated documents, and the check of the installed core."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from dataclasses import dataclass
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

import rl4sys
from tests.checkout import copy_checkout
from tests.conftest import undefined_names

ROOT = Path(__file__).parent.parent

RUN_FILES = (
    "rl4sys/live/cache/status.json",
    "rl4sys/experiments/ppo/config.yaml",
    "rl4sys/logs/server.log",
    "rl4sys/logs/rl4sys-ppo-info/cache/events.out.tfevents.1",
    "rl4sys/examples/lunar/live/lunar_lander/status.json",
    "rl4sys/examples/lunar/experiments/ppo/config.yaml",
)
"""Output of runs started in the package directory. A wheel must not contain these files."""

CLIENT = "packaging/client"
CLIENT_PACKAGES = ["numpy", "grpcio", "protobuf", "pydantic", "pyyaml"]


def only_in_checkouts(name: str) -> bool:
    return name.startswith(("rl4sys/start_server.", "rl4sys/proto/", "rl4sys/cppclient/"))


@dataclass(frozen=True)
class Source:
    """Copy of the repository, with `RUN_FILES` added."""

    path: Path
    files: list[str]


@dataclass(frozen=True)
class Wheel:
    """Built wheel, the names of its files, and the build output."""

    path: Path
    names: set[str]
    output: str


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    target = tmp_path_factory.mktemp("source")
    files = copy_checkout(target, "tests/data/", "docs/")
    for name in RUN_FILES:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_text("{}")
    return Source(target, files)


def build_wheel(source: Source, target: Path, *options: str, project: str = ".", **environment: str) -> Wheel:
    command = [sys.executable, "-m", "pip", "wheel", f"./{project}", "--no-deps", "--no-build-isolation", "-v"]
    done = subprocess.run(
        [*command, "-w", str(target), "-C", f"build-dir={target / 'build'}", *options],
        cwd=source.path,
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )
    (path,) = target.glob("*.whl")
    with zipfile.ZipFile(path) as wheel:
        return Wheel(path, set(wheel.namelist()), done.stdout + done.stderr)


@pytest.fixture(scope="module")
def numpy_wheel(source: Source, tmp_path_factory: pytest.TempPathFactory) -> Wheel:
    """Wheel of `rl4sys` built without a compiler, which takes only seconds."""
    return build_wheel(source, tmp_path_factory.mktemp("numpy"), CXX="/no/such/compiler")


@pytest.fixture(scope="module")
def client_wheel(source: Source, tmp_path_factory: pytest.TempPathFactory) -> Wheel:
    """Wheel of `rl4sys-client`, also built without a compiler."""
    return build_wheel(source, tmp_path_factory.mktemp("client"), project=CLIENT, CXX="/no/such/compiler")


def base_requirements(wheel: Wheel) -> list[Requirement]:
    """Return the requirements of a wheel, without the requirements of extras."""
    found = [Requirement(line) for line in metadata(wheel).get_all("Requires-Dist")]
    return [requirement for requirement in found if "extra" not in str(requirement.marker)]


def metadata(wheel: Wheel) -> Message:
    with zipfile.ZipFile(wheel.path) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_bytes(archive.read(name))


def is_core(name: str) -> bool:
    return name.startswith("rl4sys/_core.") and not name.endswith(".pyi")


@pytest.mark.timeout(600)
def test_install_without_compiler_succeeds_with_a_message(numpy_wheel: Wheel) -> None:
    assert "the native core could not be compiled; installed with the numpy form" in numpy_wheel.output
    assert not [name for name in numpy_wheel.names if is_core(name)]
    assert numpy_wheel.path.name.endswith("-none-any.whl")


@pytest.mark.timeout(600)
def test_wheel_contains_exactly_the_package_files(source: Source, numpy_wheel: Wheel) -> None:
    package = {name for name in source.files if name.startswith("rl4sys/") and not only_in_checkouts(name)}
    assert {name for name in numpy_wheel.names if ".dist-info/" not in name} == package
    assert {
        "rl4sys/py.typed",
        "rl4sys/_core.pyi",
        "rl4sys/learner/learner.py",
        "rl4sys/environments/families/live.py",
        "rl4sys/configs/experiments/ppo_cartpole.yaml",
        "rl4sys/wire/training.binpb",
    } <= package
    assert not package & set(RUN_FILES)
    assert not [name for name in package if Path(name).suffix in (".cpp", ".hpp", ".proto", ".so")]
    unwanted = {
        "tests/conftest.py",
        "cpp/python/module.cpp",
        "rl4sys/start_server.py",
        "rl4sys/cppclient/CMakeLists.txt",
    }
    assert unwanted <= set(source.files), "these files exist, so a wheel could contain them"


@pytest.mark.timeout(600)
@pytest.mark.skipif(shutil.which("c++") is None, reason="needs a C++ compiler")
def test_compiled_wheel_contains_the_core(source: Source, numpy_wheel: Wheel, tmp_path: Path) -> None:
    # Without optimization the compiler takes a fraction of the time.
    compiled = build_wheel(source, tmp_path, "-C", "cmake.build-type=Debug", CXXFLAGS="-O0")
    (core,) = (name for name in compiled.names if is_core(name))
    assert core.endswith(".so")
    assert compiled.names - {core} == numpy_wheel.names
    assert not compiled.path.name.endswith("-none-any.whl")


@pytest.mark.timeout(600)
def test_client_distribution_has_the_same_modules_and_few_dependencies(numpy_wheel: Wheel, client_wheel: Wheel) -> None:
    assert "rl4sys-client: the native core could not be compiled" in client_wheel.output
    (own,) = {name.split("/")[0] for name in client_wheel.names if ".dist-info/" in name}
    assert own == f"rl4sys_client-{rl4sys.__version__}.dist-info"
    assert metadata(numpy_wheel)["Version"] == metadata(client_wheel)["Version"] == rl4sys.__version__
    assert {name for name in client_wheel.names if name.startswith("rl4sys/")} == {
        name for name in numpy_wheel.names if name.startswith("rl4sys/")
    }
    assert [requirement.name for requirement in base_requirements(client_wheel)] == CLIENT_PACKAGES
    assert not metadata(client_wheel).get_all("Provides-Extra")


@pytest.mark.timeout(600)
def test_main_distribution_adds_requirements_of_training_and_serving(numpy_wheel: Wheel, client_wheel: Wheel) -> None:
    required, needed_by_client = base_requirements(numpy_wheel), base_requirements(client_wheel)
    assert set(map(str, needed_by_client)) < set(map(str, required))
    assert {"torch", "gymnasium", "mujoco", "dm_control", "grpcio-health-checking", "typer"} <= {
        requirement.name for requirement in required
    }
    (gymnasium,) = (requirement for requirement in required if requirement.name == "gymnasium")
    assert gymnasium.extras == {"box2d", "mujoco"}
    extras = {"train", "all", "atari", "mujoco", "dm_control", "envpool", "pettingzoo", "minari", "video", "mlflow"}
    extras |= {"onnx", "datasets"}
    assert {*extras, "tune", "dev"} == {
        name.replace("-", "_") for name in metadata(numpy_wheel).get_all("Provides-Extra")
    }


def test_both_distributions_exclude_the_same_files() -> None:
    main, client = (
        tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["tool"]["scikit-build"]
        for folder in (".", CLIENT)
    )
    assert main["wheel"]["exclude"] == client["wheel"]["exclude"]


@pytest.mark.parametrize("arguments", [["-e", "."], ["-r", "requirements.txt"]])
def test_documented_install_commands_resolve_offline(arguments: list[str], tmp_path: Path) -> None:
    # All packages are installed, so pip only resolves versions. The nightly test installs into a new environment.
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "pip", "install", *arguments, "--dry-run", "--no-build-isolation", "--no-index"]
    environment = {**os.environ, "PIP_CONSTRAINT": str(ROOT / "constraints.txt")}
    done = subprocess.run(
        [*command, "--report", str(report)], cwd=ROOT, check=False, capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    (planned,) = json.loads(report.read_text())["install"]
    assert (planned["metadata"]["name"], planned["metadata"]["version"]) == ("rl4sys", rl4sys.__version__)
    assert "torch" in done.stdout


def test_repository_has_no_symbolic_links() -> None:
    # Archives, some file systems and some git settings turn links into text files.
    listed = subprocess.run(["git", "ls-files", "-s"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert [line for line in listed.splitlines() if line.startswith("120000")] == []
    assert (ROOT / CLIENT / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_requirements_file_uses_constraints_and_all_extras() -> None:
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    assert [line for line in lines if not line.startswith("#")] == ["-c constraints.txt", "-e .[all,dev]"]
    assert "torch==" in (ROOT / "constraints.txt").read_text()


def test_conda_environment_installs_python_and_the_requirements() -> None:
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    assert set(environment) == {"name", "channels", "dependencies"}
    python, pip, installed_with_pip = environment["dependencies"]
    assert (environment["name"], python, pip) == ("softlearning", "python=3.11", "pip")
    assert installed_with_pip == {"pip": ["-r requirements.txt"]}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert SpecifierSet(project["requires-python"]).contains(python.partition("=")[2])


@pytest.mark.parametrize(
    ("path", "ignored"),
    [
        ("experiments/ppo/metrics.jsonl", True),
        ("live/cache/status.json", True),
        ("rl4sys/examples/lunar/live/lunar_lander/status.json", True),
        ("rl4sys/configs/experiments/new.yaml", False),
        ("tests/data/legacy/live/cache/status.json", False),
        ("rl4sys/logs/lunar_lander/metrics.jsonl", True),
        ("rl4sys/cppclient/build/Makefile", True),
        ("rl4sys/environments/families/live.py", False),
        ("rl4sys/cppclient/CMakeLists.txt", False),
    ],
)
def test_git_ignores_run_output_only(path: str, ignored: bool) -> None:
    done = subprocess.run(["git", "check-ignore", "--quiet", "--no-index", path], cwd=ROOT, check=False)
    assert done.returncode == (0 if ignored else 1)


def test_algorithm_table_is_up_to_date() -> None:
    subprocess.run([sys.executable, ROOT / "scripts/algorithm_table.py", "--check"], check=True)


def test_config_reference_is_up_to_date() -> None:
    subprocess.run([sys.executable, ROOT / "scripts/config_reference.py", "--check"], check=True)


def test_version_is_the_same_in_package_cmake_and_citation() -> None:
    for name in ("CMakeLists.txt", "cpp/CMakeLists.txt", "rl4sys/cppclient/CMakeLists.txt"):
        assert f"project(rl4sys VERSION {rl4sys.__version__} LANGUAGES CXX)" in (ROOT / name).read_text(), name
    assert f"version: {rl4sys.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def collect_tests(installed: Path, **environment: str) -> tuple[int, str]:
    """Collect one test module with a distribution of rl4sys in ``installed`` that lists its own native core."""
    metadata = installed / "rl4sys-9.9.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: rl4sys\nVersion: 9.9\n")
    (metadata / "RECORD").write_text("rl4sys/_core.abi3.so,,\n")
    command = [sys.executable, "-m", "pytest", "tests/test_spec.py", "--collect-only", "-p", "no:cacheprovider"]
    variables = {**os.environ, "RL4SYS_NUMPY": "0", "PYTHONPATH": str(installed), **environment}
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, env=variables)
    return done.returncode, done.stdout + done.stderr


def test_pytest_fails_without_the_installed_core(tmp_path: Path) -> None:
    exit_code, output = collect_tests(tmp_path)
    assert exit_code == pytest.ExitCode.USAGE_ERROR
    assert f"the installed native core is {tmp_path}/rl4sys/_core.abi3.so, but the tests loaded" in output


def test_pytest_runs_without_the_core_on_request(tmp_path: Path) -> None:
    exit_code, output = collect_tests(tmp_path, RL4SYS_NUMPY="1")
    assert exit_code == pytest.ExitCode.OK, output


def test_stale_core_is_detected() -> None:
    stale = SimpleNamespace(Program=SimpleNamespace(forward=None, act=None))
    missing = undefined_names(stale)
    assert "Program.decide" in missing
    assert "SumTree" in missing
    assert "Program.forward" not in missing


def test_documents_page_is_up_to_date() -> None:
    subprocess.run([sys.executable, ROOT / "scripts/promises_page.py", "--check"], check=True)
