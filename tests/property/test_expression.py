"""Laws of expressions, over random tables and predicates."""

import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lancelet.errors import ExpressionError
from lancelet.expr import expression as ex
from lancelet.expr.arrow_expression import from_arrow, to_arrow
from lancelet.expr.bind import bind_filter
from lancelet.expr.compile import compile_filter, compile_value
from lancelet.expr.evaluate import evaluate
from lancelet.expr.functions.registry import FUNCTIONS
from lancelet.expr.parse import parse
from lancelet.expr.simplify import simplify, simplify_filter, split_conjuncts
from lancelet.scan.prune import ColumnBounds, Zones, prune
from tests.kit.expressions import PREDICATES, SCHEMA, batches, expected_value


@given(PREDICATES)
def test_sql_of_an_expression_parses_back_to_it(predicate):
    assert parse(str(predicate)) == predicate


@given(PREDICATES)
def test_sql_of_a_bound_expression_binds_back_to_it(predicate):
    bound = bind_filter(predicate, SCHEMA)
    assert bind_filter(parse(str(bound)), SCHEMA) == bound


@given(PREDICATES, batches())
def test_evaluation_agrees_with_the_definition_row_by_row(predicate, batch):
    found = evaluate(bind_filter(predicate, SCHEMA), batch)
    assert found.type == pa.bool_()
    assert found.to_pylist() == [expected_value(predicate, row) for row in batch.to_pylist()]


@given(PREDICATES, batches())
def test_simplifying_keeps_every_truth_value(predicate, batch):
    bound = bind_filter(predicate, SCHEMA)
    assert evaluate(simplify(bound), batch).to_pylist() == evaluate(bound, batch).to_pylist()


@given(PREDICATES, batches())
def test_simplifying_a_filter_keeps_its_rows(predicate, batch):
    bound = bind_filter(predicate, SCHEMA)
    kept = evaluate(simplify_filter(bound), batch).fill_null(False)
    assert kept.to_pylist() == evaluate(bound, batch).fill_null(False).to_pylist()


@given(PREDICATES)
def test_simplifying_twice_changes_nothing_more(predicate):
    once = simplify_filter(bind_filter(predicate, SCHEMA))
    assert simplify_filter(once) == once


@given(PREDICATES, batches())
def test_conjuncts_together_are_the_filter(predicate, batch):
    bound = simplify_filter(bind_filter(predicate, SCHEMA))
    kept = np.ones(batch.num_rows, bool)
    for part in split_conjuncts(bound):
        kept &= evaluate(part.expression, batch).fill_null(False).to_numpy(zero_copy_only=False)
    assert kept.tolist() == evaluate(bound, batch).fill_null(False).to_pylist()


@given(PREDICATES, batches())
def test_rows_of_a_slice_are_the_slice_of_the_rows(predicate, batch):
    bound = bind_filter(predicate, SCHEMA)
    middle = batch.num_rows // 2
    whole = evaluate(bound, batch)[middle:].to_pylist()
    assert evaluate(bound, batch.slice(middle)).to_pylist() == whole


@given(PREDICATES, batches())
def test_an_expression_for_pyarrow_keeps_the_same_rows(predicate, batch):
    translated = to_arrow(compile_filter(predicate, SCHEMA))
    if translated is None:
        return
    table = pa.Table.from_batches([batch.append_column("row", pa.array(range(batch.num_rows)))])
    rows = table.filter(translated)["row"].to_pylist()
    truths = [expected_value(predicate, row) for row in batch.to_pylist()]
    assert rows == [row for row, truth in enumerate(truths) if truth]


@given(PREDICATES, batches())
def test_an_expression_of_pyarrow_preserves_its_meaning(predicate, batch):
    translated = to_arrow(compile_filter(predicate, SCHEMA))
    if translated is None:
        return
    back = evaluate(compile_filter(from_arrow(translated), SCHEMA), batch)
    truths = [bool(expected_value(predicate, row)) for row in batch.to_pylist()]
    assert back.fill_null(False).to_pylist() == truths


# --- zones -----------------------------------------------------------------------------------


def is_nan(value):
    return isinstance(value, float) and math.isnan(value)


def bound_of(values, pick, *, loosen):
    known = [value for value in values if value is not None and not is_nan(value)]
    if not known or loosen:
        return None
    return pick(known)


@st.composite
def zoned(draw):
    """Draw batches as zones, with bounds that are exact, missing, or partly unknown."""
    zones = draw(st.lists(batches(max_rows=4), min_size=1, max_size=3))
    columns = {}
    for field in SCHEMA:
        if pa.types.is_nested(field.type):
            continue
        parts = [zone.column(field.name).to_pylist() for zone in zones]
        low, high = ([draw(st.booleans()) for _ in parts] for _ in range(2))
        nan = [any(is_nan(value) for value in part) for part in parts]
        columns[field.name,] = ColumnBounds.of(
            pa.array(
                [bound_of(p, min, loosen=x) for p, x in zip(parts, low, strict=True)], field.type
            ),
            pa.array(
                [bound_of(p, max, loosen=x) for p, x in zip(parts, high, strict=True)], field.type
            ),
            np.array([zone.num_rows for zone in zones]),
            draw(st.sampled_from([None, pa.array([part.count(None) for part in parts])])),
            draw(st.sampled_from([None, pa.array(nan)])),
        )
    edges = np.cumsum([0, *(zone.num_rows for zone in zones)])
    return zones, Zones(edges, columns)


@given(PREDICATES, zoned())
def test_a_verdict_allows_every_truth_value_that_occurs(predicate, drawn):
    batches_, zones = drawn
    bound = bind_filter(predicate, SCHEMA)
    for expression in (bound, simplify(bound)):
        verdict = prune(expression, zones)
        for index, batch in enumerate(batches_):
            occurring = set(evaluate(expression, batch).to_pylist())
            allowed = {
                truth
                for truth, may_be in (
                    (True, verdict.may_be_true),
                    (False, verdict.may_be_false),
                    (None, verdict.may_be_null),
                )
                if may_be[index]
            }
            assert occurring <= allowed
            if verdict.all_true[index]:
                assert occurring <= {True}


WORDS = """
    a b.c 1 1.5 'x' null true ( ) and or not in is between like case when then else end cast as int
    , = < - + * [ ] :: . `q` date '2020-01-01' interval extract from trim substring for distinct
    escape array ~ ||
""".split()  # noqa: SIM905  # a grammar reads better as a text


def assert_reads(text):
    try:
        parsed = parse(text)
    except ExpressionError:
        return
    assert parse(str(parsed)) == parsed


@given(st.text(max_size=30))
def test_any_text_prints_back_or_is_an_expression_error(text):
    assert_reads(text)


@given(st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join))
def test_any_words_print_back_or_are_an_expression_error(text):
    assert_reads(text)


@pytest.mark.parametrize("text", ["(" * 1000, "not " * 1000, "- " * 1000, "case " * 500, "[" * 500])
def test_deep_nesting_is_rejected(text):
    with pytest.raises(ExpressionError):
        parse(text)


# --- whatever is asked -----------------------------------------------------------------------

CONSTANTS = st.sampled_from(
    [
        *(ex.literal(value) for value in (True, 0, -1, 3, 300, 1.5, "a", "2020-01-02", "12:00")),
        *(ex.literal(value) for value in (b"a", Decimal("1.50"), [1, 2], ["a"], "%", "year")),
        *(parse(text) for text in ("null", "date '2020-01-02'", "timestamp '2020-01-02 12:00:00'")),
        *(parse(text) for text in ("time '12:00'", "interval '1 day'", "interval '1 month'")),
    ]
)
TYPES = [pa.int8(), pa.uint64(), pa.float32(), pa.string(), pa.date32(), pa.timestamp("ns", "UTC"),
         pa.decimal128(5, 1), pa.bool_(), pa.binary(), pa.time32("s"), pa.duration("ms"),
         pa.large_list(pa.float64())]  # fmt: skip
NAMES = sorted({name for name in FUNCTIONS if name.isidentifier()} | {"if", "nvl2"})
SIGNS = sorted(ex.BINARY_SIGNS)


def anything(smaller):
    several = st.lists(smaller, max_size=3).map(tuple)
    return st.one_of(
        st.builds(ex.Call, st.sampled_from(NAMES), several),
        st.builds(ex.Call, st.sampled_from(SIGNS), st.tuples(smaller, smaller)),
        st.builds(ex.Call, st.sampled_from(["-", "~"]), st.tuples(smaller)),
        st.builds(ex.Comparison, st.sampled_from(list(ex.Operator)), smaller, smaller),
        st.builds(ex.Cast, smaller, st.sampled_from(TYPES), st.booleans()),
        st.builds(ex.Like, smaller, smaller),
        st.builds(ex.Member, smaller, st.sampled_from(["x", "q"])),
        st.builds(ex.Not, smaller),
        st.builds(lambda when, then: ex.Case(((when, then),), then), smaller, smaller),
    )


COLUMNS = st.sampled_from([ex.column(field.name) for field in SCHEMA] + [ex.column("st.x")])
ANYTHING = st.recursive(COLUMNS | CONSTANTS, anything, max_leaves=4)


@given(ANYTHING, batches())
def test_any_expression_is_computed_or_raises_an_expression_error(expression, batch):
    try:
        bound = compile_value(expression, SCHEMA)
        found = evaluate(bound.expression, batch)
    except ExpressionError:
        return
    assert found.type == bound.data_type
    assert len(found) == batch.num_rows
    found.validate(full=True)


@example(ex.Cast(ex.Literal(pa.scalar(None)), pa.time32("s"), False))
@example(ex.Member(ex.literal(0), "x"))
@given(ANYTHING)
def test_any_expression_round_trips_through_text(expression):
    read = parse(str(expression))  # with constants folded that were cast
    assert parse(str(read)) == read
