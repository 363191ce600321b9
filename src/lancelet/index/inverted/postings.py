"""Posting lists in memory: every occurrence of a token in a document, token by token.

tokens     0 0 0 1       token 0 is in documents 2, 5 and 9, token 1 in 5
docs       2 5 9 5
freqs      1 3 1 2
positions  4 0 7 9 1 2 6      as many as the frequency says, each

Positions as version 1 stores them: for each document of a token a list of byte strings.

    u32 how many, then a sorted block for every 128 of them, then the others as plain u32

Later versions have one stream for a token, see `kernels/reference/postings.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.buffers import Int64s, Slices
from lancelet.errors import CorruptDataError
from lancelet.index.text.analyzer import Words
from lancelet.kernels import counting_order, decode_streams, encode_streams
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
        """Return how many pairs of token and document there are."""
        return len(self.tokens)

    def counts(self, num_tokens: int) -> Int64s:
        """Return how many documents each token is in."""
        return np.bincount(self.tokens, minlength=num_tokens).astype(np.int64)


def invert(words: Words, num_tokens: int, first_doc: int, *, with_position: bool) -> Postings:
    """Return the posting lists of texts, which are documents from `first_doc` on."""
    numbers = np.arange(first_doc, first_doc + len(words.counts), dtype=np.uint32)
    docs = np.repeat(numbers, words.counts)
    order = counting_order(words.ids, num_tokens)
    tokens, docs = words.ids[order], docs[order]
    is_first = np.ones(len(tokens), np.bool_)
    is_first[1:] = (tokens[1:] != tokens[:-1]) | (docs[1:] != docs[:-1])
    starts = np.flatnonzero(is_first)
    freqs = np.diff(starts, append=len(tokens)).astype(np.uint32)
    positions = words.positions[order] if with_position else None
    return Postings(tokens[starts], docs[starts], freqs, positions)


def join(parts: Sequence[Postings], num_tokens: int) -> Postings:
    """Return the posting lists of parts, one at least, whose documents follow one another.

    Their frequencies and positions may be of narrower types.
    """
    tokens = np.concatenate([part.tokens for part in parts])
    docs = np.concatenate([part.docs for part in parts])
    freqs = np.concatenate([part.freqs for part in parts], dtype=np.uint32)
    own = [part.positions for part in parts if part.positions is not None]
    positions = np.concatenate(own, dtype=np.uint32) if own else None
    if num_tokens == 1:
        return Postings(tokens, docs, freqs, positions)
    order = counting_order(tokens, num_tokens)
    if positions is not None:
        positions = _regrouped(positions, freqs, order)
    return Postings(tokens[order], docs[order], freqs[order], positions)


def selected(postings: Postings, kept: npt.NDArray[np.bool_]) -> Postings:
    """Return the pairs of token and document that are kept."""
    places = np.flatnonzero(kept)
    positions = postings.positions
    if positions is not None:
        positions = _regrouped(positions, postings.freqs, places)
    return Postings(
        postings.tokens[places], postings.docs[places], postings.freqs[places], positions
    )


def in_order(postings: Postings) -> Postings:
    """Return the pairs sorted by token and then by document."""
    order = np.lexsort((postings.docs, postings.tokens))
    positions = postings.positions
    if positions is not None:
        positions = _regrouped(positions, postings.freqs, order)
    return Postings(postings.tokens[order], postings.docs[order], postings.freqs[order], positions)


def position_steps(positions: UInt32s, freqs: UInt32s) -> UInt32s:
    """Return how far each position is from the one before it in the same document."""
    steps = np.empty_like(positions)
    np.subtract(positions[1:], positions[:-1], out=steps[1:])
    ends = np.cumsum(freqs, dtype=np.int64)
    starts = ends - freqs
    steps[starts] = positions[starts]
    return steps


def positions_of(steps: UInt32s, freqs: UInt32s) -> UInt32s:
    """Return the positions whose steps these are."""
    if not len(steps):
        return steps
    total = np.cumsum(steps, dtype=np.int64)
    ends = np.cumsum(freqs, dtype=np.int64)
    starts = ends - freqs
    before = total[starts] - steps[starts]
    found: UInt32s = (total - np.repeat(before, freqs)).astype(np.uint32)
    return found


def _regrouped(positions: UInt32s, freqs: UInt32s, order: npt.NDArray[np.integer]) -> UInt32s:
    """Return positions with the documents they belong to in another order."""
    starts = np.cumsum(freqs, dtype=np.int64) - freqs
    counts = freqs[order].astype(np.int64)
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    places = np.arange(total) + np.repeat(starts[order] - (ends - counts), counts)
    found: UInt32s = positions[places]
    return found


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
