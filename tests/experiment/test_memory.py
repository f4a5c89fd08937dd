"""Whether a buffer fits, before it is filled."""

from __future__ import annotations

from pathlib import Path

import pytest

from rl4sys.errors import ConfigError
from rl4sys.experiment.machine import Memory, available_memory, in_words, measure_memory
from rl4sys.experiment.memory import Needs, needs_of
from rl4sys.learner import Cost
from rl4sys.spec import Box, Discrete, Spec
from rl4sys.trainer import Trainer

from ..conftest import Silent, small_config


def machine(root: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return root


MEMINFO = {"proc/meminfo": "MemTotal: 2000 kB\nMemAvailable: 1000 kB\n"}
CASES: dict[str, tuple[dict[str, str], int | None]] = {
    "nothing known": ({}, None),
    "a machine": (MEMINFO, 1_024_000),
    "a group without a limit": (
        {**MEMINFO, "proc/self/cgroup": "0::/job\n", "sys/fs/cgroup/job/memory.max": "max\n"},
        1_024_000,
    ),
    "a group": (
        {
            **MEMINFO,
            "proc/self/cgroup": "0::/job\n",
            "sys/fs/cgroup/job/memory.max": "5000\n",
            "sys/fs/cgroup/job/memory.current": "2000\n",
            "sys/fs/cgroup/job/memory.stat": "anon 5\ninactive_file 500\n",
        },
        3500,
    ),
    "a group within a smaller one, seen from inside": (
        {
            **MEMINFO,
            "proc/self/cgroup": "9:cpu:/\n4:memory:/outer/inner\n",
            "sys/fs/cgroup/memory/outer/memory.limit_in_bytes": "100",
            "sys/fs/cgroup/memory/outer/memory.usage_in_bytes": "120",
            "sys/fs/cgroup/memory/outer/inner/memory.limit_in_bytes": "1000",
            "sys/fs/cgroup/memory/outer/inner/memory.usage_in_bytes": "120",
        },
        0,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_left_is_the_least_that_anyone_allows(tmp_path: Path, case: str) -> None:
    files, expected = CASES[case]
    assert available_memory(machine(tmp_path, files)) == expected


def test_this_machine_says_what_is_left() -> None:
    left = available_memory()
    assert left is None or left > 10**6


def test_memory_is_measured_against_what_bounds_it_most_tightly(tmp_path: Path) -> None:
    files, left = CASES["a group"]
    machine(tmp_path, {**files, "proc/self/status": "Name: py\nVmRSS:\t 7 kB\n"})
    found = measure_memory(tmp_path)
    assert (found.left_bytes, found.total_bytes) == (left, 5000)
    assert found.process_bytes == 7 * 1024
    assert found.used_share == pytest.approx(0.3)
    assert Memory(1).used_share is None
    assert measure_memory().process_bytes > 10**6


IMAGES = Spec({"image": Box((4, 84, 84), dtype="uint8")}, Discrete(4))


def needs(*changes: str) -> Needs:
    network = "network.critic={type: cnn}"
    return needs_of(IMAGES, small_config("dqn", "buffer.size=1000000", network, *changes).learner("cpu"))


def test_a_buffer_that_fits_is_taken_as_it_is() -> None:
    spec, settings = IMAGES, needs().settings
    Needs(spec, settings, Cost(1, 100)).check(None)
    Needs(spec, settings, Cost(1, 100)).check(100)
    Needs(spec, settings, Cost(1, 10**12, disk_bytes=10**12 - 5)).check(100)


def test_a_buffer_too_large_is_refused_with_settings_that_fit() -> None:
    with pytest.raises(
        ConfigError, match=r"a buffer of 28.\d GB of memory when full, and 10.0 GB are left; "
    ) as refused:
        needs().check(10_000_000_000)
    advice = str(refused.value).partition("what would fit: ")[2].split(", or ")
    assert advice == [
        "buffer.size=270000 (7.8 GB)",
        "buffer.unstack=true where images are stacked frames (7.2 GB)",
        "buffer.storage=disk (32.5 MB)",
    ]
    for setting in advice:
        needs(setting.split()[0]).check(10_000_000_000)


def test_only_what_fits_is_advised() -> None:
    assert needs().advice(1_000_000_000).split(", or ")[1:] == ["buffer.storage=disk (32.5 MB)"]
    assert needs("buffer.storage=disk").advice(10_000_000) == "what would fit: buffer.size=240000 (7.7 MB)"
    assert needs().advice(10) == "lower buffer.size, or that of its pools, or use a machine with more memory"


def test_a_buffer_still_takes_less_the_fuller_it_is() -> None:
    full = needs().memory_bytes
    assert [needs().still(steps) for steps in (0, 500_000, 1_000_000, 2_000_000)] == [full, full // 2, 0, 0]


def test_sizes_are_told_in_words() -> None:
    assert [in_words(n) for n in (1, 12_345, 7_000_000, 10**12)] == ["0.0 kB", "12.3 kB", "7.0 MB", "1.0 TB"]


def test_a_run_that_cannot_be_held_is_refused_before_it_starts(make_trainer: object) -> None:
    with pytest.raises(ConfigError, match="of memory when full"):
        make_trainer("dqn", "buffer.size=1000000000")  # type: ignore[operator]


def test_a_run_with_a_large_buffer_says_so(make_trainer: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rl4sys.trainer._LARGE_BUFFER", 1000)
    observer = Silent()
    trainer: Trainer = make_trainer("dqn", observer=observer)  # type: ignore[operator]
    assert observer.notes[-1].startswith("the buffer takes ")
    assert trainer._config == small_config("dqn")
