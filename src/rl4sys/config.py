"""YAML or JSON files ⇄ typed, frozen settings, with messages for the person who wrote the file.

A file may name others to start from (``extends: [algorithms/ppo, environments/cartpole]``: names of shipped
files, or paths beside the file), and any setting can be replaced from the command line by its dotted name
(``algorithm.lr=1e-3``). Both happen on plain mappings; `parse` then turns a mapping into a typed model.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, get_args, get_origin

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator
from pydantic_core import ErrorDetails

from rl4sys.errors import ConfigError

VERSION = 1
"""The version of the config format this code writes and reads."""

SHIPPED = Path(__file__).parent / "configs"
"""Where the package keeps its own files."""

Settings: TypeAlias = dict[str, Any]
"""Settings as they stand in a file: a tree of dicts, lists and scalars."""


class Config(BaseModel):
    """Base of every settings model: frozen, unknown keys refused, each field documented below it."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, validate_default=False)

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_booleans_as_numbers(cls, value: Any, info: ValidationInfo) -> Any:
        annotation = cls.model_fields[str(info.field_name)].annotation
        if isinstance(value, bool) and (annotation in (int, float) or set(get_args(annotation)) & {int, float}):
            raise ValueError("Input should be a number, not true or false")
        return value


Model = TypeVar("Model", bound=BaseModel)


def load(name_or_path: str | Path, group: str = "experiments") -> Settings:
    """The settings in a file, or in the shipped one of that name, with what it extends merged in."""
    return _load(find(str(name_or_path), group=group), seen=())


_ONE_OF = {"experiments": "experiment", "sweeps": "sweep", "studies": "study"}


def find(name_or_path: str, beside: Path | None = None, group: str = "experiments") -> Path:
    """The file a user means: a path as written, a path beside ``beside``, or a shipped file of ``group``.

    Shipped files go by their name, or by a path such as configs/experiments/ppo_cartpole.yaml.
    """
    shipped = [SHIPPED / folder / f"{name_or_path}.yaml" for folder in (group, ".")]
    if name_or_path.startswith(f"{SHIPPED.name}/"):
        shipped.append(SHIPPED.parent / name_or_path)
    for path in [(beside or Path()) / name_or_path, Path(name_or_path), *shipped]:
        if _is_file(path):
            return path
    known = [*shipped_names(group), *(path.name for path in Path().glob("*.y*ml"))]
    raise ConfigError(
        f"no config file {name_or_path!r}, and no shipped {_ONE_OF[group]} of that name"
        f"{did_you_mean(name_or_path, known)} Shipped: {', '.join(shipped_names(group))}."
    )


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        # A name too long to be one, for instance.
        return False


def shipped_names(group: str) -> list[str]:
    return sorted(path.stem for path in (SHIPPED / group).glob("*.yaml"))


def override(settings: Settings, assignments: Iterable[str]) -> Settings:
    """A copy with each ``dotted.key=value`` applied; values are read as YAML."""
    result = settings
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals or not key:
            raise ConfigError(f"{assignment!r} is not an override; write key.path=value, such as algorithm.lr=1e-3")
        result = change(result, key, parse_yaml(text, f"the override {assignment!r}"))
    return result


def change(settings: Settings, key: str, value: Any) -> Settings:
    """A copy with the setting of that dotted name replaced; a block is merged into the one that is there."""
    return _merge(settings, _nested(key.split("."), value), at="")


def differences(before: Mapping[str, Any], after: Mapping[str, Any], at: str = "") -> dict[str, tuple[Any, Any]]:
    """Dotted keys of the settings that differ, each with its value before and after; None where there is none."""
    found: dict[str, tuple[Any, Any]] = {}
    for key in {**before, **after}:
        a, b, path = before.get(key), after.get(key), f"{at}{key}"
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            found |= differences(a, b, f"{path}.")
        elif a != b:
            found[path] = a, b
    return found


def parse(model: type[Model], settings: Any, at: str = "") -> Model:
    """The settings as ``model``; a `ConfigError` names every mistake by its dotted key, starting from ``at``."""
    if not isinstance(settings, Mapping):
        raise ConfigError(f"{at or 'the config'} is {settings!r:.80}; it should be a block of settings (key: value)")
    try:
        return model.model_validate(settings)
    except ValidationError as problem:
        raise ConfigError("\n".join(_explain_all(model, problem.errors(), at))) from problem


ELSEWHERE = {
    "learning_rate": "lr",
    "discount": "gamma",
    "lam": "gae_lambda",
    "n_epochs": "epochs",
    "batch_size": "minibatch_size",
    "clip_range": "clip_ratio",
    "ent_coef": "entropy_coef",
    "vf_coef": "value_coef",
    "n_envs": "num_envs",
    "id": "name",
    "env_id": "name",
    "hidden_sizes": "hidden_dims",
    "net_arch": "hidden_dims",
    "capacity": "size",
    "total_steps": "total_timesteps",
    "n_timesteps": "total_timesteps",
    "eval_freq": "eval_frequency",
    "evaluation_frequency": "eval_frequency",
    "n_eval_episodes": "num_eval_episodes",
    "eval_n_episodes": "num_eval_episodes",
    "eval_episodes": "num_eval_episodes",
    "save_freq": "checkpoint_frequency",
    "checkpoint_freq": "checkpoint_frequency",
    "buffer_size": "size",
    "max_size": "size",
    "hidden_layer_sizes": "hidden_dims",
    "train_freq": "train_frequency",
    "train_every_n_steps": "train_frequency",
    "n_train_repeat": "gradient_steps",
    "n_initial_exploration_steps": "learning_starts",
    "Q_lr": "lr",
    "policy_lr": "actor_lr",
    "alpha_lr": "temperature_lr",
    "max_path_length": "max_episode_steps",
    "exp_name": "name",
    "exp-name": "name",
    "checkpoint-frequency": "checkpoint_frequency",
}
"""What other libraries call our settings."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``"; did you mean x?"``, or a full stop where nothing is close."""
    names = list(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    meant = [name for name in (ELSEWHERE.get(word),) if name in names] or close
    return f"; did you mean {meant[0]}?" if meant else "."


def to_yaml(settings: Mapping[str, Any]) -> str:
    return str(yaml.dump(dict(settings), Dumper=_Dumper, sort_keys=False, default_flow_style=False))


class _Loader(yaml.SafeLoader):
    """YAML 1.1 with two mends: 3e-4 is a number, and a key given twice is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        repeated = [key for key in keys if keys.count(key) > 1]
        if repeated:
            raise yaml.constructor.ConstructorError(None, None, f"{repeated[0]!r} is given twice", node.start_mark)
        return super().construct_mapping(node, deep)


class _Dumper(yaml.SafeDumper):
    """A setting a line, lists within one; the word "1e5" is quoted, since `_Loader` would read a number."""

    def represent_sequence(self, tag: str, sequence: Any, flow_style: bool | None = None) -> yaml.SequenceNode:
        return super().represent_sequence(tag, sequence, flow_style=True)


_SCIENTIFIC = re.compile(r"^[-+]?(\d[\d_]*)(\.\d*)?[eE][-+]?\d+$")
for _side in (_Loader, _Dumper):
    _side.add_implicit_resolver("tag:yaml.org,2002:float", _SCIENTIFIC, list("-+0123456789"))


def _load(path: Path, seen: tuple[Path, ...]) -> Settings:
    if path.resolve() in seen:
        raise ConfigError(f"{path} extends itself through {' → '.join(p.name for p in seen)}; remove one `extends`")
    settings = read(path)
    return merged(inherited(settings, path, seen), settings)


def merged(base: Settings, settings: Settings) -> Settings:
    """What settings say together with what they extend."""
    return _merge(base, {key: value for key, value in settings.items() if key != "extends"}, at="")


def inherited(settings: Settings, path: Path, seen: tuple[Path, ...] = ()) -> Settings:
    """What the settings of a file extend, merged."""
    parents = settings.get("extends", [])
    if not isinstance(parents, list) or not all(isinstance(p, str) for p in parents):
        raise ConfigError(f"{path}: extends is {parents!r}; it should be a list of names or paths")
    base: Settings = {}
    for parent in parents:
        base = _merge(base, _load(find(parent, path.parent), (*seen, path.resolve())), at="")
    return base


def read(path: Path) -> Settings:
    """The settings that stand in a file, without what it extends."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise ConfigError(f"cannot read {path}: {problem}") from problem
    settings = parse_yaml(text, str(path))
    if not isinstance(settings, dict):
        holds = "is empty" if settings is None else f"holds {type(settings).__name__}, not a block of settings"
        raise ConfigError(f"{path} {holds}; write blocks such as `algorithm: {{name: ppo}}`")
    return settings


def parse_yaml(text: str, source: str) -> Any:
    """What a text says; a `ConfigError` names ``source`` if it is not YAML."""
    try:
        return yaml.load(text, _Loader)  # noqa: S506 - _Loader is a SafeLoader
    except (yaml.YAMLError, ValueError) as problem:
        where = str(problem).replace('"<unicode string>"', source)
        raise ConfigError(f"{source} is not valid YAML: {where}") from problem
    except RecursionError as problem:
        raise ConfigError(f"{source} is nested too deeply to be a config") from problem


def _nested(path: list[str], value: Any) -> Settings:
    return {path[0]: _nested(path[1:], value) if path[1:] else value}


def _merge(base: Settings, change: Settings, at: str) -> Settings:
    result = dict(base)
    for key, value in change.items():
        old = result.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            result[key] = _merge(old, value, f"{at}{key}.")
        elif isinstance(old, dict) and value is not None and at + key in ("algorithm", "environment", "network"):
            raise ConfigError(
                f"{at}{key}={value!r} would replace a whole block; name the setting, such as {key}.name=…"
            )
        else:
            result[key] = value
    return result


def _explain_all(model: type[BaseModel], errors: list[ErrorDetails], at: str) -> list[str]:
    """A line for each mistake; below settings that do not exist, once, those that do."""
    lines = [_explain(model, error, at) for error in errors]
    for place in {error["loc"][:-1]: None for error in errors if error["type"] == "extra_forbidden"}:
        lines.append(f"Known in {_dotted(at, place) or 'the config'}: {', '.join(_fields_at(model, place))}.")
    return lines


def _dotted(at: str, loc: tuple[int | str, ...]) -> str:
    return ".".join([*([at] if at else []), *(str(part) for part in loc)])


def _explain(model: type[BaseModel], error: ErrorDetails, at: str) -> str:
    path = _dotted(at, error["loc"])
    if error["type"] == "extra_forbidden":
        return f"{path} is not a setting{did_you_mean(str(error['loc'][-1]), _fields_at(model, error['loc'][:-1]))}"
    if error["type"] == "string_pattern_mismatch":
        return f"{path} is {error['input']!r:.80}; it does not have the right form{_purpose(model, error['loc'])}"
    if error["type"] == "missing":
        return f"{path} is missing; add it{_purpose(model, error['loc'])}"
    expected = error["msg"].removeprefix("Value error, ").replace("Input should", "it should")
    return f"{path} is {error['input']!r:.80}; {expected}{_purpose(model, error['loc'])}"


def _purpose(model: type[BaseModel], loc: tuple[int | str, ...]) -> str:
    """What the setting is for, from its own documentation."""
    parent = _model_at(model, loc[:-1])
    field = parent.model_fields.get(str(loc[-1])) if parent and loc else None
    return f" ({field.description.rstrip('.')})" if field and field.description else ""


def _fields_at(model: type[BaseModel], loc: tuple[int | str, ...]) -> list[str]:
    found = _model_at(model, loc)
    return sorted(found.model_fields) if found else []


def _model_at(model: type[BaseModel], loc: tuple[int | str, ...]) -> type[BaseModel] | None:
    parts = iter(loc)
    for part in parts:
        field = model.model_fields.get(str(part))
        options = [field.annotation, *get_args(field.annotation)] if field else []
        nested = [o for o in options if isinstance(o, type) and issubclass(o, BaseModel)]
        if not nested:
            return None
        model = nested[0]
        if field is not None and get_origin(field.annotation) is dict:
            next(parts, None)
    return model
