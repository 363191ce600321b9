"""Exact search: stream all rows, compute distances and retain the k smallest.

  split     rows 0..65536 of fragment 3     vectors, zero-copy if stored uncompressed
  filter    offsets that passed             distances of these rows only
  merge     k smallest of each query        candidates of the next merge

Rows with a null vector or with NaN elements have no distance and are never returned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.encodings.base import RowRange
from lancelet.file.pool import map_ordered
from lancelet.format.field import Field
from lancelet.index.kernels import Metric, nearest_vectors, vector_distances
from lancelet.index.vector.vectors import plain_vectors, values_of
from lancelet.rowids.address import addresses_of
from lancelet.scan.nodes.source import FragmentSource, dense_enough, sources, waits_for_storage
from lancelet.scan.projection import Projection
from lancelet.search.hits import Hits, smallest
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

_SPLIT_BYTES: Final = 16 * 1024 * 1024
_MERGE_FROM: Final = 64


@dataclass(frozen=True, slots=True, eq=False)
class ExactQuery:
    """An exact search; each query is one vector, or several for lists of vectors.

    The first column of the projection contains the compared vectors.
    """

    projection: Projection
    queries: Sequence[npt.NDArray[Any]]
    metric: Metric
    count: int
    lower: float | None = None
    upper: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Split:
    source: FragmentSource
    rows: RowRange
    offsets: Int64s | None


def exact_search(
    snapshot: Snapshot,
    query: ExactQuery,
    fragments: Sequence[int] | None,
    rows: Mapping[int, Int64s] | None,
) -> Hits:
    """Return the nearest rows of fragments, limited to `rows` (offsets by fragment) if given."""
    best: list[Hits] = []
    task = partial(_search_split, query)
    splits = _splits(snapshot, query.projection.fields, fragments, rows)
    for found in map_ordered(task, splits, waits=waits_for_storage(snapshot)):
        best.append(found)
        if len(best) >= _MERGE_FROM:
            best = [Hits.join(best).top_k(query.count)]
    return best[0] if len(best) == 1 else Hits.join(best).top_k(query.count)


def _splits(
    snapshot: Snapshot,
    fields: Sequence[Field],
    fragments: Sequence[int] | None,
    rows: Mapping[int, Int64s] | None,
) -> Iterator[_Split]:
    for source in sources(snapshot, fragments):
        size = max(source.reader.row_bytes(fields), 1.0)
        step = max(1024, int(_SPLIT_BYTES / size))
        if rows is None:
            for start in range(0, source.num_rows, step):
                part = RowRange(start, min(start + step, source.num_rows))
                yield _Split(source, part, source.visible(part))
            continue
        offsets = rows.get(int(source.fragment.id))
        if offsets is None:
            continue
        for start in range(0, len(offsets), step):
            chosen = offsets[start : start + step]
            yield _Split(source, RowRange(int(chosen[0]), int(chosen[-1]) + 1), chosen)


def _search_split(query: ExactQuery, split: _Split) -> Hits:
    found: list[Hits] = []
    for vectors, offsets, admitted in _read_vectors(query.projection, split):
        for index, vector in enumerate(query.queries):
            indices, scores = _nearest_rows(vectors, vector, query, admitted)
            chosen = offsets + indices if isinstance(offsets, int) else offsets[indices]
            addresses = addresses_of(split.source.fragment.id, chosen)
            found.append(Hits.of_query(addresses, scores, index))
    return found[0] if len(found) == 1 else Hits.join(found).top_k(query.count)


def _read_vectors(
    projection: Projection, split: _Split
) -> Iterator[tuple[pa.Array, Int64s | int, npt.NDArray[np.bool_] | None]]:
    """Yield vectors, their offsets (an integer for a contiguous range), and a row mask or None.

    If most rows are selected, a mask replaces the selection, which would copy all vectors.
    """
    source, rows, offsets = split.source, split.rows, split.offsets
    if offsets is not None and not dense_enough(projection.fields, len(offsets), len(rows)):
        (array,) = source.read(projection.fields, rows, offsets)
        yield _column(projection, array), offsets, None
        return
    admitted = None
    if offsets is not None:
        admitted = np.zeros(len(rows), np.bool_)
        admitted[offsets - rows.start] = True
    first = 0
    (column,) = source.reader.read_chunks(projection.fields, rows)
    for chunk in column.chunks:
        own = None if admitted is None else admitted[first : first + len(chunk)]
        yield _column(projection, chunk), rows.start + first, own
        first += len(chunk)


def _column(projection: Projection, array: pa.Array) -> pa.Array:
    """Return the vectors of a column that was read, extracted from structs if nested."""
    if not pa.types.is_struct(array.type):
        return array
    names = [field.name for field in projection.fields]
    return projection.compute(pa.RecordBatch.from_arrays([array], names)).column(0)


def _nearest_rows(
    vectors: pa.Array,
    vector: npt.NDArray[Any],
    query: ExactQuery,
    admitted: npt.NDArray[np.bool_] | None,
) -> tuple[Int64s, npt.NDArray[np.float32]]:
    """Return the row indices and distances of the nearest vectors, nearest first."""
    vectors = plain_vectors(vectors)
    bounds = (
        -np.inf if query.lower is None else query.lower,
        np.inf if query.upper is None else query.upper,
    )
    if pa.types.is_fixed_size_list(vectors.type):
        bits, first = _valid_bits(vectors, admitted)
        dimension = vectors.type.list_size
        return nearest_vectors(
            values_of(vectors),
            dimension,
            vector.reshape(-1),
            query.metric,
            query.count,
            bits,
            first,
            bounds,
        )
    scores = distances_to(vectors, vector, query.metric)
    outside = (scores < bounds[0]) | ((scores >= bounds[1]) & (bounds[1] < np.inf))
    scores[outside if admitted is None else outside | ~admitted] = np.nan
    indices = smallest(scores, query.count)
    indices = indices[np.argsort(scores[indices], kind="stable")[: query.count]]
    return indices, scores[indices]


def _valid_bits(
    vectors: pa.Array, admitted: npt.NDArray[np.bool_] | None
) -> tuple[npt.NDArray[np.uint8] | None, int]:
    """Return the bitmap of searchable vectors and the bit offset of the first."""
    if admitted is not None:
        if vectors.null_count:
            admitted = admitted & vectors.is_valid().to_numpy(zero_copy_only=False)
        return np.packbits(admitted, bitorder="little"), 0
    if not vectors.null_count:
        return None, 0
    return np.frombuffer(vectors.buffers()[0], np.uint8), vectors.offset


def distances_to(
    vectors: pa.Array, query: npt.NDArray[Any], metric: Metric
) -> npt.NDArray[np.float32]:
    """Return the distance of each row from a query, NaN for rows without one.

    The distance of a list of vectors is the sum, over the query vectors, of the distance to the
    nearest vector of the list.
    """
    vectors = plain_vectors(vectors)
    if pa.types.is_fixed_size_list(vectors.type):
        scores = _distances_of(vectors, query.reshape(-1), metric)
    else:
        scores = _distances_of_lists(vectors, query, metric)
    if vectors.null_count:
        scores[vectors.is_null().to_numpy(zero_copy_only=False)] = np.nan
    return scores


def _distances_of(
    vectors: pa.Array, query: npt.NDArray[Any], metric: Metric
) -> npt.NDArray[np.float32]:
    return vector_distances(values_of(vectors), vectors.type.list_size, query, metric)


def _distances_of_lists(
    lists: pa.Array, query: npt.NDArray[Any], metric: Metric
) -> npt.NDArray[np.float32]:
    starts = lists.offsets.to_numpy()
    first, last = int(starts[0]), int(starts[-1])
    vectors = lists.values.slice(first, last - first)
    lengths = np.diff(starts)
    filled = np.flatnonzero(lengths > 0)
    scores = np.full(len(lists), np.nan, np.float32)
    if not len(filled):
        return scores
    total = np.zeros(len(filled), np.float32)
    for one in query.reshape(-1, vectors.type.list_size):
        distances = _distances_of(vectors, one, metric)
        distances[np.isnan(distances)] = np.inf
        total += np.minimum.reduceat(distances, starts[:-1][filled] - first)
    scores[filled] = np.where(np.isinf(total), np.nan, total)
    return scores
