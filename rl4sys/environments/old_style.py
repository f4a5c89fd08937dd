"""Old-style (OpenAI Gym) environments: ``reset`` returns only the observation, and ``step`` returns four values.

In Gymnasium, ``reset(seed, options)`` returns observation and info, and ``step`` returns terminated and truncated
separately. Old-style environments are adapted to Gymnasium's interface when they are created.
"""

from __future__ import annotations

import inspect
import logging
from typing import Any

import gymnasium

from rl4sys.environments.base import Environment
from rl4sys.errors import ConfigError

_log = logging.getLogger("rl4sys.environments")
_reported: set[type] = set()
_returns_info_of: dict[type, bool] = {}
"""Results of `_returns_info` by environment class; each class is tested once."""

_STEP_LIMIT = "TimeLimit.truncated"
"""Key of ``info`` that old-style environments set if an episode ended at its step limit."""


class BaseEnvironment:
    """Base class of old-style environments; register a subclass with ``@register_environment``.

    A subclass implements ``reset`` and ``step`` and sets or defines ``observation_space`` and ``action_space``
    (Gymnasium spaces). ``config`` is the `EnvironmentConfig`; ``config.options`` has the settings of the subclass.
    """

    def __init__(self, config: Any) -> None:
        self.config = config

    def reset(self, seed: int | None = None) -> Any:
        """Start an episode and return its first observation. The seed should determine the whole episode."""
        raise NotImplementedError

    def step(self, action: Any) -> tuple[Any, float, bool, dict[str, Any]]:
        """Return observation, reward, done and info. ``info["TimeLimit.truncated"]`` marks the end by a step limit."""
        raise NotImplementedError

    @property
    def observation_space(self) -> gymnasium.Space[Any]:
        """Gymnasium space of the observations."""
        raise NotImplementedError

    @property
    def action_space(self) -> gymnasium.Space[Any]:
        """Gymnasium space of the actions."""
        raise NotImplementedError


class AdaptedEnvironment(gymnasium.Env[Any, Any]):
    """Gymnasium adapter of an old-style environment."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.observation_space, self.action_space = inner.observation_space, inner.action_space
        self.metadata = getattr(inner, "metadata", {})
        self.render_mode = getattr(inner, "render_mode", None)
        self._accepts_seed = _accepts(inner.reset, "seed")

    @property
    def unwrapped(self) -> Any:
        return self._inner

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if not self._accepts_seed and seed is not None:
            self._seed(seed)
        result = self._inner.reset(seed=seed) if self._accepts_seed else self._inner.reset()
        return result if _is_new_reset(result) else (result, {})

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        result = self._inner.step(action)
        if len(result) == 5:
            return tuple(result)
        observation, reward, done, info = result
        truncated = bool(done) and bool(info.get(_STEP_LIMIT, False))
        return observation, reward, bool(done) and not truncated, truncated, info

    def render(self) -> Any:
        return self._inner.render()

    def close(self) -> None:
        getattr(self._inner, "close", lambda: None)()

    def _seed(self, seed: int) -> None:
        """Seed an environment whose ``reset`` takes no seed: call its ``seed`` method or else Gymnasium's ``reset``."""
        if hasattr(self._inner, "seed"):
            self._inner.seed(seed)
        elif isinstance(self._inner, gymnasium.Env):
            gymnasium.Env.reset(self._inner, seed=seed)


def adapt_old_style(environment: Any, name: str) -> Environment:
    """Return the environment, adapted if it is old-style. Raises `ConfigError` for a missing method or space."""
    _check_complete(environment, name)
    if not _is_old_style(environment):
        adapted: Environment = environment
        return adapted
    if type(environment) not in _reported:
        _reported.add(type(environment))
        _log.warning(
            "the environment '%s' has the old Gym interface and was adapted: done means truncated if info['%s'] is "
            "true, and terminated otherwise",
            name,
            _STEP_LIMIT,
        )
    return AdaptedEnvironment(environment)


def _check_complete(environment: Any, name: str) -> None:
    title = f"the environment '{name}' ({type(environment).__name__})"
    missing = [method for method in ("reset", "step") if not _implements(environment, method)]
    if missing:
        raise ConfigError(f"{title} has no {' and no '.join(missing)}; an environment needs both methods")
    for attribute in ("observation_space", "action_space"):
        space = _space_of(environment, attribute)
        if not isinstance(space, gymnasium.Space):
            raise ConfigError(
                f"{title} has the {attribute} {space!r:.60}; expected a Gymnasium space, such as "
                "gymnasium.spaces.Discrete(2)"
            )


def _space_of(environment: Any, attribute: str) -> Any:
    try:
        return getattr(environment, attribute, None)
    except NotImplementedError:
        return None


def _implements(environment: Any, method: str) -> bool:
    """Return False if a method is missing. Gymnasium environments are not tested here, but by `check_environment`."""
    if isinstance(environment, gymnasium.Env):
        return True
    found = getattr(type(environment), method, None)
    return callable(found) and found is not getattr(BaseEnvironment, method)


def _is_old_style(environment: Any) -> bool:
    if not isinstance(environment, gymnasium.Env):
        return True
    if has_old_reset(environment):
        return True
    kind = type(environment.unwrapped)
    if kind not in _returns_info_of:
        _returns_info_of[kind] = _returns_info(environment)
    return not _returns_info_of[kind]


def has_old_reset(environment: Environment) -> bool:
    """Return True if the signature of ``reset`` lacks seed or options."""
    return not (_accepts(environment.reset, "seed") and _accepts(environment.reset, "options"))


def _returns_info(environment: Environment) -> bool:
    """Return True if ``reset`` returns info. Calling it is harmless, because each episode starts with a new reset."""
    try:
        return _is_new_reset(environment.reset(seed=0))
    except Exception:
        # Third-party code may raise any exception; `check_environment` reports it.
        return True


def _is_new_reset(result: Any) -> bool:
    return isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict)


def _accepts(method: Any, parameter: str) -> bool:
    parameters = inspect.signature(method).parameters
    return parameter in parameters or any(p.kind == p.VAR_KEYWORD for p in parameters.values())
