"""Checks of inputs, layer outputs and gradients of a learner.

Each class collects statistics until `reset`. Limits for findings are rules of thumb, listed in docs/experiments.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from rl4sys.buffers.base import Batch
from rl4sys.errors import NumericalError
from rl4sys.spec import MASK, Array

ENOUGH_ROWS = 256
"""Minimum number of rows for a finding. With fewer rows, elements may be constant and units dead by chance."""
LARGE_INPUT = 100.0
SATURATED, SATURATED_SHARE = 0.99, 0.5
DEAD_SHARE = 0.5
EXPLODING, VANISHING = 1e4, 1e-4
_SQUASHING = (nn.Tanh, nn.Sigmoid, nn.Softsign)
_RECTIFYING = (nn.ReLU, nn.ReLU6)
_MAX_LISTED = 4


class Finding(NamedTuple):
    """Possible training problem. Repeated findings have the same key."""

    key: str
    text: str


def describe_nonfinite(values: Tensor) -> str:
    """Return a text such as ``contains NaN in 3 of 64 values``."""
    nan, nonfinite = int(torch.isnan(values).sum()), int((~torch.isfinite(values)).sum())
    kind = "NaN" if nan == nonfinite else "infinity" if nan == 0 else "NaN and infinity"
    return f"contains {kind} in {nonfinite:,} of {values.numel():,} values"


class InputStatistics:
    """Range of each element of the training observations, and findings about constant or large elements."""

    def __init__(self) -> None:
        self._ranges: dict[str, tuple[Array, Array]] = {}
        self._rows = 0

    def reset(self) -> None:
        self.__init__()  # type: ignore[misc]

    def add(self, batch: Batch, steps: int) -> None:
        """Update the ranges. Raises `NumericalError` if a column is not finite."""
        for name, column in batch.items():
            if column.dtype.kind == "f" and not np.isfinite(column).all():
                raise NumericalError(f"column '{name}' of the batch at step {steps:,} is not finite")
            if name.startswith("obs.") and name != f"obs.{MASK}":
                self._update_range(name, column.reshape(len(column), -1))
        self._rows += len(next(iter(batch.values())))

    def findings(self) -> Iterator[Finding]:
        for name, (low, high) in self._ranges.items():
            yield from self._constant_elements(name, low, high)
            largest = float(np.maximum(np.abs(low.astype(float)), np.abs(high.astype(float))).max())
            if largest > LARGE_INPUT and low.dtype.kind == "f":
                yield Finding(
                    f"large {name}",
                    f"{name} reaches {largest:,.4g}, and networks learn best from values around 1; set "
                    "environment.normalize_obs",
                )

    def _update_range(self, name: str, rows: Array) -> None:
        low, high = rows.min(0), rows.max(0)
        if name in self._ranges:
            low, high = np.minimum(low, self._ranges[name][0]), np.maximum(high, self._ranges[name][1])
        self._ranges[name] = low, high

    def _constant_elements(self, name: str, low: Array, high: Array) -> Iterator[Finding]:
        constant = np.flatnonzero(low == high)
        if len(constant) and self._rows >= ENOUGH_ROWS:
            indices = ", ".join(map(str, constant[:_MAX_LISTED])) + (", …" if len(constant) > _MAX_LISTED else "")
            yield Finding(
                f"constant {name}",
                f"{len(constant)} of {len(low)} elements of {name} were constant in {self._rows:,} training rows "
                f"(index {indices}): they carry no information",
            )


@dataclass
class _Layer:
    """Output statistics of a layer since the last reset."""

    module: nn.Module
    alive: Tensor | None = None
    saturated: float = 0.0
    calls: int = 0
    rows: int = 0
    largest: float = 0.0


class OutputStatistics:
    """Statistics of layer outputs: shares of dead and saturated units, and largest absolute values."""

    def __init__(self) -> None:
        self._layers: dict[str, _Layer] = {}
        self._last_layer = ""
        self.newest: dict[str, Tensor] = {}
        """Last output of each layer."""

    def reset(self) -> None:
        self._layers = {}

    def add(self, name: str, module: nn.Module, output: Tensor) -> None:
        # Several layers may share one activation module, so an activation is named after the preceding layer.
        activation = isinstance(module, (*_SQUASHING, *_RECTIFYING))
        label = f"{self._last_layer}.{type(module).__name__.lower()}" if activation else name
        if not activation:
            self._last_layer = name
        layer = self._layers.setdefault(label, _Layer(module))
        self.newest[label] = output.detach()
        layer.calls += 1
        layer.rows += len(output) if output.dim() else 1
        layer.largest = max(layer.largest, float(output.abs().max()) if output.numel() else 0.0)
        if isinstance(module, _RECTIFYING):
            self._update_alive(layer, output)
        elif isinstance(module, _SQUASHING):
            layer.saturated += float((output.abs() > SATURATED).float().mean())

    def findings(self) -> Iterator[Finding]:
        for name, layer in self._layers.items():
            dead, saturated = _dead_share(layer), layer.saturated / layer.calls
            if dead > DEAD_SHARE and layer.rows >= ENOUGH_ROWS:
                yield Finding(
                    f"dead {name}",
                    f"{dead:.0%} of the units of {name} are dead: they were 0 for all of {layer.rows:,} rows and no "
                    "longer learn. Lower algorithm.lr, use layer_norm, or choose another activation",
                )
            if saturated > SATURATED_SHARE:
                yield Finding(
                    f"saturated {name}",
                    f"{saturated:.0%} of the outputs of {name} are saturated (beyond {SATURATED}), where gradients "
                    "vanish. Scale the observations (environment.normalize_obs) or lower algorithm.lr",
                )

    def scalars(self) -> dict[str, float]:
        """Return the share of dead units (ReLU layers) and of saturated outputs (tanh, sigmoid and softsign layers)."""
        shares: dict[str, float] = {}
        for name, layer in self._layers.items():
            if layer.alive is not None:
                shares[f"dead/{name}"] = _dead_share(layer)
            elif isinstance(layer.module, _SQUASHING):
                shares[f"saturated/{name}"] = layer.saturated / layer.calls
        return shares

    def describe_largest(self) -> str:
        """Return a sentence that names the layer with the largest output, a likely source of infinite values."""
        if not self._layers:
            return "No layer was evaluated yet"
        name, layer = max(self._layers.items(), key=lambda item: item[1].largest)
        return f"All layer outputs are finite; the largest is {layer.largest:.3g} in {name}"

    def _update_alive(self, layer: _Layer, output: Tensor) -> None:
        alive = (output > 0).reshape(-1, output.shape[-1]).any(0)
        layer.alive = alive if layer.alive is None else layer.alive | alive


def _dead_share(layer: _Layer) -> float:
    return 0.0 if layer.alive is None else 1.0 - float(layer.alive.float().mean())


@dataclass
class GradientStatistics:
    """Mean gradient norm of each weight before clipping."""

    names: list[str]
    _sums: dict[str, float] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)
    _last: str = ""

    def reset(self) -> None:
        self._sums, self._counts = {}, {}

    def add(self, name: str, weight: Tensor) -> None:
        assert weight.grad is not None
        self._last = name
        self._sums[name] = self._sums.get(name, 0.0) + float(weight.grad.norm())
        self._counts[name] = self._counts.get(name, 0) + 1

    def describe_last(self) -> str:
        return f"The last finite gradient is that of {self._last}" if self._last else "No gradient was finite"

    def scalars(self) -> dict[str, float]:
        return {f"gradient_norm/{name}": total / self._counts[name] for name, total in self._sums.items()}

    def findings(self) -> Iterator[Finding]:
        norms = {name: total / self._counts[name] for name, total in self._sums.items()}
        largest = max(norms.values(), default=0.0)
        for name, norm in norms.items():
            if norm > EXPLODING:
                yield Finding(
                    f"exploding {name}",
                    f"the gradient of {name} explodes: its mean norm before clipping is {norm:.3g}. Lower "
                    "algorithm.lr, or set environment.normalize_reward or algorithm.max_grad_norm",
                )
            elif norm == 0.0:
                yield Finding(f"no gradient {name}", f"the gradient of {name} was always 0: this weight does not learn")
            elif norm < VANISHING * largest and name.endswith("weight"):
                yield Finding(
                    f"vanishing {name}",
                    f"the gradient of {name} vanishes: its mean norm is {norm:.3g}, and the largest mean norm of a "
                    f"weight is {largest:.3g}. Use fewer layers, layer_norm or another activation",
                )
        if self._sums:
            for name in self.names:
                if name not in norms:
                    yield Finding(f"no gradient {name}", f"no gradient reached {name} since the last row of metrics")
