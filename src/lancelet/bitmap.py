"""Sets of fragment ids, under pylance's name for the module."""

from __future__ import annotations

from collections.abc import Iterable


class Bitmap(set[int]):
    """A set of ids."""

    def intersection(self, *others: Iterable[object]) -> Bitmap:
        """Return the ids that are in all."""
        return Bitmap(super().intersection(*others))

    def __repr__(self) -> str:
        """Show the ids in order."""
        return f"Bitmap({{{', '.join(map(str, sorted(self)))}}})"
