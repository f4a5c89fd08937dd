"""A client's settings, and the file they are read from."""

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
"""What belongs to the learner: the server checks it, and what the file leaves out is the server's custom."""


def _checked_port(address: str) -> str:
    """gRPC takes of a larger port what fits into 16 bits, and connects to somebody else."""
    port = address.rpartition(":")[2]
    if port.isdecimal() and int(port[:9]) > 65535:
        raise ValueError("a port is at most 65535")
    return address


class TlsSettings(Config):
    """The ``server.tls`` block: encrypt, and know each other by certificate. An empty block trusts the system's."""

    ca: Path | None = None
    """Certificates of the authorities that the server's must be signed by, PEM; null for the system's."""
    cert: Path | None = None
    """This client's own certificate, PEM, where the server asks for one."""
    key: Path | None = None
    """Its private key, PEM."""


class ServerSettings(Config):
    """The ``server`` block: where the training server is and how to reach it."""

    address: Annotated[str, AfterValidator(_checked_port)] = Field(default="localhost:50051", min_length=1)
    """Host and port of the training server."""
    token: str | None = None
    """Shown to the server to be let in. Better kept in a file of its own: see `token_file`."""
    token_file: Path | None = None
    """File whose first line is the token."""
    tls: TlsSettings | None = None
    """Encrypt the connection; null for not."""
    timeout_seconds: float = Field(default=10.0, gt=0, le=3600)
    """How long the agent, when it is made, waits for its first model."""
    act_timeout_seconds: float = Field(default=1.0, gt=0, le=3600)
    """How long a decision waits for the server, with `inference: remote`, before the fallback is taken."""


class OutboxSettings(Config):
    """The ``outbox`` block: what is kept while the server is away, before the oldest steps are given up."""

    memory_bytes: int = Field(default=64 * 2**20, ge=0)
    """Trajectories kept in memory."""
    spool: Path | None = None
    """Directory for those beyond; null for one named by the client under the system's temporary directory."""
    spool_bytes: int = Field(default=256 * 2**20, ge=0)
    """Trajectories kept there; 0 for none."""


class ClientConfig(Config):
    """A client of a training server."""

    # The other engine takes 5 MB for a pattern like that of names.
    model_config = ConfigDict(regex_engine="python-re")

    version: int = VERSION
    """Version of the config format."""
    client_id: str = Field(pattern=IDENTITY)
    """Who this is: letters, digits, dot, dash and underscore. By default the file's name without its ending."""
    policy_id: str = Field(pattern=IDENTITY)
    """The policy to act by; clients that name the same one share a learner and a model. By default the client's id."""
    seed: int | None = Field(default=None, ge=0)
    """Makes this client's decisions, and a learner that is made for it, repeatable; null draws anew in every life, as
    clients that share a policy should, or they would all try the same."""
    observation: Any = None
    """What is seen: an int (so many numbers), a shape, a block with shape, dtype, low, high; or several by name."""
    action: Any = None
    """What is done: an int (so many choices), a list of them (several at once), or a block with size, low and high for
    so many numbers."""
    mask: bool = False
    """Each observation comes with a mask of the choices that are legal, those of several parts side by side."""
    algorithm: dict[str, Any] = Field(default_factory=dict)
    """The learner's algorithm: its name and options, as in an experiment file."""
    network: dict[str, Any] = Field(default_factory=dict)
    """The learner's networks by role, as in an experiment file; or one description for `all`."""
    buffer: dict[str, Any] = Field(default_factory=dict)
    """The learner's buffer, as in an experiment file."""
    training: dict[str, Any] = Field(default_factory=dict)
    """How long to learn, as in an experiment file: total_timesteps is what schedules go by."""
    normalize_obs: bool | None = None
    """Whether the learner scales observations by their statistics; null for the server's custom."""
    normalize_reward: bool | None = None
    """Whether the learner scales rewards by their statistics; null for the server's custom."""
    max_staleness: int | None = Field(default=None, ge=0)
    """Versions that experience may lag behind the learner and still be learnt from; null for the server's custom.
    With `patience_seconds`, also how far this client goes ahead of a learner that would take anything."""
    server: ServerSettings = ServerSettings()
    """Where the training server is."""
    inference: Literal["local", "remote"] = "local"
    """Who decides: the client by its copy of the model, or the server, asked for every action."""
    max_traj_length: int = Field(default=1000, gt=0)
    """Endless episodes are cut into trajectories of at most so many steps."""
    send_frequency: int = Field(default=1, gt=0)
    """Trajectories gathered before they are sent together; what waits longer than a second goes anyway."""
    patience_seconds: float = Field(default=0.0, ge=0)
    """How long a decision may wait for a newer model rather than take a step that the learner would refuse as too
    stale; 0 never waits. For simulators and exact repetition, not for live systems."""
    pin_version: int | None = Field(default=None, ge=0)
    """Act by this version of the policy and no other; null for the newest."""
    fallback_action: Any = None
    """What is done while there is no model; null for the first legal choice, or zeros within bounds."""
    outbox: OutboxSettings = OutboxSettings()
    """What is kept while the server is away."""
    flush_seconds: float = Field(default=5.0, ge=0)
    """How long close() waits for the server to acknowledge what is on its way."""

    def learner_settings(self) -> Settings:
        """What the server is told about the learner: the file's own words, and the seed."""
        given = {name: value for name in _LEARNER if (value := getattr(self, name)) not in (None, {})}
        return given if self.seed is None else {"seed": self.seed, **given}


def load_client_config(
    conf_path: str | Path | Mapping[str, Any], changes: Mapping[str, Any] | None = None
) -> ClientConfig:
    """The settings in a file, old forms included, with ``changes`` (by dotted key) put in their place.

    A mapping stands for a file of that content. Files named in the settings are looked for beside the config file.
    """
    if isinstance(conf_path, Mapping):
        settings, stem, folder = dict(conf_path), "client", Path()
    else:
        path = Path(conf_path)
        if not path.is_file():
            raise ConfigError(f"no config file {str(path)!r}; conf_path should name a client's JSON or YAML file")
        settings, stem, folder = load(path), path.stem, path.parent
    settings = migrate(settings, native=frozenset(ClientConfig.model_fields))
    for key, value in (changes or {}).items():
        settings = _changed(settings, key.split("."), value)
    settings = _with_identity(settings, stem)
    _check_version(settings.get("version", VERSION))
    return _beside(parse(ClientConfig, settings), folder)


def _changed(settings: Settings, path: list[str], value: Any) -> Settings:
    """A copy with one setting replaced; of a block, those that ``value`` names."""
    key, *rest = path
    inner = settings.get(key)
    block = inner if isinstance(inner, Mapping) else {}
    if rest:
        value = _changed(dict(block), rest, value)
    elif isinstance(value, Mapping):
        for name, part in value.items():
            block = _changed(dict(block), [name], part)
        value = block
    return {**settings, key: value}


def _with_identity(settings: Settings, stem: str) -> Settings:
    client_id = settings.get("client_id")
    client_id = stem if client_id is None else client_id
    policy_id = settings.get("policy_id")
    return {**settings, "client_id": client_id, "policy_id": client_id if policy_id is None else policy_id}


def _beside(config: ClientConfig, folder: Path) -> ClientConfig:
    """The same with every relative file of it resolved beside the config file."""
    server, outbox = config.server, config.outbox
    tls = server.tls
    if tls is not None:
        tls = tls.model_copy(update={name: _resolved(getattr(tls, name), folder) for name in ("ca", "cert", "key")})
    server = server.model_copy(update={"tls": tls, "token_file": _resolved(server.token_file, folder)})
    outbox = outbox.model_copy(update={"spool": _resolved(outbox.spool, folder)})
    return config.model_copy(update={"server": server, "outbox": outbox})


def _resolved(path: Path | None, folder: Path) -> Path | None:
    return None if path is None else (folder / path.expanduser()).absolute()


def _check_version(version: Any) -> None:
    if version != VERSION:
        raise ConfigError(
            f"the config says version: {version!r}, and this rl4sys reads version {VERSION}; "
            "use a matching release, or rewrite the file"
        )
