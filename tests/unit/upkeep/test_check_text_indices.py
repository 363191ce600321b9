"""Checking text indices finds words that rows do not have, and words of rows that are missing."""

import json

import lance as reference
import numpy as np
import pyarrow as pa
import pytest

import lancelet
from lancelet.index.inverted.partition import StoredPartition
from lancelet.index.inverted.postings import Postings
from lancelet.query import DocumentGranularity
from lancelet.upkeep.check.finding import Severity
from lancelet.upkeep.check.segments import TEXT_INDICES

BY_ELEMENT = {"document_granularity": DocumentGranularity.LIST_ELEMENT}
WORDS = ["red", "fox", "running", "the", "dog"]


def texts(count=200):
    random = np.random.default_rng(3)
    found = [" ".join(random.choice(WORDS, random.integers(0, 6))) for _ in range(count)]
    return [None if place % 9 == 0 else text for place, text in enumerate(found)]


def build(path, values, *, stable=False, writer=lancelet, **options):
    table = pa.table({"id": range(len(values)), "s": values})
    dataset = lancelet.write_dataset(
        table, path, max_rows_per_file=60, enable_stable_row_ids=stable
    )
    writer.dataset(path).create_scalar_index("s", "INVERTED", **options)
    dataset.checkout_latest()
    return dataset


def findings(dataset):
    checker = TEXT_INDICES
    found = []
    for index in dataset.snapshot.indices.indices:
        assert checker.supports(index)
        found += checker.findings(dataset.snapshot, index)
    assert all(each.severity is Severity.ERROR and each.index == "s_idx" for each in found)
    return [each.what for each in found]


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("writer", [lancelet, reference])
def test_sound_indices_have_no_findings_through_their_life(tmp_path, stable, writer):
    dataset = build(str(tmp_path), texts(), stable=stable, writer=writer, with_position=True)
    assert findings(dataset) == []
    dataset.delete("id % 5 = 3")
    dataset.update({"s": "'another fox'"}, where="id % 7 = 1")
    dataset.insert(dataset.to_table().slice(0, 20))
    assert findings(dataset) == []
    dataset.optimize.optimize_indices(num_indices_to_merge=0)
    assert findings(dataset) == []
    dataset.optimize.compact_files()
    assert findings(dataset) == []


@pytest.mark.parametrize(
    ("values", "options"),
    [
        (pa.array([["red fox", None, "fox"], None, []] * 9), {}),
        (pa.array([["red fox", None, "fox"], None, []] * 9), BY_ELEMENT),
        (pa.array([json.dumps({"a": "red fox", "b": [1, 2]})] * 9, pa.json_()), {}),
        (pa.array(["Red Foxes", "x", None]), {"base_tokenizer": "ngram"}),
        (pa.array([None, None], pa.string()), {}),
    ],
)
def test_lists_and_documents_are_cut_as_the_index_was(tmp_path, values, options):
    assert findings(build(str(tmp_path), values, **options)) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda own: Postings(own.tokens[1:], own.docs[1:], own.freqs[1:], None), "lacks 1 tokens"),
        (
            lambda own: Postings(own.tokens, own.docs, own.freqs + 1, None),
            "wrong number of tokens",
        ),
        (
            lambda own: Postings(own.tokens[::-1], own.docs, own.freqs, None),
            "wrong tokens of rows",
        ),
    ],
)
def test_words_in_wrong_rows_are_found(tmp_path, monkeypatch, change, message):
    dataset = build(str(tmp_path), texts())
    whole = StoredPartition.read_all

    def changed(partition):
        tokens, postings = whole(partition)
        return tokens, change(postings)

    monkeypatch.setattr(StoredPartition, "read_all", changed)
    assert any(message in each for each in findings(dataset))
