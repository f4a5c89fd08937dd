"""Plots and HTML pages: content, escaping and self-containment."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from rl4sys.analysis.charts import COLORS, Bars, Chart, Line, Panel, comparison_chart, style
from rl4sys.analysis.comparison import Comparison, ComparisonOptions, compare
from rl4sys.analysis.comparison_report import to_page
from rl4sys.analysis.curves import Band
from rl4sys.analysis.groups import Group, group_runs
from rl4sys.analysis.markup import element, text
from rl4sys.analysis.page import draw_chart, render, write_page
from rl4sys.analysis.plots import check_suffix, draw
from rl4sys.analysis.selection import select_runs
from rl4sys.analysis.svg import ticks
from rl4sys.errors import ConfigError, RunError

from .runs import returns, write_run, write_seeds

HOSTILE = "</script><img src=x onerror=alert(1)>&\"'"


@pytest.fixture
def comparison(tmp_path: Path) -> Comparison:
    root = tmp_path / "experiments"
    write_seeds(root, "ppo", [returns(10, 40, 60), returns(10, 50, 70)])
    write_seeds(root, "dqn", [returns(20, 30, 80)], "algorithm.name=dqn")
    return compare(group_runs(select_runs(["ppo", "dqn"], root).chosen), ["reward"], ComparisonOptions())


class Reader(HTMLParser):
    """Parser that collects tags, attributes and text. Unclosed tags are an error."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] not in (["script"], ["style"]):
            self.text.append(data)


def svg_text(path: Path) -> str:
    return " ".join(ElementTree.parse(path).getroot().itertext())


def test_plot_has_title_labels_and_legend(comparison: Comparison, tmp_path: Path) -> None:
    path = tmp_path / "new" / "plot.svg"
    draw(comparison_chart(comparison), path)
    content = svg_text(path)
    for expected in (
        "CartPole-v1",
        "Evaluation return",
        "environment steps",
        "return per episode",
        "ppo (2 seeds)",
        "dqn (1 seed)",
        "Line: interquartile mean over seeds; band: 95% bootstrap interval.",
    ):
        assert expected in content
    assert COLORS[0].lower() in path.read_text()
    assert COLORS[1].lower() in path.read_text()


@pytest.mark.parametrize(("name", "first"), [("a.png", b"\x89PNG"), ("a.PDF", b"%PDF"), ("a.svg", b"<?xml")])
def test_suffix_determines_plot_format(comparison: Comparison, tmp_path: Path, name: str, first: bytes) -> None:
    draw(comparison_chart(comparison), tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(first)


def test_plot_is_deterministic(comparison: Comparison, tmp_path: Path) -> None:
    for name in ("a.svg", "b.svg"):
        draw(comparison_chart(comparison), tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_long_legend_stays_within_figure(tmp_path: Path) -> None:
    band = Band(np.array([1.0, 2.0]), np.array([2.0, 3.0]), None, None, 1)
    lines = tuple(Line(f"group {number} (5 seeds)", style(number), band) for number in range(14))
    draw(Chart("many", (Panel("a", "steps", "b", lines),), ""), tmp_path / "a.svg")
    drawn = ElementTree.parse(tmp_path / "a.svg").getroot()
    width = float(str(drawn.get("width")).removesuffix("pt"))
    labels = [found for found in drawn.iter() if "seeds)" in (found.text or "")]
    assert len(labels) == 14
    assert all(0 < float(label.get("x", -1)) < width - 80 for label in labels)


def test_unknown_suffix_is_rejected() -> None:
    with pytest.raises(
        ConfigError, match=r"the plot file is 'a\.bmp'; expected a file name that ends in \.png, \.svg or \.pdf"
    ):
        check_suffix(Path("a.bmp"))


def test_write_error_contains_the_path(comparison: Comparison, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match=r"cannot write .*file/a\.png"):
        draw(comparison_chart(comparison), tmp_path / "file" / "a.png")
    with pytest.raises(RunError, match=r"cannot write .*: Is a directory"):
        write_page("x", tmp_path)


def test_dollar_signs_are_not_parsed_as_formulas(tmp_path: Path) -> None:
    band = Band(np.array([1.0]), np.array([2.0]), None, None, 1)
    panel = Panel("$a_b$ costs", "steps", "$", (Line(r"$\frac$", style(0), band),))
    draw(Chart("$\\undefined$", (panel,), ""), tmp_path / "a.svg")
    content = svg_text(tmp_path / "a.svg")
    assert r"$\frac$" in content
    assert "$a_b$ costs" in content


def test_empty_panel_contains_a_placeholder_text(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    comparison = compare(group_runs(select_runs([str(run)], tmp_path).chosen), ["reward"], ComparisonOptions())
    draw(comparison_chart(comparison), tmp_path / "a.svg")
    assert "no values yet" in svg_text(tmp_path / "a.svg")
    assert "no values yet" in to_page(comparison)


def test_line_styles_are_distinct() -> None:
    assert len({style(number) for number in range(280)}) == 280
    for number in range(40):
        assert style(number).dash != style(number + 1).dash
        assert style(number).marker != style(number + 1).marker


def test_only_best_of_many_groups_are_drawn(tmp_path: Path) -> None:
    for number in range(18):
        write_run(tmp_path / f"r{number:02d}", returns(number), [f"experiment.name=r{number:02d}"])
    runs = select_runs([str(tmp_path)], tmp_path).runs
    groups = [Group(run.name, (run,)) for run in runs]
    chart = comparison_chart(compare(groups, ["reward"], ComparisonOptions()))
    assert len(chart.lines) == 16
    assert chart.lines[0].label == "r02 (1 seed)"
    assert chart.notes == ("the 2 groups with lower results are not drawn",)


def test_comparison_page_is_self_contained(comparison: Comparison) -> None:
    page = to_page(comparison)
    read = Reader(page)
    tags = {tag for tag, _ in read.tags}
    assert tags & {"link", "img", "iframe"} == set()
    assert not re.search(r"https?://|//cdn|@import|url\(", page)
    assert all("src" not in attributes for _, attributes in read.tags)
    assert ("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}) in read.tags
    assert "prefers-color-scheme: dark" in page
    content = " ".join(read.text)
    for expected in ("Comparison: CartPole-v1", "ppo (2 seeds)", "algorithm.name", "0123456789", "environment steps"):
        assert expected in content
    drawn = [attributes for tag, attributes in read.tags if tag == "path" and attributes.get("class") == "line"]
    assert len(drawn) == 4  # two lines in the legend, two in the panel


def test_all_content_from_runs_is_escaped(tmp_path: Path) -> None:
    rows = [{"step": 1, HOSTILE: 1.0}, {"step": 2, HOSTILE: 2.0}]
    run = write_run(tmp_path / "run", rows, status={"status": HOSTILE, "steps": 2})
    settings = json.dumps(
        {"experiment": {"name": HOSTILE, "seed": 0}, "environment": {"name": HOSTILE}, "algorithm": {HOSTILE: HOSTILE}}
    )
    (run / "configs" / "config.yaml").write_text(settings)
    (run / "configs" / "provenance.json").write_text(
        json.dumps({"started": HOSTILE, "git_hash": HOSTILE, "packages": {"rl4sys": HOSTILE}})
    )
    other = write_run(tmp_path / "other", rows)
    groups = group_runs(select_runs([str(run), str(other)], tmp_path).chosen)
    page = to_page(compare(groups, [HOSTILE], ComparisonOptions()))
    assert page.count("alert(1)") > 8  # the hostile content is present as escaped text
    assert "<img" not in page
    assert page.count("</script>") == page.count("<script")
    read = Reader(page)
    assert not any("onerror" in attributes for _, attributes in read.tags)
    numbers = re.findall(r'<script type="application/json">(.*?)</script>', page)
    assert json.loads(numbers[0])["lines"][0]["label"] == f"{HOSTILE} (1 seed)"


def test_tooltip_data_equals_curves(comparison: Comparison) -> None:
    numbers = json.loads(re.findall(r'<script type="application/json">(.*?)</script>', to_page(comparison))[0])
    assert numbers["lines"][0] == {
        "label": "ppo (2 seeds)",
        "color": 0,
        "steps": [100, 200, 300],
        "center": [10.0, 45.0, 65.0],
        "low": [10.0, 40.0, 60.0],
        "high": [10.0, 50.0, 70.0],
    }
    assert numbers["lines"][1]["low"] is None


def test_bars_have_percentages_as_text(tmp_path: Path) -> None:
    chart = Chart("Importance", (Bars("Shares", "share of the variance", ("lr", "gamma"), (0.75, 0.0)),), "")
    page = render("t", "s", draw_chart(chart))
    assert "75%" in " ".join(Reader(page).text)
    assert 'style="width:75.0%"' in page
    draw(chart, tmp_path / "bars.svg")
    assert "gamma" in svg_text(tmp_path / "bars.svg")


def test_markup_is_escaped_in_text_and_attributes() -> None:
    assert element("a", text("<b>"), class_='"x"', stroke_width=2) == (
        '<a class="&quot;x&quot;" stroke-width="2">&lt;b&gt;</a>'
    )


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 500, [0, 100, 200, 300, 400, 500]),
        (-0.003, 0.011, [0, 0.005, 0.01]),
        (2048, 40192, [10000, 20000, 30000, 40000]),
    ],
)
def test_axis_ticks_are_round_numbers(low: float, high: float, expected: list[float]) -> None:
    assert ticks(low, high) == pytest.approx(expected)
