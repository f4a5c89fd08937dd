"""Actor that steps many environment copies in C++ threads with envpool (Weng et al. 2022)."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from rl4sys.config import parse
from rl4sys.environments.actor import Episode, TrajectoryBuilder
from rl4sys.environments.config import EnvironmentConfig
from rl4sys.environments.encoding import Encoding
from rl4sys.environments.factory import config_errors, make_environment
from rl4sys.environments.families.atari import AtariOptions, game_name
from rl4sys.errors import ConfigError
from rl4sys.policy.base import Policy
from rl4sys.policy.draws import Draws
from rl4sys.spec import STATE, Array, Columns, Spec, State
from rl4sys.trajectory import Trajectory

INEXACT_RESUME_NOTE = (
    "environment.vectorized is envpool, which cannot restore episodes: a resumed run starts new episodes, so resume is "
    "not exact"
)


@dataclass
class _CopyState:
    """Current episode of one environment copy: its number, steps taken and return so far."""

    episode: int
    steps: int = 0
    total_reward: float = 0.0


class EnvPoolActor:
    """Actor with the interface of `Actor` that steps all environments in one call. `restore` starts new episodes."""

    def __init__(self, config: EnvironmentConfig, seed: np.random.SeedSequence) -> None:
        self._config = config
        self._entropy, key = (int(n) for n in seed.generate_state(2, np.uint64))
        self._encoding = _encoding(config)
        self._draws = Draws(key)
        self._observation = self._encoding.empty(config.num_envs)
        self._max_reward = np.inf if config.clip_reward is None else config.clip_reward
        self._memory: Columns = {}
        self._finished: list[Episode] = []
        self._episodes_started = 0
        self._start_pool()

    @property
    def spec(self) -> Spec:
        return self._encoding.spec

    def collect(self, policy: Policy, version: int, steps: int) -> list[Trajectory]:
        """Collect at least ``steps`` steps, the same number in each environment, and return them as trajectories.

        An episode that is unfinished at the end continues in the next call, as a new trajectory.
        """
        length = -(-steps // len(self._copies))
        builder = TrajectoryBuilder(self._encoding, len(self._copies), length, version)
        for step in range(length):
            decision = policy.act(self._observation, self._memory, self._draws)
            builder.write(step, self._observation, self._memory, decision)
            self._memory = decision.memory
            self._step(step, np.asarray(self._encoding.decode_actions(decision.action)), builder)
        for row, copy in enumerate(self._copies):
            builder.cut(row, length, copy, self._observation)
        return builder.trajectories

    def take_finished(self) -> list[Episode]:
        """Return the episodes that ended since the last call."""
        finished, self._finished = self._finished, []
        return finished

    def close(self) -> None:
        self._pool.close()

    def state(self) -> State:
        return {"draws": self._draws.state(), "entropy": self._entropy, "begun": self._episodes_started}

    def restore(self, state: State) -> None:
        self._draws.restore(state["draws"])
        self._entropy, self._episodes_started = int(state["entropy"]), int(state["begun"])
        self._memory = {}
        self._pool.close()
        self._start_pool()

    def _start_pool(self) -> None:
        """Create the envpool and start a new episode in each copy, from a seed not used before in this run."""
        seed = np.random.SeedSequence([self._entropy, self._episodes_started]).generate_state(1)[0] >> 1
        self._pool = _make_pool(self._config, int(seed))
        _check_fit(self._pool, self._encoding.spec, self._config)
        self._copies = [self._start_copy() for _ in range(self._config.num_envs)]
        self._observation[STATE][:] = self._pool.reset()[0]

    def _start_copy(self) -> _CopyState:
        self._episodes_started += 1
        return _CopyState(self._episodes_started - 1)

    def _step(self, step: int, actions: Array, builder: TrajectoryBuilder) -> None:
        observations, rewards, terminated, truncated, _ = self._pool.step(actions)
        builder.reward[:, step] = np.clip(rewards, -self._max_reward, self._max_reward)
        self._observation[STATE][:] = observations
        for copy, reward in zip(self._copies, rewards.tolist(), strict=True):
            copy.steps += 1
            copy.total_reward += reward
        ended = np.flatnonzero(terminated | truncated)
        for row in ended.tolist():
            # If both flags are set, the episode counts as terminated.
            flags = {"terminated": bool(terminated[row]), "truncated": bool(truncated[row] and not terminated[row])}
            builder.cut(row, step + 1, self._copies[row], self._observation, **flags)
            self._finished.append(Episode(self._copies[row].total_reward, self._copies[row].steps))
            self._copies[row] = self._start_copy()
        if len(ended):
            self._reset(ended)

    def _reset(self, rows: Array) -> None:
        observations, info = self._pool.reset(rows.astype(np.int32))
        self._observation[STATE][info["env_id"]] = observations
        for column in self._memory.values():
            column[rows] = 0


def _encoding(config: EnvironmentConfig) -> Encoding:
    """Return the encoding of the same environment without envpool, as used for evaluation."""
    plain = make_environment(config)
    encoding = Encoding(plain)
    plain.close()
    return encoding


def _make_pool(config: EnvironmentConfig, seed: int) -> Any:
    with config_errors(config):
        import envpool

    name, settings = _envpool_settings(config)
    if name not in envpool.list_all_envs():
        raise ConfigError(f"envpool does not provide the environment '{name}'; remove environment.vectorized")
    if config.max_episode_steps is not None:
        settings["max_episode_steps"] = config.max_episode_steps
    with config_errors(config), warnings.catch_warnings():
        # envpool declares float64 bounds, and Gymnasium warns when it rounds them.
        warnings.simplefilter("ignore")
        pool = envpool.make(name, env_type="gymnasium", num_envs=config.num_envs, seed=seed, **settings)
        pool.observation_space, pool.action_space  # noqa: B018 - created on first access
        return pool


def _envpool_settings(config: EnvironmentConfig) -> tuple[str, dict[str, Any]]:
    """Return the environment name and keyword arguments of envpool that are equivalent to the config."""
    default = EnvironmentConfig(name=config.name, family=config.family)
    fixed = [
        "action_repeat",
        "rescale_actions",
        "remake",
        "observed",
        "wrappers",
        *(["frame_stack"] if config.family != "atari" else []),
    ]
    changed = [key for key in fixed if getattr(config, key) != getattr(default, key)]
    if changed or config.family not in ("gym", "atari"):
        unsupported = f"environment.{changed[0]}" if changed else f"the family {config.family}"
        raise ConfigError(
            f"environment.vectorized is envpool, which does not support {unsupported}; remove one of the two settings"
        )
    if config.family == "gym":
        return config.name, dict(config.options)
    options = parse(AtariOptions, config.options, "environment.options")
    return f"{game_name(config.name)}-v5", {
        "frame_skip": options.frame_skip,
        "noop_max": options.noop_max,
        "img_height": options.screen_size,
        "img_width": options.screen_size,
        "gray_scale": options.grayscale,
        "stack_num": config.frame_stack,
        "episodic_life": options.terminal_on_life_loss,
        "repeat_action_probability": options.repeat_action_probability,
        "full_action_space": options.full_action_space,
    }


def _check_fit(pool: Any, spec: Spec, config: EnvironmentConfig) -> None:
    shapes = {name: box.shape for name, box in spec.observation.items()}
    pool_shape = getattr(pool.observation_space, "shape", None)
    if shapes != {STATE: pool_shape}:
        raise ConfigError(
            f"envpool's {config.name} has observations of shape {pool_shape}, but the environment for evaluation has "
            f"{shapes}; remove environment.vectorized, or the options that cause the difference"
        )
