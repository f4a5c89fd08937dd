"""Many copies of an environment stepped in C++ threads by envpool, as an actor (Weng et al. 2022)."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from rl4sys.config import parse
from rl4sys.environments.actor import Episode, Recording
from rl4sys.environments.atari import AtariOptions, game_name
from rl4sys.environments.config import EnvironmentConfig
from rl4sys.environments.encoding import Encoding
from rl4sys.environments.gym import explaining, make_environment
from rl4sys.errors import ConfigError
from rl4sys.policy.base import Policy
from rl4sys.policy.draws import Draws
from rl4sys.spec import STATE, Array, Columns, Spec, State
from rl4sys.trajectory import Trajectory

NOT_EXACT = (
    "environment.vectorized is envpool, whose episodes cannot be gone back to: a resumed run begins new ones, and does "
    "not go on exactly as if it had never stopped"
)


@dataclass
class _Copy:
    """Where one copy's present episode stands."""

    episode: int
    steps: int = 0
    total_reward: float = 0.0


class PoolActor:
    """Does what `Actor` does, with all environments stepped at once; a restored one begins new episodes."""

    def __init__(self, config: EnvironmentConfig, seed: np.random.SeedSequence) -> None:
        self._config = config
        self._entropy, key = (int(n) for n in seed.generate_state(2, np.uint64))
        self._encoding = _encoding(config)
        self._draws = Draws(key)
        self._observation = self._encoding.empty(config.num_envs)
        self._largest_reward = np.inf if config.clip_reward is None else config.clip_reward
        self._memory: Columns = {}
        self._finished: list[Episode] = []
        self._begun = 0
        self._begin()

    @property
    def spec(self) -> Spec:
        return self._encoding.spec

    def collect(self, policy: Policy, version: int, steps: int) -> list[Trajectory]:
        """At least ``steps`` steps, as many in each environment; every trajectory is cut at the end."""
        length = -(-steps // len(self._copies))
        recording = Recording(self._encoding, len(self._copies), length, version)
        for step in range(length):
            decision = policy.act(self._observation, self._memory, self._draws)
            recording.write(step, self._observation, self._memory, decision)
            self._memory = decision.memory
            self._step(step, np.asarray(self._encoding.to_system(decision.action)), recording)
        for row, copy in enumerate(self._copies):
            recording.cut(row, length, copy, self._observation)
        return recording.trajectories

    def take_finished(self) -> list[Episode]:
        """The episodes that ended since the last call."""
        finished, self._finished = self._finished, []
        return finished

    def close(self) -> None:
        self._pool.close()

    def state(self) -> State:
        return {"draws": self._draws.state(), "entropy": self._entropy, "begun": self._begun}

    def restore(self, state: State) -> None:
        self._draws.restore(state["draws"])
        self._entropy, self._begun = int(state["entropy"]), int(state["begun"])
        self._memory = {}
        self._pool.close()
        self._begin()

    def _begin(self) -> None:
        """New episodes everywhere, from a seed that no pool of this run had before."""
        seed = np.random.SeedSequence([self._entropy, self._begun]).generate_state(1)[0] >> 1
        self._pool = _make_pool(self._config, int(seed))
        _check_fit(self._pool, self._encoding.spec, self._config)
        self._copies = [self._new_copy() for _ in range(self._config.num_envs)]
        self._observation[STATE][:] = self._pool.reset()[0]

    def _new_copy(self) -> _Copy:
        self._begun += 1
        return _Copy(self._begun - 1)

    def _step(self, step: int, actions: Array, recording: Recording) -> None:
        shown, rewards, terminated, truncated, _ = self._pool.step(actions)
        recording.reward[:, step] = np.clip(rewards, -self._largest_reward, self._largest_reward)
        self._observation[STATE][:] = shown
        for copy, reward in zip(self._copies, rewards.tolist(), strict=True):
            copy.steps += 1
            copy.total_reward += reward
        ended = np.flatnonzero(terminated | truncated)
        for row in ended.tolist():
            # A cut that falls on an end is an end.
            flags = {"terminated": bool(terminated[row]), "truncated": bool(truncated[row] and not terminated[row])}
            recording.cut(row, step + 1, self._copies[row], self._observation, **flags)
            self._finished.append(Episode(self._copies[row].total_reward, self._copies[row].steps))
            self._copies[row] = self._new_copy()
        if len(ended):
            self._reset(ended)

    def _reset(self, rows: Array) -> None:
        shown, info = self._pool.reset(rows.astype(np.int32))
        self._observation[STATE][info["env_id"]] = shown
        for column in self._memory.values():
            column[rows] = 0


def _encoding(config: EnvironmentConfig) -> Encoding:
    """That of the plain environment, in which the policy will be judged."""
    plain = make_environment(config)
    encoding = Encoding(plain)
    plain.close()
    return encoding


def _make_pool(config: EnvironmentConfig, seed: int) -> Any:
    with explaining(config):
        import envpool

    name, settings = _envpool_settings(config)
    if name not in envpool.list_all_envs():
        raise ConfigError(f"environment.vectorized is envpool, which has no {name}; remove the setting")
    if config.max_episode_steps is not None:
        settings["max_episode_steps"] = config.max_episode_steps
    with explaining(config), warnings.catch_warnings():
        # It declares its bounds in float64 and then has Gymnasium round them.
        warnings.simplefilter("ignore")
        pool = envpool.make(name, env_type="gymnasium", num_envs=config.num_envs, seed=seed, **settings)
        pool.observation_space, pool.action_space  # noqa: B018 - declared when first asked for
        return pool


def _envpool_settings(config: EnvironmentConfig) -> tuple[str, dict[str, Any]]:
    """The name and the settings that mean there what ours mean."""
    usual = EnvironmentConfig(name=config.name, wrapper=config.wrapper)
    fixed = [
        "action_repeat",
        "rescale_actions",
        "remake",
        "observed",
        *(["frame_stack"] if config.wrapper != "atari" else []),
    ]
    changed = [key for key in fixed if getattr(config, key) != getattr(usual, key)]
    if changed or config.wrapper not in ("gym", "atari"):
        what = f"environment.{changed[0]}" if changed else f"the family {config.wrapper}"
        raise ConfigError(f"environment.vectorized is envpool, which does not go with {what}; remove one of them")
    if config.wrapper == "gym":
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
    shown = {name: box.shape for name, box in spec.observation.items()}
    there = getattr(pool.observation_space, "shape", None)
    if shown != {STATE: there}:
        raise ConfigError(
            f"envpool's {config.name} shows {there}, and Gymnasium's, in which it is judged, {shown}; "
            "remove environment.vectorized, or options in which they differ"
        )
