"""From a torch network to something that acts: here with torch, or anywhere as a Snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import nn

from rl4sys.networks.base import export, to_array
from rl4sys.policy.base import Decision
from rl4sys.policy.draws import Draws
from rl4sys.policy.numpy_form import draw
from rl4sys.policy.program import Operation, Program
from rl4sys.policy.snapshot import Snapshot
from rl4sys.spec import MASK, Columns, Spec


@dataclass(frozen=True)
class TorchPolicy:
    """A live network and the head that draws from its outputs; later updates change how it acts."""

    spec: Spec
    network: nn.Module
    head: Operation
    head_weights: Columns = field(default_factory=dict)

    def act(self, observation: Columns, memory: Columns, draws: Draws) -> Decision:
        device = next(self.network.parameters()).device
        with torch.no_grad():
            outputs = to_array(self.network(to_tensors(observation, device)))
        action, log_prob = draw(self.head, self.head_weights, outputs, observation.get(MASK), draws)
        return Decision(action.reshape(len(action), *self.spec.action.shape), log_prob, memory)

    def greedy(self) -> TorchPolicy:
        return replace(self, head=self.head.greedy())

    def snapshot(self, version: int) -> Snapshot:
        """The policy as it is now; an `ExportError` says why where the network has no such form."""
        body = export(self.network, "actor")
        return Snapshot(version, self.spec, Program(body.operations, self.head), {**body.weights, **self.head_weights})


def to_tensors(columns: Columns, device: torch.device) -> Mapping[str, torch.Tensor]:
    return {name: torch.as_tensor(column, device=device) for name, column in columns.items()}
