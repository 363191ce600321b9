"""Looking up dictionaries, by definition and natively."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.errors import CorruptDataError
from lancelet.kernels import OffsetOverflowError

WIDTHS = st.sampled_from([1, 2, 3, 4, 8, 16, 32])
INDICES = st.sampled_from([np.uint8, np.uint16, np.uint32, np.uint64])


@given(width=WIDTHS, dtype=INDICES, count=st.integers(0, 300), known=st.integers(1, 200))
def test_every_value_is_the_item_at_its_index(agree, width, dtype, count, known) -> None:
    rng = np.random.default_rng(count)
    items = rng.integers(0, 256, (known, width), np.uint8)
    indices = rng.integers(0, known, count).astype(dtype)
    found = agree("lookup_fixed", items.reshape(-1), width, indices)
    assert found.reshape(count, width).tolist() == items[indices.astype(int)].tolist()


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.uint64])
@pytest.mark.parametrize("known", [0, 3])
def test_an_index_after_the_last_item_is_rejected(agree, dtype, known) -> None:
    indices = np.array([0, known, np.iinfo(dtype).max], dtype)
    items = np.zeros(known * 4, np.uint8)
    assert agree("lookup_fixed", items, 4, indices) is CorruptDataError


def test_unaligned_bytes_are_looked_up(agree) -> None:
    source = np.arange(33, dtype=np.uint8)
    assert agree("lookup_fixed", source[1:], 8, np.array([3], np.uint8)).tolist() == list(
        range(25, 33)
    )


@given(
    words=st.sampled_from([16, 32, 40]).flatmap(
        lambda size: st.lists(st.binary(max_size=size), min_size=1, max_size=30)
    ),
    dtype=INDICES,
    offset=st.sampled_from([np.int32, np.int64]),
    count=st.integers(0, 300),
)
def test_every_string_is_the_item_at_its_index(agree, words, dtype, offset, count) -> None:
    offsets = np.cumsum([2, *(len(word) for word in words)]).astype(offset)
    data = np.frombuffer(b"--" + b"".join(words), np.uint8)
    indices = np.random.default_rng(count).integers(0, len(words), count).astype(dtype)
    found, out = agree("lookup_variable", offsets, data, indices)
    values = [out[start:stop].tobytes() for start, stop in itertools.pairwise(found)]
    assert values == [words[index] for index in indices]


@given(st.integers(1, 20), st.integers(1, 5), st.integers(0, 40), st.booleans())
def test_strings_of_one_size_are_looked_up_identically(agree, known, size, count, has_bad) -> None:
    offsets = (np.arange(known + 1) * size + 2).astype(np.int32)
    data = np.arange(known * size + 2).astype(np.uint8)
    indices = np.random.default_rng(count).integers(0, known + has_bad, count).astype(np.uint16)
    found = agree("lookup_variable", offsets, data, indices)
    assert (found is CorruptDataError) == bool((indices == known).any())


@pytest.mark.parametrize("repeats", [1, 50])
@pytest.mark.parametrize("offsets", [[0, 3, 2, 9], [0, 2, 3, 11], [-1, 2, 3, 9]])
def test_offsets_that_leave_the_data_are_rejected(agree, offsets, repeats) -> None:
    data = np.zeros(10, np.uint8)
    indices = np.tile(np.array([0, 1, 2], np.uint16), repeats)
    found = agree("lookup_variable", np.array(offsets, np.int32), data, indices)
    assert found is CorruptDataError


def test_more_than_32_bits_can_count_are_rejected(agree) -> None:
    data = np.zeros(1 << 20, np.uint8)
    indices = np.zeros(1 << 11, np.uint8)
    found = agree("lookup_variable", np.array([0, 1 << 20], np.int32), data, indices)
    assert found is OffsetOverflowError


def test_no_items_have_no_values(agree) -> None:
    empty = np.empty(0, np.uint8)
    assert agree("lookup_variable", np.zeros(1, np.int32), empty, empty)[0].tolist() == [0]
    some = np.zeros(1, np.uint8)
    assert agree("lookup_variable", np.zeros(1, np.int32), empty, some) is CorruptDataError
