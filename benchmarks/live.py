"""Measure the Python client and the training server and, in the same run, the baseline in `per_step_peer.py`.

    python benchmarks/live.py [decision] [faults] [ingest] [adoption] [fleet] [footprint] [placement]

Without arguments all measurements run, in about three minutes. Compare ratios, because absolute times depend on the
machine and its load.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import queue
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from rl4sys.client import RL4SysAgent
from rl4sys.spec import Box, Discrete, Spec
from rl4sys.trajectory import Trajectory
from rl4sys.wire.call import Credentials, ask_status, open_channel
from rl4sys.wire.messages import ClientMessage, Hello, ServerMessage, Trajectories
from rl4sys.wire.service import CHANNEL_OPTIONS, CONNECT, PROTOCOL
from rl4sys.wire.trajectories import encode_trajectory

SPEC = Spec({"state": Box((8,))}, Discrete(4))
ROW = np.random.default_rng(0).standard_normal(8).astype(np.float32)
LENGTH = 1000


def main() -> None:
    measurements: dict[str, Callable[[], None]] = {
        "decision": decision,
        "faults": faults,
        "ingest": ingest,
        "adoption": adoption,
        "fleet": fleet,
        "footprint": footprint,
        "placement": placement,
    }
    for name in sys.argv[1:] or measurements:
        measurements[name]()


def decision() -> None:
    """Measure the time of request_for_action, add_to_trajectory and update_reward, with a server that learns."""
    from per_step_peer import TorchClient

    title("decision path: request_for_action + add_to_trajectory + update_reward, 8-64-64-4")
    with server() as address, agent(address, "decision") as ours:
        peer = TorchClient()
        results: dict[str, list[float]] = {"rl4sys": [], "torch, eager": []}
        for _ in range(3):
            results["rl4sys"] += step_times(ours, 200_000)
            results["torch, eager"] += step_times(peer, 4_000)
    medians = {name: statistics.median(times) for name, times in results.items()}
    for name, times in results.items():
        p50, p99, p999 = np.percentile(times, [50, 99, 99.9])
        print(f"  {name:<16} p50 {p50:8.2f} µs   p99 {p99:8.2f} µs   p99.9 {p999:8.2f} µs")
    print(f"  ratio of medians: {medians['torch, eager'] / medians['rl4sys']:.0f}x")


def step_times(client: Any, count: int) -> list[float]:
    """Return the time of each step of the client loop in microseconds."""
    times, trajectory, clock = [0.0] * count, None, time.perf_counter_ns
    for n in range(count):
        start = clock()
        trajectory, action = client.request_for_action(trajectory, ROW)
        client.add_to_trajectory(trajectory, action)
        action.update_reward(1.0)
        times[n] = (clock() - start) / 1000
    return times


def faults() -> None:
    """Measure decision times while the server is running, stopped, or repeatedly killed and restarted."""
    title("faults: 20 s of decisions, about 3000 a second, with the server up, away, and killed every 4 s")
    # Python's garbage collector pauses the process for milliseconds, independent of the server.
    gc.disable()
    with tempfile.TemporaryDirectory(dir=".", prefix=".live-benchmark-") as root:
        process, address = start_server(root, "0")
        with agent(address, "faults", buffer={"size": 256}) as ours:
            show_times("up", paced_times(ours, 20.0))
            process.kill()
            process.wait()
            show_times("away", paced_times(ours, 20.0))
            killer = Killer(root, address.rpartition(":")[2])
            killer.start()
            show_times("killed every 4 s", paced_times(ours, 20.0))
            killer.stop()
            statistics_now = ours.statistics()
    gc.enable()
    print(f"  dropped steps {statistics_now.dropped_steps}, fallback decisions {statistics_now.fallback_decisions}")


class Killer(threading.Thread):
    """Thread that repeatedly starts and kills a server until `stop` is called."""

    def __init__(self, root: str, port: str, every_seconds: float = 4.0) -> None:
        super().__init__(daemon=True)
        self._root, self._port, self._every_seconds = root, port, every_seconds
        self._stopping = threading.Event()

    def run(self) -> None:
        while not self._stopping.is_set():
            process, _ = start_server(self._root, self._port)
            self._stopping.wait(self._every_seconds)
            process.kill()
            process.wait()

    def stop(self) -> None:
        self._stopping.set()
        self.join()


def paced_times(client: Any, seconds: float) -> list[float]:
    times, trajectory, clock, until = [], None, time.perf_counter_ns, time.monotonic() + seconds
    while time.monotonic() < until:
        start = clock()
        trajectory, action = client.request_for_action(trajectory, ROW)
        client.add_to_trajectory(trajectory, action)
        action.update_reward(1.0)
        times.append((clock() - start) / 1000)
        time.sleep(0.0002)
    return times


def show_times(name: str, times: list[float]) -> None:
    p50, p99, p999 = np.percentile(times, [50, 99, 99.9])
    slow = sum(each > 1000 for each in times)
    print(
        f"  {name:<18} p50 {p50:6.1f} µs  p99 {p99:6.1f} µs  p99.9 {p999:7.1f} µs  max {max(times):8.1f} µs  "
        f"over 1 ms: {slow} of {len(times)}"
    )


def ingest() -> None:
    """Measure the number of steps per second that the server receives in one stream and syncs to disk."""
    from per_step_peer import running_peer, send_steps, send_trajectories

    title(f"ingest: one stream, trajectories of {LENGTH} steps, journalled with synchronous=FULL")
    rates: dict[str, list[float]] = {"rl4sys": [], "messages in messages": [], "message per step": []}
    with server() as address, running_peer() as peer:
        for repeat in range(3):
            rates["rl4sys"].append(2000 * LENGTH / pump(address, f"ingest-{repeat}", trajectories=2000))
            rates["messages in messages"].append(200_000 / timed(send_trajectories, peer, 200_000, LENGTH))
            rates["message per step"].append(30_000 / timed(send_steps, peer, 30_000, LENGTH))
    medians = {name: statistics.median(each) for name, each in rates.items()}
    for name, each in rates.items():
        repeats = ", ".join(f"{rate / 1e6:.3f}" for rate in each)
        times = medians["rl4sys"] / medians[name]
        print(f"  {name:<22} {medians[name] / 1e6:7.3f} M steps/s   1/{times:<4.0f} ({repeats})")


def timed(function: Callable[..., object], *arguments: Any) -> float:
    start = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - start


def pump(address: str, policy_id: str, trajectories: int) -> float:
    """Send trajectories as fast as possible; return the seconds until all are acknowledged."""
    outgoing: queue.Queue[ClientMessage | None] = queue.Queue(8)
    outgoing.put(ClientMessage(hello=hello(policy_id)))
    given = some_trajectory(LENGTH)

    def feed() -> None:
        for start in range(1, trajectories + 1, 16):
            contents = [encode_trajectory(given, n) for n in range(start, min(start + 16, trajectories + 1))]
            outgoing.put(ClientMessage(trajectories=Trajectories(trajectory=contents)))

    with open_channel(address, Credentials()) as channel:
        call = channel.stream_stream(CONNECT, ClientMessage.SerializeToString, ServerMessage.FromString)
        feeder = threading.Thread(target=feed)
        for message in (stream := call(iter(outgoing.get, None))):
            if message.WhichOneof("kind") == "welcome":
                start = time.perf_counter()
                feeder.start()
            if message.WhichOneof("kind") == "ack" and message.ack.sequence == trajectories:
                break
        seconds = time.perf_counter() - start
        outgoing.put(None)
        stream.cancel()
        feeder.join()
    return seconds


def adoption() -> None:
    """Measure the time between the publication of a version and its first use by a client."""
    title("adoption: version published → used by the client")
    with server() as address, agent(address, "adoption", buffer={"size": 256}) as ours:
        run = Path(ask_status(address, Credentials()).policies[0].run)
        arrived: dict[int, int] = {}
        delays = []
        trajectory, until = None, time.monotonic() + 20
        while time.monotonic() < until:
            trajectory, action = ours.request_for_action(trajectory, ROW)
            ours.add_to_trajectory(trajectory, action)
            action.update_reward(1.0)
            version = ours.version or 0
            if version not in arrived:
                arrived[version] = time.time_ns()
                made = run / "versions" / f"{version:012d}.safetensors"
                if version > 0 and made.exists():
                    delays.append((arrived[version] - made.stat().st_mtime_ns) / 1e6)
            # Simulates a busy system: about 2000 decisions per second.
            time.sleep(0.0005)
    p50, p99 = np.percentile(delays, [50, 99])
    print(f"  p50 {p50:.1f} ms   p99 {p99:.1f} ms   over {len(delays)} versions")


def fleet() -> None:
    """Measure the latency of acknowledgements and the RAM of server and learners with many clients."""
    title("fleet: every client sends 100 steps 10 times a second for 15 s")
    for clients, policies in ((64, 64), (256, 1)):
        with server() as address:
            latencies, refused = asyncio.run(drive_fleet(address, clients, policies))
            status = ask_status(address, Credentials(), timeout_seconds=30)
            learners = [policy.memory_bytes / 2**20 for policy in status.policies]
            p50, p99 = np.percentile(latencies, [50, 99])
            rate = len(latencies) * 100 / 15 / 1e3
            print(f"  {clients} clients, {policies} policies: {rate:.0f} k steps/s acknowledged")
            print(f"    acknowledgement latency p50 {p50:.0f} ms, p99 {p99:.0f} ms; failed streams: {refused}")
            edge, all_learners = status.memory_bytes / 2**20, sum(learners)
            print(f"    RAM: server {edge:.0f} MB, learners {all_learners:.0f} MB ({all_learners / policies:.0f} each)")


async def drive_fleet(address: str, clients: int, policies: int) -> tuple[list[float], int]:
    """Return acknowledgement latencies in milliseconds and the number of failed streams."""
    latencies: list[float] = []
    async with grpc.aio.insecure_channel(address, CHANNEL_OPTIONS) as channel:
        ready = asyncio.Barrier(clients)
        ends = await asyncio.gather(
            *(one_client(channel, ready, f"fleet-{n % policies}", n, latencies) for n in range(clients)),
            return_exceptions=True,
        )
    return latencies, sum(isinstance(end, BaseException) for end in ends)


async def one_client(
    channel: grpc.aio.Channel, ready: asyncio.Barrier, policy_id: str, number: int, latencies: list[float]
) -> None:
    method = channel.stream_stream(CONNECT, ClientMessage.SerializeToString, ServerMessage.FromString)
    stream, sent, given, version = method(), {}, some_trajectory(100), 0
    await stream.write(ClientMessage(hello=hello(policy_id, f"client-{number}", buffer={"size": 4096})))
    while (await stream.read()).WhichOneof("kind") != "welcome":
        pass
    await ready.wait()

    async def send() -> None:
        for sequence in range(1, 151):
            trajectory = Trajectory(version, given.columns, episode=sequence, terminated=True)
            sent[sequence] = time.perf_counter()
            content = encode_trajectory(trajectory, sequence)
            await stream.write(ClientMessage(trajectories=Trajectories(trajectory=[content])))
            await asyncio.sleep(0.1)

    sending = asyncio.create_task(send())
    while sent or not sending.done():
        message = await asyncio.wait_for(stream.read(), 60)
        if message.WhichOneof("kind") == "snapshot":
            version = message.snapshot.version
        for sequence in [n for n in sent if n <= message.ack.sequence]:
            latencies.append(1000 * (time.perf_counter() - sent.pop(sequence)))
    stream.cancel()


def footprint() -> None:
    """Measure import time and RAM of a client."""
    title("footprint of a client")
    code = """
import sys, time
start = time.perf_counter()
from rl4sys.client import RL4SysAgent
imported = time.perf_counter() - start
import numpy, pathlib
agent = RL4SysAgent({config}, observation_space=8, action_space=4)
row, trajectory = numpy.zeros(8, 'f4'), None
for n in range(10_000):
    trajectory, action = agent.request_for_action(trajectory, row)
    agent.add_to_trajectory(trajectory, action)
    action.update_reward(1.0)
assert action.fallback_reason is None
status = dict(line.split(':', 1) for line in pathlib.Path('/proc/self/status').read_text().splitlines())
print(imported, int(status['VmHWM'].split()[0]) / 1024, 'torch' in sys.modules)
agent.close()
"""
    with server() as address:
        config = json.dumps(
            {**settings("footprint"), "client_id": "footprint", "server": {"address": address, "timeout_seconds": 60}}
        )
        results = [run_python(code.replace("{config}", repr(json.loads(config)))).split() for _ in range(3)]
    imported = statistics.median(float(result[0]) for result in results)
    memory = max(float(result[1]) for result in results)
    print(f"  import {imported:.2f} s, {memory:.0f} MB after 10,000 decisions, torch loaded: {results[0][2]}")


def placement() -> None:
    """Measure the delay of an event loop while a learner runs in a thread of the same process or in its own process."""
    title("placement: delay of a 1 ms timer of the event loop while a PPO learner runs")
    for place in ("no learner", "thread", "process"):
        code = PLACEMENT.replace("{place}", place)
        p50, p99, most = run_python(code).split()
        print(f"  {place:<14} p50 {p50:>6} ms   p99 {p99:>6} ms   max {most:>6} ms")


PLACEMENT = """
import asyncio, multiprocessing, threading, time
import numpy as np

def learn(stop):
    from rl4sys.learner.config import LearnerConfig, parse_algorithm, parse_buffer
    from rl4sys.learner.learner import build_learner
    from rl4sys.spec import Box, Discrete, Spec
    from rl4sys.trajectory import Trajectory
    import torch
    torch.set_num_threads(1)
    buffer = parse_buffer({'size': 2048}, 'ppo')
    config = LearnerConfig(algorithm=parse_algorithm({'name': 'ppo'}), networks={}, buffer=buffer)
    learner = build_learner(Spec({'state': Box((8,))}, Discrete(4)), config, 0)
    rng = np.random.default_rng(0)
    columns = {'obs.state': rng.standard_normal((513, 8)).astype('f4'), 'action': rng.integers(0, 4, 512),
               'reward': np.ones(512, 'f4'), 'log_prob': np.full(512, -1.4, 'f4')}
    while not stop.is_set():
        learner.learn([Trajectory(learner.version, columns, terminated=True)])

async def measure():
    lateness, end = [], time.perf_counter() + 8
    while time.perf_counter() < end:
        start = time.perf_counter()
        await asyncio.sleep(0.001)
        lateness.append(1000 * (time.perf_counter() - start - 0.001))
    print(*(f'{x:.2f}' for x in (*np.percentile(lateness[1000:], [50, 99]), max(lateness[1000:]))))

if __name__ == '__main__':
    stop = multiprocessing.Event()
    kind = {'thread': threading.Thread, 'process': multiprocessing.get_context('fork').Process}.get('{place}')
    if kind:
        learner = kind(target=learn, args=(stop,))
        learner.start()
    asyncio.run(measure())
    stop.set()
    if kind:
        learner.join()
"""


@contextmanager
def server() -> Iterator[str]:
    """Run a server process with its journal in the current directory; yield its address."""
    with tempfile.TemporaryDirectory(dir=".", prefix=".live-benchmark-") as root:
        process, address = start_server(root, "0")
        try:
            yield address
        finally:
            process.terminate()
            process.wait(120)


def start_server(root: str, port: str) -> tuple[subprocess.Popen[str], str]:
    command = [sys.executable, "-m", "rl4sys", "serve", "--port", port, "--root", root]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().split()[3]


@contextmanager
def agent(address: str, policy_id: str, **changes: Any) -> Iterator[RL4SysAgent]:
    config = {**settings(policy_id), "client_id": policy_id, "server": {"address": address, "timeout_seconds": 60}}
    with RL4SysAgent({**config, **changes}, observation_space=8, action_space=4) as made:
        assert made.version is not None
        yield made


def settings(name: str) -> dict[str, Any]:
    layers = {"hidden_dims": [64, 64]}
    return {"version": 1, "algorithm": {"name": "ppo"}, "network": {"actor": layers, "critic": layers}}


def hello(policy_id: str, client_id: str | None = None, **changes: Any) -> Hello:
    learner = {name: value for name, value in {**settings(policy_id), **changes}.items() if name != "version"}
    return Hello(
        protocol=PROTOCOL,
        client_id=client_id or policy_id,
        policy_id=policy_id,
        instance=time.monotonic_ns(),
        spec=json.dumps(SPEC.to_json()),
        settings=json.dumps(learner),
    )


def some_trajectory(steps: int) -> Trajectory:
    rng = np.random.default_rng(0)
    columns = {
        "obs.state": rng.standard_normal((steps + 1, 8)).astype(np.float32),
        "action": rng.integers(0, 4, steps),
        "reward": np.ones(steps, np.float32),
        "log_prob": np.full(steps, -1.39, np.float32),
    }
    return Trajectory(0, columns, terminated=True)


def run_python(code: str) -> str:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with tempfile.NamedTemporaryFile("w", suffix=".py") as script:
        script.write(code)
        script.flush()
        done = subprocess.run(
            [sys.executable, script.name], capture_output=True, text=True, env=environment, check=True
        )
    return done.stdout


def title(text: str) -> None:
    print(f"\n{text}", flush=True)


if __name__ == "__main__":
    main()
