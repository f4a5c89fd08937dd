"""Identity that a client reports to the server, and the location of its spools."""

from __future__ import annotations

import json
import secrets
import tempfile
from dataclasses import dataclass
from os import getuid
from pathlib import Path
from typing import TYPE_CHECKING

from rl4sys.client.spool import Spool
from rl4sys.spec import Spec
from rl4sys.wire.messages import Hello
from rl4sys.wire.service import PROTOCOL

if TYPE_CHECKING:
    from rl4sys.client.config import ClientConfig


@dataclass(frozen=True)
class ClientIdentity:
    """Hello message and spec of a client instance, and the directory with the spools of all instances of the client."""

    hello: Hello
    spec: Spec
    spools: Path


def make_identity(config: ClientConfig, spec: Spec) -> ClientIdentity:
    """Create the identity of a new client instance with a random instance number."""
    hello = Hello(
        protocol=PROTOCOL,
        client_id=config.client_id,
        instance=secrets.randbits(64),
        policy_id=config.policy_id,
        spec=json.dumps(spec.to_json()),
        settings=json.dumps(config.learner_settings()),
        pinned_version=config.pin_version,
        remote=config.inference == "remote",
    )
    home = config.outbox.spool or Path(tempfile.gettempdir()) / f"rl4sys-{getuid()}"
    return ClientIdentity(hello, spec, home / config.client_id)


def make_spool(identity: ClientIdentity, max_bytes: int) -> Spool:
    """Create the spool of this instance; no files are written yet."""
    directory = identity.spools / f"{identity.hello.instance:016x}"
    return Spool(directory, max_bytes, identity.hello.SerializeToString())
