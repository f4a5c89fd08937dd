"""Tables of ``rl4sys.compare``."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

import rl4sys
from tests.analysis.runs import returns, write_seeds


@pytest.fixture
def comparison(tmp_path: Path) -> rl4sys.RunComparison:
    write_seeds(tmp_path, "ppo", [returns(10, 40), returns(10, 50), returns(10, 90)])
    write_seeds(tmp_path, "fast", [returns(20, 10), returns(30, 20)], "algorithm.lr=0.01")
    return rl4sys.compare("ppo", "fast", root=tmp_path)


def test_tables_have_one_row_per_group(comparison: rl4sys.RunComparison) -> None:
    assert r"ppo & 3 & 55.0 [40.0, 90.0] & 55.0 [40.0, 90.0] & 200 & 200 \\" in comparison.to_latex()
    assert "| fast | 2 | 15.0 [10.0, 20.0] | 25.0 [20.0, 30.0] | 100 | 200 |" in comparison.to_markdown()
    rows = list(csv.DictReader(comparison.to_csv().splitlines()))
    assert [(row["group"], row["final"]) for row in rows] == [("ppo", "55.0"), ("fast", "15.0")]


def test_export_selects_the_format_by_suffix(comparison: rl4sys.RunComparison, tmp_path: Path) -> None:
    written = {suffix: comparison.export(tmp_path / "tables" / f"a{suffix}") for suffix in (".tex", ".md", ".csv")}
    assert written[".tex"].read_text() == comparison.to_latex()
    assert written[".md"].read_text() == comparison.to_markdown()
    assert written[".csv"].read_text() == comparison.to_csv()
    assert [row["group"] for row in json.loads(comparison.export(tmp_path / "a.json").read_text())] == ["ppo", "fast"]


def test_unknown_suffix_is_rejected(comparison: rl4sys.RunComparison, tmp_path: Path) -> None:
    with pytest.raises(rl4sys.RL4SysError, match=r"expected a file name that ends in \.tex, \.md, \.csv or \.json"):
        comparison.export(tmp_path / "a.pdf")
    assert not (tmp_path / "a.pdf").exists()
