"""Updates of a critic that gives the value of every choice, in the native core.

What torch computes in `rl4sys.algorithms.dqn` is the reference: the same rows give the same weights, but for what
float32 rounds off.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from rl4sys.algorithms.adam import CoreAdam, fit_core
from rl4sys.algorithms.core_network import CoreNetwork, frozen_network, heard, learnt_network, places, watched
from rl4sys.algorithms.numerics import GradNorm, clipping_of
from rl4sys.networks.base import Tensors, observation_of, to_array
from rl4sys.networks.native import InCore, addresses
from rl4sys.spec import MASK, Array


class CoreChoices:
    """What the core needs of a critic and its target, made once: it stays where it is until a state is loaded."""

    def __init__(
        self, critic: CoreNetwork, target: CoreNetwork, optimizer: CoreAdam, networks: Sequence[InCore]
    ) -> None:
        from rl4sys._core import ChoicesUpdate

        self._optimizer, self._networks, self._loads = optimizer, networks, optimizer.loads
        self._found = (critic, target)
        self._places = places(self._found)
        self._critic = learnt_network(critic, optimizer)
        self._update = ChoicesUpdate(self._critic, frozen_network(target))

    @classmethod
    def of(cls, critic: nn.Module, target: nn.Module, optimizer: CoreAdam) -> CoreChoices | None:
        """None where torch has to compute something, or where someone watches it compute."""
        learnt, followed = CoreNetwork.of(critic), CoreNetwork.of(target)
        if learnt is None or followed is None or watched(optimizer):
            return None
        networks = [network for network in (critic, target) if isinstance(network, InCore)]
        return cls(learnt, followed, optimizer, networks) if fit_core([*learnt.weights, *followed.weights]) else None

    @property
    def current(self) -> bool:
        """Whether everything is where it was, and nobody watches."""
        if watched(self._optimizer) or self._loads != self._optimizer.loads or self._places != places(self._found):
            return False
        return all(network.in_core() is not None for network in self._networks)

    def learn(
        self, rows: Tensors, lr: float, max_grad_norm: GradNorm, *, double: bool
    ) -> tuple[dict[str, float], Array]:
        """What it came to, and how far off each row was. Where the loss is not finite nothing has moved."""
        self._critic.set_rate(lr)
        row, reward = self._networks[0].row, rows["reward"].float().contiguous()
        seen = [row(observation_of(rows, prefix)).contiguous() for prefix in ("obs.", "next_obs.")]
        discount = (rows["discount"] * ~rows["terminated"]).float().contiguous()
        errors = torch.empty(len(reward))
        legal, weight = rows.get(f"next_obs.{MASK}"), rows.get("weight")
        given = [seen[0], rows["action"].long().contiguous(), reward, discount, seen[1]]
        legal = None if legal is None else legal.contiguous()
        weight = None if weight is None else weight.float().contiguous()
        more = [0 if column is None else column.data_ptr() for column in (legal, weight)]
        clipping = clipping_of(self._optimizer, max_grad_norm)
        told = self._update.learn(len(reward), [*addresses(given), *more], double, clipping, errors.data_ptr())
        loss, value, norm = heard(self._optimizer, told, max_grad_norm)
        return {"loss/td": loss, "value/mean": value, "loss/gradient_norm": norm}, to_array(errors)
