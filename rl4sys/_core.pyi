from collections.abc import Mapping, Sequence
from typing import TypeAlias

from rl4sys.buffers.sum_tree import NumpySumTree
from rl4sys.client.recorder import NumpyRecorder
from rl4sys.policy.draws import PythonDraws
from rl4sys.spec import Array

ParameterAddresses: TypeAlias = tuple[int, int, int, int]
"""Data addresses of a parameter's values, first moments (0 for RMSprop), second moments and step count."""

Clipping: TypeAlias = tuple[float, float, float, float, float]
"""Maximum gradient norm (0 for a multiple of the running norm), the multiple, and window, mean and count of the
running norm."""

UpdateResult: TypeAlias = tuple[float, float, float, float, float]
"""Loss, mean value or entropy, gradient norm, and mean and count of the running gradient norm."""

class Draws(PythonDraws):
    """Native form of `PythonDraws`, with the same interface; not a subclass at run time."""

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
    """Native form of `NumpyRecorder`, with the same interface; not a subclass at run time."""

class SumTree(NumpySumTree):
    """Native form of `NumpySumTree`, with the same interface; not a subclass at run time."""

class Tape: ...

class Layers:
    """Fully connected layers. Methods take the data addresses of contiguous float32 tensors of the right size."""

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
    """Parameter group of Adam. All sequences except ``sizes`` hold data addresses."""

    def __init__(
        self, sizes: Sequence[int], values: Sequence[int], means: Sequence[int], squares: Sequence[int]
    ) -> None: ...
    def set_gradients(self, gradients: Sequence[int], sum: float) -> float:
        """Set the gradients of the next step and return ``sum`` plus the sum of the squared gradients."""

    def step(
        self, learning_rate: float, beta1: float, beta2: float, epsilon: float, steps: float, gradient_scale: float
    ) -> None: ...

class TrainableNetwork:
    """Network whose weights and optimizer state are updated in place."""

    def __init__(
        self, layers: Layers, weights: Sequence[ParameterAddresses], adam: tuple[float, float, float, float]
    ) -> None:
        """Refer to weights by data address; ``adam`` holds learning rate, beta1 (0 for RMSprop), beta2 and epsilon."""

    def set_learning_rate(self, learning_rate: float) -> None: ...

class FrozenNetwork:
    """Network whose weights, passed as data addresses, are only read."""

    def __init__(self, layers: Layers, weights: Sequence[int]) -> None: ...

class ReplayUpdate:
    """SAC, TD3 and DDPG updates. Arrays are passed as data addresses; the networks must outlive the update."""

    def __init__(
        self,
        actor: TrainableNetwork,
        actor_target: FrozenNetwork | None,
        critics: Sequence[TrainableNetwork],
        targets: Sequence[FrozenNetwork],
        size: int,
        log_std_bounds: Sequence[float],
    ) -> None: ...
    def next_values(self, rows: int, observation: int, noise: int, temperature: float, values: int) -> None: ...
    def learn_critics(self, rows: int, columns: Sequence[int], clipping: Clipping, errors: int) -> UpdateResult:
        """Update all critics.

        Columns: observation, action, reward, discount, next value and weight (0 for equal weights).
        """

    def learn_actor(
        self,
        rows: int,
        observation: int,
        noise: int,
        temperature: float,
        use_minimum: bool,
        clipping: Clipping,
    ) -> UpdateResult: ...

class QUpdate:
    """DQN update. Arrays are passed as data addresses."""

    def __init__(self, critic: TrainableNetwork, target: FrozenNetwork) -> None: ...
    def learn(self, rows: int, columns: Sequence[int], double_q: bool, clipping: Clipping, errors: int) -> UpdateResult:
        """Update the critic.

        Columns: observation, action, reward, discount, next observation, next mask and weight (0 for none).
        """

class PolicyUpdate:
    """PPO and A2C updates on one rollout. Arrays are passed as data addresses.

    Columns: observation, mask, discrete action, continuous action, log_prob, advantage, weight, value, return; 0 for a
    missing column. Objective: clip_ratio, factor of the squared value error, value_clip, entropy_coef.
    """

    def __init__(
        self,
        actor: TrainableNetwork,
        critic: TrainableNetwork,
        parts: Sequence[int],
        log_std: ParameterAddresses,
        columns: Sequence[int],
        objective: tuple[float, float, float, float],
        standardize: bool,
        clipping: Clipping,
    ) -> None: ...
    def learn(self, order: Array, minibatch: int, max_kl: float, metrics: Array, trained: int) -> int:
        """Train on consecutive minibatches of ``order``, one per row of ``metrics``; return the number of minibatches.

        Stops early after a minibatch whose KL divergence exceeds ``max_kl``, and before a non-finite one. ``trained``
        is a `Trained`; metrics of a network that is not trained are NaN.
        """

    @property
    def running_norm(self) -> tuple[float, float]:
        """Running mean and count of the gradient norm."""

def gae(
    reward: Array,
    value: Array,
    bootstrap: Array,
    last: Array,
    gamma: float,
    gae_lambda: float,
    weight: Array | None = None,
) -> Array: ...
