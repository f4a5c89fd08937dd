"""Check of the RAM a buffer needs against the RAM available."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rl4sys.buffers.base import AutoSize
from rl4sys.errors import ConfigError
from rl4sys.learner.footprint import BufferFootprint, LearnerCost, buffer_footprint, choose_size
from rl4sys.machine import MemoryUsage, available_memory, format_bytes, measure_memory_usage
from rl4sys.runs.config import parse_experiment
from rl4sys.runs.run import Run
from rl4sys.spec import Box, Discrete, Spec
from rl4sys.training.loop import TrainingLoop

from ..conftest import SilentObserver, small_config


def machine(root: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return root


MEMINFO = {"proc/meminfo": "MemTotal: 2000 kB\nMemAvailable: 1000 kB\n"}
CASES: dict[str, tuple[dict[str, str], int | None]] = {
    "nothing known": ({}, None),
    "a machine": (MEMINFO, 1_024_000),
    "a cgroup without a limit": (
        {**MEMINFO, "proc/self/cgroup": "0::/job\n", "sys/fs/cgroup/job/memory.max": "max\n"},
        1_024_000,
    ),
    "a cgroup": (
        {
            **MEMINFO,
            "proc/self/cgroup": "0::/job\n",
            "sys/fs/cgroup/job/memory.max": "5000\n",
            "sys/fs/cgroup/job/memory.current": "2000\n",
            "sys/fs/cgroup/job/memory.stat": "anon 5\ninactive_file 500\n",
        },
        3500,
    ),
    "a cgroup inside a smaller cgroup": (
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
def test_available_memory_is_the_smallest_limit(tmp_path: Path, case: str) -> None:
    files, expected = CASES[case]
    assert available_memory(machine(tmp_path, files)) == expected


def test_available_memory_of_this_machine_is_unknown_or_plausible() -> None:
    left = available_memory()
    assert left is None or left > 10**6


def test_memory_usage_is_relative_to_the_smallest_limit(tmp_path: Path) -> None:
    files, left = CASES["a cgroup"]
    machine(tmp_path, {**files, "proc/self/status": "Name: py\nVmRSS:\t 7 kB\n"})
    found = measure_memory_usage(tmp_path)
    assert (found.available_bytes, found.total_bytes) == (left, 5000)
    assert found.process_bytes == 7 * 1024
    assert found.used_share == pytest.approx(0.3)
    assert MemoryUsage(1).used_share is None
    assert measure_memory_usage().process_bytes > 10**6


IMAGES = Spec({"image": Box((4, 84, 84), dtype="uint8")}, Discrete(4))


def footprint(*changes: str) -> BufferFootprint:
    network = "network.critic={type: cnn}"
    return buffer_footprint(IMAGES, small_config("dqn", "buffer.size=1000000", network, *changes).learner("cpu"))


def test_buffer_that_fits_is_accepted() -> None:
    spec, settings = IMAGES, footprint().settings
    BufferFootprint(spec, settings, LearnerCost(1, 100)).check(None)
    BufferFootprint(spec, settings, LearnerCost(1, 100)).check(100)
    BufferFootprint(spec, settings, LearnerCost(1, 10**12, disk_bytes=10**12 - 5)).check(100)


def test_oversized_buffer_is_rejected_with_settings_that_fit() -> None:
    with pytest.raises(
        ConfigError, match=r"the buffer needs 28.\d GB of RAM when full, but only 10.0 GB are available; "
    ) as error:
        footprint().check(10_000_000_000)
    advice = str(error.value).partition("settings that fit: ")[2].split(", or ")
    assert advice == [
        "buffer.size=270000 (7.8 GB)",
        "buffer.unstack=true if images are stacked frames (7.2 GB)",
        "buffer.storage=disk (32.5 MB)",
    ]
    for setting in advice:
        footprint(setting.split()[0]).check(10_000_000_000)


def test_only_fitting_settings_are_suggested() -> None:
    assert footprint().advice(1_000_000_000).split(", or ")[1:] == ["buffer.storage=disk (32.5 MB)"]
    assert footprint("buffer.storage=disk").advice(10_000_000) == "settings that fit: buffer.size=240000 (7.7 MB)"
    assert footprint().advice(10) == "lower buffer.size or the sizes of its pools, or use a machine with more RAM"


@pytest.mark.parametrize("available", [10_000_000_000, 1_000_000_000, 50_000_000])
def test_auto_size_fits_the_available_memory(available: int) -> None:
    auto = footprint("buffer.size=auto")
    size, message = choose_size(auto, available)
    assert 0 < size < auto.settings.buffer.size == 100_000 or (size, available) == (100_000, 10_000_000_000)
    assert footprint(f"buffer.size={size}").memory_bytes <= 0.8 * available
    if size < 100_000:
        assert footprint(f"buffer.size={int(1.2 * size)}").memory_bytes > 0.8 * available
        assert message.startswith(
            f"buffer.size: auto selects {size:,} steps; the default of 100,000 steps needs 2.9 GB, but "
        )
    assert f"{format_bytes(available)} of RAM are available" in message


def test_auto_size_is_the_default_if_it_fits_or_the_memory_is_unknown() -> None:
    size, message = choose_size(footprint("buffer.size=auto"), None)
    assert (size, message) == (
        100_000,
        "buffer.size: auto selects 100,000 steps, the default of dqn; the available RAM is unknown",
    )


def test_auto_size_obeys_a_limit_on_ram_and_disk() -> None:
    size, message = choose_size(footprint("buffer.size=auto", "buffer.storage=disk"), 10**12, 10**9)
    assert footprint(f"buffer.size={size}", "buffer.storage=disk").cost.buffer_bytes <= 10**9
    assert 25_000 < size < 40_000
    assert "the maximum is 1.0 GB" in message


def test_auto_size_of_a_rollout_is_at_most_the_default() -> None:
    settings = small_config("ppo", "buffer.size=auto").learner("cpu")
    needs = buffer_footprint(IMAGES, settings)
    assert choose_size(needs, 10**12)[0] == 2048
    assert 0 < choose_size(needs, 10**7)[0] < 200


def test_auto_size_is_rejected_if_no_buffer_fits() -> None:
    with pytest.raises(ConfigError, match=r"buffer\.size is auto, but no buffer fits: 0\.1 kB of RAM are available"):
        choose_size(footprint("buffer.size=auto"), 100)


def test_auto_size_of_a_union_is_rejected() -> None:
    with pytest.raises(ConfigError, match=r"buffer\.size is 'auto', which a union of pools does not support"):
        small_config("dqn", "buffer={type: union, size: auto, pools: {own: {share: 1, buffer: {}}}}")


def test_auto_size_stays_in_the_settings_until_a_size_is_chosen() -> None:
    config = small_config("dqn", "buffer.size=auto")
    assert config.to_settings()["buffer"]["size"] == "auto"
    assert isinstance(parse_experiment(config.to_settings()).buffer.size, AutoSize)
    assert config.with_buffer_size(700).to_settings()["buffer"]["size"] == 700


def test_resumed_run_keeps_the_chosen_size(make_loop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rl4sys.training.setup.available_memory", lambda: 300_000)
    observer = SilentObserver()
    first: TrainingLoop = make_loop("dqn", "buffer.size=auto", "training.total_timesteps=128", observer=observer)
    first.train()
    run = first._run
    stored = Run.open(run.path).config.buffer.size
    assert type(stored) is int
    assert 100 < stored < 100_000
    assert run.provenance()["config"]["buffer"]["size"] == stored == run.directory.config().settings["buffer"]["size"]
    assert any(
        note.startswith(f"buffer.size: auto selects {stored:,} steps; the default of 100,000")
        for note in observer.notes
    )
    monkeypatch.setattr("rl4sys.training.setup.available_memory", lambda: 10**12)
    again: TrainingLoop = make_loop("dqn", run=Run.open(run.path))
    again.resume()
    assert again._config.buffer.size == stored


def test_remaining_bytes_shrink_as_the_buffer_fills() -> None:
    full = footprint().memory_bytes
    remaining = [footprint().remaining_bytes(steps) for steps in (0, 500_000, 1_000_000, 2_000_000)]
    assert remaining == [full, full // 2, 0, 0]


def test_bytes_are_formatted_with_units() -> None:
    assert [format_bytes(n) for n in (1, 12_345, 7_000_000, 10**12)] == ["0.0 kB", "12.3 kB", "7.0 MB", "1.0 TB"]


def test_run_with_oversized_buffer_is_rejected_at_start(make_loop: object) -> None:
    with pytest.raises(ConfigError, match="of RAM when full"):
        make_loop("dqn", "buffer.size=1000000000")  # type: ignore[operator]


def test_ram_of_a_large_buffer_is_reported_at_start(make_loop: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rl4sys.training.setup._LARGE_BUFFER", 1000)
    observer = SilentObserver()
    trainer: TrainingLoop = make_loop("dqn", observer=observer)  # type: ignore[operator]
    assert observer.notes[-1].startswith("the buffer takes ")
    assert trainer._config == small_config("dqn")
