"""All of it in a few minutes: a training server, a lander that learns with it, and what came of it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import mean

import gymnasium

from rl4sys.client import RL4SysAgent
from rl4sys.examples.lunar.lunar_lander import Display, Flights, LunarLander
from rl4sys.wire.call import Credentials, ask_status

_LONGEST_SECONDS = 180.0
_ROOT = Path("live")


def main() -> None:
    env = gymnasium.make("LunarLander-v3")
    config = Path(__file__).with_name("luna_conf.json")
    with (
        _server() as address,
        RL4SysAgent(
            config,
            observation_space=env.observation_space,
            action_space=env.action_space,
            server_address=address,
        ) as agent,
    ):
        system, display = LunarLander(agent, env, seed=1), Display(agent)
        print(f"Lunar Lander flies and the server learns, for at most {_LONGEST_SECONDS / 60:.0f} minutes.")
        print(
            "(At random it crashes, for a return of about -180; landing well gives over 200, which counts as solved.)"
        )
        first = _fly(system, display)
        agent.flush(10.0)
        display.summary(system.flights)
        _tell(address, first, system.flights)


@contextmanager
def _server() -> Iterator[str]:
    """``rl4sys serve`` in a process of its own, on a free port."""
    command = [sys.executable, "-m", "rl4sys", "serve", "--port", "0", "--root", str(_ROOT)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert server.stdout is not None  # as asked for
    try:
        announced = server.stdout.readline()
        if not announced:
            sys.exit(f"quickstart: the server did not start; its log is {_ROOT / 'server.log'}")
        print(announced, end="")
        yield announced.split()[3]
    finally:
        server.terminate()
        server.wait(60)
        server.stdout.close()


def _fly(system: LunarLander, display: Display) -> float:
    """Until it is solved or time is up; returns how it was at first."""
    began, first = time.monotonic(), 0.0
    for flights in system.run_application(100_000, 1000):
        display.progress(flights)
        if flights.episodes <= 100:
            first = mean(flights.returns)
        if flights.solved or time.monotonic() - began > _LONGEST_SECONDS:
            break
    return first


def _tell(address: str, first: float, flights: Flights) -> None:
    policy = ask_status(address, Credentials()).policies[0]
    learnt = policy.steps_used + policy.steps_refused
    print(f"  return: {first:.1f} over the first 100 episodes, {mean(flights.returns):.1f} over the last")
    share = 100 * policy.steps_used / max(1, learnt)
    print(f"  data used: {share:.1f} % of {learnt:,} steps; {policy.version} versions made")
    here = os.path.relpath(Path(sys.executable).parent)
    print(f"\nThe policy and its run are in {policy.run}. Go on:")
    print(f"  {here}/rl4sys evaluate {policy.run} --environment LunarLander-v3")
    print(f"  {here}/rl4sys serve        # and in another terminal, to let it learn on:")
    print(f"  {here}/python -m rl4sys.examples.lunar.lunar_lander")
    print(f"  {here}/tensorboard --logdir live")


if __name__ == "__main__":
    main()
