"""Manifests of old writers with two fragments of one id can be read, but not changed."""

from dataclasses import replace

import lance
import pyarrow as pa
import pytest

import lancelet
from lancelet.errors import InvalidInputError
from lancelet.format.fragment_list import FragmentList
from lancelet.format.manifest_file import write_manifest_file
from lancelet.jobs.split import plan_splits
from lancelet.table.location import TableLocation
from lancelet.table.snapshot import open_snapshot


@pytest.fixture
def uri(tmp_path):
    path = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"x": range(10)}), path, max_rows_per_file=5)
    snapshot = open_snapshot(TableLocation.open(path))
    first, second = snapshot.fragments
    fragments = FragmentList.of([first, replace(second, id=first.id)])
    manifest = replace(snapshot.manifest, fragments=fragments, max_fragment_id=0)
    data, _ = write_manifest_file(manifest, snapshot.indices, None)
    (tmp_path / "t.lance" / snapshot.entry.path).write_bytes(data)
    return path


def test_each_fragment_gives_its_own_rows(uri):
    dataset = lancelet.dataset(uri)
    assert dataset.to_table() == lance.dataset(uri).to_table()
    assert dataset.to_table(filter="x % 2 = 1").column("x").to_pylist() == [1, 3, 5, 7, 9]
    assert dataset.count_rows() == 10


def test_no_version_with_equal_ids_is_committed(uri):
    dataset = lancelet.dataset(uri)
    with pytest.raises(InvalidInputError, match="two fragments share an id"):
        dataset.insert(pa.table({"x": [10]}))
    with pytest.raises(InvalidInputError, match="two fragments share an id"):
        dataset.delete("x = 7")
    assert lancelet.dataset(uri).version == 1
    whole = dataset.to_table()
    lancelet.write_dataset(whole, uri, mode="overwrite")
    assert lancelet.dataset(uri).to_table() == whole


def test_tasks_do_not_read_fragments_of_equal_ids(uri):
    with pytest.raises(InvalidInputError, match="two fragments share an id"):
        plan_splits(lancelet.dataset(uri).snapshot)


def test_listed_fragments_have_their_own_rows(uri):
    first, second = lancelet.dataset(uri).get_fragments()
    for fragment, rows in ((first, range(5)), (second, range(5, 10))):
        assert fragment.to_table()["x"].to_pylist() == list(rows)
        assert fragment.to_table(filter="x % 5 = 3")["x"].to_pylist() == [rows[3]]
        assert fragment.take([2, 0])["x"].to_pylist() == [rows[2], rows[0]]
        assert fragment.head(1)["x"].to_pylist() == [rows[0]]
        assert fragment.count_rows() == 5
        assert fragment.count_rows(f"x = {rows[1]}") == 1
