from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DTYPE_UNSPECIFIED: _ClassVar[DType]
    DTYPE_FLOAT32: _ClassVar[DType]
    DTYPE_INT64: _ClassVar[DType]
    DTYPE_BOOL: _ClassVar[DType]
    DTYPE_UINT8: _ClassVar[DType]
    DTYPE_INT8: _ClassVar[DType]
    DTYPE_INT16: _ClassVar[DType]
    DTYPE_INT32: _ClassVar[DType]
    DTYPE_UINT16: _ClassVar[DType]
    DTYPE_UINT32: _ClassVar[DType]
DTYPE_UNSPECIFIED: DType
DTYPE_FLOAT32: DType
DTYPE_INT64: DType
DTYPE_BOOL: DType
DTYPE_UINT8: DType
DTYPE_INT8: DType
DTYPE_INT16: DType
DTYPE_INT32: DType
DTYPE_UINT16: DType
DTYPE_UINT32: DType

class ClientMessage(_message.Message):
    __slots__ = ("hello", "trajectories", "report")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    TRAJECTORIES_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    trajectories: Trajectories
    report: Report
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., trajectories: _Optional[_Union[Trajectories, _Mapping]] = ..., report: _Optional[_Union[Report, _Mapping]] = ...) -> None: ...

class ServerMessage(_message.Message):
    __slots__ = ("welcome", "ack", "snapshot", "problem")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    ack: Ack
    snapshot: Snapshot
    problem: Problem
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., ack: _Optional[_Union[Ack, _Mapping]] = ..., snapshot: _Optional[_Union[Snapshot, _Mapping]] = ..., problem: _Optional[_Union[Problem, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("protocol", "client_id", "instance", "policy_id", "spec", "settings", "held", "pinned_version", "remote")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    POLICY_ID_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    PINNED_VERSION_FIELD_NUMBER: _ClassVar[int]
    REMOTE_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    client_id: str
    instance: int
    policy_id: str
    spec: str
    settings: str
    held: Held
    pinned_version: int
    remote: bool
    def __init__(self, protocol: _Optional[int] = ..., client_id: _Optional[str] = ..., instance: _Optional[int] = ..., policy_id: _Optional[str] = ..., spec: _Optional[str] = ..., settings: _Optional[str] = ..., held: _Optional[_Union[Held, _Mapping]] = ..., pinned_version: _Optional[int] = ..., remote: _Optional[bool] = ...) -> None: ...

class Held(_message.Message):
    __slots__ = ("lineage", "version", "digest")
    LINEAGE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    lineage: str
    version: int
    digest: bytes
    def __init__(self, lineage: _Optional[str] = ..., version: _Optional[int] = ..., digest: _Optional[bytes] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("lineage", "acknowledged", "max_staleness", "max_message_bytes", "max_trajectory_steps", "release")
    LINEAGE_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    MAX_STALENESS_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_TRAJECTORY_STEPS_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    lineage: str
    acknowledged: int
    max_staleness: int
    max_message_bytes: int
    max_trajectory_steps: int
    release: str
    def __init__(self, lineage: _Optional[str] = ..., acknowledged: _Optional[int] = ..., max_staleness: _Optional[int] = ..., max_message_bytes: _Optional[int] = ..., max_trajectory_steps: _Optional[int] = ..., release: _Optional[str] = ...) -> None: ...

class Trajectories(_message.Message):
    __slots__ = ("trajectory",)
    TRAJECTORY_FIELD_NUMBER: _ClassVar[int]
    trajectory: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, trajectory: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Trajectory(_message.Message):
    __slots__ = ("sequence", "version", "episode", "offset", "terminated", "truncated", "columns")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    EPISODE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TERMINATED_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    version: int
    episode: int
    offset: int
    terminated: bool
    truncated: bool
    columns: _containers.RepeatedCompositeFieldContainer[Column]
    def __init__(self, sequence: _Optional[int] = ..., version: _Optional[int] = ..., episode: _Optional[int] = ..., offset: _Optional[int] = ..., terminated: _Optional[bool] = ..., truncated: _Optional[bool] = ..., columns: _Optional[_Iterable[_Union[Column, _Mapping]]] = ...) -> None: ...

class Column(_message.Message):
    __slots__ = ("name", "dtype", "shape", "values")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    name: str
    dtype: DType
    shape: _containers.RepeatedScalarFieldContainer[int]
    values: bytes
    def __init__(self, name: _Optional[str] = ..., dtype: _Optional[_Union[DType, str]] = ..., shape: _Optional[_Iterable[int]] = ..., values: _Optional[bytes] = ...) -> None: ...

class Report(_message.Message):
    __slots__ = ("adopted_version", "decisions", "fallback_decisions", "dropped_steps", "late_rewards", "outbox_bytes", "spool_bytes")
    ADOPTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    DECISIONS_FIELD_NUMBER: _ClassVar[int]
    FALLBACK_DECISIONS_FIELD_NUMBER: _ClassVar[int]
    DROPPED_STEPS_FIELD_NUMBER: _ClassVar[int]
    LATE_REWARDS_FIELD_NUMBER: _ClassVar[int]
    OUTBOX_BYTES_FIELD_NUMBER: _ClassVar[int]
    SPOOL_BYTES_FIELD_NUMBER: _ClassVar[int]
    adopted_version: int
    decisions: int
    fallback_decisions: int
    dropped_steps: int
    late_rewards: int
    outbox_bytes: int
    spool_bytes: int
    def __init__(self, adopted_version: _Optional[int] = ..., decisions: _Optional[int] = ..., fallback_decisions: _Optional[int] = ..., dropped_steps: _Optional[int] = ..., late_rewards: _Optional[int] = ..., outbox_bytes: _Optional[int] = ..., spool_bytes: _Optional[int] = ...) -> None: ...

class Ack(_message.Message):
    __slots__ = ("sequence",)
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    def __init__(self, sequence: _Optional[int] = ...) -> None: ...

class Snapshot(_message.Message):
    __slots__ = ("version", "digest", "full", "delta", "wants", "taken")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    FULL_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    WANTS_FIELD_NUMBER: _ClassVar[int]
    TAKEN_FIELD_NUMBER: _ClassVar[int]
    version: int
    digest: bytes
    full: bytes
    delta: Delta
    wants: int
    taken: int
    def __init__(self, version: _Optional[int] = ..., digest: _Optional[bytes] = ..., full: _Optional[bytes] = ..., delta: _Optional[_Union[Delta, _Mapping]] = ..., wants: _Optional[int] = ..., taken: _Optional[int] = ...) -> None: ...

class Delta(_message.Message):
    __slots__ = ("base_version", "compressed")
    BASE_VERSION_FIELD_NUMBER: _ClassVar[int]
    COMPRESSED_FIELD_NUMBER: _ClassVar[int]
    base_version: int
    compressed: bytes
    def __init__(self, base_version: _Optional[int] = ..., compressed: _Optional[bytes] = ...) -> None: ...

class Problem(_message.Message):
    __slots__ = ("kind", "message", "sequence")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[Problem.Kind]
        REFUSED: _ClassVar[Problem.Kind]
        TRAJECTORY_REFUSED: _ClassVar[Problem.Kind]
        SERVER: _ClassVar[Problem.Kind]
        NOTE: _ClassVar[Problem.Kind]
    KIND_UNSPECIFIED: Problem.Kind
    REFUSED: Problem.Kind
    TRAJECTORY_REFUSED: Problem.Kind
    SERVER: Problem.Kind
    NOTE: Problem.Kind
    KIND_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    kind: Problem.Kind
    message: str
    sequence: int
    def __init__(self, kind: _Optional[_Union[Problem.Kind, str]] = ..., message: _Optional[str] = ..., sequence: _Optional[int] = ...) -> None: ...

class ActRequest(_message.Message):
    __slots__ = ("client_id", "policy_id", "observation", "draws_key", "draws_counter")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    POLICY_ID_FIELD_NUMBER: _ClassVar[int]
    OBSERVATION_FIELD_NUMBER: _ClassVar[int]
    DRAWS_KEY_FIELD_NUMBER: _ClassVar[int]
    DRAWS_COUNTER_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    policy_id: str
    observation: _containers.RepeatedCompositeFieldContainer[Column]
    draws_key: int
    draws_counter: int
    def __init__(self, client_id: _Optional[str] = ..., policy_id: _Optional[str] = ..., observation: _Optional[_Iterable[_Union[Column, _Mapping]]] = ..., draws_key: _Optional[int] = ..., draws_counter: _Optional[int] = ...) -> None: ...

class ActReply(_message.Message):
    __slots__ = ("action", "log_prob", "version", "draws_counter", "lineage", "wants")
    ACTION_FIELD_NUMBER: _ClassVar[int]
    LOG_PROB_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DRAWS_COUNTER_FIELD_NUMBER: _ClassVar[int]
    LINEAGE_FIELD_NUMBER: _ClassVar[int]
    WANTS_FIELD_NUMBER: _ClassVar[int]
    action: Column
    log_prob: float
    version: int
    draws_counter: int
    lineage: str
    wants: int
    def __init__(self, action: _Optional[_Union[Column, _Mapping]] = ..., log_prob: _Optional[float] = ..., version: _Optional[int] = ..., draws_counter: _Optional[int] = ..., lineage: _Optional[str] = ..., wants: _Optional[int] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatusReply(_message.Message):
    __slots__ = ("release", "uptime_seconds", "root", "memory_bytes", "policies")
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    UPTIME_SECONDS_FIELD_NUMBER: _ClassVar[int]
    ROOT_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    release: str
    uptime_seconds: float
    root: str
    memory_bytes: int
    policies: _containers.RepeatedCompositeFieldContainer[PolicyStatus]
    def __init__(self, release: _Optional[str] = ..., uptime_seconds: _Optional[float] = ..., root: _Optional[str] = ..., memory_bytes: _Optional[int] = ..., policies: _Optional[_Iterable[_Union[PolicyStatus, _Mapping]]] = ...) -> None: ...

class PolicyStatus(_message.Message):
    __slots__ = ("policy_id", "algorithm", "state", "problem", "version", "run", "steps_received", "steps_used", "steps_refused", "steps_waiting", "steps_per_second", "staleness", "episode_return", "snapshot_bytes", "sent_bytes", "journal_bytes", "memory_bytes", "clients")
    POLICY_ID_FIELD_NUMBER: _ClassVar[int]
    ALGORITHM_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    STEPS_RECEIVED_FIELD_NUMBER: _ClassVar[int]
    STEPS_USED_FIELD_NUMBER: _ClassVar[int]
    STEPS_REFUSED_FIELD_NUMBER: _ClassVar[int]
    STEPS_WAITING_FIELD_NUMBER: _ClassVar[int]
    STEPS_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    STALENESS_FIELD_NUMBER: _ClassVar[int]
    EPISODE_RETURN_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_BYTES_FIELD_NUMBER: _ClassVar[int]
    SENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    JOURNAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    CLIENTS_FIELD_NUMBER: _ClassVar[int]
    policy_id: str
    algorithm: str
    state: str
    problem: str
    version: int
    run: str
    steps_received: int
    steps_used: int
    steps_refused: int
    steps_waiting: int
    steps_per_second: float
    staleness: float
    episode_return: float
    snapshot_bytes: int
    sent_bytes: int
    journal_bytes: int
    memory_bytes: int
    clients: _containers.RepeatedCompositeFieldContainer[ClientStatus]
    def __init__(self, policy_id: _Optional[str] = ..., algorithm: _Optional[str] = ..., state: _Optional[str] = ..., problem: _Optional[str] = ..., version: _Optional[int] = ..., run: _Optional[str] = ..., steps_received: _Optional[int] = ..., steps_used: _Optional[int] = ..., steps_refused: _Optional[int] = ..., steps_waiting: _Optional[int] = ..., steps_per_second: _Optional[float] = ..., staleness: _Optional[float] = ..., episode_return: _Optional[float] = ..., snapshot_bytes: _Optional[int] = ..., sent_bytes: _Optional[int] = ..., journal_bytes: _Optional[int] = ..., memory_bytes: _Optional[int] = ..., clients: _Optional[_Iterable[_Union[ClientStatus, _Mapping]]] = ...) -> None: ...

class ClientStatus(_message.Message):
    __slots__ = ("client_id", "peer", "connected_seconds", "steps_received", "trajectories_refused", "report")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_SECONDS_FIELD_NUMBER: _ClassVar[int]
    STEPS_RECEIVED_FIELD_NUMBER: _ClassVar[int]
    TRAJECTORIES_REFUSED_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    peer: str
    connected_seconds: float
    steps_received: int
    trajectories_refused: int
    report: Report
    def __init__(self, client_id: _Optional[str] = ..., peer: _Optional[str] = ..., connected_seconds: _Optional[float] = ..., steps_received: _Optional[int] = ..., trajectories_refused: _Optional[int] = ..., report: _Optional[_Union[Report, _Mapping]] = ...) -> None: ...
