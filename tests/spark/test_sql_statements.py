"""Statements that make, change and describe Lance tables, each as one version."""

import contextlib
import re

import lance
import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql.utils import is_remote

import lancelet
from lancelet import spark as ls
from lancelet.errors import (
    AlreadyExistsError,
    DatasetNotFoundError,
    InvalidInputError,
    LanceletError,
    SchemaMismatchError,
    UnsupportedError,
)
from lancelet.spark import merging
from lancelet.spark.sql.source import StatementError


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "t.lance")


@pytest.fixture
def table(path):
    """Twenty rows in four fragments."""
    rows = pa.table(
        {"id": range(20), "name": [f"n{i}" for i in range(20)], "n": pa.array([1] * 20, pa.int32())}
    )
    lance.write_dataset(rows, path, max_rows_per_file=5)
    return path


@pytest.fixture
def run(spark, path):
    """Run a statement in which `t` in angle brackets is the table."""

    def run(text, **parameters):
        frame = ls.sql(spark, text.replace("<t>", f"lance.`{path}`"), **parameters)
        return [tuple(row) for row in frame.collect()]

    return run


def rows_of(path):
    return {
        row["id"]: (row["name"], row["n"]) for row in lance.dataset(path).to_table().to_pylist()
    }


def test_tables_are_made_replaced_described_and_dropped(run, path):
    run(
        """CREATE TABLE <t> (id BIGINT NOT NULL, v ARRAY<FLOAT>, price DECIMAL(9, 2)) USING lance
           TBLPROPERTIES ('vector.v' = 2, 'owner' = 'ann', enable_stable_row_ids = true)"""
    )
    made = lance.dataset(path)
    assert made.schema.field("v").type == pa.list_(pa.float32(), 2)
    assert not made.schema.field("id").nullable
    assert made.has_stable_row_ids
    assert made.config()["owner"] == "ann"
    assert made.version == 1, "a statement is one version"
    assert run("INSERT INTO <t> VALUES (1, array(0.5, 0.25), 1.5)") == [(1, 0, 0, 1)]
    assert run("DESCRIBE <t>") == [
        ("id", "bigint", "NOT NULL"),
        ("v", "array<float>", None),
        ("price", "decimal(9,2)", None),
    ]
    described = {row[0]: row[1] for row in run("DESCRIBE EXTENDED <t>")}
    assert described["Rows"] == "1"
    assert described["Property owner"] == "ann"
    with pytest.raises(AlreadyExistsError):
        run("CREATE TABLE <t> (id BIGINT)")
    run("CREATE TABLE IF NOT EXISTS <t> (id BIGINT)")
    assert run("SELECT v FROM <t>") == [([0.5, 0.25],)]
    run("CREATE OR REPLACE TABLE <t> TBLPROPERTIES ('a' = 'b') AS SELECT id + 1 AS k FROM <t>")
    assert lance.dataset(path).to_table().to_pydict() == {"k": [2]}
    assert lance.dataset(path).version == 3
    assert lance.dataset(path).config()["a"] == "b"
    run("DROP TABLE <t>")
    with pytest.raises(DatasetNotFoundError):
        run("DROP TABLE <t>")
    run("DROP TABLE IF EXISTS <t>")


def test_rows_are_inserted_by_position_by_name_and_instead_of_others(run, table):
    run("INSERT INTO <t> (n, id) SELECT 7, id + 100 FROM <t> WHERE id < 2")
    run("INSERT INTO <t> BY NAME SELECT 'new' AS name, 200L AS id")
    found = rows_of(table)
    assert found[101] == (None, 7)
    assert found[200] == ("new", None)
    assert run("INSERT INTO <t> REPLACE WHERE id >= 100 SELECT 150L, 'kept', 3") == [(1, 0, 0, 1)]
    assert {each for each in rows_of(table) if each >= 100} == {150}
    with pytest.raises(InvalidInputError, match="do not match the condition"):
        run("INSERT INTO <t> REPLACE WHERE id >= 100 SELECT 50L, 'out', 3")
    with pytest.raises(StatementError, match="REPLACE WHERE supports"):
        run("INSERT INTO <t> REPLACE WHERE rlike(name, 'a') SELECT 50L, 'out', 3")
    version = lance.dataset(table).version
    run("INSERT OVERWRITE <t> SELECT * FROM <t> WHERE id = 3")
    assert rows_of(table) == {3: ("n3", 1)}
    assert lance.dataset(table).version == version + 1


def test_values_are_stored_as_spark_stores_them(run, table, spark):
    with pytest.raises(StatementError, match="which cannot store values of type string"):
        run("INSERT INTO <t> VALUES ('a', 'b', 1)")
    for ansi in ("true", "false"):
        spark.conf.set("spark.sql.ansi.enabled", ansi)
        with pytest.raises(Exception, match="does not fit `n`"):
            run("INSERT INTO <t> VALUES (1, 'b', 3000000000L)")
    spark.conf.unset("spark.sql.ansi.enabled")
    with pytest.raises(StatementError, match="columns of the query differ"):
        run("INSERT INTO <t> VALUES (1, 'b')")
    run("INSERT INTO <t> VALUES (300, 5, 3L)")
    assert rows_of(table)[300] == ("5", 3)
    assert lance.dataset(table).version == 2
    run("INSERT INTO <t> VALUES (301, DEFAULT, 3), (302, 'DEFAULT', default)")
    assert (rows_of(table)[301], rows_of(table)[302]) == ((None, 3), ("DEFAULT", None))


def test_updates_and_deletes_compute_as_spark_does(run, table):
    assert run("UPDATE <t> SET n = n + id, name = concat(name, '!') WHERE id % 7 = 3") == [
        (3, 3, 0, 0)
    ]
    found = rows_of(table)
    assert found[10] == ("n10!", 11)
    assert found[11] == ("n11", 1)
    text = "UPDATE <t> AS a SET a.n = 0 WHERE a.id IN (SELECT id FROM <t> WHERE n > 1)"
    assert run(text)[0][1] == 3
    assert run("DELETE FROM <t> WHERE id >= 18") == [(2, 0, 2, 0)]
    assert run("DELETE FROM <t> a WHERE a.n = 0 AND rlike(a.name, '0')") == [(1, 0, 1, 0)]
    assert set(rows_of(table)) == set(range(18)) - {10}
    assert lance.dataset(table).version == 5
    assert run("UPDATE <t> SET n = 5 WHERE id > 1000") == [(0, 0, 0, 0)]
    assert lance.dataset(table).version == 5, "nothing changed, so there is no version"
    assert run("DELETE FROM <t> WHERE name LIKE :pattern", pattern="n1%")[0][2] == 8
    run("TRUNCATE TABLE <t>")
    assert lance.dataset(table).count_rows() == 0


MERGE = """
MERGE INTO <t> AS t
USING (SELECT * FROM VALUES (3L, 'three', 30), (4L, 'four', -1), (60L, 'sixty', 0),
                            (61L, 'no', -1), (5L, 'five', 100) AS v (id, name, n)) AS s
ON t.id = s.id AND t.id < 50
WHEN MATCHED AND s.n < 0 THEN DELETE
WHEN MATCHED AND s.n > 50 THEN UPDATE SET *
WHEN MATCHED THEN UPDATE SET t.n = s.n + CASE WHEN t.n = 1 THEN t.n ELSE 0 END
WHEN NOT MATCHED AND s.n >= 0 THEN INSERT (id, name) VALUES (s.id, upper(s.name))
WHEN NOT MATCHED BY SOURCE AND t.id = 19 THEN UPDATE SET name = 'late'
WHEN NOT MATCHED BY SOURCE AND t.id >= 15 THEN DELETE
"""


def test_a_merge_has_every_clause_and_is_one_version(run, table):
    assert run(MERGE) == [(1 + 2 + 1 + 1 + 4, 3, 5, 1)]
    expected = {i: (f"n{i}", 1) for i in range(15) if i != 4}
    expected |= {3: ("n3", 31), 5: ("five", 100), 19: ("late", 1), 60: ("SIXTY", None)}
    assert rows_of(table) == expected
    assert lance.dataset(table).version == 2
    source = "(SELECT id, name, n FROM <t> VERSION AS OF 1) v"
    run(f"MERGE INTO <t> USING {source} ON `{table}`.id = v.id WHEN NOT MATCHED THEN INSERT *")
    assert set(rows_of(table)) == {*range(20), 60}


def test_a_view_of_a_path_is_a_name_of_its_table(run, table, spark):
    run(f"CREATE OR REPLACE TEMPORARY VIEW Shelf USING lance OPTIONS (path '{table}')")
    try:
        if is_remote():  # there nobody can tell whether a view is still the same
            with pytest.raises(PySparkException):
                run("DELETE FROM shelf WHERE id = 1")
            assert lance.dataset(table).version == 1
            return
        assert run("UPDATE shelf SET n = n + 1 WHERE shelf.id < 3") == [(3, 3, 0, 0)]
        assert run("DELETE FROM shelf AS s WHERE s.id = 19") == [(1, 0, 1, 0)]
        assert run("INSERT INTO Shelf (id, n) SELECT id + 100, n FROM SHELF WHERE n = 2") == [
            (3, 0, 0, 3)
        ]
        merged = "MERGE INTO shelf USING (SELECT 0L AS id) s ON shelf.id = s.id"
        assert run(f"{merged} WHEN MATCHED THEN DELETE") == [(1, 0, 1, 0)]
        assert lance.dataset(table).version == 5
        # The rows of now, and only the columns that are named.
        assert run("SELECT count(*), sum(shelf.n) FROM shelf") == [(21, 26)]
        assert run("SELECT count(*) FROM shelf VERSION AS OF 1 AS early") == [(20,)]
        assert "columns: n" in run("EXPLAIN SELECT max(n) FROM shelf WHERE n > 0")[0][0]
        # Another query of that name, and what would change more than rows, mean something else.
        assert run("WITH shelf (id) AS (SELECT 7L) SELECT id FROM shelf") == [(7,)]
        assert run("SELECT shelf FROM VALUES (1) AS x (shelf)") == [(1,)]
        with contextlib.suppress(PySparkException):  # a release may drop the view, none the table
            run("DROP TABLE shelf")
        assert lance.dataset(table).version == 5
        spark.range(2).createOrReplaceTempView("shelf")
        assert run("SELECT count(*) FROM shelf") == [(2,)]
        with pytest.raises(
            (PySparkException, Py4JJavaError)
        ):  # the second is an error of Spark's own
            run("DELETE FROM shelf WHERE id = 1")
        assert lance.dataset(table).version == 5
    finally:
        spark.catalog.dropTempView("shelf")


@pytest.mark.parametrize("option", ["version '1'", "filter 'id < 3'", "columns 'id'"])
def test_a_view_of_a_part_of_a_table_is_no_name_of_it(run, table, spark, option):
    run(f"CREATE TEMPORARY VIEW few USING lance OPTIONS (path '{table}', {option})")
    try:
        with pytest.raises(PySparkException):
            run("DELETE FROM few WHERE id = 1")
    finally:
        spark.catalog.dropTempView("few")
    assert lance.dataset(table).version == 1


TWICE = "(SELECT * FROM VALUES (3L, 'a', 1), (3L, 'b', 2) AS v (id, name, n)) s"


@pytest.mark.parametrize(
    "condition", ["t.id = s.id", "(s.ID = T.id AND t.n > 0)", "t.id + 0 = s.id", "t.id = s.n + 2"]
)
def test_a_merge_that_changes_a_row_twice_is_rejected_before_anything_is_written(
    run, table, condition, monkeypatch
):
    monkeypatch.setattr(merging, "run_over", lambda *_: pytest.fail("tasks wrote"))
    same = "(SELECT id, 'x' AS name, 1 AS n FROM VALUES (3L), (3L) AS v (id)) s"
    for source in [TWICE, same] if "s.n" not in condition else [same]:
        with pytest.raises(InvalidInputError, match="several rows of the source change the same"):
            run(f"MERGE INTO <t> t USING {source} ON {condition} WHEN MATCHED THEN UPDATE SET *")


def test_a_merge_is_not_rejected_for_rows_that_change_nothing_twice(run, table):
    text = f"MERGE INTO <t> t USING {TWICE} ON t.id = s.id AND s.n = 1"
    run(f"{text} WHEN MATCHED THEN UPDATE SET *")
    assert rows_of(table)[3] == ("a", 1)
    text = f"MERGE INTO <t> t USING {TWICE} ON t.id = s.id"
    run(f"{text} WHEN MATCHED AND s.n = 2 THEN UPDATE SET *")
    assert rows_of(table)[3] == ("b", 2)
    text = "MERGE INTO <t> t USING (SELECT * FROM VALUES (NULL, 1), (NULL, 2) AS v (id, n)) s"
    inserts = "WHEN NOT MATCHED THEN INSERT (n) VALUES (7)"
    run(f"{text} ON t.id = s.id WHEN MATCHED THEN DELETE {inserts}")
    assert lance.dataset(table).count_rows("n = 7") == 2


def test_a_merge_that_means_nothing_certain_is_rejected(run, table):
    twice = TWICE
    with pytest.raises(StatementError, match="unreachable clause"):
        run(
            f"MERGE INTO <t> t USING {twice} ON t.id = s.id WHEN MATCHED THEN DELETE "
            "WHEN MATCHED THEN UPDATE SET *"
        )
    few = "(SELECT 3L AS id) s"
    with pytest.raises(StatementError, match="requires all columns of the table"):
        run(f"MERGE INTO <t> t USING {few} ON t.id = s.id WHEN MATCHED THEN UPDATE SET *")
    assert lance.dataset(table).version == 1


def test_rows_without_a_match_have_the_names_of_their_side_alone(run, table):
    many = "(SELECT * FROM VALUES (7L, 'seven', 5), (70L, 'late', 5) AS v (id, name, n)) s"
    text = f"""MERGE INTO <t> t USING {many} ON t.id = s.id
WHEN NOT MATCHED AND n > 4 THEN INSERT (id, name, n) VALUES (id, upper(name), DEFAULT)
WHEN NOT MATCHED BY SOURCE AND id = 2 THEN UPDATE SET name = concat(name, '!'), n = T.n + n"""
    assert run(text) == [(2, 1, 0, 1)]
    assert rows_of(table)[70] == ("LATE", None)
    assert rows_of(table)[2] == ("n2!", 2)
    few = "(SELECT 80L AS id) s"
    for clause in (
        "WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.id, t.name)",
        "WHEN NOT MATCHED THEN INSERT (id, name) VALUES (id, name)",
        "WHEN NOT MATCHED AND t.n > 0 THEN INSERT *",
        "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET n = s.id",
        "WHEN NOT MATCHED BY SOURCE AND s.id IS NULL THEN DELETE",
    ):
        source = few if "*" not in clause else many
        with pytest.raises(StatementError, match="has no value here, as no row of"):
            run(f"MERGE INTO <t> t USING {source} ON t.id = s.id {clause}")
    assert lance.dataset(table).version == 2


def test_a_row_may_be_deleted_for_several_rows_of_a_source(run, table, spark):
    twice = "(VALUES (3L, 'a'), (3L, 'b'), (90L, 'c')) AS s(id, why)"
    text = f"MERGE INTO <t> t USING {twice} ON t.id = s.id WHEN MATCHED"
    with pytest.raises(InvalidInputError, match="several rows of the source change the same"):
        run(f"{text} AND s.why IS NOT NULL THEN DELETE")
    inserts = "WHEN NOT MATCHED THEN INSERT (id, name) VALUES (id, why)"
    assert run(f"{text} THEN DELETE {inserts}") == [(2, 0, 1, 1)]
    assert set(rows_of(table)) == {*range(20), 90} - {3}
    source = spark.createDataFrame([(4,), (4,)], "id long")
    done = ls.merge(source, table, on="id").when_matched_delete().execute()
    assert done.counts.deleted == 1
    assert set(rows_of(table)) == {*range(20), 90} - {3, 4}


def test_fields_are_stored_by_their_names_and_set_alone(run, path):
    nested = pa.struct(
        [("a", pa.int32()), ("b", pa.int32()), ("c", pa.struct([("d", pa.int32())]))]
    )
    one = {"a": 1, "b": 2, "c": {"d": 3}}
    rows = {"id": [1, 2, 3], "s": pa.array([one, None, one], nested)}
    rows["l"] = pa.array([[one], None, []], pa.list_(nested))
    lance.write_dataset(pa.table(rows), path)

    def found():
        return {
            row["id"]: (row["s"], row["l"]) for row in lance.dataset(path).to_table().to_pylist()
        }

    other = "named_struct('c', named_struct('d', 6L), 'B', 5, 'a', 4L)"
    turned = {"a": 4, "b": 5, "c": {"d": 6}}
    run(f"UPDATE <t> SET s = {other} WHERE id = 1")
    assert found()[1] == (turned, [one])
    source = f"(SELECT 3L AS id, {other} AS s, array({other}, NULL) AS l) v"
    run(f"MERGE INTO <t> t USING {source} ON t.id = v.id WHEN MATCHED THEN UPDATE SET *")
    assert found()[3] == (turned, [turned, None])
    run(f"INSERT INTO <t> BY NAME SELECT {other} AS s, 4L AS id")
    assert found()[4] == (turned, None)
    run("INSERT INTO <t> (id, s) SELECT 5L, struct(4L, 5L, struct(6L))")
    assert found()[5] == (turned, None)
    run("UPDATE <t> SET s.b = id * 10, s.c.d = s.a, l = DEFAULT WHERE id < 3")
    assert found()[1] == ({"a": 4, "b": 10, "c": {"d": 4}}, None)
    assert found()[2] == ({"a": None, "b": 20, "c": {"d": None}}, None)
    version = lance.dataset(path).version
    for text, message in {
        "UPDATE <t> SET s = named_struct('a', 1, 'b', 2, 'x', 3)": "its fields differ",
        "UPDATE <t> SET s.x = 1": "has no field `x`",
        "UPDATE <t> SET s.c = NULL, s.c.d = 1": "or one in it is set too",
        "UPDATE <t> SET s.a = 1, s = NULL": "set twice",
        "UPDATE <t> SET s = NULL, s.a = 1": "set twice",
        "UPDATE <t> SET s.a = 1, s.A = 2": "set twice",
    }.items():
        with pytest.raises(StatementError, match=message):
            run(text)
    for value in ("struct(1, 2, struct(3000000000))", "struct(1, 3000000000, NULL)"):
        with pytest.raises((PySparkException, Py4JJavaError), match="a value does not fit `s`"):
            run(f"INSERT INTO <t> (id, s) SELECT 6L, {value}")
    assert lance.dataset(path).version == version


def test_columns_are_added_renamed_altered_and_dropped(run, table):
    run("ALTER TABLE <t> ADD COLUMNS (v ARRAY<FLOAT>, s STRUCT<a: INT>)")
    run("ALTER TABLE <t> ADD COLUMN d DATE COMMENT 'a day'")
    run("ALTER TABLE <t> RENAME COLUMN n TO m")
    run("ALTER TABLE <t> ALTER COLUMN m TYPE BIGINT")
    run("ALTER TABLE <t> DROP COLUMN IF EXISTS name, none")
    run("ALTER TABLE <t> SET TBLPROPERTIES ('a' = 'b', 'c' = 'd')")
    run("ALTER TABLE <t> UNSET TBLPROPERTIES ('a')")
    made = lance.dataset(table)
    assert made.schema.names == ["id", "m", "v", "s", "d"]
    assert made.schema.field("m").type == pa.int64()
    assert ("c", "d") in run("SHOW TBLPROPERTIES <t>")
    assert "a" not in made.config()
    with pytest.raises(StatementError, match="no column `nn`"):
        run("ALTER TABLE <t> RENAME COLUMN nn TO q")


def test_columns_come_from_a_query_by_the_addresses_of_rows(run, table, spark):
    run("DELETE FROM <t> WHERE id = 6")
    before = {row["id"]: row for row in lance.dataset(table).to_table().to_pylist()}
    text = "(SELECT _rowaddr, upper(name) AS up, id * 2 AS d FROM <t> WHERE id % 5 < 2 AND id < 15)"
    assert run(f"ALTER TABLE <t> ADD COLUMNS up, d FROM {text}") == []
    dataset = lance.dataset(table)
    assert dataset.version == 3
    rows = {row["id"]: row for row in dataset.to_table().to_pylist()}
    assert {key: row | {"up": None, "d": None} for key, row in before.items()} == {
        key: row | {"up": None, "d": None} for key, row in rows.items()
    }
    chosen = {key for key in before if key % 5 < 2 and key < 15}
    assert {key: (row["up"], row["d"]) for key, row in rows.items()} == {
        key: (f"N{key}", 2 * key) if key in chosen else (None, None) for key in before
    }
    assert len(dataset.get_fragments()) == 4, "no row was written again"

    ls.sql(
        spark,
        f"CREATE OR REPLACE TEMPORARY VIEW fresh AS SELECT _rowaddr AS _RowAddr, -id AS d, "
        f"lower(up) AS up FROM lance.`{table}` WHERE up IS NOT NULL",
    )
    assert run("ALTER TABLE <t> UPDATE COLUMNS D FROM fresh")[0][1] == len(chosen)
    rows = {row["id"]: row for row in lance.dataset(table).to_table().to_pylist()}
    assert {key: (row["up"], row["d"]) for key, row in rows.items()} == {
        key: (f"N{key}", -key) if key in chosen else (None, None) for key in before
    }
    assert lance.dataset(table).version == 4
    lance.dataset(table).validate()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ADD COLUMNS a FROM (SELECT id AS a FROM <t>)", "must have `_rowaddr`"),
        ("ADD COLUMNS totl FROM (SELECT _rowaddr, id AS total FROM <t>)", "did you mean total"),
        ("ADD COLUMNS name FROM (SELECT _rowaddr, name FROM <t>)", "use UPDATE COLUMNS"),
        ("UPDATE COLUMNS nme FROM (SELECT _rowaddr, 1 AS nme FROM <t>)", "did you mean name"),
        ("UPDATE COLUMNS n FROM (SELECT _rowaddr, 'x' AS n FROM <t>)", "add a cast"),
        ("UPDATE COLUMNS n FROM (SELECT _rowaddr, 1 AS n FROM <t>) s t", "should end here"),
        ("ADD COLUMNS a FROM (SELECT _rowaddr, 1 AS a FROM <t> CROSS JOIN range(2))", "several"),
        ("UPDATE COLUMNS n FROM (SELECT _rowaddr, n FROM <t> CROSS JOIN range(2))", "several"),
        ("UPDATE COLUMNS n FROM (SELECT _rowaddr, n FROM <t> VERSION AS OF 1)", "latest version"),
    ],
)
def test_columns_of_a_query_that_do_not_fit_change_nothing(run, table, text, message):
    run("DELETE FROM <t> WHERE id = 6")
    with pytest.raises(Exception, match=message):
        run(f"ALTER TABLE <t> {text}")
    assert lance.dataset(table).version == 2


def test_versions_get_names_and_come_back(run, table):
    run("DELETE FROM <t> WHERE id > 3")
    run("CREATE TAG early ON <t> VERSION AS OF 1")
    run("CREATE TAG IF NOT EXISTS early ON <t>")
    run("CREATE BRANCH dev ON <t> VERSION AS OF 'early'")
    run("UPDATE <t>@dev SET n = 9")
    assert run("SELECT count(*), max(n) FROM <t>@dev") == [(20, 9)]
    assert run("SELECT count(*), max(n) FROM <t>") == [(4, 1)]
    assert run("SHOW TAGS IN <t>")[0][:2] == ("early", 1)
    assert run("SHOW BRANCHES IN <t>")[0][0] == "dev"
    assert run("RESTORE TABLE <t> TO VERSION AS OF 'early'") == [(3, 1)]
    assert len(rows_of(table)) == 20
    assert [row[0] for row in run("DESCRIBE HISTORY <t>")] == [1, 2, 3]
    run("CREATE OR REPLACE TAG early ON <t> VERSION AS OF 2")
    assert run("SELECT count(*) FROM <t> VERSION AS OF 'early'") == [(4,)]
    run("DROP TAG early ON <t>")
    run("DROP BRANCH dev ON <t>")
    run("DROP TAG IF EXISTS early ON <t>")
    assert run("SHOW TAGS IN <t>") == []
    with pytest.raises(StatementError, match="latest version"):
        run("DELETE FROM <t> VERSION AS OF 1")


def test_maintenance_statements_run(run, table):
    run("DELETE FROM <t> WHERE id IN (3, 12)")
    assert run("OPTIMIZE <t> WHERE id >= 10 WITH (target_rows_per_fragment = 10)")[0][1:3] == (2, 1)
    assert [each.physical_rows for each in lance.dataset(table).get_fragments()] == [5, 5, 9]
    assert run("OPTIMIZE <t>")[0][2] == 1
    would = run("VACUUM <t> RETAIN 1 VERSIONS DRY RUN")
    assert would
    assert run("VACUUM <t> RETAIN 1 VERSIONS")[0][1] == len(
        [path for path, _ in would if not path.endswith(".manifest")]
    )
    assert len(lance.dataset(table).versions()) == 1


def test_indices_are_built_refreshed_and_dropped(run, table):
    run("CREATE INDEX by_id ON <t> (id) USING BTREE")
    run("CREATE INDEX IF NOT EXISTS by_id ON <t> (id) USING BTREE")
    run("CREATE INDEX words ON TABLE <t> USING INVERTED (name) WITH (with_position = true)")
    run("INSERT INTO <t> VALUES (100, 'late', 1)")
    found = {row[0]: row for row in run("SHOW INDEXES IN <t>")}
    assert found["by_id"][3:5] == (20, 1)
    run("REFRESH INDEX by_id ON <t>")
    found = {row[0]: row for row in run("SHOW INDEXES IN <t>")}
    assert found["by_id"][3:5] == (21, 0)
    assert found["words"][3:5] == (20, 1)
    run("REFRESH INDEXES ON <t>")
    run("DROP INDEX words ON <t>")
    assert [each.name for each in lance.dataset(table).describe_indices()] == ["by_id"]
    with pytest.raises(StatementError, match="the index exists already"):
        run("CREATE INDEX by_id ON <t> (n) USING BITMAP")


def test_explain_shows_what_will_be_read(run, table):
    text = run("EXPLAIN SELECT upper(name) FROM <t> WHERE n = 1 AND id > 3")[0][0]
    assert "columns: id, name, n" in text
    assert "filter: (`n` = 1) AND (`id` > 3)" in text
    assert "Physical Plan" in text
    assert run("SHOW FILES IN <t>")[0][2] == 5
    assert run("SHOW COLUMNS IN <t>") == [("id",), ("name",), ("n",)]


def test_tables_are_made_in_attached_namespaces(run, spark, tmp_path):
    ls.catalog(spark, "lake2", "dir", root=str(tmp_path / "lake"))
    run("CREATE NAMESPACE lake2.db")
    run("CREATE NAMESPACE IF NOT EXISTS lake2.db")
    assert run("SHOW NAMESPACES IN lake2") == [("db",)]
    run("CREATE TABLE lake2.db.t AS SELECT id, id % 3 AS part FROM range(10)")
    run("CREATE TABLE lake2.db.u SHALLOW CLONE lake2.db.t")
    assert sorted(row[1] for row in run("SHOW TABLES IN lake2.db")) == ["t", "u"]
    run("DELETE FROM lake2.db.t WHERE part = 0")
    text = "SELECT count(*), (SELECT count(*) FROM lake2.db.u) FROM lake2.db.t"
    assert run(text) == [(6, 10)]
    run("CREATE TEMPORARY VIEW of_u AS SELECT * FROM lake2.db.u WHERE part = 1")
    assert spark.table("of_u").count() == 3
    spark.catalog.dropTempView("of_u")
    run("DROP TABLE lake2.db.t")
    with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
        run("CREATE TABLE lake2.db.w AS SELECT 1 / (id - id) AS x FROM range(3)")
    assert [row[1] for row in run("SHOW TABLES IN lake2.db")] == ["u"]
    ls.detach(spark, "lake2")


@pytest.mark.parametrize(
    ("text", "message", "at"),
    [
        ("UPDATE <t> SE n = 1", "expected SET", "n"),
        ("UPDATE <t> SET nam = 1", r"no column `nam`; did you mean name\?", "nam = 1"),
        ("UPDATE <t> SET n 1", "expected =", "1"),
        ("DELETE FROM <t> WHERE", "expected more", ""),
        ("MERGE INTO <t> t USING nowhere s ON t.id = s.id", "cannot be found", "nowhere"),
        ("CREATE INDEX i ON <t> (id)", "USING", ""),
        ("VACUUM <t> RETAIN 7 YEARS", "expected HOURS", "YEARS"),
        ("ALTER TABLE <t> FROB", "expected ADD", "FROB"),
        ("SHOW THINGS IN <t>", "expected VERSIONS", "THINGS"),
        ("CREATE TABLE <t> (id NOTYPE)", "invalid column definitions", "(id"),
        ("INSERT INTO <t> PARTITION (a = 1) SELECT 1", "no partitions", "PARTITION"),
        ("RESTORE TABLE <t> TO VERSION 3", "expected TIMESTAMP", "VERSION"),
    ],
)
def test_errors_point_at_the_word_and_change_nothing(run, table, text, message, at):
    with pytest.raises(Exception, match=message) as caught:
        run(text)
    shown = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
    full = text.replace("<t>", f"lance.`{table}`")
    column = full.rindex(at) + 1 if at else len(full) + 1
    if at:
        assert re.search(rf"column {column}\b", shown), shown
    assert lance.dataset(table).version == 1


MISTAKES = [
    ("SELECT * FROM <t> VERSION AS OF 999", "999"),
    ("SELECT * FROM <t> VERSION AS OF 'nope'", "'nope'"),
    ("SELECT * FROM <t>@nope", "nope"),
    ("SELECT * FROM <t> TIMESTAMP AS OF '1990-01-01'", "<t>"),
    ("SELECT * FROM <t> TIMESTAMP AS OF 'noon'", "'noon'"),
    ("CREATE INDEX i ON <t> (nope) USING BTREE", "nope"),
    ("CREATE INDEX i ON <t> (id) USING NOPE", "NOPE"),
    ("ALTER TABLE <t> ALTER COLUMN n TYPE NOPE", "NOPE"),
    ("ALTER TABLE <t> ADD COLUMN id BIGINT", "id"),
    ("ALTER TABLE <t> DROP COLUMN nope", "nope"),
    ("DROP TAG nope ON <t>", "nope"),
    ("DROP BRANCH nope ON <t>", "nope"),
    ("DROP INDEX nope ON <t>", "nope"),
    ("REFRESH INDEX nope ON <t>", "nope"),
    ("CREATE TAG a ON <t> VERSION AS OF 999", "999"),
    ("RESTORE TABLE <t> TO VERSION AS OF 999", "999"),
    ("RESTORE TABLE <t> TO VERSION AS OF 'nope'", "'nope'"),
    ("DELETE FROM lance.`/nowhere.lance` WHERE x = 1", "lance.`"),
    ("DESCRIBE lance.`/nowhere.lance`", "lance.`"),
    ("OPTIMIZE lance.`/nowhere.lance`", "lance.`"),
    ("OPTIMIZE <t> ZORDER BY (id)", "ZORDER"),
    ("OPTIMIZE <t> WITH (target_rows = 1)", "target_rows"),
    ("UPDATE <t> SET n = nope(3)", "nope"),
    ("UPDATE <t> SET n = nope WHERE id = 1", "nope"),
    ("UPDATE <t> SET n = n +", None),
    ("DELETE FROM <t> WHERE id = = 1", "= 1"),
    ("DELETE FROM <t> WHERE nope = 1", "nope"),
    ("DELETE FROM <t> WHERE id IN (SELECT nope FROM range(3))", "nope"),
    ("INSERT INTO <t> SELECT nope FROM range(3)", "nope"),
    ("MERGE INTO <t> t USING <s> s ON t.id = s.nope WHEN MATCHED THEN DELETE", "s.nope"),
    ("MERGE INTO <t> t USING <s> s ON t.id = s.id WHEN MATCHED AND nope THEN DELETE", "nope"),
    ("MERGE INTO <t> t USING <s> s ON t.id = s.id WHEN MATCHED THEN UPDATE SET n = s.u", "s.u"),
    ("CREATE TABLE <new> (id BIGINT DEFAULT 3)", "DEFAULT"),
    ("CREATE TABLE <new> (id BIGINT GENERATED ALWAYS AS IDENTITY)", "GENERATED"),
    ("CREATE TABLE <new> (id BIGINT PRIMARY KEY)", "PRIMARY KEY"),
    ("CREATE TABLE <new> (id BIGINT, PRIMARY KEY (id))", "PRIMARY KEY"),
    ("CREATE TABLE <new> (id BIGINT, CONSTRAINT a CHECK (id > 0))", None),
    ("CREATE TABLE <new> (id BIGINT, s STRUCT<c: CHAR(3)>)", "CHAR"),
    ("CREATE TABLE <new> (id BIGINT) PARTITIONED BY (id)", "PARTITIONED BY"),
    ("CREATE TABLE <new> (id BIGINT) USING lance CLUSTER BY (id)", "CLUSTER BY"),
    ("CREATE TABLE <new> (id BIGINT) LOCATION '/data/t'", "LOCATION"),
    ("VACUUM <t> RETAIN 0 DAYS", "RETAIN"),
    ("OPTIMIZE <t> WITH (target_rows_per_fragment = 'x')", "target_rows"),
    ("UPDATE <t> SET n = sum(n)", None),
    ("UPDATE <t> SET n = (SELECT id FROM <t>)", "(SELECT"),
    ("UPDATE <t> SET n = 1 / (n - n)", "1 / (n - n)"),
    ("DELETE FROM <t> WHERE CAST(name AS INT) = 1", "CAST(name AS INT)"),
    ("INSERT INTO <t> SELECT id, name, assert_true(id > 100) FROM <t>", None),
    ("UPDATE <t> SET n = 3000000000", "n = 3000000000"),
    ("DELETE FROM <t> WHERE id", "id"),
    ("DELETE FROM <t> WHERE sum(id) > 1", "sum"),
    ("ALTER TABLE <t> ADD COLUMN x INT NOT NULL", "x"),
    ("TRUNCATE <t>", "TRUNCATE"),
    ("CACHE TABLE <t>", None),
]


def test_every_error_of_a_statement_has_a_position_and_no_generated_names(run, table):
    source = "(SELECT 1L AS id)"
    for text, at in MISTAKES:
        full = text.replace("<s>", source).replace("<t>", f"lance.`{table}`")
        full = full.replace("<new>", f"lance.`{table}2`")
        with pytest.raises((LanceletError, PySparkException), match=" ") as caught:
            run(full)
        shown = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
        assert "__lancelet" not in shown, shown
        assert "#target" not in shown, shown
        found = re.search(r"line 1, column (\d+):\n(.*)\n( *)\^", shown)
        assert found is not None, (text, shown)
        assert (found[2], len(found[3])) == (full, int(found[1]) - 1)
        if at is not None:
            start = full.rindex(at.replace("<t>", f"lance.`{table}`"))
            assert int(found[1]) - 1 in {start, start + 2 * (at[1:2] == ".")}, (text, shown)
    assert lance.dataset(table).version == 1


def test_an_error_points_to_a_line_of_the_statement(run, table):
    text = f"/* a note */\nDELETE\nFROM lance.`{table}`\n  WHERE sum(id) > 1"
    with pytest.raises(PySparkException) as caught:
        run(text)
    shown = "\n".join([str(caught.value), *caught.value.__notes__])
    assert "line 4, column 9:\n  WHERE sum(id) > 1\n        ^" in shown


def test_merges_and_updates_record_a_message(run, table, spark):
    run("UPDATE <t> WITH (commit_message = 'one') SET n = 2 WHERE id = 1")
    merge = "MERGE INTO <t> WITH (commit_message = 'two') AS t USING (SELECT 2L AS id) AS s"
    run(f"{merge} ON t.id = s.id WHEN MATCHED THEN UPDATE SET n = 3")
    frame = spark.createDataFrame([(3, 4)], "id long, n int")
    update = ls.merge(frame, table, on="id").when_matched_update()
    update.execute(message="three", once=ls.Once("nightly", 7))
    update.execute(message="four", once=ls.Once("nightly", 7))
    versions = [lancelet.dataset(table, version=each).snapshot for each in (2, 3, 4)]
    found = [each.transaction.properties for each in versions]
    assert [each["__lance_commit_message"] for each in found] == ["one", "two", "three"]
    assert found[2]["lancelet.stream"] == "nightly"
    assert lancelet.dataset(table).version == 4


def test_a_column_may_be_named_end(run, path):
    run("CREATE TABLE <t> (id BIGINT, end BIGINT, n INT)")
    run("INSERT INTO <t> VALUES (1, 5, 1), (2, NULL, 2), (3, 3, 3)")
    run("UPDATE <t> SET end = end + 1 WHERE end > 3 AND id = 1")
    run("UPDATE <t> t SET n = (end + 10) WHERE (t.end) > 3")
    run("DELETE FROM <t> WHERE (end = 3) AND n = 3")
    run(
        """MERGE INTO <t> AS t USING (SELECT 1L AS id, 9L AS end) s
        ON t.id = s.id AND (t.end < s.end)
        WHEN MATCHED AND CASE WHEN t.end > 0 THEN t.end IS NULL ELSE false END THEN DELETE
        WHEN MATCHED AND t.end > 0 THEN UPDATE SET end = CASE WHEN s.end > 1 THEN s.end END
        WHEN NOT MATCHED THEN INSERT (id, end) VALUES (s.id, s.end)"""
    )
    found = sorted(run("SELECT id, end, n FROM <t>"))
    assert found == [(1, 9, 16), (2, None, 2)]
    assert run("SELECT id IS DISTINCT FROM t.end FROM <t> t ORDER BY id") == [(True,), (True,)]


def test_names_are_compared_as_the_session_says(run, table, spark):
    other = spark.createDataFrame([(100, 5)], "ID long, N int")
    run("INSERT INTO <t> (ID, N) VALUES (99, 5)")
    ls.write(other, table, mode="append")
    assert {row for row in rows_of(table) if row >= 99} == {99, 100}
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        with pytest.raises(StatementError, match="no column `ID`"):
            run("INSERT INTO <t> (ID, n) VALUES (99, 5)")
        with pytest.raises(SchemaMismatchError, match="`ID` is not in the table"):
            ls.write(other, table, mode="append")
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
    assert lance.dataset(table).version == 3


def test_tables_and_names_of_queries_come_before_changes(run, table):
    run("WITH v AS (SELECT 3L AS id) DELETE FROM <t> WHERE id IN (SELECT id FROM v)")
    run("WITH v (k) AS (SELECT max(id) FROM <t>) UPDATE <t> SET n = 7 WHERE id IN (TABLE v)")
    run("WITH v AS (SELECT 30L AS id) INSERT INTO <t> (id) WITH w AS (TABLE v) SELECT id FROM w")
    merge = "MERGE INTO <t> t USING v ON t.id = v.id WHEN MATCHED THEN UPDATE SET n = 8"
    run(f"WITH v AS (SELECT 4L AS id), w AS (SELECT 1) {merge}")
    found = rows_of(table)
    assert 3 not in found
    assert (found[19][1], found[30], found[4][1]) == (7, (None, None), 8)


def test_columns_have_lengths_and_are_compared_as_spark_compares_them(run, path, spark):
    run("CREATE TABLE <t> (id INT, c CHAR(3), v VARCHAR(4)) TBLPROPERTIES ('a' = 'b')")
    run("ALTER TABLE <t> ADD COLUMN more VARCHAR(2)")
    run("INSERT INTO <t> VALUES (1, 'a', 'long', 'x'), (2, 'abc ', 'l', NULL)")
    assert run("SELECT c, v FROM <t> ORDER BY id") == [("a  ", "long"), ("abc", "l")]
    assert run("SELECT id FROM <t> WHERE c = 'a'") == [(1,)]
    assert run("SELECT id FROM <t> WHERE v = 'l' AND c = 'abc'") == [(2,)]
    assert [row[1] for row in run("DESCRIBE <t>")] == ["int", "char(3)", "varchar(4)", "varchar(2)"]
    merge = "MERGE INTO <t> t USING (SELECT 1 AS id) s ON t.id = s.id"
    for statement in (
        "INSERT INTO <t> (id, c) VALUES (3, 'abcd')",
        "UPDATE <t> SET v = 'longer' WHERE id = 1",
        f"{merge} WHEN MATCHED THEN UPDATE SET more = 'xyz'",
    ):
        with pytest.raises(Exception, match="longer than its column allows"):
            run(statement)
    frame = spark.createDataFrame([(4, "abcd")], "id int, c string")
    with pytest.raises(Exception, match="longer than its column allows"):
        frame.write.format("lance").mode("append").save(path)
    with pytest.raises(StatementError, match="length of a column cannot be changed"):
        run("ALTER TABLE <t> ALTER COLUMN v TYPE STRING")
    assert lance.dataset(path).count_rows() == 2


def test_blobs_are_not_lost_by_updates(run, spark, path):
    rows = pa.table(
        {"id": [1, 2], "data": pa.array([b"a", b"b"], pa.large_binary())},
        schema=pa.schema(
            [
                pa.field("id", pa.int64()),
                pa.field("data", pa.large_binary(), metadata={"lance-encoding:blob": "true"}),
            ]
        ),
    )
    lancelet.write_dataset(rows, path)
    with pytest.raises(UnsupportedError, match="blobs"):
        run("UPDATE <t> SET id = 5 WHERE id = 1")
    assert run("DELETE FROM <t> WHERE id = 1")[0][2] == 1


def test_bases_are_given_by_options_and_statements(run, path, tmp_path):
    run(
        f"""CREATE TABLE <t> TBLPROPERTIES (initial_bases = 'hot={tmp_path}/hot',
            target_bases = 'hot', 'storage.no_such_thing' = 'secret') AS SELECT id FROM range(4)"""
    )
    assert not lance.dataset(path).config(), "options of the store are not written anywhere"
    run(f"ALTER TABLE <t> ADD BASE cold AT '{tmp_path}/cold'")
    assert run("SHOW BASES IN <t>") == [("hot", f"{tmp_path}/hot"), ("cold", f"{tmp_path}/cold")]
    run("INSERT INTO <t> WITH (target_bases = 'cold', max_rows_per_file = 1) VALUES (10), (11)")
    run("UPDATE <t> WITH (target_bases = 'cold') SET id = id + 20 WHERE id < 1")
    merge = """MERGE INTO <t> WITH (target_bases = 'cold') AS t USING (SELECT 30L AS id) AS s
               ON t.id = s.id WHEN NOT MATCHED THEN INSERT *"""
    run(merge)
    bases = [
        file.base_id for each in lance.dataset(path).get_fragments() for file in each.metadata.files
    ]
    assert (bases.count(2), set(bases)) == (4, {1, 2}), bases
    assert sorted(run("SELECT id FROM <t> WITH ('storage.no_such_thing' = 'x') AS t")) == [
        (i,) for i in (1, 2, 3, 10, 11, 20, 30)
    ]
    version = lance.dataset(path).version
    for text, message in (
        ("INSERT INTO <t> WITH (initial_bases = 'a=b') VALUES (1)", "unknown option"),
        ("INSERT INTO <t> WITH (target_base = 'hot') VALUES (1)", "did you mean target_bases"),
        ("INSERT INTO <t> WITH (target_bases = 'warm') VALUES (1)", "not found"),
        ("DELETE FROM <t> WITH (target_bases = 'hot') WHERE id = 1", "unknown option"),
        ("OPTIMIZE <t> WITH (no_such_thing = 1)", "no_such_thing"),
    ):
        with pytest.raises(Exception, match=message):
            run(text)
    assert lance.dataset(path).version == version


def test_columns_of_uris_become_blobs_that_stay_where_they_are(run, path, tmp_path):
    media = tmp_path / "media"
    media.mkdir()
    for name in "abc":
        (media / name).write_bytes(name.encode() * 200_000)
    run(
        f"""CREATE TABLE <t> (id BIGINT, data BINARY) TBLPROPERTIES
            ('encoding.data.blob' = 'true', initial_bases = 'media={media}')"""
    )
    run(f"INSERT INTO <t> SELECT 1L, '{media}/a'")
    run(f"INSERT INTO <t> BY NAME SELECT '{media}/b' AS data, 2L AS id")
    run("INSERT INTO <t> VALUES (3, X'616263')")
    run(f"UPDATE <t> SET data = '{media}/c' WHERE id = 1")
    merge = f"""MERGE INTO <t> AS t USING (SELECT 3L AS id, '{media}/a' AS data) AS s
                ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"""
    run(merge)
    made = lance.dataset(path)
    ids = made.to_table(columns=["id"])["id"].to_pylist()
    blobs = made.take_blobs("data", indices=list(range(3)))
    found = {i: blob.readall() for i, blob in zip(ids, blobs, strict=True)}
    assert found == {1: b"c" * 200_000, 2: b"b" * 200_000, 3: b"a" * 200_000}
    size = sum(each.stat().st_size for each in (tmp_path / "t.lance").rglob("*") if each.is_file())
    assert size < 200_000, "nothing was copied"
    version = made.version
    with pytest.raises(Exception, match="outside registered"):
        run("INSERT INTO <t> SELECT 4L, '/etc/hostname'")
    assert lance.dataset(path).version == version
    run("INSERT INTO <t> WITH (external_blob_mode = 'ingest') SELECT 4L, '/etc/hostname'")
    run(
        "CREATE OR REPLACE TABLE <t> TBLPROPERTIES ('encoding.data.blob' = 'true', "
        "allow_external_blob_outside_bases = true) "
        f"AS SELECT id, '{media}/a' AS data FROM range(2)"
    )
    assert lance.dataset(path).take_blobs("data", indices=[1])[0].readall() == b"a" * 200_000
