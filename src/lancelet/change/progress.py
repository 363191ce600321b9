"""Report the progress of long operations to a callback of the current context.

    with reporting(print):
        compact_files(...)          # print("compact", 0, 12), print("compact", 1, 12) and so on

Operations call it in the thread that started them, and never after the commit. An exception raised
by the callback cancels the operation, and its files are deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")

Report = Callable[[str, int, int], None]
"""Called with a stage, the completed steps and the total steps, or 0 if the total is unknown."""

_REPORT: ContextVar[Report | None] = ContextVar("report", default=None)


def report(stage: str, done: int, total: int = 0) -> None:
    """Report the progress of a stage, if a callback is set."""
    callback = _REPORT.get()
    if callback is not None:
        callback(stage, done, total)


@contextmanager
def reporting(callback: Report | None) -> Iterator[None]:
    """Report progress to a callback and to those of outer contexts; None disables reporting."""
    outer = _REPORT.get()
    before = _REPORT.set(callback if callback is None or outer is None else _both(callback, outer))
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
    """Yield items, and report the number of processed items.

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
