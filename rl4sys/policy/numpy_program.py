"""Policy programs in numpy: the reference implementation, and the fallback if there is no native core.

The program computes in float64 and rounds to float32 after the body and after the head. Other implementations are
compared with its results. Rows are independent: the result of a batch equals the results of its single rows bit for
bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from rl4sys.errors import SpecError
from rl4sys.policy.draws import Draws
from rl4sys.policy.numpy_operations import OperationContext, apply, normals
from rl4sys.policy.program import DISCRETE_HEADS, MASK_NUMBERS, MULTI_HEADS, ROW, Operation, Program
from rl4sys.spec import Array, Columns

_HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)


class NumpyProgram:
    """Executable policy program with its weights. Thread-safe if each thread passes its own draws and memory."""

    def __init__(self, program: Program, weights: Columns, input_size: int) -> None:
        self.output_size = program.output_size(input_size, weights)
        self.memory_size = program.memory_size(weights)
        """Length of the recurrent state (memory) vector, which `act` and `decide` update in place."""
        self._program = program
        # Copy the weights, so that further training does not change this program.
        names = {name for operation in program.operations for name in operation.weights}
        self._weights = {name: np.array(weights[name], np.float64, order="C") for name in names}
        self._input_size = input_size
        self._discrete = program.head.name in DISCRETE_HEADS
        self._noisy = any(operation.name == "noise" for operation in program.body)

    @property
    def core(self) -> NumpyProgram:
        """The program itself, for a common interface with `NativeProgram`."""
        return self

    def forward(self, rows: Array) -> Array:
        """Return the input of the head as float32 rows. Requires a program without memory, noise and mask."""
        if self.memory_size or self._noisy or self._program.sees_mask:
            raise SpecError("forward needs a program without memory, noise and mask; use act or decide")
        return self.head_input(rows, None)[0]

    def head_input(self, rows: Array, mask: Array | None, memory: Array | None = None) -> tuple[Array, Array]:
        """Return the input of the head and the next memory as float32 rows; noise is drawn with key 0."""
        rows = as_rows(rows, self._input_size)
        held = as_memory(memory, (len(rows), self.memory_size))
        return self._body(rows, self._legal(mask, len(rows)), Draws(0), held)

    def act(self, rows: Array, mask: Array | None, draws: Draws, memory: Array | None = None) -> tuple[Array, Array]:
        """Return an action and its log-probability for each row. The mask is True for legal actions.

        ``memory`` is the recurrent state, a float32 array of shape (rows, memory_size), and is updated in place.
        """
        rows = as_rows(rows, self._input_size)
        held = as_memory(memory, (len(rows), self.memory_size))
        legal = self._legal(mask, len(rows))
        if not self._noisy:
            return self._decide(rows, legal, draws, held)
        # Draw all random numbers of a row, for the body and then for the head, before those of the next row.
        single_rows = [slice(row, row + 1) for row in range(len(rows))] or [slice(0, 0)]
        decided = [self._decide(rows[one], legal[one], draws, held[one]) for one in single_rows]
        return np.concatenate([action for action, _ in decided]), np.concatenate([log for _, log in decided])

    def decide(
        self, row: Array, mask: Array | None, draws: Draws, memory: Array | None = None
    ) -> tuple[int | Array, float]:
        """Return the action and its log-probability for one row. Updates the float32 array ``memory`` in place."""
        rows = as_row(row, self._input_size)[None]
        held = as_memory(memory, (self.memory_size,))[None]
        given = mask if mask is None or not self._discrete else as_mask(mask, (self.output_size,))[None]
        actions, log_probs = self._decide(rows, self._legal(given, 1), draws, held)
        return int(actions[0]) if actions.ndim == 1 else actions[0], float(log_probs[0])

    def _legal(self, mask: Array | None, rows: int) -> Array:
        if mask is not None and not self._discrete:
            raise SpecError("this policy's actions are continuous: they take no mask")
        parts = self._program.head.parts(self.output_size, self._weights)
        return _legal(mask, rows, parts)

    def _decide(self, rows: Array, legal: Array, draws: Draws, memory: Array) -> tuple[Array, Array]:
        outputs, remembered = self._body(rows, legal, draws, memory)
        mask = legal if self._discrete else None
        actions, log_probs = draw(self._program.head, self._weights, outputs, mask, draws)
        valid = ~np.isnan(log_probs)
        memory[valid] = remembered[valid]
        return actions, log_probs

    def _body(self, rows: Array, legal: Array, draws: Draws, memory: Array) -> tuple[Array, Array]:
        """Return the input of the head and the next recurrent state (memory), as float32 rows."""
        context = OperationContext(self._weights, draws, memory.astype(np.float64))
        values: dict[int, Array] = {MASK_NUMBERS: legal.astype(np.float64), ROW: rows.astype(np.float64)}
        # Infinite values are allowed here, so suppress overflow warnings.
        with np.errstate(all="ignore"):
            for number, operation in enumerate(self._program.body, start=1):
                values[number] = apply(operation, [values[s] for s in operation.sources(number)], context)
            (last,) = self._program.head.sources(len(self._program.operations))
            return values[last].astype(np.float32), context.memory.astype(np.float32)


def draw(head: Operation, weights: Columns, outputs: Array, mask: Array | None, draws: Draws) -> tuple[Array, Array]:
    """Apply the head of a program to a batch of network outputs. Returns actions and log-probabilities."""
    has_nan = np.isnan(outputs).any(axis=1)
    with np.errstate(all="ignore"):
        if head.name in DISCRETE_HEADS:
            action, log_prob, firsts = _choose(head, weights, outputs, mask, draws)
            has_nan |= np.isnan(log_prob)
            action = np.where(has_nan[:, None], firsts, action)
            action = action if head.name in MULTI_HEADS else action[:, 0]
        elif mask is None:
            action, log_prob = _BOX[head.name](outputs, head, weights, draws)
        else:
            raise SpecError("this policy's actions are continuous: they take no mask")
    return action, np.where(has_nan, np.nan, log_prob).astype(np.float32)


def as_row(row: Any, size: int) -> Array:
    """Convert one observation to float32. Raises `SpecError` unless it is numeric and has shape (size,)."""
    return _as_float32(row, (size,), "the row is")


def as_flat_row(row: Any, size: int) -> Array:
    """Flatten one observation in C order and convert it to float32. Raises `SpecError` like `as_row`."""
    given = _as_array(row, (size,), "the row is")
    # Values too large for float32 become infinite; the recorder rejects infinite values.
    with np.errstate(over="ignore"):
        return as_row(given.reshape(-1) if given.size == size else given, size)


def as_rows(rows: Any, size: int) -> Array:
    """Convert a batch of observations to float32 of shape (N, size). Raises `SpecError` like `as_row`."""
    return _as_float32(rows, (None, size), "the rows are")


def as_mask(mask: Any, shape: tuple[int, ...]) -> Array:
    """Return the mask as an array. Raises `SpecError` unless it is bool and has the given shape."""
    given = np.asarray(mask)
    if given.dtype != np.bool_ or given.shape != shape:
        raise SpecError(f"the mask is {given.dtype} of shape {given.shape}; expected bool of shape {shape}")
    return np.ascontiguousarray(given)


def as_memory(memory: Array | None, shape: tuple[int, ...]) -> Array:
    """Check the recurrent state and return it without a copy, because it is updated in place. None means size 0."""
    if memory is None and shape[-1] == 0:
        return np.zeros(shape, np.float32)
    if not isinstance(memory, np.ndarray):
        raise SpecError(f"the memory is a {type(memory).__name__}; expected a float32 numpy array of shape {shape}")
    if memory.dtype != np.float32 or memory.shape != shape or not memory.flags.writeable:
        raise SpecError(
            f"the memory is {memory.dtype} of shape {memory.shape}; expected writable float32 of shape {shape}"
        )
    return memory


def _as_array(values: Any, shape: tuple[int | None, ...], subject: str) -> Array:
    # Convert torch tensors (with gradients or on a GPU) without importing torch.
    on_cpu = values.detach().cpu() if hasattr(values, "detach") else values
    try:
        return np.asarray(on_cpu)
    except ValueError as problem:
        raise SpecError(f"{subject} nested with unequal lengths; expected float32 of shape {_text(shape)}") from problem


def _as_float32(values: Any, shape: tuple[int | None, ...], subject: str) -> Array:
    given = _as_array(values, shape, subject)
    fits = given.ndim == len(shape) and all(s in (None, n) for n, s in zip(given.shape, shape, strict=True))
    if given.dtype.kind not in "fiu" or not fits:
        raise SpecError(f"{subject} {given.dtype} of shape {given.shape}; expected float32 of shape {_text(shape)}")
    return np.ascontiguousarray(given, np.float32)


def _text(shape: tuple[int | None, ...]) -> str:
    return str(tuple("N" if size is None else size for size in shape)).replace("'", "")


def _legal(mask: Array | None, rows: int, parts: tuple[int, ...]) -> Array:
    if mask is None:
        return np.ones((rows, sum(parts)), np.bool_)
    legal = as_mask(mask, (rows, sum(parts)))
    allowed = np.stack([part.any(axis=1) for part in _split(legal, parts)], axis=1)
    if not allowed.all():
        row, part = np.argwhere(~allowed)[0]
        rest = "actions; at least one must be legal"
        if len(parts) > 1:
            rest = "actions of a part; each part needs at least one legal action"
        raise SpecError(f"the mask of row {row} allows none of the {parts[part]} {rest}")
    return legal


def _split(values: Array, parts: tuple[int, ...]) -> list[Array]:
    """Split the columns into the dimensions of a MultiDiscrete action."""
    return np.split(values, np.cumsum(parts)[:-1], axis=1)


def _choose(
    head: Operation, weights: Columns, outputs: Array, mask: Array | None, draws: Draws
) -> tuple[Array, Array, Array]:
    """Sample discrete actions. Returns actions, log-probabilities and the first legal action of each dimension."""
    parts = head.parts(outputs.shape[1], weights)
    choose, draws_per_part = _DISCRETE[head.name]
    rows = len(outputs)
    uniform = draws.uniforms(rows * len(parts) * draws_per_part).reshape(rows, len(parts), draws_per_part)
    legal = _split(_legal(mask, rows, parts), parts)
    chosen = [choose(*part, head) for part in zip(_split(outputs, parts), legal, uniform.swapaxes(0, 1), strict=True)]
    actions, log_probs = zip(*chosen, strict=True)
    firsts = np.stack([part.argmax(axis=1) for part in legal], axis=1)
    return np.stack(actions, axis=1), np.sum(log_probs, axis=0), firsts


def _best(outputs: Array, legal: Array) -> Array:
    """Return the legal action with the largest output; the first one in case of a tie."""
    values = np.where(legal, outputs, -np.inf)
    best: Array = (legal & (values == values.max(axis=1, keepdims=True))).argmax(axis=1)
    return best


def _categorical(outputs: Array, legal: Array, uniform: Array, head: Operation) -> tuple[Array, Array]:
    logits = np.where(legal, outputs.astype(np.float64), -np.inf)
    largest = logits.max(axis=1, keepdims=True)
    cumulative = np.cumsum(np.exp(logits - largest), axis=1)
    total = cumulative[:, -1]
    passed = legal & (cumulative > uniform * total[:, None])
    last_legal = legal.shape[1] - 1 - legal[:, ::-1].argmax(axis=1)
    action = np.where(passed.any(axis=1), passed.argmax(axis=1), last_legal)
    chosen = np.take_along_axis(logits - largest, action[:, None], axis=1)[:, 0]
    return action, chosen - np.log(total)


def _argmax(outputs: Array, legal: Array, uniform: Array, head: Operation) -> tuple[Array, Array]:
    return _best(outputs, legal), np.zeros(len(outputs))


def _epsilon_greedy(outputs: Array, legal: Array, uniform: Array, head: Operation) -> tuple[Array, Array]:
    epsilon = head.options["epsilon"]
    count = legal.sum(axis=1)
    rank = np.minimum(np.floor(uniform[:, 1] * count), count - 1)
    any_legal = (legal & (np.cumsum(legal, axis=1) == rank[:, None] + 1)).argmax(axis=1)
    greedy = _best(outputs, legal)
    action = np.where(uniform[:, 0] < epsilon, any_legal, greedy)
    return action, np.log(epsilon / count + (1.0 - epsilon) * (action == greedy))


_DiscreteHead: TypeAlias = Callable[[Array, Array, Array, Operation], tuple[Array, Array]]
_DISCRETE: dict[str, tuple[_DiscreteHead, int]] = {
    "categorical": (_categorical, 1),
    "argmax": (_argmax, 0),
    "epsilon_greedy": (_epsilon_greedy, 2),
    "multi_categorical": (_categorical, 1),
    "multi_argmax": (_argmax, 0),
}
"""Sampling function of each discrete head, and its number of random draws per action dimension."""


def _normals_like(values: Array, draws: Draws) -> Array:
    return normals(values.shape[0], values.shape[1], draws)


def _normal_log_prob(z: Array, log_std: Array) -> Array:
    return -0.5 * z * z - log_std - _HALF_LOG_TWO_PI


def _gaussian(outputs: Array, head: Operation, weights: Columns, draws: Draws) -> tuple[Array, Array]:
    log_std = weights[head.weights[0]].astype(np.float64)
    z = _normals_like(outputs, draws)
    action = outputs + np.exp(log_std) * z
    return action.astype(np.float32), _normal_log_prob(z, log_std).sum(axis=1)


def _mode(outputs: Array, head: Operation, weights: Columns, draws: Draws) -> tuple[Array, Array]:
    return outputs.astype(np.float32), np.zeros(len(outputs))


def _squashed_gaussian(outputs: Array, head: Operation, weights: Columns, draws: Draws) -> tuple[Array, Array]:
    mean, log_std = np.split(outputs.astype(np.float64), 2, axis=1)
    log_std = np.clip(log_std, head.options["log_std_min"], head.options["log_std_max"])
    z = _normals_like(mean, draws)
    u = mean + np.exp(log_std) * z
    log_prob = _normal_log_prob(z, log_std) - _log_slope(u)
    return _squash_to_bounds(u, head, weights), log_prob.sum(axis=1)


def _squashed_mode(outputs: Array, head: Operation, weights: Columns, draws: Draws) -> tuple[Array, Array]:
    mean, _ = np.split(outputs.astype(np.float64), 2, axis=1)
    return _squash_to_bounds(mean, head, weights), np.zeros(len(outputs))


def _noisy_squash(outputs: Array, head: Operation, weights: Columns, draws: Draws) -> tuple[Array, Array]:
    sigma = head.options["sigma"]
    place = np.clip(np.tanh(outputs.astype(np.float64)) + sigma * _normals_like(outputs, draws), -1.0, 1.0)
    return _scale_to_bounds(place, head, weights), np.zeros(len(outputs))


def _squash(outputs: Array, head: Operation, weights: Columns, draws: Draws) -> tuple[Array, Array]:
    return _squash_to_bounds(outputs.astype(np.float64), head, weights), np.zeros(len(outputs))


def _uniform(outputs: Array, head: Operation, weights: Columns, draws: Draws) -> tuple[Array, Array]:
    size = outputs.shape[1] // head.inputs_per_element()
    place = 2.0 * draws.uniforms(len(outputs) * size).reshape(-1, size) - 1.0
    return _scale_to_bounds(place, head, weights), np.full(len(outputs), -size * math.log(2.0))


def _log_slope(u: Array) -> Array:
    """Logarithm of the derivative of tanh, ln(1 - tanh(u)^2), in a numerically stable form."""
    softplus: Array = np.maximum(-2.0 * u, 0.0) + np.log1p(np.exp(-np.abs(2.0 * u)))
    return 2.0 * (math.log(2.0) - u - softplus)


def _squash_to_bounds(u: Array, head: Operation, weights: Columns) -> Array:
    """Scale tanh(u) to the action bounds low..high."""
    return _scale_to_bounds(np.tanh(u), head, weights)


def _scale_to_bounds(place: Array, head: Operation, weights: Columns) -> Array:
    """Scale a value in -1..1 to the action bounds low..high."""
    low, high = (weights[name].astype(np.float64) for name in head.weights)
    return (low + 0.5 * (place + 1.0) * (high - low)).astype(np.float32)


_BoxHead: TypeAlias = Callable[[Array, Operation, Columns, Draws], tuple[Array, Array]]
_BOX: dict[str, _BoxHead] = {
    "gaussian": _gaussian,
    "mode": _mode,
    "squashed_gaussian": _squashed_gaussian,
    "squashed_mode": _squashed_mode,
    "noisy_squash": _noisy_squash,
    "squash": _squash,
    "uniform": _uniform,
}
