# a table reads best with a case on each line
# ruff: noqa: E501  # a table reads best with a case on each line

"""How constants, names and types meet: the coercion table of the guide, tested."""

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lancelet.errors import ExpressionError
from lancelet.expr.bind import bind_filter, bind_value
from lancelet.expr.compile import compile_filter, compile_value
from lancelet.expr.evaluate import evaluate
from lancelet.expr.parse import parse, parse_with_source


def bound_text(data_type, text):
    return str(bind_filter(parse(text), pa.schema([("x", data_type)])))


TABLE = [
    # integers
    (pa.int32(), "x > 1.5", "x > 1"),
    (pa.int32(), "x >= 1.5", "x > 1"),
    (pa.int32(), "x < 1.5", "x <= 1"),
    (pa.int32(), "x = 1.5", "x <> x"),
    (pa.int32(), "x <> 1.5", "x = x"),
    (pa.int32(), "x = 1.0", "x = 1"),
    (pa.int32(), "1.5 < x", "x > 1"),
    (pa.int32(), "x > -1.5", "x > -2"),
    (pa.int32(), "x is distinct from 1.5", "TRUE"),
    (pa.int32(), "x = '1'", "x = 1"),
    (pa.int32(), "x > 3000000000", "x > 2147483647"),
    (pa.int8(), "x in (1, 2.5, 300)", "x IN (1)"),
    (pa.int8(), "x in (2.5)", "x <> x"),
    (pa.uint8(), "x > -1", "x >= 0"),
    (pa.uint8(), "x < -1", "x < 0"),
    (pa.uint8(), "x < 256", "x <= 255"),
    (pa.uint64(), "x = 18446744073709551615", "x = 18446744073709551615"),
    (pa.int64(), "x < 1e400", "x <= 9223372036854775807"),
    (pa.int64(), "x < 'NaN'", None),
    # floats
    (pa.float64(), "x = 0.1", "x = 0.1e0"),
    (pa.float32(), "x = 1.1", "x = 1.1"),
    (pa.float64(), "x = 'NaN'", "x = arrow_cast('nan', 'Float64')"),
    # decimals
    (pa.decimal128(10, 2), "x > 1.5", "x > 1.50"),
    (pa.decimal128(10, 2), "x > 1.555", "x > 1.55"),
    (pa.decimal128(10, 2), "x = 1e-1", "x = 0.10"),
    (pa.decimal128(10, 2), "x = '3'", "x = 3.00"),
    (pa.decimal128(4, 2), "x < 1000", "x <= 99.99"),
    (pa.decimal256(50, 3), "x = 7", "x = 7.000"),
    # truth and text
    (pa.bool_(), "x = 'true'", "x = TRUE"),
    (pa.bool_(), "x = 1", None),
    (pa.string(), "x = 1", None),
    (pa.large_string(), "x = 'a'", "x = 'a'"),
    (pa.string_view(), "x = 'a'", "x = 'a'"),
    (pa.dictionary(pa.int8(), pa.string()), "x = 'a'", "x = 'a'"),
    (pa.binary(), "x = 'a'", "x = X'61'"),
    (pa.binary(2), "x = X'6161'", "x = X'6161'"),
    (pa.binary(2), "x = X'61'", "x = X'61'"),
    (pa.string(), "x = X'61'", None),
    # dates and times
    (pa.date32(), "x < '2020-01-02'", "x < DATE '2020-01-02'"),
    (pa.date32(), "x > timestamp '2020-01-02 12:00:00'", "x > DATE '2020-01-02'"),
    (pa.date64(), "x = date '2020-01-02'", "x = DATE '2020-01-02'"),
    (pa.date32(), "x = 5", None),
    (pa.timestamp("s"), "x = date '2020-01-02'", "x = TIMESTAMP(0) '2020-01-02 00:00:00'"),
    (pa.timestamp("ms"), "x > '2020-01-02 00:00:00.0001'", "x > TIMESTAMP(3) '2020-01-02 00:00:00'"),
    (pa.timestamp("us"), "x = 5", None),
    (pa.timestamp("us", "UTC"), "x = '2020-01-02 01:00:00+01:00'", "x = TIMESTAMP '2020-01-02 00:00:00Z'"),
    (pa.timestamp("us", "Europe/Berlin"), "x = '2020-01-02 01:00:00'", "x = TIMESTAMP '2020-01-02 00:00:00Z'"),
    (pa.timestamp("us", "+05:30"), "x = '2020-01-02 05:30:00'", "x = TIMESTAMP '2020-01-02 00:00:00Z'"),
    (pa.timestamp("us", "UTC"), "x = '2020-01-02 01:00:00 Europe/Berlin'", "x = TIMESTAMP '2020-01-02 00:00:00Z'"),
    (pa.timestamp("us"), "x = '2020-01-02 01:00:00+0100'", "x = TIMESTAMP '2020-01-02 00:00:00'"),
    (pa.timestamp("us"), "x = '2020-01-02 01:00:00 Nowhere'", None),
    (pa.time32("s"), "x > time '12:00:00.5'", "x > TIME '12:00:00'"),
    (pa.time64("ns"), "x = '12:30'", "x = TIME '12:30:00'"),
    (pa.duration("ms"), "x = '1.5 seconds'", "x = INTERVAL '1.500000000 seconds'"),
    (pa.duration("s"), "x > interval '1500 milliseconds'", "x > INTERVAL '1.000000000 seconds'"),
    (pa.duration("s"), "x > interval '1 month'", None),
    (pa.duration("s"), "x > 3", None),
    # null and nested
    (pa.int32(), "x = null", "x = NULL"),
    (pa.list_(pa.int8()), "x = [1, 2]", "x = [1, 2]"),
    (pa.list_(pa.int8()), "x = [1, 300]", None),
]  # fmt: skip


@pytest.mark.parametrize(("data_type", "text", "bound"), TABLE, ids=str)
def test_a_constant_takes_the_type_of_its_column(data_type, text, bound):
    if bound is None:
        with pytest.raises(ExpressionError):
            bound_text(data_type, text)
    else:
        assert bound_text(data_type, text) == bound


def test_decimals_in_a_list_become_the_nearest_doubles():
    texts = [f"{tenths / 10}" for tenths in range(100)] + ["0.1234567890123456789"]
    batch = pa.record_batch({"x": pa.array([float(text) for text in texts])})
    found = evaluate(compile_filter(f"x in ({', '.join(texts)})", batch.schema), batch)
    assert found.to_pylist() == [True] * len(texts)


# --- time, by unit, zone and front end -------------------------------------------------------

NOON = dt.datetime(2020, 6, 1, 12, tzinfo=dt.UTC)
ZONES = {None: "12:00:00", "UTC": "12:00:00", "Europe/Berlin": "14:00:00", "+05:30": "17:30:00"}


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("front_end", ["quoted", "timestamp", "zoned", "pyarrow", "pyarrow ns"])
def test_timestamps_meet_in_every_unit_zone_and_front_end(unit, zone, front_end):
    stored = pa.timestamp(unit, zone)
    ticks = pa.array([NOON.replace(tzinfo=None)], pa.timestamp("us")).cast(pa.timestamp(unit))
    values = pa.array([(v := ticks.cast(pa.int64())[0].as_py()) - 1, v, v + 1]).cast(stored)
    batch = pa.record_batch({"x": values})
    shown = f"2020-06-01 {ZONES[zone]}"
    naive = pa.scalar(dt.datetime.fromisoformat(shown), pa.timestamp("us"))
    filters = {
        "quoted": f"x >= '{shown}'",
        "timestamp": f"x >= timestamp '{shown}'",
        "zoned": "x >= timestamp '2020-06-01 13:00:00+01:00'",
        "pyarrow": pc.field("x") >= (naive if zone is None else pa.scalar(NOON)),
        "pyarrow ns": pc.field("x")
        >= (naive.cast(pa.timestamp("ns")) if zone is None else pa.scalar(NOON).cast(pa.timestamp("ns", "UTC"))),
    }  # fmt: skip
    found = evaluate(compile_filter(filters[front_end], batch.schema), batch)
    assert found.to_pylist() == [False, True, True]


def test_a_clock_time_that_occurs_twice_means_the_first():
    batch = pa.record_batch({"x": pa.array([0, 1], pa.timestamp("s", "Europe/Berlin"))})
    text = "x < '2020-10-25 02:30:00'"
    assert str(compile_filter(text, batch.schema)) == "x < TIMESTAMP(0) '2020-10-25 00:30:00Z'"


# --- columns with columns --------------------------------------------------------------------

MEETINGS = [
    (pa.array([1, 2**63 - 1]), pa.array([1.0, 2.0**63]), [True, True]),
    (pa.array([2**64 - 1, 1], pa.uint64()), pa.array([-1, 1]), [False, True]),
    (pa.array([Decimal("1.10"), None]), pa.array([Decimal("1.1"), Decimal(1)]), [True, None]),
    (pa.array([Decimal("1.00")]), pa.array([1], pa.uint64()), [True]),
    (pa.array(["a"]), pa.array(["a"], pa.large_string()), [True]),
    (pa.array(["a"], pa.string_view()), pa.array(["a"]).dictionary_encode(), [True]),
    (pa.array(["a"]), pa.array([b"a"]), [True]),
    (pa.array([b"ab"], pa.binary(2)), pa.array([b"ab"]), [True]),
    (pa.array([1.5], pa.float16()), pa.array([1.5]), [True]),
    (pa.array([dt.date(2020, 1, 1)]), pa.array([dt.datetime(2020, 1, 1)]), [True]),  # noqa: DTZ001
    (pa.array([1], pa.timestamp("s")), pa.array([10**9], pa.timestamp("ns")), [True]),
    (pa.array([3600], pa.timestamp("s")), pa.array([0], pa.timestamp("s", "Europe/Berlin")), [True]),
    (pa.array([1], pa.time32("s")), pa.array([10**6], pa.time64("us")), [True]),
    (pa.array([1], pa.duration("s")), pa.array([1000], pa.duration("ms")), [True]),
    (pa.array([[1, None]]), pa.array([[1, None]], pa.large_list(pa.int8())), [True]),
    (pa.array([{"a": [1]}, None]), pa.array([{"a": [2]}, {"a": [2]}]), [False, None]),
    (pa.nulls(1), pa.array([1]), [None]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("left", "right", "expected"), MEETINGS, ids=lambda value: str(getattr(value, "type", ""))
)
def test_columns_of_two_types_are_compared_by_value(left, right, expected):
    batch = pa.record_batch({"x": left, "y": right})
    for text in ("x = y", "y = x"):
        found = evaluate(bind_filter(parse(text), batch.schema), batch)
        assert found.to_pylist() == expected


@pytest.mark.parametrize("other", [pa.string(), pa.bool_(), pa.date32(), pa.list_(pa.int8())])
def test_columns_that_have_no_common_type_are_rejected(other):
    with pytest.raises(ExpressionError, match="cannot be compared"):
        bind_filter(parse("x = y"), pa.schema([("x", pa.int32()), ("y", other)]))


# --- names -----------------------------------------------------------------------------------

NAMED = pa.schema(
    [
        ("Name", pa.string()),
        ("a", pa.int8()),
        ("A", pa.int8()),
        ("a.b", pa.int8()),
        ("s", pa.struct([("X", pa.struct([("y z", pa.int8())]))])),
        ("m", pa.map_(pa.string(), pa.int64())),
        ("items", pa.list_(pa.struct([("price", pa.float64())]))),
    ]
)


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("NAME = 'x'", "Name = 'x'"),
        ("a = 1", "a = 1"),
        ("A = 1", "A = 1"),
        ("`a.b` = 1", "`a.b` = 1"),
        ("s.x.`y z` = 1", "s.X.`y z` = 1"),
        ("s['X']['y z'] = 1", "s.X.`y z` = 1"),
        ("m['k'] = 1", "m.k = 1"),
        ("items[1].price > 2", "array_element(items, 1).price > 2.0e0"),
    ],
)
def test_names_are_exact_first_and_in_any_case_second(text, bound):
    assert str(bind_filter(parse(text), NAMED)) == bound


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nmae = 'x'", "did you mean Name"),
        ("s.q = 1", "named q in s"),
        ("Name.x = 1", "has no field"),
        ("items.price > 1", "has no field"),
        ("lowr(name) = 'x'", "did you mean lower"),
        ("lower(a) = 'x'", "lower does not support int8"),
        ("lower() = 'x'", "takes 1 arguments, found 0"),
        ("name", "expected a truth value"),
        ("name and true", "expected a truth value"),
        ("a = 1 and name > 5", "Name is string"),
        ("date_part('year', a) = 1", "date_part does not support"),
        ("name + 1 = 2", "does not support string and int64"),
    ],
)
def test_binding_errors_show_their_position(text, message):
    expression, source = parse_with_source(text)
    with pytest.raises(ExpressionError, match=message) as raised:
        bind_filter(expression, NAMED, source=source)
    assert str(raised.value).endswith("^")


def test_two_columns_that_differ_in_case_are_not_guessed():
    schema = pa.schema([("ab", pa.int8()), ("Ab", pa.int8())])
    with pytest.raises(ExpressionError, match="matches ab, Ab"):
        bind_filter(parse("AB = 1"), schema)


# --- computed columns ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "data_type"),
    [
        ("x + 1", pa.int8()),
        ("(x + 1) * 2", pa.int64()),
        ("x * 1.5", pa.float64()),
        ("1.5", pa.float64()),
        ("d * 2", pa.decimal128(12, 2)),
        ("x", pa.int8()),
        ("dict", pa.dictionary(pa.int8(), pa.string())),
        ("upper(dict)", pa.string()),
        ("case when x > 1 then 1 else 2.5 end", pa.float64()),
        ("date '2020-01-01' + interval '1 day'", pa.date32()),
        ("date '2020-01-01' + interval '1 hour'", pa.timestamp("s")),
    ],
)
def test_a_computed_column_has_the_type_that_is_announced(text, data_type):
    columns = {
        "x": pa.array([1, 2], pa.int8()),
        "d": pa.array([Decimal("1.50"), None], pa.decimal128(10, 2)),
        "dict": pa.array(["a", None]).dictionary_encode().cast(pa.dictionary(pa.int8(), pa.string())),
    }  # fmt: skip
    batch = pa.record_batch(columns)
    bound = compile_value(text, batch.schema)
    assert bound.data_type == data_type
    assert evaluate(bound.expression, batch).type == data_type


def test_the_present_is_read_once():
    schema = pa.schema([("x", pa.timestamp("us"))])
    first = bind_value(parse("now()"), schema).expression
    assert abs(first.scalar.value / 1e6 - dt.datetime.now(dt.UTC).timestamp()) < 60
    assert "now" not in str(bind_filter(parse("x < now()"), schema))
