"""Models received from the server."""

from __future__ import annotations

import time
from dataclasses import dataclass

from rl4sys.client.recorder import AnyProgram
from rl4sys.errors import SpecError
from rl4sys.policy.snapshot import Snapshot
from rl4sys.policy.snapshot_policy import SnapshotPolicy
from rl4sys.spec import Spec, space_summary
from rl4sys.wire.delta import apply_delta, digest
from rl4sys.wire.messages import Held
from rl4sys.wire.messages import Snapshot as SnapshotMessage

_YIELD_SECONDS = 2e-5

_MAX_VERSION = 2**63 - 1
"""Highest valid version, because the server stores versions as signed 64-bit integers."""

UNLIMITED_STEPS = 2**62
"""Value of ``steps_to_next_update`` if the server sends no value, for example for a pinned version."""


@dataclass(frozen=True)
class Model:
    """Policy ready for inference, with the metadata sent by the server."""

    lineage: str
    version: int
    steps_to_next_update: int
    """Number of steps until the learner's next update is due."""
    learned_sequence: int
    """Highest sequence number of this client instance in the training data of the model."""
    core: AnyProgram | None = None
    """Executable program of the policy; None if the server makes the decisions."""
    content: bytes = b""
    """Bytes of the snapshot, to which the next delta is applied."""
    digest: bytes = b""

    def held(self) -> Held:
        return Held(lineage=self.lineage, version=self.version, digest=self.digest)


def read_model(message: SnapshotMessage, lineage: str, held: Model | None, spec: Spec) -> Model:
    """Build the model of a Snapshot message.

    Raises `SpecError` if the message is damaged, contains a delta against a model other than ``held``, or has a spec
    other than ``spec``.
    """
    content = _content(message, lineage, held)
    if digest(content) != message.digest:
        raise SpecError(f"version {message.version} of the model is damaged: its digest does not match")
    yield_to_other_threads()
    snapshot = Snapshot.from_bytes(content)
    yield_to_other_threads()
    if message.version > _MAX_VERSION:
        raise SpecError(f"the model has version {message.version}; the highest valid version is {_MAX_VERSION}")
    if _describe_spaces(snapshot.spec) != _describe_spaces(spec):
        raise SpecError(
            f"the server's model is for {_describe_spaces(snapshot.spec)}; this client has {_describe_spaces(spec)}"
        )
    return Model(
        lineage=lineage,
        version=message.version,
        steps_to_next_update=message.wants or UNLIMITED_STEPS,
        learned_sequence=message.taken,
        core=SnapshotPolicy(snapshot).core,
        content=content,
        digest=message.digest,
    )


def yield_to_other_threads() -> None:
    """Release the GIL briefly, so that decisions in other threads do not wait until a whole model is read."""
    time.sleep(_YIELD_SECONDS)


def _content(message: SnapshotMessage, lineage: str, held: Model | None) -> bytes:
    if not message.HasField("delta"):
        return message.full
    if held is None or (held.lineage, held.version) != (lineage, message.delta.base_version):
        raise SpecError(
            f"version {message.version} of the model is a delta against version {message.delta.base_version}, "
            "which this client does not have"
        )
    return apply_delta(held.content, message.delta.compressed)


def _describe_spaces(spec: Spec) -> str:
    """Describe the observation shapes and action space of a spec; bounds may differ between clients of a policy."""
    return f"{ {name: box.shape for name, box in spec.observation.items()} }, {space_summary(spec.action)}"
