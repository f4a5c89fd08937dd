"""What memory there is, and what of it this process has; Linux says so in files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path("/")


@dataclass(frozen=True)
class Memory:
    """Of this process, and of what bounds it most tightly: the machine or a control group. None where nobody says."""

    process_bytes: int
    left_bytes: int | None = None
    total_bytes: int | None = None

    @property
    def used_share(self) -> float | None:
        if self.left_bytes is None or not self.total_bytes:
            return None
        return 1 - self.left_bytes / self.total_bytes


def measure_memory(root: Path = _ROOT) -> Memory:
    left, total = min(_bounds(root), default=(None, None))
    return Memory(resident_memory(root), left, total)


def available_memory(root: Path = _ROOT) -> int | None:
    """Bytes that this process may still take: of the machine, or of its control group; None where nobody says."""
    return min((left for left, _ in _bounds(root)), default=None)


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


def _bounds(root: Path) -> Iterator[tuple[int, int]]:
    """What is left, and of how much, by each that sets a bound."""
    for left, total in (*_machine(root), *_control_groups(root)):
        yield max(0, left), total


def _machine(root: Path) -> Iterator[tuple[int, int]]:
    sizes = {name: rest for name, _, rest in (line.partition(":") for line in _lines(root / "proc/meminfo"))}
    if "MemAvailable" in sizes and "MemTotal" in sizes:
        yield 1024 * int(sizes["MemAvailable"].split()[0]), 1024 * int(sizes["MemTotal"].split()[0])


def _control_groups(root: Path) -> Iterator[tuple[int, int]]:
    """Of each group that the process is in; pages of files can be taken back, so they count as left."""
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
                yield from _group(folder, limit, used)


def _group(folder: Path, limit: str, used: str) -> Iterator[tuple[int, int]]:
    limits, uses = _lines(folder / limit), _lines(folder / used)
    if limits and uses and limits[0] != "max":
        files = [int(line.split()[1]) for line in _lines(folder / "memory.stat") if line.startswith("inactive_file ")]
        yield int(limits[0]) - int(uses[0]) + sum(files), int(limits[0])


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
