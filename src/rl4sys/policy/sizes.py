"""How many numbers each operation of a policy program takes and gives, and what shapes its weights have.

Nothing is allocated and Python's integers do not overflow, so a program from anywhere can be judged here first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

Shape: TypeAlias = tuple[int, ...]


@dataclass(frozen=True)
class Given:
    """What an operation has: how many numbers in each input, the shapes of its weights, its options."""

    sizes: Shape
    shapes: tuple[Shape, ...]
    options: Mapping[str, float]

    def option(self, name: str) -> int:
        """A whole number; 1 where it is left out, as only ``rows`` may be."""
        return int(self.options.get(name, 1))

    def axis(self, weight: int, axis: int) -> int:
        """The length of an axis; 0 where there is no such axis, which then fits nothing."""
        shape = self.shapes[weight]
        return shape[axis] if axis < len(shape) else 0


@dataclass(frozen=True)
class Fit:
    """What an operation should have been given, and how many numbers it gives; ``padded`` are made on the way."""

    sizes: Shape
    shapes: tuple[Shape, ...]
    result: int
    padded: int = 0


def _same(given: Given) -> Fit:
    return Fit(given.sizes, (), given.sizes[0])


def _weight_each(count: int) -> _Rule:
    """As many weights of one number for each number."""
    return lambda given: Fit(given.sizes, (given.sizes,) * count, given.sizes[0])


def _linear(given: Given) -> Fit:
    rows, outputs = given.option("rows"), given.axis(0, 0)
    inputs = given.sizes[0] // rows
    return Fit((rows * inputs,), ((outputs, inputs), (outputs,)), rows * outputs)


def _noisy_linear(given: Given) -> Fit:
    plain = _linear(given)
    return Fit(plain.sizes, plain.shapes * 2, plain.result)


def _layer_norm(given: Given) -> Fit:
    rows = given.option("rows")
    width = given.sizes[0] // rows
    return Fit((rows * width,), ((width,), (width,)), given.sizes[0])


def _slice(given: Given) -> Fit:
    end = given.option("start") + given.option("length")
    return Fit((max(end, given.sizes[0]),), (), given.option("length"))


def _concat(given: Given) -> Fit:
    return Fit(given.sizes, (), sum(given.sizes))


def _pair(given: Given) -> Fit:
    # The larger: where one is the mask, whose size is not yet known, the other tells.
    size = max(given.sizes)
    return Fit((size, size), (), size)


def _transpose(given: Given) -> Fit:
    rows = given.option("rows")
    return Fit((given.sizes[0] // rows * rows,), (), given.sizes[0])


def _conv2d(given: Given) -> Fit:
    outputs, kernel = given.axis(0, 0), (max(1, given.axis(0, 1)), max(1, given.axis(0, 2)))
    height, width = given.option("height"), given.option("width")
    channels = given.sizes[0] // (height * width)
    shapes = ((outputs, *kernel, channels), (outputs,))
    return Fit((height * width * channels,), shapes, _places(given, kernel) * outputs, _padded(given, channels))


def _max_pool(given: Given) -> Fit:
    height, width, size = given.option("height"), given.option("width"), given.option("size")
    channels = given.sizes[0] // (height * width)
    return Fit((height * width * channels,), (), _places(given, (size, size)) * channels, _padded(given, channels))


def _places(given: Given, window: tuple[int, int]) -> int:
    """Where a window can stand."""
    lengths = given.option("height"), given.option("width")
    along = (places_along(n, w, given.options) for n, w in zip(lengths, window, strict=True))
    return next(along) * next(along)


def places_along(length: int, window: int, options: Mapping[str, float]) -> int:
    """How often a window fits along an axis, padding and stride being as the options say."""
    return max(0, (length + 2 * int(options["padding"]) - window) // int(options["stride"]) + 1)


def _padded(given: Given, channels: int) -> int:
    margin = 2 * given.option("padding")
    return (given.option("height") + margin) * (given.option("width") + margin) * channels if margin else 0


def _join_rows(given: Given) -> Fit:
    rows = given.option("rows")
    width = given.sizes[0] // rows
    return Fit((rows * width, given.sizes[1]), (), rows * (width + given.sizes[1]))


def _attention(given: Given) -> Fit:
    rows, keys, heads = given.option("rows"), given.option("keys"), given.option("heads")
    width = given.sizes[0] // (rows * heads) * heads
    sizes = (rows * width, keys * width, keys * width, keys)
    return Fit(sizes[: len(given.sizes)], (), rows * width)


def _mean_rows(given: Given) -> Fit:
    rows = given.option("rows")
    width = given.sizes[0] // rows
    return Fit((rows * width, rows)[: len(given.sizes)], (), width)


def _cell(gates: int) -> _Rule:
    def fit(given: Given) -> Fit:
        hidden = given.axis(1, 1)
        stacked = gates * hidden
        return Fit(given.sizes, ((stacked, given.sizes[0]), (stacked, hidden), (stacked,), (stacked,)), hidden)

    return fit


def _noise(given: Given) -> Fit:
    return Fit((), (), given.option("size"))


def _expectation(given: Given) -> Fit:
    rows, atoms = given.option("rows"), given.axis(0, 0)
    return Fit((rows * atoms,), ((atoms,),), rows)


def _paired(given: Given) -> Fit:
    """A head with two numbers for each element."""
    elements = given.sizes[0] // 2
    return Fit((2 * elements,), ((elements,), (elements,)), given.sizes[0])


def _several(given: Given) -> Fit:
    """A head with a part of the numbers for each of its weight's."""
    return Fit(given.sizes, ((given.axis(0, 0),),), given.sizes[0])


def _uniform(given: Given) -> Fit:
    return _paired(given) if given.option("parameters") == 2 else _weight_each(2)(given)


_Rule: TypeAlias = Callable[[Given], Fit]
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
"""What each operation should be given. They answer for anything, however little it fits."""

CELLS = {"gru": 1, "lstm": 2}
"""Operations with memory, and how many numbers of it they have for each that they give."""
