"""Conversion of observation and action spaces, from the client config or from space objects, to a Spec.

Gymnasium spaces are recognized by their attributes: the client does not import Gymnasium.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import index
from typing import Any

import numpy as np

from rl4sys.errors import ConfigError, SpecError
from rl4sys.spec import MASK, STATE, Array, Box, Discrete, MultiDiscrete, Space, Spec, mask_box, space_summary

GYMNASIUM_MASK = "action_mask"
"""Conventional name of the mask in a Gymnasium Dict observation."""

_BLOCK = {"shape", "dtype", "low", "high"}
_DTYPES = ("float32", "int64", "bool", "uint8", "int8", "int16", "int32", "uint16", "uint32")


@dataclass(frozen=True)
class Spaces:
    """Spec of a client, and the number that the host program gives to the first discrete action (``start``).

    For MultiDiscrete actions ``start`` is an array with the shape and dtype of an action of the host program.
    """

    spec: Spec
    start: int | Array = 0

    def decode_action(self, indices: Array) -> Any:
        """Convert action indices, counted from 0, to an action of the host program."""
        if isinstance(self.start, int):
            return indices + self.start
        return (indices.reshape(self.start.shape) + self.start).astype(self.start.dtype)


@dataclass(frozen=True)
class Sizes:
    """Observation and action spaces as written in a client's config; a space that is not given is None."""

    observation: Any = None
    action: Any = None
    mask: bool = False


def make_spaces(sizes: Sizes, observation_space: Any = None, action_space: Any = None) -> Spaces:
    """Return the spaces given as arguments, or else in the config. Raises `ConfigError` if their shapes differ."""
    if isinstance(observation_space, Spec):
        return Spaces(observation_space)
    observation = _either("observation", _boxes(observation_space), _written_observation(sizes.observation))
    action = _either("action", _action(action_space), written_action(sizes.action))
    if not observation or action is None:
        raise ConfigError(_missing(observation_missing=not observation, action_missing=action is None))
    if sizes.mask or MASK in observation:
        if isinstance(action, Box):
            raise ConfigError("mask is true, but the action is continuous; only discrete actions can be masked")
        observation = {**observation, MASK: mask_box(action)}
    return Spaces(Spec(observation, action), _start(action_space))


def make_legalizer(spaces: Spaces) -> Callable[[Any], Any] | None:
    """Return the function that converts a sampled action to a legal action of the host, or None if not needed."""
    action = spaces.spec.action
    if isinstance(action, Box):
        low, high = action.bounds()
        shape = action.shape
        # Three times faster than np.clip.
        return lambda drawn: np.minimum(np.maximum(drawn.reshape(shape), low), high)
    start = spaces.start
    if isinstance(start, int):
        return (lambda drawn: drawn + start) if start else None
    return spaces.decode_action


def _missing(*, observation_missing: bool, action_missing: bool) -> str:
    absent = {"observation": observation_missing, "action": action_missing}
    names = [name for name, missing in absent.items() if missing]
    subject = "the size of " + " and of ".join(names) + (" is" if len(names) == 1 else " are")
    arguments = ", ".join(f"{name}_space=..." for name in names)
    lines = " and ".join(_EXAMPLES[name] for name in names)
    return (
        f"{subject} missing from the config. Give RL4SysAgent(conf_path, {arguments}), with spaces of Gymnasium or "
        f"rl4sys.spec, or write {lines} in the config"
    )


_EXAMPLES = {
    "observation": "`observation: 8` (length of the vector)",
    "action": "`action: 4` (number of discrete actions)",
}


def _either(noun: str, given: Any, written: Any) -> Any:
    if not given or not written:
        return given or written
    if _outline(given) != _outline(written):
        raise ConfigError(
            f"the config's {noun} is {_outline(written)}, and {noun}_space is {_outline(given)}; "
            f"remove {noun} from the config, or correct one of them"
        )
    return given


def _outline(space: Space | Mapping[str, Space]) -> Any:
    """Return the shapes of a space, without bounds and dtypes, which the config or the arguments may omit."""
    if not isinstance(space, Mapping):
        return space_summary(space)
    outlines = {name: _outline(part) for name, part in space.items() if name != MASK}
    return outlines[STATE] if list(outlines) == [STATE] else outlines


def _written_observation(written: Any) -> dict[str, Box]:
    if written is None:
        return {}
    if isinstance(written, Mapping) and "shape" not in written:
        if not written:
            raise ConfigError("observation is an empty block; write a size for each name")
        return {str(name): _written_box(part, f"observation.{name}") for name, part in written.items()}
    return {STATE: _written_box(written, "observation")}


def _written_box(written: Any, at: str) -> Box:
    if not isinstance(written, Mapping):
        return _bounded(_shape(written, at), "float32", {}, at)
    unknown = set(written) - _BLOCK
    if unknown or "shape" not in written:
        raise ConfigError(
            f"{at} is {dict(written)!r:.80}; expected a block with shape and optionally dtype, low and high"
        )
    dtype = str(written.get("dtype", "float32"))
    if dtype not in _DTYPES:
        raise ConfigError(f"{at}.dtype is {dtype!r}; expected one of {', '.join(_DTYPES)}")
    return _bounded(_shape(written["shape"], at), dtype, written, at)


def _bounded(shape: tuple[int, ...], dtype: str, written: Mapping[str, Any], at: str) -> Box:
    low = _written_bound(written.get("low"), -math.inf, f"{at}.low")
    high = _written_bound(written.get("high"), math.inf, f"{at}.high")
    try:
        return Box(shape, dtype, low, high)
    except SpecError as problem:
        raise ConfigError(f"{at}: {problem}") from problem


def _written_bound(written: Any, otherwise: float, at: str) -> tuple[float, ...]:
    try:
        return (otherwise,) if written is None else _bound(np.asarray(written, np.float32))
    except (TypeError, ValueError) as problem:
        raise ConfigError(f"{at} is {written!r:.80}; expected a number or a list of numbers") from problem


def _shape(written: Any, at: str) -> tuple[int, ...]:
    try:
        shape = tuple(index(n) for n in written) if isinstance(written, list | tuple) else (index(written),)
    except TypeError:
        shape = ()
    if not shape or min(shape) < 1 or isinstance(written, bool):
        raise ConfigError(f"{at} is {written!r:.80}; expected a size such as 8, or a shape such as [84, 84, 4]")
    return shape


def written_action(written: Any) -> Space | None:
    """Convert the ``action`` setting of a config to an action space; None if the setting is None.

    Raises `ConfigError` if the setting is invalid.
    """
    if written is None:
        return None
    if isinstance(written, Mapping):
        if set(written) - {"size", "low", "high"} or "size" not in written:
            raise ConfigError(
                f"action is {dict(written)!r:.80}; expected a block with size and optionally low and high"
            )
        return _bounded(_shape(written["size"], "action.size"), "float32", written, "action")
    counts = written if isinstance(written, list | tuple) else [written]
    if not counts or any(isinstance(n, bool) or not isinstance(n, int) or n < 1 for n in counts):
        raise ConfigError(
            f"action is {written!r:.80}; expected the number of discrete actions, a list of numbers "
            "(MultiDiscrete), or a block with size (Box)"
        )
    return MultiDiscrete(tuple(counts)) if counts is written else Discrete(written)


def _boxes(space: Any) -> dict[str, Box]:
    """Convert an observation space to boxes by observation name."""
    if space is None:
        return {}
    if isinstance(space, int):
        return {STATE: Box(_shape(space, "observation_space"))}
    if isinstance(space, Box):
        return {STATE: space}
    # Gymnasium's Dict is a mapping too, but its `in` tests samples instead of names.
    parts = getattr(space, "spaces", space)
    if isinstance(parts, Mapping):
        boxes = {str(name): _box(part) for name, part in parts.items() if name != GYMNASIUM_MASK}
        # Placeholder: the size of the mask follows from the action space, which is unknown here.
        return boxes | ({MASK: Box((1,), "bool")} if GYMNASIUM_MASK in parts else {})
    return {STATE: _box(space)}


def _box(space: Any) -> Box:
    if isinstance(space, Box):
        return space
    if not _is_gymnasium_box(space):
        raise SpecError(
            f"a client cannot send observations of {space}; use Box, or a Dict of Boxes (encode Discrete as one-hot)"
        )
    dtype = "float32" if space.dtype.kind == "f" else str(space.dtype)
    return Box(tuple(space.shape), dtype, _bound(space.low), _bound(space.high))


def _action(space: Any) -> Space | None:
    if space is None or isinstance(space, Box | Discrete | MultiDiscrete):
        return space
    if isinstance(space, int | list | tuple):
        return written_action(space)
    if _is_multi_discrete(space):
        return MultiDiscrete(tuple(space.nvec.ravel().tolist()))
    if _is_multi_binary(space):
        return MultiDiscrete((2,) * math.prod(space.shape))
    if hasattr(space, "n") and hasattr(space, "start"):
        return Discrete(int(space.n))
    if _is_gymnasium_box(space) and space.dtype.kind == "f":
        return Box(tuple(space.shape), "float32", _bound(space.low), _bound(space.high))
    raise SpecError(f"actions of {space} are not supported; use Discrete, MultiDiscrete, MultiBinary, or Box of floats")


def _start(space: Any) -> int | Array:
    if _is_multi_discrete(space):
        return np.asarray(space.start, space.dtype)
    if _is_multi_binary(space):
        return np.zeros(space.shape, space.dtype)
    return int(getattr(space, "start", 0))


def _is_multi_discrete(space: Any) -> bool:
    return hasattr(space, "nvec")


def _is_multi_binary(space: Any) -> bool:
    return hasattr(space, "n") and not hasattr(space, "start")


def _is_gymnasium_box(space: Any) -> bool:
    return all(hasattr(space, name) for name in ("low", "high", "shape", "dtype"))


def _bound(values: Array) -> tuple[float, ...]:
    flat = [float(v) for v in values.ravel()]
    return (flat[0],) if flat and all(v == flat[0] for v in flat) else tuple(flat)
