"""RAM and CPU usage, read from /proc and the control groups of Linux."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path("/")


@dataclass(frozen=True)
class MemoryUsage:
    """RAM used by this process, and free and total RAM of the machine or its most limited control group."""

    process_bytes: int
    available_bytes: int | None = None
    total_bytes: int | None = None

    @property
    def used_share(self) -> float | None:
        if self.available_bytes is None or not self.total_bytes:
            return None
        return 1 - self.available_bytes / self.total_bytes


def measure_memory_usage(root: Path = _ROOT) -> MemoryUsage:
    """Return the RAM usage of this process and its limit. Tests pass another root directory than ``/``."""
    left, total = min(_limits(root), default=(None, None))
    return MemoryUsage(resident_memory(root), left, total)


def available_memory(root: Path = _ROOT) -> int | None:
    """Return the bytes of RAM that this process can still allocate, given all limits; None if unknown."""
    return min((left for left, _ in _limits(root)), default=None)


def resident_memory(root: Path = _ROOT) -> int:
    """Return the resident set size of this process in bytes; 0 if unknown."""
    for line in _lines(root / "proc/self/status"):
        name, _, value = line.partition(":")
        if name == "VmRSS":
            return 1024 * int(value.split()[0])
    return 0


@dataclass(frozen=True)
class ProcessUsage:
    """CPU time and RAM of a process, including its threads but not its child processes."""

    cpu_seconds: float
    age_seconds: float
    """Seconds since the process was started."""
    resident_bytes: int

    def cpu_share(self, before: ProcessUsage | None) -> float | None:
        """Return the mean number of CPU cores used since ``before`` or the start; None if no time has passed."""
        seconds = self.age_seconds - (before.age_seconds if before else 0.0)
        used = self.cpu_seconds - (before.cpu_seconds if before else 0.0)
        return used / seconds if seconds > 0 else None


def process_usage(pid: int, root: Path = _ROOT) -> ProcessUsage | None:
    """Return the usage of another process; None if the process does not exist or the system has no /proc."""
    lines, uptime = _lines(root / f"proc/{pid}/stat"), _lines(root / "proc/uptime")
    if not lines or not uptime:
        return None
    # The second field, the program name in parentheses, may contain spaces.
    fields = lines[0].rpartition(")")[2].split()
    ticks = os.sysconf("SC_CLK_TCK")
    user, system, started, resident = (int(fields[place]) for place in (11, 12, 19, 21))
    age = float(uptime[0].split()[0]) - started / ticks
    return ProcessUsage((user + system) / ticks, age, resident * os.sysconf("SC_PAGESIZE"))


def format_bytes(size: int) -> str:
    """Format a number of bytes with a decimal unit, such as 1.5 GB."""
    for power, unit in ((4, "TB"), (3, "GB"), (2, "MB")):
        if size >= 1000**power:
            return f"{size / 1000**power:.1f} {unit}"
    return f"{size / 1000:.1f} kB"


def _limits(root: Path) -> Iterator[tuple[int, int]]:
    """Yield available and total bytes of RAM for the machine and for each control group with a limit."""
    for left, total in (*_machine(root), *_control_groups(root)):
        yield max(0, left), total


def _machine(root: Path) -> Iterator[tuple[int, int]]:
    sizes = {name: rest for name, _, rest in (line.partition(":") for line in _lines(root / "proc/meminfo"))}
    if "MemAvailable" in sizes and "MemTotal" in sizes:
        yield 1024 * int(sizes["MemAvailable"].split()[0]), 1024 * int(sizes["MemTotal"].split()[0])


def _control_groups(root: Path) -> Iterator[tuple[int, int]]:
    """Yield available and total bytes of RAM for each control group of this process that has a limit."""
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, group = line.split(":", 2)
        if controllers == "":
            base, limit, used = root / "sys/fs/cgroup", "memory.max", "memory.current"
        elif "memory" in controllers.split(","):
            base, limit, used = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        innermost = base / group.lstrip("/")
        for folder in (innermost, *innermost.parents):
            if folder.is_relative_to(base):
                yield from _control_group(folder, limit, used)


def _control_group(folder: Path, limit: str, used: str) -> Iterator[tuple[int, int]]:
    """Yield available and total bytes of a group. Inactive file pages are reclaimable, so they count as available."""
    limits, uses = _lines(folder / limit), _lines(folder / used)
    if limits and uses and limits[0] != "max":
        files = [int(line.split()[1]) for line in _lines(folder / "memory.stat") if line.startswith("inactive_file ")]
        yield int(limits[0]) - int(uses[0]) + sum(files), int(limits[0])


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
