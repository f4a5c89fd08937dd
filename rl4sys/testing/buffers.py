"""Check of buffers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import numpy as np

from rl4sys.buffers.base import Buffer, BufferConfig, Demand
from rl4sys.config import parse
from rl4sys.registry import BUFFERS
from rl4sys.runs.checkpoint import CheckpointStore
from rl4sys.testing.configs import config_class_is_frozen_and_typed, config_is_restored_from_its_settings
from rl4sys.testing.contents import contents, contents_of, first_difference
from rl4sys.testing.randomness import watched_generators
from rl4sys.testing.rules import Check, Report, expect, rule
from rl4sys.testing.steps import batches, drain, feed_buffer, numbered_trajectory

MakeBuffer: TypeAlias = Callable[[], Buffer]

DEMAND = Demand(batch_size=4, learning_starts=6, train_frequency=3, gradient_steps=2, n_step=2, gamma=0.5)
"""Demand of the checks. The rules hold for any other demand too."""

_COLUMNS = {"obs.state", "next_obs.state", "action", "reward", "terminated"}
_SAVE = "return everything that changes from state(), and restore all of it in restore(), as copies"


def check_buffer(buffer: Any, settings: Mapping[str, Any] | None = None) -> Report:
    """Check a buffer class, registered or not, against the rules of buffers.

    ``settings`` is the ``buffer`` block of a config; the default size is 20 steps.

    >>> from rl4sys.buffers.rollout import Rollout
    >>> print(check_buffer(Rollout, {"size": 8}))
    Rollout follows all ...

    Raises `ContractError` with the first rule that does not hold, and `ConfigError` for settings that are not valid.
    """
    check = Check(buffer)
    check.follows(class_has_all_parts, buffer)
    check.follows(config_class_is_frozen_and_typed, buffer.Config, BufferConfig)
    with BUFFERS.under_a_name(buffer) as name:
        config = parse(buffer.Config, {"type": name, "size": 20, **(settings or {})}, "buffer")
        check.follows(config_is_restored_from_its_settings, config)
        _check_buffer(check, partial(buffer, config, DEMAND))
    return check.report()


def _check_buffer(check: Check, make: MakeBuffer) -> None:
    check.follows(steps_to_next_update_is_exact, make)
    check.follows(batches_have_all_columns, make)
    check.follows(truncated_episodes_are_not_marked_terminated, make)
    check.follows(terminated_episodes_are_marked_terminated, make)
    check.follows(rows_are_transitions_of_the_trajectories, make)
    check.follows(seed_determines_the_batches, make)
    for steps in (1, 5, 28, 33, 100):
        check.follows(restored_buffer_continues_identically, make, steps)
    with TemporaryDirectory(prefix="rl4sys_check_") as directory:
        check.follows(buffer_restored_from_disk_continues_identically, make, Path(directory) / "full")
        check.follows(empty_buffer_restored_from_disk_continues_identically, make, Path(directory) / "empty")
    check.follows(returned_state_does_not_change, make)


@rule("the class has all parts of a buffer", "write the missing methods and attributes of rl4sys.components.Buffer")
def class_has_all_parts(buffer: Any) -> None:
    expect(isinstance(buffer, type), f"{buffer!r:.80} is not a class")
    with BUFFERS.under_a_name(buffer):
        pass


@rule(
    "steps_to_next_update is the number of steps until a batch is due",
    "count every step that add() stores, and yield each due batch from batches() exactly once",
)
def steps_to_next_update_is_exact(make: MakeBuffer) -> None:
    buffer, number = make(), 0
    for _ in range(4):
        for missing in range(buffer.steps_to_next_update(), 0, -1):
            told = buffer.steps_to_next_update()
            expect(told == missing, f"steps_to_next_update() is {told}, but a batch is due after {missing} more steps")
            expect(drain(buffer) == [], f"batches() yields a batch {missing} steps before it is due")
            stored = buffer.add(numbered_trajectory(number, 1, episode=number, end="terminated"), version=0)
            expect(stored == 1, f"add() returned {stored!r} for a trajectory of 1 step; expected 1")
            number += 1
        expect(drain(buffer) != [], "batches() yields nothing, but a batch is due")
        expect(drain(buffer) == [], "batches() yields a due batch a second time")
        expect(buffer.steps_to_next_update() >= 1, "steps_to_next_update() is 0 after all due batches were taken")


@rule(
    "batches have the columns of transitions",
    f"return at least the columns {', '.join(sorted(_COLUMNS))}, one row per step; rl4sys.components.transitions makes "
    "them from a trajectory",
)
def batches_have_all_columns(make: MakeBuffer) -> None:
    buffer = make()
    buffer.add(numbered_trajectory(0, max(8, buffer.steps_to_next_update()), episode=1, end="terminated"), version=0)
    for batch in batches(buffer):
        missing = _COLUMNS - batch.keys()
        expect(not missing, f"these columns are missing: {', '.join(sorted(missing))}")


@rule(
    "truncated episodes are not marked terminated",
    "set the column terminated only where trajectory.terminated is true; the return of a truncated episode continues "
    "with the value of next_obs",
)
def truncated_episodes_are_not_marked_terminated(make: MakeBuffer) -> None:
    flags = _terminated_flags(make(), 8, "truncated")
    expect(not any(flags), "a step of a truncated episode is marked terminated")


@rule(
    "terminated episodes are marked terminated",
    "set the column terminated in the last row of a terminated trajectory",
)
def terminated_episodes_are_marked_terminated(make: MakeBuffer) -> None:
    flags = _terminated_flags(make(), 1, "terminated")
    expect(all(flags), "the only step of a terminated episode is not marked terminated")


@rule(
    "rows are transitions of the trajectories",
    "take obs.*, action and next_obs.* of a row from the same step; with Demand.n_step, next_obs.* may be up to n_step "
    "steps later, but never after the end of the episode",
)
def rows_are_transitions_of_the_trajectories(make: MakeBuffer) -> None:
    buffer = make()
    for start in range(0, max(60, buffer.steps_to_next_update() + 4), 4):
        end = "truncated" * (start % 20 == 16)
        buffer.add(numbered_trajectory(start, 4, episode=start // 20, offset=start % 20, end=end), 0)
        for batch in batches(buffer, seed=start):
            step, seen, following = batch["action"], batch["obs.state"][..., 0], batch["next_obs.state"][..., 0]
            expect((seen == step).all(), f"rows combine the observations {seen} with the actions {step} of other steps")
            moved = following - seen
            expect(
                ((moved >= 1) & (moved <= DEMAND.n_step)).all(),
                f"next_obs is {moved} steps later than obs; expected 1 to {DEMAND.n_step} (Demand.n_step)",
            )


@rule(
    "the generator that batches() receives determines the batches",
    "draw all random numbers from the argument rng of batches()",
)
def seed_determines_the_batches(make: MakeBuffer) -> None:
    with watched_generators() as changed_generator:
        first, second = make(), make()
        for buffer in (first, second):
            buffer.add(numbered_trajectory(0, max(30, buffer.steps_to_next_update()), episode=1), version=0)
        drawn, again = drain(first, seed=1), drain(second, seed=1)
        changed = changed_generator()
    expect(not changed, f"the buffer seeded or used the global generator of {changed}")
    expect(drawn != [], "batches() yields nothing, but a batch is due")
    expect(again == drawn, "two buffers with the same steps and seed give different batches")


@rule("a restored buffer continues identically", _SAVE)
def restored_buffer_continues_identically(make: MakeBuffer, steps: int) -> None:
    one, other = make(), make()
    feed_buffer(one, steps)
    other.restore(one.state())
    _expect_equal(one, other, f"right after restore(), with {steps} steps,")
    for buffer in (one, other):
        # Continue an unfinished episode and add more steps than the buffer stores.
        buffer.add(numbered_trajectory(40, 6, episode=1, offset=3, end="truncated"), version=0)
        feed_buffer(buffer, 60, seed=1)
        buffer.add(numbered_trajectory(0, max(9, buffer.steps_to_next_update()), episode=77777), version=0)
    found = drain(one, seed=5)
    expect(found != [], "batches() yields nothing, but a batch is due")
    expect(
        drain(other, seed=5) == found, f"the batches of the restored buffer differ; the saved state had {steps} steps"
    )
    _expect_equal(one, other, "after more steps,")


@rule("a buffer restored from a checkpoint continues identically", _SAVE)
def buffer_restored_from_disk_continues_identically(make: MakeBuffer, directory: Path) -> None:
    one, other, store = make(), make(), CheckpointStore(directory)
    for step in range(1, 6):
        feed_buffer(one, 13, seed=step)
        store.save(step, {"buffer": one.state()}, None)
    other.restore(store.load().state["buffer"])
    _expect_equal(one, other, "right after restore(),")
    for buffer in (one, other):
        feed_buffer(buffer, 30, seed=9)
    _expect_equal(one, other, "after more steps,")


@rule("an empty buffer restored from a checkpoint continues identically", _SAVE)
def empty_buffer_restored_from_disk_continues_identically(make: MakeBuffer, directory: Path) -> None:
    one, other, store = make(), make(), CheckpointStore(directory)
    store.save(0, {"buffer": one.state()}, None)
    other.restore(store.load().state["buffer"])
    for buffer in (one, other):
        feed_buffer(buffer, 30)
    _expect_equal(one, other, "after 30 steps,")


@rule(
    "a returned state does not change",
    "copy the arrays that state() returns, because a checkpoint may be written while the next steps are added",
)
def returned_state_does_not_change(make: MakeBuffer) -> None:
    buffer = make()
    buffer.add(numbered_trajectory(0, 5, episode=1), version=0)
    state = buffer.state()
    before = contents_of(state)
    assert before, "a state has at least one value"
    buffer.add(numbered_trajectory(50, 4, episode=3), version=0)
    drain(buffer)
    changed = first_difference(before, contents_of(state))
    expect(not changed, f"{changed} of the returned state changed when steps were added and batches were drawn")


def _terminated_flags(buffer: Buffer, length: int, end: str) -> list[bool]:
    """Add equal episodes until batches are due, and return the column terminated of all rows with their steps."""
    episodes = -(-buffer.steps_to_next_update() // length)
    for number in range(episodes):
        added = numbered_trajectory(number * length, length, episode=number, end=end, goal=8.0)
        buffer.add(added, version=0)
    due = [(batch["terminated"], batch["action"] < episodes * length) for batch in batches(buffer)]
    flags = [bool(flag) for terminated, is_own in due for flag in np.ravel(terminated[is_own])]
    expect(flags, "batches() yields nothing, but a batch is due")
    return flags


def _expect_equal(one: Buffer, other: Buffer, when: str) -> None:
    differs = first_difference(contents(one), contents(other))
    expect(not differs, f"{when} the restored buffer differs in {differs}")
