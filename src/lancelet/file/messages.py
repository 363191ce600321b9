"""Protobuf messages as text in the form in which the reference shows encodings.

    Flat {
        bits_per_value: 32,
        data: None,
    }

A message within a message is `Some(...)` or `None`, and a choice between fields names the one
that was made. It is for people to read; nothing parses it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from google.protobuf.message import DecodeError, Message

from lancelet.errors import CorruptDataError, UnsupportedError
from lancelet.format.protos import encodings20_pb, encodings21_pb, encodings23_pb, wire_pb

_INDENT: Final = "    "
_ENUM_PREFIXES: Final = {"CompressionScheme": "CompressionAlgorithm"}
_ENVELOPES: Final[dict[str, type[Message]]] = {
    "/lance.encodings.ArrayEncoding": encodings20_pb.ArrayEncoding,
    "/lance.encodings.ColumnEncoding": encodings20_pb.ColumnEncoding,
    "/lance.encodings21.PageLayout": encodings21_pb.PageLayout,
    "/lance.encodings23.PlanarLayout": encodings23_pb.PlanarLayout,
}


def encoding_text(envelope: bytes) -> str:
    """Return the message in an envelope as text."""
    try:
        sealed = wire_pb.Any.FromString(envelope)
        kind = _ENVELOPES.get(sealed.type_url)
        if kind is None:
            raise UnsupportedError("an encoding is of an unknown kind", found=sealed.type_url)
        return message_text(kind.FromString(sealed.value))
    except DecodeError as error:
        raise CorruptDataError("an encoding cannot be parsed", bytes=len(envelope)) from error


def message_text(message: Message) -> str:
    """Return a message as text.

    >>> print(message_text(encodings21_pb.Flat(bits_per_value=8)))
    Flat {
        bits_per_value: 8,
        data: None,
    }
    """
    lines = [f"{_INDENT}{line}" for part in _fields(message) for line in part.split("\n")]
    name = message.DESCRIPTOR.name
    return "\n".join([f"{name} {{", *lines, "}"]) if lines else name


def _fields(message: Message) -> Iterator[str]:
    choices_seen: set[str] = set()
    for descriptor in message.DESCRIPTOR.fields:
        choice = descriptor.containing_oneof
        # An optional number is, on the wire, a choice between itself and nothing.
        if choice is None or choice.name == f"_{descriptor.name}":
            yield f"{descriptor.name}: {_field(message, descriptor)},"
        elif choice.name not in choices_seen:
            choices_seen.add(choice.name)
            yield f"{choice.name}: {_choice(message, choice.name)},"


def _choice(message: Message, name: str) -> str:
    chosen = message.WhichOneof(name)
    if chosen is None:
        return "None"
    descriptor = message.DESCRIPTOR.fields_by_name[chosen]
    return _wrapped("Some", _wrapped(_camel(chosen), _value(getattr(message, chosen), descriptor)))


def _field(message: Message, descriptor: Any) -> str:
    value = getattr(message, descriptor.name)
    if not descriptor.has_presence and not isinstance(value, (int, float, str, bytes)):
        items = [_value(item, descriptor) for item in value]
        lines = [f"{_INDENT}{line}" for item in items for line in f"{item},".split("\n")]
        return "\n".join(["[", *lines, "]"]) if lines else "[]"
    if not descriptor.has_presence:
        return _value(value, descriptor)
    if not message.HasField(descriptor.name):
        return "None"
    return _wrapped("Some", _value(value, descriptor))


def _value(value: Any, descriptor: Any) -> str:
    if isinstance(value, Message):
        return message_text(value)
    if descriptor.enum_type is not None:
        known = descriptor.enum_type.values_by_number.get(value)
        prefix = _ENUM_PREFIXES.get(descriptor.enum_type.name, "")
        return str(value) if known is None else prefix + _camel(known.name)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return f'b"{_escaped(value)}"'
    return f'"{value}"' if isinstance(value, str) else str(value)


def _escaped(value: bytes) -> str:
    r"""Return bytes as the reference shows them, in the escapes of its language.

    >>> print(_escaped(bytes([0, 97, 34])))
    \0a\"
    """
    escapes = {0: "\\0", 9: "\\t", 10: "\\n", 13: "\\r", 34: '\\"', 92: "\\\\"}
    return "".join(
        escapes.get(byte) or (chr(byte) if 32 <= byte < 127 else f"\\x{byte:02x}") for byte in value
    )


def _wrapped(name: str, text: str) -> str:
    lines = [f"{_INDENT}{line}" for line in f"{text},".split("\n")]
    return "\n".join([f"{name}(", *lines, ")"])


def _camel(name: str) -> str:
    return "".join(word.capitalize() for word in name.lower().split("_"))
