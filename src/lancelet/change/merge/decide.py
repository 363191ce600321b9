"""Select the action for each row: pairs to update, rows to delete and source rows to insert.

    matches    (0, a) (1, b) (1, c)      source rows 0 to 3
    update     all pairs, or pairs that match the condition
    delete     a b c
    insert     2 3

If several source rows would update a row of the table, the merge fails with an error that contains
the key, since the result would be ambiguous.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.change.delete import find_rows
from lancelet.change.merge.join import Joined, Matches
from lancelet.change.merge.key_bytes import Bools
from lancelet.change.merge.prepared_source import Source
from lancelet.change.merge.spec import Duplicates, Matched, MergeSpec
from lancelet.change.moved_rows import rows_by_fragment, union_rows
from lancelet.encodings.take import take_from_batch
from lancelet.errors import ExpressionError, InvalidInputError
from lancelet.expr.compile import ExpressionLike, compile_filter
from lancelet.expr.evaluate import evaluate_filter
from lancelet.expr.expression import Expression
from lancelet.expr.traversal import columns_of
from lancelet.rowids.address import UInt64s, distinct
from lancelet.scan.plan import plan_scan, projection_of
from lancelet.scan.projection import scan_schema
from lancelet.scan.scan_options import ScanOptions
from lancelet.scan.take import take_addresses
from lancelet.table.conflict.rebase import AffectedRows
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

NO_ROWS = Matches(np.empty(0, np.int64), np.empty(0, np.uint64))


class MergeMatchError(InvalidInputError, OSError):
    """The source has matches that the merge does not allow."""


class MergeConditionError(ExpressionError, OSError):
    """The condition of a merge is invalid."""


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """The actions for all rows.

    `deleted` contains the rows of the table to delete without replacement, by fragment; `inserted`
    is a mask of the source rows.
    """

    updates: Matches
    deleted: AffectedRows
    inserted: Bools
    num_skipped: int = 0


def decide(snapshot: Snapshot, source: Source, spec: MergeSpec, joined: Joined) -> Decision:
    """Return the action for each row, given the matches."""
    matches, taken = joined.matches, np.ones(source.rows.num_rows, np.bool_)
    if spec.duplicates is Duplicates.FIRST_SEEN:
        taken[joined.repeated] = False
        matches = matches.where(taken[matches.rows])
    unmatched = taken.copy()
    unmatched[matches.rows] = False
    updates, deletes = NO_ROWS, NO_ROWS
    match spec.matched:
        case Matched.FAIL if len(matches):
            raise MergeMatchError(
                "Merge insert failed: found matching row with key values: "
                f"{_key_text(source, int(matches.rows[0]))}"
            )
        case Matched.UPDATE:
            updates = _fulfilling(snapshot, source, spec.update_condition, matches)
            _check_unambiguous(source, updates)
        case Matched.DELETE:
            deletes = matches
            _check_unambiguous(source, deletes)
    deleted = rows_by_fragment(deletes.addresses)
    if spec.deletes_unmatched:
        deleted = union_rows(
            deleted, _unmatched(snapshot, spec.delete_condition, matches.addresses)
        )
    return Decision(
        updates,
        deleted,
        unmatched if spec.inserts else np.zeros(len(taken), np.bool_),
        int(np.count_nonzero(~taken)),
    )


def compile_condition(snapshot: Snapshot, rows: pa.Schema, condition: ExpressionLike) -> Expression:
    """Compile a condition over `source.` and `target.` columns."""
    sides = {"source": list(rows), "target": list(scan_schema(snapshot.schema))}
    schema = pa.schema([(name, pa.struct(fields)) for name, fields in sides.items()])
    try:
        return compile_filter(condition, schema)
    except ExpressionError as error:
        raise MergeConditionError(error.message, **error.facts) from error


def _fulfilling(
    snapshot: Snapshot, source: Source, condition: ExpressionLike | None, matches: Matches
) -> Matches:
    """Return the matches that satisfy a condition."""
    if condition is None:
        return matches
    bound = compile_condition(snapshot, source.rows.schema, condition)
    parts = [
        pair.where(_evaluate_condition(snapshot, bound, batch, pair))
        for batch, pair in batches_of_matches(source, matches)
    ]
    return Matches(
        np.concatenate([NO_ROWS.rows, *(part.rows for part in parts)]),
        np.concatenate([NO_ROWS.addresses, *(part.addresses for part in parts)]),
    )


def batches_of_matches(
    source: Source, matches: Matches
) -> Iterator[tuple[pa.RecordBatch, Matches]]:
    """Yield matches with their source rows, in source order."""
    for placed in source.rows.batches():
        own = matches.between(placed.first, placed.stop)
        if not len(own):
            continue
        rows = own.rows - placed.first
        is_whole = len(rows) == placed.batch.num_rows and rows[-1] == len(rows) - 1
        if is_whole and bool((rows[1:] > rows[:-1]).all()):
            yield placed.batch, own
        else:
            yield take_from_batch(placed.batch, pa.array(rows)), own


def _evaluate_condition(
    snapshot: Snapshot, condition: Expression, rows: pa.RecordBatch, matches: Matches
) -> Bools:
    names = sorted({path[1] for path in columns_of(condition) if path[0] == "target"})
    target = pa.Table.from_batches([rows.select([])])
    if names:
        projection = projection_of(snapshot, tuple(names))
        target = take_addresses(snapshot, matches.addresses, projection)
    sides = [rows.to_struct_array(), target.combine_chunks().to_struct_array().combine_chunks()]
    both = pa.RecordBatch.from_arrays(sides, ["source", "target"])
    found: Bools = evaluate_filter(condition, both).to_numpy(zero_copy_only=False)
    return found


def _check_unambiguous(source: Source, matches: Matches) -> None:
    if len(distinct(matches.addresses)) < len(matches):
        ordered = np.sort(matches.addresses)
        twice = ordered[1:][ordered[1:] == ordered[:-1]]
        row = int(matches.rows[matches.addresses == twice[0]][0])
        raise MergeMatchError(
            "Ambiguous merge inserts are prohibited: multiple source rows match the same target "
            f"row on ({_key_text(source, row)}). Please ensure each target row is matched by at "
            "most one source row."
        )


def _key_text(source: Source, row: int) -> str:
    """Return the key of a source row as text."""
    for placed in source.rows.batches():
        if placed.first <= row < placed.stop:
            columns = source.key.of_rows(placed.batch.slice(row - placed.first, 1))
            values = (column[0].as_py() for column in columns)
            shown = (f'"{value}"' if isinstance(value, str) else str(value) for value in values)
            pairs = zip(source.key.names, shown, strict=True)
            return ", ".join(f"{name} = {value}" for name, value in pairs)
    return ""


def _unmatched(
    snapshot: Snapshot, condition: ExpressionLike | None, matched: UInt64s
) -> dict[int, Int64s]:
    """Return the rows of the table without a matching source row, by fragment."""
    plan = plan_scan(snapshot, ScanOptions(columns=(), filter=condition))
    matched_offsets = rows_by_fragment(matched)
    no_offsets = np.empty(0, np.int64)
    rows = {
        fragment_id: np.setdiff1d(
            offsets, matched_offsets.get(fragment_id, no_offsets), assume_unique=True
        )
        for fragment_id, offsets in find_rows(plan).items()
    }
    return {fragment_id: offsets for fragment_id, offsets in rows.items() if len(offsets)}
