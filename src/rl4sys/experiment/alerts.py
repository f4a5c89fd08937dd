"""Alert rules: what about a run its owner wants to be told of, as settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from pydantic import Field, field_validator, model_validator

from rl4sys.config import Config, did_you_mean, parse
from rl4sys.errors import ConfigError
from rl4sys.experiment.outcome import REWARDS

REWARD = "reward"
"""How rules name what a run is judged by."""


class Rule(Config):
    """What every rule can be told."""

    kind: str
    """Which rule; may be left out where the rule's name is a kind."""
    repeat_seconds: float | None = Field(default=None, gt=0)
    """Tell again after so long while it lasts; null: once, until it has cleared."""
    clear_rows: int = Field(default=3, gt=0)
    """Rows, one after the other, on which it must not hold before it has cleared and may be told anew."""
    send: bool = True
    """Send it to alerts.command and alerts.webhook too."""


class _OfMetric(Rule):
    metric: str = REWARD
    """A metric of docs/runs.md; reward is the return of evaluations, or of training episodes where there are none."""

    @property
    def columns(self) -> tuple[str, ...]:
        """What the metric is called in rows: the first of these that there is."""
        return REWARDS if self.metric == REWARD else (self.metric,)


class NanRule(Rule):
    """A metric, a loss or a gradient is no longer a number. A run that stops for it is told of all the same."""

    kind: Literal["nan"] = "nan"
    """Which rule."""


class FailedRule(Rule):
    """The run stopped with an error."""

    kind: Literal["failed"] = "failed"
    """Which rule."""


class StalledRule(_OfMetric):
    """A metric no longer gets better."""

    kind: Literal["stalled"] = "stalled"
    """Which rule."""
    steps: int = Field(default=100_000, gt=0)
    """So many steps without getting better."""
    min_change: float = Field(default=0.0, ge=0)
    """What counts as better: by more than this."""
    goal: Literal["max", "min"] = "max"
    """Whether more or less of it is better."""


class ThresholdRule(_OfMetric):
    """A metric is above or below a value."""

    kind: Literal["threshold"] = "threshold"
    """Which rule."""
    above: float | None = None
    """Tell when it is above this."""
    below: float | None = None
    """Tell when it is below this."""
    rows: int = Field(default=1, gt=0)
    """For so many rows, one after the other."""

    @model_validator(mode="after")
    def _has_a_bound(self) -> ThresholdRule:
        if self.above is None and self.below is None:
            raise ValueError("it should have above or below, the value to compare with")
        return self


class MemoryRule(Rule):
    """Memory runs short: of the machine or the process's control group, or beyond what the process should take."""

    kind: Literal["memory"] = "memory"
    """Which rule."""
    share: float | None = Field(default=0.95, gt=0, le=1)
    """So much of all memory is in use, by whomever; null for no such bound."""
    process_bytes: int | None = Field(default=None, gt=0)
    """The process itself takes more than this; null for no such bound."""


class SlowRule(Rule):
    """Training is slow: all of it, evaluation and checkpoints included, once updates have begun."""

    kind: Literal["slow"] = "slow"
    """Which rule."""
    below: float | None = Field(default=None, gt=0)
    """Fewer steps a second than this; null for no such bound."""
    fraction: float | None = Field(default=0.5, gt=0, lt=1)
    """Slower than this part of its own speed at the beginning; null for no such bound."""
    rows: int = Field(default=5, gt=0)
    """Rows that the speed is taken over."""


class StaleClientsRule(Rule):
    """Live: a client is silent, or acts by old versions."""

    kind: Literal["stale_clients"] = "stale_clients"
    """Which rule."""
    seconds: float | None = Field(default=300.0, gt=0)
    """Nothing to learn from came from a client for so long; null for no such bound."""
    versions: float | None = Field(default=None, ge=0)
    """Recent trajectories lag more versions behind than this, in the mean; null for no such bound."""
    clear_rows: int = Field(default=1, gt=0)
    """Looks, one after the other, at which it must not hold before it has cleared and may be told anew."""


class NoProgressRule(Rule):
    """No row was written for long: told by a thread of the run, and shown by `rl4sys monitor` if that hangs too."""

    kind: Literal["no_progress"] = "no_progress"
    """Which rule."""
    seconds: float = Field(default=600.0, gt=0)
    """So long without a row."""
    clear_rows: int = Field(default=1, gt=0)
    """Rows after which it has cleared and may be told anew."""


AnyRule: TypeAlias = (
    NanRule | FailedRule | StalledRule | ThresholdRule | MemoryRule | SlowRule | StaleClientsRule | NoProgressRule
)
KINDS: dict[str, type[AnyRule]] = {
    "nan": NanRule,
    "failed": FailedRule,
    "memory": MemoryRule,
    "stalled": StalledRule,
    "threshold": ThresholdRule,
    "slow": SlowRule,
    "stale_clients": StaleClientsRule,
    "no_progress": NoProgressRule,
}
STANDARD = ("nan", "failed", "memory")
"""On unless turned off: what nobody wants to miss, and what does not happen by the way."""


def _standard_rules() -> dict[str, AnyRule | None]:
    return {name: KINDS[name]() for name in STANDARD}


class AlertSettings(Config):
    """The ``alerts`` block: what to tell, and whom besides the terminal and alerts.jsonl. Changes nothing learnt."""

    enabled: bool = True
    """Judge the run by rules at all."""
    rules: dict[str, AnyRule | None] = Field(default_factory=_standard_rules)
    """Rules by a name of your own; nan, failed and memory are there unless set to null."""
    command: list[str] = Field(default_factory=list)
    """A command to run, word by word and by no shell, with the alert as JSON on its input and RL4SYS_ALERT_* set."""
    webhook: str | None = Field(default=None, pattern=r"^(https?://\S+|\$\w+)$")
    """An address, http or https, to POST the alert to as JSON; $NAME takes it from the environment."""
    timeout_seconds: float = Field(default=10.0, gt=0, le=300)
    """How long command and webhook may take; training does not wait for them, its end does."""

    @field_validator("rules", mode="before")
    @classmethod
    def _parse_rules(cls, rules: Any) -> Any:
        if rules is None:
            return _standard_rules()
        if not isinstance(rules, Mapping):
            raise ConfigError(
                f"alerts.rules is {rules!r:.80}; it should be a block of rules by name, such as "
                "`reward_stalls: {kind: stalled, steps: 20000}`"
            )
        given = {str(name): _parse_rule(str(name), rule) for name, rule in rules.items()}
        return {**_standard_rules(), **given}

    def in_force(self) -> dict[str, AnyRule]:
        return {name: rule for name, rule in self.rules.items() if rule is not None} if self.enabled else {}


def _parse_rule(name: str, settings: Any) -> AnyRule | None:
    if settings is None or isinstance(settings, Rule):
        return settings  # type: ignore[return-value]  # of `AnyRule` are all the rules that there are
    at = f"alerts.rules.{name}"
    kind = settings.get("kind", name) if isinstance(settings, Mapping) else name
    if kind not in KINDS:
        raise ConfigError(
            f"{at}.kind is {kind!r:.80}, which is no kind of rule{did_you_mean(str(kind), KINDS)} "
            f"Known: {', '.join(KINDS)}."
        )
    return parse(KINDS[kind], settings, at)
