"""Write the golden files, which test that all implementations of policy programs make the same decisions.

    python scripts/make_golden.py [directory]

Each case has two files. ``<case>.safetensors`` is a snapshot. ``<case>.decisions.safetensors`` has decisions of the
numpy implementation with this snapshot: observation rows, masks, actions, log-probabilities and, for recurrent
policies, the memory after each decision. The initial memory is zero. The metadata has the key of the random draws.
``moved.delta`` is the delta from the snapshot ``squashed_mode`` to the snapshot ``moved``. The ``.message`` files are
the messages in which a server sends the full model and the delta.

All random numbers come from `Draws`, which is the same on every machine. Results of ``exp`` and ``log`` may differ in
the last digit between builds of numpy, and compressed deltas between releases of zlib.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rl4sys import tensors
from rl4sys.policy.draws import Draws
from rl4sys.policy.numpy_program import NumpyProgram
from rl4sys.policy.program import Operation, Program
from rl4sys.policy.snapshot import Snapshot, input_size
from rl4sys.spec import Array, Box, Discrete, MultiDiscrete, Space, Spec, encoded_size
from rl4sys.wire.delta import digest, make_delta
from rl4sys.wire.messages import Delta, ServerMessage
from rl4sys.wire.messages import Snapshot as SnapshotMessage

DIRECTORY = Path(__file__).parent.parent / "cpp" / "tests" / "data" / "golden"
DECISIONS = 300
INPUTS = 8


@dataclass(frozen=True)
class Case:
    """Policy to generate: a sequence of layers and a head, and the key of its random draws."""

    action: Space
    head: str
    activation: str
    hidden: tuple[int, ...]
    key: int
    masked: bool = False
    normalized: bool = False
    gain: float = 2.0
    """Scale of the head's inputs. Use a smaller scale if the log-probability of the head amplifies rounding errors."""

    @property
    def outputs(self) -> int:
        size = encoded_size(self.action)
        return 2 * size if self.head.startswith("squashed") or self.head == "uniform" else size

    @property
    def spec(self) -> Spec:
        mask = {"mask": Box((self.outputs,), "bool")} if self.masked else {}
        return Spec({"state": Box((INPUTS - 2,)), "grid": Box((2, 1))} | mask, self.action)

    def compose(self, maker: Maker) -> Operation:
        """Add the operations of the policy body to `maker` and return the head."""
        if self.normalized:
            maker.normalize(INPUTS)
        sizes = (INPUTS, *self.hidden)
        for inputs, outputs in zip(sizes, self.hidden, strict=False):
            maker.linear(inputs, outputs, 2.0)
            maker.body.append(Operation(self.activation))
        maker.linear(sizes[-1], self.outputs, self.gain)
        return maker.head(self)


TORQUES = Box((3,), low=(-2.0,), high=(1.5,))
CASES = {
    "categorical": Case(Discrete(4), "categorical", "tanh", (64, 64), key=1, normalized=True),
    "categorical_masked": Case(Discrete(7), "categorical", "relu", (32, 17), key=2**64 - 3, masked=True),
    "epsilon_greedy": Case(Discrete(4), "epsilon_greedy", "elu", (24, 24), key=3),
    "epsilon_greedy_masked": Case(Discrete(9), "epsilon_greedy", "silu", (16,), key=4, masked=True, normalized=True),
    "argmax": Case(Discrete(4), "argmax", "gelu", (32, 32), key=5),
    "gaussian": Case(TORQUES, "gaussian", "silu", (32, 32), key=6, normalized=True),
    "squashed_gaussian": Case(TORQUES, "squashed_gaussian", "gelu", (16, 16), key=7, gain=0.5),
    "mode": Case(TORQUES, "mode", "elu", (16, 16), key=8),
    "squashed_mode": Case(TORQUES, "squashed_mode", "tanh", (16,), key=9),
    "noisy_squash": Case(TORQUES, "noisy_squash", "relu", (16,), key=10, gain=0.5),
    "squash": Case(TORQUES, "squash", "silu", (16,), key=11),
    "uniform": Case(TORQUES, "uniform", "tanh", (8,), key=12),
    "multi_categorical": Case(MultiDiscrete((3, 1, 4)), "multi_categorical", "tanh", (16, 16), key=18),
    "multi_categorical_masked": Case(MultiDiscrete((2, 5)), "multi_categorical", "relu", (16,), key=19, masked=True),
    "multi_argmax": Case(MultiDiscrete((3, 1, 4)), "multi_argmax", "silu", (16,), key=20),
}


BOUNDED_OPTIONS = {
    "squashed_gaussian": {"log_std_min": -1.0, "log_std_max": 0.25},
    "noisy_squash": {"sigma": 0.5},
    "uniform": {"parameters": 2.0},
}


class Maker:
    """Generates operations and weights of a policy."""

    def __init__(self, draws: Draws) -> None:
        self._draws = draws
        self.body: list[Operation] = []
        self.weights: dict[str, Array] = {}

    def uniform(self, *shape: int, scale: float = 1.0) -> Array:
        """Return uniform numbers in -scale..scale."""
        numbers = scale * (2.0 * self._draws.uniforms(int(np.prod(shape))) - 1.0)
        return numbers.reshape(shape).astype(np.float32)

    def normalize(self, size: int) -> None:
        self.weights |= {"normalize.mean": self.uniform(size), "normalize.scale": 1.0 + self.uniform(size, scale=0.5)}
        self.body.append(Operation("normalize", ("normalize.mean", "normalize.scale"), {"limit": 1.25}))

    def linear(self, inputs: int, outputs: int, gain: float) -> None:
        names = tuple(f"layer{len(self.body)}.{name}" for name in ("weight", "bias"))
        arrays = self.uniform(outputs, inputs, scale=gain / np.sqrt(inputs)), self.uniform(outputs, scale=gain / 4)
        self.weights |= dict(zip(names, arrays, strict=True))
        self.body.append(Operation("linear", names))

    def head(self, case: Case) -> Operation:
        if case.head == "gaussian":
            self.weights["log_std"] = self.uniform(case.outputs)
            return Operation("gaussian", ("log_std",))
        if isinstance(case.action, Box) and case.head != "mode":
            self.weights |= dict(zip(("low", "high"), case.action.bounds(), strict=True))
            return Operation(case.head, ("low", "high"), BOUNDED_OPTIONS.get(case.head, {}))
        if isinstance(case.action, MultiDiscrete):
            self.weights["choices"] = np.array(case.action.choices, np.float32)
            return Operation(case.head, ("choices",))
        return Operation(case.head, (), {"epsilon": 0.3} if case.head == "epsilon_greedy" else {})

    def add(self, name: str, *inputs: int, weights: dict[str, Array] | None = None, **options: float) -> int:
        """Add an operation to the body and return the number of its output value."""
        named = {f"{name}{len(self.body)}.{weight}": array for weight, array in (weights or {}).items()}
        self.weights |= named
        self.body.append(Operation(name, tuple(named), options, inputs))
        return len(self.body)

    def layer(self, inputs: int, outputs: int, *source: int, **rows: int) -> int:
        weight = self.uniform(outputs, inputs, scale=1.5 / np.sqrt(inputs))
        return self.add("linear", *source, weights={"weight": weight, "bias": self.uniform(outputs)}, **rows)

    def layer_norm(self, rows: int, width: int) -> int:
        weights = {"scale": 1.0 + self.uniform(width, scale=0.5), "bias": self.uniform(width)}
        return self.add("layer_norm", weights=weights, epsilon=1e-2, rows=rows)

    def conv2d(self, kernel: int, channels: int, outputs: int, **options: int) -> int:
        weight = self.uniform(outputs, kernel, kernel, channels, scale=1.5 / np.sqrt(kernel * kernel * channels))
        return self.add("conv2d", weights={"weight": weight, "bias": self.uniform(outputs)}, **options)

    def cell(self, name: str, gates: int, inputs: int, hidden: int, memory: int) -> int:
        stacked = gates * hidden
        weights = {
            "weight_ih": self.uniform(stacked, inputs, scale=1.5 / np.sqrt(inputs)),
            "weight_hh": self.uniform(stacked, hidden, scale=1.5 / np.sqrt(hidden)),
            "bias_ih": self.uniform(stacked, scale=0.5),
            "bias_hh": self.uniform(stacked, scale=0.5),
        }
        return self.add(name, weights=weights, memory=memory)


@dataclass(frozen=True)
class Composed:
    """Policy of program format 2, in which an operation can take any earlier values as inputs."""

    spec: Spec
    key: int
    compose: Callable[[Maker], Operation]
    """Function that adds the operations of the body to a maker and returns the head."""


def compose_cnn(maker: Maker) -> Operation:
    """Compose a policy for a 5 x 5 x 2 image and a vector of length 2; its 4 Q-values are expectations over 5 atoms."""
    maker.add("slice", 0, start=0, length=50)
    maker.add("scale", factor=0.75)
    maker.conv2d(3, 2, 6, height=5, width=5, stride=1, padding=1)
    maker.add("max_pool", height=5, width=5, size=2, stride=2, padding=1)
    maker.add("relu")
    maker.conv2d(2, 6, 8, height=3, width=3, stride=1, padding=0)
    pixels = maker.layer_norm(4, 8)
    other = maker.add("slice", 0, start=50, length=2)
    maker.add("concat", pixels, other)
    maker.layer(34, 20)
    maker.add("bias", weights={"values": maker.uniform(20)})
    maker.add("expectation", weights={"support": np.linspace(-1.0, 1.0, 5).astype(np.float32)}, rows=4)
    return Operation("epsilon_greedy", (), {"epsilon": 0.3})


def compose_items(maker: Maker) -> Operation:
    """Compose a policy for 5 items of 3 features and a vector of length 2; it scores each item and one extra action."""
    jobs = maker.add("slice", 0, start=0, length=15)
    load = maker.add("slice", 0, start=15, length=2)
    maker.add("join_rows", jobs, load, rows=5)
    maker.layer(5, 8, rows=5)
    embedded = maker.layer_norm(5, 8)
    query, key, value = (maker.layer(8, 8, embedded, rows=5) for _ in range(3))
    legal = maker.add("slice", -1, start=0, length=5)
    attended = maker.add("attention", query, key, value, legal, heads=2, rows=5, keys=5)
    mixed = maker.add("add", embedded, attended)
    maker.add("transpose", mixed, rows=5)
    maker.layer(5, 5, rows=8)
    maker.add("transpose", rows=8)
    gate = maker.add("silu")
    items = maker.add("multiply", mixed, gate)
    scores = maker.layer(8, 1, items, rows=5)
    maker.add("mean_rows", items, legal, rows=5)
    extra = maker.layer(8, 1)
    maker.add("concat", scores, extra)
    return Operation("categorical")


def compose_gru(maker: Maker) -> Operation:
    maker.normalize(INPUTS)
    maker.layer(INPUTS, 12)
    maker.add("tanh")
    maker.cell("gru", 3, 12, 10, memory=0)
    maker.layer(10, 4)
    return Operation("categorical")


def compose_lstm(maker: Maker) -> Operation:
    """Compose a policy with an LSTM and then a GRU. In the memory, the GRU is first and a gap separates the two."""
    maker.cell("lstm", 4, INPUTS, 9, memory=8)
    maker.cell("gru", 3, 9, 6, memory=0)
    maker.layer(6, 3)
    maker.weights["log_std"] = maker.uniform(3)
    return Operation("gaussian", ("log_std",))


def compose_noise(maker: Maker) -> Operation:
    """Compose a policy with random noise in its body and a deterministic head."""
    noise = maker.add("noise", size=4, scale=0.5)
    silence = maker.add("noise", size=2, scale=0.0)
    maker.add("concat", 0, noise, silence)
    maker.layer(INPUTS + 6, 3)
    maker.weights |= dict(zip(("low", "high"), TORQUES.bounds(), strict=True))
    return Operation("squash", ("low", "high"))


def compose_noisy(maker: Maker) -> Operation:
    """Compose a policy of noisy linear layers, one of which is applied to several rows."""
    for inputs, outputs, rows in ((INPUTS, 12, 1), (4, 5, 3), (15, 4, 1)):
        shapes = {"weight": (outputs, inputs), "bias": (outputs,)}
        weights = {name: maker.uniform(*shape, scale=1.0 / np.sqrt(inputs)) for name, shape in shapes.items()}
        noise = {f"{name}_noise": maker.uniform(*shape, scale=0.3) for name, shape in shapes.items()}
        maker.add("noisy_linear", weights=weights | noise, **({"rows": rows} if rows > 1 else {}))
        maker.add("tanh")
    return Operation("categorical")


PLAIN = {"state": Box((INPUTS - 2,)), "grid": Box((2, 1))}
COMPOSED = {
    "cnn": Composed(Spec({"frame": Box((5, 5, 2)), "state": Box((2,))}, Discrete(4)), 13, compose_cnn),
    "items": Composed(
        Spec({"jobs": Box((5, 3)), "load": Box((2,)), "mask": Box((6,), "bool")}, Discrete(6)), 14, compose_items
    ),
    "gru": Composed(Spec(PLAIN, Discrete(4)), 15, compose_gru),
    "lstm": Composed(Spec(PLAIN, TORQUES), 16, compose_lstm),
    "noise": Composed(Spec(PLAIN, TORQUES), 17, compose_noise),
    "noisy": Composed(Spec(PLAIN, Discrete(4)), 18, compose_noisy),
}


def make_snapshot(case: Case | Composed) -> Snapshot:
    maker = Maker(Draws(case.key, 10**9))
    head = case.compose(maker)
    return Snapshot(1, case.spec, Program(tuple(maker.body), head), maker.weights)


def decide(case: Case | Composed, snapshot: Snapshot) -> bytes:
    """Return decisions of the numpy implementation for random rows, as safetensors."""
    random, inputs = Draws(case.key, 2 * 10**9), input_size(case.spec)
    rows = (4.0 * random.uniforms(DECISIONS * inputs).reshape(-1, inputs) - 2.0).astype(np.float32)
    program = NumpyProgram(snapshot.program, snapshot.weights, inputs)
    parts = snapshot.program.head.parts(program.output_size, snapshot.weights)
    masks = _masks(random, parts) if case.spec.masked else None
    draws, memory, memories, decisions = Draws(case.key), np.zeros(program.memory_size, np.float32), [], []
    for row, mask in zip(rows, [None] * DECISIONS if masks is None else masks, strict=True):
        decisions.append(program.decide(row, mask, draws, memory))
        memories.append(memory.copy())
    columns = {
        "row": rows,
        "action": np.array([action for action, _ in decisions]),
        "log_prob": np.array([log_prob for _, log_prob in decisions], np.float32),
    }
    columns |= {} if masks is None else {"mask": masks}
    columns |= {"memory": np.array(memories)} if program.memory_size else {}
    return tensors.encode(columns, {"key": str(case.key)})


def _masks(random: Draws, parts: tuple[int, ...]) -> Array:
    masks: Array = random.uniforms(DECISIONS * sum(parts)).reshape(DECISIONS, -1) < 0.4
    for start, choices in zip(np.cumsum((0, *parts)), parts, strict=False):
        masks[np.arange(DECISIONS), start + np.arange(DECISIONS) % choices] = True
    return masks


def move(snapshot: Snapshot) -> Snapshot:
    """Return the next version with slightly changed weights."""
    random = Draws(10)
    weights = {
        name: (array * (1.0 + 1e-3 * random.uniforms(array.size).reshape(array.shape))).astype(np.float32)
        for name, array in sorted(snapshot.weights.items())
    }
    return Snapshot(2, snapshot.spec, snapshot.program, weights)


def make_messages(base: bytes, moved: bytes) -> dict[str, bytes]:
    """Return the delta between two snapshots, and the server messages with the first snapshot and with the delta."""
    compressed = make_delta(base, moved)
    assert compressed is not None, "small weight changes should give a small delta"
    full = SnapshotMessage(version=1, digest=digest(base), full=base)
    delta = SnapshotMessage(version=2, digest=digest(moved), delta=Delta(base_version=1, compressed=compressed))
    return {
        "moved.delta": compressed,
        "full.message": ServerMessage(snapshot=full).SerializeToString(),
        "delta.message": ServerMessage(snapshot=delta).SerializeToString(),
    }


def make_files() -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    for name, case in (CASES | COMPOSED).items():
        snapshot = make_snapshot(case)
        files |= {f"{name}.safetensors": snapshot.to_bytes(), f"{name}.decisions.safetensors": decide(case, snapshot)}
    moved = move(make_snapshot(CASES["squashed_mode"])).to_bytes()
    return files | {"moved.safetensors": moved} | make_messages(files["squashed_mode.safetensors"], moved)


def main() -> None:
    directory = Path(sys.argv[1]) if len(sys.argv) > 1 else DIRECTORY
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in make_files().items():
        (directory / name).write_bytes(content)
        print(f"{name}: {len(content)} bytes")


if __name__ == "__main__":
    main()
