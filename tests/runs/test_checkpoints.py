"""Tests of checkpoints, metrics files and run directories on disk."""

from __future__ import annotations

import errno
import json
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as nst

from rl4sys.errors import CheckpointError, RunError
from rl4sys.runs.checkpoint import CheckpointStore
from rl4sys.runs.metrics import MetricsFile, read_metrics
from rl4sys.runs.run import Run
from rl4sys.runs.state_tree import join_state, split_state

from ..conftest import small_config

LEAVES = (
    st.none() | st.booleans() | st.integers(-(2**130), 2**130) | st.floats(allow_nan=False) | st.text()
    | nst.arrays(np.float32, nst.array_shapes(min_dims=0, min_side=0, max_side=3), elements=st.floats(width=32))
)  # fmt: skip
TREES = st.dictionaries(
    st.text(),
    st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)),
    max_size=4,
)


def equal(a: object, b: object) -> bool:
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and a.tobytes() == b.tobytes()
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(equal(a[k], b[k]) for k in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(equal, a, b))
    return a == b


@settings(max_examples=150, deadline=None)
@given(TREES)
def test_checkpoint_round_trips_any_state_exactly(
    tmp_path_factory: pytest.TempPathFactory, tree: dict[str, object]
) -> None:
    store = CheckpointStore(tmp_path_factory.mktemp("c"))
    store.save(1, tree, None)
    assert equal(store.load().state, tree)


def test_unsupported_type_in_state_is_rejected() -> None:
    with pytest.raises(
        TypeError, match="the state at /a/0 has type object; use arrays, numbers, strings, lists and dicts"
    ):
        split_state({"a": [object()]})


def test_missing_array_in_checkpoint_is_rejected() -> None:
    with pytest.raises(CheckpointError, match="the checkpoint has no array '/a'"):
        join_state(split_state({"a": np.zeros(2)})[0], {})


def test_checkpoint_contains_no_pickle(tmp_path: Path) -> None:
    CheckpointStore(tmp_path).save(1, {"a": np.zeros(2)}, None)
    names = {p.name for p in (tmp_path / "latest").iterdir()}
    assert names == {"manifest.json", "state.json", "state.safetensors"}
    assert b"\x80\x04" not in (tmp_path / "latest/state.safetensors").read_bytes()[:2]


def test_failed_write_keeps_last_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = CheckpointStore(tmp_path)
    store.save(1, {"a": 1}, None)
    monkeypatch.setattr("rl4sys.runs.checkpoint.write_synced", _full_disk)
    with pytest.raises(RunError, match="No space left on device; earlier checkpoints are unchanged"):
        store.save(2, {"a": 2}, None)
    assert store.load().state == {"a": 1}
    assert {p.name for p in tmp_path.iterdir()} == {"step_000000000001", "latest"}


def _full_disk(path: Path, content: bytes) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_newest_and_best_checkpoints_are_kept(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=2)
    for step in range(1, 6):
        store.save(step, {"step": step}, None, best=step == 2)
    assert store.names() == ["step_000000000002", "step_000000000004", "step_000000000005", "latest", "best"]
    assert store.load("best").state == {"step": 2}


def test_unrelated_directory_beside_checkpoints_is_ignored(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=1)
    (tmp_path / "step_old").mkdir()
    for step in (1, 2):
        store.save(step, {"step": step}, None)
    assert store.load().state == {"step": 2}
    assert (tmp_path / "step_old").is_dir()


def test_saved_checkpoint_is_kept_if_a_later_one_is_corrupt(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=1)
    (tmp_path / "step_000000000009").mkdir()
    store.save(2, {"step": 2}, None)
    assert store.load().state == {"step": 2}


def test_leftovers_of_killed_process_are_replaced(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    store.save(1, {"a": 1}, None)
    for suffix in ("new", "old"):
        (tmp_path / f".step_000000000001.{suffix}").mkdir()
    store.save(1, {"a": 2}, None)
    assert store.load().state == {"a": 2}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["latest", "step_000000000001"]


def test_loading_without_checkpoints_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no usable checkpoint in .*: the directory is empty"):
        CheckpointStore(tmp_path).load()


def test_metrics_after_checkpoint_are_truncated(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    first = MetricsFile(path, 0)
    first.log(1, {"a": 1.0})
    size = path.stat().st_size
    first.log(2, {"a": 2.0})
    first.close()
    second = MetricsFile(path, size)
    second.log(3, {"a": 3.0})
    second.close()
    assert read_metrics(path) == [{"step": 1, "a": 1.0}, {"step": 3, "a": 3.0}]


def test_incomplete_last_line_of_metrics_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "m").write_text('{"step": 1}\n{"st')
    assert read_metrics(tmp_path / "m") == [{"step": 1}]


def test_runs_started_in_one_second_get_distinct_directories(tmp_path: Path) -> None:
    now, config = datetime(2026, 1, 2, 3, 4, 5), small_config("ppo")
    names = [Run.create(tmp_path, config, now).path.name for _ in range(3)]
    assert names == ["small_ppo_20260102-030405", "small_ppo_20260102-030405-2", "small_ppo_20260102-030405-3"]


def test_opened_run_has_its_original_config(tmp_path: Path) -> None:
    run = Run.create(tmp_path, small_config("dqn"), datetime.now())
    assert Run.open(run.path).config == run.config
    provenance = json.loads((run.path / "configs/provenance.json").read_text())
    assert provenance["seed"] == 3
    assert "git_hash" in provenance


def test_lock_of_run_is_reentrant_and_exclusive(tmp_path: Path) -> None:
    run = Run.create(tmp_path, small_config("ppo"), datetime.now())
    other = Run.open(run.path)
    with run.locked(), run.locked(), pytest.raises(RunError, match="trained by another process"), other.locked():
        pass
    with run.locked():
        pass
