"""Torch module that runs the policy program of a snapshot."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rl4sys.networks.attention import mean_of_rows
from rl4sys.policy.export_plan import ACTION, NEXT_MEMORY, ExportPlan
from rl4sys.policy.program import MASK_NUMBERS, ROW, Operation
from rl4sys.spec import Array, Box

_LOWEST = torch.finfo(torch.float32).min


class ProgramModule(nn.Module):
    """Greedy form of a snapshot as a torch module in float32, with inputs and outputs as in `export_plan`.

    The weights are registered as buffers, so that ``to(device)`` moves them.
    """

    def __init__(self, plan: ExportPlan) -> None:
        super().__init__()
        self._plan = plan
        used = [*plan.program.body, *([plan.head] if isinstance(plan.spec.action, Box) else [])]
        names = sorted({name for operation in used for name in operation.weights})
        self._buffer_names = {name: f"weight_{index}_{name.replace('.', '_')}" for index, name in enumerate(names)}
        for name, buffer in self._buffer_names.items():
            self._add_buffer(buffer, plan.weights[name])
        for name, bound in zip(("low", "high"), plan.bounds or (), strict=False):
            self._add_buffer(f"action_{name}", bound)
        if isinstance(plan.log_std, np.ndarray):
            self._add_buffer("log_std", plan.log_std)

    def forward(
        self, observation: Tensor, mask: Tensor | None = None, memory: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Return the outputs that `ExportPlan.outputs` lists, by name."""
        plan, new_states = self._plan, dict[int, Tensor]()
        head_input = self._head_input(observation, mask, memory, new_states)
        is_invalid = head_input.isnan().any(1, keepdim=True)
        outputs = self._distribution(head_input)
        outputs[ACTION] = self._action(outputs[plan.parameters[0]], mask, is_invalid)
        if memory is not None:
            parts = [
                new_states[part.start] if part.is_written else memory[:, part.start : part.end]
                for part in plan.memory_ranges
            ]
            outputs[NEXT_MEMORY] = torch.where(is_invalid, memory, torch.cat(parts, dim=1))
        return outputs

    def _head_input(
        self, observation: Tensor, mask: Tensor | None, memory: Tensor | None, new_states: dict[int, Tensor]
    ) -> Tensor:
        plan = self._plan
        legal = (
            observation.new_ones(observation.shape[0], plan.elements) if mask is None else mask.to(observation.dtype)
        )
        values = {ROW: observation, MASK_NUMBERS: legal}
        held = observation.new_zeros(observation.shape[0], 0) if memory is None else memory
        for number, operation in enumerate(plan.program.body, start=1):
            inputs = [values[source] for source in operation.sources(number)]
            step = _Step(operation, inputs, self._weights(operation), held, new_states)
            values[number] = _BODY[operation.name](step)
        (source,) = plan.head.sources(len(plan.program.operations))
        return values[source]

    def _distribution(self, head_input: Tensor) -> dict[str, Tensor]:
        plan, means = self._plan, head_input[:, : self._plan.elements]
        if plan.log_std is None:
            return {plan.parameters[0]: means}
        if isinstance(plan.log_std, tuple):
            return {"mean": means, "log_std": head_input[:, plan.elements :].clamp(*plan.log_std)}
        return {"mean": means, "log_std": self.get_buffer("log_std").expand_as(means)}

    def _action(self, means: Tensor, mask: Tensor | None, is_invalid: Tensor) -> Tensor:
        plan = self._plan
        if not isinstance(plan.spec.action, Box):
            scores = means.masked_fill(is_invalid, 0.0).clamp(min=_LOWEST)
            scores = scores if mask is None else scores.masked_fill(~mask, -math.inf)
            chosen = [part.argmax(1) for part in torch.split(scores, list(plan.parts), dim=1)]
            return torch.stack(chosen, dim=1).reshape(-1, *plan.spec.action.shape)
        if plan.head.name != "mode":
            low, high = self._weights(plan.head)
            means = low + 0.5 * (means.tanh() + 1.0) * (high - low)
        if plan.bounds is not None:
            means = means.clamp(self.get_buffer("action_low"), self.get_buffer("action_high"))
        return means.reshape(-1, *plan.spec.action.shape)

    def _weights(self, operation: Operation) -> list[Tensor]:
        return [self.get_buffer(self._buffer_names[name]) for name in operation.weights]

    def _add_buffer(self, name: str, array: Array) -> None:
        self.register_buffer(name, torch.tensor(array, dtype=torch.float32))


@dataclass(frozen=True)
class _Step:
    """One operation to compute, with its inputs of shape (rows, size) and its weights."""

    operation: Operation
    inputs: Sequence[Tensor]
    weights: Sequence[Tensor]
    memory: Tensor
    new_states: dict[int, Tensor]
    """New recurrent states by start index in the memory vector; each recurrent operation adds its own state."""

    def option(self, name: str) -> int:
        return int(self.operation.options.get(name, 1))

    def number(self, name: str) -> float:
        return self.operation.options[name]

    @property
    def x(self) -> Tensor:
        """First input of the operation."""
        return self.inputs[0]

    def parts(self) -> Tensor:
        """Return the first input as one matrix with ``rows`` rows for each row of the batch."""
        return self.x.reshape(self.x.shape[0], self.option("rows"), -1)

    def states(self, count: int) -> list[Tensor]:
        """Return the current hidden state and, if ``count`` is 2 (LSTM), the cell state."""
        hidden, start = self.weights[1].shape[1], self.option("memory")
        return [self.memory[:, start + i * hidden : start + (i + 1) * hidden] for i in range(count)]


def _normalize(step: _Step) -> Tensor:
    mean, scale = step.weights
    return ((step.x - mean) * scale).clamp(-step.number("limit"), step.number("limit"))


def _linear(step: _Step) -> Tensor:
    return functional.linear(step.parts(), *step.weights).flatten(1)


def _layer_norm(step: _Step) -> Tensor:
    scale, bias = step.weights
    return functional.layer_norm(step.parts(), scale.shape, scale, bias, step.number("epsilon")).flatten(1)


def _slice(step: _Step) -> Tensor:
    return step.x[:, step.option("start") : step.option("start") + step.option("length")]


def _conv2d(step: _Step) -> Tensor:
    weight, bias = step.weights
    stride, padding = step.option("stride"), step.option("padding")
    moved = functional.conv2d(_image(step), weight.permute(0, 3, 1, 2), bias, stride, padding)
    return moved.permute(0, 2, 3, 1).flatten(1)


def _max_pool(step: _Step) -> Tensor:
    # Torch rejects a padding above half of the window.
    padded = functional.pad(_image(step), [step.option("padding")] * 4, value=-math.inf)
    return functional.max_pool2d(padded, step.option("size"), step.option("stride")).permute(0, 2, 3, 1).flatten(1)


def _image(step: _Step) -> Tensor:
    """Reshape the first input to images with channels first."""
    return step.x.reshape(step.x.shape[0], step.option("height"), step.option("width"), -1).permute(0, 3, 1, 2)


def _join_rows(step: _Step) -> Tensor:
    parts = step.parts()
    return torch.cat([parts, step.inputs[1][:, None].expand(-1, parts.shape[1], -1)], dim=2).flatten(1)


def _attention(step: _Step) -> Tensor:
    query, key, value = (
        step.inputs[index].reshape(step.x.shape[0], step.option(parts), step.option("heads"), -1).transpose(1, 2)
        for index, parts in enumerate(("rows", "keys", "keys"))
    )
    scores = query @ key.transpose(2, 3) / math.sqrt(query.shape[3])
    if len(step.inputs) < 4:
        shares = scores.softmax(-1)
    else:
        legal = (step.inputs[3] > 0.5)[:, None, None]
        shares = scores.masked_fill(~legal, _LOWEST).softmax(-1) * legal
    return (shares @ value).transpose(1, 2).flatten(1)


def _mean_rows(step: _Step) -> Tensor:
    return mean_of_rows(step.parts(), step.inputs[1] > 0.5 if len(step.inputs) > 1 else None)


def _gru(step: _Step) -> Tensor:
    hidden: Tensor = torch.gru_cell(step.x, *step.states(1), *step.weights)
    step.new_states[step.option("memory")] = hidden
    return hidden


def _lstm(step: _Step) -> Tensor:
    hidden, cell = torch.lstm_cell(step.x, step.states(2), *step.weights)
    step.new_states[step.option("memory")] = torch.cat([hidden, cell], dim=1)
    return hidden


def _expectation(step: _Step) -> Tensor:
    return step.parts().softmax(2) @ step.weights[0]


_Rule: TypeAlias = Callable[[_Step], Tensor]
_BODY: dict[str, _Rule] = {
    "normalize": _normalize,
    "linear": _linear,
    "tanh": lambda step: step.x.tanh(),
    "relu": lambda step: step.x.relu(),
    "elu": lambda step: functional.elu(step.x),
    "gelu": lambda step: functional.gelu(step.x),
    "silu": lambda step: functional.silu(step.x),
    "layer_norm": _layer_norm,
    "scale": lambda step: step.x * step.number("factor"),
    "bias": lambda step: step.x + step.weights[0],
    "slice": _slice,
    "concat": lambda step: torch.cat(list(step.inputs), dim=1),
    "add": lambda step: step.x + step.inputs[1],
    "multiply": lambda step: step.x * step.inputs[1],
    "transpose": lambda step: step.parts().transpose(1, 2).flatten(1),
    "conv2d": _conv2d,
    "max_pool": _max_pool,
    "join_rows": _join_rows,
    "attention": _attention,
    "mean_rows": _mean_rows,
    "gru": _gru,
    "lstm": _lstm,
    "noise": lambda step: step.memory.new_zeros(step.memory.shape[0], step.option("size")),
    "expectation": _expectation,
}
"""Function that computes each body operation. noisy_linear is missing: in greedy programs it is replaced by linear."""
