"""What a command prints: tables and facts for people, or JSON for programs.

    $ lancelet count t.lance            $ lancelet count t.lance --json
    3                                   {"rows": 3}

A command prints one thing: a table, which is a list of objects in JSON, or facts, which are one
object. Errors, warnings and progress go to the other stream, so the output can be piped anywhere.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time
from enum import Enum
from typing import Any, Final, TextIO

from lancelet.errors import LanceletError
from lancelet.ops.jobs.bar import TerminalBar
from lancelet.ops.jobs.engine import Progress

_CELL_WIDTH: Final = 60
_GAP: Final = "  "


@dataclass(frozen=True, slots=True, eq=False)
class Output:
    """Where a command prints, and whether for a program."""

    is_json: bool = False
    stream: TextIO = field(default_factory=lambda: sys.stdout)
    errors: TextIO = field(default_factory=lambda: sys.stderr)

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Print rows under the names of their columns."""
        if self.is_json:
            self._json([dict(zip(columns, row, strict=True)) for row in rows])
            return
        cells = [[cell_text(value) for value in row] for row in rows]
        if not cells:
            self._line("nothing")
            return
        widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
        self._line(_aligned(columns, widths))
        for row in cells:
            self._line(_aligned(row, widths))

    def facts(self, values: Mapping[str, Any]) -> None:
        """Print values by name."""
        if self.is_json:
            self._json(dict(values))
            return
        width = max(map(len, values), default=0)
        for name, value in values.items():
            lines = _told(value).splitlines() or [""]
            self._line(f"{name:{width}}{_GAP}{lines[0]}".rstrip())
            for line in lines[1:]:
                self._line(f"{'':{width}}{_GAP}{line}")

    def text(self, text: str, values: Any) -> None:
        """Print text, or for a program the values that it tells."""
        if self.is_json:
            self._json(values)
        else:
            self._line(text)

    def error(self, error: LanceletError) -> None:
        """Say what went wrong, with the facts."""
        notes = getattr(error, "__notes__", [])
        if self.is_json:
            told = {
                "error": type(error).__name__,
                "message": error.message,
                "facts": error.facts,
                "notes": notes,
            }
            print(json.dumps(told, default=json_value), file=self.errors)
            return
        print(f"lancelet: {error.message}", file=self.errors)
        for name, value in error.facts.items():
            print(f"  {name}: {value}", file=self.errors)
        for note in notes:
            print(f"  {note}", file=self.errors)

    def warn(self, text: str) -> None:
        """Say something that is no error."""
        print(f"lancelet: {text}", file=self.errors)

    def bar(self) -> TerminalBar | None:
        """Return what draws how far a job is, if somebody is looking."""
        return None if self.is_json or not self.errors.isatty() else TerminalBar(self.errors)

    def progress(self, phase: str, total: int) -> ProgressLine:
        """Return what counts parts that are done, and draws a bar if somebody is looking."""
        return ProgressLine(self.bar(), phase, total)

    def _json(self, value: Any) -> None:
        self._line(json.dumps(value, default=json_value, indent=2, ensure_ascii=False))

    def _line(self, text: str) -> None:
        print(text, file=self.stream)


@dataclass(slots=True)
class ProgressLine:
    """A bar that moves as parts of some work are done."""

    bar: TerminalBar | None
    phase: str
    total: int
    done: int = 0

    def advance(self, parts: int = 1) -> None:
        """Say that some more parts are done."""
        self.done += parts
        if self.bar is not None:
            self.bar(Progress(self.phase, self.done, self.total))


def cell_text(value: Any) -> str:
    """Return a value as it stands in a table: on one line, and not too long.

    >>> cell_text(None), cell_text([1, None]), cell_text("x" * 99)[-3:]
    ('', '[1, null]', '...')
    """
    text = " ".join(_told(value).split()) if isinstance(value, str) else _told(value)
    return text if len(text) <= _CELL_WIDTH else text[: _CELL_WIDTH - 3] + "..."


def json_value(value: Any) -> Any:
    """Return what JSON has for a value that it does not know."""
    match value:
        case bytes():
            return base64.b64encode(value).decode()
        case datetime() | date() | time():
            return value.isoformat()
        case Enum():
            return value.value
        case set() | frozenset() | tuple():
            return list(value)
    return str(value)


def bytes_text(count: int) -> str:
    """Return a number of bytes for people.

    >>> bytes_text(17), bytes_text(1_500_000)
    ('17 B', '1.4 MiB')
    """
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def _told(value: Any) -> str:
    match value:
        case None:
            return ""
        case str():
            return value
        case datetime():
            return value.isoformat(sep=" ", timespec="seconds")
        case float():
            return f"{value:.6g}"
        case list() | tuple() | dict():
            return json.dumps(value, default=json_value, ensure_ascii=False)
    return str(json_value(value))


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (f"{cell:{width}}" for cell, width in zip(cells, widths, strict=True))
    return _GAP.join(padded).rstrip()
