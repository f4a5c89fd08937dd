"""Config files: search by path or shipped name, reading, and composition with ``extends``.

A file may list parents (``extends: [algorithms/ppo, environments/cartpole]``): names of shipped files, or paths
relative to the file. Parents are merged in order, then the file's own settings.
"""

from __future__ import annotations

from pathlib import Path

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
    """Find a config file: a path, a path relative to ``beside``, or the name of a shipped file of ``group``.

    Shipped files are also found by a path such as configs/experiments/ppo_cartpole.yaml.
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
    """List the names of the shipped files of a group."""
    return sorted(path.stem for path in (SHIPPED / group).glob("*.yaml"))


def _load(path: Path, seen: tuple[Path, ...]) -> Settings:
    if path.resolve() in seen:
        raise ConfigError(f"{path} extends itself through {' → '.join(p.name for p in seen)}; remove one `extends`")
    settings = read(path)
    return merged(inherited(settings, path, seen), settings)


def inherited(settings: Settings, path: Path, seen: tuple[Path, ...] = ()) -> Settings:
    """Return the merged settings of all parents of a file."""
    parents = settings.get("extends", [])
    if not isinstance(parents, list) or not all(isinstance(p, str) for p in parents):
        raise ConfigError(f"{path}: extends is {parents!r}; it should be a list of names or paths")
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
        holds = "is empty" if settings is None else f"holds {type(settings).__name__}, not a block of settings"
        raise ConfigError(f"{path} {holds}; write blocks such as `algorithm: {{name: ppo}}`")
    return settings
