"""Quickstart: start a training server, train Lunar Lander live for a few minutes, and print the result."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import mean

from rl4sys.client import RL4SysAgent
from rl4sys.command_errors import errors_as_messages
from rl4sys.examples.lunar.lunar_lander import Display, Flights, LunarLander, make_environment
from rl4sys.wire.call import Credentials, ask_status

_MAX_SECONDS = 180.0
_ROOT = Path("live")


def main() -> None:
    env = make_environment()
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
        print(f"Training Lunar Lander live for at most {_MAX_SECONDS / 60:.0f} minutes.")
        print("(A random policy crashes with a return of about -180; a mean return of 200 counts as solved.)")
        first = _fly(system, display)
        agent.flush(10.0)
        display.summary(system.flights)
        _print_result(address, first, system.flights)


@contextmanager
def _server() -> Iterator[str]:
    """Run ``rl4sys serve`` in a separate process on a free port."""
    command = [sys.executable, "-m", "rl4sys", "serve", "--port", "0", "--root", str(_ROOT)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert server.stdout is not None  # because stdout is a pipe
    try:
        first_line = server.stdout.readline()
        if not first_line:
            sys.exit(f"quickstart: the server did not start; its log is {_ROOT / 'server.log'}")
        print(first_line, end="")
        yield first_line.split()[3]
    finally:
        server.terminate()
        server.wait(60)
        server.stdout.close()


def _fly(system: LunarLander, display: Display) -> float:
    """Run until the task is solved or the time limit is reached; return the mean return of the first 100 episodes."""
    started, first = time.monotonic(), 0.0
    for flights in system.run_application(100_000, 1000):
        display.progress(flights)
        if flights.episodes <= 100:
            first = mean(flights.returns)
        if flights.solved or time.monotonic() - started > _MAX_SECONDS:
            break
    return first


def _print_result(address: str, first: float, flights: Flights) -> None:
    policy = ask_status(address, Credentials()).policies[0]
    seen = policy.steps_used + policy.steps_refused
    print(f"  return: {first:.1f} over the first 100 episodes, {mean(flights.returns):.1f} over the last")
    share = 100 * policy.steps_used / max(1, seen)
    print(f"  data used: {share:.1f} % of {seen:,} steps; {policy.version} versions trained")
    here = os.path.relpath(Path(sys.executable).parent)
    print(f"\nThe policy and its run are in {policy.run}. Next steps:")
    print(f"  {here}/rl4sys evaluate {policy.run} --environment LunarLander-v3")
    print(f"  {here}/rl4sys serve        # and in another terminal, to continue training:")
    print(f"  {here}/python -m rl4sys.examples.lunar.lunar_lander")
    print(f"  {here}/tensorboard --logdir live")


if __name__ == "__main__":
    with errors_as_messages():
        main()
