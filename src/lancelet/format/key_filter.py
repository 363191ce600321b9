"""Filters of inserted keys, used by concurrent upserts to detect that they inserted the same row.

An upsert records its inserted keys, exactly or as a Bloom filter, and a concurrent upsert compares
them. A filter may report false positives, but no false negatives.

The Bloom filter is a split-block filter (`split_block`) over the XXH64 hash of the key bytes:
integers as 64-bit little-endian, text as UTF-8, binary unchanged. A key of several columns is the
concatenation of their bytes, each followed by a zero byte.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from lancelet.errors import CorruptDataError, InvalidInputError
from lancelet.format.protos import transaction_pb
from lancelet.format.split_block import Hashes, build_filter
from lancelet.format.wire import unknown_fields
from lancelet.kernels import probe_filters
from lancelet.values import dataclass

BLOOM_ITEMS: Final = 8192
BLOOM_PROBABILITY: Final = 0.00057
BLOOM_BITS: Final = 262_144

_BLOCK_WORDS: Final = 8
_BLOCK_BITS: Final = 256


@dataclass(frozen=True, slots=True)
class ExactKeys:
    """The exact set of key hashes."""

    hashes: frozenset[int]


@dataclass(frozen=True, slots=True)
class BloomFilter:
    """A split-block Bloom filter and its parameters."""

    bitmap: bytes
    num_bits: int = BLOOM_BITS
    number_of_items: int = BLOOM_ITEMS
    probability: float = BLOOM_PROBABILITY

    @staticmethod
    def of(hashes: Hashes, num_bits: int = BLOOM_BITS) -> BloomFilter:
        """Build a filter from hashes.

        >>> BloomFilter.of(np.array([7], np.uint64)).may_contain(np.array([7, 8], np.uint64))
        array([ True, False])
        """
        if num_bits <= 0 or num_bits % _BLOCK_BITS:
            raise InvalidInputError(
                "the size of a Bloom filter must be a multiple of 256 bits", num_bits=num_bits
            )
        return BloomFilter(build_filter(hashes, num_bits // 8), num_bits)

    def may_contain(self, hashes: Hashes) -> npt.NDArray[np.bool_]:
        """Return a mask of the hashes that may be in the filter; False is certain."""
        whole = np.frombuffer(self.bitmap, np.uint8)
        hits = probe_filters(whole, np.zeros(1, np.int64), np.array([len(whole)]), hashes)
        return hits.reshape(-1)

    def may_intersect(self, other: BloomFilter) -> bool:
        """Return whether the filters may share a key; True if their parameters differ."""
        parameters = (self.num_bits, self.number_of_items, self.probability)
        if parameters != (other.num_bits, other.number_of_items, other.probability):
            return True
        # A shared key sets a bit in each word of its block.
        shared = (self._machine_words() & other._machine_words()).reshape(-1, _BLOCK_WORDS)
        return bool((shared != 0).all(axis=1).any())

    def _machine_words(self) -> npt.NDArray[np.uint32]:
        return np.frombuffer(self.bitmap, "<u4")


@dataclass(frozen=True, slots=True)
class UnknownKeys:
    """A filter type of a later release; it may contain any key."""

    wire: bytes


@dataclass(frozen=True, slots=True)
class KeyFilter:
    """The keys that an operation inserted into the columns `field_ids`."""

    field_ids: tuple[int, ...]
    keys: ExactKeys | BloomFilter | UnknownKeys

    @property
    def is_empty(self) -> bool:
        """Whether certainly no key was inserted."""
        match self.keys:
            case ExactKeys(hashes):
                return not hashes
            case BloomFilter(bitmap):
                return bitmap.count(0) == len(bitmap)
        return False

    def may_intersect(self, other: KeyFilter) -> bool:
        """Return whether both operations may have inserted the same key."""
        if self.is_empty or other.is_empty:
            return False
        if self.field_ids != other.field_ids:
            return True
        match self.keys, other.keys:
            case ExactKeys(mine), ExactKeys(theirs):
                return not mine.isdisjoint(theirs)
            case BloomFilter() as mine, BloomFilter() as theirs:
                return mine.may_intersect(theirs)
            case (BloomFilter() as bloom, ExactKeys(hashes)) | (
                ExactKeys(hashes),
                BloomFilter() as bloom,
            ):
                return bool(bloom.may_contain(np.fromiter(hashes, np.uint64, len(hashes))).any())
        return True


def key_filter_from_proto(proto: transaction_pb.Transaction.KeyFilter) -> KeyFilter:
    """Convert a protobuf message to a filter."""
    match proto.WhichOneof("filter"):
        case "exact":
            return KeyFilter(tuple(proto.field_ids), ExactKeys(frozenset(proto.exact.key_hashes)))
        case "bloom":
            bloom = proto.bloom
            if bloom.num_bits % _BLOCK_BITS or bloom.num_bits != 8 * len(bloom.bitmap):
                raise CorruptDataError(
                    "the bitmap of a Bloom filter does not match its recorded size",
                    num_bits=bloom.num_bits,
                    found_bits=8 * len(bloom.bitmap),
                )
            return KeyFilter(
                tuple(proto.field_ids),
                BloomFilter(bloom.bitmap, bloom.num_bits, bloom.number_of_items, bloom.probability),
            )
    return KeyFilter(tuple(proto.field_ids), UnknownKeys(unknown_fields(proto)))


def key_filter_to_proto(keys: KeyFilter) -> transaction_pb.Transaction.KeyFilter:
    """Convert a filter to a protobuf message."""
    proto = transaction_pb.Transaction.KeyFilter(field_ids=keys.field_ids)
    match keys.keys:
        case ExactKeys(hashes):
            proto.exact.SetInParent()
            proto.exact.key_hashes.extend(sorted(hashes))
        case BloomFilter(bitmap, num_bits, number_of_items, probability):
            proto.bloom.bitmap = bitmap
            proto.bloom.num_bits = num_bits
            proto.bloom.number_of_items = number_of_items
            proto.bloom.probability = probability
        case UnknownKeys(wire):
            proto.MergeFromString(wire)
    return proto
