"""Posting lists that wait to be written, in as few bytes as hold the largest of their numbers.

    postings    red {5: 1, 7: 2}    fox {5: 1}
    tokens      red fox             each once, and how many documents it has: 2 1
    docs        0 2 0               from the first document on, 5
    freqs       1 2 1

A batch has few documents, and words stand near the beginning of texts: mostly a document takes two
bytes, a frequency and a position one each, where they take four as they are worked with. Beyond a
limit they wait in a file, of which some tokens of each batch are read at a time.
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

_TOKENS_AHEAD: Final = 4096
"""So many tokens of a batch are read at once."""


@dataclass(frozen=True, slots=True, eq=False)
class _Filed:
    """Numbers in a file."""

    file: IO[bytes]
    position: int
    dtype: np.dtype[Any]
    count: int

    def __len__(self) -> int:
        """Return how many numbers there are."""
        return self.count

    def __getitem__(self, rows: slice) -> npt.NDArray[Any]:
        """Read some of the numbers."""
        found = np.empty(rows.stop - rows.start, self.dtype)
        self.file.seek(self.position + rows.start * self.dtype.itemsize)
        if self.file.readinto(found) != found.nbytes:  # type: ignore[attr-defined]  # files without a buffer have it
            raise StorageError("a temporary file was cut short", bytes=found.nbytes)
        return found


_Numbers: TypeAlias = "npt.NDArray[Any] | _Filed"


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
    def of(postings: Postings) -> PackedPostings:
        """Return the same posting lists in less room."""
        tokens = postings.tokens
        ends = np.append(np.flatnonzero(tokens[1:] != tokens[:-1]) + 1, len(tokens))
        ends = ends[: len(tokens)]
        first_doc = int(postings.docs.min()) if len(postings) else 0
        positions = postings.positions
        return PackedPostings(
            tokens[ends - 1],
            _narrowed(np.diff(ends, prepend=0)),
            first_doc,
            _narrowed(postings.docs - np.uint32(first_doc)),
            _narrowed(postings.freqs),
            None if positions is None else _narrowed(positions),
        )


class WaitingPostings:
    """Takes postings of batches, and gives those of all batches token by token."""

    def __init__(self, bytes_max: int) -> None:
        """Hold nothing yet, and so many bytes at most in memory."""
        self._bytes_max = bytes_max
        self._parts: list[PackedPostings] = []
        self._num_filed = self._bytes = 0
        self._file: IO[bytes] | None = None
        self._counts = np.zeros(0, np.int64)

    def close(self) -> None:
        """Let go of all, and remove what was written."""
        self._parts = []
        if self._file is not None:
            self._file.close()

    def add(self, postings: Postings) -> None:
        """Take postings, whose documents follow those of the ones before."""
        part = PackedPostings.of(postings)
        self._parts.append(part)
        if len(postings):
            self._count(int(postings.tokens[-1]) + 1, postings.tokens)
        self._bytes += sum(each.nbytes for each in _numbers_of(part))
        if self._bytes > self._bytes_max:
            self._write()

    def by_tokens(self, num_tokens: int, together: int) -> Iterator[tuple[int, Postings]]:
        """Yield how many tokens come next, and their postings of all batches, numbered from 0.

        So many postings are put together, or those of one token.
        """
        counts = np.zeros(num_tokens, np.int64)
        counts[: len(self._counts)] = self._counts[:num_tokens]
        ends = np.cumsum(counts)
        readers = [_Reader(part) for part in self._parts]
        first = 0
        while first < num_tokens:
            before = int(ends[first - 1]) if first else 0
            stop = max(int(np.searchsorted(ends, before + together, side="right")), first + 1)
            yield stop - first, join([each.next(first, stop) for each in readers], stop - first)
            first = stop

    def _count(self, num_tokens: int, tokens: UInt32s) -> None:
        """Add to how many postings there are of each token."""
        if num_tokens > len(self._counts):
            grown = np.zeros(max(num_tokens, 2 * len(self._counts)), np.int64)
            grown[: len(self._counts)] = self._counts
            self._counts = grown
        self._counts[:num_tokens] += np.bincount(tokens, minlength=num_tokens)

    def _write(self) -> None:
        """Put what is in memory into the file."""
        if self._file is None:
            self._file = tempfile.TemporaryFile(  # noqa: SIM115 - closed by `close`
                prefix="lancelet-texts-", buffering=0
            )
        for place in range(self._num_filed, len(self._parts)):
            part = self._parts[place]
            tokens, counts, docs, freqs, *rest = (
                _filed(self._file, each) for each in _numbers_of(part)
            )
            self._parts[place] = PackedPostings(
                tokens, counts, part.first_doc, docs, freqs, rest[0] if rest else None
            )
        self._num_filed, self._bytes = len(self._parts), 0


def _numbers_of(part: PackedPostings) -> list[npt.NDArray[Any]]:
    """Return what can wait in a file, of a part that is in memory."""
    found = (part.tokens, part.counts, part.docs, part.freqs, part.positions)
    return [each for each in found if isinstance(each, np.ndarray)]


def _filed(file: IO[bytes], numbers: npt.NDArray[Any]) -> _Filed:
    position = file.seek(0, 2)
    rest = as_memoryview(numbers)
    while rest:
        rest = rest[file.write(rest) :]
    return _Filed(file, position, numbers.dtype, len(numbers))


class _Reader:
    """Reads postings from the first token to the last."""

    def __init__(self, part: PackedPostings) -> None:
        self._part = part
        self._token = self._row = self._position = 0
        self._tokens, self._counts = part.tokens[0:0], part.counts[0:0]

    def next(self, first: int, stop: int) -> Postings:
        """Return the postings of the next tokens, up to one of them, numbered from `first`.

        Frequencies and positions are as narrow as they are stored.
        """
        part = self._part
        own, counts = self._until(stop)
        rows = slice(self._row, self._row + int(counts.sum(dtype=np.int64)))
        self._row = rows.stop
        tokens = np.repeat(own - np.uint32(first), counts)
        docs = part.docs[rows].astype(np.uint32) + np.uint32(part.first_doc)
        freqs = part.freqs[rows]
        positions = None
        if part.positions is not None:
            start = self._position
            self._position += int(freqs.sum(dtype=np.int64))
            positions = part.positions[start : self._position]
        return Postings(tokens, docs, freqs, positions)

    def _until(self, stop: int) -> tuple[UInt32s, npt.NDArray[Any]]:
        """Return the next tokens below one, and how many postings each has."""
        tokens, counts = [self._tokens], [self._counts]
        while self._token < len(self._part.tokens) and not np.any(tokens[-1][-1:] >= stop):
            end = min(self._token + _TOKENS_AHEAD, len(self._part.tokens))
            ahead = slice(self._token, end)
            tokens.append(self._part.tokens[ahead])
            counts.append(self._part.counts[ahead])
            self._token = end
        held, often = np.concatenate(tokens), np.concatenate(counts)
        place = int(np.searchsorted(held, stop))
        self._tokens, self._counts = held[place:].copy(), often[place:].copy()
        return held[:place], often[:place]


def _narrowed(values: UInt32s) -> npt.NDArray[Any]:
    """Return a copy of values as the smallest numbers that hold all of them."""
    most = int(values.max()) if len(values) else 0
    return values.astype(np.min_scalar_type(most))
