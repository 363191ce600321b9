"""Quantizers by the suffix of the index kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import pyarrow as pa

from lancelet.errors import UnsupportedError
from lancelet.index.kernels import Metric
from lancelet.index.vector.quantizers.base import Quantizer, StorageMetadata
from lancelet.index.vector.quantizers.flat import Flat
from lancelet.index.vector.quantizers.pq import ProductCodes
from lancelet.index.vector.quantizers.rq import RotatedCodes
from lancelet.index.vector.quantizers.sq import ScalarCodes

_PARSERS: Final[dict[str, Callable[[StorageMetadata, Metric, Sequence[pa.Field]], Quantizer]]] = {
    "FLAT": Flat.parse,
    "PQ": ProductCodes.parse,
    "SQ": ScalarCodes.parse,
    "RQ": RotatedCodes.parse,
}
GRAPH: Final = "IVF_HNSW_"
"""Prefix of index kinds with graphs."""
KINDS: Final = (
    "IVF_FLAT",
    "IVF_PQ",
    "IVF_SQ",
    "IVF_RQ",
    "IVF_HNSW_FLAT",
    "IVF_HNSW_PQ",
    "IVF_HNSW_SQ",
)
"""All vector index kinds."""


def parse_quantizer(
    name: str, metadata: StorageMetadata, metric: Metric, columns: Sequence[pa.Field]
) -> Quantizer:
    """Create the quantizer of an index kind from its storage metadata."""
    if name not in KINDS:
        raise UnsupportedError("unknown vector index type", found=name[:50], expected=list(KINDS))
    check_metric(name, metric)
    return _PARSERS[quantizer_name(name)](metadata, metric, columns)


def check_metric(name: str, metric: Metric) -> None:
    """Raise if a kind does not support a metric. Bit vectors cannot be quantized."""
    if metric is Metric.HAMMING and quantizer_name(name) != "FLAT":
        raise UnsupportedError(
            "indices with the hamming metric store whole vectors; use IVF_FLAT or IVF_HNSW_FLAT",
            found=name,
        )


def quantizer_name(name: str) -> str:
    """Return the quantizer name in an index kind.

    >>> quantizer_name("IVF_HNSW_SQ")
    'SQ'
    """
    return name.rsplit("_", 1)[-1]
