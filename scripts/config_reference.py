"""Generate docs/config.md, the config reference, from the pydantic models of all configs.

python scripts/config_reference.py            # write the page
python scripts/config_reference.py --check    # exit code 1 if the page is out of date
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo

from rl4sys.alerts.rules import KINDS, AlertConfig, Rule
from rl4sys.algorithms.base_algorithm import BaseAlgorithmConfig
from rl4sys.algorithms.imitation import WarmStartConfig
from rl4sys.algorithms.schedule import Schedule
from rl4sys.buffers.union import PoolConfig
from rl4sys.client.config import ClientConfig, OutboxConfig, ServerConnectionConfig
from rl4sys.client.config import TlsConfig as ClientTls
from rl4sys.config import Config
from rl4sys.dataset import ColumnsConfig, DatasetConfig
from rl4sys.environments.config import EnvironmentConfig, WrapperConfig
from rl4sys.environments.families.atari import AtariOptions
from rl4sys.environments.families.dm_control import DMControlOptions
from rl4sys.environments.families.goal import BitFlipOptions, PointReachOptions
from rl4sys.environments.families.multigoal import MultiGoalOptions
from rl4sys.registry import ALGORITHMS, BUFFERS, NETWORKS
from rl4sys.runs.config import (
    LoggingConfig,
    MlflowConfig,
    RunConfig,
    TrainingConfig,
    WandbConfig,
)
from rl4sys.server.config import Limits, ServerConfig
from rl4sys.server.config import TlsConfig as ServerTls
from rl4sys.sweeps.ranges import Range
from rl4sys.sweeps.sweep import SweepConfig
from rl4sys.sweeps.tune import PruningConfig, TuneConfig

PAGE = Path(__file__).parent.parent / "docs" / "config.md"

HEAD = """# Config reference

On this page you can look up all settings of experiment, sweep, study, server and client configs.
`scripts/config_reference.py` generates it from the models that validate these files. Example:

```yaml
# yaml-language-server: $schema=rl4sys.schema.json
version: 1
extends: [algorithms/ppo, environments/cartpole]
algorithm: {lr: {start: 1e-3, end: 0.0, fraction: 1.0}}
```

- A config is a YAML or JSON file. `extends` lists other configs whose settings this config starts from: shipped configs
  (see `rl4sys config list`) or paths relative to the file.
- Any setting can be changed on the command line: `algorithm.lr=1e-3`.
- A setting of type *schedule* is a number or a linear schedule. `{start: 1e-3, end: 0.0, fraction: 1.0}` is a schedule
  over a fraction of the training; `{start: 1e-3, end: 0.0, steps: 10000}` is a schedule over a number of steps. Use
  `steps` if training has no fixed length, as on a server.
- `version` is the version of the config format, currently 1. `rl4sys config migrate FILE` converts older files and
  files of other libraries: see [commands](commands.md#migrate-config-files). Runs of earlier versions can still be
  opened.
- `plugins` lists modules or Python files with your own components.

`rl4sys config schema` prints a JSON Schema for completion and validation in editors with a YAML language server (VS
Code with the extension "YAML", Neovim, Helix). Write the schema to a file, and refer to this file in the first line of
a config, as in the example above. `--kind` selects the schema for client, server, sweep or study configs.

    rl4sys config schema > rl4sys.schema.json
"""


_ENVIRONMENT_OPTIONS: dict[str, type[Config]] = {
    "`family: atari`": AtariOptions,
    "`family: dm_control`": DMControlOptions,
    "`family: goal, name: BitFlip`": BitFlipOptions,
    "`family: goal, name: PointReach`": PointReachOptions,
    "`family: multigoal`": MultiGoalOptions,
}


def all_sections() -> list[tuple[str, type[Config]]]:
    """Return the heading and the model of each section of the page."""
    sections: list[tuple[str, type[Config]]] = [("experiment", RunConfig)]
    sections += [(f"algorithm, `name: {name}`", ALGORITHMS.get(name).Config) for name in ALGORITHMS.names()]
    sections.append(("algorithm: a class derived from `BaseAlgorithm`", BaseAlgorithmConfig))
    sections += [("dataset", DatasetConfig), ("dataset.columns", ColumnsConfig), ("warm_start", WarmStartConfig)]
    sections += [("environment", EnvironmentConfig), ("environment.wrappers: a wrapper", WrapperConfig)]
    sections += [(f"environment.options, {family}", model) for family, model in _ENVIRONMENT_OPTIONS.items()]
    sections += [
        (f"network.actor, network.critic, `type: {name}`", NETWORKS.get(name).Config) for name in NETWORKS.names()
    ]
    sections += [(f"buffer, `type: {name}`", BUFFERS.get(name).Config) for name in BUFFERS.names()]
    sections.append(("buffer, `type: union`: a pool", PoolConfig))
    sections += [("training", TrainingConfig), ("logging", LoggingConfig), ("logging.wandb", WandbConfig)]
    sections.append(("logging.mlflow", MlflowConfig))
    sections.append(("alerts", AlertConfig))
    sections.append(("alerts.rules: every rule", Rule))
    sections += [(f"alerts.rules, `kind: {kind}`", rule) for kind, rule in KINDS.items()]
    sections += [
        ("sweep (`rl4sys sweep`)", SweepConfig),
        ("study (`rl4sys tune`)", TuneConfig),
        ("study: pruning", PruningConfig),
        ("sweep and study: a range", Range),
    ]
    sections += [
        ("training server", ServerConfig),
        ("training server: limits", Limits),
        ("training server: tls", ServerTls),
    ]
    sections += [
        ("client", ClientConfig),
        ("client: server", ServerConnectionConfig),
        ("client: server.tls", ClientTls),
    ]
    sections.append(("client: outbox", OutboxConfig))
    return sections


def page() -> str:
    return HEAD + "".join(f"\n## {title}\n\n{_section(model)}" for title, model in all_sections())


def _section(model: type[Config]) -> str:
    """Return the table of a model; for an alert rule, its docstring and the options that other rules do not have."""
    if Rule not in model.__mro__[1:]:
        return _table(model)
    own = [name for name in model.model_fields if name not in Rule.model_fields]
    about = " ".join(str(model.__doc__).split())
    return f"{about}\n" + (f"\n{_table(model, own)}" if own else "")


def _table(model: type[Config], names: list[str] | None = None) -> str:
    rows = "".join(
        f"| `{name}` | {_kind(field)} | {_default(field)} | {' '.join(str(field.description).split())} |\n"
        for name, field in model.model_fields.items()
        if names is None or name in names
    )
    return f"| setting | type | default | description |\n|---|---|---|---|\n{rows}"


def _kind(field: FieldInfo) -> str:
    annotation: Any = field.annotation
    text = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    text = re.sub(r"Annotated\[(\w+), FieldInfo\(.*\)\]", r"\1", text)  # constraints of list elements
    text = re.sub(r"(\w+\.)+", "", text)
    text = re.sub(r"Union\[(\w+), Literal\['(\w+)'\]\]", r"\1 or \2", text)
    text = re.sub(r"\w+Rule( \| \w+Rule)*", "rule", text)
    text = re.sub(r"Annotated\[(\w+), \w+\(\)\]", r"\1", text)
    text = re.sub(r"Optional\[(.*)\]$", r"\1 or None", text)
    text = re.sub(r"Literal\[(.*?)\]", lambda found: found[1].replace("'", ""), text)
    text = re.sub(r"\w+(Config|Settings)|Limits", "block", text)
    return text.replace("Schedule", "schedule").replace("Path", "path").replace("|", "or")


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "*required*"
    default = field.get_default(call_default_factory=True)  # type: ignore[call-arg]
    if isinstance(default, Config) and not isinstance(default, Schedule):
        return "see below"
    shown = default.model_dump() if isinstance(default, Config) else default
    if isinstance(shown, dict) and any(isinstance(value, Config) for value in shown.values()):
        shown = list(shown)
    return "null" if shown is None else f"`{shown}`"


def main() -> None:
    if "--check" in sys.argv:
        sys.exit(PAGE.read_text() != page() and "docs/config.md is out of date: run scripts/config_reference.py")
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
