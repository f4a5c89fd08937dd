"""Statistics over runs, compared with values computed by hand."""

from __future__ import annotations

import numpy as np
import pytest

from rl4sys.analysis.statistics import (
    bootstrap,
    estimate,
    interquartile_weights,
    iqm,
    mean,
    median,
    percentile_band,
    probability_of_improvement,
)


def column(*values: float) -> np.ndarray:
    return np.array(values)[:, None]


def generator() -> np.random.Generator:
    return np.random.default_rng(7)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([5.0], 5.0),
        ([1.0, 3.0], 2.0),
        # Three values: 1/12 of the outer ones and 1/3 of the middle one lie between the quartiles, 1/2 in total.
        ([6.0, 1.0, 2.0], (1 + 6) / 6 + 2 * 4 / 6),
        ([100.0, 2.0, 4.0, -50.0], 3.0),
        # Five values have the weights 0, 0.15/0.5, 0.2/0.5, 0.15/0.5 and 0.
        ([0.0, 10.0, 20.0, 40.0, 1000.0], (0.15 * 10 + 0.2 * 20 + 0.15 * 40) / 0.5),
        (list(range(8)), (2 + 3 + 4 + 5) / 4),
    ],
)
def test_interquartile_mean_is_mean_of_middle_half(values: list[float], expected: float) -> None:
    assert iqm(column(*values))[0] == pytest.approx(expected)


@pytest.mark.parametrize("count", range(1, 30))
def test_interquartile_weights_sum_to_one_and_are_symmetric(count: int) -> None:
    weights = interquartile_weights(count)
    assert weights.sum() == pytest.approx(1)
    assert weights == pytest.approx(weights[::-1])
    assert (weights >= 0).all()


def test_statistics_are_computed_for_each_point() -> None:
    values = np.array([[1.0, 10.0], [2.0, 30.0], [6.0, 20.0], [9.0, 90.0]])
    assert iqm(values).tolist() == [4.0, 25.0]
    assert median(values).tolist() == [4.0, 25.0]
    assert mean(values).tolist() == [4.5, 37.5]


def test_bootstrap_resamples_each_stratum_separately() -> None:
    # A stratum with one run has only one possible sample.
    alone = bootstrap([column(1.0), column(5.0)], mean, generator(), resamples=50)
    assert (alone == 3.0).all()
    together = bootstrap([column(1.0, 5.0)], mean, generator(), resamples=50)
    assert set(together[:, 0].tolist()) == {1.0, 3.0, 5.0}


def test_chunked_bootstrap_returns_all_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rl4sys.analysis.statistics._CHUNK", 10)
    assert bootstrap([column(1.0, 2.0, 3.0)], mean, generator(), resamples=100).shape == (100, 1)


def test_percentile_interval_covers_the_central_bootstrap_samples() -> None:
    # Two runs 0 and 1: the mean of a sample is 0, ½, 1 with probabilities ¼, ½, ¼, so the 95% interval is [0, 1].
    low, high = percentile_band([column(0.0, 1.0)], mean, generator(), confidence=0.95)
    assert (low[0], high[0]) == (0.0, 1.0)
    low, high = percentile_band([column(0.0, 1.0)], mean, generator(), confidence=0.3)
    assert (low[0], high[0]) == (0.5, 0.5)


def test_interval_has_nominal_coverage() -> None:
    draws = np.random.default_rng(1)
    covered = 0
    for number in range(100):
        found = estimate([draws.normal(3.0, 1.0, size=40).tolist()], mean, np.random.default_rng(number))
        assert found.interval is not None
        covered += found.interval.low <= 3.0 <= found.interval.high
    assert 88 <= covered <= 99


def test_bootstrap_interval_is_determined_by_the_seed() -> None:
    values = [[1.0, 2.0, 4.0, 8.0, 16.0]]
    first, again = estimate(values, iqm, generator()), estimate(values, iqm, generator())
    assert first == again
    assert first.interval != estimate(values, iqm, np.random.default_rng(8)).interval


def test_single_run_has_no_interval_and_empty_input_gives_nan() -> None:
    assert estimate([[4.0]], iqm, generator()).interval is None
    nothing = estimate([[]], iqm, generator())
    assert nothing.runs == 0
    assert np.isnan(nothing.value)


def test_estimate_ignores_nonfinite_values() -> None:
    found = estimate([[1.0, float("nan"), 3.0], [float("inf")]], mean, generator())
    assert (found.value, found.runs) == (2.0, 2)


def test_probability_of_improvement_is_the_share_of_won_pairs() -> None:
    # Pairs: 3 > 1, 3 > 2, 3 = 3 (counts half), 2 > 1, 2 = 2 (counts half), 2 < 3: 4 of 6.
    found = probability_of_improvement([3.0, 2.0], [1.0, 2.0, 3.0], generator())
    assert found.value == pytest.approx(4 / 6)
    other_way = probability_of_improvement([1.0, 2.0, 3.0], [3.0, 2.0], generator())
    assert found.value + other_way.value == pytest.approx(1)
    assert found.interval is not None
    assert found.interval.low < 4 / 6 < found.interval.high


def test_certain_improvement_has_probability_one() -> None:
    found = probability_of_improvement([10.0, 11.0], [1.0, 2.0, 3.0], generator())
    assert found.interval is not None
    assert (found.value, found.interval.low, found.interval.high) == (1.0, 1.0, 1.0)


def test_probability_from_single_run_has_no_interval() -> None:
    assert probability_of_improvement([2.0], [1.0, 3.0], generator()).interval is None
    assert probability_of_improvement([], [1.0], generator()).runs == 0
