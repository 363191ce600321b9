"""Suffixes in order, and finding parts of a text in a wavelet tree, against plain Python."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lancelet.errors import CorruptDataError
from lancelet.index.kernels import WaveletTree, order_suffixes
from lancelet.index.scalar.fm.layout import build_tree

Agree = Callable[..., Any]
RATE = 4


def bytes_of(text: bytes) -> np.ndarray:
    return np.frombuffer(text, np.uint8)


def tree_and_samples(text: bytes) -> tuple[WaveletTree, np.ndarray]:
    order = order_suffixes(bytes_of(text))
    return build_tree(bytes_of(text)[order - 1]), order[::RATE].astype(np.uint64)


texts = st.one_of(
    st.binary(max_size=200),
    st.lists(st.sampled_from([b"a", b"ab", b"aab", b"b"]), max_size=60).map(b"".join),
    st.integers(0, 300).map(lambda count: b"x" * count),
).map(lambda text: text.replace(b"\0", b" ") + b"\xff\0")


@given(texts)
@settings(deadline=None, max_examples=60)
def test_suffixes_are_in_their_order(agree: Agree, text: bytes) -> None:
    order = agree("order_suffixes", bytes_of(text))
    assert order.tolist() == sorted(range(len(text)), key=lambda start: text[start:])


@pytest.mark.parametrize("text", [b"", b"a", b"a\0b\0", b"\0\0"])
def test_a_text_ends_with_its_only_zero(agree: Agree, text: bytes) -> None:
    assert agree("order_suffixes", bytes_of(text)) is CorruptDataError


@given(texts, st.data())
@settings(deadline=None, max_examples=60)
def test_a_tree_finds_every_part_and_gives_the_text_back(
    agree: Agree, text: bytes, data: st.DataObject
) -> None:
    tree, samples = tree_and_samples(text)
    start = data.draw(st.integers(0, len(text) - 1))
    wanted = text[start : start + data.draw(st.integers(1, 5))] + data.draw(
        st.sampled_from([b"", b"b", b"\xff"])
    )
    # Rows are of rotations, and what is asked for has not the last byte.
    wanted = wanted.replace(b"\0", b"b")
    first, end = agree("find_suffixes", tree, wanted)
    found = agree("locate_suffixes", tree, samples, RATE, first, end - first)
    assert sorted(found.tolist()) == [
        place for place in range(len(text)) if text[place:].startswith(wanted)
    ]
    assert agree("unwind_text", tree).tobytes() == text


def test_ranks_are_of_each_node(agree: Agree) -> None:
    words = np.array([3, 1 << 63, 7], np.uint64)
    assert agree("rank_bits", words, np.array([0, 2, 2, 3])).tolist() == [0, 2, 3, 0, 0, 3]
    assert agree("rank_bits", words, np.array([0, 4])) is CorruptDataError


@given(st.randoms(use_true_random=False), texts)
@settings(deadline=None, max_examples=150)
def test_a_damaged_tree_is_rejected_or_answers_within_bounds(
    agree: Agree, random: Any, text: bytes
) -> None:
    tree, samples = tree_and_samples(text)
    damaged = {
        name: getattr(tree, name).copy()
        for name in ("bit_words", "starts", "bits", "children", "counts")
    }
    for _ in range(random.randint(1, 3)):
        array = damaged[random.choice(sorted(damaged))]
        if len(array):
            value = random.choice([0, 1, 5, 1 << 30, random.randint(0, 300)])
            array[random.randrange(len(array))] = value
            if array.dtype != np.uint64 and random.random() < 0.3:
                array[random.randrange(len(array))] *= -1
    broken = replace(tree, **damaged)
    found = agree("find_suffixes", broken, text[:3])
    if isinstance(found, tuple):
        assert 0 <= found[0] <= found[1] <= max(broken.length, 0)
    count = random.randint(0, len(text) + 1)
    agree("locate_suffixes", broken, samples, RATE, random.randint(-1, 3), count)
    # Lengths of a damaged tree are unverified; callers allocate the memory of a text.
    if broken.length <= len(text):
        agree("unwind_text", broken)


def test_a_circle_past_all_samples_is_damage(agree: Agree) -> None:
    # A text of 129 bytes with rows that lead to themselves.
    words = np.zeros(3, np.uint64)
    counts = np.zeros(257, np.int64)
    counts[1:] = 129
    tree = WaveletTree(
        words,
        np.zeros(4, np.uint32),
        np.array([0, 3]),
        np.array([129]),
        np.array([-1, -2], np.int32),
        counts,
    )
    samples = np.zeros(5, np.uint64)
    assert agree("locate_suffixes", tree, samples, 32, 1, 100) is CorruptDataError
