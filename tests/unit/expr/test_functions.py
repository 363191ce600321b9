# a table reads best with a case on each line
"""What functions give; those that the reference knows too are compared with it in `interop`."""

import datetime as dt
import re
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from lancelet.errors import CorruptDataError, ExpressionError
from lancelet.expr.compile import compile_value
from lancelet.expr.evaluate import evaluate
from lancelet.expr.functions.registry import ALL_FUNCTIONS, FUNCTIONS

BATCH = pa.record_batch(
    {
        "s": pa.array(["héllo", "a.b.c", "", None]),
        "e": pa.array(["é", "b", "", None]),
        "v": pa.array(["héllo", "a.b.c", "", None], pa.string_view()),
        "i": pa.array([7, -7, 0, None], pa.int32()),
        "f": pa.array([2.5, -2.5, -0.0, None]),
        "d": pa.array(
            [Decimal("7.25"), Decimal("-7.25"), Decimal("0.00"), None], pa.decimal128(5, 2)
        ),
        "l": pa.array([[3, 1, 2], [None], [], None], pa.list_(pa.int32())),
        "fixed": pa.array([[1, 2], [3, None], [5, 6], None], pa.list_(pa.int32(), 2)),
        "large": pa.array([["x"], ["y", "x"], [], None], pa.large_list(pa.string())),
        "ts": pa.array([1_000_001, -1, 0, None], pa.timestamp("us")),
        "zoned": pa.array([0, 7200, 86399, None], pa.timestamp("s", "Europe/Berlin")),
        "day": pa.array([dt.date(2024, 1, 31), dt.date(2023, 12, 31), dt.date(2024, 2, 29), None]),
        "t": pa.array([3_661_000_000, 0, 1, None], pa.time64("us")),
        "du": pa.array([1500, -1500, 0, None], pa.duration("ms")),
        "st": pa.array([{"x": [{"y": 1}]}, {"x": []}, {"x": None}, None]),
        "m": pa.array([[("k", 1)], [("j", 2)], [], None], pa.map_(pa.string(), pa.int64())),
        "js": pa.array(['{"a":[1,"x",{"b":2}]}', "[]", "5", None]),
        "z": pa.nulls(4),
    }
)

CASES = {
    # text
    "substr(s, 2)": ["éllo", ".b.c", "", None],
    "substr(s, 0, 2)": ["h", "a", "", None],
    "substr(s, -5, 2)": ["", "", "", None],
    "substr(v, 2, 2)": ["él", ".b", "", None],
    "strpos(s, 'l')": [3, 0, 0, None],
    "strpos(s, '')": [1, 1, 1, None],
    "position('é' in s)": [2, 0, 0, None],
    "lpad(s, 3, 'x')": ["hél", "a.b", "xxx", None],
    "rpad(s, 6)": ["héllo ", "a.b.c ", "      ", None],
    "split_part(s, '.', 2)": ["", "b", "", None],
    "split_part(s, '.', -1)": ["héllo", "c", "", None],
    "regexp_match(s, 'l(l)(o)?')": [["l", "o"], None, None, None],
    "regexp_match(s, '\\.')": [None, ["."], None, None],
    "regexp_replace(s, '\\.', '-', 'g')": ["héllo", "a-b-c", "", None],
    "replace(s, '', 'x')": ["héllo", "a.b.c", "", None],
    "concat(s, i)": ["héllo7", "a.b.c-7", "0", ""],
    "s || i": ["héllo7", "a.b.c-7", "0", None],
    "s || null": [None] * 4,
    "starts_with(s, null)": [None] * 4,
    "contains_tokens(s, 'c a')": [False, True, False, None],
    "length(z)": [None] * 4,
    # numbers
    "round(f)": [3.0, -3.0, -0.0, None],
    "round(d, 1)": [Decimal("7.30"), Decimal("-7.30"), Decimal(0), None],
    "trunc(d, 1)": [Decimal("7.20"), Decimal("-7.20"), Decimal(0), None],
    "floor(d)": [7, -8, 0, None],
    "ceil(f)": [3.0, -2.0, -0.0, None],
    "floor(i)": [7.0, -7.0, 0.0, None],
    "i / 2": [3, -3, 0, None],
    "i % 2": [1, -1, 0, None],
    "mod(i, -4)": [3, -3, 0, None],
    "f % 1": [0.5, -0.5, -0.0, None],
    "d % 2": [Decimal("1.25"), Decimal("-1.25"), Decimal(0), None],
    "d / 3": [Decimal("2.41666666"), Decimal("-2.41666666"), Decimal(0), None],
    "d * d": [Decimal("52.5625"), Decimal("52.5625"), Decimal(0), None],
    "d - 0.005": [Decimal("7.245"), Decimal("-7.255"), Decimal("-0.005"), None],
    "d + f": [9.75, -9.75, 0.0, None],
    "0.1 + 0.2": [0.3] * 4,
    "1 / 2": [0] * 4,
    "1.0 / 4": [0.25] * 4,
    "- i": [-7, 7, 0, None],
    "~i": [-8, 6, -1, None],
    "i & 3 | 8": [11, 9, 8, None],
    "i # 1": [6, -8, 1, None],
    "i << 1 >> 1": [7, -7, 0, None],
    "power(i, 2)": [49.0, 49.0, 0.0, None],
    "greatest(i, 1, null)": [7, 1, 1, 1],
    "least(i, f)": [2.5, -7.0, 0.0, None],
    "coalesce(z, i, 5)": [7, -7, 0, 5],
    "nullif(i, 7)": [None, -7, 0, None],
    "nvl2(i, 'y', 'n')": ["y", "y", "y", "n"],
    "if(i > 0, s, e)": ["héllo", "b", "", None],
    "case i when 7 then 'seven' when 0 then null else 'other' end": [
        "seven",
        "other",
        None,
        "other",
    ],
    # lists, structs and maps
    "array_length(fixed)": [2, 2, 2, None],
    "array_has(fixed, 3)": [False, True, False, None],
    "array_has(large, e)": [False, False, False, None],
    "array_has([1, 7], i)": [True, False, False, None],
    "array_has(l, null)": [None] * 4,
    "array_has_any(large, ['y', 'q'])": [False, True, False, None],
    "array_has_all(large, ['y', 'x', 'x'])": [False, True, False, None],
    "array_has_all(l, [])": [True, True, True, None],
    "array_element(l, -1)": [2, None, None, None],
    "l[i - 5]": [1, None, None, None],
    "array_position(l, 2)": [3, None, None, None],
    "array_min(l)": [1, None, None, None],
    "array_max(fixed)": [2, 3, 6, None],
    "array_to_string(l, '-')": ["3-1-2", "", "", None],
    "array_slice(l, 2, 3)": [[1, 2], [], [], None],
    "make_array(i, 1)": [[7, 1], [-7, 1], [0, 1], [None, 1]],
    "l = [3, 1, 2]": [True, False, False, None],
    "st.x[1].y": [1, None, None, None],
    "get_field(st, 'x')[1]['y']": [1, None, None, None],
    "m['k']": [1, None, None, None],
    # time
    "date_part('millisecond', ts)": [1000, 59999, 0, None],
    "date_part('microsecond', ts)": [1_000_001, 59_999_999, 0, None],
    "date_part('epoch', ts)": [1.000001, -0.000001, 0.0, None],
    "extract(hour from zoned)": [1, 3, 0, None],
    "extract(minute from t)": [1, 0, 0, None],
    "extract(dow from day)": [3, 0, 4, None],
    "extract(epoch from du)": [1.5, -1.5, 0.0, None],
    "year(day)": [2024, 2023, 2024, None],
    "date_trunc('day', zoned)::string": [
        "1970-01-01T00:00:00+01:00",
        "1970-01-01T00:00:00+01:00",
        "1970-01-02T00:00:00+01:00",
        None,
    ],
    "day + interval '1 month'": [
        dt.date(2024, 2, 29),
        dt.date(2024, 1, 31),
        dt.date(2024, 3, 29),
        None,
    ],
    "day - interval '1 year 1 day'": [
        dt.date(2023, 1, 30),
        dt.date(2022, 12, 30),
        dt.date(2023, 2, 27),
        None,
    ],
    "interval '1 day' + day = day + interval '24 hours'": [True, True, True, None],
    "(ts + interval '500 milliseconds')::string": [
        "1970-01-01T00:00:01.500001",
        "1970-01-01T00:00:00.499999",
        "1970-01-01T00:00:00.500",
        None,
    ],
    "(zoned + interval '1 month')::string": [
        "1970-02-01T01:00:00+01:00",
        "1970-02-01T03:00:00+01:00",
        "1970-02-02T00:59:59+01:00",
        None,
    ],
    "ts - ts = '0 seconds'": [True, True, True, None],
    "day - date '2024-01-01'": [30, -1, 59, None],
    "ts + du = '1970-01-01 00:00:02.500001'": [True, False, False, None],
    "du * 2 = interval '3 seconds'": [True, False, False, None],
    "t + interval '1.5 seconds' = time '01:01:02.5'": [True, False, False, None],
    "to_date('2024-02-29') = day": [False, False, True, None],
    "to_timestamp(i)::string": [
        "1970-01-01T00:00:07",
        "1969-12-31T23:59:53",
        "1970-01-01T00:00:00",
        None,
    ],
    "to_char(day, '%d.%m.%Y')": ["31.01.2024", "31.12.2023", "29.02.2024", None],
    # casts
    "cast(0.3 as double) + i * 0": [0.3, 0.3, 0.3, None],
    "cast(d as double)": [7.25, -7.25, 0.0, None],
    "cast(cast(i as decimal(10, 3)) / 10 as double)": [0.7, -0.7, 0.0, None],
    "cast(f as int)": [2, -2, 0, None],
    "cast(d as decimal(4, 1))": [Decimal("7.3"), Decimal("-7.3"), Decimal("0.0"), None],
    "cast(i as decimal(3, 1))": [7, -7, 0, None],
    "cast(1e20 as string)": ["1e+20"] * 4,
    "cast(f as string)": ["2.5", "-2.5", "-0.0", None],
    "try_cast(s as int)": [None] * 4,
    "try_cast(concat('1', e) as int)": [None, None, 1, 1],
    "cast(zoned as date)": [dt.date(1970, 1, 1), dt.date(1970, 1, 1), dt.date(1970, 1, 2), None],
    "cast(zoned as timestamp)::string": [
        "1970-01-01T00:00:00",
        "1970-01-01T02:00:00",
        "1970-01-01T23:59:59",
        None,
    ],
    "cast(zoned as time)::string": ["01:00:00", "03:00:00", "00:59:59", None],
    "cast(ts as timestamp(0))::string": [
        "1970-01-01T00:00:01",
        "1969-12-31T23:59:59",
        "1970-01-01T00:00:00",
        None,
    ],
    "arrow_cast(ts, 'Timestamp(Microsecond, Some(\"Europe/Berlin\"))')::string": [
        "1970-01-01T00:00:01.000001+01:00",
        "1969-12-31T23:59:59.999999+01:00",
        "1970-01-01T00:00:00+01:00",
        None,
    ],
    "cast(z as date)": [None] * 4,
    # JSON
    "json_extract(js, '$.a[last].b')": ["2", None, None, None],
    "json_extract(js, '$.a[0 to 1]')": ['[1,"x"]', None, None, None],
    "json_extract(js, '$.a[0, last]')": ['[1,{"b":2}]', None, None, None],
    "json_extract(js, '$[\"a\"][1]')": ['"x"', None, None, None],
    "json_get_int(json_get(js, 'a'), '0')": [1, None, None, None],
    "json_array_length(js, '$')": [0, 0, 0, None],
}


@pytest.mark.parametrize(("text", "expected"), CASES.items())
def test_a_function_gives(text, expected):
    bound = compile_value(text, BATCH.schema)
    found = evaluate(bound.expression, BATCH)
    assert found.type == bound.data_type
    assert found.to_pylist() == expected


@pytest.mark.parametrize("text", CASES)
def test_a_function_of_no_rows_gives_its_type(text):
    bound = compile_value(text, BATCH.schema)
    found = evaluate(bound.expression, BATCH.slice(0, 0))
    assert (found.type, len(found)) == (bound.data_type, 0)


@pytest.mark.parametrize("text", CASES)
def test_a_function_of_a_slice_gives_the_slice(text):
    bound = compile_value(text, BATCH.schema)
    assert evaluate(bound.expression, BATCH.slice(1, 2)).to_pylist() == CASES[text][1:3]


FAILURES = {
    "i / 0": "divide by zero",
    "i % 0": "divide by zero",
    "cast(s as int)": "cannot compute",
    "cast(f / 0 as int)": "cannot compute",
    "cast(i * 1000 as tinyint)": "cannot compute",
    "cast(i as tinyint unsigned)": "cannot compute",
    "cast(du as string)": "durations cannot be cast to text",
    "i * 9223372036854775807": "overflow",
    "regexp_like(s, '(')": "cannot compute",
    "regexp_like(s, 'a', 'q')": "unknown regular expression flags",
    "json_get_int(js, e)": "must be a constant",
    "json_extract(js, '$.')": "is not a JSON path",
    "json_extract(js, '$[a]')": "is not an index",
    "json_extract(js, '$[0 to 1 to 2]')": "is not a range",
    "json_extract(s, '$')": "not a JSON document",
    "json_get_int(js, 'a')": "is not a number",
    "json_get_bool(json_get(js, 'a'), '0')": "is not a boolean",
    "json_get_string(js, 'a')": "is not a string",
    "date_part('foo', ts)": "unknown date part",
    "date_part('year', t)": "has no part 'year'",
    "date_trunc('foo', ts)": "unknown truncation unit",
    "substr(s, 1, -1)": "cannot be negative",
    "split_part(s, '.', 0)": "must be at least 1",
    "array_slice(l, 1, 2, 0)": "stride of a slice must not be 0",
}


@pytest.mark.parametrize(("text", "message"), FAILURES.items())
def test_failed_computations_are_expression_errors(text, message):
    with pytest.raises(ExpressionError, match=message):
        evaluate(compile_value(text, BATCH.schema).expression, BATCH)


@pytest.mark.parametrize(
    "text",
    ["date_part('foo', ts)", "cast(l as int)", "cast(d as date)", "st > st",
     "interval '1 day' = interval '1 day'", "st | 1"],
)  # fmt: skip
def test_invalid_expressions_are_rejected_before_any_read(text):
    with pytest.raises(ExpressionError):
        compile_value(text, BATCH.schema)


def test_damaged_jsonb_is_reported():
    batch = pa.record_batch({"js": pa.array([b"\x80\x00\x00\x09"], pa.large_binary())})
    bound = compile_value("json_extract(js, '$')", batch.schema)
    with pytest.raises(CorruptDataError):
        evaluate(bound.expression, batch)


def test_every_function_is_registered_under_each_of_its_names():
    for function in ALL_FUNCTIONS:
        for name in function.names:
            assert FUNCTIONS[name] is function
    assert all(name == name.lower() for name in FUNCTIONS)


def test_the_guide_names_every_function():
    guide = (Path(__file__).parents[3] / "docs" / "guide" / "filters.md").read_text()
    named = set(re.findall(r"`(\w+)`", guide))
    ranged = {"quarter", "month", "week", "day", "hour", "minute"}
    suffixed = {f"to_timestamp_{unit}" for unit in ("seconds", "millis", "micros", "nanos")}
    for function in ALL_FUNCTIONS:
        # A name that begins with a line is what planners of other libraries write.
        plain = [name for name in function.names if name.isidentifier() and name[0] != "_"]
        assert not plain or {*plain} & (named | ranged | suffixed | {"epoch"}), plain
