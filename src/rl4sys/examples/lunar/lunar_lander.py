"""Gymnasium's Lunar Lander as a live system: it flies, a training server learns.

Start a server with ``rl4sys serve``, then::

    python -m rl4sys.examples.lunar.lunar_lander --seed 1 --client-id lunar_lander
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median
from typing import Any

import gymnasium

from rl4sys.client import RL4SysAgent, RL4SysTrajectory
from rl4sys.errors import RL4SysError

SOLVED = 200.0
"""The mean return over 100 episodes at which Lunar Lander counts as solved."""

_WINDOW = 100
_TIMED_EVERY = 16
_SHOW_SECONDS = 1.0


@dataclass
class Flights:
    """What has been flown so far."""

    episodes: int = 0
    steps: int = 0
    returns: deque[float] = field(default_factory=lambda: deque(maxlen=_WINDOW))
    decision_microseconds: deque[float] = field(default_factory=lambda: deque(maxlen=10_000))

    def end(self, total_reward: float, moves: int) -> None:
        self.episodes += 1
        self.steps += moves
        self.returns.append(total_reward)

    @property
    def solved(self) -> bool:
        return len(self.returns) == _WINDOW and mean(self.returns) >= SOLVED


class LunarLander:
    """The loop of a system under control: ask for an action, do it, say what it was worth."""

    def __init__(self, agent: RL4SysAgent, env: gymnasium.Env[Any, Any], seed: int) -> None:
        self._agent, self._env, self._seed = agent, env, seed
        self._trajectory: RL4SysTrajectory | None = None
        self.flights = Flights()

    def run_application(self, number_of_iterations: int, number_of_moves: int) -> Iterator[Flights]:
        """Fly episode after episode, giving word after each."""
        for iteration in range(number_of_iterations):
            self._fly(iteration, number_of_moves)
            yield self.flights

    def _fly(self, iteration: int, number_of_moves: int) -> None:
        observation, _ = self._env.reset(seed=self._seed + iteration)
        total_reward, moves, terminated, truncated = 0.0, 0, False, False
        trajectory = self._trajectory
        while not (terminated or truncated):
            began = time.perf_counter_ns()
            trajectory, action = self._agent.request_for_action(trajectory, observation)
            self._time(began, moves)
            observation, reward, terminated, truncated, _ = self._env.step(action.act)
            moves += 1
            truncated = truncated or moves >= number_of_moves
            self._agent.add_to_trajectory(trajectory, action)
            action.update_reward(float(reward))
            total_reward += float(reward)
        assert trajectory is not None  # at least one move was made
        self._agent.mark_end_of_trajectory(trajectory, action, truncated=not terminated, final_observation=observation)
        self._trajectory = trajectory
        self.flights.end(total_reward, moves)

    def _time(self, began: int, moves: int) -> None:
        if moves % _TIMED_EVERY == 0:
            self.flights.decision_microseconds.append((time.perf_counter_ns() - began) / 1000)


class Display:
    """One line that is rewritten on a terminal, and a line now and then elsewhere."""

    def __init__(self, agent: RL4SysAgent) -> None:
        self._agent = agent
        self._terminal = sys.stdout.isatty()
        self._shown_at = self._started_at = time.monotonic()
        self._every = _SHOW_SECONDS if self._terminal else 10 * _SHOW_SECONDS

    def progress(self, flights: Flights) -> None:
        now = time.monotonic()
        if now - self._shown_at < self._every and not flights.solved:
            return
        self._shown_at = now
        statistics = self._agent.statistics()
        line = (
            f"episode {flights.episodes:,}  step {flights.steps:,}  "
            f"return {mean(flights.returns):7.1f} (last {len(flights.returns)})  version {statistics.version}  "
            f"decision {median(flights.decision_microseconds):.1f} µs"
        )
        line += "" if statistics.connected else "  (server away: acting with the last model)"
        print(f"\r\033[K{line}" if self._terminal else line, end="" if self._terminal else "\n", flush=True)

    def summary(self, flights: Flights) -> None:
        statistics = self._agent.statistics()
        seconds = time.monotonic() - self._started_at
        print("\n" if self._terminal else "", end="")
        print("solved: " if flights.solved else "stopped: ", end="")
        if flights.returns:
            print(f"mean return {mean(flights.returns):.1f} over the last {len(flights.returns)} episodes")
        print(f"  {flights.episodes:,} episodes, {flights.steps:,} steps in {seconds:.0f} s")
        print(f"  {statistics.versions_adopted} models adopted, the last is version {statistics.version}")
        if flights.decision_microseconds:
            print(f"  decisions took {median(flights.decision_microseconds):.1f} µs (median)")
        print(
            f"  steps acknowledged {statistics.steps_acknowledged:,}, dropped {statistics.dropped_steps:,}, "
            f"decided without a model {statistics.fallback_decisions:,}"
        )


def main(arguments: Sequence[str] | None = None, config: str = "luna_conf.json") -> int:
    options = _options(config).parse_args(arguments)
    env = gymnasium.make("LunarLander-v3", render_mode="human" if options.render else None)
    try:
        with RL4SysAgent(
            options.config,
            options.debug,
            observation_space=env.observation_space,
            action_space=env.action_space,
            client_id=options.client_id,
            server_address=options.server_address,
        ) as agent:
            system, display = LunarLander(agent, env, options.seed), Display(agent)
            with suppress(KeyboardInterrupt):
                for flights in system.run_application(options.number_of_iterations, options.number_of_moves):
                    display.progress(flights)
                    if flights.solved:
                        break
            agent.flush(10.0)
            display.summary(system.flights)
    except RL4SysError as problem:
        print(f"lunar_lander: {problem}", file=sys.stderr)
        return 2
    return 0


def _options(config: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="Fly Lunar Lander with a policy that a running RL4Sys server trains.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of the first episode; each has the next number")
    parser.add_argument("--number-of-iterations", type=int, default=10_000, help="episodes at most")
    parser.add_argument("--number-of-moves", type=int, default=1000, help="moves of an episode at most")
    parser.add_argument("--render", type=_truth, default=False, help="True shows the lander in a window")
    parser.add_argument("--client-id", default=None, help="who this client is, and the policy it trains")
    parser.add_argument("--server-address", default=None, help="host:port of the server; default: the config's")
    parser.add_argument("--config", default=str(Path(__file__).with_name(config)), help="client config, JSON or YAML")
    parser.add_argument("--debug", action="store_true", help="log everything the client does")
    return parser


def _truth(word: str) -> bool:
    if word.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"it should be True or False, got {word!r}")
    return word.lower() == "true"


if __name__ == "__main__":
    sys.exit(main())
