"""Comparisons of Arrow strings with constant bytes.

    strings   red  green  ""        contain "re"   1 1 0        compare "green"   2 1 0

Bytes are compared as unsigned numbers, which is the order of characters in UTF-8.
"""

from __future__ import annotations

import numpy as np

from lancelet.buffers import Bytes
from lancelet.kernels.faults import Fault, corrupt
from lancelet.kernels.offsets import Offsets


def contain_bytes(offsets: Offsets, data: Bytes, part: bytes) -> Bytes:
    """Return 1 for each string with an occurrence of the bytes, else 0."""
    texts = _texts(offsets, data, kernel="contain_bytes")
    return np.array([part in text for text in texts], np.uint8)


def compare_bytes(offsets: Offsets, data: Bytes, constant: bytes) -> Bytes:
    """Return 0 for each string before the constant, 1 for each equal one, 2 for each after it."""
    texts = _texts(offsets, data, kernel="compare_bytes")
    return np.array([1 + (text > constant) - (text < constant) for text in texts], np.uint8)


def _texts(offsets: Offsets, data: Bytes, *, kernel: str) -> list[bytes]:
    first, stop = offsets[:-1], offsets[1:]
    bad = (first < 0) | (first > stop) | (stop > data.nbytes)
    if bad.any():
        raise corrupt(Fault.BAD_OFFSETS, kernel=kernel, index=int(bad.argmax()))
    return [data[i:j].tobytes() for i, j in zip(first.tolist(), stop.tolist(), strict=True)]
