"""The names of Delta's Python API, and statements in cells of notebooks."""

import lance
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException

from lancelet import spark as ls
from lancelet.errors import DatasetNotFoundError, InvalidInputError
from lancelet.spark import LanceTable
from lancelet.spark.sql.magic import load_ipython_extension


@pytest.fixture
def path(tmp_path):
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": range(10), "n": [1] * 10}), uri, max_rows_per_file=5)
    return uri


def test_a_program_for_delta_moves_by_one_import(spark, path):
    table = LanceTable.forPath(spark, path)
    updates = spark.createDataFrame([(3, 30), (4, -1), (60, 6)], "id long, n long")
    done = (
        table.alias("t")
        .merge(updates.alias("s"), "t.id = s.id")
        .whenMatchedDelete("s.n < 0")
        .whenMatchedUpdate(set={"n": "s.n + t.n"})
        .whenNotMatchedInsertAll()
        .whenNotMatchedBySourceUpdate("t.id = 9", set={"n": "0"})
        .execute()
    )
    assert done.collect()[0].asDict() == {
        "num_affected_rows": 4,
        "num_updated_rows": 2,
        "num_deleted_rows": 1,
        "num_inserted_rows": 1,
    }
    rows = {row.id: row.n for row in table.toDF().collect()}
    assert rows == {0: 1, 1: 1, 2: 1, 3: 31, 5: 1, 6: 1, 7: 1, 8: 1, 9: 0, 60: 6}
    table.update("id = 5", set={"n": "n + 4"})
    table.delete("id > 50")
    assert table.optimize().where("id < 5").execute_compaction().count() == 1
    assert [row.operation for row in table.history().collect()][-3:] == [
        "Update",
        "Update",
        "Overwrite",
    ]
    latest = lance.dataset(path).version
    assert [row.version for row in table.history(2).collect()] == [latest, latest - 1]
    table.restoreToVersion(1)
    assert table.to_df().count() == 10
    with pytest.raises(InvalidInputError, match="RETAIN 1 VERSIONS"):
        table.vacuum(0)
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    table.vacuum(0)
    spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")
    assert len(lance.dataset(path).versions()) == 1
    assert LanceTable.isDeltaTable(spark, path)
    assert not LanceTable.is_lance_table(spark, path + ".none")


def test_expressions_of_other_frames_and_sources_are_rejected(spark, path):
    table = LanceTable.for_path(spark, path)
    with pytest.raises(AnalysisException):
        table.delete(spark.range(1).id == 1)
    few = spark.createDataFrame([(3, 9)], "id long, n long")
    text = (
        f"MERGE INTO lance.`{path}` t USING {{few}} ON t.id = few.id WHEN MATCHED THEN UPDATE SET *"
    )
    assert ls.sql(spark, text, few=few).collect()[0][1] == 1
    with pytest.raises(InvalidInputError, match="more than one source"):
        table.merge(spark.range(1), "target.id = a.id AND b.id = 1")
    with pytest.raises(DatasetNotFoundError):
        LanceTable.for_path(spark, path + ".none")
    assert lance.dataset(path).version == 2


def test_cells_of_notebooks_run_statements(spark, path):
    class Shell:
        def __init__(self):
            self.user_ns = {"spark": spark, "low": 8, "few": spark.range(100)}
            self.magics = {}

        def register_magic_function(self, function, kind, name):
            self.magics[kind, name] = function

    shell = Shell()
    load_ipython_extension(shell)
    run = shell.magics["cell", "lance_sql"]
    shown = run(
        "found --rows 1",
        f"SELECT t.id FROM lance.`{path}` t JOIN {{few}} USING (id)\nWHERE id >= :low",
    )
    assert shown.rows.num_rows == 1
    assert "There are more rows" in shown._repr_html_()
    assert repr(shown).startswith("id\n")
    assert shell.user_ns["found"].count() == 2
    assert run("", f"CREATE TAG x ON lance.`{path}`").rows.num_columns == 0
    with pytest.raises(InvalidInputError, match="--rows"):
        run("--row 1", "SELECT 1")
    del shell.user_ns["spark"]
    with pytest.raises(InvalidInputError, match="no variable"):
        run("", "SELECT 1")


def test_rows_are_joined_with_their_nearest(spark, tmp_path):
    uri = str(tmp_path / "v.lance")
    vectors = pa.array([[float(i), 0.0] for i in range(20)], pa.list_(pa.float32(), 2))
    lance.write_dataset(pa.table({"id": range(20), "v": vectors}), uri)
    queries = spark.createDataFrame(
        [("a", [3.2, 0.0]), ("b", [17.9, 0.0])], "name string, q array<float>"
    )
    found = ls.nearest_join(queries, uri, column="v", query_column="q", k=2, columns=["id"])
    rows = {(row.name, row.id) for row in found.collect()}
    assert rows == {("a", 3), ("a", 4), ("b", 18), ("b", 17)}
    assert found.columns == ["name", "id", "_distance"]
