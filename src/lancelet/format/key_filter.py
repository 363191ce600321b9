"""Filters of inserted keys, by which two upserts notice that they inserted the same row.

An upsert records the keys that it inserted, exactly or as a Bloom filter, and a concurrent one
compares. A filter may claim a key it never saw, never the reverse.

The Bloom filter is Parquet's: blocks of eight 32-bit words. The upper half of a key's hash picks
the block, the lower half sets one bit in each word:

    h = XXH64(key bytes)    block = (h >> 32) * blocks >> 32    bit i = (h * SALT[i]) mod 2^32 >> 27

The bytes of a key: integers as 64-bit little-endian, text as UTF-8, binary as it is. A key of
several columns is their bytes one after another, each followed by a zero byte.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from lancelet.errors import CorruptDataError, InvalidInputError
from lancelet.format.protos import transaction_pb
from lancelet.format.wire import unknown_fields

Hashes: TypeAlias = npt.NDArray[np.uint64]

BLOOM_ITEMS: Final = 8192
BLOOM_PROBABILITY: Final = 0.00057
BLOOM_BITS: Final = 262_144

_BLOCK_WORDS: Final = 8
_BLOCK_BITS: Final = 256
_HALF: Final = np.uint64(32)
_LOW: Final = np.uint64(0xFFFF_FFFF)
_SALT: Final = np.array(
    [
        0x47B6137B,
        0x44974D91,
        0x8824AD5B,
        0xA2B7289D,
        0x705495C7,
        0x2DF1424B,
        0x9EFC4947,
        0x5C6BFB31,
    ],
    np.uint64,
)


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
        words = np.zeros(num_bits // 32, np.uint32)
        places, bits = _places(hashes, num_bits)
        np.bitwise_or.at(words, places, bits)
        return BloomFilter(words.astype("<u4").tobytes(), num_bits)

    def may_hold(self, hashes: Hashes) -> npt.NDArray[np.bool_]:
        """Return for each hash whether the filter may hold it; False is certain."""
        places, bits = _places(hashes, self.num_bits)
        hits: npt.NDArray[np.bool_] = (self._words()[places] & bits != 0).all(axis=1)
        return hits

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


def _places(hashes: Hashes, num_bits: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint32]]:
    """Return for each hash the eight words it concerns, and its bit in each."""
    blocks = np.uint64(num_bits // _BLOCK_BITS)
    block = (((hashes >> _HALF) * blocks) >> _HALF).astype(np.int64)
    words = block[:, None] * _BLOCK_WORDS + np.arange(_BLOCK_WORDS)
    with np.errstate(over="ignore"):
        product = ((hashes & _LOW)[:, None] * _SALT[None, :]) & _LOW
    return words, (np.uint64(1) << (product >> np.uint64(27))).astype(np.uint32)
