"""Expressions declared as not null are never null; the reference mostly agrees."""

import lance
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lancelet
import lancelet.fragment
from lancelet.change.columns.from_expressions import may_be_null
from lancelet.expr.compile import compile_value
from lancelet.expr.evaluate import evaluate

STRUCT = pa.field("s", pa.struct([pa.field("x", pa.int64(), nullable=False)]), nullable=False)
SCHEMA = pa.schema(
    [pa.field("a", pa.int64(), nullable=False), ("n", pa.int64()), ("t", pa.string()), STRUCT]
)
EXPRESSIONS = {
    "a + 1": False,
    "a + n": True,
    "-a": False,
    "1": False,
    "cast(null as int)": True,
    "a > 1": False,
    "n > 1": True,
    "n is null": False,
    "coalesce(n, 0)": False,
    "coalesce(n, n)": True,
    "cast(a as int)": False,
    "try_cast(a as int)": True,
    "a > 1 and a < 3": False,
    "a > 1 or n < 3": True,
    "not (a > 1)": False,
    "a in (1, 2)": False,
    "a in (1, null)": True,
    "n in (1, 2)": True,
    "t like 'x%'": True,
    "a": False,
    "n": True,
    "s.x": False,
    "upper('x')": False,
    "upper(t)": True,
}
ROWS = st.lists(st.tuples(st.integers(0, 5), st.none() | st.integers(0, 5)), min_size=1)


@given(ROWS, st.sampled_from(sorted(EXPRESSIONS)))
def test_required_columns_have_no_nulls(rows, text):
    expression = compile_value(text, SCHEMA).expression
    assert may_be_null(expression, SCHEMA) == EXPRESSIONS[text]
    batch = pa.RecordBatch.from_pylist(
        [{"a": a, "n": n, "t": None if n is None else str(n), "s": {"x": a}} for a, n in rows],
        SCHEMA,
    )
    if not EXPRESSIONS[text]:
        assert evaluate(expression, batch).null_count == 0


def test_columns_are_as_nullable_as_those_of_the_reference(tmp_path):
    texts = [text for text in EXPRESSIONS if not text.startswith("try_cast") and text != "s.x"]
    columns = {f"c{place}": text for place, text in enumerate(texts)}
    rows = pa.Table.from_pylist([{"a": 1, "n": None, "t": "x", "s": {"x": 1}}], SCHEMA)
    schemas = []
    for module in (lancelet, lance):
        dataset = module.write_dataset(rows, tmp_path / module.__name__)
        dataset.add_columns(columns)
        schemas.append(dataset.schema)
    ours, theirs = ({field.name: field.nullable for field in schema} for schema in schemas)
    different = {columns[name] for name in columns if ours[name] != theirs[name]}
    assert different == set()


def test_a_new_required_column_conflicts_with_appended_rows(tmp_path):
    rows = pa.table({"a": [1]})
    dataset = lancelet.write_dataset(rows, tmp_path)
    stale = lancelet.fragment.write_fragments(rows, tmp_path, mode="append")
    dataset.add_columns({"b": "1"})
    with pytest.raises(OSError, match="another transaction"):
        lancelet.LanceDataset.commit(
            str(tmp_path), lancelet.LanceOperation.Append(stale), read_version=1
        )


@pytest.mark.parametrize(
    "kind",
    [
        pa.map_(pa.string(), pa.int32()),
        pa.struct([pa.field("a", pa.int32(), nullable=False)]),
        pa.list_(pa.field("item", pa.int32(), nullable=False)),
    ],
    ids=str,
)
def test_a_column_of_nulls_may_have_required_fields(tmp_path, kind):
    for module in (lancelet, lance):
        uri = str(tmp_path / module.__name__)
        dataset = module.write_dataset(pa.table({"k": [1], "s": [{"q": 2}]}), uri)
        nested = pa.field("s", pa.struct([("n", kind)]))
        dataset.add_columns(pa.schema([pa.field("x", kind), nested]))
        for reader in (lancelet, lance):
            found = reader.dataset(uri).to_table()
            assert found.schema.field("x").type == kind
            assert found.to_pylist() == [{"k": 1, "s": {"q": 2, "n": None}, "x": None}]


def test_a_field_of_a_nullable_struct_may_be_null(tmp_path):
    struct = pa.struct([pa.field("a", pa.int64(), nullable=False)])
    rows = pa.table({"s": pa.array([{"a": 1}, None], struct)})
    dataset = lancelet.write_dataset(rows, str(tmp_path / "t"))
    dataset.add_columns({"b": "s.a", "c": "s.a + 1"})
    assert dataset.schema.field("b").nullable
    assert dataset.to_table(columns=["b", "c"]).to_pylist() == [
        {"b": 1, "c": 2},
        {"b": None, "c": None},
    ]
