"""What a caller asks of texts that are nearly the same: one text, and the column to look in."""

from __future__ import annotations

from lancelet.values import dataclass


@dataclass(frozen=True, slots=True)
class MinHashQuery:
    """A search for texts that are nearly the same, in a column with a MINHASHLSH index.

    Passed as `nearest` to a scan, it returns the rows whose texts are most similar, with
    `_distance`, the estimated share of shingles in which each differs. Their number is the limit of
    the scan, or 10.

    Attributes:
        text: The text to compare with; it is cut into words as those of the index are.
        column: The column that has the index.
    """

    text: str
    column: str
