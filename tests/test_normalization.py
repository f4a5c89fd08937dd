"""Running statistics of observations and rewards, and normalization with these statistics."""

from __future__ import annotations

import numpy as np
import pytest

from rl4sys.algorithms.ppo import PPOConfig
from rl4sys.buffers.rollout import RolloutConfig
from rl4sys.learner.config import LearnerConfig
from rl4sys.learner.learner import build_learner
from rl4sys.networks.cnn import CNNConfig
from rl4sys.normalization import Moments, ObservationNormalizer, RewardNormalizer
from rl4sys.policy.draws import Draws
from rl4sys.policy.snapshot_policy import SnapshotPolicy
from rl4sys.spec import Box, Discrete, Spec
from rl4sys.trajectory import Trajectory

SPEC = Spec({"state": Box((2,)), "mask": Box((2,), "bool")}, Discrete(2))


def trajectory(observations: np.ndarray, rewards: list[float], **flags: object) -> Trajectory:
    masks = np.ones((len(observations), 2), bool)
    columns = {"obs.state": observations, "obs.mask": masks, "reward": np.array(rewards, np.float32)}
    return Trajectory(0, columns, **flags)  # type: ignore[arg-type]


def test_moments_of_batches_equal_moments_of_all_rows() -> None:
    rows = np.random.default_rng(0).normal(3, 5, (1000, 2))
    moments = Moments((2,))
    for piece in np.split(rows, [1, 1, 17, 400]):
        moments.add(piece)
    np.testing.assert_allclose(moments.mean, rows.mean(0))
    np.testing.assert_allclose(1 / moments.scale(), rows.std(0), rtol=1e-6)


def test_normalization_takes_effect_with_a_new_version() -> None:
    rng = np.random.default_rng(0)
    observations = rng.normal([5, -3], [2, 0.1], (501, 2)).astype(np.float32)
    normalizer = ObservationNormalizer(SPEC)
    normalizer.update(trajectory(observations, [0.0] * 500))
    before = normalizer.apply({"obs.state": observations}, "obs.")["obs.state"]
    np.testing.assert_array_equal(before, np.clip(observations, -10, 10))
    normalizer.activate()
    after = normalizer.apply({"obs.state": observations}, "obs.")["obs.state"]
    np.testing.assert_allclose(after[:-1].mean(0), 0, atol=1e-3)
    np.testing.assert_allclose(after[:-1].std(0), 1, atol=1e-3)
    far = normalizer.apply({"obs.state": np.array([[1e6, 0]], np.float32)}, "obs.")["obs.state"]
    assert far[0, 0] == 10


def test_rewards_are_scaled_by_the_std_of_the_discounted_return() -> None:
    normalizer = RewardNormalizer(gamma=0.5)
    states = np.zeros((3, 2), np.float32)
    # The two trajectories belong to one episode, so the discounted return continues: 1, 1.5, 2.75, 1.375.
    normalizer.update(trajectory(states, [1.0, 1.0], episode=4))
    normalizer.update(trajectory(states, [2.0, 0.0], episode=4, offset=2, truncated=True))
    normalizer.activate()
    spread = np.std([1, 1.5, 2.75, 1.375])
    np.testing.assert_allclose(normalizer.apply(np.array([3.0], np.float32)), 3 / spread, rtol=1e-6)


def test_discounted_return_restarts_after_an_episode() -> None:
    normalizer = RewardNormalizer(gamma=1.0)
    normalizer.update(trajectory(np.zeros((2, 2), np.float32), [5.0], episode=1, terminated=True))
    assert normalizer._returns == {}


@pytest.mark.parametrize("kind", ["observation", "reward"])
def test_restored_normalizer_continues_identically(kind: str) -> None:
    def make() -> ObservationNormalizer | RewardNormalizer:
        return ObservationNormalizer(SPEC) if kind == "observation" else RewardNormalizer(0.9)

    rng = np.random.default_rng(0)
    pieces = [trajectory(rng.normal(size=(5, 2)).astype(np.float32), rng.normal(size=4).tolist()) for _ in range(4)]
    one, other = make(), make()
    one.update(pieces[0])
    one.activate()
    one.update(pieces[1])
    other.restore(one.state())
    for normalizer in (one, other):
        normalizer.update(pieces[2])
    assert repr(one.state()) == repr(other.state()) != repr(make().state())


def test_normalized_images_are_not_scaled_again() -> None:
    spec = Spec({"screen": Box((36, 36, 1), "uint8", (0.0,), (255.0,))}, Discrete(2))
    network = CNNConfig(hidden_dims=[8])
    settings = LearnerConfig(
        algorithm=PPOConfig(name="ppo"),
        networks={"actor": network, "critic": network},
        buffer=RolloutConfig(type="trajectory", size=16),
        normalize_obs=True,
    )
    learner = build_learner(spec, settings, seed=1)
    screens = np.random.default_rng(0).integers(100, 110, (17, *spec.observation["screen"].shape), np.uint8)
    columns = {"obs.screen": screens, "action": np.zeros(16, np.int64), "log_prob": np.full(16, -0.7, np.float32)}
    learner.learn([Trajectory(0, {**columns, "reward": np.ones(16, np.float32)}, terminated=True)])
    snapshot = learner.snapshot()
    operations = [operation.name for operation in snapshot.program.body]
    assert (snapshot.spec, operations[0], "scale" in operations) == (spec, "normalize", False)
    live, observation = learner._live_policy(), {"screen": screens}
    frozen = SnapshotPolicy(snapshot).act(observation, {}, Draws(1))
    np.testing.assert_allclose(live.act(observation, {}, Draws(1)).log_prob, frozen.log_prob, atol=1e-5)
    assert learner.version == 1
