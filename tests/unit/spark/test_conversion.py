"""Tables of other kinds become Lance and back, in processes of this machine, without a session."""

import datetime as dt

import deltalake
import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lancelet import spark as ls
from lancelet.errors import (
    AlreadyExistsError,
    DatasetNotFoundError,
    InvalidInputError,
    SchemaMismatchError,
    UnsupportedError,
)

ROWS = pa.table(
    {
        "id": pa.array(range(100), pa.int64()),
        "small": pa.array([i % 7 for i in range(100)], pa.uint8()),
        "name": [None if i % 9 == 0 else f"row {i}" for i in range(100)],
        "day": pa.array([dt.date(2024, 2, 1 + i % 28) for i in range(100)]),
        "items": pa.array([[i, i + 1] for i in range(100)], pa.list_(pa.int32())),
    }
)


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "parquet"
    made.mkdir()
    for number in range(4):
        pq.write_table(ROWS.slice(25 * number, 25), made / f"{number}.parquet")
    (made / "_SUCCESS").touch()
    return made


def test_parquet_becomes_a_table_with_the_same_types_and_back(folder, tmp_path):
    uri, out = tmp_path / "t.lance", tmp_path / "out"
    done = ls.convert(folder, uri, bytes_per_task=1)
    assert (done.version, done.num_rows) == (1, 100)
    assert lance.dataset(str(uri)).to_table().equals(ROWS)
    with pytest.raises(AlreadyExistsError):
        ls.convert(folder, uri)
    assert ls.convert(folder, uri, mode="append").version == 2
    assert lance.dataset(str(uri)).count_rows() == 200
    assert ls.convert(uri, out, version=1, bytes_per_task=1).num_rows == 100
    assert pq.read_table(out).sort_by("id").equals(ROWS)
    assert all(path.suffix == ".parquet" for path in out.rglob("*") if path.is_file())
    with pytest.raises(AlreadyExistsError):
        ls.convert(uri, out)
    with pytest.raises(InvalidInputError, match="atomically"):
        ls.convert(uri, out, mode="overwrite")


def test_delta_tables_are_read_at_a_version_and_written(tmp_path):
    source, uri, out = str(tmp_path / "delta"), str(tmp_path / "t.lance"), str(tmp_path / "out")
    rows = ROWS.drop_columns(["small"])
    deltalake.write_deltalake(source, rows, partition_by=["day"])
    deltalake.write_deltalake(source, rows.slice(0, 10), mode="append")
    ls.convert(source, uri, version=0)
    found = lance.dataset(uri).to_table().sort_by("id")
    assert found.select(rows.column_names).equals(rows)
    ls.convert(source, uri, mode="overwrite")
    assert lance.dataset(uri).count_rows() == 110
    ls.convert(uri, out, target_format="delta", version=1)
    back = deltalake.DeltaTable(out).to_pyarrow_table().sort_by("id")
    assert back.select(rows.column_names).to_pylist() == rows.to_pylist()
    ls.convert(uri, out, target_format="delta", version=1, mode="append")
    assert deltalake.DeltaTable(out).to_pyarrow_table().num_rows == 200
    assert deltalake.DeltaTable(out).version() == 1


def test_plain_files_become_blobs(tmp_path):
    files = tmp_path / "files"
    files.mkdir()
    for number in range(3):
        (files / f"{number}.bin").write_bytes(bytes([number]) * 10)
    uri = tmp_path / "t.lance"
    assert ls.convert(files, uri, source_format="files").num_rows == 3
    sizes = lance.dataset(str(uri)).to_table(columns=["path", "size"]).to_pydict()
    assert sizes == {"path": ["0.bin", "1.bin", "2.bin"], "size": [10, 10, 10]}
    with pytest.raises(AlreadyExistsError):
        ls.convert(files, uri, source_format="files")


def test_sources_that_cannot_be_meant_are_rejected(folder, tmp_path):
    uri = tmp_path / "t.lance"
    with pytest.raises(InvalidInputError, match="source_format"):
        ls.convert(tmp_path / "none", uri)
    with pytest.raises(DatasetNotFoundError):
        ls.convert(tmp_path / "none", uri, source_format="parquet")
    with pytest.raises(InvalidInputError, match="unsupported conversion"):
        ls.convert(folder, uri, target_format="delta")
    with pytest.raises(InvalidInputError, match="mode"):
        ls.convert(folder, uri, mode="replace")
    pq.write_table(pa.table({"other": [1]}), folder / "9.parquet")
    with pytest.raises(SchemaMismatchError, match="columns of a file differ"):
        ls.convert(folder, uri)
    assert not uri.exists() or not list(uri.rglob("*.manifest"))
    nested = tmp_path / "nested" / "day=1"
    nested.mkdir(parents=True)
    pq.write_table(ROWS, nested / "0.parquet")
    with pytest.raises(UnsupportedError, match="partitioned folders"):
        ls.convert(tmp_path / "nested", uri, source_format="parquet")


def test_files_with_a_reserved_name_of_a_column_are_rejected(tmp_path):
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"_rowid": [1]}), tmp_path / "in" / "a.parquet")
    with pytest.raises(InvalidInputError, match="reserved"):
        ls.convert(tmp_path / "in", tmp_path / "t.lance")


def test_a_table_moves_to_another_file_version_and_is_checked(tmp_path):
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(ROWS, uri, max_rows_per_file=30, data_storage_version="2.0")
    lance.dataset(uri).delete("id = 50")
    done = ls.migrate(uri, "2.2", message="newer files")
    after = lance.dataset(uri)
    assert after.data_storage_version == "2.2"
    assert after.version == done.version == 3
    assert after.to_table().equals(lance.dataset(uri, version=2).to_table())
    assert ls.check(uri, "decode") == []
    path = next(iter((tmp_path / "t.lance" / "data").iterdir()))
    damaged = after.get_fragments()[0].data_files()[0].path
    (path.parent / damaged).unlink()
    findings = ls.check(uri)
    assert [damaged in finding.path for finding in findings] == [True]
    assert ls.check(uri, version=2) == []
