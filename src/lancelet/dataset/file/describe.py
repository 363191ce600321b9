"""Metadata of 2.x files in the classes of pylance's `lance.file`.

Encodings are formatted like the debug output of pylance:

    Flat {
        bits_per_value: 32,
        data: None,
    }

Nested messages are formatted as `Some(...)` or `None`, and a oneof shows the field that is set.
The text is for display only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
from google.protobuf.message import DecodeError, Message

from lancelet.encodings.base import StoredColumn
from lancelet.errors import CorruptDataError, UnsupportedError
from lancelet.file.v2.footer import range_at
from lancelet.file.v2.reader import FileReader
from lancelet.format.protos import encodings20_pb, encodings21_pb, encodings23_pb, wire_pb
from lancelet.values import dataclass

_INDENT: Final = "    "
_ENUM_PREFIXES: Final = {"CompressionScheme": "CompressionAlgorithm"}
_NAME: Final = re.compile(r"([A-Z]\w+) \{")
_WORD_START: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_WRAPPERS: Final = frozenset(
    {"PageLayout", "CompressiveEncoding", "ArrayEncoding", "BufferCompression", "Buffer"}
)
_LAYOUT_AND_ENCODING: Final = 2
_SHORT_NAMES: Final = {
    "MiniBlockLayout": "miniblock",
    "FullZipLayout": "fullzip",
    "ConstantLayout": "constant",
    "BlobLayout": "blob",
    "PlanarLayout": "planar",
    "InlineBitpacking": "bitpacked",
    "OutOfLineBitpacking": "bitpacked",
    "BitpackedForNonNeg": "bitpacked",
    "Rle": "run length",
    "General": "compressed",
}
_ENVELOPES: Final[dict[str, type[Message]]] = {
    "/lance.encodings.ArrayEncoding": encodings20_pb.ArrayEncoding,
    "/lance.encodings.ColumnEncoding": encodings20_pb.ColumnEncoding,
    "/lance.encodings21.PageLayout": encodings21_pb.PageLayout,
    "/lance.encodings23.PlanarLayout": encodings23_pb.PlanarLayout,
}


@dataclass(frozen=True, slots=True)
class LanceBufferDescriptor:
    """The position and size of a buffer in the file."""

    position: int
    size: int


@dataclass(frozen=True, slots=True)
class LancePageMetadata:
    """The buffers of a page, and a description of its encoding."""

    buffers: list[LanceBufferDescriptor]
    encoding: str


@dataclass(frozen=True, slots=True)
class LanceColumnMetadata:
    """The pages and the column-level buffers of a column."""

    column_buffers: list[LanceBufferDescriptor]
    pages: list[LancePageMetadata]


@dataclass(frozen=True, slots=True)
class LanceColumnStatistics:
    """The number of pages and the encoded size of a column."""

    num_pages: int
    size_bytes: int

    def __repr__(self) -> str:
        return f"ColumnStatistics(num_pages={self.num_pages}, size_bytes={self.size_bytes})"


@dataclass(frozen=True, slots=True)
class LanceFileStatistics:
    """The statistics of all columns of a file."""

    columns: list[LanceColumnStatistics]

    def __repr__(self) -> str:
        return f"FileStatistics(columns={self.columns})"


@dataclass(frozen=True, slots=True, repr=False)
class LanceFileMetadata:
    """The metadata of a file: schema, sizes, buffers and columns."""

    schema: pa.Schema
    num_rows: int
    num_data_bytes: int
    num_column_metadata_bytes: int
    num_global_buffer_bytes: int
    global_buffers: list[LanceBufferDescriptor]
    columns: list[LanceColumnMetadata]
    major_version: int
    minor_version: int

    def __repr__(self) -> str:
        return "\n".join(_metadata_lines(self))


def describe_metadata(reader: FileReader, schema: pa.Schema) -> LanceFileMetadata:
    """Return the metadata of an open file with the metadata of all columns."""
    metadata = reader.metadata
    footer = metadata.footer
    buffers = [_descriptor(*range_at(metadata.buffers, i)) for i in range(len(metadata.buffers))]
    buffer_bytes = sum(buffer.size for buffer in buffers)
    major, minor = footer.version.footer_numbers
    return LanceFileMetadata(
        schema=schema,
        num_rows=reader.num_rows,
        num_data_bytes=footer.column_metadata - buffer_bytes,
        num_column_metadata_bytes=footer.buffer_table - footer.column_metadata,
        num_global_buffer_bytes=buffer_bytes,
        global_buffers=buffers,
        columns=[_describe_column(column) for column in _columns(reader)],
        major_version=major,
        minor_version=minor,
    )


def describe_statistics(reader: FileReader) -> LanceFileStatistics:
    """Return the statistics of all columns of an open file."""
    return LanceFileStatistics(
        [
            LanceColumnStatistics(
                len(column.pages), sum(int(page.size.sum()) for page in column.pages)
            )
            for column in _columns(reader)
        ]
    )


def _columns(reader: FileReader) -> Iterator[StoredColumn]:
    return (reader.column(index) for index in range(len(reader.metadata.columns)))


def _describe_column(column: StoredColumn) -> LanceColumnMetadata:
    return LanceColumnMetadata(
        [
            _descriptor(position, size)
            for position, size in zip(column.buffer_position, column.buffer_size, strict=True)
        ],
        [
            LancePageMetadata(
                [
                    _descriptor(position, size)
                    for position, size in zip(page.position, page.size, strict=True)
                ],
                encoding_text(page.encoding),
            )
            for page in column.pages
        ],
    )


def _descriptor(position: int, size: int) -> LanceBufferDescriptor:
    return LanceBufferDescriptor(int(position), int(size))


def _metadata_lines(metadata: LanceFileMetadata) -> Iterator[str]:
    for name in (
        "major_version",
        "minor_version",
        "num_rows",
        "num_data_bytes",
        "num_column_metadata_bytes",
        "num_global_buffer_bytes",
    ):
        yield f"{name}: {getattr(metadata, name)}"
    yield from _buffer_lines("global_buffers", metadata.global_buffers, indent="")
    yield "columns:"
    for column in metadata.columns:
        first, *rest = _buffer_lines("column_buffers", column.column_buffers, indent="  ")
        yield f"- {first.lstrip()}"
        yield from rest
        yield "  pages:" if column.pages else "  pages: []"
        for page in column.pages:
            first, *rest = _buffer_lines("buffers", page.buffers, indent="    ")
            yield f"  - {first.lstrip()}"
            yield from rest
            yield "    encoding: |-"
            yield from (f"      {line}" for line in page.encoding.split("\n"))


def _buffer_lines(name: str, buffers: list[LanceBufferDescriptor], *, indent: str) -> list[str]:
    if not buffers:
        return [f"{indent}{name}: []"]
    lines = [f"{indent}{name}:"]
    for buffer in buffers:
        lines += [f"{indent}- position: {buffer.position}", f"{indent}  size: {buffer.size}"]
    return lines


def encoding_text(envelope: bytes) -> str:
    """Return a text description of an encoded page layout."""
    try:
        envelope_message = wire_pb.Any.FromString(envelope)
        kind = _ENVELOPES.get(envelope_message.type_url)
        if kind is None:
            raise UnsupportedError("unknown encoding type", found=envelope_message.type_url)
        return message_text(kind.FromString(envelope_message.value))
    except DecodeError as error:
        raise CorruptDataError("an encoding cannot be parsed", bytes=len(envelope)) from error


def short_encoding(text: str) -> str:
    """Return the names of the encodings in a description of `encoding_text`, outermost first.

    >>> short_encoding("PageLayout { MiniBlockLayout { Fsst { Variable { Flat {")
    'miniblock, fsst, variable'
    """
    names = [name for name in _NAME.findall(text) if name not in _WRAPPERS]
    shown = dict.fromkeys(_SHORT_NAMES.get(name, _spaced_name(name)) for name in names)
    if len(shown) > _LAYOUT_AND_ENCODING:
        shown.pop("flat", None)
    return ", ".join(shown)


def _spaced_name(name: str) -> str:
    return _WORD_START.sub(" ", name).lower()


def message_text(message: Message) -> str:
    """Return a text description of a message.

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
        # Protobuf represents an optional scalar as a oneof with a single field.
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
        enum_value = descriptor.enum_type.values_by_number.get(value)
        prefix = _ENUM_PREFIXES.get(descriptor.enum_type.name, "")
        return str(value) if enum_value is None else prefix + _camel(enum_value.name)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return f'b"{_escaped(value)}"'
    return f'"{value}"' if isinstance(value, str) else str(value)


def _escaped(value: bytes) -> str:
    r"""Return bytes with the escape sequences of Rust, as pylance prints them.

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
