"""Upkeep of indices: deferred compactions are caught up with, broken files are built anew, and
kinds that only the reference knows live on."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import lance as reference
import pyarrow as pa
import pytest
from lance.indices import IndexConfig as ReferenceConfig

import lancelet as ours
from lancelet.errors import UnsupportedError
from lancelet.format.index_metadata import FRAGMENT_REUSE_INDEX
from lancelet.index import registry
from lancelet.scan.indexing.segments import IndexUnusableWarning
from lancelet.table.fragment_reuse import fragment_reuse_of

FILTER = "a > 90 AND a < 95"


def rows(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table(
        {
            "id": numbers,
            "a": pa.array([None if i % 13 == 0 else i % 100 for i in numbers], pa.int64()),
            "s": [f"word {i % 10}" for i in numbers],
        }
    )


def ids(dataset: Any, text: str = FILTER, **options: Any) -> list[int]:
    return sorted(dataset.to_table(columns=["id"], filter=text, **options)["id"].to_pylist())


def num_recorded(dataset: Any) -> int:
    return len(fragment_reuse_of(dataset.snapshot).versions)


@pytest.mark.parametrize("merges", [None, 0, 3])
@pytest.mark.parametrize("kind", ["BTREE", "BITMAP", "ZONEMAP"])
def test_optimising_catches_up_with_deferred_compactions(
    tmp_path: Path, kind: str, merges: int | None
) -> None:
    dataset = ours.write_dataset(rows(0, 400), tmp_path / "t", max_rows_per_file=50)
    dataset.create_scalar_index("a", kind)
    dataset.create_scalar_index("id", "BTREE")
    for step in range(2):
        dataset.delete(f"id % 11 = {step}")
        dataset.insert(rows(400 + 50 * step, 50))
        dataset.optimize.compact_files(
            target_rows_per_fragment=100 + 50 * step, defer_index_remap=True
        )
    assert num_recorded(dataset) == 2
    dataset.optimize.optimize_indices(index_names=["a_idx"], num_indices_to_merge=merges)
    assert num_recorded(dataset) == 2, "the other index still needs them"
    dataset.optimize.optimize_indices(num_indices_to_merge=merges)
    assert num_recorded(dataset) == 0
    version = dataset.version
    dataset.optimize.optimize_indices(num_indices_to_merge=merges)
    assert dataset.version == version
    expected = ids(dataset, use_scalar_index=False)
    assert ids(dataset) == ids(reference.dataset(tmp_path / "t")) == expected
    for name in ("a_idx", "id_idx"):
        assert dataset.stats.index_stats(name)["num_unindexed_rows"] == 0
    dataset.optimize.compact_files(target_rows_per_fragment=1000, defer_index_remap=True)
    assert num_recorded(dataset) == 1
    assert ids(dataset) == ids(reference.dataset(tmp_path / "t")) == expected


def test_remapping_deferred_by_the_reference_is_applied(tmp_path: Path) -> None:
    ours.write_dataset(rows(0, 400), tmp_path / "t", max_rows_per_file=50)
    theirs = reference.dataset(tmp_path / "t")
    theirs.create_scalar_index("a", "BTREE")
    theirs.delete("id % 5 = 0")
    theirs.optimize.compact_files(target_rows_per_fragment=200, defer_index_remap=True)
    dataset = ours.dataset(tmp_path / "t")
    assert num_recorded(dataset) == 1
    dataset.optimize.optimize_indices()
    assert num_recorded(dataset) == 0
    expected = ids(dataset, use_scalar_index=False)
    again = reference.dataset(tmp_path / "t")
    assert ids(dataset) == ids(again) == expected
    assert "ScalarIndexQuery" in again.scanner(filter=FILTER).explain_plan()
    again.insert(rows(400, 20))
    again.optimize.optimize_indices()
    assert ids(again) == ids(ours.dataset(tmp_path / "t"))


def test_an_index_without_valid_rows_is_skipped_and_rebuilt(tmp_path: Path) -> None:
    path = tmp_path / "t"
    ours.write_dataset(rows(0, 400), path, max_rows_per_file=50)
    theirs = reference.dataset(path)
    theirs.create_scalar_index("a", "BTREE")
    theirs.optimize.compact_files(target_rows_per_fragment=100, defer_index_remap=True)
    theirs.delete("id % 7 = 0")
    theirs.optimize.compact_files(target_rows_per_fragment=1000)
    dataset = ours.dataset(path)
    expected = ids(dataset, use_scalar_index=False)
    assert ids(theirs) != expected, "the reference has mended it: nothing is tested here"
    with pytest.warns(IndexUnusableWarning, match="lacks rows"):
        assert ids(dataset) == expected
    dataset.optimize.optimize_indices()
    assert ids(dataset) == ids(reference.dataset(path)) == expected
    assert num_recorded(dataset) == 0


def test_the_null_key_of_a_bitmap_may_come_last(tmp_path: Path) -> None:
    path = tmp_path / "t"
    first = pa.table({"id": range(40), "a": [None, *"babcabca" * 4, *"cbabcab"]})
    ours.write_dataset(first, path).create_scalar_index("a", "BITMAP")
    theirs = reference.dataset(path)
    theirs.insert(pa.table({"id": range(40, 50), "a": [None, "d", *"abcabcab"]}))
    theirs.optimize.optimize_indices()
    folder = path / "_indices" / ours.dataset(path).describe_indices()[0].segments[0].uuid
    stored = reference.file.LanceFileReader(str(folder / "bitmap_page_lookup.lance"))
    assert None in stored.read_all().to_table()["keys"].to_pylist()
    dataset = ours.dataset(path)
    for text in ("a IS NULL", "NOT (a IN ('a', 'd'))", "a > 'a'", "a IN ('b', 'd')"):
        assert ids(dataset, text) == ids(dataset, text, use_scalar_index=False), text
    dataset.optimize.optimize_indices(retrain=True)
    assert ids(dataset, "a IS NULL") == ids(reference.dataset(path), "a IS NULL") == [0, 40]


def damage(dataset: Any, path: Path, how: str) -> Path:
    """Damage the files of the only index, and return the folder."""
    folder = path / "_indices" / dataset.describe_indices()[0].segments[0].uuid
    for file in folder.iterdir():
        if how == "missing":
            file.unlink()
        elif how == "cut short":
            file.write_bytes(file.read_bytes()[:-9])
        else:
            file.write_bytes(bytes(len(file.read_bytes())))
    return folder


@pytest.mark.parametrize("how", ["missing", "cut short", "zeroed"])
@pytest.mark.parametrize("kind", ["BTREE", "BITMAP", "ZONEMAP", "BLOOMFILTER", "NGRAM"])
def test_a_broken_index_is_reported_skipped_and_rebuilt(
    tmp_path: Path, kind: str, how: str
) -> None:
    path = tmp_path / "t"
    made = ours.write_dataset(rows(0, 300), path, max_rows_per_file=100)
    column = "s" if kind == "NGRAM" else "a"
    made.create_scalar_index(column, kind)
    text = "contains(s, 'word')" if kind == "NGRAM" else "a = 7"
    expected = ids(made, text, use_scalar_index=False)
    folder = damage(made, path, how)
    dataset = ours.dataset(path)
    with pytest.warns(IndexUnusableWarning, match=folder.name):
        assert ids(dataset, text) == expected
    assert [each.index for each in dataset.check(level="indices")] != []
    report = dataset.repair(rebuild_indices=[f"{column}_idx"], dry_run=False)
    assert report.rebuilt_indices == (f"{column}_idx",)
    assert ids(dataset, text) == ids(reference.dataset(path), text) == expected
    assert "ScalarIndexQuery" in ours.dataset(path).scanner(filter=text).explain_plan()
    assert dataset.check(level="indices") == []


def test_an_index_is_not_dropped_and_rebuilt(tmp_path: Path) -> None:
    dataset = ours.write_dataset(rows(0, 30), tmp_path / "t")
    dataset.create_scalar_index("a", "BTREE")
    with pytest.raises(ValueError, match="both dropped and rebuilt"):
        dataset.repair(drop_indices=["a_idx"], rebuild_indices=["a_idx"])
    with pytest.raises(LookupError, match="no index"):
        dataset.repair(rebuild_indices=["b_idx"])


@pytest.mark.filterwarnings("ignore::lancelet.scan.indexing.segments.IndexUnusableWarning")
def test_kinds_that_are_not_known_live_through_every_operation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(registry._BY_TYPE, "fmindexdetails")
    path = tmp_path / "t"
    ours.write_dataset(rows(0, 300), path, max_rows_per_file=100)
    reference.dataset(path).create_scalar_index("s", ReferenceConfig("fm", {}))
    dataset = ours.dataset(path)
    before = dataset.describe_indices()[0]
    assert before.index_type == "Fm"
    text = "contains(s, 'rd 7')"
    dataset.delete("id % 9 = 0")
    dataset.update({"a": "a + 1"}, where="id = 5")
    dataset.insert(rows(300, 50))
    dataset.merge_insert("id").when_not_matched_insert_all().execute(rows(350, 10))
    dataset.add_columns({"twice": "a * 2"})
    dataset.create_scalar_index("a", "BTREE")
    dataset.optimize.optimize_indices()
    with pytest.raises(UnsupportedError, match="unknown type"):
        dataset.optimize.compact_files(defer_index_remap=True)
    dataset.optimize.compact_files()
    dataset.tags.create("here", dataset.version)
    dataset.delete("id = 1")
    after = next(each for each in dataset.describe_indices() if each.name == "s_idx")
    assert uuid.UUID(after.segments[0].uuid) == uuid.UUID(before.segments[0].uuid)
    assert (after.type_url, after.details) == (before.type_url, before.details)
    expected = ids(dataset, text, use_scalar_index=False)
    assert ids(dataset, text) == ids(reference.dataset(path), text) == expected
    names = {each.name for each in dataset.describe_indices()} - {FRAGMENT_REUSE_INDEX}
    assert names == {"s_idx", "a_idx"}
    dataset.drop_index("s_idx")
    assert ids(dataset, text) == expected


@pytest.mark.parametrize(
    "column", ["metadata.USER-ID", "`MetaData`.`user-id`", "MetaData.`a.b`", "METADATA.`A.B`"]
)
def test_both_name_an_index_by_the_path_that_the_schema_has(tmp_path, column):
    found = []
    for number, module in enumerate((ours, reference)):
        rows = pa.table({"MetaData": [{"user-id": 1, "a.b": 2}]})
        dataset = module.write_dataset(rows, str(tmp_path / str(number)))
        dataset.create_scalar_index(column, "BTREE")
        (index,) = dataset.describe_indices()
        found.append((index.name, index.field_names))
    assert found[0] == found[1]


def _without_details(dataset: Any, name: str) -> Any:
    """Commit an index again as old releases did, with nothing that says its kind."""
    (index,) = (each for each in dataset.describe_indices() if each.name == name)
    fragments = set(index.segments[0].fragment_ids)
    bare = ours.Index(index.segments[0].uuid, name, index.fields, dataset.version, fragments, 0)
    operation = ours.LanceOperation.CreateIndex([bare], [])
    return ours.LanceDataset.commit(dataset.uri, operation, read_version=dataset.version)


@pytest.mark.parametrize(
    ("kind", "title", "text"),
    [
        ("BTREE", "BTree", "a = 3"),
        ("BITMAP", "Bitmap", "a IN (3, 4)"),
        ("LABEL_LIST", "LabelList", "array_has(l, 3)"),
    ],
)
def test_indices_without_details_are_used_if_their_files_have_a_type(tmp_path, kind, title, text):
    path = str(tmp_path)
    rows = pa.table({"a": range(100), "l": [[n] for n in range(100)]})
    dataset = ours.write_dataset(rows, path, max_rows_per_file=50)
    dataset.create_scalar_index("l" if kind == "LABEL_LIST" else "a", kind, name="i")
    dataset = _without_details(dataset, "i")
    assert [each.index_type for each in dataset.describe_indices()] == ["Unknown"]
    assert "ScalarIndexQuery" in dataset.scanner(filter=text).explain_plan()
    for library in (ours, reference):
        opened = library.dataset(path)
        assert opened.stats.index_stats("i")["index_type"] == title
        assert opened.count_rows(text) == (2 if "IN" in text else 1)
    dataset.insert(rows)
    dataset.optimize.optimize_indices()
    assert dataset.check() == []
    assert dataset.count_rows(text) == (4 if "IN" in text else 2)


def test_an_index_with_unknown_row_references_is_skipped(tmp_path):
    rows = pa.table({"a": range(100)})
    dataset = ours.write_dataset(rows, str(tmp_path), enable_stable_row_ids=True)
    dataset.create_scalar_index("a", "BTREE", name="i")
    dataset = _without_details(dataset, "i")
    with pytest.warns(IndexUnusableWarning, match="no details"):
        assert dataset.count_rows("a = 3") == 1


def test_both_list_an_index_of_vectors_without_details_as_one(tmp_path):
    path = str(tmp_path)
    dataset = ours.write_dataset(pa.table({"a": range(100)}), path)
    files = [ours.IndexFile(path="index.idx", size_bytes=0)]
    bare = ours.Index(str(uuid.uuid4()), "i", [0], dataset.version, {0}, 0, files=files)
    operation = ours.LanceOperation.CreateIndex([bare], [])
    ours.LanceDataset.commit(path, operation, read_version=dataset.version)
    for library in (ours, reference):
        assert library.dataset(path).describe_indices()[0].index_type == "Vector"


INDEXED = {
    "BTREE": "id",
    "BITMAP": "a",
    "LABEL_LIST": "l",
    "NGRAM": "s",
    "ZONEMAP": "a",
    "BLOOMFILTER": "a",
    "INVERTED": "s",
    "IVF_FLAT": "v",
    "IVF_PQ": "v",
    "IVF_SQ": "v",
    "IVF_RQ": "v",
    "IVF_HNSW_FLAT": "v",
    "IVF_HNSW_PQ": "v",
    "IVF_HNSW_SQ": "v",
}
"""The column that each kind of index is built on."""

_DIM = 8


def indexable_rows(first: int, count: int) -> pa.Table:
    table = rows(first, count)
    vectors = pa.array(
        [[float((i * 7 + d) % 31) for d in range(_DIM)] for i in range(first, first + count)],
        pa.list_(pa.float32(), _DIM),
    )
    labels = pa.array([[f"label {i % 3}"] for i in range(first, first + count)])
    return table.append_column("l", labels).append_column("v", vectors)


def _upsert(dataset: Any, *columns: str) -> None:
    source = indexable_rows(0, 64)
    merge = dataset.merge_insert("id").when_matched_update_all()
    if columns:
        merge.execute(source.select(["id", *columns]))
    else:
        merge.when_not_matched_insert_all().execute(source)


def _delete_and_append(dataset: Any) -> None:
    dataset.delete("true")
    dataset.insert(indexable_rows(0, 64))


CHANGES_OF_ALL_ROWS = {
    "upsert": _upsert,
    "upsert of another column": lambda dataset: _upsert(dataset, "a"),
    "upsert of the vector": lambda dataset: _upsert(dataset, "v"),
    "update": lambda dataset: dataset.update({"a": "a + 1"}),
    "delete": lambda dataset: dataset.delete("true"),
    "delete and append": _delete_and_append,
}


@pytest.mark.parametrize("optimizer", ["lancelet", "reference"])
@pytest.mark.parametrize("stable", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize("change", CHANGES_OF_ALL_ROWS)
def test_index_survives_a_change_of_all_rows(
    tmp_path: Path, change: str, stable: bool, optimizer: str
) -> None:
    """Each library changes its own table, and either one then optimizes the indices of both."""
    coverage = {}
    for library in (ours, reference):
        uri = str(tmp_path / library.__name__)
        for kind, column in INDEXED.items():
            dataset = library.write_dataset(
                indexable_rows(0, 64),
                f"{uri}/{kind}",
                max_rows_per_file=32,
                enable_stable_row_ids=stable,
            )
            if column == "v":
                options = {"num_sub_vectors": 2, "num_bits": 4} if "PQ" in kind else {}
                dataset.create_index(column, kind, name=kind, num_partitions=1, **options)
            else:
                dataset.create_scalar_index(column, kind, name=kind)
            CHANGES_OF_ALL_ROWS[change](dataset)
            dataset = ours.dataset(f"{uri}/{kind}")
            names = [index.name for index in dataset.describe_indices()]
            assert names == [
                index.name for index in reference.dataset(dataset.uri).describe_indices()
            ]
            assert names == [kind]
            opened = (ours if optimizer == "lancelet" else reference).dataset(dataset.uri)
            opened.optimize.optimize_indices()
            dataset = ours.dataset(dataset.uri)
            unindexed = dataset.stats.index_stats(kind)["num_unindexed_rows"]
            coverage[library.__name__, kind] = unindexed
            dataset.validate()
            if dataset.count_rows():
                query = {"column": "v", "q": [1.0] * _DIM, "k": 64, "nprobes": 1}
                assert dataset.to_table(["id"], nearest=query).num_rows == 64
    assert {kind: unindexed for kind, unindexed in coverage.items() if unindexed} == {}
