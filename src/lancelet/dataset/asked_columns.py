"""The columns that a caller asks for: a list of names, expressions by name, or None for all.

One name alone is refused, as its letters would be taken for names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lancelet.errors import InvalidInputError
from lancelet.query.scan_options import Columns


class ColumnTypeError(InvalidInputError, TypeError):
    """Columns were given in a form that means nothing."""


def asked_columns(columns: Sequence[str] | Mapping[str, str] | None) -> Columns:
    """Return the columns as a value; the form that they were given in must mean something."""
    if columns is None or isinstance(columns, Mapping):
        return columns
    if isinstance(columns, str):
        raise ColumnTypeError("columns are a list of names, not one name", found=columns)
    for column in columns:
        if not isinstance(column, str):
            raise ColumnTypeError("the name of a column is text", found=str(type(column)))
    return tuple(columns)
