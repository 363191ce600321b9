"""Rows chosen at random, in batches, with few reads.

    1,000,000 rows, 20,000 wanted, 2,048 reads     9 rows from somewhere in each 488

Reading single rows costs as much as reading some that lie together, so where many are wanted a
few are taken from each of many places.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappush, heappushpop
from typing import TYPE_CHECKING, Generic, TypeVar

import pyarrow as pa

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
    """Yield `n` rows chosen at random, or all if there are no more.

    Args:
        dataset: A dataset, or where it is.
        n: How many rows.
        columns: What to read of them.
        batch_size: The most rows of a batch.
        max_takes: The maximum number of ranges to read.
        filt: Chooses only among the rows for which it is true.
    """
    source = open_dataset(dataset) if isinstance(dataset, str | os.PathLike) else dataset
    wanted = [columns] if isinstance(columns, str) else columns
    if filt is not None:
        total = source.count_rows(filter=filt)
        chosen = sorted(random.sample(range(total), min(n, total)))
        rows = _at(source.to_batches(columns=wanted, filter=filt), chosen)
    elif n >= len(source):
        rows = source.to_batches(columns=wanted, batch_size=batch_size)
    else:
        places = _places(len(source), n, max_takes)
        parts = (places[at : at + batch_size] for at in range(0, n, batch_size))
        rows = (batch for part in parts for batch in source.take(part, wanted).to_batches())
    yield from rebatch(rows, batch_size)


def _places(total: int, n: int, max_takes: int) -> list[int]:
    """Return `n` different places below `total`, in runs if there would be too many."""
    if n <= max_takes:
        return random.sample(range(total), n)
    found: list[int] = []
    for which in range(max_takes):
        first, stop = total * which // max_takes, total * (which + 1) // max_takes
        count = n * (which + 1) // max_takes - n * which // max_takes
        start = random.randint(first, stop - count)  # noqa: S311 - no secret
        found += range(start, start + count)
    return found


def _at(batches: Iterator[pa.RecordBatch], places: Sequence[int]) -> Iterator[pa.RecordBatch]:
    """Yield the rows at ascending places of a stream."""
    at = seen = 0
    for batch in batches:
        stop = at
        while stop < len(places) and places[stop] < seen + batch.num_rows:
            stop += 1
        if stop > at:
            chosen = pa.array([place - seen for place in places[at:stop]], pa.int64())
            yield take_from_batch(batch, chosen)
        at, seen = stop, seen + batch.num_rows
        if at == len(places):
            return


@dataclass(order=True)
class PrioritizedItem(Generic[T]):
    """Something with a rank by which it is ordered."""

    priority: float
    item: T = field(compare=False)


def reservoir_sampling(stream: Iterable[T], k: int) -> list[T]:
    """Return `k` items of a stream chosen at random, or all if there are no more."""
    kept: list[PrioritizedItem[T]] = []
    for item in stream:
        entry = PrioritizedItem(random.random(), item)  # noqa: S311 - no secret
        if len(kept) < k:
            heappush(kept, entry)
        elif k:
            heappushpop(kept, entry)
    return [entry.item for entry in kept]
