"""Why a run and its repetition may differ: what is other than it was then."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rl4sys.config import differences
from rl4sys.experiment.provenance import provenance
from rl4sys.lab.difference import Difference
from rl4sys.lab.recorded import Recorded

_SURROUNDINGS = {
    "python": "Python",
    "platform": "the platform",
    "cpu": "the processor",
    "instructions": "the vector instructions that torch uses",
    "device": "the device",
    "git_hash": "the source revision",
}
_LENGTH = "training.total_timesteps"


def conditions(recorded: Recorded) -> list[str]:
    """What is known to be other than when the run was made."""
    return [*_edits(recorded), *_surroundings(recorded), *_lives(recorded)]


def likely_reasons(recorded: Recorded, found: Sequence[Difference], reached: int, threads: int) -> list[str]:
    """The conditions that changed, and what cannot be repeated by its nature; last what to try."""
    reasons = [*_pattern(found, reached), *conditions(recorded), *_nature(recorded, threads)]
    return reasons or [
        "nothing that is known of differs: the same versions, machine, device and settings. Either a record was "
        "changed after the run, or the environment is not decided by its seed alone; `rl4sys check-env` tries that"
    ]


def _pattern(found: Sequence[Difference], reached: int) -> Iterator[str]:
    """What the shape of the differences says."""
    steps = {difference.step for difference in found}
    if {difference.part for difference in found} <= {"checkpoint", "policy"} and reached > max(steps):
        yield (
            f"all that came after step {max(steps):,} is the same again, so the run itself did not part: the files of "
            f"{'this checkpoint' if len(steps) == 1 else 'these checkpoints'} were changed after they were written"
        )


def _edits(recorded: Recorded) -> Iterator[str]:
    began = recorded.provenance.get("config")
    if began is None:
        return
    totals = [life["total_timesteps"] for life in recorded.provenance.get("resumed", []) if "total_timesteps" in life]
    for key, (then, now) in differences(began, recorded.run.config.to_settings()).items():
        if (key == _LENGTH and totals and totals[-1] == now) or not _has(began, key):
            continue
        yield f"configs/config.yaml was changed after the run began: {key} was {then!r} and is {now!r}"


def _has(settings: Mapping[str, Any], key: str) -> bool:
    """Whether the setting was there at all: a later release may have more of them."""
    block: Any = settings
    for name in key.split("."):
        if not isinstance(block, Mapping) or name not in block:
            return False
        block = block[name]
    return True


def _surroundings(recorded: Recorded) -> Iterator[str]:
    """Packages, machine and source: those of each life of the run beside those of now."""
    now = provenance(recorded.run.config.experiment.device)
    for life in (recorded.provenance, *recorded.provenance.get("resumed", [])):
        when = f" (from step {life['step']:,} on)" if "step" in life else ""
        for line in (*_packages(life, now), *_machine(life, now)):
            yield line + when


def _packages(then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for package, (before, after) in differences(then.get("packages", now["packages"]), now["packages"]).items():
        yield f"{package} was {before or 'not installed'} and is {after or 'not installed'}"


def _machine(then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for key, name in _SURROUNDINGS.items():
        if key in then and then[key] != now[key]:
            yield f"{name} was {then[key]} and is {now[key]}"
    if "native_core" in then and then["native_core"] != now["native_core"]:
        before, after = ("in use" if on else "not in use" for on in (then["native_core"], now["native_core"]))
        yield f"the native core, which acts, was {before} and is {after}"


def _lives(recorded: Recorded) -> Iterator[str]:
    if recorded.resumed_unawares:
        yield (
            "it was resumed by a release that did not note with how many steps to go; it was repeated as if that had "
            "been the same from the start, and schedules may have been others"
        )


def _nature(recorded: Recorded, threads: int) -> Iterator[str]:
    """What need not come out the same twice."""
    config = recorded.run.config
    if threads != config.experiment.threads:
        yield f"it ran with experiment.threads={config.experiment.threads}, and was repeated with {threads}"
    elif threads > 1:
        yield f"torch computes with {threads} threads, and may add up in another order each time; 1 is repeatable"
    if config.environment.vectorized is not None and len(recorded.lives()) + len(_resumes(recorded)) > 1:
        yield "environment.vectorized begins new episodes when a run is resumed, so a resumed run cannot be repeated"
    if recorded.provenance.get("device", "cpu") != "cpu":
        yield f"a run on {recorded.provenance['device']} need not come out the same twice; a run on cpu does"


def _resumes(recorded: Recorded) -> Sequence[Any]:
    resumed: Sequence[Any] = recorded.provenance.get("resumed", [])
    return resumed
