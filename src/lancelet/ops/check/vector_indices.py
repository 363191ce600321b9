"""Checking what vector indices say of rows: each row once, in codes of its own vector.

    table     rows 0 1 2, row 1 without a vector
    index     partition 0: row 2    partition 1: row 0      sound
    index     partition 0: row 2    partition 1: row 2      row 2 is there twice, row 0 is missing

Every partition and every graph is read. Codes are worked out anew from the vectors; as sums are
rounded differently elsewhere, a few that differ are no fault.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from lancelet.index.vector.kind import IVF, EncodedRows, concatenated_codes, encoded_parts
from lancelet.index.vector.quantizers.base import Codes
from lancelet.index.vector.quantizers.pq import ProductCodes
from lancelet.index.vector.segment import IvfSegment
from lancelet.ops.check.segments import SegmentChecker, covered_rows
from lancelet.query.indexing.segments import TableSegment
from lancelet.rowids.address import NO_ADDRESS, UInt64s
from lancelet.table.snapshot import Snapshot

_ROUNDED_SHARE: Final = 0.1
"""Up to this share of rows may have codes that are not quite those found anew."""


def _differences(snapshot: Snapshot, segment: TableSegment) -> Iterator[str]:
    opened = segment.open()
    assert isinstance(opened, IvfSegment), "only these are known"
    rows = covered_rows(snapshot, segment, by_address=not segment.is_by_id)
    expected = _joined(list(encoded_parts(rows, opened.model, opened.quantizer)))
    numbers, labels, codes = _listed(segment, opened)
    lacking = np.setdiff1d(expected.numbers, numbers)
    if len(lacking):
        yield f"it lacks {len(lacking)} rows that have a vector"
    live = np.concatenate([np.empty(0, np.uint64), *(part[1] for part in rows.parts)])
    strange = np.setdiff1d(np.intersect1d(numbers, live), expected.numbers)
    if len(strange):
        yield f"it has {len(strange)} rows that have no vector"
    if len(np.unique(expected.numbers)) < len(expected.numbers):
        return  # rows of several vectors are there several times
    once, own = np.unique(numbers, return_index=True)
    if len(once) < len(numbers):
        yield f"it has {len(numbers) - len(once)} rows more than once"
    shared, places, found = np.intersect1d(once, expected.numbers, return_indices=True)
    if not len(shared):
        return
    own = own[places]
    same = labels[own] == expected.labels[found]
    if (~same).sum() > _ROUNDED_SHARE * len(shared):
        yield f"{(~same).sum()} rows are not in the partition of their vector"
    slack = 0 if isinstance(opened.quantizer, ProductCodes) else 1
    wrong = _different(_rows_of(codes, own[same]), _rows_of(expected.codes, found[same]), slack)
    if wrong > _ROUNDED_SHARE * len(shared):
        yield f"{wrong} rows have codes that are not those of their vector"


VECTOR_INDICES: Final = SegmentChecker(frozenset({IVF.name}), _differences)


def _joined(parts: list[EncodedRows]) -> EncodedRows:
    return EncodedRows(
        np.concatenate([np.empty(0, np.uint64), *(part.numbers for part in parts)]),
        np.concatenate([np.empty(0, np.int64), *(part.labels for part in parts)]),
        concatenated_codes([part.codes for part in parts]),
    )


def _listed(
    segment: TableSegment, opened: IvfSegment
) -> tuple[UInt64s, npt.NDArray[np.int64], Codes]:
    """Return the rows of all partitions that still are, their partitions and their codes."""
    numbers: list[UInt64s] = [np.empty(0, np.uint64)]
    labels: list[npt.NDArray[np.int64]] = [np.empty(0, np.int64)]
    codes: list[Codes] = []
    for partition in range(opened.model.partitions):
        opened.graph(partition)
        listed, own = opened.codes(partition)
        moved = segment.renumber(listed, by_address=not segment.is_by_id)
        kept = np.flatnonzero(moved != NO_ADDRESS)
        numbers.append(moved[kept])
        labels.append(np.full(len(kept), partition))
        codes.append(_rows_of(own, kept))
    return np.concatenate(numbers), np.concatenate(labels), concatenated_codes(codes)


def _rows_of(codes: Codes, rows: npt.NDArray[np.integer]) -> Codes:
    return {key: each[rows] for key, each in codes.items()}


def _different(found: Codes, expected: Codes, slack: int) -> int:
    """Return how many rows differ: whole numbers by more than a slack, others by a thousandth."""
    differs = np.zeros(len(next(iter(found.values()), ())), np.bool_)
    for key, each in found.items():
        own, other = (each.reshape(len(each), -1), expected[key].reshape(len(each), -1))
        apart = np.abs(own.astype(np.float64) - other)
        allowed = slack if own.dtype.kind == "u" else 1e-3 * np.maximum(np.abs(other), 1)
        differs |= (apart > allowed).any(axis=1)
    return int(differs.sum())
