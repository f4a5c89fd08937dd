"""Learning from what was recorded: a server's journal, and how much better than it a policy can become."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from rl4sys.environments.config import EnvironmentConfig
from rl4sys.environments.dataset import Dataset, DatasetConfig, Player, load_dataset
from rl4sys.environments.evaluate import evaluate
from rl4sys.learner import LearnerConfig, build_learner, parse_algorithm, parse_buffer, parse_networks
from rl4sys.server.journal import FILE, Entry, Journal, Sender
from rl4sys.server.task import LIVE
from rl4sys.spec import Array, Box, Discrete, Spec
from rl4sys.trajectory import Trajectory
from rl4sys.wire.trajectories import encode_trajectory

SPEC = Spec({"state": Box((4,))}, Discrete(2))


def balance(state: Array) -> int:
    """Push to the side that the pole falls to: holds it for all 500 steps."""
    return int(state[2] + 0.3 * state[3] + 0.02 * state[0] + 0.05 * state[1] > 0)


def record(choose: Callable[[Array, np.random.Generator], int], episodes: int, seed: int = 0) -> list[Trajectory]:
    environment, rng, recorded = gymnasium.make("CartPole-v1"), np.random.default_rng(seed), []
    for number in range(episodes):
        state, _ = environment.reset(seed=seed * 1000 + number)
        states, actions, rewards, ended = [state], [], [], (False, False)
        while not any(ended):
            actions.append(choose(state, rng))
            state, reward, *ended, _ = environment.step(actions[-1])
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


def keep(run: Path, trajectories: list[Trajectory]) -> None:
    """As a server would have."""
    (run / LIVE).parent.mkdir(parents=True)
    (run / LIVE).write_text(json.dumps({"spec": SPEC.to_json()}))
    journal = Journal(run / FILE)
    sender = Sender.of("system", 1)
    entries = [Entry(sender, n, len(t), encode_trajectory(t, n)) for n, t in enumerate(trajectories, start=1)]
    journal.append(entries)
    journal.close()


def learnt_from(dataset: Dataset, updates: int, seed: int = 1, **options: Any) -> float:
    """How long the pole is held by a policy learnt so, at most 500."""
    config = LearnerConfig(
        algorithm=parse_algorithm({"train_frequency": 100, "gradient_steps": 5, "batch_size": 128, **options}),
        networks=parse_networks({}, options["name"]),
        buffer=parse_buffer({"size": dataset.steps}, options["name"]),
    )
    learner, player = build_learner(dataset.spec, config, seed), Player(dataset, np.random.SeedSequence(seed))
    done = 0
    while done < updates:
        done += len(learner.learn(player.collect(learner.policy(), learner.version, learner.wants())))
    environment = EnvironmentConfig(name="CartPole-v1")
    return evaluate(environment, learner.policy().greedy(), 20, 7).mean_return


def test_cloning_a_systems_rule_from_its_journal_reaches_it(tmp_path: Path) -> None:
    keep(tmp_path / "policy", record(lambda state, _: balance(state), 12))
    dataset = load_dataset(DatasetConfig(type="journal", path=str(tmp_path / "policy")))
    assert dataset.spec == SPEC
    assert dataset.steps == 12 * 500
    assert learnt_from(dataset, 800, name="bc") > 475


def test_learning_values_beats_cloning_where_what_was_done_was_mixed() -> None:
    def mostly_wrong(state: Array, rng: np.random.Generator) -> int:
        return balance(state) ^ int(rng.random() < 0.55)

    dataset = Dataset(SPEC, tuple(record(mostly_wrong, 400, seed=1)))
    cloned = learnt_from(dataset, 2000, name="bc")
    valued = learnt_from(dataset, 2000, name="iql", expectile=0.9, temperature=10.0, lr=1e-3)
    print("\nrecorded", dataset.steps / 400, "cloned", cloned, "iql", valued)
    assert valued > 1.5 * cloned
