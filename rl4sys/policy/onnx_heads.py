"""Heads of policy programs as nodes of an ONNX graph: parameters, greedy action and next memory."""

from __future__ import annotations

import numpy as np

from rl4sys.policy.export_plan import ACTION, NEXT_MEMORY, OBSERVATION, ExportPlan
from rl4sys.policy.onnx_graph import LOWEST, OnnxGraph
from rl4sys.spec import MASK, Box, DiscreteSpace, MultiDiscrete
from rl4sys.trajectory import MEMORY


def write_head(plan: ExportPlan, graph: OnnxGraph, head_input: str, new_states: dict[int, str]) -> dict[str, str]:
    """Add the nodes of the head; return the name of the value of each output."""
    means = graph.slice(head_input, 0, plan.elements) if plan.sizes[-1] > plan.elements else head_input
    outputs = {plan.parameters[0]: means, **_log_std(plan, graph, head_input)}
    has_nan = graph.add("ReduceMax", graph.number(graph.add("IsNaN", head_input)), axes=[1])
    is_invalid = graph.add("Greater", has_nan, graph.constant(0.0))
    if isinstance(plan.spec.action, Box):
        outputs[ACTION] = _continuous(plan, graph, means)
    else:
        valid = graph.add("Where", is_invalid, graph.constant(0.0), means)
        outputs[ACTION] = _discrete(plan.spec.action, graph, valid, is_masked=plan.spec.masked)
    if plan.memory_size:
        outputs[NEXT_MEMORY] = graph.add("Where", is_invalid, MEMORY, _next_memory(plan, graph, new_states))
    return outputs


def _log_std(plan: ExportPlan, graph: OnnxGraph, head_input: str) -> dict[str, str]:
    if plan.log_std is None:
        return {}
    if isinstance(plan.log_std, np.ndarray):
        return {"log_std": graph.rows_like(OBSERVATION, plan.log_std)}
    return {"log_std": graph.clip(graph.slice(head_input, plan.elements, plan.sizes[-1]), *plan.log_std)}


def _discrete(action: DiscreteSpace, graph: OnnxGraph, scores: str, *, is_masked: bool) -> str:
    """Return the first legal action with the largest score, for each action dimension."""
    if is_masked:
        # Illegal scores become -infinity, so a legal score of -infinity is raised to the lowest finite number.
        finite = graph.add("Max", scores, graph.constant(LOWEST))
        scores = graph.add("Where", MASK, finite, graph.constant(-np.inf))
    if not isinstance(action, MultiDiscrete):
        return graph.add("ArgMax", scores, axis=1, keepdims=0)
    return graph.concat([graph.add("ArgMax", part, axis=1) for part in graph.split(scores, action.parts)])


def _continuous(plan: ExportPlan, graph: OnnxGraph, means: str) -> str:
    actions = means if plan.head.name == "mode" else _squashed(plan, graph, means)
    if plan.bounds is not None:
        low, high = (graph.constant(bound) for bound in plan.bounds)
        actions = graph.add("Min", graph.add("Max", actions, low), high)
    return graph.reshape(actions, 0, *plan.spec.action.shape)


def _squashed(plan: ExportPlan, graph: OnnxGraph, means: str) -> str:
    """Scale tanh(mean) to low..high."""
    low, high = (plan.weights[name].astype(np.float64) for name in plan.head.weights)
    place = graph.add("Add", graph.add("Tanh", means), graph.constant(1.0))
    return graph.add("Add", graph.add("Mul", place, graph.constant(0.5 * (high - low))), graph.constant(low))


def _next_memory(plan: ExportPlan, graph: OnnxGraph, new_states: dict[int, str]) -> str:
    parts = [
        new_states[part.start] if part.is_written else graph.slice(MEMORY, part.start, part.end)
        for part in plan.memory_ranges
    ]
    return graph.concat(parts)
