"""Output of commands: aligned tables for terminals, or JSON, CSV or Arrow for programs.

    $ lancelet count t.lance            $ lancelet count t.lance --json
    3                                   {"rows": 3}

A command prints either a table, which is a list of objects in JSON, or facts, which are one
object. Errors, warnings and progress are written to stderr, so the output can be piped. On a
terminal, tables are truncated to its width and have a bold header; piped values are complete.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from datetime import UTC, date, datetime, time
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Any, Final, TextIO

from lancelet.errors import LanceletError
from lancelet.printing import one_line, printable
from lancelet.values import dataclass

if TYPE_CHECKING:
    import pyarrow as pa

    from lancelet.jobs.bar import TerminalBar

_SEPARATOR: Final = "  "
_CELL_MIN: Final = 8
_ITEMS_MAX: Final = 16
_ITEMS_SHOWN: Final = 3
_BOLD, _DIM, _PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[0m"


class Form(StrEnum):
    """The output format."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    ARROW = "arrow"


@dataclass(frozen=True, slots=True, eq=False)
class Output:
    """The output stream of a command and its format."""

    form: Form = Form.TABLE
    stream: TextIO = field(default_factory=lambda: sys.stdout)
    errors: TextIO = field(default_factory=lambda: sys.stderr)

    @property
    def is_for_people(self) -> bool:
        """Whether sizes may be rounded and text truncated."""
        return self.form is Form.TABLE

    def table(
        self, columns: Sequence[str], rows: Iterable[Sequence[Any]], *, full: bool = False
    ) -> None:
        """Print rows with column headers; `full` does not abbreviate values for people."""
        match self.form:
            case Form.JSON:
                self._json([dict(zip(columns, row, strict=True)) for row in rows])
            case Form.CSV:
                import csv  # noqa: PLC0415 - imported for CSV only, to start faster

                writer = csv.writer(self.stream, lineterminator="\n")
                writer.writerow(columns)
                writer.writerows([cell_text(value) for value in row] for row in rows)
            case Form.ARROW:
                names = dict.fromkeys(columns)
                self._arrow(arrow_table(names, [list(row) for row in rows]))
            case Form.TABLE:
                self._aligned(columns, list(rows), full=full)

    def rows(self, table: pa.Table, *, full: bool = False) -> None:
        """Print the rows of a table; the Arrow format preserves the column types.

        Binary values and vectors are abbreviated, unless `full` or in the Arrow format.
        """
        if self.form is Form.ARROW:
            self._arrow(table)
        else:
            from lancelet.expr.python_values import values_of  # noqa: PLC0415 - slow to import

            rows = list(zip(*map(values_of, table.columns), strict=True))
            if not full and self.form is not Form.TABLE:
                rows = [tuple(map(abbreviated, row)) for row in rows]
            if self.form is not Form.JSON:
                rows = [tuple(_whole_moment(value) for value in row) for row in rows]
            self.table(table.schema.names, rows, full=full)

    def facts(self, values: Mapping[str, Any]) -> None:
        """Print named values."""
        if self.form is Form.JSON:
            self._json(dict(values))
        elif self.form is not Form.TABLE:
            self.table(list(values), [list(values.values())])
        else:
            width = max(map(len, values), default=0)
            for name, value in values.items():
                lines = printable(_text(value)).splitlines() or [""]
                self._line(f"{name:{width}}{_SEPARATOR}{lines[0]}".rstrip())
                for line in lines[1:]:
                    self._line(f"{'':{width}}{_SEPARATOR}{line}")

    def text(self, text: str, values: Any) -> None:
        """Print text, or the corresponding values in formats for programs."""
        if self.form is Form.TABLE:
            self._line(printable(text))
        elif isinstance(values, Mapping):
            self.facts(values)
        else:
            self._json(values)

    def error(self, error: LanceletError) -> None:
        """Print an error with its facts."""
        notes = getattr(error, "__notes__", [])
        if self.form is Form.JSON:
            values = {
                "error": type(error).__name__,
                "message": error.message,
                "facts": error.facts,
                "notes": notes,
            }
            print(json.dumps(_finite(values), default=json_value), file=self.errors)
            return
        print(f"lancelet: {printable(error.message)}", file=self.errors)
        for name, value in error.facts.items():
            print(f"  {name}: {printable(str(value))}", file=self.errors)
        for line in notes:
            print(f"  {line}", file=self.errors)

    def warn(self, text: str) -> None:
        """Print a warning."""
        print(f"lancelet: {printable(text)}", file=self.errors)

    @property
    def shows_progress(self) -> bool:
        """Whether stderr is a terminal that displays progress."""
        return self.form is not Form.JSON and self.errors.isatty()

    def bar(self) -> TerminalBar | None:
        """Return a progress bar if stderr is a terminal, else None."""
        if not self.shows_progress:
            return None
        from lancelet.jobs.bar import TerminalBar  # noqa: PLC0415 - only on terminals

        return TerminalBar(self.errors)

    def progress(self, phase: str, total: int) -> ProgressLine:
        """Return a counter of completed steps, with a progress bar on terminals."""
        return ProgressLine(self.bar(), phase, total)

    def _aligned(
        self, columns: Sequence[str], rows: Sequence[Sequence[Any]], *, full: bool
    ) -> None:
        """Print a table with right-aligned numbers."""
        if not rows:
            self._line("no rows")
            return
        is_terminal = self.stream.isatty()
        values = list(zip(*rows, strict=True))
        right = [all(_is_number(value) for value in column) for column in values]
        shown = cell_text if full else _short_text
        columns = list(map(one_line, columns))
        cells = [[one_line(shown(value)) for value in row] for row in rows]
        widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
        if is_terminal:
            import shutil  # noqa: PLC0415 - imported for tables only, to start faster

            widths = fitted(
                widths, shutil.get_terminal_size().columns - len(_SEPARATOR) * len(widths)
            )
        header = _line_of(columns, widths, right)
        if is_terminal and "NO_COLOR" not in os.environ:
            header = (
                f"{_BOLD}{header}{_PLAIN}\n{_DIM}{_SEPARATOR.join('─' * w for w in widths)}{_PLAIN}"
            )
        self._line(header)
        for row in cells:
            self._line(_line_of(row, widths, right))

    def _arrow(self, table: pa.Table) -> None:
        import pyarrow as pa  # noqa: PLC0415 - most commands print no Arrow

        with pa.ipc.new_stream(self.stream.buffer, table.schema) as writer:
            writer.write_table(table)

    def _json(self, value: Any) -> None:
        text = json.dumps(
            _finite(value), default=json_value, indent=2, ensure_ascii=False, allow_nan=False
        )
        self._line(text)

    def _line(self, text: str) -> None:
        print(text, file=self.stream)


@dataclass(slots=True)
class ProgressLine:
    """A progress bar that advances by completed steps."""

    bar: TerminalBar | None
    phase: str
    total: int
    done: int = 0

    def advance(self, parts: int = 1) -> None:
        """Add completed steps."""
        self.done += parts
        if self.bar is not None:
            from lancelet.jobs.engine import Progress  # noqa: PLC0415 - only on terminals

            self.bar(Progress(self.phase, self.done, self.total))


def cell_text(value: Any) -> str:
    """Return a value as untruncated text.

    >>> cell_text(None), cell_text([1, None]), cell_text(0.1)
    ('', '[1, null]', '0.1')
    """
    return _text(value)


def _short_text(value: Any) -> str:
    """Return a value as text, with the size of binary values and the first items of vectors.

    >>> _short_text(b"abc"), _short_text([0.5] * 384)
    ('<binary, 3 bytes>', '[0.5, 0.5, 0.5, ... 384 values]')
    """
    if isinstance(value, list) and _is_long_vector(value):
        return f"{_text(value[:_ITEMS_SHOWN])[:-1]}, ... {len(value)} values]"
    return cell_text(abbreviated(value))


def abbreviated(value: Any) -> Any:
    """Return a value with the size of binary values and the first items of vectors.

    >>> abbreviated({"image": b"abc", "vector": [0.5] * 384})
    {'image': '<binary, 3 bytes>', 'vector': [0.5, 0.5, 0.5, '... 384 values']}
    """
    match value:
        case bytes():
            return f"<binary, {len(value)} bytes>"
        case list() if _is_long_vector(value):
            return [*value[:_ITEMS_SHOWN], f"... {len(value)} values"]
        case list() | tuple():
            return [abbreviated(each) for each in value]
        case dict():
            return {name: abbreviated(each) for name, each in value.items()}
    return value


def _is_long_vector(value: list[Any]) -> bool:
    return len(value) > _ITEMS_MAX and all(map(_is_number, value))


def fitted(widths: Sequence[int], total: int) -> list[int]:
    """Shrink column widths to a sum of at most `total`, the widest columns first.

    >>> fitted([4, 30, 10], 30)
    [4, 16, 10]
    """
    widths = list(widths)
    limit = max(widths, default=0)
    while sum(widths) > total and limit > _CELL_MIN:
        limit -= 1
        widths = [min(width, limit) for width in widths]
    return widths


def arrow_table(columns: Iterable[str], rows: Sequence[Sequence[Any]]) -> pa.Table:
    """Return rows as an Arrow table; columns without a common type are converted to strings."""
    import pyarrow as pa  # noqa: PLC0415 - most commands print no Arrow

    names = list(columns)
    arrays = []
    for values in zip(*rows, strict=True) if rows else ([] for _ in names):
        try:
            arrays.append(pa.array(values))
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            texts = [None if value is None else cell_text(value) for value in values]
            arrays.append(pa.array(texts, pa.string()))
    return pa.Table.from_arrays(arrays, names=names)


def json_value(value: Any) -> Any:
    """Convert a value without a JSON representation."""
    match value:
        case bytes():
            import base64  # noqa: PLC0415 - imported for binary values only, to start faster

            return base64.b64encode(value).decode()
        case datetime() if value.tzinfo is not None:
            return value.astimezone(UTC).isoformat()
        case datetime() | date() | time():
            return value.isoformat()
        case Enum():
            return value.value
        case set() | frozenset() | tuple():
            return list(value)
    return str(value)


def json_line(value: Any) -> str:
    """Return a value as JSON in one line; NaN and infinity become null.

    >>> json_line({"a": [float("nan"), 1.5]})
    '{"a": [null, 1.5]}'
    """
    return json.dumps(_finite(value), default=json_value, ensure_ascii=False, allow_nan=False)


def _finite(value: Any) -> Any:
    """Replace numbers that JSON cannot represent by None."""
    match value:
        case float() if not math.isfinite(value):
            return None
        case Mapping():
            return {key: _finite(each) for key, each in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_finite(each) for each in value]
    return value


def _whole_moment(value: Any) -> Any:
    """Return a timestamp as text with microseconds, and any other value unchanged."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return f"{value.astimezone(UTC).replace(tzinfo=None)}Z"
    return value


def _text(value: Any) -> str:
    match value:
        case None:
            return ""
        case str():
            return value
        case datetime() if value.tzinfo is not None:
            # All timestamps are in UTC; the Z suffix marks it.
            return f"{value.astimezone(UTC).replace(tzinfo=None, microsecond=0)}Z"
        case list() | tuple() | dict():
            return json.dumps(value, default=json_value, ensure_ascii=False)
    return str(json_value(value))


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _line_of(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    shown = []
    for cell, width, is_right in zip(cells, widths, right, strict=True):
        text = cell if len(cell) <= width else cell[: width - 1] + "…"
        shown.append(f"{text:>{width}}" if is_right else f"{text:{width}}")
    return _SEPARATOR.join(shown).rstrip()
