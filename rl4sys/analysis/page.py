"""Self-contained HTML pages: no network access, light and dark mode, readable on phones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rl4sys.analysis.charts import Bars, Chart, Line
from rl4sys.analysis.markup import Markup, element, joined, paragraph, text
from rl4sys.analysis.svg import draw_bars, draw_panel, sample
from rl4sys.errors import RunError

_ASSETS = Path(__file__).parent
_CONTENT_SECURITY_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


def render(title: str, subtitle: str, *sections: Markup) -> str:
    """Return a complete HTML page with a title, a subtitle and sections."""
    head = joined(
        [
            Markup('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
            Markup(f'<meta http-equiv="Content-Security-Policy" content="{_CONTENT_SECURITY_POLICY}">'),
            element("title", text(title)),
            Markup(f"<style>{_read_asset('page.css')}</style>"),
        ]
    )
    opening = element("header", element("h1", text(title)), paragraph(subtitle, "soft"))
    body = element("body", opening, element("main", *sections), Markup(f"<script>{_read_asset('page.js')}</script>"))
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>{body}</html>\n'


def write_page(content: str, path: Path) -> None:
    """Write a page or a table to a file and create its directory. Raises `RunError` if the file cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    except OSError as problem:
        raise RunError(f"cannot write {path}: {problem.strerror}") from problem


def draw_chart(chart: Chart) -> Markup:
    """Return the legend, panels and caption of a chart as HTML."""
    panels = [draw_bars(panel) if isinstance(panel, Bars) else draw_panel(panel) for panel in chart.panels]
    only = " only" if len(panels) == 1 else ""
    return joined(
        [
            _legend(chart.lines),
            element("div", *panels, class_=f"panels{only}"),
            *(paragraph(line, "soft") for line in (chart.caption, *chart.notes) if line),
        ]
    )


def _read_asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


def _legend(lines: Sequence[Line]) -> Markup:
    items = [element("li", sample(line.style), element("span", text(line.label))) for line in lines]
    return element("ul", *items, class_="legend") if items else Markup("")
