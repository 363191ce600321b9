"""Jobs beyond SQL: scan, write, replace, delete, update, compact, merge."""

import os
import uuid

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lancelet import spark as ls
from lancelet.errors import (
    AlreadyExistsError,
    DatasetNotFoundError,
    FieldNotFoundError,
    InvalidInputError,
    SchemaMismatchError,
)
from lancelet.optimize import MaintenancePolicy
from lancelet.spark import merge_keys, merging, small_reads


@pytest.fixture
def uri(tmp_path):
    return str(tmp_path / "t.lance")


@pytest.fixture
def table(uri):
    """Fifty rows in five fragments."""
    rows = pa.table({"id": range(50), "name": [f"row {i}" for i in range(50)], "n": [1] * 50})
    lance.write_dataset(rows, uri, max_rows_per_file=10, enable_stable_row_ids=True)
    return uri


def rows_of(uri):
    return {row["id"]: (row["name"], row["n"]) for row in lance.dataset(uri).to_table().to_pylist()}


def test_scans_push_columns_filters_and_limits_down(spark, table):
    frame = ls.scan(spark, table, columns=["id", "_rowid"], filter="id % 10 = 3", bytes_per_task=1)
    assert sorted(frame.collect()) == [(i, i) for i in range(3, 50, 10)]
    # Unlike a source with pushed filters, each data frame reads its own rows however often.
    other = ls.scan(spark, table, columns=["id"], filter="id = 7")
    assert frame.crossJoin(other.withColumnRenamed("id", "o")).count() == 5
    assert ls.scan(spark, table, limit=12).count() == 12
    assert ls.scan(spark, table, filter="id < 0").collect() == []
    lance.dataset(table).delete("id = 3")
    assert frame.count() == 5, "the version is pinned"
    assert ls.count(table, spark=spark) == 49
    assert ls.count(table, filter="id >= 40", spark=spark) == 10
    assert ls.count(table, version=1) == 50


def test_data_frames_are_written_in_every_mode(spark, uri):
    frame = spark.range(10).selectExpr("id", "id % 2 as part")
    done = ls.write(frame, uri)
    assert (done.version, done.num_rows) == (1, 10)
    assert done.report.work.written_bytes > 0
    with pytest.raises(AlreadyExistsError):
        ls.write(frame, uri)
    ls.write(spark.range(10, 12).selectExpr("id", "id % 2 as part"), uri, mode="append")
    new = spark.createDataFrame([(100, 1)], "id long, part long")
    replaced = ls.write(new, uri, mode="replace", where="part = 1")
    assert lance.dataset(uri).to_table().sort_by("id").to_pydict() == {
        "id": [0, 2, 4, 6, 8, 10, 100],
        "part": [0] * 6 + [1],
    }
    assert replaced.version == lance.dataset(uri).version == 3
    with pytest.raises(InvalidInputError, match="do not match the condition"):
        ls.write(new, uri, mode="replace", where="part = 0")
    once = ls.Once("nightly", 4)
    for _ in range(2):
        ls.write(spark.range(1).selectExpr("id", "id as part"), uri, mode="append", once=once)
    assert lance.dataset(uri).count_rows() == 8
    ls.write(spark.range(3), uri, mode="overwrite")
    assert lance.dataset(uri).to_table().sort_by("id").to_pydict() == {"id": [0, 1, 2]}
    with pytest.raises(DatasetNotFoundError):
        ls.write(new, uri + ".none", mode="replace", where="part = 1")


def test_rows_are_deleted_updated_and_compacted_on_executors(spark, table):
    told = []
    assert ls.delete(table, "id >= 45", spark=spark, progress=told.append).num_rows == 5
    assert told[-1].done == told[-1].total > 0
    assert ls.update(table, {"n": "n + id"}, "id < 5", spark=spark).num_rows == 5
    done = ls.compact(table, options={"target_rows_per_fragment": 1000}, spark=spark)
    assert done.metrics.fragments_added == 1
    expected = {i: (f"row {i}", 1 + i if i < 5 else 1) for i in range(45)}
    assert rows_of(table) == expected
    assert lance.dataset(table).version == done.version


def test_maintenance_compacts_and_indexes_on_executors(spark, table):
    lance.dataset(table).create_scalar_index("id", "BTREE")
    schema = lance.dataset(table).schema
    for number in range(100, 110):
        rows = [{"id": number, **dict.fromkeys(schema.names[1:])}]
        lance.write_dataset(pa.Table.from_pylist(rows, schema), table, mode="append")
    before = rows_of(table)
    policy = MaintenancePolicy(min_fragments=2)
    planned = ls.maintain(table, policy, dry_run=True, spark=spark)
    assert planned.before == planned.after
    told = []
    report = ls.maintain(table, policy, spark=spark, progress=told.append)
    assert [str(result.step.kind) for result in report.steps] == ["optimize index", "compact"]
    assert report.is_complete
    assert {each.phase for each in told} >= {"compact", "optimize"}
    assert report.after.unindexed_rows == 0
    assert report.after.fragments < report.before.fragments
    assert rows_of(table) == before
    assert ls.maintain(table, policy, spark=spark).steps == ()


def test_a_model_is_loaded_once_in_each_worker(spark, table, tmp_path):
    loads = tmp_path / "loads"
    loads.mkdir()

    def load():
        (loads / f"{os.getpid()}-{uuid.uuid4()}").touch()
        return 2

    ls.add_columns(
        table,
        function=lambda batch, factor: pa.record_batch({"m": pc.multiply(batch["id"], factor)}),
        schema=pa.schema([("m", pa.int64())]),
        reads=["id"],
        setup=load,
        batch_size=3,
        bytes_per_task=1,
        spark=spark,
    )
    found = lance.dataset(table).to_table(columns=["id", "m"]).to_pydict()
    assert found["m"] == [2 * i for i in found["id"]]
    workers = [path.name.split("-")[0] for path in loads.iterdir()]
    assert len(workers) == len(set(workers)) > 0


def source(spark, *rows, schema="id long, name string, n long"):
    return spark.createDataFrame(list(rows), schema)


def test_a_merge_updates_inserts_and_deletes_in_one_version(spark, table):
    rows = source(spark, (3, "three", 30), (4, "four", -1), (60, "sixty", 0), (61, "no", -1))
    ids = lance.dataset(table).to_table(columns=["id"], with_row_id=True).to_pydict()
    done = (
        ls.merge(rows, table, on="id")
        .when_matched_delete("source.n < 0")
        .when_matched_update({"n": "source.n + target.n"})
        .when_not_matched_insert(condition="source.n >= 0")
        .when_not_matched_by_source_update({"name": "'late'"}, condition="target.id = 49")
        .when_not_matched_by_source_delete("target.id >= 40")
        .execute()
    )
    expected = {i: (f"row {i}", 1) for i in range(40) if i != 4}
    expected |= {3: ("row 3", 31), 60: ("sixty", 0), 49: ("late", 1)}
    assert rows_of(table) == expected
    assert (done.counts.inserted, done.counts.updated, done.counts.deleted) == (1, 2, 10)
    assert done.version == lance.dataset(table).version == 2
    after = lance.dataset(table).to_table(columns=["id"], with_row_id=True).to_pydict()
    moved = dict(zip(after["id"], after["_rowid"], strict=True))
    known = dict(zip(ids["id"], ids["_rowid"], strict=True))
    assert all(moved[i] == known[i] for i in moved if i in known)


def test_an_upsert_needs_some_columns_only(spark, table):
    rows = source(spark, (3, 33), (70, 7), (None, 9), schema="id long, n long")
    merge = ls.merge(rows, table, on=["id"]).when_matched_update().when_not_matched_insert()
    for _ in range(2):
        done = merge.execute(once=ls.Once("upserts", 1))
    assert done.counts.total == 0
    found = rows_of(table)
    assert found[3] == ("row 3", 33)
    assert found[70] == (None, 7)
    assert found[None] == (None, 9)
    assert len(found) == 52


def test_a_merge_takes_fields_by_their_names(spark, tmp_path):
    uri = str(tmp_path / "nested.lance")
    ls.write(spark.sql("SELECT 1L AS id, struct(1L AS a, 2L AS b) AS s"), uri)
    row = spark.sql("SELECT 1L AS id, struct(20 AS B, 10 AS a) AS s")
    ls.merge(row, uri, on="id").when_matched_update({"s": "source.s"}).execute()
    assert ls.scan(spark, uri).collect() == [(1, (10, 20))]
    other = {"s": "named_struct('a', 1, 'c', 2)"}
    with pytest.raises(SchemaMismatchError, match="its fields differ"):
        ls.merge(row, uri, on="id").when_matched_update(other).execute()
    assert lance.dataset(uri).version == 2


def test_a_merge_is_rejected_where_it_cannot_be_meant(spark, table, monkeypatch):
    twice = source(spark, (3, "a", 1), (3, "b", 2))
    with monkeypatch.context() as patch:
        patch.setattr(merging, "run_over", lambda *_: pytest.fail("tasks wrote"))
        with pytest.raises(InvalidInputError, match="same row"):
            ls.merge(twice, table, on="id").when_matched_update().execute()
    one = source(spark, (3, "a", 1))
    with pytest.raises(InvalidInputError, match="no clause"):
        ls.merge(one, table, on="id").execute()
    with pytest.raises(FieldNotFoundError):
        ls.merge(one, table, on="idd").when_matched_delete().execute()
    with pytest.raises(FieldNotFoundError):
        ls.merge(one, table, on="id").when_matched_update({"nam": "1"}).execute()
    wrong = source(spark, (3, "a"), schema="id long, n string")
    with pytest.raises(SchemaMismatchError):
        ls.merge(wrong, table, on="id").when_matched_update().execute()
    assert lance.dataset(table).version == 1


def test_a_merge_that_lost_a_race_is_done_again(spark, table, monkeypatch):
    import lancelet.spark.merging as module

    commit = module.commit_merge
    rivals = []

    def after_a_rival(*arguments, **options):
        if not rivals:
            new = pa.table({"id": [80], "name": ["rival"], "n": [0]})
            rivals.append(lance.dataset(table).merge_insert("id").when_not_matched_insert_all())
            rivals[0].execute(new)
        return commit(*arguments, **options)

    monkeypatch.setattr(module, "commit_merge", after_a_rival)
    rows = source(spark, (80, "ours", 8))
    done = ls.merge(rows, table, on="id").when_matched_update().when_not_matched_insert().execute()
    assert rows_of(table)[80] == ("ours", 8)
    assert (done.counts.inserted, done.counts.updated) == (0, 1)
    assert lance.dataset(table).count_rows() == 51


@pytest.mark.parametrize("way", ["sql", "function"])
def test_the_keys_of_a_small_source_are_a_filter_of_the_table(spark, tmp_path, way, monkeypatch):
    monkeypatch.setattr(merge_keys, "TABLE_BYTES_MIN", 0)
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": range(1000), "n": [0] * 1000}), uri)
    filters = []
    plan = small_reads.plan_scan

    def recording(snapshot, options):
        filters.append(options.filter)
        return plan(snapshot, options)

    monkeypatch.setattr(small_reads, "plan_scan", recording)
    # The source differs each time it is computed, and is computed once.
    rows = spark.createDataFrame([(5,), (7,), (None,), (2000,)], "id int")
    source = rows.selectExpr("id", "CAST(length(uuid()) AS BIGINT) AS n")
    if way == "sql":
        text = f"MERGE INTO lance.`{uri}` t USING {{source}} s ON s.id = t.id AND t.n = 0"
        clauses = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        done = ls.sql(spark, f"{text} {clauses}", source=source).first()
        counts = (done.num_updated_rows, done.num_inserted_rows)
    else:
        merge = ls.merge(source, uri, on="id").when_matched_update().when_not_matched_insert()
        done = merge.execute().counts
        counts = (done.updated, done.inserted)
    assert counts == (2, 2)
    assert any("`id` IN (5, 7, 2000)" in (each or "") for each in filters), filters
    found = lance.dataset(uri).to_table(filter="n = 36")["id"].to_pylist()
    assert sorted(found, key=str) == [2000, 5, 7, None]


def test_repeated_keys_of_a_small_source_are_an_error_unless_they_are_null(
    spark, tmp_path, monkeypatch
):
    monkeypatch.setattr(merge_keys, "TABLE_BYTES_MIN", 0)
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": range(10), "s": ["a"] * 10, "n": [0] * 10}), uri)
    schema = "id long, s string, n long"
    repeated = spark.createDataFrame([(3, "a", 1), (4, "a", 1), (3, "a", 2)], schema)
    merge = ls.merge(repeated, uri, on=["id", "s"]).when_matched_update()
    with pytest.raises(InvalidInputError, match="several rows of the source change the same"):
        merge.execute()
    distinct = [(None, "a", 1), (None, "a", 2), (3, "a", 3), (3, "b", 4), (4, None, 5)]
    merge = ls.merge(spark.createDataFrame(distinct, schema), uri, on=["id", "s"])
    done = merge.when_matched_update().when_not_matched_insert().execute()
    assert (done.counts.updated, done.counts.inserted) == (1, 4)


def test_rows_without_a_match_are_found_beside_a_small_source(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(merge_keys, "TABLE_BYTES_MIN", 0)
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": range(10), "n": [0] * 10}), uri)
    source = spark.createDataFrame([(3, 1)], "id long, n long")
    merge = ls.merge(source, uri, on="id").when_matched_update()
    done = merge.when_not_matched_by_source_delete("target.id > 4").execute()
    assert (done.counts.updated, done.counts.deleted) == (1, 5)
