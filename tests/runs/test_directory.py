"""Tests of `RunDirectory`, the only module with the names of the files of a run."""

from __future__ import annotations

import ast
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import rl4sys
from rl4sys.errors import RunError
from rl4sys.runs import directory
from rl4sys.runs.directory import RunDirectory, run_directories, runs_below

from .runs import make_run, write_rows

FILES = {
    *(directory.CONFIG, directory.PROVENANCE, directory.LIVE_CONFIG, directory.STATUS, directory.METRICS),
    *(directory.DIGESTS, directory.TAGS, directory.CHECKPOINTS, directory.LOGS),
}


def string_constants(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and isinstance(node.right, ast.Constant):
            yield str(node.right.value)


def test_only_directory_module_contains_names_of_run_files() -> None:
    package = Path(rl4sys.__file__).parent
    modules = [path for path in package.rglob("*.py") if path != Path(directory.__file__)]
    assert len(modules) > 100
    offending = {
        str(path.relative_to(package)): found for path in modules if (found := FILES & set(string_constants(path)))
    }
    assert offending == {}


def test_missing_run_directory_is_read_as_empty(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "missing")
    assert not run.exists
    assert not run.is_live
    assert (run.status(), run.provenance(), run.live_config(), run.tags()) == ({}, {}, {}, None)
    assert (run.metric_rows(), run.valid_metric_rows(), run.digest_rows(), run.alerts()) == ([], [], [], [])
    assert run.failure_checkpoints() == []
    assert not (tmp_path / "missing").exists()


def test_corrupt_status_is_an_error_unless_read_by_status_or_empty(tmp_path: Path) -> None:
    run = RunDirectory(make_run(tmp_path, "run"))
    (run.path / "status.json").write_text("{")
    with pytest.raises(RunError, match=r"run is damaged: status\.json is not JSON: .*; delete status\.json"):
        run.status()
    assert run.status_or_empty() == {}


def test_update_of_status_keeps_other_fields(tmp_path: Path) -> None:
    run = RunDirectory(make_run(tmp_path, "run", status={"steps": 7}))
    run.update_status(status="failed")
    assert (run.status()["status"], run.status()["steps"]) == ("failed", 7)


def test_live_config_marks_a_hosted_policy(tmp_path: Path) -> None:
    run = RunDirectory(make_run(tmp_path, "run"))
    assert not run.is_live
    run.write_live_config({"lineage": "a"})
    assert run.is_live
    assert run.live_config() == {"lineage": "a"}


def test_appended_rows_are_read_once(tmp_path: Path) -> None:
    run = RunDirectory(make_run(tmp_path, "run", rows=[{"step": 1}]))
    appended = run.appended_metrics()
    assert appended.read() == [{"step": 1}]
    assert appended.read() == []
    write_rows(run.path, {"step": 2}, {"step": 3})
    assert appended.read() == [{"step": 2}, {"step": 3}]


def test_thinned_metrics_keep_last_and_best_rows(tmp_path: Path) -> None:
    rows = [{"step": step, "episode/return": float(step == 37)} for step in range(100)]
    rows[53] = {"step": 53, "loss/policy": 1.0}
    run = RunDirectory(make_run(tmp_path, "run", rows=rows))
    run.thin_metrics(100)
    assert len(run.metric_rows()) == 100
    run.thin_metrics(10)
    assert [row["step"] for row in run.metric_rows()] == [0, 10, 20, 30, 37, 40, 50, 53, 60, 70, 80, 90, 99]


def test_large_files_are_deleted_without_following_links(tmp_path: Path) -> None:
    run = RunDirectory(make_run(tmp_path, "run"))
    run.create_folders()
    outside = tmp_path / "outside.txt"
    outside.write_text("kept")
    (run.logs / "events").write_bytes(b"x" * 10_000)
    (run.checkpoints / "step_1").mkdir()
    (run.checkpoints / "step_1" / "link").symlink_to(outside)
    assert run.large_files_bytes() >= 10_000
    run.delete_large_files()
    assert [*run.logs.iterdir(), *run.checkpoints.iterdir()] == []
    assert outside.read_text() == "kept"
    assert run.metric_rows() != []


def test_runs_are_found_up_to_three_levels_deep(tmp_path: Path) -> None:
    nested = make_run(tmp_path / "a" / "b", "run")
    make_run(tmp_path / "a" / "b" / "c", "too_deep")
    make_run(tmp_path / ".hidden", "run")
    lost = make_run(tmp_path, "lost")
    (lost / "configs/config.yaml").unlink()
    notes: list[str] = []
    assert list(run_directories(tmp_path, notes.append)) == [nested]
    assert notes == [f"skipped: {lost} is damaged: it has no configs/config.yaml"]
    assert runs_below(tmp_path) == [nested]
    assert runs_below(nested) == [nested]
    assert runs_below(tmp_path / "missing") == []


def test_stamp_of_missing_file_is_none(tmp_path: Path) -> None:
    run = RunDirectory(make_run(tmp_path, "run"))
    before = run.stamps()
    assert before.count(None) == 1, "there is no tags.json yet"
    run.write_tags(["baseline"])
    assert run.stamps().count(None) == 0
    assert json.loads((run.path / "tags.json").read_text()) == ["baseline"]


def test_unreadable_folder_is_skipped_with_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_run(tmp_path, "run")
    (tmp_path / "private").mkdir()
    scandir = os.scandir

    def deny_private(path: Path) -> Iterator[os.DirEntry[str]]:
        if Path(path).name == "private":
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", deny_private)
    notes: list[str] = []
    assert [path.name for path in run_directories(tmp_path, notes.append)] == ["run"]
    assert notes == [f"skipped: {tmp_path / 'private'} cannot be read: Permission denied"]
