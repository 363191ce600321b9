"""Conversion between Arrow extension types and field metadata.

On disk an extension type is its storage type and two metadata entries of the field:

    extension<arrow.uuid>     fixed_size_binary:16
                              ARROW:extension:name = arrow.uuid, ARROW:extension:metadata = ""

Arrow itself passes such types between libraries in the same form. A type that is not registered
with Arrow is returned as its storage type, with the metadata entries.

JSON has two names: users see `arrow.json` over text; manifests contain `lance.json` and the logical
type `json`, and encodings store the binary form of the document.
"""

from __future__ import annotations

import ctypes
import struct
from typing import Final

import pyarrow as pa

from lancelet.errors import InternalError

NAME_KEY: Final = "ARROW:extension:name"
METADATA_KEY: Final = "ARROW:extension:metadata"
ARROW_JSON: Final = "arrow.json"
LANCE_JSON: Final = "lance.json"
BLOB_V2: Final = "lance.blob.v2"


class _ArrowSchema(ctypes.Structure):
    """The `ArrowSchema` struct of the Arrow C data interface, which has a stable layout."""

    _fields_ = (
        ("format", ctypes.c_char_p),
        ("name", ctypes.c_char_p),
        ("metadata", ctypes.c_void_p),
        ("flags", ctypes.c_int64),
        ("n_children", ctypes.c_int64),
        ("children", ctypes.c_void_p),
        ("dictionary", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
        ("private_data", ctypes.c_void_p),
    )


def extension_entries(data_type: pa.BaseExtensionType) -> dict[str, str]:
    """Return the two metadata entries that describe an extension type.

    Arrow's canonical types do not expose their parameters in Python; only the C data interface
    provides them for every type.

    >>> extension_entries(pa.fixed_shape_tensor(pa.float32(), [2, 3]))["ARROW:extension:metadata"]
    '{"shape":[2,3]}'
    """
    exported = _ArrowSchema()
    pa.field("", data_type)._export_to_c(ctypes.addressof(exported))  # noqa: SLF001 - Arrow documents it for this use
    try:
        entries = _read_entries(exported.metadata)
    finally:
        release = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(exported.release)
        release(ctypes.addressof(exported))
    if NAME_KEY not in entries:
        raise InternalError("Arrow exported an extension type without a name")
    return {NAME_KEY: entries[NAME_KEY], METADATA_KEY: entries.get(METADATA_KEY, "")}


def restore_extensions(field: pa.Field) -> pa.Field:
    """Convert metadata entries of a field and its descendants to extension types.

    A field whose storage does not fit the extension is returned unchanged.

    >>> stored = pa.field("x", pa.binary(16), metadata={"ARROW:extension:name": "arrow.uuid"})
    >>> restore_extensions(stored).type
    UuidType(extension<arrow.uuid>)
    """
    try:
        return pa.ipc.read_schema(pa.schema([field]).serialize()).field(0)
    except (pa.ArrowInvalid, TypeError, ValueError):
        return field


def _read_entries(address: int | None) -> dict[str, str]:
    """Read the length-prefixed keys and values at an address of the C data interface."""
    if not address:
        return {}
    (count,) = struct.unpack("i", ctypes.string_at(address, 4))
    position = address + 4
    texts: list[str] = []
    for _ in range(2 * count):
        (size,) = struct.unpack("i", ctypes.string_at(position, 4))
        texts.append(ctypes.string_at(position + 4, size).decode("utf-8", "surrogateescape"))
        position += 4 + size
    return dict(zip(texts[::2], texts[1::2], strict=True))
