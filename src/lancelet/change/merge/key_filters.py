"""The Bloom filter of inserted keys in a merge commit, which detects concurrent inserts of a key.

Every merge commits a filter; it is empty if the merge inserts nothing, so that other commits need
no comparison. If the format defines no hash for the key types, the filter is saturated and contains
every key: a false conflict costs a retry, but a missed conflict causes duplicates.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.change.merge.key_bytes import key_validity, variable_buffers
from lancelet.change.merge.key_columns import KeyColumns
from lancelet.format.key_filter import BLOOM_BITS, BloomFilter, KeyFilter
from lancelet.format.split_block import Hashes
from lancelet.kernels import xxh64_many

_END = b"\x00"


class InsertedKeys:
    """Collects the keys of inserted rows."""

    def __init__(self, key: KeyColumns) -> None:
        """Create an empty filter."""
        self._key = key
        self._bitmap = np.zeros(BLOOM_BITS // 8, np.uint8)
        self._is_full = False

    def add(self, rows: pa.RecordBatch) -> None:
        """Add the keys of rows, except null keys, which are never equal."""
        if self._is_full:
            return
        columns = self._key.of_rows(rows)
        valid = key_validity(columns)
        if valid is not None:
            columns = [column.filter(pa.array(valid)) for column in columns]
        if not len(columns[0]):
            return
        hashes = filter_hashes(columns)
        if hashes is None:
            self._bitmap[:] = 0xFF
        else:
            self._bitmap |= np.frombuffer(BloomFilter.of(hashes).bitmap, np.uint8)
        self._is_full = bool((self._bitmap == 0xFF).all())

    def filter(self) -> KeyFilter:
        """Return the filter."""
        return KeyFilter(self._key.field_ids, BloomFilter(self._bitmap.tobytes()))


def filter_hashes(columns: Sequence[pa.Array]) -> Hashes | None:
    """Return the hashes of keys without nulls, or None for unsupported types."""
    parts = [_filter_bytes(column) for column in columns]
    encoded = [part for part in parts if part is not None]
    if len(encoded) < len(parts):
        return None
    if len(encoded) > 1:
        end, empty = (pa.scalar(each, pa.large_binary()) for each in (_END, b""))
        ended = [each for part in encoded for each in (part, end)]
        encoded = [pc.binary_join_element_wise(*ended, empty)]
    return xxh64_many(*variable_buffers(encoded[0]))


def _filter_bytes(column: pa.Array) -> pa.LargeBinaryArray | None:
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    data_type = column.type
    if pa.types.is_dictionary(data_type):
        return _filter_bytes(column.cast(data_type.value_type))
    if pa.types.is_integer(data_type):
        wide = pa.uint64() if pa.types.is_unsigned_integer(data_type) else pa.int64()
        numbers = column.cast(wide).to_numpy().view(np.uint8)
        offsets = np.arange(len(column) + 1, dtype=np.int64) * 8
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(numbers)]
        return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(column), buffers)
    if pa.types.is_string(data_type) or pa.types.is_large_string(data_type):
        return column.cast(pa.large_binary())
    if pa.types.is_binary(data_type) or pa.types.is_large_binary(data_type):
        return column.cast(pa.large_binary())
    return None
