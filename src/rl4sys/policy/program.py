"""The policy program: a list of operations from a closed set, as plain data.

A program turns one row of numbers, the observation flattened to float32, into an action. Its last
operation is the *head*, which draws the action; those before it are the *body*. Every value is a flat
vector of numbers. An operation takes the value just before it, or those that its ``inputs`` name: 0 is
the row, k the result of the k-th operation, counted from 1, and -1 the mask as numbers (1 legal, 0 not;
all 1 where there is none). *Parts* of x are ``rows`` equal pieces of it, one after the other. The set:

========================  =====================  =======================================================
operation                 weights                result
========================  =====================  =======================================================
normalize                 mean, scale            clip((x - mean) * scale, -limit, limit); option ``limit``
linear                    weight (out, in), bias weight @ x + bias, for each of ``rows`` (1) parts
noisy_linear              the same, then what    the same with the noise added to weight and bias, in float32
                          noise adds to each
tanh relu elu gelu silu                          element by element; elu with alpha 1, gelu by erf
layer_norm                scale, bias            (x - mean) / sqrt(variance + ``epsilon``) * scale + bias, for each of
                                                 ``rows`` (1) parts; the variance is that of the population
scale                                            x * ``factor``
bias                      values                 x + values
slice                                            ``length`` numbers from ``start``
concat: one or more                              end to end
add: x, y                                        x + y
multiply: x, y                                   x * y, element by element
transpose                                        ``rows`` x columns made columns x ``rows``
conv2d                    weight (out, kh, kw,   x is ``height`` x ``width`` x in, and the result has its channels last
                          in), bias              too; ``stride``, zero ``padding``
max_pool                                         largest in each ``size`` x ``size`` window of ``height`` x ``width`` x
                                                 channels; ``stride``, ``padding``, which never wins
join_rows: x, y                                  y appended to each of ``rows`` parts of x
attention: q, k, v,                              for each of ``rows`` parts of q, head by head: softmax(q k / sqrt(d)) v
  or q, k, v, legal                              over the ``keys`` parts of k and v whose legal number is over 0.5, d
                                                 being the width of a part over ``heads``; 0 where none is legal
mean_rows: x, or x, legal                        mean of the legal ones of ``rows`` parts; 0 where none is legal
gru                       weight_ih, weight_hh,  torch's GRUCell (gates r, z, n); reads and writes its part of the
                          bias_ih, bias_hh       memory, from number ``memory`` on
lstm                      the same               torch's LSTMCell (gates i, f, g, o); its part holds h, then c; gives h
noise: nothing                                   ``size`` standard normal numbers times ``scale``
expectation               support                softmax of each of ``rows`` parts, times support: one number each
**heads**
categorical                                      sample by softmax of x over the legal actions
argmax                                           the legal action with the largest x; the first of equals
epsilon_greedy                                   with probability ``epsilon`` any legal action, else argmax
multi_categorical         choices (parts,)       several choices at once: x and the mask hold so many numbers for each
                                                 part, one part after the other, and each is sampled as by categorical
multi_argmax              choices (parts,)       the same by argmax
gaussian                  log_std                x + exp(log_std) * z
mode                                             x
squashed_gaussian         low, high              x is mean and log_std; tanh(mean + exp(log_std) * z) scaled
                                                 to low..high; options ``log_std_min``, ``log_std_max``
squashed_mode             low, high              the same with z = 0
noisy_squash              low, high              tanh(x) + ``sigma`` * z, clipped to -1..1, scaled to low..high
squash                    low, high              the same with z = 0
uniform                   low, high              anywhere in low..high, whatever the ``parameters`` numbers an element
========================  =====================  =======================================================

Draws (see `draws`) are used in order, row after row and in a row operation after operation: categorical takes 1 a
row, multi_categorical 1 a part, epsilon_greedy 2 (whether to explore, then which), the Gaussians 2 an element
(Box-Muller: z = sqrt(-2 ln(1 - u0)) cos(2 pi u1)), noisy_squash too, noise too unless its scale is 0, uniform 1 an
element, the others none. The log-probability is that of the drawn action, the sum over its parts or elements (of the
value in -1..1 for the squashed Gaussian and uniform), 0 for the deterministic heads and noisy_squash. A NaN in the
head's input gives a legal action, the first legal of each part or the NaN itself, and a NaN log-probability: cheap to
test, impossible to miss. So no operation loses one: where attention or mean_rows meets a NaN, also in a part that is
not legal or among the legal numbers, what it gives is NaN.

Memory is a vector of float32 that the program's host keeps from step to step, zeros at an episode's start. Each gru
and lstm has a part of its own in it. A decision with a NaN log-probability leaves it as it was.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from operator import index
from types import MappingProxyType
from typing import Any

from rl4sys.errors import SpecError
from rl4sys.policy.sizes import CELLS, RULES, Fit, Given
from rl4sys.spec import Columns

ACTIVATIONS = ("tanh", "relu", "elu", "gelu", "silu")
MULTI_HEADS = ("multi_categorical", "multi_argmax")
DISCRETE_HEADS = ("categorical", "argmax", "epsilon_greedy", *MULTI_HEADS)
BOX_HEADS = ("gaussian", "mode", "squashed_gaussian", "squashed_mode", "noisy_squash", "squash", "uniform")
HEADS = DISCRETE_HEADS + BOX_HEADS
BODY = tuple(name for name in RULES if name not in HEADS)

ROW, MASK_NUMBERS = 0, -1
"""Values that no operation gives."""

MOST_OPERATIONS, MOST_NUMBERS = 4096, 2**24
"""Of a program, the head included; of all its values together."""

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
_ROWS_MAY_BE_LEFT_OUT = ("linear", "noisy_linear", "layer_norm")
_FROM_0 = ("start", "padding", "memory")
_WHOLE = ("rows", "length", "height", "width", "size", "stride", "heads", "keys", *_FROM_0)
_INPUT_COUNTS = {
    "concat": (1, MOST_OPERATIONS),
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
    """One step of a program; ``weights`` name the arrays it takes, in the order of the table above.

    ``inputs`` are the numbers of the values it takes; none stand for the value just before it.
    """

    name: str
    weights: tuple[str, ...] = ()
    options: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    inputs: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.name not in RULES:
            raise SpecError(
                f"the policy needs the operation {self.name!r}, which this version of rl4sys does not know: upgrade it"
            )
        if len(self.weights) != _WEIGHT_COUNT.get(self.name, 0):
            raise SpecError(f"{self.name} takes {_WEIGHT_COUNT.get(self.name, 0)} weights, got {list(self.weights)}")
        self._check_options()
        least, most = _INPUT_COUNTS.get(self.name, (1, 1))
        # None named are one, the value just before, for all that take any.
        if not least <= (len(self.inputs) or min(1, most)) <= most:
            raise SpecError(f"{self.name} takes {least} to {most} inputs, got {list(self.inputs)}")

    def _check_options(self) -> None:
        needed, given = set(_OPTIONS.get(self.name, ())), set(self.options)
        if self.name in _ROWS_MAY_BE_LEFT_OUT:
            given -= {"rows"}
        if given != needed or not all(math.isfinite(option) for option in self.options.values()):
            raise SpecError(
                f"{self.name} takes finite {_OPTIONS.get(self.name, ())} as options, got {dict(self.options)}"
            )
        for name in set(_WHOLE) & set(self.options):
            least = 0 if name in _FROM_0 else 1
            if not least <= self.options[name] <= MOST_NUMBERS or self.options[name] % 1:
                raise SpecError(
                    f"{self.name} takes a whole number from {least} to 2**24 as {name}, got {self.options[name]}"
                )
        if self.name == "max_pool" and self.options["padding"] >= self.options["size"]:
            raise SpecError(f"max_pool takes a padding smaller than its size, got {dict(self.options)}")
        if self.name == "uniform" and self.options["parameters"] not in (1, 2):
            raise SpecError(f"uniform takes 1 or 2 parameters an element, got {self.options['parameters']}")

    def sources(self, number: int) -> tuple[int, ...]:
        """The values it takes where it is the operation of that number."""
        return self.inputs if self.inputs or self.name == "noise" else (number - 1,)

    def numbers_per_element(self) -> int:
        """Of a head: how many it takes for each element of an action, or for each choice."""
        if self.name == "uniform":
            return int(self.options["parameters"])
        return 2 if self.name in ("squashed_gaussian", "squashed_mode") else 1

    def parts(self, size: int, weights: Columns) -> tuple[int, ...]:
        """Of a discrete head that ``size`` numbers reach: how many choices each part of an action has."""
        return tuple(weights[self.weights[0]].astype(int).tolist()) if self.name in MULTI_HEADS else (size,)

    def greedy(self) -> Operation:
        """The same without chance: a head that makes its best guess, noise that is silent."""
        if self.name == "noise":
            return replace(self, options={**self.options, "scale": 0.0})
        if self.name == "noisy_linear":
            return replace(self, name="linear", weights=self.weights[:2])
        if self.name not in HEADS:
            return self
        name = _GREEDY.get(self.name, self.name)
        if self.name == "uniform":
            name = "squash" if self.numbers_per_element() == 1 else "squashed_mode"
        return Operation(name, self.weights if name in (*_BOUNDED, *MULTI_HEADS) else (), inputs=self.inputs)

    def to_json(self) -> dict[str, Any]:
        # As float, which is how they come back: a snapshot's checksum is of this text.
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
    """A body of operations and the head that draws the action."""

    body: tuple[Operation, ...]
    head: Operation

    def __post_init__(self) -> None:
        misplaced = [o.name for o in self.body if o.name in HEADS]
        if misplaced or self.head.name not in HEADS:
            raise SpecError(
                f"a program ends in exactly one of {HEADS}; got {[o.name for o in (*self.body, self.head)]!s:.200}"
            )
        if len(self.operations) > MOST_OPERATIONS:
            raise SpecError(f"a program of {len(self.operations)} operations; it can have {MOST_OPERATIONS}")
        for number, operation in enumerate(self.operations, start=1):
            if not all(MASK_NUMBERS <= source < number for source in operation.inputs):
                raise SpecError(
                    f"operation {number}, {operation.name}, takes the values {list(operation.inputs)!s:.80}; "
                    f"before it there are -1 to {number - 1}"
                )
        if self.sees_mask and self.head.name not in DISCRETE_HEADS:
            raise SpecError("the program uses the mask, and its actions are continuous: they have none")

    @property
    def operations(self) -> tuple[Operation, ...]:
        return (*self.body, self.head)

    @property
    def sees_mask(self) -> bool:
        """Whether an operation takes the mask as numbers; heads know it anyway."""
        return any(MASK_NUMBERS in operation.inputs for operation in self.operations)

    def greedy(self) -> Program:
        """The same program acting by its best guess, without chance."""
        return Program(tuple(operation.greedy() for operation in self.body), self.head.greedy())

    def after(self, operation: Operation) -> Program:
        """This program with what ``operation`` makes of the row in place of the row."""
        shifted = renumbered(self.operations, row=1, shift=1)
        return Program((operation, *shifted[:-1]), shifted[-1])

    def output_size(self, input_size: int, weights: Columns) -> int:
        """Numbers reaching the head; a `SpecError` names the first operation that does not fit."""
        mask_size = 1
        if self.sees_mask:
            # As long as what reaches the discrete head. No size is checked yet: the mask's is still a guess.
            mask_size = max(1, self._fits(input_size, weights, mask_size)[-1].result)
        size = self._checked_size(input_size, weights, mask_size)
        if self.sees_mask and size != mask_size:
            raise SpecError(f"the head {self.head.name} got {size} numbers for a mask of {mask_size}")
        self._check_memory(weights)
        self._check_parts(size, weights)
        return size

    def memory_size(self, weights: Columns) -> int:
        """Numbers that the program keeps from step to step; 0 if none."""
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

    def _fits(self, input_size: int, weights: Columns, mask_size: int) -> list[Fit]:
        """How each operation fits what those before it would give."""
        fits: list[Fit] = []
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
            if total + fit.padded > MOST_NUMBERS:
                raise SpecError(
                    f"{operation.name} (operation {number}) takes the values beyond 2**24 numbers together; "
                    "a program this large is not run"
                )
        return sizes[-1]

    def _check_parts(self, size: int, weights: Columns) -> None:
        if self.head.name not in MULTI_HEADS:
            return
        choices = weights[self.head.weights[0]].astype(float)
        # The largest comes first: a sum of infinities, or of NaN, is no number to compare.
        if not (choices <= size).all() or (choices < 1).any() or (choices % 1).any() or choices.sum() != size:
            raise SpecError(
                f"{self.head.name} got choices that are not whole numbers from 1 on, together the {size} numbers "
                "it takes"
            )

    def _memory_parts(self, weights: Columns) -> list[tuple[int, int, int]]:
        """Start of each part of the memory, the number of its operation, and its end."""
        parts: list[tuple[int, int, int]] = []
        for number, operation in enumerate(self.operations, start=1):
            if operation.name in CELLS:
                start, hidden = int(operation.options["memory"]), weights[operation.weights[1]].shape[1]
                parts.append((start, number, start + hidden * CELLS[operation.name]))
        return parts

    def _check_memory(self, weights: Columns) -> None:
        taken = 0
        for start, number, end in sorted(self._memory_parts(weights)):
            if start < taken or end > MOST_NUMBERS:
                raise SpecError(
                    f"{self.operations[number - 1].name} (operation {number}) has the memory from {start} to {end}; "
                    f"another has it up to {taken}, and 2**24 is the most there can be"
                )
            taken = end


def renumbered(operations: Iterable[Operation], row: int, shift: int) -> tuple[Operation, ...]:
    """The operations to stand ``shift`` places further on, with the value ``row`` in place of the row."""

    def moved(number: int, operation: Operation) -> Operation:
        sources = [row if s == ROW else s if s == MASK_NUMBERS else s + shift for s in operation.sources(number)]
        just_before = sources == [number + shift - 1]
        return replace(operation, inputs=() if just_before else tuple(sources))

    return tuple(moved(number, operation) for number, operation in enumerate(operations, start=1))


def _given(operation: Operation, number: int, sizes: list[int], weights: Columns) -> Given:
    """What the operation has; ``sizes`` are those of the mask, the row, and each result."""
    missing = [name for name in operation.weights if name not in weights]
    if missing:
        raise SpecError(f"{operation.name} needs the weights {missing}, which the snapshot does not have")
    shapes = tuple(weights[name].shape for name in operation.weights)
    return Given(tuple(sizes[source + 1] for source in operation.sources(number)), shapes, operation.options)


def _misfit(operation: Operation, number: int, given: Given, fit: Fit) -> str:
    numbers, expected = (" and ".join(map(str, sizes)) for sizes in (given.sizes, fit.sizes))
    if not given.shapes:
        return f"{operation.name} got {numbers} numbers; expected {expected} (operation {number})"
    return (
        f"{operation.name} got weights of shapes {list(given.shapes)} for {numbers} numbers; "
        f"expected {list(fit.shapes)} for {expected} (operation {number})"
    )
