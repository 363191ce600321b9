"""Protobuf messages as bytes that are not trusted, and the parts of them nobody here knows.

A later release may add fields to any message. A reader that rewrites a table must not drop
them, so a value keeps their wire form beside what it understood, and gives it back when it is
rendered.
"""

from __future__ import annotations

from typing import Final, TypeVar

from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from lancelet.errors import CorruptDataError

M = TypeVar("M", bound=Message)

_DIGITS_MAX: Final = 20


def parse_message(kind: type[M], data: bytes | memoryview) -> M:
    """Parse a message, or raise an error that names its type."""
    try:
        return kind.FromString(bytes(data))
    except (DecodeError, RecursionError) as error:
        raise CorruptDataError(
            "a message cannot be decoded", message=kind.__name__, message_bytes=len(data)
        ) from error


def parse_number(text: str | bytes | None) -> int | None:
    """Return the number that a stored text says, None if it says none that fits 64 bits.

    >>> parse_number("12"), parse_number("-1"), parse_number("9" * 5000)
    (12, None, None)
    """
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > _DIGITS_MAX:
        return None
    number = int(text)
    return number if number < 1 << 64 else None


def unknown_fields(message: Message) -> bytes:
    """Return the wire form of the fields of a message that its type does not declare."""
    if not len(UnknownFieldSet(message)):
        return b""
    rest = type(message)()
    rest.CopyFrom(message)
    for descriptor, _ in rest.ListFields():
        rest.ClearField(descriptor.name)
    return rest.SerializeToString()


def render_message(message: Message) -> bytes:
    """Return the wire form of a message; equal messages give equal bytes."""
    return message.SerializeToString(deterministic=True)
