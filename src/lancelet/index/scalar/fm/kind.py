"""The FM kind: which texts have a given text in them, exactly, however short it is.

    rows 0 'banana', 1 'ban'    banana|ban|$     suffixes in order, in a wavelet tree
    contains 'an'               suffixes 3 to 5: at 1, 3 and 8, which are in rows 0, 0 and 1

Bytes that close texts are blanks in the index, so what has a blank in it is looked at where texts
had such bytes. Nulls are not there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa

from lancelet.index.base import (
    IndexedRows,
    Move,
    Parameters,
    ScalarKind,
    SearchResult,
    is_byte_strings,
)
from lancelet.index.folder import SegmentFolder
from lancelet.index.query import Contains, ScalarQuery
from lancelet.index.scalar.fm.layout import (
    Partition,
    Texts,
    part_names,
    plain_bytes,
    read_partition,
    write_partition,
)
from lancelet.kernels import find_suffixes, locate_suffixes
from lancelet.rowids.address import NO_ADDRESS, UInt64s
from lancelet.rowids.selection import RowSet

_ROWS_MAX: Final = 1 << 16
_BYTES_MAX: Final = 16 * 1024 * 1024
"""How much a partition has; one text may be longer, as a text is in one partition."""
_HALF: Final = 2
"""A partition that has less than one part in so many of that is written anew with others."""
_VERSION: Final = 10

_Rows = tuple[pa.Array, UInt64s]


class FmSegment:
    """An open FM index, whose partitions are read when they are first asked."""

    def __init__(self, folder: SegmentFolder) -> None:
        """Learn what partitions there are."""
        self._folder = folder
        self._names = part_names(folder)
        self._last: tuple[Contains, list[tuple[int, int]]] | None = None

    def estimate(self, query: ScalarQuery) -> int | None:
        """Return how often a text is in others, which costs as much as so many rows that have it.

        It is None for a text without letters, which is in every other.
        """
        match query:
            case Contains(text) if text:
                return sum(stop - first for first, stop in self._suffixes(query))
            case _:
                return None

    def search(self, query: ScalarQuery) -> SearchResult:
        """Return the rows that have a text in them."""
        assert isinstance(query, Contains), "only what has an estimate is searched"
        found, is_exact = [np.empty(0, np.uint64)], True
        has_blank = " " in _as_indexed(query.text)
        for number, (first, stop) in enumerate(self._suffixes(query)):
            partition = self._partition(number)
            if first < stop:
                found.append(_rows_of(partition, first, stop))
            is_exact = is_exact and not (has_blank and partition.has_replaced)
        self._folder.loads.count(comparisons=sum(map(len, found)))
        return SearchResult(RowSet.of(np.unique(np.concatenate(found))), is_exact)

    def nulls(self) -> None:
        """Return None: rows that are not there may have no text, or may be gone."""

    def statistics(self) -> dict[str, Any]:
        """Return how many texts there are, and how long they are together."""
        partitions = list(self.partitions())
        return {
            "type": Fm.title,
            "num_partitions": len(partitions),
            "total_bwt_len": sum(each.tree.length for each in partitions),
            "total_docs": sum(len(each.numbers) for each in partitions),
        }

    def prewarm(self) -> None:
        """Read all partitions."""
        for _ in self.partitions():
            pass

    def entries(self) -> tuple[pa.Array, UInt64s]:
        """Return the texts as they are indexed, as byte strings, and the number of each row."""
        partitions = list(self.partitions())
        texts = pa.concat_arrays([each.texts().values() for each in partitions])
        return texts, np.concatenate([each.numbers for each in partitions])

    def partitions(self) -> Iterator[Partition]:
        """Yield the partitions in order."""
        return map(self._partition, range(len(self._names)))

    def _partition(self, number: int) -> Partition:
        def load() -> Partition:
            self._folder.loads.count(parts=1)
            name = self._names[number]
            return read_partition(self._folder.open(name), f"{self._folder.path}/{name}")

        return self._folder.kept.get_or_make(("fm", number), load)

    def _suffixes(self, query: Contains) -> list[tuple[int, int]]:
        """Return which suffixes of each partition begin with a text; the last answer is at hand."""
        last = self._last
        if last is None or last[0] != query:
            wanted = _as_indexed(query.text).encode()
            found = [find_suffixes(each.tree, wanted) for each in self.partitions()]
            self._last = last = query, found
        return last[1]


class Fm(ScalarKind[FmSegment]):
    """The suffixes of all texts in order, compressed."""

    name = "FM"
    title = "Fm"
    type_url = "/lance.index.pb.FMIndexDetails"
    newest_version = _VERSION
    unsupported_message = "an FM index needs a column of texts or byte strings"
    written_version = _VERSION  # the only one that others read
    addresses_since = 0
    can_remap = True
    supports_deferred_remap = False  # the reference looks for them where they were

    def supports_type(self, data_type: pa.DataType) -> bool:
        """Return whether it is text or byte strings."""
        return is_byte_strings(data_type)

    def train(self, rows: IndexedRows, folder: SegmentFolder, parameters: Parameters) -> bytes:  # noqa: ARG002
        """Sort the suffixes of the texts of each partition."""
        _write(_partitions(rows.parts), folder)
        return b""

    def open(self, folder: SegmentFolder, details: bytes) -> FmSegment:  # noqa: ARG002
        """Open a segment."""
        return FmSegment(folder)

    def merge(
        self,
        segments: Sequence[FmSegment],
        moves: Sequence[Move],
        rows: IndexedRows,
        folder: SegmentFolder,
    ) -> bytes:
        """Keep partitions that are whole, and write those that are small anew with new rows."""
        whole: list[Partition] = []
        loose: list[Iterable[_Rows]] = []
        replaced = False
        for segment, move in zip(segments, moves, strict=True):
            for partition in segment.partitions():
                numbers = move(partition.numbers)
                is_small = (
                    partition.tree.length < _BYTES_MAX // _HALF
                    and len(numbers) < _ROWS_MAX // _HALF
                )
                if is_small or np.any(numbers == NO_ADDRESS):
                    loose.append(_kept(partition, numbers))
                    replaced |= partition.has_replaced
                else:
                    whole.append(partition.renumbered(numbers))
        again = _partitions(chain(*loose, rows.parts), has_replaced=replaced)
        _write(chain(whole, again), folder)
        return b""


def folded(values: pa.Array) -> pa.Array:
    """Return texts as an index has them, as byte strings; none of them is null.

    >>> folded(pa.array(["a" + chr(0) + "b"]))[0].as_py()
    b'a b'
    """
    return Texts.of(values, np.zeros(len(values), np.uint64)).values()


def _as_indexed(text: str) -> str:
    """Return a text that is asked for as texts are indexed; in UTF-8 it has no byte 255."""
    return text.replace("\0", " ")


def _rows_of(partition: Partition, first: int, stop: int) -> UInt64s:
    """Return the numbers of the rows in which suffixes start."""
    places = locate_suffixes(
        partition.tree, partition.samples, partition.sample_rows, first, stop - first
    )
    texts = np.unique(np.searchsorted(partition.starts, places.astype(np.uint64), "right") - 1)
    numbers: UInt64s = partition.numbers[texts]
    return numbers


def _kept(partition: Partition, numbers: UInt64s) -> Iterator[_Rows]:
    """Yield the texts of rows that are still there."""
    stays = numbers != NO_ADDRESS
    if stays.any():
        yield partition.texts().values().filter(pa.array(stays)), numbers[stays]


def _partitions(parts: Iterable[_Rows], *, has_replaced: bool = False) -> Iterator[Partition]:
    """Yield partitions of rows that have a text; texts from other partitions may lack bytes."""
    waiting: list[_Rows] = []
    num_rows = num_bytes = 0
    is_empty = True

    def gathered() -> Partition:
        texts = pa.concat_arrays([values.cast(pa.large_binary()) for values, _ in waiting])
        numbers = np.concatenate([own for _, own in waiting])
        return Partition.of(Texts.of(texts, numbers, has_replaced=has_replaced))

    for values, numbers in parts:
        is_text = values.is_valid()
        texts, own = values.drop_null(), numbers[is_text.to_numpy(zero_copy_only=False)]
        ends = np.cumsum(np.diff(plain_bytes(texts)[1]) + 1)
        start = 0
        while start < len(texts):
            before = int(ends[start - 1]) if start else 0
            room = before + _BYTES_MAX - num_bytes
            # The text that fills a partition is in it, whatever its length.
            stop = int(np.searchsorted(ends, room)) + 1
            stop = min(stop, start + _ROWS_MAX - num_rows, len(texts))
            waiting.append((texts.slice(start, stop - start), own[start:stop]))
            num_rows += stop - start
            num_bytes += int(ends[stop - 1]) - before
            start = stop
            if num_rows >= _ROWS_MAX or num_bytes >= _BYTES_MAX:
                yield gathered()
                waiting, num_rows, num_bytes, is_empty = [], 0, 0, False
    if waiting:
        yield gathered()
    elif is_empty:
        yield Partition.empty()


def _write(partitions: Iterable[Partition], folder: SegmentFolder) -> None:
    for number, partition in enumerate(partitions):
        write_partition(partition, number, folder)
