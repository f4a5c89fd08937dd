"""Initial weights of a new run, copied from a checkpoint of another run (``initialize_from``)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from rl4sys.errors import ConfigError
from rl4sys.learner.learner import Learner
from rl4sys.runs.directory import split_checkpoint
from rl4sys.runs.run import Run
from rl4sys.spec import Array, State

_LEARNER, _ALGORITHM = "learner", "algorithm"
_NOT_COPIED = ("optimizer", "rng")
"""Entries of an algorithm's state are not copied if their name contains one of these words."""
_LISTED = 5


def initialize(learner: Learner, source: str) -> str:
    """Copy the weights of ``PATH@checkpoint`` to a new learner and return a message about the copied arrays.

    Weights are copied if they have the same name and shape in both algorithms; all others keep their initial values.
    The statistics of the observation normalization are also copied. Optimizers, buffers and random generators are not
    copied. Raises `ConfigError` if no weight can be copied.
    """
    path, checkpoint = split_checkpoint(source)
    run = Run.open(Path(path))
    found = run.checkpoints.load(checkpoint)
    state = dict(learner.state())
    given, own = found.state[_LEARNER][_ALGORITHM], state[_ALGORITHM]
    weights = dict(_weights(given))
    needed = dict(_weights(own))
    fitting = {path for path in needed if path in weights and weights[path].shape == needed[path].shape}
    if not fitting:
        raise ConfigError(
            f"initialize_from: {source} has no weights that fit this run; use a run with the same kind of algorithm, "
            "observations and networks"
        )
    state[_ALGORITHM] = _copied(own, weights, fitting)
    normalized = _copy_statistics(state, found.state[_LEARNER])
    learner.restore(state)
    return _describe(f"{run.path}, checkpoint {found.name}", fitting, needed, weights, normalized=normalized)


def _weights(state: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Array]]:
    """Return the arrays of an algorithm's state by path, without optimizers and random generators."""
    if isinstance(state, np.ndarray):
        yield path, state
    elif isinstance(state, dict):
        for key, value in state.items():
            if not any(word in str(key) for word in _NOT_COPIED):
                yield from _weights(value, (*path, str(key)))


def _copied(state: Any, weights: dict[tuple[str, ...], Array], fitting: set[Any], path: tuple[str, ...] = ()) -> Any:
    """Return a copy of the state in which the arrays at the paths ``fitting`` are replaced by those of ``weights``."""
    if path in fitting:
        return weights[path].astype(state.dtype)
    if isinstance(state, dict):
        return {key: _copied(value, weights, fitting, (*path, str(key))) for key, value in state.items()}
    return state


def _copy_statistics(state: dict[str, Any], source: State) -> bool:
    """Copy the statistics of the observation normalization if both runs have them with equal shapes."""
    own, given = state["observations"], source.get("observations")
    if own is None or given is None or _shapes(own) != _shapes(given):
        return False
    state["observations"] = given
    return True


def _shapes(state: Any) -> dict[tuple[str, ...], tuple[int, ...]]:
    return {path: array.shape for path, array in _weights(state)}


def _describe(
    source: str,
    fitting: set[tuple[str, ...]],
    needed: dict[tuple[str, ...], Array],
    weights: dict[tuple[str, ...], Array],
    *,
    normalized: bool,
) -> str:
    others = [
        f"{'.'.join(path)} ({'not in the source' if path not in weights else f'{weights[path].shape} in the source'}, "
        f"{needed[path].shape} in this run)"
        for path in needed
        if path not in fitting
    ]
    more = f" and {len(others) - _LISTED} more" if len(others) > _LISTED else ""
    kept = f"; initial values are kept for {', '.join(others[:_LISTED])}{more}" if others else ""
    statistics = " and the observation statistics" if normalized else ""
    return f"copied {len(fitting)} of {len(needed)} weight arrays{statistics} from {source}{kept}"
