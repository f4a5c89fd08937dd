"""What the docs tell users to type can be typed."""

from __future__ import annotations

import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main

from rl4sys.cli.app import app

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def lines(page: Path) -> list[str]:
    """Commands in blocks of code: indented, with a prompt or without."""
    return re.findall(r"^    (?:\$ )?(rl4sys .*)$", page.read_text(), re.MULTILINE)


def spans(page: Path) -> list[str]:
    """Commands within text; in a table a pipe is escaped."""
    return [span.replace("\\|", "|") for span in re.findall(r"`(rl4sys [^`]*)`", page.read_text())]


COMMANDS = [(page.name, text) for page in PAGES for text in dict.fromkeys([*lines(page), *spans(page)])]


@cache
def cli() -> Any:
    return typer.main.get_command(app)


def problem(text: str) -> str | None:
    """What is wrong with a command line; None if there are such a command and such options."""
    words = shlex.split(text.partition("|")[0], comments=True)[1:]
    command = cli()
    while words and hasattr(command, "commands") and not words[0].startswith("-"):
        if words[0] not in command.commands:
            return f"no command {words[0]!r}"
        command = command.commands[words.pop(0)]
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    options = [word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)]
    unknown = set(options) - known - {"--help"}
    return f"no option {', '.join(sorted(unknown))}" if unknown else None


@pytest.mark.parametrize(("page", "text"), COMMANDS, ids=lambda value: str(value)[:60])
def test_what_the_docs_say_to_type_exists(page: str, text: str) -> None:
    assert problem(text) is None, f"{page}: {text}"


def test_a_command_that_does_not_exist_is_noticed() -> None:
    assert problem("rl4sys trian ppo_cartpole") == "no command 'trian'"
    assert problem("rl4sys train ppo_cartpole --sed 1 algorithm.lr=1e-3") == "no option --sed"
    assert problem("rl4sys config migrate FILE --in-place  # a comment --such") is None


def test_the_page_of_commands_names_every_command() -> None:
    named = {text.split()[1] for text in spans(ROOT / "docs" / "commands.md")}
    assert set(cli().commands) - named == set()


def test_every_promised_command_has_a_row() -> None:
    page = (ROOT / "docs" / "commands.md").read_text()
    for promised in (
        "train.py --config",
        "--resume experiments/",
        "--seed 1,2,3,4,5",
        "--debug --total_timesteps 1000",
        "sweep.py --config configs/sweeps/ppo_sweep.yaml",
        "evaluate.py",
        "analyze.py",
        "rlrepo list --filter algorithm=ppo --sort reward",
        "rlrepo compare exp1 exp2 exp3 --metrics reward,loss",
        "rlrepo export exp1 --format latex",
        "rlrepo cleanup --keep-best 10 --keep-recent 30",
        "run_example_local",
        "run_example_dry",
        "run_example_debug",
        "--cpus 4 --gpus 1",
        "simulate_policy",
        "run_example_cluster",
        "launch_example_gce",
        "launch_example_ec2",
    ):
        assert f"{promised}" in page, promised
