"""Trained policy for scripts and notebooks. Does not import torch or Gymnasium."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from rl4sys.errors import ConfigError, ExportError, NumericalError, RunError, SpecError
from rl4sys.extras import check_installed
from rl4sys.policy.base import Policy as PolicyProtocol
from rl4sys.policy.description import Description, describe
from rl4sys.policy.draws import Draws
from rl4sys.policy.snapshot import Snapshot
from rl4sys.policy.snapshot_policy import SnapshotPolicy
from rl4sys.spec import MASK, STATE, Array, Box, Spec, allows_some_action, space_summary
from rl4sys.trajectory import MEMORY

DecodeActions = Callable[[Array], Any]
"""Function that converts a batch of actions to a list of actions in the form that an environment accepts."""

_MASK_NAMES = (MASK, "action_mask")


class Policy:
    """Trained policy that maps observations of an environment to actions.

    Get one from `rl4sys.load_policy` or from ``run.policy()``:

    >>> import rl4sys
    >>> run = rl4sys.train("ppo_cartpole", total_timesteps=500, progress=False)
    >>> policy = run.policy()
    >>> policy.act([0.1, 0.0, -0.02, 0.3], deterministic=True) in (0, 1)
    True
    >>> policy.act([[0.1, 0.0, -0.02, 0.3], [0.0, 0.0, 0.0, 0.0]]).shape
    (2,)

    A recurrent policy keeps its memory between calls; call `reset` at the start of an episode. Not thread-safe.
    """

    def __init__(self, policy: PolicyProtocol, *, seed: int | None = None, decode: DecodeActions | None = None) -> None:
        """Wrap a policy. ``decode`` converts actions to the form that the environment accepts."""
        self._policy, self._decode = policy, decode
        self._observations = _Observations(policy.spec)
        self._draws = Draws(0)
        self._memory: Array | None = None
        self.seed(seed)

    @property
    def spec(self) -> Spec:
        """Names, shapes and bounds of the observations and the action."""
        return self._policy.spec

    @property
    def version(self) -> int | None:
        """Version number that the policy had in training; None for a policy that only torch can run."""
        return self._policy.version if isinstance(self._policy, SnapshotPolicy) else None

    @property
    def decide(self) -> Callable[..., tuple[int | Array, float]]:
        """Fastest function for one observation: ``decide(row, mask, draws) -> (action, log_prob)``.

        docs/using_a_policy.md describes the arguments.

        Raises `ExportError` for a policy that only torch can run.
        """
        if not isinstance(self._policy, SnapshotPolicy):
            raise ExportError("only torch can run this policy, so it has no decide(); use act()")
        return self._policy.decide

    def seed(self, seed: int | None = None) -> None:
        """Seed the sampling of actions; None selects a random seed."""
        if seed is not None and seed < 0:
            raise SpecError(f"the seed of the policy is {seed}; expected an integer of at least 0")
        key = (
            secrets.randbits(64) if seed is None else int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0])
        )
        self._draws = Draws(key)

    def reset(self) -> None:
        """Start an episode: clear the memory of a recurrent policy."""
        self._memory = None

    def act(self, observation: Any, *, mask: Any = None, deterministic: bool = False) -> Any:
        """Return a legal action for one observation, or an array of actions for a batch.

        ``observation`` is an array, an int for a discrete observation space, or a mapping or tuple of observations.
        ``mask`` is True for legal actions. Raises `SpecError` for a wrong shape and `NumericalError` for NaN.
        """
        columns, is_batch = self._observations.read(observation, mask)
        actions, memory = self._run(columns, self._memory, deterministic=deterministic)
        self._memory = memory
        return self._present(actions, is_batch=is_batch)

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
    ) -> tuple[Any, Any]:
        """Return ``(action, state)``, as Stable-Baselines3 does; ``state`` is the memory of a recurrent policy.

        Pass the returned state to the next call. ``episode_start`` is True for observations that start an episode.
        """
        columns, is_batch = self._observations.read(observation, None)
        memory = None if state is None else np.array(state, np.float32)
        if memory is not None and episode_start is not None:
            memory[np.broadcast_to(np.asarray(episode_start, bool), len(memory))] = 0.0
        actions, memory = self._run(columns, memory, deterministic=deterministic)
        return np.asarray(self._present(actions, is_batch=is_batch)), memory

    def save(self, path: str | Path) -> Path:
        """Write the policy to a ``.safetensors`` file for `rl4sys.load_policy` and the C++ client."""
        return _write(Path(path), self.snapshot.to_bytes())

    def export(self, path: str | Path, *, deterministic: bool = False) -> Path:
        """Write the policy in the format of the suffix: ``.safetensors`` as `save`, ``.onnx`` or ``.pt2`` (torch).

        ONNX and torch models return the parameters of the action distribution and the greedy action; see
        docs/using_a_policy.md. The outputs of the model are compared with the policy before the file is written.
        ``deterministic`` exports the greedy policy. Raises `ExportError` if the format cannot express the policy, and
        `MissingExtraError` if the package for the format is not installed.
        """
        target = Path(path)
        to_content = _FORMATS.get(target.suffix.lower())
        if to_content is None:
            raise ConfigError(
                f"cannot export the policy to {target}: the suffix {target.suffix!r} is not a format; "
                f"expected {', '.join(_FORMATS)}"
            )
        snapshot = self.snapshot.greedy() if deterministic else self.snapshot
        return _write(target, to_content(snapshot))

    def describe(self) -> Description:
        """Return spaces, number of parameters, size, hashes and operations of the policy as text."""
        return describe(self.snapshot)

    @cached_property
    def snapshot(self) -> Snapshot:
        """Program and weights of the policy. Raises `ExportError` if only torch can run it."""
        return self._policy.snapshot(self.version or 0)

    def __repr__(self) -> str:
        observations = ", ".join(f"{name} {box.shape}" for name, box in self.spec.observation.items())
        version = "" if self.version is None else f", version {self.version}"
        return f"Policy(observations {observations}; actions {space_summary(self.spec.action)}{version})"

    @cached_property
    def _greedy(self) -> PolicyProtocol:
        return self._policy.greedy()

    def _run(self, columns: Mapping[str, Array], memory: Array | None, *, deterministic: bool) -> tuple[Array, Any]:
        rows = len(next(iter(columns.values())))
        if memory is not None and len(memory) != rows:
            raise SpecError(
                f"the recurrent state of the policy is for {len(memory)} observations, but {rows} were given; "
                "call reset() first"
            )
        policy = self._greedy if deterministic else self._policy
        decision = policy.act(columns, {} if memory is None else {MEMORY: memory}, self._draws)
        if np.isnan(decision.log_prob).any():
            raise NumericalError("the policy returned NaN: an observation or a weight is NaN or too large")
        return decision.action, decision.memory.get(MEMORY)

    def _present(self, actions: Array, *, is_batch: bool) -> Any:
        """Clip actions to their bounds and convert them to the form that the environment accepts."""
        legal = self.spec.action.legal(actions)
        if self._decode is not None:
            decoded = self._decode(legal)
            return np.asarray(decoded) if is_batch else decoded[0]
        if is_batch:
            return legal
        return int(legal[0]) if legal.ndim == 1 else legal[0]


class _Observations:
    """Converter of observations, as passed to `Policy.act`, to the columns of a spec."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._boxes = {name: box for name, box in spec.observation.items() if name != MASK}

    def read(self, observation: Any, mask: Any) -> tuple[dict[str, Array], bool]:
        """Return the columns, one row per observation, and True if ``observation`` is a batch."""
        parts = self._parts(observation)
        if mask is None:
            mask = next((parts.pop(name) for name in _MASK_NAMES if name in parts), None)
        self._check_names(parts)
        read = {name: _rows(name, parts[name], box) for name, box in self._boxes.items()}
        is_batch = any(batch for _, batch in read.values())
        columns = {name: rows for name, (rows, _) in read.items()}
        counts = {name: len(rows) for name, rows in columns.items()}
        if len(set(counts.values())) > 1:
            raise SpecError(f"the observations of a batch have different numbers of rows: {counts}")
        return self._with_mask(columns, mask, len(next(iter(columns.values())))), is_batch

    def _parts(self, observation: Any) -> dict[str, Any]:
        if isinstance(observation, Mapping | tuple) and not (isinstance(observation, tuple) and self._is_plain):
            return dict(_leaves(observation))
        if not self._is_plain:
            raise SpecError(
                f"the observation is {observation!r:.80}; expected a mapping with the names {', '.join(self._boxes)}"
            )
        return {STATE: observation}

    @property
    def _is_plain(self) -> bool:
        return list(self._boxes) == [STATE]

    def _check_names(self, parts: Mapping[str, Any]) -> None:
        if set(parts) != set(self._boxes):
            raise SpecError(f"the observation has the names {sorted(parts)}; expected {list(self._boxes)}")

    def _with_mask(self, columns: dict[str, Array], mask: Any, rows: int) -> dict[str, Array]:
        if not self._spec.masked:
            if mask is not None:
                raise SpecError("a mask was given, but the policy was trained without an action mask; pass mask=None")
            return columns
        action, shape = self._spec.action, self._spec.observation[MASK].shape
        assert not isinstance(action, Box)  # `Spec` allows a mask for discrete actions only
        given = np.ones((rows, *shape), bool) if mask is None else _as_array(_joined(mask), "the mask").astype(bool)
        given = given.reshape(1, -1) if given.ndim == 1 else given
        if given.shape != (rows, *shape):
            raise SpecError(f"the mask has shape {given.shape}; expected {(rows, *shape)}")
        if not allows_some_action(action, given):
            raise SpecError("the action mask allows no action; each action dimension needs at least one legal action")
        return columns | {MASK: given}


def _to_onnx(snapshot: Snapshot) -> bytes:
    from rl4sys.policy.onnx_export import to_onnx

    return to_onnx(snapshot)


def _to_pt2(snapshot: Snapshot) -> bytes:
    check_installed("export to .pt2", "torch")
    from rl4sys.networks.torch_export import to_pt2

    return to_pt2(snapshot)


_FORMATS: dict[str, Callable[[Snapshot], bytes]] = {
    ".safetensors": Snapshot.to_bytes,
    ".onnx": _to_onnx,
    ".pt2": _to_pt2,
}
"""Functions that return the content of an exported file, by its suffix."""


def _write(target: Path, content: bytes) -> Path:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    except OSError as problem:
        raise RunError(f"cannot write the policy to {target}: {problem.strerror}") from problem
    return target


def _leaves(observation: Any, path: tuple[str, ...] = ()) -> list[tuple[str, Any]]:
    """Return the leaves of nested mappings and tuples with their keys joined by dots."""
    if isinstance(observation, Mapping):
        items = list(observation.items())
    elif isinstance(observation, tuple):
        items = list(enumerate(observation))
    else:
        return [(".".join(path), observation)]
    return [leaf for key, value in items for leaf in _leaves(value, (*path, str(key)))]


def _joined(mask: Any) -> Any:
    """Concatenate the masks of a MultiDiscrete action if they are a tuple with one mask per dimension."""
    return np.concatenate([np.ravel(part) for part in mask]) if isinstance(mask, tuple) else mask


def _rows(name: str, value: Any, box: Box) -> tuple[Array, bool]:
    """Return the rows of one observation, and True if it is a batch."""
    given = _as_array(value, f"the observation {name!r}")
    if given.dtype.kind in "iub" and box.dtype == "float32" and len(box.shape) == 1 and given.ndim == 0:
        given = _one_hot(name, int(given), box.size)
    if given.shape == box.shape:
        return given.astype(box.dtype)[None], False
    if given.ndim == len(box.shape) + 1 and given.shape[1:] == box.shape and len(given):
        return given.astype(box.dtype), True
    raise SpecError(
        f"the observation {name!r} has shape {given.shape}; expected {box.shape}, or "
        f"{str(('N', *box.shape)).replace(chr(39), '')} for a batch"
    )


def _one_hot(name: str, number: int, size: int) -> Array:
    if not 0 <= number < size:
        raise SpecError(f"the observation {name!r} is {number}; expected an integer from 0 to {size - 1}")
    row = np.zeros(size, np.float32)
    row[number] = 1.0
    return row


def _as_array(value: Any, subject: str) -> Array:
    try:
        array = np.asarray(value)
    except (ValueError, TypeError) as problem:
        raise SpecError(f"{subject} cannot be converted to an array: {problem}") from problem
    if array.dtype.kind not in "fiub":
        raise SpecError(f"{subject} is {value!r:.80}; expected numbers")
    return array
