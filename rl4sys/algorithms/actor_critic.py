"""Shared parts of the on-policy algorithms: actor and critic networks, and advantage estimation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from rl4sys.algorithms.base import AlgorithmSetup, Options
from rl4sys.algorithms.distributions import DistributionParams, distribution_of, legal_logits
from rl4sys.algorithms.imitation import Imitation, cloning_loss
from rl4sys.algorithms.returns import generalized_advantages
from rl4sys.algorithms.windows import MEMORY_INPUT, gather_windows, outputs_in_windows, split_windows, unroll_memory
from rl4sys.buffers.base import Batch
from rl4sys.errors import ConfigError
from rl4sys.networks.base import (
    Blueprint,
    NetworkConfig,
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
from rl4sys.networks.torch_policy import TorchPolicy, to_tensors
from rl4sys.spec import MASK, Array, Box, Spec
from rl4sys.trajectory import MEMORY

ROLES = ("actor", "critic")

TRUNK = "trunk"
"""Name of the optional network role of feature layers that actor and critic share.

Only algorithms that update actor and critic in one gradient step support this role.
"""


_DEFAULT_FEATURES = 64


def importance(log_prob: Tensor, behavior_log_prob: Tensor) -> Tensor:
    """Return the ratio of current to behavior probability, clipped to at most 1 (V-trace with both thresholds 1)."""
    return (log_prob - behavior_log_prob).exp().clamp(max=1)


def standardized(values: Tensor) -> Tensor:
    """Normalize values to mean 0 and standard deviation 1; a single value is returned unchanged."""
    if len(values) < 2:
        return values
    return (values - values.mean()) / (values.std() + 1e-8)


def blueprints(setup: AlgorithmSetup[Options], *, allow_memory: bool = False) -> Mapping[str, Blueprint]:
    """Return the blueprint (inputs and outputs) of each network role.

    If the actor is recurrent, the critic gets the actor's recurrent state as an additional input.
    """
    if TRUNK in setup.networks:
        return _blueprints_on_trunk(setup)
    # A nearly uniform initial policy explores more; see Andrychowicz et al. 2020, section 3.2.
    actor = Blueprint(setup.spec, action_outputs(setup.spec), output_gain=0.01, allow_memory=allow_memory)
    remembered = memory_size_of(setup.network("actor"), actor) if allow_memory else 0
    seen = {MEMORY_INPUT: Box((remembered,))} if remembered else {}
    critic = Blueprint(Spec({**setup.spec.observation, **seen}, setup.spec.action), 1)
    if allow_memory:
        _check_critic_without_memory(setup.network("critic"), critic)
    return {"actor": actor, "critic": critic}


def _check_critic_without_memory(config: NetworkConfig, critic: Blueprint) -> None:
    if memory_size_of(config, replace(critic, allow_memory=True)):
        raise ConfigError(
            f"network.critic.type is {config.type!r}, but the critic cannot be recurrent: its input includes the "
            f"recurrent state of the actor. Set network.actor.type: {config.type} and network.critic.type: mlp"
        )


def _blueprints_on_trunk(setup: AlgorithmSetup[Options]) -> Mapping[str, Blueprint]:
    """Return the blueprints of trunk, actor and critic. The trunk has as many outputs as its last hidden layer."""
    widths = getattr(setup.network(TRUNK), "hidden_dims", None) or [_DEFAULT_FEATURES]
    seen = head_spec(widths[-1], setup.spec.action)
    needed = {
        TRUNK: Blueprint(setup.spec, widths[-1]),
        "actor": Blueprint(seen, action_outputs(setup.spec), output_gain=0.01),
        "critic": Blueprint(seen, 1),
    }
    for role, blueprint in needed.items():
        if memory_size_of(setup.network(role), replace(blueprint, allow_memory=True)):
            raise ConfigError(
                f"network.{role} is recurrent, but recurrent networks cannot be combined with network.{TRUNK}; use "
                f"another network type, such as mlp, or remove network.{TRUNK}"
            )
    return needed


class Actor(nn.Module):
    """Actor network with its action distribution.

    ``log_std`` has one element per continuous action dimension and does not depend on the observation.
    """

    def __init__(self, setup: AlgorithmSetup[Options], initial_log_std: float, *, allow_memory: bool = False) -> None:
        super().__init__()
        self.spec, needed = setup.spec, blueprints(setup, allow_memory=allow_memory)
        seed, _, trunk_seed = setup.seed.generate_state(3).tolist()
        self.actor = build_network(setup.network("actor"), needed["actor"], seed)
        if TRUNK in needed:
            self.actor = Chained(build_network(setup.network(TRUNK), needed[TRUNK], trunk_seed), self.actor)
        self.distribution = distribution_of(setup.spec.action)
        self.log_std = nn.Parameter(torch.full((self.distribution.deviations,), initial_log_std))
        setup.place(self)

    @property
    def device(self) -> torch.device:
        return self.log_std.device

    @property
    def has_memory(self) -> bool:
        return memory_size(self.actor) > 0

    def actor_parameters(self) -> list[nn.Parameter]:
        return [self.log_std, *self.actor.parameters()]

    def policy(self) -> TorchPolicy:
        return TorchPolicy(self.spec, self.actor, *self.distribution.head(self.log_std))

    def imitation(self) -> Imitation:
        """Return the actor network and its behavior cloning loss; ``log_std`` is not pretrained."""
        return Imitation(self.actor, lambda rows: cloning_loss(self.action_terms(rows)[0], rows))

    def action_terms(self, rows: Tensors) -> tuple[Tensor, Tensor]:
        """Return action log-probability and policy entropy of each row.

        Recurrent actors need rows from `gather_windows`.
        """
        return self.distribution.terms(self.distribution_params(rows), rows["action"])

    def distribution_params(self, rows: Tensors) -> DistributionParams:
        """Return the parameters of the action distribution of each row."""
        return DistributionParams(legal_logits(self._outputs(rows), rows.get("obs." + MASK)), self.log_std)

    def _outputs(self, rows: Tensors) -> Tensor:
        if isinstance(self.actor, Recurrent) and self.has_memory:
            return outputs_in_windows(self.actor, rows)
        outputs: Tensor = self.actor(observation_of(rows, "obs."))
        return outputs


class ActorCritic(Actor):
    """Actor and critic of an on-policy algorithm."""

    def __init__(self, setup: AlgorithmSetup[Options], initial_log_std: float, *, allow_memory: bool = False) -> None:
        super().__init__(setup, initial_log_std, allow_memory=allow_memory)
        needed, seed = blueprints(setup, allow_memory=allow_memory)["critic"], int(setup.seed.generate_state(2)[1])
        self.critic = setup.place(build_network(setup.network("critic"), needed, seed))
        if isinstance(self.actor, Chained):
            self.critic = Chained(self.actor.trunk, self.critic)

    def critic_parameters(self) -> list[nn.Parameter]:
        """Return the critic parameters that are not shared with the actor."""
        shared = {id(parameter) for parameter in self.actor.parameters()}
        return [parameter for parameter in self.critic.parameters() if id(parameter) not in shared]

    def with_features(self, rows: Tensors) -> Tensors:
        """Add the outputs of the shared trunk, if any, to the rows, so that actor and critic share one trunk pass."""
        if not isinstance(self.actor, Chained):
            return rows
        seen = self.actor.with_features(observation_of(rows, "obs."))
        return {**rows, f"obs.{FEATURES}": seen[FEATURES]}

    def value(self, observation: Tensors) -> Tensor:
        value: Tensor = self.critic(observation).squeeze(-1)
        return value

    def with_advantages(self, batch: Batch, gamma: float, gae_lambda: float) -> dict[str, Tensor]:
        """Convert the batch to tensors and add importance weights, values, advantages and returns."""
        batch = self._with_memory(batch)
        tensors = dict(to_tensors(batch, self.device))
        tensors |= self._off_policy_correction(tensors, batch["last"])
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
    def _off_policy_correction(self, rollout: Tensors, last: Array) -> dict[str, Tensor]:
        """Return ``staleness``, ``log_prob`` under the current policy, and importance ``weight`` of each step.

        Steps of the current version keep their recorded log-probability and have a weight of exactly 1.
        """
        chosen = rollout["log_prob"]
        staleness = rollout.get("staleness", torch.zeros(len(chosen), dtype=torch.int64, device=chosen.device))
        weight = torch.ones_like(chosen)
        if staleness.any():
            now, _ = self.action_terms(
                gather_windows(rollout, split_windows(last, len(last))) if self.has_memory else rollout
            )
            weight = torch.where(staleness > 0, importance(now, chosen), weight)
            chosen = torch.where(staleness > 0, now, chosen)
        return {"staleness": staleness, "log_prob": chosen, "weight": weight}

    def _with_memory(self, batch: Batch) -> Batch:
        """Add the recurrent state of the actor, if any, to the batch.

        Observations get the state before each step, next observations the state after the last step of a trajectory.
        """
        if not isinstance(self.actor, Recurrent) or not self.has_memory:
            return batch
        columns = {name: column for name, column in batch.items() if name != MEMORY}
        observation = observation_of(to_tensors(columns, self.device), "obs.")
        initial = torch.as_tensor(batch[MEMORY], device=self.device)
        before, after = (to_array(part) for part in unroll_memory(self.actor, observation, initial, batch["last"]))
        final = np.zeros_like(before)
        final[batch["last"]] = after
        return {**columns, f"obs.{MEMORY_INPUT}": before, f"next_obs.{MEMORY_INPUT}": final}

    def _bootstrap(self, batch: Batch) -> Array:
        """Return a column with the value of the final observation in the last row of each trajectory.

        All other rows, and the last rows of terminated trajectories, are 0.
        """
        bootstrap = np.zeros(len(batch["reward"]), np.float32)
        continuing = np.flatnonzero(batch["last"] & ~batch["terminated"])
        if len(continuing):
            final = {name: column[continuing] for name, column in batch.items() if name.startswith("next_obs.")}
            with torch.no_grad():
                value = self.value(observation_of(to_tensors(final, self.device), "next_obs."))
            bootstrap[continuing] = to_array(value)
        return bootstrap


def explained_variance(rollout: Tensors) -> dict[str, float]:
    """Return the fraction of the variance of the returns that the critic explains; 1 means perfect predictions."""
    spread = rollout["return"].var(unbiased=False)
    unexplained = (rollout["return"] - rollout["value"]).var(unbiased=False)
    return {"value/explained_variance": float(1 - unexplained / spread) if spread > 0 else 0.0}


def staleness_metrics(rollout: Tensors) -> dict[str, float]:
    """Return the mean staleness and the mean importance weight; on-policy rollouts give 0 and 1."""
    return {
        "policy/staleness": rollout["staleness"].float().mean().item(),
        "policy/importance": rollout["weight"].mean().item(),
    }
