"""Frequencies, moments and log-probabilities of each head, compared with its definition."""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
import pytest

from rl4sys.errors import SpecError
from rl4sys.policy.draws import Draws
from rl4sys.policy.native_program import NativeProgram
from rl4sys.policy.numpy_program import NumpyProgram, draw
from rl4sys.policy.program import Operation, Program
from rl4sys.spec import Array, Columns

Form: TypeAlias = type[NumpyProgram] | type[NativeProgram]

COUNT = 100_000
EPSILON = Operation("epsilon_greedy", (), {"epsilon": 0.25})
GAUSSIAN = Operation("gaussian", ("log_std",))
SQUASHED = Operation("squashed_gaussian", ("low", "high"), {"log_std_min": -2.0, "log_std_max": 1.0})
MULTI_CATEGORICAL = Operation("multi_categorical", ("choices",))
PARTS: dict[str, Array] = {"choices": np.array([3, 1, 3], np.float32)}
BOUNDS: dict[str, Array] = {"low": np.array([-1, 10], np.float32), "high": np.array([3, 11], np.float32)}


def _many(
    form: Form, head: Operation, row: list[float], mask: list[bool] | None = None, weights: Columns | None = None
) -> tuple[Array, Array]:
    """Return COUNT decisions for the same input of the head."""
    rows = np.tile(np.array(row, np.float32), (COUNT, 1))
    masks = None if mask is None else np.tile(np.array(mask), (COUNT, 1))
    return form(Program((), head), weights or {}, len(row)).act(rows, masks, Draws(11))


def _frequencies(actions: Array, count: int) -> Array:
    return np.bincount(actions, minlength=count) / len(actions)


def test_categorical_frequencies_match_softmax(form: Form) -> None:
    logits = [0.0, 1.0, -1.0, 2.0]
    probability = np.exp(logits) / np.exp(logits).sum()
    actions, log_probs = _many(form, Operation("categorical"), logits)
    np.testing.assert_allclose(_frequencies(actions, 4), probability, atol=0.006)
    np.testing.assert_allclose(log_probs, np.log(probability)[actions], rtol=1e-6)


def test_categorical_uses_softmax_of_legal_actions(form: Form) -> None:
    probability = np.exp([0.0, -np.inf, -1.0, -np.inf]) / (1 + math.exp(-1))
    actions, log_probs = _many(form, Operation("categorical"), [0, 50, -1, 2], [True, False, True, False])
    np.testing.assert_allclose(_frequencies(actions, 4), probability, atol=0.006)
    np.testing.assert_allclose(np.exp(log_probs), probability[actions], rtol=1e-6)


def test_categorical_inverts_the_cumulative_distribution(form: Form) -> None:
    uniform = Draws(11).uniforms(COUNT)
    actions, _ = _many(form, Operation("categorical"), [0.0] * 4)
    assert actions.tolist() == np.floor(uniform * 4).astype(int).tolist()


def test_categorical_handles_logits_of_any_size(form: Form) -> None:
    actions, log_probs = _many(form, Operation("categorical"), [-3e38, 3e38, 3e38, -math.inf])
    assert set(actions.tolist()) == {1, 2}
    np.testing.assert_allclose(log_probs, math.log(0.5), rtol=1e-6)


@pytest.mark.parametrize("logits", [[-math.inf] * 3, [0.0, math.inf, 0.0], [0.0, math.nan, 0.0]])
def test_categorical_gives_nan_for_undefined_softmax(form: Form, logits: list[float]) -> None:
    actions, log_probs = _many(form, Operation("categorical"), logits, [False, True, True])
    assert set(actions.tolist()) == {1}
    assert np.isnan(log_probs).all()


def test_epsilon_greedy_frequencies_match_its_probabilities(form: Form) -> None:
    actions, log_probs = _many(form, EPSILON, [0, 5, 5, 9, 1], [True, True, True, False, True])
    probability = np.array([0.0625, 0.8125, 0.0625, 0.0, 0.0625])
    np.testing.assert_allclose(_frequencies(actions, 5), probability, atol=0.006)
    np.testing.assert_allclose(np.exp(log_probs), probability[actions], rtol=1e-6)


def test_epsilon_greedy_uses_two_draws_in_order(form: Form) -> None:
    uniform = Draws(11).uniforms(2 * COUNT).reshape(COUNT, 2)
    expected = np.where(uniform[:, 0] < 0.25, np.floor(uniform[:, 1] * 4), 2)
    actions, _ = _many(form, EPSILON, [0, 1, 7, 3])
    assert actions.tolist() == expected.astype(int).tolist()


@pytest.mark.parametrize(("epsilon", "log_prob"), [(0.0, 0.0), (1.0, math.log(1 / 3))])
def test_epsilon_0_is_greedy_and_epsilon_1_is_uniform(form: Form, epsilon: float, log_prob: float) -> None:
    actions, log_probs = _many(form, Operation("epsilon_greedy", (), {"epsilon": epsilon}), [0, 1, 0])
    assert set(actions.tolist()) == ({1} if epsilon == 0.0 else {0, 1, 2})
    np.testing.assert_allclose(log_probs, log_prob, rtol=1e-6)


def test_argmax_takes_the_first_best_legal_action(form: Form) -> None:
    assert set(_many(form, Operation("argmax"), [1, 3, 3, 9], [True, True, True, False])[0].tolist()) == {1}
    assert set(_many(form, Operation("argmax"), [-math.inf] * 3, [False, True, True])[0].tolist()) == {1}


def test_multi_categorical_samples_each_dimension_with_its_own_draw(form: Form) -> None:
    logits, mask = [0.0, 1.0, 50.0, 2.0, -1.0, 0.5, 0.0], [True, True, False, True, True, False, True]
    uniform, parts = Draws(11).uniforms(3 * COUNT).reshape(COUNT, 3), (slice(0, 3), slice(3, 4), slice(4, 7))
    actions, log_probs = _many(form, MULTI_CATEGORICAL, logits, mask, PARTS)
    assert (actions.dtype, actions.shape) == (np.int64, (COUNT, 3))
    expected = np.zeros(COUNT)
    for number, part in enumerate(parts):
        probability = np.where(mask[part], np.exp(logits[part]), 0) / np.exp(logits[part])[mask[part]].sum()
        chosen = (np.cumsum(probability) > uniform[:, number, None]).argmax(axis=1)
        assert actions[:, number].tolist() == chosen.tolist()
        expected += np.log(probability[chosen])
    np.testing.assert_allclose(log_probs, expected, rtol=1e-6)


def test_multi_argmax_takes_the_best_action_of_each_dimension(form: Form) -> None:
    greedy = MULTI_CATEGORICAL.greedy()
    assert (greedy.name, greedy.weights) == ("multi_argmax", ("choices",))
    actions, log_probs = _many(form, greedy, [0, 9, 9, 4, 1, 2, 3], [True, True, True, True, True, True, False], PARTS)
    assert (actions == [1, 0, 1]).all()
    assert (log_probs == 0).all()


def test_nan_gives_first_legal_action_of_every_dimension(form: Form) -> None:
    mask = [False, True, True, True, False, False, True]
    actions, log_probs = _many(form, MULTI_CATEGORICAL, [0, 0, 9, 1, 0, math.nan, 1], mask, PARTS)
    assert (actions == [1, 0, 2]).all()
    assert np.isnan(log_probs).all()


def test_mask_without_legal_action_in_one_dimension_is_rejected(form: Form) -> None:
    mask = [True, True, True, True, False, False, False]
    with pytest.raises(SpecError, match="row 0 allows none of the 3 actions of a part; each part needs at least one"):
        _many(form, MULTI_CATEGORICAL, [0.0] * 7, mask, PARTS)


@pytest.mark.parametrize("parts", [[3, 3], [3, 5], [2.5, 4.5], [0, 7], [-1, 8], [math.nan, 7], [math.inf], []])
def test_multi_discrete_sizes_must_sum_to_the_head_inputs(form: Form, parts: list[float]) -> None:
    weights = {"choices": np.array(parts, np.float32)}
    with pytest.raises(
        SpecError,
        match=r"multi_categorical has the action counts .*; expected integers of at least 1 that sum to 7",
    ):
        form(Program((), MULTI_CATEGORICAL), weights, 7)


@pytest.mark.parametrize("parts", [[[3, 4]], 7])
def test_multi_discrete_sizes_must_be_a_vector(form: Form, parts: object) -> None:
    with pytest.raises(SpecError, match="multi_categorical got weights of shapes"):
        form(Program((), MULTI_CATEGORICAL), {"choices": np.array(parts, np.float32)}, 7)


@pytest.mark.parametrize("head", [Operation("categorical"), Operation("argmax"), EPSILON])
def test_illegal_action_is_never_taken(form: Form, head: Operation) -> None:
    random = np.random.default_rng(5)
    rows = 10 * random.standard_normal((COUNT, 6)).astype(np.float32)
    mask: Array = random.random((COUNT, 6)) < 0.3
    mask[np.arange(COUNT), random.integers(6, size=COUNT)] = True
    actions, log_probs = form(Program((), head), {}, 6).act(rows, mask, Draws(1))
    assert mask[np.arange(COUNT), actions].all()
    assert np.isfinite(log_probs).all()
    assert len(set(actions.tolist())) == 6


def test_gaussian_has_given_mean_and_standard_deviation(form: Form) -> None:
    weights: dict[str, Array] = {"log_std": np.array([-1, 0.5], np.float32)}
    actions, log_probs = _many(form, GAUSSIAN, [3, -4], weights=weights)
    deviation = np.exp([-1, 0.5])
    np.testing.assert_allclose(actions.mean(axis=0), [3, -4], atol=0.02)
    np.testing.assert_allclose(actions.std(axis=0), deviation, rtol=0.01)
    assert abs(np.corrcoef(actions.T)[0, 1]) < 0.01
    z = (actions.astype(np.float64) - [3, -4]) / deviation
    expected = (-0.5 * z**2 - np.log(deviation) - 0.5 * math.log(2 * math.pi)).sum(axis=1)
    np.testing.assert_allclose(log_probs, expected, rtol=1e-5, atol=1e-5)


def test_gaussian_uses_two_draws_per_element(form: Form) -> None:
    u = Draws(11).uniforms(4)
    z = [math.sqrt(-2 * math.log(1 - u[i])) * math.cos(2 * math.pi * u[i + 1]) for i in (0, 2)]
    actions, _ = _many(form, GAUSSIAN, [0, 0], weights={"log_std": np.zeros(2, np.float32)})
    np.testing.assert_allclose(actions[0], z, rtol=1e-6)


def test_log_probabilities_match_torch(form: Form) -> None:
    torch = pytest.importorskip("torch")
    weights: dict[str, Array] = {"log_std": np.array([-1, 0.5], np.float32)}
    actions, log_probs = _many(form, GAUSSIAN, [3, -4], weights=weights)
    normal = torch.distributions.Normal(torch.tensor([3.0, -4.0]).double(), torch.tensor([-1, 0.5]).double().exp())
    np.testing.assert_allclose(log_probs, normal.log_prob(torch.as_tensor(actions)).sum(1), rtol=1e-5, atol=1e-5)

    logits = [0.5, -2.0, 1.0]
    actions, log_probs = _many(form, Operation("categorical"), logits)
    categorical = torch.distributions.Categorical(logits=torch.tensor(logits))
    np.testing.assert_allclose(log_probs, categorical.log_prob(torch.as_tensor(actions)), rtol=1e-5)

    actions, log_probs = _many(form, MULTI_CATEGORICAL, logits + logits[:1] + logits, weights=PARTS)
    by_part = categorical.log_prob(torch.as_tensor(actions[:, ::2])).sum(1)
    np.testing.assert_allclose(log_probs, by_part, rtol=1e-5)


def test_squashed_gaussian_log_probabilities_match_torch(form: Form) -> None:
    torch = pytest.importorskip("torch")
    actions, log_probs = _many(form, SQUASHED, [0.3, -0.5, -1.0, 5.0], weights=BOUNDS)
    squashed = 2 * (actions.astype(np.float64) - BOUNDS["low"]) / (BOUNDS["high"] - BOUNDS["low"]) - 1
    inside = (np.abs(squashed) < 0.999).all(axis=1)
    base = torch.distributions.Normal(torch.tensor([0.3, -0.5]).double(), torch.tensor([-1.0, 1.0]).double().exp())
    squashed_normal = torch.distributions.TransformedDistribution(base, torch.distributions.TanhTransform())
    expected = squashed_normal.log_prob(torch.as_tensor(squashed[inside])).sum(1)
    assert inside.mean() > 0.5
    np.testing.assert_allclose(log_probs[inside], expected, rtol=1e-3, atol=2e-3)


def test_squashed_gaussian_clips_log_std_and_stays_in_bounds(form: Form) -> None:
    actions, log_probs = _many(form, SQUASHED, [0.2, 40.0, -9.0, 9.0], weights=BOUNDS)
    assert (actions >= BOUNDS["low"]).all()
    assert (actions <= BOUNDS["high"]).all()
    u = np.arctanh(2 * (actions[:, 0].astype(np.float64) + 1) / 4 - 1)
    np.testing.assert_allclose([u.mean(), u.std()], [0.2, math.exp(-2)], atol=0.005)
    assert np.isfinite(log_probs).all()


def test_noisy_squash_adds_noise_and_stays_in_bounds(form: Form) -> None:
    noisy = Operation("noisy_squash", ("low", "high"), {"sigma": 0.1})
    actions, log_probs = _many(form, noisy, [0.0, 8.0], weights=BOUNDS)
    np.testing.assert_allclose([actions[:, 0].mean(), actions[:, 0].std()], [1.0, 0.2], atol=0.005)
    assert (actions[:, 1] == 11.0).mean() == pytest.approx(0.5, abs=0.01)
    assert actions[:, 1].max() == 11.0
    assert (log_probs == 0).all()


@pytest.mark.parametrize("row", [[5.0, -5.0], [5.0, -5.0, 1.0, 1.0]])
def test_uniform_covers_the_box_for_any_input(form: Form, row: list[float]) -> None:
    anywhere = Operation("uniform", ("low", "high"), {"parameters": len(row) // 2})
    actions, log_probs = _many(form, anywhere, row, weights=BOUNDS)
    for element, (low, high) in enumerate(zip(BOUNDS["low"], BOUNDS["high"], strict=True)):
        shares, _ = np.histogram(actions[:, element], bins=10, range=(low, high))
        np.testing.assert_allclose(shares / COUNT, 0.1, atol=0.004)
    np.testing.assert_allclose(log_probs, -2 * math.log(2), rtol=1e-6)
    np.testing.assert_allclose(actions[0], BOUNDS["low"] + Draws(11).uniforms(2) * (BOUNDS["high"] - BOUNDS["low"]))
    greedy = anywhere.greedy()
    assert greedy.name == ("squash" if len(row) == 2 else "squashed_mode")
    np.testing.assert_allclose(
        _many(form, greedy, row, weights=BOUNDS)[0][0], [-1 + 2 * (math.tanh(5) + 1), 10 + 0.5 * (1 - math.tanh(5))]
    )


def test_deterministic_box_heads_give_the_mode(form: Form) -> None:
    actions, log_probs = _many(form, Operation("mode"), [3, -4])
    assert (actions == [3, -4]).all()
    assert (log_probs == 0).all()
    actions, log_probs = _many(form, Operation("squashed_mode", ("low", "high")), [0.5, 0, 8, 8], weights=BOUNDS)
    np.testing.assert_allclose(actions[0], [-1 + 2 * (math.tanh(0.5) + 1), 10.5], rtol=1e-6)
    assert (log_probs == 0).all()
    actions, log_probs = _many(form, Operation("squash", ("low", "high")), [0.5, 0], weights=BOUNDS)
    np.testing.assert_allclose(actions[0], [-1 + 2 * (math.tanh(0.5) + 1), 10.5], rtol=1e-6)
    assert (log_probs == 0).all()


def test_nan_affects_only_its_element_of_a_box_action(form: Form) -> None:
    actions, log_probs = _many(form, GAUSSIAN, [math.nan, 1], weights={"log_std": np.zeros(2, np.float32)})
    assert np.isnan(actions[:, 0]).all()
    assert np.isfinite(actions[:, 1]).all()
    assert np.isnan(log_probs).all()


def test_draw_function_equals_a_program_without_body(form: Form) -> None:
    random = np.random.default_rng(2)
    rows = random.standard_normal((50, 4)).astype(np.float32)
    for head in (Operation("categorical"), EPSILON, SQUASHED):
        single = draw(head, BOUNDS, rows, None, Draws(4))
        program = form(Program((), head), BOUNDS, 4).act(rows, None, Draws(4))
        np.testing.assert_allclose(single[0], program[0], rtol=1e-6)
        np.testing.assert_allclose(single[1], program[1], rtol=1e-6, atol=1e-6)
