"""What metrics are called, measured in, and which way they should go."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from fnmatch import fnmatchcase

from rl4sys.analysis.history import History
from rl4sys.errors import ConfigError
from rl4sys.experiment.outcome import REWARDS

_TITLES = {
    "evaluation/return": "Return of evaluations",
    "evaluation/return_std": "Spread of evaluations",
    "evaluation/length": "Length of evaluation episodes",
    "episode/return": "Return of training episodes",
    "episode/length": "Length of training episodes",
    "policy/entropy": "Entropy of the policy",
    "policy/kl": "How far updates moved the policy",
    "policy/clip_fraction": "Share of steps held by the clip",
    "policy/lr": "Learning rate",
    "value/explained_variance": "Variance the critic foresaw",
    "value/mean": "Mean value",
    "learner/version": "Policies made",
    "learner/refused_steps": "Steps refused",
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
    "policy/lr": "step size",
    "value/explained_variance": "explained variance",
    "value/mean": "value (return)",
    "learner/version": "versions",
    "learner/refused_steps": "steps",
    "learner/staleness": "versions behind",
    "policy/staleness": "versions behind",
    "loss/gradient_norm": "L2 norm",
}
_HIGHER = {*REWARDS, "value/explained_variance"}
_NO_DIRECTION = {"loss/gradient_norm", "loss/policy"}
"""The loss of a policy is a means to move it; how low it is says nothing of how good the policy is."""


def title(metric: str) -> str:
    """For a heading."""
    if metric in _TITLES:
        return _TITLES[metric]
    kind, _, rest = metric.partition("/")
    return f"{rest.replace('_', ' ').capitalize()} loss" if kind == "loss" and rest else metric


def unit(metric: str) -> str:
    """For an axis."""
    return _UNITS.get(metric, "loss" if metric.startswith("loss/") else metric.rpartition("/")[2].replace("_", " "))


def higher_is_better(metric: str) -> bool | None:
    """None for what is neither good nor bad."""
    if metric in _HIGHER:
        return True
    return False if metric.startswith("loss/") and metric not in _NO_DIRECTION else None


def resolve(wanted: Sequence[str], runs: Sequence[History]) -> list[str]:
    """The metrics that users mean: `reward`, `loss`, a name, or a pattern such as policy/*."""
    found = [name for word in wanted for name in _meant(word, runs)]
    return list(dict.fromkeys(found))


def _meant(word: str, runs: Sequence[History]) -> list[str]:
    if word == "reward":
        return [reward_of(runs)]
    # Reading all metrics to know their names takes far longer than reading one.
    if "/" in word and any(run.curve(word) for run in runs):
        return [word]
    known = sorted({name for run in runs for name in run.curves})
    pattern = "loss/*" if word == "loss" else word
    found = [name for name in known if name == word or fnmatchcase(name, pattern)]
    if not found:
        raise ConfigError(_explain_unknown(word, known))
    return found


def reward_of(runs: Sequence[History]) -> str:
    """The first of `REWARDS` that all runs have, or that most of them have: all are measured by the same."""
    counts: dict[str, int] = {}
    for name in REWARDS:
        counts[name] = sum(1 for run in runs if run.curve(name))
        if counts[name] == len(runs):
            return name
    return max(REWARDS, key=lambda name: counts[name])


def _explain_unknown(word: str, known: Sequence[str]) -> str:
    if not known:
        return f"there is no metric {word}: the runs have written no rows yet; train them further first"
    close = difflib.get_close_matches(word, known, n=3, cutoff=0.5) or [name for name in known if word in name][:3]
    meant = f"; did you mean {' or '.join(close)}?" if close else "."
    return f"there is no metric {word} in these runs{meant} Known: reward, loss, {', '.join(known)}."
