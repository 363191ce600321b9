"""Blob descriptors: columns that reference blobs instead of containing them.

The kinds of descriptor are:

    null
    packed       blob id 7, position 5, size 6      a range of a shared sidecar file
    dedicated    blob id 3, size 99                 a sidecar file with a single blob
    inline       the bytes                          written to the data file
    managed      a path, position 1, size 2         a range of an existing object of the table
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from lancelet.arguments import bytes_of, instance, row_numbers, text, whole_number
from lancelet.errors import InvalidInputError
from lancelet.format.extension import BLOB_V2, NAME_KEY
from lancelet.io.store import BytesLike
from lancelet.values import dataclass

_INLINE: Final = 0
_PACKED: Final = 1
_DEDICATED: Final = 2
_MANAGED: Final = 4
_MANAGED_IN_BASE: Final = 5
_TYPE: Final = pa.struct(
    [
        ("kind", pa.uint8()),
        ("data", pa.large_binary()),
        ("uri", pa.string()),
        ("blob_id", pa.uint32()),
        ("blob_size", pa.uint64()),
        ("position", pa.uint64()),
    ]
)


@dataclass(frozen=True, slots=True, init=False)
class BlobDescriptor:
    """The location of a blob in a sidecar file, returned by the blob writers."""

    kind: int | None
    blob_id: int | None
    size: int | None
    offset: int | None

    def __init__(self, *_: Any, **__: Any) -> None:
        """Raise; only blob writers create descriptors."""
        raise TypeError("cannot create 'BlobDescriptor' instances")

    @classmethod
    def _of(
        cls, kind: int | None, blob_id: int | None, size: int | None, offset: int | None
    ) -> BlobDescriptor:
        descriptor = object.__new__(cls)
        named = {"kind": kind, "blob_id": blob_id, "size": size, "offset": offset}
        for name, value in named.items():
            object.__setattr__(descriptor, name, value)
        return descriptor

    @classmethod
    def null(cls) -> BlobDescriptor:
        """Return the descriptor of a null value."""
        return cls._of(None, None, None, None)

    @classmethod
    def packed(cls, blob_id: int, offset: int, size: int) -> BlobDescriptor:
        """Return the descriptor of a blob in a shared sidecar file."""
        return cls._of(_PACKED, blob_id, size, offset)

    @classmethod
    def dedicated(cls, blob_id: int, size: int) -> BlobDescriptor:
        """Return the descriptor of a blob with its own sidecar file."""
        return cls._of(_DEDICATED, blob_id, size, None)

    def __repr__(self) -> str:
        if self.kind is None:
            return "Null"
        if self.offset is None:
            return f"Dedicated {{ blob_id: {self.blob_id}, size: {self.size} }}"
        return f"Packed {{ blob_id: {self.blob_id}, offset: {self.offset}, size: {self.size} }}"


class BlobDescriptorArrayBuilder:
    """Builds a blob column from descriptors, without copying the blobs."""

    def __init__(self, column: str) -> None:
        """Start a column with the given name."""
        name = text("column", column)
        self._field = pa.field(name, _TYPE, metadata={NAME_KEY: BLOB_V2})
        self._columns: dict[str, list[Any]] | None = {part.name: [] for part in _TYPE}
        self._is_null: list[bool] = []

    @property
    def field(self) -> pa.Field:
        """The field of the array that `finish` returns."""
        return self._field

    def append(self, value: BlobDescriptor) -> None:
        """Append a descriptor returned by a blob writer."""
        self.extend([value])

    def extend(self, values: Sequence[BlobDescriptor]) -> None:
        """Append descriptors returned by blob writers."""
        for value in values:
            instance("value", value, BlobDescriptor)
        for value in values:
            self._add(value.kind, blob_id=value.blob_id, size=value.size, position=value.offset)

    def append_null(self) -> None:
        """Append a null value."""
        self._add(None)

    def append_inline(self, data: BytesLike | Sequence[int]) -> None:
        """Append a blob that is stored in the data file."""
        self._add(_INLINE, data=bytes(bytes_of("data", data)))

    def append_dedicated(self, blob_id: int, size: int) -> None:
        """Append a blob with its own sidecar file."""
        number = blob_id_of(blob_id)
        self._add(_DEDICATED, blob_id=number, size=whole_number("size", size))

    def append_managed(
        self, uri: str, offset: int, size: int, *, base_id: int | None = None
    ) -> None:
        """Append a range of an existing object of the table without copying it.

        Args:
            uri: The path of the object, relative to the table or to the base path.
            offset: The start of the range in bytes.
            size: The length of the range in bytes.
            base_id: The id of the base path; None for the table itself.
        """
        start, length = whole_number("offset", offset), whole_number("size", size)
        base = None if base_id is None else whole_number("base_id", base_id, bits=32)
        kind = _MANAGED if base is None else _MANAGED_IN_BASE
        self._add(kind, uri=_managed_path(uri), blob_id=base, size=length, position=start)

    def extend_packed(self, blob_id: int, offsets: Sequence[int], sizes: Sequence[int]) -> None:
        """Append blobs of a shared sidecar file, given their offsets and sizes."""
        number = blob_id_of(blob_id)
        starts = row_numbers("offsets", offsets).tolist()
        lengths = row_numbers("sizes", sizes).tolist()
        if len(starts) != len(lengths):
            raise InvalidInputError(
                f"offsets and sizes must have the same length, got {len(starts)} and {len(lengths)}"
            )
        for name, values in (("offsets", starts), ("sizes", lengths)):
            whole_number(name, min(values, default=0))
        self._add_all(
            len(starts),
            kind=[_PACKED] * len(starts),
            blob_id=[number] * len(starts),
            blob_size=lengths,
            position=starts,
        )

    def finish(self) -> pa.StructArray:
        """Return the column and close the builder."""
        columns = self._open()
        arrays = [pa.array(columns[part.name], part.type) for part in _TYPE]
        self._columns = None
        mask = pa.array(self._is_null, pa.bool_())
        return pa.StructArray.from_arrays(arrays, fields=list(_TYPE), mask=mask)

    def _add(
        self,
        kind: int | None,
        *,
        data: bytes | None = None,
        uri: str | None = None,
        blob_id: int | None = None,
        size: int | None = None,
        position: int | None = None,
    ) -> None:
        self._add_all(
            1,
            kind=[kind],
            data=[data],
            uri=[uri],
            blob_id=[blob_id],
            blob_size=[size],
            position=[position],
        )

    def _add_all(self, count: int, **values: Sequence[Any]) -> None:
        columns = self._open()
        for name, column in columns.items():
            column.extend(values.get(name, [None] * count))
        self._is_null.extend(kind is None for kind in values["kind"])

    def _open(self) -> dict[str, list[Any]]:
        if self._columns is None:
            raise InvalidInputError("BlobDescriptorArrayBuilder is already finished")
        return self._columns


def blob_id_of(given: object) -> int:
    """Return the id of a sidecar file, or raise if it is 0."""
    number = whole_number("blob_id", given, bits=32)
    if number == 0:
        raise InvalidInputError("Blob id 0 is reserved for blobs stored elsewhere")
    return number


def _managed_path(given: object) -> str:
    path = text("uri", given)
    if ":" in path or any(part in {"", ".", ".."} for part in path.split("/")):
        raise InvalidInputError(
            "Managed blob_uri must be a non-empty canonical relative object path, got "
            f"{json.dumps(path)}"
        )
    return path
