"""Tests of the promises in the ledger: commands, configs and snippets of the documents work unchanged.

Commands run in a temporary checkout (`checkout.Checkout`). Rows of planned features are strict expected failures: when
a feature is added, these tests fail until the rows in the ledger are updated.
"""

from __future__ import annotations

import ast
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rl4sys.client.config import ClientConfig
from rl4sys.client.migration import migrate
from rl4sys.config import merged
from rl4sys.runs.config import parse_experiment
from tests.checkout import ROOT
from tests.live import running_server
from tests.promises.checkout import Checkout, make_checkout, stop
from tests.promises.ledger import Promise, Run, all_promises

DATA = Path(__file__).parents[1] / "data"
CLIENT_FILES = {"001": "promised_001.json", "003": "promised_003.json"}
TRAIN = "python scripts/train.py --config configs/experiments/ppo_cartpole.yaml --total_timesteps 512 --root runs"


def rows(check: str, nightly: bool = False) -> list[Any]:
    """Return test parameters for the rows with this check. Rows of planned features are strict expected failures."""
    found = [row for row in all_promises() if getattr(row, check)]
    if check == "run":
        found = [row for row in found if row.run is not None and row.run.nightly == nightly]
    return [pytest.param(row, id=row.id, marks=_marks(row)) for row in found]


def _marks(row: Promise) -> list[pytest.MarkDecorator]:
    return [pytest.mark.xfail(reason=f"planned: {row.planned}", strict=True)] if row.planned else []


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    return make_checkout(tmp_path_factory.mktemp("promises"))


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_server(tmp_path_factory.mktemp("server")) as live:
        yield live.address


@pytest.fixture(scope="session")
def runs(checkout: Checkout) -> list[Path]:
    """Train two short runs with the first command of document 002 and return their directories."""
    done = checkout.run(f"{TRAIN} && {TRAIN} --seed 2")
    assert done.returncode == 0, done.stdout
    return sorted((checkout.path / "runs").glob("ppo_cartpole*/"))


@pytest.fixture
def placeholders(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """Return the values of the placeholders in the arguments of a row. Unused fixtures are not set up."""
    run: Run = request.getfixturevalue("row").run
    found = {"tmp": str(tmp_path)}
    if "{server}" in run.args:
        found["server"] = request.getfixturevalue("server")
    if re.search(r"\{(run|run2|runs|checkpoint)\}", run.args):
        first, second = request.getfixturevalue("runs")
        found |= {"run": str(first), "run2": str(second), "runs": str(first.parent)}
        found["checkpoint"] = str(first / "checkpoints" / "latest")
    return found


def check_command(checkout: Checkout, run: Run, placeholders: dict[str, str]) -> None:
    command = f"{run.command} {run.args.format(**placeholders)}".strip()
    if run.until:
        output = output_until(checkout, command, run)
        assert re.search(run.until, output), output
        return
    done = checkout.run(command, run.cwd, run.timeout)
    if run.fails:
        assert done.returncode != 0, done.stdout
        assert "Traceback" not in done.stdout
        assert re.search(run.fails, done.stdout), done.stdout
        return
    assert done.returncode == 0, done.stdout
    assert re.search(run.expect, done.stdout), done.stdout


def output_until(checkout: Checkout, command: str, run: Run) -> str:
    """Return the output of a command up to the line that matches ``run.until`` or up to the timeout; then stop it."""
    lines: list[str] = []
    with checkout.start(command, run.cwd) as process:
        timer = threading.Timer(run.timeout, stop, [process])
        timer.start()
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if re.search(run.until, line):
                break
        timer.cancel()
        stop(process)
    return "".join(lines)


@pytest.mark.parametrize("row", rows("run"))
def test_documented_command_works(row: Promise, checkout: Checkout, placeholders: dict[str, str]) -> None:
    assert row.run is not None
    check_command(checkout, row.run, placeholders)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("row", rows("run", nightly=True))
def test_long_documented_command_works(row: Promise, checkout: Checkout, placeholders: dict[str, str]) -> None:
    assert row.run is not None
    check_command(checkout, row.run, placeholders)


@pytest.fixture(scope="session")
def snippet_errors(checkout: Checkout) -> dict[str, str]:
    """Run all Python snippets in one process and return the errors of failed snippets by row id."""
    snippets = {row.id: row.python for row in all_promises() if row.python}
    (checkout.path / "snippets.json").write_text(json.dumps(snippets))
    done = checkout.run(f"python {Path(__file__).with_name('run_snippets.py')} snippets.json")
    assert done.returncode == 0, done.stdout
    errors: dict[str, str] = json.loads((checkout.path / "errors.json").read_text())
    return errors


@pytest.mark.parametrize("row", rows("python"))
def test_documented_snippet_runs_without_error(row: Promise, snippet_errors: dict[str, str]) -> None:
    assert row.id not in snippet_errors, snippet_errors[row.id]


@pytest.mark.parametrize("row", rows("paths"))
def test_documented_path_exists(row: Promise) -> None:
    assert [path for path in row.paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("row", rows("test"))
def test_ledger_refers_to_existing_tests(row: Promise) -> None:
    file, _, name = row.test.partition("::")
    tree = ast.parse((ROOT / file).read_text())
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize("row", rows("config"))
def test_documented_client_setting_is_loaded(row: Promise) -> None:
    old = json.loads((DATA / CLIENT_FILES[row.document]).read_text())
    settings = migrate(old, set(ClientConfig.model_fields))
    if row.document == "001":
        assert ClientConfig.model_validate({"policy_id": "any", **settings})
    for key, value in row.config.items():
        assert value_at(settings, key) == value


@pytest.mark.parametrize("row", rows("document_config"))
def test_documented_experiment_is_loaded(row: Promise) -> None:
    given = yaml.safe_load((DATA / "promised.yaml").read_text())
    read = parse_experiment(given).to_settings()
    wanted = leaves(merged({}, given))  # with the current names of renamed settings
    assert len(wanted) == len(leaves(given)) > 20
    for key, value in wanted.items():
        assert value_at(read, key) == (float(value) if value == "3e-4" else value)


@pytest.mark.parametrize("row", rows("row"))
def test_row_that_covers_another_row_has_a_command(row: Promise) -> None:
    (target,) = (one for one in all_promises() if (one.document, one.promise) == (row.document, row.row))
    assert target.run is not None


def test_every_promise_has_a_check_and_a_location() -> None:
    promises = all_promises()
    assert len(promises) == len({row.id for row in promises}) == 310
    assert [row.id for row in promises if not row.checks or not row.now] == []


def value_at(settings: Any, dotted: str) -> Any:
    for key in dotted.split("."):
        settings = settings[key]
    return settings


def leaves(settings: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return all values of nested settings by dotted key."""
    found: dict[str, Any] = {}
    for key, value in settings.items():
        found |= leaves(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return found
