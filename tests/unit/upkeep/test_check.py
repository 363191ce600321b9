"""Check locates damage; repair fixes it in a new version."""

import shutil
import tracemalloc
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

import lancelet
from lancelet.change.publish import publish
from lancelet.dataset.index.values import index_from_user
from lancelet.errors import (
    CorruptDataError,
    InvalidInputError,
    NotFoundError,
    VersionNotFoundError,
    VersionRemovedError,
)
from lancelet.format.fragment import Inline
from lancelet.format.fragment_list import FragmentList
from lancelet.format.manifest import MissingRowIdsError
from lancelet.format.manifest_file import render_manifest_file
from lancelet.format.operation import CreateIndex, Update
from lancelet.io.wrapped import WrappedStore
from lancelet.rowids.sequence import RowIdSequence
from lancelet.rowids.versions import VersionSequence
from lancelet.table.location import TableLocation
from lancelet.table.snapshot import open_snapshot
from lancelet.upkeep.check import Level, Severity, check

HISTORICAL = Path(__file__).parents[2] / "golden" / "historical"
NO_SYNC = {"local_sync": "false"}


def rows(start, stop):
    return pa.table({"id": range(start, stop), "name": [f"row {i}" for i in range(start, stop)]})


@pytest.fixture
def table(tmp_path):
    """A dataset with fragments 0 (9 rows), 1 (10 rows) and 2 (10 rows)."""
    uri = str(tmp_path / "t")
    options = {"storage_options": NO_SYNC, "enable_stable_row_ids": True}
    lancelet.write_dataset(rows(0, 30), uri, max_rows_per_file=10, **options)
    dataset = lancelet.dataset(uri)
    dataset.delete("id = 3")
    return dataset


def root_of(dataset):
    return Path(dataset.uri)


def data_file(dataset, fragment_id):
    path = dataset.snapshot.fragments.by_id(fragment_id).files[0].path
    return root_of(dataset) / "data" / path


def deletion_file(dataset):
    return next((root_of(dataset) / "_deletions").glob("0-*"))


def found(dataset, level="indices"):
    again = lancelet.dataset(dataset.uri)
    return [(f.severity.value, f.fragment_id) for f in again.check(level)]


def flip(path, position):
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    # A new file under the name, so that nothing is served from a map of the old one.
    path.unlink()
    path.write_bytes(data)


@pytest.mark.parametrize("version", ["0.1", "2.0", "2.1", "2.2"])
def test_a_sound_table_has_no_findings(tmp_path, version):
    uri = str(tmp_path)
    dataset = lancelet.write_dataset(rows(0, 30), uri, data_storage_version=version)
    dataset.delete("id % 3 = 1")
    dataset.update({"name": "'x'"}, where="id = 3")
    dataset.optimize.compact_files()
    for level in Level:
        assert dataset.check(level, all_versions=True) == []


def test_missing_and_cut_files_are_found_without_reading(table):
    data_file(table, 0).unlink()
    path = data_file(table, 1)
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data[:-1])
    deletion_file(table).unlink()
    findings = lancelet.dataset(table.uri).check("present")
    assert [(f.severity, f.fragment_id) for f in findings] == [(Severity.ERROR, 0)] * 2 + [
        (Severity.ERROR, 1)
    ]
    assert findings[0].path == f"data/{data_file(table, 0).name}"
    assert findings[0].what == "the file is missing"
    assert f"has {len(data) - 1} bytes instead of {len(data)}" in findings[2].what
    assert "restore" in str(findings[2])


def test_each_check_level_finds_more_damage(tmp_path):
    values = np.random.default_rng(7).integers(0, 2**62, 50_000)
    dataset = lancelet.write_dataset(pa.table({"id": values}), str(tmp_path))
    path = data_file(dataset, 0)
    original = path.read_bytes()
    # The footer is at the end; its damage is found when the file is opened.
    flip(path, len(original) - 10)
    assert found(dataset, "present") == []
    assert found(dataset, "footers") == [("error", 0)]
    path.write_bytes(original)
    # Damage at the start is found by reads of it.
    flip(path, 20_000)
    assert found(dataset, "footers") == []
    assert found(dataset, "checksums") == [("error", 0)]
    (finding,) = lancelet.dataset(dataset.uri).check("checksums")
    assert finding.what == "wrong checksum of bytes 16384 to 32768"
    path.write_bytes(original)
    assert found(dataset) == []


def test_damage_without_checksums_is_found_by_decoding(tmp_path):
    uri = str(tmp_path / "t")
    lance.write_dataset(rows(0, 500), uri, data_storage_version="2.1")
    dataset = lancelet.dataset(uri)
    path = data_file(dataset, 0)
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(b"\xff" * 64 + data[64:])
    assert found(dataset, "checksums") == []
    assert found(dataset, "decode") == [("error", 0)]


def test_counts_that_are_wrong_are_found_and_rebuilt(table):
    expected = table.to_table()
    fragment = table.snapshot.fragments.by_id(0)
    deletion = replace(fragment.deletion_file, num_deleted_rows=5)
    publish(table.snapshot, Update((), (replace(fragment, deletion_file=deletion),)))
    table.checkout_latest()
    (finding,) = table.check("footers")
    assert "has 1 deleted rows, but the manifest has 5" in finding.what
    tried = table.repair(rebuild_counts=True)
    assert (tried.version, tried.rows_before, tried.rows_after) == (3, 25, 29)
    assert table.latest_version == 3
    done = table.repair(rebuild_counts=True, dry_run=False)
    assert replace(done, version=3) == tried
    assert done.recounted_fragments == (0,)
    assert table.version == 4
    assert table.count_rows() == 29
    assert table.to_table().equals(expected)
    assert table.check("indices") == []
    assert table.repair(rebuild_counts=True, dry_run=False).recounted_fragments == ()
    assert table.version == 4


def test_a_damaged_fragment_is_dropped(table):
    flip(data_file(table, 1), 100)
    dataset = lancelet.dataset(table.uri)
    with pytest.raises(CorruptDataError):
        dataset.to_table()
    damaged = {finding.fragment_id for finding in dataset.check("decode")}
    assert damaged == {1}
    report = dataset.repair(drop_fragments=list(damaged))
    assert (report.rows_before, report.rows_after, report.dropped_fragments) == (29, 19, (1,))
    assert dataset.version == 2
    dataset.repair(drop_fragments=list(damaged), dry_run=False)
    assert dataset.to_table()["id"].to_pylist() == [
        i for i in range(30) if not 9 < i < 20 and i != 3
    ]
    assert dataset.check("indices") == []
    with pytest.raises(InvalidInputError, match="does not contain these fragments"):
        dataset.repair(drop_fragments=[1])


def test_a_fragment_is_restored_from_an_older_version(table):
    table.update({"name": "'changed'"}, where="id >= 10 AND id < 15")
    deletion_file(table).unlink()
    dataset = lancelet.dataset(table.uri)
    report = dataset.repair(restore_fragments=[0], source=1, dry_run=False)
    assert report.restored_fragments == (0,)
    assert report.bytes_copied == 0
    # Row 3 is back, since version 1 still had it.
    assert sorted(dataset.to_table()["id"].to_pylist()) == list(range(30))
    assert dataset.check("indices") == []


def test_a_fragment_is_restored_from_a_copy(table, tmp_path):
    copy = str(tmp_path / "copy")
    shutil.copytree(table.uri, copy)
    expected = table.to_table()
    flip(data_file(table, 1), 100)
    deletion_file(table).unlink()
    dataset = lancelet.dataset(table.uri)
    source = lancelet.dataset(copy)
    tried = dataset.repair(restore_fragments=[0, 1], source=source)
    assert tried.bytes_copied > 1000
    assert dataset.version == 2
    before = {path.name for path in (root_of(dataset) / "data").iterdir()}
    report = dataset.repair(restore_fragments=[0, 1], source=source, dry_run=False)
    assert replace(report, version=2) == tried
    assert dataset.to_table().equals(expected)
    assert dataset.check("indices") == []
    after = {path.name for path in (root_of(dataset) / "data").iterdir()}
    assert len(after - before) == 2
    with pytest.raises(InvalidInputError, match="also damaged in the source"):
        dataset.repair(restore_fragments=[1], source=1)
    with pytest.raises(InvalidInputError, match="both dropped and restored"):
        dataset.repair(restore_fragments=[1], drop_fragments=[1], source=source)
    with pytest.raises(InvalidInputError, match="an older version, or a copy"):
        dataset.repair(restore_fragments=[1])


def test_row_ids_that_are_given_twice_are_found(table):
    first, second = (table.snapshot.fragments.by_id(number) for number in (1, 2))
    publish(table.snapshot, Update((), (replace(second, row_ids=first.row_ids),)))
    table.checkout_latest()
    assert table.check("decode") == []
    assert ["two live rows have the same row id" in f.what for f in table.check("indices")] == [
        True
    ]


def test_row_ids_that_are_missing_are_rejected_and_not_made_up(tmp_path):
    """The reference does not open such a table."""
    uri = str(tmp_path / "t")
    written = lancelet.write_dataset(
        rows(0, 20), uri, max_rows_per_file=10, enable_stable_row_ids=True
    )
    written.create_scalar_index("id", "BTREE")
    snapshot = lancelet.dataset(uri).snapshot
    stripped = [replace(fragment, row_ids=None) for fragment in snapshot.fragments]
    manifest = replace(snapshot.manifest, fragments=FragmentList.of(stripped))
    path = Path(uri) / snapshot.entry.path
    path.write_bytes(render_manifest_file(manifest, snapshot.indices, None))
    with pytest.raises(ValueError, match="row id"):
        lance.dataset(uri)
    for call in (
        lambda: lancelet.dataset(uri),
        lambda: lancelet.dataset(uri, version=2),
        lambda: lancelet.dataset(uri, version=1).insert(rows(20, 21)),
    ):
        with pytest.raises(MissingRowIdsError) as caught:
            call()
        assert isinstance(caught.value, ValueError)
    lancelet.write_dataset(rows(0, 20), uri, mode="overwrite")
    assert lance.dataset(uri).to_table(with_row_id=True).num_rows == 20


@pytest.mark.parametrize("has_deletions", [False, True])
def test_rows_that_a_manifest_claims_cost_nothing(tmp_path, has_deletions):
    """A range of ids is a few bytes, whatever its length, and was written out to be compared."""
    uri, claimed = str(tmp_path / "t"), 1 << 27
    written = lancelet.write_dataset(
        rows(0, 20), uri, max_rows_per_file=10, enable_stable_row_ids=True
    )
    if has_deletions:
        written.delete("id = 15")
    snapshot = written.snapshot
    versions = Inline(VersionSequence.constant(claimed, 1).render())
    fragment = replace(
        snapshot.fragments[1],
        physical_rows=claimed,
        row_ids=Inline(RowIdSequence.of_range(10, 10 + claimed).render()),
        created_at_versions=versions,
        last_updated_at_versions=versions,
    )
    manifest = replace(
        snapshot.manifest, fragments=FragmentList.of([snapshot.fragments[0], fragment])
    )
    path = Path(uri) / snapshot.entry.path
    path.write_bytes(render_manifest_file(manifest, snapshot.indices, None))
    damaged = lancelet.dataset(uri)
    tracemalloc.start(1)
    try:
        found = damaged.check("indices")
        assert tracemalloc.get_traced_memory()[1] < 24 << 20
    finally:
        tracemalloc.stop()
    assert [f.what for f in found] == ["the file has 10 rows, but the fragment has 134217728"]


def test_indices_are_checked_and_dropped(tmp_path):
    uri = str(tmp_path / "t")
    lance.write_dataset(rows(0, 100), uri).create_scalar_index("id", "BTREE")
    dataset = lancelet.dataset(uri)
    assert dataset.check("decode") == []
    assert dataset.check("indices") == []
    (folder,) = (tmp_path / "t" / "_indices").iterdir()
    next(folder.iterdir()).unlink()
    (error,) = lancelet.dataset(uri).check("present")
    assert (error.severity, error.index) == (Severity.ERROR, "id_idx")
    assert dataset.repair(drop_indices=["id_idx"]).dropped_indices == ("id_idx",)
    dataset.repair(drop_indices=["id_idx"], dry_run=False)
    assert dataset.check("indices") == []
    assert lance.dataset(uri).describe_indices() == []
    with pytest.raises(NotFoundError, match="no index with this name"):
        dataset.repair(drop_indices=["id_idx"])


def test_an_index_is_sound_after_every_vector_that_it_has_was_deleted(tmp_path):
    vectors = pa.array([[1.0, 2.0], None], pa.list_(pa.float32(), 2))
    dataset = lancelet.write_dataset(pa.table({"id": [1, 2], "v": vectors}), str(tmp_path / "t"))
    dataset.create_index("v", "IVF_FLAT", num_partitions=1)
    dataset.delete("id = 1")
    assert dataset.check("indices") == []


def test_leftovers_of_old_releases_in_indices_are_not_damage(tmp_path):
    uri = str(tmp_path / "t")
    shutil.copytree(HISTORICAL / "v0.21.0" / "bad_index_fragment_bitmap", uri)
    findings = lancelet.dataset(uri).check("indices")
    (warning,) = (f.what for f in findings if f.severity is Severity.WARNING)
    assert warning == (
        "vector_idx: another segment also covers the fragments [0]; the first segment takes "
        "precedence, and other readers may return rows twice"
    )
    assert {f.severity for f in findings} == {Severity.WARNING}
    other = str(tmp_path / "other")
    shutil.copytree(uri, other)
    # Both correct the coverage with the next commit; the reference lists the files too.
    lance.dataset(uri).delete("false")
    lancelet.dataset(other).update_config({"a": "b"})
    for mended in (uri, other):
        assert lancelet.dataset(mended).check("indices") == []


def test_an_index_whose_quantizer_is_in_a_schema_is_sound():
    for version in (1, 2):
        uri = str(HISTORICAL / "v0.27.1" / "pq_in_schema")
        assert lancelet.dataset(uri, version).check("indices") == []


@pytest.mark.parametrize(
    ("column", "kind", "more"),
    [("v", "IVF_FLAT", {"num_partitions": 1}), ("s", "INVERTED", {}), ("k", "BTREE", {})],
)
def test_rows_covered_by_two_segments_are_reported_once(tmp_path, column, kind, more):
    vectors = pa.array([[k, 1.0] for k in range(60)], pa.list_(pa.float32(), 2))
    data = pa.table({"k": range(60), "s": ["tree"] * 60, "v": vectors})
    dataset = lancelet.write_dataset(data, str(tmp_path / "t"), max_rows_per_file=20)
    parts = [
        index_from_user(
            dataset.create_index_uncommitted(column, kind, "i", fragment_ids=covered, **more)
        )
        for covered in ([0], [0, 1])
    ]
    snapshot = publish(dataset.snapshot, CreateIndex(tuple(parts)))
    assert [set(index.fragment_bitmap) for index in snapshot.indices.indices] == [{0}, {0, 1}]
    found = dataset.at(snapshot)
    near = {"column": "v", "q": [3.0, 1.0], "k": 5}
    assert sorted(found.to_table(nearest=near)["k"].to_pylist()) == [1, 2, 3, 4, 5]
    if kind == "INVERTED":
        assert found.to_table(full_text_query="tree").num_rows == 60
    assert found.to_table(filter="k in (3, 30, 50)")["k"].to_pylist() == [3, 30, 50]
    (finding,) = (f for f in found.check("indices") if f.severity is not Severity.NOTE)
    assert "another segment also covers the fragments [0]" in finding.what


def test_a_file_of_an_index_of_an_unknown_version_is_named(tmp_path):
    uri = str(tmp_path / "t")
    lance.write_dataset(rows(0, 100), uri).create_scalar_index("id", "BTREE")
    path = next((tmp_path / "t" / "_indices").glob("*/page_data.lance"))
    path.write_bytes(path.read_bytes()[:-8] + b"\x63\x00\x63\x00LANC")
    (note,) = lancelet.dataset(uri).check("decode")
    assert (note.severity, note.index) == (Severity.NOTE, "id_idx")
    assert "page_data.lance" in note.what


def test_blobs_in_files_of_their_own_are_looked_for(tmp_path):
    field = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    data = pa.table({"b": pa.array([b"x" * 100_000, None, b"y"], pa.large_binary())})
    uri = str(tmp_path / "t")
    dataset = lancelet.write_dataset(data.cast(pa.schema([field])), uri, data_storage_version="2.2")
    assert dataset.check("decode") == []
    (blob,) = (tmp_path / "t" / "data").glob("*/*.blob")
    blob.unlink()
    (finding,) = dataset.check("decode")
    assert "the blob file of column b is missing" in finding.what


def test_a_manifest_that_cannot_be_read_is_a_finding_among_all_versions(table):
    manifest = root_of(table) / "_versions" / f"{2**64 - 1 - 1}.manifest"
    manifest.write_bytes(b"x" * 100)
    (finding,) = table.check("present", all_versions=True)
    assert finding.path.endswith(manifest.name)


class Meanwhile(WrappedStore):
    """Runs a function when the size of a data file is requested."""

    def __init__(self, store, do):
        super().__init__(store, self)
        self._do = do

    def request(self, _request, action):
        return action()

    def size(self, path):
        do, self._do = self._do, None
        if do is not None:
            do()
        return super().size(path)


def checked_while(uri, do, *, version=None, all_versions=False):
    location = TableLocation.open(uri)
    there = replace(location, store=Meanwhile(location.store, do))
    return check(open_snapshot(there, version), Level.PRESENT, all_versions=all_versions)


@pytest.mark.parametrize("all_versions", [False, True])
def test_concurrently_removed_files_are_not_damage(table, all_versions):
    """Fragment 1 is missing indeed, from the version that goes and from the one that stays."""
    table.delete("id < 10")
    data_file(table, 1).unlink()

    def clean_up():
        lancelet.dataset(table.uri).cleanup_old_versions(timedelta(0))

    if not all_versions:
        with pytest.raises(VersionRemovedError):
            checked_while(table.uri, clean_up, version=1)
        return
    found = checked_while(table.uri, clean_up, all_versions=True)
    assert [each.fragment_id for each in found] == [1]
    assert found.coverage.files == 2


def test_a_table_that_is_made_again_meanwhile_is_not_damaged(table, tmp_path):
    def make_again():
        root_of(table).rename(tmp_path / "elsewhere")
        for start in range(2):
            lancelet.write_dataset(rows(start, start + 1), table.uri, mode="append")

    with pytest.raises(VersionNotFoundError, match="created again"):
        checked_while(table.uri, make_again)


def test_a_manifest_of_another_version_than_its_name_is_found_and_not_taken_for_it(tmp_path):
    """The reference opens the newest name too, and refuses a version by number."""
    uri = str(tmp_path / "t")
    for start in (0, 1, 2):
        lancelet.write_dataset(rows(start, start + 1), uri, mode="append")
    versions = Path(uri) / "_versions"
    older, wrong = (versions / f"{2**64 - 1 - version}.manifest" for version in (2, 1))
    shutil.copy(older, wrong)
    assert lancelet.dataset(uri).check("present") == []
    (finding,) = lancelet.dataset(uri).check("present", all_versions=True)
    assert finding.severity is Severity.ERROR
    assert finding.path == f"_versions/{wrong.name}"
    assert "the manifest contains version 2, but its name is that of version 1" in finding.what
    with pytest.raises(VersionNotFoundError, match="its name is that of version 1") as caught:
        lancelet.dataset(uri, version=1)
    assert isinstance(caught.value, ValueError)
    with pytest.raises(ValueError, match="not found"):
        lance.dataset(uri, version=1)


def test_levels_have_names_and_numbers(table):
    assert Level.parse(3) is Level.CHECKSUMS
    with pytest.raises(InvalidInputError, match="unknown check level"):
        table.check("everything")
    snapshot = open_snapshot(TableLocation.open(table.uri))
    assert check(snapshot, Level.PRESENT) == []
