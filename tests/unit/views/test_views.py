"""Queries of views, and the errors of views."""

import uuid

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lancelet
from lancelet.errors import (
    AlreadyExistsError,
    CorruptDataError,
    DatasetNotFoundError,
    ExpressionError,
    InvalidInputError,
    UnsupportedError,
    ViewFunctionError,
)
from lancelet.views.definition import Aggregation, FunctionCall
from lancelet.views.statement import parse_query


def new_source(rows=None, **options):
    data = rows or {"id": [1, 2, 3], "city": ["a", "b", "a"], "n": [5, 6, 7]}
    uri = f"memory://{uuid.uuid4().hex}"
    return lancelet.write_dataset(data, uri, enable_stable_row_ids=True, **options)


def uri_of(source, name="view"):
    return f"{source.uri}-{name}"


def test_a_query_has_columns_a_filter_and_groups():
    query = parse_query(
        "select city AS place, COUNT(*) as n, avg(n + 1) as mean, count(`a b`) AS c "
        "FROM Source where n > 3 and city in ('x, y', 'z') group by city",
        ["city", "n", "a b"],
    )
    values = {column.name: column.value for column in query.columns}
    assert values == {
        "place": "city",
        "n": Aggregation("count"),
        "mean": Aggregation("avg", "n + 1"),
        "c": Aggregation("count", "`a b`"),
    }
    assert query.filter == "n > 3 and city in ('x, y', 'z')"
    assert query.groups == ("city",)


def test_a_star_has_the_columns_of_the_table_at_creation():
    query = parse_query("SELECT *, f(a, b) AS c FROM source", ["a", "b c"], ["f"])
    assert [(each.name, each.value) for each in query.columns] == [
        ("a", "a"),
        ("b c", "`b c`"),
        ("c", FunctionCall("f", ("a", "b"))),
    ]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("UPDATE source", "SELECT is expected"),
        ("SELECT DISTINCT n FROM source", "use GROUP BY"),
        ("SELECT n FROM other", "called `source`"),
        ("SELECT n + 1 FROM source", "name the column"),
        ("SELECT n FROM source ORDER BY n", "sort the rows when"),
        ("SELECT n FROM source LIMIT 3", "limit the rows when"),
        ("SELECT n FROM source JOIN t ON n", "pass the joined table"),
        ("SELECT city, count(*) AS c FROM source", "an aggregate or an expression of GROUP BY"),
        ("SELECT sum(n) + 1 AS s FROM source", "must be whole columns"),
        ("SELECT sum() AS s FROM source", "requires an argument"),
        ("SELECT sum(n, n) AS s FROM source", "one argument"),
        ("SELECT count(DISTINCT n) AS s FROM source", "DISTINCT is not supported"),
        ("SELECT n, n FROM source", "same name"),
        ("SELECT n AS _group_key FROM source", "reserved"),
        ("SELECT n FROM source GROUP n", "BY is expected"),
        ("SELECT FROM source", "expression is expected"),
        ("SELECT n AS 3 FROM source", "column name is expected"),
        ("SELECT f(n) AS g, city FROM source GROUP BY city", "cannot be combined with GROUP BY"),
        ("SELECT n FROM source WHERE n > ", "expected a value"),
        ("SELECT (n FROM source", "expected"),
    ],
)
def test_other_queries_are_rejected(query, message):
    with pytest.raises(InvalidInputError, match=message):
        parse_query(query, ["city", "n"], ["f"])


def test_unsuitable_columns_are_rejected_at_creation():
    source = new_source()
    with pytest.raises(ExpressionError, match="missing"):
        source.create_view(uri_of(source), "SELECT missing FROM source")
    with pytest.raises(InvalidInputError, match="unsupported type"):
        source.create_view(uri_of(source), "SELECT sum(city) AS s FROM source")
    source.create_view(uri_of(source), "SELECT id FROM source")
    with pytest.raises(AlreadyExistsError):
        source.create_view(uri_of(source), "SELECT id FROM source")


def test_other_tables_are_no_views():
    source = new_source()
    with pytest.raises(InvalidInputError, match="create_view"):
        lancelet.open_view(source.uri)
    view = source.create_view(uri_of(source), "SELECT id FROM source")
    view.dataset.update_config({"lancelet.view": "{}"})
    with pytest.raises(CorruptDataError, match="create the view again"):
        lancelet.open_view(view.uri)


def test_a_view_is_opened_with_its_definition():
    source = new_source()
    created = source.create_view(uri_of(source), "SELECT id, n * 2 AS twice FROM source")
    view = lancelet.open_view(created.uri)
    assert (view.query, view.source_uri, view.source_version) == (
        "SELECT id, n * 2 AS twice FROM source",
        source.uri,
        1,
    )
    assert view.schema.names == ["id", "twice"]
    assert view.dataset.schema.names == ["id", "twice", "_source_row_id"]
    assert view.to_table(columns=["twice"], filter="id > 1")["twice"].to_pylist() == [12, 14]
    assert "source_version=1" in repr(view)


def test_dry_runs_change_nothing():
    source = new_source()
    view = source.create_view(uri_of(source), "SELECT id FROM source")
    source.delete("id = 1")
    plan = view.refresh(dry_run=True)
    assert (plan.kind, plan.begin, plan.end, plan.deleted) == ("incremental", 1, 2, 1)
    assert view.explain() == plan
    assert view.dataset.version == 1
    assert view.refresh() == plan
    assert view.dataset.version == 2


def test_unchanged_rows_are_one_commit_too():
    source = new_source()
    view = source.create_view(uri_of(source), "SELECT id FROM source WHERE id < 0")
    source.delete("id = 1")
    assert view.refresh().kind == "incremental"
    assert lancelet.open_view(view.uri).source_version == 2


def test_appended_rows_are_appended():
    source = new_source()
    view = source.create_view(uri_of(source), "SELECT id FROM source")
    source.insert({"id": [9], "city": ["z"], "n": [1]})
    view.refresh()
    assert len(view.dataset.get_fragments()) == 2
    assert view.to_table()["id"].to_pylist() == [1, 2, 3, 9]


def test_functions_are_passed_again():
    source = new_source()
    query = "SELECT id, shout(city) AS city FROM source"
    calls = []

    def shout(cities):
        calls.append(len(cities))
        return pc.utf8_upper(cities)

    view = source.create_view(uri_of(source), query, functions={"shout": shout})
    assert view.to_table()["city"].to_pylist() == ["A", "B", "A"]
    source.insert({"id": [9], "city": ["z"], "n": [1]})
    with pytest.raises(ViewFunctionError, match="functions="):
        view.refresh()
    calls.clear()
    view.refresh(functions={"shout": shout})
    assert sum(calls) == 1
    source.insert({"id": [10], "city": ["z"], "n": [1]})
    with pytest.raises(ViewFunctionError, match="one value per row"):
        view.refresh(functions={"shout": lambda _: pa.array([], pa.string())})
    with pytest.raises(ViewFunctionError, match="another type"):
        view.refresh(functions={"shout": lambda c: pa.array([[1]] * len(c))})
    with pytest.raises(ExpressionError):
        source.create_view(uri_of(source, "w"), query)


def test_a_source_that_is_created_again_is_computed_again():
    source = new_source()
    view = source.create_view(uri_of(source), "SELECT sum(n) AS total FROM source")
    lancelet.LanceDataset.drop(source.uri)
    again = lancelet.write_dataset({"n": [1], "m": [2]}, source.uri, enable_stable_row_ids=True)
    plan = view.refresh()
    assert (plan.kind, plan.reason) == ("full", "the source table was created again")
    assert view.to_table()["total"].to_pylist() == [1]
    again.insert({"n": [3], "m": [4]})
    assert view.refresh().kind == "incremental"
    assert view.to_table()["total"].to_pylist() == [4]


def test_a_view_follows_its_branch():
    source = new_source()
    branch = source.create_branch("dev")
    view = branch.create_view(uri_of(source), "SELECT id FROM source")
    source.delete("true")
    assert view.refresh().kind == "none"
    branch.insert({"id": [9], "city": ["z"], "n": [1]})
    assert view.refresh().kind == "incremental"
    assert view.to_table()["id"].to_pylist() == [1, 2, 3, 9]


def test_a_dropped_column_of_the_query_is_reported():
    source = new_source()
    view = source.create_view(uri_of(source), "SELECT id, n FROM source")
    source.drop_columns(["n"])
    with pytest.raises(ExpressionError, match="n"):
        view.refresh()


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(*) AS rows FROM source",
        "SELECT 1 AS one, count(*) AS rows FROM source GROUP BY 1",
        "SELECT 1 AS one FROM source",
        "SELECT id FROM source WHERE true",
    ],
)
def test_constants_are_refreshed(query):
    source = new_source({"id": list(range(9))})
    view = source.create_view(uri_of(source), query)
    source.insert({"id": [9]})
    source.delete("id = 2")
    assert view.refresh().kind == "incremental"
    assert view.to_table() == source.create_view(uri_of(source, "new"), query).to_table()


@pytest.mark.parametrize("query", ["SELECT id, n FROM source", "SELECT sum(n) AS n FROM source"])
def test_a_renamed_column_replaces_the_values_of_another(query):
    source = new_source({"id": list(range(9)), "n": list(range(9)), "m": list(range(10, 19))})
    view = source.create_view(uri_of(source), query)
    source.alter_columns({"path": "n", "name": "old"}, {"path": "m", "name": "n"})
    plan = view.refresh()
    assert (plan.kind, plan.reason) == ("full", "columns of the query were replaced")
    assert view.to_table() == source.create_view(uri_of(source, "new"), query).to_table()


def test_a_column_that_is_added_again_has_other_values():
    data = {"id": list(range(9)), "n": list(range(9))}
    source = lancelet.write_dataset(data, f"memory://{uuid.uuid4().hex}")
    view = source.create_view(uri_of(source), "SELECT id, n FROM source")
    source.drop_columns(["n"])
    source.add_columns({"n": "id + 100"})
    assert view.refresh().kind == "full"
    assert view.to_table()["n"].to_pylist() == list(range(100, 109))


def test_positions_of_rows_are_computed_again():
    source = new_source({"id": list(range(9))})
    view = source.create_view(uri_of(source), "SELECT id, _rowaddr AS place FROM source")
    source.delete("id = 0")
    source.optimize.compact_files()
    assert view.refresh().reason == "the query contains the positions of rows"
    assert view.to_table()["place"].to_pylist() == [(1 << 32) + each for each in range(8)]


@pytest.mark.parametrize("result", [None, 5])
def test_results_that_are_no_arrays_are_reported(result):
    source = new_source()
    with pytest.raises(ViewFunctionError, match="no array"):
        source.create_view(
            uri_of(source), "SELECT f(n) AS n FROM source", functions={"f": lambda _: result}
        )


def test_names_of_row_columns_are_reserved():
    source = new_source()
    with pytest.raises(InvalidInputError, match="row column"):
        source.create_view(uri_of(source), "SELECT _rowid, n FROM source")


def test_columns_may_be_called_like_inputs():
    source = new_source({"id": list(range(9)), "_passes": [1] * 9, "_argument_2_0": [5] * 9})
    query = "SELECT _passes, _argument_2_0, same(id) AS id FROM source WHERE id > 2"
    functions = {"same": lambda ids: ids}
    view = source.create_view(uri_of(source), query, functions=functions)
    source.update({"_passes": "2"}, where="id = 3")
    assert view.refresh(functions=functions).kind == "incremental"
    new = source.create_view(uri_of(source, "new"), query, functions=functions)
    assert view.to_table().sort_by("id") == new.to_table().sort_by("id")


def test_averages_of_large_integers_are_rounded():
    large = 2**60
    source = new_source({"id": [1, 2, 3], "n": [large, large + 1, 5]})
    view = source.create_view(uri_of(source), "SELECT avg(n) AS mean FROM source")
    source.delete("id = 3")
    assert view.refresh().kind == "incremental"
    assert view.to_table()["mean"].to_pylist() == [float(large)]


@pytest.mark.parametrize("dropped", ["city", "_group_rows", "_group_sum_0", "_group_key"])
def test_columns_that_were_removed_are_computed_again(dropped):
    source = new_source()
    query = "SELECT city, sum(n) AS total FROM source GROUP BY city"
    view = source.create_view(uri_of(source), query)
    view.dataset.drop_columns([dropped])
    assert view.refresh().reason == "columns of the view were removed"
    assert view.to_table().to_pylist() == [{"city": "a", "total": 12}, {"city": "b", "total": 6}]


def test_halves_are_groups():
    keys = pa.array([0.5, 2.0, 0.0, -0.0, float("nan"), None], pa.float32()).cast(pa.float16())
    source = new_source(pa.table({"id": range(6), "key": keys}))
    query = "SELECT key, count(*) AS rows FROM source GROUP BY key"
    view = source.create_view(uri_of(source), query)
    source.delete("id = 2")
    assert view.refresh().kind == "incremental"
    assert sorted(map(str, view.to_table().to_pylist())) == sorted(
        str({"key": key, "rows": 1}) for key in (0.5, 2.0, 0.0, float("nan"), None)
    )


def test_views_of_views_are_refreshed_from_their_changes():
    source = new_source({"id": list(range(20)), "n": list(range(20))})
    first = source.create_view(uri_of(source), "SELECT id, n FROM source WHERE n < 15")
    second = first.dataset.create_view(uri_of(source, "w"), "SELECT sum(n) AS total FROM source")
    source.update({"n": "n + 100"}, where="id < 2")
    first.refresh()
    assert second.refresh().kind == "incremental"
    assert second.to_table()["total"].to_pylist() == [sum(range(2, 15))]


def test_pylance_reads_a_view(tmp_path):
    import lance

    source = lancelet.write_dataset({"id": [1, 2], "n": [3, 4]}, tmp_path / "s")
    view = source.create_view(tmp_path / "v", "SELECT n, count(*) AS c FROM source GROUP BY n")
    source.insert({"id": [3], "n": [4]})
    view.refresh(full=True)
    found = lance.dataset(str(tmp_path / "v")).to_table(columns=["n", "c"])
    assert sorted(map(tuple, map(dict.values, found.to_pylist()))) == [(3, 1), (4, 2)]


@pytest.mark.parametrize(
    "query",
    ["SELECT id, city, n FROM source", "SELECT city, sum(n) AS n FROM source GROUP BY city"],
)
def test_columns_that_were_added_to_a_view_keep_their_values(query):
    source = new_source({"id": [1, 2, 3, 4], "city": ["a", "b", "c", "d"], "n": [5, 6, 7, 8]})
    view = source.create_view(uri_of(source), query)
    view.dataset.add_columns({"note": "upper(city)"})
    view.refresh(dry_run=True)
    source.update({"n": "n + 1"}, where="city = 'a'")
    source.insert(pa.table({"id": [9], "city": ["z"], "n": [1]}))
    assert view.refresh().kind == "incremental"
    found = view.dataset.to_table(columns=["city", "n", "note"]).to_pylist()
    notes = {row["city"]: (row["n"], row["note"]) for row in found}
    assert notes == {"a": (6, "A"), "b": (6, "B"), "c": (7, "C"), "d": (8, "D"), "z": (1, None)}


def test_a_star_leaves_out_the_columns_of_another_view():
    source = new_source()
    by_city = source.create_view(
        uri_of(source), "SELECT city, count(*) AS rows FROM source GROUP BY city"
    )
    view = by_city.dataset.create_view(uri_of(source, "all"), "SELECT * FROM source")
    assert view.schema.names == ["city", "rows"]


def test_a_column_that_allows_nulls_later_has_nulls():
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    source = new_source(pa.table({"id": range(9)}, schema=schema))
    view = source.create_view(uri_of(source), "SELECT id FROM source")
    source.alter_columns({"path": "id", "nullable": True})
    source.insert(pa.table({"id": pa.array([None], pa.int64())}))
    assert view.refresh().reason == "columns of the query were replaced"
    assert view.to_table()["id"].null_count == 1


@pytest.mark.parametrize("column", ["now() AS at", "random() AS x"])
def test_varying_results_are_computed_for_all_rows(column):
    source = new_source()
    view = source.create_view(uri_of(source), f"SELECT id, {column} FROM source")
    source.delete("id = 1")
    plan = view.refresh()
    assert (plan.kind, plan.reason) == (
        "full",
        "the query contains the current time or random values",
    )


def test_fields_may_be_called_like_keywords():
    query = parse_query("SELECT s.group FROM source AS s WHERE s.order > 1", ["group", "order"])
    assert (query.columns[0].name, query.filter) == ("group", "`order` > 1")


def test_blob_columns_are_rejected():
    blob = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    source = new_source(pa.table({"b": [b"x"]}, schema=pa.schema([blob])))
    with pytest.raises(UnsupportedError, match="no blob columns"):
        source.create_view(uri_of(source), "SELECT b FROM source")


def test_a_relative_source_is_found_from_another_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = lancelet.write_dataset({"id": [1, 2, 3]}, "source", enable_stable_row_ids=True)
    view = source.create_view("view", "SELECT id FROM source")
    assert view.source_uri == str(tmp_path / "source")
    source.delete("id = 1")
    monkeypatch.chdir(tmp_path.parent)
    assert lancelet.open_view(tmp_path / "view").refresh().kind == "incremental"


def test_tables_that_were_moved_are_passed_once(tmp_path):
    source = lancelet.write_dataset({"k": [1, 2] * 3}, tmp_path / "a", enable_stable_row_ids=True)
    names = lancelet.write_dataset({"id": [1, 2]}, tmp_path / "b", enable_stable_row_ids=True)
    query = "SELECT count(*) AS rows FROM source JOIN names ON k = id"
    uri = source.create_view(tmp_path / "view", query, tables={"names": names}).uri
    for old, new in (("a", "c"), ("b", "d")):
        (tmp_path / old).rename(tmp_path / new)
    with pytest.raises(DatasetNotFoundError) as caught:
        lancelet.open_view(uri).refresh()
    assert "tables={'source': ...}" in "".join(caught.value.__notes__)
    with pytest.raises(InvalidInputError, match="no such table"):
        lancelet.open_view(uri, tables={"other": tmp_path / "c"})
    lancelet.dataset(tmp_path / "d").delete("id = 2")
    moved = {"source": tmp_path / "c", "names": tmp_path / "d"}
    lancelet.open_view(uri, tables=moved).refresh()
    view = lancelet.open_view(uri)
    assert view.refresh().kind == "none"
    assert view.to_table()["rows"].to_pylist() == [3]


@pytest.mark.parametrize("addition", ["index", "column"])
def test_changes_of_most_rows_keep_indices_and_added_columns(addition):
    source = new_source()
    view = source.create_view(uri_of(source), "SELECT id, n FROM source")
    if addition == "index":
        view.dataset.create_scalar_index("n", "BTREE")
    else:
        view.dataset.add_columns({"twice": "n * 2"})
    source.update({"n": "n + 1"}, where="id > 1")
    assert view.refresh().kind == "incremental"
    assert view.to_table(columns=["id"], filter="n = 8")["id"].to_pylist() == [3]
    if addition == "index":
        assert len(view.dataset.describe_indices()) == 1
    else:
        assert sorted(view.dataset.to_table()["twice"].to_pylist()) == [10, 12, 14]
