"""Config of a training server."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from rl4sys.alerts.rules import AlertConfig
from rl4sys.config import VERSION, Config


class Limits(Config):
    """The ``limits`` block: limits for clients and their policies, checked before memory is allocated."""

    max_policies: int = Field(default=256, gt=0)
    """Maximum number of policies."""
    max_clients: int = Field(default=1024, gt=0)
    """Maximum number of connected clients."""
    max_trajectory_steps: int = Field(default=100_000, gt=0)
    """Maximum number of steps in one trajectory."""
    max_observation_size: int = Field(default=1_000_000, gt=0)
    """Maximum number of elements in one observation."""
    max_choices: int = Field(default=100_000, gt=0)
    """Maximum number of discrete actions (for MultiDiscrete, the sum over its dimensions), or maximum length of a
    continuous action."""
    max_parameters: int = Field(default=50_000_000, gt=0)
    """Maximum number of weights in all networks of a policy."""
    max_buffer_bytes: int = Field(default=4 * 2**30, gt=0)
    """Maximum size in bytes that the buffer of a policy has when it is full."""
    max_waiting_bytes: int = Field(default=64 * 2**20, gt=0)
    """Maximum size in bytes of the received trajectories of a policy that are not yet on disk. Above this size, the
    server stops reading from the clients of the policy."""


class TlsConfig(Config):
    """The ``tls`` block: certificates of the server and its clients."""

    cert: Path
    """PEM file with the certificate of the server."""
    key: Path
    """PEM file with the private key of the certificate."""
    client_ca: Path | None = None
    """PEM file with a CA certificate; the server accepts only clients with a certificate signed by this CA."""


class ServerConfig(Config):
    """Config of a training server. Every setting has a default; command line options override common settings."""

    version: int = VERSION
    """Version of the config format."""
    host: str = "localhost"
    """Address to listen on; 0.0.0.0 selects all interfaces and should be combined with tokens and TLS."""
    port: int = Field(default=50051, ge=0, le=65535)
    """Port to listen on; 0 selects a free port."""
    root: Path = Path("live")
    """Directory with one run directory per policy."""
    token_file: Path | None = None
    """File with the accepted tokens, one per line; see docs/server.md."""
    tls: TlsConfig | None = None
    """TLS settings, optionally with client certificates; null means unencrypted connections."""
    metrics_port: int | None = Field(default=None, ge=0, le=65535)
    """Port of the Prometheus metrics endpoint; null disables the endpoint."""
    plugins: list[str] = Field(default_factory=list)
    """Modules or Python files with your own components. Clients can use these components, but cannot load modules."""
    policies: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Learner settings (algorithm, network, buffer, …) by policy id. They replace the settings that clients send for
    the policy."""
    device: str = Field(default="auto", pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$")
    """Torch device for training: auto, cpu, cuda, cuda:<index> or mps."""
    threads: int = Field(default=1, gt=0, le=1024)
    """Number of torch threads per policy."""
    niceness: int = Field(default=10, ge=0, le=19)
    """Niceness of learner processes; higher values give more CPU time to other processes."""
    checkpoint_seconds: float = Field(default=60.0, gt=0)
    """Time in seconds between checkpoints of a policy. After a crash, training resumes from the last checkpoint and
    repeats the later trajectories from the journal."""
    keep_checkpoints: int = Field(default=3, gt=0)
    """Number of checkpoints to keep per policy."""
    keep_versions: int = Field(default=20, gt=0)
    """Number of newest models to keep per policy; clients can pin the versions of these models."""
    journal: Literal["compact", "archive"] = "compact"
    """Treatment of learned trajectories after a checkpoint: `compact` deletes them from the journal, `archive` keeps
    them as a dataset."""
    tensorboard: bool = True
    """True to write TensorBoard event files."""
    tensorboard_links: bool = False
    """True to link the event files of each policy as ``rl4sys-<algorithm>-info/<policy>`` in the root, so that
    TensorBoard can show all policies of one algorithm."""
    log_frequency: int = Field(default=1000, gt=0)
    """Number of steps between two rows of a policy's metrics."""
    alerts: AlertConfig = AlertConfig()
    """Alert rules for all policies, and the delivery of alerts; see docs/experiments.md."""
    limits: Limits = Limits()
    """Limits for clients and their policies."""
