"""Types of tables and of Spark, in both directions, and the values between them.

Spark checks each batch against its own idea of the schema, so ours is compared with the function
that Spark uses for it.
"""

import datetime as dt
import decimal

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from pyspark.ml.linalg import MatrixUDT, VectorUDT
from pyspark.sql import types as spark

from lancelet.errors import InvalidInputError, SchemaMismatchError, UnsupportedError
from lancelet.format.schema import Schema
from lancelet.spark.convert import convert_batch, convert_column, fit_lengths
from lancelet.spark.testing import exact_schema
from lancelet.spark.types import (
    DIMENSION_KEY,
    LENGTH_KEY,
    TYPE_KEY,
    arrow_schema,
    has_collation,
    spark_schema,
    spark_type,
    stored_field,
)

UTC = dt.UTC
DAY = dt.date(2024, 2, 29)
NOW = dt.datetime(2024, 2, 29, 12, 30, 15, 123456)  # noqa: DTZ001 - Spark has such
D = decimal.Decimal

STRUCT = pa.struct([("x", pa.uint16()), ("y", pa.string())])
WITHIN = pa.struct([("v", pa.list_(pa.float32(), 2))])

# The type in a table, the type of Spark, a value.
MAPPED = [
    (pa.bool_(), "boolean", True),
    (pa.int8(), "tinyint", -3),
    (pa.int16(), "smallint", -300),
    (pa.int32(), "int", -(2**31)),
    (pa.int64(), "bigint", 2**63 - 1),
    (pa.uint8(), "smallint", 255),
    (pa.uint16(), "int", 65535),
    (pa.uint32(), "bigint", 2**32 - 1),
    (pa.uint64(), "decimal(20,0)", 2**64 - 1),
    (pa.float16(), "float", 1.5),
    (pa.float32(), "float", 1.5),
    (pa.float64(), "double", 0.1),
    (pa.string(), "string", "é"),
    (pa.large_string(), "string", "é"),
    (pa.binary(), "binary", b"\x00\xff"),
    (pa.large_binary(), "binary", b"\x00\xff"),
    (pa.binary(3), "binary", b"abc"),
    (pa.date32(), "date", DAY),
    (pa.date64(), "date", DAY),
    (pa.timestamp("us"), "timestamp_ntz", NOW),
    (pa.timestamp("s"), "timestamp_ntz", NOW.replace(microsecond=0)),
    (pa.timestamp("ns"), "timestamp_ntz", NOW),
    (pa.timestamp("us", "UTC"), "timestamp", NOW.replace(tzinfo=UTC)),
    (pa.timestamp("ms", "Asia/Tokyo"), "timestamp", NOW.replace(microsecond=0, tzinfo=UTC)),
    (pa.time32("ms"), "time(6)", dt.time(1, 2, 3)),
    (pa.time64("us"), "time(6)", dt.time(1, 2, 3, 4)),
    (pa.duration("ms"), "interval day to second", dt.timedelta(days=1, seconds=3)),
    (pa.decimal128(10, 2), "decimal(10,2)", D("-12345678.90")),
    (pa.decimal256(38, 4), "decimal(38,4)", D("1.2345")),
    (pa.dictionary(pa.int8(), pa.string()), "string", "a"),
    (pa.list_(pa.int16()), "array<smallint>", [1, None, 3]),
    (pa.large_list(pa.uint8()), "array<smallint>", [1, 2]),
    (pa.list_(pa.float16(), 2), "array<float>", [1.0, 2.0]),
    (STRUCT, "struct<x:int,y:string>", {"x": 1, "y": None}),
    (pa.map_(pa.string(), pa.float16()), "map<string,float>", [("k", 1.0), ("l", None)]),
    (pa.list_(WITHIN), "array<struct<v:array<float>>>", [{"v": [1.0, 2.0]}, None]),
    (pa.json_(), "string", '{"a":1}'),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "name", "value"), MAPPED, ids=[str(row[0]) for row in MAPPED])
def test_values_of_every_type_pass_to_spark_and_back(kind, name, value):
    table = pa.schema([pa.field("c", kind)])
    shown = spark_schema(table)
    assert shown["c"].dataType.simpleString() == name
    batch = pa.record_batch([pa.array([None, value, value, None], kind)], schema=table)
    there = convert_batch(batch.slice(1), arrow_schema(shown))
    assert there.schema.equals(exact_schema(shown))
    there.validate(full=True)
    back = convert_batch(there, table)
    back.validate(full=True)
    assert back.column(0).to_pylist() == batch.slice(1).column(0).to_pylist()


@pytest.mark.parametrize("kind", [pa.decimal256(76, 0), pa.month_day_nano_interval()])
def test_a_type_that_spark_lacks_is_named_with_its_column(kind):
    with pytest.raises(UnsupportedError) as caught:
        spark_schema(pa.schema([("s", pa.struct([("x", kind)]))]))
    assert caught.value.facts["type"] == str(kind)


def test_nullability_is_exact_at_every_depth():
    inner = pa.struct([pa.field("x", pa.int32(), nullable=False), pa.field("y", pa.int32())])
    items = pa.list_(pa.field("item", inner, nullable=False))
    table = pa.schema([pa.field("c", items, nullable=False)])
    shown = spark_schema(table)
    assert not shown["c"].nullable
    assert not shown["c"].dataType.containsNull
    assert not shown["c"].dataType.elementType["x"].nullable
    batch = pa.record_batch([pa.array([[{"x": 1, "y": None}], []], items)], schema=table)
    assert convert_batch(batch, arrow_schema(shown)).schema.equals(exact_schema(shown))


def test_a_vector_type_has_its_dimension():
    shown = spark_schema(pa.schema([("v", pa.list_(pa.float32(), 7))]))
    assert shown["v"].metadata == {DIMENSION_KEY: 7}


@pytest.mark.parametrize(
    ("values", "target"),
    [
        (pa.array([256], pa.int16()), pa.uint8()),
        (pa.array([-1], pa.int64()), pa.uint32()),
        (pa.array([1], pa.timestamp("ns")), pa.timestamp("us")),
        (pa.array([[1.0], [1.0, 2.0]]), pa.list_(pa.float64(), 2)),
        (pa.array([b"ab"]), pa.binary(3)),
    ],
)
def test_a_value_that_does_not_fit_is_an_error_with_its_column(values, target):
    with pytest.raises(InvalidInputError) as caught:
        convert_column(values, pa.field("c", target))
    assert caught.value.facts["column"] == "c"


@pytest.mark.parametrize(
    ("value", "stored", "target", "expected"),
    [
        (7, pa.int32(), pa.decimal128(9, 2), decimal.Decimal("7.00")),
        (2**63 - 1, pa.int64(), pa.decimal128(38, 18), decimal.Decimal(2**63 - 1)),
        (2**53 + 1, pa.int64(), pa.float64(), 2.0**53),
        (2**24 + 1, pa.int32(), pa.float32(), 2.0**24),
        (-1.75, pa.float64(), pa.int32(), -1),
        (
            decimal.Decimal("1.235"),
            pa.decimal128(9, 3),
            pa.decimal128(9, 2),
            decimal.Decimal("1.24"),
        ),
    ],
)
def test_numbers_are_converted_as_spark_stores_them(value, stored, target, expected):
    made = convert_column(pa.array([value, None], stored), pa.field("c", target))
    assert made.to_pylist() == [expected, None]


def test_a_null_where_none_may_be_is_an_error():
    with pytest.raises(SchemaMismatchError):
        convert_column(pa.array([1, None]), pa.field("c", pa.int64(), nullable=False))


def test_only_names_and_nullability_change_without_a_copy():
    array = pa.array([[1, 2], None, [3]], pa.list_(pa.field("item", pa.int64())))
    made = convert_column(array, pa.field("c", pa.list_(pa.field("element", pa.int64()))))
    assert made.values.buffers()[1].address == array.values.buffers()[1].address


KINDS = st.recursive(
    st.sampled_from([pa.int8(), pa.uint32(), pa.float32(), pa.string(), pa.large_binary()]),
    lambda inner: st.one_of(
        inner.map(pa.list_),
        inner.map(pa.large_list),
        inner.map(lambda kind: pa.list_(kind, 2)),
        inner.map(lambda kind: pa.map_(pa.string(), kind)),
        st.tuples(inner, inner).map(lambda kinds: pa.struct([("x", kinds[0]), ("y", kinds[1])])),
    ),
    max_leaves=4,
)


def values_of(kind):
    if pa.types.is_fixed_size_list(kind):
        made = st.lists(values_of(kind.value_type), min_size=2, max_size=2)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        made = st.lists(values_of(kind.value_type), max_size=3)
    elif pa.types.is_map(kind):
        made = st.dictionaries(st.text(max_size=2), values_of(kind.item_type), max_size=2).map(
            lambda entries: list(entries.items())
        )
    elif pa.types.is_struct(kind):
        made = st.fixed_dictionaries({field.name: values_of(field.type) for field in kind})
    elif pa.types.is_string(kind):
        made = st.text(max_size=3)
    elif pa.types.is_large_binary(kind):
        made = st.binary(max_size=3)
    elif pa.types.is_float32(kind):
        made = st.integers(-8, 8).map(float)
    else:
        made = st.integers(0, 100)
    return st.none() | made


@given(st.data(), KINDS)
def test_sliced_nested_values_pass_to_spark_and_back(data, kind):
    rows = data.draw(st.lists(values_of(kind), max_size=6))
    start = data.draw(st.integers(0, len(rows)))
    table = pa.schema([pa.field("c", kind)])
    batch = pa.record_batch([pa.array(rows, kind)], schema=table).slice(start)
    shown = spark_schema(table)
    there = convert_batch(batch, arrow_schema(shown))
    there.validate(full=True)
    assert there.schema.equals(exact_schema(shown))
    assert there.column(0).to_pylist() == rows[start:]
    back = convert_batch(there, table)
    back.validate(full=True)
    assert back.column(0).to_pylist() == rows[start:]


def test_every_plain_type_of_spark_has_the_arrow_type_that_spark_uses():
    kinds = [
        spark.BooleanType(), spark.ByteType(), spark.ShortType(), spark.IntegerType(),
        spark.LongType(), spark.FloatType(), spark.DoubleType(), spark.StringType(),
        spark.BinaryType(), spark.DateType(), spark.TimestampType(), spark.TimestampNTZType(),
        spark.DayTimeIntervalType(), spark.DecimalType(38, 18), spark.NullType(),
        spark.TimeType(), spark.VariantType(), spark.ArrayType(spark.IntegerType(), False),
        spark.MapType(spark.StringType(), spark.DoubleType(), False),
    ]  # fmt: skip
    schema = spark.StructType(
        [spark.StructField(f"c{place}", kind) for place, kind in enumerate(kinds)]
    )
    assert arrow_schema(schema).equals(exact_schema(schema))


GEOMETRIES = [
    (getattr(spark, name)(4326), "st_asbinary")
    for name in ("GeometryType", "GeographyType")
    if hasattr(spark, name)
]


@pytest.mark.parametrize(
    ("kind", "instead"),
    [
        (spark.YearMonthIntervalType(), "extract"),
        (spark.CalendarIntervalType(), "make_dt_interval"),
        *GEOMETRIES,
    ],
)
def test_types_that_are_not_stored_are_rejected_with_what_to_store(kind, instead):
    for each in (kind, spark.ArrayType(kind)):
        with pytest.raises(UnsupportedError, match=instead) as raised:
            arrow_schema(spark.StructType([spark.StructField("c", each)]))
        assert raised.value.facts["type"] == kind.simpleString()


def test_half_precision_vectors_keep_their_bits():
    values = np.arange(12, dtype=np.float16)
    array = pa.FixedSizeListArray.from_arrays(pa.array(values), 4)
    shown = spark_type(array.type)
    there = convert_column(array, arrow_schema(spark.StructType().add("c", shown)).field(0))
    back = convert_column(there, pa.field("c", array.type))
    assert np.array_equal(back.values.to_numpy(), values)


COLLATED = [
    "string collate UTF8_LCASE",
    "array<string collate UNICODE_CI>",
    "map<string collate UTF8_LCASE,string collate UNICODE>",
    "struct<a:string collate UTF8_LCASE,b:array<string collate UNICODE>,c:string>",
]


@pytest.mark.parametrize("name", COLLATED)
def test_collations_are_stored_with_the_field_that_has_them(name):
    def collated(text):
        return spark.StringType(text) if text else spark.StringType()

    types = {
        COLLATED[0]: collated("UTF8_LCASE"),
        COLLATED[1]: spark.ArrayType(collated("UNICODE_CI")),
        COLLATED[2]: spark.MapType(collated("UTF8_LCASE"), collated("UNICODE")),
        COLLATED[3]: spark.StructType()
        .add("a", collated("UTF8_LCASE"))
        .add("b", spark.ArrayType(collated("UNICODE")))
        .add("c", collated("")),
    }
    field = spark.StructField("x", types[name])
    made = Schema.from_arrow(pa.schema([stored_field(field)])).to_arrow()
    assert has_collation(made[0])
    assert spark_schema(made)["x"].dataType.simpleString() == name
    plain = arrow_schema(spark.StructType([field]))
    assert not has_collation(plain[0])
    assert plain[0].type == made[0].type


def test_strings_that_are_compared_by_their_bytes_have_no_collation():
    field = stored_field(spark.StructField("x", spark.StringType("UTF8_BINARY")))
    assert not field.metadata
    assert not has_collation(field)


KEPT = [
    (spark.DayTimeIntervalType(1), "interval hour"),
    (spark.DayTimeIntervalType(0, 2), "interval day to minute"),
    (spark.TimeType(3), "time(3)"),
    (spark.VariantType(), "variant"),
    (spark.ArrayType(spark.VariantType()), "array<variant>"),
    (spark.MapType(spark.StringType(), spark.VariantType()), "map<string,variant>"),
    (spark.StructType().add("v", spark.VariantType()), "struct<v:variant>"),
    (VectorUDT(), "vector"),
    (spark.ArrayType(MatrixUDT()), "array<matrix>"),
]


@pytest.mark.parametrize(("kind", "name"), KEPT, ids=[row[1] for row in KEPT])
def test_types_that_arrow_does_not_imply_are_stored_with_the_field_that_has_them(kind, name):
    field = spark.StructField("x", kind)
    stored = Schema.from_arrow(pa.schema([stored_field(field)])).to_arrow()
    shown = spark_schema(stored)["x"]
    assert shown.dataType == kind
    assert shown.dataType.simpleString() == name
    plain = arrow_schema(spark.StructType([field]))
    assert plain.equals(exact_schema(spark.StructType([field])))


def test_classes_named_by_a_table_are_not_imported():
    kind = pa.struct([("x", pa.float64())])
    field = pa.field("x", kind, metadata={TYPE_KEY: "tests.unit.spark.test_types.Evil"})
    assert spark_schema(pa.schema([field]))["x"].dataType.simpleString() == "struct<x:double>"


def test_texts_have_the_length_of_their_column():
    schema = pa.schema(
        [
            pa.field("c", pa.string(), metadata={TYPE_KEY: "char(3)"}),
            pa.field("v", pa.string(), metadata={TYPE_KEY: "varchar(3)"}),
            pa.field("s", pa.string()),
        ]
    )
    assert spark_schema(schema)["c"].metadata == {LENGTH_KEY: "char(3)"}
    texts = ["a", "éüö", "abc  ", None, ""]
    made = fit_lengths(pa.record_batch([pa.array(texts)] * 3, schema=schema), schema)
    assert made["c"].to_pylist() == ["a  ", "éüö", "abc", None, "   "]
    assert made["v"].to_pylist() == ["a", "éüö", "abc", None, ""]
    assert made["s"].to_pylist() == texts
    with pytest.raises(InvalidInputError, match="longer than its column") as caught:
        fit_lengths(pa.record_batch([pa.array(["abcd"])] * 3, schema=schema), schema)
    assert caught.value.facts == {"column": "c", "characters": 4, "allowed": 3}
