"""PettingZoo's parallel environments: agents that act at the same time, all with one policy."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from rl4sys.environments.actor import Episode, Recording, check_replayed, episode_seed
from rl4sys.environments.base import Environment
from rl4sys.environments.config import EnvironmentConfig
from rl4sys.environments.encoding import Encoding
from rl4sys.environments.gym import explaining
from rl4sys.errors import ConfigError, SpecError
from rl4sys.policy.base import Policy
from rl4sys.policy.draws import Draws
from rl4sys.spec import Columns, Spec, State
from rl4sys.trajectory import Trajectory

_PACKAGES = {"mpe": "mpe2"}
"""Groups of environments that have left PettingZoo for a package of their own."""
_NOT_AROUND_TEAMS = ("frame_stack", "action_repeat", "rescale_actions", "vectorized")


class _Result(NamedTuple):
    """What one agent got from a step."""

    observation: Any
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]


class _Agent(NamedTuple):
    """Which episode is an agent's, and how many steps it has had."""

    episode: int
    steps: int


@dataclass
class _Team:
    """One environment with all its agents; as an `Actor`'s environment, decided by its seed and the actions since."""

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

    def standing(self, agent: int) -> _Agent:
        return _Agent((self.episodes * self.stride + self.index) * len(self.agents) + agent, len(self.actions))

    def reset(self) -> list[tuple[Any, dict[str, Any]]]:
        if self.remake:
            self.environment.close()
            self.environment = self.make()
        self.actions, self.total_rewards = [], [0.0] * len(self.agents)
        seed = episode_seed(self.entropy, self.episodes * self.stride + self.index)
        shown, infos = self.environment.reset(seed=seed)
        return [(shown[agent], infos.get(agent, {})) for agent in self.agents]

    def step(self, actions: list[Any]) -> list[_Result]:
        self.actions.append([np.copy(a) if isinstance(a, np.ndarray) else a for a in actions])
        shown, rewards, terminated, truncated, infos = self.environment.step(
            dict(zip(self.agents, actions, strict=True))
        )
        cut = self.limit is not None and len(self.actions) >= self.limit
        results = [
            _Result(shown[a], float(rewards[a]), bool(terminated[a]), bool(truncated[a]) or cut, infos.get(a, {}))
            for a in self.agents
        ]
        self.total_rewards = [total + r.reward for total, r in zip(self.total_rewards, results, strict=True)]
        return results

    def state(self) -> State:
        return {"entropy": self.entropy, "episodes": self.episodes, "actions": np.array(self.actions)}

    def replay(self, state: State) -> list[tuple[Any, dict[str, Any]]]:
        """Back to the saved point; what each agent is shown there."""
        self.entropy, self.episodes = int(state["entropy"]), int(state["episodes"])
        shown = self.reset()
        for actions in state["actions"]:
            shown = [(result.observation, result.info) for result in self.step(list(actions))]
        return shown


class TeamActor:
    """Does what `Actor` does, with a row for each agent of each environment; an episode is one agent's."""

    def __init__(
        self,
        config: EnvironmentConfig,
        seed: np.random.SeedSequence,
        around: Callable[[Any], Any] = lambda environment: environment,
    ) -> None:
        """``around`` is put around every environment that is made."""
        _check_settings(config)
        entropy, key = (int(n) for n in seed.generate_state(2, np.uint64))
        self._teams = [
            _Team(
                lambda: around(_make_parallel(config)),
                around(_make_parallel(config)),
                entropy,
                config.num_envs,
                index,
                limit=config.max_episode_steps,
                remake=config.remake,
            )
            for index in range(config.num_envs)
        ]
        self._size = len(self._teams[0].agents)
        self._encoding = Encoding(_one_agent(self._teams[0].environment, config.name))
        self._draws = Draws(key)
        self._observation = self._encoding.empty(config.num_envs * self._size)
        self._largest_reward = np.inf if config.clip_reward is None else config.clip_reward
        self._memory: Columns = {}
        self._finished: list[Episode] = []
        for number, team in enumerate(self._teams):
            self._show(number, team.reset())

    @property
    def spec(self) -> Spec:
        return self._encoding.spec

    def collect(self, policy: Policy, version: int, steps: int) -> list[Trajectory]:
        """At least ``steps`` steps, as many by each agent; every trajectory is cut at the end."""
        rows = len(self._teams) * self._size
        length = -(-steps // rows)
        recording = Recording(self._encoding, rows, length, version)
        for step in range(length):
            decision = policy.act(self._observation, self._memory, self._draws)
            recording.write(step, self._observation, self._memory, decision)
            self._memory = decision.memory
            actions = self._encoding.to_system(decision.action)
            for number in range(len(self._teams)):
                self._step(number, step, [actions[row] for row in self._rows(number)], recording)
        for number, team in enumerate(self._teams):
            for agent, row in enumerate(self._rows(number)):
                recording.cut(row, length, team.standing(agent), self._observation)
        return recording.trajectories

    def take_finished(self) -> list[Episode]:
        """The episodes that ended since the last call."""
        finished, self._finished = self._finished, []
        return finished

    def close(self) -> None:
        for team in self._teams:
            team.environment.close()

    def state(self) -> State:
        return {
            "draws": self._draws.state(),
            "memory": {name: column.copy() for name, column in self._memory.items()},
            "observation": {name: column.copy() for name, column in self._observation.items()},
            "teams": [team.state() for team in self._teams],
        }

    def restore(self, state: State) -> None:
        """Back to the saved point; `ReplayError` if an environment, given the same actions, shows something else."""
        self._draws.restore(state["draws"])
        self._memory = {name: np.array(column) for name, column in state["memory"].items()}
        for number, (team, saved) in enumerate(zip(self._teams, state["teams"], strict=True)):
            self._show(number, team.replay(saved))
        check_replayed(self._observation, state["observation"])

    def _rows(self, number: int) -> range:
        return range(number * self._size, (number + 1) * self._size)

    def _show(self, number: int, shown: list[tuple[Any, dict[str, Any]]]) -> None:
        for row, (observation, info) in zip(self._rows(number), shown, strict=True):
            self._encoding.write(self._observation, row, observation, info)

    def _step(self, number: int, step: int, actions: list[Any], recording: Recording) -> None:
        results = self._teams[number].step(actions)
        self._show(number, [(result.observation, result.info) for result in results])
        for row, result in zip(self._rows(number), results, strict=True):
            recording.reward[row, step] = np.clip(result.reward, -self._largest_reward, self._largest_reward)
        ended = [result.terminated or result.truncated for result in results]
        if all(ended):
            self._end(number, step, results, recording)
        elif any(ended):
            raise SpecError(
                "an agent left before the others, and here the agents of an environment end together; set "
                "environment.max_episode_steps below that, or wrap it (supersuit.black_death)"
            )

    def _end(self, number: int, step: int, results: list[_Result], recording: Recording) -> None:
        team = self._teams[number]
        for agent, (row, result) in enumerate(zip(self._rows(number), results, strict=True)):
            # A cut that falls on an end is an end.
            flags = {"terminated": result.terminated, "truncated": not result.terminated}
            recording.cut(row, step + 1, team.standing(agent), self._observation, **flags)
            self._finished.append(Episode(team.total_rewards[agent], len(team.actions)))
        team.episodes += 1
        self._show(number, team.reset())
        for column in self._memory.values():
            column[self._rows(number)] = 0


def make_team(config: EnvironmentConfig) -> Environment:
    raise ConfigError(
        f"{config.name!r} is an environment of several agents, which cannot be stepped as one alone; train in it with "
        "environment.wrapper=pettingzoo"
    )


def _check_settings(config: EnvironmentConfig) -> None:
    usual = EnvironmentConfig(name=config.name)
    changed = [key for key in _NOT_AROUND_TEAMS if getattr(config, key) != getattr(usual, key)]
    if changed:
        raise ConfigError(f"environment.{changed[0]} does not go with environment.wrapper=pettingzoo; remove it")


def _make_parallel(config: EnvironmentConfig) -> Any:
    """The environment that a name such as sisl.pursuit_v5 stands for."""
    with explaining(config):
        import pettingzoo

        group, _, module = config.name.partition(".")
        package = _PACKAGES.get(group, f"{pettingzoo.__name__}.{group}")
        try:
            found = importlib.import_module(f"{package}.{module}")
        except ModuleNotFoundError as problem:
            if not str(problem.name).startswith(package):
                raise
            raise ConfigError(
                f"environment.name is {config.name!r}, which PettingZoo does not have; write its group and module, "
                "such as mpe.simple_spread_v3 or sisl.pursuit_v5"
            ) from problem
        return found.parallel_env(**config.options)


def _one_agent(environment: Any, name: str) -> Environment:
    """What any one of the agents sees and does."""
    agents = environment.possible_agents
    for kind in (environment.observation_space, environment.action_space):
        differing = [agent for agent in agents if kind(agent) != kind(agents[0])]
        if differing:
            raise SpecError(
                f"the agents of {name} share one policy, but {differing[0]} has {kind(differing[0])} and {agents[0]} "
                f"has {kind(agents[0])}; pad them to one space (supersuit.pad_observations_v0, pad_action_space_v0)"
            )
    return _View(environment)


class _View(gymnasium.Env[Any, Any]):
    """The first agent's spaces and first observation."""

    def __init__(self, environment: Any) -> None:
        self._environment, self._agent = environment, environment.possible_agents[0]
        self.observation_space = environment.observation_space(self._agent)
        self.action_space = environment.action_space(self._agent)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        shown, infos = self._environment.reset(seed=seed)
        return shown[self._agent], infos.get(self._agent, {})
