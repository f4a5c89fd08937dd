"""Golden files, shared with the tests of the C++ client: numpy and native programs reproduce their decisions."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from rl4sys import tensors
from rl4sys.errors import SpecError
from rl4sys.policy.draws import Draws
from rl4sys.policy.program import BODY, HEADS
from rl4sys.policy.snapshot import Snapshot, input_size
from rl4sys.spec import Array
from rl4sys.wire.delta import apply_delta
from rl4sys.wire.messages import ServerMessage
from tests.policy.conftest import Form

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "cpp" / "tests" / "data" / "golden"
CASES = sorted(path.name.removesuffix(".decisions.safetensors") for path in GOLDEN.glob("*.decisions.safetensors"))


@pytest.fixture(scope="module")
def script() -> ModuleType:
    location = importlib.util.spec_from_file_location("make_golden", ROOT / "scripts" / "make_golden.py")
    assert location is not None
    assert location.loader is not None
    module = sys.modules["make_golden"] = importlib.util.module_from_spec(location)
    location.loader.exec_module(module)
    return module


def assert_close(got: Array, expected: Array) -> None:
    """Require an absolute error of at most 1e-6, relative for values above 1. Integers must be equal."""
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    tolerance = 0.0 if got.dtype == np.int64 else 1e-6 * np.maximum(1.0, np.abs(expected))
    assert (np.abs(got.astype(np.float64) - expected) <= tolerance).all()


@pytest.mark.parametrize("case", CASES)
def test_decisions_match_golden_files(form: Form, case: str) -> None:
    snapshot = Snapshot.from_bytes((GOLDEN / f"{case}.safetensors").read_bytes())
    columns, metadata = tensors.decode((GOLDEN / f"{case}.decisions.safetensors").read_bytes())
    program = form(snapshot.program, snapshot.weights, input_size(snapshot.spec))
    draws = Draws(int(metadata["key"]))
    masks = columns.get("mask", [None] * len(columns["row"]))
    memory, memories, decisions = np.zeros(program.memory_size, np.float32), [], []
    for row, mask in zip(columns["row"], masks, strict=True):
        decisions.append(program.decide(row, mask, draws, memory))
        memories.append(memory.copy())
    assert_close(np.array(memories), columns.get("memory", np.empty((len(memories), 0), np.float32)))
    assert_close(np.array([action for action, _ in decisions]), columns["action"])
    assert_close(np.array([log_prob for _, log_prob in decisions], np.float32), columns["log_prob"])
    assert len(np.unique(columns["action"])) > 2, "the actions should vary"


def test_every_operation_has_a_golden_file(script: ModuleType) -> None:
    assert set(script.CASES | script.COMPOSED) == set(CASES)
    programs = [Snapshot.from_bytes((GOLDEN / f"{case}.safetensors").read_bytes()).program for case in CASES]
    names = {operation.name for program in programs for operation in program.operations}
    assert names == set(BODY + HEADS)


def test_script_reproduces_golden_files(script: ModuleType) -> None:
    """Snapshots, rows and masks must be equal byte for byte, decisions and compressed data only after decoding."""
    files = script.make_files()
    assert set(files) == {path.name for path in GOLDEN.iterdir()}
    for name, content in files.items():
        present = (GOLDEN / name).read_bytes()
        if name.endswith((".delta", ".message")):
            assert snapshot_in(name, content) == snapshot_in(name, present)
        elif name.endswith(".decisions.safetensors"):
            assert_same_decisions(content, present)
        else:
            assert content == present, name


def snapshot_in(name: str, content: bytes) -> bytes:
    """Return the snapshot contained in a message or a delta."""
    if name == "full.message":
        return ServerMessage.FromString(content).snapshot.full
    if name == "delta.message":
        content = ServerMessage.FromString(content).snapshot.delta.compressed
    return apply_delta((GOLDEN / "squashed_mode.safetensors").read_bytes(), content)


def assert_same_decisions(got: bytes, expected: bytes) -> None:
    columns, metadata = tensors.decode(got)
    golden, golden_metadata = tensors.decode(expected)
    assert metadata == golden_metadata
    assert columns.keys() == golden.keys()
    for name in columns.keys() & {"row", "mask"}:
        assert columns[name].tobytes() == golden[name].tobytes()
    for name in columns.keys() - {"row", "mask"}:
        assert_close(columns[name], golden[name])


def test_golden_delta_restores_golden_snapshot() -> None:
    moved = (GOLDEN / "moved.safetensors").read_bytes()
    assert Snapshot.from_bytes(moved).version == 2
    for name in ("moved.delta", "delta.message"):
        assert snapshot_in(name, (GOLDEN / name).read_bytes()) == moved


def test_flipped_bit_in_any_weight_is_detected() -> None:
    content = (GOLDEN / "squashed_mode.safetensors").read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    for place in range(start, len(content), 7):
        damaged = bytearray(content)
        damaged[place] ^= 1 << place % 8
        with pytest.raises(SpecError, match="do not match their checksum"):
            Snapshot.from_bytes(bytes(damaged))
