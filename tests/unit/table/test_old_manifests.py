"""What old and foreign writers left in manifests: counts, sequences, columns and attached data."""

import re
import struct
from dataclasses import replace
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

import lancelet
from lancelet.change.publish import publish
from lancelet.errors import CommitConflictError, CorruptDataError, InvalidInputError
from lancelet.format.base_paths import BasePath
from lancelet.format.fragment_list import FragmentList
from lancelet.format.manifest import MissingRowIdsError, WriterVersion
from lancelet.format.manifest_file import write_manifest_file
from lancelet.format.operation import Append
from lancelet.format.protos import table_pb
from lancelet.table.location import TableLocation
from lancelet.table.snapshot import open_snapshot

DELETED = 6


@pytest.fixture
def uri(tmp_path):
    return str(tmp_path / "t.lance")


def write(uri, **options):
    lance.write_dataset(pa.table({"x": range(10), "y": range(10)}), uri, **options)
    lance.dataset(uri).delete(f"x < {DELETED}")


def edit(uri, fragment=lambda each: each, manifest=lambda whole: whole, head=b""):
    """Change the newest version in place."""
    location = TableLocation.open(uri)
    snapshot = open_snapshot(location)
    fragments = FragmentList.of(map(fragment, snapshot.fragments))
    changed = manifest(replace(snapshot.manifest, fragments=fragments))
    data, _ = write_manifest_file(changed, snapshot.indices, None, dictionary_values=head)
    location.store.put(snapshot.entry.path, data)


def without_count(fragment):
    return replace(fragment, deletion_file=replace(fragment.deletion_file, num_deleted_rows=0))


def as_by_an_unnamed_writer(uri):
    """Make the newest version what releases wrote that did not name themselves yet."""
    location = TableLocation.open(uri)
    path = open_snapshot(location).entry.path
    data = location.store.read(path)
    (start,) = struct.unpack("<Q", data[-16:-8])
    manifest = table_pb.Manifest.FromString(data[start + 4 : -16])
    manifest.ClearField("writer_version")
    for fragment in manifest.fragments:
        fragment.physical_rows -= fragment.deletion_file.num_deleted_rows
    message = manifest.SerializeToString()
    location.store.put(path, data[:start] + struct.pack("<I", len(message)) + message + data[-16:])


def test_deleted_rows_that_are_not_counted_are_looked_up(uri):
    write(uri)
    edit(uri, without_count)
    dataset = lancelet.dataset(uri)
    assert dataset.count_rows() == lance.dataset(uri).count_rows() == 4
    assert dataset.to_table(with_row_id=True) == lance.dataset(uri).to_table(with_row_id=True)
    assert dataset.take([0, 3]).column("x").to_pylist() == [6, 9]
    assert dataset.get_fragments()[0].count_rows() == 4
    assert dataset.get_fragments()[0].num_deletions == DELETED
    assert dataset.stats.dataset_stats()["num_deleted_rows"] == DELETED


def test_uncounted_deletions_are_not_forgotten_by_compaction_and_statistics(uri):
    write(uri)
    edit(uri, without_count)
    dataset = lancelet.dataset(uri)
    assert dataset.stats.column_stats(["x"])[0].minimum == 6
    dataset.insert(pa.table({"x": [10], "y": [10]}))
    lancelet.dataset(uri).optimize.compact_files(compaction_mode="try_binary_copy")
    assert lance.dataset(uri).to_table().column("x").to_pylist() == [6, 7, 8, 9, 10]


def test_a_writer_without_a_name_left_deleted_rows_out_of_its_counts(uri):
    write(uri)
    as_by_an_unnamed_writer(uri)
    dataset = lancelet.dataset(uri)
    assert dataset.to_table() == lance.dataset(uri).to_table()
    assert dataset.count_rows() == 4
    dataset.insert(pa.table({"x": [10], "y": [10]}))
    first, _ = lancelet.dataset(uri).snapshot.fragments
    assert (first.physical_rows, first.num_deleted_rows) == (10, DELETED)
    assert lance.dataset(uri).count_rows() == 5


def test_attached_data_and_a_tag_belong_to_their_version_alone(uri):
    write(uri)
    attached = table_pb.VersionAuxData(metadata={"by": b"hand"}).SerializeToString()
    pad, section = b"\0" * 8, struct.pack("<I", len(attached)) + attached
    edit(
        uri,
        manifest=lambda whole: replace(whole, version_aux_data=len(pad), tag="old"),
        head=pad + section,
    )
    dataset = lancelet.dataset(uri)
    assert dataset.snapshot.auxiliary_data == {"by": b"hand"}
    assert dataset.snapshot.manifest.tag == "old"
    assert lance.dataset(uri).count_rows() == 4
    dataset.insert(pa.table({"x": [10], "y": [10]}))
    later = lancelet.dataset(uri).snapshot
    assert (later.manifest.version_aux_data, later.manifest.tag) == (0, "")
    assert later.auxiliary_data == {}
    clone = dataset.shallow_clone(uri + ".clone", dataset.version)
    assert clone.snapshot.manifest.version_aux_data == 0


def test_two_fields_of_one_column_are_rejected(uri):
    write(uri)
    edit(
        uri,
        lambda each: replace(
            each, files=tuple(replace(file, column_indices=(0, 0)) for file in each.files)
        ),
    )
    with pytest.raises(OSError, match="more than once"):
        lance.dataset(uri).take([0])
    with pytest.raises(CorruptDataError, match="two fields of a data file have one column"):
        lancelet.dataset(uri).take([0])


@pytest.mark.parametrize("version", [None, 2])
def test_stable_row_ids_without_sequences_are_rejected(uri, version):
    write(uri, enable_stable_row_ids=True)
    edit(uri, lambda each: replace(each, row_ids=None))
    with pytest.raises(ValueError, match="All fragments must have row ids"):
        lance.dataset(uri, version=version).count_rows()
    with pytest.raises(MissingRowIdsError, match="a fragment has none"):
        lancelet.dataset(uri, version=version)
    lancelet.dataset(uri, version=1).restore()
    assert lance.dataset(uri).to_table(with_row_id=True).num_rows == 10


def test_a_field_without_an_id_is_not_stored(uri):
    write(uri)
    dataset = lancelet.dataset(uri)
    (fragment,) = dataset.snapshot.fragments
    fragment = replace(
        fragment, files=tuple(replace(file, fields=(0, -1)) for file in fragment.files)
    )
    with pytest.raises(InvalidInputError, match="has no id yet"):
        FragmentList.of([fragment])


@pytest.mark.parametrize(
    ("release", "parts"),
    [
        ("0.1.0", ("0.1.0", None, None)),
        ("1.2.0rc1", ("1.2.0", "rc1", None)),
        ("1.2.0.dev3+g5f.d2", ("1.2.0", "dev3", "g5f.d2")),
        ("14.0.2-beta.1", ("14.0.2", "beta.1", None)),
        ("odd", ("odd", None, None)),
    ],
)
def test_a_release_is_written_in_its_parts(release, parts):
    assert WriterVersion.of("lancelet", release) == WriterVersion("lancelet", *parts)


def test_the_file_version_of_a_blob_table_is_preserved(uri):
    write(uri)
    edit(uri, manifest=lambda whole: replace(whole, blob_dataset_version=3))
    lancelet.dataset(uri).insert(pa.table({"x": [10], "y": [10]}))
    assert lancelet.dataset(uri).snapshot.manifest.blob_dataset_version == 3
    assert np.array_equal(lance.dataset(uri).to_table()["x"], [6, 7, 8, 9, 10])


def test_a_version_without_a_transaction_conflicts(uri):
    """No manifest and no file contains the transaction, so it may have made any change."""
    write(uri)
    location = TableLocation.open(uri)
    before = open_snapshot(location, 1)
    for path in location.store.list_names("_transactions"):
        location.store.delete(f"_transactions/{path}")
    edit(uri)
    with pytest.raises(CommitConflictError, match="does not record"):
        publish(before, Append(()))
    lancelet.dataset(uri, version=1).delete("x = 8")
    assert lancelet.dataset(uri).to_table()["x"].to_pylist() == [6, 7, 9]


def test_fields_that_a_file_has_no_more_are_null(uri):
    write(uri)
    edit(
        uri,
        lambda each: replace(
            each, files=tuple(replace(file, fields=(-2, 1)) for file in each.files)
        ),
    )
    for module in (lance, lancelet):
        found = module.dataset(uri).to_table()
        assert found.to_pydict() == {"x": [None] * 4, "y": [6, 7, 8, 9]}


@pytest.mark.parametrize("is_root", [True, False])
def test_the_base_with_id_0_is_no_absent_base(uri, tmp_path, is_root):
    write(uri)
    elsewhere = tmp_path / "elsewhere"
    for folder in ("data", "_deletions"):
        found = Path(uri, folder)
        target = elsewhere / folder if is_root else elsewhere
        target.mkdir(parents=True, exist_ok=True)
        for file in list(found.iterdir()):
            file.rename(target / file.name)
    edit(
        uri,
        lambda each: replace(
            each,
            files=tuple(replace(file, base_id=0) for file in each.files),
            deletion_file=replace(each.deletion_file, base_id=0),
        ),
        lambda whole: replace(
            whole, base_paths=(BasePath(id=0, path=str(elsewhere), is_dataset_root=is_root),)
        ).with_flags(),
    )
    # The reference reads deletion files of dataset roots only.
    for module in (lance, lancelet) if is_root else (lancelet,):
        assert module.dataset(uri).to_table()["x"].to_pylist() == [6, 7, 8, 9]
    edit(
        uri,
        lambda each: replace(each, files=tuple(replace(f, base_id=3) for f in each.files)),
    )
    with pytest.raises(
        CorruptDataError, match="refers to a base path that the manifest does not define"
    ):
        lancelet.dataset(uri).to_table()


def test_files_have_the_names_of_the_layout(uri):
    dataset = lancelet.write_dataset(pa.table({"x": range(10)}), uri)
    dataset.delete("x = 1")
    patterns = {
        "data": r"[01]{24}[0-9a-f]{26}\.lance",
        "_deletions": r"0-1-\d+\.arrow",
        "_transactions": r"[01]-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.txn",
        "_versions": r"\d{20}\.manifest",
    }
    for folder, pattern in patterns.items():
        names = [each.name for each in Path(uri, folder).iterdir() if each.suffix != ".json"]
        assert names
        assert all(re.fullmatch(pattern, name) for name in names), names


@pytest.mark.parametrize("change", ["append", "update", "merge"])
def test_next_row_id_of_an_existing_row_is_rejected(uri, change):
    write(uri, enable_stable_row_ids=True)
    edit(uri, manifest=lambda whole: replace(whole, next_row_id=4))
    dataset = lancelet.dataset(uri)
    rows = pa.table({"x": [10], "y": [10]})
    changes = {
        "append": lambda: dataset.insert(rows),
        "update": lambda: dataset.update({"y": "1"}, where="x = 7"),
        "merge": lambda: dataset.merge_insert("x").when_not_matched_insert_all().execute(rows),
    }
    with pytest.raises(CorruptDataError, match="next row id"):
        changes[change]()
    assert lancelet.dataset(uri).count_rows() == 4


def test_unknown_field_of_the_index_section_is_preserved(uri):
    write(uri)
    dataset = lancelet.dataset(uri)
    dataset.create_scalar_index("x", "BTREE")
    location = TableLocation.open(uri)
    snapshot = open_snapshot(location)
    unknown = b"\xf8\x3f\x07"  # field 1023, a number
    section = replace(snapshot.indices, unknown=unknown)
    data, _ = write_manifest_file(snapshot.manifest, section, None)
    location.store.put(snapshot.entry.path, data)
    for change in (
        lambda: lancelet.dataset(uri).insert(pa.table({"x": [10], "y": [10]})),
        lambda: lancelet.dataset(uri).delete("x = 8"),
        lambda: lancelet.dataset(uri).optimize.optimize_indices(retrain=True),
        lambda: lancelet.dataset(uri).optimize.compact_files(target_rows_per_fragment=99),
        lambda: lancelet.dataset(uri).drop_index("x_idx"),
    ):
        change()
        assert open_snapshot(location).indices.unknown == unknown
