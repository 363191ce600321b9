"""What a caller may ask of a scan, as one frozen value.

ScanOptions(columns=("id", "s.x"), filter="id > 3", limit=10)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, TypeAlias
from uuid import UUID

from lancelet.errors import InvalidInputError
from lancelet.file.arguments import OutOfRangeError
from lancelet.query.compile import ExpressionLike
from lancelet.rowids.selection import RowMask
from lancelet.values import dataclass

if TYPE_CHECKING:
    from lancelet.query.search.hits import Search

Columns: TypeAlias = "tuple[str, ...] | Mapping[str, ExpressionLike] | None"
"""Paths of columns, or expressions by the name each shall have, or None for all columns."""


@dataclass(frozen=True, slots=True)
class Ordering:
    """A column to sort by; nulls go last unless asked for first, in either direction."""

    column: str
    ascending: bool = True
    nulls_first: bool = False


@dataclass(frozen=True, slots=True)
class ScanOptions:
    """Which rows of a version to read, which columns of them, and in what batches.

    Attributes:
        columns: What to return; see `Columns`. Columns of row ids and addresses have names too.
        filter: Keeps the rows for which it is true.
        limit: The most rows to return.
        offset: How many of the first rows to leave out.
        order_by: What to sort by, the most important column first.
        batch_size: The most rows of a batch; by default what is cheapest.
        batch_bytes: The most bytes of a batch, about.
        is_strict: Whether every batch but the last has exactly `batch_size` rows.
        with_row_id: Whether to return a column `_rowid` behind the others.
        with_row_address: Whether to return a column `_rowaddr` behind the others.
        fragments: The ids of the fragments to read, in the order given; by default all.
        with_deleted: Whether to return deleted rows too, with a null row id.
        use_statistics: Whether to skip zones of rows that cannot match.
        use_indices: Whether to ask indices where that is cheaper than looking at rows.
        indexed_only: Whether to leave out fragments that an index in use does not cover.
        segments: The ids of the segments of an index that a search looks at, and at no other rows.
        search: What to search for; rows then come with scores, the best first.
        prefilter: Whether a search looks only at rows that pass the filter.
        rows: The rows that may be returned, by id; a search looks at no others.
        adds_scores: Whether scores are returned even if they were not asked for by name.
        memory_limit: The bytes that the scan may take beside what it returned, about.
    """

    columns: Columns = None
    filter: ExpressionLike | None = None
    limit: int | None = None
    offset: int = 0
    order_by: tuple[Ordering, ...] = field(default=())
    batch_size: int | None = None
    batch_bytes: int | None = None
    is_strict: bool = False
    with_row_id: bool = False
    with_row_address: bool = False
    fragments: tuple[int, ...] | None = None
    with_deleted: bool = False
    use_statistics: bool = True
    use_indices: bool = True
    indexed_only: bool = False
    segments: frozenset[UUID] | None = None
    search: Search | None = None
    prefilter: bool = False
    rows: RowMask | None = None
    adds_scores: bool = True
    memory_limit: int | None = None

    def __post_init__(self) -> None:
        """Refuse numbers that mean nothing."""
        if self.limit is not None and self.limit < 0:
            raise InvalidInputError("Limit must be non-negative", limit=self.limit)
        if self.offset < 0:
            raise InvalidInputError("Offset must be non-negative", offset=self.offset)
        for name in ("batch_size", "batch_bytes", "memory_limit"):
            size = getattr(self, name)
            if size is not None and size < 1:
                kind = OutOfRangeError if size < 0 else InvalidInputError
                raise kind(f"{name} must be at least 1", found=size)
        if self.with_deleted and not self.with_row_id:
            raise InvalidInputError(
                "deleted rows are marked by null row ids, and with_row_id is false; set it to True"
            )
