"""What one run came to: how good, how soon, how steady, how fast, and what went wrong, in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from rl4sys.analysis.curves import Curve
from rl4sys.analysis.history import History
from rl4sys.analysis.metric_names import reward_of
from rl4sys.analysis.wording import counted, duration, figure, steps
from rl4sys.experiment.alertbook import FILE as ALERTS
from rl4sys.experiment.alertbook import read_alerts

_FRACTIONS = (0.5, 0.75, 0.9)
_ENTROPY_LEFT = 0.1
_LITTLE_FORESEEN = 0.2
_MUCH_CLIPPED = 0.3
_GROWN = 10.0
_LARGE_DROP = 0.25


@dataclass(frozen=True)
class Reached:
    """When a return was first reached; None if it never was."""

    name: str
    value: float
    step: int | None
    seconds: float | None
    """At the speed the run had."""


@dataclass(frozen=True)
class Drop:
    """The farthest a curve fell below its best until then."""

    best: float
    best_at: int
    worst: float
    worst_at: int

    @property
    def size(self) -> float:
        return self.best - self.worst


@dataclass(frozen=True)
class Remark:
    """A sentence about the run; problems come first."""

    kind: Literal["problem", "hint", "good"]
    words: str


@dataclass(frozen=True)
class RunAnalysis:
    """All that `analyze` shows of a run."""

    run: History
    metric: str
    curve: Curve | None
    reached: tuple[Reached, ...]
    drop: Drop | None
    remarks: tuple[Remark, ...]


def analyse_run(run: History, thresholds: Sequence[float] = ()) -> RunAnalysis:
    """``thresholds`` are returns to look for, besides parts of the way the run came."""
    metric = reward_of([run])
    curve = run.curve(metric)
    drop = largest_drop(curve) if curve else None
    remarks = [*_problems(run), *_on_progress(curve, drop), *_on_learning(run)]
    order = ("problem", "hint", "good")
    return RunAnalysis(
        run,
        metric,
        curve,
        tuple(_reached(run, curve, thresholds)) if curve else (),
        drop,
        tuple(sorted(remarks, key=lambda remark: order.index(remark.kind))),
    )


def largest_drop(curve: Curve) -> Drop:
    """From the best so far down to a later value; of size 0 where it only rises."""
    best = np.maximum.accumulate(curve.values)
    low = int(np.argmax(best - curve.values))
    high = int(np.argmax(curve.values[: low + 1]))
    return Drop(float(curve.values[high]), int(curve.steps[high]), float(curve.values[low]), int(curve.steps[low]))


def speed(run: History) -> float | None:
    """Steps a second, as the run last said."""
    said = run.status.get("steps_per_second")
    return float(said) if isinstance(said, int | float) and said > 0 else None


def _reached(run: History, curve: Curve, thresholds: Sequence[float]) -> list[Reached]:
    first, best = float(curve.values[0]), curve.best(highest=True)[0]
    named = [("asked for", value) for value in thresholds]
    solved = _solved_at(run)
    if solved is not None:
        named.append(("counts as solved", solved))
    if best > first:
        named += [
            (f"{fraction:.0%} of the way up from the first", first + fraction * (best - first))
            for fraction in _FRACTIONS
        ]
        named.append(("the best", best))
    return [_when(run, curve, name, value) for name, value in named]


def _when(run: History, curve: Curve, name: str, value: float) -> Reached:
    # Adding up fractions may come out a rounding above the best itself.
    above = np.flatnonzero(curve.values >= value - 1e-9 * abs(value))
    if not len(above):
        return Reached(name, value, None, None)
    step, pace = int(curve.steps[above[0]]), speed(run)
    return Reached(name, value, step, step / pace if pace else None)


def _solved_at(run: History) -> float | None:
    """The return from which Gymnasium calls the environment solved, if it says."""
    if run.setting("environment.wrapper") != "gym":
        return None
    import gymnasium

    known = gymnasium.registry.get(str(run.setting("environment.name")))
    return None if known is None or known.reward_threshold is None else float(known.reward_threshold)


def _problems(run: History) -> list[Remark]:
    remarks = [*_on_end(run), *_on_rows(run), *_on_alerts(run)]
    resumed = run.provenance.get("resumed")
    if isinstance(resumed, list) and resumed:
        remarks.append(Remark("good", f"It was taken up again {counted(len(resumed), 'time')}."))
    return remarks


def _on_end(run: History) -> list[Remark]:
    total = run.setting("training.total_timesteps")
    of_all = f" of {total:,}" if isinstance(total, int) else ""
    if run.state == "completed":
        return [Remark("good", f"It completed its {run.steps:,} steps.")]
    if run.state == "failed":
        said = str(run.status.get("error") or "").strip()
        kept = sorted((run.path / "checkpoints").glob("failed_*"))
        aside = f" The state at the failure is in checkpoints/{kept[-1].name}." if kept else ""
        return [Remark("problem", f"It failed at step {run.steps:,}{of_all}{': ' + said if said else '.'}{aside}")]
    if run.state in ("stopped", "interrupted"):
        again = f"rl4sys train --resume {run.path} goes on with it."
        return [Remark("problem", f"It was {run.state} at step {run.steps:,}{of_all}; {again}")]
    return [Remark("hint", f"It is {run.state}, at step {run.steps:,}{of_all}; what follows may change.")]


def _on_rows(run: History) -> list[Remark]:
    remarks = []
    if not run.curves:
        remarks.append(Remark("problem", "It has written no metrics yet."))
    elif not len(run.curves.get("evaluation/return", ())):
        remarks.append(
            Remark("hint", "It was never evaluated; the return is that of training episodes, which explore.")
        )
    for name, curve in run.curves.items():
        if curve.dropped and curve.first_dropped is not None:
            rows = counted(curve.dropped, "row")
            remarks.append(
                Remark("problem", f"{name} was not a finite number in {rows}, first at step {curve.first_dropped:,}.")
            )
    refused = run.curves.get("learner/refused_steps")
    if refused is not None and len(refused) and refused.final > 0:
        share = refused.final / max(run.steps, 1)
        remarks.append(
            Remark(
                "problem", f"{steps(refused.final)} steps ({share:.1%}) were refused because their policy was too old."
            )
        )
    return remarks


def _on_alerts(run: History) -> list[Remark]:
    """Each rule once: how often it told something, and what it told last."""
    told: dict[str, list[str]] = {}
    for alert in read_alerts(run.path / ALERTS):
        if alert.get("status") != "cleared":
            told.setdefault(str(alert.get("rule")), []).append(f"{alert.get('message')} (step {alert.get('step')})")
    return [
        Remark("problem", f"Alert {rule}, told {counted(len(messages), 'time')}, last: {messages[-1]}.")
        for rule, messages in told.items()
    ]


def _on_progress(curve: Curve | None, drop: Drop | None) -> list[Remark]:
    if curve is None or drop is None or len(curve) < 2:
        return []
    first, (best, best_at) = float(curve.values[0]), curve.best(highest=True)
    last_at = int(curve.steps[-1])
    if best <= first:
        return [Remark("problem", f"The return never rose above its first value, {figure(first)}.")]
    remarks = []
    way = best - float(curve.values.min())
    if drop.size > _LARGE_DROP * way:
        remarks.append(
            Remark(
                "hint",
                f"The return fell from {figure(drop.best)} (step {drop.best_at:,}) to {figure(drop.worst)} (step "
                f"{drop.worst_at:,}), {drop.size / way:.0%} of the range it went through.",
            )
        )
    lost = best - curve.final
    if lost > _LARGE_DROP * way:
        remarks.append(
            Remark("hint", f"It ended {figure(lost)} below its best; checkpoints/best holds the better policy.")
        )
    if best_at == last_at and len(curve) > 2:
        remarks.append(Remark("hint", "Its last evaluation is its best: it may gain from training longer."))
    elif lost <= 0.05 * way:
        remarks.append(Remark("good", f"It ended at its best, or close: {figure(curve.final)}."))
    return remarks


def _on_learning(run: History) -> list[Remark]:
    """What curves other than the return give away."""
    checks: list[tuple[str, Callable[[Curve], str | None]]] = [
        ("policy/entropy", _on_entropy),
        ("value/explained_variance", _on_critic),
        ("policy/clip_fraction", _on_clipping),
        ("loss/gradient_norm", _on_gradients),
    ]
    remarks = []
    for name, check in checks:
        curve = run.curves.get(name)
        words = check(curve) if curve is not None and len(curve) >= 4 else None
        if words:
            remarks.append(Remark("hint", words))
    return remarks


def _on_entropy(curve: Curve) -> str | None:
    first, last = float(curve.values[0]), curve.final
    if first <= 0 or last > _ENTROPY_LEFT * first:
        return None
    below = curve.steps[np.flatnonzero(curve.values <= _ENTROPY_LEFT * first)[0]]
    return f"The entropy fell from {figure(first)} to {figure(last)} nats: since step {below:,} it hardly explores."


def _on_critic(curve: Curve) -> str | None:
    late = float(np.median(_late(curve)))
    return (
        f"The critic foresees little of the returns ({figure(late)} of 1, lately)." if late < _LITTLE_FORESEEN else None
    )


def _on_clipping(curve: Curve) -> str | None:
    late = float(np.mean(_late(curve)))
    return f"The clip holds {late:.0%} of the steps, lately: updates are large." if late > _MUCH_CLIPPED else None


def _on_gradients(curve: Curve) -> str | None:
    early, late = float(np.median(curve.values[: max(1, len(curve) // 4)])), float(np.median(_late(curve)))
    return f"Gradients grew {late / early:.0f} times as long." if early > 0 and late > _GROWN * early else None


def _late(curve: Curve) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """The last quarter."""
    return curve.values[-max(1, len(curve) // 4) :]


def in_seconds(reached: Reached) -> str:
    return "" if reached.seconds is None else duration(reached.seconds)
