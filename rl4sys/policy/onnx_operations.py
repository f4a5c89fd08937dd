"""Body operations of policy programs as nodes of an ONNX graph.

Each value of the program is a float32 tensor of shape (batch, size), as in `numpy_operations`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from rl4sys.policy.export_plan import OBSERVATION
from rl4sys.policy.onnx_graph import LOWEST, OnnxGraph
from rl4sys.policy.program import Operation
from rl4sys.trajectory import MEMORY


@dataclass(frozen=True)
class Step:
    """One operation to write, its inputs with their sizes, and the size of its result."""

    graph: OnnxGraph
    operation: Operation
    inputs: Sequence[tuple[str, int]]
    result: int
    new_states: dict[int, str]
    """New recurrent states by start index in the memory vector; each recurrent operation adds its own state."""

    @property
    def source(self) -> str:
        """Name of the first input."""
        return self.inputs[0][0]

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.inputs]

    def option(self, name: str) -> int:
        return int(self.operation.options.get(name, 1))

    def weights(self) -> list[str]:
        return [self.graph.weight(name) for name in self.operation.weights]

    def parts(self) -> str:
        """Return the first input as a matrix with ``rows`` rows."""
        (name, size), rows = self.inputs[0], self.option("rows")
        return self.graph.reshape(name, 0, rows, size // rows)

    def flat(self, value: str) -> str:
        return self.graph.reshape(value, 0, self.result)


def write_operation(step: Step) -> str:
    """Add the nodes of the operation and return the name of its result."""
    return _BODY[step.operation.name](step)


def _node(kind: str, **attributes: float) -> _Rule:
    """Return a function that writes an operation as the single ONNX operator ``kind``."""
    return lambda step: step.graph.add(kind, *step.names, **attributes)


def _normalize(step: Step) -> str:
    graph, (mean, scale) = step.graph, step.weights()
    scaled = graph.add("Mul", graph.add("Sub", step.source, mean), scale)
    limit = step.operation.options["limit"]
    return graph.clip(scaled, -limit, limit)


def _linear(step: Step) -> str:
    rows, weights, ((name, size),) = step.option("rows"), step.weights(), step.inputs
    if rows == 1:
        return step.graph.add("Gemm", name, *weights, transB=1)
    parts = step.graph.reshape(name, -1, size // rows)
    return step.graph.reshape(step.graph.add("Gemm", parts, *weights, transB=1), -1, step.result)


def _gelu(step: Step) -> str:
    graph, x = step.graph, step.source
    erf = graph.add("Erf", graph.add("Mul", x, graph.constant(1.0 / math.sqrt(2.0))))
    half = graph.add("Mul", x, graph.constant(0.5))
    return graph.add("Mul", half, graph.add("Add", erf, graph.constant(1.0)))


def _silu(step: Step) -> str:
    return step.graph.add("Mul", step.source, step.graph.add("Sigmoid", step.source))


def _layer_norm(step: Step) -> str:
    epsilon = step.operation.options["epsilon"]
    return step.flat(step.graph.add("LayerNormalization", step.parts(), *step.weights(), axis=-1, epsilon=epsilon))


def _scale(step: Step) -> str:
    return step.graph.add("Mul", step.source, step.graph.constant(step.operation.options["factor"]))


def _bias(step: Step) -> str:
    return step.graph.add("Add", step.source, *step.weights())


def _slice(step: Step) -> str:
    start = int(step.operation.options["start"])
    return step.graph.slice(step.source, start, start + step.option("length"))


def _concat(step: Step) -> str:
    return step.graph.concat(step.names)


def _transpose(step: Step) -> str:
    return step.flat(step.graph.add("Transpose", step.parts(), perm=[0, 2, 1]))


def _conv2d(step: Step) -> str:
    name, bias = step.operation.weights
    weight = step.graph.weight(name, axes=(0, 3, 1, 2))
    return _in_image(step, "Conv", weight, step.graph.weight(bias))


def _max_pool(step: Step) -> str:
    return _in_image(step, "MaxPool", kernel_shape=[step.option("size")] * 2)


def _in_image(step: Step, kind: str, *weights: str, **attributes: list[int]) -> str:
    """Add an operator that moves a window over images. The operator needs channels first, the program channels last."""
    graph, ((name, size),) = step.graph, step.inputs
    height, width = step.option("height"), step.option("width")
    image = graph.reshape(name, 0, height, width, size // (height * width))
    first = graph.add("Transpose", image, perm=[0, 3, 1, 2])
    windows = {"strides": [step.option("stride")] * 2, "pads": [step.option("padding")] * 4}
    moved = graph.add(kind, first, *weights, **windows, **attributes)
    return step.flat(graph.add("Transpose", moved, perm=[0, 2, 3, 1]))


def _join_rows(step: Step) -> str:
    graph, (_, (name, size)) = step.graph, step.inputs
    repeated = graph.add("Expand", graph.reshape(name, 0, 1, size), graph.integers(1, step.option("rows"), 1))
    return step.flat(graph.concat([step.parts(), repeated], axis=2))


def _attention(step: Step) -> str:
    graph, rows, keys = step.graph, step.option("rows"), step.option("keys")
    query, key, value = (_by_head(step, index, parts) for index, parts in enumerate((rows, keys, keys)))
    scores = graph.add("MatMul", query, graph.add("Transpose", key, perm=[0, 1, 3, 2]))
    width = step.result // (rows * step.option("heads"))
    shares = _shares(step, graph.add("Div", scores, graph.constant(math.sqrt(width))))
    return step.flat(graph.add("Transpose", graph.add("MatMul", shares, value), perm=[0, 2, 1, 3]))


def _by_head(step: Step, index: int, parts: int) -> str:
    """Reshape an input to (batch, heads, parts, width)."""
    (name, size), heads = step.inputs[index], step.option("heads")
    split = step.graph.reshape(name, 0, parts, heads, size // (parts * heads))
    return step.graph.add("Transpose", split, perm=[0, 2, 1, 3])


def _shares(step: Step, scores: str) -> str:
    """Return the attention weights: the softmax of the scores over the legal keys, or 0 if no key is legal."""
    graph, legal_input = step.graph, step.names[3:]
    if not legal_input:
        return graph.add("Softmax", scores, axis=-1)
    legal = graph.reshape(graph.add("Greater", *legal_input, graph.constant(0.5)), 0, 1, 1, step.option("keys"))
    shares = graph.add("Softmax", graph.add("Where", legal, scores, graph.constant(LOWEST)), axis=-1)
    return graph.add("Where", legal, shares, graph.constant(0.0))


def _mean_rows(step: Step) -> str:
    graph, parts, legal_input = step.graph, step.parts(), step.names[1:]
    if not legal_input:
        return graph.add("ReduceMean", parts, axes=[1], keepdims=0)
    legal, axis = graph.number(graph.add("Greater", *legal_input, graph.constant(0.5))), graph.integers(1)
    columns = graph.reshape(legal, 0, step.option("rows"), 1)
    total = graph.add("ReduceSum", graph.add("Mul", parts, columns), axis, keepdims=0)
    return graph.add("Div", total, graph.add("Max", graph.add("ReduceSum", legal, axis), graph.constant(1.0)))


def _states(step: Step, count: int) -> list[str]:
    start = int(step.operation.options["memory"])
    return [step.graph.slice(MEMORY, start + i * step.result, start + (i + 1) * step.result) for i in range(count)]


def _gate_inputs(step: Step, hidden: str) -> tuple[str, str]:
    """Return the contributions of the input and of the hidden state to all gates."""
    weight_ih, weight_hh, bias_ih, bias_hh = step.weights()
    from_input = step.graph.add("Gemm", step.source, weight_ih, bias_ih, transB=1)
    return from_input, step.graph.add("Gemm", hidden, weight_hh, bias_hh, transB=1)


def _gru(step: Step) -> str:
    graph, (hidden,) = step.graph, _states(step, 1)
    from_input, from_memory = (graph.split(gates, [step.result] * 3) for gates in _gate_inputs(step, hidden))
    reset, update = (
        graph.add("Sigmoid", graph.add("Add", *pair)) for pair in zip(from_input[:2], from_memory[:2], strict=True)
    )
    candidate = graph.add("Tanh", graph.add("Add", from_input[2], graph.add("Mul", reset, from_memory[2])))
    # h' = n + z (h - n)
    moved = graph.add("Mul", update, graph.add("Sub", hidden, candidate))
    return _remember(step, graph.add("Add", candidate, moved))


def _lstm(step: Step) -> str:
    graph, (hidden, cell) = step.graph, _states(step, 2)
    gates = graph.split(graph.add("Add", *_gate_inputs(step, hidden)), [step.result] * 4)
    keep, let_in, let_out = (graph.add("Sigmoid", gates[index]) for index in (1, 0, 3))
    candidate = graph.add("Tanh", gates[2])
    new_cell = graph.add("Add", graph.add("Mul", keep, cell), graph.add("Mul", let_in, candidate))
    return _remember(step, graph.add("Mul", let_out, graph.add("Tanh", new_cell)), new_cell)


def _remember(step: Step, hidden: str, *cell: str) -> str:
    """Add the new recurrent state to ``new_states`` and return the hidden state."""
    step.new_states[int(step.operation.options["memory"])] = step.graph.concat([hidden, *cell])
    return hidden


def _noise(step: Step) -> str:
    return step.graph.rows_like(OBSERVATION, np.zeros(step.result))


def _expectation(step: Step) -> str:
    graph, (support,) = step.graph, step.operation.weights
    likely = graph.add("Softmax", step.parts(), axis=-1)
    return graph.add("MatMul", likely, graph.weight(support))


_Rule: TypeAlias = Callable[[Step], str]
_BODY: dict[str, _Rule] = {
    "normalize": _normalize,
    "linear": _linear,
    "tanh": _node("Tanh"),
    "relu": _node("Relu"),
    "elu": _node("Elu", alpha=1.0),
    "gelu": _gelu,
    "silu": _silu,
    "layer_norm": _layer_norm,
    "scale": _scale,
    "bias": _bias,
    "slice": _slice,
    "concat": _concat,
    "add": _node("Add"),
    "multiply": _node("Mul"),
    "transpose": _transpose,
    "conv2d": _conv2d,
    "max_pool": _max_pool,
    "join_rows": _join_rows,
    "attention": _attention,
    "mean_rows": _mean_rows,
    "gru": _gru,
    "lstm": _lstm,
    "noise": _noise,
    "expectation": _expectation,
}
"""Function that writes each body operation. noisy_linear is missing: in greedy programs it is replaced by linear."""
