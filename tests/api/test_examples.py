"""Every public name of `rl4sys` has a docstring with an example, and the examples run."""

from __future__ import annotations

import ast
import doctest
import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import rl4sys

NAMES = [name for name in rl4sys.__all__ if name != "__version__"]


def run_example(name: str, subject: Any) -> doctest.TestResults:
    finder, runner = doctest.DocTestFinder(recurse=True), doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    found = [test for test in finder.find(subject, name, globs={"rl4sys": rl4sys}) if test.examples]
    for test in found:
        test.globs |= vars(inspect.getmodule(subject) or rl4sys)
        runner.run(test)
    return runner.summarize(verbose=False)


@pytest.mark.parametrize("name", NAMES)
def test_public_name_has_an_example_that_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    subject = getattr(rl4sys, name)
    result = run_example(name, subject)
    assert result.attempted > 0, f"{name} has no example"
    assert result.failed == 0, capsys.readouterr().out


def test_example_in_package_docstring_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner()
    result = runner.run(parser.get_doctest(str(rl4sys.__doc__), {}, "rl4sys", None, None))
    assert result.attempted > 2
    assert result.failed == 0, capsys.readouterr().out


def test_stub_lists_the_public_names() -> None:
    stub = ast.parse(Path(rl4sys.__file__).with_suffix(".pyi").read_text())
    names = [alias.asname for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert sorted(map(str, names)) == sorted(rl4sys.__all__)


def test_missing_package_is_reported_with_the_command_that_installs_it() -> None:
    script = "import sys\nsys.modules['torch'] = None\nimport rl4sys\nrl4sys.Agent, rl4sys.load_policy\nrl4sys.train"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "MissingExtraError: rl4sys.train needs torch, which is not installed" in done.stderr


def test_unknown_name_is_rejected() -> None:
    with pytest.raises(AttributeError, match=r"module 'rl4sys' has no attribute 'Trainer'"):
        rl4sys.Trainer  # noqa: B018
