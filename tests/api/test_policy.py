"""Tests of `rl4sys.Policy`: observations and actions of environments, batches, seeds, memory and loading."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import rl4sys
from rl4sys.errors import ConfigError, NumericalError, SpecError
from rl4sys.policy.draws import Draws


def train(root: Path, environment: Any, **settings: Any) -> Any:
    common: dict[str, Any] = {"root": root, "progress": False, "total_timesteps": 256, "buffer": {"size": 128}}
    return rl4sys.train(algorithm="ppo", environment=environment, **common, **settings)


class Spaces(gymnasium.Env[Any, Any]):
    """Environment with given spaces. Observations are random samples of the observation space."""

    def __init__(self, observation: spaces.Space[Any], action: spaces.Space[Any], *, masked: bool = False) -> None:
        self.observation_space, self.action_space, self._masked = observation, action, masked

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.time = 0
        return self.observation_space.sample(), self._info()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        return self.observation_space.sample(), 0.0, False, self.time == 16, self._info()

    def _info(self) -> dict[str, Any]:
        return {"action_mask": np.array([True, False, True])} if self._masked else {}


BOX = spaces.Box(-1.0, 1.0, (3,))
OBSERVATIONS = {
    "box": BOX,
    "matrix": spaces.Box(-1.0, 1.0, (2, 3)),
    "discrete": spaces.Discrete(4),
    "dict": spaces.Dict({"arm": BOX, "sensors": spaces.Tuple([BOX, spaces.Discrete(3)])}),
}
ACTIONS = {
    "discrete": spaces.Discrete(3),
    "discrete from 5": spaces.Discrete(3, start=5),
    "multi discrete": spaces.MultiDiscrete([2, 3]),
    "multi binary": spaces.MultiBinary(3),
    "box": spaces.Box(-2.0, 2.0, (2,)),
}


@pytest.mark.parametrize("observation", OBSERVATIONS.values(), ids=OBSERVATIONS.keys())
def test_act_accepts_observations_of_the_environment(tmp_path: Path, observation: spaces.Space[Any]) -> None:
    policy = train(tmp_path, lambda: Spaces(observation, spaces.Discrete(3))).policy()
    observation.seed(1)
    actions = {policy.act(observation.sample()) for _ in range(50)}
    assert actions == {0, 1, 2}, "actions are sampled"
    sample = observation.sample()
    assert len({policy.act(sample, deterministic=True) for _ in range(20)}) == 1


@pytest.mark.parametrize("action", ACTIONS.values(), ids=ACTIONS.keys())
def test_act_returns_elements_of_the_action_space(tmp_path: Path, action: spaces.Space[Any]) -> None:
    policy = train(tmp_path, lambda: Spaces(BOX, action)).policy()
    assert policy.act(BOX.sample()) in action
    batch = policy.act(np.stack([BOX.sample() for _ in range(5)]))
    assert batch.shape[0] == 5
    assert all(one in action for one in batch)


def test_batch_and_single_observations_give_equal_actions(tmp_path: Path) -> None:
    policy = train(
        tmp_path, "Pendulum-v1", network={"actor": {"hidden_dims": [8]}, "critic": {"hidden_dims": [8]}}
    ).policy()
    rows = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
    singles = [policy.act(row, deterministic=True) for row in rows]
    assert np.array_equal(policy.act(rows, deterministic=True), singles)
    assert len(np.unique(singles)) == 6


def test_equal_seeds_give_equal_actions(tmp_path: Path) -> None:
    policy = train(tmp_path, "CartPole-v1").policy(seed=4)
    row = [0.0, 0.0, 0.0, 0.0]
    first = [policy.act(row) for _ in range(40)]
    policy.seed(4)
    assert [policy.act(row) for _ in range(40)] == first
    policy.seed(5)
    assert [policy.act(row) for _ in range(40)] != first


def test_mask_restricts_actions(tmp_path: Path) -> None:
    policy = train(tmp_path, lambda: Spaces(BOX, spaces.Discrete(3), masked=True)).policy()
    assert {policy.act(BOX.sample(), mask=[False, True, False]) for _ in range(20)} == {1}
    assert {policy.act(BOX.sample()) for _ in range(60)} == {0, 1, 2}, "all actions are legal without a mask"
    with pytest.raises(SpecError, match="allows no action; each action dimension"):
        policy.act(BOX.sample(), mask=[False, False, False])


def test_recurrent_policy_keeps_its_state_until_reset(tmp_path: Path) -> None:
    recurrent = {"actor": {"type": "gru", "hidden_dims": [8]}, "critic": {"hidden_dims": [8]}}
    policy = train(tmp_path, "Pendulum-v1", network=recurrent).policy()
    row = np.array([0.5, -0.5, 1.0], np.float32)
    first, second = policy.act(row, deterministic=True), policy.act(row, deterministic=True)
    assert not np.array_equal(first, second)
    policy.reset()
    assert np.array_equal(policy.act(row, deterministic=True), first)
    with pytest.raises(SpecError, match=r"for 1 observations, but 2 were given; call reset\(\) first"):
        policy.act([row, row])
    action, state = policy.predict(row, deterministic=True)
    assert np.array_equal(action, first)
    assert np.array_equal(policy.predict(row, state, deterministic=True)[0], second)
    restarted = policy.predict(row, state, episode_start=[True], deterministic=True)
    assert np.array_equal(restarted[0], first)


def test_loading_a_policy_file_does_not_import_torch(tmp_path: Path) -> None:
    run = train(tmp_path, "CartPole-v1")
    file = run.policy().save(tmp_path / "new folder" / "policy.safetensors")
    script = (
        "import sys, rl4sys\n"
        f"print(rl4sys.load_policy({str(file)!r}).act([0.0, 0.0, 0.0, 0.0], deterministic=True))\n"
        "assert not {'torch', 'gymnasium', 'grpc'} & {*sys.modules}\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == run.policy().act([0.0] * 4, deterministic=True)


def test_act_and_decide_return_equal_actions(tmp_path: Path) -> None:
    run = train(tmp_path, "CartPole-v1")
    policy, draws = run.policy(seed=7), Draws(0)
    rows = np.random.default_rng(1).normal(size=(30, 4)).astype(np.float32)
    policy.seed(7)
    actions = [policy.act(row) for row in rows]
    draws.restore(run.policy(seed=7)._draws.state())
    assert [policy.decide(row, None, draws)[0] for row in rows] == actions
    assert len(set(actions)) == 2


@pytest.mark.parametrize("source", ["run", "directory", "id", "checkpoint", "file"])
def test_load_policy_accepts_a_run_a_checkpoint_and_a_file(
    tmp_path: Path, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = train(tmp_path / "experiments", "CartPole-v1")
    checkpoint = run.path / "checkpoints" / run.checkpoints[-1]
    given = {
        "run": run,
        "directory": run.path,
        "id": run.id,
        "checkpoint": checkpoint,
        "file": checkpoint / "policy.safetensors",
    }[source]
    assert rl4sys.load_policy(given).act([0.0] * 4, deterministic=True) in (0, 1)


@pytest.mark.parametrize(
    ("observation", "error", "message"),
    [
        ([0.0, 0.0, 0.0], SpecError, r"has shape \(3,\); expected \(4,\), or \(N, 4\) for a batch"),
        ([0.0, 0.0, 0.0, float("nan")], NumericalError, "an observation or a weight is NaN or too large"),
        (["a", "b", "c", "d"], SpecError, "expected numbers"),
        ([[0.0], [0.0, 1.0]], SpecError, "cannot be converted to an array"),
        ({"pole": [0.0] * 4}, SpecError, r"has the names \['pole'\]; expected \['state'\]"),
        (np.zeros((0, 4)), SpecError, r"has shape \(0, 4\)"),
    ],
    ids=["short", "NaN", "text", "ragged", "named", "empty batch"],
)
def test_invalid_observation_is_rejected(
    tmp_path: Path, observation: Any, error: type[Exception], message: str
) -> None:
    policy = train(tmp_path, "CartPole-v1").policy()
    with pytest.raises(error, match=message):
        policy.act(observation)
    with pytest.raises(SpecError, match="was trained without an action mask"):
        policy.act([0.0] * 4, mask=[True, False])


def test_unknown_checkpoint_is_rejected(tmp_path: Path) -> None:
    run = train(tmp_path, "CartPole-v1")
    with pytest.raises(rl4sys.RL4SysError, match="9"):
        run.policy(9)
    with pytest.raises(ConfigError, match="is a policy file; remove checkpoint"):
        rl4sys.load_policy(run.policy().save(tmp_path / "p.safetensors"), checkpoint="best")
