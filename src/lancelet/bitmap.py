"""Sets of fragment ids. Mirrors the pylance module of this name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


class BitmapIterator(Iterator[int]):
    """Yields the ids of a set in ascending order."""

    def __init__(self, ids: Iterable[int]) -> None:
        """Yield these ids."""
        self._rest = iter(ids)

    def __next__(self) -> int:
        """Return the next id."""
        return next(self._rest)


class Bitmap(set[int]):
    """A set of ids."""

    def intersection(self, *others: Iterable[object]) -> Bitmap:
        """Return the ids that all sets contain."""
        return Bitmap(super().intersection(*others))

    def __iter__(self) -> BitmapIterator:
        """Yield the ids in ascending order."""
        return BitmapIterator(sorted(super().__iter__()))

    def __repr__(self) -> str:
        """Show the ids in order."""
        return f"Bitmap({{{', '.join(map(str, sorted(self)))}}})"
