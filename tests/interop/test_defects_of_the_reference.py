"""Defects that users of the reference reported, replayed: what they lost holds here.

Each test does what a report says, as shortly as that can be done, and expects what its author
expected. `docs/reference/defects.md` lists the reports.
"""

import contextlib
import random
import shutil
import threading
import uuid
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

import lancelet
from lancelet.errors import AlreadyExistsError, NotFoundError
from lancelet.indices import IndexConfig
from lancelet.mem_wal import CompactedSsTable
from lancelet.scan.indexing.segments import IndexUnusableWarning

pytestmark = pytest.mark.interop

VERSIONS = ("2.0", "2.1", "2.2")


def vectors(count, width=8, seed=0):
    values = np.random.default_rng(seed).random(count * width, np.float32)
    return pa.FixedSizeListArray.from_arrays(pa.array(values), width)


def ids(dataset, text, **options):
    return sorted(dataset.to_table(["id"], filter=text, **options)["id"].to_pylist())


def row_ids(dataset):
    return dataset.to_table([], with_row_id=True)["_rowid"].to_pylist()


def roundtrip(tmp_path, table, version):
    dataset = lancelet.write_dataset(table, tmp_path / "t", data_storage_version=version)
    assert dataset.to_table().to_pylist() == table.to_pylist()
    some = [row for row in (0, table.num_rows - 1) if row >= 0]
    assert dataset.take(some).to_pylist() == table.take(some).to_pylist()
    return dataset


# ---- Filters and indices --------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["BTREE", "BITMAP"])
def test_a_limit_counts_rows_that_match_all_of_a_filter(tmp_path, kind):
    rows = pa.table(
        {"id": range(400), "topic": ["A"] * 400, "night": [number >= 390 for number in range(400)]}
    )
    dataset = lancelet.write_dataset(rows, tmp_path / "t", max_rows_per_file=100)
    dataset.create_scalar_index("topic", kind)
    assert dataset.to_table(filter="topic = 'A' AND night = true", limit=10).num_rows == 10


def test_a_prefilter_holds_for_rows_that_no_index_has(tmp_path):
    rows = pa.table({"a": range(600), "v": vectors(600)})
    dataset = lancelet.write_dataset(rows, tmp_path / "t")
    dataset.create_scalar_index("a", "BTREE")
    dataset.create_index("v", "IVF_PQ", num_partitions=2, num_sub_vectors=2)
    dataset.insert(rows)
    query = {"column": "v", "q": np.zeros(8, np.float32), "k": 10}
    assert dataset.to_table(filter="a < 0", prefilter=True, nearest=query).num_rows == 0
    assert dataset.to_table(filter="a = 7", prefilter=True, nearest=query).num_rows == 2


def test_either_of_two_indexed_columns_may_match(tmp_path):
    colours = ["red", "green", "blue"]
    rows = [{"id": at, "colour": colours[at % 3], "digit": at % 10} for at in range(3000)]
    dataset = lancelet.write_dataset(pa.Table.from_pylist(rows), tmp_path / "t")
    text = "colour = 'green' OR digit <> 9"
    expected = ids(dataset, text)
    dataset.create_scalar_index("colour", "BTREE")
    dataset.create_scalar_index("digit", "BTREE")
    assert ids(dataset, text) == expected
    assert len(expected) == 2800


@pytest.mark.parametrize("kind", ["BTREE", "BITMAP", "ZONEMAP"])
def test_nulls_are_in_no_answer_of_either_comparison(tmp_path, kind):
    dataset = lancelet.write_dataset(pa.table({"c": pa.array([None, 1])}), tmp_path / "t")
    dataset.create_scalar_index("c", kind)
    assert dataset.count_rows("(c != 0) OR (c < 5)") == 1
    assert dataset.count_rows("NOT (c = 0)") == 1


def test_rows_are_identified_by_address_within_their_fragment(tmp_path):
    dataset = lancelet.write_dataset(pa.table({"id": [1, 2, 3]}), tmp_path / "t")
    dataset.insert(pa.table({"id": [4, 5]}))
    found = [
        fragment.scanner(columns=["id"], filter="_rowaddr = 0").to_table()["id"].to_pylist()
        for fragment in dataset.get_fragments()
    ]
    assert found == [[1], []]


@pytest.mark.parametrize("stable", [False, True])
def test_row_ids_that_are_not_listed(tmp_path, stable):
    rows = pa.table({"id": range(10)})
    dataset = lancelet.write_dataset(rows, tmp_path / "t", enable_stable_row_ids=stable)
    assert ids(dataset, "_rowid NOT IN (2, 4, 6, 8)") == [0, 1, 3, 5, 7, 9]
    assert ids(dataset, "_rowid IN (2, 4)") == [2, 4]


@pytest.mark.parametrize("prefilter", [False, True])
def test_a_filter_applies_to_a_text_search(tmp_path, prefilter):
    texts = ["a puppy", "a happy puppy", "a very happy puppy", "several kittens"]
    moods = ["neutral", "positive", "positive", "neutral"]
    dataset = lancelet.write_dataset(pa.table({"text": texts, "mood": moods}), tmp_path / "t")
    dataset.create_scalar_index("mood", "BTREE")
    dataset.create_scalar_index("text", "INVERTED")
    found = dataset.to_table(
        full_text_query="puppy", filter="mood = 'positive'", prefilter=prefilter
    )
    assert sorted(found["text"].to_pylist()) == ["a happy puppy", "a very happy puppy"]


def test_a_word_all_of_whose_texts_are_deleted(tmp_path):
    rows = pa.table({"id": range(4), "text": ["one word", "two words", "one more", "none"]})
    dataset = lancelet.write_dataset(rows, tmp_path / "t")
    dataset.create_scalar_index("text", "INVERTED")
    dataset.delete("id IN (0, 2)")
    assert dataset.to_table(full_text_query="one").num_rows == 0
    dataset.optimize.compact_files()
    dataset.optimize.optimize_indices()
    assert dataset.to_table(full_text_query="one").num_rows == 0
    assert dataset.to_table(full_text_query="two").num_rows == 1


@pytest.mark.parametrize("kind", ["BLOOMFILTER", "ZONEMAP", "BTREE", "BITMAP"])
def test_rows_are_found_after_a_compaction_that_deferred_its_remapping(tmp_path, kind):
    rows = pa.table({"id": range(400)})
    dataset = lancelet.write_dataset(rows, tmp_path / "t", max_rows_per_file=100)
    dataset.create_scalar_index("id", kind)
    dataset.delete("id < 50")
    dataset.optimize.compact_files(defer_index_remap=True)
    for number in (60, 199, 399):
        assert ids(dataset, f"id = {number}") == [number]


@pytest.mark.parametrize("value", ["2.0", "cast('NaN' as double)"])
def test_zones_that_have_nan_are_not_passed_over(tmp_path, value):
    numbers = pa.array([1.0, float("nan"), 2.0, None])
    dataset = lancelet.write_dataset(pa.table({"x": numbers}), tmp_path / "t")
    expected = dataset.count_rows(f"x = {value}")
    dataset.create_scalar_index("x", "ZONEMAP")
    assert dataset.count_rows(f"x = {value}") == expected == 1


@pytest.mark.parametrize("kind", ["ZONEMAP", "BLOOMFILTER"])
def test_nulls_of_zones_are_known_after_each_way_of_growing(tmp_path, kind):
    rows = pa.table({"id": range(100), "x": [None if at % 9 == 0 else at for at in range(100)]})
    dataset = lancelet.write_dataset(rows, tmp_path / "t")
    dataset.create_scalar_index("x", kind)
    for merges in (0, 1, 5):
        dataset.insert(rows)
        dataset.optimize.optimize_indices(num_indices_to_merge=merges)
        expected = dataset.count_rows("x IS NULL")
        assert expected == 12 * len(dataset.get_fragments())
        assert ids(dataset, "x IS NULL") == ids(dataset, "x IS NULL", use_scalar_index=False)


def test_an_index_of_a_column_that_is_cast_is_named(tmp_path):
    dataset = lancelet.write_dataset(pa.table({"x": range(10)}), tmp_path / "t")
    dataset.create_scalar_index("x", "BTREE")
    with pytest.raises(ValueError, match="x_idx"):
        dataset.alter_columns({"path": "x", "data_type": pa.int32()})
    assert dataset.count_rows("x = 3") == 1
    dataset.drop_index("x_idx")
    dataset.alter_columns({"path": "x", "data_type": pa.int32()})
    assert dataset.schema.field("x").type == pa.int32()


def test_expressions_of_pyarrow_filter_too(tmp_path):
    dataset = lancelet.write_dataset(pa.table({"id": range(100)}), tmp_path / "t")
    assert dataset.count_rows(pc.field("id").isin([3, 50, 700])) == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [("NOT contains(s, 'b')", [4]), ("contains(s, '')", [0, 2, 3, 4]), ("contains(s, 'a b')", [3])],
)
def test_an_index_of_substrings_knows_nulls_blanks_and_empty_texts(tmp_path, text, expected):
    rows = pa.table({"id": range(5), "s": ["ab", None, "a\0b", "a b", ""]})
    dataset = lancelet.write_dataset(rows, tmp_path / "t")
    dataset.create_scalar_index("s", IndexConfig("fm", {}))
    assert ids(dataset, text) == expected


# ---- Stable row ids, and indices beside changes -----------------------------------------------


def test_an_overwrite_gives_other_row_ids_to_fragments_of_the_same_number(tmp_path):
    session, first = lancelet.Session(), pa.table({"i": range(10)})
    lancelet.write_dataset(first, tmp_path / "t", enable_stable_row_ids=True, max_rows_per_file=5)
    before = lancelet.dataset(tmp_path / "t", session=session)
    assert row_ids(before) == list(range(10))
    lancelet.write_dataset(
        pa.table({"i": range(100, 107)}), tmp_path / "t", mode="overwrite", max_rows_per_file=5
    )
    after = lancelet.dataset(tmp_path / "t", session=session)
    assert row_ids(after) == list(range(10, 17))
    after.optimize.compact_files()
    again = lancelet.dataset(tmp_path / "t", session=session)
    assert row_ids(again) == list(range(10, 17))
    assert again._take_rows([12])["i"].to_pylist() == [102]


def test_a_restore_gives_no_id_of_a_row_or_fragment_again(tmp_path):
    lancelet.write_dataset(pa.table({"v": [0]}), tmp_path / "t", enable_stable_row_ids=True)
    lancelet.write_dataset(pa.table({"v": [1]}), tmp_path / "t", mode="append")
    lancelet.dataset(tmp_path / "t", version=1).restore()
    dataset = lancelet.write_dataset(pa.table({"v": [2]}), tmp_path / "t", mode="append")
    assert row_ids(dataset) == [0, 2]
    assert [fragment.fragment_id for fragment in dataset.get_fragments()] == [0, 2]


@pytest.mark.parametrize("kind", ["ZONEMAP", "BLOOMFILTER", "BTREE", "BITMAP"])
def test_rows_that_an_update_moved_are_found_by_columns_it_left(tmp_path, kind):
    rows = pa.table({"a": range(100), "b": range(100)})
    dataset = lancelet.write_dataset(
        rows, tmp_path / "t", enable_stable_row_ids=True, max_rows_per_file=50
    )
    dataset.create_scalar_index("a", kind)
    dataset.update({"b": "b + 1000"}, where="a < 20")
    assert dataset.count_rows("a = 7") == 1
    dataset.update({"b": "0"})
    dataset.optimize.compact_files()
    assert dataset.to_table(filter="a < 20")["b"].to_pylist() == [0] * 20


@pytest.mark.parametrize("kind", ["BTREE", "BITMAP", "INVERTED"])
def test_an_index_does_not_return_values_from_before_an_update(tmp_path, kind):
    rows = pa.table({"id": range(100), "c": ["aa"] * 50 + ["bb"] * 50})
    dataset = lancelet.write_dataset(rows, tmp_path / "t", enable_stable_row_ids=True)
    dataset.create_scalar_index("c", kind)
    dataset.update({"c": "'bb'"}, where="id < 25")
    dataset.optimize.optimize_indices()
    how = {"full_text_query": "aa"} if kind == "INVERTED" else {"filter": "c = 'aa'"}
    assert sorted(dataset.to_table(**how)["id"].to_pylist()) == list(range(25, 50))


def test_rows_that_were_merged_again_and_again_have_an_id_each(tmp_path):
    rows = pa.table({"id": range(100), "v": range(100)})
    dataset = lancelet.write_dataset(rows, tmp_path / "t", enable_stable_row_ids=True)
    for number in range(3):
        keys = range(20 + number, 60 + number)
        merge = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        merge.execute(pa.table({"id": keys, "v": [number] * 40}))
    dataset.delete("id IN (25, 33)")
    found = dataset.to_table(filter="v >= 0", with_row_id=True)["_rowid"].to_pylist()
    assert len(found) == len(set(found)) == 98


def test_rows_that_a_merge_added_are_of_its_version(tmp_path):
    rows = pa.table({"id": range(4), "v": range(4)})
    dataset = lancelet.write_dataset(rows, tmp_path / "t", enable_stable_row_ids=True)
    merge = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    merge.execute(pa.table({"id": [1, 9], "v": [10, 90]}))
    versions = dataset.to_table(["id", "_row_created_at_version", "_row_last_updated_at_version"])
    by_id = versions.sort_by("id")
    assert by_id["_row_created_at_version"].to_pylist() == [1, 1, 1, 1, 2]
    assert by_id["_row_last_updated_at_version"].to_pylist() == [1, 2, 1, 1, 2]


@pytest.mark.parametrize("kind", ["IVF_PQ", "IVF_HNSW_PQ", "IVF_HNSW_SQ", "IVF_RQ"])
def test_vectors_are_found_after_a_compaction_that_deferred_its_remapping(tmp_path, kind):
    rows = pa.table({"id": range(600), "v": vectors(600)})
    dataset = lancelet.write_dataset(rows, tmp_path / "t", max_rows_per_file=100)
    pieces = {"num_sub_vectors": 4} if kind.endswith("PQ") else {}
    dataset.create_index("v", kind, num_partitions=2, **pieces)
    dataset.delete("id < 50")
    dataset.optimize.compact_files(defer_index_remap=True)
    wanted = rows["v"][300].values
    query = {"column": "v", "q": wanted, "k": 5, "nprobes": 2, "refine_factor": 20}
    assert dataset.to_table(nearest=query)["id"].to_pylist()[0] == 300


@pytest.mark.parametrize(
    "kind", ["BTREE", "BITMAP", "ZONEMAP", "BLOOMFILTER", "NGRAM", "FM", "INVERTED", "LABEL_LIST"]
)
def test_segments_that_are_merged_after_a_deferred_compaction_have_its_rows(tmp_path, kind):
    words = [f"word{number % 3}" for number in range(12)]
    values = [[word] for word in words] if kind == "LABEL_LIST" else words
    dataset = lancelet.write_dataset(pa.table({"s": values}), tmp_path / "t", max_rows_per_file=4)
    segments = [
        dataset.create_index_uncommitted("s", kind, fragment_ids=[number]) for number in range(3)
    ]
    lancelet.dataset(dataset.uri).optimize.compact_files(defer_index_remap=True)
    later = lancelet.dataset(dataset.uri)
    merged = later.merge_existing_index_segments(segments)
    later = later.commit_existing_index_segments("s_idx", "s", [merged])
    if kind == "INVERTED":
        found = later.to_table(full_text_query="word1")
    else:
        whole = {"LABEL_LIST": "array_has(s, 'word1')", "BTREE": "s = 'word1'"}
        found = later.to_table(filter=whole.get(kind, "contains(s, 'word1') and s = 'word1'"))
    assert found.num_rows == 4


def test_a_table_whose_index_is_lost_can_be_changed(tmp_path):
    dataset = lancelet.write_dataset(pa.table({"id": range(100)}), tmp_path / "t")
    dataset.create_scalar_index("id", "BTREE")
    shutil.rmtree(tmp_path / "t" / "_indices")
    dataset = lancelet.write_dataset(pa.table({"id": [100]}), tmp_path / "t", mode="append")
    with pytest.warns(IndexUnusableWarning):
        dataset.delete("id = 5")
    assert dataset.count_rows() == 100


@pytest.mark.parametrize("version", VERSIONS)
def test_columns_are_added_where_the_first_rows_are_deleted(tmp_path, version):
    rows = pa.table({"id": range(20_000)})
    dataset = lancelet.write_dataset(rows, tmp_path / "t", data_storage_version=version)
    dataset.delete("id < 15000")
    dataset.add_columns({"x": "id + 1"})
    dataset.merge(pa.table({"id": [15_000], "y": [1]}), "id")
    assert dataset.to_table()["x"].to_pylist() == list(range(15_001, 20_001))


def test_rows_whose_one_value_is_of_no_type_count_as_updated(tmp_path):
    rows = pa.table({"id": range(10), "nothing": pa.nulls(10)})
    dataset = lancelet.write_dataset(rows, tmp_path / "t", max_rows_per_file=8)
    done = dataset.merge_insert("id").when_matched_update_all().execute(rows.slice(6, 1))
    assert done["num_updated_rows"] == 1


def test_progress_of_a_log_is_not_noted_where_there_is_none(tmp_path):
    dataset = lancelet.write_dataset(pa.table({"id": [1]}), tmp_path / "t")
    merge = dataset.merge_insert("id").when_matched_update_all()
    merge.mark_sstables_as_compacted([CompactedSsTable(str(uuid.UUID(int=7)), 1)])
    with pytest.raises(NotFoundError):
        merge.execute(pa.table({"id": [1]}))
    assert dataset.describe_indices() == []


# ---- Merging and changing rows --------------------------------------------------------------


def test_a_large_upsert_of_some_columns_leaves_no_nulls(tmp_path):
    rows = 20_000
    table = pa.table({"id": range(rows), "num": [str(at) for at in range(rows)]})
    dataset = lancelet.write_dataset(table, tmp_path / "t")
    dataset.add_columns({"v": "arrow_cast(NULL, 'FixedSizeList(32, Float32)')"})
    some = pa.table({"id": range(10_000), "v": vectors(10_000, 32)})
    merge = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    merge.execute(some)
    assert dataset.count_rows("v IS NULL") == 10_000
    assert dataset.count_rows("num IS NULL") == 0


def test_an_upsert_by_an_index_of_an_empty_table(tmp_path):
    rows = pa.table({"id": range(5), "x": range(5)})
    dataset = lancelet.write_dataset(rows.slice(0, 0), tmp_path / "t")
    dataset.create_scalar_index("id", "BTREE")
    merge = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    merge.execute(rows)
    merge.execute(rows)
    assert dataset.count_rows() == 5


def test_an_upsert_of_keys_whose_fragment_is_gone(tmp_path):
    def rows(first, stop, value):
        return pa.table({"id": range(first, stop), "x": [value] * (stop - first)})

    dataset = lancelet.write_dataset(rows(0, 10, 0), tmp_path / "t", max_rows_per_file=5)
    dataset.create_scalar_index("id", "BTREE")
    dataset.delete("id < 5")
    merge = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    merge.execute(rows(0, 7, 1))
    dataset.delete("id < 7")
    dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(
        rows(3, 12, 2)
    )
    assert ids(dataset, "x = 2") == list(range(3, 12))
    assert dataset.count_rows() == 9


def test_columns_that_may_be_null_may_be_left_out_of_rows(tmp_path):
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("y", pa.int64())])
    dataset = lancelet.write_dataset(pa.table({"id": [1], "y": [2]}, schema), tmp_path / "t")
    dataset.insert(pa.table({"id": [3]}))
    assert dataset.to_table().to_pylist() == [{"id": 1, "y": 2}, {"id": 3, "y": None}]


def test_a_compaction_does_not_bring_deleted_rows_back(tmp_path):
    rows = pa.table({"id": range(400)})
    dataset = lancelet.write_dataset(rows, tmp_path / "t", max_rows_per_file=100)
    plan = lancelet.optimize.Compaction.plan(dataset, {"target_rows_per_fragment": 1000})
    done = [task.execute(dataset) for task in plan.tasks]
    lancelet.dataset(dataset.uri).delete("id < 30")
    # It may be refused; what must not be is that it commits rows that are gone.
    with contextlib.suppress(lancelet.errors.LanceletError):
        lancelet.optimize.Compaction.commit(lancelet.dataset(dataset.uri), done)
    assert lancelet.dataset(dataset.uri).count_rows() == 370


@pytest.mark.parametrize("kind", [None, "BTREE"])
def test_two_that_insert_one_new_key_insert_it_once(tmp_path, kind):
    """No key is declared: the columns of the merge are enough."""
    dataset = lancelet.write_dataset(pa.table({"id": [1], "x": [0]}), tmp_path / "t")
    if kind is not None:
        dataset.create_scalar_index("id", kind)
    for number, writer in enumerate([lancelet.dataset(dataset.uri) for _ in range(3)]):
        rows = pa.table({"id": [1, 2], "x": [number, number]})
        merge = writer.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        merge.execute(rows)
    assert lancelet.dataset(dataset.uri).to_table().to_pydict() == {"id": [1, 2], "x": [2, 2]}


@pytest.mark.parametrize("merges_first", [True, False])
def test_metadata_and_columns_that_are_added_at_once_are_both_there(tmp_path, merges_first):
    dataset = lancelet.write_dataset(pa.table({"id": [1]}), tmp_path / "t")
    other = lancelet.dataset(dataset.uri)
    (fragment, schema), version = dataset.get_fragment(0).merge_columns({"b": "id + 1"}), 1
    merge = lancelet.LanceOperation.Merge([fragment], schema)
    changes = {
        "columns": lambda: lancelet.LanceDataset.commit(dataset.uri, merge, read_version=version),
        "metadata": lambda: other.update_schema_metadata({"by": "other"}),
    }
    first, second = sorted(changes, reverse=not merges_first)
    changes[first]()
    with pytest.raises(lancelet.errors.CommitConflictError):
        changes[second]()
    if merges_first:
        lancelet.dataset(dataset.uri).update_schema_metadata({"by": "other"})
    else:
        lancelet.dataset(dataset.uri).add_columns({"b": "id + 1"})
    latest = lancelet.dataset(dataset.uri).schema
    assert (latest.names, latest.metadata) == (["id", "b"], {b"by": b"other"})


def test_a_tag_of_an_old_version_does_not_keep_files_of_newer_ones(tmp_path):
    uri = tmp_path / "t"
    for number in range(3):
        lancelet.write_dataset(pa.table({"id": [number]}), uri, mode="overwrite")
    lancelet.dataset(uri).tags.create("kept", 1)
    lancelet.dataset(uri).cleanup_old_versions(timedelta(0), error_if_tagged_old_versions=False)
    assert len(list((uri / "data").iterdir())) == 2
    assert lancelet.dataset(uri, version="kept").to_table().to_pydict() == {"id": [0]}


def test_a_branch_that_a_tag_is_of_is_not_deleted(tmp_path):
    dataset = lancelet.write_dataset(pa.table({"id": [1]}), tmp_path / "t")
    dataset.tags.create("kept", ("side", dataset.create_branch("side", 1).version))
    with pytest.raises(lancelet.errors.LanceletError, match="need the branch"):
        dataset.branches.delete("side")
    assert dataset.checkout_version("kept").count_rows() == 1


def test_a_change_whose_version_was_cleaned_up_is_made_or_rejected(tmp_path):
    dataset = lancelet.write_dataset(pa.table({"id": range(10)}), tmp_path / "t")
    other = lancelet.dataset(dataset.uri)
    dataset.delete("id = 1")
    dataset.delete("id = 2")
    dataset.cleanup_old_versions(timedelta(0))
    other.delete("id = 3")
    assert lancelet.dataset(dataset.uri).to_table()["id"].to_pylist() == [0, *range(4, 10)]


def test_a_table_with_an_index_of_vectors_is_compacted_after_deletions(tmp_path):
    rows = pa.table({"id": range(512), "v": vectors(512)})
    dataset = lancelet.write_dataset(rows, tmp_path / "t")
    dataset.create_index("v", "IVF_PQ", num_partitions=2, num_sub_vectors=2)
    dataset.insert(pa.table({"id": range(512, 700), "v": vectors(188, seed=1)}))
    dataset.delete("id % 4 = 0")
    dataset.optimize.compact_files()
    query = {"column": "v", "q": np.zeros(8, np.float32), "k": 20, "nprobes": 2}
    found = dataset.to_table(["id"], nearest=query)["id"].to_pylist()
    assert len(found) == 20
    assert all(number % 4 for number in found)


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_blobs_that_are_null_or_empty_are_compacted_as_they_are(tmp_path, version):
    blobs = [b"one", None, b"", b"two", b"", None, b"three"]
    if version == "2.2":
        field = lancelet.blob_field("b")
        column = lancelet.blob_array(blobs)
    else:
        field = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
        column = pa.array(blobs, pa.large_binary())
    schema = pa.schema([pa.field("id", pa.int64()), field])
    table = pa.table([pa.array(range(7)), column], schema)
    dataset = lancelet.write_dataset(table, tmp_path / "t", data_storage_version=version)
    lancelet.write_dataset(table, tmp_path / "t", mode="append", data_storage_version=version)
    dataset = lancelet.dataset(str(tmp_path / "t"))
    dataset.delete("id = 5")
    before = dataset.to_table(["id", "b"], blob_handling="all_binary").to_pylist()
    dataset.optimize.compact_files()
    assert len(dataset.get_fragments()) == 1
    assert dataset.to_table(["id", "b"], blob_handling="all_binary").to_pylist() == before
    assert [row["b"] for row in before[:6]] == [b"one", None, b"", b"two", b"", b"three"]


def test_columns_that_were_dropped_do_not_come_back(tmp_path):
    dataset = lancelet.write_dataset(pa.table({"x": [1, 2, 3]}), tmp_path / "t")
    dataset.add_columns({"y": "2 * x"})
    dataset.drop_columns(["y"])
    dataset.add_columns({"z": "3 * x"})
    assert dataset.to_table().to_pydict() == {"x": [1, 2, 3], "z": [3, 6, 9]}


def test_a_field_within_a_struct_is_cast(tmp_path):
    within = pa.field("c", pa.int32(), nullable=False)
    schema = pa.schema([pa.field("b", pa.struct([within]), nullable=False)])
    table = pa.Table.from_pylist([{"b": {"c": number}} for number in range(3)], schema)
    dataset = lancelet.write_dataset(table, tmp_path / "t")
    dataset.alter_columns({"path": "b.c", "data_type": pa.int64()})
    assert dataset.to_table().to_pylist() == table.to_pylist()
    assert dataset.schema.field("b").type.field("c").type == pa.int64()


def test_appends_during_cleanups_lose_nothing(tmp_path):
    uri = str(tmp_path / "t")
    lancelet.write_dataset(pa.table({"id": [0]}), uri)
    done = []

    def append(writer):
        for number in range(6):
            row = 100 * writer + number
            lancelet.write_dataset(pa.table({"id": [row]}), uri, mode="append")
            done.append(row)
            lancelet.dataset(uri).cleanup_old_versions(retain_versions=2)

    threads = [threading.Thread(target=append, args=(writer,)) for writer in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == 12
    assert sorted(lancelet.dataset(uri).to_table()["id"].to_pylist()) == sorted([0, *done])


# ---- Stored values --------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_one_page_has_nulls_and_another_none(tmp_path, version):
    dataset = lancelet.write_dataset(
        pa.table({"x": pa.array([1, None, 3])}), tmp_path / "t", data_storage_version=version
    )
    dataset.insert(pa.table({"x": range(5000)}))
    dataset.optimize.compact_files()
    assert dataset.to_table()["x"].to_pylist() == [1, None, 3, *range(5000)]


@pytest.mark.parametrize("version", VERSIONS[1:])
def test_a_struct_in_a_list_is_null(tmp_path, version):
    rows = pa.table({"id": [0], "v": [[{"tag": "a"}, None, {"tag": "b"}, {"tag": None}]]})
    roundtrip(tmp_path, rows, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_field_of_structs_in_lists_is_null_throughout(tmp_path, version):
    kind = pa.list_(pa.struct([("a", pa.int64()), ("b", pa.string())]))
    lists = [[{"a": at, "b": None}] * (at % 4) for at in range(50)]
    roundtrip(tmp_path, pa.table({"v": pa.array(lists, kind)}), version)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("lists", [[[None, None], [None]], [None, None], [[], []], [[], None]])
def test_lists_of_nothing_but_nulls(tmp_path, version, lists):
    roundtrip(tmp_path, pa.table({"v": pa.array(lists, pa.list_(pa.int32()))}), version)


@pytest.mark.parametrize("version", VERSIONS)
def test_lists_of_strings_from_a_dictionary_may_all_be_empty(tmp_path, version):
    words = pa.array([[f"w{at % 3}"] for at in range(3000)] + [[]] * 3000, pa.list_(pa.string()))
    dataset = lancelet.write_dataset(
        pa.table({"v": words}), tmp_path / "t", data_storage_version=version
    )
    assert dataset.take(range(4000, 4010))["v"].to_pylist() == [[]] * 10
    assert dataset.to_table(offset=2999, limit=2)["v"].to_pylist() == [["w2"], []]


@pytest.mark.parametrize("version", VERSIONS[1:])
def test_documents_in_structs_in_lists(tmp_path, version):
    storage = pa.list_(pa.struct([("name", pa.string()), ("doc", pa.string())]))
    lists = [[{"name": "a", "doc": '{"x":1}'}], [], [{"name": "b", "doc": '{"y":[1,2]}'}] * 2]
    kind = pa.list_(pa.struct([("name", pa.string()), ("doc", pa.json_())]))
    column = pa.array(lists, storage).cast(kind)
    dataset = lancelet.write_dataset(
        pa.table({"v": column}), tmp_path / "t", data_storage_version=version
    )
    assert dataset.to_table()["v"].combine_chunks().cast(storage).to_pylist() == lists


@pytest.mark.parametrize("version", VERSIONS)
def test_a_column_of_lists_without_rows(tmp_path, version):
    empty = pa.table({"v": pa.array([], pa.list_(pa.int32()))})
    dataset = lancelet.write_dataset(empty, tmp_path / "t", data_storage_version=version)
    dataset.insert(pa.table({"v": pa.array([[1], []], pa.list_(pa.int32()))}))
    assert dataset.to_table()["v"].to_pylist() == [[1], []]


def test_names_that_only_some_dicts_have_are_columns(tmp_path):
    dataset = lancelet.write_dataset([{"a": 1}, {"a": 2, "b": 3}], tmp_path / "t")
    assert dataset.to_table().to_pylist() == [{"a": 1, "b": None}, {"a": 2, "b": 3}]


def test_a_scanner_of_pyarrow_is_an_error_and_no_end_of_the_process(tmp_path):
    dataset = lancelet.write_dataset(pa.table({"a": [1]}), tmp_path / "t")
    with pytest.raises(NotImplementedError, match="LanceDataset"):
        ds.Scanner.from_dataset(dataset).to_table()


def test_a_branch_is_not_made_among_the_files_of_another(tmp_path):
    dataset = lancelet.write_dataset(pa.table({"a": [1]}), tmp_path / "t")
    dataset.create_branch("x")
    for name in ("x/data", "x/_versions"):
        with pytest.raises(ValueError, match="table directory of another"):
            lancelet.dataset(dataset.uri).create_branch(name)
    assert lancelet.dataset(dataset.uri).checkout_version(("x", None)).count_rows() == 1


def test_filters_of_many_parts_are_answered(tmp_path):
    dataset = lancelet.write_dataset(pa.table({"a": range(3000)}), tmp_path / "t")
    wanted = random.Random(0).sample(range(3000), 1200)
    assert dataset.count_rows(" OR ".join(f"a = {number}" for number in wanted)) == 1200


def test_a_merge_by_an_index_updates_rows_whose_first_columns_are_null(tmp_path):
    """The key is no leading column, and the first column of the source has only nulls."""
    schema = pa.schema(
        [
            pa.field("vector", pa.list_(pa.float32(), 4)),
            pa.field("path", pa.string(), nullable=False),
            pa.field("status", pa.string()),
        ]
    )
    paths = [f"/img/{number}.jpg" for number in range(64)]
    rows = {"vector": [None] * 64, "path": paths, "status": ["pending"] * 64}
    dataset = lancelet.write_dataset(pa.table(rows, schema), tmp_path / "t")
    dataset.create_scalar_index("path", "BTREE")
    for columns in (["path", "status"], ["vector", "path", "status"]):
        for count, status in ((32, "some"), (64, "all")):
            source = pa.table({**rows, "status": [status] * 64}, schema).slice(0, count)
            merge = dataset.merge_insert("path").when_matched_update_all()
            assert merge.execute(source.select(columns))["num_updated_rows"] == count
            assert dataset.count_rows(f"status = '{status}'") == count
    dataset.optimize.optimize_indices()
    dataset.optimize.compact_files()
    merge = dataset.merge_insert("path").when_matched_update_all()
    assert merge.execute(pa.table(rows, schema))["num_updated_rows"] == 64


def test_a_replaced_column_of_rows_that_moved_meanwhile_is_rejected(tmp_path):
    dataset = lancelet.write_dataset(pa.table({"id": range(10), "x": range(10)}), tmp_path / "t")
    other = lancelet.dataset(dataset.uri)
    (written,) = lancelet.fragment.write_fragments(
        pa.table({"id": range(10), "x": range(100, 110)}), dataset
    )
    group = lancelet.LanceOperation.DataReplacementGroup(0, written.files[0])
    replacement = lancelet.LanceOperation.DataReplacement([group])
    other.update({"x": "50"}, where="id < 3")
    with pytest.raises(lancelet.errors.CommitConflictError):
        lancelet.LanceDataset.commit(dataset.uri, replacement, read_version=1)
    found = lancelet.dataset(dataset.uri).to_table().sort_by("id")
    assert found["x"].to_pylist() == [50, 50, 50, *range(3, 10)]


@pytest.mark.parametrize("version", VERSIONS)
def test_null_blobs_are_null_in_every_way_to_read_them_after_a_compaction(tmp_path, version):
    if version == "2.2":
        field, column = lancelet.blob_field("b"), lancelet.blob_array([None, b"a", None, b"", None])
    else:
        field = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
        column = pa.array([None, b"a", None, b"", None], pa.large_binary())
    schema = pa.schema([pa.field("id", pa.int64()), field])
    table = pa.table([pa.array(range(5)), column], schema)
    dataset = lancelet.write_dataset(table, tmp_path / "t", data_storage_version=version)
    dataset.delete("id = 0")
    dataset.optimize.compact_files(materialize_deletions_threshold=0.0)
    expected = [b"a", None, b"", None]
    scanned = dataset.to_table(["b"], blob_handling="all_binary")["b"].to_pylist()
    taken = dataset.take_blobs("b", indices=range(4))
    assert scanned == expected
    assert [None if blob is None else blob.readall() for blob in taken] == expected


def test_an_empty_newest_manifest_is_no_version(tmp_path):
    uri = tmp_path / "t"
    for number in range(3):
        lancelet.write_dataset(pa.table({"id": [number]}), uri, mode="append")
    newest = f"{2**64 - 1 - 4}.manifest"
    (uri / "_versions" / newest).write_bytes(b"")
    dataset = lancelet.dataset(uri)
    assert (dataset.version, dataset.count_rows()) == (3, 3)
    assert [each["version"] for each in dataset.versions()] == [1, 2, 3]


def test_a_tag_that_several_writers_create_is_created_once(tmp_path):
    for number in range(4):
        lancelet.write_dataset(pa.table({"id": [number]}), tmp_path / "t", mode="append")
    barrier, created, refused = threading.Barrier(4), [], []

    def create(version):
        dataset = lancelet.dataset(tmp_path / "t")
        barrier.wait()
        try:
            dataset.tags.create("release", version)
        except AlreadyExistsError:
            refused.append(version)
        else:
            created.append(version)

    threads = [threading.Thread(target=create, args=(version,)) for version in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(created), len(refused)) == (1, 3)
    assert lancelet.dataset(tmp_path / "t").tags.get_version("release") == created[0]


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("kind", ["BTREE", "BITMAP"])
def test_a_merge_skips_no_update_if_the_index_has_addresses_of_deleted_rows(tmp_path, kind, stable):
    rows = pa.table({"id": range(12), "x": [0] * 12, "y": ["old"] * 12})
    dataset = lancelet.write_dataset(
        rows, tmp_path / "t", max_rows_per_file=4, enable_stable_row_ids=stable
    )
    dataset.create_scalar_index("id", kind)
    dataset.delete("id IN (1, 5, 6)")
    dataset.update({"id": "id + 100"}, where="id IN (2, 7)")
    for keys in (range(12), [1, 2, 3, 5, 7, 8, 102, 107]):
        expected = dataset.count_rows(f"id IN ({', '.join(map(str, keys))})")
        source = pa.table({"x": [len(keys)] * len(keys), "id": pa.array(keys)})
        merge = dataset.merge_insert("id").when_matched_update_all()
        assert merge.execute(source)["num_updated_rows"] == expected
        assert dataset.count_rows(f"x = {len(keys)}") == expected
    dataset.optimize.compact_files()
    dataset.optimize.optimize_indices()
    merge = dataset.merge_insert("id").when_matched_update_all()
    live = [0, 3, 4, 8, 9, 10, 11, 102, 107]
    assert merge.execute(pa.table({"id": live, "x": [-1] * 9}))["num_updated_rows"] == 9
    assert dataset.to_table()["x"].to_pylist() == [-1] * 9


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_blobs_after_null_and_empty_ones_outlive_a_compaction_and_its_cleanup(tmp_path, version):
    blobs = [b"P0" * 40, None, b"", b"P3" * 40, b"P4" * 40, b"P5" * 40]
    if version == "2.2":
        field, column = lancelet.blob_field("b"), lancelet.blob_array(blobs)
    else:
        field = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
        column = pa.array(blobs, pa.large_binary())
    table = pa.table([column], pa.schema([field]))
    for _ in range(2):
        dataset = lancelet.write_dataset(
            table, tmp_path / "t", mode="append", data_storage_version=version
        )
    dataset.optimize.compact_files()
    dataset.cleanup_old_versions(timedelta(0))
    dataset = lancelet.dataset(tmp_path / "t")
    assert len(dataset.get_fragments()) == 1
    found = dataset.take_blobs("b", indices=range(12))
    assert [None if blob is None else blob.readall() for blob in found] == blobs * 2
