# ruff: noqa: DTZ001  # timestamps without a zone are what is tested
"""Filters and computed columns against the reference implementation.

Random predicates run over one random table in both; where the reference accepts a predicate,
the rows must be the same. The functions that both know are compared one by one, values and
types.
"""

import datetime as dt
from decimal import Decimal

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import assume, event, given

from lancelet.errors import ExpressionError
from lancelet.expr import expression as ex
from lancelet.expr.compile import compile_filter, compile_value
from lancelet.expr.evaluate import evaluate
from lancelet.expr.traversal import walk
from tests.kit.expressions import PREDICATES, random_batch

pytestmark = pytest.mark.interop

REFUSED = (ValueError, OSError, RuntimeError, NotImplementedError)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A random table, whole and as a dataset of the reference."""
    batch = random_batch(200, seed=14)
    # The reference tells -0.0 from 0.0 between columns, but not beside a constant.
    floats = pc.add(batch["f"], 0.0)
    table = pa.Table.from_batches([batch.set_column(batch.schema.names.index("f"), "f", floats)])
    table = table.append_column("row", pa.array(range(len(table)), pa.int64()))
    path = str(tmp_path_factory.mktemp("filters") / "table.lance")
    return table.to_batches()[0], lance.write_dataset(table, path)


def has_contradicting_lists(predicate):
    """Whether the reference would make `x IN (1) AND x IN (2)` false, even where x is null."""
    return any(
        isinstance(node, ex.And | ex.Or)
        and sum(isinstance(inner, ex.In) for inner in walk(node)) > 1
        for node in walk(predicate)
    )


def rows_of_reference(dataset, text):
    try:
        return dataset.to_table(columns=["row"], filter=text)["row"].to_pylist()
    except REFUSED:
        return None


def rows_of_ours(batch, text):
    truth = evaluate(compile_filter(text, batch.schema), batch)
    return [row for row, kept in enumerate(truth.to_pylist()) if kept]


def test_random_predicates_keep_the_same_rows(stored):
    batch, dataset = stored
    accepted = 0

    @given(PREDICATES)
    def check(predicate):
        nonlocal accepted
        assume(not has_contradicting_lists(predicate))
        expected = rows_of_reference(dataset, str(predicate))
        event("refused by the reference" if expected is None else "compared")
        if expected is not None:
            accepted += 1
            assert rows_of_ours(batch, str(predicate)) == expected

    check()
    assert accepted > 5


# --- functions and types ---------------------------------------------------------------------

VALUES = {
    "i": pa.array([1, 2, None, -4, 5, 0, 7, 100], pa.int32()),
    "u": pa.array([1, 2, None, 255, 5, 0, 7, 100], pa.uint8()),
    "w": pa.array([1, 2, None, 2**64 - 1, 5, 0, 7, 100], pa.uint64()),
    "f": pa.array([1.5, np.nan, None, 0.25, 0.0, np.inf, -np.inf, 2.5]),
    "g": pa.array([1.1, np.nan, None, 0.25, 0.0, np.inf, -np.inf, 2.5], pa.float32()),
    "h": pa.array([1.5, 2.0, None, 0.0, 3.0, 4.0, -1.0, 2.0], pa.float16()),
    "s": pa.array(["abc", "ABC", None, "", "a%b", "a_b", "héllo", "zz"]),
    "ls": pa.array(["abc", "ABC", None, "", "a%b", "a_b", "héllo", "zz"], pa.large_string()),
    "b": pa.array([True, False, None, True, False, True, False, None]),
    "bin": pa.array([b"abc", b"\x01\x02", None, b"", b"a", b"b", b"c", b"d"]),
    "d": pa.array([None if x is None else Decimal(x) for x in
                   ("1.50", "2.00", None, "-1.25", "0.00", "9.99", "3.00", "4.00")],
                  pa.decimal128(10, 2)),
    "dt": pa.array([dt.date(2020, 1, 1), dt.date(2021, 1, 1), None, dt.date(1969, 12, 31),
                    dt.date(2024, 2, 29), dt.date(2022, 1, 3), dt.date(1900, 3, 1),
                    dt.date(2022, 1, 5)]),
    "ts": pa.array([dt.datetime(2020, 1, 1, 12), dt.datetime(2021, 1, 1), None,
                    dt.datetime(1969, 12, 31, 23, 59, 59, 500000),
                    dt.datetime(2024, 2, 29, 1, 2, 3, 456789), dt.datetime(2022, 1, 3),
                    dt.datetime(1900, 3, 1), dt.datetime(2022, 1, 5)], pa.timestamp("us")),
    "tz": pa.array([dt.datetime(2020, 1, 1, 12), dt.datetime(2021, 1, 1), None,
                    *[dt.datetime(2022, 1, day) for day in range(1, 6)]],
                   pa.timestamp("us", "UTC")),
    "tms": pa.array([1_577_880_000_000, None, 0, 1, -1, 999, 1000, 2**40], pa.timestamp("ms")),
    "t": pa.array([dt.time(12, 0, second) for second in range(8)], pa.time64("us")),
    "du": pa.array([dt.timedelta(seconds=second) for second in range(8)], pa.duration("us")),
    "st": pa.array([None if row == 2 else {"a": row, "b": {"c": str(row)}, "x.y": row}
                    for row in range(8)]),
    "l": pa.array([[1, 2], [], None, [3, None], [1], [2], [5, 6, 7], [1, 1]], pa.list_(pa.int32())),
    "lst": pa.array([["a", "b"], [], None, ["c", None], ["a"], ["b"], ["e"], ["a", "a"]]),
    "ls2": pa.array([[{"k": row}] for row in range(8)]),
    "fsl": pa.array([[row, row + 1] for row in range(8)], pa.list_(pa.float32(), 2)),
    "dic": pa.array(["x", "y", None, "x", "y", "x", "y", "z"]).dictionary_encode(),
    "Cap": pa.array(range(8), pa.int32()),
    "js": pa.ExtensionArray.from_storage(pa.json_(), pa.array([
        '{"a":1,"b":"x","c":[1,2,"q"],"d":{"e":true}}', '{"a":"5","b":null}', None, "[1,2,3]",
        '"str"', '{"a":2.5,"c":[]}', '{"a":true,"b":[1]}', '{"a":-0.0,"b":1e-7}'])),
}  # fmt: skip


@pytest.fixture(scope="module")
def typed(tmp_path_factory):
    table = pa.table({"row": pa.array(range(8)), **VALUES})
    path = str(tmp_path_factory.mktemp("typed") / "table.lance")
    return table.to_batches()[0], lance.write_dataset(table, path)


FILTERS = """
i > 1
i = NULL
NOT (i > 1)
i > 1 OR i IS NULL
w = 18446744073709551615
w > 9223372036854775807
f > 1
f = f
f != f
f < 1
f >= 2
f = 0
f = -0.0
f IN (0.0)
f IN (-0.0, 1.5)
f > -0.0
f < 0.0
isnan(f)
g = 1.1
g > 1.1
h = 1.5
h > 1
d > 1
d = 2
d > cast(1.5 as decimal(10,2))
s = "abc"
s < 'b'
ls = 'abc'
b
NOT b
b = true
b IS TRUE
b IS NOT FALSE
i IS DISTINCT FROM 1
i IS NOT DISTINCT FROM NULL
bin = X'616263'
bin = 0x616263
dt = date '2020-01-01'
dt > timestamp '2020-01-01 00:00:00'
ts > date '2020-06-01'
ts > timestamp '2020-01-01 13:00:00'
ts > timestamp '2020-01-01T13:00:00Z'
ts > timestamp(3) '2020-01-01 13:00:00'
tms > timestamp '2020-01-01 11:00:00.000001'
tz > timestamp '2020-06-01 00:00:00'
tz > date '2020-06-01'
Cap = 1
cap = 1
CAP = 1
I = 1
`Cap` = 1
st.a = 1
ST.a = 1
st.b.c = '1'
st['a'] = 1
st['b']['c'] = '1'
st.`x.y` = 1
st IS NULL
st.a IS NULL
l[1] = 1
l[0] = 1
l[-1] = 1
array_has(l, 1)
array_contains(l, 1)
array_has_any(l, [1, 2])
array_has_all(l, [1, 2])
list_contains(l,1)
array_length(l) > 1
cardinality(l) > 1
l = [1]
ls2[1]['k'] = 1
ls2[1].k = 1
dic = 'x'
dic IN ('x','z')
i IN (1, 2, NULL)
i NOT IN (1, NULL)
i NOT BETWEEN 1 AND 5
i BETWEEN 5 AND 1
s LIKE 'a\\%b'
s LIKE 'a_b'
s ILIKE 'A%'
s NOT LIKE 'a%'
s LIKE NULL
s == 'abc'
i <> 1
b AND NULL
b OR NULL
1=1
is_valid(i)
regexp_match(s, '^a')
not regexp_match(s, '^a')
contains_tokens(s, 'abc')
ts > now()
dt < current_date
i = w
i = f
s = ls
s = dic
ts = tms
ts = tz
dt = ts
i = d
g = f
i * 1.5 > 3
d + 1 > 2.5
l = [1,2]
st = st
lst = ['a']
array_has(l, 1.0)
fsl[1] > 2
array_has(fsl, 1)
ts > to_timestamp('2021-01-01T00:00:00')
ts > '2021-01-01'::timestamp
ts BETWEEN timestamp '2020-01-01' AND timestamp '2022-01-04'
dt IN (date '2020-01-01')
ts IN (timestamp '2021-01-01 00:00:00')
t > arrow_cast('12:00:03', 'Time64(Microsecond)')
du > arrow_cast(3000000, 'Duration(Microsecond)')
bin > X'61'
bin IN (X'61', X'62')
"i" = 'i'
i = - 4
f = .25
b > false
dic > 'x'
dic LIKE 'x%'
h IN (1.5, 2)
st.a IN (1, 2)
st.a BETWEEN 1 AND 2
array_length(l) IN (1,2)
coalesce(b, true)
i % 2 = 1
(i > 1) IS NOT TRUE
i > 1 IS TRUE
json_extract(js, '$.a') = '1'
json_exists(js, '$.a') AND json_get_string(js, 'q') IS NULL
js IS NULL
"""


@pytest.mark.parametrize("text", FILTERS.strip().splitlines())
def test_a_filter_keeps_the_rows_of_the_reference(typed, text):
    batch, dataset = typed
    expected = dataset.to_table(columns=["row"], filter=text)["row"].to_pylist()
    assert rows_of_ours(batch, text) == expected


COLUMNS = r"""
lower(s)
LOWER(s)
upper(s)
length(s)
octet_length(s)
bit_length(s)
concat(s, 'x')
concat(s, 1)
concat_ws('-', s, 'x', s)
s || 'x'
btrim(s, 'a')
ltrim(s, 'a')
rtrim(s, 'c')
starts_with(s,'a')
ends_with(s,'c')
contains(s,'b')
strpos(s,'b')
strpos(s,'l')
replace(s,'b','XX')
reverse(s)
repeat(s,2)
lpad(s,5,'*')
rpad(s,5,'*')
lpad(s,2)
split_part(s,'b',1)
split_part(s,'b',2)
split_part(s,'b',-1)
initcap(s)
regexp_match(s,'a(.)')
regexp_match(s,'a.')
regexp_like(s,'^a')
regexp_like(s,'^a','i')
regexp_replace(s,'[abc]','X')
regexp_replace(s,'[abc]','X','g')
regexp_count(s,'[abc]')
s LIKE 'a%'
abs(i)
abs(f)
round(f)
round(g)
round(f, 1)
power(i, 2)
pow(i, 2)
sqrt(f)
cbrt(f)
exp(f)
ln(f)
log(10, f)
log10(f)
log2(f)
sin(f)
signum(f)
trunc(f,1)
i % 3
i / 2
f / 0
f % 1
i + 1
i * i
-i
i << 2
i >> 1
coalesce(i, 99)
coalesce(i, 1.5)
coalesce(s, 'none')
nullif(i, 1)
nvl(i, 3)
ifnull(i,3)
nvl2(i,3,4)
greatest(i, 2)
least(i, 2)
greatest(i, 2, null)
nanvl(f, 1)
isnan(f)
iszero(f)
date_part('year', ts)
date_part('month', dt)
date_part('dow', dt)
date_part('doy', dt)
date_part('week', dt)
date_part('quarter', dt)
date_part('epoch', ts)
date_part('second', ts)
date_part('millisecond', ts)
date_part('isodow', dt)
datepart('year', ts)
date_trunc('month', ts)
date_trunc('day', tz)
date_trunc('week', ts)
date_trunc('hour', tms)
to_timestamp(i)
to_timestamp_seconds(i)
to_timestamp_millis(i)
to_timestamp_micros(i)
to_unixtime(ts)
from_unixtime(i)
to_char(ts, '%Y-%m')
array_length(l)
array_has(l, 1)
array_has(l, null)
array_has(lst, 'a')
array_position(l, 1)
array_element(l,1)
array_min(l)
array_max(l)
array_to_string(lst, ',')
array_empty(l)
empty(l)
list_length(l)
array_slice(l,1,1)
array_slice(l,2,3)
array_has_any(lst, ['a','e'])
array_has_any(lst, make_array('a','e'))
cast(i as string)
cast(i as double)
try_cast(s as int)
try_cast(f as bigint)
i::string
i::bigint
cast(ts as date)
cast(dt as timestamp)
cast(i as boolean)
cast(b as int)
cast(d as double)
cast(d as int)
cast(d as decimal(10,1))
cast(i as smallint)
cast(i as float)
cast(ts as string)
cast(tz as string)
cast(dt as string)
cast(f as string)
cast(g as string)
cast(d as string)
cast(b as string)
cast(bin as string)
cast(s as binary)
cast(i as decimal(10,2))
arrow_cast(i, 'Int64')
arrow_cast(i, 'Utf8')
arrow_cast(s, 'LargeUtf8')
arrow_cast(i, 'Decimal128(10, 2)')
st.a
get_field(st, 'a')
d + 1
d * d
d + d
d + f
d % 2
ts - ts
dt - dt
ts + du
du + du
make_array(i, u)
contains_tokens(s, 'abc')
cast(t as string)
json_get(js, 'a')
json_extract(js, '$.a')
json_extract(js, '$.c[0]')
json_extract(js, '$.c[*]')
json_extract(js, '$.*')
json_extract(js, '$[1]')
json_extract(js, '$.c[last-1]')
json_extract(js, '$.c[0,2]')
json_extract(js, '$["a"]')
json_extract(js, 'a')
json_exists(js, '$.c[0]')
json_array_contains(js, '$.c', 'q')
json_array_contains(js, '$.c', 1)
json_array_length(js, '$.c')
json_get_int(js, '1')
json_get_string(json_get(js, 'd'), 'e')
json_get_float(js, 'zz')
json_get(js, 0)
"""


def comparable(column):
    """NaN as text, so that equal columns compare equal."""
    return [repr(value) for value in column.to_pylist()]


@pytest.mark.parametrize("text", COLUMNS.strip().splitlines())
def test_a_computed_column_has_the_values_and_type_of_the_reference(typed, text):
    batch, dataset = typed
    expected = dataset.to_table(columns={"x": text})["x"].combine_chunks()
    bound = compile_value(text, batch.schema)
    found = evaluate(bound.expression, batch)
    assert found.type == bound.data_type == expected.type
    assert comparable(found) == comparable(expected)


# --- where the two differ --------------------------------------------------------------------

REFUSED_BY_REFERENCE = {
    "d > 1.5": [1, 5, 6, 7],
    "d = 1.50": [0],
    "d > '1.5'": [1, 5, 6, 7],
    "d IN (2, 1.5)": [0, 1],
    "d > f": [6, 7],
    "i > 1.5": [1, 4, 6, 7],
    "i IN (1.5, 2)": [1],
    "i > 3000000000": [],
    "u > -1": [0, 1, 3, 4, 5, 6, 7],
    "u IN (1, 300)": [0],
    "f = 'NaN'": [1],
    "t > time '12:00:03'": [4, 5, 6, 7],
    "t > '12:00:03'": [4, 5, 6, 7],
    "du > interval '3 seconds'": [4, 5, 6, 7],
    "du >= '3 seconds'": [3, 4, 5, 6, 7],
    "dt = '2020-01-01'": [0],
    "ts = '2020-01-01 12:00:00'": [0],
    "tz > '2021-06-01'": [3, 4, 5, 6, 7],
    "ts + interval '1 day' > timestamp '2022-01-05 13:00:00'": [4, 7],
    "bin = 'abc'": [0],
    "s LIKE 'a!%b' ESCAPE '!'": [4],
    "b IS UNKNOWN": [2, 7],
    "i <=> 1": [0],
    "case when b then true else false end": [0, 3, 5],
    "substr(s, 1, 1) = 'a'": [0, 4, 5],
    "trim(s) = 'zz'": [7],
    "extract(year from ts) = 2020": [0],
    "position('b' in s) = 3": [4, 5],
    "s ~ '^a'": [0, 4, 5],
    "i & 1 = 1": [0, 4, 6],
    "floor(f) = 2": [7],
    "i = +1": [0],
    "st.A = 1": [1],
    "if(b, i, 0) = 1": [0],
}


@pytest.mark.parametrize(("text", "rows"), REFUSED_BY_REFERENCE.items())
def test_a_filter_that_the_reference_refuses_works(typed, text, rows):
    batch, dataset = typed
    with pytest.raises(REFUSED):
        dataset.to_table(filter=text)
    assert rows_of_ours(batch, text) == rows


# The reference's rows, ours (None: an error), and why we differ.
DEVIATIONS = {
    "i = 1)": ([0], None, "text after the filter is an error, not ignored"),
    "i = 1; drop": ([0], None, "text after the filter is an error, not ignored"),
    "(i IN (1) AND i IN (2)) IS NULL": ([], [2], "null AND null is null"),
}


@pytest.mark.parametrize("text", DEVIATIONS)
def test_deviations_from_the_reference_are_these(typed, text):
    batch, dataset = typed
    theirs, ours, _ = DEVIATIONS[text]
    assert rows_of_reference(dataset, text) == theirs
    if ours is None:
        with pytest.raises(ExpressionError):
            rows_of_ours(batch, text)
    else:
        assert rows_of_ours(batch, text) == ours


def test_a_computed_column_that_overflows_is_an_error(typed):
    """The reference wraps: 255 + 1 is 0 in a column of bytes, though 256 in a filter."""
    batch, dataset = typed
    assert dataset.to_table(columns={"x": "u + 1"})["x"].to_pylist()[3] == 0
    with pytest.raises(ExpressionError, match="overflow"):
        evaluate(compile_value("u + 1", batch.schema).expression, batch)
    assert rows_of_ours(batch, "u + 1 = 256") == rows_of_reference(dataset, "u + 1 = 256") == [3]


def test_signs_of_nan_and_zero_do_not_matter(tmp_path):
    """The reference sorts a negative NaN first, and -0.0 below 0.0 between two columns."""
    bits = [0xFFF8 << 48, 0x7FF8 << 48, 0x8000 << 48, 0]
    floats = pa.array(np.array(bits, np.uint64).view(np.float64))
    zeros = pa.array([0.0] * 4)
    table = pa.table({"row": range(4), "f": floats, "z": zeros})
    dataset = lance.write_dataset(table, str(tmp_path / "t.lance"))
    batch = table.to_batches()[0]
    assert rows_of_reference(dataset, "f > 1") == [1]
    assert rows_of_ours(batch, "f > 1") == [0, 1]
    assert rows_of_reference(dataset, "f = z") == [3]
    assert rows_of_ours(batch, "f = z") == [2, 3]


def test_a_zone_in_a_constant_is_an_instant(tmp_path):
    """The reference drops the zone of the constant and reads it on the column's clock."""
    zoned = pa.array([0, 5 * 3600, 6 * 3600], pa.timestamp("s", "America/New_York"))
    table = pa.table({"row": range(3), "ny": zoned})
    dataset = lance.write_dataset(table, str(tmp_path / "t.lance"))
    batch = table.to_batches()[0]
    on_the_clock = "ny >= timestamp '1970-01-01 00:00:00'"
    assert rows_of_ours(batch, on_the_clock) == rows_of_reference(dataset, on_the_clock) == [1, 2]
    instant = "ny >= timestamp '1970-01-01 00:00:00Z'"
    assert rows_of_reference(dataset, instant) == [1, 2]
    assert rows_of_ours(batch, instant) == [0, 1, 2]
