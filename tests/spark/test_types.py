"""Every type that tables have, read by Spark from the reference and written back to it."""

import datetime as dt
import decimal

import lance
import pyarrow as pa
import pytest
from pyspark.ml.linalg import Vectors, VectorUDT
from pyspark.sql.types import IntegerType, StructType

from lancelet import spark as ls
from lancelet.errors import UnsupportedError

NOW = dt.datetime(2024, 2, 29, 12, 30, 15, 123456)  # noqa: DTZ001 - Spark has such
UTC_NOW = NOW.replace(tzinfo=dt.UTC)
SECOND = UTC_NOW.replace(microsecond=0)

# A type of a table and a value; each column is also there without nulls.
VALUES = [
    (pa.bool_(), True),
    (pa.int8(), -3),
    (pa.int16(), -300),
    (pa.int32(), -(2**31)),
    (pa.int64(), 2**63 - 1),
    (pa.uint8(), 255),
    (pa.uint16(), 65535),
    (pa.uint32(), 2**32 - 1),
    (pa.uint64(), 2**64 - 1),
    (pa.float16(), 1.5),
    (pa.float32(), 1.5),
    (pa.float64(), 0.1),
    (pa.string(), "é"),
    (pa.large_string(), "é"),
    (pa.binary(), b"\x00\xff"),
    (pa.large_binary(), b"\x00\xff"),
    (pa.binary(3), b"abc"),
    (pa.date32(), dt.date(2024, 2, 29)),
    (pa.timestamp("us"), NOW),
    (pa.timestamp("s"), NOW.replace(microsecond=0)),
    (pa.timestamp("us", "UTC"), UTC_NOW),
    (pa.timestamp("ms", "Asia/Tokyo"), SECOND),
    (pa.time64("us"), dt.time(1, 2, 3, 4)),
    (pa.duration("us"), dt.timedelta(days=-1, seconds=3)),
    (pa.decimal128(10, 2), decimal.Decimal("-12345678.90")),
    (pa.decimal128(38, 18), decimal.Decimal("0.000000000000000001")),
    (pa.dictionary(pa.int32(), pa.string()), "a"),
    (pa.list_(pa.int16()), [1, None, 3]),
    (pa.large_list(pa.uint8()), [1, 2]),
    (pa.list_(pa.float16(), 2), [1.0, 2.0]),
    (pa.list_(pa.list_(pa.string())), [["a"], [], None]),
    (pa.struct([("x", pa.uint16()), ("y", pa.list_(pa.string()))]), {"x": 1, "y": ["z"]}),
    (pa.map_(pa.string(), pa.float32()), [("k", 1.0), ("l", None)]),
    (pa.json_(), '{"a":1}'),
]  # fmt: skip


@pytest.fixture
def tables(tmp_path):
    """A table of the reference with every type, and one of the same schema without rows."""
    arrays, fields = [], []
    for place, (kind, value) in enumerate(VALUES):
        arrays += [pa.array([value, None, value], kind), pa.array([value] * 3, kind)]
        fields += [pa.field(f"c{place}", kind), pa.field(f"n{place}", kind, nullable=False)]
    rows = pa.Table.from_arrays(arrays, schema=pa.schema(fields))
    source, target = str(tmp_path / "a.lance"), str(tmp_path / "b.lance")
    lance.write_dataset(rows, source, data_storage_version="2.2")
    lance.write_dataset(rows.slice(0, 0), target, data_storage_version="2.2")
    return source, target


@pytest.mark.parametrize("way", ["format", "function"])
def test_all_types_pass_through_spark_into_a_table_of_the_same_types(spark, tables, way):
    source, target = tables
    zone = spark.conf.get("spark.sql.session.timeZone")
    try:
        spark.conf.set("spark.sql.session.timeZone", "America/New_York")
        if way == "format":
            frame = spark.read.format("lance").load(source)
            frame.write.format("lance").mode("append").save(target)
        else:
            frame = ls.scan(spark, source)
            ls.write(frame, target, mode="append")
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    for field in frame.schema:
        assert field.nullable == field.name.startswith("c"), field
    assert lance.dataset(target).schema == lance.dataset(source).schema
    assert lance.dataset(target).to_table() == lance.dataset(source).to_table()


def test_json_is_read_as_variant_and_written_back(spark, tmp_path):
    source, target = str(tmp_path / "a.lance"), str(tmp_path / "b.lance")
    texts = ['{"a":[1,null,{"b":"é"}]}', None, "7", '"text"', "[]"]
    lance.write_dataset(pa.table({"j": pa.array(texts, pa.json_())}), source)
    frame = spark.read.format("lance").schema("j variant").load(source)
    found = frame.selectExpr("variant_get(j, '$.a[2].b', 'string')").collect()
    assert [row[0] for row in found] == ["é", None, None, None, None]
    frame.write.format("lance").mode("append").save(target)
    assert lance.dataset(target).schema.field("j").type == pa.json_()
    assert lance.dataset(target).to_table().column("j").to_pylist() == texts


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/New_York"])
def test_instants_are_the_same_in_every_zone_of_a_session(spark, tmp_path, zone):
    uri = str(tmp_path / "t.lance")
    before = spark.conf.get("spark.sql.session.timeZone")
    try:
        spark.conf.set("spark.sql.session.timeZone", zone)
        text = "TIMESTAMP '2024-07-01 00:30:00 UTC' as t, TIMESTAMP_NTZ '2024-07-01 00:30:00' as n"
        spark.sql(f"SELECT {text}").write.format("lance").mode("append").save(uri)
        row = lance.dataset(uri).to_table().to_pylist()[0]
        assert row["t"] == dt.datetime(2024, 7, 1, 0, 30, tzinfo=dt.UTC)
        assert row["n"] == dt.datetime(2024, 7, 1, 0, 30)  # noqa: DTZ001 - it has no zone
        frame = spark.read.format("lance").option("filter", "t = TIMESTAMP '2024-07-01 00:30:00'")
        again = frame.load(uri).selectExpr("unix_seconds(t)", "cast(n as string)").collect()
        assert again == [(1719793800, "2024-07-01 00:30:00")]
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def test_types_of_spark_come_back_as_they_were(spark, tmp_path):
    uri = str(tmp_path / "t.lance")
    frame = spark.sql(
        """SELECT INTERVAL '7' HOUR AS h, INTERVAL '1 02' DAY TO HOUR AS d,
                  parse_json('{"a": [1, "x"]}') AS v,
                  array(CAST(X'0102' AS VARIANT), NULL) AS vs,
                  named_struct('v', CAST(1.5D AS VARIANT)) AS s,
                  map('k', CAST(DATE '2024-02-29' AS VARIANT)) AS m"""
    )
    frame.write.format("lance").mode("append").save(uri)
    ls.write(frame, uri, mode="append")
    ls.sql(spark, f"INSERT INTO lance.`{uri}` SELECT * FROM lance.`{uri}` VERSION AS OF 1")
    for way in (
        spark.read.format("lance").load(uri),
        ls.sql(spark, f"SELECT * FROM lance.`{uri}`"),
    ):
        assert way.dtypes == frame.dtypes
        shown = way.selectExpr(
            "h", "d", "to_json(v)", "schema_of_variant(vs[0])", "vs[1]", "schema_of_variant(s.v)",
            "schema_of_variant(m['k'])",
        )  # fmt: skip
        expected = (
            dt.timedelta(hours=7), dt.timedelta(hours=26), '{"a":[1,"x"]}', "BINARY", None,
            "DOUBLE", "DATE",
        )  # fmt: skip
        assert [tuple(row) for row in shown.collect()] == [expected] * 3


def test_vectors_of_machine_learning_come_back(spark, tmp_path):
    uri = str(tmp_path / "t.lance")
    vectors = [Vectors.dense([1.0, 2.0]), Vectors.sparse(3, [1], [5.0]), None]
    schema = StructType().add("id", IntegerType()).add("v", VectorUDT())
    frame = spark.createDataFrame(list(enumerate(vectors)), schema)
    ls.write(frame, uri)
    for way in (spark.read.format("lance").load(uri), ls.scan(spark, uri)):
        assert [row.v for row in way.orderBy("id").collect()] == vectors


def test_intervals_of_months_are_rejected_with_the_type(spark, tmp_path):
    frame = spark.sql("SELECT INTERVAL '7' MONTH AS m")
    with pytest.raises(UnsupportedError, match="interval month"):
        ls.write(frame, str(tmp_path / "t.lance"))
