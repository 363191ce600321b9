"""Read tiny fragments together as packs.

    fragments   7: 10 rows   8: 12 rows, 1 deleted   9: 10 rows
    pack        rows 0..10   10..22                   22..32
    offset 11   of the pack is offset 1 of fragment 8

A step costs some hundred calls per fragment, regardless of its number of rows. Tiny fragments are
therefore combined into packs, which are read (`file.small_files`), filtered and emitted as one.
Fragments whose files have different layouts are read one by one. The same applies to packs that
fail to read, so that the error names the file.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.encodings.base import RowIndices, RowRange, Rows
from lancelet.encodings.take import take_rows
from lancelet.errors import LanceletError
from lancelet.file.small_files import SMALL_BYTES_MAX, SmallFiles
from lancelet.format.field import Field
from lancelet.format.fragment import DataFile
from lancelet.rowids.address import UInt64s
from lancelet.scan.fragment_reader import StoredFields, assemble_fields, stored_fields
from lancelet.scan.node_meter import plan_meter
from lancelet.scan.nodes.source import FragmentSource, dense_enough

PACK_FRAGMENTS_MAX: Final = 64
_PACK_FRAGMENTS_MIN: Final = 4
_PACK_ROWS_MAX: Final = 1 << 17

_Joined: TypeAlias = tuple[StoredFields, SmallFiles]


class Pack:
    """Fragments that are read as one; row offsets count the rows of all of them."""

    def __init__(self, members: Sequence[FragmentSource]) -> None:
        """Combine fragments in order."""
        self.members = tuple(members)
        self._bounds = np.cumsum([0, *(member.num_rows for member in members)])
        self._joined: dict[tuple[Field, ...], tuple[_Joined, ...] | None] = {}
        self._opened: dict[int, SmallFiles | None] = {}
        self.num_rows = int(self._bounds[-1])

    @property
    def num_visible(self) -> int:
        """The number of visible rows."""
        return sum(member.num_visible for member in self.members)

    def count_visible(self, rows: RowRange) -> int:
        """Return the number of visible rows of a range."""
        offsets = self.visible(rows)
        return len(rows) if offsets is None else len(offsets)

    def visible(self, rows: RowRange) -> Int64s | None:
        """Return the visible row offsets within `rows`, or None if all rows are visible."""
        if not any(member.hidden for member in self.members):
            return None
        parts = [
            np.arange(member.num_rows) if visible is None else visible
            for member in self.members
            for visible in [member.visible(RowRange(0, member.num_rows))]
        ]
        joined: Int64s = np.concatenate(
            [part + first for part, first in zip(parts, self._bounds.tolist(), strict=False)]
        )
        within = joined[(joined >= rows.start) & (joined < rows.stop)]
        return None if len(within) == len(rows) else within

    def read(
        self, fields: Sequence[Field], rows: RowRange, selected: Int64s | None
    ) -> list[pa.Array]:
        """Return the values of fields in a range, or in selected rows of it."""
        if selected is None:
            return self._read(tuple(fields), rows)
        if not dense_enough(fields, len(selected), len(rows)):
            return self._read(tuple(fields), RowIndices(selected))
        chosen = selected - rows.start
        return [take_rows(array, chosen) for array in self._read(tuple(fields), rows)]

    def iter_batches(
        self, fields: Sequence[Field], rows: RowRange, batch_size: int | None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows as ordered batches."""
        arrays = self._read(tuple(fields), rows)
        batch = pa.RecordBatch.from_arrays(arrays, [field.name for field in fields])
        step = batch_size or max(1, batch.num_rows)
        for start in range(0, batch.num_rows, step):
            yield batch.slice(start, step)

    def row_columns(
        self, names: Sequence[str], rows: RowRange, selected: Int64s | None
    ) -> dict[str, pa.Array]:
        """Return row columns of a range, or of selected rows of it."""
        if not names:
            return {}
        offsets = np.arange(rows.start, rows.stop) if selected is None else selected
        member_columns = [
            member.row_columns(names, RowRange(0, member.num_rows), member_offsets)
            for member, member_offsets in self.by_member(offsets)
        ]
        return {
            name: pa.concat_arrays([columns[name] for columns in member_columns]) for name in names
        }

    def addresses(self, offsets: Int64s) -> UInt64s:
        """Return the row addresses of ascending offsets."""
        addresses = [
            member.addresses(member_offsets) for member, member_offsets in self.by_member(offsets)
        ]
        return np.concatenate([np.empty(0, np.uint64), *addresses])

    def by_member(self, offsets: Int64s) -> Iterator[tuple[FragmentSource, Int64s]]:
        """Yield the fragments at ascending offsets, each with its own row offsets."""
        cuts = np.searchsorted(offsets, self._bounds).tolist()
        for index, member in enumerate(self.members):
            member_offsets = offsets[cuts[index] : cuts[index + 1]]
            if len(member_offsets):
                yield member, member_offsets - self._bounds[index]

    def _read(self, fields: tuple[Field, ...], rows: Rows) -> list[pa.Array]:
        with plan_meter(self.members[0].snapshot).counting_read(fields, len(rows)):
            return self._read_joined(fields, rows)

    def _read_joined(self, fields: tuple[Field, ...], rows: Rows) -> list[pa.Array]:
        try:
            if fields not in self._joined:
                self._joined[fields] = self._join(fields)
            joined = self._joined[fields]
            if joined is not None:
                file_arrays = [(part, files.read(part.read, rows)) for part, files in joined]
                return assemble_fields(fields, file_arrays, len(rows))
        except LanceletError:
            # Reading one by one identifies the damaged file, or does not need it.
            self._joined[fields] = None
        return self._read_separately(fields, rows)

    def _join(self, fields: tuple[Field, ...]) -> tuple[_Joined, ...] | None:
        """Return the stored parts of fields with their files if the layouts are equal."""
        if any(node.is_blob for field in fields for node in field.walk()):
            return None  # A blob descriptor may refer to a position in its file.
        fragments = [member.fragment for member in self.members]
        layouts = [[_layout(file) for file in fragment.files] for fragment in fragments]
        if any(layout != layouts[0] for layout in layouts):
            return None
        joined: list[_Joined] = []
        for index, held in stored_fields(fragments[0].files, fields):
            if index not in self._opened:
                self._opened[index] = self.members[0].snapshot.open_small_files(
                    [fragment.files[index] for fragment in fragments],
                    [member.num_rows for member in self.members],
                )
            files = self._opened[index]
            if files is None:
                return None
            joined.append((held, files))
        return tuple(joined)

    def _read_separately(self, fields: tuple[Field, ...], rows: Rows) -> list[pa.Array]:
        offsets = np.arange(rows.start, rows.stop) if isinstance(rows, RowRange) else rows.rows
        member_arrays = [
            member.reader.read(fields, RowIndices(member_offsets))
            for member, member_offsets in self.by_member(offsets)
        ]
        return [pa.concat_arrays(arrays) for arrays in zip(*member_arrays, strict=True)]


def pack_tiny(
    sources: Iterable[FragmentSource | Pack], *, rows_max: int | None = None
) -> Iterator[FragmentSource | Pack]:
    """Yield fragments in order, combining tiny ones into packs of at most `rows_max` rows."""
    pack_rows_max = min(_PACK_ROWS_MAX, rows_max or _PACK_ROWS_MAX)
    pending: list[FragmentSource] = []
    rows = 0
    for source in sources:
        if pending and (
            len(pending) == PACK_FRAGMENTS_MAX or rows + source.num_rows > pack_rows_max
        ):
            yield from _make_pack(pending)
            pending, rows = [], 0
        if (
            isinstance(source, FragmentSource)
            and is_tiny(source)
            and source.num_rows <= pack_rows_max
        ):
            pending.append(source)
            rows += source.num_rows
            continue
        if pending:
            yield from _make_pack(pending)
            pending, rows = [], 0
        yield source
    if pending:
        yield from _make_pack(pending)


def is_tiny(source: FragmentSource) -> bool:
    """Return whether the files of a fragment are small enough to be read together with others."""
    files = source.fragment.files
    if not files or source.fragment.overlays or not source.snapshot.location.store.reads_together:
        return False
    return all(0 < (file.size_bytes or 0) <= SMALL_BYTES_MAX for file in files)


def _make_pack(members: list[FragmentSource]) -> Sequence[FragmentSource | Pack]:
    """Combine fragments into a pack if there are enough to save time."""
    return [Pack(members)] if len(members) >= _PACK_FRAGMENTS_MIN else members


def _layout(file: DataFile) -> Hashable:
    return (file.fields, file.column_indices, file.base_id)
