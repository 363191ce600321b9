"""Checking indices finds entries that rows do not have, and rows without an entry."""

import numpy as np
import pyarrow as pa
import pytest

import lancelet
from lancelet.index.parts.key_sets import KeySets
from lancelet.index.scalar.btree.search import BTreeSegment
from lancelet.index.scalar.fm.kind import FmSegment
from lancelet.index.scalar.zonemap.kind import ZoneMapSegment
from lancelet.indices import IndexConfig
from lancelet.upkeep.check.finding import Severity
from lancelet.upkeep.check.indices import SCALAR_INDICES

KINDS = ("BTREE", "BITMAP", "ZONEMAP", "BLOOMFILTER", "LABEL_LIST")


def build(tmp_path, kind, *, stable=False):
    values = [None if i % 7 == 0 else float(i % 20) for i in range(200)]
    table = pa.table({"a": values, "l": [[i % 3, None] for i in range(200)]})
    dataset = lancelet.write_dataset(
        table, str(tmp_path / "t"), max_rows_per_file=60, enable_stable_row_ids=stable
    )
    dataset.create_scalar_index("l" if kind == "LABEL_LIST" else "a", kind)
    return dataset


def findings(dataset):
    checker = SCALAR_INDICES
    (index,) = dataset.snapshot.indices.indices
    assert checker.supports(index)
    return list(checker.findings(dataset.snapshot, index))


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_sound_indices_have_no_findings_through_their_life(tmp_path, kind, stable):
    dataset = build(tmp_path, kind, stable=stable)
    assert findings(dataset) == []
    dataset.delete("a = 3")
    dataset.update({"a": "a + 1"}, where="a = 5")
    assert findings(dataset) == []
    dataset.optimize.optimize_indices()
    assert findings(dataset) == []


def test_a_row_with_another_value_is_found(tmp_path, monkeypatch):
    dataset = build(tmp_path, "BTREE")
    whole = BTreeSegment.entries

    def turned(segment):
        values, ids = whole(segment)
        return values, np.roll(ids, 1)

    monkeypatch.setattr(BTreeSegment, "entries", turned)
    found = findings(dataset)
    assert [each.severity for each in found] == [Severity.ERROR] * 2
    assert "wrong values for" in found[1].what


def test_a_row_that_is_missing_is_found(tmp_path, monkeypatch):
    dataset = build(tmp_path, "BITMAP")
    whole = KeySets.entries

    def fewer(sets):
        values, ids = whole(sets)
        return values.slice(5), ids[5:]

    monkeypatch.setattr(KeySets, "entries", fewer)
    (found,) = findings(dataset)
    assert "lacks the values of 5 rows" in found.what


def test_zones_that_would_pass_over_a_row_are_found(tmp_path, monkeypatch):
    dataset = build(tmp_path, "ZONEMAP")
    monkeypatch.setattr(
        ZoneMapSegment, "_zones", lambda self, _: np.zeros(len(self.locations), np.bool_)
    )
    assert all("queries by value miss" in each.what for each in findings(dataset))
    assert findings(dataset)


OTHER_TEXTS = {
    "another text": lambda texts, ids: (pa.array([b"x", *texts.to_pylist()[1:]]), ids),
    "no text": lambda texts, ids: (texts[1:], ids[1:]),
    "a text too many": lambda texts, ids: (
        pa.array([*texts.to_pylist(), b"x"]),
        np.append(ids, np.uint64(2)),
    ),
}


@pytest.mark.parametrize("damage", OTHER_TEXTS)
def test_an_index_of_other_texts_is_seen(tmp_path, monkeypatch, damage):
    texts = ["ab", "a\0c", None, "", "ab"]
    dataset = lancelet.write_dataset(pa.table({"s": texts}), tmp_path / "t")
    dataset.create_scalar_index("s", IndexConfig("fm", {}))
    assert findings(dataset) == []
    whole = FmSegment.entries
    monkeypatch.setattr(FmSegment, "entries", lambda own: OTHER_TEXTS[damage](*whole(own)))
    assert findings(dataset)


def test_rows_that_are_known_by_id_are_looked_for_where_they_are(tmp_path):
    texts = pa.table({"a": ["gone", "kept", None, "kept too"]})
    dataset = lancelet.write_dataset(texts, tmp_path / "t", enable_stable_row_ids=True)
    dataset.delete("a = 'gone'")
    dataset.optimize.compact_files(materialize_deletions_threshold=0.0)
    dataset.create_scalar_index("a", "NGRAM")
    assert findings(dataset) == []
