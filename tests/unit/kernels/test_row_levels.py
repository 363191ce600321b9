"""Rows of lists: native code agrees with the definition, and the definition with plain Python."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lancelet.buffers import ByteSlices
from lancelet.errors import CorruptDataError, InvalidInputError
from lancelet.kernels import LevelLimits, PackedLevels
from lancelet.kernels.reference import pack_blocks

EXAMPLES = settings(deadline=None, max_examples=40)
LIMITS = LevelLimits(rep_max=1, def_max=3, slot_max=1)


def chunks_of(rng, cuts, count, rep_max=1, def_max=3):
    """Return random levels cut into chunks, as arguments of the kernel, and their index."""
    repetition = rng.integers(0, rep_max + 1, count).astype(np.uint16)
    if count:
        repetition[0] = rep_max
    definition = rng.integers(0, def_max + 1, count).astype(np.uint16)
    edges = np.array([0, *sorted(min(cut, count) for cut in cuts), count])
    num_levels = np.diff(edges)
    is_start = np.append(repetition == rep_max, False)
    begun = np.concatenate(([0], np.cumsum(is_start)))[edges]
    starts = np.flatnonzero(is_start)
    ended = np.array([_rows_ended(starts, edge, count) for edge in edges])
    return repetition, definition, edges, num_levels, begun, ended


def _rows_ended(starts, edge, count):
    stops = np.append(starts[1:], count) if len(starts) else starts
    return int(np.count_nonzero(stops <= edge))


def packed(levels, edges, width):
    """Pack each chunk as blocks with a plain tail where that is shorter."""
    parts = []
    for start, stop in pairwise(edges):
        own = levels[start:stop]
        full = len(own) // 1024 * 1024
        tail = own[full:]
        if len(tail) * 16 > 1024 * width:
            whole = np.zeros(full + 1024, np.uint16)
            whole[: len(own)] = own
            parts.append(pack_blocks(whole, width))
        else:
            head = pack_blocks(own[:full], width) if full else np.empty(0, np.uint8)
            parts.append(np.concatenate([head, tail.view(np.uint8)]))
    sizes = np.array([len(part) for part in parts], np.int64)
    source = np.concatenate([np.zeros(3, np.uint8), *parts])
    return PackedLevels(ByteSlices(source, 3 + np.cumsum(sizes) - sizes, sizes), width)


def values_of(definition, edges):
    return np.array(
        [np.count_nonzero(definition[a:b] <= LIMITS.slot_max) for a, b in pairwise(edges)]
    )


@EXAMPLES
@given(
    seed=st.integers(0, 1 << 30),
    count=st.sampled_from([1, 2, 63, 64, 65, 700, 3000]),
    cuts=st.lists(st.integers(0, 3000), max_size=5),
    has_definition=st.booleans(),
)
def test_rows_are_found_with_their_levels_and_slots(agree, seed, count, cuts, has_definition):
    rng = np.random.default_rng(seed)
    repetition, definition, edges, num_levels, begun, ended = chunks_of(rng, cuts, count)
    if not has_definition:
        definition[:] = 0
    num_rows = int(begun[-1])
    rows = np.unique(rng.integers(0, num_rows, rng.integers(1, 9)))
    chunks = agree("chunks_of_rows", begun, ended, rows)
    row_of = np.cumsum(repetition == 1) - 1
    chunk_of = np.repeat(np.arange(len(num_levels)), num_levels)
    is_wanted = np.isin(row_of, rows)
    # Chunks without entries may be among those that are read, no others.
    assert set(chunk_of[is_wanted]) <= set(chunks.tolist())
    assert not num_levels[sorted(set(chunks.tolist()) - set(chunk_of[is_wanted]))].any()
    counts = values_of(definition, edges)
    own_rep, own_def = packed(repetition, edges, 1), packed(definition, edges, 2)
    found = agree(
        "take_row_levels",
        num_levels[chunks],
        PackedLevels(own_rep.slices[chunks], 1),
        PackedLevels(own_def.slices[chunks], 2) if has_definition else None,
        counts[chunks],
        chunks,
        begun,
        rows,
        LIMITS,
    )
    np.testing.assert_array_equal(found.repetition, repetition[is_wanted])
    if has_definition:
        np.testing.assert_array_equal(found.definition, definition[is_wanted])
    is_slot = definition <= LIMITS.slot_max
    places = (np.cumsum(counts) - counts)[chunks[found.chunk_index]] + found.value_index
    expected = (np.cumsum(is_slot) - 1)[is_wanted & is_slot]
    np.testing.assert_array_equal(places, expected)
    bits = np.unpackbits(found.validity, bitorder="little", count=len(expected))
    np.testing.assert_array_equal(bits, definition[is_wanted & is_slot] == 0)


@EXAMPLES
@given(
    begun=st.lists(st.integers(-3, 9), max_size=6),
    ended=st.lists(st.integers(-3, 9), max_size=6),
    rows=st.lists(st.integers(-2, 10), max_size=4),
)
def test_chunks_of_any_index_agree(agree, begun, ended, rows):
    begun, ended = sorted(begun), sorted(ended)
    agree("chunks_of_rows", *(np.array(x, np.int64) for x in (begun, ended, rows)))


def arguments(**changes):
    repetition = np.array([1, 0, 1, 0, 1], np.uint16)
    definition = np.array([0, 1, 3, 0, 2], np.uint16)
    edges = np.array([0, 3, 5])
    sound = {
        "num_levels": np.array([3, 2]),
        "repetition": packed(repetition, edges, 1),
        "definition": packed(definition, edges, 2),
        "counts": np.array([2, 1]),
        "chunks": np.array([0, 1]),
        "begun": np.array([0, 2, 3]),
        "rows": np.array([0, 2]),
        "limits": LIMITS,
    }
    return tuple((sound | changes).values())


def test_sound_levels_are_taken(agree):
    found = agree("take_row_levels", *arguments())
    assert found.repetition.tolist() == [1, 0, 1]
    assert found.definition.tolist() == [0, 1, 2]
    assert (found.chunk_index.tolist(), found.value_index.tolist()) == ([0, 0], [0, 1])


@pytest.mark.parametrize(
    "changes",
    [
        {"counts": np.array([2, 2])},
        {"begun": np.array([0, 1, 2])},
        {"begun": np.array([0, 2, 4])},
        {"begun": np.array([0, 2])},
        {"num_levels": np.array([3, 1])},
        {"num_levels": np.array([3, -1])},
        {"num_levels": np.array([3, 1 << 16])},
        {"chunks": np.array([0, 2])},
        {"limits": LevelLimits(1, 2, 1)},
        {"limits": LevelLimits(2, 3, 1)},
    ],
)
def test_inconsistent_buffers_are_corrupt(agree, changes):
    assert agree("take_row_levels", *arguments(**changes)) is CorruptDataError


def test_slices_outside_of_the_source_are_corrupt(agree):
    sound = arguments()[1]
    for position, size in ((-1, 4), (3, 1 << 40), (1 << 62, 4), (3, 1)):
        slices = ByteSlices(sound.slices.source, np.array([position, 3]), np.array([size, 4]))
        broken = arguments(repetition=PackedLevels(slices, 1))
        assert agree("take_row_levels", *broken) is CorruptDataError


def test_every_chunk_needs_its_numbers(agree):
    assert agree("take_row_levels", *arguments(counts=np.array([2]))) is InvalidInputError


@EXAMPLES
@given(seed=st.integers(0, 1 << 30))
def test_damaged_levels_agree(agree, damage, seed):
    rng = np.random.default_rng(seed)
    repetition, definition, edges, num_levels, begun, _ = chunks_of(rng, [9, 1100], 1200)
    levels = packed(repetition, edges, 1)
    source = damage(rng, levels.slices.source)
    broken = PackedLevels(ByteSlices(source, levels.slices.position, levels.slices.size), 1)
    rows = np.unique(rng.integers(0, int(begun[-1]), 5))
    counts = values_of(definition, edges)
    own_def = packed(definition, edges, 2)
    chunks = np.arange(len(num_levels))
    agree("take_row_levels", num_levels, broken, own_def, counts, chunks, begun, rows, LIMITS)
