"""Levels: the native walk agrees with the definition, on sound levels and on any others."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lancelet.buffers import ByteSlices
from lancelet.errors import CorruptDataError, InvalidInputError
from lancelet.kernels import reference

EXAMPLES = settings(deadline=None, max_examples=40)


def levels_of(most, *, max_size=300):
    return st.lists(st.integers(0, most), max_size=max_size).map(lambda x: np.array(x, np.uint16))


def random_levels(seed, count, most):
    return np.random.default_rng(seed).integers(0, most + 1, count).astype(np.uint16)


@EXAMPLES
@given(data=st.data(), continued=st.integers(0, 3))
def test_expanding_agrees(agree, data, continued):
    repetition = data.draw(levels_of(3))
    count = len(repetition)
    definition = random_levels(count, count, 5)
    lengths = np.random.default_rng(count).integers(0, 4, count)
    agree("expand_list", repetition, definition, lengths, continued=continued)


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 5000])
@pytest.mark.parametrize("has_definition", [True, False])
@pytest.mark.parametrize("null_level", [0, 2])
def test_unraveling_sound_levels_agrees(agree, count, has_definition, null_level):
    rng = np.random.default_rng(count)
    definition = rng.integers(0, 6, count).astype(np.uint16)
    repetition = rng.integers(0, 3, count).astype(np.uint16)
    # A list continues only from item to item.
    is_item = definition <= 1 if has_definition else np.ones(count, np.bool_)
    goes_on = is_item & np.concatenate(([False], is_item[:-1]))
    repetition[~goes_on & (repetition == 0)] = 1
    levels = {"item_max": 1, "slot_max": 4, "null_level": null_level, "empty_level": 3}
    offsets, validity, outer, _ = agree(
        "unravel_list", repetition, definition if has_definition else None, list_level=1, **levels
    )
    assert int(offsets[-1]) == np.count_nonzero(is_item)
    assert len(outer) == np.count_nonzero(repetition)
    assert (validity is not None) == (has_definition and null_level > 0)


@EXAMPLES
@given(repetition=levels_of(3), most=st.integers(0, 5), list_level=st.integers(1, 3))
def test_unraveling_any_levels_agrees(agree, repetition, most, list_level):
    definition = random_levels(most, len(repetition), 5)
    agree(
        "unravel_list", repetition, definition, list_level=list_level, item_max=most,
        slot_max=4, null_level=1, empty_level=2,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("repetition", "definition"),
    [([0], [0]), ([1, 0], [0, 2]), ([1, 0], [2, 0]), ([1] * 64 + [0], [2] * 64 + [0])],
)
def test_lists_that_cannot_go_on_are_corrupt(agree, repetition, definition):
    arguments = (np.array(repetition, np.uint16), np.array(definition, np.uint16))
    found = agree(
        "unravel_list", *arguments, list_level=1, item_max=1, slot_max=3, null_level=2,
        empty_level=3,
    )  # fmt: skip
    assert found is CorruptDataError


@EXAMPLES
@given(definition=levels_of(5), slot_max=st.integers(0, 6), valid_max=st.integers(0, 5))
def test_packing_validity_agrees(agree, definition, slot_max, valid_max):
    bits, slots = agree("pack_validity", definition, slot_max=slot_max, valid_max=valid_max)
    assert slots == np.count_nonzero(definition <= slot_max)
    assert len(bits) == (slots + 7) // 8


@EXAMPLES
@given(definition=levels_of(5), cuts=st.lists(st.integers(0, 300), max_size=4))
def test_counting_slots_agrees(agree, definition, cuts):
    edges = sorted(min(cut, len(definition)) for cut in cuts)
    counts = np.diff([0, *edges, len(definition)])
    slots = agree("count_slots", definition, counts, slot_max=2)
    assert slots.sum() == np.count_nonzero(definition <= 2)


@EXAMPLES
@given(definition=levels_of(5), chosen=st.sets(st.integers(-1, 310)), slot_max=st.integers(0, 6))
def test_ranking_slots_agrees(agree, definition, chosen, slot_max):
    entries = np.array(sorted(chosen), np.int64)
    found = agree("rank_slots", definition, entries, slot_max=slot_max)
    if found is not CorruptDataError:
        assert len(found) == np.count_nonzero(definition[entries] <= slot_max)


@pytest.mark.parametrize("entries", [[3, 2], [2, 2]])
def test_entries_that_do_not_ascend_are_rejected(agree, entries):
    levels = np.zeros(9, np.uint16)
    assert agree("rank_slots", levels, np.array(entries), slot_max=0) is CorruptDataError


def test_counts_must_be_all_levels(agree):
    wrong = agree("count_slots", np.zeros(3, np.uint16), np.array([2]), slot_max=0)
    assert wrong is InvalidInputError


@EXAMPLES
@given(
    counts=st.lists(
        st.sampled_from([0, 1, 40, 63, 64, 65, 1000, 1023, 1024, 1025, 2100]), max_size=5
    ),
    width=st.integers(0, 16),
)
def test_levels_of_many_chunks_unpack_as_they_were_packed(agree, counts, width):
    counts = np.array(counts, np.int64)
    levels = random_levels(width, int(counts.sum()), (1 << width) - 1)
    stops = np.cumsum(counts)
    packed = [
        reference.pack_blocks(levels[stop - count : stop], width)
        for count, stop in zip(counts, stops, strict=True)
    ]
    sizes = np.array([len(part) for part in packed], np.int64)
    source = np.concatenate([np.empty(0, np.uint8), *packed])
    slices = ByteSlices(source, np.cumsum(sizes) - sizes, sizes)
    np.testing.assert_array_equal(agree("unpack_levels", slices, counts, width), levels)


@EXAMPLES
@given(
    size=st.integers(0, 700),
    count=st.sampled_from([-1, 0, 1, 64, 1000, 1024, 2000]),
    width=st.integers(-1, 17),
    position=st.integers(-3, 40),
)
def test_any_bytes_unpack_alike_or_are_rejected_alike(agree, size, count, width, position):
    source = random_levels(size, 400, 0xFFFF).view(np.uint8)[:size]
    slices = ByteSlices(source, np.array([position]), np.array([size - 20]))
    agree("unpack_levels", slices, np.array([count]), width)


def test_levels_that_differ_in_length_are_rejected():
    with pytest.raises(InvalidInputError, match="length"):
        reference.expand_list(
            np.zeros(2, np.uint16), np.zeros(1, np.uint16), np.zeros(2, np.int64), continued=0
        )
