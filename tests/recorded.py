"""Recorded episodes of scripted policies, as a server journal or a Minari dataset."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import minari
import numpy as np
from minari.data_collector.episode_buffer import EpisodeBuffer

from rl4sys.runs.directory import RunDirectory
from rl4sys.server.journal import FILE, EncodedTrajectory, Journal, Sender
from rl4sys.spec import Array, Box, Discrete, Spec
from rl4sys.trajectory import Trajectory
from rl4sys.wire.trajectories import encode_trajectory

CARTPOLE = Spec({"state": Box((4,))}, Discrete(2))
PENDULUM = Spec({"state": Box((3,), low=(-1, -1, -8), high=(1, 1, 8))}, Box((1,), low=(-2.0,), high=(2.0,)))


def balance(state: Array, rng: np.random.Generator | None = None) -> int:
    """Push the cart towards the falling pole; this policy balances the pole for all 500 steps."""
    return int(state[2] + 0.3 * state[3] + 0.02 * state[0] + 0.05 * state[1] > 0)


def swing(state: Array, rng: np.random.Generator | None = None) -> Array:
    """Push a pendulum in the direction of its rotation."""
    return np.clip(0.4 * state[2:3] - 0.5 * state[1:2], -2, 2).astype(np.float32)


def record(
    choose: Callable[[Array, np.random.Generator], Any], episodes: int, seed: int = 0, environment: str = "CartPole-v1"
) -> list[Trajectory]:
    system, rng, recorded = gymnasium.make(environment), np.random.default_rng(seed), []
    for number in range(episodes):
        state, _ = system.reset(seed=seed * 1000 + number)
        states, actions, rewards, ended = [state], [], [], (False, False)
        while not any(ended):
            actions.append(choose(state, rng))
            state, reward, *ended, _ = system.step(actions[-1])
            states.append(state)
            rewards.append(reward)
        columns = {
            "obs.state": np.array(states, np.float32),
            "action": np.array(actions),
            "reward": np.array(rewards, np.float32),
            "log_prob": np.zeros(len(actions), np.float32),
        }
        name = seed * 1000 + number
        recorded.append(Trajectory(0, columns, name, 0, terminated=bool(ended[0]), truncated=bool(ended[1])))
    return recorded


def write_journal(run: Path, trajectories: Sequence[Trajectory], spec: Spec = CARTPOLE) -> Path:
    """Write trajectories to a journal, as a server does, and return its run directory."""
    directory = RunDirectory(run)
    directory.create_folders()
    directory.write_live_config({"spec": spec.to_json()})
    journal = Journal(run / FILE)
    sender = Sender.of("system", 1)
    entries = [
        EncodedTrajectory(sender, n, len(t), encode_trajectory(t, n)) for n, t in enumerate(trajectories, start=1)
    ]
    journal.append(entries)
    journal.close()
    return run


def write_minari_dataset(name: str, trajectories: Sequence[Trajectory], environment: str = "CartPole-v1") -> None:
    """Write trajectories as a Minari dataset to the local Minari storage."""
    made = gymnasium.make(environment)
    episodes = [
        EpisodeBuffer(
            observations=list(t.columns["obs.state"]),
            actions=list(t.columns["action"]),
            rewards=list(t.columns["reward"]),
            terminations=[False] * (len(t) - 1) + [t.terminated],
            truncations=[False] * (len(t) - 1) + [t.truncated],
        )
        for t in trajectories
    ]
    write_minari(name, episodes, made.observation_space, made.action_space)


def write_minari(name: str, episodes: list[EpisodeBuffer], observation: Any, action: Any) -> None:
    with warnings.catch_warnings():
        # Minari warns about a missing evaluation environment.
        warnings.simplefilter("ignore", UserWarning)
        minari.create_dataset_from_buffers(
            name,
            episodes,
            observation_space=observation,
            action_space=action,
            algorithm_name="scripted",
            author="tests",
            author_email="none",
            code_permalink="none",
            description="none",
        )
