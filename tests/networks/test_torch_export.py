"""Programs of torch.export give the actions, parameters and memory of the policies that they were made from."""

from __future__ import annotations

import io
import json
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings

from rl4sys.errors import ExportError
from rl4sys.networks.program_module import ProgramModule
from rl4sys.networks.torch_export import METADATA_FILE, to_exported_program, to_pt2
from rl4sys.policy.draws import Draws
from rl4sys.policy.export_check import Run, check_model
from rl4sys.policy.export_plan import ExportPlan
from rl4sys.policy.program import Operation
from rl4sys.policy.snapshot import Snapshot
from rl4sys.policy.snapshot_policy import SnapshotPolicy
from rl4sys.spec import Box, Columns, Discrete
from rl4sys.trajectory import MEMORY

from ..policy.exported import (
    SNAPSHOTS,
    assert_acts_like,
    close,
    golden,
    inputs_of,
    random_columns,
    random_snapshots,
    single,
    without_noise,
)

# One for each network type and each kind of action space; tracing takes about a second.
TRACED = [
    "network mlp_norm",
    "network cnn_nature",
    "network cnn_impala",
    "network gru",
    "network lstm_masked",
    "network transformer",
    "network items_and_wait",
    "network items_binary",
    "network dict_items",
    "golden lstm",
    "golden noisy",
    "golden squashed_gaussian",
    "golden multi_categorical_masked",
    "c51, discrete",
    "sql, bounded continuous",
]


def runner(module: Callable[..., dict[str, torch.Tensor]]) -> Run:
    def run(inputs: Columns) -> Columns:
        tensors = {name: torch.from_numpy(column) for name, column in inputs.items()}
        with torch.no_grad():
            outputs = module(tensors.pop("observation"), **tensors)
        return {name: output.numpy() for name, output in outputs.items()}

    return run


def loaded(content: bytes) -> Run:
    return runner(torch.export.load(io.BytesIO(content)).module())


@pytest.mark.parametrize("make", SNAPSHOTS.values(), ids=SNAPSHOTS)
def test_module_acts_like_the_policy(make: Callable[[], Snapshot]) -> None:
    snapshot = without_noise(make())
    assert_acts_like(snapshot, runner(ProgramModule(ExportPlan(snapshot))))


@settings(max_examples=60, deadline=None)
@given(snapshot=random_snapshots())
def test_module_matches_numpy_for_random_programs(snapshot: Snapshot) -> None:
    plan = ExportPlan(snapshot)
    check_model(plan, runner(ProgramModule(plan)), "torch")


@pytest.mark.parametrize("name", TRACED)
def test_program_loaded_from_a_file_acts_like_the_policy(name: str) -> None:
    snapshot = without_noise(SNAPSHOTS[name]())
    assert_acts_like(snapshot, loaded(to_pt2(snapshot)))


def test_batch_axis_is_dynamic() -> None:
    snapshot = golden("gru")
    run = runner(to_exported_program(snapshot).module())
    inputs = inputs_of(snapshot, random_columns(snapshot.spec, 50), np.ones((50, snapshot.memory_size), np.float32))
    whole = run(inputs)
    for rows in (slice(1), slice(2), slice(10, 33)):
        part = run({name: column[rows] for name, column in inputs.items()})
        close(part["next_memory"], whole["next_memory"][rows])
        assert part["action"].tolist() == whole["action"][rows].tolist()


def test_nan_gives_the_first_legal_action_and_keeps_the_memory() -> None:
    for name in ("categorical_masked", "multi_categorical_masked", "gru", "lstm"):
        snapshot = golden(name)
        columns = random_columns(snapshot.spec, 6)
        columns[next(iter(columns))][2:] = np.nan
        memory = np.full((6, snapshot.memory_size), 0.25, np.float32)
        outputs = runner(ProgramModule(ExportPlan(snapshot)))(inputs_of(snapshot, columns, memory))
        expected = SnapshotPolicy(snapshot.greedy()).act(columns, {MEMORY: memory} if memory.size else {}, Draws(1))
        assert np.isnan(expected.log_prob).tolist() == [False] * 2 + [True] * 4
        close(outputs["action"], snapshot.spec.action.legal(expected.action))
        close(outputs.get("next_memory", memory), expected.memory.get(MEMORY, memory))


def test_first_legal_action_is_selected_in_a_tie() -> None:
    module = ProgramModule(ExportPlan(single(Operation("argmax"), Discrete(4), Box((4,)), masked=True)))
    rows = torch.tensor([[9.0, 5.0, 5.0, 1.0], [-torch.inf] * 4])
    mask = torch.tensor([[False, True, True, True], [False, False, True, True]])
    assert module(rows, mask)["action"].tolist() == [1, 2]


def test_pt2_file_contains_version_spec_and_hash() -> None:
    snapshot, extra_files = golden("squash"), {METADATA_FILE: ""}
    torch.export.load(io.BytesIO(to_pt2(snapshot)), extra_files=extra_files)
    metadata = json.loads(extra_files[METADATA_FILE])
    assert json.loads(metadata["spec"]) == snapshot.spec.to_json()
    assert (metadata["version"], metadata["sha256"]) == (str(snapshot.version), snapshot.content_hash)


def test_policy_that_draws_noise_is_rejected() -> None:
    with pytest.raises(ExportError, match=r"noise \(operation 1\) has scale 0.5"):
        to_exported_program(golden("noise"))
