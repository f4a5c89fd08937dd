"""How long one decision takes: an 8-64-64-4 tanh network whose action is sampled, with its log-probability.

Run `python benchmarks/decision.py`; it uses one core for a few seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from rl4sys.policy.draws import NATIVE, Draws
from rl4sys.policy.native_form import NativeProgram
from rl4sys.policy.numpy_form import NumpyProgram
from rl4sys.policy.program import Operation, Program
from rl4sys.spec import Array


def main() -> None:
    torch.set_num_threads(1)
    network = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 4))
    row = np.random.default_rng(0).standard_normal(8).astype(np.float32)
    medians = {name: median_microseconds(decide) for name, decide in contenders(network, row).items()}
    slowest = medians["torch, eager"]
    print(f"{'one decision, 8-64-64-4 tanh':<30}{'p50 µs':>10}{'of torch':>12}")
    for name, median in medians.items():
        print(f"{name:<30}{median:>10.2f}{f'1/{slowest / median:.0f}':>12}")


def contenders(network: nn.Sequential, row: Array) -> dict[str, Callable[[], object]]:
    program, weights = exported(network)
    draws, numpy_form = Draws(0), NumpyProgram(program, weights, 8)
    chosen: dict[str, Callable[[], object]] = {}
    if NATIVE:
        native_decide = NativeProgram(program, weights, 8).decide
        chosen["native"] = lambda: native_decide(row, None, draws)
    chosen["numpy"] = lambda: numpy_form.decide(row, None, draws)
    chosen["torch, eager"] = lambda: torch_decide(network, row)
    return chosen


def exported(network: nn.Sequential) -> tuple[Program, dict[str, Array]]:
    weights = {name: tensor.detach().numpy() for name, tensor in network.named_parameters()}
    layers = [Operation("linear", (f"{i}.weight", f"{i}.bias")) for i in (0, 2, 4)]
    tanh = Operation("tanh")
    return Program((layers[0], tanh, layers[1], tanh, layers[2]), Operation("categorical")), weights


@torch.no_grad()
def torch_decide(network: nn.Sequential, row: Array) -> tuple[int, float]:
    distribution = torch.distributions.Categorical(logits=network(torch.from_numpy(row)))
    action = distribution.sample()  # type: ignore[no-untyped-call]
    return int(action), float(distribution.log_prob(action))  # type: ignore[no-untyped-call]


def median_microseconds(decide: Callable[[], object], seconds: float = 2.0) -> float:
    """The median over groups of calls, each long enough for the clock's resolution not to matter."""
    group = 20
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        for _ in range(group):
            decide()
        times.append((time.perf_counter() - start) / group)
    return 1e6 * float(np.median(times))


if __name__ == "__main__":
    main()
