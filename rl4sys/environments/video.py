"""Video files written with ffmpeg."""

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

from rl4sys.errors import ConfigError, RunError
from rl4sys.extras import needed_by
from rl4sys.spec import Array

_MAX_RATE = 50
"""Maximum frames per second (the limit of GIF); faster videos skip frames."""
_MIN_HEIGHT = 320
"""Minimum frame height in pixels; smaller frames are enlarged."""
_PALETTE = "split[a][b];[a]palettegen[p];[b][p]paletteuse"
_GIF_RATE, _GIF_HEIGHT = 10, 240
_ENCODERS = {
    # H.264 with yuv420p plays in every player and browser; needs an even width and height.
    ".mp4": ["-c:v", "libx264", "-pix_fmt", "yuv420p", "-preset", "veryfast", "-crf", "20"],
    # A color palette computed for each video avoids banding.
    ".gif": ["-filter_complex", _PALETTE, "-loop", "0"],
}


def check_video(path: Path) -> None:
    """Raise ConfigError, RunError or MissingExtraError if no video can be written to ``path``."""
    if path.suffix.lower() not in _ENCODERS:
        raise ConfigError(f"--video is {str(path)!r}; expected a file name that ends in {' or '.join(_ENCODERS)}")
    if not path.absolute().parent.is_dir():
        raise RunError(f"cannot write {path}: there is no directory {path.absolute().parent}")
    _ffmpeg()


def as_gif(video: Path) -> tuple[int, int, bytes]:
    """Convert a video to a small GIF with a low frame rate; return width, height and content."""
    smaller = f"fps={_GIF_RATE},scale=-2:{_GIF_HEIGHT},{_PALETTE}"
    command = [_ffmpeg().get_ffmpeg_exe(), "-loglevel", "error", "-i", str(video), "-filter_complex", smaller]
    gif = subprocess.run([*command, "-f", "gif", "-"], capture_output=True, check=False)
    if gif.returncode != 0:
        raise OSError(f"ffmpeg: {gif.stderr.decode(errors='replace').strip()}")
    return *struct.unpack("<HH", gif.stdout[6:10]), gif.stdout


class Video:
    """Writer of an MP4 or GIF file. The file is renamed to ``path`` when it is complete; a failure leaves no file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._unfinished = path.with_name(f".{path.stem}.unfinished{path.suffix.lower()}")
        self._encoder: _Encoder | None = None
        self._shape: tuple[int, ...] = ()
        self._shown, self._keep_every = 0, 1

    def show(self, frame: Array, frames_per_second: float) -> None:
        """Append a frame to the video. The first call sets the frame rate."""
        frame = _normalized_frame(np.asarray(frame))
        if self._encoder is None:
            self._keep_every, self._shape = math.ceil(frames_per_second / _MAX_RATE), frame.shape
            self._encoder = _Encoder(self._unfinished, frame.shape, frames_per_second / self._keep_every)
        if frame.shape != self._shape:
            raise RunError(
                f"a frame for {self._path} has shape {frame.shape}, but the previous frames have {self._shape}"
            )
        if self._shown % self._keep_every == 0:
            self._encoder.write(frame)
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
    """ffmpeg process that encodes raw frames. Methods raise OSError with the error output of ffmpeg if it fails."""

    def __init__(self, path: Path, shape: tuple[int, ...], frames_per_second: float) -> None:
        # The error of the operating system for an unwritable path is clearer than that of ffmpeg.
        path.touch()
        raw = [
            "-f",
            "rawvideo",
            "-pix_fmt",
            "rgb24",
            "-s",
            f"{shape[1]}x{shape[0]}",
            "-r",
            f"{frames_per_second:g}",
            "-i",
            "-",
        ]
        self._stderr = TemporaryFile()  # noqa: SIM115 - closed by `finish`
        self._process = subprocess.Popen(
            [_ffmpeg().get_ffmpeg_exe(), "-y", "-loglevel", "error", *raw, *_ENCODERS[path.suffix], str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._stderr,
            # Ctrl-C is handled by the caller, which then finishes the video.
            start_new_session=True,
        )

    def write(self, frame: Array) -> None:
        assert self._process.stdin is not None  # opened above
        try:
            self._process.stdin.write(frame.tobytes())
        except BrokenPipeError as problem:
            raise OSError(self._error_output()) from problem

    def finish(self) -> None:
        """Close the input of ffmpeg and wait until the video is written."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        failed = self._process.wait() != 0
        error = self._error_output() if failed else ""
        self._stderr.close()
        if failed:
            raise OSError(error)

    def _error_output(self) -> str:
        self._process.wait()
        self._stderr.seek(0)
        return f"ffmpeg: {self._stderr.read().decode(errors='replace').strip() or 'the process ended early'}"


def _ffmpeg() -> Any:
    with needed_by("a video"):
        return importlib.import_module("imageio_ffmpeg")


def _normalized_frame(frame: Array) -> Array:
    """Convert a frame to uint8, enlarge it to the minimum height, and pad it to even height and width."""
    times = math.ceil(_MIN_HEIGHT / frame.shape[0])
    frame = frame.astype(np.uint8, copy=False).repeat(times, axis=0).repeat(times, axis=1)
    odd = [(0, size % 2) for size in frame.shape[:2]]
    return np.ascontiguousarray(np.pad(frame, [*odd, (0, 0)], mode="edge"))
