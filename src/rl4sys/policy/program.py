"""The policy program: a list of operations from a closed set, as plain data.

A program turns one row of numbers, the observation flattened to float32, into an action. Its last
operation is the *head*, which draws the action; those before it are the *body*. The set:

========================  =====================  =======================================================
operation                 weights                result
========================  =====================  =======================================================
normalize                 mean, scale            clip((x - mean) * scale, -limit, limit); option ``limit``
linear                    weight (out, in), bias weight @ x + bias
tanh relu elu gelu silu                          element by element; elu with alpha 1, gelu by erf
**heads**
categorical                                      sample by softmax of x over the legal actions
argmax                                           the legal action with the largest x; the first of equals
epsilon_greedy                                   with probability ``epsilon`` any legal action, else argmax
gaussian                  log_std                x + exp(log_std) * z
mode                                             x
squashed_gaussian         low, high              x is mean and log_std; tanh(mean + exp(log_std) * z) scaled
                                                 to low..high; options ``log_std_min``, ``log_std_max``
squashed_mode             low, high              the same with z = 0
noisy_squash              low, high              tanh(x) + ``sigma`` * z, clipped to -1..1, scaled to low..high
squash                    low, high              the same with z = 0
uniform                   low, high              anywhere in low..high, whatever the ``parameters`` numbers an element
========================  =====================  =======================================================

Draws (see `draws`) are used in order, row after row: categorical takes 1 a row, epsilon_greedy 2 (whether
to explore, then which), the Gaussians 2 an element (Box-Muller: z = sqrt(-2 ln(1 - u0)) cos(2 pi u1)),
noisy_squash too, uniform 1 an element, the others none. The log-probability is that of the drawn action (of the
value in -1..1 for the squashed Gaussian and uniform), 0 for the deterministic heads and noisy_squash. A NaN in the
head's input gives a legal action, the first legal or the NaN itself, and a NaN log-probability: cheap to test,
impossible to miss.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from rl4sys.errors import SpecError
from rl4sys.spec import Columns

ACTIVATIONS = ("tanh", "relu", "elu", "gelu", "silu")
DISCRETE_HEADS = ("categorical", "argmax", "epsilon_greedy")
BOX_HEADS = ("gaussian", "mode", "squashed_gaussian", "squashed_mode", "noisy_squash", "squash", "uniform")
HEADS = DISCRETE_HEADS + BOX_HEADS
BODY = ("normalize", "linear", *ACTIVATIONS)

_BOUNDED = ("squashed_gaussian", "squashed_mode", "noisy_squash", "squash", "uniform")
_WEIGHT_COUNT = {"normalize": 2, "linear": 2, "gaussian": 1} | dict.fromkeys(_BOUNDED, 2)
_OPTIONS = {
    "normalize": ("limit",),
    "epsilon_greedy": ("epsilon",),
    "squashed_gaussian": ("log_std_min", "log_std_max"),
    "noisy_squash": ("sigma",),
    "uniform": ("parameters",),
}
_GREEDY = {
    "categorical": "argmax",
    "epsilon_greedy": "argmax",
    "gaussian": "mode",
    "squashed_gaussian": "squashed_mode",
    "noisy_squash": "squash",
}


@dataclass(frozen=True)
class Operation:
    """One step of a program; ``weights`` name the arrays it takes, in the order of the table above."""

    name: str
    weights: tuple[str, ...] = ()
    options: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        if self.name not in BODY + HEADS:
            raise SpecError(
                f"the policy needs the operation {self.name!r}, which this version of rl4sys does not know: upgrade it"
            )
        if len(self.weights) != _WEIGHT_COUNT.get(self.name, 0):
            raise SpecError(f"{self.name} takes {_WEIGHT_COUNT.get(self.name, 0)} weights, got {list(self.weights)}")
        finite = all(math.isfinite(option) for option in self.options.values())
        if set(self.options) != set(_OPTIONS.get(self.name, ())) or not finite:
            raise SpecError(
                f"{self.name} takes finite {_OPTIONS.get(self.name, ())} as options, got {dict(self.options)}"
            )
        if self.name == "uniform" and self.options["parameters"] not in (1, 2):
            raise SpecError(f"uniform takes 1 or 2 parameters an element, got {self.options['parameters']}")

    def numbers_per_element(self) -> int:
        """Of a head: how many it takes for each element of an action, or for each choice."""
        if self.name == "uniform":
            return int(self.options["parameters"])
        return 2 if self.name in ("squashed_gaussian", "squashed_mode") else 1

    def greedy(self) -> Operation:
        """Of a head: the one that makes its best guess, without chance."""
        name = _GREEDY.get(self.name, self.name)
        if self.name == "uniform":
            name = "squash" if self.numbers_per_element() == 1 else "squashed_mode"
        return Operation(name, self.weights if name in _BOUNDED else ())

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "weights": list(self.weights), "options": dict(self.options)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Operation:
        options = {str(name): float(option) for name, option in value["options"].items()}
        return cls(str(value["name"]), tuple(str(w) for w in value["weights"]), options)


@dataclass(frozen=True)
class Program:
    """A body of operations and the head that draws the action."""

    body: tuple[Operation, ...]
    head: Operation

    def __post_init__(self) -> None:
        misplaced = [o.name for o in self.body if o.name in HEADS]
        if misplaced or self.head.name not in HEADS:
            raise SpecError(
                f"a program ends in exactly one of {HEADS}; got {[o.name for o in (*self.body, self.head)]}"
            )

    @property
    def operations(self) -> tuple[Operation, ...]:
        return (*self.body, self.head)

    def greedy(self) -> Program:
        """The same program acting by its best guess, without chance."""
        return Program(self.body, self.head.greedy())

    def output_size(self, input_size: int, weights: Columns) -> int:
        """Numbers reaching the head; a `SpecError` names the first operation whose weights do not fit."""
        size = input_size
        for operation in self.operations:
            size = _size_after(operation, size, weights)
        return size

    def to_json(self) -> list[dict[str, Any]]:
        return [operation.to_json() for operation in self.operations]

    @classmethod
    def from_json(cls, value: list[Mapping[str, Any]]) -> Program:
        try:
            *body, head = (Operation.from_json(operation) for operation in value)
        except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as problem:
            raise SpecError(f"not a policy program: {problem!r} in {value!r:.200}") from problem
        return cls(tuple(body), head)


def _size_after(operation: Operation, size: int, weights: Columns) -> int:
    """Check the operation's weights against ``size`` inputs; return how many numbers it gives."""
    missing = [name for name in operation.weights if name not in weights]
    if missing:
        raise SpecError(f"{operation.name} needs the weights {missing}, which the snapshot does not have")
    shapes = [weights[name].shape for name in operation.weights]
    expected: list[tuple[int, ...]] = []
    if operation.name == "linear":
        outputs = shapes[0][0] if len(shapes[0]) == 2 else 0
        expected, size = [(outputs, size), (outputs,)], outputs
    elif operation.name in ("normalize", "gaussian"):
        expected = [(size,)] * len(shapes)
    elif operation.name in _BOUNDED:
        expected = [(size // operation.numbers_per_element(),)] * 2
    if shapes != expected or size < 1 or size % operation.numbers_per_element():
        raise SpecError(f"{operation.name} got weights of shapes {shapes} for {size} numbers; expected {expected}")
    return size
