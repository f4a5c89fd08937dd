"""Proximal policy optimisation, clipped (Schulman et al. 2017, arXiv:1707.06347).

Where older versions of the policy acted, the policy at the start of the update takes the part of the old policy, and
each step counts as much as that policy would have chosen it (the decoupled objective of Hilton et al. 2021,
arXiv:2110.00641, with V-trace's advantages and value targets of Espeholt et al. 2018, arXiv:1802.01561).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, count, islice
from typing import ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from rl4sys.algorithms.base import AlgorithmConfig, Recipe, Update
from rl4sys.algorithms.numerics import descend, make_adam, set_lr
from rl4sys.algorithms.returns import generalized_advantages
from rl4sys.algorithms.schedule import Schedule, check_schedules, constant
from rl4sys.buffers.base import Batch, Buffer, Demand
from rl4sys.networks.acting import TorchPolicy, to_tensors
from rl4sys.networks.base import Blueprint, Tensors, action_outputs, build_network, observation_of, to_array
from rl4sys.networks.state import module_state, optimizer_state, restore_module, restore_optimizer
from rl4sys.policy.program import Operation
from rl4sys.spec import MASK, Array, Discrete, State

_ILLEGAL = -1e9
"""A logit low enough that its action is never drawn, yet finite: 0 times it is 0."""


class PPOConfig(AlgorithmConfig):
    """Options of `ppo`."""

    lr: Schedule = constant(3e-4)
    """Step size of Adam."""
    critic_lr: Schedule | None = None
    """Step size of the critic; null for the same as lr."""
    gamma: float = Field(default=0.99, ge=0, le=1)
    """Discount of later rewards."""
    gae_lambda: float = Field(default=0.95, ge=0, le=1)
    """Advantage estimates: 0 trusts the critic alone, 1 the rewards alone."""
    clip_ratio: Schedule = constant(0.2)
    """How far the probability of an action may move from what it was when chosen, as a ratio from 1."""
    value_coef: float = Field(default=0.5, ge=0)
    """Weight of the critic's loss."""
    entropy_coef: float = Field(default=0.0, ge=0)
    """Weight of the bonus for undecided policies."""
    epochs: int = Field(default=10, gt=0, le=10_000)
    """Passes over each rollout."""
    gradient_steps: int | None = Field(default=None, gt=0, le=1_000_000)
    """Gradient steps per rollout instead of whole passes over it; null: epochs decide."""
    minibatch_size: int = Field(default=64, gt=0, le=10_000_000)
    """Steps per gradient step."""
    value_clip: float | None = Field(default=None, gt=0)
    """How far the critic's estimate may move in one update; null for no limit."""
    target_kl: float | None = Field(default=None, gt=0)
    """End an update early once the policy has moved 1.5 times this far; null for never."""
    max_grad_norm: float = Field(default=0.5, gt=0)
    """Gradients longer than this are shortened to it."""
    normalize_advantage: bool = True
    """Scale advantages to mean 0 and deviation 1 within each minibatch."""
    initial_log_std: float = 0.0
    """Continuous actions: logarithm of the first standard deviation."""


def clipped_policy_loss(
    log_prob: Tensor, old_log_prob: Tensor, advantage: Tensor, clip: float, weight: Tensor | float = 1.0
) -> Tensor:
    """Equation 7, negated: the smaller of the plain and the clipped gain; ``weight`` is that of each step."""
    ratio = (log_prob - old_log_prob).exp()
    return -(weight * torch.min(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)).mean()


def importance(log_prob: Tensor, behaviour_log_prob: Tensor) -> Tensor:
    """How likely an action is compared to when it was chosen, at most 1: V-trace's weight, both its bounds being 1."""
    return (log_prob - behaviour_log_prob).exp().clamp(max=1)


def value_loss(value: Tensor, old_value: Tensor, target: Tensor, clip: float | None) -> Tensor:
    """Half the squared error; with ``clip``, the larger of it and that of the estimate moved at most so far."""
    error = (value - target) ** 2
    if clip is not None:
        moved = old_value + (value - old_value).clamp(-clip, clip)
        error = torch.max(error, (moved - target) ** 2)
    return 0.5 * error.mean()


def kl_estimate(log_prob: Tensor, old_log_prob: Tensor) -> Tensor:
    """KL(old, new) from samples of old: the mean of r - 1 - log r, never negative (Schulman 2020)."""
    log_ratio = log_prob - old_log_prob
    return (log_ratio.exp() - 1 - log_ratio).mean()


def categorical_terms(logits: Tensor, action: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Log-probability of each action, and the entropy, over the legal actions."""
    if mask is not None:
        logits = logits.masked_fill(~mask, _ILLEGAL)
    log_probs = logits.log_softmax(-1)
    chosen = log_probs.gather(-1, action.unsqueeze(-1)).squeeze(-1)
    return chosen, -(log_probs.exp() * log_probs).sum(-1)


def gaussian_terms(mean: Tensor, log_std: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
    """Log-density of each action, and the entropy, of independent normals."""
    z = (action - mean) * (-log_std).exp()
    log_prob = (-0.5 * z**2 - log_std).sum(-1) - 0.5 * math.log(2 * math.pi) * mean.shape[-1]
    entropy = (log_std + 0.5 * math.log(2 * math.pi * math.e)).sum(-1).expand(len(mean))
    return log_prob, entropy


class PPO:
    Config = PPOConfig
    usual_buffer: ClassVar = {"type": "trajectory", "size": 2048}
    roles = ("actor", "critic")

    def __init__(self, recipe: Recipe[PPOConfig]) -> None:
        check_schedules(recipe.options, recipe.total_timesteps)
        self._recipe, self._options = recipe, recipe.options
        self._device = torch.device(recipe.device)
        self._networks = self._build_networks().to(self._device)
        self._optimizer = self._make_optimizer()
        self._rng = np.random.default_rng(recipe.seed.spawn(1)[0])

    @staticmethod
    def blueprints(recipe: Recipe[PPOConfig]) -> Mapping[str, Blueprint]:
        """What the network of each role takes and gives."""
        # A first policy close to indifferent explores; see Andrychowicz et al. 2020, section 3.2.
        actor = Blueprint(recipe.spec, action_outputs(recipe.spec), output_gain=0.01)
        return {"actor": actor, "critic": Blueprint(recipe.spec, 1)}

    def make_buffer(self) -> Buffer:
        return self._recipe.make_buffer(Demand(), fitting=("trajectory",))

    def policy(self, steps: int) -> TorchPolicy:
        if isinstance(self._recipe.spec.action, Discrete):
            return TorchPolicy(self._recipe.spec, self._networks.actor, Operation("categorical"))
        head, weights = Operation("gaussian", ("log_std",)), {"log_std": to_array(self._networks.log_std)}
        return TorchPolicy(self._recipe.spec, self._networks.actor, head, weights)

    def update(self, batch: Batch, steps: int) -> Update:
        rollout = self._with_advantages(batch)
        set_lr(self._optimizer, [lr.at(steps, self._recipe.total_timesteps) for lr in self._rates()])
        clip = self._options.clip_ratio.at(steps, self._recipe.total_timesteps)
        measured: list[dict[str, float]] = []
        for rows in self._minibatches(len(batch["reward"])):
            measured.append(self._descend({name: column[rows] for name, column in rollout.items()}, clip, steps))
            if self._options.target_kl and measured[-1]["policy/kl"] > 1.5 * self._options.target_kl:
                break
        lr = {"policy/lr": self._optimizer.param_groups[0]["lr"]}
        return Update(_means(measured) | _fit(rollout) | _lag(rollout) | lr)

    def state(self) -> State:
        return {
            "networks": module_state(self._networks),
            "optimizer": optimizer_state(self._optimizer),
            "rng": self._rng.bit_generator.state,
        }

    def restore(self, state: State) -> None:
        restore_module(self._networks, state["networks"])
        restore_optimizer(self._optimizer, state["optimizer"])
        self._rng.bit_generator.state = state["rng"]

    def _build_networks(self) -> _ActorCritic:
        blueprints, seeds = self.blueprints(self._recipe), self._recipe.seed.generate_state(2)
        actor, critic = (
            build_network(self._recipe.network(role), blueprints[role], seed)
            for role, seed in zip(self.roles, seeds.tolist(), strict=True)
        )
        spread = 0 if isinstance(self._recipe.spec.action, Discrete) else blueprints["actor"].outputs
        return _ActorCritic(actor, critic, torch.full((spread,), self._options.initial_log_std))

    def _make_optimizer(self) -> torch.optim.Adam:
        networks, lr = self._networks, self._options.lr.start
        if self._options.critic_lr is None:
            return make_adam(networks, lr, eps=1e-5)
        return make_adam([[networks.log_std, *networks.actor.parameters()], networks.critic.parameters()], lr, eps=1e-5)

    def _rates(self) -> list[Schedule]:
        """One for each group of parameters that the optimiser has."""
        return [rate for rate in (self._options.lr, self._options.critic_lr) if rate is not None]

    def _with_advantages(self, batch: Batch) -> dict[str, Tensor]:
        """The batch as tensors, with weights, the critic's values, the advantages and the returns they imply."""
        tensors = dict(to_tensors(batch, self._device))
        tensors |= self._seen_from_now(tensors)
        with torch.no_grad():
            value = self._value(observation_of(tensors, "obs."))
        advantage = generalized_advantages(
            batch["reward"],
            to_array(value),
            self._bootstrap(batch),
            batch["last"],
            self._options.gamma,
            self._options.gae_lambda,
            weight=to_array(tensors["weight"]),
        )
        tensors["value"], tensors["advantage"] = value, torch.as_tensor(advantage, device=self._device)
        tensors["return"] = tensors["weight"] * tensors["advantage"] + value
        return {name: column for name, column in tensors.items() if not name.startswith("next_")}

    @torch.no_grad()
    def _seen_from_now(self, rollout: Tensors) -> dict[str, Tensor]:
        """For each step the ``log_prob`` to move away from, that of the policy of now, and its ``weight``.

        What this very version chose has the log-probability recorded and the weight 1, exactly.
        """
        chosen = rollout["log_prob"]
        staleness = rollout.get("staleness", torch.zeros(len(chosen), dtype=torch.int64, device=chosen.device))
        weight = torch.ones_like(chosen)
        if staleness.any():
            now, _ = self._action_terms(rollout)
            weight = torch.where(staleness > 0, importance(now, chosen), weight)
            chosen = torch.where(staleness > 0, now, chosen)
        return {"staleness": staleness, "log_prob": chosen, "weight": weight}

    def _bootstrap(self, batch: Batch) -> Array:
        """The critic's value of what each trajectory led to, 0 where the episode terminated there."""
        bootstrap = np.zeros(len(batch["reward"]), np.float32)
        going_on = np.flatnonzero(batch["last"] & ~batch["terminated"])
        if len(going_on):
            led_to = {name: column[going_on] for name, column in batch.items() if name.startswith("next_obs.")}
            with torch.no_grad():
                value = self._value(observation_of(to_tensors(led_to, self._device), "next_obs."))
            bootstrap[going_on] = to_array(value)
        return bootstrap

    def _minibatches(self, rows: int) -> Iterator[Tensor]:
        """The rollout in a new order for each pass: as many as ``epochs``, or as ``gradient_steps`` take."""
        passes: Iterable[int] = count() if self._options.gradient_steps else range(self._options.epochs)
        orders = (torch.from_numpy(self._rng.permutation(rows)).to(self._device) for _ in passes)
        minibatches = chain.from_iterable(torch.split(order, self._options.minibatch_size) for order in orders)
        return islice(minibatches, self._options.gradient_steps)

    def _descend(self, rows: dict[str, Tensor], clip: float, steps: int) -> dict[str, float]:
        options = self._options
        log_prob, entropy = self._action_terms(rows)
        advantage = _standardized(rows["advantage"]) if options.normalize_advantage else rows["advantage"]
        value = self._value(observation_of(rows, "obs."))
        losses = {
            "policy": clipped_policy_loss(log_prob, rows["log_prob"], advantage, clip, rows["weight"]),
            "value": options.value_coef * value_loss(value, rows["value"], rows["return"], options.value_clip),
            "entropy": -options.entropy_coef * entropy.mean(),
        }
        norm = descend(self._optimizer, self._networks, losses, options.max_grad_norm, steps)
        with torch.no_grad():
            kl = kl_estimate(log_prob, rows["log_prob"])
            clipped = ((log_prob - rows["log_prob"]).exp() - 1).abs().gt(clip).float().mean()
        return {
            "loss/policy": losses["policy"].item(),
            "loss/value": losses["value"].item(),
            "policy/entropy": entropy.mean().item(),
            "policy/kl": kl.item(),
            "policy/clip_fraction": clipped.item(),
            "loss/gradient_norm": norm,
        }

    def _action_terms(self, rows: Tensors) -> tuple[Tensor, Tensor]:
        outputs = self._networks.actor(observation_of(rows, "obs."))
        if isinstance(self._recipe.spec.action, Discrete):
            return categorical_terms(outputs, rows["action"], rows.get("obs." + MASK))
        return gaussian_terms(outputs, self._networks.log_std, rows["action"].reshape(len(outputs), -1))

    def _value(self, observation: Tensors) -> Tensor:
        value: Tensor = self._networks.critic(observation).squeeze(-1)
        return value


class _ActorCritic(nn.Module):
    """All that is learnt; ``log_std`` has an element per continuous action, the same in every state."""

    def __init__(self, actor: nn.Module, critic: nn.Module, log_std: Tensor) -> None:
        super().__init__()
        self.actor, self.critic, self.log_std = actor, critic, nn.Parameter(log_std)


def _standardized(advantage: Tensor) -> Tensor:
    if len(advantage) < 2:
        return advantage
    return (advantage - advantage.mean()) / (advantage.std() + 1e-8)


def _means(measured: list[dict[str, float]]) -> dict[str, float]:
    return {name: float(np.mean([row[name] for row in measured])) for name in measured[0]}


def _fit(rollout: dict[str, Tensor]) -> dict[str, float]:
    """How much of the returns' variance the critic foresaw: 1 is all, 0 none."""
    spread = rollout["return"].var(unbiased=False)
    unexplained = (rollout["return"] - rollout["value"]).var(unbiased=False)
    return {"value/explained_variance": float(1 - unexplained / spread) if spread > 0 else 0.0}


def _lag(rollout: dict[str, Tensor]) -> dict[str, float]:
    """How many versions old the experience is, and how much of it counts: 0 and 1 for this version's own."""
    return {
        "policy/staleness": rollout["staleness"].float().mean().item(),
        "policy/importance": rollout["weight"].mean().item(),
    }
