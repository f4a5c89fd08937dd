"""What the on-policy algorithms share: an actor and a critic, and the advantages that they learn from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from rl4sys.algorithms.base import Options, Recipe
from rl4sys.algorithms.distributions import Law, distribution_of, legal_logits
from rl4sys.algorithms.imitation import Imitation, cloning_loss
from rl4sys.algorithms.returns import generalized_advantages
from rl4sys.algorithms.windows import REMEMBERED, cut, gather, outputs_in_windows, remember
from rl4sys.buffers.base import Batch
from rl4sys.errors import ConfigError
from rl4sys.networks.acting import TorchPolicy, to_tensors
from rl4sys.networks.base import (
    Blueprint,
    Recurrent,
    Tensors,
    action_outputs,
    build_network,
    memory_size,
    memory_size_of,
    observation_of,
    to_array,
)
from rl4sys.networks.chained import FEATURES, Chained, head_spec
from rl4sys.spec import MASK, Array, Box, Spec
from rl4sys.trajectory import MEMORY

ROLES = ("actor", "critic")

TRUNK = "trunk"
"""The role of a network whose features actor and critic share, for algorithms that move both in one step."""


_USUAL_FEATURES = 64


def importance(log_prob: Tensor, behaviour_log_prob: Tensor) -> Tensor:
    """How likely an action is compared to when it was chosen, at most 1: V-trace's weight, both its bounds being 1."""
    return (log_prob - behaviour_log_prob).exp().clamp(max=1)


def standardized(values: Tensor) -> Tensor:
    """Shifted and scaled to mean 0 and deviation 1."""
    if len(values) < 2:
        return values
    return (values - values.mean()) / (values.std() + 1e-8)


def blueprints(recipe: Recipe[Options], *, may_remember: bool = False) -> Mapping[str, Blueprint]:
    """What the network of each role takes and gives. A critic sees what an actor that remembers does."""
    if TRUNK in recipe.networks:
        return _blueprints_on_trunk(recipe)
    # A first policy close to indifferent explores; see Andrychowicz et al. 2020, section 3.2.
    actor = Blueprint(recipe.spec, action_outputs(recipe.spec), output_gain=0.01, may_remember=may_remember)
    remembered = memory_size_of(recipe.network("actor"), actor) if may_remember else 0
    seen = {REMEMBERED: Box((remembered,))} if remembered else {}
    return {"actor": actor, "critic": Blueprint(Spec({**recipe.spec.observation, **seen}, recipe.spec.action), 1)}


def _blueprints_on_trunk(recipe: Recipe[Options]) -> Mapping[str, Blueprint]:
    """Actor and critic see as many features as the last hidden layer of the trunk is wide."""
    widths = getattr(recipe.network(TRUNK), "hidden_dims", None) or [_USUAL_FEATURES]
    seen = head_spec(widths[-1], recipe.spec.action)
    needed = {
        TRUNK: Blueprint(recipe.spec, widths[-1]),
        "actor": Blueprint(seen, action_outputs(recipe.spec), output_gain=0.01),
        "critic": Blueprint(seen, 1),
    }
    for role, blueprint in needed.items():
        if memory_size_of(recipe.network(role), replace(blueprint, may_remember=True)):
            raise ConfigError(
                f"network.{role} remembers, and there is a network.{TRUNK}: what actor and critic share cannot; use "
                f"networks without memory, or leave the {TRUNK} out"
            )
    return needed


class Actor(nn.Module):
    """A policy that is learnt; ``log_std`` has an element per continuous action, the same in every state."""

    def __init__(self, recipe: Recipe[Options], initial_log_std: float, *, may_remember: bool = False) -> None:
        super().__init__()
        self.spec, needed = recipe.spec, blueprints(recipe, may_remember=may_remember)
        seed, _, trunk_seed = recipe.seed.generate_state(3).tolist()
        self.actor = build_network(recipe.network("actor"), needed["actor"], seed)
        if TRUNK in needed:
            self.actor = Chained(build_network(recipe.network(TRUNK), needed[TRUNK], trunk_seed), self.actor)
        self.distribution = distribution_of(recipe.spec.action)
        self.log_std = nn.Parameter(torch.full((self.distribution.deviations,), initial_log_std))
        recipe.place(self)

    @property
    def device(self) -> torch.device:
        return self.log_std.device

    @property
    def remembers(self) -> bool:
        return memory_size(self.actor) > 0

    def actor_parameters(self) -> list[nn.Parameter]:
        return [self.log_std, *self.actor.parameters()]

    def policy(self) -> TorchPolicy:
        return TorchPolicy(self.spec, self.actor, *self.distribution.head(self.log_std))

    def imitation(self) -> Imitation:
        """Of the network alone: continuous actions are explored as widely as they were to be."""
        return Imitation(self.actor, lambda rows: cloning_loss(self.action_terms(rows)[0], rows))

    def action_terms(self, rows: Tensors) -> tuple[Tensor, Tensor]:
        """Log-probability of the actions in ``rows``, and the entropy, now. Where it remembers, rows of windows."""
        return self.distribution.terms(self.law(rows), rows["action"])

    def law(self, rows: Tensors) -> Law:
        """What it says of the actions of each row."""
        return Law(legal_logits(self._outputs(rows), rows.get("obs." + MASK)), self.log_std)

    def _outputs(self, rows: Tensors) -> Tensor:
        if isinstance(self.actor, Recurrent) and self.remembers:
            return outputs_in_windows(self.actor, rows)
        outputs: Tensor = self.actor(observation_of(rows, "obs."))
        return outputs


class ActorCritic(Actor):
    """All that an on-policy algorithm learns."""

    def __init__(self, recipe: Recipe[Options], initial_log_std: float, *, may_remember: bool = False) -> None:
        super().__init__(recipe, initial_log_std, may_remember=may_remember)
        needed, seed = blueprints(recipe, may_remember=may_remember)["critic"], int(recipe.seed.generate_state(2)[1])
        self.critic = recipe.place(build_network(recipe.network("critic"), needed, seed))
        if isinstance(self.actor, Chained):
            self.critic = Chained(self.actor.trunk, self.critic)

    def critic_parameters(self) -> list[nn.Parameter]:
        """Those that are not the actor's too."""
        shared = {id(parameter) for parameter in self.actor.parameters()}
        return [parameter for parameter in self.critic.parameters() if id(parameter) not in shared]

    def with_features(self, rows: Tensors) -> Tensors:
        """The rows with what a trunk makes of them, so that it is not asked by the actor and the critic both."""
        if not isinstance(self.actor, Chained):
            return rows
        seen = self.actor.with_features(observation_of(rows, "obs."))
        return {**rows, f"obs.{FEATURES}": seen[FEATURES]}

    def value(self, observation: Tensors) -> Tensor:
        value: Tensor = self.critic(observation).squeeze(-1)
        return value

    def with_advantages(self, batch: Batch, gamma: float, gae_lambda: float) -> dict[str, Tensor]:
        """The batch as tensors, with weights, the critic's values, the advantages and the returns they imply."""
        batch = self._with_memory(batch)
        tensors = dict(to_tensors(batch, self.device))
        tensors |= self._seen_from_now(tensors, batch["last"])
        with torch.no_grad():
            value = self.value(observation_of(tensors, "obs."))
        advantage = generalized_advantages(
            batch["reward"],
            to_array(value),
            self._bootstrap(batch),
            batch["last"],
            gamma,
            gae_lambda,
            weight=to_array(tensors["weight"]),
        )
        tensors["value"], tensors["advantage"] = value, torch.as_tensor(advantage, device=self.device)
        tensors["return"] = tensors["weight"] * tensors["advantage"] + value
        return {name: column for name, column in tensors.items() if not name.startswith("next_")}

    @torch.no_grad()
    def _seen_from_now(self, rollout: Tensors, last: Array) -> dict[str, Tensor]:
        """For each step the ``log_prob`` to move away from, that of the policy of now, and its ``weight``.

        What this very version chose has the log-probability recorded and the weight 1, exactly.
        """
        chosen = rollout["log_prob"]
        staleness = rollout.get("staleness", torch.zeros(len(chosen), dtype=torch.int64, device=chosen.device))
        weight = torch.ones_like(chosen)
        if staleness.any():
            now, _ = self.action_terms(gather(rollout, cut(last, len(last))) if self.remembers else rollout)
            weight = torch.where(staleness > 0, importance(now, chosen), weight)
            chosen = torch.where(staleness > 0, now, chosen)
        return {"staleness": staleness, "log_prob": chosen, "weight": weight}

    def _with_memory(self, batch: Batch) -> Batch:
        """What an actor that remembers remembered before each step, and after each trajectory, as observations."""
        if not isinstance(self.actor, Recurrent) or not self.remembers:
            return batch
        columns = {name: column for name, column in batch.items() if name != MEMORY}
        observation = observation_of(to_tensors(columns, self.device), "obs.")
        at_first = torch.as_tensor(batch[MEMORY], device=self.device)
        before, after = (to_array(part) for part in remember(self.actor, observation, at_first, batch["last"]))
        led_to = np.zeros_like(before)
        led_to[batch["last"]] = after
        return {**columns, f"obs.{REMEMBERED}": before, f"next_obs.{REMEMBERED}": led_to}

    def _bootstrap(self, batch: Batch) -> Array:
        """The critic's value of what each trajectory led to, 0 where the episode terminated there."""
        bootstrap = np.zeros(len(batch["reward"]), np.float32)
        going_on = np.flatnonzero(batch["last"] & ~batch["terminated"])
        if len(going_on):
            led_to = {name: column[going_on] for name, column in batch.items() if name.startswith("next_obs.")}
            with torch.no_grad():
                value = self.value(observation_of(to_tensors(led_to, self.device), "next_obs."))
            bootstrap[going_on] = to_array(value)
        return bootstrap


def fit_of_critic(rollout: Tensors) -> dict[str, float]:
    """How much of the returns' variance the critic foresaw: 1 is all, 0 none."""
    spread = rollout["return"].var(unbiased=False)
    unexplained = (rollout["return"] - rollout["value"]).var(unbiased=False)
    return {"value/explained_variance": float(1 - unexplained / spread) if spread > 0 else 0.0}


def lag_of(rollout: Tensors) -> dict[str, float]:
    """How many versions old the experience is, and how much of it counts: 0 and 1 for this version's own."""
    return {
        "policy/staleness": rollout["staleness"].float().mean().item(),
        "policy/importance": rollout["weight"].mean().item(),
    }
