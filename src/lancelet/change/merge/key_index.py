"""A hash index of the source keys, which is probed with batches of table keys.

    source keys   7  3  null  7        index.find([3, 9, 7, null])     0 -> 1, 2 -> 0

If several source rows have the same key, the first one is found. A null key never matches. Hashes
of keys of up to eight bytes are bijective, so that equal hashes imply equal keys. The bytes of
longer keys are compared, and hash collisions are resolved by an exact search.

Numbers outside the range of the source keys are not hashed:

    source keys   900 to 999     table   0 1 .. 950 ..     only 950 and its neighbors are probed
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lancelet import surroundings
from lancelet.buffers import Int64s
from lancelet.change.merge.key_bytes import (
    Bools,
    integer_keys,
    key_bytes,
    key_validity,
    variable_buffers,
)
from lancelet.kernels import bucket_rows, match_hashes, mix_integers, xxh64_many
from lancelet.rowids.address import UInt64s
from lancelet.values import dataclass

Int32s: TypeAlias = npt.NDArray[np.int32]

_BITS_MAX: Final = 30
_BLOCK_ROWS: Final = 1 << 19
_SEED: Final = surroundings.random_bits(64)
"""A random hash seed, so that keys cannot be chosen to collide."""


@dataclass(frozen=True, slots=True, eq=False)
class Keys:
    """Keys of rows: hashes, validity, and the bytes if hashes are not unique."""

    hashes: UInt64s
    stored: pa.LargeBinaryArray | None
    valid: Bools | None
    span: tuple[np.uint64, np.uint64] | None = None
    """The minimum and maximum of numeric keys, if requested."""

    def __len__(self) -> int:
        """Return the number of keys."""
        return len(self.hashes)

    @property
    def nbytes(self) -> int:
        """The size in memory."""
        return self.hashes.nbytes + (0 if self.stored is None else self.stored.nbytes)

    @staticmethod
    def of(columns: Sequence[pa.Array], *, with_span: bool = False) -> Keys:
        """Create keys from columns."""
        valid = key_validity(columns)
        integers = integer_keys(columns)
        if integers is not None:
            span = (integers.min(), integers.max()) if with_span and len(integers) else None
            return Keys(mix_integers(integers, _SEED), None, valid, span)
        stored = key_bytes(columns)
        return Keys(xxh64_many(*variable_buffers(stored), _SEED), stored, valid)

    def slice(self, start: int, num_rows: int) -> Keys:
        """Return the keys of some rows, without copies."""
        rows = slice(start, start + num_rows)
        stored = None if self.stored is None else self.stored.slice(start, num_rows)
        return Keys(self.hashes[rows], stored, None if self.valid is None else self.valid[rows])

    @staticmethod
    def concat(parts: Sequence[Keys]) -> Keys:
        """Concatenate keys of the same type."""
        hashes = np.concatenate([np.empty(0, np.uint64), *(part.hashes for part in parts)])
        stored = [part.stored for part in parts if part.stored is not None]
        valid = None
        if any(part.valid is not None for part in parts):
            valid = np.concatenate(
                [np.ones(len(p), np.bool_) if p.valid is None else p.valid for p in parts]
            )
        ranges = [part.span for part in parts if part.span is not None]
        span = None
        if ranges and len(ranges) == len(parts):
            span = min(low for low, _ in ranges), max(high for _, high in ranges)
        return Keys(hashes, pa.concat_arrays(stored) if stored else None, valid, span)


@dataclass(frozen=True, slots=True, eq=False)
class KeyIndex:
    """Finds keys in a set of keys."""

    keys: Keys
    _starts: Int32s = field(repr=False)
    _ordered: UInt64s = field(repr=False)
    _rows: Int32s = field(repr=False)

    @staticmethod
    def build(keys: Keys) -> KeyIndex:
        """Build an index of keys without nulls."""
        hashes, own = keys.hashes, None
        if keys.valid is not None:
            own = np.flatnonzero(keys.valid).astype(np.int32)
            hashes = hashes[own]
        bits = min(_BITS_MAX, max(1, len(hashes).bit_length()))
        starts, rows = bucket_rows(hashes, bits)
        return KeyIndex(keys, starts, hashes[rows], rows if own is None else own[rows])

    def find(self, keys: Keys) -> tuple[Int64s, Int64s]:
        """Return the indices of the `keys` that are found, and the first row with each."""
        slots = match_hashes(self._starts, self._ordered, keys.hashes)
        hit = slots >= 0
        if keys.valid is not None:
            hit &= keys.valid
        indices = np.flatnonzero(hit)
        rows = self._rows[slots[indices]].astype(np.int64)
        if keys.stored is None or not len(indices):
            return indices, rows
        return self._checked(keys.stored, indices, rows)

    def find_rows(self, columns: Sequence[pa.Array]) -> tuple[Int64s, Int64s]:
        """Find the keys of rows, and only hash keys in the range of the index."""
        integers = None if self.keys.span is None else integer_keys(columns)
        if self.keys.span is None or integers is None:
            return self.find(Keys.of(columns))
        low, high = self.keys.span
        near = integers - low <= high - low
        if 2 * np.count_nonzero(near) > len(integers):
            return self.find(Keys.of(columns))
        indices = np.flatnonzero(near)
        valid = key_validity(columns)
        hashes = mix_integers(integers[indices], _SEED)
        found, rows = self.find(Keys(hashes, None, None if valid is None else valid[indices]))
        return indices[found], rows

    def repeats(self) -> tuple[Int64s, Int64s]:
        """Return the rows with the key of an earlier row, and the first row with each key.

        Null keys are never equal.
        """
        repeated, first = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for start in range(0, len(self.keys), _BLOCK_ROWS):
            indices, rows = self.find(self.keys.slice(start, _BLOCK_ROWS))
            indices += start
            is_later = indices != rows
            repeated.append(indices[is_later])
            first.append(rows[is_later])
        return np.concatenate(repeated), np.concatenate(first)

    def _checked(
        self, probe_keys: pa.LargeBinaryArray, indices: Int64s, rows: Int64s
    ) -> tuple[Int64s, Int64s]:
        """Return the hash matches with equal bytes."""
        assert self.keys.stored is not None
        theirs = self.keys.stored.take(pa.array(rows))
        same = pc.equal(theirs, probe_keys.take(pa.array(indices))).to_numpy(zero_copy_only=False)
        if same.all():
            return indices, rows
        other = np.flatnonzero(~same)
        rows[other] = self._find_exactly(probe_keys.take(pa.array(indices[other])))
        is_found = rows >= 0
        return indices[is_found], rows[is_found]

    def _find_exactly(self, probe_keys: pa.LargeBinaryArray) -> Int64s:
        """Return the first row with each key, or -1, without using hashes."""
        value_set = self.keys.stored
        if self.keys.valid is not None:
            value_set = pc.if_else(
                pa.array(self.keys.valid), value_set, pa.scalar(None, pa.large_binary())
            )
        found: Int64s = pc.fill_null(pc.index_in(probe_keys, value_set=value_set), -1).to_numpy()
        return found
