"""Full-zip: unzipping inverts zipping, and damaged items are rejected."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.buffers import ByteSlices
from lancelet.errors import CorruptDataError, InvalidInputError
from lancelet.kernels import ZipShape


@st.composite
def zipped_items(draw):
    """Levels of a shape, and the number of visible items."""
    bits_rep = draw(st.sampled_from([0, 1, 2, 9, 16]))
    bits_def = draw(st.sampled_from([0, 1, 2, 7, 16]))
    shape = ZipShape(bits_rep, bits_def, draw(st.sampled_from([0, 1, 2, 0xFFFF])))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    count = draw(st.integers(0, 40))
    rep = rng.integers(0, 1 << bits_rep, count if bits_rep else 0).astype(np.uint16)
    definition = rng.integers(0, min(4, 1 << bits_def), count if bits_def else 0).astype(np.uint16)
    visible = definition <= shape.max_visible_def if bits_def else np.ones(count, np.bool_)
    return shape, rep, definition, visible, rng


def in_two(data, starts, rng):
    """The items as two slices, cut at any item."""
    cut = int(rng.choice(starts))
    return ByteSlices(data, np.array([0, cut]), np.array([cut, len(data) - cut]))


@given(zipped_items(), st.sampled_from([1, 3, 8, 300]))
def test_unzipping_inverts_zipping_fixed(agree, case, value_bytes):
    shape, rep, definition, visible, rng = case
    values = rng.integers(0, 256, int(visible.sum()) * value_bytes, np.uint8)
    data, starts = agree("zip_fixed", rep, definition, values, shape, value_bytes)
    slices = in_two(data, starts, rng)
    found = agree("unzip_fixed", slices, shape, value_bytes)
    for array, expected in zip(found, (rep, definition, values), strict=False):
        np.testing.assert_array_equal(array, expected)
    assert found[3].sum() == len(visible)
    assert found[3][0] == np.searchsorted(starts, slices.size[0])


@given(
    zipped_items(),
    st.sampled_from([4, 8]),
    st.sampled_from([np.int32, np.int64]),
    st.sampled_from([32, 64]),
)
def test_unzipping_inverts_zipping_variable(agree, case, length_bytes, dtype, out_bits):
    shape, rep, definition, visible, rng = case
    sizes = rng.integers(0, 20, int(visible.sum()))
    offsets = np.cumsum([0, *sizes]).astype(dtype)
    values = rng.integers(0, 256, int(offsets[-1]), np.uint8)
    data, starts = agree("zip_variable", rep, definition, offsets, values, shape, length_bytes)
    slices = in_two(data, starts, rng)
    found = agree("unzip_variable", slices, shape, length_bytes, out_bits)
    np.testing.assert_array_equal(found[0], rep)
    np.testing.assert_array_equal(found[1], definition)
    present = definition[visible] == 0 if shape.bits_def else np.ones(len(sizes), np.bool_)
    np.testing.assert_array_equal(np.diff(found[2]), np.where(present, sizes, 0))
    np.testing.assert_array_equal(found[3], values[np.repeat(present, sizes)])
    assert found[4].sum() == len(visible)


@given(zipped_items(), st.integers(0, 2**32))
def test_damaged_items_never_crash(agree, damage, case, seed):
    shape, rep, definition, visible, _ = case
    rng = np.random.default_rng(seed)
    offsets = np.arange(0, 3 * int(visible.sum()) + 1, 3)
    values = rng.integers(0, 256, int(offsets[-1]), np.uint8)
    data, starts = agree("zip_variable", rep, definition, offsets, values, shape, 4)
    whole = in_two(data, starts, rng)
    damaged = ByteSlices(damage(rng, data), whole.position, whole.size)
    agree("unzip_variable", damaged, shape, 4, 32)
    agree("unzip_variable", damaged, shape, 8, 64)
    agree("unzip_fixed", damaged, shape, 7)


@pytest.mark.parametrize("length", [3, 1 << 31, (1 << 32) - 1])
def test_a_length_beyond_the_slice_is_corrupt(agree, length):
    data = np.concatenate([np.array([length], "<u4").view(np.uint8), np.zeros(2, np.uint8)])
    slices = ByteSlices.whole(data)
    assert agree("unzip_variable", slices, ZipShape(0, 0), 4, 32) is CorruptDataError


def test_half_an_item_is_corrupt(agree):
    slices = ByteSlices.whole(np.zeros(7, np.uint8))
    assert agree("unzip_fixed", slices, ZipShape(0, 1), 3) is CorruptDataError


@pytest.mark.parametrize(
    ("rep", "definition"), [([0], []), ([0, 0], [0]), ([2, 0], [0, 0]), ([0, 0], [2, 0])]
)
def test_levels_must_fit_values_and_bits(agree, rep, definition):
    arrays = [np.array(levels, np.uint16) for levels in (rep, definition)]
    values = np.zeros(2, np.uint8)
    assert agree("zip_fixed", *arrays, values, ZipShape(1, 1, 0), 1) is InvalidInputError
    offsets = np.array([0, 1, 2], np.int32)
    shape = ZipShape(1, 1, 0)
    assert agree("zip_variable", *arrays, offsets, values, shape, 4) is InvalidInputError


def test_items_without_bytes_cannot_be_counted(agree):
    slices = ByteSlices.whole(np.zeros(7, np.uint8))
    assert agree("unzip_fixed", slices, ZipShape(0, 0), 0) is InvalidInputError
