"""Addresses in order, however they lie."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lancelet.change.merge.join import Matches
from lancelet.rowids.address import distinct

NEAR = st.integers(5, 90).map(lambda offset: (3 << 32) + offset)
ANYWHERE = st.integers(0, 2**64 - 1)


@given(st.one_of(st.lists(NEAR), st.lists(ANYWHERE), st.lists(NEAR | ANYWHERE)))
def test_each_address_is_there_once_in_ascending_order(numbers):
    found = distinct(np.array(numbers, np.uint64))
    assert found.dtype == np.uint64
    assert found.tolist() == sorted(set(numbers))


@given(st.lists(st.integers(0, 20)), st.booleans())
def test_matches_are_by_source_row_and_those_of_one_row_keep_their_order(rows, is_unique):
    rows = list(dict.fromkeys(rows)) if is_unique else rows
    matches = Matches.of(np.array(rows, np.int64), np.arange(len(rows), dtype=np.uint64))
    expected = sorted(zip(rows, range(len(rows)), strict=True))
    assert list(zip(matches.rows.tolist(), matches.addresses.tolist(), strict=True)) == expected
