"""Top-k search in partitions by `native/index/partitions.cpp`; see the reference."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Int64s
from lancelet.index.kernels.partitions import CodeQuery, PackedCodes, Probes, RowMasks
from lancelet.index.kernels.vectors import Floats
from lancelet.kernels import _native
from lancelet.kernels.arguments import as_bytes, as_int64s
from lancelet.kernels.faults import checked


def scan_partitions(
    code_query: CodeQuery,
    codes: PackedCodes,
    probes: Probes,
    addresses: npt.NDArray[np.uint64],
    allowed: npt.NDArray[np.bool_],
    count: int,
    bounds: tuple[float, float] = (-np.inf, np.inf),
) -> tuple[npt.NDArray[np.uint64], Floats]:
    """Return the addresses and scores of the `count` nearest allowed rows, nearest first."""
    found = np.empty(count, np.uint64)
    scores = np.empty(count, np.float32)
    size = _native.scan_partitions(
        (
            int(code_query.kind),
            codes.values.view(np.uint8),
            codes.row_bytes,
            codes.add,
            codes.scale,
            codes.numbers,
        ),
        (
            as_bytes(code_query.query),
            code_query.codebook,
            code_query.num_sub_vectors,
            int(code_query.metric),
            codes.values.itemsize,
            code_query.dimension,
            np.array([*bounds, code_query.factor, code_query.base], np.float32),
        ),
        (probes.centers, probes.bases, as_int64s(probes.starts), as_int64s(probes.lengths)),
        addresses,
        allowed.view(np.uint8),
        found,
        scores,
    )
    checked(size, kernel="scan_partitions")
    return found[:size], scores[:size]


def prefilter_rows(
    addresses: npt.NDArray[np.uint64],
    starts: Int64s,
    lengths: Int64s,
    masks: RowMasks,
    allowed: npt.NDArray[np.bool_],
) -> None:
    """Set `allowed` for the rows of partitions by the masks of their fragments."""
    checked(
        _native.prefilter_rows(
            addresses,
            as_int64s(starts),
            as_int64s(lengths),
            masks.fragments,
            masks.starts,
            masks.mask.view(np.uint8),
            allowed.view(np.uint8),
        ),
        kernel="prefilter_rows",
    )
