"""The settings of a training server."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from rl4sys.config import VERSION, Config
from rl4sys.experiment.alerts import AlertSettings


class Limits(Config):
    """The ``limits`` block: what clients may ask for, checked before anything is allocated."""

    max_policies: int = Field(default=256, gt=0)
    """Policies on this server."""
    max_clients: int = Field(default=1024, gt=0)
    """Clients connected at once."""
    max_trajectory_steps: int = Field(default=100_000, gt=0)
    """Steps of one trajectory."""
    max_observation_size: int = Field(default=1_000_000, gt=0)
    """Numbers in one observation."""
    max_choices: int = Field(default=100_000, gt=0)
    """Alternatives of a discrete action, of all its parts, or numbers in a continuous one."""
    max_parameters: int = Field(default=50_000_000, gt=0)
    """Weights of a policy's networks, all together."""
    max_buffer_bytes: int = Field(default=4 * 2**30, gt=0)
    """Memory of a policy's buffer when it is full."""
    max_waiting_bytes: int = Field(default=64 * 2**20, gt=0)
    """Trajectories of one policy between network and disk; beyond it its clients are held back."""


class TlsSettings(Config):
    """The ``tls`` block."""

    cert: Path
    """The server's certificate, PEM."""
    key: Path
    """Its private key, PEM."""
    client_ca: Path | None = None
    """Accept only clients with a certificate signed by this authority."""


class ServerConfig(Config):
    """A training server. Everything has a default; the command line can replace the most used settings."""

    version: int = VERSION
    """Version of the config format."""
    host: str = "localhost"
    """Where to listen; 0.0.0.0 for all networks, which wants a token and TLS."""
    port: int = Field(default=50051, ge=0, le=65535)
    """The port to listen on; 0 takes a free one."""
    root: Path = Path("live")
    """Directory that holds a run directory per policy."""
    token_file: Path | None = None
    """Tokens that clients must show, one a line; see docs/server.md."""
    tls: TlsSettings | None = None
    """Encrypt, and optionally know clients by certificate."""
    metrics_port: int | None = Field(default=None, ge=0, le=65535)
    """Serve Prometheus metrics here; null for not at all."""
    plugins: list[str] = Field(default_factory=list)
    """Modules or Python files with components of your own. Clients can name components, never modules."""
    policies: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Learner settings by policy id (algorithm, network, buffer, …), used instead of what its clients bring."""
    device: str = Field(default="auto", pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$")
    """Where networks are trained."""
    threads: int = Field(default=1, gt=0, le=1024)
    """Threads torch computes with, per policy."""
    niceness: int = Field(default=10, ge=0, le=19)
    """How far learners stand back for everything else on the machine: the server, and systems beside it."""
    checkpoint_seconds: float = Field(default=60.0, gt=0)
    """Time between checkpoints of a policy that learns; what came later is learnt again from the journal."""
    keep_checkpoints: int = Field(default=3, gt=0)
    """How many of the newest checkpoints of a policy stay."""
    keep_versions: int = Field(default=20, gt=0)
    """How many of the newest models of a policy stay, for clients that pin one."""
    journal: Literal["compact", "archive"] = "compact"
    """After a checkpoint: remove what was learnt from the journal, or keep it as a data set."""
    tensorboard: bool = True
    """Write TensorBoard event files."""
    log_frequency: int = Field(default=1000, gt=0)
    """Steps between rows of a policy's metrics."""
    alerts: AlertSettings = AlertSettings()
    """Rules that every policy is judged by, and whom to tell; see docs/experiments.md."""
    limits: Limits = Limits()
    """What clients may ask for."""
