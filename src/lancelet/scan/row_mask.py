"""Convert row sets passed by the caller to filter expressions.

    allowed {0: {1, 5}, 3: all}   _rowid IN (1, 5) OR _rowid >= 3 << 32 AND _rowid < 4 << 32
    blocked {0: {5}}              NOT _rowid IN (5)

The bytes are serialized row sets, for example from an external index.
"""

from __future__ import annotations

import pyarrow as pa

from lancelet.errors import CorruptDataError, InvalidInputError
from lancelet.expr import expression as ex
from lancelet.expr.expression import Expression, Operator
from lancelet.rowids.selection import ALL, RowMask, RowSet
from lancelet.scan.row_columns import RowColumn

_IDS_PER_FRAGMENT = 1 << 32


def read_row_mask(allowed: bytes | None, blocked: bytes | None) -> RowMask | None:
    """Deserialize a row mask; None if neither set is given."""
    if allowed is None and blocked is None:
        return None
    return RowMask(_parse("allowlist", allowed), _parse("blocklist", blocked))


def mask_expression(mask: RowMask) -> Expression:
    """Return the filter that selects the rows of a mask.

    >>> str(mask_expression(RowMask(RowSet.of(pa.array([1, 5], pa.uint64()).to_numpy()))))
    '_rowid IN (1, 5)'
    """
    parts = []
    if mask.allowed is not None:
        parts.append(_within(mask.allowed))
    if mask.blocked is not None:
        parts.append(ex.Not(_within(mask.blocked)))
    return parts[0] if len(parts) == 1 else ex.And(tuple(parts))


def _within(rows: RowSet) -> Expression:
    row_id = ex.column(RowColumn.ID.value)
    listed = RowSet({part: own for part, own in rows.parts.items() if own is not ALL}).listed()
    parts: list[Expression] = [ex.In(row_id, pa.array(listed, pa.uint64()))]
    for part in sorted(part for part, own in rows.parts.items() if own is ALL):
        first = part * _IDS_PER_FRAGMENT
        last = ex.literal(first + _IDS_PER_FRAGMENT - 1, pa.uint64())
        bounds = (
            ex.Comparison(Operator.GREATER_EQUAL, row_id, ex.literal(first, pa.uint64())),
            ex.Comparison(Operator.LESS_EQUAL, row_id, last),
        )
        parts.append(ex.And(bounds))
    return parts[0] if len(parts) == 1 else ex.Or(tuple(parts))


def _parse(name: str, data: bytes | None) -> RowSet | None:
    if data is None:
        return None
    try:
        return RowSet.parse(data)
    except CorruptDataError as error:
        raise InvalidInputError(
            f"the {name} of rows was not created by serialize_row_addrs()", list_bytes=len(data)
        ) from error
