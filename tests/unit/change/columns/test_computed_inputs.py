"""Inputs of computed columns are found by field id, whatever their names are."""

import json
import uuid

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lancelet
from lancelet import ComputedColumn
from lancelet.change.columns.fields import ColumnError
from lancelet.table.computed_columns import STORED_KEY, Definition, InputField

UPPER = {"upper": pc.utf8_upper}


def upper(texts):
    return pc.utf8_upper(texts)


def table_of(data, **options):
    uri = f"memory://{uuid.uuid4().hex}"
    return lancelet.write_dataset(data, uri, enable_stable_row_ids=True, **options)


def books():
    data = pa.table({"id": [1, 2], "title": ["a", "b"], "body": ["x", "y"]})
    return table_of(data)


def swap(dataset, one, other):
    dataset.alter_columns({"path": one, "name": "swapped"})
    dataset.alter_columns({"path": other, "name": one})
    dataset.alter_columns({"path": "swapped", "name": other})


@pytest.mark.parametrize(
    "column",
    [
        ComputedColumn("loud", "upper(title)"),
        ComputedColumn("loud", upper, ("title",), pa.string()),
        ComputedColumn("loud", upper, ("trim(Title)",), pa.string()),
    ],
)
def test_names_that_were_swapped_are_followed(column):
    dataset = books()
    dataset.add_columns(column)
    swap(dataset, "title", "body")
    assert dataset.stale_rows().rows == 0
    assert "body" in dataset.stale_rows().columns["loud"]
    dataset.insert({"id": [3], "title": ["no"], "body": ["c"]})
    dataset.update({"title": "'z'", "body": "'d'"}, where="id = 1")
    dataset.refresh_columns({"upper": upper})
    assert sorted(dataset.to_table()["loud"].to_pylist()) == ["B", "C", "D"]


def test_renamed_structs_and_quoted_names_are_followed():
    data = pa.table({"s": [{"x": 1, "y z": 2}], "a b": [3]})
    dataset = table_of(data)
    dataset.add_columns(ComputedColumn("sum", "s.x + s.`y z` + `a b`"))
    dataset.alter_columns({"path": "s.x", "name": "w"}, {"path": "s", "name": "t"})
    dataset.alter_columns({"path": "`a b`", "name": "x y"})
    dataset.insert(pa.table({"t": [{"w": 10, "y z": 20}], "x y": [30]}))
    assert dataset.stale_rows().columns == {"sum": "t.w + t.`y z` + `x y`"}
    dataset.refresh_columns()
    assert dataset.to_table()["sum"].to_pylist() == [6, 60]


def test_all_rows_are_out_of_date_after_a_child_of_an_input_was_added_or_dropped():
    dataset = table_of(pa.table({"id": [1, 2], "s": [{"x": 1, "y": 1}, {"x": 2, "y": 1}]}))

    def count(structs):
        return pa.array([len(structs.type)] * len(structs))

    dataset.add_columns(ComputedColumn("n", count, ("s",), pa.int64()))
    dataset.add_columns({"s.z": "id"})
    assert dataset.stale_rows().rows == 2
    assert dataset.refresh_columns({"count": count}, max_rows=1).remaining == 1
    assert dataset.refresh_columns({"count": count}).refreshed == 1
    assert dataset.to_table()["n"].to_pylist() == [3, 3]
    dataset.drop_columns(["s.x", "s.y"])
    assert dataset.refresh_columns({"count": count}).refreshed == 2
    assert dataset.to_table()["n"].to_pylist() == [1, 1]


@pytest.mark.parametrize("path", ["title", "s.x", "s"])
def test_inputs_whose_type_was_cast_are_followed(path):
    data = pa.table({"title": [1, 2], "s": [{"x": 5}, {"x": 6}]})
    dataset = table_of(data)
    dataset.add_columns(ComputedColumn("twice", f"{'s.x' if path == 's' else path} * 2"))
    casts = {"path": "s.x" if path == "s" else path, "data_type": pa.int32(), "name": "n"}
    dataset.alter_columns(casts)
    expected = [2 * n for n in ([1, 2] if path == "title" else [5, 6])]
    dataset.refresh_columns()
    assert dataset.to_table()["twice"].to_pylist() == expected


def test_an_input_is_dropped_only_together_with_its_column():
    dataset = books()
    dataset.add_columns(ComputedColumn("loud", "upper(title)"))
    with pytest.raises(ColumnError, match="drop the computed column first") as caught:
        dataset.drop_columns(["title"])
    assert caught.value.facts == {"column": "title", "computed": "loud"}
    dataset.drop_columns(["title", "loud"])
    assert dataset.schema.names == ["id", "body"]


def test_definitions_of_earlier_releases_are_found_by_name():
    dataset = books()
    dataset.add_columns(ComputedColumn("loud", "upper(title)"))
    old = {"expression": "upper(title)", "function": None, "inputs": ["upper(title)"]}
    dataset.update_field_metadata({"loud": {STORED_KEY: json.dumps(old)}})
    dataset.insert({"id": [3], "title": ["c"], "body": ["z"]})
    assert dataset.refresh_columns().refreshed == 1
    assert dataset.to_table()["loud"].to_pylist() == ["A", "B", "C"]
    swap(dataset, "title", "body")
    dataset.insert({"id": [4], "title": ["no"], "body": ["d"]})
    dataset.refresh_columns()
    assert dataset.to_table()["loud"].to_pylist() == ["A", "B", "C", "D"]


def test_definitions_are_read_as_they_were_written():
    field = InputField(("s", "x", "key"), 2, (4, 5))
    definition = Definition(None, "embed", ("s.x['key']",), (field,))
    assert Definition.parse(definition.render(), "v") == definition


CHANGES = st.one_of(
    st.tuples(st.just("insert"), st.integers(0, 9)),
    st.tuples(st.just("update"), st.sampled_from(["one", "two"]), st.integers(0, 9)),
    st.tuples(st.just("delete"), st.integers(0, 9)),
    st.tuples(st.just("swap")),
    st.tuples(st.just("rename"), st.sampled_from(["one", "two"])),
    st.tuples(st.just("compact")),
    st.tuples(st.just("add")),
    st.tuples(st.just("merge"), st.integers(0, 9)),
    st.tuples(st.just("replace"), st.sampled_from(["one", "two"])),
    st.tuples(st.just("refresh"), st.none() | st.integers(1, 3)),
)


@settings(max_examples=80, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(CHANGES, max_size=12))
def test_values_equal_the_function_of_the_present_inputs(changes):
    data = pa.table({"id": range(6), "one": list("abcdef"), "two": list("uvwxyz")})
    dataset = table_of(data, max_rows_per_file=2)
    dataset.add_columns(ComputedColumn("loud", upper, ("one",), pa.string()))
    dataset.add_columns(ComputedColumn("both", "concat(two, '-', one)"))
    names = {"one": "one", "two": "two"}
    for number, change in enumerate([*changes, ("refresh", None)]):
        match change:
            case ("insert", key):
                texts = {names["one"]: [f"i{number}"], names["two"]: ["j"]}
                new = pa.table({"id": [key], **texts})
                extra = [name for name in dataset.schema.names if name.startswith("n")]
                for name in extra:
                    if name not in new.column_names:
                        new = new.append_column(name, pa.nulls(1, pa.int64()))
                dataset.insert(new)
            case ("update", which, key):
                dataset.update({names[which]: f"'u{number}'"}, where=f"id % 4 = {key % 4}")
            case ("delete", key):
                dataset.delete(f"id = {key}")
            case ("swap",):
                swap(dataset, names["one"], names["two"])
                names = {"one": names["two"], "two": names["one"]}
            case ("rename", which):
                dataset.alter_columns({"path": names[which], "name": f"t{number}"})
                names[which] = f"t{number}"
            case ("compact",):
                dataset.optimize.compact_files()
            case ("add",):
                dataset.add_columns({f"n{number}": "id + 1"})
            case ("merge", key):
                rows = pa.table({"id": [key], names["one"]: [f"m{number}"]})
                dataset.merge_insert("id").when_matched_update_all().execute(rows)
            case ("replace", which):
                values = {}
                for fragment in dataset.get_fragments():
                    texts = [f"r{number}"] * fragment.count_rows()
                    values[fragment.fragment_id] = {names[which]: texts}
                if values:
                    dataset.replace_columns(values)
            case ("refresh", rows):
                dataset.refresh_columns({"upper": upper}, max_rows=rows, batch_size=2)
    assert dataset.stale_rows().rows == 0
    for row in dataset.to_table().to_pylist():
        one, two = row[names["one"]], row[names["two"]]
        assert (row["loud"], row["both"]) == (one.upper(), f"{two}-{one}")
