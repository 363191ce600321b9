"""Fragments compacted by page copy have the same rows as re-encoded ones."""

import uuid

import lance
import numpy as np
import pyarrow as pa
import pytest

import lancelet
from lancelet.errors import CorruptDataError, UnsupportedError

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("s", pa.struct([("x", pa.int64()), ("y", pa.list_(pa.int16()))])),
        ("d", pa.dictionary(pa.int32(), pa.string())),
        ("v", pa.list_(pa.float32(), 4)),
    ]
)


def rows(start, stop):
    ids = range(start, stop)
    columns = {
        "id": ids,
        "name": [None if i % 7 == 3 else f"row {i}" for i in ids],
        "s": [None if i % 5 == 0 else {"x": i, "y": [i] * (i % 4)} for i in ids],
        "d": [f"kind {i % 3}" for i in ids],
        "v": [[i, i + 1, i + 2, i + 3] for i in ids],
    }
    return pa.table(columns, SCHEMA)


def write(uri, writer=lancelet, *, version="2.2", sizes=(1000, 1, 3000)):
    start = 0
    for size in sizes:
        data = rows(start, start + size)
        mode = "append" if start else "create"
        writer.write_dataset(data, uri, mode=mode, data_storage_version=version)
        start += size
    return lancelet.dataset(uri)


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("writer", [lancelet, lance], ids=["ours", "theirs"])
@pytest.mark.parametrize("read_bytes", [1, 16 * 1024 * 1024])
def test_rows_of_joined_files_are_those_of_their_parts(tmp_path, writer, version, read_bytes):
    dataset = write(str(tmp_path), writer, version=version)
    before = dataset.to_table().to_pylist()
    dataset.optimize.compact_files(
        compaction_mode="force_binary_copy", binary_copy_read_batch_bytes=read_bytes
    )
    assert len(dataset.get_fragments()) == 1
    assert dataset.to_table().to_pylist() == before
    chosen = [0, 1000, 1001, 4000]
    assert dataset.take(chosen).to_pylist() == [before[row] for row in chosen]
    theirs = lance.dataset(str(tmp_path))
    assert theirs.to_table().to_pylist() == before
    assert theirs.take(chosen).to_pylist() == [before[row] for row in chosen]
    assert dataset.check("indices") == []


def test_row_ids_stay_when_files_are_joined():
    uri = f"memory://copy/{uuid.uuid4()}"
    lancelet.write_dataset(rows(0, 50), uri, max_rows_per_file=10, enable_stable_row_ids=True)
    dataset = lancelet.dataset(uri)
    before = dataset.to_table(with_row_id=True).to_pylist()
    dataset.optimize.compact_files(compaction_mode="force_binary_copy")
    assert dataset.to_table(with_row_id=True).to_pylist() == before


@pytest.mark.parametrize(
    ("prepare", "reason"),
    [
        (lambda dataset: dataset.delete("id = 1"), "deleted rows"),
        (lambda dataset: dataset.drop_columns(["d"]), "not in the order of the table"),
        (lambda dataset: dataset.add_columns({"twice": "id * 2"}), "several files"),
    ],
)
def test_unjoinable_pages_are_encoded_or_rejected(prepare, reason):
    dataset = write(f"memory://copy/{uuid.uuid4()}", sizes=(10, 20))
    prepare(dataset)
    before = dataset.to_table().to_pylist()
    with pytest.raises(UnsupportedError, match=reason):
        dataset.optimize.compact_files(compaction_mode="force_binary_copy")
    dataset.optimize.compact_files(compaction_mode="try_binary_copy")
    assert len(dataset.get_fragments()) == 1
    assert dataset.to_table().to_pylist() == before


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"data_storage_version": "2.1"}, "another version than new files"),
        ({"max_bytes_per_file": 100}, "several files"),
    ],
)
def test_options_that_change_pages_are_not_copies(options, reason):
    dataset = write(f"memory://copy/{uuid.uuid4()}", sizes=(10, 20))
    with pytest.raises(UnsupportedError, match=reason):
        dataset.optimize.compact_files(compaction_mode="force_binary_copy", **options)


@pytest.mark.parametrize("version", ["0.1", "2.0"])
def test_pages_of_old_versions_are_not_copied(version):
    uri = f"memory://copy/{uuid.uuid4()}"
    data = pa.table({"id": range(30)})
    lancelet.write_dataset(data, uri, max_rows_per_file=10, data_storage_version=version)
    dataset = lancelet.dataset(uri)
    with pytest.raises(UnsupportedError):
        dataset.optimize.compact_files(compaction_mode="force_binary_copy")
    assert dataset.version == 1


def test_damage_is_not_copied(tmp_path):
    values = np.random.default_rng(7).integers(0, 2**62, 60_000)
    uri = str(tmp_path)
    lancelet.write_dataset(pa.table({"id": values}), uri, max_rows_per_file=30_000)
    path = next((tmp_path / "data").iterdir())
    data = bytearray(path.read_bytes())
    data[20_000] ^= 1
    path.unlink()
    path.write_bytes(data)
    with pytest.raises(CorruptDataError, match="checksum"):
        lancelet.dataset(uri).optimize.compact_files(compaction_mode="force_binary_copy")
    assert len(list((tmp_path / "data").iterdir())) == 2
