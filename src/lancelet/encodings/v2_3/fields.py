"""The three functions by which the file layer knows version 2.3."""

from __future__ import annotations

from collections.abc import Sequence

from lancelet.encodings.base import FileVersion, Memo, StoredColumn
from lancelet.encodings.levels import nest, paths
from lancelet.encodings.structural import StructuralReader
from lancelet.encodings.v2_3.open_page import open_page
from lancelet.format.field import Field


def columns_of(field: Field, version: FileVersion) -> tuple[Field, ...]:
    """Return the fields within `field` that own a column each, in order: its leaves."""
    return tuple(path[-1].field for path in paths(nest(field, version)))


def open_field(
    field: Field,
    columns: Sequence[StoredColumn],
    version: FileVersion,
    memo: Memo | None = None,
) -> StructuralReader:
    """Prepare to read a (projected) field from its columns, in the order of `columns_of`."""
    return StructuralReader(nest(field, version), columns, open_page, memo=memo)
