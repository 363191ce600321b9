"""Zone statistics: both implementations agree with a loop over the values."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.errors import CorruptDataError, InvalidInputError

TYPES = st.sampled_from(["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"])


@st.composite
def columns(draw):
    dtype = np.dtype(draw(TYPES))
    count = draw(st.sampled_from([0, 1, 2, 63, 64, 65, 130, 300]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    if dtype.kind == "f":
        special = [np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -2.0]
        values = rng.choice(np.array(special, dtype), count)
        values = np.where(rng.random(count) < 0.5, values, rng.normal(size=count).astype(dtype))
    else:
        values = rng.integers(0, 256, count * dtype.itemsize, np.uint8).view(dtype)
    share = draw(st.sampled_from([None, 0.0, 0.1, 0.9, 1.0]))
    validity = None
    if share is not None:
        valid = np.repeat(rng.random(count) < share, rng.choice([1, 70]))[:count]
        validity = np.packbits(valid, bitorder="little")
    return values, validity


@given(columns(), st.sampled_from([1, 3, 63, 64, 65, 100, 1000]))
def test_zones_match_a_loop(agree, column, zone_rows):
    values, validity = column
    minimum, maximum, nulls, nans = agree("zone_min_max", values, zone_rows, validity)
    assert len(minimum) == -(-len(values) // zone_rows)
    for zone, start in enumerate(range(0, len(values), zone_rows)):
        rows = range(start, min(start + zone_rows, len(values)))
        present = [
            values[row].item()
            for row in rows
            if validity is None or validity[row // 8] >> (row % 8) & 1
        ]
        numbers = [value for value in present if not math.isnan(value)]
        assert nulls[zone] == len(rows) - len(present)
        assert nans[zone] == len(present) - len(numbers)
        assert minimum[zone] == min(numbers, default=0)
        assert maximum[zone] == max(numbers, default=0)


@pytest.mark.parametrize("zone_rows", [0, -1])
def test_zones_have_rows(agree, zone_rows):
    assert agree("zone_min_max", np.zeros(3), zone_rows) is InvalidInputError


def test_values_need_an_order(agree):
    assert agree("zone_min_max", np.zeros(3, np.complex128), 2) is InvalidInputError
    assert agree("zone_min_max", np.zeros(3, ">i4"), 2) is InvalidInputError


def test_every_value_needs_a_validity_bit(agree):
    short = np.zeros(1, np.uint8)
    assert agree("zone_min_max", np.zeros(9), 4, short) is InvalidInputError


TEXT = st.binary(max_size=3).map(lambda start: start + b"common start" * (len(start) % 2) + start)
LIKE = st.tuples(
    st.sampled_from([b"", b"https:/", b"https://", b"https://www.", b"https://www.example.com/a"]),
    st.binary(max_size=2) | st.text("\0/a", max_size=10).map(str.encode),
).map(b"".join)


@given(
    st.lists(st.none() | TEXT, max_size=60) | st.lists(st.none() | LIKE, max_size=60),
    st.integers(1, 20),
    st.booleans(),
)
def test_the_bounds_of_strings_are_strings_of_the_zone(agree, texts, zone_rows, is_large):
    lengths = [len(text or b"") for text in texts]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64 if is_large else np.int32)
    data = np.frombuffer(b"".join(text or b"" for text in texts), np.uint8)
    is_valid = np.array([text is not None for text in texts], np.bool_)
    validity = np.packbits(is_valid, bitorder="little")
    if None not in texts:
        validity = None
    minimum, maximum = agree("zone_min_max_strings", offsets, data, zone_rows, validity)
    for zone, start in enumerate(range(0, len(texts), zone_rows)):
        held = [text for text in texts[start : start + zone_rows] if text is not None]
        rows = int(minimum[zone]), int(maximum[zone])
        assert (
            (rows == (-1, -1))
            if not held
            else [texts[row] for row in rows]
            == [
                min(held),
                max(held),
            ]
        )


@pytest.mark.parametrize("offsets", [[0, 5], [2, 1], [-1, 1]])
def test_strings_of_zones_are_within_their_data(agree, offsets):
    data = np.zeros(3, np.uint8)
    found = agree("zone_min_max_strings", np.array(offsets, np.int32), data, 4)
    assert found is CorruptDataError


def test_zones_of_strings_have_rows(agree):
    none = np.zeros(1, np.int32)
    assert agree("zone_min_max_strings", none, none.view(np.uint8), 0) is InvalidInputError
