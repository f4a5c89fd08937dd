"""Numerical check of an exported model against the numpy implementation of its snapshot."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from rl4sys.errors import ExportError
from rl4sys.policy.draws import Draws
from rl4sys.policy.export_plan import ACTION, NEXT_MEMORY, OBSERVATION, ExportPlan
from rl4sys.policy.numpy_program import NumpyProgram, draw
from rl4sys.policy.program import ROW
from rl4sys.spec import MASK, Array, Box, Columns, in_range, is_allowed
from rl4sys.trajectory import MEMORY

TOLERANCE = 1e-5
"""Maximum accepted difference between an output of a model and of its snapshot, relative to the scale of the output.

The scale is the largest absolute value of the output, at least 1. If the policy amplifies rounding errors, for example
by subtracting large numbers, the scale is increased by a factor of up to `_LEEWAY`, because even correct float32
implementations of such a policy differ.
"""

_LEEWAY, _ROUNDINGS = 100.0, 20.0
_ROWS = 32
_WIDEST_RANGE = 1024.0

Run: TypeAlias = Callable[[Columns], Columns]
"""Function that runs an exported model: it receives inputs by name and returns outputs by name."""


def check_model(plan: ExportPlan, run: Run, form: str) -> None:
    """Compare a model with the snapshot on random rows, once with a batch and once with a single row.

    Raises `ExportError` if an output differs by more than `TOLERANCE`. ``form`` is the name of the format in messages.
    """
    sample = _make_sample(plan)
    for part in (sample, sample.first_row()):
        outputs = run(part.inputs)
        for name, expected in part.outputs.items():
            _check_shape(form, name, outputs[name], expected)
            _check_difference(form, name, _difference(plan, part, name, outputs[name]) / sample.scales[name])


@dataclass(frozen=True)
class _Sample:
    """Random inputs with the outputs of the reference implementation, and the scale of each output."""

    inputs: Columns
    outputs: Columns
    scales: Mapping[str, float]

    def first_row(self) -> _Sample:
        inputs, outputs = ({name: c[:1] for name, c in columns.items()} for columns in (self.inputs, self.outputs))
        return replace(self, inputs=inputs, outputs=outputs)


def _make_sample(plan: ExportPlan) -> _Sample:
    inputs = _random_inputs(plan)
    outputs, rounded = (_reference(plan, weights, inputs) for weights in (plan.weights, _rounded_weights(plan)))
    scales = {name: _scale(expected, rounded[name]) for name, expected in outputs.items()}
    if not isinstance(plan.spec.action, Box):
        scales[ACTION] = scales[plan.parameters[0]]
    return _Sample(inputs, outputs, scales)


def _reference(plan: ExportPlan, weights: Columns, inputs: Columns) -> dict[str, Array]:
    """Return the outputs of the policy, computed by the numpy implementation."""
    rows, mask = inputs[OBSERVATION], inputs.get(MASK)
    values, next_memory = NumpyProgram(plan.program, weights, plan.row_size).head_input(rows, mask, inputs.get(MEMORY))
    actions, _ = draw(plan.head, weights, values, mask, Draws(0))
    outputs = dict(zip(plan.parameters, _parameters(plan, values), strict=True))
    outputs[ACTION] = plan.spec.action.legal(actions.reshape(len(rows), *plan.spec.action.shape))
    return outputs | ({NEXT_MEMORY: next_memory} if plan.memory_size else {})


def _rounded_weights(plan: ExportPlan) -> dict[str, Array]:
    """Return the weights, with a float32 rounding error of random sign added to each weight of the body."""
    random, weights = np.random.default_rng(1), dict(plan.weights)
    for name in {name for operation in plan.program.body for name in operation.weights}:
        error = random.choice((-1.0, 1.0), weights[name].shape) * np.finfo(np.float32).eps
        weights[name] = weights[name] * (1.0 + error)
    return weights


def _scale(expected: Array, rounded: Array) -> float:
    """Return the scale of an output, given its values with exact and with rounded weights."""
    largest = max(1.0, float(np.abs(expected).max()))
    amplified = _ROUNDINGS * float(np.abs(rounded - expected).max()) / TOLERANCE
    return max(largest, min(amplified, _LEEWAY * largest))


def _parameters(plan: ExportPlan, values: Array) -> list[Array]:
    """Return the parameters of the action distribution, given the input of the head."""
    means, deviations = values[:, : plan.elements], values[:, plan.elements :]
    if plan.log_std is None:
        return [means]
    constant = isinstance(plan.log_std, np.ndarray)
    return [means, np.broadcast_to(plan.log_std, means.shape) if constant else np.clip(deviations, *plan.log_std)]


def _random_inputs(plan: ExportPlan) -> dict[str, Array]:
    random = np.random.default_rng(0)
    inputs = {OBSERVATION: _random_rows(plan, random)}
    if MASK in plan.inputs:
        inputs[MASK] = _random_mask(plan.parts, random)
    if plan.memory_size:
        inputs[MEMORY] = np.tanh(random.standard_normal((_ROWS, plan.memory_size))).astype(np.float32)
    return inputs


def _random_rows(plan: ExportPlan, random: np.random.Generator) -> Array:
    """Return random observation rows with realistic values.

    If the program starts with normalization, rows are drawn around its mean. Otherwise elements with narrow bounds are
    drawn within their bounds, and all other elements from the standard normal distribution.
    """
    normal, first = random.standard_normal((_ROWS, plan.row_size)), plan.program.operations[0]
    if first.name == "normalize" and first.sources(1) == (ROW,):
        mean, scale = (plan.weights[name].astype(np.float64) for name in first.weights)
        return (mean + normal / np.where(scale == 0.0, 1.0, scale)).astype(np.float32)
    boxes = [box for name, box in plan.spec.observation.items() if name != MASK]
    low, high = (np.concatenate(sides).astype(np.float64) for sides in zip(*map(_bounds, boxes), strict=True))
    is_bounded = high - low <= _WIDEST_RANGE
    low, width = np.where(is_bounded, low, 0.0), np.where(is_bounded, high - low, 0.0)
    return np.where(is_bounded, low + width * random.random(normal.shape), normal).astype(np.float32)


def _bounds(box: Box) -> tuple[Array, Array]:
    """Return the bounds of an observation as flat arrays; for 8-bit integers, limited to the range of the dtype."""
    low, high = (bound.ravel() for bound in box.bounds())
    if box.dtype not in ("uint8", "int8"):
        return low, high
    limits = np.iinfo(box.dtype)
    return np.maximum(low, limits.min), np.minimum(high, limits.max)


def _random_mask(parts: tuple[int, ...], random: np.random.Generator) -> Array:
    """Return masks with at least one legal action per action dimension; the first row has exactly one per dimension."""
    mask: Array = random.random((_ROWS, sum(parts))) < np.linspace(0.0, 1.0, _ROWS)[:, None]
    for end, choices in zip(np.cumsum(parts), parts, strict=True):
        mask[np.arange(_ROWS), end - 1 - random.integers(choices, size=_ROWS)] = True
    return mask


def _check_shape(form: str, name: str, got: Array, expected: Array) -> None:
    if (got.dtype, got.shape) != (expected.dtype, expected.shape):
        raise ExportError(
            f"the {form} model returns {name} as {got.dtype} of shape {got.shape}; expected {expected.dtype} of shape "
            f"{expected.shape}. This is a bug in rl4sys; please report it and attach the policy file"
        )


def _check_difference(form: str, name: str, difference: float) -> None:
    # `not <=` also rejects NaN, because every comparison with NaN is false.
    if not difference <= TOLERANCE:
        raise ExportError(
            f"the {form} model differs from the policy: {name} by {difference:.1e} of its size, more than "
            f"{TOLERANCE:g}. NaN in the weights or very large weights cause this; use the .safetensors file instead"
        )


def _difference(plan: ExportPlan, sample: _Sample, name: str, got: Array) -> float:
    """Return the largest absolute difference from the reference output.

    For discrete actions, compare the scores of the returned and the best action; an illegal action gives infinity.
    """
    if name != ACTION or isinstance(plan.spec.action, Box):
        return float(np.abs(got - sample.outputs[name]).max())
    action, mask, scores = plan.spec.action, sample.inputs.get(MASK), sample.outputs[plan.parameters[0]]
    if not in_range(action, got) or (mask is not None and not is_allowed(action, got, mask)):
        return float("inf")
    starts = np.cumsum((0, *plan.parts[:-1]))
    best, chosen = (
        np.take_along_axis(scores, choices.reshape(len(got), -1) + starts, axis=1)
        for choices in (sample.outputs[name], got)
    )
    return float(np.abs(best - chosen).max())
