"""Deep Q-learning (DQN, Mnih et al. 2015), with optional double Q-learning, dueling networks and n-step returns."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import ClassVar

import numpy as np
import torch
from pydantic import Field, field_validator
from torch import Tensor, nn

from rl4sys.algorithms.accumulation import PartResults, scaled, split_rows
from rl4sys.algorithms.actions import ActionKind
from rl4sys.algorithms.base import AlgorithmSetup, Update
from rl4sys.algorithms.distributions import ILLEGAL
from rl4sys.algorithms.imitation import Imitation
from rl4sys.algorithms.native.network import fits_core
from rl4sys.algorithms.native.q_update import CoreQUpdate
from rl4sys.algorithms.off_policy import OffPolicyConfig, TargetUpdater, make_replay, td_target, weighted_mean
from rl4sys.algorithms.optimization import GradNorm, descend_in_parts, make_adam, set_lr
from rl4sys.algorithms.schedule import Schedule, check_schedules, constant
from rl4sys.buffers.base import Batch, Buffer
from rl4sys.networks.base import Blueprint, Tensors, build_network, observation_of, to_array
from rl4sys.networks.dueling import Dueling
from rl4sys.networks.noisy import resample_noise
from rl4sys.networks.state import module_state, optimizer_state, restore_module, restore_optimizer
from rl4sys.networks.torch_policy import TorchPolicy, to_tensors
from rl4sys.policy.program import Operation
from rl4sys.spec import MASK, Array, Discrete, State

_MARGIN = 0.8


class DQNConfig(OffPolicyConfig):
    """Options of the `dqn` algorithm."""

    lr: Schedule = constant(1e-4)
    """Learning rate of Adam."""
    batch_size: int = Field(default=32, gt=0, le=1_000_000)
    """Number of transitions per gradient step."""
    train_frequency: int = Field(default=4, gt=0)
    """Number of environment steps between updates, summed over all environments."""
    learning_starts: int = Field(default=1000, ge=0)
    """Number of environment steps before the first update."""
    target_update_interval: int = Field(default=1000, gt=0)
    """Number of environment steps between target network updates."""
    tau: float = Field(default=1.0, gt=0, le=1)
    """Polyak averaging factor for the target network; 1 copies the weights."""
    exploration: Schedule = Schedule(start=1.0, end=0.05, fraction=0.1)
    """Epsilon: probability of a random action."""
    double: bool = True
    """Use double Q-learning: the online network selects the next action (van Hasselt et al. 2016)."""
    dueling: bool = False
    """Use a dueling network, with separate outputs for state value and action advantages (Wang et al. 2016)."""
    max_grad_norm: GradNorm = 10.0
    """Maximum global gradient norm; larger gradients are scaled down. "auto" uses three times the running norm."""

    @property
    def outputs_per_action(self) -> int:
        """Number of network outputs per action: 1, or several in distributional variants."""
        return 1

    @field_validator("exploration")
    @classmethod
    def _check_probability(cls, exploration: Schedule) -> Schedule:
        if max(exploration.start, exploration.end) > 1:
            raise ValueError("expected a probability of at most 1")
        return exploration


def best_legal(values: Tensor, mask: Tensor | None) -> Tensor:
    """Return the index of the legal action with the highest value in each row."""
    return (values if mask is None else values.masked_fill(~mask, ILLEGAL)).argmax(-1, keepdim=True)


def values_of_action(values: Tensor, action: Tensor) -> Tensor:
    """Return the values of one action per row; ``values`` has shape (rows, actions, ...)."""
    at = action.reshape(len(values), *[1] * (values.dim() - 1)).expand(-1, 1, *values.shape[2:])
    return values.gather(1, at).squeeze(1)


def margin_loss(values: Tensor, action: Tensor, mask: Tensor | None) -> Tensor:
    """Return the large-margin loss of behavior cloning (Hester et al. 2017, equation 1).

    The loss raises the Q-values of recorded actions above those of other legal actions by a margin.
    """
    margin = _MARGIN * torch.ones_like(values).scatter(-1, action.unsqueeze(-1), 0.0)
    raised = values + margin if mask is None else (values + margin).masked_fill(~mask, ILLEGAL)
    return (raised.amax(-1) - values_of_action(values, action)).mean()


class DQN:
    """Deep Q-learning. Subclasses such as `C51` override the value output of the critic and the loss."""

    Config = DQNConfig
    actions = (ActionKind.DISCRETE,)
    default_buffer: ClassVar = {"type": "uniform", "size": 100_000}
    roles = ("critic",)
    fits_core: ClassVar = True
    """True if the native core implements the update of this class. A subclass must set this attribute itself, because
    an inherited value is ignored."""

    def __init__(self, setup: AlgorithmSetup[DQNConfig]) -> None:
        self._setup, self._options, self._action_count = setup, setup.options, action_count(setup)
        check_schedules(setup.options, setup.total_timesteps)
        self._device = torch.device(setup.device)
        seed = int(setup.seed.generate_state(1)[0])
        self._critic, self._target = (self._build_critic(seed) for _ in range(2))
        self._target_updater = TargetUpdater(self._target, self._critic)
        self._optimizer = make_adam(self._critic, self._options.lr.start, eps=1e-8)
        self._rng = np.random.default_rng(setup.seed.spawn(1)[0])
        self._resample_noise()
        self._target_moved_at = 0
        self._core: CoreQUpdate | None = None

    @staticmethod
    def blueprints(setup: AlgorithmSetup[DQNConfig]) -> Mapping[str, Blueprint]:
        """Return the blueprint (inputs and outputs) of each network role."""
        parts = action_count(setup) + setup.options.dueling
        return {"critic": Blueprint(setup.spec, parts * setup.options.outputs_per_action)}

    def make_buffer(self) -> Buffer:
        return make_replay(self._setup, self._options)

    def policy(self, steps: int) -> TorchPolicy:
        epsilon = self._options.exploration.at(steps, self._setup.total_timesteps)
        return TorchPolicy(self._setup.spec, self._critic, Operation("epsilon_greedy", options={"epsilon": epsilon}))

    def imitation(self) -> Imitation:
        return Imitation(self._critic, self._margin_loss, copies=[self._target])

    def update(self, batch: Batch, steps: int) -> Update:
        rows = dict(to_tensors(batch, self._device))
        rows["reward"] = self._options.reward_scale * rows["reward"]
        self._update_target_if_due(steps)
        self._resample_noise()
        core = self._core_update()
        measured, error = self._learn(rows, steps) if core is None else self._update_in_core(core, rows, steps)
        return Update(measured, {"priority": error})

    def state(self) -> State:
        return {
            "critic": module_state(self._critic),
            "target": module_state(self._target),
            "optimizer": optimizer_state(self._optimizer),
            "target_moved_at": self._target_moved_at,
            "rng": self._rng.bit_generator.state,
        }

    def restore(self, state: State) -> None:
        restore_module(self._critic, state["critic"])
        restore_module(self._target, state["target"])
        restore_optimizer(self._optimizer, state["optimizer"])
        self._target_moved_at = int(state["target_moved_at"])
        self._rng.bit_generator.state = state["rng"]

    def _learn(self, rows: Tensors, steps: int) -> tuple[dict[str, float], Array]:
        set_lr(self._optimizer, self._learning_rate(steps))
        results = PartResults()
        losses = self._part_losses(rows, results)
        norm = descend_in_parts(self._optimizer, self._critic, losses, self._options.max_grad_norm, steps)
        return {**results.means, "loss/gradient_norm": norm}, to_array(results.column("error"))

    def _part_losses(self, rows: Tensors, results: PartResults) -> Iterator[Mapping[str, Tensor]]:
        for share, part in split_rows(rows, self._options.accumulate):
            loss, value, error = self._errors(part)
            mean = weighted_mean(loss, part)
            metrics = {"loss/td": mean.item(), "value/mean": value.detach().mean().item()}
            results.add(share, metrics, error=error)
            yield scaled({"td": mean}, share)

    def _core_update(self) -> CoreQUpdate | None:
        """Return the update prepared for the native core, or None if torch must compute the update."""
        if not fits_core(self, self._options.accumulate):
            return None
        if self._core is None or not self._core.is_valid:
            self._core = CoreQUpdate.of(self._critic, self._target, self._optimizer)
        return self._core

    def _update_in_core(self, core: CoreQUpdate, rows: Tensors, steps: int) -> tuple[dict[str, float], Array]:
        options = self._options
        measured, error = core.learn(rows, self._learning_rate(steps), options.max_grad_norm, double=options.double)
        if not math.isfinite(measured["loss/td"]):
            # Repeat the update in torch, which reports the loss or gradient that is not finite.
            return self._learn(rows, steps)
        return measured, error

    def _learning_rate(self, steps: int) -> float:
        return self._options.lr.at(steps, self._setup.total_timesteps)

    def _margin_loss(self, rows: Tensors) -> Tensor:
        self._resample_noise()
        return margin_loss(self._critic(observation_of(rows, "obs.")), rows["action"], rows.get("obs." + MASK))

    def _with_value_output(self, network: nn.Module) -> nn.Module:
        """Return ``network`` wrapped to output one value per action; DQN needs no wrapper."""
        return network

    def _errors(self, rows: Tensors) -> tuple[Tensor, Tensor, Tensor]:
        """Return loss, Q-value and absolute TD error of each row."""
        value = values_of_action(self._critic(observation_of(rows, "obs.")), rows["action"])
        target = td_target(rows["reward"], rows["discount"], rows["terminated"], self._next_value(rows))
        loss = nn.functional.smooth_l1_loss(value, target, reduction="none")
        return loss, value, (value - target).detach().abs()

    @torch.no_grad()
    def _next_value(self, rows: Tensors) -> Tensor:
        observation = observation_of(rows, "next_obs.")
        values: Tensor = self._target(observation)
        return values_of_action(values, self._next_action(observation, values))

    def _next_action(self, observation: Tensors, target_values: Tensor) -> Tensor:
        """Return the best action according to the online network (double Q-learning) or the target network."""
        selector = self._critic(observation) if self._options.double else target_values
        return best_legal(selector, observation.get(MASK))

    def _resample_noise(self) -> None:
        """Resample the noise of noisy networks, so that each update and policy version has its own noise."""
        for network in (self._critic, self._target):
            resample_noise(network, self._rng)

    def _build_critic(self, seed: int) -> nn.Module:
        network = build_network(self._setup.network("critic"), self.blueprints(self._setup)["critic"], seed)
        if self._options.dueling:
            network = Dueling(network, self._action_count, self._options.outputs_per_action)
        return self._setup.place(self._with_value_output(network))

    def _update_target_if_due(self, steps: int) -> None:
        if steps - self._target_moved_at < self._options.target_update_interval:
            return
        self._target_moved_at = steps
        self._target_updater.update(self._options.tau)


def action_count(setup: AlgorithmSetup[DQNConfig]) -> int:
    assert isinstance(setup.spec.action, Discrete)  # checked by AlgorithmSetup
    return setup.spec.action.choices
