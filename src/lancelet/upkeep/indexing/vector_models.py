"""Models of vector indices: train separately, encode rows, and inspect partitions.

The steps are:

    train_centroids    sample of v        16 centroids
    train_codebook     the same sample    codebook of 8 x 256 code words for the residuals
    encode_rows        rows               _rowid, __ivf_part_id, __pq_code
    write_encoded      encoded rows, in any order, become a segment
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
from lancelet.index.vector.kind import IVF, assign_partitions
from lancelet.index.vector.model import AssignedPartitions, IvfModel
from lancelet.index.vector.quantizers.pq import ProductCodes
from lancelet.index.vector.segment import IvfSegment
from lancelet.index.vector.train import IvfRequest, train_models
from lancelet.index.vector.vectors import matrix_of, values_of
from lancelet.index.vector.writer import group_by_partition, to_column, write_segment
from lancelet.scan.indexing.column_indices import vector_indices
from lancelet.scan.indexing.segments import TableSegment
from lancelet.table.snapshot import Snapshot
from lancelet.upkeep.indexing.build import describe_segment, new_folder
from lancelet.upkeep.indexing.rows import rows_to_index

ENCODED_NAMES: Final = ("_rowid", "__ivf_part_id", "__pq_code")
"""The columns of encoded rows."""


class NoSuchIndexError(ObjectNotFoundError, ValueError):
    """The vector index does not exist."""


def model_of_index(snapshot: Snapshot, name: str) -> IvfModel:
    """Return the IVF model of the first segment of an index."""
    return open_ivf_segments(snapshot, name)[0].model


def open_ivf_segments(
    snapshot: Snapshot, name: str, segment_ids: Container[str] | None = None
) -> list[IvfSegment]:
    """Return the open segments of a vector index, by default all."""
    return [opened for _, opened in open_segments(snapshot, name, segment_ids)]


def open_segments(
    snapshot: Snapshot, name: str, segment_ids: Container[str] | None = None
) -> list[tuple[TableSegment, IvfSegment]]:
    """Return the segments of a vector index with their open readers."""
    for indices in vector_indices(snapshot).values():
        for index in indices:
            if index.name == name:
                opened = (
                    (segment, segment.open())
                    for segment in index.segments
                    if segment_ids is None or str(segment.metadata.uuid) in segment_ids
                )
                return [(each, ivf) for each, ivf in opened if isinstance(ivf, IvfSegment)]
    raise NoSuchIndexError(f'Index "{name}" not found')


def partition_sizes(
    snapshot: Snapshot, name: str, segment_ids: Container[str] | None = None
) -> list[int]:
    """Return the number of rows in each partition, summed over all segments."""
    opened = open_ivf_segments(snapshot, name, segment_ids)
    sizes = [0] * max((segment.model.partitions for segment in opened), default=0)
    for segment in opened:
        for number, size in enumerate(segment.lengths.tolist()):
            sizes[number] += size
    return sizes


def find_index_name(snapshot: Snapshot, column: str) -> str | None:
    """Return the name of the first vector index on a column, or None."""
    path = tuple(field.name for field in snapshot.schema.fields_on_path(column))
    indices = vector_indices(snapshot)
    column_indices = indices.get(path, ())
    return column_indices[0].name if column_indices else None


def partition_table(segments: Sequence[IvfSegment], number: int, *, with_vector: bool) -> pa.Table:
    """Return the rows of a partition in all segments."""
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
            columns += [to_column(column, f.type) for column, f in zip(stored, fields, strict=True)]
        parts.append(pa.Table.from_arrays(columns, names))
    return pa.concat_tables(parts)


def read_vectors(snapshot: Snapshot, column: str, fragments: Sequence[int] | None) -> IndexedRows:
    """Return the vectors of fragments, by default of all, with their row numbers."""
    fields = snapshot.schema.fields_on_path(column)
    IVF.check_type(fields[-1].arrow_type, column)
    fragment_ids = snapshot.fragments.ids.tolist() if fragments is None else sorted(set(fragments))
    path = tuple(field.name for field in fields)
    by_address = not snapshot.manifest.uses_stable_row_ids
    return rows_to_index(snapshot, path, fragment_ids, by_address=by_address)


def train_centroids(rows: IndexedRows, request: IvfRequest) -> IvfModel:
    """Train the centroids of an index."""
    return train_models(rows, replace(request, name="IVF_FLAT"))[0]


def train_codebook(rows: IndexedRows, request: IvfRequest) -> ProductCodes:
    """Train the product quantization codebook for the residuals of rows."""
    _, quantizer = train_models(rows, replace(request, name="IVF_PQ"))
    if not isinstance(quantizer, ProductCodes):
        raise InvalidInputError("only product quantization has a codebook")
    return quantizer


def encode_rows(
    rows: IndexedRows,
    model: IvfModel,
    quantizer: ProductCodes,
    assigned: AssignedPartitions | None = None,
) -> Iterator[pa.Table]:
    """Yield the row numbers, partitions and codes of rows, batch by batch.

    With `assigned` partitions, none are computed, and rows without an assignment are omitted.
    """
    (code,) = quantizer.fields
    for values, numbers in rows.parts:
        vectors, row_numbers = matrix_of(values, numbers, model.metric)
        vectors, row_numbers, labels = assign_partitions(vectors, row_numbers, model, assigned)
        codes = quantizer.encode(vectors, labels, model.centroids)["code"]
        columns = [
            pa.array(row_numbers, pa.uint64()),
            pa.array(labels.astype(np.uint32)),
            to_column(codes, code.type),
        ]
        yield pa.Table.from_arrays(columns, ENCODED_NAMES)


def write_encoded(
    snapshot: Snapshot,
    column: str,
    name: str,
    model: IvfModel,
    quantizer: ProductCodes,
    rows: pa.Table,
) -> IndexMetadata:
    """Write encoded rows as an uncommitted segment."""
    leaf = snapshot.schema.field_by_path(column)
    segment_id = surroundings.new_uuid()
    folder = new_folder(snapshot, segment_id)
    ids, labels, codes = (rows.column(each).combine_chunks() for each in ENCODED_NAMES)
    matrix = values_of(codes).reshape(len(codes), codes.type.list_size)
    numbers, partitions = ids.to_numpy(), labels.to_numpy().astype(np.int64)
    parts = group_by_partition(numbers, {"code": matrix}, partitions, model.partitions)
    write_segment(folder, "IVF_PQ", model, quantizer, parts, None)
    request = IvfRequest("IVF_PQ", model.metric, partitions=model.partitions)
    return describe_segment(
        snapshot,
        IVF,
        folder,
        segment_id,
        name=name,
        leaf=leaf,
        details=request.details(quantizer).render(),
        covered=snapshot.fragments.ids.tolist(),
        version=1,
    )
