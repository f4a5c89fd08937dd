"""What the server says, made fit to be sent and logged: clients have a part in the wording."""

from __future__ import annotations

_MOST_BYTES = 4000


def fit(text: str, most_bytes: int = _MOST_BYTES) -> str:
    """The text as UTF-8 can carry it, and no longer than need be."""
    carried = text.encode("utf-8", "replace")
    return carried.decode() if len(carried) <= most_bytes else carried[:most_bytes].decode("utf-8", "ignore") + " …"


def on_one_line(text: str) -> str:
    """The text with everything escaped that would end the line or move the terminal's cursor."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
