"""The life of an index, with both implementations taking turns.

Goal: after every step both answer through the index as they do without it. Method: one table is
changed and its index kept up by each implementation in turn; every kind, with and without stable
row ids, with remapping at once and deferred.
"""

import lance
import pyarrow as pa
import pytest

import lancelet

pytestmark = pytest.mark.interop

QUESTIONS = {
    "BTREE": ("a = 3", "a > 90", "a IS NULL", "a IN (1, 2, 50)", "NOT (a < 95)"),
    "BITMAP": ("a = 3", "a > 90", "a IS NULL", "a NOT IN (1, 2)"),
    "ZONEMAP": ("a = 3", "a > 90", "a IS NULL"),
    "BLOOMFILTER": ("a = 3", "a IS NULL"),
    "NGRAM": ("contains(s, 'c1')", "contains(s, 'abc1')", "s LIKE '%bc1%'", "s IS NULL"),
    "FM": ("contains(s, 'c1')", "contains(s, 'é')", "s LIKE '%c1%'", "s IS NULL"),
    "LABEL_LIST": ("array_has(l, 3)", "array_has_any(l, [1, 2])", "array_has_all(l, [3, 0])"),
}
CASES = [
    (kind, stable, deferred)
    for kind in QUESTIONS
    for stable, deferred in ((False, False), (False, True), (True, False))
    if not (kind == "FM" and deferred)
]


def rows(first, stop):
    numbers = range(first, stop)
    return pa.table(
        {
            "id": numbers,
            "a": pa.array([None if i % 13 == 0 else i % 100 for i in numbers], pa.int64()),
            "s": [None if i % 11 == 0 else f"Abc{i % 30}é" for i in numbers],
            "l": pa.array([[i % 5, i % 7] for i in numbers]),
        }
    )


def ids(dataset, text, **options):
    return sorted(dataset.to_table(columns=["id"], filter=text, **options)["id"].to_pylist())


@pytest.mark.parametrize(("kind", "stable", "deferred"), CASES)
def test_indices_answer_identically_through_their_life(tmp_path, kind, stable, deferred):
    path = str(tmp_path / "table.lance")

    def check(step):
        for text in QUESTIONS[kind]:
            expected = ids(lancelet.dataset(path), text, use_scalar_index=False)
            assert ids(lancelet.dataset(path), text) == expected, (step, text)
            assert ids(lance.dataset(path), text) == expected, (step, text)

    ours = lancelet.write_dataset(
        rows(0, 400), path, max_rows_per_file=100, enable_stable_row_ids=stable
    )
    column = {"LABEL_LIST": "l", "NGRAM": "s", "FM": "s"}.get(kind, "a")
    name = f"{column}_idx"
    ours.create_scalar_index(column, lancelet.indices.IndexConfig(kind.lower(), {}))
    check("created")
    ours.delete("id % 9 = 2")
    ours.insert(rows(400, 500))
    check("changed")
    ours.optimize.optimize_indices(num_indices_to_merge=0)
    assert len(ours.describe_indices()[0].segments) == 2
    check("extended")
    ours.optimize.compact_files(target_rows_per_fragment=250, defer_index_remap=deferred)
    check("compacted")
    ours.update({"a": "a + 1"}, where="id % 50 = 7")
    check("updated")
    ours.optimize.optimize_indices(num_indices_to_merge=5)
    statistics = ours.stats.index_stats(name)
    assert (statistics["num_unindexed_fragments"], statistics["num_segments"]) == (0, 1)
    check("merged")

    lance.write_dataset(rows(500, 550), path, mode="append")
    lance.dataset(path).optimize.optimize_indices()
    check("extended by the reference")
    ours = lancelet.dataset(path)
    ours.optimize.compact_files()
    check("compacted again")
    ours.optimize.optimize_indices(retrain=True)
    check("built anew")


@pytest.mark.parametrize("kind", ["BTREE", "BITMAP", "ZONEMAP"])
def test_separately_built_segments_are_committed_and_merged(tmp_path, kind):
    path = str(tmp_path / "table.lance")
    ours = lancelet.write_dataset(rows(0, 300), path, max_rows_per_file=100)
    parts = [
        ours.create_index_uncommitted("a", kind, name="by_a", fragment_ids=[fragment])
        for fragment in range(3)
    ]
    ours.commit_existing_index_segments("by_a", "a", parts)
    assert len(ours.describe_indices()[0].segments) == 3
    expected = ids(ours, "a = 7", use_scalar_index=False)
    assert ids(ours, "a = 7") == ids(lance.dataset(path), "a = 7") == expected
    whole = ours.merge_existing_index_segments(parts)
    ours.commit_existing_index_segments("by_a", "a", [whole])
    assert len(ours.describe_indices()[0].segments) == 1
    assert ids(ours, "a = 7") == ids(lance.dataset(path), "a = 7") == expected
