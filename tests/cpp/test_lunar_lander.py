"""The C++ Lunar Lander against Gymnasium's: the same laws, so the same flights for the same chance."""

from __future__ import annotations

import math
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import pytest

from rl4sys.policy.draws import Draws
from tests.cpp.conftest import Binary

lunar_lander = pytest.importorskip("gymnasium.envs.box2d.lunar_lander")

MOST_MOVES = 1000
FALSE_ALARM = 1e-4
"""How often two samples of one distribution are taken for different."""

ACTIONS = {"coast": 0, "left": 1, "main": 2, "right": 3}

Numbers = npt.NDArray[np.float64]
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@dataclass(frozen=True)
class Sample:
    """Of each flight, what it returned and how many moves it took."""

    returns: Numbers
    moves: Numbers


@pytest.fixture(scope="session")
def run(binary: Binary) -> Run:
    """Runs the program that flies by rule."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(binary("lunar_lander_flights")), *arguments]
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=240)

    return run


@pytest.mark.parametrize(
    ("policy", "wind", "episodes"),
    [("random", False, 600), ("heuristic", False, 500), ("main", False, 400), ("heuristic", True, 300)],
)
def test_flights_are_distributed_as_in_gymnasium(run: Run, policy: str, wind: bool, episodes: int) -> None:
    ours = flown_in_cpp(run, policy, episodes, *windy(wind))
    theirs = flown_in_gymnasium(policy, episodes, wind)

    assert same_distribution(ours.returns, theirs.returns) > FALSE_ALARM
    assert same_distribution(ours.moves, theirs.moves) > FALSE_ALARM


@pytest.mark.parametrize("wrong", [["--gravity", "-11"], ["--wind"]])
def test_a_wrong_lander_is_told_apart(run: Run, wrong: list[str]) -> None:
    # By the heuristic, which lives to see the difference: flown at random the lander is down too soon.
    ours = flown_in_cpp(run, "heuristic", 500, *wrong)
    theirs = flown_in_gymnasium("heuristic", 500, False)

    assert same_distribution(ours.returns, theirs.returns) < FALSE_ALARM
    assert same_distribution(ours.moves, theirs.moves) < FALSE_ALARM


@pytest.mark.parametrize("wind", [False, True])
@pytest.mark.parametrize("policy", ["coast", "random", "heuristic", "main", "left", "right"])
def test_the_same_chance_gives_the_same_first_moves(run: Run, policy: str, wind: bool) -> None:
    for seed in range(1, 9):
        ours = moves_in_cpp(run, policy, seed, *windy(wind))[:20]
        theirs = replayed_in_gymnasium(seed, ours[:, 0], wind)

        assert np.abs(ours[:, 2:] - theirs[:, 1:]).max() < 1e-4
        assert np.abs(ours[:, 1] - theirs[:, 0]).max() < 1e-2  # rewards are differences of numbers around 200


@pytest.mark.parametrize(("seed", "wrong"), [(2, []), (1, ["--gravity", "-10.1"]), (1, ["--wind"])])
def test_another_seed_or_world_gives_other_first_moves(run: Run, seed: int, wrong: list[str]) -> None:
    ours = moves_in_cpp(run, "coast", seed, *wrong)[:20]
    theirs = replayed_in_gymnasium(1, ours[:, 0], wind=False)

    assert np.abs(ours[:, 2:] - theirs[:, 1:]).max() > 1e-3


@pytest.mark.parametrize("policy", ["random", "heuristic"])
def test_the_same_chance_gives_the_same_flight_down_to_the_ground(run: Run, policy: str) -> None:
    for seed in range(1, 21):
        ours = moves_in_cpp(run, policy, seed)
        theirs = replayed_in_gymnasium(seed, ours[:, 0], wind=False)
        descent = min(_until_touchdown(ours[:, 8:]), _until_touchdown(theirs[:, 7:]))

        assert descent > 40
        # Where a leg meets the limit of its joint, Box2D 2.4 brakes it over two steps and 2.3 in one.
        assert np.abs(ours[:descent, 2:] - theirs[:descent, 1:]).max() < 0.03


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--policy", "bold"], "--policy should be random, heuristic, coast, left, main or right, got 'bold'"),
        (["--episodes", "-1"], "--episodes should be a whole number, 0 or more, got '-1'"),
        (["--gravity", "10 m/s"], "--gravity should be a number, got '10 m/s'"),
        (["--seed"], "--seed lacks its value"),
        (["--speed", "3"], "--speed is not an option; see --help"),
    ],
)
def test_a_wrong_option_is_refused_with_a_reason(run: Run, arguments: list[str], message: str) -> None:
    refused = run(*arguments)

    assert refused.returncode == 2
    assert refused.stderr == f"lunar_lander_flights: {message}\n"


def test_samples_of_one_distribution_are_rarely_told_apart() -> None:
    generator = np.random.default_rng(1)
    alike = [same_distribution(generator.normal(size=300), generator.normal(size=500)) for _ in range(400)]

    assert 0.5 * 0.1 < np.mean(np.asarray(alike) < 0.1) < 1.5 * 0.1


def test_samples_that_lie_apart_are_told_apart() -> None:
    generator = np.random.default_rng(1)

    assert same_distribution(generator.normal(size=500), generator.normal(0.5, size=500)) < FALSE_ALARM


def same_distribution(one: Numbers, other: Numbers) -> float:
    """How likely samples of one distribution lie so far apart: Kolmogorov and Smirnov's test, for large samples."""
    everywhere = np.concatenate([one, other])
    distance = np.abs(_distribution(one, everywhere) - _distribution(other, everywhere)).max()
    scaled = distance * math.sqrt(len(one) * len(other) / (len(one) + len(other)))
    if scaled < 0.3:
        return 1.0  # to nine digits, where the series below hardly converges
    return 2 * sum((-1) ** (k - 1) * math.exp(-2 * (k * scaled) ** 2) for k in range(1, 101))


def _distribution(sample: Numbers, at: Numbers) -> Numbers:
    return np.searchsorted(np.sort(sample), at, side="right") / len(sample)


def flown_in_cpp(run: Run, policy: str, episodes: int, *options: str) -> Sample:
    flown = run("--policy", policy, "--episodes", str(episodes), "--seed", "1", *options)
    assert flown.returncode == 0, flown.stderr
    rows = [line.split() for line in flown.stdout.splitlines()]
    assert len(rows) == episodes
    return Sample(np.array([float(row[0]) for row in rows]), np.array([float(row[1]) for row in rows]))


def windy(wind: bool) -> list[str]:
    return ["--wind"] if wind else []


@cache
def flown_in_gymnasium(policy: str, episodes: int, wind: bool) -> Sample:
    env = gymnasium.make("LunarLander-v3", enable_wind=wind).unwrapped
    decide = _policy(policy, env)
    flown = [_fly(env, decide, seed) for seed in range(episodes)]
    return Sample(np.array([total for total, _ in flown]), np.array([float(moves) for _, moves in flown]))


def _policy(name: str, env: Any) -> Callable[[Any], int]:
    if name == "heuristic":
        return lambda observation: lunar_lander.heuristic(env, observation)
    if name == "random":
        generator = np.random.default_rng(1)
        return lambda observation: int(generator.integers(4))
    return lambda observation: ACTIONS[name]


def _fly(env: Any, decide: Callable[[Any], int], seed: int) -> tuple[float, int]:
    observation, _ = env.reset(seed=seed)
    total, moves, terminated = 0.0, 0, False
    while not terminated and moves < MOST_MOVES:
        observation, reward, terminated, _, _ = env.step(decide(observation))
        total += float(reward)
        moves += 1
    return total, moves


def moves_in_cpp(run: Run, policy: str, seed: int, *options: str) -> Numbers:
    """A row for each move of a flight: action, reward, observation."""
    flown = run("--policy", policy, "--episodes", "1", "--seed", str(seed), "--moves", *options)
    lines = [line.split()[1:] for line in flown.stdout.splitlines() if line.startswith("move ")]
    return np.array(lines, dtype=np.float64)


def replayed_in_gymnasium(seed: int, actions: Sequence[float] | Numbers, wind: bool) -> Numbers:
    """A row for each move that the same actions give where chance is the same: reward, observation."""
    env: Any = gymnasium.make("LunarLander-v3", enable_wind=wind).unwrapped
    env.np_random = SameChance(seed)
    env.reset()
    rows = []
    for action in actions:
        observation, reward, *_ = env.step(int(action))
        rows.append([float(reward), *map(float, observation)])
    return np.array(rows)


class SameChance:
    """Stands in for numpy's generator and draws what the C++ lander draws."""

    def __init__(self, seed: int) -> None:
        self._draws = Draws(seed)

    def uniform(self, low: float, high: float, size: tuple[int] | None = None) -> Any:
        numbers = low + (high - low) * self._draws.uniforms(1 if size is None else size[0])
        return float(numbers[0]) if size is None else numbers

    def integers(self, low: int, high: int) -> int:
        return math.floor(self.uniform(0, high - low)) + low


def _until_touchdown(touching: Numbers) -> int:
    touched = touching.any(axis=1)
    return int(np.argmax(touched)) if touched.any() else len(touching)
