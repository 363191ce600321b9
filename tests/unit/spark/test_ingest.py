"""Files of a folder are ingested as rows with blobs."""

import lance
import pytest

from lancelet import spark as ls
from lancelet.errors import SchemaMismatchError
from lancelet.jobs.local import LocalEngine

HERE = LocalEngine(1)


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "files"
    (made / "sub").mkdir(parents=True)
    for number in range(7):
        (made / "sub" / f"{number}.bin").write_bytes(bytes([number]) * (number * 1000))
    (made / "notes.txt").write_text("not this")
    return made


def blobs_of(uri):
    table = lance.dataset(uri)
    rows = table.to_table(columns=["path", "size"], with_row_id=True).to_pylist()
    found = table.take_blobs("data", ids=[row["_rowid"] for row in rows])
    return {row["path"]: blob.readall() for row, blob in zip(rows, found, strict=True)}, rows


@pytest.mark.parametrize("bytes_per_task", [1, 5000, 10**9])
def test_every_file_is_a_row(folder, tmp_path, bytes_per_task, monkeypatch):
    monkeypatch.setattr("lancelet.spark.running.LocalEngine", lambda **_: HERE)
    uri = str(tmp_path / "t.lance")
    done = ls.ingest_files(folder, uri, pattern="*.bin", bytes_per_task=bytes_per_task)
    assert (done.version, done.num_rows) == (1, 7)
    blobs, rows = blobs_of(uri)
    assert blobs == {f"sub/{n}.bin": bytes([n]) * (n * 1000) for n in range(7)}
    assert {row["path"]: row["size"] for row in rows} == {p: len(b) for p, b in blobs.items()}
    assert done.report.phases[0].tasks == {1: 7, 5000: 5, 10**9: 1}[bytes_per_task]
    assert ls.ingest_files(folder, uri, pattern="*.txt").version == 2
    assert lance.dataset(uri).count_rows() == 8


def test_a_table_of_other_columns_is_rejected(folder, tmp_path):
    import pyarrow as pa

    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"x": [1]}), uri)
    with pytest.raises(SchemaMismatchError):
        ls.ingest_files(folder, uri)
