"""Each rule of buffers is followed by shipped buffers, and catches a buffer that breaks it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from rl4sys.buffers.base import Batch, BufferConfig
from rl4sys.buffers.rollout import Rollout
from rl4sys.buffers.uniform import Replay, UniformConfig
from rl4sys.errors import ConfigError, ContractError
from rl4sys.testing import buffers, check_buffer
from rl4sys.testing.configs import config_class_is_frozen_and_typed, config_is_restored_from_its_settings
from rl4sys.testing.rules import Rule
from rl4sys.trajectory import Trajectory

RULES = {
    buffers.class_has_all_parts,
    config_class_is_frozen_and_typed,
    config_is_restored_from_its_settings,
    buffers.steps_to_next_update_is_exact,
    buffers.batches_have_all_columns,
    buffers.truncated_episodes_are_not_marked_terminated,
    buffers.terminated_episodes_are_marked_terminated,
    buffers.rows_are_transitions_of_the_trajectories,
    buffers.seed_determines_the_batches,
    buffers.restored_buffer_continues_identically,
    buffers.buffer_restored_from_disk_continues_identically,
    buffers.empty_buffer_restored_from_disk_continues_identically,
    buffers.returned_state_does_not_change,
}


@pytest.mark.parametrize("size", [8, 20, 300])
@pytest.mark.parametrize("kind", [Replay, Rollout])
def test_shipped_buffer_follows_all_rules(kind: type, size: int) -> None:
    report = check_buffer(kind, {"size": size})
    assert set(report.rules) == {rule.statement for rule in RULES}
    assert str(report).startswith(f"{kind.__name__} follows all {len(RULES)} rules:\n  - ")


class WithoutFeedback:
    Config = BufferConfig
    add, steps_to_next_update, batches, state, restore = (
        getattr(Replay, name) for name in ("add", "steps_to_next_update", "batches", "state", "restore")
    )


class OwnConfigOnly(Replay):
    Config = dict  # type: ignore[assignment]


class ConfigWithWrongDefault(UniformConfig):
    share: float = "half"  # type: ignore[assignment]


class WrongDefault(Replay):
    Config = ConfigWithWrongDefault


class AlwaysDue(Replay):
    def batches(self, rng: np.random.Generator) -> Iterator[Batch]:
        if self.num_stored:
            yield self.sample(rng, 4)


class NothingStored(Replay):
    def add(self, trajectory: Trajectory, version: int) -> int:
        super().add(trajectory, version)
        return 0


class Changes(Replay):
    """Base class of buffers that return changed batches."""

    def change(self, batch: dict[str, Any], rng: np.random.Generator) -> None:
        raise NotImplementedError

    def batches(self, rng: np.random.Generator) -> Iterator[Batch]:
        for batch in super().batches(rng):
            changed = {name: np.array(column) for name, column in batch.items()}
            self.change(changed, rng)
            yield changed


class NoNextObservation(Changes):
    def change(self, batch: dict[str, Any], rng: np.random.Generator) -> None:
        del batch["next_obs.state"]


class AllTerminated(Changes):
    def change(self, batch: dict[str, Any], rng: np.random.Generator) -> None:
        batch["terminated"][:] = True


class NeverTerminated(Changes):
    def change(self, batch: dict[str, Any], rng: np.random.Generator) -> None:
        batch["terminated"][:] = False


class ShuffledActions(Changes):
    def change(self, batch: dict[str, Any], rng: np.random.Generator) -> None:
        batch["action"] = batch["action"][::-1].copy()


class SameObservationTwice(Changes):
    def change(self, batch: dict[str, Any], rng: np.random.Generator) -> None:
        batch["next_obs.state"] = batch["obs.state"]


class GlobalNumbers(Replay):
    def batches(self, rng: np.random.Generator) -> Iterator[Batch]:
        yield from super().batches(np.random.default_rng(np.random.randint(1000)))  # noqa: NPY002


class OwnGenerator(Replay):
    def batches(self, rng: np.random.Generator) -> Iterator[Batch]:
        yield from super().batches(np.random.default_rng())


class ScheduleForgotten(Replay):
    def restore(self, state: Any) -> None:
        self._ring.restore(state["ring"])


class NumbersAsKeys(Rollout):
    """Buffer whose state has numbers as keys, which become strings in a checkpoint."""

    def state(self) -> Any:
        return {**super().state(), "ended": {1: 2}}

    def restore(self, state: Any) -> None:
        super().restore(state)
        assert state["ended"][1] == 2


class NeedsAColumn(Rollout):
    """Buffer that cannot restore the state of an empty buffer, as it is saved at the start of a run."""

    def restore(self, state: Any) -> None:
        super().restore(state)
        self.newest = state["columns"]["reward"][-1:] if self._filled or self._columns else state["columns"]["reward"]


class LiveArrays(Rollout):
    def add(self, trajectory: Trajectory, version: int) -> int:
        self.total = getattr(self, "total", np.zeros(1))
        self.total += trajectory.columns["reward"].sum()
        return super().add(trajectory, version)

    def state(self) -> Any:
        return {**super().state(), "total": getattr(self, "total", np.zeros(1))}

    def restore(self, state: Any) -> None:
        super().restore(state)
        self.total = np.array(state["total"])


BROKEN: dict[str, tuple[Callable[[], Any], Rule[Any], str]] = {
    "function": (lambda: lambda config, demand: None, buffers.class_has_all_parts, "is not a class"),
    "no feedback": (lambda: WithoutFeedback, buffers.class_has_all_parts, "has no feedback"),
    "other config": (lambda: OwnConfigOnly, config_class_is_frozen_and_typed, "derived from BufferConfig"),
    "wrong default": (lambda: WrongDefault, config_is_restored_from_its_settings, "share"),
    "always due": (lambda: AlwaysDue, buffers.steps_to_next_update_is_exact, r"batches\(\) yields"),
    "nothing stored": (lambda: NothingStored, buffers.steps_to_next_update_is_exact, r"add\(\) returned 0"),
    "no column": (lambda: NoNextObservation, buffers.batches_have_all_columns, "missing: next_obs.state"),
    "all terminated": (
        lambda: AllTerminated,
        buffers.truncated_episodes_are_not_marked_terminated,
        "truncated episode",
    ),
    "never terminated": (lambda: NeverTerminated, buffers.terminated_episodes_are_marked_terminated, "not marked"),
    "shuffled": (lambda: ShuffledActions, buffers.rows_are_transitions_of_the_trajectories, "of other steps"),
    "same twice": (lambda: SameObservationTwice, buffers.rows_are_transitions_of_the_trajectories, "next_obs is"),
    "global numbers": (lambda: GlobalNumbers, buffers.seed_determines_the_batches, "global generator of numpy"),
    "own generator": (lambda: OwnGenerator, buffers.seed_determines_the_batches, "give different batches"),
    "schedule": (lambda: ScheduleForgotten, buffers.restored_buffer_continues_identically, "differs in due_at"),
    "numbers as keys": (lambda: NumbersAsKeys, buffers.buffer_restored_from_disk_continues_identically, "KeyError: 1"),
    "needs a column": (lambda: NeedsAColumn, buffers.empty_buffer_restored_from_disk_continues_identically, "KeyError"),
    "live arrays": (lambda: LiveArrays, buffers.returned_state_does_not_change, "total .*state changed"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_buffer_is_caught_by_its_rule(case: str) -> None:
    make, rule, observed = BROKEN[case]
    with pytest.raises(ContractError) as caught:
        check_buffer(make(), {"size": 8})
    broken, _, rest = str(caught.value).partition("\n  observed: ")
    assert f"breaks a rule: {rule.statement}" in broken
    found, _, remedy = rest.partition("\n  remedy: ")
    assert re.search(observed, found), found
    assert remedy


def test_every_rule_catches_a_broken_buffer() -> None:
    assert {rule.statement for _, rule, _ in BROKEN.values()} == {rule.statement for rule in RULES}


def test_invalid_setting_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match=r"buffer\.sise is not a setting; did you mean size"):
        check_buffer(Replay, {"sise": 20})
