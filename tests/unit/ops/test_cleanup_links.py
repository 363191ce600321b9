"""A cleanup deletes nothing that symbolic links lead to."""

import os
import time
from datetime import timedelta

import pyarrow as pa

import lancelet


def table_at(path):
    lancelet.write_dataset(pa.table({"x": range(3)}), str(path))
    for file in path.rglob("*"):
        if file.is_file():
            os.utime(file, (time.time() - 30 * 86_400,) * 2)
    return {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_files_behind_a_link_are_those_of_others(tmp_path):
    other = table_at(tmp_path / "other.lance")
    table_at(tmp_path / "t.lance")
    for folder in ("data", "_transactions"):
        (tmp_path / "t.lance" / folder / "link").symlink_to(tmp_path / "other.lance" / folder)
    garbage = tmp_path / "t.lance" / "data" / "garbage.lance"
    garbage.write_bytes(b"x")
    lancelet.dataset(str(tmp_path / "t.lance")).cleanup_old_versions(
        timedelta(0), delete_unverified=True
    )
    assert {file: file.read_bytes() for file in other} == other
    assert not garbage.exists()


def test_a_folder_of_a_table_may_be_on_another_drive(tmp_path):
    table_at(tmp_path / "t.lance")
    data, drive = tmp_path / "t.lance" / "data", tmp_path / "drive"
    data.rename(drive)
    data.symlink_to(drive)
    (drive / "garbage.lance").write_bytes(b"x")
    dataset = lancelet.dataset(str(tmp_path / "t.lance"))
    dataset.cleanup_old_versions(timedelta(0), delete_unverified=True)
    assert not (drive / "garbage.lance").exists()
    assert dataset.to_table().num_rows == 3
