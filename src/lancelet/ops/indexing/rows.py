"""The rows of a version as an index is built of them: values of one column, with numbers.

fragment 0   x = 3 1 2     numbers 0 1 2
fragment 4   x = 9         numbers 4<<32|0      or stable ids, for kinds that keep those

Values at one place of JSON documents, as rows to be indexed.

    documents   {"x": 7}   {"x": 9}   {"y": 1}   {"x": null}
    path x      7          9          null       null           of type int64

The first value that is there says what type all must have; whole numbers count as floats among
floats. Where there is none at all the type is text.
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
from lancelet.file.pool import FEW_LONG_TASKS, map_ordered
from lancelet.index.base import IndexedRows, indexed_type
from lancelet.index.text.elements import lists_of_texts
from lancelet.io.mapped import forget_mapped_pages
from lancelet.query import expression as ex
from lancelet.query.execute import execute
from lancelet.query.functions.json_path import find_values
from lancelet.query.nodes.source import FragmentSource, sources, waits_for_storage
from lancelet.query.plan import ScanPlan, plan_scan
from lancelet.query.scan_options import ScanOptions
from lancelet.query.search.text_targets import split_path
from lancelet.rowids.address import UInt64s
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

_BATCH_ROWS: Final = 1 << 16
_PIECE_BYTES: Final = 1 << 20
"""What is read of a large fragment at once; two more pieces are read ahead."""
_AHEAD: Final = 2
_MAPPED_BYTES: Final = 32 << 20
"""Once so much was read, files that are mapped give up the memory that they seem to take."""

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
    """Return the live rows of fragments, read whenever they are iterated over.

    Values within lists come as lists, without the structs that are between. Documents of a JSON
    column come as they are stored, or `as_text`. With `within` values are what is found there in
    the documents of the column, of a type that the first one has if it is not given.
    """
    number = "_rowaddr" if by_address else "_rowid"
    above, inside = split_path(snapshot.schema, path)
    options = ScanOptions(
        columns={"value": ex.Column(above)},
        fragments=tuple(fragments),
        batch_size=_BATCH_ROWS,
        with_row_address=by_address,
        with_row_id=not by_address,
    )
    plan = plan_scan(snapshot, options)
    num_rows = sum(snapshot.live_rows(snapshot.fragments.by_id(each)) for each in fragments)
    data_type = indexed_type(plan.schema.field("value").type)
    if isinstance(data_type, pa.JsonType) and not as_text:
        data_type = pa.large_binary()
    if inside:
        data_type = lists_of_texts(pa.array([], data_type), inside).type
    rows = IndexedRows(data_type, _Parts(plan, number, data_type, inside), num_rows)
    return rows if within is None else values_within(rows, within, value_type)


@dataclass(frozen=True, slots=True, eq=False)
class _Parts:
    plan: ScanPlan
    number: str
    data_type: pa.DataType
    inside: tuple[str, ...]

    def __iter__(self) -> Iterator[tuple[pa.Array, UInt64s]]:
        read = 0
        for batch in self._batches():
            values = lists_of_texts(batch.column("value"), self.inside)
            stored = values if values.type == self.data_type else _stored(values)
            read += stored.nbytes
            yield stored, batch.column(self.number).to_numpy()
            if read >= _MAPPED_BYTES:
                forget_mapped_pages()
                read = 0

    def _batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in order: large fragments by pieces, others as a scan reads them."""
        found = sources(self.plan.snapshot, self.plan.options.fragments)
        waits = waits_for_storage(self.plan.snapshot)
        for is_large, group in groupby(found, key=_is_large):
            if is_large:
                pieces = (piece for source in group for piece in self._pieces(source))
                read = partial(_read, self.plan)
                ahead = None if waits else _AHEAD
                yield from map_ordered(read, pieces, waits=waits, window=ahead, few=FEW_LONG_TASKS)
            else:
                ids = tuple(int(source.fragment.id) for source in group)
                options = replace(self.plan.options, fragments=ids)
                yield from execute(replace(self.plan, options=options))

    def _pieces(self, source: FragmentSource) -> Iterator[_Piece]:
        row_bytes = source.reader.row_bytes(self.plan.projection.fields)
        step = max(1, min(int(_PIECE_BYTES / max(row_bytes, 1.0)), 2 * _BATCH_ROWS))
        for start in range(0, source.num_rows, step):
            yield source, RowRange(start, min(start + step, source.num_rows))


def _stored(values: pa.ExtensionArray) -> pa.Array:
    is_json = isinstance(values.type, pa.JsonType)
    return documents_to_storage(values.storage) if is_json else values.storage


_Piece: TypeAlias = tuple[FragmentSource, RowRange]


def _is_large(source: FragmentSource) -> bool:
    return source.num_rows > _BATCH_ROWS


def _read(plan: ScanPlan, piece: _Piece) -> pa.RecordBatch:
    source, rows = piece
    visible = source.visible(rows)
    fields, row_columns = plan.projection.fields, plan.projection.row_columns
    arrays = source.read(fields, rows, visible)
    columns = dict(zip((field.name for field in fields), arrays, strict=True))
    columns |= source.row_columns(row_columns, rows, visible)
    return plan.projection.compute(
        pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
    )


def values_within(
    rows: IndexedRows, path: str, value_type: pa.DataType | None = None
) -> IndexedRows:
    """Return what a path finds in the documents of rows; the type is looked for if not given."""
    if value_type is None:
        value_type = _type_of_first(rows, path)
    return IndexedRows(value_type, _Found(rows, path, value_type), rows.num_rows)


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    rows: IndexedRows
    path: str
    value_type: pa.DataType

    def __iter__(self) -> Iterator[tuple[pa.Array, UInt64s]]:
        for documents, numbers in self.rows.parts:
            encoded = documents.storage.dictionary_encode()
            found = [
                _fitting(value, self.value_type, self.path)
                for value in _found(encoded.dictionary.to_pylist(), self.path)
            ]
            yield pa.array(found, self.value_type).take(encoded.indices), numbers


def _type_of_first(rows: IndexedRows, path: str) -> pa.DataType:
    for documents, _ in rows.parts:
        present = documents.storage.drop_null()
        for start in range(0, len(present), 1024):
            for value in _found(present.slice(start, 1024).to_pylist(), path):
                if value is not None:
                    return _type_of(value, path)
    return pa.string()


def _found(documents: Sequence[str | None], path: str) -> Iterator[Any]:
    for document in documents:
        values = [] if document is None else find_values(json.loads(document), path)
        yield values[0] if values else None


def _type_of(value: Any, path: str) -> pa.DataType:
    if type(value) not in _TYPES:
        raise InvalidInputError(
            "only numbers, texts and truth values of documents can be indexed",
            path=path,
            found=json.dumps(value)[:60],
        )
    return _TYPES[type(value)]


def _fitting(value: Any, value_type: pa.DataType, path: str) -> Any:
    """Return a value that is of the type, or a whole number among floats."""
    if value is None:
        return None
    found = _type_of(value, path)
    if found == value_type and (found != pa.int64() or np.iinfo(np.int64).min <= value < 1 << 63):
        return value
    if found == pa.int64() and value_type == pa.float64():
        return float(value)
    raise InvalidInputError(
        "the values at a path of documents must be of one type to be indexed",
        path=path,
        expected=str(value_type),
        found=json.dumps(value)[:60],
    )
