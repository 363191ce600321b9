"""An NGRAM against windows that are counted one by one, however many runs its tokens take."""

import random

import numpy as np
import pyarrow as pa
import pytest

from lancelet.index.base import IndexedRows, Parameters
from lancelet.index.folder import SegmentFolder
from lancelet.index.scalar.ngram.kind import NGram, trigrams
from lancelet.io.memory import MemoryStore
from lancelet.rowids.address import NO_ADDRESS

TEXTS = 6000


def folder():
    return SegmentFolder(MemoryStore(), "_indices/a")


def parts_of(texts, numbers, size=1000):
    for start in range(0, len(texts), size):
        yield pa.array(texts[start : start + size], pa.string()), numbers[start : start + size]


def expected_of(texts, numbers):
    """Return the rows of each token."""
    found: dict[int, set[int]] = {}
    for text, number in zip(texts, numbers.tolist(), strict=True):
        for token in [0] if text is None else trigrams(text).tolist():
            found.setdefault(token, set()).add(number)
    return found


def stored(segment):
    return {
        token: set(rows.listed().tolist())
        for tokens, sets in segment.groups()
        for token, rows in zip(tokens.to_pylist(), sets, strict=True)
    }


@pytest.fixture(scope="module")
def texts():
    rng = random.Random(3)
    words = ["".join(rng.choices("abcdefgh", k=5)) for _ in range(300)]
    # So many letters that their tokens do not fit into one run.
    return [
        None if number % 11 == 0 else " ".join(rng.choices(words, k=10)) for number in range(TEXTS)
    ]


def trained(texts, numbers):
    place = folder()
    NGram().train(IndexedRows(pa.string(), parts_of(texts, numbers)), place, Parameters())
    return NGram().open(place, b"")


def test_every_token_has_its_rows(texts):
    numbers = np.arange(TEXTS, dtype=np.uint64)
    numbers[TEXTS // 2 :] += 1 << 32
    assert stored(trained(texts, numbers)) == expected_of(texts, numbers)


def test_a_merge_has_the_rows_of_all_under_their_new_numbers(texts):
    numbers = np.arange(TEXTS, dtype=np.uint64)
    half = TEXTS // 2
    old = trained(texts[:half], numbers[:half])

    def move(found):
        return np.where(found % 2 == 0, found + 10_000, NO_ADDRESS).astype(np.uint64)

    place = folder()
    new = IndexedRows(pa.string(), parts_of(texts[half:], numbers[half:]))
    NGram().merge([old], [move], new, place)
    expected = expected_of(texts[half:], numbers[half:])
    for token, rows in expected_of(texts[:half], numbers[:half]).items():
        moved = {row + 10_000 for row in rows if row % 2 == 0}
        if moved:
            expected.setdefault(token, set()).update(moved)
    assert stored(NGram().open(place, b"")) == expected


def test_an_index_of_no_rows_has_no_tokens():
    assert stored(trained([], np.empty(0, np.uint64))) == {}
