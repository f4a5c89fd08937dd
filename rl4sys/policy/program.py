"""Policy program: a list of operations from a closed set, as plain data.

A program maps one row, the observation flattened to float32, to an action. Its last operation is the *head*,
which samples the action; the operations before it are the *body*. Every value is a flat vector. An operation
reads the previous value, or the values listed in ``inputs``: 0 is the row, k is the result of the k-th operation
(counted from 1), and -1 is the mask as numbers (1 legal, 0 illegal; all 1 without a mask). *Parts* of x are
``rows`` consecutive slices of equal size. In the table, x is the input and z is a standard normal sample:

========================  =====================  =======================================================
operation                 weights                result
========================  =====================  =======================================================
normalize                 mean, scale            clip((x - mean) * scale, -limit, limit); option ``limit``
linear                    weight (out, in), bias weight @ x + bias, for each of ``rows`` (1) parts
noisy_linear              weight, bias, noise    linear with weight + noise and bias + noise, added in float32
                          of each
tanh relu elu gelu silu                          element by element; elu with alpha 1, gelu by erf
layer_norm                scale, bias            (x - mean) / sqrt(variance + ``epsilon``) * scale + bias, for each of
                                                 ``rows`` (1) parts, with its population variance
scale                                            x * ``factor``
bias                      values                 x + values
slice                                            ``length`` elements from ``start``
concat: one or more                              the inputs concatenated
add: x, y                                        x + y
multiply: x, y                                   x * y, element by element
transpose                                        transpose of the matrix with ``rows`` rows
conv2d                    weight (out, kh, kw,   x is ``height`` x ``width`` x in; the result has its channels last
                          in), bias              too; ``stride``, zero ``padding``
max_pool                                         maximum of each ``size`` x ``size`` window of ``height`` x ``width`` x
                                                 channels; ``stride``, ``padding`` with -infinity
join_rows: x, y                                  y appended to each of ``rows`` parts of x
attention: q, k, v,                              for each of ``rows`` parts of q, head by head: softmax(q k / sqrt(d)) v
  or q, k, v, legal                              over the ``keys`` parts of k and v with legal > 0.5, where d is
                                                 the width of a part over ``heads``; 0 if none is legal
mean_rows: x, or x, legal                        mean of the legal parts of ``rows`` parts; 0 if none is legal
gru                       weight_ih, weight_hh,  torch's GRUCell (gates r, z, n); reads and writes its part of the
                          bias_ih, bias_hh       memory, from index ``memory``
lstm                      as for gru             torch's LSTMCell (gates i, f, g, o); memory: h, then c; returns h
noise: nothing                                   ``size`` standard normal samples times ``scale``
expectation               support                softmax of each of ``rows`` parts, times support: one value each
**heads**
categorical                                      sample by softmax of x over the legal actions
argmax                                           the legal action with the largest x; the first one in a tie
epsilon_greedy                                   with probability ``epsilon`` a uniform legal action, else argmax
multi_categorical         choices (dimensions,)  MultiDiscrete: x and the mask have ``choices`` elements for each action
                                                 dimension; each dimension is sampled as by categorical
multi_argmax              choices (dimensions,)  MultiDiscrete: argmax in each action dimension
gaussian                  log_std                x + exp(log_std) * z
mode                                             x
squashed_gaussian         low, high              x is mean and log_std; tanh(mean + exp(log_std) * z) scaled
                                                 to low..high; options ``log_std_min``, ``log_std_max``
squashed_mode             low, high              squashed_gaussian with z = 0
noisy_squash              low, high              tanh(x) + ``sigma`` * z, clipped to -1..1, scaled to low..high
squash                    low, high              noisy_squash with z = 0
uniform                   low, high              uniform in low..high; ignores the ``parameters`` inputs per element
========================  =====================  =======================================================

Random draws (see `draws`) are used row by row, and within a row operation by operation. Draws per row: categorical 1,
multi_categorical 1 per action dimension, epsilon_greedy 2 (explore or not, then the action), uniform 1 per element;
gaussian, squashed_gaussian, noisy_squash and noise 2 per element (Box-Muller: z = sqrt(-2 ln(1 - u0)) cos(2 pi u1)).
Noise with scale 0 and all other operations use no draws.

The log-probability of an action is the sum over its dimensions. For squashed_gaussian and uniform it is the
density of the value in -1..1. It is 0 for deterministic heads and for noisy_squash.

A NaN in the input of the head results in a NaN log-probability. The action is then the first legal action of each
dimension, or NaN in the affected elements if actions are continuous. Attention and mean_rows return NaN for a row with
any NaN input, even in an illegal part.

The memory is the recurrent state: a float32 vector that the caller stores between steps, zero at the start of an
episode. Each gru and lstm uses its own range of the memory. A decision with a NaN log-probability leaves the memory
unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from operator import index
from types import MappingProxyType
from typing import Any

from rl4sys.errors import SpecError
from rl4sys.policy.shape_rules import CELLS, RULES, ExpectedShapes, GivenShapes
from rl4sys.spec import Columns

ACTIVATIONS = ("tanh", "relu", "elu", "gelu", "silu")
MULTI_HEADS = ("multi_categorical", "multi_argmax")
DISCRETE_HEADS = ("categorical", "argmax", "epsilon_greedy", *MULTI_HEADS)
BOX_HEADS = ("gaussian", "mode", "squashed_gaussian", "squashed_mode", "noisy_squash", "squash", "uniform")
HEADS = DISCRETE_HEADS + BOX_HEADS
BODY = tuple(name for name in RULES if name not in HEADS)

ROW, MASK_NUMBERS = 0, -1
"""Numbers in ``inputs`` that reference the input row and the mask."""

MAX_OPERATIONS, MAX_VALUES = 4096, 2**24
"""Limits of a program: number of operations including the head, and total size of all values."""

_BOUNDED = ("squashed_gaussian", "squashed_mode", "noisy_squash", "squash", "uniform")
_WEIGHT_COUNT = {
    "normalize": 2,
    "linear": 2,
    "noisy_linear": 4,
    "layer_norm": 2,
    "bias": 1,
    "conv2d": 2,
    "gru": 4,
    "lstm": 4,
    "expectation": 1,
    "gaussian": 1,
    **dict.fromkeys(MULTI_HEADS, 1),
    **dict.fromkeys(_BOUNDED, 2),
}
_OPTIONS = {
    "normalize": ("limit",),
    "layer_norm": ("epsilon",),
    "scale": ("factor",),
    "slice": ("start", "length"),
    "transpose": ("rows",),
    "conv2d": ("height", "width", "stride", "padding"),
    "max_pool": ("height", "width", "size", "stride", "padding"),
    "join_rows": ("rows",),
    "attention": ("heads", "rows", "keys"),
    "mean_rows": ("rows",),
    "gru": ("memory",),
    "lstm": ("memory",),
    "noise": ("size", "scale"),
    "expectation": ("rows",),
    "epsilon_greedy": ("epsilon",),
    "squashed_gaussian": ("log_std_min", "log_std_max"),
    "noisy_squash": ("sigma",),
    "uniform": ("parameters",),
}
_ROWS_OPTIONAL = ("linear", "noisy_linear", "layer_norm")
_FROM_0 = ("start", "padding", "memory")
_WHOLE = ("rows", "length", "height", "width", "size", "stride", "heads", "keys", *_FROM_0)
_INPUT_COUNTS = {
    "concat": (1, MAX_OPERATIONS),
    "add": (2, 2),
    "multiply": (2, 2),
    "join_rows": (2, 2),
    "attention": (3, 4),
    "mean_rows": (1, 2),
    "noise": (0, 0),
}
_GREEDY = {
    "categorical": "argmax",
    "epsilon_greedy": "argmax",
    "multi_categorical": "multi_argmax",
    "gaussian": "mode",
    "squashed_gaussian": "squashed_mode",
    "noisy_squash": "squash",
}


@dataclass(frozen=True)
class Operation:
    """One operation of a program. ``weights`` are array names in the order of the table in the module docstring.

    ``inputs`` are the numbers of the input values; an empty tuple means the previous value.
    """

    name: str
    weights: tuple[str, ...] = ()
    options: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    inputs: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.name not in RULES:
            raise SpecError(
                f"the policy needs the operation {self.name!r}, which this version of rl4sys does not support; "
                "upgrade rl4sys"
            )
        if len(self.weights) != _WEIGHT_COUNT.get(self.name, 0):
            raise SpecError(f"{self.name} takes {_WEIGHT_COUNT.get(self.name, 0)} weights, got {list(self.weights)}")
        self._check_options()
        least, most = _INPUT_COUNTS.get(self.name, (1, 1))
        # Empty inputs mean one input, the previous value, unless the operation has no inputs.
        if not least <= (len(self.inputs) or min(1, most)) <= most:
            count = f"{least} to {most}" if least < most else f"{least}"
            raise SpecError(f"{self.name} takes {count} inputs, got {list(self.inputs)}")

    def _check_options(self) -> None:
        needed, given = set(_OPTIONS.get(self.name, ())), set(self.options)
        if self.name in _ROWS_OPTIONAL:
            given -= {"rows"}
        if given != needed or not all(math.isfinite(option) for option in self.options.values()):
            expected = ", ".join(_OPTIONS.get(self.name, ())) or "none"
            raise SpecError(f"{self.name} has the options {dict(self.options)}; expected finite options: {expected}")
        for name in set(_WHOLE) & set(self.options):
            least = 0 if name in _FROM_0 else 1
            if not least <= self.options[name] <= MAX_VALUES or self.options[name] % 1:
                raise SpecError(
                    f"{name} of {self.name} is {self.options[name]}; expected an integer from {least} to 2**24"
                )
        if self.name == "max_pool" and self.options["padding"] >= self.options["size"]:
            raise SpecError(f"max_pool has the options {dict(self.options)}; expected a padding smaller than size")
        if self.name == "uniform" and self.options["parameters"] not in (1, 2):
            raise SpecError(f"parameters of uniform is {self.options['parameters']}; expected 1 or 2")

    def sources(self, number: int) -> tuple[int, ...]:
        """Return the numbers of the input values of this operation, given its ``number`` in the program."""
        return self.inputs if self.inputs or self.name == "noise" else (number - 1,)

    def inputs_per_element(self) -> int:
        """Return the number of inputs of a head per continuous action dimension or per discrete action."""
        if self.name == "uniform":
            return int(self.options["parameters"])
        return 2 if self.name in ("squashed_gaussian", "squashed_mode") else 1

    def parts(self, size: int, weights: Columns) -> tuple[int, ...]:
        """Return the number of discrete actions in each action dimension of a head with ``size`` inputs."""
        return tuple(weights[self.weights[0]].astype(int).tolist()) if self.name in MULTI_HEADS else (size,)

    def greedy(self) -> Operation:
        """Return the deterministic form of the operation: a head returns its mode, and noise is zero."""
        if self.name == "noise":
            return replace(self, options={**self.options, "scale": 0.0})
        if self.name == "noisy_linear":
            return replace(self, name="linear", weights=self.weights[:2])
        if self.name not in HEADS:
            return self
        name = _GREEDY.get(self.name, self.name)
        if self.name == "uniform":
            name = "squash" if self.inputs_per_element() == 1 else "squashed_mode"
        return Operation(name, self.weights if name in (*_BOUNDED, *MULTI_HEADS) else (), inputs=self.inputs)

    def to_json(self) -> dict[str, Any]:
        # Write floats, as the parser returns them: the checksum of a snapshot covers this text.
        options = {name: float(option) for name, option in self.options.items()}
        plain = {"name": self.name, "weights": list(self.weights), "options": options}
        return {**plain, "inputs": list(self.inputs)} if self.inputs else plain

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Operation:
        options = {str(name): float(option) for name, option in value["options"].items()}
        inputs = tuple(index(number) for number in value.get("inputs", ()))
        return cls(str(value["name"]), tuple(str(w) for w in value["weights"]), options, inputs)


@dataclass(frozen=True)
class Program:
    """Policy program: body operations, and the head that samples the action."""

    body: tuple[Operation, ...]
    head: Operation

    def __post_init__(self) -> None:
        misplaced = [o.name for o in self.body if o.name in HEADS]
        if misplaced or self.head.name not in HEADS:
            raise SpecError(
                f"a program must have exactly one head ({', '.join(HEADS)}), as its last operation; "
                f"got the operations {[o.name for o in (*self.body, self.head)]!s:.200}"
            )
        if len(self.operations) > MAX_OPERATIONS:
            raise SpecError(f"the program has {len(self.operations)} operations; the maximum is {MAX_OPERATIONS}")
        for number, operation in enumerate(self.operations, start=1):
            if not all(MASK_NUMBERS <= source < number for source in operation.inputs):
                raise SpecError(
                    f"{operation.name} (operation {number}) uses the values {list(operation.inputs)!s:.80} as inputs; "
                    f"expected -1 to {number - 1}"
                )
        if self.sees_mask and self.head.name not in DISCRETE_HEADS:
            raise SpecError("the program uses the mask, but its actions are continuous and have no mask")

    @property
    def operations(self) -> tuple[Operation, ...]:
        return (*self.body, self.head)

    @property
    def sees_mask(self) -> bool:
        """True if a body operation uses the mask. Heads always receive the mask."""
        return any(MASK_NUMBERS in operation.inputs for operation in self.operations)

    def greedy(self) -> Program:
        """Return the deterministic form of the program."""
        return Program(tuple(operation.greedy() for operation in self.body), self.head.greedy())

    def after(self, operation: Operation) -> Program:
        """Return this program with ``operation`` inserted first; the others read its result in place of the row."""
        shifted = renumbered(self.operations, row=1, shift=1)
        return Program((operation, *shifted[:-1]), shifted[-1])

    def output_size(self, input_size: int, weights: Columns) -> int:
        """Return the input size of the head. Raises `SpecError` for the first operation with wrong shapes."""
        mask_size = 1
        if self.sees_mask:
            # The mask is as long as the input of the head; this first pass computes that length without checking sizes.
            mask_size = max(1, self._fits(input_size, weights, mask_size)[-1].result)
        size = self._checked_size(input_size, weights, mask_size)
        if self.sees_mask and size != mask_size:
            raise SpecError(f"the head {self.head.name} has {size} inputs, but the mask has {mask_size} elements")
        self._check_memory(weights)
        self._check_parts(size, weights)
        return size

    def value_sizes(self, input_size: int, weights: Columns) -> tuple[int, ...]:
        """Return the size of each value by its number: the row, then the results; the size of a head is its input."""
        mask_size = self.output_size(input_size, weights)
        return (input_size, *(fit.result for fit in self._fits(input_size, weights, mask_size)))

    def memory_size(self, weights: Columns) -> int:
        """Return the length of the recurrent state (memory) vector; 0 if the program is not recurrent."""
        return max((end for _, _, end in self._memory_parts(weights)), default=0)

    def to_json(self) -> list[dict[str, Any]]:
        return [operation.to_json() for operation in self.operations]

    @classmethod
    def from_json(cls, value: list[Mapping[str, Any]]) -> Program:
        try:
            *body, head = (Operation.from_json(operation) for operation in value)
        except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as problem:
            raise SpecError(f"not a policy program: {problem!r} in {value!r:.200}") from problem
        return cls(tuple(body), head)

    def _fits(self, input_size: int, weights: Columns, mask_size: int) -> list[ExpectedShapes]:
        """Return the expected shapes of each operation, without checking the actual shapes."""
        fits: list[ExpectedShapes] = []
        for number, operation in enumerate(self.operations, start=1):
            given = _given(operation, number, [mask_size, input_size, *(fit.result for fit in fits)], weights)
            fits.append(RULES[operation.name](given))
        return fits

    def _checked_size(self, input_size: int, weights: Columns, mask_size: int) -> int:
        sizes, total = [mask_size, input_size], input_size + mask_size * self.sees_mask
        for number, operation in enumerate(self.operations, start=1):
            given = _given(operation, number, sizes, weights)
            fit = RULES[operation.name](given)
            if (given.shapes, given.sizes) != (fit.shapes, fit.sizes) or fit.result < 1:
                raise SpecError(_misfit(operation, number, given, fit))
            sizes.append(fit.result)
            total += fit.result if operation.name not in HEADS else 0
            if total + fit.padded > MAX_VALUES:
                raise SpecError(
                    f"{operation.name} (operation {number}) exceeds the limit of 2**24 numbers "
                    "for all values of a program"
                )
        return sizes[-1]

    def _check_parts(self, size: int, weights: Columns) -> None:
        if self.head.name not in MULTI_HEADS:
            return
        choices = weights[self.head.weights[0]].astype(float)
        # Check the maximum first, because a sum that contains infinity or NaN cannot be compared.
        if not (choices <= size).all() or (choices < 1).any() or (choices % 1).any() or choices.sum() != size:
            raise SpecError(
                f"{self.head.name} has the action counts {choices.tolist()!s:.80}; expected integers of at least 1 "
                f"that sum to {size}, its number of inputs"
            )

    def _memory_parts(self, weights: Columns) -> list[tuple[int, int, int]]:
        """Return (start, operation number, end) of the range of each recurrent operation in the memory vector."""
        parts: list[tuple[int, int, int]] = []
        for number, operation in enumerate(self.operations, start=1):
            if operation.name in CELLS:
                start, hidden = int(operation.options["memory"]), weights[operation.weights[1]].shape[1]
                parts.append((start, number, start + hidden * CELLS[operation.name]))
        return parts

    def _check_memory(self, weights: Columns) -> None:
        taken = 0
        for start, number, end in sorted(self._memory_parts(weights)):
            name = f"{self.operations[number - 1].name} (operation {number})"
            if start < taken:
                raise SpecError(
                    f"{name} uses the memory from {start} to {end}, but another operation uses it up to {taken}"
                )
            if end > MAX_VALUES:
                raise SpecError(f"{name} uses the memory up to {end}; the maximum is 2**24")
            taken = end


def renumbered(operations: Iterable[Operation], row: int, shift: int) -> tuple[Operation, ...]:
    """Increase the input numbers of operations by ``shift``, and replace references to the row by ``row``."""

    def moved(number: int, operation: Operation) -> Operation:
        sources = [row if s == ROW else s if s == MASK_NUMBERS else s + shift for s in operation.sources(number)]
        just_before = sources == [number + shift - 1]
        return replace(operation, inputs=() if just_before else tuple(sources))

    return tuple(moved(number, operation) for number, operation in enumerate(operations, start=1))


def _given(operation: Operation, number: int, sizes: list[int], weights: Columns) -> GivenShapes:
    """Return the actual shapes of an operation. ``sizes`` lists the sizes of the mask, the row and each result."""
    missing = [name for name in operation.weights if name not in weights]
    if missing:
        raise SpecError(f"{operation.name} needs the weights {missing}, which the snapshot does not have")
    shapes = tuple(weights[name].shape for name in operation.weights)
    return GivenShapes(tuple(sizes[source + 1] for source in operation.sources(number)), shapes, operation.options)


def _misfit(operation: Operation, number: int, given: GivenShapes, fit: ExpectedShapes) -> str:
    numbers, expected = (" and ".join(map(str, sizes)) for sizes in (given.sizes, fit.sizes))
    if not given.shapes:
        return f"{operation.name} got {numbers} numbers; expected {expected} (operation {number})"
    return (
        f"{operation.name} got weights of shapes {list(given.shapes)} for {numbers} numbers; "
        f"expected {list(fit.shapes)} for {expected} (operation {number})"
    )
