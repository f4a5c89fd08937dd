"""The code and the output in the section `Check your component` of docs/own_algorithm.md."""

from __future__ import annotations

import doctest
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rl4sys import components, testing
from rl4sys.buffers.uniform import Replay
from rl4sys.errors import ContractError
from rl4sys.networks.mlp import MLP
from rl4sys.testing import check_algorithm

from .tutorial import code_of, component, section

ROOT = Path(__file__).parents[2]
PORTABLE, CHECKS = "An algorithm in the portable form", "Check your component"


def outputs() -> list[str]:
    """Return the indented blocks of the section, without their indentation."""
    blocks = re.findall(r"\n\n((?:    .+\n)+)", section(CHECKS))
    return [re.sub(r"^    ", "", block, flags=re.MULTILINE) for block in blocks]


def test_full_reinforce_has_at_most_45_lines_and_3_imports() -> None:
    lines = code_of(PORTABLE)[0].splitlines()
    assert len(lines) <= 45
    assert 0 < sum(line.startswith(("import ", "from ")) for line in lines) <= 3


def test_full_reinforce_passes_strict_mypy(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(code_of(PORTABLE)[0])
    (tmp_path / "wrong.py").write_text(code_of(PORTABLE)[0].replace("rl.Demand()", "rl.Demand(batch=1)"))
    # The settings and the cache of the repository: a check with an empty cache takes a minute.
    command = [sys.executable, "-m", "mypy", str(tmp_path / "mine.py"), str(tmp_path / "wrong.py")]
    checked = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    errors = [line for line in checked.stdout.splitlines() if "error:" in line]
    assert [Path(line.partition(":")[0]).name for line in errors] == ["wrong.py"], checked.stdout


def test_check_prints_the_report_of_the_page(tmp_path: Path) -> None:
    (tmp_path / "my_portable_algorithm.py").write_text(code_of(PORTABLE)[0])
    (tmp_path / "check.py").write_text(code_of(CHECKS)[0])
    done = subprocess.run([sys.executable, "check.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == outputs()[0]


def test_forgotten_optimizer_gives_the_error_of_the_page() -> None:
    kind: Any = component(PORTABLE, "MyPortableAlgorithm")
    kind.state = lambda self: components.parts_state(actor=self.actor)
    kind.restore = lambda self, state: components.restore_parts(state, actor=self.actor)
    with pytest.raises(ContractError) as caught:
        check_algorithm(kind)
    assert f"{caught.value}\n" == outputs()[1]


def test_tests_of_the_page_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    own = ModuleType("my_components")
    own.__dict__.update(
        MyAlgorithm=component("An algorithm derived from BaseAlgorithm", "MyAlgorithm"),
        Corridor=component("An environment of your own", "Corridor"),
        MyBuffer=Replay,
        MyNetwork=MLP,
    )
    monkeypatch.setitem(sys.modules, "my_components", own)
    defined: dict[str, Any] = {"__name__": "test_my_components"}
    exec(code_of(CHECKS)[1], defined)
    tests = [value for name, value in defined.items() if name.startswith("test_")]
    assert len(tests) == 4
    for test in tests:
        test()


@pytest.mark.parametrize("name", ["check_algorithm", "check_buffer", "check_environment", "check_network"])
def test_example_in_the_docstring_runs(name: str) -> None:
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for example in doctest.DocTestFinder().find(getattr(testing, name), name):
        runner.run(example)
    assert runner.summarize(verbose=False).failed == 0
    assert runner.tries > 0


def test_example_of_the_module_runs() -> None:
    example = doctest.DocTestParser().get_doctest(str(testing.__doc__), {}, "rl4sys.testing", None, None)
    assert doctest.DocTestRunner().run(example, clear_globs=False).failed == 0
    assert example.globs["report"].component == "Reinforce"
