"""Building, describing and prewarming indices through the dataset."""

import uuid

import numpy as np
import pyarrow as pa
import pytest

import lancelet
from lancelet.dataset import Index
from lancelet.dataset.index import vector as vector_methods
from lancelet.indices import IndexConfig
from lancelet.progress import IndexProgress


@pytest.fixture
def dataset(tmp_path):
    table = pa.table({"a": range(100), "l": [[i % 3] for i in range(100)]})
    return lancelet.write_dataset(table, str(tmp_path / "t.lance"), max_rows_per_file=50)


def test_progress_is_reported_from_the_first_to_the_last_row(dataset):
    told = []
    dataset.create_scalar_index("a", "BTREE", progress_callback=told.append)
    assert all(isinstance(each, IndexProgress) for each in told)
    assert (told[0].event, told[0].stage) == ("start", "train_btree")
    assert (told[-1].event, told[-1].fraction) == ("complete", 1.0)
    loaded = [each.completed for each in told if each.stage == "load_data"]
    assert loaded == sorted(loaded)
    assert loaded[-1] == 100


def test_progress_of_vectors_counts_shuffled_rows_and_merged_partitions(tmp_path):
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(range(800), pa.float32()), 2)
    dataset = lancelet.write_dataset(pa.table({"v": vectors}), str(tmp_path / "v.lance"))
    told = []
    dataset.create_index("v", "IVF_FLAT", num_partitions=3, progress_callback=told.append)
    stages = [each.stage for each in told if each.event == "start"]
    assert stages == ["train_ivf", "shuffle", "merge_partitions"]
    ends = {each.stage: each.completed for each in told if each.event == "complete"}
    assert (ends["shuffle"], ends["merge_partitions"]) == (400, 3)


def _stages(told):
    return [each.stage for each in told if each.event == "start"]


def test_progress_of_texts_and_of_merging_their_parts_has_the_stages_of_the_reference(tmp_path):
    table = pa.table({"t": ["a red fox", "b", "c"]})
    dataset = lancelet.write_dataset(table, str(tmp_path / "t.lance"), max_rows_per_file=2)
    told = []
    dataset.create_scalar_index("t", "INVERTED", progress_callback=told.append)
    assert _stages(told) == ["load_data", "tokenize_docs", "copy_partitions", "write_metadata"]
    tokenized = [each.completed for each in told if each.stage == "tokenize_docs"]
    assert (tokenized[0], tokenized[-1]) == (0, 3)
    assert (told[-1].event, told[-1].stage) == ("complete", "write_metadata")
    own_id, merged = str(uuid.uuid4()), []
    for number in (0, 1):
        dataset.create_scalar_index("t", "INVERTED", fragment_ids=[number], index_uuid=own_id)
    dataset.merge_index_metadata(own_id, "INVERTED", progress_callback=merged.append)
    assert _stages(merged) == [
        "read_partition_metadata",
        "remap_partition_files",
        "write_merged_metadata",
    ]
    assert all(each.fraction == 1 for each in merged if each.event == "complete")


def test_a_build_that_is_stopped_leaves_the_table_as_it_is(dataset):
    class StoppedError(Exception):
        pass

    def stop(progress):
        if progress.event == "progress":
            raise StoppedError

    with pytest.raises(StoppedError):
        dataset.create_scalar_index("a", "BTREE", progress_callback=stop)
    assert not lancelet.dataset(dataset.uri).has_index


@pytest.mark.parametrize("kind", ["BTREE", "BITMAP"])
def test_an_error_at_the_very_end_leaves_an_index_that_is_there(dataset, kind):
    told = []

    def fail(progress):
        told.append((progress.event, progress.stage))
        if told[-1] == ("complete", f"train_{kind.lower()}"):
            raise OSError("the terminal is gone")

    with pytest.warns(RuntimeWarning, match="a_idx was built, but .* the terminal is gone"):
        dataset.create_scalar_index("a", kind, progress_callback=fail)
    assert told[-1] == ("complete", f"train_{kind.lower()}")
    assert lancelet.dataset(dataset.uri).to_table(filter="a = 7").num_rows == 1
    assert lancelet.dataset(dataset.uri).has_index


def test_configured_kinds_take_their_parameters(dataset):
    dataset.create_scalar_index("a", IndexConfig("zonemap", {"rows_per_zone": 10}))
    (segment,) = dataset.stats.index_stats("a_idx")["segments"]
    assert segment == {"num_zones": 10, "rows_per_zone": 10}


def test_statistics_of_an_index_have_the_names_of_the_reference(dataset):
    dataset.create_scalar_index("a", "BTREE")
    found = dataset.stats.index_stats("a_idx")
    assert found["segments"] == [{"num_pages": 1, "min": "0", "max": "99"}]
    assert found["index_type"] == "BTree"
    with pytest.raises(KeyError, match="nope"):
        dataset.stats.index_stats("nope")


def test_statistics_derive_the_kind_of_an_index_without_details_from_its_files(tmp_path):
    path = str(tmp_path / "texts.lance")
    dataset = lancelet.write_dataset(pa.table({"t": ["a red fox"]}), path)
    own_id = str(uuid.uuid4())
    dataset.create_scalar_index("t", "INVERTED", fragment_ids=[0], index_uuid=own_id)
    dataset.merge_index_metadata(own_id, "INVERTED")
    index = Index(own_id, "parts", [0], dataset.version, {0}, 0)
    operation = lancelet.LanceOperation.CreateIndex([index], [])
    committed = lancelet.LanceDataset.commit(path, operation, read_version=dataset.version)
    assert committed.stats.index_stats("parts")["index_type"] == "Inverted"


def test_lists_of_words_are_read_once_and_then_found_in_memory(tmp_path):
    path = str(tmp_path / "texts.lance")
    dataset = lancelet.write_dataset(pa.table({"t": ["a red fox", "a red dog"]}), path)
    dataset.create_scalar_index("t", "INVERTED", with_position=True)
    opened, seen = lancelet.dataset(path), []
    for words in ('"red fox"', '"red fox"', '"red dog"'):
        opened.scanner(full_text_query=words, scan_stats_callback=seen.append).to_table()
    assert [(each.index_cache_misses, each.index_cache_hits) for each in seen] == [
        (2, 0),
        (0, 2),
        (1, 1),
    ]


def test_an_index_is_warmed_by_name_and_segment(dataset, monkeypatch):
    dataset.create_scalar_index("a", "BTREE")
    (description,) = dataset.describe_indices()
    again = lancelet.dataset(dataset.uri)
    again.prewarm_index("a_idx", index_segments=[description.segments[0].uuid])
    again.prewarm_index("a_idx", index_segments=[uuid.uuid4()])
    with pytest.raises(RuntimeError, match="not found"):
        again.prewarm_index("nope")


@pytest.mark.parametrize("train", [True, False])
def test_misspelt_text_index_options_are_rejected(tmp_path, train):
    dataset = lancelet.write_dataset(pa.table({"t": ["a b"]}), str(tmp_path / "t.lance"))
    with pytest.raises(ValueError, match="unknown FTS index parameter 'with_positions'"):
        dataset.create_scalar_index("t", "INVERTED", with_positions=True, train=train)
    dataset.create_scalar_index("t", "INVERTED", with_position=True, train=train)


def test_an_index_that_is_not_trained_covers_nothing_until_it_is_optimised(dataset):
    dataset.create_scalar_index("a", "BTREE", train=False)
    (listed,) = dataset.describe_indices()
    assert listed.segments[0].fragment_ids == set()
    assert dataset.to_table(filter="a = 7").num_rows == 1
    dataset.optimize.optimize_indices()
    assert dataset.describe_indices()[0].segments[0].fragment_ids == {0, 1}
    assert dataset.to_table(filter="a = 7").num_rows == 1


def test_a_column_may_come_as_a_list_of_one(dataset):
    dataset.create_scalar_index(["a"], "BTREE")
    with pytest.raises(NotImplementedError, match="single column"):
        dataset.create_scalar_index(["a", "l"], "BTREE")


def test_a_segment_has_the_requested_id(dataset):
    wanted = str(uuid.uuid4())
    dataset.create_scalar_index("a", "BTREE", index_uuid=wanted)
    assert dataset.describe_indices()[0].segments[0].uuid == wanted
    with pytest.raises(ValueError, match="UUID"):
        dataset.create_scalar_index("a", "BTREE", index_uuid="x")


@pytest.mark.parametrize("kind", ["BTREE", "LABEL_LIST", "zonemap"])
def test_parts_of_an_index_are_built_uncommitted(dataset, kind):
    column = "l" if kind == "LABEL_LIST" else "a"
    with pytest.raises(ValueError, match="create_index_uncommitted"):
        dataset.create_scalar_index(column, kind, fragment_ids=[0])
    parts = [dataset.create_index_uncommitted(column, kind, fragment_ids=[n]) for n in (0, 1)]
    dataset.commit_existing_index_segments("parts", column, parts)
    assert len(dataset.describe_indices()[0].segments) == 2


def test_segments_of_most_kinds_have_generated_ids(dataset):
    own = {"fragment_ids": [0], "index_uuid": str(uuid.uuid4())}
    assert dataset.create_index_uncommitted("a", "BITMAP", **own).uuid == own["index_uuid"]
    with pytest.raises(ValueError, match="index_uuid is no longer accepted"):
        dataset.create_index_uncommitted("a", "BTREE", **own)


@pytest.mark.parametrize("kind", ["BTREE", "BITMAP", "BLOOMFILTER", "LABEL_LIST"])
def test_columns_of_the_wrong_type_are_rejected(dataset, kind):
    column = "a" if kind == "LABEL_LIST" else "l"
    with pytest.raises(TypeError):
        dataset.create_scalar_index(column, kind)


@pytest.mark.parametrize("kind", ["BTREE", "BITMAP", "ZONEMAP", "BLOOMFILTER"])
def test_an_index_with_missing_files_is_rebuilt_when_retrained(dataset, tmp_path, kind):
    dataset.create_scalar_index("a", kind)
    for file in (tmp_path / "t.lance" / "_indices").glob("*/*"):
        file.unlink()
    again = lancelet.dataset(dataset.uri)
    assert {finding.index for finding in again.check("present")} == {"a_idx"}
    again.optimize.optimize_indices(retrain=True)
    assert again.check("indices") == []
    assert again.to_table(filter="a = 7").num_rows == 1


@pytest.mark.parametrize("replace", [True, False])
def test_an_index_has_the_name_of_no_index_of_another_column(dataset, replace):
    dataset.create_scalar_index("a", "BTREE", name="x")
    with pytest.raises(RuntimeError, match="already exists with different fields"):
        dataset.create_scalar_index("l", "LABEL_LIST", name="x", replace=replace)
    segment = dataset.create_index_uncommitted("l", "LABEL_LIST", fragment_ids=[0])
    with pytest.raises(RuntimeError, match="already exists with different fields"):
        dataset.commit_existing_index_segments("x", "l", [segment])
    dataset.create_scalar_index("a", "BITMAP", name="x")
    (index,) = dataset.describe_indices()
    assert index.field_names == ["a"]


@pytest.mark.parametrize("replace", [True, False])
def test_an_index_of_vectors_has_the_name_of_no_other_either(tmp_path, replace):
    vectors = pa.FixedSizeListArray.from_arrays(np.arange(1024, dtype=np.float32), 8)
    table = pa.table({"a": range(128), "v": vectors, "w": vectors})
    dataset = lancelet.write_dataset(table, str(tmp_path / "v.lance"))
    dataset.create_scalar_index("a", "BTREE", name="x")
    dataset.create_index("w", "IVF_FLAT", name="y", num_partitions=1)
    for name in ("x", "y"):
        with pytest.raises(RuntimeError, match="already exists with different fields"):
            dataset.create_index("v", "IVF_FLAT", name=name, num_partitions=1, replace=replace)
    assert {index.name: index.field_names for index in dataset.describe_indices()} == {
        "x": ["a"],
        "y": ["w"],
    }


def test_names_that_the_format_keeps_for_itself_are_rejected(dataset):
    with pytest.raises(RuntimeError, match="reserved for system indices"):
        dataset.create_scalar_index("a", "BTREE", name="__lance_frag_reuse")


def test_the_default_vector_index_depends_on_the_number_of_rows(monkeypatch):
    rows = {"v": np.eye(300, 8, dtype=np.float32)}
    dataset = lancelet.write_dataset(rows, "memory://default-vector-index/t")
    dataset.create_index("v")
    assert [index.index_type for index in dataset.describe_indices()] == ["IVF_FLAT"]
    monkeypatch.setattr(vector_methods, "_FLAT_ROWS_MAX", 299)
    dataset.create_index("v", replace=True)
    assert [index.index_type for index in dataset.describe_indices()] == ["IVF_PQ"]
