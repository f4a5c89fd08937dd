"""Measure the time of one decision (sampled action and log-probability) for a small MLP and an image network.

Run `python benchmarks/decision.py`. It uses one core for a few seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import torch
from torch import nn

from rl4sys.policy.draws import NATIVE, Draws
from rl4sys.policy.native_program import NativeProgram
from rl4sys.policy.numpy_program import NumpyProgram
from rl4sys.policy.program import Operation, Program
from rl4sys.spec import Array


def main() -> None:
    torch.set_num_threads(1)
    mlp = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 4))
    compare("8-64-64-4 tanh", mlp, exported_mlp(mlp), (8,))
    cnn = nature()
    compare("Nature CNN, 84 x 84 x 4", cnn, exported_cnn(cnn), (84, 84, 4), channels_last=True)


def compare(title: str, network: nn.Sequential, exported: Exported, shape: tuple[int, ...], **layout: bool) -> None:
    row = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    deciders = contenders(network, exported, row, **layout)
    medians = {name: median_microseconds(decide) for name, decide in deciders.items()}
    slowest = medians["torch, eager"]
    print(f"{f'one decision, {title}':<40}{'p50 µs':>10}{'vs. torch':>12}")
    for name, median in medians.items():
        print(f"{name:<40}{median:>10.2f}{f'1/{slowest / median:.1f}':>12}")


def contenders(
    network: nn.Sequential, exported: Exported, row: Array, channels_last: bool = False
) -> dict[str, Callable[[], object]]:
    program, weights = exported
    flat, seen = row.reshape(-1), np.moveaxis(row, -1, 0)[None].copy() if channels_last else row
    draws, numpy_program = Draws(0), NumpyProgram(program, weights, flat.size)
    chosen: dict[str, Callable[[], object]] = {}
    if NATIVE:
        native_decide = NativeProgram(program, weights, flat.size).decide
        chosen["native"] = lambda: native_decide(flat, None, draws)
    chosen["numpy"] = lambda: numpy_program.decide(flat, None, draws)
    chosen["torch, eager"] = lambda: torch_decide(network, seen)
    return chosen


Exported: TypeAlias = tuple[Program, dict[str, Array]]


def exported_mlp(network: nn.Sequential) -> Exported:
    weights = {name: tensor.detach().numpy() for name, tensor in network.named_parameters()}
    layers = [Operation("linear", (f"{i}.weight", f"{i}.bias")) for i in (0, 2, 4)]
    tanh = Operation("tanh")
    return Program((layers[0], tanh, layers[1], tanh, layers[2]), Operation("categorical")), weights


def nature() -> nn.Sequential:
    """Return the network of Mnih et al. (2015)."""
    convolutions = (nn.Conv2d(4, 32, 8, 4), nn.Conv2d(32, 64, 4, 2), nn.Conv2d(64, 64, 3, 1))
    layers = [module for convolution in convolutions for module in (convolution, nn.ReLU())]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, 6))


def exported_cnn(network: nn.Sequential) -> Exported:
    """Export an image network with channels last. The inputs of the linear layer are permuted, at the same speed."""
    weights = {name: tensor.detach().numpy() for name, tensor in network.named_parameters()}
    weights |= {f"{i}.weight": np.moveaxis(weights[f"{i}.weight"], 1, -1).copy() for i in (0, 2, 4)}
    relu, body = Operation("relu"), []
    for i, side, stride in ((0, 84, 4), (2, 20, 2), (4, 9, 1)):
        options = {"height": side, "width": side, "stride": stride, "padding": 0}
        body += [Operation("conv2d", (f"{i}.weight", f"{i}.bias"), options), relu]
    body += [Operation("linear", ("7.weight", "7.bias")), relu, Operation("linear", ("9.weight", "9.bias"))]
    return Program(tuple(body), Operation("categorical")), weights


@torch.no_grad()
def torch_decide(network: nn.Sequential, observation: Array) -> tuple[int, float]:
    logits = network(torch.from_numpy(observation)).reshape(-1)
    distribution = torch.distributions.Categorical(logits=logits)
    action = distribution.sample()  # type: ignore[no-untyped-call]
    return int(action), float(distribution.log_prob(action))  # type: ignore[no-untyped-call]


def median_microseconds(decide: Callable[[], object], seconds: float = 2.0) -> float:
    """Return the median time of a call. Calls are timed in groups, because one call is too short for the clock."""
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
