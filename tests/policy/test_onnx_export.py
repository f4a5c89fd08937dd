"""ONNX models give the actions, parameters and memory of the policies that they were made from."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from hypothesis import given, settings

from rl4sys.errors import ExportError
from rl4sys.policy.draws import Draws
from rl4sys.policy.export_check import Run
from rl4sys.policy.onnx_export import to_onnx
from rl4sys.policy.program import BODY, HEADS, Operation
from rl4sys.policy.snapshot import Snapshot
from rl4sys.policy.snapshot_policy import SnapshotPolicy
from rl4sys.spec import Box, Columns, Discrete, MultiDiscrete
from rl4sys.trajectory import MEMORY

from ..blocked import environment_without
from ..networks.test_forms_agree import CASES as NETWORKS
from ..networks.test_forms_agree import built, observations, snapshot_of
from .exported import (
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


def runner(content: bytes) -> Run:
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])

    def run(inputs: Columns) -> Columns:
        names = [output.name for output in session.get_outputs()]
        return dict(zip(names, session.run(names, dict(inputs)), strict=True))

    return run


def run_on(snapshot: Snapshot, **inputs: object) -> Columns:
    types = {"observation": np.float32, "mask": np.bool_, "memory": np.float32}
    return runner(to_onnx(snapshot))({name: np.array(values, types[name]) for name, values in inputs.items()})


@pytest.mark.parametrize("make", SNAPSHOTS.values(), ids=SNAPSHOTS)
def test_model_acts_like_the_policy(make: Callable[[], Snapshot]) -> None:
    snapshot = without_noise(make())
    assert_acts_like(snapshot, runner(to_onnx(snapshot)))


def test_snapshot_cases_cover_every_operation() -> None:
    programs = [without_noise(make()).program for make in SNAPSHOTS.values()]
    names = {operation.name for program in programs for operation in program.operations}
    assert names == set(BODY + HEADS)


@settings(max_examples=60, deadline=None)
@given(snapshot=random_snapshots())
def test_random_programs_can_be_exported(snapshot: Snapshot) -> None:
    assert onnx.load_from_string(to_onnx(snapshot)).graph.output


@pytest.mark.parametrize("case", [case for case in NETWORKS if case != "mlp_noisy"])
def test_model_returns_the_outputs_of_the_torch_network(case: str) -> None:
    spec, network = built(case)
    columns, snapshot = observations(spec, rows=9), snapshot_of(spec, network)
    outputs = runner(to_onnx(snapshot))(inputs_of(snapshot, columns, np.zeros((9, snapshot.memory_size), np.float32)))
    with torch.no_grad():
        expected = network({name: torch.as_tensor(column) for name, column in columns.items()}).numpy()
    assert expected.std() > 1e-3
    close(outputs["mean" if isinstance(spec.action, Box) else "logits"], expected)


HEAD_OUTPUTS = {
    "categorical": ["logits"],
    "multi_categorical": ["logits"],
    "argmax": ["scores"],
    "multi_argmax": ["scores"],
    "epsilon_greedy": ["scores"],
    "gaussian": ["mean", "log_std"],
    "squashed_gaussian": ["mean", "log_std"],
    "mode": ["mean"],
    "squashed_mode": ["mean"],
    "noisy_squash": ["mean"],
    "squash": ["mean"],
    "uniform": ["mean"],
}


@pytest.mark.parametrize("head", HEADS)
def test_output_names_depend_on_the_head(head: str) -> None:
    snapshot = golden(head)
    model = onnx.load_from_string(to_onnx(snapshot))
    assert [output.name for output in model.graph.output] == [*HEAD_OUTPUTS[head], "action"]


def test_gaussian_head_returns_mean_and_constant_log_std() -> None:
    snapshot = single(Operation("gaussian", ("log_std",)), Box((2,)), Box((2,)), log_std=[-0.5, 0.25])
    outputs = run_on(snapshot, observation=[[1, -2], [3, 4]])
    assert outputs["mean"].tolist() == outputs["action"].tolist() == [[1, -2], [3, 4]]
    assert outputs["log_std"].tolist() == [[-0.5, 0.25]] * 2


BOUNDS = {"low": [-1, 10], "high": [3, 11]}
BOUNDED = Box((2,), low=(-1.0, 10.0), high=(3.0, 11.0))


def test_squashed_gaussian_head_returns_clipped_log_std_and_action_within_bounds() -> None:
    head = Operation("squashed_gaussian", ("low", "high"), {"log_std_min": -2.0, "log_std_max": 0.5})
    outputs = run_on(single(head, BOUNDED, Box((4,)), **BOUNDS), observation=[[0.5, 40, -9, 0.25]])
    assert outputs["mean"].tolist() == [[0.5, 40]]
    assert outputs["log_std"].tolist() == [[-2, 0.25]]
    close(outputs["action"], np.array([[-1 + 2 * (np.tanh(0.5) + 1), 11]], np.float32))


def test_action_is_clipped_to_the_bounds_of_the_action_space() -> None:
    space = Box((2, 1), low=(-1.0, -np.inf), high=(3.0, 0.0))
    outputs = run_on(single(Operation("mode"), space, Box((2,))), observation=[[5, 5], [-5, -5]])
    assert outputs["action"].tolist() == [[[3], [0]], [[-1], [-5]]]


def test_first_legal_action_is_selected_in_a_tie() -> None:
    snapshot = single(Operation("argmax"), Discrete(4), Box((4,)), masked=True)
    rows = [[9, 5, 5, 1], [-np.inf] * 4]
    outputs = run_on(snapshot, observation=rows, mask=[[False, True, True, True], [False, False, True, True]])
    assert outputs["action"].tolist() == [1, 2]
    assert outputs["scores"].tolist() == rows


def test_multi_discrete_action_is_greedy_in_each_dimension() -> None:
    head = Operation("multi_categorical", ("choices",))
    snapshot = single(head, MultiDiscrete((2, 3)), Box((5,)), masked=True, choices=[2, 3])
    outputs = run_on(snapshot, observation=[[1, 2, 7, 8, 9]], mask=[[True, False, True, True, False]])
    assert outputs["action"].tolist() == [[0, 1]]


def test_nan_gives_the_first_legal_action_and_keeps_the_memory() -> None:
    for name in ("categorical_masked", "multi_categorical_masked", "gru", "lstm"):
        snapshot = golden(name)
        columns = observations(snapshot.spec, 6)
        columns[next(iter(columns))][2:] = np.nan
        memory = np.full((6, snapshot.memory_size), 0.25, np.float32)
        outputs = runner(to_onnx(snapshot))(inputs_of(snapshot, columns, memory))
        held = {MEMORY: memory} if snapshot.memory_size else {}
        expected = SnapshotPolicy(snapshot.greedy()).act(columns, held, Draws(1))
        assert np.isnan(expected.log_prob).tolist() == [False] * 2 + [True] * 4
        close(outputs["action"], snapshot.spec.action.legal(expected.action))
        close(outputs.get("next_memory", memory), expected.memory.get(MEMORY, memory))


def test_batch_axis_is_dynamic() -> None:
    snapshot = golden("items")
    model = to_onnx(snapshot)
    shapes = [input.type.tensor_type.shape.dim for input in onnx.load_from_string(model).graph.input]
    assert [(shape[0].dim_param, shape[1].dim_value) for shape in shapes] == [("batch", 17), ("batch", 6)]
    inputs = inputs_of(snapshot, random_columns(snapshot.spec, 50))
    whole = runner(model)(inputs)
    for rows in (slice(0), slice(1), slice(10, 33)):
        part = runner(model)({name: column[rows] for name, column in inputs.items()})
        close(part["logits"], whole["logits"][rows])
        assert part["action"].tolist() == whole["action"][rows].tolist()


def test_model_metadata_contains_version_spec_hash_and_head() -> None:
    snapshot = golden("epsilon_greedy_masked")
    model = onnx.load_from_string(to_onnx(snapshot))
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    assert model.producer_name == "rl4sys"
    assert metadata["version"] == str(snapshot.version)
    assert json.loads(metadata["spec"]) == snapshot.spec.to_json()
    assert metadata["sha256"] == snapshot.content_hash
    assert json.loads(metadata["head"]) == {"name": "epsilon_greedy", "options": {"epsilon": 0.3}}
    assert model.graph.input[0].doc_string == "grid 0:2; state 2:8"


def test_weights_may_have_the_same_names_as_inputs_and_outputs() -> None:
    normalize = Operation("normalize", ("mean", "observation"), {"limit": 10.0})
    weights = {"mean": [1, 2], "observation": [1, 2], "constant_0": [0, 5]}
    snapshot = single(Operation("mode"), Box((2,)), Box((2,)), normalize, Operation("bias", ("constant_0",)), **weights)
    outputs = run_on(snapshot, observation=[[2, 4]])
    assert outputs["action"].tolist() == outputs["mean"].tolist() == [[1, 9]]


def test_same_snapshot_gives_the_same_bytes() -> None:
    assert to_onnx(golden("items")) == to_onnx(golden("items"))


@pytest.mark.parametrize("make", [lambda: golden("noise"), SNAPSHOTS["sql, bounded continuous"]])
def test_policy_that_draws_noise_is_rejected(make: Callable[[], Snapshot]) -> None:
    with pytest.raises(ExportError, match=r"noise \(operation 1\) has scale .*deterministic=True"):
        to_onnx(make())


def test_nan_weights_are_rejected() -> None:
    snapshot = golden("squash")
    snapshot = Snapshot(
        1, snapshot.spec, snapshot.program, {k: v * np.float32("nan") for k, v in snapshot.weights.items()}
    )
    with pytest.raises(ExportError, match="the ONNX model differs from the policy: mean by nan"):
        to_onnx(snapshot)


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_missing_package_is_reported_with_its_extra(package: str, tmp_path: Path) -> None:
    code = """
from tests.policy.test_golden import GOLDEN
from rl4sys.policy.onnx_export import to_onnx
from rl4sys.policy.snapshot import Snapshot
to_onnx(Snapshot.from_bytes((GOLDEN / "squash.safetensors").read_bytes()))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment_without(tmp_path, package),
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"MissingExtraError: export to ONNX needs {package}, which is not installed" in done.stderr
    assert "pip install -e '.[onnx]'" in done.stderr


def test_importing_onnx_export_loads_neither_onnx_nor_torch() -> None:
    code = "import rl4sys.policy.onnx_export, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert "rl4sys.policy.onnx_export" in loaded
    assert not set(loaded) & {"onnx", "onnxruntime", "torch"}
