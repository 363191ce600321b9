"""The options of a scan.

ScanOptions(columns=("id", "s.x"), filter="id > 3", limit=10)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Protocol, TypeAlias
from uuid import UUID

import pyarrow as pa

from lancelet.arguments import OutOfRangeError
from lancelet.errors import InvalidInputError
from lancelet.expr.compile import ExpressionLike
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

    This is the only declaration of these options. `tools/generate_scan_methods.py` writes the
    public methods, with these types, defaults and texts.

    Attributes:
        columns: The columns, by default all; names, paths, or expressions by output name.
        filter: The condition that rows satisfy; SQL text or an Arrow expression.
        limit: The maximum number of rows; by default all.
        offset: The number of rows to skip.
        order_by: The sort columns, most significant first, as names or text like `price desc`.
        batch_size: The maximum number of rows per batch, by default chosen for speed.
        batch_bytes: The approximate maximum number of bytes per batch.
        is_strict: Whether all batches except the last must be full.
        with_row_id: Whether to return a column `_rowid`.
        with_row_address: Whether to return a column `_rowaddr`.
        fragments: The fragments to read, in this order; by default all.
        with_deleted: Whether to return deleted rows too, with a null row id.
        use_statistics: Whether to skip rows whose statistics exclude a match.
        use_indices: Whether to use scalar indices where they are cheaper than a scan.
        indexed_only: Whether to skip rows that the index in use does not cover.
        segments: The segments of a vector index to search, by default all.
        search: The search; rows are returned with scores, best first.
        prefilter: Whether to filter before the search instead of its results.
        rows: The rows that scans and searches are limited to, by row id.
        adds_scores: Whether to return scores that `columns` does not contain.
        memory_limit: The approximate memory limit in bytes, excluding the returned batches.
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
        _check_size("batch_size", self.batch_size)
        _check_size("batch_bytes", self.batch_bytes)
        _check_size("memory_limit", self.memory_limit)
        if self.with_deleted and not self.with_row_id:
            raise InvalidInputError(
                "deleted rows have null row ids; set with_row_id=True to include them"
            )


def _check_size(name: str, size: int | None) -> None:
    if size is not None and size < 1:
        kind = OutOfRangeError if size < 0 else InvalidInputError
        raise kind(f"{name} must be at least 1", found=size)
