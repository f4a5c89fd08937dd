"""Tests of ``rl4sys export`` over groups of runs."""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from ..analysis.runs import returns, write_run, write_seeds
from .conftest import Rl4sys


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "experiments"
    write_seeds(folder, "ppo", [returns(10, 40), returns(10, 50), returns(10, 90)])
    write_seeds(folder, "fast_50%", [returns(-20, -1000), returns(-30, -20)], "algorithm.lr=0.01")
    return folder


def test_experiments_are_exported_with_one_row_per_group(rl4sys: Rl4sys, root: Path) -> None:
    outcome = rl4sys("export", "ppo", "fast_50%", "--format", "md")
    assert outcome.exit_code == 0, outcome.err
    assert outcome.out.splitlines() == [
        "| group | seeds | final IQM [95%] | best IQM [95%] | reached at | steps |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
        "| ppo | 3 | 55.0 [40.0, 90.0] | 55.0 [40.0, 90.0] | 200 | 200 |",
        "| fast_50% | 2 | -510.0 [-1,000, -20.0] | -20.0 [-20.0, -20.0] | 150 | 200 |",
    ]


def test_latex_export_of_groups_is_ready_for_a_paper(rl4sys: Rl4sys, root: Path) -> None:
    assert rl4sys("export", "ppo", "fast_50%", "--format", "latex").out.splitlines() == [
        r"% \usepackage{booktabs}",
        r"\begin{tabular}{lrrrrr}",
        r"\toprule",
        r"group & seeds & final IQM [95\%] & best IQM [95\%] & reached at & steps \\",
        r"\midrule",
        r"ppo & 3 & 55.0 [40.0, 90.0] & 55.0 [40.0, 90.0] & 200 & 200 \\",
        r"fast\_50\% & 2 & $-510.0$ [$-1{,}000$, $-20.0$] & $-20.0$ [$-20.0$, $-20.0$] & 150 & 200 \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no LaTeX here")
def test_latex_export_of_groups_compiles(rl4sys: Rl4sys, root: Path, tmp_path: Path) -> None:
    table = rl4sys("export", "*_*", "fast*", "--by", "argument", "--format", "latex").out
    document = "\\documentclass{article}\\usepackage{booktabs}\\begin{document}\n" + table + "\\end{document}\n"
    (tmp_path / "table.tex").write_text(document)
    command = ["pdflatex", "-interaction=batchmode", "-halt-on-error", "table.tex"]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode == 0


def test_latex_group_cannot_become_an_argument_of_the_line_break(rl4sys: Rl4sys, root: Path) -> None:
    lines = rl4sys("export", "[p]po*", "*_*", "--by", "argument", "--format", "latex").out.splitlines()
    assert [line.partition(" & ")[0] for line in lines[5:7]] == [r"{}[p]po*", r"{}*\_*"]


def test_schedule_in_a_label_is_written_with_a_latex_arrow(rl4sys: Rl4sys, root: Path) -> None:
    schedule = "algorithm.lr={start: 0.001, end: 0.0}"
    write_run(root / "ppo_schedule", returns(10, 60), ["experiment.name=ppo", schedule])
    assert (
        r"lr=0.001 $\rightarrow$ 0.0 & 1 & 60.0 & 60.0 & 200 & 200 \\"
        in rl4sys("export", "ppo", "--format", "latex").out
    )


def test_csv_export_has_the_numbers_of_compare(rl4sys: Rl4sys, root: Path) -> None:
    [first, second] = csv.DictReader(io.StringIO(rl4sys("export", "ppo", "fast_50%", "--statistic", "mean").out))
    compared = json.loads(rl4sys("compare", "ppo", "fast_50%", "--statistic", "mean", "--json").out)
    of_groups = compared["metrics"]["evaluation/return"]["groups"]
    for row, name in ((first, "ppo"), (second, "fast_50%")):
        expected = of_groups[name]["final"]
        assert (row["group"], row["metric"], row["statistic"]) == (name, "evaluation/return", "mean")
        assert [float(row["final_low"]), float(row["final_high"])] == expected["interval"]
        assert float(row["final"]) == expected["value"]
        assert float(row["final_low"]) < float(row["final"]) < float(row["final_high"])


def test_json_export_has_null_for_missing_intervals(rl4sys: Rl4sys, root: Path) -> None:
    rows = json.loads(rl4sys("export", "ppo", "--by", "run", "--format", "json").out)
    assert [(row["final"], row["final_low"], row["best_at"]) for row in rows] == [
        (40.0, None, 200.0),
        (50.0, None, 200.0),
        (90.0, None, 200.0),
    ]


def test_several_metrics_have_a_row_each(rl4sys: Rl4sys, root: Path) -> None:
    rows = [{"step": 100, "loss/value": 2.0, "policy/entropy": 0.5, "evaluation/return": 1.0}]
    write_seeds(root, "losses", [rows, rows])
    arguments = ["export", "losses", "--metrics", "loss/value,policy/entropy,reward", "--format", "md"]
    assert rl4sys(*arguments).out.splitlines() == [
        "| group | metric | seeds | final IQM [95%] | best IQM [95%] | reached at | steps |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
        "| losses | loss/value | 2 | 2.000 [2.000, 2.000] | 2.000 [2.000, 2.000] | 100 | 100 |",
        "| losses | policy/entropy | 2 | 0.500 [0.500, 0.500] | — | — | 100 |",
        "| losses | evaluation/return | 2 | 1.000 [1.000, 1.000] | 1.000 [1.000, 1.000] | 100 | 100 |",
    ]
    assert "best" not in rl4sys("export", "losses", "--metrics", "policy/entropy", "--format", "md").out
    assert "lowest IQM" in rl4sys("export", "losses", "--metrics", "loss", "--format", "md").out


def test_single_runs_are_grouped_only_on_request(rl4sys: Rl4sys, root: Path) -> None:
    runs = [path.name for path in sorted(root.glob("ppo_*"))]
    assert len(runs) == 3
    assert len(rl4sys("export", *runs).out.splitlines()) == 4
    assert rl4sys("export", *runs).out.startswith("run,algorithm,")
    assert rl4sys("export", *runs, "--by", "config").out == rl4sys("export", "ppo").out


def test_completed_option_excludes_failed_runs_with_a_note(rl4sys: Rl4sys, root: Path) -> None:
    write_run(root / "ppo_late", returns(1), ["experiment.name=ppo"], status={"status": "failed"})
    assert "| ppo | 4 |" in rl4sys("export", "ppo", "--format", "md").out
    outcome = rl4sys("export", "ppo", "--completed", "--format", "md")
    assert "| ppo | 3 |" in outcome.out
    assert "skipped: ppo_late (failed)" in outcome.err


def test_rows_of_all_runs_of_an_experiment_are_exported(rl4sys: Rl4sys, root: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(rl4sys("export", "ppo", "--rows").out)))
    assert len(rows) == 6
    assert len({row["run"] for row in rows}) == 3
