"""A separate Protobuf descriptor pool for the messages of lancelet.

The messages have the names of the format. In the default pool, they would conflict with messages of
other libraries that use the same names.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Final

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.internal import enum_type_wrapper

_POOL: Final = descriptor_pool.DescriptorPool()


def load(name: str, dependencies: Sequence[str], data: bytes) -> dict[str, object]:
    """Add a serialized file descriptor to the pool and return its messages and enums by name."""
    for dependency in dependencies:
        importlib.import_module(f"lancelet.format.protos.{dependency}_pb")
    _POOL.AddSerializedFile(data)
    descriptor = _POOL.FindFileByName(name)
    found: dict[str, object] = {}
    for message, message_descriptor in descriptor.message_types_by_name.items():
        found[message] = message_factory.GetMessageClass(message_descriptor)
    for enum, enum_descriptor in descriptor.enum_types_by_name.items():
        found[enum] = enum_type_wrapper.EnumTypeWrapper(enum_descriptor)
        for value in enum_descriptor.values:
            found[value.name] = value.number
    return found
