"""Versions of a dataset, and rejected arguments."""

import copy
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

import lancelet
from lancelet.commit import CommitConflictError
from lancelet.fragment import FragmentMetadata
from lancelet.progress import FragmentWriteProgress
from lancelet.schema import LanceSchema


def ids(start, stop):
    return pa.table({"id": pa.array(range(start, stop), pa.int64())})


@pytest.fixture
def dataset(tmp_path):
    return lancelet.write_dataset(ids(0, 10), str(tmp_path / "t.lance"), max_rows_per_file=4)


def found(dataset):
    return dataset.to_table().column("id").to_pylist()


def test_a_change_moves_the_handle_and_no_other(dataset):
    other = copy.copy(dataset)
    assert dataset.delete("id < 3") == {"num_deleted_rows": 3}
    assert (dataset.version, other.version, other.latest_version) == (2, 1, 2)
    assert found(other) == list(range(10))
    other.checkout_latest()
    assert found(other) == found(dataset) == list(range(3, 10))


def test_two_handles_delete_different_rows_of_a_fragment(dataset):
    other = copy.copy(dataset)
    dataset.delete("id = 1")
    other.delete("id = 2")
    assert found(other) == [0, *range(3, 10)]
    assert other.version == 3


def test_a_handle_that_is_behind_appends_to_the_latest_version(dataset):
    before = dataset.count_rows()
    behind = lancelet.dataset(dataset.uri)
    row = dataset.to_table(limit=1)
    for _ in range(2):
        dataset.insert(row)
        behind.insert(row)
    assert (behind.version, behind.count_rows()) == (dataset.version + 1, before + 4)
    dataset.add_columns({"twice": "id * 2"})
    behind.insert(dataset.to_table(limit=1))
    assert behind.count_rows("twice IS NOT NULL") == before + 5


def test_two_handles_delete_one_row_once(dataset):
    other = copy.copy(dataset)
    assert dataset.delete("id = 1")["num_deleted_rows"] == 1
    assert other.delete("id = 1")["num_deleted_rows"] == 0
    assert found(other) == [0, *range(2, 10)]


def test_a_conflict_that_may_not_be_retried_is_raised(dataset):
    other = copy.copy(dataset)
    dataset.delete("id = 1")
    with pytest.raises(CommitConflictError, match="both changed the same rows") as caught:
        other.delete("id = 1", conflict_retries=0)
    assert caught.value.retryable
    assert isinstance(caught.value, OSError)


def test_restoring_makes_an_old_version_the_latest(dataset):
    dataset.truncate_table()
    assert (len(dataset), dataset.get_fragments()) == (0, [])
    old = dataset.checkout_version(1)
    old.restore()
    assert (old.version, found(old)) == (3, list(range(10)))
    # Ids of fragments are never used twice.
    old.insert(ids(10, 11))
    assert [fragment.fragment_id for fragment in old.get_fragments()] == [0, 1, 2, 3]


def test_a_version_is_found_by_time(dataset):
    before = datetime.now(UTC)
    dataset.insert(ids(10, 11))
    assert lancelet.dataset(dataset.uri, asof=before).version == 1
    assert lancelet.dataset(dataset.uri, asof=datetime.now(UTC).isoformat()).version == 2
    with pytest.raises(ValueError, match="earlier than the first"):
        lancelet.dataset(dataset.uri, asof=before - timedelta(days=1))


@pytest.mark.parametrize("version", [17, "nothing"])
def test_a_version_that_is_not_there_is_an_error_as_in_the_reference(dataset, version):
    with pytest.raises(ValueError, match=r"was not found|does not exist"):
        lancelet.dataset(dataset.uri, version)


def test_writes_check_existing_tables(dataset, tmp_path):
    with pytest.raises(OSError, match="already exists"):
        lancelet.write_dataset(ids(0, 1), dataset.uri)
    with pytest.raises(ValueError, match="Invalid mode"):
        lancelet.write_dataset(ids(0, 1), dataset.uri, mode="replace")
    assert len(lancelet.write_dataset(ids(0, 1), str(tmp_path / "new"), mode="append")) == 1
    other = pa.table({"name": ["x"]})
    assert lancelet.write_dataset(other, dataset, mode="overwrite").to_table() == other
    assert found(lancelet.dataset(dataset.uri, 1)) == list(range(10))


def test_a_failed_write_leaves_no_files(dataset):
    before = [info.path for info in dataset.snapshot.location.store.list("data")]

    def batches():
        yield ids(0, 9).to_batches()[0]
        raise RuntimeError("the source broke")

    reader = pa.RecordBatchReader.from_batches(ids(0, 1).schema, batches())
    with pytest.raises(RuntimeError, match="broke"):
        lancelet.write_dataset(reader, dataset, mode="append", max_rows_per_file=4)
    assert [info.path for info in dataset.snapshot.location.store.list("data")] == before


@pytest.mark.parametrize(
    "data",
    [
        ids(0, 3),
        ids(0, 3).to_batches()[0],
        ids(0, 3).to_reader(),
        {"id": [0, 1, 2]},
        [{"id": 0}, {"id": 1}, {"id": 2}],
        pytest.param(iter(ids(0, 3).to_batches()), id="iterator"),
    ],
    ids=lambda data: type(data).__name__,
)
def test_rows_come_in_any_form(tmp_path, data):
    dataset = lancelet.write_dataset(data, str(tmp_path / "t.lance"))
    assert found(dataset) == [0, 1, 2]
    again = lancelet.write_dataset(dataset, str(tmp_path / "again.lance"))
    assert again.to_table() == dataset.to_table()


def test_settings_change_with_versions(dataset):
    assert dataset.update_config({"a": "1", "b": "2"}) == {"a": "1", "b": "2"}
    dataset.delete_config_keys(["a"])
    assert dataset.config() == {"b": "2"}
    assert dataset.update_metadata({"k": "v"}) == {"k": "v"}
    assert dataset.update_schema_metadata({"q": "r"}, replace=True) == {"q": "r"}
    dataset.update_field_metadata({"id": {"unit": "m"}})
    assert dataset.schema.field("id").metadata == {b"unit": b"m"}
    assert dataset.schema.metadata == {b"q": b"r"}
    assert lancelet.dataset(dataset.uri, 1).config() == {}


def test_default_options_apply_to_every_scan(dataset):
    opened = lancelet.dataset(dataset.uri, default_scan_options={"with_row_id": True})
    assert opened.schema.names == opened.to_table().schema.names == ["id", "_rowid"]
    assert opened.to_table(with_row_id=False).schema.names == ["id"]


def test_fragments_travel_as_json(dataset):
    dataset.delete("id = 5")
    for fragment in dataset.get_fragments():
        metadata = fragment.metadata
        assert FragmentMetadata.from_json(metadata.to_json()) == metadata
        assert metadata.num_rows == fragment.count_rows()
    assert dataset.get_fragment(99) is None


def test_progress_is_reported_for_every_fragment(tmp_path):
    told = []

    class Notes(FragmentWriteProgress):
        def begin(self, fragment, **_):
            told.append(("begin", fragment.id, fragment.physical_rows))

        def complete(self, fragment, **_):
            told.append(("complete", fragment.id, fragment.physical_rows))

    path = str(tmp_path / "t.lance")
    lancelet.write_dataset(ids(0, 6), path, max_rows_per_file=4, progress=Notes())
    assert told == [("begin", 0, 0), ("complete", 0, 4), ("begin", 1, 0), ("complete", 1, 2)]


def test_dropping_leaves_foreign_folders_alone(dataset, tmp_path):
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "file").write_text("mine")
    with pytest.raises(FileNotFoundError):
        lancelet.LanceDataset.drop(str(tmp_path / "foreign"))
    assert (tmp_path / "foreign" / "file").exists()
    lancelet.LanceDataset.drop(dataset.uri)
    with pytest.raises(ValueError, match="was not found"):
        lancelet.dataset(dataset.uri)
    lancelet.LanceDataset.drop(dataset.uri, ignore_not_found=True)


def test_damage_is_found_by_validation(dataset):
    dataset.validate()
    name = dataset.get_fragments()[1].data_files()[0].path
    dataset.snapshot.location.store.delete(f"data/{name}")
    with pytest.raises(FileNotFoundError):
        lancelet.dataset(dataset.uri).validate()


def test_requests_are_counted(dataset):
    opened = lancelet.dataset(dataset.uri)
    before = opened.io_stats_snapshot().read_iops
    assert opened.count_rows() == 10
    assert opened.io_stats_snapshot().read_iops == before
    opened.io_stats_incremental()
    opened.to_table()
    assert opened.io_stats_incremental().read_bytes > 0
    seen = []
    opened.scanner(filter="id > 3", scan_stats_callback=seen.append).to_table()
    assert seen[0].bytes_read > 0


def test_schemas_have_field_ids():
    schema = pa.schema([("a", pa.int8()), ("s", pa.struct([("x", pa.int8())]))])
    found = LanceSchema.from_pyarrow(schema)
    assert [(field.name(), field.id()) for field in found.fields()] == [("a", 0), ("s", 1)]
    assert found.field("s.x").id() == 2
    assert found.field_case_insensitive("S.X").id() == 2
    assert found.field("nothing") is None
    assert found.to_pyarrow() == schema


def test_metadata_that_is_no_text_is_rejected(tmp_path):
    data = ids(0, 1).replace_schema_metadata({"foo": b"\xff\x00"})
    with pytest.raises(ValueError, match="UTF-8"):
        lancelet.write_dataset(data, str(tmp_path / "t.lance"))


@pytest.mark.parametrize("predicate", [None, 5, True])
def test_rows_are_deleted_by_a_predicate_only(dataset, predicate):
    for delete in (dataset.delete, dataset.get_fragment(0).delete):
        with pytest.raises(TypeError):
            delete(predicate)
    assert dataset.count_rows() == 10


def test_arguments_of_other_types_are_rejected_by_name(dataset):
    for call in (
        lambda: dataset.to_table(filter=5),
        lambda: dataset.update({"id": 5}),
        lambda: dataset.take(["id"]),
        lambda: dataset.take([1.0]),
    ):
        with pytest.raises(TypeError, match=r"found='(int|str|float)'"):
            call()


@pytest.mark.parametrize("name", ["_rowid", "_rowaddr", "_rowoffset", "_row_created_at_version"])
def test_columns_must_not_have_the_names_of_row_columns(dataset, tmp_path, name):
    rows = pa.table({name: [1]})
    for mode, uri in (("create", tmp_path / "new"), ("overwrite", dataset.uri)):
        with pytest.raises(OSError, match="reserved"):
            lancelet.write_dataset(rows, uri, mode=mode)
    assert not (tmp_path / "new").exists()


def test_a_scheme_that_no_store_has_is_a_wrong_value():
    with pytest.raises(ValueError, match="no store supports this scheme"):
        lancelet.dataset("nope://bucket/t")
