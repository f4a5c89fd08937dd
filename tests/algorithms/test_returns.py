"""Generalized advantages against hand-computed values, and the native core against the reference."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl4sys.algorithms.returns import generalized_advantages, generalized_advantages_python
from rl4sys.errors import SpecError
from rl4sys.spec import Array


def _column(*values: float) -> Array:
    return np.array(values, np.float32)


def test_advantages_of_two_trajectories_match_hand_computation() -> None:
    reward, value = _column(1, 2, 3), _column(0.5, 1, 2)
    bootstrap, last = _column(99, 4, 0), np.array([False, True, True])
    # deltas: 1 + 0.5*1 - 0.5 = 1; 2 + 0.5*4 - 1 = 3; 3 + 0 - 2 = 1, and gamma*lambda = 0.1
    advantage = generalized_advantages(reward, value, bootstrap, last, gamma=0.5, gae_lambda=0.2)
    np.testing.assert_allclose(advantage, [1 + 0.1 * 3, 3, 1], rtol=1e-6)
    assert advantage.dtype == np.float32


def test_lambda_1_gives_discounted_return_minus_value() -> None:
    reward, value = _column(1, 1, 1), _column(5, 6, 7)
    last = np.array([False, False, True])
    advantage = generalized_advantages(reward, value, _column(0, 0, 8), last, gamma=0.5, gae_lambda=1.0)
    np.testing.assert_allclose(advantage, [1.75 + 1 - 5, 1.5 + 2 - 6, 1 + 4 - 7], rtol=1e-6)


def test_weighted_advantages_match_v_trace() -> None:
    reward, value, last = _column(1, 2, 3), _column(0.5, 1, 2), np.array([False, False, True])
    weight = _column(0.5, 0.25, 0.8)
    advantage = generalized_advantages(reward, value, _column(0, 0, 4), last, gamma=0.5, gae_lambda=0.2, weight=weight)
    # deltas: 1 + 0.5*1 - 0.5 = 1; 2 + 0.5*2 - 1 = 2; 3 + 0.5*4 - 2 = 3, and gamma*lambda = 0.1
    np.testing.assert_allclose(advantage, [1 + 0.1 * 0.25 * 2.24, 2 + 0.1 * 0.8 * 3, 3], rtol=1e-6)
    # Equation 1 of the V-trace paper for the first row, with rho the weight and c = lambda * rho:
    # rho0 delta0 + gamma c0 rho1 delta1 + gamma^2 c0 c1 rho2 delta2
    target = 0.5 * 1 + 0.5 * 0.1 * 0.25 * 2 + 0.25 * 0.1 * 0.05 * 0.8 * 3
    assert weight[0] * advantage[0] == pytest.approx(target)


def test_importance_weight_affects_only_its_own_trajectory() -> None:
    reward, value, bootstrap = np.ones((3, 4), np.float32)
    last = np.array([False, True, False, True])
    weights = [np.array([1, 1, w, w], np.float32) for w in (0.1, 0.9)]
    one, other = (generalized_advantages(reward, value, bootstrap, last, 0.9, 0.9, weight=w) for w in weights)
    assert one[:2].tolist() == other[:2].tolist()
    assert one[2] != other[2]


@given(
    seed=st.integers(0, 2**32 - 1),
    rows=st.integers(1, 200),
    gamma=st.floats(0, 1),
    gae_lambda=st.floats(0, 1),
    weighted=st.booleans(),
)
def test_native_advantages_equal_the_reference(
    seed: int, rows: int, gamma: float, gae_lambda: float, weighted: bool
) -> None:
    random = np.random.default_rng(seed)
    reward, value, bootstrap = random.standard_normal((3, rows)).astype(np.float32)
    last = random.random(rows) < 0.1
    last[-1] = True
    weight = random.random(rows).astype(np.float32) if weighted else None
    arguments = reward, value, bootstrap, last, gamma, gae_lambda
    expected = generalized_advantages_python(*arguments, weight=weight)
    np.testing.assert_allclose(generalized_advantages(*arguments, weight=weight), expected, rtol=1e-6, atol=1e-6)
    assert np.abs(expected).max() > 0


@pytest.mark.parametrize("form", [generalized_advantages, generalized_advantages_python])
def test_importance_weights_of_1_do_not_change_advantages(form: Callable[..., Array]) -> None:
    random = np.random.default_rng(0)
    reward, value, bootstrap = random.standard_normal((3, 1000)).astype(np.float32)
    last = random.random(1000) < 0.05
    last[-1] = True
    plain, weighted = (form(reward, value, bootstrap, last, 0.99, 0.95, weight=w) for w in (None, np.ones(1000)))
    assert plain.tobytes() == weighted.tobytes()


def test_advantages_do_not_depend_on_the_next_trajectory() -> None:
    reward, value, bootstrap = np.ones((3, 4), np.float32)
    last = np.array([False, True, False, True])
    whole = generalized_advantages(reward, value, bootstrap, last, 0.9, 0.9)
    first = generalized_advantages(reward[:2], value[:2], bootstrap[:2], last[:2], 0.9, 0.9)
    assert whole[:2].tolist() == first.tolist()


def test_advantages_of_an_empty_batch_are_empty() -> None:
    none = np.zeros(0, np.float32)
    assert generalized_advantages(none, none, none, np.zeros(0, np.bool_), 0.9, 0.9).shape == (0,)


def test_columns_of_unequal_length_are_rejected() -> None:
    with pytest.raises(SpecError, match=r"reward, value, bootstrap and last have shapes \[\(2,\), \(1,\), "):
        generalized_advantages(_column(1, 1), _column(1), _column(1, 1), np.array([False, True]), 0.9, 0.9)
    three = _column(1, 1, 1)
    with pytest.raises(SpecError, match="reward, value, bootstrap, weight and last have shapes"):
        generalized_advantages(three, three, three, np.array([False, False, True]), 0.9, 0.9, weight=_column(1))


def test_final_row_that_does_not_end_a_trajectory_is_rejected() -> None:
    with pytest.raises(SpecError, match="the final row does not end a trajectory"):
        generalized_advantages(_column(1), _column(1), _column(1), np.array([False]), 0.9, 0.9)
