"""The envelope of every page message: a type URL and the serialized message.

For example:

    type_url  "/lance.encodings21.PageLayout"
    value     the serialized PageLayout
"""

from __future__ import annotations

from typing import Any, TypeVar

from google.protobuf.message import DecodeError

from lancelet.errors import CorruptDataError, UnsupportedError
from lancelet.format.protos import wire_pb

_Message = TypeVar("_Message")


def pack_any(type_url: str, message: Any) -> bytes:
    """Return the serialized envelope of a message."""
    envelope = wire_pb.Any(type_url=type_url, value=message.SerializeToString())
    return bytes(envelope.SerializeToString())


def unpack_any(data: bytes, type_url: str, kind: type[_Message]) -> _Message:
    """Parse the message of an envelope with the given type URL."""
    envelope, message = wire_pb.Any(), kind()
    try:
        envelope.ParseFromString(data)
        if envelope.type_url != type_url:
            raise UnsupportedError(
                "the page description has a message type unknown to this file version",
                expected=type_url,
                found=envelope.type_url,
            )
        message.ParseFromString(envelope.value)  # type: ignore[attr-defined]  # a message
    except DecodeError as error:
        raise CorruptDataError(
            "the page description is not a valid message", expected=type_url
        ) from error
    return message
