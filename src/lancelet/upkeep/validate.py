"""Validate a version: unique ids, and data files that match the manifest."""

from __future__ import annotations

import numpy as np

from lancelet.change.progress import counted
from lancelet.errors import CorruptDataError
from lancelet.format.fragment import Fragment
from lancelet.table.lineage import row_ids_of
from lancelet.table.snapshot import Snapshot


def validate(snapshot: Snapshot) -> None:
    """Raise `CorruptDataError` for the first inconsistency."""
    ids = snapshot.fragments.ids
    if not bool((np.diff(ids) > 0).all()):
        raise CorruptDataError("fragments are not sorted by id", ids=ids.tolist()[:100])
    field_ids = [field.id for field in snapshot.schema.walk()]
    if len(set(field_ids)) < len(field_ids):
        raise CorruptDataError("two fields have the same id", field_ids=field_ids[:100])
    for index in snapshot.indices.indices:
        missing = index.missing_fields(snapshot.schema.by_id)
        if missing:
            raise CorruptDataError(
                "an index is on a field that does not exist; drop the index",
                index=index.name,
                field_ids=list(missing),
            )
    for fragment in counted("validate fragments", snapshot.fragments, len(snapshot.fragments)):
        _validate_fragment(snapshot, fragment)


def _validate_fragment(snapshot: Snapshot, fragment: Fragment) -> None:
    rows = snapshot.physical_rows(fragment)
    for file in fragment.files:
        num_rows = snapshot.open_file(file).num_rows
        if num_rows != rows:
            raise CorruptDataError(
                "the row count of a data file differs from that of its fragment",
                path=file.path,
                fragment_id=fragment.id,
                expected=rows,
                found=num_rows,
            )
    deleted = snapshot.deletions(fragment)
    deleted.check_within(rows)
    num_deleted = fragment.num_deleted_rows
    if num_deleted and len(deleted) != num_deleted:
        raise CorruptDataError(
            "the number of deleted rows differs between a deletion file and the manifest",
            fragment_id=fragment.id,
            expected=num_deleted,
            found=len(deleted),
        )
    if fragment.row_ids is not None:
        row_ids_of(snapshot, fragment)
