"""Page statistics: null count, minimum and maximum of each batch of a field.

The statistics of a field are a struct column, named after the field id, with a row per batch. The
columns are written with the regular encodings:

    field 7, batches [3, null] and [-0.0, nan]
    "7": {null_count 1, min_value 3.0, max_value 3.0}, {0, -0.0, 0.0}

The format does not store nulls of numbers, which are read as arbitrary numbers, but writers exclude
them from the bounds. `zone_statistics` therefore returns only bounds that are valid for the values
returned by readers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.buffers import ByteRanges, ReadCoroutine, read_together
from lancelet.encodings.base import RowRange
from lancelet.encodings.v0_1 import StoredBatches, is_variable, open_field
from lancelet.errors import CorruptDataError
from lancelet.file.base import ZoneStatistics
from lancelet.file.v0_1.bounds import Bounds, bounds_of_batches, is_covered
from lancelet.file.v0_1.metadata import FileMetadata
from lancelet.file.v0_1.page_table import parse_table, table_range
from lancelet.format.logical_type import STRUCT
from lancelet.format.schema import Field, Schema

NULL_COUNT: Final = "null_count"
MIN_VALUE: Final = "min_value"
MAX_VALUE: Final = "max_value"


class StatisticsCollector:
    """Collects statistics while a file is written."""

    def __init__(self, fields: Sequence[Field]) -> None:
        """Collect statistics of fields and struct children with supported types."""
        covered = [node for top in fields for node in _reachable(top)]
        self._fields = sorted(
            (node for node in covered if is_covered(node.storage_type)), key=lambda node: node.id
        )
        self._bounds: dict[int, list[Bounds]] = {node.id: [] for node in self._fields}

    def add_batches(
        self, fields: Sequence[Field], arrays: Sequence[pa.Array], batch_rows: int
    ) -> None:
        """Add batches of `batch_rows` rows, given one array per top-level field."""
        for node, array in zip(fields, arrays, strict=True):
            self._add(node, array, batch_rows)

    def finish(self) -> tuple[Schema, list[pa.Array]] | None:
        """Return the schema and columns of the statistics, or None without statistics."""
        if not self._fields or not self._bounds[self._fields[0].id]:
            return None
        arrays = [self._array_of(node) for node in self._fields]
        names = [str(node.id) for node in self._fields]
        columns = [
            pa.field(name, array.type, nullable=False)
            for name, array in zip(names, arrays, strict=True)
        ]
        return Schema.from_arrow(pa.schema(columns)), arrays

    def _add(self, node: Field, array: pa.Array, batch_rows: int) -> None:
        if node.logical_type == STRUCT:
            for index, child in enumerate(node.children):
                self._add(child, array.field(index), batch_rows)
        elif node.id in self._bounds:
            self._bounds[node.id].append(bounds_of_batches(array, batch_rows))

    def _array_of(self, node: Field) -> pa.Array:
        bounds = self._bounds[node.id]
        value_type = node.storage_type
        fields = [
            pa.field(NULL_COUNT, pa.int64(), nullable=False),
            pa.field(MIN_VALUE, value_type, node.nullable),
            pa.field(MAX_VALUE, value_type, node.nullable),
        ]
        children = [
            pa.array(np.concatenate([part.null_count for part in bounds])),
            pa.concat_arrays([part.minimum for part in bounds]),
            pa.concat_arrays([part.maximum for part in bounds]),
        ]
        return pa.StructArray.from_arrays(children, fields=fields)


def read_statistics(metadata: FileMetadata) -> ReadCoroutine[Mapping[int, pa.StructArray]]:
    """Read the statistics of all fields by field id, with a row per batch."""
    stored = metadata.statistics
    if stored is None or not metadata.num_batches or not stored.fields:
        return {}
    if min(stored.fields) < 0:
        raise CorruptDataError("the statistics of the file contain an invalid field id")
    ids = range(max(stored.fields) + 1)
    table = table_range(stored.page_table_position, ids, 1, file_bytes=metadata.file_bytes)
    pages = parse_table((yield ByteRanges.of(table)).slice_bytes(0), ids, 1)
    rows = np.array([0, metadata.num_batches], np.int64)
    batches = StoredBatches(rows, pages, {}, metadata.file_bytes)
    fields = [
        node
        for node in Schema.from_protos(stored.schema).fields
        if node.name.isdecimal() and _is_statistics(node)
    ]
    all_batches = RowRange(0, metadata.num_batches)
    arrays = yield from read_together(
        [open_field(node, batches).read(all_batches) for node in fields]
    )
    return {int(node.name): array for node, array in zip(fields, arrays, strict=True)}


def zone_statistics(
    field: Field, stored: pa.StructArray, metadata: FileMetadata
) -> ZoneStatistics | None:
    """Return the statistics that are valid for the values of a field, or None."""
    rows = np.diff(metadata.bounds)
    data_type = field.storage_type
    minimum, maximum = stored.field(MIN_VALUE), stored.field(MAX_VALUE)
    if minimum.type != data_type or maximum.type != data_type:
        return None
    # Zones have equal sizes, except for a shorter last zone; other batches are not supported.
    if (rows[:-1] != rows[0]).any() or rows[-1] > rows[0]:
        return None
    nulls = stored.field(NULL_COUNT).to_numpy()
    if is_variable(data_type):
        null_count, minimum, maximum = _bounds_of_text(field, nulls, minimum, maximum)
    else:
        # Nulls are read as arbitrary numbers, which the bounds exclude.
        has_nulls = pa.array(nulls > 0)
        null = pa.scalar(None, data_type)
        minimum = pc.if_else(has_nulls, null, minimum)
        maximum = pc.if_else(has_nulls, null, maximum)
        null_count = np.zeros(len(rows), np.int64)
    return ZoneStatistics(
        rows_per_zone=int(rows[0]),
        num_rows=int(metadata.bounds[-1]),
        null_count=null_count,
        # NaN is not counted, so each row may be NaN.
        nan_count=rows if pa.types.is_floating(data_type) else None,
        minimum=minimum,
        maximum=maximum,
    )


def _bounds_of_text(
    field: Field, nulls: np.ndarray, minimum: pa.Array, maximum: pa.Array
) -> tuple[np.ndarray, pa.Array, pa.Array]:
    """Return null counts and bounds of strings; empty strings are read as nulls."""
    empty_max = pc.equal(pc.fill_null(pc.binary_length(maximum), 0), 0)
    maximum = pc.if_else(empty_max, pa.scalar(None, maximum.type), maximum)
    if not field.nullable:
        return np.zeros(len(nulls), np.int64), minimum, maximum
    may_be_empty = pc.equal(pc.fill_null(pc.binary_length(minimum), 0), 0).to_numpy(
        zero_copy_only=False
    )
    return np.maximum(nulls, may_be_empty.astype(np.int64)), minimum, maximum


def _is_statistics(node: Field) -> bool:
    names = [child.name for child in node.children]
    return node.logical_type == STRUCT and all(
        names.count(name) == 1 for name in (NULL_COUNT, MIN_VALUE, MAX_VALUE)
    )


def _reachable(node: Field) -> Iterator[Field]:
    """Yield the leaf fields that are not nested in lists."""
    if node.logical_type != STRUCT:
        yield node
        return
    for child in node.children:
        yield from _reachable(child)
