"""Buffered posting lists, packed into the narrowest integer types.

    postings    red {5: 1, 7: 2}    fox {5: 1}
    tokens      red fox             distinct tokens with their document counts: 2 1
    docs        0 2 0               relative to the first document, 5
    freqs       1 2 1

Batches have few documents and short texts: a document usually takes two bytes, a frequency and a
position one byte each, instead of four. Beyond a memory limit, postings spill to a temporary file,
which is read back in ranges of tokens.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import IO, Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from lancelet.errors import StorageError
from lancelet.index.inverted.postings import Postings, UInt32s, join
from lancelet.io.store import as_memoryview
from lancelet.values import dataclass

_TOKENS_PER_READ: Final = 4096
"""Number of tokens of a batch read at a time."""


@dataclass(frozen=True, slots=True, eq=False)
class _SpilledArray:
    """An integer array stored in a file."""

    file: IO[bytes]
    position: int
    dtype: np.dtype[Any]
    count: int

    def __len__(self) -> int:
        """Return the number of elements."""
        return self.count

    def __getitem__(self, rows: slice) -> npt.NDArray[Any]:
        """Read a range of elements."""
        values = np.empty(rows.stop - rows.start, self.dtype)
        self.file.seek(self.position + rows.start * self.dtype.itemsize)
        if self.file.readinto(values) != values.nbytes:  # type: ignore[attr-defined]  # files without a buffer have it
            raise StorageError("truncated temporary file", bytes=values.nbytes)
        return values


_Numbers: TypeAlias = "npt.NDArray[Any] | _SpilledArray"


@dataclass(frozen=True, slots=True, eq=False)
class PackedPostings:
    """Posting lists, sorted by token and then by document."""

    tokens: _Numbers
    counts: _Numbers
    first_doc: int
    docs: _Numbers
    freqs: _Numbers
    positions: _Numbers | None

    @staticmethod
    def pack(postings: Postings) -> PackedPostings:
        """Pack posting lists."""
        tokens = postings.tokens
        ends = np.append(np.flatnonzero(tokens[1:] != tokens[:-1]) + 1, len(tokens))
        ends = ends[: len(tokens)]
        first_doc = int(postings.docs.min()) if len(postings) else 0
        positions = postings.positions
        return PackedPostings(
            tokens[ends - 1],
            _narrow(np.diff(ends, prepend=0)),
            first_doc,
            _narrow(postings.docs - np.uint32(first_doc)),
            _narrow(postings.freqs),
            None if positions is None else _narrow(positions),
        )


class PostingBuffer:
    """Buffers the postings of batches and returns them merged by token."""

    def __init__(self, bytes_max: int) -> None:
        """Create an empty buffer that holds `bytes_max` bytes in memory and spills the rest."""
        self._bytes_max = bytes_max
        self._parts: list[PackedPostings] = []
        self._num_spilled = self._bytes = 0
        self._file: IO[bytes] | None = None
        self._counts = np.zeros(0, np.int64)

    def close(self) -> None:
        """Discard all postings and delete the spill file."""
        self._parts = []
        if self._file is not None:
            self._file.close()

    def add(self, postings: Postings) -> None:
        """Add postings for documents that follow all earlier ones."""
        part = PackedPostings.pack(postings)
        self._parts.append(part)
        if len(postings):
            self._count(int(postings.tokens[-1]) + 1, postings.tokens)
        self._bytes += sum(each.nbytes for each in _arrays_in_memory(part))
        if self._bytes > self._bytes_max:
            self._spill()

    def by_tokens(self, num_tokens: int, postings_max: int) -> Iterator[tuple[int, Postings]]:
        """Yield token counts with merged postings of that many consecutive tokens.

        Tokens are numbered from 0 in each result.
        Each result contains at most `postings_max` postings, or those of a single token.
        """
        counts = np.zeros(num_tokens, np.int64)
        counts[: len(self._counts)] = self._counts[:num_tokens]
        ends = np.cumsum(counts)
        readers = [_Reader(part) for part in self._parts]
        first = 0
        while first < num_tokens:
            before = int(ends[first - 1]) if first else 0
            stop = max(int(np.searchsorted(ends, before + postings_max, side="right")), first + 1)
            yield stop - first, join([each.next(first, stop) for each in readers], stop - first)
            first = stop

    def _count(self, num_tokens: int, tokens: UInt32s) -> None:
        """Update the number of postings per token."""
        if num_tokens > len(self._counts):
            grown = np.zeros(max(num_tokens, 2 * len(self._counts)), np.int64)
            grown[: len(self._counts)] = self._counts
            self._counts = grown
        self._counts[:num_tokens] += np.bincount(tokens, minlength=num_tokens)

    def _spill(self) -> None:
        """Spill the postings in memory to the file."""
        if self._file is None:
            self._file = tempfile.TemporaryFile(  # noqa: SIM115 - closed by `close`
                prefix="lancelet-texts-", buffering=0
            )
        for index in range(self._num_spilled, len(self._parts)):
            part = self._parts[index]
            tokens, counts, docs, freqs, *positions = (
                _append(self._file, each) for each in _arrays_in_memory(part)
            )
            self._parts[index] = PackedPostings(
                tokens, counts, part.first_doc, docs, freqs, positions[0] if positions else None
            )
        self._num_spilled, self._bytes = len(self._parts), 0


def _arrays_in_memory(part: PackedPostings) -> list[npt.NDArray[Any]]:
    """Return the arrays of a part that are in memory."""
    arrays = (part.tokens, part.counts, part.docs, part.freqs, part.positions)
    return [each for each in arrays if isinstance(each, np.ndarray)]


def _append(file: IO[bytes], numbers: npt.NDArray[Any]) -> _SpilledArray:
    position = file.seek(0, 2)
    rest = as_memoryview(numbers)
    while rest:
        rest = rest[file.write(rest) :]
    return _SpilledArray(file, position, numbers.dtype, len(numbers))


class _Reader:
    """Reads the postings of a part in token order."""

    def __init__(self, part: PackedPostings) -> None:
        self._part = part
        self._token = self._row = self._position = 0
        self._tokens, self._counts = part.tokens[0:0], part.counts[0:0]

    def next(self, first: int, stop: int) -> Postings:
        """Return the postings of the next tokens below `stop`, numbered from `first`.

        Frequencies and positions have the stored, narrow types.
        """
        part = self._part
        next_tokens, counts = self._until(stop)
        rows = slice(self._row, self._row + int(counts.sum(dtype=np.int64)))
        self._row = rows.stop
        tokens = np.repeat(next_tokens - np.uint32(first), counts)
        docs = part.docs[rows].astype(np.uint32) + np.uint32(part.first_doc)
        freqs = part.freqs[rows]
        positions = None
        if part.positions is not None:
            start = self._position
            self._position += int(freqs.sum(dtype=np.int64))
            positions = part.positions[start : self._position]
        return Postings(tokens, docs, freqs, positions)

    def _until(self, stop: int) -> tuple[UInt32s, npt.NDArray[Any]]:
        """Return the next tokens below `stop` and their posting counts."""
        tokens, counts = [self._tokens], [self._counts]
        while self._token < len(self._part.tokens) and not np.any(tokens[-1][-1:] >= stop):
            end = min(self._token + _TOKENS_PER_READ, len(self._part.tokens))
            ahead = slice(self._token, end)
            tokens.append(self._part.tokens[ahead])
            counts.append(self._part.counts[ahead])
            self._token = end
        all_tokens, all_counts = np.concatenate(tokens), np.concatenate(counts)
        count = int(np.searchsorted(all_tokens, stop))
        self._tokens, self._counts = all_tokens[count:].copy(), all_counts[count:].copy()
        return all_tokens[:count], all_counts[:count]


def _narrow(values: UInt32s) -> npt.NDArray[Any]:
    """Copy values to the smallest unsigned integer type that holds them."""
    value_max = int(values.max()) if len(values) else 0
    return values.astype(np.min_scalar_type(value_max))
