"""Evaluation beyond what the row-wise definition covers."""

import numpy as np
import pyarrow as pa
import pytest

from lancelet.errors import ExpressionError, InvalidInputError
from lancelet.expr import expression as ex
from lancelet.expr.compile import compile_columns, compile_filter, compile_value
from lancelet.expr.evaluate import can_fail, evaluate, evaluate_filter, project
from lancelet.expr.parse import parse

BATCH = pa.record_batch(
    {
        "a": pa.array([10, 20, None, 40]),
        "b": pa.array([0, 5, 2, None]),
        "s": pa.array(["1", "x", "3", None]),
        "f": pa.array([1.0, np.nan, -0.0, None]),
    }
)


def values(text, batch=BATCH):
    return evaluate(compile_filter(text, batch.schema), batch).to_pylist()


def test_short_circuited_expressions_cannot_fail():
    assert values("b <> 0 and a / b = 4") == [False, True, None, None]
    assert values("a / b = 4 and b <> 0") == [False, True, None, None]
    assert values("b = 0 or a / b = 4") == [True, True, None, None]
    assert values("s <> 'x' and cast(s as int) > 1") == [False, False, True, None]


def test_a_case_computes_a_branch_for_its_rows_only():
    text = "case when b = 0 then -1 when s = 'x' then 0 else cast(s as int) * a / b end"
    bound = compile_value(text, BATCH.schema)
    assert evaluate(bound.expression, BATCH).to_pylist() == [-1, 0, None, None]


def test_expressions_needed_by_no_row_are_not_computed():
    assert values("b is not null and b > 100 and a / 0 = 1") == [False] * 4
    assert values("false and 1 / 0 = 1") == [False] * 4


def test_a_filter_needs_no_row_that_some_part_drops():
    text = "s = '3' and cast(s as int) / b < 9"
    bound = compile_filter(text, BATCH.schema)
    assert evaluate_filter(bound, BATCH).to_pylist() == [False, False, True, False]
    with pytest.raises(ExpressionError, match=r"cannot compute a / b > 1"):
        evaluate_filter(compile_filter("a > 1 and a / b > 1", BATCH.schema), BATCH)


def test_a_filter_has_no_null():
    for text in ("a > 15", "cast(null as boolean)", "a > 15 and b is null", "true"):
        bound = compile_filter(text, BATCH.schema)
        expected = evaluate(bound, BATCH).fill_null(False)
        assert evaluate_filter(bound, BATCH).equals(expected)


def test_expressions_needed_by_a_row_can_fail():
    with pytest.raises(ExpressionError, match=r"cannot compute a / b"):
        values("a / b = 4")


@pytest.mark.parametrize(
    ("text", "fails"),
    [("a > 1", False), ("a + 1 > 1", True), ("cast(s as int) = 1", True), ("lower(s)", False),
     ("try_cast(s as int) = 1", False), ("abs(a) = 1", True)],
)  # fmt: skip
def test_expressions_that_can_fail_are_detected(text, fails):
    assert can_fail(parse(text)) is fails


def test_every_nan_is_one_value_and_the_greatest():
    negative = np.array([0xFFF8 << 48], np.uint64).view(np.float64)
    batch = pa.record_batch({"f": pa.array([*negative, np.nan, np.inf, -0.0, 0.0])})
    assert values("f > 1e308", batch) == [True, True, True, False, False]
    assert values("f = 'NaN'", batch) == [True, True, False, False, False]
    assert values("f >= 'NaN'", batch) == [True, True, False, False, False]
    assert values("f < 'NaN'", batch) == [False, False, True, True, True]
    assert values("f in (0, 'NaN')", batch) == [True, True, False, True, True]
    assert values("f <> f", batch) == [False] * 5
    assert values("f = 0", batch) == [False, False, False, True, True]
    assert values("f in (0)", batch) == [False, False, False, True, True]


def test_a_bare_column_comes_back_as_it_is_stored():
    stored = pa.array(["x", None]).dictionary_encode()
    batch = pa.record_batch({"d": stored})
    assert evaluate(parse("d"), batch).equals(stored)


def test_a_struct_array_is_as_good_as_a_batch():
    assert evaluate(parse("a"), BATCH.to_struct_array()).equals(BATCH["a"])


def test_a_field_of_a_null_struct_is_null():
    inner = pa.StructArray.from_arrays([pa.array([1, 2])], ["x"], mask=pa.array([False, True]))
    batch = pa.record_batch({"s": inner})
    assert values("s.x = 2", batch) == [False, None]


def test_extension_columns_are_computed_as_their_storage():
    column = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0" * 16], pa.binary(16)))
    batch = pa.record_batch({"u": column})
    assert values(f"u = X'{(b'0' * 16).hex()}'", batch) == [True]


def test_projections_keep_their_order_and_names():
    columns = compile_columns({"y": "a + 1", "x": "s"}, BATCH.schema)
    found = project({name: bound.expression for name, bound in columns.items()}, BATCH)
    assert found.to_pydict() == {"y": [11, 21, None, 41], "x": ["1", "x", "3", None]}


def test_constants_fill_every_row():
    assert values("true") == [True] * 4
    assert values("cast(null as boolean)") == [False] * 4  # a filter cannot tell null from false
    bound = compile_value("null", BATCH.schema)
    assert evaluate(bound.expression, BATCH).to_pylist() == [None] * 4


def test_a_missing_column_is_named():
    with pytest.raises(InvalidInputError, match="column='q'"):
        evaluate(parse("q"), BATCH)


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
@pytest.mark.parametrize("kind", ["int", "uint"])
@pytest.mark.parametrize("span", [1, 200, 5000, 1 << 40])
def test_integers_of_any_range_are_found_in_lists(kind, bits, span):
    data_type = getattr(pa, f"{kind}{bits}")()
    chance = np.random.default_rng(span)
    limits = np.iinfo(f"{kind}{bits}")
    rows = chance.integers(limits.min, limits.max, 5000, dtype=limits.dtype, endpoint=True)
    rows[:4] = limits.min, limits.max, limits.min, 0
    for low in (limits.min, 0, max(limits.min, int(limits.max) - span)):
        high = min(int(low) + span, limits.max)
        listed = chance.integers(low, high, 20, dtype=limits.dtype, endpoint=True)
        rows[100:110] = listed[:10]
        expression = ex.In(ex.column("n"), pa.array(listed, data_type))
        batch = pa.record_batch({"n": pa.array(rows, data_type)})
        for part in (batch, batch.slice(3, 2000)):
            found = evaluate_filter(expression, part).to_pylist()
            assert found == np.isin(part.column(0).to_numpy(), listed).tolist()
