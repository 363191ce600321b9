"""Whether a column has nulls, which decides if it may be declared to have none."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lancelet.format.field import Field
from lancelet.ops.columns.fields import ColumnError
from lancelet.ops.columns.plan import plain_projection
from lancelet.ops.columns.rows import read_live
from lancelet.table.snapshot import Snapshot


def check_without_nulls(snapshot: Snapshot, chain: Sequence[Field], path: str) -> None:
    """Raise if the last field of a chain is null in some row in which those around it are not."""
    pruned = snapshot.schema.project_ids({chain[-1].id}).fields
    projection = plain_projection(pruned)
    for fragment in snapshot.fragments:
        for batch in read_live(snapshot, fragment, projection):
            if _has_null(batch.column(0), depth=len(chain) - 1):
                raise ColumnError(
                    f'Column "{path}" contains NULL values and cannot be made non-nullable',
                    column=path,
                    fragment_id=fragment.id,
                )


def _has_null(array: pa.Array, *, depth: int) -> bool:
    if depth == 0:
        return bool(array.null_count)
    if isinstance(array, pa.StructArray):
        present = array.filter(array.is_valid()) if array.null_count else array
        return _has_null(present.field(0), depth=depth - 1)
    return _has_null(pc.list_flatten(array), depth=depth - 1)
