"""Tests of the documentation of config options: descriptions, reference page and JSON schemas."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

import rl4sys
from rl4sys.algorithms.schedule import Schedule
from rl4sys.cli.commands.config import Kind, _schema
from rl4sys.client.config import ClientConfig
from rl4sys.config import Config, find, load, shipped_names
from rl4sys.learner.config import LearnerConfig
from rl4sys.runs.config import ExperimentConfig
from rl4sys.runs.config_schema import client_schema, experiment_schema
from rl4sys.server.config import ServerConfig

sys.path.append(str(Path(__file__).parents[2] / "scripts"))
import config_reference

WITHOUT_SECTION = {ExperimentConfig, Schedule, LearnerConfig}
"""Models without a section: ExperimentConfig has one per block, Schedule is at the top, LearnerConfig is internal."""

DATA = Path(__file__).parents[1] / "data"


def every_model() -> set[type[Config]]:
    """Return all config models of the package that have no subclass."""
    for module in pkgutil.walk_packages(rl4sys.__path__, "rl4sys."):
        if not module.name.startswith(("rl4sys.examples", "rl4sys.__main__")):
            importlib.import_module(module.name)
    found: set[type[Config]] = set()
    waiting = [Config]
    while waiting:
        model = waiting.pop()
        derived = [other for other in model.__subclasses__() if other.__module__.startswith("rl4sys.")]
        waiting += derived
        if not derived:
            found.add(model)
    return found


def test_every_option_has_a_description() -> None:
    models = every_model() | WITHOUT_SECTION - {LearnerConfig, Schedule}
    assert len(models) > 40, "too few models were found"
    missing = [
        f"{model.__name__}.{name}"
        for model in models - {LearnerConfig}
        for name, field in model.model_fields.items()
        if not field.description
    ]
    assert missing == []


def test_every_config_model_has_a_section_in_the_reference() -> None:
    described = {model for _, model in config_reference.all_sections()}
    assert {model.__name__ for model in every_model() - described - WITHOUT_SECTION} == set()


def test_config_reference_page_is_up_to_date() -> None:
    # Run the script in a new process, because other tests register components in this process.
    script = Path(config_reference.__file__)
    checked = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


def test_experiment_schema_has_descriptions() -> None:
    schema = experiment_schema()
    assert schema["properties"]["training"]["description"] == "Training length, evaluations and checkpoints."
    jsonschema.validate({"version": 1, **load("ppo_cartpole")}, schema)


def test_client_schema_rejects_unknown_settings() -> None:
    schema = client_schema()
    client = {
        "version": 1,
        "observation": 8,
        "action": 4,
        "algorithm": {"name": "ppo", "lr": 1e-3},
        "server": {"address": "a:1"},
    }
    jsonschema.validate(client, schema)
    assert set(ClientConfig.model_fields) < set(schema["properties"])
    for wrong in ({"obsrvation": 8}, {"server": {"adress": "a:1"}}, {"algorithm": {"name": "ppo", "lrr": 1}}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**client, **wrong}, schema)


@pytest.mark.parametrize(("kind", "group", "searched"), [("sweep", "sweeps", "sweep"), ("study", "studies", "search")])
def test_sweep_and_study_schemas_accept_shipped_files(kind: str, group: str, searched: str) -> None:
    schema = _schema(Kind(kind))
    for name in shipped_names(group):
        settings = load(find(name, group=group))
        jsonschema.validate(settings, schema)
        for wrong in ({searched: {"algorithm.lr": 3}}, {searched: {"algorithm.lr": {"lwo": 3}}}, {"paralel_jobs": 3}):
            with pytest.raises(jsonschema.ValidationError):
                jsonschema.validate({**settings, **wrong}, schema)


def test_server_schema_has_all_options() -> None:
    assert set(ServerConfig.model_fields) < set(_schema(Kind.server)["properties"])
