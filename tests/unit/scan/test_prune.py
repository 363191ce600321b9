"""Pruning excludes ranges; a property test verifies that it never excludes too much."""

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lancelet
from lancelet.expr import expression as ex
from lancelet.expr.compile import compile_filter
from lancelet.expr.evaluate import evaluate
from lancelet.expr.expression import Operator
from lancelet.scan.prune import ColumnBounds, Verdict, Zones, prune

NONE = pa.array([0, 0, 0, 0])


def zones_of(minimum, maximum, null_count=NONE, has_nan=None, data_type=None):
    column = ColumnBounds.of(
        pa.array(minimum, data_type),
        pa.array(maximum, data_type),
        np.full(len(minimum), 10),
        null_count,
        has_nan,
    )
    return Zones(np.arange(len(minimum) + 1) * 10, {("x",): column})


def verdict_of(text, zones):
    schema = pa.schema([("x", zones.columns["x",].minimum.type)])
    return prune(compile_filter(text, schema), zones)


def marks(verdict):
    """What rows of each zone can be: some of t, f and n."""
    rows = zip(verdict.may_be_true, verdict.may_be_false, verdict.may_be_null, strict=True)
    return ["".join(mark for mark, may in zip("tfn", row, strict=True) if may) for row in rows]


INTEGERS = zones_of([1, 5, 10, 7], [4, 9, 10, None])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x > 4", ["f", "t", "t", "t"]),
        ("x > 8", ["f", "tf", "t", "tf"]),
        ("x >= 10", ["f", "f", "t", "tf"]),
        ("x < 5", ["t", "f", "f", "f"]),
        ("x = 10", ["f", "f", "t", "tf"]),
        ("x <> 10", ["t", "t", "f", "tf"]),
        ("x = 3", ["tf", "f", "f", "f"]),
        ("x in (4, 11)", ["tf", "f", "f", "tf"]),
        ("x in (10, 11)", ["f", "f", "t", "tf"]),
        ("x not in (10)", ["t", "t", "f", "tf"]),
        ("x in (4, null)", ["tn", "n", "n", "n"]),
        ("x between 5 and 9", ["f", "t", "f", "tf"]),
        ("not (x > 4)", ["t", "f", "f", "f"]),
        ("x > 4 and x < 10", ["f", "t", "f", "tf"]),
        ("x < 2 or x > 9", ["tf", "f", "t", "tf"]),
        ("x is null", ["f", "f", "f", "f"]),
        ("x is not null", ["t", "t", "t", "t"]),
        ("x is distinct from 10", ["t", "t", "f", "tf"]),
        ("x is not distinct from null", ["f", "f", "f", "f"]),
        ("(x > 4) is true", ["f", "t", "t", "t"]),
        ("x = null", ["f", "f", "f", "f"]),  # a filter may take null for false
        ("x % 2 = 1", ["tfn", "tfn", "tfn", "tfn"]),
        ("x > 4 and x % 2 = 1", ["f", "tfn", "tfn", "tfn"]),
        ("x = 1.5", ["f", "f", "f", "f"]),
        ("true", ["t", "t", "t", "t"]),
    ],
)
def test_bounds_decide(text, expected):
    assert marks(verdict_of(text, INTEGERS)) == expected


def test_nulls_are_neither_true_nor_false():
    zones = zones_of([1, 1, None, 1], [2, 2, None, 2], pa.array([0, 3, 10, None]))
    assert marks(verdict_of("x > 0", zones)) == ["t", "tn", "n", "tn"]
    assert marks(verdict_of("x is null", zones)) == ["f", "tf", "t", "tf"]
    assert verdict_of("x > 0", zones).all_true.tolist() == [True, False, False, False]


def test_unknown_null_counts_leave_null_possible():
    assert marks(verdict_of("x > 0", zones_of([1], [2], None))) == ["tn"]


def test_a_float_zone_may_hold_nan_unless_it_is_known_not_to():
    bounds = ([1.0, 1.0, 1.0], [2.0, 2.0, 2.0], pa.array([0, 0, 0]))
    zones = zones_of(*bounds, pa.array([True, False, None]))
    assert marks(verdict_of("x > 5", zones)) == ["tf", "f", "tf"]
    assert marks(verdict_of("x < 5", zones)) == ["tf", "t", "tf"]
    assert marks(verdict_of("x = 'NaN'", zones)) == ["tf", "f", "tf"]
    assert marks(verdict_of("x in (5, 'NaN')", zones)) == ["tf", "f", "tf"]
    assert marks(verdict_of("x < 1", zones)) == ["f", "f", "f"]


def test_nan_as_a_bound_is_ignored():
    zones = zones_of([np.nan], [np.nan], pa.array([0]), pa.array([False]))
    assert marks(verdict_of("x > 5", zones)) == ["tf"]


def test_zeros_of_both_signs_are_one_value():
    zones = zones_of([-0.0, 0.0], [-0.0, 0.0], pa.array([0, 0]), pa.array([False, False]))
    assert marks(verdict_of("x = 0", zones)) == ["t", "t"]
    assert marks(verdict_of("x < 0", zones)) == ["f", "f"]
    assert marks(verdict_of("x in (0, 5)", zones)) == ["t", "t"]


def test_cut_texts_are_bounds_that_no_value_need_reach():
    zones = zones_of(["ab", "ab", "b"], ["ac", None, "b"], pa.array([0, 0, 0]))
    assert marks(verdict_of("x = 'ab'", zones)) == ["tf", "tf", "f"]
    assert marks(verdict_of("x > 'ad'", zones)) == ["f", "tf", "t"]
    assert marks(verdict_of("x in ('b', 'q')", zones)) == ["f", "tf", "t"]


def test_prefixes_are_ranges():
    zones = zones_of(["aa", "ab", "b"], ["ab", "abz", "c"], pa.array([0, 0, 0]))
    assert marks(verdict_of("starts_with(x, 'ab')", zones)) == ["tf", "t", "f"]
    assert marks(verdict_of("x like 'ab%'", zones)) == ["tf", "tf", "f"]
    assert marks(verdict_of("x like 'b%z'", zones)) == ["f", "f", "tf"]
    assert marks(verdict_of("x like 'b'", zones)) == ["f", "f", "tf"]
    assert marks(verdict_of("starts_with(x, '')", zones)) == ["t", "t", "t"]


def test_the_last_prefix_has_no_successor():
    last = chr(0x10FFFF)
    zones = zones_of([last], [last + "a"], pa.array([0]))
    assert "t" in marks(verdict_of(f"starts_with(x, '{last}')", zones))[0]


@pytest.mark.parametrize(
    ("low", "high", "data_type", "text"),
    [
        (dt.date(2020, 1, 1), dt.date(2020, 1, 5), pa.date32(), "x > '2020-01-06'"),
        (Decimal("1.10"), Decimal("1.50"), pa.decimal128(5, 2), "x in (1.55, 2)"),
        (dt.time(1), dt.time(2), pa.time32("s"), "x in ('03:00', '04:00')"),
        (b"a", b"b", pa.binary(), "x > X'63'"),
        (1.5, 2.0, pa.float16(), "x < 1.5"),
        ("a", "b", pa.string_view(), "x = 'c'"),
        (False, False, pa.bool_(), "x"),
        (dt.timedelta(1), dt.timedelta(2), pa.duration("us"), "x < '1 hour'"),
        (dt.datetime(2020, 1, 1), dt.datetime(2020, 1, 2), pa.timestamp("ns", "UTC"), "x > '2021-01-01'"),  # noqa: DTZ001, E501
    ],
)  # fmt: skip
def test_every_ordered_type_prunes(low, high, data_type, text):
    zones = zones_of([low], [high], pa.array([0]), pa.array([False]), data_type)
    assert marks(verdict_of(text, zones)) == ["f"]


def test_paths_and_unknown_columns():
    column = ColumnBounds.of(pa.array([5]), pa.array([9]), np.array([10]), pa.array([0]))
    zones = Zones(np.array([0, 10]), {("s", "x"): column})
    schema = pa.schema([("s", pa.struct([("x", pa.int64())])), ("y", pa.int64())])
    assert marks(prune(compile_filter("s.x < 5", schema), zones)) == ["f"]
    assert marks(prune(compile_filter("y < 5 and s.x > 4", schema), zones)) == ["tfn"]


def test_the_unknown_verdict_excludes_nothing():
    assert marks(Verdict.unknown(2)) == ["tfn", "tfn"]


def test_rows_of_zones_that_match_completely_are_counted_without_reading_them(tmp_path):
    rows = 400_000
    table = pa.table({"k": range(rows), "x": np.arange(rows) % 7})
    dataset = lancelet.write_dataset(table, tmp_path / "t")
    assert dataset.count_rows("k >= 0") == rows
    dataset.io_stats_incremental()
    assert dataset.count_rows("k >= 0 AND x < 7") == rows
    assert dataset.count_rows("k >= 0 AND k < 400000") == rows
    assert dataset.io_stats_incremental().read_bytes == 0
    dataset.delete("x = 3")
    assert dataset.count_rows("k >= 0") == rows - len(range(3, rows, 7))


@pytest.mark.parametrize("columns", [["x"], ["k", "x"], []])
@pytest.mark.parametrize("deletes", [False, True])
def test_filters_with_zones_that_match_completely_equal_a_filter_of_all_rows(
    tmp_path, columns, deletes
):
    rows = 400_000
    keys = np.sort(np.random.default_rng(1).integers(0, 1000, rows))
    table = pa.table({"k": pa.array(keys, mask=keys == 700), "x": np.arange(rows) % 7})
    dataset = lancelet.write_dataset(table, tmp_path / "t")
    if deletes:
        dataset.delete("x = 3")
    for text in ("k > 100", "k < 650", "k >= 0 AND x < 5", "NOT (k > 500)", "k IS NOT NULL"):
        found = dataset.to_table(columns=columns, filter=text, with_row_id=True)
        every = dataset.scanner(columns=columns, filter=text, with_row_id=True, use_stats=False)
        assert found.equals(every.to_table())
        assert dataset.count_rows(text) == found.num_rows


def test_texts_above_all_maxima_may_be_in_zones_without_one():
    bounds = pa.array(["a", "b"]), pa.array(["c", None])
    column = ColumnBounds.of(*bounds, np.array([2, 2]))
    above = ex.Comparison(Operator.GREATER, ex.column("x"), ex.literal("z"))
    found = prune(above, Zones(np.arange(3) * 2, {("x",): column}))
    assert found.may_be_true.tolist() == [False, True]


TEXTS = ["", "a", "ab", "abc", "b", "ba", "é", "\uffff", "\U0001f600", "z"]
TIMES = [-(10**15), 0, 10**6, 10**15]


@settings(max_examples=200)
@given(data=st.data())
def test_verdicts_of_texts_bytes_and_times_include_all_values(data):
    kind = data.draw(st.sampled_from(["text", "bytes", "time"]))
    if kind == "time":
        drawn, data_type = st.sampled_from(TIMES), pa.timestamp("us")
    elif kind == "text":
        drawn, data_type = st.sampled_from(TEXTS), pa.string()
    else:
        drawn = st.sampled_from([each.encode() for each in TEXTS] + [b"\xff", b"\xff\xff"])
        data_type = pa.binary()
    zones = data.draw(
        st.lists(st.lists(drawn | st.none(), min_size=1, max_size=4), min_size=1, max_size=4)
    )
    bounds = [
        [choose((v for v in each if v is not None), default=None) for each in zones]
        for choose in (min, max)
    ]
    for index in data.draw(st.sets(st.integers(0, len(zones) - 1))):
        bounds[data.draw(st.integers(0, 1))][index] = None  # unknown
    column = ColumnBounds.of(
        *(pa.array(bound, data_type) for bound in bounds),
        np.array([len(each) for each in zones]),
        pa.array([each.count(None) for each in zones]),
    )
    operator = data.draw(st.sampled_from(list(Operator)))
    constant = data.draw(drawn)
    expression = ex.Comparison(operator, ex.column("x"), ex.Literal(pa.scalar(constant, data_type)))
    if kind == "text" and data.draw(st.booleans()):
        expression = ex.Call("starts_with", (ex.column("x"), ex.literal(constant)))
    found = prune(expression, Zones(np.arange(len(zones) + 1) * 10, {("x",): column}))
    for index, values in enumerate(zones):
        rows = pa.RecordBatch.from_arrays([pa.array(values, data_type)], ["x"])
        results = set(evaluate(expression, rows).to_pylist())
        assert not (True in results and not found.may_be_true[index])
        assert not (False in results and not found.may_be_false[index])
        assert not (None in results and not found.may_be_null[index])
