"""Trunk and head networks in sequence; several heads may share one trunk."""

from __future__ import annotations

from torch import Tensor, nn

from rl4sys.errors import ConfigError
from rl4sys.networks.base import Recurrent, Tensors, export, memory_size
from rl4sys.networks.body_writer import Body, BodyWriter
from rl4sys.policy.program import ROW
from rl4sys.spec import Box, Space, Spec

FEATURES = "~features"
"""Name of the observation that contains the outputs of the trunk: the only input of a head.

The trunk does not run on observations that already contain this name.
"""


def head_spec(width: int, action: Space) -> Spec:
    """Return the spec of a head on a trunk with ``width`` features."""
    return Spec({FEATURES: Box((width,))}, action)


class Chained(nn.Module):
    """Network that runs a trunk and then a head. Only the trunk may be recurrent."""

    def __init__(self, trunk: nn.Module, head: nn.Module) -> None:
        super().__init__()
        if memory_size(head):
            raise ConfigError("a head on a shared trunk cannot be recurrent; use the gru or lstm network as the trunk")
        self.trunk, self.head = trunk, head
        self.memory_size = memory_size(trunk)

    def forward(self, observation: Tensors) -> Tensor:
        outputs: Tensor = self.head(self.with_features(observation))
        return outputs

    def with_features(self, observation: Tensors) -> Tensors:
        """Add the outputs of the trunk to the observation, so that several heads share one pass of the trunk."""
        return observation if FEATURES in observation else {**observation, FEATURES: self.trunk(observation)}

    def step(self, observation: Tensors, memory: Tensor) -> tuple[Tensor, Tensor]:
        if not isinstance(self.trunk, Recurrent):
            return self(observation), memory
        features, memory = self.trunk.step(observation, memory)
        return self.head({FEATURES: features}), memory

    def sequence(self, observation: Tensors, memory: Tensor) -> Tensor:
        batch, length = next(iter(observation.values())).shape[:2]
        if isinstance(self.trunk, Recurrent):
            features = self.trunk.sequence(observation, memory).flatten(0, 1)
        else:
            features = self.trunk({name: column.flatten(0, 1) for name, column in observation.items()})
        outputs: Tensor = self.head({FEATURES: features})
        return outputs.reshape(batch, length, -1)

    def export(self, prefix: str) -> Body:
        writer = BodyWriter(prefix)
        features = writer.include(export(self.trunk, f"{prefix}.trunk"), ROW)
        writer.include(export(self.head, f"{prefix}.head"), features)
        return writer.body()
