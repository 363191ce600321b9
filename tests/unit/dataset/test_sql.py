"""SQL over one dataset and over several: results, pushdown, and errors."""

from __future__ import annotations

import builtins
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import lancelet
from lancelet.dataset.sql.query import SqlError, SqlQueryBuilder
from lancelet.errors import (
    InvalidInputError,
    LanceletError,
    ObjectNotFoundError,
    UnsupportedError,
)

ROWS = pa.table(
    {"id": range(100), "name": [f"n{i}" for i in range(100)], "x": [i / 2 for i in range(100)]}
)


@pytest.fixture
def dataset(tmp_path: Path) -> lancelet.LanceDataset:
    return lancelet.write_dataset(ROWS, tmp_path / "t", max_rows_per_file=40)


def test_a_query_returns_its_result(dataset) -> None:
    query = dataset.sql("SELECT id, upper(name) AS n FROM dataset WHERE id BETWEEN 3 AND 4").build()
    assert query.to_table().to_pylist() == [{"id": 3, "n": "N3"}, {"id": 4, "n": "N4"}]
    assert query.to_batch_records()[0].num_rows == 2
    assert query.to_stream_reader().read_all().num_rows == 2
    total = dataset.sql("SELECT count(*) AS n, sum(x) AS s FROM t").table_name("t").build()
    assert total.to_table().to_pylist() == [{"n": 100, "s": 2475.0}]
    assert dataset.sql("SELECT * FROM dataset WHERE id > 100").build().to_batch_records() == []


def test_sums_of_whole_numbers_are_as_those_of_the_reference(dataset) -> None:
    text = "SELECT sum(id) AS s, CAST(min(id) AS INT) AS least FROM dataset"
    found = dataset.sql(text).build().to_table()
    theirs = lance.dataset(dataset.uri).sql(text).build().to_batch_records()
    assert found == pa.Table.from_batches(theirs)


def test_sums_of_several_tables_are_64_bits(dataset) -> None:
    tables = {"t": dataset}
    too_large = lancelet.sql("SELECT sum(id) * 4e18::HUGEINT AS s FROM t", tables)
    with pytest.raises(SqlError, match="does not fit 64 bits"):
        too_large.to_table()
    found = lancelet.sql("SELECT sum(id)::DECIMAL(38, 0) AS s FROM t", tables).to_table()
    assert found.to_pylist() == [{"s": Decimal(4950)}]


def test_columns_and_conditions_are_pushed_down(dataset, monkeypatch) -> None:
    asked = []
    scanner = lancelet.LanceDataset.scanner

    def watched(self, *args, **kwargs):
        asked.append(kwargs)
        return scanner(self, *args, **kwargs)

    monkeypatch.setattr(lancelet.LanceDataset, "scanner", watched)
    found = dataset.sql("SELECT name FROM dataset WHERE id = 41").build().to_table()
    assert found.to_pylist() == [{"name": "n41"}]
    assert asked[-1]["columns"] == ["name"]
    assert str(asked[-1]["filter"]) == "id = 41"


def test_row_ids_and_addresses_are_columns_on_request(dataset) -> None:
    builder = dataset.sql("SELECT * FROM dataset WHERE id = 40").with_row_id().with_row_addr()
    assert builder.build().to_table().to_pylist() == [
        {"id": 40, "name": "n40", "x": 20.0, "_rowid": 1 << 32, "_rowaddr": 1 << 32}
    ]
    assert dataset.sql(
        "SELECT id FROM dataset WHERE _rowid = 7"
    ).with_row_id().build().to_table().to_pylist() == [{"id": 7}]
    with pytest.raises(SqlError, match="_rowid"):
        dataset.sql("SELECT _rowid FROM dataset").build().to_table()


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_batches_have_no_more_rows_or_bytes_than_requested(dataset, size: int) -> None:
    query = dataset.sql("SELECT id FROM dataset")
    rows = [batch.num_rows for batch in query.batch_size(size).build().to_batch_records()]
    assert sum(rows) == 100
    assert max(rows) <= size
    small = dataset.sql("SELECT id FROM dataset").batch_size_bytes(80).build().to_batch_records()
    assert max(batch.num_rows for batch in small) <= 10
    assert pa.Table.from_batches(small)["id"].to_pylist() == list(range(100))


def test_several_tables_are_joined(dataset, tmp_path: Path) -> None:
    other = lancelet.write_dataset(pa.table({"id": [1, 2, 200], "y": [10, 20, 30]}), tmp_path / "o")
    query = lancelet.sql(
        "SELECT a.name, b.y + c.z AS s FROM a JOIN b USING (id) JOIN c USING (id) ORDER BY id",
        tables={"a": dataset, "b": other.uri, "c": pa.table({"id": [2, 1], "z": [1, 2]})},
    )
    assert query.to_table().to_pylist() == [{"name": "n1", "s": 12}, {"name": "n2", "s": 21}]
    assert query.to_table().num_rows == 2


def test_types_that_duckdb_lacks_are_converted(tmp_path: Path) -> None:
    rows = pa.table(
        {
            "id": [1, 2],
            "h": pa.array([0.5, None], pa.float16()),
            "v": pa.array([[1.5, 2.0], None], pa.list_(pa.float16(), 2)),
            "d": pa.array([Decimal("1.25"), None], pa.decimal256(50, 2)),
            "s": pa.array([{"h": 2.5}, None], pa.struct([("h", pa.float16())])),
        }
    )
    dataset = lancelet.write_dataset(rows, tmp_path)
    expected = [
        {"id": 1, "h": 0.5, "v": [1.5, 2.0], "d": 1.25, "s": {"h": 2.5}},
        {"id": 2, "h": None, "v": None, "d": None, "s": None},
    ]
    for table in (dataset, rows, rows.to_reader()):
        assert lancelet.sql("SELECT * FROM t", {"t": table}).to_table().to_pylist() == expected
    few = dataset.sql("SELECT id FROM dataset WHERE h > 0.25 AND id < 2").build()
    assert few.to_table().to_pylist() == [{"id": 1}]
    assert dataset.sql("SELECT id FROM dataset WHERE id = 2").build().to_table().num_rows == 1


@pytest.mark.parametrize(
    "query",
    [
        "SELEC",
        "SELECT * FROM nope",
        "SELECT nope FROM dataset",
        "SELECT CAST(name AS INTEGER) FROM dataset",
        "INSERT INTO dataset VALUES (1)",
        "SELECT * FROM read_csv('/etc/hostname')",
        "COPY dataset TO 'never.csv'",
        "SELECT * FROM ROWS",
    ],
)
def test_invalid_queries_raise_errors_with_the_query(dataset, query: str) -> None:
    with pytest.raises(SqlError) as caught:
        dataset.sql(query).build().to_batch_records()
    assert isinstance(caught.value, ValueError)
    assert caught.value.facts["query"] == query


def test_a_table_that_is_not_there_is_answered_with_where_tables_come_from(dataset) -> None:
    query = lancelet.sql("SELECT * FROM daataset", {"dataset": dataset})
    with pytest.raises(SqlError, match=r"variables of the caller.* did you mean dataset") as caught:
        query.to_table()
    assert "duckdb_" not in str(caught.value)


@pytest.mark.parametrize("query", ["", " \n"])
def test_an_empty_query_is_an_error(query: str) -> None:
    with pytest.raises(SqlError, match="SELECT"):
        lancelet.sql(query, tables={}).to_table()


def test_a_file_in_a_query_is_an_error_with_the_call_that_reads_it() -> None:
    with pytest.raises(SqlError, match=r"pyarrow\.dataset\.dataset\(path\)"):
        lancelet.sql("SELECT * FROM 'a.csv'", tables={}).to_table()


def test_wrong_sizes_are_rejected(dataset) -> None:
    builder = dataset.sql("SELECT 1")
    assert isinstance(builder, SqlQueryBuilder)
    with pytest.raises(InvalidInputError, match="between 1"):
        builder.batch_size(0)
    with pytest.raises(InvalidInputError, match="at least 1"):
        builder.batch_size_bytes(0)


@pytest.mark.parametrize("engine", ["datafusion", "duckdb"])
def test_a_missing_engine_is_an_error_that_names_the_extra(dataset, monkeypatch, engine) -> None:
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name == engine:
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    query = (
        dataset.sql("SELECT 1").build() if engine == "datafusion" else lancelet.sql("SELECT 1", {})
    )
    with pytest.raises(UnsupportedError, match=r"lancelet\[sql\]"):
        query.to_table()


def test_queries_leave_nothing_to_each_other(dataset) -> None:
    rows = dataset.sql("SELECT count(*) AS n FROM dataset").build().to_table()
    lancelet.sql("CREATE TABLE kept AS SELECT 1 AS a", {}).to_table()
    for text in ("CREATE TABLE kept AS SELECT 1 AS a", "SELECT * FROM kept", "SELECT * FROM other"):
        with pytest.raises(SqlError):
            dataset.sql(text).build().to_table()
    with pytest.raises(SqlError):
        lancelet.sql("SELECT * FROM kept", {}).to_table()
    dataset.sql("SELECT * FROM other").table_name("other").build().to_table()
    with pytest.raises(SqlError):
        dataset.sql("SELECT * FROM other").build().to_table()
    assert dataset.sql("SELECT count(*) AS n FROM dataset").build().to_table() == rows


@pytest.mark.parametrize(
    "text",
    [
        "SET threads = 1",
        "SET datafusion.execution.batch_size = 3",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '/etc/passwd'",
        "COPY (SELECT 1) TO 'never.csv'",
    ],
)
def test_queries_change_no_settings_and_read_or_write_no_files(dataset, text: str) -> None:
    with pytest.raises(SqlError):
        dataset.sql(text).build().to_table()
    with pytest.raises(SqlError):
        lancelet.sql(text, {"dataset": dataset}).to_table()
    assert not Path("never.csv").exists()


def test_errors_of_reading_keep_their_type(tmp_path) -> None:
    dataset = lancelet.write_dataset(ROWS, tmp_path / "t")
    (file,) = (tmp_path / "t" / "data").iterdir()
    file.unlink()
    with pytest.raises(ObjectNotFoundError):
        dataset.sql("SELECT sum(x) FROM dataset").build().to_table()


def test_errors_of_functions_keep_their_message(dataset) -> None:
    query = "SELECT st_astext(st_geomfromtext(name)) FROM dataset"
    with pytest.raises(LanceletError, match="WKT") as caught:
        dataset.sql(query).build().to_table()
    assert "PyErr" not in str(caught.value)


@pytest.mark.parametrize("text", ["SELECT sum(id) AS s FROM dataset", "SELECT id FROM dataset"])
def test_a_built_query_reads_the_version_it_was_built_for(dataset, text: str) -> None:
    query = dataset.sql(text).build()
    before = query.to_table()
    dataset.delete("id > 3")
    assert query.to_table() == before


def test_json_columns_are_json_in_results(tmp_path) -> None:
    documents = pa.array(['{"a":1,"b":{"c":"x"}}', "null", None, '{"a":"7"}'], pa.json_())
    dataset = lancelet.write_dataset(pa.table({"id": range(4), "doc": documents}), tmp_path / "t")
    shown = dataset.sql("SELECT doc, id FROM dataset WHERE id <> 1 ORDER BY id").build().to_table()
    assert shown.schema == pa.schema([("doc", pa.json_()), ("id", pa.int64())])
    assert shown["doc"].to_pylist() == ['{"a":1,"b":{"c":"x"}}', None, '{"a":"7"}']
    text = """
        SELECT json_get_int(doc, 'a') AS a, json_extract(doc, '$.b') AS b,
               json_get_string(json_get(doc, 'b'), 'c') AS c, json_exists(doc, p) AS d
        FROM (SELECT doc, CASE WHEN id = 0 THEN '$.b' ELSE '$.a' END AS p FROM dataset)
        WHERE doc IS NOT NULL ORDER BY a
    """
    assert dataset.sql(text).build().to_table().to_pylist() == [
        {"a": 1, "b": '{"c":"x"}', "c": "x", "d": True},
        {"a": 7, "b": None, "c": None, "d": True},
        {"a": None, "b": None, "c": None, "d": False},
    ]
    stored = dataset.sql("SELECT id FROM dataset WHERE doc = json_get(doc, 'a')").build()
    assert stored.to_table().num_rows == 0


def test_many_threads_query_at_once(dataset) -> None:
    def count(least: int) -> int:
        text = f"SELECT count(*) FROM dataset WHERE id >= {least}"
        return dataset.sql(text).build().to_table()[0][0].as_py()

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(count, range(8)))
    assert found == [count(least) for least in range(8)]


def test_a_repeated_query_reads_its_current_input(tmp_path) -> None:
    """What DuckDB understood is used again, for rows that changed and for other tables."""
    text = "SELECT sum(id) AS s FROM dataset HAVING count(*) > 0"
    first = lancelet.write_dataset(ROWS, tmp_path / "a")
    other = lancelet.write_dataset(ROWS.slice(0, 2), tmp_path / "b")

    def asked(dataset) -> int:
        return dataset.sql(text).build().to_table()["s"].to_pylist()[0]

    assert [asked(first), asked(other), asked(first)] == [4950, 1, 4950]
    first.delete("id = 99")
    assert asked(first) == 4851
    renamed = lancelet.write_dataset(ROWS.rename_columns(["id2", "id", "x"]), tmp_path / "c")
    with pytest.raises(SqlError, match="sum"):
        asked(renamed)
    assert asked(other) == 1


def test_a_running_query_is_not_shared(dataset) -> None:
    text = "SELECT id FROM dataset ORDER BY id"
    readers = [dataset.sql(text).batch_size(7).build().to_stream_reader() for _ in range(3)]
    begun = [reader.read_next_batch()["id"].to_pylist() for reader in readers]
    assert begun == [list(range(len(begun[0])))] * 3
    del readers[0]
    for reader in readers:
        assert reader.read_all().num_rows == 100 - len(begun[0])
    assert dataset.sql(text).build().to_table()["id"].to_pylist() == list(range(100))


def test_a_query_runs_in_many_threads(dataset) -> None:
    text = "SELECT count(*) AS n FROM dataset WHERE id % 3 = 0"
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(lambda: dataset.sql(text).build().to_table()) for _ in range(24)]
        assert {each.result()["n"].to_pylist()[0] for each in asked} == {34}


FORKED_AFTER_A_QUERY = """
import subprocess, sys
import pyarrow as pa
import lancelet

rows = lancelet.write_dataset(pa.table({"id": [1, 2]}), sys.argv[1])
assert rows.sql("SELECT count(*) AS n FROM dataset").build().to_batch_records()
assert lancelet.sql("SELECT sum(id) AS s FROM rows") is not None
# A function before the program makes it a true fork, as PySpark starts its JVM.
started = [subprocess.run(["true"], preexec_fn=lambda: None).returncode for _ in range(8)]
print(started)
"""


def test_a_child_that_is_forked_after_a_query_lives(run_program, tmp_path):
    assert run_program(FORKED_AFTER_A_QUERY, str(tmp_path / "t")) == f"{[0] * 8}\n"


SQL_AFTER_A_FORK = """
import os, sys
import pyarrow as pa
import lancelet

def count() -> str:
    try:
        return str(rows.sql("SELECT count(*) AS n FROM dataset").build().to_table()["n"][0])
    except lancelet.errors.UnsupportedError as error:
        return "spawn" if "spawn" in str(error) else str(error)

rows = lancelet.write_dataset(pa.table({"id": [1, 2]}), sys.argv[1])
for attempt in range(2):
    if not (child := os.fork()):
        print(count(), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    print(count(), flush=True)
"""


def test_a_forked_process_runs_sql_or_reports_to_use_spawn(run_program, tmp_path):
    printed = run_program(SQL_AFTER_A_FORK, str(tmp_path / "t"))
    assert printed.split() == ["2", "2", "spawn", "2"]
