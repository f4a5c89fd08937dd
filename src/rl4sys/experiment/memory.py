"""Whether a learner's buffer fits into the memory that is left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rl4sys.errors import ConfigError
from rl4sys.learner import Cost

_ROOT = Path("/")


def check_memory(cost: Cost, available: int | None) -> None:
    """Refuse what would be killed for want of memory hours later, when it is full."""
    needed = cost.buffer_bytes - cost.disk_bytes
    if available is None or needed <= available:
        return
    raise ConfigError(
        f"a buffer of {in_words(needed)} of memory when full, and {in_words(available)} are left; lower buffer.size, "
        "set buffer.storage: disk where the buffer has it, or buffer.unstack: true for stacked images"
    )


def available_memory(root: Path = _ROOT) -> int | None:
    """Bytes that this process may still take: of the machine, or of its control group; None where nobody says."""
    left = [*_machine(root), *_control_groups(root)]
    return max(0, min(left)) if left else None


def resident_memory(root: Path = _ROOT) -> int:
    """Bytes of memory that this process holds; 0 where nobody says."""
    for line in _lines(root / "proc/self/status"):
        name, _, value = line.partition(":")
        if name == "VmRSS":
            return 1024 * int(value.split()[0])
    return 0


def in_words(size: int) -> str:
    """Bytes as people say them."""
    for power, unit in ((4, "TB"), (3, "GB"), (2, "MB")):
        if size >= 1000**power:
            return f"{size / 1000**power:.1f} {unit}"
    return f"{size / 1000:.1f} kB"


def _machine(root: Path) -> Iterator[int]:
    for line in _lines(root / "proc/meminfo"):
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            yield 1024 * int(value.split()[0])


def _control_groups(root: Path) -> Iterator[int]:
    """What each group that the process is in has left; pages of files can be taken back, so they count as left."""
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, group = line.split(":", 2)
        if controllers == "":
            base, limit, used = root / "sys/fs/cgroup", "memory.max", "memory.current"
        elif "memory" in controllers.split(","):
            base, limit, used = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        inner = base / group.lstrip("/")
        for folder in (inner, *inner.parents):
            if folder.is_relative_to(base):
                yield from _left(folder, limit, used)


def _left(folder: Path, limit: str, used: str) -> Iterator[int]:
    limits, uses = _lines(folder / limit), _lines(folder / used)
    if limits and uses and limits[0] != "max":
        files = [int(line.split()[1]) for line in _lines(folder / "memory.stat") if line.startswith("inactive_file ")]
        yield int(limits[0]) - int(uses[0]) + sum(files)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
