"""Write, adopt or change fragments that a later transaction commits.

No version contains the returned fragments yet; the committed operation determines what they
replace.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lancelet.buffers import Int64s
from lancelet.change.delete import check_predicate, find_rows, write_deletions
from lancelet.change.fit import check_new_schema
from lancelet.change.rows import RowStream
from lancelet.change.write import check_batches, write_fragments
from lancelet.change.write_table import WriteMode, WriteOptions, append_fragments
from lancelet.errors import InvalidInputError
from lancelet.expr import expression as ex
from lancelet.expr.compile import ExpressionLike
from lancelet.file.open import open_data_file
from lancelet.format.fragment import DataFile, Fragment, FragmentId
from lancelet.format.paths import DATA, data_file_identity
from lancelet.format.schema import Schema
from lancelet.format.version import DEFAULT_VERSION, FileVersion
from lancelet.scan.plan import plan_scan
from lancelet.scan.scan_options import ScanOptions
from lancelet.table.commit import check_table_exists
from lancelet.table.location import TableLocation
from lancelet.table.snapshot import Snapshot


class NoRowsError(InvalidInputError, OSError):
    """A fragment cannot be written without rows."""


class OffsetError(InvalidInputError, OverflowError):
    """A row offset is negative."""


def write_fragment(
    location: TableLocation,
    latest: Snapshot | None,
    rows: RowStream,
    mode: WriteMode,
    options: WriteOptions,
) -> Fragment:
    """Write rows as one fragment with one data file; in append mode they must match the table."""
    limits = replace(options.files.limits, max_rows_per_file=sys.maxsize)
    files = replace(options.files, limits=limits)
    if latest is not None and mode is WriteMode.APPEND:
        written = append_fragments(latest, rows, replace(options, files=files))
    else:
        check_new_schema(rows.schema)
        version = options.version or DEFAULT_VERSION
        schema = Schema.from_arrow(rows.schema, blob_v2=version >= FileVersion.V2_2)
        targets = options.targets.targets(location, {})
        batches = check_batches(rows.batches, rows.schema)
        written = write_fragments(targets, batches, schema, replace(files, version=version))
    if not written:
        raise NoRowsError("Input data was empty.", uri=location.uri)
    return written[0]


def fragment_of_file(snapshot: Snapshot, file: DataFile, fragment_id: int) -> Fragment:
    """Return a fragment for a data file that already exists in the table."""
    location = snapshot.location.resolve(DATA, file.path, file.base_id, snapshot.manifest.bases)
    num_rows = open_data_file(
        location.store, location.path, name=data_file_identity(location.path)
    ).num_rows
    return Fragment(FragmentId(fragment_id), (file,), num_rows)


def delete_matching(
    snapshot: Snapshot, fragment: Fragment, predicate: ExpressionLike
) -> Fragment | None:
    """Return a fragment without the rows that match a predicate; None if no rows remain."""
    check_predicate(predicate)
    scan = ScanOptions(columns=(), filter=predicate, fragments=(int(fragment.id),))
    plan = plan_scan(snapshot, scan)
    if not plan.is_filtered:
        return None
    rows = {} if plan.filter == ex.FALSE else find_rows(plan)
    return _without(snapshot, fragment, rows.get(int(fragment.id), np.empty(0, np.int64)))


def delete_offsets(
    snapshot: Snapshot, fragment: Fragment, offsets: Sequence[int]
) -> Fragment | None:
    """Return a fragment without the rows at some offsets, which count deleted rows too."""
    unique_offsets = np.array(sorted(set(offsets)), np.int64)
    num_rows = snapshot.physical_rows(fragment)
    if len(unique_offsets) and unique_offsets[0] < 0:
        raise OffsetError("a row offset must not be negative", offset=int(unique_offsets[0]))
    if len(unique_offsets) and unique_offsets[-1] >= num_rows:
        raise InvalidInputError(
            "a row offset is out of range of the fragment",
            offset=int(unique_offsets[-1]),
            fragment_id=int(fragment.id),
            num_rows=num_rows,
        )
    return _without(snapshot, fragment, unique_offsets)


def _without(snapshot: Snapshot, fragment: Fragment, offsets: Int64s) -> Fragment | None:
    if len(offsets) == 0:
        return fragment
    check_table_exists(snapshot)
    removal = write_deletions(snapshot, {int(fragment.id): offsets})
    return removal.updated[0] if removal.updated else None
