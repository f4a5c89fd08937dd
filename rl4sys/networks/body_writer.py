"""Writer for the operations of an exported network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Tensor, nn

from rl4sys.networks.noisy import NoisyLinear
from rl4sys.policy.program import ROW, Operation, renumbered
from rl4sys.spec import MASK, Array, Columns, Spec

_NONE: Mapping[str, Tensor] = MappingProxyType({})


@dataclass(frozen=True)
class Body:
    """Exported network: operations of a policy program and their weights; the last operation gives the outputs."""

    operations: tuple[Operation, ...]
    weights: Columns


def to_array(tensor: Tensor) -> Array:
    """Copy a tensor to a numpy array."""
    return tensor.detach().cpu().numpy().copy()


class BodyWriter:
    """Builds a `Body` from operations and weights.

    The result of each operation gets a number, by which later operations reference it as an input. Weight names start
    with ``prefix``.
    """

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self._operations: list[Operation] = []
        self._weights: dict[str, Array] = {}

    def body(self) -> Body:
        return Body(tuple(self._operations), self._weights)

    def add(self, name: str, *sources: int, weights: Mapping[str, Tensor] = _NONE, **options: float) -> int:
        """Add an operation whose inputs are the values numbered ``sources``; return the number of its result."""
        named = {f"{self.prefix}.{label}": to_array(tensor) for label, tensor in weights.items()}
        self._weights |= named
        just_before = sources == (len(self._operations),)
        self._operations.append(Operation(name, tuple(named), options, () if just_before else sources))
        return len(self._operations)

    def linear(self, label: str, layer: nn.Linear, source: int, rows: int = 1) -> int:
        """Add a linear layer, applied to each row of the value ``source``; a noisy layer keeps its current noise."""
        options = {"rows": float(rows)} if rows > 1 else {}
        bias = layer.bias if layer.bias is not None else torch.zeros(layer.out_features)
        named = {f"{label}.weight": layer.weight, f"{label}.bias": bias}
        if not isinstance(layer, NoisyLinear):
            return self.add("linear", source, weights=named, **options)
        noise = dict(zip((f"{label}.weight_noise", f"{label}.bias_noise"), layer.noise(), strict=True))
        return self.add("noisy_linear", source, weights=named | noise, **options)

    def layer_norm(self, label: str, weights: tuple[Tensor, Tensor], epsilon: float, source: int, rows: int = 1) -> int:
        options = {"rows": float(rows)} if rows > 1 else {}
        named = {f"{label}.scale": weights[0].reshape(-1), f"{label}.bias": weights[1].reshape(-1)}
        return self.add("layer_norm", source, weights=named, epsilon=epsilon, **options)

    def concat(self, sources: list[int]) -> int:
        return sources[0] if len(sources) == 1 else self.add("concat", *sources)

    def include(self, body: Body, row: int) -> int:
        """Add an exported network with the value ``row`` as input, and return the number of its result."""
        self._operations += renumbered(body.operations, row, len(self._operations))
        self._weights |= body.weights
        return len(self._operations)

    def observations(self, spec: Spec, names: Iterable[str]) -> int:
        """Slice the named observations from the input row and concatenate them; return the number of the result.

        ``names`` must not be empty.
        """
        wanted = set(names)
        if wanted == set(spec.observation) - {MASK}:
            return ROW
        start, parts = 0, []
        for name, box in spec.observation.items():
            if name in wanted:
                parts.append(self.add("slice", ROW, start=start, length=box.size))
            start += box.size if name != MASK else 0
        return self.concat(parts)
