"""Posting lists that wait to be written, in as few bytes as hold the largest of their numbers.

    postings    red {5: 1, 7: 2}    fox {5: 1}
    tokens      red fox             each once, and how many documents it has: 2 1
    docs        0 2 0               from the first document on, 5
    freqs       1 2 1

A batch has few documents, and words stand near the beginning of texts: mostly a document takes two
bytes, a frequency and a position one each, where they take four as they are worked with. Beyond a
limit they wait in a file; which tokens a batch has, and how often, stays in memory.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import IO, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from lancelet.errors import StorageError
from lancelet.index.inverted.postings import Postings, UInt32s, join
from lancelet.io.store import as_memoryview


@dataclass(frozen=True, slots=True, eq=False)
class _Filed:
    """Numbers in a file."""

    file: IO[bytes]
    position: int
    dtype: np.dtype[Any]

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

    tokens: UInt32s
    counts: npt.NDArray[Any]
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

    def close(self) -> None:
        """Let go of all, and remove what was written."""
        self._parts = []
        if self._file is not None:
            self._file.close()

    def add(self, postings: Postings) -> None:
        """Take postings, whose documents follow those of the ones before."""
        part = PackedPostings.of(postings)
        self._parts.append(part)
        self._bytes += sum(each.nbytes for each in _numbers_of(part))
        if self._bytes > self._bytes_max:
            self._write()

    def by_tokens(self, num_tokens: int, together: int) -> Iterator[tuple[int, Postings]]:
        """Yield how many tokens come next, and their postings of all batches, numbered from 0.

        So many postings are put together, or those of one token.
        """
        counts = np.zeros(num_tokens, np.int64)
        for part in self._parts:
            counts[part.tokens] += part.counts
        ends = np.cumsum(counts)
        readers = [_Reader(part) for part in self._parts]
        first = 0
        while first < num_tokens:
            before = int(ends[first - 1]) if first else 0
            stop = max(int(np.searchsorted(ends, before + together, side="right")), first + 1)
            yield stop - first, join([each.next(first, stop) for each in readers], stop - first)
            first = stop

    def _write(self) -> None:
        """Put what is in memory into the file."""
        if self._file is None:
            self._file = tempfile.TemporaryFile(  # noqa: SIM115 - closed by `close`
                prefix="lancelet-texts-", buffering=0
            )
        for place in range(self._num_filed, len(self._parts)):
            part = self._parts[place]
            filed = [_filed(self._file, each) for each in _numbers_of(part)]
            positions = filed[2] if len(filed) > 2 else None
            self._parts[place] = replace(part, docs=filed[0], freqs=filed[1], positions=positions)
        self._num_filed, self._bytes = len(self._parts), 0


def _numbers_of(part: PackedPostings) -> list[npt.NDArray[Any]]:
    """Return what can wait in a file, of a part that is in memory."""
    found = (part.docs, part.freqs, part.positions)
    return [each for each in found if isinstance(each, np.ndarray)]


def _filed(file: IO[bytes], numbers: npt.NDArray[Any]) -> _Filed:
    position = file.seek(0, 2)
    rest = as_memoryview(numbers)
    while rest:
        rest = rest[file.write(rest) :]
    return _Filed(file, position, numbers.dtype)


class _Reader:
    """Reads postings from the first token to the last."""

    def __init__(self, part: PackedPostings) -> None:
        self._part = part
        self._token = self._row = self._position = 0

    def next(self, first: int, stop: int) -> Postings:
        """Return the postings of the next tokens, up to one of them, numbered from `first`.

        Frequencies and positions are as narrow as they are stored.
        """
        part, token = self._part, self._token
        self._token = int(np.searchsorted(part.tokens, stop))
        own = slice(token, self._token)
        counts = part.counts[own]
        rows = slice(self._row, self._row + int(counts.sum(dtype=np.int64)))
        self._row = rows.stop
        tokens = np.repeat(part.tokens[own] - np.uint32(first), counts)
        docs = part.docs[rows].astype(np.uint32) + np.uint32(part.first_doc)
        freqs = part.freqs[rows]
        positions = None
        if part.positions is not None:
            start = self._position
            self._position += int(freqs.sum(dtype=np.int64))
            positions = part.positions[start : self._position]
        return Postings(tokens, docs, freqs, positions)


def _narrowed(values: UInt32s) -> npt.NDArray[Any]:
    """Return a copy of values as the smallest numbers that hold all of them."""
    most = int(values.max()) if len(values) else 0
    return values.astype(np.min_scalar_type(most))
