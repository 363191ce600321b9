"""Results that are displayed as tables or text: lists, dicts and plans.

    >>> Listing([{"name": "a", "rows": 1200}], ("name", "rows"), dict.values)
    name   rows
    a     1,200

They are ordinary lists, dicts and strings otherwise: equality, indexing and JSON are unchanged.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import pyarrow as pa

from lancelet.dataset.show import display
from lancelet.expr.python_values import values_of
from lancelet.printing import one_line

T = TypeVar("T")

ROWS_SHOWN: Final = 20


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
        return [list(self._cells(item)) for item in self[:ROWS_SHOWN]]


class Facts(dict[str, Any]):
    """A dict that is displayed with one line per entry."""

    def __repr__(self) -> str:
        """Show one line per entry, and nested entries indented."""
        return "\n".join(_fact_lines(self))

    def _repr_html_(self) -> str:
        plain = [(name, value) for name, value in self.items() if not _is_nested(value)]
        parts = [display.grid(("name", "value"), plain)]
        for name, value in self.items():
            if _is_nested(value):
                lines = html.escape("\n".join(_nested_lines(value)))
                parts.append(f"<details><summary>{html.escape(name)}</summary><pre>{lines}</pre>")
                parts.append("</details>")
        return "".join(parts)


def _is_nested(value: Any) -> bool:
    is_list = isinstance(value, list | tuple) and any(isinstance(each, Mapping) for each in value)
    return bool(value) and (is_list or isinstance(value, Mapping))


def _fact_lines(facts: Mapping[Any, Any]) -> Iterator[str]:
    """Yield one line per entry; those of nested entries follow the name, indented."""
    width = max((len(str(name)) for name in facts if not _is_nested(facts[name])), default=0)
    for name, value in facts.items():
        if not _is_nested(value):
            yield f"{name!s:{width}}  {display.short_text(value)}".rstrip()
            continue
        yield str(name)
        yield from (f"  {line}" for line in _nested_lines(value))


def _nested_lines(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        yield from _fact_lines(value)
        return
    columns = list(dict.fromkeys(name for each in value for name in each))
    if len(value) == 1 or any(_is_nested(cell) for each in value for cell in each.values()):
        for number, each in enumerate(value[:ROWS_SHOWN]):
            if number:
                yield ""
            yield from _fact_lines(each)
        return
    rows = [[each.get(name, "") for name in columns] for each in value[:ROWS_SHOWN]]
    yield from text_table(columns, rows, len(value)).splitlines()


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
    first = rows.slice(0, ROWS_SHOWN)
    values = [list(row) for row in zip(*map(values_of, first.columns), strict=True)]
    return text_table(rows.schema.names, values, rows.num_rows if num_rows is None else num_rows)


def text_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], total: int) -> str:
    """Return rows as aligned text, and the number of rows that are not shown."""
    if not rows:
        return f"no rows ({', '.join(columns)})"
    columns = list(map(one_line, columns))
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
