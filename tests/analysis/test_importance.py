"""Importance of settings, compared with values computed by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from rl4sys.analysis.importance import importance


def grid(**values: list[object]) -> list[dict[str, object]]:
    return [dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values())]


def test_importance_in_balanced_grid_equals_main_effects() -> None:
    # y = 10 a + 2 b ± 1 for a, b in {0, 1}: the sums of squares of a, b and the noise are 8·25, 8·1 and 8·1.
    points = [point for point in grid(a=[0, 1], b=[0, 1]) for _ in range(2)]
    results = [10 * p["a"] + 2 * p["b"] + noise for p, noise in zip(points, [1, -1] * 4, strict=True)]  # type: ignore[operator]
    found = importance(points, results)
    assert found is not None
    shares = {effect.setting: effect.share for effect in found.effects}
    # The residual is 8 with 8 - 1 - 2 = 5 degrees of freedom, so 1.6 is subtracted from each effect.
    assert shares["a"] == pytest.approx((200 - 1.6) / 216)
    assert shares["b"] == pytest.approx((8 - 1.6) / 216)
    assert found.rest == pytest.approx((8 + 3.2) / 216)
    # Variance within points: 8 / 4 degrees of freedom. Total variance: 216 / 7 degrees of freedom.
    assert found.seeds == pytest.approx((8 / 4) / (216 / 7))
    assert [effect.setting for effect in found.effects] == ["a", "b"]
    assert found.effects[0].means == {"0": 1.0, "1": 11.0}


def test_setting_without_effect_has_share_zero() -> None:
    points = grid(a=[1, 2, 3], b=["x", "y", "z"])
    results = [float(p["a"]) for p in points]  # type: ignore[arg-type]
    found = importance(points, results)
    assert found is not None
    shares = {effect.setting: (effect.share, effect.chance) for effect in found.effects}
    assert shares["a"][0] == pytest.approx(1)
    assert shares["a"][1] < 0.01
    assert shares["b"] == (pytest.approx(0), 1.0)


def test_variance_of_interactions_is_unexplained() -> None:
    points = [point for point in grid(a=[0, 1], b=[0, 1]) for _ in range(3)]
    results = [float(p["a"] == p["b"]) for p in points]
    found = importance(points, results)
    assert found is not None
    assert found.rest == pytest.approx(1)
    assert found.seeds == 0


def test_share_of_a_setting_excludes_variance_explained_by_other_settings() -> None:
    # b correlates with a, but only a has an effect: alone, b would seem to explain much.
    points = [{"a": a, "b": b} for a, b in [(0, 0), (0, 0), (0, 0), (0, 1), (1, 1), (1, 1), (1, 1), (1, 0)] * 2]
    results = [10.0 * p["a"] for p in points]
    found = importance(points, results)
    assert found is not None
    shares = {effect.setting: effect.share for effect in found.effects}
    assert shares["b"] == pytest.approx(0, abs=1e-9)
    assert shares["a"] == pytest.approx(0.75)


def test_many_distinct_numbers_are_binned() -> None:
    draws = np.random.default_rng(3)
    points = [{"lr": float(draws.uniform(0, 1)), "other": float(draws.uniform(0, 1))} for _ in range(60)]
    results = [point["lr"] ** 2 + 0.01 * draws.normal() for point in points]
    found = importance(points, results)
    assert found is not None
    first, second = found.effects
    assert first.setting == "lr"
    assert first.share > 0.8
    assert len(first.means) == 4
    assert all(" to " in name for name in first.means)
    assert second.share < 0.1
    assert second.chance > 0.05


def test_values_of_settings_are_shortened_unless_ambiguous() -> None:
    found = importance([{"a": a} for a in (0.1 + 0.2, 0.7)] * 3, [1.0, 2.0, 3.0, 4.0, 5.0, 7.0])
    close = importance([{"a": a} for a in (0.1 + 0.2, 0.3)] * 3, [1.0, 2.0, 3.0, 4.0, 5.0, 7.0])
    assert found is not None
    assert close is not None
    assert list(found.effects[0].means) == ["0.3", "0.7"]
    assert list(close.effects[0].means) == ["0.30000000000000004", "0.3"]


def test_settings_are_not_significant_for_random_results() -> None:
    draws = np.random.default_rng(5)
    chances = []
    for _ in range(20):
        found = importance(grid(a=[1, 2, 3], b=[1, 2, 3]), draws.normal(size=9).tolist())
        assert found is not None
        chances += [effect.chance for effect in found.effects]
    assert sum(chance <= 0.05 for chance in chances) <= 6
    assert np.mean(chances) == pytest.approx(0.5, abs=0.15)


def test_ranks_are_analyzed_if_there_is_an_outlier() -> None:
    points = [point for point in grid(a=[0, 1], b=[0, 1]) for _ in range(2)]
    results = [1.0, 2.0, 1.0, 2.0, 8.0, 9.0, 8.0, -1e9]
    found = importance(points, results)
    assert found is not None
    assert found.ranked
    assert found.effects[0].setting == "a"
    plain = importance(points, [*results[:-1], 9.0])
    assert plain is not None
    assert not plain.ranked


def test_equal_results_share_their_mean_rank() -> None:
    points = [{"a": number % 2} for number in range(6)]
    found = importance(points, [0.0, 1.0, 0.0, 1.0, 0.0, 1e12])
    assert found is not None
    # Ranks 1, 3.5, 1, 3.5, 1, 5 have the mean 2.5. Sums of squares: total 15, of a 13.5, residual 1.5 (4 degrees).
    assert found.effects[0].share == pytest.approx((13.5 - 1.5 / 4) / 15)


def test_settings_are_analyzed_separately_if_levels_exceed_results() -> None:
    points = [{"a": n // 2, "b": n % 3, "c": str(n)} for n in range(6)]
    found = importance(points, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    assert found is not None
    assert max(effect.share for effect in found.effects) <= 1


@pytest.mark.parametrize(
    ("points", "results"),
    [
        ([{"a": 1}, {"a": 2}], [1.0, 2.0]),
        ([{"a": n} for n in range(5)], [3.0] * 5),
        ([{"a": 1}] * 5, [1.0, 2.0, 3.0, 4.0, 5.0]),
    ],
)
def test_importance_is_none_without_enough_variation(points: list[dict[str, object]], results: list[float]) -> None:
    assert importance(points, results) is None
