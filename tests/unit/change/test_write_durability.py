"""The order of syncs and renames of a write."""

import errno
import os
from pathlib import Path

import pyarrow as pa
import pytest

import lancelet
from lancelet.errors import StorageError
from lancelet.io import durable, unfinished

ROWS = pa.table({"x": [1, 2, 3]})


def test_data_files_are_on_the_disk_before_a_manifest_has_its_name(tmp_path, monkeypatch):
    table = str(tmp_path / "t")
    lancelet.write_dataset(ROWS, table)
    done = []
    flush, link = os.fsync, os.link

    def spy_flush(handle):
        path = Path(f"/proc/self/fd/{handle}").readlink()
        flush(handle)
        done.append(f"flushed {path.name}" if path.is_dir() else "flushed a file")

    def spy_link(source, target, **options):
        link(source, target, **options)
        done.append(f"named {Path(target).suffix}")

    monkeypatch.setattr(durable.os, "fsync", spy_flush)
    monkeypatch.setattr(unfinished.os, "link", spy_link)
    lancelet.write_dataset(ROWS, table, mode="append", max_rows_per_file=2)
    done = [step for step in done if step not in ("named .txn", "named .json")]
    named = done.index("named .manifest")
    before, after = done[:named], done[named + 1 :]
    assert sorted(before) == [
        *["flushed a file"] * 3,
        # Once for all the names in it, the last of which was there before.
        "flushed data",
        *["named .lance"] * 2,
    ]
    assert "named .lance" not in before[before.index("flushed data") :]
    assert before[-1] == "flushed a file"
    assert after == ["flushed _versions"]


def test_a_data_file_that_cannot_be_flushed_is_in_no_version(tmp_path, monkeypatch):
    table = str(tmp_path / "t")
    lancelet.write_dataset(ROWS, table)

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(durable.os, "fsync", full)
        with pytest.raises(StorageError, match="refused a request"):
            lancelet.write_dataset(ROWS, table, mode="append")
    dataset = lancelet.dataset(table)
    assert (dataset.version, dataset.count_rows()) == (1, 3)
