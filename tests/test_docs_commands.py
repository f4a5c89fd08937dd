"""What the docs tell users to type can be typed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
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


def every_command(command: Any, name: str = "rl4sys") -> Iterator[tuple[str, Any]]:
    if hasattr(command, "commands"):
        for word, inner in command.commands.items():
            yield from every_command(inner, f"{name} {word}")
    else:
        yield name, command


over_all_commands = pytest.mark.parametrize(
    ("name", "command"), [pytest.param(*c, id=c[0]) for c in every_command(cli())]
)


@over_all_commands
def test_help_teaches_by_examples_that_can_be_typed(name: str, command: Any) -> None:
    examples = re.findall(r"`(rl4sys [^`]*)`", command.help)
    assert any(example.startswith(name) for example in examples)
    assert [problem(example) for example in examples if problem(example)] == []


@over_all_commands
def test_help_speaks_one_way_of_arguments_and_options(name: str, command: Any) -> None:
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            assert parameter.metavar == str(parameter.metavar).upper(), name
        assert parameter.help, f"{name} {parameter.name}"
        assert parameter.help.endswith((".", "…")), f"{name} {parameter.name}: {parameter.help}"


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
