"""Files of an earlier version can be read, resumed and sent, with the results that the earlier version recorded.

`scripts/make_legacy_data.py` wrote the data with commit fcc2479.
"""

from __future__ import annotations

import copy
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from rl4sys.client import RL4SysAgent
from rl4sys.config import merged
from tests import legacy
from tests.legacy import Facts, command

DATA = Path(__file__).parent / "data" / "legacy"
WAIT_SECONDS = 60.0
MACHINE_DEPENDENT = {"weights", "experience"}
TOLERANCE = 0.05
"""Tolerance for metrics on other processors, where rounding differs and training amplifies the difference."""

TINY = {
    "algorithm": {"name": "ppo", "epochs": 1},
    "environment": {"name": "CartPole-v1"},
    "network": {"actor": {"hidden_dims": [4]}, "critic": {"hidden_dims": [4]}},
    "buffer": {"size": 64},
    "training": {"total_timesteps": 64},
    "logging": {"terminal": False, "tensorboard": False},
}


def expected(kind: str) -> Facts:
    facts: Facts = json.loads((DATA / "expected" / f"{kind}.json").read_text())
    return facts


RUNS, LIVE, CONFIGS = expected("runs"), expected("live"), expected("configs")
Check = Callable[[Any, Any], None]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Copy of the data, in the working directory of the test."""
    copy = tmp_path / "data"
    shutil.copytree(DATA, copy)
    restore_links(copy)
    monkeypatch.chdir(copy)
    return copy


def restore_links(folder: Path) -> None:
    """Replace text files by symbolic links. Each of these files contains the name of a checkpoint."""
    for name in ("latest", "best"):
        for link in folder.rglob(f"checkpoints/{name}"):
            target = link.read_text()
            link.unlink()
            link.symlink_to(target)


@pytest.fixture(scope="module")
def same_machine(tmp_path_factory: pytest.TempPathFactory) -> bool:
    """True if the processor and the packages are those with which the data was recorded."""
    folder = tmp_path_factory.mktemp("machine")
    (folder / "tiny.json").write_text(json.dumps(TINY))
    command("train", folder / "tiny.json", "--root", folder / "runs")
    (config,) = folder.glob("runs/*/configs")
    return bool(legacy.machine(config.parent) == RUNS["machine"])


@pytest.fixture
def check(same_machine: bool) -> Check:
    """Compare facts with expected facts: exactly on the same kind of machine, else with a tolerance."""
    return lambda found, wanted: assert_contains(found, wanted, exact=same_machine)


@pytest.fixture
def need_same_machine(same_machine: bool) -> None:
    if not same_machine:
        pytest.skip("the data was recorded with another kind of processor or other packages")


def assert_contains(found: Any, wanted: Any, at: str = "facts", *, exact: bool) -> None:
    """Check that ``found`` contains every value of ``wanted``; it may also contain settings of later versions."""
    if isinstance(wanted, dict):
        assert wanted.keys() <= found.keys(), at
        for key, value in wanted.items():
            if exact or key not in MACHINE_DEPENDENT:
                assert_contains(found[key], value, f"{at}.{key}", exact=exact)
    elif isinstance(wanted, list):
        assert len(found) == len(wanted), at
        for place, value in enumerate(wanted):
            assert_contains(found[place], value, f"{at}[{place}]", exact=exact)
    elif isinstance(wanted, float) and not exact:
        assert found == pytest.approx(wanted, rel=TOLERANCE, abs=TOLERANCE), at
    else:
        assert found == wanted, at


@pytest.mark.parametrize("name", RUNS["runs"])
def test_legacy_run_is_read_evaluated_and_resumed(name: str, data: Path, check: Check) -> None:
    wanted = RUNS["runs"][name]
    path = data / "runs" / wanted["directory"]
    assert legacy.weights(path / "checkpoints" / "latest") == wanted["weights"]
    check(legacy.stored_run(path), {key: wanted[key] for key in legacy.STORED})
    check(legacy.resumed_run(path, wanted["resume_to"]), wanted["resumed"])
    assert wanted["resumed"]["weights"] != wanted["weights"], "the resumed run should change the weights"


def test_legacy_runs_are_listed(data: Path) -> None:
    assert legacy.listed(Path("runs")) == RUNS["list"]


def test_legacy_runs_are_listed_without_an_index(data: Path) -> None:
    (data / "runs" / "registry.db").unlink()
    assert legacy.listed(Path("runs")) == RUNS["list"]


def test_best_checkpoint_of_legacy_run_is_evaluated(data: Path) -> None:
    path = data / "runs" / RUNS["runs"]["dqn"]["directory"]
    shown = json.loads(command("evaluate", path, "--checkpoint", "best", "--episodes", "1", "--json"))
    assert shown["checkpoint"] == (DATA / "runs" / path.name / "checkpoints" / "best").read_text()


@pytest.mark.usefixtures("need_same_machine")
@pytest.mark.parametrize("name", ["ppo", "dqn"])
def test_legacy_run_is_repeated_bit_for_bit(name: str, data: Path) -> None:
    command("verify", data / "runs" / RUNS["runs"][name]["directory"])


def test_stopped_legacy_sweep_is_resumed(data: Path, check: Check) -> None:
    path = data / "runs" / RUNS["sweep"]["directory"]
    command("sweep", "--resume", path)
    check(legacy.series(path), RUNS["sweep"]["resumed"])


def test_legacy_study_is_continued(data: Path, check: Check) -> None:
    wanted = RUNS["study"]
    path = data / "runs" / wanted["directory"]
    check(legacy.series(path), {key: wanted[key] for key in ("ranking", "trials")})
    command("tune", "--resume", path, f"n_trials={wanted['n_trials']}")
    check(legacy.series(path), wanted["resumed"])


RELU = {"settings.network.actor.activation": "relu", "settings.network.critic.activation": "relu"}
CORRECTED: dict[str, Facts] = {
    # The earlier version used the larger of train_pi_iters and train_v_iters for both networks.
    "client/first_form_continuous.json": {"migrated.algorithm.gradient_steps": 5},
    # If no activation is set, softlearning uses relu.
    "experiment/softlearning.json": RELU,
    "experiment/softlearning_kwargs.json": RELU,
}
"""Settings that the earlier version migrated incorrectly, with the correct values."""


def corrected(name: str) -> Facts:
    facts: Facts = copy.deepcopy(CONFIGS[name])
    for dotted, value in CORRECTED.get(name, {}).items():
        *blocks, key = dotted.split(".")
        block = facts
        for part in blocks:
            block = block[part]
        assert block[key] != value
        block[key] = value
    # After loading, renamed settings have their current names: environment.wrapper is environment.family.
    return {part: {**settings, **merged({}, settings)} for part, settings in facts.items()}


@pytest.mark.parametrize("name", CONFIGS)
def test_legacy_config_is_migrated(name: str, data: Path) -> None:
    assert_contains(legacy.migrated(data / "configs" / name), corrected(name), exact=True)


def test_every_legacy_config_file_has_an_expected_result() -> None:
    files = {path.relative_to(DATA / "configs").as_posix() for path in (DATA / "configs").glob("*/*")}
    assert files == CONFIGS.keys()


def test_legacy_server_root_and_spools_are_read(data: Path, check: Check) -> None:
    check(legacy.live(data), LIVE)
    assert all(spool["sequences"] for spool in LIVE["spools"].values())


@pytest.mark.usefixtures("need_same_machine")
def test_legacy_live_policy_is_repeated_from_its_journal(data: Path) -> None:
    command("verify", data / "live_root" / "pole")


@contextmanager
def server(data: Path) -> Iterator[str]:
    """Start a server on the copied root and yield its address. The server must stop cleanly at the end."""
    (data / "server.json").write_text(json.dumps({"journal": "archive", "tensorboard": False, "device": "cpu"}))
    arguments = ["serve", "--port", "0", "--root", "live_root", "--config", "server.json"]
    process = subprocess.Popen(
        [sys.executable, "-m", "rl4sys", *arguments],
        cwd=data,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with process:
        assert process.stdout is not None
        found = re.search(r"\S+:\d+", process.stdout.readline())
        try:
            assert found, "the server did not start"
            yield found[0]
        finally:
            process.terminate()
            assert process.wait(WAIT_SECONDS) == 0


def is_empty(folder: Path) -> bool:
    return not folder.is_dir() or not any(folder.iterdir())


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        assert time.monotonic() < deadline, "timeout"
        time.sleep(0.02)


def client(data: Path, name: str, address: str) -> RL4SysAgent:
    return RL4SysAgent(data / "clients" / f"{name}.json", server_address=address)


def test_legacy_live_policy_is_served_and_continues_to_learn(data: Path) -> None:
    version = LIVE["policies"]["pole"]["policy"]["version"]
    with server(data) as address, client(data, "pole-1", address) as agent:
        assert agent.wait_for_model(WAIT_SECONDS)
        assert agent.version == version, "the server should start with the model of the checkpoint"
        legacy.drive(agent, 200)
        assert agent.flush(WAIT_SECONDS)
        assert agent.wait_for_model(WAIT_SECONDS, version + 2)
        assert agent.statistics().fallback_decisions == 0
    before, after = LIVE["policies"]["pole"]["journal"], legacy.journal(data / "live_root" / "pole" / "journal.db")
    assert after["steps"] == before["steps"] + 200
    assert [one for one in after["clients"] if one in before["clients"]] == before["clients"]


def test_legacy_spools_of_killed_clients_are_sent(data: Path) -> None:
    """One spool is from the Python client, the other from the C++ client. Both used models of this server root."""
    with server(data) as address:
        for name, left in LIVE["spools"].items():
            with client(data, name, address):
                wait_until(partial(is_empty, data / "spools" / name))
            policy = json.loads((data / "clients" / f"{name}.json").read_text())["policy_id"]
            before = LIVE["policies"][policy]["journal"]
            after = legacy.journal(data / "live_root" / policy / "journal.db")
            assert after["rows"] == before["rows"] + len(left["sequences"])
            assert after["steps"] == before["steps"] + left["steps"]
            assert left["sequences"][-1] in [sequence for client, _, sequence in after["clients"] if client == name]


def test_legacy_client_configs_create_their_policies(data: Path) -> None:
    names = ("first_form_dqn.yaml", "second_form_dqn.yaml")
    with server(data) as address:
        for name in names:
            with RL4SysAgent(data / "configs" / "client" / name, server_address=address) as agent:
                assert agent.wait_for_model(WAIT_SECONDS)
                assert agent.version == 0
    for name in names:
        wanted = CONFIGS[f"client/{name}"]["migrated"]
        made = yaml.safe_load((data / "live_root" / wanted["client_id"] / "configs" / "config.yaml").read_text())
        assert_contains(made["algorithm"], wanted["algorithm"], exact=True)
        assert made["buffer"]["size"] == wanted["buffer"]["size"]
