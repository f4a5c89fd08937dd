"""Updates of critics that judge continuous actions, and of the actor they judge, in the native core.

What torch computes in `rl4sys.algorithms.sac` and `td3` is the reference: the same rows and noise give the same
weights, but for what float32 rounds off.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rl4sys.algorithms.adam import CoreAdam, fit_core
from rl4sys.algorithms.core_network import CoreNetwork, frozen_network, heard, learnt_network, places, watched
from rl4sys.algorithms.numerics import GradNorm, clipping_of
from rl4sys.algorithms.off_policy import LearntCritics
from rl4sys.networks.base import Tensors, observation_of, to_array
from rl4sys.networks.native import InCore, addresses
from rl4sys.spec import Array


@dataclass(frozen=True)
class LearntActor:
    """An actor, and what the core has to know of it."""

    network: nn.Module
    optimizer: CoreAdam
    size: int
    """Numbers of an action."""
    target: nn.Module | None = None
    """What says which action would be next; None for the actor itself."""
    log_std_bounds: tuple[float, ...] = ()
    """Where it gives means and deviations of a squashed normal; without, means alone."""


@dataclass(frozen=True)
class Replayed:
    """Rows as the core takes them."""

    observation: Tensor
    action: Tensor
    reward: Tensor
    next_observation: Tensor
    discount: Tensor
    weight: Tensor | None

    def __len__(self) -> int:
        return len(self.reward)


class CoreReplay:
    """What the core needs of them, made once: all of it stays where it is until a state is loaded."""

    def __init__(
        self, actor: LearntActor, critics: LearntCritics, max_grad_norm: GradNorm, found: dict[nn.Module, CoreNetwork]
    ) -> None:
        from rl4sys._core import ReplayUpdate

        self._actor, self._critics, self._max_grad_norm = actor, critics, max_grad_norm
        self._seen_by = [network for network in found if isinstance(network, InCore)]
        self._loads = self._loads_of_optimizers()
        self._found = list(found.values())
        self._places = places(self._found)
        # The update knows but where these are.
        self._moved = learnt_network(found[actor.network], actor.optimizer)
        self._judges = [learnt_network(found[network], critics.optimizer) for network in critics.online.members]
        self._targets = [frozen_network(found[network]) for network in critics.target.members]
        self._target = None if actor.target is None else frozen_network(found[actor.target])
        self._update = ReplayUpdate(
            self._moved, self._target, self._judges, self._targets, actor.size, list(actor.log_std_bounds)
        )

    @classmethod
    def of(cls, actor: LearntActor, critics: LearntCritics, max_grad_norm: GradNorm) -> CoreReplay | None:
        """None where torch has to compute something, or where someone watches it compute."""
        if watched(actor.optimizer, critics.optimizer):
            return None
        targets = [] if actor.target is None else [actor.target]
        found: dict[nn.Module, CoreNetwork] = {}
        for network in (actor.network, *targets, *critics.online.members, *critics.target.members):
            in_core = CoreNetwork.of(network)
            if in_core is None or not fit_core(in_core.weights):
                return None
            found[network] = in_core
        return cls(actor, critics, max_grad_norm, found)

    @property
    def current(self) -> bool:
        """Whether everything is where it was, and nobody watches."""
        if watched(self._actor.optimizer, self._critics.optimizer) or self._loads != self._loads_of_optimizers():
            return False
        return self._places == places(self._found) and all(network.in_core() is not None for network in self._seen_by)

    def take(self, rows: Tensors, unit: Callable[[Tensor], Tensor], reward_scale: float) -> Replayed:
        """Rows of a batch; ``unit`` has actions within -1..1."""
        row = self._seen_by[0].row
        return Replayed(
            row(observation_of(rows, "obs.")).contiguous(),
            unit(rows["action"]).float().contiguous(),
            (reward_scale * rows["reward"]).float().contiguous(),
            row(observation_of(rows, "next_obs.")).contiguous(),
            (rows["discount"] * ~rows["terminated"]).float().contiguous(),
            rows["weight"].float().contiguous() if "weight" in rows else None,
        )

    def next_values(self, rows: Replayed, noise: Tensor, temperature: float = 0.0) -> Tensor:
        """The least that the target critics expect of what the policy would do next, and what its entropy is worth."""
        values = torch.empty(len(rows))
        seen = rows.next_observation.data_ptr()
        self._update.next_values(len(rows), seen, noise.data_ptr(), temperature, values.data_ptr())
        return values

    def learn_critics(self, rows: Replayed, next_value: Tensor, lr: float) -> tuple[dict[str, float], Array]:
        """What it came to, and how far off each row was. Where the loss is not finite nothing has moved."""
        for network in self._judges:
            network.set_rate(lr)
        errors = torch.empty(len(rows))
        columns = [rows.observation, rows.action, rows.reward, rows.discount, next_value]
        weight = 0 if rows.weight is None else rows.weight.data_ptr()
        optimizer = self._critics.optimizer
        told = self._update.learn_critics(
            len(rows), [*addresses(columns), weight], clipping_of(optimizer, self._max_grad_norm), errors.data_ptr()
        )
        loss, value, norm = heard(optimizer, told, self._max_grad_norm)
        return {"loss/td": loss, "value/mean": value, "loss/gradient_norm": norm}, to_array(errors)

    def learn_actor(
        self, rows: Replayed, noise: Tensor, lr: float, temperature: float = 0.0, *, by_least: bool
    ) -> tuple[float, float]:
        """Loss and entropy; values are the least of the critics', or the first one's. Not finite: nothing has moved."""
        self._moved.set_rate(lr)
        optimizer, seen = self._actor.optimizer, rows.observation.data_ptr()
        clipping = clipping_of(optimizer, self._max_grad_norm)
        told = self._update.learn_actor(len(rows), seen, noise.data_ptr(), temperature, by_least, clipping)
        loss, entropy, _ = heard(optimizer, told, self._max_grad_norm)
        return loss, entropy

    def _loads_of_optimizers(self) -> tuple[int, int]:
        return self._actor.optimizer.loads, self._critics.optimizer.loads
