"""The envelope around every page's message: the name of its type, then the message itself.

type_url  "/lance.encodings21.PageLayout"
value     the serialized PageLayout
"""

from __future__ import annotations

from typing import Any, TypeVar

from google.protobuf.message import DecodeError

from lancelet.errors import CorruptDataError, UnsupportedError
from lancelet.format.protos import wire_pb

_Message = TypeVar("_Message")


def seal(type_url: str, message: Any) -> bytes:
    """Return a message in its envelope."""
    envelope = wire_pb.Any(type_url=type_url, value=message.SerializeToString())
    return bytes(envelope.SerializeToString())


def unseal(data: bytes, type_url: str, kind: type[_Message]) -> _Message:
    """Return the message of an envelope, which must be of the given type."""
    envelope, message = wire_pb.Any(), kind()
    try:
        envelope.ParseFromString(data)
        if envelope.type_url != type_url:
            raise UnsupportedError(
                "a page is described by a message that this file version does not have",
                expected=type_url,
                found=envelope.type_url,
            )
        message.ParseFromString(envelope.value)  # type: ignore[attr-defined]  # a message
    except DecodeError as error:
        raise CorruptDataError(
            "the description of a page is not a message", expected=type_url
        ) from error
    return message
