"""Fields that are read together, with cached metadata of the read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from functools import lru_cache
from operator import is_
from typing import Final, Generic, NamedTuple, TypeVar

import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.encodings.base import FieldReader, FileVersion, RowRange
from lancelet.encodings.levels import LeafNode, nest
from lancelet.encodings.pages.planned import (
    NestedLayout,
    PlannedColumns,
    PlannedField,
    ValueLayout,
    layout_of,
)
from lancelet.file.schedule import TASK_BYTES, decoded_row_bytes, split_rows_min
from lancelet.file.storage import from_storage, has_json
from lancelet.file.v2.generation import columns_of
from lancelet.format import extension, logical_type
from lancelet.format.field import BLOB_KEY
from lancelet.format.schema import Field
from lancelet.values import cached_property, dataclass

T = TypeVar("T")

_FIELD_BYTES: Final = 4096
"""The approximate memory usage of an open field."""

_CACHED_FIELDS: Final = 4096
"""The number of fields with a cached user type."""

_RECENT: Final = 6
"""The number of cached entries; a search reads several sets of fields in turn."""


@dataclass(frozen=True, slots=True, eq=False)
class OpenedField:
    """An open field and its user type."""

    field: Field
    reader: FieldReader
    data_type: pa.DataType
    is_as_stored: bool

    @staticmethod
    def of(field: Field, reader: FieldReader) -> OpenedField:
        """Resolve the user type of a field."""
        return OpenedField(field, reader, *resolve_user_type(field, reader.data_type))

    def to_user(self, array: pa.Array) -> pa.Array:
        """Convert a stored array to the user type."""
        return array if self.is_as_stored else from_storage(array, self.field)


@lru_cache(_CACHED_FIELDS)
def resolve_user_type(field: Field, stored: pa.DataType) -> tuple[pa.DataType, bool]:
    """Return the user type of stored values, and whether it equals the storage type."""
    data_type = from_storage(pa.nulls(0, stored), field).type
    return data_type, data_type == stored and not has_json(field)


class RecentCache(Generic[T]):
    """A cache of values derived from the most recently used sequences of fields.

    Fields are compared by identity. Concurrent calls of `put` may lose an entry.
    """

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        """Start with an empty cache."""
        self._entries: tuple[tuple[Sequence[Field], T], ...] = ()

    def find(self, fields: Sequence[Field]) -> T | None:
        """Return the cached value of these fields, or None."""
        for cached, value in self._entries:
            if _is_same_fields(fields, cached):
                return value
        return None

    def put(self, fields: Sequence[Field], value: T) -> None:
        """Cache a value and evict the oldest entry."""
        self._entries = ((tuple(fields), value), *self._entries[: _RECENT - 1])

    def __iter__(self) -> Iterator[T]:
        """Yield the cached values, newest first."""
        return (value for _, value in self._entries)


class FieldLayouts(NamedTuple):
    """The memory layouts of fields that support plans, and the ids of their columns."""

    layouts: Sequence[ValueLayout | NestedLayout | None]
    ids: Sequence[Sequence[int]]


_LAYOUTS: Final[defaultdict[FileVersion, RecentCache[FieldLayouts]]] = defaultdict(RecentCache)


def layouts_of(fields: Sequence[Field], version: FileVersion) -> FieldLayouts:
    """Return the memory layouts of fields in files of version 2.1 or 2.2."""
    layouts = _LAYOUTS[version].find(fields)
    if layouts is None:
        field_layouts = [_field_layout(field, version) for field in fields]
        ids = [
            (field.id,)
            if isinstance(form, ValueLayout)
            else [each.id for each in columns_of(field, version)]
            for field, form in zip(fields, field_layouts, strict=True)
        ]
        layouts = FieldLayouts(field_layouts, ids)
        _LAYOUTS[version].put(fields, layouts)
    return layouts


def is_plain(field: Field) -> bool:
    """Return whether a field is a single column whose values are returned as stored."""
    kind = field.logical_type
    return (
        not field.children
        and not field.extension_name
        and (not field.metadata or _has_plain_metadata(field))
        and kind not in (logical_type.JSON, "null", logical_type.STRUCT)
        and logical_type.BFLOAT16 not in kind
        and not kind.startswith("dict:")
    )


def _has_plain_metadata(field: Field) -> bool:
    """Return whether the metadata of a field does not affect its values."""
    return BLOB_KEY not in field.metadata and extension.NAME_KEY not in field.metadata


def _field_layout(field: Field, version: FileVersion) -> ValueLayout | NestedLayout | None:
    """Return the layout of a field, or None if its user type is not its storage type."""
    if is_plain(field):
        return _type_layout(field.logical_type)
    if any(node.is_blob for node in field.walk()):
        return None
    node = nest(field, version)
    if not resolve_user_type(field, node.data_type)[1]:
        return None
    return layout_of(node.data_type) if isinstance(node, LeafNode) else NestedLayout.of(node)


@lru_cache(_CACHED_FIELDS)
def _type_layout(kind: str) -> ValueLayout | None:
    return layout_of(logical_type.storage_type_of(kind))


@dataclass(slots=True, eq=False)
class OpenFields:
    """The open fields of a file, and recent selections of them."""

    each: dict[Field, OpenedField] = field(default_factory=dict)
    recent: RecentCache[Selection] = field(default_factory=RecentCache)

    @property
    def memory_bytes(self) -> int:
        """The memory usage of the fields and selections in bytes."""
        return _FIELD_BYTES * len(self.each) + sum(each.memory_bytes for each in self.recent)


def _is_same_fields(fields: Sequence[Field], others: Sequence[Field]) -> bool:
    """Return whether two sequences contain the same field objects."""
    return fields is others or (len(fields) == len(others) and all(map(is_, fields, others)))


def user_schema(fields: Sequence[Field], data_types: Sequence[pa.DataType]) -> pa.Schema:
    """Return the schema of batches with the user types of the fields."""
    field_types = zip(fields, data_types, strict=True)
    return pa.schema([field.to_arrow().with_type(data_type) for field, data_type in field_types])


@dataclass(frozen=True, eq=False)
class Selection:
    """Fields that are read together, with cached metadata of the read.

    `units` has the plans of each field, or the open field if it has none.
    """

    fields: tuple[Field, ...]
    units: tuple[OpenedField | PlannedField, ...]
    num_rows: int
    _borders: list[Int64s | None] = field(default_factory=list, init=False)
    _columns: dict[tuple[int, int], PlannedColumns | None] = field(default_factory=dict, init=False)

    @cached_property
    def opened(self) -> list[OpenedField]:
        """The fields without plans."""
        return [unit for unit in self.units if isinstance(unit, OpenedField)]

    def planned(self, start: int, stop: int) -> PlannedColumns | None:
        """Return the fields with plans in a part of the units, or None if there are none."""
        columns = self._columns.get((start, stop))
        if columns is None and (start, stop) not in self._columns:
            fields = [unit for unit in self.units[start:stop] if isinstance(unit, PlannedField)]
            columns = self._columns[start, stop] = PlannedColumns(fields) if fields else None
        return columns

    def page_starts(self, find: Callable[[Sequence[Field]], Int64s | None]) -> Int64s | None:
        """Return the first rows of pages of fields without plans; computed once."""
        if not self._borders:
            self._borders.append(find([column.field for column in self.opened]))
        return self._borders[0]

    @cached_property
    def schema(self) -> pa.Schema:
        """The schema of batches."""
        return user_schema(self.fields, self.data_types)

    @cached_property
    def data_types(self) -> list[pa.DataType]:
        """The user type of each field."""
        return [unit.data_type for unit in self.units]

    @property
    def memory_bytes(self) -> int:
        """The memory usage in bytes."""
        return 512 * len(self.fields)

    @cached_property
    def row_bytes(self) -> list[float]:
        """Estimate the decoded bytes per row of each field."""
        return [
            decoded_row_bytes(
                unit.reader.data_type if isinstance(unit, OpenedField) else unit.data_type, encoded
            )
            for unit, encoded in zip(self.units, self._encoded_row_bytes, strict=True)
        ]

    def is_one_task(self, rows: RowRange) -> bool:
        """Return whether rows are so few that several tasks take longer than one."""
        return len(rows) * sum(self.row_bytes) <= TASK_BYTES

    @cached_property
    def split_rows_min(self) -> int:
        """The minimum rows per split."""
        return split_rows_min(sum(self.row_bytes), max(self.row_bytes, default=0.0))

    @cached_property
    def is_packed(self) -> bool:
        """Whether values are at least twice as large when decoded, which makes decoding slow."""
        return 2 * sum(self._encoded_row_bytes) <= sum(self.row_bytes)

    @cached_property
    def _encoded_row_bytes(self) -> list[float]:
        rows, count = RowRange(0, self.num_rows), max(1, self.num_rows)
        return [_encoded_bytes(unit, rows, self.num_rows) / count for unit in self.units]

    def encoded_bytes(self, rows: RowRange) -> int:
        """Estimate the encoded bytes of the rows."""
        return sum(_encoded_bytes(unit, rows, self.num_rows) for unit in self.units)


def _encoded_bytes(unit: OpenedField | PlannedField, rows: RowRange, num_rows: int) -> int:
    if isinstance(unit, OpenedField):
        return unit.reader.encoded_bytes(rows)
    return unit.encoded_bytes * len(rows) // max(1, num_rows)
