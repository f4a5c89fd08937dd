"""Measure the training speed of CleanRL's PPO, re-implemented here because CleanRL is not an installable package.

As in the original, environments are stepped one after the other, the agent has two networks, tensors store the rollout,
and a loop over minibatches updates the networks in eager torch, with TensorBoard logging.
"""

from __future__ import annotations

import tempfile
from typing import Any

import gymnasium
import numpy as np
import torch
from clock import Clock, read_workload
from torch import Tensor, nn
from torch.distributions import Categorical
from torch.utils.tensorboard import SummaryWriter

GAMMA, LAMBDA, CLIP, VALUE_COEF, ENTROPY_COEF, MAX_GRAD_NORM, RATE = 0.99, 0.95, 0.2, 0.5, 0.01, 0.5, 2.5e-4


def layer(inputs: int, outputs: int, gain: float = 2**0.5) -> nn.Linear:
    made = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(made.weight, gain)
    nn.init.constant_(made.bias, 0.0)
    return made


def network(inputs: int, hidden: list[int], outputs: int, gain: float) -> nn.Sequential:
    parts: list[nn.Module] = []
    for width in hidden:
        parts += [layer(inputs, width), nn.Tanh()]
        inputs = width
    return nn.Sequential(*parts, layer(inputs, outputs, gain))


class Agent(nn.Module):
    def __init__(self, inputs: int, hidden: list[int], actions: int) -> None:
        super().__init__()
        self.actor, self.critic = network(inputs, hidden, actions, 0.01), network(inputs, hidden, 1, 1.0)

    def act_and_evaluate(
        self, observations: Tensor, action: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        distribution = Categorical(logits=self.actor(observations))
        action = distribution.sample() if action is None else action
        return action, distribution.log_prob(action), distribution.entropy(), self.critic(observations).flatten()


def make(name: str) -> Any:
    return lambda: gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.make(name))


class Rollout:
    """Observations, actions and rewards of one rollout."""

    def __init__(self, length: int, environments: Any) -> None:
        number = environments.num_envs
        self.observations = torch.zeros((length, number, *environments.single_observation_space.shape))
        self.actions = torch.zeros((length, number))
        self.log_probs, self.rewards, self.done, self.values = (torch.zeros((length, number)) for _ in range(4))

    def advantages(self, next_value: Tensor, next_done: Tensor) -> Tensor:
        advantages, later = torch.zeros_like(self.rewards), torch.zeros_like(next_value)
        for t in reversed(range(len(self.rewards))):
            last = t == len(self.rewards) - 1
            nonterminal = 1.0 - (next_done if last else self.done[t + 1])
            value = next_value if last else self.values[t + 1]
            error = self.rewards[t] + GAMMA * value * nonterminal - self.values[t]
            advantages[t] = later = error + GAMMA * LAMBDA * nonterminal * later
        return advantages


def learn(agent: Agent, optimizer: torch.optim.Adam, columns: list[Tensor], work: dict[str, Any]) -> dict[str, float]:
    observations, actions, old_log_prob, advantages, returns, old_values = columns
    order, measured = np.arange(len(observations)), {}
    for _ in range(work["epochs"]):
        np.random.shuffle(order)  # noqa: NPY002 - as CleanRL does
        for first in range(0, len(order), work["minibatch"]):
            rows = order[first : first + work["minibatch"]]
            _, log_prob, entropy, value = agent.act_and_evaluate(observations[rows], actions.long()[rows])
            log_ratio = log_prob - old_log_prob[rows]
            ratio = log_ratio.exp()
            with torch.no_grad():
                measured["kl"] = ((ratio - 1) - log_ratio).mean().item()
                measured["clipped"] = ((ratio - 1.0).abs() > CLIP).float().mean().item()
            advantage = advantages[rows]
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
            policy_loss = torch.max(-advantage * ratio, -advantage * torch.clamp(ratio, 1 - CLIP, 1 + CLIP)).mean()
            held = old_values[rows] + torch.clamp(value - old_values[rows], -CLIP, CLIP)
            errors = torch.max((value - returns[rows]) ** 2, (held - returns[rows]) ** 2)
            loss = policy_loss - ENTROPY_COEF * entropy.mean() + VALUE_COEF * 0.5 * errors.mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), MAX_GRAD_NORM)
            optimizer.step()
            measured["loss"] = loss.item()
    return measured


class Collector:
    """Sequential environments and their current observations."""

    def __init__(self, work: dict[str, Any]) -> None:
        self.environments: Any = gymnasium.vector.SyncVectorEnv(
            [make(work["environment"]) for _ in range(work["num_envs"])]
        )
        self.observations = torch.Tensor(self.environments.reset(seed=work["seed"])[0])
        self.done = torch.zeros(work["num_envs"])
        self.steps = 0

    def collect(self, agent: Agent, length: int, writer: SummaryWriter) -> Rollout:
        rollout = Rollout(length, self.environments)
        for t in range(length):
            rollout.observations[t], rollout.done[t] = self.observations, self.done
            with torch.no_grad():
                action, rollout.log_probs[t], _, rollout.values[t] = agent.act_and_evaluate(self.observations)
            rollout.actions[t] = action
            rollout.rewards[t] = self._step(action, writer)
        return rollout

    def _step(self, action: Tensor, writer: SummaryWriter) -> Tensor:
        next_observations, reward, terminated, truncated, infos = self.environments.step(action.numpy())
        self.steps += len(reward)
        self.observations, self.done = (
            torch.Tensor(next_observations),
            torch.Tensor(np.logical_or(terminated, truncated)),
        )
        if "episode" in infos:
            for total in infos["episode"]["r"][infos["_episode"]]:
                writer.add_scalar("return", total, self.steps)
        return torch.tensor(reward)


def columns_of(rollout: Rollout, agent: Agent, observations: Tensor, done: Tensor) -> list[Tensor]:
    """Flatten a rollout to one row per step."""
    with torch.no_grad():
        advantages = rollout.advantages(agent.critic(observations).flatten(), done)
    parts = (rollout.actions, rollout.log_probs, advantages, advantages + rollout.values, rollout.values)
    return [rollout.observations.flatten(0, 1), *(part.flatten() for part in parts)]


def main() -> None:
    work = read_workload()
    torch.set_num_threads(1)
    torch.manual_seed(work["seed"])
    collector = Collector(work)
    spaces = collector.environments
    agent = Agent(spaces.single_observation_space.shape[0], work["hidden"], spaces.single_action_space.n)
    optimizer = torch.optim.Adam(agent.parameters(), lr=RATE, eps=1e-5)
    clock = Clock(work["warm"])
    with tempfile.TemporaryDirectory() as folder, SummaryWriter(folder) as writer:
        while collector.steps < work["total"]:
            clock.record(collector.steps)
            rollout = collector.collect(agent, work["length"], writer)
            columns = columns_of(rollout, agent, collector.observations, collector.done)
            for name, value in learn(agent, optimizer, columns, work).items():
                writer.add_scalar(name, value, collector.steps)
        clock.record(collector.steps)
    clock.report("torch", "gymnasium")


if __name__ == "__main__":
    main()
