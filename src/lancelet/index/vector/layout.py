"""Names and metadata keys of the two files of a vector index.

The files, with their metadata keys:

    index.idx           centroids; optional graphs
        lance:index         {"type":"IVF_PQ","distance_type":"l2"}
    auxiliary.idx       `_rowid` and codes: rows of partition 0, then 1, ...
        lance:ivf           number of the global buffer with the partition offsets
        storage_metadata    a JSON list with one JSON text that describes the codes
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from lancelet.buffers import Int64s
from lancelet.errors import CorruptDataError, UnsupportedError
from lancelet.format.protos import index_pb
from lancelet.format.wire import parse_message, parse_number
from lancelet.index.folder import StoredFile
from lancelet.index.kernels import Metric
from lancelet.index.parts.tensor import parse_tensor
from lancelet.index.vector.quantizers.base import Matrix
from lancelet.values import dataclass

INDEX_FILE: Final = "index.idx"
STORAGE_FILE: Final = "auxiliary.idx"
INDEX_KEY: Final = "lance:index"
IVF_KEY: Final = "lance:ivf"
FLAT_KEY: Final = "lance:flat"
GRAPH_KEY: Final = "lance:hnsw"
METRIC_KEY: Final = "distance_type"
STORAGE_KEY: Final = "storage_metadata"
NUM_SKIPPED_KEY: Final = "lancelet:left_out"
"""Metadata key of the number of rows without valid vectors. Other writers omit it."""
METRICS: Final = {
    "l2": Metric.L2,
    "euclidean": Metric.L2,
    "cosine": Metric.COSINE,
    "dot": Metric.DOT,
    "hamming": Metric.HAMMING,
}
METRIC_NAMES: Final = {
    Metric.L2: "l2",
    Metric.COSINE: "cosine",
    Metric.DOT: "dot",
    Metric.HAMMING: "hamming",
}


@dataclass(frozen=True, slots=True, eq=False)
class Partitions:
    """Start and length of each partition in a file, and the centroids if stored."""

    starts: Int64s
    lengths: Int64s
    centroids: Matrix | None
    loss: float | None


def read_partitions(file: StoredFile) -> Partitions:
    """Read the partitions of a file."""
    message = parse_message(index_pb.IVF, file.global_buffer(_entry(file, IVF_KEY)))
    starts = np.array(message.offsets, np.uint64)
    lengths = np.array(message.lengths, np.int64)
    ends = starts + lengths.astype(np.uint64)
    if len(starts) != len(lengths) or (len(ends) and (ends > file.num_rows).any()):
        raise CorruptDataError(
            "partitions of a vector index exceed its rows",
            partitions=len(lengths),
            rows=file.num_rows,
        )
    centroids = None
    if message.HasField("centroids_tensor"):
        centroids = parse_tensor(message.centroids_tensor)
    elif len(message.centroids) and len(lengths):
        centroids = np.array(message.centroids, np.float32).reshape(len(lengths), -1)
    loss = message.loss if message.HasField("loss") else None
    return Partitions(starts.astype(np.int64), lengths, centroids, loss)


def read_kind(file: StoredFile) -> tuple[str, Metric]:
    """Return the index kind and the metric of an index."""
    value = parse_json(file, INDEX_KEY)
    metric = METRICS.get(str(value.get("distance_type")).lower())
    if metric is None:
        raise UnsupportedError("unknown metric of a vector index", found=str(value)[:100])
    return str(value.get("type")), metric


def read_storage_metadata(file: StoredFile) -> Mapping[str, Any]:
    """Read the metadata of the codes."""
    try:
        (text,) = json.loads(_entry(file, STORAGE_KEY))
        metadata = json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise CorruptDataError("invalid metadata for the codes of a vector index") from error
    if not isinstance(metadata, dict):
        raise CorruptDataError("invalid metadata for the codes of a vector index")
    return metadata


def read_num_skipped(file: StoredFile) -> int | None:
    """Return the number of rows skipped in a segment, or None if it is not recorded."""
    return parse_number(file.metadata.get(NUM_SKIPPED_KEY))


def parse_json(file: StoredFile, key: str) -> Any:
    """Parse a metadata value as JSON."""
    try:
        return json.loads(_entry(file, key))
    except (ValueError, RecursionError) as error:
        raise CorruptDataError("invalid metadata in a vector index", key=key) from error


def _entry(file: StoredFile, key: str) -> str:
    value = file.metadata.get(key)
    if value is None:
        raise CorruptDataError("missing metadata in a vector index", key=key)
    return value
