"""Message classes of ``proto/rl4sys/v1/training.proto``.

The classes are created from the compiled descriptor at import, because generated code would require a specific
release of protobuf. Their types are in ``messages.pyi``.
"""

from pathlib import Path

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.internal import enum_type_wrapper

_set = descriptor_pb2.FileDescriptorSet.FromString(Path(__file__).with_name("training.binpb").read_bytes())
DESCRIPTOR = descriptor_pool.Default().AddSerializedFile(_set.file[0].SerializeToString())
for _name, _message in DESCRIPTOR.message_types_by_name.items():
    globals()[_name] = message_factory.GetMessageClass(_message)
for _name, _enum in DESCRIPTOR.enum_types_by_name.items():
    globals()[_name] = enum_type_wrapper.EnumTypeWrapper(_enum)
