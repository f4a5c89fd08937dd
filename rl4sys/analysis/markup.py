"""Construction of HTML and SVG markup. All plain text is escaped."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import NewType

Markup = NewType("Markup", str)
"""String of valid HTML or SVG markup. Use `text` to escape any other string."""


def text(value: object) -> Markup:
    """Escape a value, so that it is never interpreted as markup."""
    return Markup(html.escape(str(value), quote=True))


def element(name: str, *content: Markup, **attributes: object) -> Markup:
    """Return an HTML or SVG element. The argument `class_` is written as class, `stroke_width` as stroke-width."""
    written = "".join(f' {key.rstrip("_").replace("_", "-")}="{text(value)}"' for key, value in attributes.items())
    return Markup(f"<{name}{written}>{''.join(content)}</{name}>")


def joined(parts: Iterable[Markup]) -> Markup:
    return Markup("".join(parts))


def table(headings: Sequence[str], rows: Iterable[Sequence[object]], *, text_columns: int = 1) -> Markup:
    """Return an HTML table that scrolls if too wide. The first `text_columns` columns are text, the others numbers."""
    kinds = ["words" if column < text_columns else "figures" for column in range(len(headings))]
    head = joined(element("th", text(h), class_=k, scope="col") for h, k in zip(headings, kinds, strict=True))
    body = joined(
        element("tr", *(element("td", text(cell), class_=k) for cell, k in zip(row, kinds, strict=True)))
        for row in rows
    )
    inside = element("table", element("thead", element("tr", head)), element("tbody", body))
    return element("div", inside, class_="scroll", tabindex="0")


def section(heading: str, *content: Markup) -> Markup:
    return element("section", element("h2", text(heading)), *content)


def paragraph(content: str, class_: str = "") -> Markup:
    return element("p", text(content), **({"class_": class_} if class_ else {}))


def bullets(items: Sequence[str]) -> Markup:
    return element("ul", *(element("li", text(item)) for item in items))
