"""Strings are searched and compared as Python compares bytes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.errors import CorruptDataError

ALPHABET = st.sampled_from([b"a", b"b", b"\x00", b"\xff", b"\xc3\xa9"])
TEXT = st.lists(ALPHABET, max_size=90).map(b"".join) | st.lists(ALPHABET, max_size=3).map(b"".join)


def arrow(texts, dtype, before=0):
    sizes = np.array([before, *map(len, texts)])
    return np.cumsum(sizes).astype(dtype), np.frombuffer(b"b" * before + b"".join(texts), np.uint8)


@given(
    texts=st.lists(TEXT, max_size=12),
    part=TEXT,
    dtype=st.sampled_from([np.int32, np.int64]),
    before=st.integers(0, 3),
)
def test_strings_are_compared_as_bytes(agree, texts, part, dtype, before):
    offsets, data = arrow(texts, dtype, before)
    for constant in (part, *texts[:2]):
        found = agree("contain_bytes", offsets, data, constant)
        assert found.tolist() == [constant in text for text in texts]
        order = agree("compare_bytes", offsets, data, constant)
        assert order.tolist() == [1 + (text > constant) - (text < constant) for text in texts]


@pytest.mark.parametrize("offsets", [[0, 9], [2, 1, 3], [-1, 2]])
@pytest.mark.parametrize("kernel", ["contain_bytes", "compare_bytes"])
def test_damaged_offsets_are_found(agree, kernel, offsets):
    data = np.zeros(4, np.uint8)
    assert agree(kernel, np.array(offsets, np.int32), data, b"a") is CorruptDataError
