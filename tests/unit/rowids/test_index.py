"""Laws of the row id index: every live row is found where it is, and no other."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.errors import CorruptDataError
from lancelet.rowids.address import NO_ADDRESS, row_address
from lancelet.rowids.deletion import DeletionVector
from lancelet.rowids.index import RowIdIndex
from lancelet.rowids.segment import Range, segment_of
from lancelet.rowids.sequence import RowIdSequence


@st.composite
def tables(draw):
    """Fragments whose live rows have distinct ids; deleted rows may share one with any."""
    ids = draw(st.permutations(range(draw(st.integers(0, 60)))))
    if draw(st.booleans()):
        ids = sorted(ids)
    cuts = sorted(draw(st.lists(st.integers(0, len(ids)), max_size=3)))
    fragments, expected = [], {}
    for number, (start, stop) in enumerate(zip([0, *cuts], [*cuts, len(ids)], strict=True)):
        live = list(ids[start:stop])
        rows, deleted = [], []
        for row_id in live:
            if draw(st.booleans()) and draw(st.booleans()):
                deleted.append(len(rows))
                rows.append(draw(st.integers(0, 70)))
            expected[row_id] = row_address(3 * number, len(rows))
            rows.append(row_id)
        half = len(rows) // 2
        parts = [np.array(part, np.uint64) for part in (rows[:half], rows[half:])]
        sequence = RowIdSequence(tuple(segment_of(part) for part in parts))
        fragments.append((3 * number, sequence, DeletionVector.of(deleted) if deleted else None))
    return fragments, expected


@given(tables())
def test_ids_and_addresses_find_each_other(table):
    fragments, expected = table
    index = RowIdIndex.build(fragments)
    wanted = np.arange(80, dtype=np.uint64)
    found = index.addresses(wanted)
    assert found.tolist() == [expected.get(row_id, int(NO_ADDRESS)) for row_id in range(80)]
    assert len(index) == len(expected)
    live = np.array(list(expected.values()), np.uint64)
    assert index.ids(live).tolist() == list(expected)
    assert index.ids(live + np.uint64(1 << 62)).tolist() == [int(NO_ADDRESS)] * len(live)


def test_an_appended_table_is_one_run_a_fragment():
    fragments = [(n, RowIdSequence.of_range(10 * n, 10 * n + 10), None) for n in range(5)]
    assert len(RowIdIndex.build(fragments).start) == 5


def test_pieces_of_a_run_become_one():
    pieces = RowIdSequence(tuple(Range(8 * n, 8 * n + 8) for n in range(5)))
    index = RowIdIndex.build([(2, pieces, None)])
    assert (index.start.tolist(), index.stop.tolist()) == ([0], [40])


def test_two_live_rows_with_one_id_are_corrupt():
    fragments = [(n, RowIdSequence.of_range(5 * n, 5 * n + 6), None) for n in range(2)]
    with pytest.raises(CorruptDataError):
        RowIdIndex.build(fragments)


def test_ranges_with_deleted_rows_have_the_runs_of_their_live_rows():
    chance = np.random.default_rng(5)
    for _ in range(300):
        lengths = chance.integers(0, 5, chance.integers(1, 6)).tolist()
        starts = (np.cumsum([0, *lengths[:-1]]) + 10 * np.arange(len(lengths))).tolist()
        sequence = RowIdSequence(
            tuple(
                Range(start, start + length) for start, length in zip(starts, lengths, strict=True)
            )
        )
        deleted = np.flatnonzero(chance.random(sum(lengths)) < 0.4)
        index = RowIdIndex.build([(3, sequence, DeletionVector.of(deleted))])
        ids = sequence.to_array()
        live = np.setdiff1d(np.arange(len(ids)), deleted)
        assert len(index) == len(live)
        assert index.addresses(ids[live]).tolist() == [(3 << 32) + each for each in live.tolist()]
        assert (index.addresses(ids[deleted]) == NO_ADDRESS).all()
