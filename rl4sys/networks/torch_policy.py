"""Policy that acts with a live torch network, and its export to a Snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import nn

from rl4sys.networks.base import Recurrent, export, memory_size, to_array
from rl4sys.networks.noisy import without_noise
from rl4sys.policy.base import Decision
from rl4sys.policy.draws import Draws
from rl4sys.policy.numpy_program import draw
from rl4sys.policy.program import Operation, Program
from rl4sys.policy.snapshot import Snapshot
from rl4sys.policy.snapshot_policy import memory_of
from rl4sys.spec import MASK, Array, Columns, Spec, check_observation
from rl4sys.trajectory import MEMORY


@dataclass(frozen=True)
class TorchPolicy:
    """Policy of a torch network and a head that draws actions. Updates of the network also change the policy."""

    spec: Spec
    network: nn.Module
    head: Operation
    head_weights: Columns = field(default_factory=dict)
    is_greedy: bool = False
    """True for the greedy form, in which noisy layers are also deterministic."""

    def act(self, observation: Columns, memory: Columns, draws: Draws) -> Decision:
        check_observation(self.spec, observation)
        device = next(self.network.parameters()).device
        outputs, held, after = self._outputs(to_tensors(observation, device), memory)
        action, log_prob = draw(self.head, self.head_weights, outputs, observation.get(MASK), draws)
        next_memory = np.where(np.isnan(log_prob)[:, None], held, after)
        kept = {MEMORY: next_memory} if next_memory.shape[1] else {}
        return Decision(action.reshape(len(action), *self.spec.action.shape), log_prob, kept)

    def greedy(self) -> TorchPolicy:
        return replace(self, head=self.head.greedy(), is_greedy=True)

    def snapshot(self, version: int) -> Snapshot:
        """Freeze the current policy. Raises `ExportError` if the network cannot be exported."""
        body = export(self.network, "actor")
        program = Program(body.operations, self.head)
        snapshot = Snapshot(version, self.spec, program, {**body.weights, **self.head_weights})
        return snapshot.greedy() if self.is_greedy else snapshot

    @torch.no_grad()
    def _outputs(self, observation: Mapping[str, torch.Tensor], memory: Columns) -> tuple[Array, Array, Array]:
        """Run the network; return its outputs, and the recurrent state before and after the step."""
        rows, network = len(next(iter(observation.values()))), self.network
        held = memory_of(memory, rows, memory_size(network))
        if not isinstance(network, Recurrent):
            with without_noise(network) if self.is_greedy else nullcontext():
                return to_array(network(observation)), held, held
        outputs, after = network.step(observation, torch.from_numpy(held).to(next(network.parameters()).device))
        return to_array(outputs), held, to_array(after)


def to_tensors(columns: Columns, device: torch.device | str = "cpu") -> Mapping[str, torch.Tensor]:
    return {name: torch.as_tensor(column, device=device) for name, column in columns.items()}
