"""Measure the overhead and the learning results of the agent in the block cache example (cpp/examples/block_cache).

    make cpp
    python benchmarks/block_cache.py [overhead] [learning] [--rounds N] [--requests N] [--plot FILE.png]

Without arguments both measurements run, in about twenty minutes. All threads of the example, including those of the
client library, are pinned to one core. The server and its learner use another core and run with every policy, so the
difference between the policies is the cost of the client library only.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).resolve().parents[1] / "cpp" / "examples" / "block_cache"
SYSTEM_CORE, SERVER_CORE = "0", "1"
WARM_UP_ROUNDS = 2
ROUNDS_PER_BATCH = 10
COMPARISONS = (
    ("rl4sys", "lru", "goal: at most 2 %"),
    ("rl4sys", "quiet", "goal: at most 1 %"),
    ("quiet", "lru", "the decisions alone"),
)
STUDENT_95 = dict(
    enumerate((12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13), 1)
)
"""Student t quantiles of a 95 % interval by degrees of freedom."""
WINDOWS = 8
Slice = dict[str, Any]
Slices = dict[str, list[Slice]]
Report = dict[str, Any]
Times = dict[str, list[float]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measurement", nargs="*", help="overhead or learning")
    parser.add_argument("--program", type=Path, default=Path("build/cpp/examples/block_cache/block_cache"))
    parser.add_argument("--rounds", type=int, default=15, help="rounds for the overhead in wall time")
    parser.add_argument(
        "--processes", type=int, default=10, choices=range(2, 17), help="processes for the overhead in CPU time"
    )
    parser.add_argument("--short-rounds", type=int, default=150, help="rounds per process for the overhead in CPU time")
    parser.add_argument("--requests", type=int, default=2_000_000, help="requests per policy for learning")
    parser.add_argument("--plot", type=Path, help="write a plot of the learning curves")
    options = parser.parse_args()
    for name in options.measurement or ("overhead", "learning"):
        {"overhead": overhead, "learning": learning}[name](options)


def overhead(options: argparse.Namespace) -> None:
    """Measure the cost of the agent in shadow mode, in which the system does the same work with every policy.

    The policies lru, quiet and rl4sys alternate within one process in rotating order. They therefore share the store,
    the heap and the memory layout, and run under the same load on the machine. Wall time is compared in slices of
    seconds; the threads of the client finish their work between two slices. CPU time is more reliable on a shared
    machine: the CPU time of the worker threads is compared in slices of a tenth of a second. The share of the client's
    threads, measured in the long slices, is added to the policy rl4sys. The memory layout changes results by half a
    percent between processes, so the mean over several processes is reported.
    """
    title("overhead in shadow mode: no RL (lru), decisions without sending (quiet), live (rl4sys)")
    arms = ["--policy", "lru,quiet,rl4sys", "--shadow"]
    with server() as address:
        long = run(options.program, *arms, *rounds_of(50_000, options.rounds), "--settle", "--server-address", address)
        slices = [*arms, *rounds_of(2_500, options.short_rounds), "--server-address", address]
        short = [run(options.program, *slices) for _ in range(options.processes)]
    for name, slices in long["policies"].items():
        print(f"  {name:<8} {typical(slices)}")
    print("  additional wall time: median over rounds [95 % interval] (quartiles)")
    compare(times(long))
    share = background_share(long)
    print(f"  additional CPU time: mean over {len(short)} processes [95 % interval] (each)")
    compare_processes([processor_times(report, share) for report in short])
    print(f"  agent: {long['agent']}")


def rounds_of(requests: int, rounds: int) -> list[str]:
    return ["--slice", str(requests), "--requests", str(requests * (rounds + WARM_UP_ROUNDS))]


def typical(slices: list[Slice]) -> str:
    def median(value: Callable[[Slice], float]) -> float:
        return statistics.median(map(value, slices[WARM_UP_ROUNDS:]))

    p50, p99 = median(lambda part: part["p50_microseconds"]), median(lambda part: part["p99_microseconds"])
    return (
        f"{median(throughput):9.0f} requests/s {median(cpu_microseconds):7.2f} µs cpu/request"
        f"   hits {100 * median(hit_rate):.2f} %   get p50 {p50:.1f} µs  p99 {p99:.1f} µs"
    )


def times(report: Report) -> Times:
    """Return the wall time of each round by policy."""
    return {name: [part["seconds"] for part in slices[WARM_UP_ROUNDS:]] for name, slices in report["policies"].items()}


def processor_times(report: Report, background: float) -> Times:
    """Return the CPU time of each batch by policy: that of the workers, and for rl4sys also of the client's threads."""
    return {
        name: sums([part["worker_cpu_seconds"] * (1 + background * (name == "rl4sys")) for part in slices])
        for name, slices in report["policies"].items()
    }


def background_share(report: Report) -> float:
    """Return the CPU time of the client's threads with the policy rl4sys, relative to that of the workers."""

    def total(policy: str, key: str) -> float:
        return float(sum(part[key] for part in report["policies"][policy][WARM_UP_ROUNDS:]))

    # With every policy, threads start and end and a connection is kept alive, so the time of lru is subtracted.
    extra = total("rl4sys", "background_cpu_seconds") - total("lru", "background_cpu_seconds")
    share = extra / total("rl4sys", "worker_cpu_seconds")
    print(f"  CPU time of the client's threads relative to the workers: {percent(share)}")
    return share


def sums(values: list[float]) -> list[float]:
    measured = values[WARM_UP_ROUNDS:]
    return [sum(measured[n : n + ROUNDS_PER_BATCH]) for n in range(0, len(measured), ROUNDS_PER_BATCH)]


def compare(used: Times) -> None:
    """Print the additional time of one policy compared with another for the same requests."""
    for one, other, remark in COMPARISONS:
        more = ratios(used, one, other)
        low, middle, high = statistics.quantiles(more, n=4)
        figures = f"{percent(middle)} {interval_of_median(more)} ({percent(low)}, {percent(high)})"
        print(f"    {one:>6} against {other:<5} {figures}   {remark}")


def compare_processes(used: list[Times]) -> None:
    """Print the additional CPU time as the mean over processes of the median over their batches."""
    for one, other, remark in COMPARISONS:
        medians = [statistics.median(ratios(times, one, other)) for times in used]
        each = ", ".join(percent(median) for median in medians)
        figures = f"{percent(statistics.mean(medians))} {interval_of_mean(medians)} ({each})"
        print(f"    {one:>6} against {other:<5} {figures}   {remark}")


def ratios(used: Times, one: str, other: str) -> list[float]:
    return sorted(a / b - 1 for a, b in zip(used[one], used[other], strict=True))


def interval_of_mean(values: Sequence[float]) -> str:
    """Return the 95 % confidence interval of the mean, assuming normally distributed values."""
    reach = STUDENT_95[len(values) - 1] * statistics.stdev(values) / math.sqrt(len(values))
    middle = statistics.mean(values)
    return f"[{percent(middle - reach)}, {percent(middle + reach)}]"


def interval_of_median(ordered: Sequence[float]) -> str:
    """Return the distribution-free 95 % confidence interval of the median, from order statistics."""
    reach = 0.98 * math.sqrt(len(ordered))
    first, last = (round(len(ordered) / 2 + side * reach) for side in (-1, 1))
    return f"[{percent(ordered[max(0, first - 1)])}, {percent(ordered[min(last, len(ordered) - 1)])}]"


def learning(options: argparse.Namespace) -> None:
    """Measure the hit rates of a policy that is trained from scratch and of two fixed rules."""
    results = {}
    for workload, remark in {
        "mixed": "popular blocks, moving sessions, scans: no simple rule fits all requests",
        "zipf": "popular blocks only: the frequency of a block is sufficient",
        "sessions": "a moving working set that fits: LRU is optimal",
    }.items():
        title(f"learning: {workload} ({remark})")
        results[workload] = policies = learn(options, workload)
        show(policies)
    if options.plot:
        plot(results, options.plot)


def learn(options: argparse.Namespace, workload: str) -> Slices:
    arguments = ["--workload", workload, "--requests", str(options.requests), "--slice", "50000"]
    rules = run(options.program, *arguments, "--policy", "lru,fixed")
    with server() as address:
        trained = run(options.program, *arguments, "--policy", "rl4sys", "--server-address", address)
    print(f"  agent: {trained['agent']}")
    return {**rules["policies"], **trained["policies"]}


def show(policies: Slices) -> None:
    for name, slices in policies.items():
        width = -(-len(slices) // WINDOWS)
        windows = [slices[n : n + width] for n in range(0, len(slices), width)]
        rates = " ".join(f"{100 * statistics.mean(map(hit_rate, window)):5.1f}" for window in windows)
        last = windows[-1]
        print(
            f"  {name:<8} hits %: {rates}   at the end {statistics.median(map(throughput, last)):6.0f} requests/s"
            f" {statistics.median(map(cpu_microseconds, last)):6.2f} µs cpu/request"
        )
    seconds = [part["seconds"] for part in policies["rl4sys"]]
    print(f"  a column is {width} slices of 50,000 requests; rl4sys took {sum(seconds):.0f} s in total")


def plot(results: dict[str, Slices], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(results), figsize=(5 * len(results), 3.5), sharex=True)
    for axis, (workload, policies) in zip(axes, results.items(), strict=True):
        for name, slices in policies.items():
            requests = [sum(part["requests"] for part in slices[: n + 1]) / 1e6 for n in range(len(slices))]
            axis.plot(requests, [100 * hit_rate(part) for part in slices], label=name)
        axis.set(title=workload, xlabel="million requests", ylabel="hits %")
    axes[0].legend()
    figure.tight_layout()
    figure.savefig(path)
    print(f"\n{path}")


@contextmanager
def server() -> Iterator[str]:
    """Run a server process on the server's core; yield its address."""
    with tempfile.TemporaryDirectory(prefix="block-cache-benchmark-") as root:
        command = [sys.executable, "-m", "rl4sys", "serve", "--port", "0", "--root", root]
        process = subprocess.Popen(
            ["taskset", "-c", SERVER_CORE, *command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[3]
        finally:
            process.terminate()
            process.wait(120)


def run(program: Path, *arguments: str) -> Report:
    """Run the system on its core and return its report."""
    # Writing the block store takes seconds, so its directory is kept between runs.
    directory = Path(tempfile.gettempdir()) / f"block-cache-benchmark-store-{os.getuid()}"
    given = ["--directory", str(directory), "--config", str(SOURCE / "client.json"), "--threads", "2", "--json"]
    command = ["taskset", "-c", SYSTEM_CORE, str(program), *given, *arguments]
    report: Report = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout)
    return report


def throughput(part: Slice) -> float:
    return float(part["requests"] / part["seconds"])


def cpu_microseconds(part: Slice) -> float:
    return float(1e6 * (part["worker_cpu_seconds"] + part["background_cpu_seconds"]) / part["requests"])


def hit_rate(part: Slice) -> float:
    return float(part["hits"] / part["requests"])


def percent(value: float) -> str:
    return f"{100 * value:+.2f} %"


def title(text: str) -> None:
    print(f"\n{text}", flush=True)


if __name__ == "__main__":
    main()
