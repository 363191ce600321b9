from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lancelet.index.inverted.partition import MemoryPartition
from lancelet.index.inverted.phrases import docs_with_phrase, occurrences
from lancelet.index.inverted.postings import Postings

PLACES = st.sets(st.tuples(st.sampled_from([0, 1, 2**32 - 1]), st.integers(0, 6)), max_size=8)
WORDS = st.lists(st.lists(PLACES, min_size=1, max_size=3), min_size=1, max_size=3)


def as_numbers(places):
    return np.array([doc << 32 | position for doc, position in sorted(places)], np.uint64)


def docs_one_by_one(words, offsets, slop):
    reached = set().union(*words[0])
    for tokens, (before, after) in zip(words[1:], pairwise(offsets), strict=True):
        reached = {
            (doc, position)
            for doc, position in set().union(*tokens)
            if any((doc, position - (after - before) - far) in reached for far in range(slop + 1))
        }
    return sorted({doc for doc, _ in reached})


@given(WORDS, st.lists(st.integers(1, 3), min_size=3, max_size=3), st.integers(0, 3))
def test_phrases_are_found_as_by_trying_all_places(words, steps, slop):
    offsets = np.cumsum([0, *steps])[: len(words)].tolist()
    numbers = [[as_numbers(places) for places in tokens] for tokens in words]
    found = docs_with_phrase(numbers, offsets, slop=slop)
    assert found.tolist() == docs_one_by_one(words, offsets, slop)


DOCUMENTS = st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=4), min_size=1, max_size=300)


@given(st.lists(DOCUMENTS, min_size=1, max_size=2))
def test_occurrences_round_trip(tokens):
    sizes = [len(documents) for documents in tokens]
    flat = [sorted(document) for documents in tokens for document in documents]
    postings = Postings(
        np.repeat(np.arange(len(tokens), dtype=np.uint32), sizes),
        np.concatenate([np.arange(size, dtype=np.uint32) for size in sizes]),
        np.array([len(document) for document in flat], np.uint32),
        np.array([position for document in flat for position in document], np.uint32),
    )
    num_docs = max(sizes)
    names, lengths = ["a", "b"][: len(tokens)], np.ones(num_docs, np.uint32)
    partition = MemoryPartition(names, postings, np.arange(num_docs, dtype=np.uint64), lengths)
    lists = partition.lists(range(len(tokens)), partition.norms(1.0), with_position=True)
    for documents, places in zip(tokens, occurrences(lists), strict=True):
        expected = [(doc, each) for doc, own in enumerate(documents) for each in sorted(own)]
        assert places.tolist() == [doc << 32 | each for doc, each in expected]
