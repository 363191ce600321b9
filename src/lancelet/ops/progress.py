"""How far a long change is, for whoever asked in this thread.

    with reporting(print):
        compact_files(...)          # print("compact", 0, 12), print("compact", 1, 12) and so on

Changes report from the thread that they were called in, never after their commit. What the function
raises stops the change like any other error: files that were written are deleted again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")

Report = Callable[[str, int, int], None]
"""Called with a stage, how much of it is done, and how much it is, or 0 if that is not known."""

_REPORT: ContextVar[Report | None] = ContextVar("report", default=None)


def report(stage: str, done: int, total: int = 0) -> None:
    """Report how far a stage is; nothing happens if nobody asked."""
    to = _REPORT.get()
    if to is not None:
        to(stage, done, total)


@contextmanager
def reporting(to: Report | None) -> Iterator[None]:
    """Report what is done within to a function, and to those before it; with None to nobody."""
    outer = _REPORT.get()
    before = _REPORT.set(to if to is None or outer is None else _both(to, outer))
    try:
        yield
    finally:
        _REPORT.reset(before)


def _both(first: Report, second: Report) -> Report:
    def to_both(stage: str, done: int, total: int) -> None:
        first(stage, done, total)
        second(stage, done, total)

    return to_both


def counted(stage: str, items: Iterable[T], total: int = 0) -> Iterator[T]:
    """Yield items, and report how many were dealt with.

    >>> with reporting(print):
    ...     list(counted("check", "ab", 2))
    check 0 2
    check 1 2
    check 2 2
    ['a', 'b']
    """
    done = 0
    report(stage, done, total)
    for item in items:
        yield item
        done += 1
        report(stage, done, total)
