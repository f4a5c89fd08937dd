"""Whether a policy fits an environment that it was not trained in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl4sys.errors import ConfigError

if TYPE_CHECKING:
    from rl4sys.environments.config import EnvironmentConfig
    from rl4sys.policy.base import Policy
    from rl4sys.spec import Spec


def check_fit(where: EnvironmentConfig, policy: Policy) -> None:
    """An environment that the policy was not trained in must at least look like its own."""
    from rl4sys.environments.encoding import Encoding
    from rl4sys.environments.gym import make_environment

    shown, spec = make_environment(where), policy.snapshot(0).spec
    there = Encoding(shown).spec
    shown.close()
    if _sizes(there) != _sizes(spec):
        raise ConfigError(f"{where.name} has {_sizes(there)}; this policy was made for {_sizes(spec)}")


def _sizes(spec: Spec) -> str:
    from rl4sys.spec import outline

    seen = ", ".join(f"{name} {box.shape}" for name, box in spec.observation.items())
    return f"observations {seen} and actions {outline(spec.action)}"
