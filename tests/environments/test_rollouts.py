"""Policies at work, seen."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from rl4sys.environments import video as video_module
from rl4sys.environments.config import EnvironmentConfig
from rl4sys.environments.evaluate import EvaluationStopped, evaluate
from rl4sys.environments.rollouts import Rollouts, check_display, check_drawable, roll_out
from rl4sys.environments.video import Video, check_video
from rl4sys.errors import ConfigError, MissingExtraError, RunError
from rl4sys.policy.base import Decision
from rl4sys.registry import ENVIRONMENTS

CARTPOLE = EnvironmentConfig(name="CartPole-v1")


class Constant:
    """A policy that always does the same."""

    def __init__(self, action: Any = 0) -> None:
        self._action = np.asarray(action)

    def act(self, observation: Any, memory: Any, draws: Any) -> Decision:
        rows = len(next(iter(observation.values())))
        return Decision(np.tile(self._action, (rows, *[1] * self._action.ndim)), np.zeros(rows, np.float32), {})

    def greedy(self) -> Constant:
        return self


class Shown:
    """A screen that remembers."""

    def __init__(self) -> None:
        self.pictures: list[Any] = []
        self.rates: set[float] = set()

    def show(self, picture: Any, per_second: float) -> None:
        self.pictures.append(picture)
        self.rates.add(per_second)


def test_rollouts_are_the_episodes_that_an_evaluation_begins_with() -> None:
    judged = evaluate(CARTPOLE, Constant(1), episodes=3, seed=5)
    assert len(set(judged.lengths)) > 1, "episodes that are all alike prove nothing"
    assert roll_out(CARTPOLE, Constant(1), Rollouts(number=3, max_length=1000, seed=5)) == judged


def test_rollouts_are_cut_after_so_many_steps() -> None:
    assert roll_out(CARTPOLE, Constant(), Rollouts(number=2, max_length=4, seed=0)).lengths == [4, 4]


def test_every_picture_is_shown_from_the_first_to_the_last_of_each_episode() -> None:
    screen = Shown()
    roll_out(CARTPOLE, Constant(), Rollouts(number=2, max_length=4, seed=0), screen)
    assert len(screen.pictures) == 2 * (1 + 4)
    assert not np.array_equal(screen.pictures[4], screen.pictures[5]), "the second episode starts elsewhere"


@pytest.mark.parametrize(
    ("settings", "action", "rate"),
    [
        ({"name": "LunarLander-v3"}, 2, 50),
        ({"name": "CartPole-v1", "action_repeat": 2}, 0, 25),
        ({"name": "HalfCheetah-v5"}, np.zeros(6, np.float32), 20),
        ({"name": "cartpole-balance", "wrapper": "dm_control"}, np.zeros(1, np.float32), 100),
        ({"name": "Pong", "wrapper": "atari"}, 2, 15),
        ({"name": "multigoal", "wrapper": "multigoal"}, np.ones(2, np.float32), 10),
        ({"name": "PointReach", "wrapper": "goal"}, np.ones(2, np.float32), 10),
        ({"name": "BitFlip", "wrapper": "goal"}, 3, 10),
        ({"name": "mpe.simple_spread_v3", "wrapper": "pettingzoo"}, 1, 10),
    ],
    ids=lambda value: str(value.get("name")) if isinstance(value, dict) else "",
)
def test_every_family_can_be_seen(settings: dict[str, Any], action: Any, rate: float) -> None:
    screen = Shown()
    config = EnvironmentConfig(**settings)
    rollouts = Rollouts(number=1, max_length=3, seed=0)
    seen = roll_out(config, Constant(action), rollouts, screen)
    assert len(screen.pictures) == 4
    first = screen.pictures[0]
    assert first.dtype == np.uint8
    assert first.ndim == 3
    assert first.shape[-1] == 3
    assert first.std() > 0, "a picture of one colour shows nothing"
    assert any(not np.array_equal(first, later) for later in screen.pictures[1:]), "nothing moves"
    assert screen.rates == {rate}
    assert roll_out(config, Constant(action), rollouts) == seen, "being watched must change nothing"


class Dark(gymnasium.Env[Any, Any]):
    """Nothing to see."""

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.observation_space, self.action_space = spaces.Box(0, 1, (1,)), spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return np.zeros(1, np.float32), {}

    def render(self) -> None:
        return None


class Blind(Dark):
    """Does not even know that it could be asked."""

    def __init__(self) -> None:
        super().__init__()


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        (Dark, r"an environment of mine cannot be drawn: its render\(\) gives NoneType, no picture"),
        (Blind, r"do not fit an environment of mine: .*unexpected keyword argument 'render_mode'"),
    ],
)
def test_what_cannot_be_drawn_is_told(monkeypatch: pytest.MonkeyPatch, environment: type, message: str) -> None:
    monkeypatch.setitem(ENVIRONMENTS._own, "an environment of mine", environment)
    with pytest.raises(ConfigError, match=message):
        check_drawable(EnvironmentConfig(name="an environment of mine"))


def test_a_window_needs_a_display(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match=r"this machine has none .* --video FILE.mp4"):
        check_display()
    monkeypatch.setenv("DISPLAY", ":0")
    check_display()


def test_a_rollout_can_be_stopped() -> None:
    with pytest.raises(EvaluationStopped):
        roll_out(CARTPOLE, Constant(), Rollouts(number=1, max_length=9, seed=0), stopping=lambda: True)


def frames(path: Path) -> tuple[dict[str, Any], list[Any]]:
    """Size and speed of a video, and its pictures."""
    import imageio_ffmpeg

    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    read = subprocess.run(command, capture_output=True, check=True)
    width, height, rate = re.search(rb"Stream #0.* (\d+)x(\d+).* ([\d.]+) fps", read.stderr).groups()  # type: ignore[union-attr]
    pictures = np.frombuffer(read.stdout, np.uint8).reshape(-1, int(height), int(width), 3)
    return {"size": (int(width), int(height)), "fps": float(rate)}, list(pictures)


def picture(brightness: int, height: int = 320, width: int = 320) -> Any:
    return np.full((height, width, 3), brightness, np.uint8)


@pytest.mark.parametrize("name", ["a.mp4", "a.gif", "A.MP4"])
def test_a_video_holds_what_was_shown(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    with Video(path) as video:
        for brightness in (0, 100, 200):
            video.show(picture(brightness), per_second=10)
        assert not path.exists(), "it has its name once it is whole"
    meta, held = frames(path)
    assert meta["fps"] == 10
    assert [round(float(frame.mean()), -1) for frame in held] == [0, 100, 200]
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_small_and_odd_pictures_are_made_fit(tmp_path: Path) -> None:
    with Video(tmp_path / "a.mp4") as video:
        video.show(picture(9, height=107, width=51), per_second=10)
    assert frames(tmp_path / "a.mp4")[0]["size"] == (154, 322)
    with Video(tmp_path / "b.mp4") as video:
        video.show(picture(9, height=321, width=323), per_second=10)
    assert frames(tmp_path / "b.mp4")[0]["size"] == (324, 322)


def test_of_more_pictures_than_can_be_shown_some_are_left_out(tmp_path: Path) -> None:
    with Video(tmp_path / "a.mp4") as video:
        for number in range(6):
            video.show(picture(40 * number), per_second=100)
    meta, held = frames(tmp_path / "a.mp4")
    assert meta["fps"] == 50
    assert [round(float(frame.mean()), -1) for frame in held] == [0, 80, 160]


def test_a_broken_video_leaves_nothing(tmp_path: Path) -> None:
    changed = r"a picture .* is \(640, 320, 3\), and the ones before were \(320, 320, 3\)"
    with pytest.raises(RunError, match=changed), Video(tmp_path / "a.mp4") as video:  # noqa: PT012 - both belong to it
        video.show(picture(1), per_second=10)
        video.show(picture(1, height=640), per_second=10)
    assert list(tmp_path.iterdir()) == []


def test_what_ffmpeg_complains_of_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(video_module._ENCODERS, ".mp4", ["-c:v", "no_such_codec"])
    with pytest.raises(OSError, match=r"ffmpeg: .*no_such_codec"), Video(tmp_path / "a.mp4") as video:
        video.show(picture(1), per_second=10)
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_video_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"--video is '.*a.avi'; its name should end in .mp4 or .gif"):
        check_video(tmp_path / "a.avi")
    with pytest.raises(RunError, match=r"there is no directory .*nowhere"):
        check_video(tmp_path / "nowhere" / "a.mp4")
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(MissingExtraError, match=r"need imageio_ffmpeg, .* pip install 'rl4sys\[video\]'"):
        check_video(tmp_path / "a.mp4")
