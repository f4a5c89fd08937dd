"""Snapshots for tests of export formats, and the comparison of a model with the policy that it was made from."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from hypothesis import strategies as st

from rl4sys.algorithms.actions import supported_actions
from rl4sys.learner.config import LearnerConfig, parse_algorithm, parse_buffer, parse_networks
from rl4sys.learner.learner import build_learner
from rl4sys.policy.draws import Draws
from rl4sys.policy.export_check import Run
from rl4sys.policy.program import Operation, Program
from rl4sys.policy.snapshot import Snapshot
from rl4sys.policy.snapshot_policy import SnapshotPolicy, flat_rows
from rl4sys.registry import ALGORITHMS
from rl4sys.spec import MASK, Array, Box, Columns, Discrete, MultiDiscrete, Space, Spec, mask_box
from rl4sys.trajectory import MEMORY

from ..contracts.test_policies import SPECS
from ..networks.test_forms_agree import CASES as NETWORKS
from ..networks.test_forms_agree import built, observations, snapshot_of
from .test_forms_agree import Case
from .test_forms_agree import cases as programs
from .test_golden import CASES as GOLDEN_CASES
from .test_golden import GOLDEN

ROWS = 40


def golden(case: str) -> Snapshot:
    return Snapshot.from_bytes((GOLDEN / f"{case}.safetensors").read_bytes())


def of_network(case: str) -> Snapshot:
    return snapshot_of(*built(case))


def of_algorithm(name: str, spec: Spec) -> Snapshot:
    """Return the policy of an algorithm before training, after its warm-up with random actions."""
    config = LearnerConfig(
        algorithm=parse_algorithm({"name": name}),
        networks=parse_networks({}, name),
        buffer=parse_buffer({"size": 8}, name),
        total_timesteps=1000,
    )
    return build_learner(spec, config, seed=1).algorithm.policy(10**6).snapshot(3)


SNAPSHOTS: dict[str, Callable[[], Snapshot]] = {
    **{f"golden {case}": partial(golden, case) for case in GOLDEN_CASES},
    **{f"network {case}": partial(of_network, case) for case in NETWORKS},
    **{
        f"{name}, {kind}": partial(of_algorithm, name, spec)
        for name in ALGORITHMS.names()
        for kind, spec in SPECS.items()
        if kind in supported_actions(name)
    },
}


def without_noise(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot, in its greedy form if its network draws noise."""
    is_noisy = any(operation.name == "noise" for operation in snapshot.program.body)
    return snapshot.greedy() if is_noisy else snapshot


def random_columns(spec: Spec, rows: int, seed: int = 0) -> dict[str, Array]:
    """Return random observations; a mask has at least one legal action in each part."""
    columns = observations(spec, rows, seed)
    if spec.masked and not isinstance(spec.action, Box):
        random = np.random.default_rng(seed)
        mask = random.random(columns[MASK].shape) < 0.4
        for end, choices in zip(np.cumsum(spec.action.parts), spec.action.parts, strict=True):
            mask[np.arange(rows), end - 1 - random.integers(choices, size=rows)] = True
        columns[MASK] = mask
    return columns


def inputs_of(snapshot: Snapshot, columns: Columns, memory: Array | None = None) -> dict[str, Array]:
    """Return the inputs of an exported model for named observations."""
    inputs = {"observation": flat_rows(columns, tuple(name for name in snapshot.spec.observation if name != MASK))}
    inputs |= {MASK: columns[MASK]} if snapshot.spec.masked else {}
    return inputs | ({MEMORY: memory} if memory is not None and snapshot.memory_size else {})


def assert_acts_like(snapshot: Snapshot, run: Run) -> None:
    """Require the greedy actions and the memory of the policy, from the native core or numpy, at each of 3 steps."""
    policy, memory = SnapshotPolicy(snapshot.greedy()), np.zeros((ROWS, snapshot.memory_size), np.float32)
    for step in range(3):
        columns = random_columns(snapshot.spec, ROWS, seed=step)
        outputs = run(inputs_of(snapshot, columns, memory))
        action, _, after = policy.act(columns, {MEMORY: memory} if snapshot.memory_size else {}, Draws(1))
        close(outputs["action"], snapshot.spec.action.legal(action))
        memory = after.get(MEMORY, memory)
        close(outputs.get("next_memory", memory), memory)
        parameters = next(outputs[name] for name in ("logits", "scores", "mean") if name in outputs)
        assert parameters.std(axis=0).max() > 1e-4, "the outputs should depend on the observation"


def close(got: Array, expected: Array) -> None:
    """Require equal integers, and floats with a difference of at most 1e-5 of the largest value or 1."""
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    tolerance = 0.0 if got.dtype == np.int64 else 1e-5 * max(1.0, float(np.abs(expected).max(initial=0.0)))
    np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance)


def snapshot_of_program(case: Case) -> Snapshot:
    """Return a snapshot of a random program without noise."""
    program, size = case.program.greedy(), case.rows.shape[1]
    outputs = program.output_size(size, case.weights)
    action: Space = Box((outputs // program.head.inputs_per_element(),))
    if case.discrete:
        action = MultiDiscrete(case.parts) if case.multi_discrete else Discrete(outputs)
    mask = {MASK: mask_box(action)} if case.mask is not None and not isinstance(action, Box) else {}
    return Snapshot(1, Spec({"state": Box((size,)), **mask}, action), program, case.weights)


def random_snapshots() -> st.SearchStrategy[Snapshot]:
    return programs().map(snapshot_of_program)


def single(
    head: Operation, action: Space, row: Box, *body: Operation, masked: bool = False, **weights: Any
) -> Snapshot:
    """Return a snapshot with one observation."""
    mask = {MASK: mask_box(action)} if masked and not isinstance(action, Box) else {}
    arrays = {name: np.array(values, np.float32) for name, values in weights.items()}
    return Snapshot(1, Spec({"state": row, **mask}, action), Program(body, head), arrays)
