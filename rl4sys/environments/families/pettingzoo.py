"""PettingZoo parallel environments: agents act simultaneously and share one policy."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from rl4sys.environments.actor import Episode, TrajectoryBuilder, check_replay, episode_seed
from rl4sys.environments.base import Environment
from rl4sys.environments.config import EnvironmentConfig
from rl4sys.environments.encoding import Encoding
from rl4sys.environments.factory import config_errors
from rl4sys.errors import ConfigError, SpecError
from rl4sys.policy.base import Policy
from rl4sys.policy.draws import Draws
from rl4sys.spec import Columns, Spec, State
from rl4sys.trajectory import Trajectory

_PACKAGES = {"mpe": "mpe2"}
"""Packages of environment groups that moved out of PettingZoo, by group name."""
_UNSUPPORTED = ("frame_stack", "action_repeat", "rescale_actions", "vectorized", "wrappers")


class _Result(NamedTuple):
    """Result of a step for one agent."""

    observation: Any
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]


class _AgentPosition(NamedTuple):
    """Position of an agent: number of its current episode and number of steps taken in this episode."""

    episode: int
    steps: int


@dataclass
class _MultiAgentEnvironment:
    """Multi-agent environment with its current episode; a checkpoint stores the episode seed and the actions."""

    make: Callable[[], Any]
    environment: Any
    entropy: int
    stride: int
    index: int
    limit: int | None = None
    remake: bool = False
    episodes: int = 0
    actions: list[list[Any]] = field(default_factory=list)
    total_rewards: list[float] = field(default_factory=list)

    @property
    def agents(self) -> list[Any]:
        return list(self.environment.possible_agents)

    def position(self, agent: int) -> _AgentPosition:
        return _AgentPosition((self.episodes * self.stride + self.index) * len(self.agents) + agent, len(self.actions))

    def reset(self) -> list[tuple[Any, dict[str, Any]]]:
        if self.remake:
            self.environment.close()
            self.environment = self.make()
        self.actions, self.total_rewards = [], [0.0] * len(self.agents)
        seed = episode_seed(self.entropy, self.episodes * self.stride + self.index)
        observations, infos = self.environment.reset(seed=seed)
        return [(observations[agent], infos.get(agent, {})) for agent in self.agents]

    def step(self, actions: list[Any]) -> list[_Result]:
        self.actions.append([np.copy(a) if isinstance(a, np.ndarray) else a for a in actions])
        observations, rewards, terminated, truncated, infos = self.environment.step(
            dict(zip(self.agents, actions, strict=True))
        )
        limit_reached = self.limit is not None and len(self.actions) >= self.limit
        results = [
            _Result(
                observations[a],
                float(rewards[a]),
                bool(terminated[a]),
                bool(truncated[a]) or limit_reached,
                infos.get(a, {}),
            )
            for a in self.agents
        ]
        self.total_rewards = [total + r.reward for total, r in zip(self.total_rewards, results, strict=True)]
        return results

    def state(self) -> State:
        return {"entropy": self.entropy, "episodes": self.episodes, "actions": np.array(self.actions)}

    def replay(self, state: State) -> list[tuple[Any, dict[str, Any]]]:
        """Replay the saved actions of the current episode and return the last observation and info of each agent."""
        self.entropy, self.episodes = int(state["entropy"]), int(state["episodes"])
        observations = self.reset()
        for actions in state["actions"]:
            observations = [(result.observation, result.info) for result in self.step(list(actions))]
        return observations


class MultiAgentActor:
    """Actor for multi-agent environments, with the interface of `Actor`; each agent has its own row and episodes."""

    def __init__(
        self,
        config: EnvironmentConfig,
        seed: np.random.SeedSequence,
        wrap: Callable[[Any], Any] = lambda environment: environment,
    ) -> None:
        """Create ``config.num_envs`` environments, each wrapped by ``wrap``."""
        _check_settings(config)
        entropy, key = (int(n) for n in seed.generate_state(2, np.uint64))
        self._environments = [
            _MultiAgentEnvironment(
                lambda: wrap(_make_parallel(config)),
                wrap(_make_parallel(config)),
                entropy,
                config.num_envs,
                index,
                limit=config.max_episode_steps,
                remake=config.remake,
            )
            for index in range(config.num_envs)
        ]
        self._num_agents = len(self._environments[0].agents)
        self._encoding = Encoding(_one_agent(self._environments[0].environment, config.name))
        self._draws = Draws(key)
        self._observation = self._encoding.empty(config.num_envs * self._num_agents)
        self._max_reward = np.inf if config.clip_reward is None else config.clip_reward
        self._memory: Columns = {}
        self._finished: list[Episode] = []
        for number, environment in enumerate(self._environments):
            self._write_observations(number, environment.reset())

    @property
    def spec(self) -> Spec:
        return self._encoding.spec

    def collect(self, policy: Policy, version: int, steps: int) -> list[Trajectory]:
        """Collect at least ``steps`` steps, the same number for each agent, and return them as trajectories.

        An episode that is unfinished at the end continues in the next call, as a new trajectory.
        """
        rows = len(self._environments) * self._num_agents
        length = -(-steps // rows)
        builder = TrajectoryBuilder(self._encoding, rows, length, version)
        for step in range(length):
            decision = policy.act(self._observation, self._memory, self._draws)
            builder.write(step, self._observation, self._memory, decision)
            self._memory = decision.memory
            actions = self._encoding.decode_actions(decision.action)
            for number in range(len(self._environments)):
                self._step(number, step, [actions[row] for row in self._rows(number)], builder)
        for number, environment in enumerate(self._environments):
            for agent, row in enumerate(self._rows(number)):
                builder.cut(row, length, environment.position(agent), self._observation)
        return builder.trajectories

    def take_finished(self) -> list[Episode]:
        """Return the episodes that ended since the last call."""
        finished, self._finished = self._finished, []
        return finished

    def close(self) -> None:
        for environment in self._environments:
            environment.environment.close()

    def state(self) -> State:
        return {
            "draws": self._draws.state(),
            "memory": {name: column.copy() for name, column in self._memory.items()},
            "observation": {name: column.copy() for name, column in self._observation.items()},
            "teams": [environment.state() for environment in self._environments],
        }

    def restore(self, state: State) -> None:
        """Restore the saved state by replaying actions. Raises ReplayError if the observations then differ."""
        self._draws.restore(state["draws"])
        self._memory = {name: np.array(column) for name, column in state["memory"].items()}
        for number, (environment, saved) in enumerate(zip(self._environments, state["teams"], strict=True)):
            self._write_observations(number, environment.replay(saved))
        check_replay(self._observation, state["observation"])

    def _rows(self, number: int) -> range:
        return range(number * self._num_agents, (number + 1) * self._num_agents)

    def _write_observations(self, number: int, observations: list[tuple[Any, dict[str, Any]]]) -> None:
        for row, (observation, info) in zip(self._rows(number), observations, strict=True):
            self._encoding.write(self._observation, row, observation, info)

    def _step(self, number: int, step: int, actions: list[Any], builder: TrajectoryBuilder) -> None:
        results = self._environments[number].step(actions)
        self._write_observations(number, [(result.observation, result.info) for result in results])
        for row, result in zip(self._rows(number), results, strict=True):
            builder.reward[row, step] = np.clip(result.reward, -self._max_reward, self._max_reward)
        ended = [result.terminated or result.truncated for result in results]
        if all(ended):
            self._end(number, step, results, builder)
        elif any(ended):
            raise SpecError(
                "an agent ended its episode before the others, but all agents of an environment must end together; "
                "lower environment.max_episode_steps, or wrap the environment (supersuit.black_death)"
            )

    def _end(self, number: int, step: int, results: list[_Result], builder: TrajectoryBuilder) -> None:
        environment = self._environments[number]
        for agent, (row, result) in enumerate(zip(self._rows(number), results, strict=True)):
            # If both flags are set, the episode counts as terminated.
            flags = {"terminated": result.terminated, "truncated": not result.terminated}
            builder.cut(row, step + 1, environment.position(agent), self._observation, **flags)
            self._finished.append(Episode(environment.total_rewards[agent], len(environment.actions)))
        environment.episodes += 1
        self._write_observations(number, environment.reset())
        for column in self._memory.values():
            column[self._rows(number)] = 0


def make_pettingzoo(config: EnvironmentConfig) -> Environment:
    raise ConfigError(
        f"{config.name!r} is a multi-agent environment, which cannot be stepped by a single agent; use "
        "`rl4sys train` with environment.family=pettingzoo"
    )


def _check_settings(config: EnvironmentConfig) -> None:
    default = EnvironmentConfig(name=config.name)
    changed = [key for key in _UNSUPPORTED if getattr(config, key) != getattr(default, key)]
    if changed:
        raise ConfigError(f"environment.{changed[0]} is not supported with environment.family=pettingzoo; remove it")


def _make_parallel(config: EnvironmentConfig) -> Any:
    """Create the parallel environment ``config.name``, given as group.module, such as sisl.pursuit_v5."""
    with config_errors(config):
        import pettingzoo

        group, _, module = config.name.partition(".")
        package = _PACKAGES.get(group, f"{pettingzoo.__name__}.{group}")
        try:
            found = importlib.import_module(f"{package}.{module}")
        except ModuleNotFoundError as problem:
            if not str(problem.name).startswith(package):
                raise
            raise ConfigError(
                f"environment.name is {config.name!r}, which PettingZoo does not provide; write its group and module, "
                "such as mpe.simple_spread_v3 or sisl.pursuit_v5"
            ) from problem
        return found.parallel_env(**config.options)


def _one_agent(environment: Any, name: str) -> Environment:
    """Return a single-agent view of the environment. Raises SpecError if the spaces of the agents differ."""
    agents = environment.possible_agents
    for space_of in (environment.observation_space, environment.action_space):
        differing = [agent for agent in agents if space_of(agent) != space_of(agents[0])]
        if differing:
            raise SpecError(
                f"the agents of {name} share one policy, but {differing[0]} has {space_of(differing[0])} and "
                f"{agents[0]} has {space_of(agents[0])}; pad the spaces to be equal "
                "(supersuit.pad_observations_v0, pad_action_space_v0)"
            )
    return _FirstAgentView(environment)


class _FirstAgentView(gymnasium.Env[Any, Any]):
    """Single-agent environment with the spaces and the reset observation of the first agent; cannot be stepped."""

    def __init__(self, environment: Any) -> None:
        self._environment, self._agent = environment, environment.possible_agents[0]
        self.observation_space = environment.observation_space(self._agent)
        self.action_space = environment.action_space(self._agent)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observations, infos = self._environment.reset(seed=seed)
        return observations[self._agent], infos.get(self._agent, {})
