from collections.abc import Mapping, Sequence

from rl4sys.buffers.sum_tree import NumpySumTree
from rl4sys.client.recorder import NumpyRecorder
from rl4sys.policy.draws import PythonDraws
from rl4sys.spec import Array

class Draws(PythonDraws):
    """Not a subclass at run time; the same interface."""

class Program:
    memory_size: int
    def __init__(
        self,
        operations: Sequence[tuple[str, Sequence[Array], Mapping[str, float], Sequence[int]]],
        input_size: int,
        mask_size: int = 0,
    ) -> None: ...
    def forward(self, rows: Array) -> Array: ...
    def act(
        self, rows: Array, mask: Array | None, draws: PythonDraws, memory: Array | None = None
    ) -> tuple[Array, Array]: ...
    def decide(
        self, row: Array, mask: Array | None, draws: PythonDraws, memory: Array | None = None
    ) -> tuple[int | Array, float]: ...

class Recorder(NumpyRecorder):
    """Not a subclass at run time; the same interface."""

class SumTree(NumpySumTree):
    """Not a subclass at run time; the same interface."""

class Tape: ...

class Layers:
    """Tensors are given by their addresses, and have to be float32, in C order and of the right size."""

    def __init__(self, widths: Sequence[int], activation: str, normalized: bool, epsilon: float) -> None: ...
    def forward(self, rows: int, input: int, weights: Sequence[int], tape: Tape, output: int) -> None: ...
    def backward(
        self,
        input: int,
        weights: Sequence[int],
        tape: Tape,
        output_gradient: int,
        gradients: Sequence[int],
        input_gradient: int,
    ) -> None: ...

class AdamGroup:
    def __init__(
        self, sizes: Sequence[int], values: Sequence[int], means: Sequence[int], squares: Sequence[int]
    ) -> None: ...
    def see(self, gradients: Sequence[int], sum: float) -> float: ...
    def step(self, rate: float, beta1: float, beta2: float, epsilon: float, steps: float, shorten: float) -> None: ...

class LearntNetwork:
    """Weights are given as (values, means, squares, steps) by their addresses, ``adam`` as rate, betas and epsilon."""

    def __init__(
        self, layers: Layers, weights: Sequence[tuple[int, int, int, int]], adam: tuple[float, float, float, float]
    ) -> None: ...
    def set_rate(self, rate: float) -> None: ...

class FrozenNetwork:
    """Weights are given by their addresses."""

    def __init__(self, layers: Layers, weights: Sequence[int]) -> None: ...

class ReplayUpdate:
    """Arrays come as addresses; what it is made of has to outlive it.

    What is told is three measurements, the last of them the gradient's length, then the usual length and of how many.
    """

    def __init__(
        self,
        actor: LearntNetwork,
        actor_target: FrozenNetwork | None,
        critics: Sequence[LearntNetwork],
        targets: Sequence[FrozenNetwork],
        size: int,
        log_std_bounds: Sequence[float],
    ) -> None: ...
    def next_values(self, rows: int, observation: int, noise: int, temperature: float, values: int) -> None: ...
    def learn_critics(
        self, rows: int, columns: Sequence[int], clipping: tuple[float, float, float, float, float], errors: int
    ) -> tuple[float, float, float, float, float]:
        """Columns are observation, action, reward, discount, next value and weight, or 0 for none of the last."""

    def learn_actor(
        self,
        rows: int,
        observation: int,
        noise: int,
        temperature: float,
        by_least: bool,
        clipping: tuple[float, float, float, float, float],
    ) -> tuple[float, float, float, float, float]: ...

class ChoicesUpdate:
    """Columns are observation, choice, reward, discount, next observation, next legal and weight, or 0 for none."""

    def __init__(self, critic: LearntNetwork, target: FrozenNetwork) -> None: ...
    def learn(
        self,
        rows: int,
        columns: Sequence[int],
        doubled: bool,
        clipping: tuple[float, float, float, float, float],
        errors: int,
    ) -> tuple[float, float, float, float, float]: ...

class PolicyUpdate:
    """Columns are observation, legal, choices, numbers, log_prob, advantage, weight, value and return, or 0 for none.

    The objective is clip_ratio, factor of squared errors, value_clip and entropy_coef; clipping is the longest norm
    or 0 for so many times the usual, how many times, how many are remembered, and the mean and number so far.
    """

    def __init__(
        self,
        actor: LearntNetwork,
        critic: LearntNetwork,
        parts: Sequence[int],
        deviations: tuple[int, int, int, int],
        columns: Sequence[int],
        objective: tuple[float, float, float, float],
        standardize: bool,
        clipping: tuple[float, float, float, float, float],
    ) -> None: ...
    def learn(self, order: Array, minibatch: int, most_kl: float, measurements: Array) -> int: ...
    @property
    def usual_norm(self) -> tuple[float, float]: ...

def gae(
    reward: Array,
    value: Array,
    bootstrap: Array,
    last: Array,
    gamma: float,
    gae_lambda: float,
    weight: Array | None = None,
) -> Array: ...
