"""Row ids that callers hand in are stored, and restrict scans, as in pylance."""

import lance
import lance.fragment
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lance.dataset import serialize_row_addrs as reference_row_addrs

import lancelet
from lancelet.dataset import serialize_row_addrs
from lancelet.errors import InvalidInputError, UnsupportedError
from lancelet.fragment import RowIdMeta, RowIdSequence
from lancelet.rowids.selection import RowSet

IDS = st.lists(st.integers(0, 2**40), unique=True, max_size=30)


@given(IDS)
def test_ids_come_back_from_metadata_and_are_read_by_the_reference(ids):
    sequence = RowIdSequence(ids)
    metadata = sequence.to_inline_metadata()
    assert RowIdSequence.from_inline_metadata(metadata) == sequence
    assert list(sequence) == sequence.to_pyarrow().to_pylist() == ids
    theirs = lance.fragment.RowIdMeta.from_json(metadata.json())
    assert list(lance.fragment.RowIdSequence.from_inline_metadata(theirs)) == ids


@pytest.mark.parametrize("ids", [range(5, 9), pa.array([3, 1]), pa.chunked_array([[3], [1]])])
def test_ids_may_be_of_any_form(ids):
    expected = list(ids) if isinstance(ids, range) else ids.to_pylist()
    assert list(RowIdSequence(ids)) == expected
    assert len(RowIdSequence(ids)) == len(expected)


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [([1, 1], ValueError), ([-1], OverflowError), ([1 << 64], OverflowError), (["a"], TypeError)],
)
def test_non_id_input_is_rejected_as_by_the_reference(wrong, kind):
    with pytest.raises(kind):
        lance.fragment.RowIdSequence(wrong)
    with pytest.raises(kind):
        RowIdSequence(wrong)


def test_ids_elsewhere_are_not_read_from_metadata():
    with pytest.raises(UnsupportedError):
        RowIdSequence.from_inline_metadata(RowIdMeta("Column"))


@given(st.lists(st.integers(0, 2**34), max_size=30))
def test_sets_of_rows_have_the_bytes_of_the_reference(ids):
    assert serialize_row_addrs(ids) == reference_row_addrs(ids)


@given(
    allowed=st.none() | st.sets(st.integers(0, 12)),
    blocked=st.none() | st.sets(st.integers(0, 12)),
    whole=st.booleans(),
    text=st.sampled_from([None, "a > 3"]),
)
def test_a_scan_returns_the_rows_of_one_set_and_none_of_another(allowed, blocked, whole, text):
    dataset = lancelet.write_dataset(
        pa.table({"a": range(10)}), "memory://masks/t", mode="overwrite", max_rows_per_file=5
    )
    ids = dataset.to_table(columns=["a"], with_row_id=True)
    row_ids = ids["_rowid"].to_numpy()
    chosen = None if allowed is None else RowSet.of(row_ids[[n for n in allowed if n < 10]])
    if chosen is not None and whole:
        chosen |= RowSet.of_fragments([1])
    refused = None if blocked is None else RowSet.of(row_ids[[n for n in blocked if n < 10]])
    found = dataset.scanner(
        filter=text,
        row_addr_allowlist=None if chosen is None else chosen.render(),
        row_addr_blocklist=None if refused is None else refused.render(),
    ).to_table()
    kept = np.ones(10, bool)
    if chosen is not None:
        kept &= chosen.contains(row_ids)
    if refused is not None:
        kept &= ~refused.contains(row_ids)
    expected = [n for n in range(10) if kept[n] and (text is None or n > 3)]
    assert found["a"].to_pylist() == expected


@pytest.mark.parametrize("data", [b"", b"xx", b"\x01\0\0\0\0\0\0\0\xff\0\0\0"])
def test_bytes_that_are_no_set_are_rejected(data):
    dataset = lancelet.write_dataset(pa.table({"a": [1]}), "memory://masks/w", mode="overwrite")
    with pytest.raises(InvalidInputError, match="allowlist"):
        dataset.scanner(row_addr_allowlist=data)


def test_a_search_looks_at_the_rows_of_the_set_alone():
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(20, dtype=np.float32)), 2)
    dataset = lancelet.write_dataset(
        pa.table({"a": range(10), "v": vectors}), "memory://masks/v", mode="overwrite"
    )
    near = {"column": "v", "q": [0.0, 1.0], "k": 2}
    rows = serialize_row_addrs([5, 7, 9])
    found = dataset.scanner(nearest=near, row_addr_allowlist=rows)
    assert found.to_table()["a"].to_pylist() == [5, 7]
    late = dataset.scanner(nearest=near, row_addr_allowlist=rows, filter="a > 5")
    assert late.to_table()["a"].to_pylist() == [7]


def test_rows_are_followed_through_compactions_that_indices_do_not_know():
    dataset = lancelet.write_dataset(
        pa.table({"a": range(10)}), "memory://masks/c", mode="overwrite", max_rows_per_file=5
    )
    addresses = pa.array([0, (1 << 32) + 4, (1 << 32) + 1], pa.uint64())
    assert dataset.remap_row_addrs(addresses) is None
    dataset.create_scalar_index("a", "BTREE")
    dataset.delete("a = 6")
    dataset.optimize.compact_files(defer_index_remap=True)
    moved = dataset.remap_row_addrs(addresses)
    live = dataset.to_table(with_row_address=True)
    where = dict(zip(live["a"].to_pylist(), live["_rowaddr"].to_pylist(), strict=True))
    assert moved.to_pylist() == [where[0], where[9], None]
