"""Read the rows to index: values of one column, with row numbers.

    fragment 0   x = 3 1 2     numbers 0 1 2
    fragment 4   x = 9         numbers 4<<32|0      or stable ids, if the index type supports them

JSON indices read the values at a path of documents:

    documents   {"x": 7}   {"x": 9}   {"y": 1}   {"x": null}
    path x      7          9          null       null           of type int64

The first non-null value determines the type; integers are accepted in float columns. Without any
value the type is string.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from lancelet.encodings.base import RowRange
from lancelet.encodings.jsonb import documents_to_storage
from lancelet.errors import InvalidInputError
from lancelet.expr import expression as ex
from lancelet.expr.functions.json_path import find_values
from lancelet.file.pool import PARALLEL_LONG_TASKS_MIN, map_ordered
from lancelet.index.base import IndexedRows, indexed_type
from lancelet.index.text.elements import lists_of_texts
from lancelet.io.mapped import forget_mapped_pages
from lancelet.rowids.address import UInt64s
from lancelet.scan.execute import execute
from lancelet.scan.nodes.source import FragmentSource, sources, waits_for_storage
from lancelet.scan.plan import ScanPlan, plan_scan
from lancelet.scan.scan_options import ScanOptions
from lancelet.search.text_targets import split_path
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

_BATCH_ROWS: Final = 1 << 16
_RANGE_BYTES: Final = 1 << 20
"""Bytes read from a large fragment per task; two more tasks are prefetched."""
_PREFETCHED_RANGES: Final = 2
_MAPPED_BYTES: Final = 32 << 20
"""Bytes read before the pages of memory-mapped files are released."""

_TYPES: Final = {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()}


def rows_to_index(
    snapshot: Snapshot,
    path: tuple[str, ...],
    fragments: Sequence[int],
    *,
    by_address: bool,
    as_text: bool = False,
    within: str | None = None,
    value_type: pa.DataType | None = None,
) -> IndexedRows:
    """Return the live rows of fragments, which are read on each iteration.

    Values within lists are returned as lists, without intermediate structs. JSON columns are
    returned in their storage type, or as strings if `as_text` is set. With `within`, the values at
    this path of JSON documents are returned; their type defaults to that of the first value.
    """
    number = "_rowaddr" if by_address else "_rowid"
    outer_path, inner_path = split_path(snapshot.schema, path)
    options = ScanOptions(
        columns={"value": ex.Column(outer_path)},
        fragments=tuple(fragments),
        batch_size=_BATCH_ROWS,
        with_row_address=by_address,
        with_row_id=not by_address,
    )
    plan = plan_scan(snapshot, options)
    num_rows = sum(
        snapshot.live_rows(snapshot.fragments.by_id(fragment_id)) for fragment_id in fragments
    )
    data_type = indexed_type(plan.schema.field("value").type)
    if isinstance(data_type, pa.JsonType) and not as_text:
        data_type = pa.large_binary()
    if inner_path:
        data_type = lists_of_texts(pa.array([], data_type), inner_path).type
    rows = IndexedRows(data_type, _Parts(plan, number, data_type, inner_path), num_rows)
    return rows if within is None else extract_values(rows, within, value_type)


@dataclass(frozen=True, slots=True, eq=False)
class _Parts:
    plan: ScanPlan
    number: str
    data_type: pa.DataType
    inner_path: tuple[str, ...]

    def __iter__(self) -> Iterator[tuple[pa.Array, UInt64s]]:
        read = 0
        for batch in self._batches():
            values = lists_of_texts(batch.column("value"), self.inner_path)
            values_in_storage = values if values.type == self.data_type else _to_storage(values)
            read += values_in_storage.nbytes
            yield values_in_storage, batch.column(self.number).to_numpy()
            if read >= _MAPPED_BYTES:
                forget_mapped_pages()
                read = 0

    def _batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in order; large fragments are read in parallel ranges."""
        fragment_sources = sources(self.plan.snapshot, self.plan.options.fragments)
        is_remote = waits_for_storage(self.plan.snapshot)
        for is_large, group in groupby(fragment_sources, key=_is_large):
            if is_large:
                ranges = (part for source in group for part in self._ranges(source))
                read = partial(_read, self.plan)
                window = None if is_remote else _PREFETCHED_RANGES
                yield from map_ordered(
                    read, ranges, waits=is_remote, window=window, few=PARALLEL_LONG_TASKS_MIN
                )
            else:
                ids = tuple(int(source.fragment.id) for source in group)
                options = replace(self.plan.options, fragments=ids)
                yield from execute(replace(self.plan, options=options))

    def _ranges(self, source: FragmentSource) -> Iterator[_SourceRange]:
        row_bytes = source.reader.row_bytes(self.plan.projection.fields)
        step = max(1, min(int(_RANGE_BYTES / max(row_bytes, 1.0)), 2 * _BATCH_ROWS))
        for start in range(0, source.num_rows, step):
            yield source, RowRange(start, min(start + step, source.num_rows))


def _to_storage(values: pa.ExtensionArray) -> pa.Array:
    is_json = isinstance(values.type, pa.JsonType)
    return documents_to_storage(values.storage) if is_json else values.storage


_SourceRange: TypeAlias = tuple[FragmentSource, RowRange]


def _is_large(source: FragmentSource) -> bool:
    return source.num_rows > _BATCH_ROWS


def _read(plan: ScanPlan, source_range: _SourceRange) -> pa.RecordBatch:
    source, rows = source_range
    visible = source.visible(rows)
    fields, row_columns = plan.projection.fields, plan.projection.row_columns
    arrays = source.read(fields, rows, visible)
    columns = dict(zip((field.name for field in fields), arrays, strict=True))
    columns |= source.row_columns(row_columns, rows, visible)
    return plan.projection.compute(
        pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
    )


def extract_values(
    rows: IndexedRows, path: str, value_type: pa.DataType | None = None
) -> IndexedRows:
    """Return the values at a path of JSON documents, by default of the first value's type."""
    if value_type is None:
        value_type = _infer_type(rows, path)
    return IndexedRows(value_type, _ExtractedValues(rows, path, value_type), rows.num_rows)


@dataclass(frozen=True, slots=True, eq=False)
class _ExtractedValues:
    rows: IndexedRows
    path: str
    value_type: pa.DataType

    def __iter__(self) -> Iterator[tuple[pa.Array, UInt64s]]:
        for documents, numbers in self.rows.parts:
            encoded = documents.storage.dictionary_encode()
            extracted = [
                _coerce(value, self.value_type, self.path)
                for value in _extract(encoded.dictionary.to_pylist(), self.path)
            ]
            yield pa.array(extracted, self.value_type).take(encoded.indices), numbers


def _infer_type(rows: IndexedRows, path: str) -> pa.DataType:
    for documents, _ in rows.parts:
        present = documents.storage.drop_null()
        for start in range(0, len(present), 1024):
            for value in _extract(present.slice(start, 1024).to_pylist(), path):
                if value is not None:
                    return _value_type(value, path)
    return pa.string()


def _extract(documents: Sequence[str | None], path: str) -> Iterator[Any]:
    for document in documents:
        values = [] if document is None else find_values(json.loads(document), path)
        yield values[0] if values else None


def _value_type(value: Any, path: str) -> pa.DataType:
    if type(value) not in _TYPES:
        raise InvalidInputError(
            "only numbers, strings and booleans in documents can be indexed",
            path=path,
            found=json.dumps(value)[:60],
        )
    return _TYPES[type(value)]


def _coerce(value: Any, value_type: pa.DataType, path: str) -> Any:
    """Return a value if it has the given type, converting integers to floats."""
    if value is None:
        return None
    actual_type = _value_type(value, path)
    if actual_type == value_type and (
        actual_type != pa.int64() or np.iinfo(np.int64).min <= value < 1 << 63
    ):
        return value
    if actual_type == pa.int64() and value_type == pa.float64():
        return float(value)
    raise InvalidInputError(
        "the values at a path of documents must have the same type to be indexed",
        path=path,
        expected=str(value_type),
        found=json.dumps(value)[:60],
    )
