"""Streams from tables and into tables, with restarts and batches that Spark runs again."""

import uuid

import lance
import pyarrow as pa
import pytest

import lancelet
import lancelet.spark as ls
from lancelet.memwal.ingest import log_batch
from lancelet.spark.read_limits import HAS_LIMITS


def rows(start, stop):
    ids = range(start, stop)
    schema = pa.schema([("id", pa.int64()), ("k", pa.int64())])
    return pa.table([list(ids), [i % 3 for i in ids]], schema=schema)


class Pipeline:
    """A stream from one table into another."""

    def __init__(self, spark, folder):
        self.spark = spark
        self.source = str(folder / "source.lance")
        self.target = str(folder / "target.lance")
        self.checkpoint = folder / "checkpoint"

    def run(self, transform=lambda frame: frame, mode="append", read=None, **options):
        stream = self.spark.readStream.format("lance").options(**(read or {})).load(self.source)
        query = (
            transform(stream)
            .writeStream.format("lance")
            .option("path", self.target)
            .option("checkpointLocation", str(self.checkpoint))
            .options(**options)
            .outputMode(mode)
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(300)
        return query

    def forget_last_commit(self):
        """Make Spark believe that it died before its last batch was done."""
        commits = self.checkpoint / "commits"
        last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
        (commits / str(last)).unlink()
        (commits / f".{last}.crc").unlink(missing_ok=True)

    @property
    def ids(self):
        return sorted(lance.dataset(self.target).to_table().column("id").to_pylist())


@pytest.fixture
def pipeline(spark, tmp_path):
    made = Pipeline(spark, tmp_path)
    lance.write_dataset(rows(0, 10), made.source)
    return made


def test_rows_pass_exactly_once_over_restarts_and_repeated_batches(pipeline):
    limit = {"max_rows_per_batch": "6"} if HAS_LIMITS else {}
    pipeline.run(read=limit)
    assert pipeline.ids == list(range(10))
    lance.write_dataset(rows(10, 14), pipeline.source, mode="append")
    pipeline.run(read=limit)
    assert pipeline.ids == list(range(14))
    before = lance.dataset(pipeline.target).version
    pipeline.forget_last_commit()
    pipeline.run(read=limit)
    assert pipeline.ids == list(range(14))
    assert lance.dataset(pipeline.target).version == before == (3 if HAS_LIMITS else 2)


def test_changes_pass_exactly_once_over_restarts(spark, tmp_path):
    pipeline = Pipeline(spark, tmp_path)
    feed = {"change_feed": "true"} | ({"max_rows_per_batch": "2"} if HAS_LIMITS else {})
    lance.write_dataset(rows(0, 3), pipeline.source, enable_stable_row_ids=True)
    pipeline.run(read=feed)
    lance.dataset(pipeline.source).update({"k": "7"}, where="id = 1")
    lance.dataset(pipeline.source).delete("id = 0")
    lance.write_dataset(rows(3, 5), pipeline.source, mode="append")
    lance.dataset(pipeline.source).optimize.compact_files()
    pipeline.run(read=feed)
    pipeline.forget_last_commit()
    pipeline.run(read=feed)
    found = lance.dataset(pipeline.target).to_table().to_pylist()
    changes = [
        (row["kind"], row["_commit_version"], row["before"] or {}, row["after"] or {})
        for row in sorted(found, key=lambda row: (row["_commit_version"], row["row_id"]))
    ]
    assert changes == [
        *(("insert", 1, {}, {"id": i, "k": i % 3}) for i in range(3)),
        ("update", 2, {"id": 1, "k": 1}, {"id": 1, "k": 7}),
        ("delete", 3, {"id": 0, "k": 0}, {}),
        *(("insert", 4, {}, {"id": i, "k": i % 3}) for i in (3, 4)),
    ]


def test_complete_and_upsert_sinks(pipeline, spark, tmp_path):
    pipeline.run(lambda frame: frame.groupBy("k").count(), mode="complete")
    lance.write_dataset(rows(10, 12), pipeline.source, mode="append")
    pipeline.run(lambda frame: frame.groupBy("k").count(), mode="complete")
    found = lance.dataset(pipeline.target).to_table().sort_by("k").to_pydict()
    assert found == {"k": [0, 1, 2], "count": [4, 4, 4]}

    upserts = Pipeline(spark, tmp_path / "upserts")
    upserts.source = pipeline.source
    upserts.run(
        lambda frame: frame.where("id < 3").selectExpr("k as id", "id as v"), upsert_on="id"
    )
    lance.write_dataset(rows(0, 2), pipeline.source, mode="append")
    upserts.run(lambda frame: frame.selectExpr("k as id", "id + 100 as v"), upsert_on="id")
    found = lance.dataset(upserts.target).to_table().sort_by("id").to_pydict()
    assert found == {"id": [0, 1, 2], "v": [100, 101, 2]}


@pytest.mark.slow  # Spark at times waits for ever for a callback that it lost
def test_batches_of_foreach_are_merged_once(pipeline):
    from lancelet import spark as ls

    target = pipeline.target
    lance.write_dataset(rows(0, 0), target)

    def upsert(batch, number):
        merge = ls.merge(batch, target, on="id").when_matched_update().when_not_matched_insert()
        merge.execute(once=ls.Once("upserts", number))

    def run():
        stream = pipeline.spark.readStream.format("lance").load(pipeline.source)
        query = (
            stream.writeStream.foreachBatch(upsert)
            .option("checkpointLocation", str(pipeline.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(300)

    run()
    assert pipeline.ids == list(range(10))
    version = lance.dataset(target).version
    pipeline.forget_last_commit()
    run()
    assert pipeline.ids == list(range(10))
    assert lance.dataset(target).version == version


def test_a_version_that_was_removed_ends_the_stream_with_its_number(pipeline):
    import datetime as dt

    pipeline.run(read={"starting_version": "1"})
    for i in range(3):
        lance.write_dataset(rows(10 + i, 11 + i), pipeline.source, mode="append")
    lance.dataset(pipeline.source).cleanup_old_versions(older_than=dt.timedelta(0))
    with pytest.raises(Exception, match="version=2"):
        pipeline.run(read={"starting_version": "1"})


KEY = {"lance-schema:unenforced-primary-key": "true"}


def logged_table(uri, ids=range(3)):
    schema = pa.schema([pa.field("id", pa.int64(), False, KEY), ("k", pa.int64())])
    made = lancelet.write_dataset(pa.table([list(ids), [-1] * len(ids)], schema=schema), uri)
    made.initialize_mem_wal(bucket_column="id", num_buckets=3)
    return made


def test_rows_pass_through_the_log_exactly_once_and_are_read_fresh(spark, pipeline):
    table = logged_table(pipeline.target)
    pipeline.run(log="true")
    lance.write_dataset(rows(10, 14), pipeline.source, mode="append")
    pipeline.run(log="true")
    pipeline.forget_last_commit()
    pipeline.run(log="true")
    # No rows were committed: they are in the log alone.
    assert lancelet.dataset(pipeline.target).count_rows() == table.count_rows()
    assert pipeline.ids == [0, 1, 2]
    found = ls.scan(spark, pipeline.target, fresh=True)
    assert sorted(map(tuple, found.collect())) == [(i, i % 3) for i in range(14)]
    some = ls.scan(spark, pipeline.target, columns=["k"], filter="id > 11", fresh=True)
    assert sorted(row.k for row in some.collect()) == [0, 1]
    assert ls.scan(spark, pipeline.target, limit=4, fresh=True).count() == 4
    merged = lancelet.dataset(pipeline.target)
    merged.compact_mem_wal(flush=True)
    assert pipeline.ids == list(range(14))
    assert ls.scan(spark, pipeline.target, fresh=True).count() == 14


def test_the_log_is_a_source_of_streams(spark, tmp_path):
    pipeline = Pipeline(spark, tmp_path)
    table = logged_table(pipeline.source)
    assert log_batch(table.snapshot, pa.table({"id": [7, 8], "k": [70, 80]}), "s", 0)
    pipeline.run(read={"log": "true"})
    shard = str(uuid.uuid4())
    with table.mem_wal_writer(shard) as writer:
        writer.put(pa.table({"id": [9], "k": [90]}))
        writer.delete(pa.table({"id": [7]}))
    pipeline.run(read={"log": "true"})
    pipeline.forget_last_commit()
    pipeline.run(read={"log": "true"})
    found = lance.dataset(pipeline.target).to_table().to_pylist()
    told = [(row["id"], row["k"], row["_tombstone"]) for row in found]
    assert sorted(told, key=str) == [
        (7, 70, False),
        (7, None, True),
        (8, 80, False),
        (9, 90, False),
    ]
