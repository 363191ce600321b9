"""The ways of keeping vectors, by the end of the names of the kinds that use them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import pyarrow as pa

from lancelet.errors import UnsupportedError
from lancelet.index.vector.quantizers.base import Quantizer, StorageNotes
from lancelet.index.vector.quantizers.flat import Flat
from lancelet.index.vector.quantizers.pq import ProductCodes
from lancelet.index.vector.quantizers.rq import RotatedCodes
from lancelet.index.vector.quantizers.sq import ScalarCodes
from lancelet.kernels import Metric

_PARSERS: Final[dict[str, Callable[[StorageNotes, Metric, Sequence[pa.Field]], Quantizer]]] = {
    "FLAT": Flat.parse,
    "PQ": ProductCodes.parse,
    "SQ": ScalarCodes.parse,
    "RQ": RotatedCodes.parse,
}
GRAPH: Final = "IVF_HNSW_"
"""How the names of kinds with graphs begin."""
KINDS: Final = (
    "IVF_FLAT",
    "IVF_PQ",
    "IVF_SQ",
    "IVF_RQ",
    "IVF_HNSW_FLAT",
    "IVF_HNSW_PQ",
    "IVF_HNSW_SQ",
)
"""The names of all kinds."""


def parse_quantizer(
    name: str, notes: StorageNotes, metric: Metric, columns: Sequence[pa.Field]
) -> Quantizer:
    """Return how a kind keeps vectors, by what its file says."""
    if name not in KINDS:
        raise UnsupportedError(
            "a vector index is of an unknown kind", found=name[:50], known=list(KINDS)
        )
    check_metric(name, metric)
    return _PARSERS[quantizer_name(name)](notes, metric, columns)


def check_metric(name: str, metric: Metric) -> None:
    """Raise unless a kind compares vectors by a metric: codes of bits have no other form."""
    if metric is Metric.HAMMING and quantizer_name(name) != "FLAT":
        raise UnsupportedError(
            "indices with the hamming metric store whole vectors; use IVF_FLAT or IVF_HNSW_FLAT",
            found=name,
        )


def quantizer_name(name: str) -> str:
    """Return the part of the name of a kind that says how vectors are kept.

    >>> quantizer_name("IVF_HNSW_SQ")
    'SQ'
    """
    return name.rsplit("_", 1)[-1]
