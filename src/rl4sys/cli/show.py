"""Settings on the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.syntax import Syntax

from rl4sys.config import Settings, to_yaml


def show_settings(console: Console, settings: Settings) -> None:
    """As YAML: coloured for a person, plain for a file or another program."""
    text = to_yaml(settings)
    if console.is_terminal:
        console.print(Syntax(text, "yaml", background_color="default", word_wrap=True))
    else:
        console.file.write(text)
