"""Config files: search by path or shipped name, reading, and composition with ``extends``.

A file may list parents (``extends: [algorithms/ppo, environments/cartpole]``): names of shipped files, or paths
relative to the file. Later parents override earlier ones, and the settings of the file override all parents.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from rl4sys.config.model import did_you_mean
from rl4sys.config.settings import Settings, merged
from rl4sys.config.yaml_format import parse_yaml
from rl4sys.errors import ConfigError

VERSION = 1
"""Version of the config format read and written by this release."""

SHIPPED = Path(__file__).parent.parent / "configs"
"""Folder of the config files shipped with the package."""


def load(name_or_path: str | Path, group: str = "experiments") -> Settings:
    """Read a config file, by path or shipped name, and merge the files it extends."""
    return _load(find(str(name_or_path), group=group), seen=())


_SINGULAR = {"experiments": "experiment", "sweeps": "sweep", "studies": "study"}


def find(name_or_path: str, beside: Path | None = None, group: str = "experiments") -> Path:
    """Return the path of a config file, given as a path, or as the name of a shipped file of ``group``.

    A relative path is searched for in ``beside`` and the working directory. A path that begins with ``configs/`` is
    also searched for in the package.
    """
    shipped = [SHIPPED / folder / f"{name_or_path}.yaml" for folder in (group, ".")]
    if name_or_path.startswith(f"{SHIPPED.name}/"):
        shipped.append(SHIPPED.parent / name_or_path)
    for path in [(beside or Path()) / name_or_path, Path(name_or_path), *shipped]:
        if _is_file(path):
            return path
    known = [*shipped_names(group), *(path.name for path in Path().glob("*.y*ml"))]
    raise ConfigError(
        f"no config file {name_or_path!r}, and no shipped {_SINGULAR[group]} of that name"
        f"{did_you_mean(name_or_path, known)} Shipped: {', '.join(shipped_names(group))}."
    )


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        # Raised for example if the name is too long for a path.
        return False


def shipped_names(group: str) -> list[str]:
    """List the names of the shipped files of a group, such as experiments."""
    return sorted(path.stem for path in (SHIPPED / group).glob("*.yaml"))


def _load(path: Path, seen: tuple[Path, ...]) -> Settings:
    if path.resolve() in seen:
        raise ConfigError(f"{path} extends itself through {' → '.join(p.name for p in seen)}; remove one `extends`")
    settings = _with_dataset_paths(read(path), path.parent)
    return merged(inherited(settings, path, seen), settings)


_DATASET_PATH = re.compile(
    r"((fixed|sweep|search|policies\.[^.]+)\.)?(dataset|warm_start\.dataset|buffer\.pools\.[^.]+\.dataset)\.path(\.choices)?"
)
"""Pattern of the settings that contain the path of a dataset, in experiments, sweeps, studies and server configs."""


def _with_dataset_paths(settings: Any, folder: Path, at: str = "") -> Any:
    """Return the settings of a config file in ``folder`` with absolute paths to the datasets in this folder.

    Other paths remain unchanged: they are relative to the current directory, or they are ids of Minari datasets.
    """
    if isinstance(settings, dict):
        below = f"{at}." if at else ""
        return {key: _with_dataset_paths(value, folder, f"{below}{key}") for key, value in settings.items()}
    if isinstance(settings, list):
        return [_with_dataset_paths(value, folder, at) for value in settings]
    if isinstance(settings, str) and _DATASET_PATH.fullmatch(at) and _exists(folder / settings):
        return str((folder / settings).resolve())
    return settings


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        # Raised for example if the name is too long for a path, or contains a null character.
        return False


def inherited(settings: Settings, path: Path, seen: tuple[Path, ...] = ()) -> Settings:
    """Return the merged settings of all files in the list ``extends`` of ``settings``, read from the file ``path``."""
    parents = settings.get("extends", [])
    if not isinstance(parents, list) or not all(isinstance(p, str) for p in parents):
        raise ConfigError(f"{path}: extends is {parents!r}; expected a list of names or paths")
    base: Settings = {}
    for parent in parents:
        base = merged(base, _load(find(parent, path.parent), (*seen, path.resolve())))
    return base


def read(path: Path) -> Settings:
    """Read the settings of one file, without the files it extends."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise ConfigError(f"cannot read {path}: {problem}") from problem
    settings = parse_yaml(text, str(path))
    if not isinstance(settings, dict):
        holds = "is empty" if settings is None else f"contains a {type(settings).__name__}, not a block of settings"
        raise ConfigError(f"{path} {holds}; write blocks such as `algorithm: {{name: ppo}}`")
    return settings
