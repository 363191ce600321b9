"""Results that are displayed as tables or text: lists, dicts and plans.

    >>> Listing([{"name": "a", "rows": 1200}], ("name", "rows"), dict.values)
    name   rows
    a     1,200

They are ordinary lists, dicts and strings otherwise: equality, indexing and JSON are unchanged.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import pyarrow as pa

from lancelet.dataset.show import display

T = TypeVar("T")

_ROWS_MAX: Final = 20


class Listing(list[T]):
    """A list whose items are displayed as the rows of a table."""

    def __init__(
        self,
        items: Iterable[T],
        columns: Sequence[str],
        cells: Callable[[T], Iterable[Any]],
    ) -> None:
        """Create a list; `cells` returns the values of an item for the columns."""
        super().__init__(items)
        self._columns = tuple(columns)
        self._cells = cells

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the items as a plain list."""
        return list, (list(self),)

    def __repr__(self) -> str:
        """Show the first items as a table."""
        return text_table(self._columns, self._rows(), len(self))

    def _repr_html_(self) -> str:
        return display.grid(self._columns, self._rows())

    def _rows(self) -> list[list[Any]]:
        return [list(self._cells(item)) for item in self[:_ROWS_MAX]]


class Facts(dict[str, Any]):
    """A dict that is displayed with one line per entry."""

    def __repr__(self) -> str:
        """Show one line per entry."""
        width = max(map(len, self), default=0)
        return "\n".join(f"{name:{width}}  {display.short_text(self[name])}" for name in self)

    def _repr_html_(self) -> str:
        return display.grid(("name", "value"), self.items())


class Text(str):
    """Text of several lines, which interactive sessions display without quotes and escapes."""

    __slots__ = ()

    def __repr__(self) -> str:
        """Show the text itself."""
        return str(self)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self)}</pre>"


def table_of(rows: pa.Table, num_rows: int | None = None) -> str:
    """Return the first rows of a table as text."""
    first = rows.slice(0, _ROWS_MAX)
    values = [list(row.values()) for row in first.to_pylist()]
    return text_table(rows.schema.names, values, rows.num_rows if num_rows is None else num_rows)


def text_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], total: int) -> str:
    """Return rows as aligned text, and the number of rows that are not shown."""
    if not rows:
        return f"no rows ({', '.join(columns)})"
    cells = [[display.short_text(value) for value in row] for row in rows]
    is_number = [
        all(isinstance(value, int | float) and not isinstance(value, bool) for value in column)
        for column in zip(*rows, strict=True)
    ]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    lines = []
    for row in (columns, *cells):
        parts = (
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(row, widths, is_number, strict=True)
        )
        lines.append("  ".join(parts).rstrip())
    if total > len(rows):
        lines.append(f"... {total - len(rows):,} more rows")
    return "\n".join(lines)


def version_cells(version: Mapping[str, Any]) -> list[Any]:
    """Return the cells of a version for `VERSION_COLUMNS`."""
    metadata = version["metadata"]
    return [
        version["version"],
        version["timestamp"].isoformat(sep=" ", timespec="seconds"),
        int(metadata["total_rows"]),
        int(metadata["total_fragments"]),
        display.size_text(int(metadata["total_files_size"])),
    ]


VERSION_COLUMNS: Final = ("version", "timestamp", "rows", "fragments", "size")
