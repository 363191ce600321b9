"""The repetition index finds every row, for all chunk sizes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lancelet.encodings.miniblock.repetition_index import (
    ChunkLevels,
    build_repetition_index,
    parse_repetition_index,
)
from lancelet.errors import CorruptDataError

LENGTHS = st.lists(st.integers(1, 9), min_size=1, max_size=20)


def levels_of_rows(lengths):
    return np.concatenate([[1] + [0] * (length - 1) for length in lengths]).astype(np.uint16)


@settings(deadline=None, max_examples=60)
@given(lengths=LENGTHS, cuts=st.lists(st.integers(1, 180), max_size=6), data=st.data())
def test_every_row_is_found(lengths, cuts, data):
    levels = levels_of_rows(lengths)
    edges = np.array(sorted({0, len(levels), *(cut for cut in cuts if cut < len(levels))}))
    index = parse_repetition_index(
        build_repetition_index(levels, edges, 1),
        num_chunks=len(edges) - 1,
        num_rows=len(lengths),
    )
    assert index.num_rows == len(lengths)
    starts = np.flatnonzero(levels)
    stops = np.append(starts[1:], len(levels))
    rows = np.array(sorted(data.draw(st.sets(st.integers(0, len(lengths) - 1), min_size=1))))
    begins, ends = index.chunks_of_rows(rows)
    chunk_of = np.searchsorted(edges, np.arange(len(levels)), side="right") - 1
    assert begins.tolist() == chunk_of[starts[rows]].tolist()
    assert ends.tolist() == chunk_of[stops[rows] - 1].tolist()

    chunks = np.unique(
        np.concatenate([np.arange(b, e + 1) for b, e in zip(begins, ends, strict=True)])
    )
    num_levels = np.diff(edges)[chunks]
    entries = np.concatenate([np.arange(edges[chunk], edges[chunk + 1]) for chunk in chunks])
    levels_of_chunks = ChunkLevels(index, chunks, levels[entries], num_levels, 1)
    found = levels_of_chunks.entries_of_rows(rows)
    expected = np.concatenate([np.arange(starts[row], stops[row]) for row in rows])
    assert entries[found].tolist() == expected.tolist()

    first, last = index.chunks_of_range(int(rows[0]), int(rows[-1]) + 1)
    assert (first, last) == (begins[0], ends[-1] + 1)
    run = slice(edges[first], edges[last])
    levels_of_run = ChunkLevels(
        index, np.arange(first, last), levels[run], np.diff(edges)[first:last], 1
    )
    found = levels_of_run.entries_of_range(int(rows[0]), int(rows[-1]) + 1)
    assert found.start + edges[first] == starts[rows[0]]
    assert found.stop + edges[first] == stops[rows[-1]]


@pytest.mark.parametrize(
    ("pairs", "num_rows"),
    [
        ([[2, 0], [2, 0]], 3),
        ([[2, 0], [1, 1]], 3),
        ([[1 << 63, 0], [0, 0]], 3),
        ([[0, 1], [0, 1], [0, 0]], 1),
    ],
)
def test_an_index_that_does_not_add_up_is_corrupt(pairs, num_rows):
    data = np.array(pairs, "<u8").reshape(-1).view(np.uint8)
    with pytest.raises(CorruptDataError):
        parse_repetition_index(data, num_chunks=len(pairs), num_rows=num_rows)


def test_an_index_of_other_chunks_is_corrupt():
    with pytest.raises(CorruptDataError, match="chunks"):
        parse_repetition_index(np.zeros(16, np.uint8), num_chunks=2, num_rows=0)


@pytest.mark.parametrize("pairs", [[[1, 0], [1, 0]], [[3, 0], [1, 0]], [[1, 1], [2, 0]]])
def test_levels_with_other_rows_than_the_index_are_corrupt(pairs):
    index = parse_repetition_index(
        np.array(pairs, "<u8").reshape(-1).view(np.uint8),
        num_chunks=2,
        num_rows=pairs[0][0] + pairs[1][0],
    )
    repetition = np.array([1, 1, 0, 0], np.uint16)
    levels = ChunkLevels(index, np.arange(2), repetition, np.array([2, 2]), 1)
    with pytest.raises(CorruptDataError, match="rows"):
        levels.entries_of_range(0, 1)
    with pytest.raises(CorruptDataError, match="rows"):
        levels.entries_of_rows(np.array([0]))
