"""Conversion of row ids and addresses in arguments of commits and scans."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from lancelet.dataset.write.metadata import RowIdMeta
from lancelet.errors import InvalidInputError, UnsupportedError
from lancelet.format.fragment import Inline
from lancelet.format.fragment_json import row_ids_to_json, sequence_from_json
from lancelet.rowids import sequence
from lancelet.rowids.address import UInt64s
from lancelet.rowids.selection import RowSet

_ID_MAX: Final = (1 << 64) - 1
_SHOWN: Final = 10


class RowIdTypeError(InvalidInputError, TypeError):
    """A value is not a row id."""


class RowIdRangeError(InvalidInputError, OverflowError):
    """A number is out of the range of row ids."""


class RowIdSequenceIterator(Iterator[int]):
    """Iterates over the ids of a sequence."""

    def __init__(self, ids: Iterable[int]) -> None:
        """Iterate over `ids`."""
        self._rest = iter(ids)

    def __next__(self) -> int:
        """Return the next id."""
        return next(self._rest)


class RowIdSequence:
    """The stable row ids of the rows of one fragment, in order.

    The metadata of a fragment stores the ids of rows that moved into it:

    >>> RowIdSequence([7, 12]).to_inline_metadata().json()
    '{"Inline": [10, 9, 26, 7, 8, 7, 16, 13, 26, 1, 33]}'

    The commit assigns new ids to the remaining rows if the sequence is shorter than the fragment.
    """

    def __init__(self, row_ids: range | pa.Array | pa.ChunkedArray | Iterable[int]) -> None:
        """Store unique ids."""
        self._ids = _numbers(row_ids)
        unique, counts = np.unique(self._ids, return_counts=True)
        if len(unique) != len(self._ids):
            twice = int(unique[counts > 1][0])
            raise InvalidInputError(
                "Row ids must be unique, but one appears more than once",
                row_id=twice,
                num_ids=len(self._ids),
            )

    @staticmethod
    def from_inline_metadata(metadata: RowIdMeta) -> RowIdSequence:
        """Return the ids stored inline in fragment metadata."""
        stored = sequence_from_json(metadata.asdict())
        if not isinstance(stored, Inline):
            raise UnsupportedError("row ids in external files are not supported")
        return RowIdSequence(sequence.RowIdSequence.parse(stored.data).to_array())

    def to_inline_metadata(self) -> RowIdMeta:
        """Return the ids in the inline form of fragment metadata."""
        stored = Inline(sequence.RowIdSequence.of(self._ids).render())
        return RowIdMeta(row_ids_to_json(stored))

    def to_pyarrow(self) -> pa.Array:
        """Return the ids as a `uint64` array."""
        return pa.array(self._ids, pa.uint64())

    def __len__(self) -> int:
        """Return the number of ids."""
        return len(self._ids)

    def __iter__(self) -> RowIdSequenceIterator:
        """Iterate over the ids."""
        return RowIdSequenceIterator(self._ids.tolist())

    def __eq__(self, other: object) -> bool:
        """Compare the ids and their order."""
        return isinstance(other, RowIdSequence) and np.array_equal(self._ids, other._ids)

    def __hash__(self) -> int:
        """Return a hash of the ids."""
        return hash(self._ids.tobytes())

    def __repr__(self) -> str:
        """Show the first ids."""
        if len(self._ids) <= _SHOWN:
            return f"RowIdSequence({self._ids.tolist()})"
        first = ", ".join(map(str, self._ids[:_SHOWN].tolist()))
        return f"RowIdSequence([{first}, ...], len={len(self._ids)})"


def serialize_row_addrs(addrs: Iterable[int]) -> bytes:
    """Serialize row ids for `row_addr_allowlist` and `row_addr_blocklist` of a scan."""
    return RowSet.of(_numbers(addrs)).render()


def _numbers(given: Any) -> UInt64s:
    if isinstance(given, range) and given.step == 1 and given.start >= 0:
        return np.arange(given.start, max(given.start, given.stop), dtype=np.uint64)
    if isinstance(given, np.ndarray) and given.dtype == np.uint64:
        return given
    if isinstance(given, pa.Array | pa.ChunkedArray):
        if not pa.types.is_integer(given.type):
            raise RowIdTypeError(f"Row ids must be an array of integers, got {given.type}")
        if given.null_count:
            raise RowIdTypeError("Row ids must not be null", nulls=given.null_count)
        given = given.to_pylist()
    if not isinstance(given, Iterable):
        raise RowIdTypeError(f"Row ids must be an iterable of integers, got {type(given)}")
    try:
        numbers = [operator.index(each) for each in given]
    except TypeError as error:
        raise RowIdTypeError("Row ids must be an iterable of integers") from error
    outside = next((each for each in numbers if not 0 <= each <= _ID_MAX), None)
    if outside is not None:
        raise RowIdRangeError("Row ids must be non-negative and fit uint64", found=outside)
    return np.array(numbers, np.uint64)
