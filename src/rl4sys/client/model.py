"""The model a client acts by, as it came from the server."""

from __future__ import annotations

import time
from dataclasses import dataclass

from rl4sys.client.recorder import AnyProgram
from rl4sys.errors import SpecError
from rl4sys.policy.portable import SnapshotPolicy
from rl4sys.policy.snapshot import Snapshot
from rl4sys.spec import Spec, outline
from rl4sys.wire.delta import apply_difference, digest
from rl4sys.wire.messages import Held
from rl4sys.wire.messages import Snapshot as SnapshotMessage

_MOMENT_SECONDS = 2e-5

_LARGEST_VERSION = 2**63 - 1
"""A newer one could never come, and a server takes no experience of it."""

ENDLESS = 2**62
"""Steps until an update of a learner that says nothing about it, such as one whose old version is pinned."""


@dataclass(frozen=True)
class Model:
    """A policy ready to decide, and what the server said along with it.

    ``wants`` is the number of steps that make the learner's next update due, ``taken`` this client's highest sequence
    that it had learnt from before. ``core`` is None where the server decides.
    """

    lineage: str
    version: int
    wants: int
    taken: int
    core: AnyProgram | None = None
    content: bytes = b""
    digest: bytes = b""

    def held(self) -> Held:
        return Held(lineage=self.lineage, version=self.version, digest=self.digest)


def read_model(message: SnapshotMessage, lineage: str, held: Model | None, spec: Spec) -> Model:
    """The model in a message; `SpecError` if it is damaged, starts from one that is not held, or fits another spec."""
    content = _content(message, lineage, held)
    if digest(content) != message.digest:
        raise SpecError(f"version {message.version} of the model did not arrive as it was sent: its digest differs")
    let_others_run()
    snapshot = Snapshot.from_bytes(content)
    let_others_run()
    if message.version > _LARGEST_VERSION:
        raise SpecError(f"the model is of version {message.version}; no learner counts that far")
    if _sizes(snapshot.spec) != _sizes(spec):
        raise SpecError(f"the server's model is for {_sizes(snapshot.spec)}; this client has {_sizes(spec)}")
    return Model(
        lineage=lineage,
        version=message.version,
        wants=message.wants or ENDLESS,
        taken=message.taken,
        core=SnapshotPolicy(snapshot).core,
        content=content,
        digest=message.digest,
    )


def let_others_run() -> None:
    """Give the interpreter away for a moment: a decision must not wait until a whole model is read."""
    time.sleep(_MOMENT_SECONDS)


def _content(message: SnapshotMessage, lineage: str, held: Model | None) -> bytes:
    if not message.HasField("delta"):
        return message.full
    if held is None or (held.lineage, held.version) != (lineage, message.delta.base_version):
        raise SpecError(f"version {message.version} came as a difference from {message.delta.base_version}, not held")
    return apply_difference(held.content, message.delta.compressed)


def _sizes(spec: Spec) -> str:
    """What must be the same; bounds may differ between systems that share a policy."""
    return f"{ {name: box.shape for name, box in spec.observation.items()} }, {outline(spec.action)}"
