"""HTML and SVG text in which everything that came from outside is escaped."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import NewType

Markup = NewType("Markup", str)
"""Text that is markup already; anything else goes through `text`."""


def text(value: object) -> Markup:
    """Whatever it says, it is shown and never read as markup."""
    return Markup(html.escape(str(value), quote=True))


def element(name: str, *content: Markup, **attributes: object) -> Markup:
    """``class_`` stands for class, and ``stroke_width`` for stroke-width."""
    written = "".join(f' {key.rstrip("_").replace("_", "-")}="{text(value)}"' for key, value in attributes.items())
    return Markup(f"<{name}{written}>{''.join(content)}</{name}>")


def joined(parts: Iterable[Markup]) -> Markup:
    return Markup("".join(parts))


def table(headings: Sequence[str], rows: Iterable[Sequence[object]], *, words: int = 1) -> Markup:
    """The first ``words`` columns hold words, the others figures. Scrolls sideways by itself on a narrow screen."""
    kinds = ["words" if place < words else "figures" for place in range(len(headings))]
    head = joined(element("th", text(h), class_=k, scope="col") for h, k in zip(headings, kinds, strict=True))
    body = joined(
        element("tr", *(element("td", text(cell), class_=k) for cell, k in zip(row, kinds, strict=True)))
        for row in rows
    )
    inside = element("table", element("thead", element("tr", head)), element("tbody", body))
    return element("div", inside, class_="scroll", tabindex="0")


def section(heading: str, *content: Markup) -> Markup:
    return element("section", element("h2", text(heading)), *content)


def paragraph(words: str, class_: str = "") -> Markup:
    return element("p", text(words), **({"class_": class_} if class_ else {}))


def bullets(items: Sequence[str]) -> Markup:
    return element("ul", *(element("li", text(item)) for item in items))
