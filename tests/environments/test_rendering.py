"""Rollouts with rendering, and video files."""

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
from rl4sys.environments.evaluation import EvaluationStopped, evaluate
from rl4sys.environments.rendering import Rollouts, check_display, check_renderable, roll_out
from rl4sys.environments.video import Video, check_video
from rl4sys.errors import ConfigError, MissingExtraError, RunError
from rl4sys.policy.base import Decision
from rl4sys.registry import ENVIRONMENTS

CARTPOLE = EnvironmentConfig(name="CartPole-v1")


class Constant:
    """Policy with a constant action."""

    def __init__(self, action: Any = 0) -> None:
        self._action = np.asarray(action)

    def act(self, observation: Any, memory: Any, draws: Any) -> Decision:
        rows = len(next(iter(observation.values())))
        return Decision(np.tile(self._action, (rows, *[1] * self._action.ndim)), np.zeros(rows, np.float32), {})

    def greedy(self) -> Constant:
        return self


class FrameStore:
    """Screen that stores frames."""

    def __init__(self) -> None:
        self.frames: list[Any] = []
        self.rates: set[float] = set()

    def show(self, picture: Any, frames_per_second: float) -> None:
        self.frames.append(picture)
        self.rates.add(frames_per_second)


def test_rollouts_equal_the_first_evaluation_episodes() -> None:
    evaluated = evaluate(CARTPOLE, Constant(1), episodes=3, seed=5)
    assert len(set(evaluated.lengths)) > 1, "the episodes must differ for the comparison to mean anything"
    assert roll_out(CARTPOLE, Constant(1), Rollouts(number=3, max_length=1000, seed=5)) == evaluated


def test_rollouts_are_truncated_at_max_length() -> None:
    assert roll_out(CARTPOLE, Constant(), Rollouts(number=2, max_length=4, seed=0)).lengths == [4, 4]


def test_every_frame_of_an_episode_is_shown() -> None:
    screen = FrameStore()
    roll_out(CARTPOLE, Constant(), Rollouts(number=2, max_length=4, seed=0), screen)
    assert len(screen.frames) == 2 * (1 + 4)
    assert not np.array_equal(screen.frames[4], screen.frames[5]), "the second episode has another first frame"


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
def test_every_family_can_be_rendered(settings: dict[str, Any], action: Any, rate: float) -> None:
    screen = FrameStore()
    config = EnvironmentConfig(**settings)
    rollouts = Rollouts(number=1, max_length=3, seed=0)
    seen = roll_out(config, Constant(action), rollouts, screen)
    assert len(screen.frames) == 4
    first = screen.frames[0]
    assert first.dtype == np.uint8
    assert first.ndim == 3
    assert first.shape[-1] == 3
    assert first.std() > 0, "the frame must not be blank"
    assert any(not np.array_equal(first, later) for later in screen.frames[1:]), "the frames must differ"
    assert screen.rates == {rate}
    assert roll_out(config, Constant(action), rollouts) == seen, "rendering must not change the episode"


class RenderReturnsNone(gymnasium.Env[Any, Any]):
    """Environment with a render() method that returns None."""

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.observation_space, self.action_space = spaces.Box(0, 1, (1,)), spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return np.zeros(1, np.float32), {}

    def render(self) -> None:
        return None


class NoRenderMode(RenderReturnsNone):
    """Environment that accepts no render mode."""

    def __init__(self) -> None:
        super().__init__()


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        (RenderReturnsNone, r"'custom environment' cannot be rendered: its render\(\) returns NoneType, not an image"),
        (NoRenderMode, r"'custom environment' cannot be rendered: its render\(\) returns NoneType, not an image"),
    ],
)
def test_unrenderable_environment_is_rejected(monkeypatch: pytest.MonkeyPatch, environment: type, message: str) -> None:
    monkeypatch.setitem(ENVIRONMENTS._own, "custom environment", environment)
    with pytest.raises(ConfigError, match=message):
        check_renderable(EnvironmentConfig(name="custom environment"))


def test_window_without_display_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match=r"this machine has none .* --video FILE.mp4"):
        check_display()
    monkeypatch.setenv("DISPLAY", ":0")
    check_display()


def test_rollout_can_be_stopped() -> None:
    with pytest.raises(EvaluationStopped):
        roll_out(CARTPOLE, Constant(), Rollouts(number=1, max_length=9, seed=0), stopping=lambda: True)


def read_video(path: Path) -> tuple[dict[str, Any], list[Any]]:
    """Return the size, frame rate and frames of a video."""
    import imageio_ffmpeg

    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    read = subprocess.run(command, capture_output=True, check=True)
    width, height, rate = re.search(rb"Stream #0.* (\d+)x(\d+).* ([\d.]+) fps", read.stderr).groups()  # type: ignore[union-attr]
    decoded = np.frombuffer(read.stdout, np.uint8).reshape(-1, int(height), int(width), 3)
    return {"size": (int(width), int(height)), "fps": float(rate)}, list(decoded)


def picture(brightness: int, height: int = 320, width: int = 320) -> Any:
    return np.full((height, width, 3), brightness, np.uint8)


@pytest.mark.parametrize("name", ["a.mp4", "a.gif", "A.MP4"])
def test_video_contains_the_shown_frames(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    with Video(path) as video:
        for brightness in (0, 100, 200):
            video.show(picture(brightness), frames_per_second=10)
        assert not path.exists(), "the video has a temporary name until it is complete"
    meta, decoded = read_video(path)
    assert meta["fps"] == 10
    assert [round(float(frame.mean()), -1) for frame in decoded] == [0, 100, 200]
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_small_and_odd_sized_frames_are_enlarged_and_padded(tmp_path: Path) -> None:
    with Video(tmp_path / "a.mp4") as video:
        video.show(picture(9, height=107, width=51), frames_per_second=10)
    assert read_video(tmp_path / "a.mp4")[0]["size"] == (154, 322)
    with Video(tmp_path / "b.mp4") as video:
        video.show(picture(9, height=321, width=323), frames_per_second=10)
    assert read_video(tmp_path / "b.mp4")[0]["size"] == (324, 322)


def test_frames_above_the_maximum_rate_are_skipped(tmp_path: Path) -> None:
    with Video(tmp_path / "a.mp4") as video:
        for number in range(6):
            video.show(picture(40 * number), frames_per_second=100)
    meta, decoded = read_video(tmp_path / "a.mp4")
    assert meta["fps"] == 50
    assert [round(float(frame.mean()), -1) for frame in decoded] == [0, 80, 160]


def test_failed_video_leaves_no_file(tmp_path: Path) -> None:
    changed = r"a frame .* has shape \(640, 320, 3\), but the previous frames have \(320, 320, 3\)"
    with pytest.raises(RunError, match=changed), Video(tmp_path / "a.mp4") as video:  # noqa: PT012 - both calls are needed
        video.show(picture(1), frames_per_second=10)
        video.show(picture(1, height=640), frames_per_second=10)
    assert list(tmp_path.iterdir()) == []


def test_ffmpeg_errors_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(video_module._ENCODERS, ".mp4", ["-c:v", "no_such_codec"])
    with pytest.raises(OSError, match=r"ffmpeg: .*no_such_codec"), Video(tmp_path / "a.mp4") as video:
        video.show(picture(1), frames_per_second=10)
    assert list(tmp_path.iterdir()) == []


def test_invalid_video_target_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"--video is '.*a.avi'; expected a file name that ends in .mp4 or .gif"):
        check_video(tmp_path / "a.avi")
    with pytest.raises(RunError, match=r"there is no directory .*nowhere"):
        check_video(tmp_path / "nowhere" / "a.mp4")
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(MissingExtraError, match=r"needs imageio_ffmpeg, .* pip install -e '\.\[video\]'"):
        check_video(tmp_path / "a.mp4")
