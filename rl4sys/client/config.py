"""Config of a client and the functions that load it from a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field

from rl4sys.client.migration import migrate
from rl4sys.config import VERSION, Config, Settings, load, parse
from rl4sys.errors import ConfigError
from rl4sys.wire.service import IDENTITY

_LEARNER = ("algorithm", "network", "buffer", "training", "normalize_obs", "normalize_reward", "max_staleness")
"""Names of the learner settings. The server validates these settings and adds defaults for missing ones."""


def _check_port(address: str) -> str:
    """Reject ports above 65535: gRPC would truncate them to 16 bits and connect to another port."""
    port = address.rpartition(":")[2]
    if port.isdecimal() and int(port[:9]) > 65535:
        raise ValueError("expected a port of at most 65535")
    return address


class TlsConfig(Config):
    """The ``server.tls`` block: TLS encryption and authentication. An empty block uses the system's CA certificates."""

    ca: Path | None = None
    """PEM file with the CA certificates that verify the server's certificate; null for the system's CA certificates."""
    cert: Path | None = None
    """PEM file with the certificate of this client, if the server requires one."""
    key: Path | None = None
    """PEM file with the private key of this client."""


class ServerConnectionConfig(Config):
    """The ``server`` block: address and credentials of the training server."""

    address: Annotated[str, AfterValidator(_check_port)] = Field(default="localhost:50051", min_length=1)
    """Host and port of the training server."""
    token: str | None = None
    """Access token for the server. Prefer `token_file`, which keeps the token out of the config."""
    token_file: Path | None = None
    """File with the access token in its first line."""
    tls: TlsConfig | None = None
    """TLS settings; null for an unencrypted connection."""
    timeout_seconds: float = Field(default=10.0, gt=0, le=3600)
    """Maximum time in seconds that the constructor of the agent waits for the first model."""
    act_timeout_seconds: float = Field(default=1.0, gt=0, le=3600)
    """Maximum time in seconds that a decision waits for the server with `inference: remote`; after a timeout, the
    client uses the fallback action."""


class OutboxConfig(Config):
    """The ``outbox`` block: size limits for unsent trajectories; beyond both limits, the oldest ones are dropped."""

    memory_bytes: int = Field(default=64 * 2**20, ge=0)
    """Maximum size in bytes of unsent trajectories in RAM."""
    spool: Path | None = None
    """Directory for trajectories beyond `memory_bytes`; null for a directory in the system's temporary directory."""
    spool_bytes: int = Field(default=256 * 2**20, ge=0)
    """Maximum size in bytes of the spool on disk; 0 disables the spool."""


class ClientConfig(Config):
    """Config of a client of a training server."""

    # Pydantic's default regular expression engine needs 5 MB of RAM for the identifier pattern.
    model_config = ConfigDict(regex_engine="python-re")

    version: int = VERSION
    """Version of the config format."""
    client_id: str = Field(pattern=IDENTITY)
    """Name of this client: letters, digits, dot, dash and underscore. Default: the file name without its suffix."""
    policy_id: str = Field(pattern=IDENTITY)
    """Policy to use; clients with the same `policy_id` share a learner and its model. Default: the `client_id`."""
    seed: int | None = Field(default=None, ge=0)
    """Seed of this client's random draws and of a learner created for it; null for a random seed. Clients that share
    a policy should not share a seed, or they explore identically."""
    observation: Any = None
    """Observation space: the length of a vector, a shape, or a block with shape, dtype, low and high; or a block of
    named observations."""
    action: Any = None
    """Action space: the number of discrete actions, a list of such numbers (MultiDiscrete), or a block with size, low
    and high (Box)."""
    mask: bool = False
    """True if each observation comes with an action mask. The mask of a MultiDiscrete action concatenates the masks of
    its dimensions."""
    algorithm: dict[str, Any] = Field(default_factory=dict)
    """Algorithm of the learner: its name and options, as in an experiment file."""
    network: dict[str, Any] = Field(default_factory=dict)
    """Networks of the learner by role, as in an experiment file; `all` applies to every role."""
    buffer: dict[str, Any] = Field(default_factory=dict)
    """Buffer of the learner, as in an experiment file."""
    training: dict[str, Any] = Field(default_factory=dict)
    """Training settings of the learner, as in an experiment file. `total_timesteps` is the length of schedules, such as
    a decaying learning rate."""
    normalize_obs: bool | None = None
    """True to normalize observations in the learner; null for the server's default."""
    normalize_reward: bool | None = None
    """True to normalize rewards in the learner; null for the server's default."""
    max_staleness: int | None = Field(default=None, ge=0)
    """Maximum number of versions that experience may lag behind the learner; null for the server's default.
    With `patience_seconds`, the client waits for a newer model when this limit is reached."""
    server: ServerConnectionConfig = ServerConnectionConfig()
    """Connection to the training server."""
    inference: Literal["local", "remote"] = "local"
    """Location of inference: `local` uses the client's copy of the model, `remote` requests every action from the
    server."""
    max_traj_length: int = Field(default=1000, gt=0)
    """Maximum number of steps in a trajectory; longer episodes are cut into several."""
    send_frequency: int = Field(default=1, gt=0)
    """Number of trajectories per message. A trajectory waits at most one second until the message is full."""
    patience_seconds: float = Field(default=0.0, ge=0)
    """Maximum time in seconds that a decision waits for a newer model if the next step would be too stale for
    training; 0 never waits. For simulators and reproducible runs, not for live systems."""
    pin_version: int | None = Field(default=None, ge=0)
    """Version of the policy to use; null for the newest version."""
    fallback_action: Any = None
    """Action to use if the policy cannot decide, for example before the first model arrives; null for the first legal
    action, or zeros clipped to the bounds."""
    outbox: OutboxConfig = OutboxConfig()
    """Limits for unsent trajectories."""
    flush_seconds: float = Field(default=5.0, ge=0)
    """Maximum time in seconds that `close()` waits for the server to acknowledge sent trajectories."""

    def learner_settings(self) -> Settings:
        """Return the learner settings and the seed, without those that the config does not set."""
        given = {name: value for name in _LEARNER if (value := getattr(self, name)) not in (None, {})}
        return given if self.seed is None else {"seed": self.seed, **given}


def load_client_config(
    conf_path: str | Path | Mapping[str, Any], overrides: Mapping[str, Any] | None = None
) -> ClientConfig:
    """Load a config file of the current or an older format and apply ``overrides`` (by dotted key).

    A mapping is treated like a file with this content. Relative paths are resolved against the folder of the file.
    """
    if isinstance(conf_path, Mapping):
        settings, stem, folder = dict(conf_path), "client", Path()
    else:
        path = Path(conf_path)
        if not path.is_file():
            raise ConfigError(f"no config file {str(path)!r}; conf_path must be the path of a JSON or YAML file")
        settings, stem, folder = load(path), path.stem, path.parent
    settings = migrate(settings, native=frozenset(ClientConfig.model_fields))
    for key, value in (overrides or {}).items():
        settings = _with_override(settings, key.split("."), value)
    settings = _with_identity(settings, stem)
    _check_version(settings.get("version", VERSION))
    return _resolve_paths(parse(ClientConfig, settings), folder)


def _with_override(settings: Settings, path: list[str], value: Any) -> Settings:
    """Return a copy of the settings with ``value`` at ``path``. A mapping is merged into the existing block."""
    key, *rest = path
    inner = settings.get(key)
    block = inner if isinstance(inner, Mapping) else {}
    if rest:
        value = _with_override(dict(block), rest, value)
    elif isinstance(value, Mapping):
        for name, part in value.items():
            block = _with_override(dict(block), [name], part)
        value = block
    return {**settings, key: value}


def _with_identity(settings: Settings, stem: str) -> Settings:
    client_id = settings.get("client_id")
    client_id = stem if client_id is None else client_id
    policy_id = settings.get("policy_id")
    return {**settings, "client_id": client_id, "policy_id": client_id if policy_id is None else policy_id}


def _resolve_paths(config: ClientConfig, folder: Path) -> ClientConfig:
    """Return the config with relative paths resolved against the folder of the config file."""
    server, outbox = config.server, config.outbox
    tls = server.tls
    if tls is not None:
        tls = tls.model_copy(update={name: _resolve(getattr(tls, name), folder) for name in ("ca", "cert", "key")})
    server = server.model_copy(update={"tls": tls, "token_file": _resolve(server.token_file, folder)})
    outbox = outbox.model_copy(update={"spool": _resolve(outbox.spool, folder)})
    return config.model_copy(update={"server": server, "outbox": outbox})


def _resolve(path: Path | None, folder: Path) -> Path | None:
    return None if path is None else (folder / path.expanduser()).absolute()


def _check_version(version: Any) -> None:
    if version != VERSION:
        raise ConfigError(
            f"the config has version {version!r}, but this release of rl4sys reads version {VERSION}; "
            "use a matching release or update the file"
        )
