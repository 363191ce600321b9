"""Random sampling of rows in batches with few reads.

    1,000,000 rows, sample 20,000, 2,048 reads     9 consecutive rows in each range of 488

A read of several adjacent rows takes the same time as a read of one row, so large samples consist
of short runs of rows from many ranges.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappush, heappushpop
from typing import TYPE_CHECKING, Generic, TypeVar

import pyarrow as pa

from lancelet import surroundings
from lancelet.dataset.write.write import dataset as open_dataset
from lancelet.encodings.take import take_from_batch
from lancelet.file.batches import rebatch

if TYPE_CHECKING:
    from lancelet.dataset.dataset import LanceDataset

T = TypeVar("T")


def maybe_sample(
    dataset: str | os.PathLike[str] | LanceDataset,
    n: int,
    columns: Sequence[str] | Mapping[str, str] | str,
    batch_size: int = 10240,
    max_takes: int = 2048,
    filt: str | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield `n` random rows, or all rows if the table has fewer.

    Args:
        dataset: A dataset or its URI.
        n: The number of rows.
        columns: The columns to read.
        batch_size: The maximum number of rows per batch.
        max_takes: The maximum number of ranges to read.
        filt: Sample only rows that match this filter.
    """
    source = open_dataset(dataset) if isinstance(dataset, str | os.PathLike) else dataset
    selected = [columns] if isinstance(columns, str) else columns
    if filt is not None:
        total = source.count_rows(filter=filt)
        chosen = sorted(surroundings.sample(range(total), min(n, total)))
        rows = _at(source.to_batches(columns=selected, filter=filt), chosen)
    elif n >= len(source):
        rows = source.to_batches(columns=selected, batch_size=batch_size)
    else:
        indices = _sample_indices(len(source), n, max_takes)
        parts = (indices[at : at + batch_size] for at in range(0, n, batch_size))
        rows = (batch for part in parts for batch in source.take(part, selected).to_batches())
    yield from rebatch(rows, batch_size)


def _sample_indices(total: int, n: int, max_takes: int) -> list[int]:
    """Return `n` distinct row indices below `total`; large samples consist of runs."""
    if n <= max_takes:
        return surroundings.sample(range(total), n)
    found: list[int] = []
    for number in range(max_takes):
        first, stop = total * number // max_takes, total * (number + 1) // max_takes
        count = n * (number + 1) // max_takes - n * number // max_takes
        start = surroundings.sample(range(first, stop - count + 1), 1)[0]
        found += range(start, start + count)
    return found


def _at(batches: Iterator[pa.RecordBatch], indices: Sequence[int]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a stream at ascending indices."""
    at = seen = 0
    for batch in batches:
        stop = at
        while stop < len(indices) and indices[stop] < seen + batch.num_rows:
            stop += 1
        if stop > at:
            chosen = pa.array([index - seen for index in indices[at:stop]], pa.int64())
            yield take_from_batch(batch, chosen)
        at, seen = stop, seen + batch.num_rows
        if at == len(indices):
            return


@dataclass(order=True)
class PrioritizedItem(Generic[T]):
    """An item with a sort key."""

    priority: float
    item: T = field(compare=False)


def reservoir_sampling(stream: Iterable[T], k: int) -> list[T]:
    """Return `k` random items of a stream, or all items if the stream has fewer."""
    reservoir: list[PrioritizedItem[T]] = []
    for item in stream:
        entry = PrioritizedItem(surroundings.uniform(0, 1), item)
        if len(reservoir) < k:
            heappush(reservoir, entry)
        elif k:
            heappushpop(reservoir, entry)
    return [entry.item for entry in reservoir]
