"""The descriptor pool of lancelet's messages, apart from every other library's.

The messages carry the format's own names. A program that also loads another library with
messages of those names would fail in the shared pool; in a pool of our own it does not.
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
