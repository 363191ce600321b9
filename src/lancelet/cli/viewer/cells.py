r"""Values as JSON for the page, and the media types of binary values.

Values are truncated for display and tagged with their representation:

    7                       {"number": "7"}          JavaScript numbers lose large integers
    [0.1, 0.2]  (vector)    {"vector": [0.1, 0.2], "size": 2}
    b"\x89PNG..."           {"media": "image/png", "bytes": 5120}
    {"a": 1}                {"json": "{\"a\": 1}"}

`/api/row` returns complete values.
"""

from __future__ import annotations

import json
import mimetypes
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa

from lancelet.cli.output import cell_text, json_value
from lancelet.errors import LanceletError
from lancelet.expr.python_values import values_of
from lancelet.scan.blobs import read_blobs, resolve_descriptors, slice_extent
from lancelet.table.snapshot import Snapshot

TEXT_MAX: Final = 2_000
VECTOR_MAX: Final = 256
PREVIEW_BYTES: Final = 32

_INTEGER_MAX: Final = 2**53

_MAGIC: Final = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF8", "image/gif"),
    (0, b"BM", "image/bmp"),
    (8, b"WEBP", "image/webp"),
    (8, b"WAVE", "audio/wav"),
    (0, b"ID3", "audio/mpeg"),
    (0, b"\xff\xfb", "audio/mpeg"),
    (0, b"OggS", "audio/ogg"),
    (0, b"fLaC", "audio/flac"),
    (4, b"ftypM4A", "audio/mp4"),
    (4, b"ftyp", "video/mp4"),
    (0, b"\x1aE\xdf\xa3", "video/webm"),
)
_PLAYED: Final = ("image/", "audio/", "video/")


def media_type(value: bytes) -> str | None:
    r"""Return the media type of an image, audio or video by its first bytes; None for other data.

    >>> media_type(b"\xff\xd8\xff\xe0"), media_type(b"RIFF\x24\0\0\0WAVEfmt "), media_type(b"text")
    ('image/jpeg', 'audio/wav', None)
    """
    return next((name for start, magic, name in _MAGIC if value.startswith(magic, start)), None)


def is_vector(data_type: pa.DataType) -> bool:
    """Return whether values are vectors of numbers."""
    if isinstance(data_type, pa.BaseExtensionType):
        return is_vector(data_type.storage_type)
    if not pa.types.is_fixed_size_list(data_type):
        return False
    value = data_type.value_type
    return (
        pa.types.is_floating(value) or pa.types.is_integer(value) or not pa.types.is_nested(value)
    )


def type_text(data_type: pa.DataType) -> str:
    """Return a short name of a type.

    >>> type_text(pa.list_(pa.float32(), 8)), type_text(pa.int64()), type_text(pa.uuid())
    ('float[8]', 'int64', 'uuid')
    """
    if isinstance(data_type, pa.BaseExtensionType):
        name: str = data_type.extension_name
        vendor, _, rest = name.partition(".")
        return rest.partition(".")[0] if vendor in ("lance", "arrow") else name
    if pa.types.is_fixed_size_list(data_type):
        return f"{data_type.value_type}[{data_type.list_size}]"
    return str(data_type)


def cells_of(table: pa.Table) -> list[list[dict[str, Any] | None]]:
    """Return the cells of each row of a table; columns may have equal names."""
    columns = [[cell(value, each.type) for value in values_of(each)] for each in table.columns]
    return [list(row) for row in zip(*columns, strict=True)]


def cell(value: Any, data_type: pa.DataType) -> dict[str, Any] | None:
    """Return the JSON representation of a value; None for null."""
    match value:
        case None:
            return None
        case bool():
            return {"text": "true" if value else "false"}
        case float():
            exact = np.float32(value) if pa.types.is_float32(data_type) else value
            return {"number": f"{value:.6g}", "exact": str(exact)}
        case int() | Decimal():
            return {"number": str(value)}
        case str():
            return _truncated(value)
        case bytes():
            return _binary(value, len(value))
        case datetime() | date() | time() | timedelta():
            return {"text": cell_text(value)}
        case list() if is_vector(data_type):
            return _vector(value, is_short=pa.types.is_float32(_item_type(data_type)))
    text = json.dumps(_plain(value), ensure_ascii=False)
    return {"json": text} if len(text) <= TEXT_MAX else _truncated(text)


def blob_cells(
    snapshot: Snapshot, column: str, descriptors: Sequence[Any], addresses: Sequence[int]
) -> list[dict[str, Any] | None]:
    """Return the cells of a blob column from the first bytes of its blobs.

    External objects are not read; their names determine their types.
    """
    field = snapshot.schema.field_by_path(column)
    try:
        extents = resolve_descriptors(
            snapshot, field, descriptors, np.array(addresses, dtype=np.uint64)
        )
        heads = read_blobs(
            [
                None
                if extent is None or extent.size is None
                else slice_extent(extent, 0, min(extent.size, PREVIEW_BYTES))
                for extent in extents
            ]
        )
    except (LanceletError, OSError):  # missing objects must not hide the other columns
        return [None if each is None else {"json": json.dumps(each)} for each in descriptors]
    cells: list[dict[str, Any] | None] = []
    for extent, head in zip(extents, heads, strict=True):
        if extent is None:
            cells.append(None)
        elif head is None or extent.size is None:
            guessed = mimetypes.guess_type(extent.path)[0] or ""
            kind = {"media": guessed} if guessed.startswith(_PLAYED) else {}
            cells.append({"external": extent.path, **kind})
        else:
            cells.append(_binary(head, extent.size))
    return cells


def _binary(head: bytes, size: int) -> dict[str, Any]:
    kind = media_type(head)
    if kind is not None:
        return {"media": kind, "bytes": size}
    return {"binary": head[:PREVIEW_BYTES].hex(" "), "bytes": size}


def _item_type(data_type: pa.DataType) -> pa.DataType:
    is_extension = isinstance(data_type, pa.BaseExtensionType)
    return (data_type.storage_type if is_extension else data_type).value_type


def _vector(value: list[Any], *, is_short: bool) -> dict[str, Any]:
    # JSON has no NaN and infinity. Seven digits suffice for single precision.
    numbers = [float(each) if _is_finite(each) else None for each in value[:VECTOR_MAX]]
    if is_short:
        numbers = [None if each is None else float(f"{each:.7g}") for each in numbers]
    return {"vector": numbers, "size": len(value)}


def _is_finite(value: Any) -> bool:
    return value is not None and abs(float(value)) < float("inf")


def _truncated(text: str) -> dict[str, Any]:
    if len(text) <= TEXT_MAX:
        return {"text": text}
    return {"text": text[:TEXT_MAX], "length": len(text)}


def _plain(value: Any) -> Any:
    """Return a nested value for display, without numbers that JavaScript cannot represent.

    >>> _plain([1, 2**60, float("nan"), {"a": b"x" * 99}])
    [1, '1152921504606846976', None, {'a': '99 bytes'}]
    """
    match value:
        case bool() | str() | None:
            return value
        case float():
            return value if _is_finite(value) else None
        case int():
            return value if abs(value) <= _INTEGER_MAX else str(value)
        case bytes() if len(value) > PREVIEW_BYTES:
            return f"{len(value)} bytes"
        case Mapping():
            return {str(name): _plain(each) for name, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
    return json_value(value)
