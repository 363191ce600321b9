"""Bitmaps from storage: sound ones are read, and no damaged one is taken for another."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap, FrozenBitMap

from lancelet.errors import CorruptDataError
from lancelet.format.roaring import (
    bitmap_bytes,
    parse_bitmap,
    parse_treemap,
    render_bitmap,
    render_treemap,
)


@st.composite
def bitmaps(draw):
    """Bitmaps with arrays, bit sets and runs."""
    bitmap = BitMap(draw(st.sets(st.integers(0, 2**32 - 1), max_size=20)))
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, 2**20))
        step = draw(st.sampled_from([1, 2, 3]))
        bitmap |= BitMap(range(start, start + draw(st.integers(0, 40_000)), step))
    if draw(st.booleans()):
        bitmap.run_optimize()
    return bitmap


@given(bitmaps(), st.binary(max_size=5))
def test_the_portable_form_gives_the_bitmap_back(bitmap, behind):
    data = render_bitmap(bitmap)
    assert parse_bitmap(data) == bitmap
    assert bitmap_bytes(data + behind) == len(data)


@given(bitmaps(), st.data())
def test_a_damaged_bitmap_is_sound_or_corrupt(bitmap, data):
    damaged = bytearray(render_bitmap(bitmap))
    place = data.draw(st.integers(0, len(damaged) - 1))
    damaged[place] = data.draw(st.integers(0, 255))
    damaged = damaged[: data.draw(st.integers(place, len(damaged)))]
    try:
        found = parse_bitmap(bytes(damaged))
    except CorruptDataError:
        return
    numbers = list(found)
    assert numbers == sorted(set(numbers))
    assert len(numbers) == len(found)


@given(st.dictionaries(st.integers(0, 2**32 - 1), bitmaps(), max_size=3))
def test_a_treemap_gives_its_parts_back(parts):
    assert parse_treemap(render_treemap(parts)) == {
        high: FrozenBitMap(parts[high]) for high in sorted(parts)
    }


@given(st.binary(max_size=60))
def test_arbitrary_bytes_are_a_treemap_or_corrupt(data):
    try:
        parse_treemap(data)
    except CorruptDataError:
        return


@pytest.mark.parametrize(
    "data",
    [
        "",
        "3a30",
        "00000000",
        "3a300000ffffffff",
        "3a30000001000000 00000100 10000000 03000100",
        "3a30000001000000 00000100 10000000 0100",
        "3a30000002000000 0100000000000000 18000000 1a000000 0100 0100",
        "3b300000 01 00000200 0100 0100 0300",
        "3b300000 01 00000500 0200 0000 0200 0200 0200",
    ],
)
def test_an_invalid_bitmap_is_corrupt(data):
    with pytest.raises(CorruptDataError):
        parse_bitmap(bytes.fromhex(data))
