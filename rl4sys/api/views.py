"""Tables, plots and videos that notebooks display and scripts save."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

from rl4sys.analysis.charts import Chart
from rl4sys.analysis.plots import draw, to_png
from rl4sys.environments.evaluation import Evaluation


class MetricsTable(Mapping[str, list[float]]):
    """Metrics by name, each a list over the logged steps; used if pandas is not installed. Missing values are NaN.

    >>> import rl4sys
    >>> MetricsTable({"step": [0, 100], "reward": [1.0, 2.0]})["reward"]
    [1.0, 2.0]
    """

    def __init__(self, columns: Mapping[str, list[float]]) -> None:
        self._columns = dict(columns)

    def __getitem__(self, name: str) -> list[float]:
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __repr__(self) -> str:
        rows = len(next(iter(self._columns.values()), []))
        return f"MetricsTable({rows} rows; columns {', '.join(self._columns)})"


def as_table(columns: Mapping[str, list[float]]) -> Any:
    """Return columns as a pandas DataFrame if pandas is installed, else as a `MetricsTable`."""
    try:
        import pandas
    except ModuleNotFoundError:
        return MetricsTable(columns)
    return pandas.DataFrame(dict(columns))


class Plot:
    """Chart that a notebook displays as an image and `save` writes to a file.

    >>> import rl4sys
    >>> run = rl4sys.train("ppo_cartpole", total_timesteps=512, progress=False)
    >>> run.plot().save("curve.png").stat().st_size > 1000
    True
    """

    def __init__(self, chart: Chart) -> None:
        self._chart = chart

    def save(self, path: str | Path) -> Path:
        """Write the chart to a ``.png``, ``.svg`` or ``.pdf`` file."""
        draw(self._chart, Path(path))
        return Path(path)

    @cached_property
    def png(self) -> bytes:
        """Chart as a PNG image."""
        return to_png(self._chart)

    def _repr_png_(self) -> bytes:
        return self.png

    def __repr__(self) -> str:
        lines = len({line.label for panel in self._chart.panels for line in getattr(panel, "lines", ())})
        return f"Plot({self._chart.title!r}, {lines} lines; save(path) writes it to a file)"


@dataclass(frozen=True)
class VideoFile:
    """Video file of recorded episodes; a notebook plays it in the output of a cell.

    >>> import rl4sys
    >>> run = rl4sys.train("ppo_cartpole", total_timesteps=512, progress=False)
    >>> video = run.video("best.gif", episodes=1)
    >>> video.path.exists(), len(video.evaluation.returns)
    (True, 1)
    """

    path: Path
    evaluation: Evaluation

    def _repr_html_(self) -> str:
        kind = "image/gif" if self.path.suffix.lower() == ".gif" else "video/mp4"
        source = f"data:{kind};base64,{base64.b64encode(self.path.read_bytes()).decode()}"
        return f'<img src="{source}">' if kind == "image/gif" else f'<video controls src="{source}"></video>'

    def __repr__(self) -> str:
        returns = ", ".join(f"{value:.1f}" for value in self.evaluation.returns)
        return f"VideoFile({str(self.path)!r}, returns {returns})"


def html_table(headings: list[str], rows: list[list[str]], title: str = "") -> str:
    """Return a table as HTML; if all headings are empty, without a heading row."""
    head = f"<tr>{''.join(f'<th>{escape(name)}</th>' for name in headings)}</tr>" if any(headings) else ""
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    caption = f"<caption>{escape(title)}</caption>" if title else ""
    return f"<table>{caption}{head}{body}</table>"


def text_table(headings: list[str], rows: list[list[str]]) -> str:
    """Return a table as lines of text; the first column is aligned left, all others right."""
    lines = [headings, *rows] if any(headings) else rows
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))] if lines else []
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )
