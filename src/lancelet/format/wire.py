"""Parsing of untrusted protobuf messages, with preservation of unknown fields.

Later releases may add fields to any message. Writers must not drop them, so parsed values retain
the serialized unknown fields and include them when they are serialized.
"""

from __future__ import annotations

from typing import Final, TypeVar

from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from lancelet.errors import CorruptDataError

M = TypeVar("M", bound=Message)

_DIGITS_MAX: Final = 20


def parse_message(kind: type[M], data: bytes | memoryview) -> M:
    """Parse a message. Errors include the message type."""
    try:
        return kind.FromString(bytes(data))
    except (DecodeError, RecursionError) as error:
        raise CorruptDataError(
            "a message cannot be decoded", message=kind.__name__, message_bytes=len(data)
        ) from error


def parse_number(text: str | bytes | None) -> int | None:
    """Parse a decimal number, or return None if it is invalid or exceeds 64 bits.

    >>> parse_number("12"), parse_number("-1"), parse_number("9" * 5000)
    (12, None, None)
    """
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > _DIGITS_MAX:
        return None
    number = int(text)
    return number if number < 1 << 64 else None


def unknown_fields(message: Message) -> bytes:
    """Return the serialized fields of a message that its type does not declare."""
    if not len(UnknownFieldSet(message)):
        return b""
    rest = type(message)()
    rest.CopyFrom(message)
    for descriptor, _ in rest.ListFields():
        rest.ClearField(descriptor.name)
    return rest.SerializeToString()


def render_message(message: Message) -> bytes:
    """Serialize a message; equal messages have equal bytes."""
    return message.SerializeToString(deterministic=True)
