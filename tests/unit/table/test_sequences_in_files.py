"""Row ids and row versions in files of their own, as older tables have them."""

from dataclasses import replace

import pyarrow as pa
import pytest

import lancelet
from lancelet.format.fragment import External, Inline
from lancelet.format.fragment_list import FragmentList
from lancelet.format.manifest_file import write_manifest_file

NAMES = ("row_ids", "last_updated_at_versions", "created_at_versions")
COLUMNS = ["x", "_rowid", "_row_created_at_version", "_row_last_updated_at_version"]


@pytest.fixture
def dataset(tmp_path):
    """A table of two fragments with adjacent sequences in one file."""
    uri = str(tmp_path / "t.lance")
    rows = pa.table({"x": range(10)})
    lancelet.write_dataset(rows, uri, max_rows_per_file=5, enable_stable_row_ids=True)
    lancelet.dataset(uri).update({"x": "x + 100"}, where="x % 3 = 0")
    snapshot = lancelet.dataset(uri).snapshot
    whole = b"head"
    fragments = []
    for fragment in snapshot.fragments:
        stored = {}
        for name in NAMES:
            data = getattr(fragment, name).data
            stored[name] = External("_sequences/one", len(whole), len(data))
            whole += data
        fragments.append(replace(fragment, **stored))
    snapshot.location.store.put("_sequences/one", whole)
    manifest = replace(snapshot.manifest, fragments=FragmentList.of(fragments))
    data, _ = write_manifest_file(manifest, snapshot.indices, None)
    expected = lancelet.dataset(uri).to_table(COLUMNS)
    snapshot.location.store.put(snapshot.entry.path, data)
    return lancelet.dataset(uri), expected


def test_they_are_read_and_carried_on(dataset):
    table, expected = dataset
    assert table.to_table(COLUMNS) == expected
    table.insert(pa.table({"x": [999]}))
    assert lancelet.dataset(table.uri).to_table(COLUMNS).slice(0, 10) == expected
    assert isinstance(lancelet.dataset(table.uri).snapshot.fragments[0].row_ids, External)


@pytest.mark.parametrize("how", ["shallow_clone", "deep_clone", "create_branch", "branch by uri"])
def test_clones_and_branches_have_them_in_their_manifest(dataset, tmp_path, how):
    table, expected = dataset
    if how == "create_branch":
        other = table.create_branch("dev")
    elif how == "branch by uri":
        other = lancelet.dataset(table.create_branch("dev").uri)
    else:
        other = getattr(table, how)(str(tmp_path / "other.lance"), table.version)
    assert other.to_table(COLUMNS) == expected
    for fragment in other.snapshot.fragments:
        assert all(isinstance(getattr(fragment, name), Inline) for name in NAMES)
    other.delete("x = 1")
    assert other.count_rows() == 9


def test_a_branch_that_is_brought_back_has_them(dataset):
    table, expected = dataset
    branch = table.create_branch("dev")
    branch.insert(pa.table({"x": [999]}))
    table.branches.fast_forward("dev")
    assert lancelet.dataset(table.uri).to_table(COLUMNS).slice(0, 10) == expected
