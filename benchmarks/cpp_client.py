"""Measure the C++ client and, in the same run, the Python client and a client that decides in eager torch.

    python benchmarks/cpp_client.py [decision] [faults]

Run `make cpp` first. Compare ratios, because absolute times depend on the machine and its load.
"""

from __future__ import annotations

import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from live import Killer, agent, server, settings, start_server, step_times, title

BUILD = Path(__file__).parents[1] / "build" / "cpp"


def main() -> None:
    measurements: dict[str, Callable[[], None]] = {"decision": decision, "faults": faults}
    for name in sys.argv[1:] or measurements:
        measurements[name]()


def decision() -> None:
    """Measure the time of single steps while the client is connected to a server that learns."""
    from per_step_peer import TorchClient

    title("decision path, 8-64-64-4, sampled; three alternating rounds")
    rounds: list[dict[str, Any]] = []
    python: list[float] = []
    torch: list[float] = []
    with server() as address, agent(address, "in_python") as ours, client_file(address, "in_cpp") as config:
        peer = TorchClient()
        for _ in range(3):
            command = [str(BUILD / "benchmarks" / "decision"), str(config), "1000000"]
            rounds.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
            python += step_times(ours, 200_000)
            torch += step_times(peer, 4_000)
    for part in ("decision", "recording", "clock"):
        figures = {name: statistics.median(each[part][name] for each in rounds) / 1000 for name in rounds[0][part]}
        shown = "   ".join(f"{name} {value:6.3f} µs" for name, value in figures.items())
        print(f"  C++ {part:<20} {shown}")
    whole = statistics.median(each["whole_step"] for each in rounds) / 1000
    print(f"  C++ whole step, mean     {whole:.3f} µs (over 1,000,000 steps without timing each)")
    print(
        f"  Python whole step        p50 {statistics.median(python):6.3f} µs, {statistics.median(python) / whole:.1f}x"
    )
    print(f"  torch, eager             p50 {statistics.median(torch):6.1f} µs, {statistics.median(torch) / whole:.0f}x")
    resident = max(each["resident_kilobytes"] for each in rounds) / 1024
    print(f"  RAM after 2,000,000 steps at full speed, including unsent data: {resident:.1f} MB")


def faults() -> None:
    """Measure the decision times of a C++ program while the server is unavailable or killed repeatedly."""
    title("faults: 2 threads of a C++ system, 20 s each, with the server up, away, and killed every 8 s")
    with tempfile.TemporaryDirectory(dir=".", prefix=".live-benchmark-") as root:
        process, address = start_server(root, "0")
        with client_file(address, "faults", buffer={"size": 256}, observation=3, action=2) as config:
            show("up", drive(config))
            process.kill()
            process.wait()
            show("away from the start", drive(config))
            killer = Killer(root, address.rpartition(":")[2], every_seconds=8.0)
            killer.start()
            show("killed every 8 s", drive(config))
            killer.stop()


def drive(config: Path) -> dict[str, Any]:
    command = [str(BUILD / "tests" / "drive"), str(config), "", str(10**9), "2", "200"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    time.sleep(20.0)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=120)
    seen: dict[str, Any] = json.loads(out)
    return seen


def show(name: str, seen: dict[str, Any]) -> None:
    times = seen["microseconds"]
    print(
        f"  {name:<20} p50 {times['p50']:5.1f} µs  p99 {times['p99']:6.1f} µs  p99.99 {times['p99.99']:7.1f} µs  "
        f"max {times['max']:8.1f} µs;  {seen['decisions']:,} decisions, over 1 ms: {seen['over_1_ms']}, of these "
        f"sleeping voluntarily: {seen['waited_over_1_ms']}; dropped {seen['dropped_steps']}, "
        f"unsent {seen['steps_waiting']}; at most {seen['peak_kilobytes'] / 1024:.1f} MB"
    )


@contextmanager
def client_file(address: str, client_id: str, **changes: Any) -> Iterator[Path]:
    config = {**settings(client_id), "client_id": client_id, "observation": 8, "action": 4}
    config |= {"server": {"address": address, "timeout_seconds": 60}, **changes}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "client.json"
        path.write_text(json.dumps(config))
        yield path


if __name__ == "__main__":
    main()
