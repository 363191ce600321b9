"""Cleaning up beside base paths: files in them may be those of others, so both leave them."""

import datetime as dt
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import lancelet

pytestmark = pytest.mark.interop


def files_below(folder: Path) -> set[str]:
    return {str(each.relative_to(folder)) for each in folder.rglob("*") if each.is_file()}


@pytest.mark.parametrize("is_root", [True, False])
@pytest.mark.parametrize("cleaner", [lancelet, lance])
@pytest.mark.parametrize("writer", [lancelet, lance])
def test_files_in_bases_are_not_cleaned_up(tmp_path, writer, cleaner, is_root):
    uri, base = str(tmp_path / "t.lance"), tmp_path / "base"
    base.mkdir()
    rows = pa.table({"a": range(10)})
    bases = [writer.DatasetBasePath(str(base), name="b", is_dataset_root=is_root)]
    writer.write_dataset(rows, uri, initial_bases=bases, target_bases=["b"])
    writer.write_dataset(rows, uri, mode="append", target_bases=["b"])
    writer.dataset(uri).delete("a = 3")
    writer.write_dataset(rows.slice(0, 3), uri, mode="overwrite")
    before = files_below(base)
    assert len(before) == 2
    found = cleaner.dataset(uri).cleanup_old_versions(dt.timedelta(0), delete_unverified=True)
    assert found.old_versions == 3
    assert files_below(base) == before
    assert not list(Path(uri, "_deletions").glob("*"))
    assert lancelet.dataset(uri).count_rows() == lance.dataset(uri).count_rows() == 3
