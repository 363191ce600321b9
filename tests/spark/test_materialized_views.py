"""Statements for materialised views."""

import pytest

import lancelet
import lancelet.spark as ls


@pytest.fixture
def lake(spark, tmp_path):
    ls.catalog(spark, "views", "dir", root=str(tmp_path / "lake"))
    rows = {"id": list(range(9)), "city": ["a", "b", "c"] * 3, "n": list(range(9))}
    lancelet.write_dataset(rows, tmp_path / "lake" / "people.lance", enable_stable_row_ids=True)
    yield lambda text: [tuple(row) for row in ls.sql(spark, text).collect()]
    ls.detach(spark, "views")


def test_a_view_is_created_read_and_refreshed(lake):
    lake(
        "CREATE MATERIALIZED VIEW views.towns AS SELECT city, count(*) AS people, sum(n) AS total "
        "FROM views.people WHERE n < 100 GROUP BY city"
    )
    query = "SELECT city, people, total FROM views.towns ORDER BY city"
    assert lake(query) == [("a", 3, 9), ("b", 3, 12), ("c", 3, 15)]
    lake("UPDATE views.people SET n = 1000 WHERE id = 8")
    assert lake("REFRESH MATERIALIZED VIEW views.towns") == [("incremental", 1, 2, 0, 1, 0, None)]
    assert lake(query) == [("a", 3, 9), ("b", 3, 12), ("c", 2, 7)]
    assert lake("REFRESH MATERIALIZED VIEW views.towns FULL")[0][-1] == "requested"
    with pytest.raises(Exception, match="exists already"):
        lake("CREATE MATERIALIZED VIEW views.towns AS SELECT id FROM views.people")
    lake("CREATE MATERIALIZED VIEW IF NOT EXISTS views.towns AS SELECT id FROM views.people")


def test_a_view_is_dropped_and_a_table_is_not(lake):
    lake("CREATE MATERIALIZED VIEW views.small AS SELECT id FROM views.people WHERE n < 2")
    with pytest.raises(Exception, match="create_view"):
        lake("DROP MATERIALIZED VIEW views.people")
    assert lake("SELECT count(*) FROM views.people") == [(9,)]
    lake("DROP MATERIALIZED VIEW views.small")
    lake("DROP MATERIALIZED VIEW IF EXISTS views.small")
    with pytest.raises(Exception, match=r"small"):
        lake("DROP MATERIALIZED VIEW views.small")


def test_views_of_paths_have_paths(lake, tmp_path):
    people, view = tmp_path / "lake" / "people.lance", tmp_path / "view.lance"
    lake(f"CREATE MATERIALIZED VIEW lance.`{view}` AS SELECT id FROM lance.`{people}` WHERE n > 6")
    assert lake(f"SELECT id FROM lance.`{view}`") == [(7,), (8,)]
    with pytest.raises(Exception, match="create_view"):
        lake(f"REFRESH MATERIALIZED VIEW lance.`{people}`")


def test_errors_show_the_position_of_the_query(lake):
    with pytest.raises(Exception, match=r"missing[^^]*line 1, column") as error:
        lake("CREATE MATERIALIZED VIEW views.v AS SELECT missing FROM views.people")
    assert "^" in str(error.value)
    with pytest.raises(Exception, match="remove AS OF"):
        lake("CREATE MATERIALIZED VIEW views.v AS SELECT id FROM views.people VERSION AS OF 1")
    assert [row[1] for row in lake("SHOW TABLES IN views")] == ["people"]
