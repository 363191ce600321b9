"""Filters of inserted keys, by which two upserts notice that they inserted the same row.

An upsert records the keys that it inserted, exactly or as a Bloom filter, and a concurrent one
compares. A filter may claim a key it never saw, never the reverse.

The Bloom filter is the one of `split_block`, over the XXH64 of a key's bytes: integers as 64-bit
little-endian, text as UTF-8, binary as it is. A key of several columns is their bytes one after
another, each followed by a zero byte.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from lancelet.errors import CorruptDataError, InvalidInputError
from lancelet.format.protos import transaction_pb
from lancelet.format.split_block import Hashes, build_filter
from lancelet.format.wire import unknown_fields
from lancelet.kernels import ask_filters
from lancelet.values import dataclass

BLOOM_ITEMS: Final = 8192
BLOOM_PROBABILITY: Final = 0.00057
BLOOM_BITS: Final = 262_144

_BLOCK_WORDS: Final = 8
_BLOCK_BITS: Final = 256


@dataclass(frozen=True, slots=True)
class ExactKeys:
    """The hashes of all keys."""

    hashes: frozenset[int]


@dataclass(frozen=True, slots=True)
class BloomFilter:
    """A split-block Bloom filter and the parameters it was made with."""

    bitmap: bytes
    num_bits: int = BLOOM_BITS
    number_of_items: int = BLOOM_ITEMS
    probability: float = BLOOM_PROBABILITY

    @staticmethod
    def of(hashes: Hashes, num_bits: int = BLOOM_BITS) -> BloomFilter:
        """Return a filter that holds these hashes.

        >>> BloomFilter.of(np.array([7], np.uint64)).may_hold(np.array([7, 8], np.uint64))
        array([ True, False])
        """
        if num_bits <= 0 or num_bits % _BLOCK_BITS:
            raise InvalidInputError("a filter is made of blocks of 256 bits", num_bits=num_bits)
        return BloomFilter(build_filter(hashes, num_bits // 8), num_bits)

    def may_hold(self, hashes: Hashes) -> npt.NDArray[np.bool_]:
        """Return for each hash whether the filter may hold it; False is certain."""
        whole = np.frombuffer(self.bitmap, np.uint8)
        hits = ask_filters(whole, np.zeros(1, np.int64), np.array([len(whole)]), hashes)
        return hits.reshape(-1)

    def may_intersect(self, other: BloomFilter) -> bool:
        """Return whether both may hold one key; filters of other parameters may."""
        parameters = (self.num_bits, self.number_of_items, self.probability)
        if parameters != (other.num_bits, other.number_of_items, other.probability):
            return True
        # A shared key has a bit in each word of its block.
        shared = (self._words() & other._words()).reshape(-1, _BLOCK_WORDS)
        return bool((shared != 0).all(axis=1).any())

    def _words(self) -> npt.NDArray[np.uint32]:
        return np.frombuffer(self.bitmap, "<u4")


@dataclass(frozen=True, slots=True)
class UnknownKeys:
    """A filter of a kind that a later release wrote; it may hold any key."""

    wire: bytes


@dataclass(frozen=True, slots=True)
class KeyFilter:
    """The keys that an operation inserted into the columns `field_ids`."""

    field_ids: tuple[int, ...]
    keys: ExactKeys | BloomFilter | UnknownKeys

    @property
    def is_empty(self) -> bool:
        """Whether it is certain that no key was inserted."""
        match self.keys:
            case ExactKeys(hashes):
                return not hashes
            case BloomFilter(bitmap):
                return bitmap.count(0) == len(bitmap)
        return False

    def may_intersect(self, other: KeyFilter) -> bool:
        """Return whether both operations may have inserted one key."""
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
                return bool(bloom.may_hold(np.fromiter(hashes, np.uint64, len(hashes))).any())
        return True


def key_filter_from_proto(proto: transaction_pb.Transaction.KeyFilter) -> KeyFilter:
    """Return the filter of a message."""
    match proto.WhichOneof("filter"):
        case "exact":
            return KeyFilter(tuple(proto.field_ids), ExactKeys(frozenset(proto.exact.key_hashes)))
        case "bloom":
            bloom = proto.bloom
            if bloom.num_bits % _BLOCK_BITS or bloom.num_bits != 8 * len(bloom.bitmap):
                raise CorruptDataError(
                    "a Bloom filter is not as long as it says",
                    num_bits=bloom.num_bits,
                    found_bits=8 * len(bloom.bitmap),
                )
            return KeyFilter(
                tuple(proto.field_ids),
                BloomFilter(bloom.bitmap, bloom.num_bits, bloom.number_of_items, bloom.probability),
            )
    return KeyFilter(tuple(proto.field_ids), UnknownKeys(unknown_fields(proto)))


def key_filter_to_proto(keys: KeyFilter) -> transaction_pb.Transaction.KeyFilter:
    """Return the message of a filter."""
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
