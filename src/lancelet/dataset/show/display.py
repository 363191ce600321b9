"""Representations of objects: one line of text, or an HTML card for notebooks.

LanceScanner('shop.lance', version=3, columns=['id'], filter='id > 3')
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from lancelet.expr.python_values import values_of
from lancelet.printing import one_line

_PREVIEW_ROWS: Final = 5
_CELL_CHARS: Final = 60
_STYLE: Final = "text-align:left;padding:2px 10px 2px 0;vertical-align:top"


def line(name: str, *values: Any, **facts: Any) -> str:
    """Format the result of `repr`: a name, values, and the facts that are not None.

    >>> line("Tags", "shop.lance", names=["a"], version=None)
    "Tags('shop.lance', names=['a'])"
    """
    parts = [repr(value) for value in values]
    parts += [f"{key}={value!r}" for key, value in facts.items() if value is not None]
    return f"{name}({', '.join(parts)})"


def card(title: str, facts: Mapping[str, Any], *tables: str) -> str:
    """Format a title, facts and tables as HTML; all values are escaped."""
    rows = "".join(
        f'<tr><th style="{_STYLE}">{_text(name)}</th><td style="{_STYLE}">{_text(value)}</td></tr>'
        for name, value in facts.items()
        if value is not None
    )
    return f"<div><strong>{_text(title)}</strong><table>{rows}</table>{''.join(tables)}</div>"


def grid(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Format rows with column headers as an HTML table."""
    head = "".join(f'<th style="{_STYLE}">{_text(name)}</th>' for name in columns)
    body = "".join(
        "<tr>" + "".join(f'<td style="{_STYLE}">{_text(value)}</td>' for value in row) + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def preview(rows: pa.Table) -> str:
    """Format the first rows of a table as HTML."""
    first = rows.slice(0, _PREVIEW_ROWS)
    return grid(rows.schema.names, zip(*map(values_of, first.columns), strict=True))


def size_text(count: int) -> str:
    """Format a number of bytes.

    >>> size_text(17), size_text(1_500_000)
    ('17 B', '1.4 MiB')
    """
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def short_text(value: Any) -> str:
    """Format a value for a cell.

    >>> short_text(1200), short_text(["a", "b"]), short_text(b"abc")
    ('1,200', 'a, b', '3 bytes')
    """
    if isinstance(value, int) and not isinstance(value, bool):
        value = f"{value:,}"
    elif isinstance(value, list | tuple) and all(isinstance(each, str) for each in value):
        value = ", ".join(value)
    text = f"{len(value)} bytes" if isinstance(value, bytes) else str(value)
    text = one_line(text[: _CELL_CHARS + 1])
    return text if len(text) <= _CELL_CHARS else f"{text[:_CELL_CHARS]}…"


def _text(value: Any) -> str:
    return html.escape(short_text(value))
