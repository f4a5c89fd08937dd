"""Analysis of one run: milestones, largest drop, speed, problems and hints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from rl4sys.analysis.curves import Curve
from rl4sys.analysis.formatting import format_duration, format_number, format_steps, pluralize
from rl4sys.analysis.history import History
from rl4sys.analysis.metric_catalog import reward_of

_FRACTIONS = (0.5, 0.75, 0.9)
_LOW_ENTROPY = 0.1
"""Fraction of the initial entropy below which the policy is reported to explore too little."""
_LOW_EXPLAINED_VARIANCE = 0.2
_HIGH_CLIP_FRACTION = 0.3
_GRADIENT_GROWTH = 10.0
_LARGE_DROP = 0.25
"""Smallest drop of the return to report, as a fraction of the range of the returns."""


@dataclass(frozen=True)
class Milestone:
    """Episode return of interest, and the first step with this return; `step` is None if the run never reached it."""

    name: str
    value: float
    step: int | None
    seconds: float | None
    """Training time up to this step, estimated from the last reported speed; None if step or speed is unknown."""


@dataclass(frozen=True)
class Drop:
    """Largest fall of a curve below its previous best."""

    best: float
    best_at: int
    worst: float
    worst_at: int

    @property
    def size(self) -> float:
        return self.best - self.worst


@dataclass(frozen=True)
class Remark:
    """Finding about a run, in one or two sentences."""

    kind: Literal["problem", "hint", "good"]
    text: str


@dataclass(frozen=True)
class RunAnalysis:
    """Result of `rl4sys analyze` for a run. Remarks are sorted by kind, problems first."""

    run: History
    metric: str
    curve: Curve | None
    milestones: tuple[Milestone, ...]
    drop: Drop | None
    remarks: tuple[Remark, ...]


def analyze_run(run: History, thresholds: Sequence[float] = ()) -> RunAnalysis:
    """Analyze a run. Each of `thresholds` is a return to report as a milestone, in addition to the standard ones."""
    metric = reward_of([run])
    curve = run.curve(metric)
    drop = largest_drop(curve) if curve else None
    remarks = [*_problems(run), *_remarks_on_progress(run, curve, drop), *_remarks_on_learning(run)]
    order = ("problem", "hint", "good")
    return RunAnalysis(
        run,
        metric,
        curve,
        tuple(_milestones(run, curve, thresholds)) if curve else (),
        drop,
        tuple(sorted(remarks, key=lambda remark: order.index(remark.kind))),
    )


def largest_drop(curve: Curve) -> Drop:
    """Return the largest drop of a curve below its previous best; the drop has size 0 if the curve never falls."""
    best = np.maximum.accumulate(curve.values)
    low = int(np.argmax(best - curve.values))
    high = int(np.argmax(curve.values[: low + 1]))
    return Drop(float(curve.values[high]), int(curve.steps[high]), float(curve.values[low]), int(curve.steps[low]))


def speed(run: History) -> float | None:
    """Return the last reported speed in steps per second, or None if unknown."""
    reported = run.status.get("steps_per_second")
    return float(reported) if isinstance(reported, int | float) and reported > 0 else None


def _milestones(run: History, curve: Curve, thresholds: Sequence[float]) -> list[Milestone]:
    first, best = float(curve.values[0]), curve.best(highest=True)[0]
    named = [("threshold", value) for value in thresholds]
    solved = _solved_threshold(run)
    if solved is not None:
        named.append(("solved", solved))
    if best > first:
        named += [(f"{fraction:.0%} of the improvement", first + fraction * (best - first)) for fraction in _FRACTIONS]
        named.append(("best", best))
    return [_find_milestone(run, curve, name, value) for name, value in named]


def _find_milestone(run: History, curve: Curve, name: str, value: float) -> Milestone:
    # A fraction of the improvement may exceed the value of the curve by a rounding error.
    above = np.flatnonzero(curve.values >= value - 1e-9 * abs(value))
    if not len(above):
        return Milestone(name, value, None, None)
    step, rate = int(curve.steps[above[0]]), speed(run)
    return Milestone(name, value, step, step / rate if rate else None)


def _solved_threshold(run: History) -> float | None:
    """Return the reward threshold at which Gymnasium considers the environment solved, or None."""
    if run.setting("environment.family") != "gym":
        return None
    import gymnasium

    known = gymnasium.registry.get(str(run.setting("environment.name")))
    return None if known is None or known.reward_threshold is None else float(known.reward_threshold)


def _problems(run: History) -> list[Remark]:
    remarks = [*_remarks_on_end(run), *_remarks_on_metrics(run), *_remarks_on_alerts(run)]
    resumed = run.provenance.get("resumed")
    if isinstance(resumed, list) and resumed:
        remarks.append(Remark("good", f"The run was resumed {pluralize(len(resumed), 'time')}."))
    return remarks


def _remarks_on_end(run: History) -> list[Remark]:
    total = run.setting("training.total_timesteps")
    of_all = f" of {total:,}" if isinstance(total, int) else ""
    if run.state == "completed":
        return [Remark("good", f"The run completed its {run.steps:,} steps.")]
    if run.state == "failed":
        error = str(run.status.get("error") or "").strip()
        kept = run.directory.failure_checkpoints()
        aside = f" The state at the failure is in checkpoints/{kept[-1]}." if kept else ""
        reason = f": {error}" if error else "."
        return [Remark("problem", f"The run failed at step {run.steps:,}{of_all}{reason}{aside}")]
    if run.state in ("stopped", "interrupted"):
        hint = f"continue with rl4sys train --resume {run.path}"
        return [Remark("problem", f"The run was {run.state} at step {run.steps:,}{of_all}; {hint}")]
    return [Remark("hint", f"The run is {run.state}, at step {run.steps:,}{of_all}; results may still change.")]


def _remarks_on_metrics(run: History) -> list[Remark]:
    remarks = []
    if not run.curves:
        remarks.append(Remark("problem", "The run has written no metrics yet."))
    elif not len(run.curves.get("evaluation/return", ())):
        remarks.append(
            Remark("hint", "The policy was never evaluated; returns are those of training episodes with exploration.")
        )
    for name, curve in run.curves.items():
        if curve.dropped and curve.first_dropped is not None:
            rows = pluralize(curve.dropped, "row")
            remarks.append(
                Remark("problem", f"{name} was not a finite number in {rows}, first at step {curve.first_dropped:,}.")
            )
    refused = run.curves.get("learner/refused_steps")
    if refused is not None and len(refused) and refused.final > 0:
        share = refused.final / max(run.steps, 1)
        remarks.append(
            Remark(
                "problem",
                f"{format_steps(refused.final)} steps ({share:.1%}) were refused because their policy was too old.",
            )
        )
    return remarks


def _remarks_on_alerts(run: History) -> list[Remark]:
    """Return one remark per rule, with the number of alerts and the last message."""
    fired: dict[str, list[str]] = {}
    for alert in run.directory.alerts():
        if alert.get("status") != "cleared":
            fired.setdefault(str(alert.get("rule")), []).append(f"{alert.get('message')} (step {alert.get('step')})")
    return [
        Remark("problem", f"Alert {rule} fired {pluralize(len(messages), 'time')}, last: {messages[-1]}.")
        for rule, messages in fired.items()
    ]


def _remarks_on_progress(run: History, curve: Curve | None, drop: Drop | None) -> list[Remark]:
    if curve is None or drop is None or len(curve) < 2:
        return []
    first, (best, best_at) = float(curve.values[0]), curve.best(highest=True)
    last_at = int(curve.steps[-1])
    if best <= first:
        return [_remark_on_best_first_value(curve, _solved_threshold(run))]
    remarks = []
    extent = best - float(curve.values.min())
    if drop.size > _LARGE_DROP * extent:
        remarks.append(
            Remark(
                "hint",
                f"The return fell from {format_number(drop.best)} (step {drop.best_at:,}) to "
                f"{format_number(drop.worst)} (step {drop.worst_at:,}), {drop.size / extent:.0%} of its range.",
            )
        )
    lost = best - curve.final
    if lost > _LARGE_DROP * extent:
        remarks.append(
            Remark(
                "hint",
                f"The return ended {format_number(lost)} below its best; checkpoints/best has the better policy.",
            )
        )
    if best_at == last_at and len(curve) > 2:
        remarks.append(Remark("hint", "The last evaluation is the best: longer training may improve the policy."))
    elif lost <= 0.05 * extent:
        remarks.append(Remark("good", f"The return ended at or near its best: {format_number(curve.final)}."))
    return remarks


def _remark_on_best_first_value(curve: Curve, solved: float | None) -> Remark:
    """Return the remark on a curve that starts at its highest value: solved, constant, or without improvement."""
    first, final = float(curve.values[0]), curve.final
    if solved is not None and final >= solved:
        return Remark(
            "good",
            f"The return ended at {format_number(final)}; the environment is solved at {format_number(solved)}. "
            f"The first value, {format_number(first)}, was already the highest.",
        )
    if solved is None and final == first:
        return Remark(
            "hint",
            f"The return was {format_number(first)} at the start and at the end, and never higher: the policy has "
            "reached the maximum of the environment, or does not improve.",
        )
    return Remark("problem", f"The return never rose above its first value, {format_number(first)}.")


def _remarks_on_learning(run: History) -> list[Remark]:
    """Return hints on low entropy, a poor critic, many clipped steps and growing gradients."""
    checks: list[tuple[str, Callable[[Curve], str | None]]] = [
        ("policy/entropy", _check_entropy),
        ("value/explained_variance", _check_critic),
        ("policy/clip_fraction", _check_clipping),
        ("loss/gradient_norm", _check_gradients),
    ]
    remarks = []
    for name, check in checks:
        curve = run.curves.get(name)
        message = check(curve) if curve is not None and len(curve) >= 4 else None
        if message:
            remarks.append(Remark("hint", message))
    return remarks


def _check_entropy(curve: Curve) -> str | None:
    first, last = float(curve.values[0]), curve.final
    if first <= 0 or last > _LOW_ENTROPY * first:
        return None
    below = curve.steps[np.flatnonzero(curve.values <= _LOW_ENTROPY * first)[0]]
    change = f"from {format_number(first)} to {format_number(last)} nats"
    return f"The entropy fell {change}: since step {below:,} the policy hardly explores."


def _check_critic(curve: Curve) -> str | None:
    late = float(np.median(_last_quarter(curve)))
    if late >= _LOW_EXPLAINED_VARIANCE:
        return None
    return f"The critic predicts the returns poorly: its explained variance was {format_number(late)} recently."


def _check_clipping(curve: Curve) -> str | None:
    late = float(np.mean(_last_quarter(curve)))
    return f"{late:.0%} of the recent steps are clipped: updates are large." if late > _HIGH_CLIP_FRACTION else None


def _check_gradients(curve: Curve) -> str | None:
    early, late = float(np.median(curve.values[: max(1, len(curve) // 4)])), float(np.median(_last_quarter(curve)))
    return (
        f"The gradient norm grew by a factor of {late / early:.0f}."
        if early > 0 and late > _GRADIENT_GROWTH * early
        else None
    )


def _last_quarter(curve: Curve) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return curve.values[-max(1, len(curve) // 4) :]


def format_milestone_time(milestone: Milestone) -> str:
    return "" if milestone.seconds is None else format_duration(milestone.seconds)
