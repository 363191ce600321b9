"""The two files of a vector index: what they are called, and what their metadata say.

index.idx        lance:index {"type":"IVF_PQ","distance_type":"l2"}    centroids; graphs, if any
auxiliary.idx    rows of partition 0, then 1, ...                      `_rowid` and codes
    lance:ivf    number of the buffer that says where each partition begins
    storage_metadata    a JSON list of one JSON text, what the codes need to be understood
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
from lancelet.index.parts.tensor import parse_tensor
from lancelet.index.vector.quantizers.base import Matrix
from lancelet.kernels import Metric
from lancelet.values import dataclass

INDEX_FILE: Final = "index.idx"
STORAGE_FILE: Final = "auxiliary.idx"
INDEX_KEY: Final = "lance:index"
IVF_KEY: Final = "lance:ivf"
FLAT_KEY: Final = "lance:flat"
GRAPH_KEY: Final = "lance:hnsw"
METRIC_KEY: Final = "distance_type"
STORAGE_KEY: Final = "storage_metadata"
LEFT_OUT_KEY: Final = "lancelet:left_out"
"""How many rows had no vector that can be compared; other writers do not say."""
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
    """Where each partition begins in a file and how many rows it has; centroids if it has them."""

    starts: Int64s
    lengths: Int64s
    centroids: Matrix | None
    loss: float | None


def read_partitions(file: StoredFile) -> Partitions:
    """Return what a file says of its partitions."""
    message = parse_message(index_pb.IVF, file.global_buffer(_entry(file, IVF_KEY)))
    starts = np.array(message.offsets, np.uint64)
    lengths = np.array(message.lengths, np.int64)
    ends = starts + lengths.astype(np.uint64)
    if len(starts) != len(lengths) or (len(ends) and (ends > file.num_rows).any()):
        raise CorruptDataError(
            "the partitions of an index reach beyond its rows",
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
    """Return the name of the kind and the metric of an index."""
    found = parse_json(file, INDEX_KEY)
    metric = METRICS.get(str(found.get("distance_type")).lower())
    if metric is None:
        raise UnsupportedError("the metric of an index is unknown", found=str(found)[:100])
    return str(found.get("type")), metric


def read_notes(file: StoredFile) -> Mapping[str, Any]:
    """Return what a file says of its codes."""
    try:
        (text,) = json.loads(_entry(file, STORAGE_KEY))
        found = json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise CorruptDataError("the notes on the codes of an index are malformed") from error
    if not isinstance(found, dict):
        raise CorruptDataError("the notes on the codes of an index are malformed")
    return found


def read_left_out(file: StoredFile) -> int | None:
    """Return how many rows were left out of a segment, None if that is not known."""
    return parse_number(file.metadata.get(LEFT_OUT_KEY))


def parse_json(file: StoredFile, key: str) -> Any:
    """Return what stands under a key of the metadata, as JSON."""
    try:
        return json.loads(_entry(file, key))
    except (ValueError, RecursionError) as error:
        raise CorruptDataError("the metadata of an index are malformed", key=key) from error


def _entry(file: StoredFile, key: str) -> str:
    found = file.metadata.get(key)
    if found is None:
        raise CorruptDataError("the metadata of an index lack an entry", key=key)
    return found
