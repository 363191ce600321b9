"""Models of vector indices on their own: trained for later, applied to rows, or looked up.

train_centroids    sample of v        16 centroids
train_words        the same sample    codebook of 8 x 256 words of what centroids leave
encoded_rows       rows               _rowid, __ivf_part_id, __pq_code
write_encoded      these, in any order, become a segment
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from lancelet import surroundings
from lancelet.errors import InvalidInputError, ObjectNotFoundError
from lancelet.format.index_metadata import IndexMetadata
from lancelet.index.base import IndexedRows
from lancelet.index.vector.kind import IVF, placed
from lancelet.index.vector.model import IvfModel, KnownPartitions
from lancelet.index.vector.quantizers.pq import ProductCodes
from lancelet.index.vector.segment import IvfSegment
from lancelet.index.vector.train import IvfRequest, train_models
from lancelet.index.vector.vectors import matrix_of, values_of
from lancelet.index.vector.writer import array_of, grouped, write_segment
from lancelet.ops.indexing.build import describe_segment, new_folder
from lancelet.ops.indexing.rows import rows_to_index
from lancelet.query.indexing.column_indices import vector_indices
from lancelet.query.indexing.segments import TableSegment
from lancelet.table.snapshot import Snapshot

ENCODED_NAMES: Final = ("_rowid", "__ivf_part_id", "__pq_code")
"""The columns of rows that were encoded."""


class NoSuchIndexError(ObjectNotFoundError, ValueError):
    """No vector index has that name."""


def model_of_index(snapshot: Snapshot, name: str) -> IvfModel:
    """Return the centroids of the first segment of an index."""
    return segments_of_index(snapshot, name)[0].model


def segments_of_index(
    snapshot: Snapshot, name: str, chosen: Container[str] | None = None
) -> list[IvfSegment]:
    """Return the open segments of a vector index, by default all."""
    return [opened for _, opened in opened_segments(snapshot, name, chosen)]


def opened_segments(
    snapshot: Snapshot, name: str, chosen: Container[str] | None = None
) -> list[tuple[TableSegment, IvfSegment]]:
    """Return the segments of a vector index in a table, each with what it opens to."""
    for indices in vector_indices(snapshot).values():
        for index in indices:
            if index.name == name:
                opened = (
                    (segment, segment.open())
                    for segment in index.segments
                    if chosen is None or str(segment.metadata.uuid) in chosen
                )
                return [(each, ivf) for each, ivf in opened if isinstance(ivf, IvfSegment)]
    raise NoSuchIndexError(f'Index "{name}" not found')


def partition_sizes(
    snapshot: Snapshot, name: str, chosen: Container[str] | None = None
) -> list[int]:
    """Return how many rows each partition of an index has in its segments."""
    opened = segments_of_index(snapshot, name, chosen)
    sizes = [0] * max((segment.model.partitions for segment in opened), default=0)
    for segment in opened:
        for number, size in enumerate(segment.lengths.tolist()):
            sizes[number] += size
    return sizes


def name_of_index_on(snapshot: Snapshot, column: str) -> str | None:
    """Return the name of the first vector index on a column, None if there is none."""
    path = tuple(field.name for field in snapshot.schema.fields_on_path(column))
    indices = vector_indices(snapshot)
    found = indices.get(path, ())
    return found[0].name if found else None


def partition_table(segments: Sequence[IvfSegment], number: int, *, with_vector: bool) -> pa.Table:
    """Return the rows of a partition in all segments that have one of its number."""
    parts = []
    for segment in segments:
        if number >= segment.model.partitions:
            continue
        numbers, codes = segment.codes(number)
        names, columns = ["_rowid"], [pa.array(numbers, pa.uint64())]
        if with_vector:
            quantizer = segment.quantizer
            if isinstance(quantizer, ProductCodes):
                quantizer = replace(quantizer, transposed=False)
            fields, stored = quantizer.fields, quantizer.store(codes)
            names += [field.name for field in fields]
            columns += [array_of(own, f.type) for own, f in zip(stored, fields, strict=True)]
        parts.append(pa.Table.from_arrays(columns, names))
    return pa.concat_tables(parts)


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
        raise InvalidInputError("only PQ has a codebook")
    return found


def encoded_rows(
    rows: IndexedRows, model: IvfModel, words: ProductCodes, known: KnownPartitions | None = None
) -> Iterator[pa.Table]:
    """Yield numbers, partitions and codes of rows, as many at a time as are read.

    With `known` partitions none are found, and rows that are not among them are left out.
    """
    (code,) = words.fields
    for values, numbers in rows.parts:
        vectors, kept = matrix_of(values, numbers, model.metric)
        vectors, kept, labels = placed(vectors, kept, model, known)
        codes = words.encode(vectors, labels, model.centroids)["code"]
        columns = [
            pa.array(kept, pa.uint64()),
            pa.array(labels.astype(np.uint32)),
            array_of(codes, code.type),
        ]
        yield pa.Table.from_arrays(columns, ENCODED_NAMES)


def write_encoded(
    snapshot: Snapshot, column: str, name: str, model: IvfModel, words: ProductCodes, rows: pa.Table
) -> IndexMetadata:
    """Write a segment of rows that were encoded before, which no version lists yet."""
    leaf = snapshot.schema.field_by_path(column)
    segment_id = surroundings.new_uuid()
    folder = new_folder(snapshot, segment_id)
    ids, labels, codes = (rows.column(each).combine_chunks() for each in ENCODED_NAMES)
    matrix = values_of(codes).reshape(len(codes), codes.type.list_size)
    numbers, where = ids.to_numpy(), labels.to_numpy().astype(np.int64)
    parts = grouped(numbers, {"code": matrix}, where, model.partitions)
    write_segment(folder, "IVF_PQ", model, words, parts, None)
    request = IvfRequest("IVF_PQ", model.metric, partitions=model.partitions)
    return describe_segment(
        snapshot,
        IVF,
        folder,
        segment_id,
        name=name,
        leaf=leaf,
        details=request.details(words).render(),
        covered=snapshot.fragments.ids.tolist(),
        version=1,
    )
