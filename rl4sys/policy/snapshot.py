"""Snapshot of a policy for inference: program, weights, spec and version, stored as one safetensors file."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from functools import cached_property

from rl4sys import tensors
from rl4sys.errors import SpecError
from rl4sys.policy.program import BOX_HEADS, MULTI_HEADS, Program
from rl4sys.spec import MASK, Box, Columns, Discrete, MultiDiscrete, Spec, encoded_size

FORMAT = "rl4sys.snapshot.1"


@dataclass(frozen=True)
class Snapshot:
    """Program, weights, spec and version: everything a client needs to select the same actions as the learner."""

    version: int
    spec: Spec
    program: Program
    weights: Columns

    def __post_init__(self) -> None:
        action, head = self.spec.action, self.program.head
        drawn = Box if head.name in BOX_HEADS else MultiDiscrete if head.name in MULTI_HEADS else Discrete
        if not isinstance(action, drawn):
            raise SpecError(f"the head {head.name!r} does not fit the action space {action!s:.200}")
        outputs = self.program.output_size(input_size(self.spec), self.weights)
        needed = encoded_size(action) * head.inputs_per_element()
        if outputs != needed:
            raise SpecError(f"the head {head.name!r} has {outputs} inputs, but the action space needs {needed}")
        if not isinstance(action, Box) and head.parts(outputs, self.weights) != action.parts:
            raise SpecError(f"the head {head.name!r} has other action dimensions than the action space {action!s:.200}")

    @property
    def memory_size(self) -> int:
        """Length of the recurrent state (memory) vector; 0 if the policy is not recurrent."""
        return self.program.memory_size(self.weights)

    def greedy(self) -> Snapshot:
        """Return the deterministic form of the policy, which selects the most likely action."""
        return replace(self, program=self.program.greedy())

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 of the weights and the program. Independent of the version."""
        return hashlib.sha256(tensors.encode(self.weights, {"program": self._program_text()})).hexdigest()

    def to_bytes(self) -> bytes:
        metadata = {
            "format": FORMAT,
            "version": str(self.version),
            "spec": json.dumps(self.spec.to_json(), sort_keys=True),
            "program": self._program_text(),
            "sha256": self.content_hash,
        }
        return tensors.encode(self.weights, metadata)

    @classmethod
    def from_bytes(cls, blob: bytes) -> Snapshot:
        weights, metadata = tensors.decode(blob)
        if metadata.get("format") != FORMAT:
            raise SpecError(f"not a policy snapshot: its format is {metadata.get('format')!r}, expected {FORMAT!r}")
        try:
            version = int(metadata["version"])
            spec = Spec.from_json(json.loads(metadata["spec"]))
            program = Program.from_json(json.loads(metadata["program"]))
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as problem:
            raise SpecError(f"the metadata of the policy snapshot is damaged: {problem!r}") from problem
        snapshot = cls(version, spec, program, weights)
        if metadata.get("sha256") != snapshot.content_hash:
            raise SpecError("the weights of a policy snapshot do not match their checksum: the file is damaged")
        return snapshot

    def _program_text(self) -> str:
        return json.dumps(self.program.to_json(), sort_keys=True)


def input_size(spec: Spec) -> int:
    """Return the length of a flat row, which contains all observations except the mask."""
    return sum(space.size for name, space in spec.observation.items() if name != MASK)
