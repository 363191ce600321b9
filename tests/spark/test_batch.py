"""Reading and writing whole tables through `format("lance")`."""

import lance
import pyarrow as pa
import pytest

import lancelet


@pytest.fixture
def uri(tmp_path):
    return str(tmp_path / "t.lance")


def save(frame, uri, mode="append", **options):
    frame.write.format("lance").mode(mode).options(**options).save(uri)


def load(spark, uri, **options):
    return spark.read.format("lance").options(**options).load(uri)


def test_rows_that_spark_wrote_are_read_by_everybody(spark, uri):
    frame = spark.range(1000).selectExpr("id", "concat('row ', id) name")
    save(frame, uri)
    expected = [{"id": i, "name": f"row {i}"} for i in range(1000)]
    assert lance.dataset(uri).to_table().sort_by("id").to_pylist() == expected
    assert lancelet.dataset(uri).to_table().sort_by("id").to_pylist() == expected
    assert [row.asDict() for row in load(spark, uri).orderBy("id").collect()] == expected


def test_spark_reads_what_the_reference_wrote(spark, uri):
    rows = pa.table({"id": [1, 2, 3], "name": ["a", None, "c"]})
    lance.write_dataset(rows, uri)
    lance.dataset(uri).delete("id = 1")
    assert load(spark, uri).orderBy("id").collect() == [(2, None), (3, "c")]
