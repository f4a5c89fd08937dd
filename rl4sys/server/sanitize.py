"""Functions that make text from clients safe to send and to log."""

from __future__ import annotations

_MAX_BYTES = 4000


def encodable(text: str, max_bytes: int = _MAX_BYTES) -> str:
    """Replace characters that UTF-8 cannot encode, and truncate the text to `max_bytes`."""
    content = text.encode("utf-8", "replace")
    return content.decode() if len(content) <= max_bytes else content[:max_bytes].decode("utf-8", "ignore") + " …"


def escape_unprintable(text: str) -> str:
    """Escape line breaks and control characters."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
