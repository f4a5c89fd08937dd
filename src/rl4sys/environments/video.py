"""Pictures to a video file."""

from __future__ import annotations

import importlib
import math
import struct
import subprocess
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from types import TracebackType
from typing import Any

import numpy as np

from rl4sys.errors import ConfigError, MissingExtraError, RunError
from rl4sys.spec import Array

_FASTEST = 50
"""Pictures a second; gifs cannot show more. Of faster ones every second, third, … is left out."""
_SMALLEST = 320
"""Pictures lower than this are shown larger, each point as several."""
_PALETTE = "split[a][b];[a]palettegen[p];[b][p]paletteuse"
_GIF_RATE, _GIF_HEIGHT = 10, 240
_ENCODERS = {
    # Every player and browser shows this form, which wants even sizes.
    ".mp4": ["-c:v", "libx264", "-pix_fmt", "yuv420p", "-preset", "veryfast", "-crf", "20"],
    # Colours are chosen for each video, or gradients would show bands.
    ".gif": ["-filter_complex", _PALETTE, "-loop", "0"],
}


def check_video(path: Path) -> None:
    """Before anything is rolled out: whether a video of that name can be written."""
    if path.suffix.lower() not in _ENCODERS:
        raise ConfigError(f"--video is {str(path)!r}; its name should end in {' or '.join(_ENCODERS)}")
    if not path.absolute().parent.is_dir():
        raise RunError(f"cannot write {path}: there is no directory {path.absolute().parent}")
    _ffmpeg()


def as_gif(video: Path) -> tuple[int, int, bytes]:
    """Width, height and content of a small gif that shows the video with a few pictures a second."""
    smaller = f"fps={_GIF_RATE},scale=-2:{_GIF_HEIGHT},{_PALETTE}"
    command = [_ffmpeg().get_ffmpeg_exe(), "-loglevel", "error", "-i", str(video), "-filter_complex", smaller]
    gif = subprocess.run([*command, "-f", "gif", "-"], capture_output=True, check=False)
    if gif.returncode != 0:
        raise OSError(f"ffmpeg: {gif.stderr.decode(errors='replace').strip()}")
    return *struct.unpack("<HH", gif.stdout[6:10]), gif.stdout


class Video:
    """An mp4 or gif in the making; it has its name once it is whole, and a broken one leaves nothing."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._unfinished = path.with_name(f".{path.stem}.unfinished{path.suffix.lower()}")
        self._encoder: _Encoder | None = None
        self._shape: tuple[int, ...] = ()
        self._shown, self._every = 0, 1

    def show(self, picture: Array, per_second: float) -> None:
        """The next picture, of so many a second."""
        picture = _enlarged(np.asarray(picture))
        if self._encoder is None:
            self._every, self._shape = math.ceil(per_second / _FASTEST), picture.shape
            self._encoder = _Encoder(self._unfinished, picture.shape, per_second / self._every)
        if picture.shape != self._shape:
            raise RunError(f"a picture for {self._path} is {picture.shape}, and the ones before were {self._shape}")
        if self._shown % self._every == 0:
            self._encoder.write(picture)
        self._shown += 1

    def __enter__(self) -> Video:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._encoder is not None:
                self._encoder.finish()
            if self._encoder is not None and kind is None:
                self._unfinished.replace(self._path)
        finally:
            self._unfinished.unlink(missing_ok=True)


class _Encoder:
    """ffmpeg, given pictures as bytes; an `OSError` says what it says."""

    def __init__(self, path: Path, shape: tuple[int, ...], per_second: float) -> None:
        # A place that cannot be written to is told better by the system than by ffmpeg.
        path.touch()
        raw = [
            "-f",
            "rawvideo",
            "-pix_fmt",
            "rgb24",
            "-s",
            f"{shape[1]}x{shape[0]}",
            "-r",
            f"{per_second:g}",
            "-i",
            "-",
        ]
        self._said = TemporaryFile()  # noqa: SIM115 - closed by `finish`
        self._process = subprocess.Popen(
            [_ffmpeg().get_ffmpeg_exe(), "-y", "-loglevel", "error", *raw, *_ENCODERS[path.suffix], str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._said,
            # Ctrl-C is for whoever shows pictures, and ends the video in its own time.
            start_new_session=True,
        )

    def write(self, picture: Array) -> None:
        assert self._process.stdin is not None  # opened above
        try:
            self._process.stdin.write(picture.tobytes())
        except BrokenPipeError as problem:
            raise OSError(self._complaint()) from problem

    def finish(self) -> None:
        """Wait until all is written."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        failed = self._process.wait() != 0
        complaint = self._complaint() if failed else ""
        self._said.close()
        if failed:
            raise OSError(complaint)

    def _complaint(self) -> str:
        self._process.wait()
        self._said.seek(0)
        return f"ffmpeg: {self._said.read().decode(errors='replace').strip() or 'it ended early'}"


def _ffmpeg() -> Any:
    try:
        return importlib.import_module("imageio_ffmpeg")
    except ModuleNotFoundError as problem:
        raise MissingExtraError(
            f"videos need {problem.name}, which is not installed: pip install 'rl4sys[video]'"
        ) from problem


def _enlarged(picture: Array) -> Array:
    """In bytes, large enough to see, and of even height and width."""
    times = math.ceil(_SMALLEST / picture.shape[0])
    picture = picture.astype(np.uint8, copy=False).repeat(times, axis=0).repeat(times, axis=1)
    odd = [(0, size % 2) for size in picture.shape[:2]]
    return np.ascontiguousarray(np.pad(picture, [*odd, (0, 0)], mode="edge"))
