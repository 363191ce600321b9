"""Models of indices of vectors on their own: trained for later, applied to rows, or looked up.

train_centroids    sample of v        16 centroids
train_words        the same sample    codebook of 8 x 256 words of what centroids leave
encoded_rows       rows               _rowid, __ivf_part_id, __pq_code
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from lancelet.buffers import Int64s
from lancelet.errors import InvalidInputError, ObjectNotFoundError
from lancelet.index.base import IndexedRows
from lancelet.index.vector.kind import IVF
from lancelet.index.vector.model import IvfModel
from lancelet.index.vector.quantizers.base import Codes
from lancelet.index.vector.quantizers.pq import ProductCodes
from lancelet.index.vector.segment import IvfSegment
from lancelet.index.vector.train import IvfRequest, train_models
from lancelet.index.vector.vectors import matrix_of
from lancelet.ops.indexing.rows import rows_to_index
from lancelet.query.indexing.segments import vector_indices
from lancelet.rowids.address import UInt64s
from lancelet.table.snapshot import Snapshot


class NoSuchIndexError(ObjectNotFoundError, ValueError):
    """No index of vectors has that name."""


def model_of_index(snapshot: Snapshot, name: str) -> IvfModel:
    """Return the centroids of the first segment of an index."""
    return segments_of_index(snapshot, name)[0].model


def segments_of_index(snapshot: Snapshot, name: str) -> list[IvfSegment]:
    """Return the open segments of an index of vectors."""
    for indices in vector_indices(snapshot).values():
        for index in indices:
            if index.name == name:
                opened = [segment.open() for segment in index.segments]
                return [segment for segment in opened if isinstance(segment, IvfSegment)]
    raise NoSuchIndexError(f'Index "{name}" not found')


def name_of_index_on(snapshot: Snapshot, column: str) -> str | None:
    """Return the name of the first index of vectors on a column, None if there is none."""
    path = tuple(field.name for field in snapshot.schema.fields_on_path(column))
    indices = vector_indices(snapshot)
    found = indices.get(path, ())
    return found[0].name if found else None


def vectors_of(snapshot: Snapshot, column: str, fragments: Sequence[int] | None) -> IndexedRows:
    """Return the vectors of fragments, by default of all, with what numbers they have."""
    fields = snapshot.schema.fields_on_path(column)
    IVF.check_type(fields[-1].arrow_type, column)
    known = snapshot.fragments.ids.tolist() if fragments is None else sorted(set(fragments))
    path = tuple(field.name for field in fields)
    by_address = not snapshot.manifest.uses_stable_row_ids
    return rows_to_index(snapshot, path, known, by_address=by_address)


def train_centroids(rows: IndexedRows, request: IvfRequest) -> IvfModel:
    """Find centroids of rows."""
    return train_models(rows, replace(request, name="IVF_FLAT"))[0]


def train_words(rows: IndexedRows, request: IvfRequest) -> ProductCodes:
    """Find the codebook of what the centroids of a request leave of rows."""
    _, found = train_models(rows, replace(request, name="IVF_PQ"))
    if not isinstance(found, ProductCodes):
        raise InvalidInputError("only PQ has words")
    return found


def encoded_rows(
    rows: IndexedRows, model: IvfModel, words: ProductCodes
) -> Iterator[tuple[UInt64s, Int64s, Codes]]:
    """Yield numbers, partitions and codes of rows, as many at a time as are read."""
    for values, numbers in rows.parts:
        vectors, kept = matrix_of(values, numbers, model.metric)
        labels = model.assign(vectors)
        yield kept, labels, words.encode(vectors, labels, model.centroids)


def joined_codes(parts: Sequence[Codes]) -> Codes:
    """Return codes of several parts as one."""
    return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
