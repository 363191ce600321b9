"""Positions as version 1 stores them: for each document of a token a list of byte strings.

    u32 how many, then a sorted block for every 128 of them, then the others as plain u32

Later versions have one stream for a token, see `kernels/reference/postings.py`.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.buffers import Int64s, Slices
from lancelet.errors import CorruptDataError
from lancelet.kernels import decode_streams, encode_streams

UInt32s = npt.NDArray[np.uint32]
_RUN: Final = 128


def render_positions(positions: UInt32s, freqs: UInt32s, counts: Int64s) -> pa.Array:
    """Return the positions of the documents of all tokens, as lists of lists of byte strings."""
    ends = np.cumsum(freqs, dtype=np.int64)
    documents = [
        _render(positions[end - count : end])
        for end, count in zip(ends.tolist(), freqs.tolist(), strict=True)
    ]
    inner = pa.array(documents, pa.list_(pa.large_binary()))
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), inner)


def parse_positions(documents: pa.Array, freqs: UInt32s) -> UInt32s:
    """Return the positions of documents, each as often as its frequency says."""
    found = [np.empty(0, np.uint32)]
    for pieces, count in zip(documents.to_pylist(), freqs.tolist(), strict=True):
        own = _parse(pieces or [])
        if len(own) != count:
            raise CorruptDataError(
                "a document has not as many positions as tokens", tokens=count, found=len(own)
            )
        found.append(own)
    return np.concatenate(found)


def _render(positions: UInt32s) -> list[bytes]:
    whole = len(positions) // _RUN * _RUN
    pieces = [len(positions).to_bytes(4, "little")]
    for start in range(0, whole, _RUN):
        run = positions[start : start + _RUN]
        packed, _ = encode_streams(np.diff(run, prepend=run[:1]), np.array([_RUN]))
        pieces.append(run[:1].tobytes() + packed.tobytes())
    if whole < len(positions):
        pieces.append(positions[whole:].tobytes())
    return pieces


def _parse(pieces: list[bytes]) -> UInt32s:
    count = int.from_bytes(pieces[0], "little") if pieces else 0
    runs = count // _RUN
    if len(pieces) < 1 + runs + (count % _RUN > 0):
        raise CorruptDataError("the positions of a document are cut short", tokens=count)
    found = [np.empty(0, np.uint32)]
    for piece in pieces[1 : 1 + runs]:
        data = np.frombuffer(piece, np.uint8)
        steps = decode_streams(
            Slices(data, np.array([4]), np.array([len(data) - 4])), np.array([_RUN])
        )
        found.append(np.frombuffer(piece[:4], "<u4") + np.cumsum(steps, dtype=np.uint32))
    if count % _RUN:
        rest = pieces[1 + runs]
        found.append(np.frombuffer(rest[: len(rest) // 4 * 4], "<u4")[: count % _RUN])
    return np.concatenate(found).astype(np.uint32)
