"""The streaming sink as called by Spark: repeated batches are written once."""

import json
import random
import shutil
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql.datasource import CaseInsensitiveDict

import lancelet
from lancelet.errors import (
    DatasetNotFoundError,
    InvalidInputError,
    SchemaMismatchError,
    VersionNotFoundError,
)
from lancelet.mem_wal import LsmScanner
from lancelet.spark.types import spark_schema
from pyspark_lance import DefaultSource

ID = "7f0b9f0e-4a4c-4b51-9d7e-0c1f9d3a2b11"


def rows(*ids, name="a"):
    return pa.table(
        {"id": pa.array(ids, pa.int64()), "name": pa.array([name] * len(ids), pa.string())}
    )


class Stream:
    """A stream that sends batches to a sink, in the order of Spark's calls."""

    def __init__(self, folder, *, overwrite=False, **options):
        self.uri = str(folder / "t.lance")
        self.checkpoint = folder / "checkpoint"
        self.checkpoint.mkdir(exist_ok=True)
        (self.checkpoint / "metadata").write_text(json.dumps({"id": ID}))
        given = {"path": self.uri, "checkpointLocation": f"file://{self.checkpoint}", **options}
        self.source = DefaultSource(CaseInsensitiveDict(given))
        self.overwrite = overwrite

    def writer(self, schema):
        made = self.source.streamWriter(spark_schema(schema), self.overwrite)
        return cloudpickle.loads(cloudpickle.dumps(made))

    def run_tasks(self, *parts):
        writer = self.writer(parts[0].schema)
        return [writer.write(iter(part.to_batches())) for part in parts]

    def send(self, number, *parts):
        messages = self.run_tasks(*parts)
        self.writer(parts[0].schema).commit(messages, number)

    @property
    def ids(self):
        return sorted(lance.dataset(self.uri).to_table().column("id").to_pylist())

    @property
    def version(self):
        return lance.dataset(self.uri).version

    @property
    def files(self):
        return set((Path(self.uri) / "data").iterdir())


@pytest.fixture
def stream(tmp_path):
    return Stream(tmp_path)


def test_batches_become_versions(stream):
    stream.send(0, rows(1), rows(2))
    stream.send(1, rows(3))
    assert stream.ids == [1, 2, 3]
    assert stream.version == 2


def test_a_batch_that_comes_again_changes_nothing_and_leaves_nothing(stream):
    stream.send(0, rows(1))
    stream.send(1, rows(2))
    files = stream.files
    for number in (0, 1):
        stream.send(number, rows(number + 1))
    assert stream.ids == [1, 2]
    assert stream.version == 2
    assert stream.files == files


def test_a_batch_is_known_after_any_number_of_other_commits(stream):
    stream.send(0, rows(1))
    for i in range(12):
        lance.write_dataset(rows(100 + i), stream.uri, mode="append")
    lance.dataset(stream.uri).optimize.compact_files()
    stream.send(0, rows(1))
    assert stream.ids == [1, *range(100, 112)]


def test_a_writer_that_planned_before_the_batch_landed_does_not_repeat_it(stream):
    stream.send(0, rows(1))
    late = stream.writer(rows(2).schema)
    messages = stream.run_tasks(rows(2))
    stream.send(1, rows(2))
    late.commit(messages, 1)
    assert stream.ids == [1, 2]


def test_the_first_batch_of_two_drivers_lands_once(stream):
    first, second = stream.writer(rows(1).schema), stream.writer(rows(1).schema)
    messages = [first.write(iter(rows(1).to_batches()))], [second.write(iter(rows(1).to_batches()))]
    first.commit(messages[0], 0)
    second.commit(messages[1], 0)
    assert stream.ids == [1]


def test_streams_do_not_know_each_other(stream, tmp_path):
    stream.send(0, rows(1))
    Stream(tmp_path, stream_id="another").send(0, rows(2))
    assert stream.ids == [1, 2]


def test_an_aborted_batch_leaves_no_files(stream):
    stream.send(0, rows(1))
    files = stream.files
    messages = stream.run_tasks(rows(2))
    stream.writer(rows(2).schema).abort([*messages, None], 1)
    assert stream.files == files


def test_an_empty_batch_makes_no_version(stream):
    stream.send(0, rows(1))
    stream.send(1, rows())
    stream.send(2, rows(2))
    assert stream.ids == [1, 2]
    assert stream.version == 2


def test_complete_mode_replaces_all_rows_once(tmp_path):
    stream = Stream(tmp_path, overwrite=True)
    stream.send(0, rows(1, 2))
    stream.send(1, rows(1, 2, 3))
    stream.send(1, rows(9))
    assert stream.ids == [1, 2, 3]
    assert stream.version == 2


@pytest.mark.parametrize("stable", ["true", "false"])
def test_upserts_replace_rows_with_the_same_key(tmp_path, stable):
    stream = Stream(tmp_path, upsert_on="id", enable_stable_row_ids=stable)
    stream.send(0, rows(1, 2), rows(3))
    stream.send(1, rows(2, 4, name="b"))
    stream.send(1, rows(2, 4, name="c"))
    found = lance.dataset(stream.uri).to_table().sort_by("id").to_pydict()
    assert found == {"id": [1, 2, 3, 4], "name": ["a", "b", "a", "b"]}


def test_upserts_add_the_files_of_the_tasks_without_rewriting_rows(tmp_path):
    stream = Stream(tmp_path, upsert_on="id")
    stream.send(0, rows(1, 2), rows(3))
    before = stream.files
    messages = stream.run_tasks(rows(2, 4, name="b"), rows(5, name="b"))
    written = stream.files - before
    stream.writer(rows(1).schema).commit(messages, 1)
    assert stream.files == before | written
    assert stream.ids == [1, 2, 3, 4, 5]
    assert stream.version == 3


def test_upserts_of_keys_that_are_in_the_table_twice_replace_each_row(tmp_path):
    stream = Stream(tmp_path, upsert_on="id")
    lancelet.write_dataset(rows(1, 1, 2), stream.uri)
    stream.send(0, rows(1, 3, name="b"))
    found = lance.dataset(stream.uri).to_table().sort_by("id").to_pydict()
    assert found == {"id": [1, 1, 2, 3], "name": ["b", "b", "a", "b"]}


def test_upserts_of_some_columns_keep_the_others(tmp_path):
    stream = Stream(tmp_path, upsert_on="id")
    lancelet.write_dataset(rows(1, 2).append_column("n", [[7, 8]]), stream.uri)
    stream.send(0, rows(2, 3, name="b"))
    found = lance.dataset(stream.uri).to_table().sort_by("id").to_pydict()
    assert found == {"id": [1, 2, 3], "name": ["a", "b", "b"], "n": [7, 8, None]}


def test_upserts_by_a_field_of_a_struct(tmp_path):
    def keyed(*keys):
        return pa.table({"k": pa.array([{"a": each} for each in keys]), "n": list(keys)})

    stream = Stream(tmp_path, upsert_on="k.a")
    stream.send(0, keyed(1, 2))
    stream.send(1, keyed(2, 3))
    assert sorted(lance.dataset(stream.uri).to_table()["n"].to_pylist()) == [1, 2, 3]
    with pytest.raises(InvalidInputError, match="same key"):
        stream.send(2, keyed(4, 4))


def test_upserts_beside_a_concurrent_insert_of_the_same_key(tmp_path):
    stream = Stream(tmp_path, upsert_on="id")
    stream.send(0, rows(1))
    messages = stream.run_tasks(rows(1, 2, name="b"))
    lancelet.dataset(stream.uri).merge_insert("id").when_not_matched_insert_all().execute(
        rows(2, name="other")
    )
    stream.writer(rows(1).schema).commit(messages, 1)
    found = lance.dataset(stream.uri).to_table().sort_by("id").to_pydict()
    assert found == {"id": [1, 2], "name": ["b", "b"]}


@pytest.mark.parametrize("stable", ["false", "true"])
def test_null_keys_match_no_row(tmp_path, stable):
    stream = Stream(tmp_path, upsert_on="id", enable_stable_row_ids=stable)
    stream.send(0, rows(None, None, 1))
    stream.send(1, rows(None, 1, name="b"))
    stream.send(1, rows(None, 1, name="c"))
    found = lance.dataset(stream.uri).to_table()
    assert sorted(found["name"].to_pylist()) == ["a", "a", "b", "b"]


@pytest.mark.parametrize("names", [["id"], ["other", "name"], ["s.k"]])
def test_keys_that_a_batch_lacks_are_rejected_before_the_table_is_created(tmp_path, names):
    stream = Stream(tmp_path, upsert_on=",".join(names))
    with pytest.raises(InvalidInputError, match=f"'{names[0]}' does not exist"):
        stream.writer(pa.schema([("name", pa.string())]))
    assert not Path(stream.uri).exists()


@pytest.mark.parametrize("stable", [False, True])
def test_batches_whose_columns_have_another_order_than_the_table(tmp_path, stable):
    stream = Stream(tmp_path, upsert_on="id")
    made = rows(1, 2).append_column("n", [[7, 8]])
    lancelet.write_dataset(made, stream.uri, enable_stable_row_ids=stable)
    stream.send(0, rows(2, 3, name="b").select(["name", "id"]))
    found = lance.dataset(stream.uri).to_table().sort_by("id").to_pydict()
    assert found == {"id": [1, 2, 3], "name": ["a", "b", "b"], "n": [7, 8, None]}


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_upserts_of_blobs_and_some_other_columns(tmp_path, version):
    stream = Stream(tmp_path, upsert_on="id")
    blob = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    schema = pa.schema([("id", pa.int64()), blob, ("n", pa.int64())])
    made = pa.table([[1, 2, 3], [b"x", None, b"old"], [1, 2, 3]], schema=schema)
    lancelet.write_dataset(made, stream.uri, data_storage_version=version)
    stream.send(0, pa.table({"b": pa.array([None, b"y", b""], pa.binary()), "id": [1, 2, 4]}))
    found = lancelet.dataset(stream.uri)
    assert found.to_table(columns=["id", "n"]).sort_by("id")["n"].to_pylist() == [1, 2, 3, None]
    ids = found.to_table(columns=["id"])["id"].to_pylist()
    blobs = found.take_blobs("b", indices=list(range(4)))
    values = {
        key: None if each is None else each.readall() for key, each in zip(ids, blobs, strict=True)
    }
    assert values == {1: None, 2: b"y", 3: b"old", 4: b""}


@pytest.mark.parametrize("seed", range(12))
def test_upserts_match_a_plain_model(tmp_path, seed):
    """Batches of any columns in any order, sent again, beside others and after compactions."""
    chance = random.Random(seed)
    schema = pa.schema(
        [("k", pa.int64()), ("j", pa.string()), ("v", pa.int64()), ("w", pa.int64())]
    )
    options = {"upsert_on": "k, j", "enable_stable_row_ids": ["false", "true"][seed % 2]}
    stream, other = Stream(tmp_path, **options), Stream(tmp_path, stream_id="other", **options)
    expected = []

    def batch(columns):
        keys = list({(chance.choice([None, *range(6)]), chance.choice("xy")) for _ in range(5)})
        made = pa.table([[key[0] for key in keys], [key[1] for key in keys]], names=["k", "j"])
        for name in columns:
            made = made.append_column(name, [[chance.randrange(99) for _ in keys]])
        return made.cast(pa.schema([schema.field(name) for name in made.column_names]))

    def put(given):
        for row in given.to_pylist():
            same = [old for old in expected if (row["k"], row["j"]) == (old["k"], old["j"])]
            if not same or row["k"] is None:
                expected.append(dict.fromkeys(schema.names) | row)
            for old in same if row["k"] is not None else ():
                old.update(row)

    for number in range(6):
        given = batch(["v", "w"][: 2 if number == 0 else chance.randint(0, 2)])
        given = given.select(chance.sample(given.column_names, given.num_columns))
        cut = chance.randint(0, given.num_rows)
        messages = stream.run_tasks(given.slice(0, cut), given.slice(cut))
        if number and chance.random() < 0.5:
            beside = batch(["w", "v"])
            other.send(number, beside)
            put(beside)
        stream.writer(given.schema).commit(messages, number)
        put(given)
        if chance.random() < 0.3:
            stream.send(number, given)
        if chance.random() < 0.3:
            lancelet.dataset(stream.uri).optimize.compact_files()
        found = lance.dataset(stream.uri).to_table().select(schema.names).to_pylist()
        assert sorted(found, key=repr) == sorted(expected, key=repr)


@pytest.mark.parametrize("options", [{}, {"upsert_on": "id"}], ids=["append", "upsert"])
def test_an_abort_after_a_commit_keeps_the_committed_files(tmp_path, options):
    stream = Stream(tmp_path, **options)
    stream.send(0, rows(1))
    messages = stream.run_tasks(rows(2))
    stream.writer(rows(2).schema).commit(messages, 1)
    stream.writer(rows(2).schema).abort(messages, 1)
    assert stream.ids == [1, 2]


@pytest.mark.parametrize("stable", ["false", "true"])
@pytest.mark.parametrize("columns", [["id", "name"], ["id"]])
def test_a_table_that_was_replaced_while_a_batch_ran_is_not_written(tmp_path, columns, stable):
    options = {"enable_stable_row_ids": stable}
    stream = Stream(tmp_path, upsert_on="id", **options)
    stream.send(0, rows(1))
    given = rows(1, 2, name="b").select(columns)
    writer = stream.writer(given.schema)
    messages = stream.run_tasks(given)
    shutil.rmtree(stream.uri)
    with pytest.raises(DatasetNotFoundError, match="removed while a batch ran"):
        writer.commit(messages, 1)
    assert not Path(stream.uri).exists()
    lancelet.write_dataset(rows(7), stream.uri, enable_stable_row_ids=stable == "true")
    with pytest.raises(VersionNotFoundError, match="deleted and created again"):
        writer.commit(messages, 1)
    assert (stream.ids, stream.version) == ([7], 1)


def test_a_table_with_a_log_that_was_replaced_while_a_batch_ran_is_not_written(tmp_path):
    stream, made = logged(tmp_path)
    made.initialize_mem_wal(unsharded=True)
    writer = stream.writer(rows(3).schema)
    messages = stream.run_tasks(rows(3))
    shutil.rmtree(stream.uri)
    _, made = logged(tmp_path)
    made.initialize_mem_wal(unsharded=True)
    with pytest.raises(VersionNotFoundError, match="deleted and created again"):
        writer.commit(messages, 0)
    assert LsmScanner.fresh(made).count_rows() == 2


def test_a_batch_commits_after_its_planned_version_was_cleaned_up(tmp_path):
    stream = Stream(tmp_path, upsert_on="id")
    stream.send(0, rows(1))
    writer = stream.writer(rows(1).schema)
    messages = stream.run_tasks(rows(1, 2, name="b"))
    table = lancelet.write_dataset(rows(5), stream.uri, mode="append")
    table.cleanup_old_versions(retain_versions=1)
    writer.commit(messages, 1)
    assert stream.ids == [1, 2, 5]


def test_two_rows_of_a_batch_with_one_key_are_rejected(tmp_path):
    stream = Stream(tmp_path, upsert_on="id")
    with pytest.raises(InvalidInputError, match="same key"):
        stream.send(0, rows(1), rows(1))


def test_a_stream_needs_an_id(tmp_path):
    given = {"path": str(tmp_path / "t.lance")}
    with pytest.raises(InvalidInputError, match="stream_id"):
        DefaultSource(CaseInsensitiveDict(given)).streamWriter(spark_schema(rows().schema), False)
    given["checkpointLocation"] = str(tmp_path / "nowhere")
    with pytest.raises(InvalidInputError, match="stream_id"):
        DefaultSource(CaseInsensitiveDict(given)).streamWriter(spark_schema(rows().schema), False)


def test_rows_that_do_not_fit_are_rejected_before_any_task(stream):
    stream.send(0, rows(1))
    with pytest.raises(SchemaMismatchError):
        stream.writer(pa.schema([("id", pa.string())]))


def test_new_columns_of_a_stream_are_added_with_merge_schema(tmp_path):
    stream = Stream(tmp_path, mergeSchema="true")
    stream.send(0, rows(1))
    stream.send(1, rows(2).append_column("n", [[7]]))
    found = lance.dataset(stream.uri).to_table().to_pylist()
    assert sorted(row["n"] is None for row in found) == [False, True]


def test_a_stream_does_not_replace_rows_by_a_condition(tmp_path):
    with pytest.raises(InvalidInputError, match="foreachBatch"):
        Stream(tmp_path, replaceWhere="id > 1").writer(rows(1).schema)


@pytest.mark.parametrize("stable", ["false", "true"])
def test_upserts_record_their_batch_and_message(tmp_path, stable):
    stream = Stream(tmp_path, upsert_on="id", userMetadata="x", enable_stable_row_ids=stable)
    stream.send(0, rows(1))
    stream.send(1, rows(1, 2))
    recorded = lancelet.dataset(stream.uri).snapshot.transaction.properties
    expected = {"lancelet.stream": ID, "lancelet.batch": "1", "__lance_commit_message": "x"}
    assert recorded == expected


def test_the_transaction_records_its_batch(stream):
    stream.send(3, rows(1))
    import lancelet

    properties = lancelet.dataset(stream.uri).snapshot.transaction.properties
    assert properties == {"lancelet.stream": ID, "lancelet.batch": "3"}
    assert lance.dataset(stream.uri).config() == {f"lancelet.stream.{ID}": "3"}


KEY = {"lance-schema:unenforced-primary-key": "true"}


def logged(tmp_path, **options):
    stream = Stream(tmp_path, log="true", **options)
    schema = pa.schema([pa.field("id", pa.int64(), False, KEY), ("name", pa.string())])
    made = lancelet.write_dataset(rows(1, 2).cast(schema), stream.uri)
    return stream, made


def test_batches_go_to_the_log_once_and_leave_no_files(tmp_path):
    stream, made = logged(tmp_path)
    made.initialize_mem_wal(bucket_column="id", num_buckets=2)
    files = stream.files
    stream.send(0, rows(2, 3, name="b"), rows(4, name="b"))
    version = stream.version  # which notes the shards
    stream.send(1, rows(4, 5, name="c"))
    stream.send(1, rows(4, 5, name="c"))
    stream.send(0, rows(4, name="late"))
    assert (stream.files, stream.version) == (files, version)
    found = LsmScanner.fresh(made).to_table()
    names = dict(zip(found["id"].to_pylist(), found["name"].to_pylist(), strict=True))
    assert names == {1: "a", 2: "b", 3: "b", 4: "c", 5: "c"}


def test_columns_for_the_log_in_another_order_than_those_of_the_table(tmp_path):
    stream, made = logged(tmp_path)
    made.initialize_mem_wal(bucket_column="id", num_buckets=2)
    stream.send(0, rows(7, name="b").select(["name", "id"]))
    found = LsmScanner.fresh(lancelet.dataset(stream.uri)).to_table()
    assert {"id": 7, "name": "b"} in found.select(["id", "name"]).to_pylist()


def test_a_batch_for_the_log_has_each_key_once(tmp_path):
    stream, made = logged(tmp_path)
    made.initialize_mem_wal(unsharded=True)
    with pytest.raises(InvalidInputError, match="same key"):
        stream.send(0, rows(3), rows(3))
    assert LsmScanner.fresh(made).count_rows() == 2


def test_rows_unsupported_by_a_log_are_rejected_before_tasks_run(tmp_path):
    stream, made = logged(tmp_path)
    with pytest.raises(InvalidInputError, match="log"):
        stream.writer(rows(1).schema)
    made.initialize_mem_wal(unsharded=True)
    for source in (
        Stream(tmp_path, log="true", upsert_on="id"),
        Stream(tmp_path, overwrite=True, log="true"),
    ):
        with pytest.raises(InvalidInputError, match="omit upsert_on"):
            source.writer(rows(1).schema)
    (tmp_path / "other").mkdir()
    with pytest.raises(FileNotFoundError, match="initialize_mem_wal"):
        Stream(tmp_path / "other", log="true").writer(rows(1).schema)
