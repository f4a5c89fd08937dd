"""Alert rules and the ``alerts`` config block."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from pydantic import Field, field_validator, model_validator

from rl4sys.config import Config, did_you_mean, parse
from rl4sys.errors import ConfigError
from rl4sys.metric_names import RETURN_METRICS, REWARD


class Rule(Config):
    """Options common to all alert rules."""

    kind: str
    """Kind of rule, such as threshold. Can be omitted if the name of the rule is a kind."""
    repeat_seconds: float | None = Field(default=None, gt=0)
    """Number of seconds after which an active alert is repeated; null for no repetition."""
    clear_rows: int = Field(default=3, gt=0)
    """Number of consecutive rows in which the condition must be false before the alert clears and can fire again."""
    send: bool = True
    """Also send the alert to alerts.command and alerts.webhook."""


class _MetricRule(Rule):
    metric: str = REWARD
    """Name of a metric (docs/runs.md); "reward" is the evaluation return, or the episode return without evaluations."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that may contain the metric, in order of preference."""
        return RETURN_METRICS if self.metric == REWARD else (self.metric,)


class NanRule(Rule):
    """Fires if a metric is NaN or infinite, or if the run stops because of a NaN or infinite loss or gradient."""

    kind: Literal["nan"] = "nan"
    """Kind of rule."""


class FailedRule(Rule):
    """Fires if the run stops with an error."""

    kind: Literal["failed"] = "failed"
    """Kind of rule."""


class StalledRule(_MetricRule):
    """Fires if a metric has stopped improving."""

    kind: Literal["stalled"] = "stalled"
    """Kind of rule."""
    steps: int = Field(default=100_000, gt=0)
    """Number of steps without an improvement before the rule fires."""
    min_change: float = Field(default=0.0, ge=0)
    """Change that a new value must exceed to be an improvement."""
    goal: Literal["max", "min"] = "max"
    """Direction of improvement: max for higher values, min for lower values."""


class ThresholdRule(_MetricRule):
    """Fires if a metric is above or below a value."""

    kind: Literal["threshold"] = "threshold"
    """Kind of rule."""
    above: float | None = None
    """Upper bound: alert above this value."""
    below: float | None = None
    """Lower bound: alert below this value."""
    rows: int = Field(default=1, gt=0)
    """Number of consecutive rows beyond the bound before the rule fires."""

    @model_validator(mode="after")
    def _has_a_bound(self) -> ThresholdRule:
        if self.above is None and self.below is None:
            raise ValueError("expected above or below, the value that the metric is compared with")
        return self


class MemoryRule(Rule):
    """Fires if the RAM of the machine or control group is nearly full, or if the process exceeds its limit."""

    kind: Literal["memory"] = "memory"
    """Kind of rule."""
    share: float | None = Field(default=0.95, gt=0, le=1)
    """Fraction of all RAM in use, by any process; null disables this bound."""
    process_bytes: int | None = Field(default=None, gt=0)
    """RAM limit of the process in bytes; null disables this bound."""


class SlowRule(Rule):
    """Fires if training is slow. The speed is measured from the first update on, with evaluations and checkpoints."""

    kind: Literal["slow"] = "slow"
    """Kind of rule."""
    below: float | None = Field(default=None, gt=0)
    """Minimum steps per second; null disables this bound."""
    fraction: float | None = Field(default=0.5, gt=0, lt=1)
    """Minimum speed as a fraction of the initial speed of the run; null disables this bound."""
    rows: int = Field(default=5, gt=0)
    """Number of rows to average the speed over."""


class StaleClientsRule(Rule):
    """Fires if a live client sends no trajectories, or if trajectories come from old policy versions."""

    kind: Literal["stale_clients"] = "stale_clients"
    """Kind of rule."""
    seconds: float | None = Field(default=300.0, gt=0)
    """Maximum time since the last trajectory of a client; null disables this bound."""
    versions: float | None = Field(default=None, ge=0)
    """Maximum mean staleness of recent trajectories, in versions; null disables this bound."""
    clear_rows: int = Field(default=1, gt=0)
    """Number of consecutive checks without the condition before the alert clears and may fire again."""


class NoProgressRule(Rule):
    """Fires if no metrics row is written for a long time.

    A watchdog thread checks this rule; `rl4sys monitor` also checks it if the process hangs.
    """

    kind: Literal["no_progress"] = "no_progress"
    """Kind of rule."""
    seconds: float = Field(default=600.0, gt=0)
    """Maximum time without a metrics row, in seconds."""
    clear_rows: int = Field(default=1, gt=0)
    """Number of consecutive checks without the condition before the alert clears and may fire again."""


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
"""Names of the alert rules that are enabled by default."""


def _standard_rules() -> dict[str, AnyRule | None]:
    return {name: KINDS[name]() for name in STANDARD}


class AlertConfig(Config):
    """Block ``alerts``: alert rules, and receivers of alerts in addition to the terminal and alerts.jsonl."""

    enabled: bool = True
    """Evaluate the alert rules."""
    rules: dict[str, AnyRule | None] = Field(default_factory=_standard_rules)
    """Alert rules by a name of your choice. The rules nan, failed and memory are enabled unless set to null."""
    command: list[str] = Field(default_factory=list)
    """Command with arguments, run without a shell. Gets the alert on stdin (JSON) and in RL4SYS_ALERT_* variables."""
    webhook: str | None = Field(default=None, pattern=r"^(https?://\S+|\$\w+)$")
    """HTTP or HTTPS address to POST the alert to as JSON; $NAME reads the address from an environment variable."""
    timeout_seconds: float = Field(default=10.0, gt=0, le=300)
    """Timeout of command and webhook in seconds. Training waits for them only at the end of the run."""

    @field_validator("rules", mode="before")
    @classmethod
    def _parse_rules(cls, rules: Any) -> Any:
        if rules is None:
            return _standard_rules()
        if not isinstance(rules, Mapping):
            raise ConfigError(
                f"alerts.rules is {rules!r:.80}; expected a block of rules by name, such as "
                "`reward_stalls: {kind: stalled, steps: 20000}`"
            )
        given = {str(name): _parse_rule(str(name), rule) for name, rule in rules.items()}
        return {**_standard_rules(), **given}

    def active_rules(self) -> dict[str, AnyRule]:
        """Return the rules to evaluate, by name."""
        return {name: rule for name, rule in self.rules.items() if rule is not None} if self.enabled else {}


def _parse_rule(name: str, settings: Any) -> AnyRule | None:
    if settings is None or isinstance(settings, Rule):
        return settings  # type: ignore[return-value]  # AnyRule lists all subclasses of Rule
    at = f"alerts.rules.{name}"
    kind = settings.get("kind", name) if isinstance(settings, Mapping) else name
    if kind not in KINDS:
        raise ConfigError(
            f"{at}.kind is {kind!r:.80}, which is not a kind of rule{did_you_mean(str(kind), KINDS)} "
            f"Known: {', '.join(KINDS)}."
        )
    return parse(KINDS[kind], settings, at)
