"""Names of `rl4sys.components`: all exist, are typed, and are imported on first use."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from rl4sys import components, registry


def declared() -> dict[str, tuple[str, str]]:
    """Return module and name of each import of the stub, by the name that the stub gives it."""
    stub = ast.parse(Path(str(components.__file__)).with_suffix(".pyi").read_text())
    imported = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    return {alias.asname: (str(node.module), alias.name) for node in imported for alias in node.names if alias.asname}


def test_stub_declares_the_names_of_the_module() -> None:
    registries = {name for name in components.__all__ if name.endswith("_REGISTRY")}
    assert {*components.__all__} == declared().keys() | registries
    for name, (module, attribute) in declared().items():
        assert name == attribute
        assert getattr(components, name) is getattr(importlib.import_module(module), attribute)


def test_registries_are_those_of_rl4sys() -> None:
    kinds = ("ALGORITHM", "BUFFER", "DATASET", "ENVIRONMENT", "LOGGER", "NETWORK", "WRAPPER")
    assert [getattr(components, f"{kind}_REGISTRY") for kind in kinds] == [
        getattr(registry, f"{kind}S") for kind in kinds
    ]


def test_unknown_name_is_reported_with_the_page_of_names() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'Algoritm'.*docs/own_algorithm\.md"):
        _ = components.Algoritm  # type: ignore[attr-defined]
    with pytest.raises(ImportError, match="cannot import name"):
        exec("from rl4sys.components import Algoritm")


def test_all_names_are_listed_and_importable_by_star() -> None:
    names: dict[str, object] = {}
    exec("from rl4sys.components import *", names)
    assert {*components.__all__} <= names.keys()
    assert {*components.__all__} <= {*dir(components)}


def test_loggers_and_environments_are_registered_without_torch() -> None:
    code = (
        "import sys; from rl4sys.components import Logger, register_environment, register_logger, register_wrapper;"
        "print('torch' in sys.modules); from rl4sys.components import Algorithm; print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["False", "True"]
