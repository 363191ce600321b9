"""Writer of the two files of a segment.

    part 0 rows 5 9    part 1 rows 2 7 8      auxiliary.idx   5 9 2 7 8 with codes
    part 0 [0:2]       part 1 [2:5]           both files      partition offsets

Rows of a partition are sorted by row number.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.file.v2.writer import FileWriter
from lancelet.format.protos import index_pb
from lancelet.format.wire import render_message
from lancelet.index.folder import SegmentFolder
from lancelet.index.parts.tensor import render_tensor
from lancelet.index.vector import layout
from lancelet.index.vector.graph import GraphSettings, GraphWriter
from lancelet.index.vector.legacy_file import Origin, write_legacy_file
from lancelet.index.vector.model import IvfModel
from lancelet.index.vector.quantizers.base import Codes, Quantizer
from lancelet.index.vector.spool import concatenate
from lancelet.rowids.address import UInt64s

_GROUP_BYTES: Final = 8 << 20
_ROW_ID: Final = pa.field("_rowid", pa.uint64())
_MARKER: Final = pa.schema([pa.field("__flat_marker", pa.uint64(), nullable=False)])


def write_segment(
    folder: SegmentFolder,
    name: str,
    model: IvfModel,
    quantizer: Quantizer,
    parts: Iterable[tuple[UInt64s, Codes]],
    settings: GraphSettings | None,
    num_skipped: int | None = None,
    origin: Origin | None = None,
) -> None:
    """Write a segment from the row numbers and codes of each partition.

    `num_skipped` is recorded if not None. Both files are written in parallel, one partition at a
    time. With an `origin`, the segment is written in the legacy layout.
    """
    if origin is not None:
        write_legacy_file(folder, model, quantizer, parts, origin)
        return
    graphs = None if settings is None else GraphWriter(settings, quantizer)
    schema = _MARKER if graphs is None else graphs.schema
    lengths: list[int] = []
    with folder.create(layout.INDEX_FILE, schema) as index:

        def track_parts(parts: Iterable[tuple[UInt64s, Codes]]) -> Iterator[tuple[UInt64s, Codes]]:
            for numbers, codes in parts:
                lengths.append(len(numbers))
                if graphs is not None:
                    index.write(graphs.add(codes, len(numbers)))
                yield numbers, codes

        _write_storage(folder, model, quantizer, track_parts(parts), lengths, num_skipped)
        _finish_index(index, name, model, graphs, len(lengths))


def group_by_partition(
    numbers: UInt64s, codes: Codes, labels: Int64s, count: int
) -> Iterator[tuple[UInt64s, Codes]]:
    """Yield the rows of each of `count` partitions, sorted by row number."""
    order = np.lexsort((numbers, labels))
    bounds = np.searchsorted(labels[order], np.arange(count + 1))
    for first, stop in itertools.pairwise(bounds):
        indices = order[first:stop]
        yield numbers[indices], {key: values[indices] for key, values in codes.items()}


def _write_storage(
    folder: SegmentFolder,
    model: IvfModel,
    quantizer: Quantizer,
    parts: Iterable[tuple[UInt64s, Codes]],
    lengths: list[int],
    num_skipped: int | None = None,
) -> None:
    schema = pa.schema([_ROW_ID, *quantizer.fields])
    with folder.create(layout.STORAGE_FILE, schema) as file:
        group: list[list[npt.NDArray[Any]]] = []
        pending_bytes = 0
        for numbers, codes in parts:
            columns = [numbers, *quantizer.store(codes)]
            group.append(columns)
            pending_bytes += sum(column.nbytes for column in columns)
            if pending_bytes >= _GROUP_BYTES:
                _write_group(file, schema, group)
                group, pending_bytes = [], 0
        _write_group(file, schema, group)
        partitions = _partitions(lengths)
        file.add_schema_metadata(layout.IVF_KEY, str(file.add_global_buffer(partitions)))
        metadata = quantizer.storage_metadata(file.add_global_buffer)
        file.add_schema_metadata(layout.METRIC_KEY, layout.METRIC_NAMES[model.metric])
        file.add_schema_metadata(layout.STORAGE_KEY, _text([_text(metadata)]))
        if num_skipped is not None:
            file.add_schema_metadata(layout.NUM_SKIPPED_KEY, str(num_skipped))


def _write_group(
    file: FileWriter, schema: pa.Schema, group: Sequence[Sequence[npt.NDArray[Any]]]
) -> None:
    if not group:
        return
    columns = [
        to_column(concatenate(parts), field.type)
        for field, parts in zip(schema, zip(*group, strict=True), strict=True)
    ]
    file.write(pa.Table.from_arrays(columns, schema=schema))


def _finish_index(
    file: FileWriter, name: str, model: IvfModel, graphs: GraphWriter | None, count: int
) -> None:
    if graphs is None:
        file.write(_MARKER.empty_table())
    lengths = [0] * count if graphs is None else graphs.lengths
    partitions = _partitions(lengths, model)
    file.add_schema_metadata(layout.IVF_KEY, str(file.add_global_buffer(partitions)))
    kind = {"type": name, "distance_type": layout.METRIC_NAMES[model.metric]}
    file.add_schema_metadata(layout.INDEX_KEY, _text(kind))
    if graphs is None:
        file.add_schema_metadata(layout.FLAT_KEY, _text([""] * count))
    else:
        file.add_schema_metadata(layout.GRAPH_KEY, _text(graphs.metadata))


def _partitions(lengths: Sequence[int], model: IvfModel | None = None) -> bytes:
    """Encode the partition lengths, and the centroids if a model is given."""
    starts = np.cumsum([0, *lengths])[:-1]
    message = index_pb.IVF(offsets=starts.tolist(), lengths=lengths)
    if model is not None:
        message.centroids_tensor.CopyFrom(render_tensor(model.centroids))
        if model.loss is not None:
            message.loss = model.loss
    return render_message(message)


def to_column(values: npt.NDArray[Any], data_type: pa.DataType) -> pa.Array:
    """Convert a matrix to a column; rows become lists if the column has a list type."""
    if not pa.types.is_fixed_size_list(data_type):
        return pa.array(values.reshape(-1), data_type)
    elements = pa.array(np.ascontiguousarray(values).reshape(-1), data_type.value_type)
    return pa.FixedSizeListArray.from_arrays(elements, type=data_type)


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
