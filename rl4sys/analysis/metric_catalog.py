"""Titles, units and preferred direction of metrics, and selection of metrics by name or pattern."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from fnmatch import fnmatchcase

from rl4sys.analysis.history import History
from rl4sys.errors import ConfigError
from rl4sys.metric_names import RETURN_METRICS, REWARD, reward_metric

_TITLES = {
    "evaluation/return": "Evaluation return",
    "evaluation/return_std": "Standard deviation of evaluation returns",
    "evaluation/length": "Evaluation episode length",
    "episode/return": "Training episode return",
    "episode/length": "Training episode length",
    "policy/entropy": "Policy entropy",
    "policy/kl": "KL divergence of updates",
    "policy/clip_fraction": "Clipped fraction of steps",
    "policy/lr": "Learning rate",
    "value/explained_variance": "Explained variance of the critic",
    "value/mean": "Mean value",
    "learner/version": "Policy version",
    "learner/refused_steps": "Refused steps",
    "learner/staleness": "Staleness",
    "loss/gradient_norm": "Gradient norm",
}
_UNITS = {
    "evaluation/return": "return per episode",
    "evaluation/return_std": "return per episode (std)",
    "episode/return": "return per episode",
    "evaluation/length": "steps per episode",
    "episode/length": "steps per episode",
    "policy/entropy": "entropy (nats)",
    "policy/kl": "KL divergence (nats)",
    "policy/clip_fraction": "fraction of steps",
    "policy/lr": "learning rate",
    "value/explained_variance": "explained variance",
    "value/mean": "value (return)",
    "learner/version": "versions",
    "learner/refused_steps": "steps",
    "learner/staleness": "versions behind",
    "policy/staleness": "versions behind",
    "loss/gradient_norm": "L2 norm",
}
_HIGHER = {*RETURN_METRICS, "value/explained_variance"}
_NO_DIRECTION = {"loss/gradient_norm", "loss/policy"}
"""Losses without a preferred direction: their value does not indicate the quality of the policy."""


def title(metric: str) -> str:
    """Return the title of a metric for headings."""
    if metric in _TITLES:
        return _TITLES[metric]
    kind, _, rest = metric.partition("/")
    return f"{rest.replace('_', ' ').capitalize()} loss" if kind == "loss" and rest else metric


def unit(metric: str) -> str:
    """Return the unit of a metric for axis labels."""
    return _UNITS.get(metric, "loss" if metric.startswith("loss/") else metric.rpartition("/")[2].replace("_", " "))


def higher_is_better(metric: str) -> bool | None:
    """Return whether higher values of a metric are better, or None if the metric has no preferred direction."""
    if metric in _HIGHER:
        return True
    return False if metric.startswith("loss/") and metric not in _NO_DIRECTION else None


def resolve(wanted: Sequence[str], runs: Sequence[History]) -> list[str]:
    """Return the names of all metrics that match `wanted`: `reward`, `loss`, names, or patterns such as `policy/*`."""
    found = [name for word in wanted for name in _resolve_one(word, runs)]
    return list(dict.fromkeys(found))


def _resolve_one(word: str, runs: Sequence[History]) -> list[str]:
    if word == REWARD:
        return [reward_of(runs)]
    # Try the exact name first, because listing the metrics of all runs takes far longer than reading one metric.
    if "/" in word and any(run.curve(word) for run in runs):
        return [word]
    known = sorted({name for run in runs for name in run.curves})
    pattern = "loss/*" if word == "loss" else word
    found = [name for name in known if name == word or fnmatchcase(name, pattern)]
    if not found:
        raise ConfigError(_explain_unknown(word, known))
    return found


def reward_of(runs: Sequence[History]) -> str:
    """Return the metric that `reward` refers to: a return that all runs have or, otherwise, the most common one."""
    return reward_metric(runs, lambda run, name: run.curve(name) is not None)


def _explain_unknown(word: str, known: Sequence[str]) -> str:
    if not known:
        return f"there is no metric {word!r}: the runs have written no metrics yet; train them longer first"
    close = difflib.get_close_matches(word, known, n=3, cutoff=0.5) or [name for name in known if word in name][:3]
    meant = f"; did you mean {' or '.join(close)}?" if close else "."
    return f"there is no metric {word!r} in these runs{meant} Known: reward, loss, {', '.join(known)}."
