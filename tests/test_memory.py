"""Memory (recurrent state) of policies: in decisions, trajectories, buffers, messages and the recorder."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from rl4sys.buffers.base import Demand, transitions
from rl4sys.buffers.rollout import Rollout, RolloutConfig
from rl4sys.buffers.uniform import Replay
from rl4sys.client.layout import Layout
from rl4sys.client.recorder import NumpyRecorder
from rl4sys.client.recording import Recording
from rl4sys.environments.actor import Actor
from rl4sys.errors import NumericalError, SpecError
from rl4sys.networks.base import Blueprint, Recurrent, build_network
from rl4sys.networks.recurrent import RecurrentConfig
from rl4sys.networks.torch_policy import TorchPolicy
from rl4sys.normalization import NormalizedPolicy, ObservationNormalizer
from rl4sys.policy import snapshot_policy
from rl4sys.policy.base import Policy
from rl4sys.policy.draws import Draws
from rl4sys.policy.numpy_program import NumpyProgram
from rl4sys.policy.program import Operation, Program
from rl4sys.policy.snapshot_policy import SnapshotPolicy
from rl4sys.spec import Array, Box, Discrete, Spec
from rl4sys.trajectory import MEMORY, Trajectory
from rl4sys.wire.trajectories import check_trajectory, decode_trajectory, encode_trajectory

SPEC = Spec({"state": Box((2,))}, Discrete(3))
SIZE = 4


@pytest.fixture(autouse=True)
def numpy_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the numpy implementation. Other tests compare it with the native core."""
    monkeypatch.setattr(snapshot_policy, "NATIVE", False)


def torch_policy(kind: str = "gru", gain: float = 5.0) -> TorchPolicy:
    config = RecurrentConfig(type=kind, hidden_dims=[5], hidden_size=SIZE if kind == "gru" else SIZE // 2)
    network = build_network(config, Blueprint(SPEC, 3, output_gain=gain, allow_memory=True), seed=4)
    return TorchPolicy(SPEC, network, Operation("categorical"))


class RandomEnvironment(gymnasium.Env[Any, Any]):
    """Environment with random observations and episode lengths."""

    def __init__(self) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(1, 9))
        return self._observation(), {}

    def step(self, action: int) -> Any:
        self.left -= 1
        return self._observation(), float(action), self.left == 0, False, {}

    def _observation(self) -> Array:
        return self.np_random.standard_normal(2).astype(np.float32)


def collected(policy: Policy, rounds: int = 4) -> list[Trajectory]:
    actor = Actor(RandomEnvironment, num_envs=3, seed=np.random.SeedSequence(1))
    return [trajectory for _ in range(rounds) for trajectory in actor.collect(policy, version=0, steps=15)]


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_network_reproduces_log_probabilities_from_recorded_memory(kind: str) -> None:
    policy = torch_policy(kind)
    trajectories = collected(policy)
    network: Any = policy.network
    assert isinstance(network, Recurrent)
    for trajectory in trajectories:
        seen = {"state": torch.from_numpy(trajectory.columns["obs.state"][:-1])[None]}
        with torch.no_grad():
            logits = network.sequence(seen, torch.from_numpy(trajectory.columns[MEMORY]))[0]
        chosen = logits.log_softmax(-1).numpy()[np.arange(len(trajectory)), trajectory.columns["action"]]
        np.testing.assert_allclose(chosen, trajectory.columns["log_prob"], atol=1e-5)
    continued = [bool(trajectory.columns[MEMORY].any()) for trajectory in trajectories]
    assert continued == [trajectory.offset > 0 for trajectory in trajectories]
    assert {trajectory.columns[MEMORY].shape for trajectory in trajectories} == {(1, SIZE)}
    assert any(continued), "some trajectory should continue an episode"
    assert sum(trajectory.ended for trajectory in trajectories) > 5


def test_snapshot_and_network_have_the_same_memory() -> None:
    policy = torch_policy()
    live, frozen = collected(policy), collected(SnapshotPolicy(policy.snapshot(0)))
    for one, other in zip(live, frozen, strict=True):
        assert one.columns["action"].tolist() == other.columns["action"].tolist()
        np.testing.assert_allclose(one.columns[MEMORY], other.columns[MEMORY], atol=1e-5)
        np.testing.assert_allclose(one.columns["log_prob"], other.columns["log_prob"], atol=1e-5)


def test_normalized_recurrent_policy_equals_its_snapshot() -> None:
    normalizer = ObservationNormalizer(SPEC)
    for trajectory in collected(torch_policy()):
        normalizer.update(trajectory)
    normalizer.activate()
    policy = NormalizedPolicy(torch_policy(), normalizer)
    live, frozen = collected(policy), collected(SnapshotPolicy(policy.snapshot(0)))
    assert [t.columns["action"].tolist() for t in live] == [t.columns["action"].tolist() for t in frozen]
    np.testing.assert_allclose(live[-1].columns[MEMORY], frozen[-1].columns[MEMORY], atol=1e-5)


def test_restored_actor_continues_with_the_same_memory() -> None:
    policy = torch_policy()
    first, second = (Actor(RandomEnvironment, num_envs=2, seed=np.random.SeedSequence(2)) for _ in range(2))
    first.collect(policy, version=0, steps=10)
    second.restore(first.state())
    for one, other in zip(*(actor.collect(policy, 0, 12) for actor in (first, second)), strict=True):
        assert one.columns.keys() == other.columns.keys()
        assert all(np.array_equal(one.columns[name], other.columns[name]) for name in one.columns)


@pytest.mark.parametrize("frozen", [False, True])
def test_policy_starts_with_zero_memory_and_returns_a_new_array(frozen: bool) -> None:
    policy: Policy = SnapshotPolicy(torch_policy().snapshot(0)) if frozen else torch_policy()
    seen = {"state": np.array([[1, 2], [3, 4]], np.float32)}
    zeros = {MEMORY: np.zeros((2, SIZE), np.float32)}
    one, other = policy.act(seen, {}, Draws(0)), policy.act(seen, zeros, Draws(0))
    assert not zeros[MEMORY].any()
    assert one.memory[MEMORY].any()
    assert one.memory[MEMORY].dtype == np.float32
    assert one.memory[MEMORY].tolist() == other.memory[MEMORY].tolist()
    after = policy.act(seen, one.memory, Draws(0))
    assert after.memory[MEMORY].tolist() != one.memory[MEMORY].tolist()
    invalid = {"state": np.array([[1, np.nan], [3, 4]], np.float32)}
    kept = policy.act(invalid, one.memory, Draws(0)).memory[MEMORY]
    assert (kept == one.memory[MEMORY]).all(axis=1).tolist() == [True, False]


def test_feedforward_policy_returns_no_memory() -> None:
    program = Program((), Operation("argmax"))
    policy = SnapshotPolicy(snapshot_policy.Snapshot(0, Spec({"state": Box((3,))}, Discrete(3)), program, {}))
    assert policy.act({"state": np.zeros((1, 3), np.float32)}, {}, Draws(0)).memory == {}


def trajectory(steps: int, first: int, **columns: Array) -> Trajectory:
    plain = {
        "obs.state": np.zeros((steps + 1, 2), np.float32),
        "action": np.zeros(steps, np.int64),
        "reward": np.zeros(steps, np.float32),
        "log_prob": np.zeros(steps, np.float32),
        MEMORY: np.full((1, SIZE), first, np.float32),
    }
    return Trajectory(0, plain | columns)


def test_rollout_batch_has_one_memory_row_per_trajectory() -> None:
    buffer = Rollout(RolloutConfig(type="trajectory", size=6), Demand())
    for first, steps in ((1, 2), (2, 3)):
        buffer.add(trajectory(steps, first), version=0)
    again = Rollout(RolloutConfig(type="trajectory", size=6), Demand())
    again.restore(buffer.state())
    for each in (buffer, again):
        each.add(trajectory(1, 3), version=0)
        (batch,) = each.batches(np.random.default_rng(0))
        assert batch[MEMORY][:, 0].tolist() == [1, 2, 3]
        assert np.flatnonzero(batch["last"]).tolist() == [1, 4, 5]
        assert batch["staleness"].shape == (6,)
        each.add(trajectory(6, 9), version=0)
        (batch,) = each.batches(np.random.default_rng(0))
        assert batch[MEMORY][:, 0].tolist() == [9]


def test_transitions_and_replay_batches_omit_memory() -> None:
    assert MEMORY not in transitions(trajectory(3, 1))
    buffer = Replay(Replay.Config(type="uniform", size=9), Demand(batch_size=2))
    buffer.add(trajectory(3, 1), version=0)
    assert all(MEMORY not in batch for batch in buffer.batches(np.random.default_rng(0)))


def test_trajectory_with_several_memory_rows_is_rejected() -> None:
    with pytest.raises(SpecError, match="column 'memory' of a trajectory of 3 steps has 3 rows; expected 1"):
        trajectory(3, 1, memory=np.zeros((3, SIZE), np.float32))


def test_memory_in_trajectory_is_checked_for_size_and_nan() -> None:
    arrived, _ = decode_trajectory(encode_trajectory(trajectory(3, 7), 1))
    assert arrived.columns[MEMORY].tolist() == [[7.0] * SIZE]
    check_trajectory(arrived, SPEC, 10, memory_size=SIZE)
    with pytest.raises(SpecError, match=r"has the columns .*'memory'"):
        check_trajectory(arrived, SPEC, 10)
    with pytest.raises(SpecError, match=r"column 'memory' is float32 of shape \(4,\) per step; expected .* \(5,\)"):
        check_trajectory(arrived, SPEC, 10, memory_size=SIZE + 1)
    with pytest.raises(NumericalError, match="column 'memory' is"):
        check_trajectory(trajectory(3, 1, memory=np.full((1, SIZE), np.nan, np.float32)), SPEC, 10, memory_size=SIZE)
    without_memory = Trajectory(0, {name: c for name, c in arrived.columns.items() if name != MEMORY})
    with pytest.raises(SpecError, match=r"expected .*'memory'"):
        check_trajectory(without_memory, SPEC, 10, memory_size=SIZE)


class Host:
    """Recorder with a recurrent policy. ``expected`` is the memory that the policy computes without the recorder."""

    def __init__(self) -> None:
        snapshot = torch_policy().snapshot(0)
        self.core = NumpyProgram(snapshot.program, snapshot.weights, 2)
        self.recorder, self.draws = NumpyRecorder(2, 3, 1, False), Draws(0)
        self.rows = np.random.default_rng(0).standard_normal((20, 2)).astype(np.float32)
        self.expected = np.zeros(SIZE, np.float32)

    def decide(self, step: int) -> Any:
        return self.recorder.decide(self.core, self.rows[step], None, self.draws)

    def take_step(self, step: int) -> None:
        twin = Draws(self.draws.key, self.draws.counter)
        assert self.decide(step) == self.core.decide(self.rows[step], None, twin, self.expected)
        self.recorder.commit()


def test_recorder_returns_memory_at_the_start_of_a_recording() -> None:
    host = Host()
    for step in range(3):
        host.take_step(step)
    at_cut = host.expected.copy()
    assert host.recorder.take(host.rows[3], None)[MEMORY].tolist() == [[0.0] * SIZE]
    host.decide(17)
    host.decide(18)
    for step in range(3, 6):
        host.take_step(step)
    assert host.recorder.take(host.rows[6], None)[MEMORY].tolist() == [at_cut.tolist()]
    assert at_cut.any()


def test_rejected_decisions_and_dropped_steps_do_not_reset_memory() -> None:
    host = Host()
    host.take_step(0)
    assert host.recorder.decide(host.core, [np.nan, 0.0], None, host.draws) is None
    host.take_step(1)
    host.recorder.drop(2)
    host.take_step(2)
    assert host.recorder.take(None, None)[MEMORY].tolist() == [[0.0] * SIZE]


def test_recorder_resets_memory_if_its_size_changes() -> None:
    host = Host()
    host.take_step(0)
    host.recorder.take(None, None)
    smaller = RecurrentConfig(type="gru", hidden_dims=[], hidden_size=3)
    other = TorchPolicy(
        SPEC, build_network(smaller, Blueprint(SPEC, 3, allow_memory=True), 0), Operation("argmax")
    ).snapshot(0)
    core = NumpyProgram(other.program, other.weights, 2)
    assert host.recorder.decide(core, host.rows[0], None, host.draws) is not None
    host.recorder.commit()
    assert host.recorder.take(None, None)[MEMORY].tolist() == [[0.0] * 3]
    weights = {"w": np.ones((3, 2), np.float32), "b": np.zeros(3, np.float32)}
    plain = NumpyProgram(Program((Operation("linear", ("w", "b")),), Operation("argmax")), weights, 2)
    assert host.recorder.decide(plain, host.rows[0], None, host.draws) is not None
    host.recorder.commit()
    assert MEMORY not in host.recorder.take(None, None)


def test_encoded_recording_contains_its_memory() -> None:
    host = Host()
    for step in range(3):
        host.take_step(step)
    recording = Recording(host.recorder.take(host.rows[3], None), version=0, episode=0, offset=0)
    arrived, _ = decode_trajectory(Layout(SPEC).encode(replace(recording.without_last_step(), sequence=1)))
    check_trajectory(arrived, SPEC, 10, memory_size=SIZE)
    assert len(arrived) == 2
