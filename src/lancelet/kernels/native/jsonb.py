"""JSON in binary form, by `native/src/baseline/jsonb.cpp`; `reference/jsonb.py` defines it."""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Bytes, Int64s
from lancelet.kernels import _native
from lancelet.kernels.arguments import as_bytes, as_int64s, check_documents
from lancelet.kernels.faults import checked
from lancelet.kernels.native.allocate import empty_bytes

Flags: TypeAlias = npt.NDArray[np.bool_]

_GROWTH: Final = 4
"""Maximum size of the binary form per text byte; `1.5,` has 4 bytes of text and 13 in binary."""
_DOCUMENT_BYTES: Final = 16


def encode_jsonb(offsets: Int64s, data: Bytes, is_valid: Flags) -> tuple[Int64s, Bytes]:
    """Return JSON texts in binary form, and their offsets."""
    check_documents(offsets, data, is_valid, kernel="encode_jsonb")
    text_bytes = int(offsets[-1] - offsets[0])
    out = empty_bytes(_GROWTH * text_bytes + _DOCUMENT_BYTES * len(is_valid))
    ends = np.empty(len(offsets), np.int64)
    status = _native.encode_jsonb(as_int64s(offsets), data, as_bytes(is_valid), ends, out)
    return ends, out[: checked(status, kernel="encode_jsonb")]


def decode_jsonb(offsets: Int64s, data: Bytes, is_valid: Flags) -> tuple[Int64s, Bytes]:
    """Return binary documents as JSON texts without spaces, and their offsets."""
    check_documents(offsets, data, is_valid, kernel="decode_jsonb")
    arguments = (as_int64s(offsets), data, as_bytes(is_valid))
    ends = np.empty(len(offsets), np.int64)
    size = checked(_native.decode_jsonb(*arguments, ends, empty_bytes(0)), kernel="decode_jsonb")
    out = empty_bytes(size)
    checked(_native.decode_jsonb(*arguments, ends, out), kernel="decode_jsonb")
    return ends, out
