"""Shape rules for operations of a policy program: input sizes, output sizes and weight shapes.

The rules allocate no arrays and Python integers do not overflow, so it is safe to check untrusted programs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

Shape: TypeAlias = tuple[int, ...]


@dataclass(frozen=True)
class GivenShapes:
    """Actual input sizes, weight shapes and options of an operation."""

    sizes: Shape
    shapes: tuple[Shape, ...]
    options: Mapping[str, float]

    def option(self, name: str) -> int:
        """Return an integer option, or 1 if it is missing. Only ``rows`` is optional."""
        return int(self.options.get(name, 1))

    def axis(self, weight: int, axis: int) -> int:
        """Return the length of an axis of a weight, or 0 (never a valid length) if the axis does not exist."""
        shape = self.shapes[weight]
        return shape[axis] if axis < len(shape) else 0


@dataclass(frozen=True)
class ExpectedShapes:
    """Expected input sizes and weight shapes of an operation, and the sizes of its result and of its padded input."""

    sizes: Shape
    shapes: tuple[Shape, ...]
    result: int
    padded: int = 0


def _same(given: GivenShapes) -> ExpectedShapes:
    return ExpectedShapes(given.sizes, (), given.sizes[0])


def _weight_each(count: int) -> _Rule:
    """Return the shape rule of an operation with ``count`` weight vectors, each as long as the input."""
    return lambda given: ExpectedShapes(given.sizes, (given.sizes,) * count, given.sizes[0])


def _linear(given: GivenShapes) -> ExpectedShapes:
    rows, outputs = given.option("rows"), given.axis(0, 0)
    inputs = given.sizes[0] // rows
    return ExpectedShapes((rows * inputs,), ((outputs, inputs), (outputs,)), rows * outputs)


def _noisy_linear(given: GivenShapes) -> ExpectedShapes:
    plain = _linear(given)
    return ExpectedShapes(plain.sizes, plain.shapes * 2, plain.result)


def _layer_norm(given: GivenShapes) -> ExpectedShapes:
    rows = given.option("rows")
    width = given.sizes[0] // rows
    return ExpectedShapes((rows * width,), ((width,), (width,)), given.sizes[0])


def _slice(given: GivenShapes) -> ExpectedShapes:
    end = given.option("start") + given.option("length")
    return ExpectedShapes((max(end, given.sizes[0]),), (), given.option("length"))


def _concat(given: GivenShapes) -> ExpectedShapes:
    return ExpectedShapes(given.sizes, (), sum(given.sizes))


def _pair(given: GivenShapes) -> ExpectedShapes:
    # Use the larger size: the size of the mask may not be known yet.
    size = max(given.sizes)
    return ExpectedShapes((size, size), (), size)


def _transpose(given: GivenShapes) -> ExpectedShapes:
    rows = given.option("rows")
    return ExpectedShapes((given.sizes[0] // rows * rows,), (), given.sizes[0])


def _conv2d(given: GivenShapes) -> ExpectedShapes:
    outputs, kernel = given.axis(0, 0), (max(1, given.axis(0, 1)), max(1, given.axis(0, 2)))
    height, width = given.option("height"), given.option("width")
    channels = given.sizes[0] // (height * width)
    shapes = ((outputs, *kernel, channels), (outputs,))
    return ExpectedShapes(
        (height * width * channels,), shapes, _image_positions(given, kernel) * outputs, _padded(given, channels)
    )


def _max_pool(given: GivenShapes) -> ExpectedShapes:
    height, width, size = given.option("height"), given.option("width"), given.option("size")
    channels = given.sizes[0] // (height * width)
    return ExpectedShapes(
        (height * width * channels,), (), _image_positions(given, (size, size)) * channels, _padded(given, channels)
    )


def _image_positions(given: GivenShapes, window: tuple[int, int]) -> int:
    """Return the number of window positions in an image."""
    lengths = given.option("height"), given.option("width")
    along = (window_positions(n, w, given.options) for n, w in zip(lengths, window, strict=True))
    return next(along) * next(along)


def window_positions(length: int, window: int, options: Mapping[str, float]) -> int:
    """Return the number of window positions along an axis, given the padding and stride in ``options``."""
    return max(0, (length + 2 * int(options["padding"]) - window) // int(options["stride"]) + 1)


def _padded(given: GivenShapes, channels: int) -> int:
    margin = 2 * given.option("padding")
    return (given.option("height") + margin) * (given.option("width") + margin) * channels if margin else 0


def _join_rows(given: GivenShapes) -> ExpectedShapes:
    rows = given.option("rows")
    width = given.sizes[0] // rows
    return ExpectedShapes((rows * width, given.sizes[1]), (), rows * (width + given.sizes[1]))


def _attention(given: GivenShapes) -> ExpectedShapes:
    rows, keys, heads = given.option("rows"), given.option("keys"), given.option("heads")
    width = given.sizes[0] // (rows * heads) * heads
    sizes = (rows * width, keys * width, keys * width, keys)
    return ExpectedShapes(sizes[: len(given.sizes)], (), rows * width)


def _mean_rows(given: GivenShapes) -> ExpectedShapes:
    rows = given.option("rows")
    width = given.sizes[0] // rows
    return ExpectedShapes((rows * width, rows)[: len(given.sizes)], (), width)


def _cell(gates: int) -> _Rule:
    def fit(given: GivenShapes) -> ExpectedShapes:
        hidden = given.axis(1, 1)
        stacked = gates * hidden
        return ExpectedShapes(
            given.sizes, ((stacked, given.sizes[0]), (stacked, hidden), (stacked,), (stacked,)), hidden
        )

    return fit


def _noise(given: GivenShapes) -> ExpectedShapes:
    return ExpectedShapes((), (), given.option("size"))


def _expectation(given: GivenShapes) -> ExpectedShapes:
    rows, atoms = given.option("rows"), given.axis(0, 0)
    return ExpectedShapes((rows * atoms,), ((atoms,),), rows)


def _paired(given: GivenShapes) -> ExpectedShapes:
    """Return the shapes of a head with two inputs per action dimension."""
    elements = given.sizes[0] // 2
    return ExpectedShapes((2 * elements,), ((elements,), (elements,)), given.sizes[0])


def _several(given: GivenShapes) -> ExpectedShapes:
    """Return the shapes of a head for MultiDiscrete actions; its weight has one element per action dimension."""
    return ExpectedShapes(given.sizes, ((given.axis(0, 0),),), given.sizes[0])


def _uniform(given: GivenShapes) -> ExpectedShapes:
    return _paired(given) if given.option("parameters") == 2 else _weight_each(2)(given)


_Rule: TypeAlias = Callable[[GivenShapes], ExpectedShapes]
RULES: dict[str, _Rule] = {
    **dict.fromkeys(("tanh", "relu", "elu", "gelu", "silu", "scale"), _same),
    "normalize": _weight_each(2),
    "linear": _linear,
    "noisy_linear": _noisy_linear,
    "layer_norm": _layer_norm,
    "bias": _weight_each(1),
    "slice": _slice,
    "concat": _concat,
    "add": _pair,
    "multiply": _pair,
    "transpose": _transpose,
    "conv2d": _conv2d,
    "max_pool": _max_pool,
    "join_rows": _join_rows,
    "attention": _attention,
    "mean_rows": _mean_rows,
    "gru": _cell(3),
    "lstm": _cell(4),
    "noise": _noise,
    "expectation": _expectation,
    **dict.fromkeys(("categorical", "argmax", "epsilon_greedy", "mode"), _same),
    **dict.fromkeys(("multi_categorical", "multi_argmax"), _several),
    "gaussian": _weight_each(1),
    **dict.fromkeys(("noisy_squash", "squash"), _weight_each(2)),
    **dict.fromkeys(("squashed_gaussian", "squashed_mode"), _paired),
    "uniform": _uniform,
}
"""Shape rule of each operation. A rule never raises an error; it returns the expected shapes for any input."""

CELLS = {"gru": 1, "lstm": 2}
"""Number of elements of the recurrent state (memory) per output, for each recurrent operation."""
