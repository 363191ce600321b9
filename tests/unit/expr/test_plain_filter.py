"""The short cut for filters of plain comparisons gives what compiling them in full gives."""

from types import SimpleNamespace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lancelet
from lancelet.expr.compile import compile_filter
from lancelet.expr.expression import Operator
from lancelet.format.schema import Schema
from lancelet.io.cache import LruCache
from lancelet.scan.plan import plan_scan, projection_of, read_plain
from lancelet.scan.scan_options import ScanOptions

COLUMNS = {
    "a": pa.int8(),
    "b": pa.uint16(),
    "c": pa.int64(),
    "d": pa.float64(),
    "e": pa.string(),
    "f": pa.large_string(),
    "g": pa.decimal128(5, 1),
    "h": pa.bool_(),
    "select": pa.int32(),
}
SCHEMA = pa.schema(COLUMNS)
NUMBERS = st.sampled_from([-129, -128, -1, 0, 1, 126, 127, 128, 65534, 65535, 65536, 2**40])
TEXTS = st.text("ab' \\é;", max_size=4)


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory):
    path = tmp_path_factory.mktemp("plain") / "t.lance"
    return lancelet.write_dataset(pa.Table.from_pylist([], SCHEMA), path).snapshot


COMPARISONS = st.tuples(
    st.sampled_from(list(COLUMNS)), st.sampled_from(["=", "<", "<=", ">", ">="])
)
CONSTANTS = NUMBERS.map(str) | TEXTS.map(lambda text: f"'{text}'")


@given(
    form=st.lists(COMPARISONS, min_size=1, max_size=4),
    joined=st.sampled_from([" AND ", " and\n"]),
    data=st.data(),
)
def test_filters_of_one_form_are_compiled_as_each_is_alone(snapshot, form, joined, data):
    for _ in range(3):
        text = joined.join(f"{column} {sign} {data.draw(CONSTANTS)}" for column, sign in form)
        try:
            expected = compile_filter(text, SCHEMA)
        except lancelet.errors.ExpressionError:
            with pytest.raises(lancelet.errors.ExpressionError):
                plan_scan(snapshot, ScanOptions(filter=text))
            continue
        plan = plan_scan(snapshot, ScanOptions(filter=text))
        assert plan.filter == expected
        expected_steps = plan_scan(snapshot, ScanOptions(filter=expected)).steps
        assert list(map(_step, plan.steps)) == list(map(_step, expected_steps))


def _step(step):
    return step.expression, step.fields, step.row_columns


def test_joined_comparisons_are_parsed_separately():
    first, second = read_plain("a >= 1 AND e < 'x and y'")
    assert (first.form, second.constant) == (("a", Operator.GREATER_EQUAL, int), "x and y")


@pytest.mark.parametrize(
    "text",
    [
        "a",
        "a = b",
        "a = 1 OR b = 2",
        "a = 1.5",
        "a = 'it''s'",
        "not=1",
        "a = 1 AND ",
        "a = 1AND b = 2",
    ],
)
def test_other_filters_are_left_to_the_parser(text):
    assert all(part.bound(pa.decimal128(5, 1)) is None for part in read_plain(text))


@pytest.mark.parametrize(
    "text",
    ["compiled_once < 5", "compiled_once < 5 AND compiled_once > 1", "compiled_once < 5 OR false"],
)
def test_a_filter_is_compiled_once_for_all_handles_and_versions_of_a_schema(
    tmp_path, monkeypatch, text
):
    compiled = []

    def counted(written, schema):
        compiled.append(written)
        return compile_filter(written, schema)

    monkeypatch.setattr("lancelet.scan.plan.compile_filter", counted)
    path = tmp_path / "t.lance"
    rows = pa.table({"compiled_once": [1, 2, 7]})
    for version in (1, 2, 3):
        lancelet.write_dataset(rows, path, mode="append" if version > 1 else "create")
        assert lancelet.dataset(path).count_rows(text) >= version
    assert compiled == [text]


def test_cached_schema_data_is_weighed_once():
    schema = Schema.from_arrow(pa.schema([(f"c{i}", pa.int32()) for i in range(2000)]))
    cache = LruCache(1 << 26)
    snapshot = SimpleNamespace(
        schema=schema, location=SimpleNamespace(metadata_cache=cache.scope())
    )
    weights = []
    for name in ("c0", "c1"):
        projection_of(snapshot, (name,))
        weights.append(cache.stats.bytes)
    assert weights[0] >= 2000 * 300
    assert weights[1] - weights[0] < 2000 * 30
