"""Export of snapshots to ONNX, for runtimes in other languages and on other devices."""

from __future__ import annotations

from typing import Any

import numpy as np

from rl4sys.errors import ExportError
from rl4sys.extras import check_installed
from rl4sys.policy.export_check import Run, check_model
from rl4sys.policy.export_plan import ACTION, OBSERVATION, ExportPlan, row_layout
from rl4sys.policy.onnx_graph import OnnxGraph, ValueInfo
from rl4sys.policy.onnx_heads import write_head
from rl4sys.policy.onnx_operations import Step, write_operation
from rl4sys.policy.program import MASK_NUMBERS, ROW
from rl4sys.policy.snapshot import Snapshot
from rl4sys.spec import MASK, Box, Columns
from rl4sys.version import __version__


def to_onnx(snapshot: Snapshot) -> bytes:
    """Return the greedy form of a policy as an ONNX model; `export_plan` describes its inputs and outputs.

    Version, spec and hash are in the metadata of the model. Raises `ExportError` if onnxruntime and the snapshot give
    different outputs for random rows, or if the policy draws random numbers inside its network, and
    `MissingExtraError` if onnx or onnxruntime is not installed.
    """
    check_installed("export to ONNX", "onnx", "onnxruntime")
    plan = ExportPlan(snapshot)
    content = _serialized(plan, _write(plan))
    check_model(plan, _in_onnxruntime(content), "ONNX")
    return content


def _write(plan: ExportPlan) -> Any:
    """Return the program of a plan as an ``onnx.ModelProto``."""
    graph = OnnxGraph(plan.weights)
    new_states: dict[int, str] = {}
    head_input = _write_body(plan, graph, new_states)
    with graph.scope(plan.head.name):
        outputs = write_head(plan, graph, head_input, new_states)
    inputs = [
        ValueInfo(name, "bool" if name == MASK else "float32", (size,), _description(plan, name))
        for name, size in plan.inputs.items()
    ]
    action = "float32" if isinstance(plan.spec.action, Box) else "int64"
    infos = [ValueInfo(name, action if name == ACTION else "float32", shape) for name, shape in plan.outputs.items()]
    return graph.model(inputs, {info: outputs[info.name] for info in infos})


def _write_body(plan: ExportPlan, graph: OnnxGraph, new_states: dict[int, str]) -> str:
    """Add the body of the program to the graph and return the name of the head's input."""
    values, sizes = {ROW: OBSERVATION}, {**dict(enumerate(plan.sizes)), MASK_NUMBERS: plan.elements}
    if plan.program.sees_mask:
        all_legal = np.ones(plan.elements)
        values[MASK_NUMBERS] = graph.number(MASK) if plan.spec.masked else graph.rows_like(OBSERVATION, all_legal)
    for number, operation in enumerate(plan.program.body, start=1):
        sources = operation.sources(number)
        inputs = [(values[source], sizes[source]) for source in sources]
        with graph.scope(f"{number}_{operation.name}"):
            values[number] = write_operation(Step(graph, operation, inputs, sizes[number], new_states))
    (source,) = plan.head.sources(len(plan.program.operations))
    return values[source]


def _description(plan: ExportPlan, name: str) -> str:
    if name == OBSERVATION:
        return "; ".join(f"{part} {start}:{end}" for part, start, end in row_layout(plan.spec))
    return "True for legal actions" if name == MASK else "zero at the start of an episode, then next_memory"


def _serialized(plan: ExportPlan, model: Any) -> bytes:
    """Add the metadata to the model, check it and return its bytes."""
    from onnx import checker, helper, shape_inference

    model.producer_name, model.producer_version = "rl4sys", __version__
    model.model_version = plan.snapshot.version
    helper.set_model_props(model, plan.metadata())
    try:
        checker.check_model(model, full_check=True)
    except (checker.ValidationError, shape_inference.InferenceError) as problem:
        raise ExportError(
            f"the ONNX model is invalid: {problem!s:.300}. This is a bug in rl4sys; please report it and attach "
            "the policy file"
        ) from problem
    return bytes(model.SerializeToString())


def _in_onnxruntime(content: bytes) -> Run:
    """Return a function that runs a model in onnxruntime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]

    def run(inputs: Columns) -> Columns:
        return dict(zip(names, session.run(names, dict(inputs)), strict=True))

    return run
