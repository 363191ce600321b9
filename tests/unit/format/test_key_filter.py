"""Laws of key filters: no key is ever missed, and shared keys are always noticed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.errors import CorruptDataError, InvalidInputError
from lancelet.format.key_filter import (
    BloomFilter,
    ExactKeys,
    KeyFilter,
    key_filter_from_proto,
    key_filter_to_proto,
)
from lancelet.format.protos import transaction_pb

HASHES = st.sets(st.integers(0, 2**64 - 1), max_size=30)


def array(hashes) -> np.ndarray:
    return np.array(sorted(hashes), np.uint64)


@given(HASHES)
def test_a_filter_contains_its_keys(hashes):
    assert BloomFilter.of(array(hashes)).may_contain(array(hashes)).all()


@given(HASHES, HASHES)
def test_a_shared_key_is_always_noticed(one, other):
    forms = [
        [KeyFilter((0,), ExactKeys(frozenset(s))), KeyFilter((0,), BloomFilter.of(array(s)))]
        for s in (one, other)
    ]
    for mine in forms[0]:
        for theirs in forms[1]:
            assert mine.may_intersect(theirs) or not one & other
    assert forms[0][0].may_intersect(forms[1][0]) == bool(one & other)


def test_few_keys_are_compared_exactly():
    rng = np.random.default_rng(0)
    one, other = (BloomFilter.of(rng.integers(0, 2**63, 40).astype(np.uint64)) for _ in range(2))
    assert not one.may_intersect(other)
    strangers = rng.integers(0, 2**63, 10_000).astype(np.uint64)
    assert one.may_contain(strangers).mean() < 0.001


def test_filters_that_cannot_be_compared_may_intersect():
    keys = ExactKeys(frozenset({1}))
    assert KeyFilter((0,), keys).may_intersect(KeyFilter((1,), ExactKeys(frozenset({2}))))
    small = KeyFilter((0,), BloomFilter.of(array({1}), num_bits=512))
    assert small.may_intersect(KeyFilter((0,), BloomFilter.of(array({2}))))


@pytest.mark.parametrize("num_bits", [0, 100, -256])
def test_a_filter_is_made_of_blocks(num_bits):
    with pytest.raises(InvalidInputError):
        BloomFilter.of(array({1}), num_bits=num_bits)


@pytest.mark.parametrize(("bitmap", "num_bits"), [(bytes(64), 256), (bytes(8), 64), (b"", 256)])
def test_a_filter_of_the_wrong_length_is_corrupt(bitmap, num_bits):
    proto = transaction_pb.Transaction.KeyFilter()
    proto.bloom.bitmap, proto.bloom.num_bits = bitmap, num_bits
    with pytest.raises(CorruptDataError):
        key_filter_from_proto(proto)


@given(HASHES)
def test_the_message_gives_the_filter_back(hashes):
    for keys in (ExactKeys(frozenset(hashes)), BloomFilter.of(array(hashes), num_bits=512)):
        filters = KeyFilter((3, 1), keys)
        assert key_filter_from_proto(key_filter_to_proto(filters)) == filters
