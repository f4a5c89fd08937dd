"""Selection, grouping and comparison of runs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from rl4sys.analysis.comparison import Comparison, ComparisonOptions, compare
from rl4sys.analysis.comparison_report import improvement_rows, summary_headings, summary_rows, to_json
from rl4sys.analysis.groups import differences, group_runs
from rl4sys.analysis.history import History
from rl4sys.analysis.metric_catalog import higher_is_better, resolve, title, unit
from rl4sys.analysis.selection import select_runs
from rl4sys.errors import ConfigError, RunError

from .runs import COMPLETED, returns, write_run, write_seeds


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a root with three runs of PPO, and two runs with a higher learning rate."""
    folder = tmp_path / "experiments"
    write_seeds(folder, "ppo", [returns(10, 40), returns(10, 50), returns(10, 90)])
    write_seeds(folder, "fast", [returns(20, 10), returns(30, 20)], "algorithm.lr=0.01", "algorithm.clip=0.1")
    return folder


def compared(root: Path, *arguments: str, metrics: tuple[str, ...] = ("reward",), by: str = "config") -> Comparison:
    return compare(group_runs(select_runs(arguments, root).chosen, by), metrics, ComparisonOptions())


def runs_of(root: Path, *arguments: str) -> list[History]:
    return select_runs(arguments, root).runs


def names(runs: list[History]) -> list[str]:
    return [run.path.name for run in runs]


def test_experiment_name_selects_all_its_runs(root: Path) -> None:
    write_seeds(root, "ppo_long", [returns(1)])
    assert names(runs_of(root, "ppo")) == [f"ppo_20260102-03040{seed}" for seed in (0, 1, 2)]


def test_pattern_folder_and_path_select_runs(root: Path) -> None:
    assert len(runs_of(root, "ppo_*", "fast_*-030400")) == 4
    assert len(runs_of(root, str(root / "f*"))) == 2
    assert len(runs_of(root, str(root))) == 5
    assert names(runs_of(root, str(root / "fast_20260102-030401"))) == ["fast_20260102-030401"]
    assert names(runs_of(root, "fast_20260102-030401")) == ["fast_20260102-030401"]


def test_unknown_run_error_suggests_alternatives(root: Path) -> None:
    with pytest.raises(RunError, match=r"no run in .*experiments has the name or id 'pop'; did you mean ppo\?"):
        select_runs(["pop"], root)
    with pytest.raises(RunError, match=r"'x\*' matches no run in the current directory or .*experiments"):
        select_runs(["x*"], root)
    with pytest.raises(
        RunError, match=r"no run 'ppo': there are no runs in .*elsewhere; choose another folder with --root"
    ):
        select_runs(["ppo"], root / "elsewhere")


def test_corrupt_run_among_many_is_skipped_with_note(root: Path) -> None:
    (root / "ppo_20260102-030401" / "configs" / "config.yaml").write_text("[")
    selection = select_runs([str(root)], root)
    assert len(selection.runs) == 4
    assert "skipped: " in selection.notes[0]
    assert "ppo_20260102-030401 is damaged: " in selection.notes[0]
    assert select_runs(["ppo"], root).notes == selection.notes
    with pytest.raises(RunError, match="is damaged"):
        select_runs(["ppo_20260102-030401"], root)


def test_completed_keeps_only_completed_runs(root: Path) -> None:
    write_run(root / "ppo_late", returns(1), ["experiment.name=ppo"], status={"status": "failed"})
    selection = select_runs(["ppo"], root).completed()
    assert len(selection.runs) == 3
    assert selection.notes == ["skipped: ppo_late (failed)"]
    with pytest.raises(RunError, match="none of these runs has completed"):
        select_runs(["ppo_late"], root).completed()


def test_runs_that_differ_only_in_seed_and_logging_form_one_group(root: Path) -> None:
    write_run(
        root / "ppo_x",
        changes=[
            "experiment.name=ppo",
            "experiment.seed=9",
            "logging.terminal=false",
            "training.checkpoint_frequency=7",
        ],
    )
    groups = group_runs(select_runs(["ppo", "fast"], root).chosen)
    assert [(group.label, len(group.runs)) for group in groups] == [("ppo", 4), ("fast", 2)]


def test_run_selected_twice_is_counted_once(root: Path) -> None:
    groups = group_runs(select_runs(["ppo", "ppo_*"], root).chosen)
    assert [len(group.runs) for group in groups] == [3]


def test_groups_of_same_name_are_labeled_by_differing_settings(root: Path) -> None:
    for number, lr in enumerate((0.01, 0.1)):
        write_run(root / f"ppo_other{number}", changes=["experiment.name=ppo", f"algorithm.lr={lr}"])
    groups = group_runs(select_runs(["ppo"], root).chosen)
    assert sorted(group.label for group in groups) == ["ppo lr=0.001", "ppo lr=0.01", "ppo lr=0.1"]


def test_group_labels_are_unique(root: Path) -> None:
    for number in range(2):
        settings = [f"algorithm.a={n}" for n in ("1", "2", "3")] + [f"algorithm.late={number}"]
        write_run(root / f"same{number}", changes=["experiment.name=same", *settings])
    write_run(root / "same_too", changes=["experiment.name=same", "algorithm.early=1"])
    labels = [group.label for group in group_runs(select_runs([str(root)], root).chosen)]
    assert len(set(labels)) == len(labels)


@pytest.mark.parametrize(
    ("by", "labels"),
    [
        ("name", ["ppo", "fast"]),
        ("algorithm.lr", ["lr=0.001", "lr=0.01"]),
        ("algorithm, seed", ["ppo, seed=0", "ppo, seed=1", "ppo, seed=2"]),
        ("environment", ["CartPole-v1"]),
        ("argument", ["ppo", "fast"]),
    ],
)
def test_grouping_by_name_setting_or_argument(root: Path, by: str, labels: list[str]) -> None:
    assert [group.label for group in group_runs(select_runs(["ppo", "fast"], root).chosen, by)] == labels


def test_grouping_by_run_makes_one_group_per_run(root: Path) -> None:
    assert len(group_runs(select_runs(["ppo", "fast"], root).chosen, "run")) == 5


def test_unknown_grouping_is_rejected_with_suggestion(root: Path) -> None:
    with pytest.raises(ConfigError, match=r"--by 'algorithm\.lrr' is not a setting .*did you mean algorithm\.lr\?"):
        group_runs(select_runs(["ppo"], root).chosen, "algorithm.lrr")


def test_only_differing_settings_are_shown(root: Path) -> None:
    found = differences(group_runs(select_runs(["ppo", "fast"], root).chosen))
    assert [(d.setting, d.values) for d in found] == [
        ("algorithm.lr", ("0.001", "0.01")),
        ("algorithm.clip", ("—", "0.1")),
    ]


def test_schedule_is_compared_as_one_setting(root: Path) -> None:
    for number, lr in enumerate(("{start: 0.1, end: 0.0, fraction: 1.0}", "{start: 0.1, end: 0.0, fraction: 0.5}")):
        write_run(root / f"ppo_schedule{number}", changes=["experiment.name=ppo", f"algorithm.lr={lr}"])
    groups = group_runs(select_runs(["ppo"], root).chosen)
    assert sorted(group.label for group in groups) == [
        "ppo lr=0.001",
        "ppo lr=0.1 → 0.0",
        "ppo lr=0.1 → 0.0 (fraction 0.5)",
    ]


def test_all_values_of_a_setting_within_group_are_shown(root: Path) -> None:
    found = differences(group_runs(select_runs(["ppo", "fast"], root).chosen, "environment"))
    assert found[0].values == ("0.001; 0.01",)


def test_interquartile_mean_of_seeds_is_compared(root: Path) -> None:
    comparison = compared(root, "ppo", "fast")
    ppo, fast = comparison.metrics[0].summaries
    assert comparison.metrics[0].metric == "evaluation/return"
    # The interquartile mean has the weights 1/6, 2/3 and 1/6 for 40, 50 and 90.
    assert ppo.final.value == pytest.approx((40 + 4 * 50 + 90) / 6)
    assert ppo.final.runs == 3
    assert ppo.final.interval is not None
    assert 40 <= ppo.final.interval.low < ppo.final.value < ppo.final.interval.high <= 90
    assert fast.final.value == 15
    assert fast.best is not None
    assert (fast.best.value, fast.best_at) == (25, 100)
    assert ppo.band.steps.tolist() == [100, 200]


def test_results_of_group_do_not_depend_on_other_groups(root: Path) -> None:
    alone = compared(root, "ppo").metrics[0].summaries[0]
    together = compared(root, "fast", "ppo").metrics[0].summaries[1]
    assert alone.final == together.final
    assert np.array_equal(alone.band.low, together.band.low)  # type: ignore[arg-type]


def test_probability_of_improvement_is_computed_for_all_pairs_of_groups(root: Path) -> None:
    headings, rows = improvement_rows(compared(root, "ppo", "fast").metrics[0])
    assert headings == ["group", "than 1", "than 2"]
    assert rows == [["1 ppo", "—", "1.000 [1.000, 1.000]"], ["2 fast", "0.000 [0.000, 0.000]", "—"]]


def test_lower_loss_is_better(root: Path) -> None:
    rows = [returns(3, 5, 4, metric="loss/value"), returns(2, 1, 2, metric="loss/value")]
    write_seeds(root, "worse", [rows[0], rows[0]])
    write_seeds(root, "lower", [rows[1], rows[1]], "algorithm.lr=5")
    comparison = compared(root, "worse", "lower", metrics=("loss",))
    worse, lower = comparison.metrics[0].summaries
    assert worse.best is not None
    assert (worse.best.value, worse.best_at) == (3, 100)
    assert "lowest IQM [95%]" in summary_headings(comparison, comparison.metrics[0])
    assert improvement_rows(comparison.metrics[0])[1][1] == ["2 lower", "1.000 [1.000, 1.000]", "—"]
    assert lower.final.value == 2


def test_metric_without_preferred_direction_has_no_best_value(root: Path) -> None:
    write_run(root / "entropic", returns(3, 2, metric="policy/entropy"), ["experiment.name=entropic"])
    comparison = compared(root, "entropic", metrics=("policy/entropy",))
    assert summary_headings(comparison, comparison.metrics[0]) == ["group", "seeds", "final IQM [95%]", "steps"]
    assert summary_rows(comparison.metrics[0]) == [["entropic", "1", "2.000", "200"]]


def test_reward_is_the_training_return_if_there_are_no_evaluations(root: Path) -> None:
    write_run(root / "live", returns(1, 2, metric="episode/return"), ["experiment.name=live"])
    assert resolve(["reward"], runs_of(root, "live")) == ["episode/return"]
    assert resolve(["reward"], runs_of(root, "ppo", "live")) == ["evaluation/return"]


def test_metrics_are_selected_by_name_and_pattern(root: Path) -> None:
    rows = [{"step": 1, "loss/a": 1.0, "loss/b": 2.0, "policy/kl": 3.0, "policy/lr": 4.0}]
    write_run(root / "rich", rows, ["experiment.name=rich"])
    runs = runs_of(root, "rich")
    assert resolve(["loss"], runs) == ["loss/a", "loss/b"]
    assert resolve(["policy/*", "loss/b", "policy/kl"], runs) == ["policy/kl", "policy/lr", "loss/b"]


def test_unknown_metric_is_rejected_with_suggestion(root: Path) -> None:
    with pytest.raises(ConfigError, match=r"no metric 'evaluation/retrun' .*did you mean evaluation/return\?"):
        compared(root, "ppo", metrics=("evaluation/retrun",))
    with pytest.raises(ConfigError, match=r"no metric 'zzz' in these runs\. Known: reward, loss, evaluation/return\."):
        compared(root, "ppo", metrics=("zzz",))
    write_run(root / "empty", changes=["experiment.name=empty"])
    with pytest.raises(ConfigError, match="have written no metrics yet"):
        compared(root, "empty", metrics=("loss",))


def test_unknown_statistic_is_rejected() -> None:
    with pytest.raises(ConfigError, match=r"unknown statistic 'means'; did you mean mean\? Known: iqm, mean, median"):
        ComparisonOptions(statistic="means")


def test_missing_values_and_mixed_environments_are_noted(root: Path) -> None:
    late = {**COMPLETED, "status": "running"}
    named = ["experiment.name=ppo"]
    write_run(root / "ppo_a", [], [*named, "experiment.seed=7"], status=late)
    write_run(root / "ppo_b", returns(1, float("nan")), [*named, "experiment.seed=8"])
    notes = compared(root, "ppo").notes
    assert "ppo: evaluation/return is missing in ppo_a" in notes
    assert "ppo: evaluation/return was not finite in some rows of ppo_b; these rows are skipped" in notes
    assert "ppo: these runs are not completed: ppo_a (interrupted)" in notes
    assert "ppo: the curve ends at step 100, the last step of ppo_b; other runs reach step 200" in notes
    mixed = write_run(root / "mixed", returns(1), [*named, "environment.name=Pendulum-v1"])
    notes = compared(root, "ppo", str(mixed), by="name").notes
    assert "ppo: runs in CartPole-v1, Pendulum-v1 are combined; their returns may have different scales" in notes


def test_different_last_steps_are_noted(root: Path) -> None:
    write_run(root / "longer", returns(1, 2, 3), ["experiment.name=longer"])
    assert any("from 200 to 300" in note for note in compared(root, "ppo", "longer").notes)
    assert not any("different steps" in note for note in compared(root, "ppo", "fast").notes)


def test_runs_without_metrics_can_be_compared(root: Path) -> None:
    write_run(root / "empty", changes=["experiment.name=empty"], status=None)
    comparison = compared(root, "empty")
    assert summary_rows(comparison.metrics[0]) == [["empty", "0", "—", "—", "—", "—"]]
    assert json.loads(json.dumps(to_json(comparison), allow_nan=False))["metrics"]["evaluation/return"]


def test_comparison_json_has_all_results(root: Path) -> None:
    content = to_json(compared(root, "ppo", "fast"))
    ppo = content["metrics"]["evaluation/return"]["groups"]["ppo"]
    assert ppo["final"]["runs"] == 3
    assert ppo["curve"]["steps"] == [100, 200]
    assert content["differences"]["algorithm.lr"] == {"ppo": "0.001", "fast": "0.01"}
    assert [run["seed"] for run in content["groups"][0]["runs"]] == [0, 1, 2]


@pytest.mark.parametrize(
    ("metric", "heading", "axis", "better"),
    [
        ("evaluation/return", "Evaluation return", "return per episode", True),
        ("loss/value", "Value loss", "loss", False),
        ("loss/gradient_norm", "Gradient norm", "L2 norm", None),
        ("policy/entropy", "Policy entropy", "entropy (nats)", None),
        ("own/thing_of_mine", "own/thing_of_mine", "thing of mine", None),
    ],
)
def test_metrics_have_headings_units_and_a_direction(metric: str, heading: str, axis: str, better: bool | None) -> None:
    assert (title(metric), unit(metric), higher_is_better(metric)) == (heading, axis, better)
