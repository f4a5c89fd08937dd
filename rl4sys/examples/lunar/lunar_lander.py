"""Lunar Lander as a live system: it acts through the client while a training server learns.

Start a server with ``rl4sys serve``, then run one of these commands::

    python -m rl4sys.examples.lunar.lunar_lander --seed 1 --client-id lunar_lander
    python lunar_lander.py --debug
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
from typing import TYPE_CHECKING, Any

if __name__ == "__main__":
    # Python puts the folder of a script first on sys.path, where its files would shadow modules of other packages.
    sys.path[:] = [entry for entry in sys.path if entry != str(Path(__file__).resolve().parent)]

from rl4sys.client import RL4SysAgent, RL4SysTrajectory
from rl4sys.errors import RL4SysError
from rl4sys.extras import needed_by

if TYPE_CHECKING:
    import gymnasium

__path__ = [str(Path(__file__).parent)]
"""Lets ``python -m rl4sys.examples.lunar.lunar_lander.py`` find ``py.py`` in this folder."""

SOLVED = 200.0
"""Mean return over 100 episodes at which Lunar Lander counts as solved."""

_WINDOW = 100
_TIMED_EVERY = 16
_SHOW_SECONDS = 1.0


@dataclass
class Flights:
    """Statistics of all flights (episodes): their number and steps, and recent returns and decision times."""

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
    """Control loop of the live system: requests an action, applies it and reports the reward."""

    def __init__(self, agent: RL4SysAgent, env: gymnasium.Env[Any, Any], seed: int) -> None:
        self._agent, self._env, self._seed = agent, env, seed
        self._trajectory: RL4SysTrajectory | None = None
        self.flights = Flights()

    def run_application(self, number_of_iterations: int, number_of_moves: int) -> Iterator[Flights]:
        """Run episodes and yield the statistics after each episode."""
        for iteration in range(number_of_iterations):
            self._fly(iteration, number_of_moves)
            yield self.flights

    def _fly(self, iteration: int, number_of_moves: int) -> None:
        observation, _ = self._env.reset(seed=self._seed + iteration)
        total_reward, moves, terminated, truncated = 0.0, 0, False, False
        trajectory = self._trajectory
        while not (terminated or truncated):
            started = time.perf_counter_ns()
            trajectory, action = self._agent.request_for_action(trajectory, observation)
            self._record_decision_time(started, moves)
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

    def _record_decision_time(self, started: int, moves: int) -> None:
        if moves % _TIMED_EVERY == 0:
            self.flights.decision_microseconds.append((time.perf_counter_ns() - started) / 1000)


class Display:
    """Progress line, which is updated in place on a terminal and otherwise printed every ten seconds."""

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
        line += "" if statistics.connected else "  (server unreachable: acting with the last model)"
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
            f"fallback decisions {statistics.fallback_decisions:,}"
        )


def main(arguments: Sequence[str] | None = None, config: str = "luna_conf.json") -> int:
    options = _make_parser(config).parse_args(arguments)
    try:
        env = make_environment(render=options.render)
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
    except RL4SysError as error:
        print(f"lunar_lander: {error}", file=sys.stderr)
        return 2
    return 0


def make_environment(*, render: bool = False) -> gymnasium.Env[Any, Any]:
    """Create the environment. Raises `MissingExtraError` if Gymnasium or Box2D is not installed."""
    with needed_by("Lunar Lander"):
        import gymnasium

        try:
            return gymnasium.make("LunarLander-v3", render_mode="human" if render else None)
        except gymnasium.error.DependencyNotInstalled as problem:
            raise (problem.__cause__ or problem) from None


def _make_parser(config: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="Fly Lunar Lander with a policy that a running RL4Sys server trains.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument(
        "--seed", type=int, default=1, help="seed of the first episode; each following episode uses the next number"
    )
    parser.add_argument("--number-of-iterations", type=int, default=10_000, help="maximum number of episodes")
    parser.add_argument("--number-of-moves", type=int, default=1000, help="maximum number of steps per episode")
    parser.add_argument("--render", type=_parse_bool, default=False, help="True to show the lander in a window")
    parser.add_argument("--client-id", default=None, help="name of this client and of the policy it trains")
    parser.add_argument(
        "--server-address", default=None, help="host:port of the server; default: the address in the config"
    )
    parser.add_argument("--config", default=str(Path(__file__).with_name(config)), help="client config, JSON or YAML")
    parser.add_argument("--debug", action="store_true", help="log debug messages")
    return parser


def _parse_bool(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"expected True or False, got {text!r}")
    return text.lower() == "true"


if __name__ == "__main__":
    sys.exit(main())
