"""Laws of version sequences: runs are a short way to write one version per row."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.errors import CorruptDataError
from lancelet.rowids.versions import VersionSequence

VERSIONS = st.lists(st.integers(1, 4), max_size=60).map(lambda v: np.array(v, np.uint64))


@given(VERSIONS)
def test_the_wire_form_gives_the_sequence_back(versions):
    sequence = VersionSequence.of(versions)
    assert sequence.to_array().tolist() == versions.tolist()
    assert len(sequence) == len(versions)
    assert VersionSequence.parse(sequence.render(), expected_rows=len(versions)) == sequence


@given(VERSIONS, st.data())
def test_operations_on_runs_match_operations_on_rows(versions, data):
    sequence = VersionSequence.of(versions)
    start = data.draw(st.integers(0, len(versions)))
    stop = data.draw(st.integers(start, len(versions)))
    assert sequence.slice(start, stop).to_array().tolist() == versions[start:stop].tolist()
    mask = data.draw(st.lists(st.booleans(), min_size=len(versions), max_size=len(versions)))
    positions = np.flatnonzero(mask)
    assert sequence.take(positions).tolist() == versions[positions].tolist()
    assert (
        sequence.without(positions).to_array().tolist() == np.delete(versions, positions).tolist()
    )
    changed = versions.copy()
    changed[positions] = 9
    assert sequence.with_version(positions, 9).to_array().tolist() == changed.tolist()


@given(st.lists(VERSIONS, max_size=3))
def test_joined_sequences_hold_all_rows(parts):
    joined = VersionSequence.concat([VersionSequence.of(part) for part in parts])
    assert joined.to_array().tolist() == [v for part in parts for v in part.tolist()]
    assert (joined.versions[1:] != joined.versions[:-1]).all()


def test_only_the_length_of_a_span_counts():
    # After a compaction spans are masked and may overlap: 2..4 and then 0..1.
    data = bytes.fromhex("0a0a 0a06 0a04 0802 1004 10020a08 0a04 0a02 1001 1005")
    assert VersionSequence.parse(data, expected_rows=3).to_array().tolist() == [2, 2, 5]


def test_a_sequence_of_another_length_than_its_fragment_is_corrupt():
    with pytest.raises(CorruptDataError):
        VersionSequence.parse(VersionSequence.constant(5, 1).render(), expected_rows=4)
    assert len(VersionSequence.constant(0, 1)) == 0


@given(st.binary(max_size=40))
def test_arbitrary_bytes_are_a_sequence_or_corrupt(data):
    try:
        sequence = VersionSequence.parse(data)
    except CorruptDataError:
        return
    assert len(sequence) >= 0
