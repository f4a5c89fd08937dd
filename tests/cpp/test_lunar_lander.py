"""Comparison of the C++ Lunar Lander with the environment of Gymnasium."""

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

MAX_MOVES = 1000
SIGNIFICANCE = 1e-4
"""Significance level: probability of rejecting two samples of the same distribution."""

ACTIONS = {"coast": 0, "left": 1, "main": 2, "right": 3}

Numbers = npt.NDArray[np.float64]
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@dataclass(frozen=True)
class Sample:
    """Return and number of moves of each flight."""

    returns: Numbers
    moves: Numbers


@pytest.fixture(scope="session")
def run(binary: Binary) -> Run:
    """Return a function that runs the C++ program lunar_lander_flights."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(binary("lunar_lander_flights")), *arguments]
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=240)

    return run


@pytest.mark.parametrize(
    ("policy", "wind", "episodes"),
    [("random", False, 600), ("heuristic", False, 500), ("main", False, 400), ("heuristic", True, 300)],
)
def test_return_and_move_distributions_match_gymnasium(run: Run, policy: str, wind: bool, episodes: int) -> None:
    ours = fly_in_cpp(run, policy, episodes, *windy(wind))
    theirs = fly_in_gymnasium(policy, episodes, wind)

    assert p_value(ours.returns, theirs.returns) > SIGNIFICANCE
    assert p_value(ours.moves, theirs.moves) > SIGNIFICANCE


@pytest.mark.parametrize("wrong", [["--gravity", "-11"], ["--wind"]])
def test_modified_physics_is_detected(run: Run, wrong: list[str]) -> None:
    # This test needs the heuristic policy, because random flights are too short to show a difference.
    ours = fly_in_cpp(run, "heuristic", 500, *wrong)
    theirs = fly_in_gymnasium("heuristic", 500, False)

    assert p_value(ours.returns, theirs.returns) < SIGNIFICANCE
    assert p_value(ours.moves, theirs.moves) < SIGNIFICANCE


@pytest.mark.parametrize("wind", [False, True])
@pytest.mark.parametrize("policy", ["coast", "random", "heuristic", "main", "left", "right"])
def test_first_moves_match_gymnasium_for_same_random_numbers(run: Run, policy: str, wind: bool) -> None:
    for seed in range(1, 9):
        ours = moves_in_cpp(run, policy, seed, *windy(wind))[:20]
        theirs = replay_in_gymnasium(seed, ours[:, 0], wind)

        assert np.abs(ours[:, 2:] - theirs[:, 1:]).max() < 1e-4
        assert np.abs(ours[:, 1] - theirs[:, 0]).max() < 1e-2  # each reward is a difference of two values around 200


@pytest.mark.parametrize(("seed", "wrong"), [(2, []), (1, ["--gravity", "-10.1"]), (1, ["--wind"])])
def test_first_moves_differ_for_another_seed_or_physics(run: Run, seed: int, wrong: list[str]) -> None:
    ours = moves_in_cpp(run, "coast", seed, *wrong)[:20]
    theirs = replay_in_gymnasium(1, ours[:, 0], wind=False)

    assert np.abs(ours[:, 2:] - theirs[:, 1:]).max() > 1e-3


@pytest.mark.parametrize("policy", ["random", "heuristic"])
def test_flight_until_touchdown_matches_gymnasium_for_same_random_numbers(run: Run, policy: str) -> None:
    for seed in range(1, 21):
        ours = moves_in_cpp(run, policy, seed)
        theirs = replay_in_gymnasium(seed, ours[:, 0], wind=False)
        descent = min(_until_touchdown(ours[:, 8:]), _until_touchdown(theirs[:, 7:]))

        assert descent > 40
        # At a joint limit, Box2D 2.4 brakes a leg over two steps, Box2D 2.3 over one.
        assert np.abs(ours[:descent, 2:] - theirs[:descent, 1:]).max() < 0.03


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--policy", "bold"], "--policy is 'bold'; expected random, heuristic, coast, left, main or right"),
        (["--episodes", "-1"], "--episodes is '-1'; expected an integer of at least 0"),
        (["--gravity", "10 m/s"], "--gravity is '10 m/s'; expected a number"),
        (["--seed"], "--seed needs a value"),
        (["--speed", "3"], "--speed is not an option; see --help"),
    ],
)
def test_invalid_option_is_rejected(run: Run, arguments: list[str], message: str) -> None:
    refused = run(*arguments)

    assert refused.returncode == 2
    assert refused.stderr == f"lunar_lander_flights: {message}\n"


def test_p_values_of_equal_distributions_are_uniform() -> None:
    generator = np.random.default_rng(1)
    alike = [p_value(generator.normal(size=300), generator.normal(size=500)) for _ in range(400)]

    assert 0.5 * 0.1 < np.mean(np.asarray(alike) < 0.1) < 1.5 * 0.1


def test_different_distributions_are_detected() -> None:
    generator = np.random.default_rng(1)

    assert p_value(generator.normal(size=500), generator.normal(0.5, size=500)) < SIGNIFICANCE


def p_value(one: Numbers, other: Numbers) -> float:
    """Return the p-value of the two-sample Kolmogorov-Smirnov test (asymptotic)."""
    everywhere = np.concatenate([one, other])
    distance = np.abs(_distribution(one, everywhere) - _distribution(other, everywhere)).max()
    scaled = distance * math.sqrt(len(one) * len(other) / (len(one) + len(other)))
    if scaled < 0.3:
        return 1.0  # exact to nine digits; for such small values the series below converges slowly
    return 2 * sum((-1) ** (k - 1) * math.exp(-2 * (k * scaled) ** 2) for k in range(1, 101))


def _distribution(sample: Numbers, at: Numbers) -> Numbers:
    return np.searchsorted(np.sort(sample), at, side="right") / len(sample)


def fly_in_cpp(run: Run, policy: str, episodes: int, *options: str) -> Sample:
    flown = run("--policy", policy, "--episodes", str(episodes), "--seed", "1", *options)
    assert flown.returncode == 0, flown.stderr
    rows = [line.split() for line in flown.stdout.splitlines()]
    assert len(rows) == episodes
    return Sample(np.array([float(row[0]) for row in rows]), np.array([float(row[1]) for row in rows]))


def windy(wind: bool) -> list[str]:
    return ["--wind"] if wind else []


@cache
def fly_in_gymnasium(policy: str, episodes: int, wind: bool) -> Sample:
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
    while not terminated and moves < MAX_MOVES:
        observation, reward, terminated, _, _ = env.step(decide(observation))
        total += float(reward)
        moves += 1
    return total, moves


def moves_in_cpp(run: Run, policy: str, seed: int, *options: str) -> Numbers:
    """Return one row per move: action, reward, observation."""
    flown = run("--policy", policy, "--episodes", "1", "--seed", str(seed), "--moves", *options)
    lines = [line.split()[1:] for line in flown.stdout.splitlines() if line.startswith("move ")]
    return np.array(lines, dtype=np.float64)


def replay_in_gymnasium(seed: int, actions: Sequence[float] | Numbers, wind: bool) -> Numbers:
    """Replay actions with the same random numbers; returns one row per move: reward, observation."""
    env: Any = gymnasium.make("LunarLander-v3", enable_wind=wind).unwrapped
    env.np_random = SharedDraws(seed)
    env.reset()
    rows = []
    for action in actions:
        observation, reward, *_ = env.step(int(action))
        rows.append([float(reward), *map(float, observation)])
    return np.array(rows)


class SharedDraws:
    """Replacement for the numpy generator with the random numbers of the C++ lander."""

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
