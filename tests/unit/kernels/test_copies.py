"""Copies of many pieces: native kernels agree with their definitions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.buffers import ByteSlices
from lancelet.errors import CorruptDataError, InvalidInputError
from lancelet.kernels import native, reference, select

SIZES = st.sampled_from([0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 100])


@st.composite
def pieces(draw):
    """Slices of random bytes, in any order, overlapping or not."""
    sizes = np.array(draw(st.lists(SIZES, max_size=20)), np.int64)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    source = rng.integers(
        0, 256, 1 + int(sizes.max(initial=0)) + draw(st.integers(0, 60)), np.uint8
    )
    position = rng.integers(0, len(source) - sizes, dtype=np.int64)
    return ByteSlices(source, position, sizes), rng


@given(pieces())
def test_joining_is_reading_each(agree, case):
    slices, _ = case
    joined = agree("join_slices", slices)
    assert joined.tobytes() == b"".join(
        slices.slice_bytes(index).tobytes() for index in range(len(slices))
    )


@given(pieces(), st.integers(0, 255), st.integers(0, 9))
def test_placement_pads_gaps(agree, case, pad, gap):
    slices, rng = case
    gaps = rng.integers(0, gap + 1, len(slices))
    ends = np.cumsum(slices.size + gaps)
    placed = agree(
        "scatter_slices", slices, ends - slices.size, int(ends.max(initial=0)) + gap, pad
    )
    rest = np.ones(len(placed), np.bool_)
    for index, end in enumerate(ends.tolist()):
        expected = slices.slice_bytes(index)
        np.testing.assert_array_equal(placed[end - len(expected) : end], expected)
        rest[end - len(expected) : end] = False
    assert (placed[rest] == pad).all()


@given(pieces())
def test_copies_land_where_they_should(instruction_sets, case):
    slices, rng = case
    to = rng.permutation(len(slices)) * 101
    expected = np.zeros(101 * len(slices), np.uint8)
    reference.copy_slices(slices, expected, to)
    for instruction_set in instruction_sets:
        select.use_instruction_set(instruction_set)
        found = np.zeros(101 * len(slices), np.uint8)
        native.copy_slices(slices, found, to)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("position", "size", "to"),
    [(0, 9, 0), (0, 4, 5), (-1, 1, 0), (0, 1, -1), (0, -1, 0), (1 << 62, 1 << 62, 0), (0, 1, 8)],
)
def test_copies_out_of_bounds_are_rejected(position, size, to, instruction_sets):
    slices = ByteSlices(np.zeros(8, np.uint8), np.array([position]), np.array([size]))
    for implementation in (reference, native):
        out = np.zeros(8, np.uint8)
        with pytest.raises(CorruptDataError):
            implementation.copy_slices(slices, out, np.array([to]))


@pytest.mark.parametrize(("to", "out_bytes"), [([4, 0], 9), ([0, 3], 9), ([0, 6], 9), ([-1, 4], 9)])
def test_layouts_out_of_order_are_rejected(agree, to, out_bytes):
    slices = ByteSlices(np.zeros(8, np.uint8), np.array([0, 4]), np.array([4, 4]))
    assert agree("scatter_slices", slices, np.array(to), out_bytes, 0) is InvalidInputError


@given(st.integers(0, 40), st.integers(0, 20), st.integers(-3, 60), st.integers(0, 2**32))
def test_fixed_takes_agree(agree, width, count, most, seed):
    rng = np.random.default_rng(seed)
    source = rng.integers(0, 256, 50, np.uint8)
    position = rng.integers(-1 if most < 0 else 0, max(1, most), count, dtype=np.int64)
    taken = agree("take_fixed", source, position, width)
    if not isinstance(taken, type):
        expected = [source[at : at + width].tobytes() for at in position.tolist()]
        assert taken.tobytes() == b"".join(expected)


@given(st.lists(SIZES, min_size=1, max_size=20), st.sampled_from([np.int32, np.int64]), st.data())
def test_variable_takes_agree(agree, sizes, dtype, data):
    offsets = np.cumsum([0, *sizes]).astype(dtype)
    values = np.arange(offsets[-1]).astype(np.uint8)
    rows = data.draw(st.lists(st.integers(0, len(sizes) - 1), max_size=30))
    out_offsets, out = agree("take_variable", offsets, values, np.array(rows, np.int64))
    expected = [values[offsets[row] : offsets[row + 1]].tobytes() for row in rows]
    assert out.tobytes() == b"".join(expected)
    assert np.diff(out_offsets).tolist() == [len(value) for value in expected]


@pytest.mark.parametrize(
    ("offsets", "row"),
    [([0, 2], -1), ([0, 2], 1), ([0, 2], 1 << 62), ([2, 0], 0), ([-1, 0], 0), ([0, 9], 0)],
)
def test_rows_and_offsets_out_of_bounds_are_corrupt(agree, offsets, row):
    data = np.zeros(8, np.uint8)
    taken = agree("take_variable", np.array(offsets, np.int32), data, np.array([row]))
    assert taken is CorruptDataError
