"""Tests of the commands list, show, tag, export, cleanup and store, on hand-written run directories."""

from __future__ import annotations

import csv
import fcntl
import io
import json
import re
import shutil
import subprocess
from datetime import datetime
from pathlib import Path

import pytest

from rl4sys.runs.store import RunStore

from ..policy.test_golden import GOLDEN
from ..runs.runs import make_run, write_rows
from .conftest import Rl4sys

LONG_AGO = {"time": "2020-01-01T00:00:00"}


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    """Folder ``experiments`` with two PPO runs and a failed DQN run."""
    root = tmp_path / "experiments"
    dqn = {"algorithm": {"name": "dqn", "lr": 0.01}, "experiment": {"name": "replayed"}}
    good = [{"step": 50, "loss/policy": 0.25}, {"step": 60, "evaluation/return": 300.0}]
    good += [{"step": 100, "evaluation/return": 250.0}]
    make_run(root, "pole_1", id="aaaa1111", seed=1, rows=good, started="2026-03-01T10:00:00", tags=["baseline"])
    make_run(root, "pole_2", id="aabb2222", seed=2, started="2026-03-02T10:00:00")
    failed = {"status": "failed", "steps": 40}
    rows = [{"step": 40, "episode/return": float("nan"), "loss/policy": 0.5}]
    make_run(root, "other", id="cccc3333", settings=dqn, status=failed, started="2026-03-03T10:00:00", rows=rows)
    return root


def listed(rl4sys: Rl4sys, *arguments: str | Path) -> list[str]:
    outcome = rl4sys("list", "--json", *arguments)
    assert outcome.exit_code == 0, outcome.err
    return [run["id"] for run in json.loads(outcome.out)]


def test_list_shows_runs_newest_first(rl4sys: Rl4sys, lab: Path) -> None:
    outcome = rl4sys("list")
    lines = outcome.out.splitlines()
    assert [" ".join(line.split()) for line in (lines[0], lines[1], lines[3])] == [
        "id name algorithm environment seed status steps reward best_reward started tags",
        "cccc3333 replayed dqn CartPole-v1 0 failed 40 — — 2026-03-03 10:00",
        "aaaa1111 pole ppo CartPole-v1 1 completed 100 250.0 300.0 2026-03-01 10:00 baseline",
    ]
    assert lines[4] == "3 of 3 runs"


def test_narrow_terminal_does_not_truncate_ids_and_numbers(
    rl4sys: Rl4sys, lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "72")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    lines = rl4sys("list").out.splitlines()
    assert all(len(re.sub(r"\x1b\[[\d;]*m", "", line)) <= 72 for line in lines)
    assert "aaaa1111" in lines[3]
    assert "250.0" in lines[3]


@pytest.mark.parametrize(
    ("conditions", "found"),
    [
        (["algorithm=ppo"], ["aabb2222", "aaaa1111"]),
        (["algorithm=PPO", "reward>200"], ["aaaa1111"]),
        (["reward>=250"], ["aaaa1111"]),
        (["reward<250"], ["aabb2222"]),
        (["reward<=9.5"], []),
        (["best_reward>299"], ["aaaa1111"]),
        (["algorithm!=ppo"], ["cccc3333"]),
        (["status=failed"], ["cccc3333"]),
        (["tag=baseline"], ["aaaa1111"]),
        (["tag=base*"], ["aaaa1111"]),
        (["tag!=baseline"], ["cccc3333", "aabb2222"]),
        (["name=po*"], ["aabb2222", "aaaa1111"]),
        (["seed=2"], ["aabb2222"]),
        (["id=aa"], ["aabb2222", "aaaa1111"]),
        (["git_hash=abc"], ["cccc3333", "aabb2222", "aaaa1111"]),
        (["started>2026-03-02"], ["cccc3333", "aabb2222"]),
        (["started=2026-03-02"], ["aabb2222"]),
        (["loss/policy<0.3"], ["aaaa1111"]),
        (["loss/policy!=0.25"], ["cccc3333", "aabb2222"]),
        (["algorithm.lr = 1e-3"], ["aabb2222", "aaaa1111"]),
        (["algorithm.lr>0.005", "steps<50"], ["cccc3333"]),
    ],
)
def test_filters_select_by_column_tag_metric_and_setting(
    rl4sys: Rl4sys, lab: Path, conditions: list[str], found: list[str]
) -> None:
    arguments = [part for condition in conditions for part in ("--filter", condition)]
    assert listed(rl4sys, *arguments) == found


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["--sort", "reward"], ["aaaa1111", "aabb2222", "cccc3333"]),
        (["--sort", "reward", "--reverse"], ["aabb2222", "aaaa1111", "cccc3333"]),
        (["--sort", "reward", "--limit", "1"], ["aaaa1111"]),
        (["--sort", "loss/policy"], ["cccc3333", "aaaa1111", "aabb2222"]),
        (["--sort", "name"], ["aaaa1111", "aabb2222", "cccc3333"]),
        (["--sort", "seed", "--reverse"], ["cccc3333", "aaaa1111", "aabb2222"]),
        (["--reverse"], ["aaaa1111", "aabb2222", "cccc3333"]),
    ],
)
def test_sort_puts_missing_values_last(rl4sys: Rl4sys, lab: Path, arguments: list[str], found: list[str]) -> None:
    assert listed(rl4sys, *arguments) == found


def test_filter_and_sort_keys_are_shown_as_columns(rl4sys: Rl4sys, lab: Path) -> None:
    lines = rl4sys("list", "--filter", "algorithm.lr<1", "--sort", "loss/policy").out.splitlines()
    assert lines[0].split()[-3:] == ["algorithm.lr", "loss/policy", "tags"]
    assert lines[1].split()[-2:] == ["0.010", "0.500"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["--filter", "reward"],
            "'reward' is not a filter; write a property, an operator (= != > >= < <=) and a value",
        ),
        (["--filter", "reward>high"], "the filter 'reward>high' has the value 'high'; expected a number after >"),
        (["--filter", "tag>x"], "the filter 'tag>x' has the value 'x'; expected a number after >"),
        (["--filter", "tag>3"], "the filter on tag has the operator >; expected tag=3 or tag!=3"),
        (
            ["--filter", "rewrad>3"],
            "no run has the property 'rewrad'; did you mean reward? Known properties: id, name, directory, algorithm",
        ),
        (["--sort", "loss/polcy"], "no run has the property 'loss/polcy'; did you mean loss/policy?"),
        (["--limit", "0"], "Invalid value for '--limit'"),
    ],
)
def test_invalid_list_arguments_are_rejected(rl4sys: Rl4sys, lab: Path, arguments: list[str], says: str) -> None:
    outcome = rl4sys("list", *arguments)
    assert outcome.exit_code == 2
    assert says in outcome.err


def test_list_json_has_all_fields_and_no_nan(rl4sys: Rl4sys, lab: Path) -> None:
    newest = json.loads(rl4sys("list", "--json").out)[0]
    assert newest == {
        "id": "cccc3333",
        "name": "replayed",
        "algorithm": "dqn",
        "environment": "CartPole-v1",
        "seed": 0,
        "status": "failed",
        "steps": 40,
        "tags": [],
        "reward": None,
        "best_reward": None,
        "started": "2026-03-03T10:00:00",
        "finished": "2026-03-01T11:00:00",
        "git_hash": "abc123",
        "config_hash": newest["config_hash"],
        "final": {"episode/return": None, "loss/policy": 0.5},
        "best": {},
        "directory": "experiments/other",
    }


def test_list_includes_live_policies_and_given_roots(rl4sys: Rl4sys, lab: Path, tmp_path: Path) -> None:
    make_run(tmp_path / "live", "cache", id="dddd4444", started="2026-03-09T10:00:00")
    make_run(tmp_path / "mine", "own", id="eeee5555")
    assert listed(rl4sys)[0] == "dddd4444"
    assert listed(rl4sys, "--root", "mine") == ["eeee5555"]
    assert set(listed(rl4sys, "--root", "mine", "--root", "live")) == {"eeee5555", "dddd4444"}


def test_list_without_runs_suggests_a_command(rl4sys: Rl4sys) -> None:
    assert rl4sys("list").out == "no runs in experiments; start one with `rl4sys train ppo_cartpole`\n"
    assert rl4sys("list", "--json").out == "[]\n"


def test_list_notes_damaged_runs(rl4sys: Rl4sys, lab: Path) -> None:
    (lab / "other/status.json").write_text("{")
    outcome = rl4sys("list")
    assert outcome.exit_code == 0
    assert "note: skipped: experiments/other is damaged: status.json is not JSON" in outcome.err
    assert outcome.out.endswith("2 of 2 runs\n")


def test_show_prints_results_settings_and_provenance(rl4sys: Rl4sys, lab: Path) -> None:
    out = rl4sys("show", "aaaa").out
    expected = {
        "id": "aaaa1111",
        "status": "completed",
        "tags": "baseline",
        "steps": "100",
        "reward": "250.0",
        "best_reward": "300.0",
        "checkpoints": "none",
        "directory": "experiments/pole_1",
        "loss/policy": "0.250",
        "algorithm": "name ppo, lr 0.001",
        "git": "abc123",
        "resumed": "never",
    }
    for name, value in expected.items():
        assert re.search(rf"(?m)^\s*{name}\s+{re.escape(value)}\s*$", out), (name, out)
    assert re.search(r"config +\w{8}; also trained as aabb2222 \(seed 2\)", out)


def test_show_json_has_settings_and_provenance(rl4sys: Rl4sys, lab: Path) -> None:
    shown = json.loads(rl4sys("show", "pole_1", "--json").out)
    assert (shown["id"], shown["reward"], shown["settings"]["algorithm"]["lr"]) == ("aaaa1111", 250.0, 0.001)
    assert shown["provenance"]["git_hash"] == "abc123"


def test_show_describes_a_policy_file(rl4sys: Rl4sys, lab: Path) -> None:
    shutil.copy(GOLDEN / "squash.safetensors", "policy.safetensors")
    out = rl4sys("show", "policy.safetensors").out
    assert re.search(r"(?m)^action +float32 \(3,\), -2 to 1\.5$", out)
    assert re.search(r"(?m)^\d  squash +\d +3 -> action", out)
    outcome = rl4sys("show", "policy.safetensors", "--json")
    assert (outcome.exit_code, "policy.safetensors is a policy file; remove --json" in outcome.err) == (2, True)
    Path("state.safetensors").write_bytes(b"other")
    assert "not a safetensors file" in rl4sys("show", "state.safetensors").err


def test_commands_accept_prefix_of_run_id(rl4sys: Rl4sys, finished_run: Path) -> None:
    [record] = RunStore(finished_run.parent).runs()
    out = rl4sys("show", record.id[:4]).out
    assert re.search(r"checkpoints +step_0{12}, .*latest is step_\d{12}, best is step_\d{12}", out)
    assert re.search(r"steps +288 of 200, [\d,]+ per second", out)
    assert "torch" in out
    evaluated = rl4sys("evaluate", record.id[:4], "--episodes", "1", "--json")
    assert json.loads(evaluated.out)["run"] == str(finished_run.relative_to(Path.cwd()))
    resumed = rl4sys("train", "--resume", record.id, "--total-timesteps", "300")
    assert resumed.exit_code == 0, resumed.err
    assert RunStore(finished_run.parent).runs()[0].steps >= 300


@pytest.mark.parametrize("command", ["show", "tag", "export", "evaluate"])
def test_unknown_run_is_rejected_with_suggestion(rl4sys: Rl4sys, lab: Path, command: str) -> None:
    outcome = rl4sys(command, "pole_3")
    assert outcome.exit_code == 2
    assert "no run in experiments has the name or id 'pole_3'; did you mean pole_" in outcome.err
    assert "'pole_' matches 2 runs" in rl4sys(command, "pole_").err


def test_show_reports_the_damaged_file(rl4sys: Rl4sys, lab: Path) -> None:
    (lab / "other/configs/provenance.json").write_text("[]")
    outcome = rl4sys("show", "experiments/other")
    assert outcome.exit_code == 2
    assert "experiments/other is damaged: provenance.json contains a list, not a dict" in outcome.err


def test_tags_are_kept_if_the_index_is_deleted(rl4sys: Rl4sys, lab: Path) -> None:
    assert rl4sys("tag", "aaaa").out == "pole_1: baseline\n"
    assert rl4sys("tag", "aaaa", "paper", "v1.2", "paper").out == "pole_1: baseline paper v1.2\n"
    assert rl4sys("tag", "aaaa", "--remove", "baseline", "--remove", "paper").out == "pole_1: v1.2\n"
    assert listed(rl4sys, "--filter", "tag=v1.2") == ["aaaa1111"]
    (lab / "registry.db").unlink()
    assert listed(rl4sys, "--filter", "tag=v1.2") == ["aaaa1111"]
    assert rl4sys("tag", "aabb").out == "pole_2: no tags\n"


def test_tags_of_the_config_can_be_removed(rl4sys: Rl4sys, lab: Path) -> None:
    make_run(lab, "tagged", id="ffff6666", settings={"experiment": {"tags": ["first", "second"]}})
    assert listed(rl4sys, "--filter", "tag=first") == ["ffff6666"]
    assert rl4sys("tag", "ffff", "--remove", "first").out == "tagged: second\n"
    assert listed(rl4sys, "--filter", "tag=first") == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["aaaa", "two words"],
            "'two words' is not a valid tag; use 1 to 60 letters, digits and characters of '. : / + - _'",
        ),
        (["aaaa", "a=b"], "'a=b' is not a valid tag"),
        (["aaaa", "--remove", "basline"], "pole_1 has no tag 'basline'; it has: baseline"),
    ],
)
def test_invalid_tag_arguments_are_rejected(rl4sys: Rl4sys, lab: Path, arguments: list[str], says: str) -> None:
    outcome = rl4sys("tag", *arguments)
    assert outcome.exit_code == 2
    assert says in outcome.err


def test_csv_export_does_not_round_numbers(rl4sys: Rl4sys, lab: Path) -> None:
    [first, second] = csv.DictReader(io.StringIO(rl4sys("export", "aaaa", "aabb").out))
    assert (first["run"], float(first["reward"]), float(first["loss/policy"])) == ("pole_1", 250.0, 0.25)
    assert (second["reward"], second["loss/policy"], second["evaluation/return"]) == ("10.0", "", "")


def test_export_rows_writes_all_metrics_rows(rl4sys: Rl4sys, lab: Path, tmp_path: Path) -> None:
    outcome = rl4sys("export", "aaaa", "--rows", "--output", "curve.csv")
    assert outcome.out == "wrote curve.csv\n"
    rows = list(csv.DictReader(io.StringIO((tmp_path / "curve.csv").read_text())))
    assert [(row["step"], row["evaluation/return"]) for row in rows] == [("50", ""), ("60", "300.0"), ("100", "250.0")]


def test_json_export_has_null_for_nan(rl4sys: Rl4sys, lab: Path) -> None:
    [exported] = json.loads(rl4sys("export", "cccc", "--format", "json").out)
    assert (exported["episode/return"], exported["loss/policy"], exported["steps"]) == (None, 0.5, 40)


def test_markdown_export_is_a_table(rl4sys: Rl4sys, lab: Path) -> None:
    lines = rl4sys("export", "aaaa", "aabb", "--format", "md", "--metrics", "loss/policy").out.splitlines()
    assert lines == [
        "| run | algorithm | environment | seed | status | steps | reward | best_reward | loss/policy |",
        "| --- | --- | --- | ---: | --- | ---: | ---: | ---: | ---: |",
        "| pole_1 | ppo | CartPole-v1 | 1 | completed | 100 | 250.0 | 300.0 | 0.250 |",
        "| pole_2 | ppo | CartPole-v1 | 2 | completed | 100 | 10.0 | 10.0 | — |",
    ]


def test_latex_export_escapes_special_characters(rl4sys: Rl4sys, lab: Path) -> None:
    rows = [{"step": 5000, "evaluation/return": -1234.5, "loss/50%_{x}": 0.5}]
    make_run(lab, "odd_100%&#$", id="abcd", settings={"environment": {"name": r"a\b~c^d"}}, rows=rows)
    assert rl4sys("export", "abcd", "--format", "latex").out.splitlines() == [
        r"% \usepackage{booktabs}",
        r"\begin{tabular}{lr}",
        r"\toprule",
        r" & odd\_100\%\&\#\$ \\",
        r"\midrule",
        r"algorithm & ppo \\",
        r"environment & a\textbackslash{}b\textasciitilde{}c\textasciicircum{}d \\",
        r"seed & 0 \\",
        r"status & completed \\",
        r"steps & 100 \\",
        r"reward & $-1{,}234$ \\",
        r"best\_reward & $-1{,}234$ \\",
        r"evaluation/return & $-1{,}234$ \\",
        r"loss/50\%\_\{x\} & 0.500 \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no LaTeX here")
def test_exported_latex_compiles(rl4sys: Rl4sys, lab: Path, tmp_path: Path) -> None:
    table = rl4sys("export", "aaaa", "aabb", "--format", "latex").out
    document = "\\documentclass{article}\\usepackage{booktabs}\\begin{document}\n" + table + "\\end{document}\n"
    (tmp_path / "table.tex").write_text(document)
    command = ["pdflatex", "-interaction=batchmode", "-halt-on-error", "table.tex"]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["--rows", "--format", "latex"],
            "--format latex does not support --rows; use --format csv or --format json",
        ),
        (
            ["--metrics", "loss/x"],
            "none of these runs has the metric 'loss/x'; available metrics: evaluation/return, loss/policy",
        ),
        (
            ["--output", "nowhere/x.csv"],
            "cannot write nowhere/x.csv: No such file or directory; choose another file with --output",
        ),
        (["--format", "pdf"], "'pdf' is not one of 'latex', 'csv', 'json', 'md'"),
        (["--rows", "--by", "name"], "--by groups results and does not apply to --rows; remove one of the two"),
        (["--statistic", "best"], "unknown statistic 'best'"),
    ],
)
def test_invalid_export_arguments_are_rejected(rl4sys: Rl4sys, lab: Path, arguments: list[str], says: str) -> None:
    outcome = rl4sys("export", "aaaa", *arguments)
    assert outcome.exit_code == 2
    assert says in " ".join(outcome.err.split())


@pytest.fixture
def old(lab: Path) -> Path:
    """Six old runs with large files, in two environments."""
    for number in range(4):
        rows = [{"step": 1, "evaluation/return": 10.0 * number}]
        large(make_run(lab, f"old_{number}", rows=rows, status=LONG_AGO))
    for number in range(2):
        other = {"environment": {"name": "Pendulum-v1"}}
        rows = [{"step": 1, "evaluation/return": -100.0 * number}]
        large(make_run(lab, f"swung_{number}", rows=rows, status=LONG_AGO, settings=other))
    for name in ("pole_1", "pole_2", "other"):
        shutil.rmtree(lab / name)
    return lab


def large(path: Path) -> Path:
    for name in ("checkpoints/step_000000000001", "logs", "videos"):
        (path / name).mkdir(parents=True)
        (path / name / "file").write_bytes(b"x" * 50_000)
    (path / "checkpoints/latest").symlink_to("step_000000000001")
    return path


def stripped(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir() if path.is_dir() and not (path / "logs/file").is_file())


def test_cleanup_deletes_files_of_old_runs_with_low_return(rl4sys: Rl4sys, old: Path) -> None:
    before = RunStore(old).runs()
    large(make_run(old, "new", status={"time": datetime.now().isoformat(timespec="seconds")}))
    outcome = rl4sys("cleanup", "--keep-best", "1", "--keep-recent", "30", "--yes")
    assert outcome.exit_code == 0, outcome.err
    assert stripped(old) == ["old_0", "old_1", "old_2", "swung_1"]
    assert "kept unchanged (among the best in CartPole-v1): 1 run\n" in outcome.out
    assert "kept unchanged (changed in the last 30 days): 1 run\n" in outcome.out
    freed = re.search(r"4 runs to clean up, (\d+\.\d) kB to free\nfreed (\d+\.\d) kB\n$", outcome.out)
    assert freed is not None
    assert 600 < float(freed[1]) == float(freed[2]) < 700, "three files of 50 kB each of four runs, and folders"
    path = old / "old_0"
    assert sorted(p.name for p in path.iterdir()) == sorted(
        ["checkpoints", "configs", "logs", "metrics.jsonl", "status.json", "videos", ".lock"]
    )
    assert not any((path / "checkpoints").iterdir())
    assert "cleaned" in json.loads((path / "status.json").read_text())
    after = [record for record in RunStore(old).runs() if record.path.name != "new"]
    assert after == before, "the summaries are unchanged"
    assert "checkpoints, logs and videos were removed" in rl4sys("show", "old_0").out
    again = rl4sys("cleanup", "--keep-best", "1", "--keep-recent", "30", "--yes")
    assert "kept unchanged (no large files): 4 runs\n" in again.out
    assert again.out.endswith("nothing to do\n")


def test_cleanup_does_not_keep_debug_runs_as_best(rl4sys: Rl4sys, old: Path) -> None:
    best = [{"step": 100, "episode/return": 1e6}]
    large(make_run(old, "tried", status={"time": "2020-01-01T00:00:00"}, rows=best, tags=["debug"]))
    assert rl4sys("cleanup", "--keep-best", "1", "--keep-recent", "30", "--yes").exit_code == 0
    assert "tried" in stripped(old)
    assert "old_3" not in stripped(old)


def test_debug_runs_are_listed_but_not_ranked(rl4sys: Rl4sys, lab: Path) -> None:
    make_run(lab, "tried", id="ffff9999", rows=[{"step": 100, "episode/return": 1e6}], tags=["debug"])
    for more in ([], ["--reverse"]):
        ids = listed(rl4sys, "--sort", "reward", *more)
        assert ids.index("ffff9999") > max(ids.index("aaaa1111"), ids.index("aabb2222"))
    shown = rl4sys("list").out
    assert re.search(r"ffff9999 .* completed, debug +100", shown)
    assert len(re.findall("debug", shown)) == 2  # status and tag


def test_cleanup_dry_run_removes_nothing(rl4sys: Rl4sys, old: Path) -> None:
    outcome = rl4sys("cleanup", "--keep-best", "0", "--keep-recent", "30", "--dry-run")
    assert outcome.exit_code == 0
    assert re.search(r"old_3 +CartPole-v1 +2020-01-01 +30\.0 +\d+\.\d kB", outcome.out)
    assert "6 runs to clean up" in outcome.out
    assert stripped(old) == []


def test_cleanup_asks_for_confirmation(rl4sys: Rl4sys, old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.confirm", lambda text, abort: (_ for _ in ()).throw(SystemExit(1)))
    assert rl4sys("cleanup", "--keep-best", "0").exit_code == 1
    assert stripped(old) == []


def test_cleanup_without_terminal_requires_yes(rl4sys: Rl4sys, old: Path) -> None:
    outcome = rl4sys("cleanup", "--keep-best", "0")
    assert outcome.exit_code == 2
    assert (
        "cleanup asks before it removes files, but stdin is not a terminal; add --yes to remove without asking"
        in outcome.err
    )
    assert stripped(old) == []


def test_cleanup_keeps_runs_in_use(rl4sys: Rl4sys, old: Path) -> None:
    (old / "old_0/configs/live.json").write_text("{}")
    using = {"dataset": {"path": str((old / "old_2/data").resolve())}}
    make_run(old, "user", settings=using, status=LONG_AGO, rows=[])
    trial = large(make_run(old / "sweep", "trial_000", status=LONG_AGO))
    (old / "sweep/plan.json").write_text("{}")
    done = large(make_run(old / "swept", "trial_000", status=LONG_AGO))
    stopped = large(make_run(old / "swept", "trial_001", status=LONG_AGO | {"status": "stopped"}))
    for name in ("plan.json", "ranking.json"):
        (old / "swept" / name).write_text("{}")
    write_rows(done, *({"step": n, "evaluation/return": 1.0} for n in range(101, 2101)))
    with (old / "old_1/.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        (old / "old_1/status.json").write_text(json.dumps({"status": "running"} | LONG_AGO))
        outcome = rl4sys("cleanup", "--keep-best", "0", "--keep-recent", "30", "--yes")
    assert [name for name in stripped(old) if name.startswith(("old", "swung"))] == ["old_3", "swung_0", "swung_1"]
    for reason in (
        "running",
        "hosted policy",
        "used by the config of user",
        "trial of sweep, which has not finished",
    ):
        assert f"kept unchanged ({reason}): 1 run\n" in outcome.out
    assert (trial / "logs/file").is_file()
    assert (stopped / "logs/file").is_file(), "a resumed sweep needs it"
    assert not (done / "logs/file").is_file()
    assert len((done / "metrics.jsonl").read_text().splitlines()) == 2001, "the ranking needs the metrics"


def test_cleanup_thins_metrics_but_keeps_best_and_last_rows(rl4sys: Rl4sys, old: Path) -> None:
    (old / "old_0/metrics.jsonl").unlink()
    write_rows(old / "old_0", {"step": 0, "rare": 1.0})
    write_rows(old / "old_0", *({"step": n, "evaluation/return": float(n == 777)} for n in range(1, 5000)))
    [before] = [record for record in RunStore(old).runs() if record.path.name == "old_0"]
    rl4sys("cleanup", "--keep-best", "0", "--keep-recent", "30", "--yes")
    [after] = [record for record in RunStore(old).runs() if record.path.name == "old_0"]
    rows = [json.loads(line) for line in (old / "old_0/metrics.jsonl").read_text().splitlines()]
    assert 1000 <= len(rows) <= 1003
    assert [row["step"] for row in rows] == sorted(row["step"] for row in rows)
    assert (after.outcome.final, after.outcome.best) == (before.outcome.final, before.outcome.best)
    assert after.outcome.best == {"evaluation/return": 1.0}


def test_cleaned_run_cannot_be_evaluated_or_resumed(rl4sys: Rl4sys, finished_run: Path) -> None:
    rl4sys("cleanup", "--keep-best", "0", "--keep-recent", "0", "--yes")
    outcome = rl4sys("evaluate", finished_run)
    assert outcome.exit_code == 2
    assert "no checkpoint 'latest' in" in outcome.err
    stored = (finished_run / "configs/config.yaml").read_bytes()
    resumed = rl4sys("train", "--resume", finished_run, "--total-timesteps", "400")
    assert resumed.exit_code == 2
    assert (
        "has no checkpoint to resume from: the run ended before its first checkpoint, or `rl4sys cleanup` removed "
        "the checkpoints" in resumed.err
    )
    assert (finished_run / "configs/config.yaml").read_bytes() == stored


def test_store_rebuild_replaces_corrupt_index(rl4sys: Rl4sys, lab: Path) -> None:
    (lab / "registry.db").write_bytes(b"no database" * 100)
    outcome = rl4sys("store", "rebuild")
    assert outcome.out == "experiments/registry.db: 3 runs\n"
    assert "was corrupt (file is not a database) and was rebuilt from the runs" in outcome.err
    assert rl4sys("store", "rebuild", "--root", "nowhere").err == (
        "rl4sys: folder 'nowhere' does not exist; choose a folder of runs with --root\n"
    )


@pytest.mark.parametrize(
    "command", [["list"], ["show"], ["tag"], ["export"], ["cleanup"], ["store"], ["store", "rebuild"]]
)
def test_store_commands_have_help(rl4sys: Rl4sys, command: list[str]) -> None:
    outcome = rl4sys(*command, "--help")
    assert outcome.exit_code == 0
    assert len(outcome.out.splitlines()) > 5
