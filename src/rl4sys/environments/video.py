"""Pictures to a video file."""

from __future__ import annotations

import importlib
import math
from collections.abc import Generator
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from rl4sys.errors import ConfigError, MissingExtraError, RunError
from rl4sys.spec import Array

_FASTEST = 50
"""Pictures a second; gifs cannot show more. Of faster ones every second, third, … is left out."""
_SMALLEST = 320
"""Pictures lower than this are shown larger, each point as several."""
_ENCODERS: dict[str, dict[str, Any]] = {
    # Every player and browser shows this form, which wants even sizes.
    ".mp4": {"codec": "libx264", "pix_fmt_out": "yuv420p", "quality": 7},
    # Colours are chosen for each video, or gradients would show bands.
    ".gif": {
        "codec": "gif",
        "pix_fmt_out": "pal8",
        "output_params": ["-vf", "split[a][b];[a]palettegen[p];[b][p]paletteuse", "-loop", "0"],
    },
}


def check_video(path: Path) -> None:
    """Before anything is rolled out: whether a video of that name can be written."""
    if path.suffix.lower() not in _ENCODERS:
        raise ConfigError(f"--video is {str(path)!r}; its name should end in {' or '.join(_ENCODERS)}")
    if not path.absolute().parent.is_dir():
        raise RunError(f"cannot write {path}: there is no directory {path.absolute().parent}")
    _ffmpeg()


class Video:
    """An mp4 or gif in the making; it has its name once it is whole, and a broken one leaves nothing."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._unfinished = path.with_name(f".{path.stem}.unfinished{path.suffix.lower()}")
        self._writer: Generator[None, bytes | None, None] | None = None
        self._shape: tuple[int, ...] = ()
        self._shown, self._every = 0, 1

    def show(self, picture: Array, per_second: float) -> None:
        """The next picture, of so many a second."""
        picture = _enlarged(np.asarray(picture))
        if self._writer is None:
            self._every = math.ceil(per_second / _FASTEST)
            self._writer, self._shape = self._open(picture, per_second / self._every), picture.shape
        if picture.shape != self._shape:
            raise RunError(f"a picture for {self._path} is {picture.shape}, and the ones before were {self._shape}")
        if self._shown % self._every == 0:
            self._writer.send(picture.tobytes())
        self._shown += 1

    def __enter__(self) -> Video:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writer is None:
            return
        self._writer.close()
        if kind is None:
            self._unfinished.replace(self._path)
        else:
            self._unfinished.unlink(missing_ok=True)

    def _open(self, picture: Array, per_second: float) -> Generator[None, bytes | None, None]:
        height, width = picture.shape[:2]
        # A place that cannot be written to is told better by the system than by ffmpeg.
        self._unfinished.touch()
        writer: Generator[None, bytes | None, None] = _ffmpeg().write_frames(
            str(self._unfinished),
            (width, height),
            fps=per_second,
            macro_block_size=1,
            ffmpeg_log_level="error",
            **_ENCODERS[self._path.suffix.lower()],
        )
        writer.send(None)
        return writer


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
