"""Execute a merge and commit the result.

read the source -> match keys -> select actions -> write rows -> commit
                   ^ repeated on the latest version after a conflict

Written rows combine the values of the source and the table:

    table   id 7, name "a", s{x 1, y 2}
    source  id 7, s{y 9}
    row     id 7, name "a", s{x 1, y 9}        inserted rows have nulls for missing values
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.change.blob_copies import with_blob_values
from lancelet.change.delete import write_deletions
from lancelet.change.dry_run import ChangeReport, DryRun
from lancelet.change.merge.decide import Decision, batches_of_matches, decide
from lancelet.change.merge.join import Matches, join
from lancelet.change.merge.key_bytes import Bools
from lancelet.change.merge.key_columns import KeyColumns
from lancelet.change.merge.key_filters import InsertedKeys
from lancelet.change.merge.key_passes import KeyPasses
from lancelet.change.merge.prepared_source import Source, prepared, refitted
from lancelet.change.merge.rewrite_columns import check_columns_mode, rewrite_columns
from lancelet.change.merge.spec import MergeSpec, MergeStatistics, RewriteMode
from lancelet.change.moved_rows import (
    count_rows,
    rows_by_fragment,
    union_rows,
    with_moved_ids,
    write_rows,
)
from lancelet.change.progress import report
from lancelet.change.publish import CommitProperties, Retries, publish, with_retries
from lancelet.change.rows import RowStream
from lancelet.encodings.take import filter_batch
from lancelet.expr.scan_types import scan_type
from lancelet.format import logical_type
from lancelet.format.field import Field
from lancelet.format.operation import Update, UpdateMode
from lancelet.format.schema import Schema
from lancelet.rowids.address import UInt64s
from lancelet.scan.plan import FilterStep, projection_of
from lancelet.scan.take import take_addresses
from lancelet.table.apply.mem_wal import check_generations
from lancelet.table.commit import CommitOptions
from lancelet.table.conflict.rebase import AffectedRows
from lancelet.table.conflict.resolve import KeysAreNew
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass, replace

_BATCH_ROWS: Final = 65536


@dataclass(frozen=True, slots=True, eq=False)
class Merged:
    """The version after a merge, and its statistics."""

    snapshot: Snapshot
    statistics: MergeStatistics


@dataclass(frozen=True, slots=True, eq=False)
class PreparedMerge:
    """Written files, and the operation that adds them to the table."""

    operation: Update
    affected: AffectedRows | None
    statistics: MergeStatistics
    keys_are_new: KeysAreNew | None = None


def merge_rows(
    snapshot: Snapshot,
    stream: RowStream,
    spec: MergeSpec,
    *,
    retries: Retries | None = None,
    options: CommitOptions | None = None,
    properties: CommitProperties | None = None,
) -> Merged:
    """Merge rows into the latest version."""
    spec.check()
    attempts = 0
    with prepared(snapshot.schema, stream, spec) as source:

        def attempt(current: Snapshot) -> Merged:
            nonlocal attempts
            attempts += 1
            lazy = current.with_deferred_sync()
            is_as_read = current.schema.fields == snapshot.schema.fields
            fitting = source if is_as_read else refitted(source, current.schema, spec)
            done = prepare_merge(lazy, fitting, spec)
            committing = replace(
                options or CommitOptions(),
                affected=done.affected,
                keys_are_new=done.keys_are_new,
                sync=lazy.location.store.flush,
            )
            published = publish(current, done.operation, committing, properties)
            return Merged(published, replace(done.statistics, num_attempts=attempts))

        return with_retries(snapshot, attempt, retries or Retries())


def merge_uncommitted(snapshot: Snapshot, stream: RowStream, spec: MergeSpec) -> PreparedMerge:
    """Write the result of a merge without a commit."""
    spec.check()
    with prepared(snapshot.schema, stream, spec) as source:
        return prepare_merge(snapshot, source, spec)


def report_merge(snapshot: Snapshot, stream: RowStream, spec: MergeSpec) -> ChangeReport:
    """Return the effect of a merge without writing."""
    dry_run = DryRun.of(snapshot)
    done = merge_uncommitted(dry_run.snapshot, stream, spec)
    did = done.statistics
    rows = did.num_inserted_rows + did.num_updated_rows + did.num_deleted_rows
    return dry_run.report(done.operation, rows)


def prepare_merge(snapshot: Snapshot, source: Source, spec: MergeSpec) -> PreparedMerge:
    """Write the result of a merge, and return the operation to commit."""
    check_generations(snapshot.indices.indices, spec.compacted)
    check_generations(snapshot.indices.indices, spec.unmerged)
    rewrites_columns = spec.mode is RewriteMode.COLUMNS
    if rewrites_columns:
        check_columns_mode(spec, source, snapshot.schema)
    report("match keys", 0, 1)
    joined = join(snapshot, source.key, source.keys, source.steps, uses_index=spec.uses_index)
    decision = decide(snapshot, source, spec, joined)
    report("match keys", 1, 1)
    if rewrites_columns:
        operation, did = rewrite_columns(snapshot, source, decision.updates)
        # Without the affected rows, any concurrent change of the fragments is a conflict.
        did = replace(did, num_skipped_duplicates=decision.num_skipped)
        operation = replace(operation, compacted_sstables=spec.compacted)
        return PreparedMerge(operation, None, did)
    return _rewrite_rows(snapshot, source, spec, decision)


def _rewrite_rows(
    snapshot: Snapshot, source: Source, spec: MergeSpec, decision: Decision
) -> PreparedMerge:
    inserted = InsertedKeys(source.key)
    moved: list[UInt64s] = []

    def rows() -> Iterator[pa.RecordBatch]:
        for batch, addresses in updated_rows(snapshot, source, decision.updates):
            moved.append(addresses)
            yield batch
        for batch, brought in inserted_rows(snapshot, source, decision.inserted):
            inserted.add(brought)
            yield batch

    fragments = write_rows(snapshot, rows(), spec.files)
    addresses = np.concatenate([np.empty(0, np.uint64), *moved])
    affected = union_rows(decision.deleted, rows_by_fragment(addresses))
    removal = write_deletions(snapshot, affected)
    operation = Update(
        removed_fragment_ids=removal.removed,
        updated_fragments=removal.updated,
        new_fragments=with_moved_ids(snapshot, fragments, addresses),
        fields_for_preserving_bitmap=tuple(int(node.id) for node in source.part.walk()),
        mode=UpdateMode.REWRITE_ROWS,
        inserted_rows=inserted.filter(),
        compacted_sstables=spec.compacted,
    )
    files = [file for fragment in fragments for file in fragment.files]
    statistics = MergeStatistics(
        num_inserted_rows=int(np.count_nonzero(decision.inserted)),
        num_updated_rows=len(addresses),
        num_deleted_rows=count_rows(decision.deleted),
        num_skipped_duplicates=decision.num_skipped,
        bytes_written=sum(file.size_bytes or 0 for file in files),
        num_files_written=len(files),
    )
    check = keys_are_new(snapshot, source.key, source.keys, source.steps, decision.inserted)
    return PreparedMerge(operation, affected, statistics, check)


def keys_are_new(
    snapshot: Snapshot,
    key: KeyColumns,
    keys: KeyPasses,
    steps: Sequence[FilterStep],
    inserted: Bools,
) -> KeysAreNew:
    """Return a check that concurrently added rows do not contain inserted keys.

    Key filters have false positives, and appends have no filter. The check reads the key columns of
    the new fragments, which is cheaper than repeating the merge.
    """
    checked_ids = set(snapshot.fragments.ids.tolist())

    def check(theirs: Snapshot) -> bool:
        added = tuple(
            number for number in theirs.fragments.ids.tolist() if number not in checked_ids
        )
        checked_ids.update(added)
        joined = join(theirs, key, keys, steps, added)
        return not inserted[joined.matches.rows].any()

    return check


def updated_rows(
    snapshot: Snapshot, source: Source, updates: Matches
) -> Iterator[tuple[pa.RecordBatch, UInt64s]]:
    """Yield updated rows, and the addresses of the old rows.

    Rows that need values of the table have table order if the source supports random access;
    otherwise, rows have source order.
    """
    missing = tuple(_not_brought(snapshot.schema, source.part))
    for rows, own in _ordered(source, updates, by_address=bool(missing)):
        start = 0
        for base in _stored(snapshot, missing, own.addresses):
            stop = len(own) if base is None else start + base.num_rows
            part = rows.slice(start, stop - start)
            yield complete(snapshot.schema, source.part, part, base), own.addresses[start:stop]
            start = stop


def inserted_rows(
    snapshot: Snapshot, source: Source, inserted: Bools
) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
    """Yield pairs of batches: inserted rows as written, and as given in the source."""
    for placed in source.rows.batches():
        own = inserted[placed.first : placed.stop]
        if not own.any():
            continue
        rows = placed.batch if own.all() else filter_batch(placed.batch, own)
        yield complete(snapshot.schema, source.part, rows, None), rows


def complete(
    schema: Schema, part: Schema, rows: pa.RecordBatch, base: pa.RecordBatch | None
) -> pa.RecordBatch:
    """Return rows with all fields of a schema, from the rows, from `base`, or null."""
    brought = {field.id: field for field in part.fields}
    columns = []
    for field in schema.fields:
        own = brought.get(field.id)
        array = None if own is None else rows.column(field.name)
        under = None
        if base is not None and own != field:
            under = base.column(field.name)
        columns.append(_overlaid(field, own, array, under, rows.num_rows))
    return pa.RecordBatch.from_arrays(columns, list(schema.names))


def _ordered(
    source: Source, updates: Matches, *, by_address: bool
) -> Iterator[tuple[pa.RecordBatch, Matches]]:
    if not by_address or source.rows.is_spilled:
        yield from batches_of_matches(source, updates)
        return
    order = np.argsort(updates.addresses, kind="stable")
    for first in range(0, len(order), _BATCH_ROWS):
        chosen = order[first : first + _BATCH_ROWS]
        start = 0
        # Strings of more than 2 GiB are split into several batches.
        for rows in source.rows.take(updates.rows[chosen]).combine_chunks().to_batches():
            own = chosen[start : start + rows.num_rows]
            start += rows.num_rows
            yield rows, Matches(updates.rows[own], updates.addresses[own])


def _stored(
    snapshot: Snapshot, fields: Sequence[Field], addresses: UInt64s
) -> Iterator[pa.RecordBatch | None]:
    """Yield the table values of `fields` in writable form; None if there are no fields."""
    if not fields:
        yield None
        return
    holds_blobs = any(node.is_blob for field in fields for node in field.walk())
    projection = projection_of(snapshot, tuple(field.name for field in fields))
    start = 0
    for batch in take_addresses(snapshot, addresses, projection).combine_chunks().to_batches():
        own = addresses[start : start + batch.num_rows]
        start += batch.num_rows
        if holds_blobs:
            yield from with_blob_values(snapshot, batch, own, fields)
        else:
            yield batch


def _not_brought(schema: Schema, part: Schema) -> Iterator[Field]:
    """Yield the columns that need values of the table."""
    brought = {field.id: field for field in part.fields}
    for field in schema.fields:
        if brought.get(field.id) != field:
            yield field


def _overlaid(
    field: Field,
    part: Field | None,
    own: pa.Array | None,
    base: pa.Array | None,
    num_rows: int,
) -> pa.Array:
    if part is None or own is None:
        return pa.nulls(num_rows, _written_type(field)) if base is None else base
    if part == field:
        return own
    parts = {child.id: child for child in part.children}
    children = []
    for index, child in enumerate(field.children):
        child_part = parts.get(child.id)
        array = None if child_part is None else pc.struct_field(own, [child.name])
        under = None if base is None else pc.struct_field(base, [index])
        children.append(_overlaid(child, child_part, array, under, num_rows))
    fields = [
        pa.field(child.name, array.type, child.nullable)
        for child, array in zip(field.children, children, strict=True)
    ]
    mask = own.is_null() if own.null_count else None
    return pa.StructArray.from_arrays(children, fields=fields, mask=mask)


def _written_type(field: Field) -> pa.DataType:
    """Return the type of written values; blobs are written as bytes."""
    if field.is_blob:
        return pa.large_binary()
    if field.logical_type == logical_type.STRUCT:
        return pa.struct(
            [pa.field(each.name, _written_type(each), each.nullable) for each in field.children]
        )
    return scan_type(field)
