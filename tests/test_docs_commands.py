"""All commands and options in the docs and in help texts exist."""

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
    """Return the commands in indented code blocks, without their prompt."""
    return re.findall(r"^    (?:\$ )?(rl4sys .*)$", page.read_text(), re.MULTILINE)


def spans(page: Path) -> list[str]:
    """Return the commands in inline code; an escaped pipe in a table is unescaped."""
    return [span.replace("\\|", "|") for span in re.findall(r"`(rl4sys [^`]*)`", page.read_text())]


COMMANDS = [(page.name, text) for page in PAGES for text in dict.fromkeys([*lines(page), *spans(page)])]


@cache
def cli() -> Any:
    return typer.main.get_command(app)


def problem(text: str) -> str | None:
    """Return an error message if a command or option is unknown, or None."""
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
def test_documented_command_exists(page: str, text: str) -> None:
    assert problem(text) is None, f"{page}: {text}"


def test_unknown_command_or_option_is_detected() -> None:
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
def test_help_has_valid_examples(name: str, command: Any) -> None:
    examples = re.findall(r"`(rl4sys [^`]*)`", command.help)
    assert any(example.startswith(name) for example in examples)
    assert [problem(example) for example in examples if problem(example)] == []


@over_all_commands
def test_arguments_and_options_have_uniform_help(name: str, command: Any) -> None:
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            assert parameter.metavar == str(parameter.metavar).upper(), name
        assert parameter.help, f"{name} {parameter.name}"
        assert parameter.help.endswith("."), f"{name} {parameter.name}: {parameter.help}"


def test_commands_page_lists_all_commands() -> None:
    named = {text.split()[1] for text in spans(ROOT / "docs" / "commands.md")}
    assert set(cli().commands) - named == set()


def test_commands_page_maps_commands_of_old_scripts() -> None:
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
