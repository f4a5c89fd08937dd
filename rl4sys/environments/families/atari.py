"""Atari games with the standard preprocessing (Mnih et al. 2015, Machado et al. 2018)."""

from __future__ import annotations

from typing import Any, Literal, SupportsFloat

import gymnasium
import numpy as np
from gymnasium.wrappers import AtariPreprocessing, TimeLimit
from pydantic import Field

from rl4sys.config import Config, did_you_mean, parse
from rl4sys.environments.base import Environment
from rl4sys.environments.config import EnvironmentConfig
from rl4sys.errors import ConfigError

_LONGEST_GAME_FRAMES = 108_000
"""Conventional maximum length of a game in frames: half an hour at 60 frames per second."""


class AtariOptions(Config):
    """Options of Atari environments. See also ``environment.frame_stack`` and ``environment.clip_reward``."""

    frame_skip: int = Field(default=4, gt=0, le=1000)
    """Frames per action; the observation is the pixel-wise maximum of the last two frames."""
    noop_max: int = Field(default=30, ge=0)
    """Maximum number of random no-op frames at the start of an episode."""
    screen_size: int = Field(default=84, gt=0, le=1024)
    """Height and width of the observed image in pixels."""
    grayscale: bool = True
    """Observe one grayscale channel; false gives RGB."""
    terminal_on_life_loss: bool = False
    """End a training episode when a life is lost; the next episode starts a new game. Evaluation plays whole games."""
    repeat_action_probability: float = Field(default=0.0, ge=0, le=1)
    """Sticky actions: probability of repeating the previous action (0.25 in Machado et al. 2018)."""
    full_action_space: bool = False
    """Use all 18 actions of the console instead of the minimal set of the game."""
    mode: int | None = None
    """Mode of the game; null for the default of the game."""
    difficulty: int | None = None
    """Difficulty level of the game; null for the default of the game."""
    render_mode: Literal["human", "rgb_array"] | None = None
    """Render to a window or to images. `rl4sys simulate` and video recording set it; training does not need it."""


def make_atari(config: EnvironmentConfig) -> Environment:
    """Create the environment of the game ``config.name``, such as Pong or ALE/Pong-v5."""
    options = parse(AtariOptions, config.options, "environment.options")
    game = _make_game(config.name, options)
    preprocessed: Environment = AtariPreprocessing(
        game,
        noop_max=options.noop_max,
        frame_skip=options.frame_skip,
        screen_size=options.screen_size,
        terminal_on_life_loss=options.terminal_on_life_loss,
        grayscale_obs=options.grayscale,
    )
    if config.max_episode_steps is not None:
        return preprocessed
    return TimeLimit(preprocessed, _LONGEST_GAME_FRAMES // options.frame_skip)


def game_name(name: str) -> str:
    """Return the bare name of a game, such as Pong for ALE/Pong-v5."""
    return name.removeprefix("ALE/").removesuffix("-v5")


def for_evaluation(config: EnvironmentConfig) -> EnvironmentConfig:
    """Return the config for evaluation, in which an episode is a whole game."""
    return config.model_copy(update={"options": {**config.options, "terminal_on_life_loss": False}})


def _make_game(name: str, options: AtariOptions) -> Environment:
    import ale_py

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    gymnasium.register_envs(ale_py)
    wanted = f"ALE/{game_name(name)}-v5"
    if wanted not in gymnasium.registry:
        known = [game_name(known) for known in gymnasium.registry if known.startswith("ALE/")]
        raise ConfigError(
            f"environment.name is {name!r}, which is not an Atari game{did_you_mean(game_name(name), known)} "
            f"There are {len(known)} games, such as Breakout, Pong and SpaceInvaders"
        )
    game = gymnasium.make(
        wanted,
        disable_env_checker=True,
        frameskip=1,
        repeat_action_probability=0.0,
        full_action_space=options.full_action_space,
        mode=options.mode,
        difficulty=options.difficulty,
        max_num_frames_per_episode=None,
        render_mode=options.render_mode,
    )
    return _Seeded(game, options.repeat_action_probability)


class _Seeded(gymnasium.Wrapper[Any, int, Any, int]):
    """Wrapper that seeds the episodes of a game without reloading the ROM, which takes 0.2 seconds.

    The emulator itself is deterministic; sticky actions are drawn here, frame by frame.
    """

    def __init__(self, game: Environment, stickiness: float) -> None:
        super().__init__(game)
        self._stickiness, self._action = stickiness, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            # Gymnasium's preprocessing draws the number of no-op frames from the same generator.
            self.unwrapped.np_random = np.random.default_rng(seed)
        self._action = 0
        return self.env.reset(options=options)

    def step(self, action: int) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        if not self._stickiness or self.np_random.random() >= self._stickiness:
            self._action = action
        return self.env.step(self._action)
