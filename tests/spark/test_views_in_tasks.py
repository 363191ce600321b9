"""Views that are refreshed by tasks equal those refreshed in one process."""

import contextlib
import os
import signal
from pathlib import Path

import pyarrow as pa
import pytest

import lancelet
import lancelet.spark as ls
from lancelet.errors import InvalidInputError

ROWS = 400
QUERIES = {
    "rows": "SELECT id, n * 2 AS twice FROM source WHERE n < 300",
    "groups": "SELECT k, count(*) AS rows, sum(n) AS total, max(n) AS most FROM source GROUP BY k",
    "total": "SELECT count(*) AS rows, min(n) AS low FROM source",
    "joined": "SELECT source.id, name FROM source JOIN names AS d ON k = d.id WHERE n < 300",
    "joined groups": (
        "SELECT name, count(*) AS rows, avg(n) AS mean FROM source LEFT JOIN names ON k = names.id "
        "GROUP BY name"
    ),
}


@pytest.fixture
def source(tmp_path):
    rows = pa.table(
        {"id": range(ROWS), "k": [each % 7 for each in range(ROWS)], "n": list(range(ROWS))}
    )
    return lancelet.write_dataset(
        rows, tmp_path / "source", enable_stable_row_ids=True, max_rows_per_file=100
    )


@pytest.fixture
def names(tmp_path):
    rows = pa.table({"id": range(5), "name": list("abcde")})
    return lancelet.write_dataset(rows, tmp_path / "names", enable_stable_row_ids=True)


def rows_of(view):
    return sorted(map(repr, view.to_table().to_pylist()))


def change(source, names):
    source.update({"n": "n + 1000"}, where="id % 40 = 3")
    source.delete("id % 50 = 7")
    source.insert(pa.table({"id": range(900, 930), "k": [1, 2, 3] * 10, "n": range(30)}))
    names.update({"name": "'z'"}, where="id = 2")


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_tasks_compute_the_rows_of_a_refresh(spark, tmp_path, source, names, query):
    view = source.create_view(tmp_path / "view", query, tables={"names": names})
    change(source, names)
    expected = rows_of(source.create_view(tmp_path / "now", query, tables={"names": names}))
    tasks = {}

    def count(progress):
        tasks[progress.phase] = progress.total

    plan = ls.refresh_view(view.uri, rows_per_task=20, spark=spark, progress=count)
    assert (plan.kind, plan.begin, plan.end) == ("incremental", 1, source.version)
    assert min(tasks.values()) > 1
    opened = lancelet.open_view(view.uri)
    assert opened.explain().kind == "none"
    assert opened.dataset.version == 2
    assert rows_of(opened) == expected
    tasks.clear()
    plan = ls.refresh_view(view.uri, full=True, bytes_per_task=1, spark=spark, progress=count)
    assert plan.kind == "full"
    assert min(tasks.values()) >= 4
    assert rows_of(lancelet.open_view(view.uri)) == expected


def test_rows_of_a_view_keep_their_ids(spark, tmp_path, source):
    view = source.create_view(tmp_path / "view", QUERIES["rows"])
    totals = view.dataset.create_view(tmp_path / "totals", "SELECT sum(twice) AS s FROM source")
    source.update({"n": "n + 1"}, where="id % 40 = 3")
    ls.refresh_view(view.uri, rows_per_task=3, spark=spark)
    plan = lancelet.open_view(totals.uri).refresh()
    assert (plan.kind, plan.inserted, plan.updated, plan.deleted) == ("incremental", 0, 8, 0)


def test_a_worker_that_is_killed_computes_its_rows_again(spark, tmp_path, source):
    marker = tmp_path / "killed"

    def doubled(numbers):
        return pa.array([2 * number for number in numbers.to_pylist()], pa.int64())

    def dying(numbers, folder=str(marker)):
        with contextlib.suppress(FileExistsError):
            Path(folder).mkdir()
            os.kill(os.getpid(), signal.SIGKILL)
        return pa.array([2 * number for number in numbers.to_pylist()], pa.int64())

    query = "SELECT id, f(n) AS twice FROM source WHERE n >= 0"
    view = source.create_view(tmp_path / "view", query, functions={"f": doubled})
    source.update({"n": "n + 1"}, where="id % 5 = 3")
    marker_before = marker.exists()
    ls.refresh_view(view.uri, functions={"f": dying}, rows_per_task=20, spark=spark)
    assert (marker_before, marker.exists()) == (False, True)
    found = lancelet.open_view(view.uri)
    assert (found.dataset.version, found.explain().kind) == (2, "none")
    expected = [(each["id"], 2 * each["n"]) for each in source.to_table().to_pylist()]
    assert sorted(tuple(row.values()) for row in found.to_table().to_pylist()) == sorted(expected)


def test_errors_of_tasks_change_nothing(spark, tmp_path, source, names):
    query = QUERIES["joined"]
    view = source.create_view(tmp_path / "view", query, tables={"names": names})
    source.update({"n": "n + 1"}, where="id % 5 = 3")
    names.insert(pa.table({"id": [2], "name": ["again"]}))
    with pytest.raises(InvalidInputError, match="delete all but one of them"):
        ls.refresh_view(view.uri, rows_per_task=20, spark=spark)
    assert lancelet.open_view(view.uri).dataset.version == 1


def test_statements_join_tables(spark, tmp_path, source, names):
    source.update({"n": "5"}, where="id = 8")
    view = tmp_path / "view"
    ls.sql(
        spark,
        f"""CREATE MATERIALIZED VIEW lance.`{view}` AS
            SELECT s.id, d.name FROM lance.`{source.uri}` AS s
            LEFT OUTER JOIN lance.`{names.uri}` d ON s.k = d.id WHERE s.n = 5""",
    )
    assert rows_of(lancelet.open_view(view)) == [
        "{'id': 5, 'name': None}",
        "{'id': 8, 'name': 'b'}",
    ]
    names.insert(pa.table({"id": [5], "name": ["f"]}))
    (row,) = ls.sql(spark, f"REFRESH MATERIALIZED VIEW lance.`{view}`").collect()
    assert tuple(row)[:6] == ("incremental", 2, 2, 0, 57, 0)
    assert rows_of(lancelet.open_view(view))[0] == "{'id': 5, 'name': 'f'}"


def test_names_of_tables_are_their_last_parts(spark, tmp_path, source, names):
    ls.catalog(spark, "joins", "dir", root=str(tmp_path / "lake"))
    try:
        for each, name in ((source, "sales"), (names, "names")):
            lancelet.write_dataset(each.to_table(), tmp_path / "lake" / f"{name}.lance")
        ls.sql(
            spark,
            "CREATE MATERIALIZED VIEW joins.v AS SELECT names.name, count(*) AS rows "
            "FROM joins.sales JOIN joins.names ON sales.k = names.id GROUP BY names.name",
        )
        found = ls.sql(spark, "SELECT name, rows FROM joins.v WHERE name = 'a'").collect()
        assert [tuple(row) for row in found] == [("a", 58)]
        with pytest.raises(Exception, match="remove AS OF"):
            ls.sql(
                spark,
                "CREATE MATERIALIZED VIEW joins.w AS SELECT n FROM joins.sales "
                "JOIN joins.names VERSION AS OF 1 ON sales.k = names.id",
            )
    finally:
        ls.detach(spark, "joins")


def test_views_of_tables_in_object_stores_are_refreshed(spark):
    pytest.importorskip("moto")
    from tests.kit.s3_server import S3Server

    with S3Server("lake") as server:
        options = server.storage_options
        rows = pa.table({"id": range(60), "k": [1, 2, 3] * 20})
        source = lancelet.write_dataset(
            rows,
            "s3://lake/sales.lance",
            enable_stable_row_ids=True,
            max_rows_per_file=20,
            storage_options=options,
        )
        names = lancelet.write_dataset(
            pa.table({"id": [1, 2], "name": ["a", "b"]}),
            "s3://lake/names.lance",
            enable_stable_row_ids=True,
            storage_options=options,
        )
        given = ", ".join(f"'storage.{name}' = '{value}'" for name, value in options.items())
        ls.sql(
            spark,
            f"""CREATE MATERIALIZED VIEW lance.`s3://lake/view.lance` WITH ({given}) AS
                SELECT name, count(*) AS rows FROM lance.`s3://lake/sales.lance` WITH ({given})
                LEFT JOIN lance.`s3://lake/names.lance` WITH ({given}) AS n ON k = n.id
                GROUP BY name""",
        )
        names.insert(pa.table({"id": [3], "name": ["c"]}))
        source.delete("id < 6")
        (row,) = ls.sql(
            spark, f"REFRESH MATERIALIZED VIEW lance.`s3://lake/view.lance` WITH ({given})"
        ).collect()
        assert (row.kind, row.updated, row.deleted) == ("incremental", 18, 6)
        names.update({"name": "'z'"}, where="id = 1")
        uri = "s3://lake/view.lance"
        ls.refresh_view(uri, rows_per_task=5, spark=spark, storage_options=options)
        view = lancelet.open_view(uri, storage_options=options)
        assert view.explain().kind == "none"
        assert rows_of(view) == [
            "{'name': 'b', 'rows': 18}",
            "{'name': 'c', 'rows': 18}",
            "{'name': 'z', 'rows': 18}",
        ]
