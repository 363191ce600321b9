"""Laws of row sets: they are sets of addresses, with whole fragments written short."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.errors import CorruptDataError, InvalidInputError
from lancelet.rowids.address import group_by_fragment, row_address
from lancelet.rowids.selection import NO_ROWS, RowMask, RowSet

ROWS = {0: 4, 1: 3, 7: 5}
EVERY = [row_address(part, offset) for part, rows in ROWS.items() for offset in range(rows)]
ADDRESSES = np.array(EVERY, np.uint64)
SETS = st.tuples(st.sets(st.sampled_from(EVERY)), st.sets(st.sampled_from(list(ROWS)))).map(
    lambda c: RowSet.of(np.array(sorted(c[0]), np.uint64)) | RowSet.of_fragments(c[1])
)


def members(rows: RowSet) -> set[int]:
    return set(rows.addresses(ROWS).tolist())


@given(SETS, SETS)
def test_operations_are_those_of_sets(one, other):
    assert members(one | other) == members(one) | members(other)
    assert members(one & other) == members(one) & members(other)
    assert members(one.minus(other, ROWS)) == members(one) - members(other)
    assert one.contains(ADDRESSES).tolist() == [address in members(one) for address in EVERY]
    assert one.num_rows(ROWS) == len(members(one))
    assert bool(one) == bool(members(one))
    assert members(one.restricted([0, 9])) == {a for a in members(one) if a < 1 << 32}


@given(SETS)
def test_the_stored_form_gives_the_set_back(rows):
    assert RowSet.parse(rows.render()) == rows


@given(SETS, SETS, SETS)
def test_a_mask_admits_allowed_rows_without_blocked_ones(allowed, blocked, more):
    admits = RowMask(allowed, blocked).admits(ADDRESSES)
    assert admits.tolist() == [a in members(allowed) - members(blocked) for a in EVERY]
    both = RowMask(allowed, blocked) & RowMask(more) & RowMask(None, more)
    assert not both.admits(ADDRESSES).any()
    assert RowMask().admits(ADDRESSES).all()


@given(st.binary(max_size=40))
def test_arbitrary_bytes_are_a_set_or_corrupt(data):
    try:
        rows = RowSet.parse(data)
    except CorruptDataError:
        return
    assert RowSet.parse(rows.render()) == rows


def test_the_empty_set_is_four_zero_bytes():
    assert NO_ROWS.render() == bytes(4)
    assert not NO_ROWS.contains(ADDRESSES).any()
    assert len(NO_ROWS.addresses(ROWS)) == 0


@given(st.lists(st.sampled_from(EVERY)))
def test_groups_name_every_place_once(addresses):
    groups = group_by_fragment(np.array(addresses, np.uint64))
    positions = sorted(int(place) for part in groups.values() for place in part)
    assert positions == list(range(len(addresses)))
    for part, where in groups.items():
        assert {addresses[place] >> 32 for place in where} == {part}


def test_an_address_has_two_halves_of_32_bits():
    with pytest.raises(InvalidInputError):
        row_address(1 << 32, 0)
