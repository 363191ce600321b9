"""The FM index kind: exact substring search for substrings of any length.

    rows 0 'banana', 1 'ban'    banana|ban|$     sorted suffixes in a wavelet tree
    contains 'an'               suffixes 3 to 5: at 1, 3 and 8, in rows 0, 0 and 1

The bytes that separate texts are replaced by spaces in the index. Results for substrings with
spaces must be rechecked if the texts contained such bytes. Nulls are not stored.
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
from lancelet.index.kernels import find_suffixes, locate_suffixes
from lancelet.index.query import Contains, ScalarQuery
from lancelet.index.scalar.fm.layout import (
    Partition,
    Texts,
    part_names,
    plain_bytes,
    read_partition,
    write_partition,
)
from lancelet.rowids.address import NO_ADDRESS, UInt64s
from lancelet.rowids.selection import RowSet

_ROWS_MAX: Final = 1 << 16
_BYTES_MAX: Final = 16 * 1024 * 1024
"""Maximum size of a partition. A single text may exceed it, because texts are not split."""
_SMALL_FRACTION: Final = 2
"""Partitions below this fraction of the maximum are rewritten when segments are merged."""
_VERSION: Final = 10

_Rows = tuple[pa.Array, UInt64s]


class FmSegment:
    """An open segment of an FM index. Partitions are read on demand."""

    def __init__(self, folder: SegmentFolder) -> None:
        """List the partitions."""
        self._folder = folder
        self._names = part_names(folder)
        self._last: tuple[Contains, list[tuple[int, int]]] | None = None

    def estimate(self, query: ScalarQuery) -> int | None:
        """Return the number of occurrences of a substring, or None for the empty string.

        The cost is proportional to the length of the substring.
        """
        match query:
            case Contains(text) if text:
                return sum(stop - first for first, stop in self._suffixes(query))
            case _:
                return None

    def search(self, query: ScalarQuery) -> SearchResult:
        """Return the rows that contain a substring."""
        assert isinstance(query, Contains), "supported queries have an estimate"
        parts, is_exact = [np.empty(0, np.uint64)], True
        has_blank = " " in _as_indexed(query.text)
        for number, (first, stop) in enumerate(self._suffixes(query)):
            partition = self._partition(number)
            if first < stop:
                parts.append(_rows_of(partition, first, stop))
            is_exact = is_exact and not (has_blank and partition.has_replaced)
        self._folder.loads.count(comparisons=sum(map(len, parts)))
        return SearchResult(RowSet.of(np.unique(np.concatenate(parts))), is_exact)

    def nulls(self) -> None:
        """Return None; a row that is not stored may be null or deleted."""

    def statistics(self) -> dict[str, Any]:
        """Return the numbers of partitions and texts and their total length."""
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
        """Return the indexed texts as binary values, and their row numbers."""
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

        return self._folder.cache_scope.get_or_make(("fm", number), load)

    def _suffixes(self, query: Contains) -> list[tuple[int, int]]:
        """Return the suffixes with a prefix in each partition; the last result is cached."""
        last = self._last
        if last is None or last[0] != query:
            pattern = _as_indexed(query.text).encode()
            ranges = [find_suffixes(each.tree, pattern) for each in self.partitions()]
            self._last = last = query, ranges
        return last[1]


class Fm(ScalarKind[FmSegment]):
    """The FM index kind: exact substring search in compressed suffix arrays."""

    name = "FM"
    title = "Fm"
    type_url = "/lance.index.pb.FMIndexDetails"
    newest_version = _VERSION
    unsupported_message = "an FM index requires a column of strings or binary values"
    written_version = _VERSION  # the only version supported by other readers
    addresses_since = 0
    can_remap = True
    supports_deferred_remap = False  # the reference does not apply recorded moves to FM indices

    def supports_type(self, data_type: pa.DataType) -> bool:
        """Return whether the type is string or binary."""
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
        """Keep full partitions, and rewrite small ones together with new rows."""
        retained: list[Partition] = []
        rewritten: list[Iterable[_Rows]] = []
        replaced = False
        for segment, move in zip(segments, moves, strict=True):
            for partition in segment.partitions():
                numbers = move(partition.numbers)
                is_small = (
                    partition.tree.length < _BYTES_MAX // _SMALL_FRACTION
                    and len(numbers) < _ROWS_MAX // _SMALL_FRACTION
                )
                if is_small or np.any(numbers == NO_ADDRESS):
                    rewritten.append(_remaining_rows(partition, numbers))
                    replaced |= partition.has_replaced
                else:
                    retained.append(partition.renumbered(numbers))
        new_partitions = _partitions(chain(*rewritten, rows.parts), has_replaced=replaced)
        _write(chain(retained, new_partitions), folder)
        return b""


def folded(values: pa.Array) -> pa.Array:
    """Return texts in the indexed form, as binary values. Texts must not be null.

    >>> folded(pa.array(["a" + chr(0) + "b"]))[0].as_py()
    b'a b'
    """
    return Texts.from_array(values, np.zeros(len(values), np.uint64)).values()


def _as_indexed(text: str) -> str:
    """Return a query in the indexed form. UTF-8 does not contain the byte 255."""
    return text.replace("\0", " ")


def _rows_of(partition: Partition, first: int, stop: int) -> UInt64s:
    """Return the row numbers of a range of suffixes."""
    offsets = locate_suffixes(
        partition.tree, partition.samples, partition.sample_rows, first, stop - first
    )
    texts = np.unique(np.searchsorted(partition.starts, offsets.astype(np.uint64), "right") - 1)
    numbers: UInt64s = partition.numbers[texts]
    return numbers


def _remaining_rows(partition: Partition, numbers: UInt64s) -> Iterator[_Rows]:
    """Yield the texts of existing rows."""
    remaining = numbers != NO_ADDRESS
    if remaining.any():
        yield partition.texts().values().filter(pa.array(remaining)), numbers[remaining]


def _partitions(parts: Iterable[_Rows], *, has_replaced: bool = False) -> Iterator[Partition]:
    """Yield partitions of non-null rows. Texts from existing partitions may have replaced bytes."""
    pending: list[_Rows] = []
    num_rows = num_bytes = 0
    is_empty = True

    def make_partition() -> Partition:
        texts = pa.concat_arrays([values.cast(pa.large_binary()) for values, _ in pending])
        numbers = np.concatenate([text_numbers for _, text_numbers in pending])
        return Partition.build(Texts.from_array(texts, numbers, has_replaced=has_replaced))

    for values, numbers in parts:
        is_text = values.is_valid()
        texts, text_numbers = values.drop_null(), numbers[is_text.to_numpy(zero_copy_only=False)]
        ends = np.cumsum(np.diff(plain_bytes(texts)[1]) + 1)
        start = 0
        while start < len(texts):
            bytes_before = int(ends[start - 1]) if start else 0
            bytes_limit = bytes_before + _BYTES_MAX - num_bytes
            # The text that exceeds the limit belongs to the current partition.
            stop = int(np.searchsorted(ends, bytes_limit)) + 1
            stop = min(stop, start + _ROWS_MAX - num_rows, len(texts))
            pending.append((texts.slice(start, stop - start), text_numbers[start:stop]))
            num_rows += stop - start
            num_bytes += int(ends[stop - 1]) - bytes_before
            start = stop
            if num_rows >= _ROWS_MAX or num_bytes >= _BYTES_MAX:
                yield make_partition()
                pending, num_rows, num_bytes, is_empty = [], 0, 0, False
    if pending:
        yield make_partition()
    elif is_empty:
        yield Partition.empty()


def _write(partitions: Iterable[Partition], folder: SegmentFolder) -> None:
    for number, partition in enumerate(partitions):
        write_partition(partition, number, folder)
