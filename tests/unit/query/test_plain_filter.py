"""The short cut for filters of one comparison gives what compiling them in full gives."""

from types import SimpleNamespace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lancelet
from lancelet.format.schema import Schema
from lancelet.io.cache import LruCache
from lancelet.query.compile import compile_filter
from lancelet.query.plain_filter import read_plain
from lancelet.query.plan import plan_scan, projection_of
from lancelet.query.scan_options import ScanOptions

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


@given(
    column=st.sampled_from(list(COLUMNS)),
    operator=st.sampled_from(["=", "<", "<=", ">", ">="]),
    constants=st.lists(NUMBERS.map(str) | TEXTS.map(lambda text: f"'{text}'"), min_size=2),
)
def test_filters_of_one_form_are_compiled_as_each_is_alone(snapshot, column, operator, constants):
    for constant in constants:
        text = f"{column} {operator} {constant}"
        try:
            expected = compile_filter(text, SCHEMA)
        except lancelet.errors.ExpressionError:
            with pytest.raises(lancelet.errors.ExpressionError):
                plan_scan(snapshot, ScanOptions(filter=text))
            continue
        plan = plan_scan(snapshot, ScanOptions(filter=text))
        assert plan.filter == expected
        assert [step.expression for step in plan.steps] == [
            step.expression for step in plan_scan(snapshot, ScanOptions(filter=expected)).steps
        ]


@pytest.mark.parametrize(
    "text", ["a", "a = b", "a = 1 OR b = 2", "a = 1.5", "a = 'it''s'", "not=1"]
)
def test_other_filters_are_left_to_the_parser(text):
    found = read_plain(text)
    assert found is None or found.bound(pa.decimal128(5, 1)) is None


@pytest.mark.parametrize("text", ["compiled_once < 5", "compiled_once < 5 AND compiled_once > 1"])
def test_a_filter_is_compiled_once_for_all_handles_and_versions_of_a_schema(
    tmp_path, monkeypatch, text
):
    compiled = []

    def counted(written, schema):
        compiled.append(written)
        return compile_filter(written, schema)

    monkeypatch.setattr("lancelet.query.plan.compile_filter", counted)
    path = tmp_path / "t.lance"
    rows = pa.table({"compiled_once": [1, 2, 7]})
    for version in (1, 2, 3):
        lancelet.write_dataset(rows, path, mode="append" if version > 1 else "create")
        assert lancelet.dataset(path).count_rows(text) >= version
    assert compiled == [text]


def test_what_is_kept_of_a_schema_weighs_as_much_as_the_schema_once():
    schema = Schema.from_arrow(pa.schema([(f"c{i}", pa.int32()) for i in range(2000)]))
    cache = LruCache(1 << 26)
    snapshot = SimpleNamespace(schema=schema, location=SimpleNamespace(kept=cache.scope()))
    weights = []
    for name in ("c0", "c1"):
        projection_of(snapshot, (name,))
        weights.append(cache.stats.bytes)
    assert weights[0] >= 2000 * 300
    assert weights[1] - weights[0] < 2000 * 30
