"""Posting lists in memory: token frequencies and positions, sorted by token and document.

    tokens     0 0 0 1            token 0 is in documents 2, 5 and 9, token 1 in 5
    docs       2 5 9 5
    freqs      1 3 1 2
    positions  4 0 7 9 1 2 6      `freqs` positions per posting

Version 1 stores positions as a list of byte strings for each posting:

    u32 count, a sorted block per 128 positions, the remaining positions as plain u32

Later versions store one stream per token, see `index/kernels/reference/postings.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.buffers import ByteSlices, Int64s
from lancelet.errors import CorruptDataError
from lancelet.index.kernels import counting_order, decode_streams, encode_streams
from lancelet.index.text.analyzer import AnalyzedTexts
from lancelet.values import dataclass

UInt32s = npt.NDArray[np.uint32]

_RUN: Final = 128


@dataclass(frozen=True, slots=True, eq=False)
class Postings:
    """Posting lists, sorted by token and then by document."""

    tokens: UInt32s
    docs: UInt32s
    freqs: UInt32s
    positions: UInt32s | None

    def __len__(self) -> int:
        """Return the number of postings."""
        return len(self.tokens)

    def counts(self, num_tokens: int) -> Int64s:
        """Return the document frequency of each token."""
        return np.bincount(self.tokens, minlength=num_tokens).astype(np.int64)


def invert(
    analyzed: AnalyzedTexts, num_tokens: int, first_doc: int, *, with_position: bool
) -> Postings:
    """Return the posting lists of texts, with document numbers from `first_doc`."""
    numbers = np.arange(first_doc, first_doc + len(analyzed.counts), dtype=np.uint32)
    docs = np.repeat(numbers, analyzed.counts)
    order = counting_order(analyzed.ids, num_tokens)
    tokens, docs = analyzed.ids[order], docs[order]
    is_first = np.ones(len(tokens), np.bool_)
    is_first[1:] = (tokens[1:] != tokens[:-1]) | (docs[1:] != docs[:-1])
    starts = np.flatnonzero(is_first)
    freqs = np.diff(starts, append=len(tokens)).astype(np.uint32)
    positions = analyzed.positions[order] if with_position else None
    return Postings(tokens[starts], docs[starts], freqs, positions)


def join(parts: Sequence[Postings], num_tokens: int) -> Postings:
    """Concatenate posting lists of consecutive documents. Requires at least one part.

    Frequencies and positions of the parts may have narrower types.
    """
    tokens = np.concatenate([part.tokens for part in parts])
    docs = np.concatenate([part.docs for part in parts])
    freqs = np.concatenate([part.freqs for part in parts], dtype=np.uint32)
    position_parts = [part.positions for part in parts if part.positions is not None]
    positions = np.concatenate(position_parts, dtype=np.uint32) if position_parts else None
    if num_tokens == 1:
        return Postings(tokens, docs, freqs, positions)
    order = counting_order(tokens, num_tokens)
    if positions is not None:
        positions = _reorder_positions(positions, freqs, order)
    return Postings(tokens[order], docs[order], freqs[order], positions)


def select_postings(postings: Postings, mask: npt.NDArray[np.bool_]) -> Postings:
    """Return the postings selected by a mask."""
    indices = np.flatnonzero(mask)
    positions = postings.positions
    if positions is not None:
        positions = _reorder_positions(positions, postings.freqs, indices)
    return Postings(
        postings.tokens[indices], postings.docs[indices], postings.freqs[indices], positions
    )


def sort_postings(postings: Postings) -> Postings:
    """Return the postings sorted by token and document."""
    order = np.lexsort((postings.docs, postings.tokens))
    positions = postings.positions
    if positions is not None:
        positions = _reorder_positions(positions, postings.freqs, order)
    return Postings(postings.tokens[order], postings.docs[order], postings.freqs[order], positions)


def position_steps(positions: UInt32s, freqs: UInt32s) -> UInt32s:
    """Return the difference of each position to the previous one in the same document."""
    steps = np.empty_like(positions)
    np.subtract(positions[1:], positions[:-1], out=steps[1:])
    ends = np.cumsum(freqs, dtype=np.int64)
    starts = ends - freqs
    steps[starts] = positions[starts]
    return steps


def positions_of(steps: UInt32s, freqs: UInt32s) -> UInt32s:
    """Return the positions with these differences."""
    if not len(steps):
        return steps
    total = np.cumsum(steps, dtype=np.int64)
    ends = np.cumsum(freqs, dtype=np.int64)
    starts = ends - freqs
    offsets = total[starts] - steps[starts]
    positions: UInt32s = (total - np.repeat(offsets, freqs)).astype(np.uint32)
    return positions


def _reorder_positions(
    positions: UInt32s, freqs: UInt32s, order: npt.NDArray[np.integer]
) -> UInt32s:
    """Return the positions of postings in another order."""
    starts = np.cumsum(freqs, dtype=np.int64) - freqs
    counts = freqs[order].astype(np.int64)
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    indices = np.arange(total) + np.repeat(starts[order] - (ends - counts), counts)
    reordered: UInt32s = positions[indices]
    return reordered


def render_positions(positions: UInt32s, freqs: UInt32s, counts: Int64s) -> pa.Array:
    """Encode the positions of all tokens in the layout of version 1."""
    ends = np.cumsum(freqs, dtype=np.int64)
    documents = [
        _render(positions[end - count : end])
        for end, count in zip(ends.tolist(), freqs.tolist(), strict=True)
    ]
    inner = pa.array(documents, pa.list_(pa.large_binary()))
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), inner)


def parse_positions(documents: pa.Array, freqs: UInt32s) -> UInt32s:
    """Decode positions in the layout of version 1; `freqs` is their number per posting."""
    parts = [np.empty(0, np.uint32)]
    for blocks, count in zip(documents.to_pylist(), freqs.tolist(), strict=True):
        positions = _parse(blocks or [])
        if len(positions) != count:
            raise CorruptDataError(
                "the number of positions differs from the token frequency",
                tokens=count,
                found=len(positions),
            )
        parts.append(positions)
    return np.concatenate(parts)


def _render(positions: UInt32s) -> list[bytes]:
    num_packed = len(positions) // _RUN * _RUN
    blocks = [len(positions).to_bytes(4, "little")]
    for start in range(0, num_packed, _RUN):
        run = positions[start : start + _RUN]
        packed, _ = encode_streams(np.diff(run, prepend=run[:1]), np.array([_RUN]))
        blocks.append(run[:1].tobytes() + packed.tobytes())
    if num_packed < len(positions):
        blocks.append(positions[num_packed:].tobytes())
    return blocks


def _parse(blocks: list[bytes]) -> UInt32s:
    count = int.from_bytes(blocks[0], "little") if blocks else 0
    runs = count // _RUN
    if len(blocks) < 1 + runs + (count % _RUN > 0):
        raise CorruptDataError("truncated positions of a document", tokens=count)
    parts = [np.empty(0, np.uint32)]
    for block in blocks[1 : 1 + runs]:
        data = np.frombuffer(block, np.uint8)
        steps = decode_streams(
            ByteSlices(data, np.array([4]), np.array([len(data) - 4])), np.array([_RUN])
        )
        parts.append(np.frombuffer(block[:4], "<u4") + np.cumsum(steps, dtype=np.uint32))
    if count % _RUN:
        rest = blocks[1 + runs]
        parts.append(np.frombuffer(rest[: len(rest) // 4 * 4], "<u4")[: count % _RUN])
    return np.concatenate(parts).astype(np.uint32)
