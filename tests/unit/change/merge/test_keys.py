"""Two keys are equal exactly if their numbers or bytes are, and the index finds the first one."""

import decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.change.merge import key_index
from lancelet.change.merge.key_bytes import integer_keys, key_bytes
from lancelet.change.merge.key_index import KeyIndex, Keys
from lancelet.errors import UnsupportedError
from lancelet.kernels import mix_integers

NAN = float("nan")
VALUES = {
    pa.int8(): st.integers(-3, 3),
    pa.uint64(): st.integers(2**64 - 4, 2**64 - 1),
    pa.bool_(): st.booleans(),
    pa.float16(): st.sampled_from([0.5, 1.0, NAN]),
    pa.float64(): st.sampled_from([0.5, -1e300, NAN]),
    pa.decimal128(30, 2): st.sampled_from([decimal.Decimal(1), decimal.Decimal(10) ** 20]),
    pa.date32(): st.dates(),
    pa.timestamp("us", "UTC"): st.integers(0, 3),
    pa.string(): st.text("ab\0", max_size=3),
    pa.large_binary(): st.binary(max_size=2),
    pa.binary(2): st.binary(min_size=2, max_size=2),
    pa.dictionary(pa.int8(), pa.string()): st.text("ab", max_size=2),
    pa.list_(pa.string()): st.lists(st.none() | st.text("ab", max_size=2), max_size=3),
    pa.list_(pa.int8(), 2): st.lists(st.integers(0, 2), min_size=2, max_size=2),
    pa.struct([("a", pa.int8()), ("b", pa.string())]): st.fixed_dictionaries(
        {"a": st.none() | st.integers(0, 1), "b": st.none() | st.text("ab", max_size=1)}
    ),
    pa.list_(pa.list_(pa.int16())): st.lists(st.lists(st.integers(0, 1), max_size=2), max_size=2),
}


@st.composite
def key_columns(draw):
    """Columns of a key, perhaps sliced, with the rows as Python has them."""
    types = draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=3))
    count, skip = draw(st.integers(0, 30)), draw(st.integers(0, 3))
    return [
        pa.array(
            draw(st.lists(st.none() | VALUES[t], min_size=count + skip, max_size=count + skip)), t
        ).slice(skip)
        for t in types
    ]


def comparable(columns):
    """Return rows as text, None where a column is null: NaN is equal to NaN here."""
    lists = [column.to_pylist() for column in columns]
    return [None if None in row else repr(row) for row in zip(*lists, strict=True)]


def repeats(index):
    return list(zip(*(rows.tolist() for rows in index.repeats()), strict=True))


@given(columns=key_columns())
def test_repeated_keys_and_their_first_rows_are_found(columns):
    rows = comparable(columns)
    index = KeyIndex.build(Keys.of(columns))
    expected = [
        (i, rows.index(row)) for i, row in enumerate(rows) if row is not None and row in rows[:i]
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_index, "_BLOCK_ROWS", 3)
        assert repeats(index) == expected
    assert repeats(index) == expected


@given(columns=key_columns())
def test_keys_found_in_parts_are_those_found_at_once(columns):
    index = KeyIndex.build(Keys.of(columns))
    halves = [
        Keys.of([column.slice(start, 7) for column in columns])
        for start in range(0, len(columns[0]), 7)
    ]
    which, rows = index.find(Keys.of(columns))
    parts = [index.find(half) for half in halves]
    assert np.concatenate([p[1] for p in parts] or [rows[:0]]).tolist() == rows.tolist()
    assert sum(len(p[0]) for p in parts) == len(which)


@given(columns=key_columns(), data=st.data())
def test_rows_are_found_whether_or_not_keys_know_between_which_numbers_they_are(columns, data):
    start = data.draw(st.integers(0, len(columns[0])))
    count = data.draw(st.integers(0, 4))
    source = [column.slice(start, count) for column in columns]
    index = KeyIndex.build(Keys.concat([Keys.of(source, with_span=True)] * 2))
    found = [places.tolist() for places in index.find_rows(columns)]
    plain = KeyIndex.build(Keys.concat([Keys.of(source)] * 2))
    assert found == [places.tolist() for places in plain.find(Keys.of(columns))]


def test_numbers_far_from_all_keys_are_not_looked_up(monkeypatch):
    index = KeyIndex.build(Keys.of([pa.array([904, 900])], with_span=True))
    mixed = []
    monkeypatch.setattr(
        key_index,
        "mix_integers",
        lambda values, seed: mixed.extend(values) or mix_integers(values, seed),
    )
    which, rows = index.find_rows([pa.array([3, 904, None, -1, 902, 2000, 900])])
    assert (which.tolist(), rows.tolist()) == ([1, 6], [0, 1])
    assert mixed == [904, 902, 900]


@given(columns=key_columns())
def test_short_keys_are_the_same_as_numbers_and_as_bytes(columns):
    words = integer_keys(columns)
    if words is None:
        return
    stored = key_bytes(columns).to_pylist()
    by_word = [words.tolist().index(word) for word in words.tolist()]
    assert by_word == [stored.index(each) for each in stored]


def test_all_nan_are_one_key_and_both_zeros_too():
    bits = np.array([0x7FF8000000000000, 0xFFF8000000000001, 0, 1 << 63], np.uint64)
    keys = Keys.of([pa.array(bits.view(np.float64))])
    assert repeats(KeyIndex.build(keys)) == [(1, 0), (3, 2)]


def test_texts_do_not_run_into_each_other():
    keys = Keys.of([pa.array(["a", "ab"]), pa.array(["bc", "c"])])
    assert repeats(KeyIndex.build(keys)) == []


def test_keys_with_equal_hashes_are_compared_by_their_bytes(monkeypatch):
    """Goal: a collision of 64-bit hashes is no match. Method: every key gets the same hash."""
    monkeypatch.setattr(
        key_index, "xxh64_many", lambda offsets, *_: np.full(len(offsets) - 1, 7, np.uint64)
    )
    index = KeyIndex.build(Keys.of([pa.array(["b", "a", None, "b", "c"])]))
    which, rows = index.find(Keys.of([pa.array(["c", "x", "a", None, "b"])]))
    assert which.tolist() == [0, 2, 4]
    assert rows.tolist() == [4, 1, 0]
    assert repeats(index) == [(3, 0)]


def test_a_hash_depends_on_a_secret():
    words = np.arange(3, dtype=np.uint64)
    assert Keys.of([pa.array(words)]).hashes.tolist() != mix_integers(words, 0).tolist()


@pytest.mark.parametrize("column", [pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int8()))])
def test_types_without_bytes_are_rejected(column):
    with pytest.raises(UnsupportedError, match="by a key of this type"):
        Keys.of([column])
