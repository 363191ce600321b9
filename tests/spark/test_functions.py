"""Functions of SQL over tables at any path."""

import lance
import pyarrow as pa
import pytest

from lancelet import spark as ls


@pytest.fixture
def uri(tmp_path):
    path = str(tmp_path / "t.lance")
    rows = pa.table({"id": range(10), "v": pa.array([[1, 2]] * 10, pa.list_(pa.float32(), 2))})
    lance.write_dataset(rows, path, max_rows_per_file=5)
    lance.write_dataset(rows.slice(0, 2), path, mode="append")
    lance.dataset(path).delete("id = 7")
    return path


def test_tables_are_read_and_described_by_sql(spark, uri):
    ls.register(spark)
    ls.register(spark)
    sql = f"SELECT id, v[1] FROM lance_scan(path => '{uri}', filter => 'id > 5', version => 1)"
    assert sorted(spark.sql(sql).collect()) == [(i, 2.0) for i in range(6, 10)]
    narrow = spark.sql(f"SELECT * FROM lance_scan('{uri}', columns => 'id', with_row_id => true)")
    assert narrow.columns == ["id", "_rowid"]
    assert narrow.count() == 11
    versions = spark.sql(f"SELECT version, operation, rows FROM lance_versions('{uri}')")
    assert versions.collect() == [(1, "Overwrite", 10), (2, "Append", 12), (3, "Delete", 11)]
    files = spark.sql(f"SELECT fragment_id, rows, deleted_rows, columns FROM lance_files('{uri}')")
    assert [row[:3] for row in files.collect()] == [(0, 5, 0), (1, 5, 1), (2, 2, 0)]
    assert files.first().columns == ["id", "v"]
    changes = spark.sql(f"SELECT id, _commit_version FROM lance_changes('{uri}', 2, 3)")
    assert sorted(changes.collect()) == [(0, 2), (1, 2)]


def test_arguments_must_make_sense(spark, uri):
    ls.register(spark)
    with pytest.raises(Exception, match="did you mean filter"):
        spark.sql(f"SELECT * FROM lance_scan('{uri}', fitler => 'id = 1')").collect()
    with pytest.raises(Exception, match="was not found"):
        spark.sql(f"SELECT * FROM lance_versions('{uri}.none')").collect()
