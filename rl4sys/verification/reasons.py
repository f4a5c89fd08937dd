"""Likely reasons for differences between a run and its repetition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rl4sys.config import differences
from rl4sys.runs.provenance import provenance
from rl4sys.verification.difference import Difference
from rl4sys.verification.recorded import RecordedRun

_MACHINE_FIELDS = {
    "python": "Python",
    "platform": "the platform",
    "cpu": "the processor",
    "instructions": "the vector instructions that torch uses",
    "device": "the device",
    "git_hash": "the source revision",
}
_LENGTH = "training.total_timesteps"


def changed_conditions(recorded: RecordedRun) -> list[str]:
    """List changes of config, packages, machine and source code since the run."""
    return [*_config_changes(recorded), *_environment_changes(recorded), *_unrecorded_resumes(recorded)]


def likely_reasons(recorded: RecordedRun, found: Sequence[Difference], reached: int, threads: int) -> list[str]:
    """List changed conditions and known sources of nondeterminism; if there are none, suggest the next check."""
    reasons = [
        *_changed_checkpoints(found, reached),
        *changed_conditions(recorded),
        *_nondeterminism(recorded, threads),
    ]
    return reasons or [
        "no known condition changed: versions, machine, device and settings are the same. Either a record was changed "
        "after the run, or the environment is not deterministic for its seed; test it with `rl4sys check-env`"
    ]


def _changed_checkpoints(found: Sequence[Difference], reached: int) -> Iterator[str]:
    """Report checkpoints that differ although all later steps are identical."""
    steps = {difference.step for difference in found}
    if {difference.part for difference in found} <= {"checkpoint", "policy"} and reached > max(steps):
        yield (
            f"everything after step {max(steps):,} is identical, so training was reproduced: the files of "
            f"{'this checkpoint' if len(steps) == 1 else 'these checkpoints'} were changed after they were written"
        )


def _config_changes(recorded: RecordedRun) -> Iterator[str]:
    original = recorded.provenance.get("config")
    if original is None:
        return
    totals = [
        attempt["total_timesteps"] for attempt in recorded.provenance.get("resumed", []) if "total_timesteps" in attempt
    ]
    for key, (then, now) in differences(original, recorded.run.config.to_settings()).items():
        if (key == _LENGTH and totals and totals[-1] == now) or not _has_setting(original, key):
            continue
        yield f"configs/config.yaml was changed after the run started: {key} was {then!r} and is {now!r}"


def _has_setting(settings: Mapping[str, Any], key: str) -> bool:
    """Return True if `settings` contains `key`; runs of earlier releases lack newer settings."""
    block: Any = settings
    for name in key.split("."):
        if not isinstance(block, Mapping) or name not in block:
            return False
        block = block[name]
    return True


def _environment_changes(recorded: RecordedRun) -> Iterator[str]:
    """Compare packages, machine and source of each attempt with the current environment."""
    now = provenance(recorded.run.config.experiment.device)
    for attempt in (recorded.provenance, *recorded.provenance.get("resumed", [])):
        when = f" (from step {attempt['step']:,})" if "step" in attempt else ""
        for line in (*_packages(attempt, now), *_machine(attempt, now)):
            yield line + when


def _packages(then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for package, (before, after) in differences(then.get("packages", now["packages"]), now["packages"]).items():
        yield f"{package} was {before or 'not installed'} and is {after or 'not installed'}"


def _machine(then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for key, name in _MACHINE_FIELDS.items():
        if key in then and then[key] != now[key]:
            yield f"{name} was {then[key]} and is {now[key]}"
    if "native_core" in then and then["native_core"] != now["native_core"]:
        before, after = ("in use" if on else "not in use" for on in (then["native_core"], now["native_core"]))
        yield f"the native core was {before} and is {after}"


def _unrecorded_resumes(recorded: RecordedRun) -> Iterator[str]:
    if recorded.has_unrecorded_resume:
        yield (
            "the run was resumed by an earlier release that did not record total_timesteps; the repetition used the "
            "current value from the start, so schedules may differ"
        )


def _nondeterminism(recorded: RecordedRun, threads: int) -> Iterator[str]:
    """Report settings and devices without reproducible results."""
    config = recorded.run.config
    if threads != config.experiment.threads:
        yield f"the run used experiment.threads={config.experiment.threads}; the repetition used {threads}"
    elif threads > 1:
        yield f"with {threads} threads, torch may sum in a different order each time; only 1 thread is deterministic"
    if config.environment.vectorized is not None and len(recorded.attempts()) + len(_resumes(recorded)) > 1:
        yield "environment.vectorized starts new episodes after a resume, so a resumed run cannot be repeated"
    if recorded.provenance.get("device", "cpu") != "cpu":
        yield f"runs on {recorded.provenance['device']} are not deterministic; use cpu for reproducible runs"


def _resumes(recorded: RecordedRun) -> Sequence[Any]:
    resumed: Sequence[Any] = recorded.provenance.get("resumed", [])
    return resumed
