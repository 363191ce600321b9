"""Splitting a stream of batches into batches of a fixed size.

    in      5 rows, 5 rows, 2 rows
    size 4  4 rows, 1+3 rows, 2+2 rows

Rows are copied only if an output batch combines several input batches. A byte limit ends batches
of large rows early, which bounds the buffered memory to the limit and one input batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa


def rebatch(
    batches: Iterable[pa.RecordBatch], size: int, *, bytes_max: int | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows as batches of `size` rows; the last batch may be shorter.

    With `bytes_max`, a batch also ends when it reaches this number of bytes.

    >>> batch = pa.record_batch({"x": [1, 2, 3]})
    >>> [part.num_rows for part in rebatch([batch, batch], 4)]
    [4, 2]
    """
    buffered: list[pa.RecordBatch] = []
    buffered_rows = buffered_bytes = 0
    for batch in batches:
        start = 0
        while buffered_rows + batch.num_rows - start >= size:
            stop = start + size - buffered_rows
            buffered.append(batch.slice(start, stop - start))
            yield _joined(buffered)
            buffered, buffered_rows, buffered_bytes, start = [], 0, 0, stop
        if start < batch.num_rows:
            buffered.append(batch.slice(start))
            buffered_rows += batch.num_rows - start
            if bytes_max is not None:
                buffered_bytes += buffered[-1].nbytes
                if buffered_bytes >= bytes_max:
                    yield _joined(buffered)
                    buffered, buffered_rows, buffered_bytes = [], 0, 0
    if buffered:
        yield _joined(buffered)


def _joined(parts: list[pa.RecordBatch]) -> pa.RecordBatch:
    return parts[0] if len(parts) == 1 else pa.concat_batches(parts)
