"""Body operations of policy programs, implemented in numpy with float64. Rows are independent of each other."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from rl4sys.policy.draws import Draws
from rl4sys.policy.program import Operation
from rl4sys.policy.shape_rules import window_positions
from rl4sys.spec import Array, Columns


@dataclass(frozen=True)
class OperationContext:
    """Weights, random draws and recurrent state of an operation. Recurrent operations write to ``memory``."""

    weights: Columns
    draws: Draws
    memory: Array


def apply(operation: Operation, inputs: Sequence[Array], context: OperationContext) -> Array:
    """Apply an operation to its inputs, each a batch of rows."""
    return _BODY[operation.name](inputs, operation, context)


def normals(rows: int, size: int, draws: Draws) -> Array:
    """Return standard normal samples, computed by the Box-Muller transform."""
    uniform = draws.uniforms(2 * rows * size).reshape(rows, size, 2)
    radius = np.sqrt(-2.0 * np.log(1.0 - uniform[:, :, 0]))
    return np.asarray(radius * np.cos(2.0 * np.pi * uniform[:, :, 1]))


def _weights(operation: Operation, context: OperationContext) -> list[Array]:
    return [context.weights[name] for name in operation.weights]


def _option(operation: Operation, name: str) -> int:
    return int(operation.options.get(name, 1))


def _parts(values: Array, rows: int) -> Array:
    """Reshape each batch row to a matrix with ``rows`` rows."""
    return values.reshape(len(values), rows, values.shape[1] // rows)


def _flat(values: Array) -> Array:
    return np.ascontiguousarray(values).reshape(len(values), math.prod(values.shape[1:]))


def _normalize(inputs: Sequence[Array], operation: Operation, context: OperationContext) -> Array:
    mean, scale = _weights(operation, context)
    limit = operation.options["limit"]
    return np.asarray(np.clip((inputs[0] - mean) * scale, -limit, limit))


def _linear(inputs: Sequence[Array], operation: Operation, context: OperationContext) -> Array:
    weight, bias = _weights(operation, context)
    return _flat(_matrix_times(weight, _parts(inputs[0], _option(operation, "rows"))) + bias)


def _noisy_linear(inputs: Sequence[Array], operation: Operation, context: OperationContext) -> Array:
    weight, bias, *noise = _weights(operation, context)
    noisy = np.add(weight, noise[0], dtype=np.float32), np.add(bias, noise[1], dtype=np.float32)
    return _flat(_matrix_times(noisy[0], _parts(inputs[0], _option(operation, "rows"))) + noisy[1])


def _matrix_times(weight: Array, vectors: Array) -> Array:
    """Multiply the matrix by each vector along the last axis."""
    # Use stacked matrix-vector products: the rounding of one matrix product would depend on the number of rows.
    return np.asarray(np.matmul(weight, vectors[..., None])[..., 0])


def _layer_norm(inputs: Sequence[Array], operation: Operation, context: OperationContext) -> Array:
    scale, bias = _weights(operation, context)
    parts = _parts(inputs[0], _option(operation, "rows"))
    centered = parts - parts.mean(axis=2, keepdims=True)
    variance = (centered**2).mean(axis=2, keepdims=True)
    return _flat(centered / np.sqrt(variance + operation.options["epsilon"]) * scale + bias)


def _gelu(values: Array) -> Array:
    tail: Array = _erfc(-values / math.sqrt(2.0))
    return 0.5 * values * tail


_erfc = np.vectorize(math.erfc, otypes=[np.float64])


def _silu(values: Array) -> Array:
    return values / (1.0 + np.exp(-values))


def _sigmoid(values: Array) -> Array:
    return np.asarray(1.0 / (1.0 + np.exp(-values)))


def _elementwise(function: Callable[[Array], Array]) -> _BodyOperation:
    return lambda inputs, _operation, _context: function(inputs[0])


def _scale(inputs: Sequence[Array], operation: Operation, context: OperationContext) -> Array:
    return inputs[0] * operation.options["factor"]


def _bias(inputs: Sequence[Array], operation: Operation, context: OperationContext) -> Array:
    return np.asarray(inputs[0] + _weights(operation, context)[0])


def _slice(inputs: Sequence[Array], operation: Operation, context: OperationContext) -> Array:
    start = _option(operation, "start")
    return inputs[0][:, start : start + _option(operation, "length")]


def _concat(inputs: Sequence[Array], operation: Operation, context: OperationContext) -> Array:
    return np.concatenate(inputs, axis=1)


def _add(inputs: Sequence[Array], operation: Operation, context: OperationContext) -> Array:
    return np.asarray(inputs[0] + inputs[1])


def _multiply(inputs: Sequence[Array], operation: Operation, context: OperationContext) -> Array:
    return np.asarray(inputs[0] * inputs[1])


def _transpose(inputs: Sequence[Array], operation: Operation, context: OperationContext) -> Array:
    return _flat(_parts(inputs[0], _option(operation, "rows")).transpose(0, 2, 1))


def _conv2d(inputs: Sequence[Array], operation: Operation, context: OperationContext) -> Array:
    weight, bias = _weights(operation, context)
    _, height, width, channels = weight.shape
    total = np.zeros(())
    for down, right, pixels in _shifted(inputs[0], operation, (height, width), padding=0.0):
        # Compute one matrix product per batch row, so that rounding does not depend on the batch size.
        total = total + np.matmul(pixels.reshape(len(pixels), -1, channels), weight[:, down, right, :].T)
    return _flat(total + bias)


def _max_pool(inputs: Sequence[Array], operation: Operation, context: OperationContext) -> Array:
    size = _option(operation, "size")
    shifted = (pixels for _, _, pixels in _shifted(inputs[0], operation, (size, size), padding=-np.inf))
    largest = next(shifted)
    for pixels in shifted:
        largest = np.maximum(largest, pixels)
    return _flat(largest)


def _shifted(
    values: Array, operation: Operation, window: tuple[int, int], padding: float
) -> Iterator[tuple[int, int, Array]]:
    """Yield, for each offset (down, right) in the window, the pixels at that offset for all window positions."""
    height, width, margin, stride = (_option(operation, name) for name in ("height", "width", "padding", "stride"))
    channels = values.shape[1] // (height * width)
    margins = ((0, 0), (margin, margin), (margin, margin), (0, 0))
    image = np.pad(values.reshape(-1, height, width, channels), margins, constant_values=padding)
    rows, columns = (window_positions(n, w, operation.options) for n, w in zip((height, width), window, strict=True))
    for down in range(window[0]):
        for right in range(window[1]):
            pixels = image[:, down : down + rows * stride : stride, right : right + columns * stride : stride]
            yield down, right, np.ascontiguousarray(pixels)


def _join_rows(inputs: Sequence[Array], operation: Operation, context: OperationContext) -> Array:
    rows = _option(operation, "rows")
    joined = np.repeat(inputs[1][:, None], rows, axis=1)
    return _flat(np.concatenate([_parts(inputs[0], rows), joined], axis=2))


def _attention(inputs: Sequence[Array], operation: Operation, context: OperationContext) -> Array:
    heads, rows, keys = (_option(operation, name) for name in ("heads", "rows", "keys"))
    query, key, value = (
        _by_head(values, parts, heads) for values, parts in zip(inputs[:3], (rows, keys, keys), strict=True)
    )
    legal = _legal_parts(inputs[3:], keys, len(query))[:, None, None, :]
    scores = np.matmul(query, key.transpose(0, 1, 3, 2)) / math.sqrt(query.shape[3])
    scores = np.where(legal, scores, -np.inf)
    largest = scores.max(axis=3, keepdims=True)
    shares = np.where(legal, np.exp(scores - largest), 0.0)
    shares = np.where(legal.any(axis=3, keepdims=True), shares / shares.sum(axis=3, keepdims=True), 0.0)
    # Illegal parts have weight 0, but 0 times infinity would be NaN.
    mixed = np.matmul(shares, np.where(legal.transpose(0, 1, 3, 2), value, 0.0))
    return np.where(_has_nan(inputs), np.nan, _flat(mixed.transpose(0, 2, 1, 3)))


def _by_head(values: Array, parts: int, heads: int) -> Array:
    """Reshape the parts of each row for attention, to (rows, heads, parts, width)."""
    split = values.reshape(len(values), parts, heads, values.shape[1] // (parts * heads))
    return np.ascontiguousarray(split.transpose(0, 2, 1, 3))


def _legal_parts(given: Sequence[Array], parts: int, rows: int) -> Array:
    """Return the mask of legal parts as booleans; without a mask, all parts are legal."""
    return np.asarray(given[0] > 0.5) if given else np.ones((rows, parts), np.bool_)


def _mean_rows(inputs: Sequence[Array], operation: Operation, context: OperationContext) -> Array:
    rows = _option(operation, "rows")
    parts = _parts(inputs[0], rows)
    legal = _legal_parts(inputs[1:], rows, len(parts))
    total = np.where(legal[:, :, None], parts, 0.0).sum(axis=1)
    mean = total / np.maximum(legal.sum(axis=1), 1)[:, None]
    return np.where(_has_nan(inputs), np.nan, mean)


def _has_nan(inputs: Sequence[Array]) -> Array:
    """Return True for each row with a NaN input, because even a NaN in an illegal part must reach the head."""
    return np.asarray(np.isnan(np.concatenate(inputs, axis=1)).any(axis=1))[:, None]


def _gates(
    inputs: Sequence[Array], operation: Operation, context: OperationContext, states: int
) -> tuple[Array, Array, list[Array]]:
    """Return the gate pre-activations from input and hidden state, and writable views of the recurrent states."""
    weight_ih, weight_hh, bias_ih, bias_hh = _weights(operation, context)
    start, hidden = _option(operation, "memory"), weight_hh.shape[1]
    held = [context.memory[:, start + i * hidden : start + (i + 1) * hidden] for i in range(states)]
    from_memory = _matrix_times(weight_hh, np.ascontiguousarray(held[0])) + bias_hh
    return _matrix_times(weight_ih, inputs[0]) + bias_ih, from_memory, held


def _gru(inputs: Sequence[Array], operation: Operation, context: OperationContext) -> Array:
    from_input, from_memory, (hidden,) = _gates(inputs, operation, context, states=1)
    input_r, input_z, input_n = np.split(from_input, 3, axis=1)
    from_memory_r, from_memory_z, from_memory_n = np.split(from_memory, 3, axis=1)
    reset, update = _sigmoid(input_r + from_memory_r), _sigmoid(input_z + from_memory_z)
    candidate = np.tanh(input_n + reset * from_memory_n)
    hidden[:] = (1.0 - update) * candidate + update * hidden
    return hidden.copy()


def _lstm(inputs: Sequence[Array], operation: Operation, context: OperationContext) -> Array:
    from_input, from_memory, (hidden, cell) = _gates(inputs, operation, context, states=2)
    input_gate, forget_gate, candidate, output_gate = np.split(from_input + from_memory, 4, axis=1)
    cell[:] = _sigmoid(forget_gate) * cell + _sigmoid(input_gate) * np.tanh(candidate)
    hidden[:] = _sigmoid(output_gate) * np.tanh(cell)
    return hidden.copy()


def _noise(inputs: Sequence[Array], operation: Operation, context: OperationContext) -> Array:
    rows, size, scale = len(context.memory), _option(operation, "size"), operation.options["scale"]
    return np.zeros((rows, size)) if scale == 0.0 else scale * normals(rows, size, context.draws)


def _expectation(inputs: Sequence[Array], operation: Operation, context: OperationContext) -> Array:
    parts = _parts(inputs[0], _option(operation, "rows"))
    likely = np.exp(parts - parts.max(axis=2, keepdims=True))
    (support,) = _weights(operation, context)
    return np.asarray((likely * support).sum(axis=2) / likely.sum(axis=2))


_BodyOperation: TypeAlias = Callable[[Sequence[Array], Operation, OperationContext], Array]
_BODY: dict[str, _BodyOperation] = {
    "normalize": _normalize,
    "linear": _linear,
    "noisy_linear": _noisy_linear,
    "tanh": _elementwise(np.tanh),
    "relu": _elementwise(lambda x: np.maximum(x, 0.0)),
    "elu": _elementwise(lambda x: np.where(x > 0, x, np.expm1(x))),
    "gelu": _elementwise(_gelu),
    "silu": _elementwise(_silu),
    "layer_norm": _layer_norm,
    "scale": _scale,
    "bias": _bias,
    "slice": _slice,
    "concat": _concat,
    "add": _add,
    "multiply": _multiply,
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
