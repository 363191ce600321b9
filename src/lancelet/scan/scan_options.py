"""The options of a scan.

ScanOptions(columns=("id", "s.x"), filter="id > 3", limit=10)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Protocol, TypeAlias
from uuid import UUID

import pyarrow as pa

from lancelet.errors import InvalidInputError
from lancelet.expr.compile import ExpressionLike
from lancelet.file.arguments import OutOfRangeError
from lancelet.rowids.selection import RowMask
from lancelet.values import dataclass

Columns: TypeAlias = "tuple[str, ...] | Mapping[str, ExpressionLike] | None"
"""Column paths, or expressions by output name, or None for all columns."""


@dataclass(frozen=True, slots=True)
class Ordering:
    """A column to sort by; nulls are last in both directions unless `nulls_first`."""

    column: str
    ascending: bool = True
    nulls_first: bool = False


class SearchRequest(Protocol):
    """A search, as far as its output columns depend on it; see `lancelet.search.hits.Search`."""

    @property
    def score_field(self) -> pa.Field:
        """The score column."""

    @property
    def element_field(self) -> pa.Field | None:
        """The column of list element indices if the search returns elements, otherwise None."""

    @property
    def is_batch(self) -> bool:
        """Whether the search has several queries, numbered in the output."""


@dataclass(frozen=True, slots=True)
class ScanOptions:
    """The rows and columns that a scan returns, and their batch sizes.

    Attributes:
        columns: The output columns, including row columns by name; see `Columns`.
        filter: The condition that returned rows satisfy.
        limit: The maximum number of rows.
        offset: The number of leading rows to skip.
        order_by: The sort columns, most significant first.
        batch_size: The maximum number of rows per batch, by default chosen for speed.
        batch_bytes: The approximate maximum number of bytes per batch.
        is_strict: Whether all batches except the last have exactly `batch_size` rows.
        with_row_id: Whether to append the column `_rowid`.
        with_row_address: Whether to append the column `_rowaddr`.
        fragments: The ids of the fragments to read, in order; by default all.
        with_deleted: Whether to return deleted rows too, with a null row id.
        use_statistics: Whether to skip zones that cannot match the filter.
        use_indices: Whether to use scalar indices where they are cheaper than a scan.
        indexed_only: Whether to skip fragments that the used indices do not cover.
        segments: The ids of the index segments that a search is limited to.
        search: The search; rows are returned with scores, best first.
        prefilter: Whether the filter is applied before the search.
        rows: The rows that scans and searches are limited to, by row id.
        adds_scores: Whether to return scores that `columns` does not contain.
        memory_limit: The approximate maximum memory of the scan in bytes, without its results.
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
    search: SearchRequest | None = None
    prefilter: bool = False
    rows: RowMask | None = None
    adds_scores: bool = True
    memory_limit: int | None = None

    def __post_init__(self) -> None:
        """Raise for options out of range."""
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
                "deleted rows have null row ids; set with_row_id=True to include them"
            )
