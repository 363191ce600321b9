"""Update some columns in place: write new column files without moving rows.

    fragment 0    a.lance [id, v, w]      the source has new v for two rows
    after         a.lance [id, -, w]   b.lance [v]        v of all rows of the fragment

The columns of the source are rewritten for all rows of each affected fragment, which is efficient
if these columns are narrow and most rows match. Concurrent changes of the fragments conflict, and
indices on the columns no longer cover the fragments. Therefore, this mode must be selected
explicitly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.change.columns.column_file import write_column_file
from lancelet.change.merge.join import Matches
from lancelet.change.merge.key_filters import InsertedKeys
from lancelet.change.merge.prepared_source import Source
from lancelet.change.merge.spec import Matched, MergeSpec, MergeStatistics
from lancelet.change.moved_rows import rows_by_fragment
from lancelet.encodings.base import RowRange
from lancelet.encodings.take import take_rows
from lancelet.errors import InvalidInputError
from lancelet.format.field import Field
from lancelet.format.fragment import Fragment
from lancelet.format.operation import Update, UpdateMode
from lancelet.format.roaring import render_bitmap, to_bitmap
from lancelet.format.schema import Schema
from lancelet.rowids.address import group_by_fragment, offsets_of
from lancelet.scan.fragment_reader import FragmentReader
from lancelet.table.apply.state import with_column_file
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass, replace


class MergeModeError(InvalidInputError, OSError):
    """The merge cannot be expressed as an in-place update of columns."""


@dataclass(frozen=True, slots=True, eq=False)
class _Replacement:
    """New values for rows of a fragment: `rows.slice(i, 1)` is for the row at `offsets[i]`."""

    offsets: Int64s
    rows: pa.Table


def check_columns_mode(spec: MergeSpec, source: Source, schema: Schema) -> None:
    """Raise unless the merge can be expressed in place."""
    fields = replaced_fields(source)
    whole = {field.id: field for field in schema.fields}
    reason = None
    if spec.inserts:
        reason = "inserting unmatched source rows adds rows, which patching cannot do"
    elif spec.deletes_unmatched:
        reason = "deleting target rows unmatched by the source removes rows"
    elif spec.matched is not Matched.UPDATE:
        reason = "when_matched must update rather than delete or do nothing"
    elif source.part.fields == schema.fields:
        reason = "the source covers every dataset column, so there is nothing to skip"
    elif not fields:
        reason = "the source carries no column besides the join key"
    elif any(node.is_blob for field in fields for node in field.walk()):
        reason = "the source carries a blob column"
    elif any(whole[field.id] != field for field in fields):
        reason = "the source brings only some fields of a struct"
    elif spec.files.version is not None:
        reason = "files of another version cannot join the fragments"
    if reason is not None:
        raise MergeModeError(
            f"MergeInsertWriteMode::RewriteColumns cannot express this merge insert: {reason}. "
            "Use MergeInsertWriteMode::Auto or RewriteRows instead."
        )


def replaced_fields(source: Source) -> tuple[Field, ...]:
    """Return the source columns that are not part of the key."""
    keys = {path[0] for path in source.key.paths}
    return tuple(field for field in source.part.fields if field.name not in keys)


def rewrite_columns(
    snapshot: Snapshot, source: Source, updates: Matches
) -> tuple[Update, MergeStatistics]:
    """Write columns of the fragments with matches, and return the operation."""
    fields = replaced_fields(source)
    changed = [
        _rewritten(snapshot, fragment_id, fields, replacement)
        for fragment_id, replacement in _replacements(source, updates)
    ]
    files = [fragment.files[-1] for fragment in changed]
    offsets = {}
    if snapshot.manifest.uses_stable_row_ids:
        rows = rows_by_fragment(updates.addresses)
        offsets = {number: render_bitmap(to_bitmap(own)) for number, own in rows.items()}
    operation = Update(
        updated_fragments=tuple(changed),
        fields_modified=tuple(dict.fromkeys(each for file in files for each in file.fields)),
        mode=UpdateMode.REWRITE_COLUMNS,
        inserted_rows=InsertedKeys(source.key).filter(),
        updated_offsets=offsets,
    )
    statistics = MergeStatistics(
        num_updated_rows=len(updates),
        bytes_written=sum(file.size_bytes or 0 for file in files),
        num_files_written=len(files),
    )
    return operation, statistics


def _replacements(source: Source, updates: Matches) -> Iterator[tuple[int, _Replacement]]:
    """Yield the new rows of each fragment, sorted by row offset."""
    for fragment_id, pair_indices in group_by_fragment(updates.addresses).items():
        offsets = offsets_of(updates.addresses[pair_indices])
        order = np.argsort(offsets, kind="stable")
        rows = source.rows.take(updates.rows[pair_indices[order]])
        yield fragment_id, _Replacement(offsets[order], rows)


def _rewritten(
    snapshot: Snapshot, fragment_id: int, fields: Sequence[Field], replacement: _Replacement
) -> Fragment:
    fragment = snapshot.fragments.by_id(fragment_id)
    schema = replace(snapshot.schema, fields=tuple(fields))
    batches = _patched(FragmentReader(snapshot, fragment), fields, replacement)
    return with_column_file(fragment, write_column_file(snapshot, fragment, schema, batches))


def _patched(
    reader: FragmentReader, fields: Sequence[Field], replacement: _Replacement
) -> Iterator[pa.RecordBatch]:
    """Yield all rows of a fragment, with replaced rows."""
    start = 0
    for batch in reader.iter_batches(fields, RowRange(0, reader.num_rows)):
        stop = start + batch.num_rows
        low, high = np.searchsorted(replacement.offsets, [start, stop])
        if low == high:
            yield batch
        else:
            chosen = np.arange(batch.num_rows)
            chosen[replacement.offsets[low:high] - start] = batch.num_rows + np.arange(high - low)
            indices = pa.array(chosen)
            own = replacement.rows.slice(low, high - low)
            columns = [
                take_rows(_end_to_end(old, own.column(field.name)), indices)
                for field, old in zip(fields, batch.columns, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(columns, batch.schema.names)
        start = stop


def _end_to_end(old: pa.Array, new: pa.ChunkedArray) -> pa.Array:
    if isinstance(old, pa.ExtensionArray) and not isinstance(new.type, pa.BaseExtensionType):
        old = old.storage
    joined = pa.chunked_array([old, *new.cast(old.type).chunks])
    if pa.types.is_dictionary(old.type):
        joined = joined.unify_dictionaries()
    return pa.concat_arrays(joined.chunks)
