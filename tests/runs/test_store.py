"""Tests of the run store: summaries, rebuilding of the index, and concurrent use."""

from __future__ import annotations

import fcntl
import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from pathlib import Path

import pytest

from rl4sys.errors import RunError
from rl4sys.runs import database
from rl4sys.runs.directory import config_hash
from rl4sys.runs.query import find_run, sort_runs
from rl4sys.runs.run import Run
from rl4sys.runs.store import RunStore, register, root_of

from ..conftest import small_config
from .runs import make_run, settings, write_rows

CONCURRENT = """
import os, sys, traceback
from pathlib import Path
{imports}
root, (wait, start), children = Path(sys.argv[1]), os.pipe(), []
for _ in range({processes}):
    if child := os.fork():
        children.append(child)
        continue
    os.close(start)
    os.read(wait, 1)
    try:
        {each}()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)
os.close(start)
sys.exit(sum(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))
"""

REGISTER = """
from datetime import datetime
from rl4sys.runs.run import Run
from tests.conftest import small_config

config = small_config("ppo")

def train():
    run = Run.create(root, config, datetime.now())
    with run.locked():
        run.write_status({"status": "running", "steps": 0})
        run.metrics.write_text('{"step": 7, "evaluation/return": 3.5}' + chr(10))
        run.write_status({"status": "completed", "steps": 7})
"""

LOSE_AND_REBUILD = """
from rl4sys.runs.store import RunStore

def lose_and_rebuild():
    for _ in range(3):
        (root / "registry.db").unlink(missing_ok=True)
        assert len(RunStore(root).rebuild()) == 10
"""


def run_concurrently(root: Path, processes: int, imports: str, each: str) -> None:
    """Run the same function in many processes at the same moment; all must succeed without output."""
    script = CONCURRENT.format(processes=processes, imports=imports, each=each)
    command = [sys.executable, "-c", script, str(root)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def rows_of(root: Path) -> list[tuple[str, ...]]:
    """Read the rows of the index without updating it."""
    with closing(sqlite3.connect(root / "registry.db")) as database:
        return database.execute("SELECT directory, status, steps, reward FROM runs ORDER BY directory").fetchall()


def names(found: RunStore) -> list[str]:
    return [run.path.name for run in found.runs()]


def test_run_summary_has_all_fields(tmp_path: Path) -> None:
    changed = small_config("ppo", "experiment.tags=[first, baseline]", "experiment.seed=7")
    run = Run.create(tmp_path, changed, datetime(2026, 3, 4, 5, 6, 7))
    [created] = RunStore(tmp_path).runs()
    assert (created.status, created.finished, created.steps, created.reward) == ("created", None, 0, None)
    with run.locked():
        run.write_status({"status": "running", "steps": 0})
        write_rows(run.path, {"step": 50, "episode/return": 8.0, "loss/policy": 0.5})
        write_rows(run.path, {"step": 60, "evaluation/return": 30.0}, {"step": 90, "evaluation/return": 20.0})
        run.write_status({"status": "completed", "steps": 96})
    [record] = RunStore(tmp_path).runs()
    provenance = json.loads((run.path / "configs/provenance.json").read_text())
    assert record.id == provenance["id"] == created.id
    assert len(record.id) == 8
    assert (record.name, record.seed, record.tags) == ("small_ppo", 7, ("first", "baseline"))
    assert (record.algorithm, record.environment) == ("ppo", "CartPole-v1")
    assert (record.status, record.steps, record.git_hash) == ("completed", 96, provenance["git_hash"])
    assert record.started == "2026-03-04T05:06:07"
    assert record.finished is not None
    assert record.finished > record.started
    assert (record.reward, record.best_reward) == (20.0, 30.0)
    assert record.outcome.final == {"episode/return": 8.0, "loss/policy": 0.5, "evaluation/return": 20.0}


def test_reward_is_the_training_return_if_there_are_no_evaluations(tmp_path: Path) -> None:
    make_run(
        tmp_path, "live", rows=[{"step": n, "episode/return": value} for n, value in ((1, 5.0), (2, 9.0), (3, 4.0))]
    )
    [record] = RunStore(tmp_path).runs()
    assert (record.reward, record.best_reward) == (4.0, 9.0)


def test_nan_is_never_the_best_reward(tmp_path: Path) -> None:
    rows = [{"step": n, "evaluation/return": value} for n, value in ((1, float("nan")), (2, 3.0), (3, float("nan")))]
    make_run(tmp_path, "broken", rows=rows)
    assert RunStore(tmp_path).runs()[0].best_reward == 3.0


def test_concurrent_writers_lose_no_run(tmp_path: Path) -> None:
    run_concurrently(tmp_path / "runs", 20, REGISTER, "train")
    registered = rows_of(tmp_path / "runs")
    assert len(registered) == 20
    assert {row[1:] for row in registered} == {("completed", 7, 3.5)}
    assert len(names(RunStore(tmp_path / "runs"))) == 20


def test_end_of_run_is_indexed_immediately(tmp_path: Path) -> None:
    run = Run.create(tmp_path, small_config("ppo"), datetime.now())
    with run.locked():
        for steps in range(5):
            run.write_status({"status": "running", "steps": steps})
        assert rows_of(tmp_path)[0][1:3] == ("running", 0), "updates during training are rate-limited"
        run.write_status({"status": "failed", "steps": 5})
    assert rows_of(tmp_path)[0][1:3] == ("failed", 5)


def test_deleted_or_corrupt_index_is_rebuilt_identically(tmp_path: Path) -> None:
    for seed in range(4):
        make_run(tmp_path, f"run_{seed}", seed=seed, tags=[f"t{seed}"], started=f"2026-03-0{seed + 1}T10:00:00")
    before = RunStore(tmp_path).runs()
    file = tmp_path / "registry.db"
    whole = file.read_bytes()
    file.unlink()
    lost = RunStore(tmp_path)
    assert (lost.runs(), lost.notes) == (before, [])
    for damage in (b"", b"not a database " * 500, whole[:5000], whole[:4096] + bytes(len(whole) - 4096)):
        file.write_bytes(damage)
        damaged = RunStore(tmp_path)
        assert damaged.runs() == before
        assert len(damaged.notes) == 1
        assert f"{file} was corrupt (" in damaged.notes[0]
        assert ") and was rebuilt from the runs" in damaged.notes[0]
        assert RunStore(tmp_path).runs() == before
    assert len(before) == 4


def test_index_with_wrong_schema_version_is_rebuilt(tmp_path: Path) -> None:
    make_run(tmp_path, "run")
    with closing(sqlite3.connect(tmp_path / "registry.db")) as database:
        database.execute("CREATE TABLE runs (something_else)")
        database.execute("PRAGMA user_version = 99")
    assert names(RunStore(tmp_path)) == ["run"]


def test_rebuild_ignores_content_of_index(tmp_path: Path) -> None:
    make_run(tmp_path, "run")
    before = RunStore(tmp_path).runs()
    with closing(sqlite3.connect(tmp_path / "registry.db", isolation_level=None)) as database:
        database.execute("UPDATE runs SET name = 'wrong'")
    assert RunStore(tmp_path).runs()[0].name == "wrong", "unchanged runs are read from the index"
    assert RunStore(tmp_path).rebuild() == before


def test_concurrent_rebuilds_are_safe(tmp_path: Path) -> None:
    for number in range(10):
        make_run(tmp_path, f"run_{number}")
    (tmp_path / "registry.db").write_bytes(b"damage" * 1000)
    run_concurrently(tmp_path, 8, LOSE_AND_REBUILD, "lose_and_rebuild")
    assert len(names(RunStore(tmp_path))) == 10


DAMAGE: dict[str, Callable[[Path], object]] = {
    "config.yaml is not valid YAML": lambda path: (path / "configs/config.yaml").write_text("a: [1"),
    "config.yaml is empty": lambda path: (path / "configs/config.yaml").write_text(""),
    "configs/config.yaml has no block algorithm": lambda path: (path / "configs/config.yaml").write_text(
        "experiment: {seed: 1}"
    ),
    "it has no configs/config.yaml": lambda path: (path / "configs/config.yaml").unlink(),
    "provenance.json is not JSON": lambda path: (path / "configs/provenance.json").write_text("{"),
    "status.json contains a list, not a dict": lambda path: (path / "status.json").write_text("[]"),
    "tags.json is not JSON": lambda path: (path / "tags.json").write_bytes(b"\xff\xfe"),
    "the row of metrics at byte 38 is not JSON": lambda path: write_rows(path) or _append(path, b"\0\0\0\n"),
    "the row of metrics at byte 38 is [1], not an object with a step": lambda path: _append(path, b"[1]\n"),
    "Python int too large": lambda path: (path / "status.json").write_text(json.dumps({"steps": 10**30})),
    "surrogates not allowed": lambda path: (path / "tags.json").write_text(json.dumps(["\ud800"])),
}


def _append(path: Path, content: bytes) -> None:
    with (path / "metrics.jsonl").open("ab") as file:
        file.write(content)


@pytest.mark.parametrize("message", DAMAGE)
def test_corrupt_run_is_skipped_with_note(tmp_path: Path, message: str) -> None:
    make_run(tmp_path, "whole")
    damaged = make_run(tmp_path, "damaged")
    assert names(RunStore(tmp_path)) == ["damaged", "whole"]
    DAMAGE[message](damaged)
    found = RunStore(tmp_path)
    for _ in range(2):
        assert names(found) == ["whole"]
        assert len(found.notes) == 1
        assert found.notes[0].startswith(f"skipped: {damaged} is damaged: ")
        assert message in found.notes[0]


def test_incomplete_last_metrics_row_is_ignored(tmp_path: Path) -> None:
    path = make_run(tmp_path, "run", rows=[{"step": 1, "episode/return": 1.0}])
    _append(path, b'{"step": 2, "epis')
    assert RunStore(tmp_path).runs()[0].reward == 1.0
    _append(path, b'ode/return": 2.0}\n')
    assert RunStore(tmp_path).runs()[0].reward == 2.0


def test_rows_replaced_by_resumed_run_are_read_again(tmp_path: Path) -> None:
    path = make_run(tmp_path, "run", rows=[{"step": 1, "episode/return": 50.0}])
    assert RunStore(tmp_path).runs()[0].best_reward == 50.0
    (path / "metrics.jsonl").unlink()
    write_rows(path, {"step": 1, "episode/return": 4.0}, {"step": 2, "episode/return": 3.0})
    record = RunStore(tmp_path).runs()[0]
    assert (record.reward, record.best_reward) == (3.0, 4.0)


def test_moved_copied_and_deleted_runs_are_detected(tmp_path: Path) -> None:
    for name in ("moved", "copied", "deleted"):
        make_run(tmp_path, name, started=f"2026-03-01T10:00:0{len(name)}")
    assert len(RunStore(tmp_path).runs()) == 3
    (tmp_path / "moved").rename(tmp_path / "elsewhere")
    shutil.copytree(tmp_path / "copied", tmp_path / "sorted" / "by hand" / "copy")
    shutil.rmtree(tmp_path / "deleted")
    found = {record.path.relative_to(tmp_path).as_posix(): record.id for record in RunStore(tmp_path).runs()}
    assert found == {"elsewhere": "id-moved", "copied": "id-copied", "sorted/by hand/copy": "id-copied"}
    with pytest.raises(RunError, match=r"'id-copied' matches 2 runs: .*copied \(id-copied\), .*by hand/copy"):
        find_run("id-copied", tmp_path)


def test_run_without_stored_id_gets_stable_id(tmp_path: Path) -> None:
    path = make_run(tmp_path, "old", id=None)
    [record] = RunStore(tmp_path).runs()
    assert len(record.id) == 8
    path.rename(tmp_path / "renamed")
    assert find_run(record.id, tmp_path) == tmp_path / "renamed"


def test_status_is_corrected_by_lock(tmp_path: Path) -> None:
    path = make_run(tmp_path, "run", status={"status": "running"})
    assert RunStore(tmp_path).runs()[0].status == "interrupted"
    with (path / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert RunStore(tmp_path).runs()[0].status == "running"
    assert RunStore(tmp_path).runs()[0].status == "interrupted"


def test_lock_is_retried_while_another_process_checks_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run.create(tmp_path, small_config("ppo"), datetime.now())
    (run.path / ".lock").touch()
    with (run.path / ".lock").open() as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        monkeypatch.setattr("rl4sys.runs.lock.time.sleep", lambda _: looking.close())
        with run.locked():
            assert looking.closed


def test_config_hash_covers_only_settings_that_affect_training() -> None:
    base = config_hash(settings(0, {}))
    assert base == config_hash(settings(5, {"experiment": {"name": "other", "tags": ["x"]}}))
    assert base == config_hash(settings(0, {"logging": {"frequency": 5}, "training": {"checkpoint_frequency": 9}}))
    different = [{"algorithm": {"lr": 0.002}}, {"environment": {"name": "Pong"}}, {"training": {"total_timesteps": 9}}]
    assert len({base, *(config_hash(settings(0, change)) for change in different)}) == 4


def test_seed_may_exceed_64_bits(tmp_path: Path) -> None:
    make_run(tmp_path, "run", seed=2**70)
    assert [RunStore(tmp_path).runs()[0].seed for _ in range(2)] == [2**70] * 2


def test_nested_run_is_registered_in_index_of_root(tmp_path: Path) -> None:
    register(make_run(tmp_path, "alone"))
    trial = make_run(tmp_path / "sweep" / "trials", "trial_1")
    assert root_of(trial) == tmp_path
    register(trial)
    assert [row[0] for row in rows_of(tmp_path)] == ["alone", "sweep/trials/trial_1"]
    assert not list((tmp_path / "sweep").rglob("registry.db"))


def test_unwritable_index_is_logged_once_and_training_continues(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "registry.db").mkdir()
    run = Run.create(tmp_path, small_config("ppo"), datetime.now())
    run.write_status({"status": "running", "steps": 1})
    run.write_status({"status": "completed", "steps": 2})
    assert [record.getMessage() for record in caplog.records] == [
        f"note: {tmp_path}/registry.db cannot be written: [Errno 21] Is a directory: '{tmp_path}/registry.db'. "
        "Training continues; `rl4sys list` finds the run by its directory"
    ]
    found = RunStore(tmp_path)
    assert [(record.path, record.status) for record in found.runs()] == [(run.path, "completed")]
    assert "registry.db cannot be written (" in found.notes[0]
    assert "so all runs were read from their directories" in found.notes[0]


def test_full_disk_during_index_update_does_not_stop_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(database.Index, "use", full)
    run = Run.create(tmp_path, small_config("ppo"), datetime.now())
    assert "database or disk is full" in caplog.text
    assert [record.id for record in RunStore(tmp_path).runs()] == [
        json.loads((run.path / "configs/provenance.json").read_text())["id"]
    ]


def test_intermediate_update_is_skipped_while_index_is_busy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_run(tmp_path, "run")
    register(path)
    (path / "status.json").write_text(json.dumps({"status": "running", "steps": 5}))
    with closing(sqlite3.connect(tmp_path / "registry.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        register(path, wait=False)
    assert caplog.records == [], "a busy index is not an error"
    assert rows_of(tmp_path)[0][1] == "completed"
    register(path, wait=False)
    assert rows_of(tmp_path)[0][1] == "running"


def test_discarded_run_is_removed_from_index(tmp_path: Path) -> None:
    run = Run.create(tmp_path, small_config("ppo"), datetime.now())
    assert len(rows_of(tmp_path)) == 1
    run.discard()
    assert rows_of(tmp_path) == []


@pytest.fixture
def three(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, identity in (("pole_1", "aaaa1111"), ("pole_2", "aabb2222"), ("lander_1", "cccc3333")):
        make_run(tmp_path / "experiments", name, id=identity)
    return Path("experiments")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("experiments/pole_1", "pole_1"),
        ("pole_1", "pole_1"),
        ("pole_1/", "pole_1"),
        ("aaaa1111", "pole_1"),
        ("aab", "pole_2"),
        ("lan", "lander_1"),
        ("c", "lander_1"),
        ("experiments/lan/", "lander_1"),
    ],
)
def test_run_is_found_by_path_name_id_or_prefix(three: Path, text: str, name: str) -> None:
    assert find_run(text, three) == three / name


def test_exact_name_takes_precedence_over_prefix(three: Path) -> None:
    make_run(three, "pole")
    assert find_run("pole", three) == three / "pole"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pole", r"'pole' matches 2 runs: .*pole_1 \(aaaa1111\), .*pole_2 \(aabb2222\); give a longer prefix"),
        ("aa", r"'aa' matches 2 runs"),
        ("experiments/pole", r"'experiments/pole' matches 2 runs"),
        ("poel_1", r"no run in experiments has the name or id 'poel_1'; did you mean pole_1\? Newest runs: .*lander_1"),
        ("zzzz", r"'zzzz'\. Newest runs: .*See `rl4sys list`"),
        ("experiments/pole_9", r"pole_9 is not a run directory: it has no configs/config.yaml\. Runs in experiments: "),
        ("experiments", r"experiments is not a run directory: .* Runs in experiments: lander_1, pole_1, pole_2"),
        ("x" * 4000, "no run in experiments has the name or id"),
    ],
)
def test_unknown_run_error_suggests_alternatives(three: Path, text: str, message: str) -> None:
    with pytest.raises(RunError, match=message):
        find_run(text, three)


def test_unknown_run_in_empty_root_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"no run 'pole': there are no runs in .*; choose another folder with --root"):
        find_run("pole", tmp_path)
    assert RunStore(tmp_path / "nowhere").runs() == []


def test_hosted_policies_are_found_from_default_root(three: Path) -> None:
    make_run(Path("live"), "cache", id="dddd4444")
    assert find_run("dddd", three) == Path("live/cache")
    with pytest.raises(RunError):
        find_run("dddd", Path("experiments/elsewhere"))


def test_store_imports_neither_torch_nor_gymnasium() -> None:
    code = "import rl4sys.runs.store, sys; sys.exit(bool({'torch', 'gymnasium'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_sorting_many_runs_compares_only_the_sort_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in (3, 1, 2):
        make_run(tmp_path, f"pole_{seed}", settings={"experiment": {"seed": seed}})
    runs = RunStore(tmp_path).runs()

    def fail(*_: object) -> bool:
        raise AssertionError("comparing whole runs takes quadratic time")

    monkeypatch.setattr(type(runs[0]), "__eq__", fail)
    assert [run.seed for run in sort_runs(runs, "seed")] == [3, 2, 1]
    assert [run.seed for run in sort_runs(runs, "seed", reverse=True)] == [1, 2, 3]
