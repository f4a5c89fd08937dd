"""Export of snapshots to `torch.export`, for AOTInductor, ExecuTorch and programs with torch."""

from __future__ import annotations

import io
import json

import torch
from torch.export import Dim, ExportedProgram

from rl4sys.networks.program_module import ProgramModule
from rl4sys.policy.export_check import Run, check_model
from rl4sys.policy.export_plan import OBSERVATION, ExportPlan
from rl4sys.policy.snapshot import Snapshot
from rl4sys.spec import MASK, Columns

METADATA_FILE = "rl4sys.json"
"""Extra file of a ``.pt2`` archive with the version, spec, hash and head of the policy."""


def to_exported_program(snapshot: Snapshot) -> ExportedProgram:
    """Return the greedy form of a policy as a torch program; `policy.export_plan` describes inputs and outputs.

    ``program.module()(observation, mask=mask, memory=memory)`` returns the outputs by name. Raises `ExportError` if
    the outputs for random rows differ from those of the snapshot, or if the policy draws random numbers inside its
    network.
    """
    plan = ExportPlan(snapshot)
    # The example inputs have two rows, because torch.export treats a batch size of 1 as a constant.
    inputs = {
        name: torch.zeros(2, size, dtype=torch.bool if name == MASK else torch.float32)
        for name, size in plan.inputs.items()
    }
    batch = Dim("batch")
    program = torch.export.export(
        ProgramModule(plan),
        (inputs.pop(OBSERVATION),),
        inputs,
        dynamic_shapes={name: {0: batch} for name in plan.inputs},
        strict=False,
    )
    check_model(plan, _in_torch(program), "torch.export")
    return program


def to_pt2(snapshot: Snapshot) -> bytes:
    """Return the content of a ``.pt2`` file, which `torch.export.load` reads."""
    stream = io.BytesIO()
    metadata = json.dumps(ExportPlan(snapshot).metadata(), sort_keys=True)
    torch.export.save(to_exported_program(snapshot), stream, extra_files={METADATA_FILE: metadata})
    return stream.getvalue()


def _in_torch(program: ExportedProgram) -> Run:
    """Return a function that runs a program on numpy arrays."""
    module = program.module()

    def run(inputs: Columns) -> Columns:
        tensors = {name: torch.from_numpy(column) for name, column in inputs.items()}
        with torch.no_grad():
            outputs = module(tensors.pop(OBSERVATION), **tensors)
        return {name: output.numpy() for name, output in outputs.items()}

    return run
