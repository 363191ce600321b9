"""The rows of a version as an index is built of them: values of one column, with numbers.

fragment 0   x = 3 1 2     numbers 0 1 2
fragment 4   x = 9         numbers 4<<32|0      or stable ids, for kinds that keep those
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Final, TypeAlias

import pyarrow as pa

from lancelet.encodings.base import RowRange
from lancelet.encodings.jsonb import documents_to_storage
from lancelet.file.pool import FEW_LONG_TASKS, map_ordered
from lancelet.index.base import IndexedRows, indexed_type
from lancelet.index.text.elements import lists_of_texts
from lancelet.io.mapped import forget_mapped_pages
from lancelet.ops.indexing.json_values import values_within
from lancelet.query import expression as ex
from lancelet.query.execute import execute
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
