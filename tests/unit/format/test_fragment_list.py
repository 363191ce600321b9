"""Laws of fragment lists: they are lists of fragments that happen to be bytes."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.errors import CorruptDataError, NotFoundError
from lancelet.format import fragment_list
from lancelet.format.fragment import Fragment, Spilled
from lancelet.format.fragment_list import FragmentList, split_entries
from lancelet.format.protos import table_pb
from tests.kit.format_strategies import FRAGMENTS, UINT32

LISTS = st.lists(FRAGMENTS, max_size=5, unique_by=lambda fragment: fragment.id)


def check_columns(fragments: FragmentList) -> None:
    """Check the columns against the fragments they were read from."""
    for index, fragment in enumerate(fragments):
        sequences = (
            fragment.row_ids,
            fragment.last_updated_at_versions,
            fragment.created_at_versions,
        )
        assert fragments.ids[index] == fragment.id
        assert fragments.physical_rows[index] == fragment.physical_rows
        assert fragments.num_deleted_rows[index] == fragment.num_deleted_rows
        assert fragments.has_deletion_file[index] == (fragment.deletion_file is not None)
        assert fragments.has_row_ids[index] == (fragment.row_ids is not None)
        assert fragments.has_spilled_lineage[index] == any(
            isinstance(sequence, Spilled) for sequence in sequences
        )
        assert fragments.has_overlays[index] == bool(fragment.overlays)


@given(LISTS)
def test_a_list_holds_its_fragments(items):
    fragments = FragmentList.of(items)
    assert list(fragments) == items
    assert len(fragments) == len(items)
    check_columns(fragments)
    assert fragments.num_rows == sum(fragment.num_rows for fragment in items)
    num_files = sum(len(fragment.files) for fragment in items)
    assert fragments.count_files() == (num_files, sum(each.data_bytes for each in items))
    assert fragments.max_id == max((fragment.id for fragment in items), default=None)
    assert FragmentList.parse(fragments.wire) == fragments
    for fragment in items:
        assert fragments.by_id(fragment.id) == fragment
    with pytest.raises(IndexError):
        fragments[len(items)]


@given(LISTS, LISTS)
def test_appending_joins(items, more):
    joined = FragmentList.of(items).appended(more)
    assert list(joined) == items + more
    check_columns(joined)


@given(LISTS, st.data())
def test_changes_preserve_the_order_of_remaining_fragments(items, data):
    ids = [fragment.id for fragment in items]
    removed = data.draw(st.sets(st.sampled_from(ids))) if ids else set()
    rest = sorted(set(ids) - removed)
    changed = data.draw(st.sets(st.sampled_from(rest))) if rest else set()
    replaced = {
        fragment.id: replace(fragment, physical_rows=77, deletion_file=None)
        for fragment in items
        if fragment.id in changed
    }
    found = FragmentList.of(items).changed(replaced=replaced, removed=removed)
    assert list(found) == [replaced.get(f.id, f) for f in items if f.id not in removed]
    check_columns(found)


@given(LISTS, st.data())
def test_slices_and_selections_are_those_of_a_list(items, data):
    fragments = FragmentList.of(items)
    some = data.draw(st.slices(len(items)))
    assert list(fragments[some]) == items[some]
    places = data.draw(st.lists(st.integers(0, len(items) - 1))) if items else []
    assert list(fragments.select(np.array(places, np.int64))) == [items[p] for p in places]
    assert list(fragments.sorted_by_id()) == sorted(items, key=lambda fragment: fragment.id)


@given(LISTS, st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), max_size=4))
def test_fragments_are_separated_from_other_fields(items, others):
    """Interleave entries with other fields, and heads that are longer than they need to be."""
    pieces = [b"\x12" + _long_varint(len(body)) + body for body in (f.render() for f in items)]
    for place, version in others:
        pieces.insert(place, table_pb.Manifest(version=version).SerializeToString())
    message = b"".join(pieces)
    entries, rest = split_entries(np.frombuffer(message, np.uint8))
    fragments = entries.fragments()
    assert list(fragments) == items
    assert FragmentList.of(items) == fragments
    manifest = table_pb.Manifest.FromString(rest)
    assert not manifest.fragments
    assert manifest.version == table_pb.Manifest.FromString(message).version


def _long_varint(value: int) -> bytes:
    return bytes([value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14])


@given(UINT32)
def test_an_id_that_is_not_there_is_an_error(fragment_id):
    fragments = FragmentList.of([Fragment(5, (), 1)])
    other = fragment_id if fragment_id != 5 else 6
    for change in (
        lambda: fragments.by_id(other),
        lambda: fragments.changed(removed=[other]),
        lambda: fragments.changed(replaced={other: Fragment(other, (), 1)}),
    ):
        with pytest.raises(NotFoundError):
            change()


@pytest.mark.parametrize(
    "proto",
    [
        {"id": 1 << 32},
        {"physical_rows": 1 << 60},
        {"physical_rows": 5, "deletion_file": {"num_deleted_rows": 6}},
        {"deletion_file": {"num_deleted_rows": 1 << 60}},
    ],
)
def test_invalid_numbers_are_corrupt(proto):
    message = table_pb.Manifest(fragments=[proto]).SerializeToString()
    with pytest.raises(CorruptDataError):
        split_entries(np.frombuffer(message, np.uint8))[0].fragments()


@pytest.mark.parametrize(
    "proto",
    [
        {"files": [{"fields": [1, 2], "column_indices": [0]}]},
        {"deletion_file": {"file_type": 7}},
        {"id": 1 << 32},
    ],
)
def test_an_invalid_fragment_is_corrupt(proto):
    with pytest.raises(CorruptDataError):
        Fragment.parse(table_pb.DataFragment(**proto).SerializeToString())


@given(FRAGMENTS, st.data())
def test_a_damaged_fragment_is_a_fragment_or_corrupt(fragment, data):
    damaged = bytearray(fragment.render() + b"\x08\x01")
    damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        again = Fragment.parse(bytes(damaged))
    except CorruptDataError:
        return
    assert Fragment.parse(again.render()) == again


def test_a_version_from_before_rows_were_counted_is_read():
    message = table_pb.Manifest(fragments=[{"deletion_file": {"num_deleted_rows": 9}}])
    entries, _ = split_entries(np.frombuffer(message.SerializeToString(), np.uint8))
    fragments = entries.fragments()
    assert fragments[0].num_deleted_rows == 9


def test_the_number_of_cached_fragments_is_limited(monkeypatch):
    monkeypatch.setattr(fragment_list, "_CACHED_FRAGMENTS_MAX", 8)
    listed = FragmentList.of([Fragment(number, (), physical_rows=1) for number in range(20)])
    for _ in range(2):
        assert [fragment.id for fragment in listed] == list(range(20))
        assert len(listed._parsed) <= 8
