"""Record the shipped datasets of scripted policies, for experiments with `bc` and `iql`.

    python scripts/record_datasets.py                 # write rl4sys/configs/datasets/*.npz
    python scripts/record_datasets.py --folder DATA   # write to another folder

The arrays have the names of D4RL: observations, actions, rewards, terminals and timeouts, with one row per step.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

FOLDER = Path(__file__).parents[1] / "rl4sys" / "configs" / "datasets"

Array = npt.NDArray[Any]
Choose = Callable[[Array, np.random.Generator], Any]


def balance(state: Array, rng: np.random.Generator) -> np.int8:
    """Push the cart towards the falling pole; every fifth action is random."""
    if rng.random() < 0.2:
        return np.int8(rng.integers(2))
    return np.int8(state[2] + 0.3 * state[3] + 0.02 * state[0] + 0.05 * state[1] > 0)


def swing_up(state: Array, rng: np.random.Generator) -> Array:
    """Add energy until a pendulum is upright, then hold it there. Every third torque is random."""
    cosine, sine, velocity = state
    missing_energy = 15 * (1 - cosine) - velocity**2 / 2
    holds = cosine > 0.9 and abs(velocity) < 3
    torque = -8 * sine - 2 * velocity if holds else np.sign(velocity) * missing_energy
    if rng.random() < 0.33:
        torque = rng.uniform(-2, 2)
    return np.clip([torque], -2, 2).astype(np.float32)


DATASETS: dict[str, tuple[str, Choose, int]] = {
    "cartpole": ("CartPole-v1", balance, 10),
    "pendulum": ("Pendulum-v1", swing_up, 30),
}
"""Environment, policy and number of episodes of each dataset."""


def record(name: str) -> dict[str, Array]:
    """Record a dataset and return its arrays."""
    environment_name, choose, episodes = DATASETS[name]
    environment, rng = gymnasium.make(environment_name), np.random.default_rng(0)
    rows: list[tuple[Any, ...]] = []
    for seed in range(episodes):
        state, _ = environment.reset(seed=seed)
        ended = False
        while not ended:
            action = choose(state, rng)
            following, reward, terminated, truncated, _ = environment.step(action)
            rows.append((state, action, reward, terminated, truncated))
            state, ended = following, terminated or truncated
    observations, actions, rewards, terminals, timeouts = zip(*rows, strict=True)
    return {
        "observations": np.array(observations, np.float32),
        "actions": np.array(actions),
        "rewards": np.array(rewards, np.float32),
        "terminals": np.array(terminals),
        "timeouts": np.array(timeouts),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, (_, _, episodes) in DATASETS.items():
        arrays, file = record(name), folder / f"{name}.npz"
        np.savez_compressed(file, **arrays)
        mean = arrays["rewards"].sum() / episodes
        print(f"{file}: {len(arrays['rewards']):,} steps, mean return {mean:.1f}, {file.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
