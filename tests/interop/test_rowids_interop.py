"""Goal: row ids, row versions and deletions of the reference mean the same here, and back.

Method: tables that updated, deleted and compacted rows. What our sequences say is compared with
the columns that the reference shows; then every sequence and deletion file is rendered by us,
put in place of the original, and the reference must show the same again.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

import lancelet
from lancelet.buffers import ByteSlices, run
from lancelet.format.fragment import External, Fragment, Inline
from lancelet.format.fragment_list import FragmentList
from lancelet.format.manifest_file import (
    parse_manifest_file,
    read_indices,
    read_transaction,
    render_manifest_file,
)
from lancelet.rowids.deletion import NO_DELETIONS, DeletionVector
from lancelet.rowids.index import RowIdIndex
from lancelet.rowids.selection import RowSet
from lancelet.rowids.sequence import RowIdSequence
from lancelet.rowids.versions import VersionSequence

pytestmark = pytest.mark.interop

SHOWN = ["a", "_rowid", "_rowaddr", "_row_created_at_version", "_row_last_updated_at_version"]


def numbers(rows: int, start: int = 0) -> pa.Table:
    return pa.table({"a": np.arange(start, start + rows), "b": np.zeros(rows, np.int64)})


def updated(root: Path) -> None:
    ds = lance.write_dataset(numbers(100), root, max_rows_per_file=30, enable_stable_row_ids=True)
    ds.update({"b": "1"}, where="a % 7 = 3")
    ds.delete("a % 11 = 2")
    lance.write_dataset(numbers(50, 100), root, mode="append")
    lance.dataset(root).update({"b": "2"}, where="a > 20 and a < 130")


def compacted(root: Path) -> None:
    updated(root)
    ds = lance.dataset(root)
    ds.optimize.compact_files(target_rows_per_fragment=60, materialize_deletions_threshold=0.0)
    ds.update({"b": "3"}, where="a in (5, 77, 140)")


def shuffled(root: Path) -> None:
    updated(root)
    ds = lance.dataset(root)
    order = np.random.default_rng(0).permutation(150)[:60]
    table = pa.table({"a": order, "b": order})
    ds.merge_insert("a").when_matched_update_all().when_not_matched_insert_all().execute(table)


def long(root: Path) -> None:
    ds = lance.write_dataset(numbers(20_000), root, enable_stable_row_ids=True)
    ds.delete("a % 3 = 0")
    ds.update({"b": "1"}, where="a % 100 = 1")
    ds.optimize.compact_files()
    ds.delete("a < 6000")


BUILDERS = [updated, compacted, shuffled, long]


def whole(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8)


def shown(root: Path) -> pa.Table:
    ds = lance.dataset(root, session=lance.Session())
    return ds.to_table(columns=SHOWN).combine_chunks()


def deletions_of(root: Path, fragment: Fragment) -> DeletionVector:
    file = fragment.deletion_file
    if file is None:
        return NO_DELETIONS
    vector = DeletionVector.parse((root / file.path(fragment.id)).read_bytes(), file.file_type)
    assert len(vector) == file.num_deleted_rows
    assert vector.file_type is file.file_type
    return vector


def sequences_of(fragment: Fragment) -> tuple[RowIdSequence, VersionSequence, VersionSequence]:
    stored = fragment.row_ids, fragment.created_at_versions, fragment.last_updated_at_versions
    assert all(isinstance(sequence, Inline) for sequence in stored)
    ids, created, changed = (sequence.data for sequence in stored)
    rows = fragment.physical_rows
    return (
        RowIdSequence.parse(ids, expected_rows=rows),
        VersionSequence.parse(created, expected_rows=rows),
        VersionSequence.parse(changed, expected_rows=rows),
    )


@pytest.mark.parametrize("build", BUILDERS, ids=lambda build: build.__name__)
def test_row_ids_match_the_reference(build: Callable[[Path], None], tmp_path: Path) -> None:
    root = tmp_path / "t"
    build(root)
    expected = shown(root)
    path = min((root / "_versions").glob("*.manifest"))
    data = whole(path.read_bytes())
    stored = parse_manifest_file(data)
    columns, indexed, rewritten = [], [], []
    for fragment in stored.manifest.fragments:
        deletions = deletions_of(root, fragment)
        ids, created, changed = sequences_of(fragment)
        live = deletions.live_offsets(fragment.physical_rows)
        columns.append([seq.take(live) for seq in (ids, created, changed)])
        indexed.append((fragment.id, ids, deletions))
        rewritten.append(rerendered(root, fragment, deletions))
    found = [np.concatenate(column) for column in zip(*columns, strict=True)]
    for name, column in zip([SHOWN[1], *SHOWN[3:]], found, strict=True):
        assert column.tolist() == expected[name].to_pylist(), name

    index = RowIdIndex.build(indexed)
    addresses = expected["_rowaddr"].to_numpy()
    assert index.addresses(expected["_rowid"].to_numpy()).tolist() == addresses.tolist()
    assert index.ids(addresses).tolist() == expected["_rowid"].to_pylist()
    assert len(index) == len(expected)

    manifest = replace(stored.manifest, fragments=FragmentList.of(rewritten))
    fetch = lambda wanted: ByteSlices(data, wanted.position, wanted.size)  # noqa: E731
    indices, transaction = run(read_indices(stored), fetch), run(read_transaction(stored), fetch)
    path.write_bytes(render_manifest_file(manifest, indices, transaction))
    assert shown(root).equals(expected)


def rerendered(root: Path, fragment: Fragment, deletions: DeletionVector) -> Fragment:
    """Write the fragment's deletions in the other form, and its sequences in our segments."""
    ids, created, changed = sequences_of(fragment)
    file = fragment.deletion_file
    if file is not None:
        swapped = DeletionVector(deletions.offsets, type(file.file_type)(1 - file.file_type))
        file = replace(file, file_type=swapped.file_type)
        (root / file.path(fragment.id)).write_bytes(swapped.render(file.path(fragment.id)))
    return replace(
        fragment,
        deletion_file=file,
        row_ids=Inline(RowIdSequence.of(ids.to_array()).render()),
        created_at_versions=Inline(VersionSequence.of(created.to_array()).render()),
        last_updated_at_versions=Inline(VersionSequence.of(changed.to_array()).render()),
    )


@pytest.mark.parametrize("build", BUILDERS, ids=lambda build: build.__name__)
def test_segments_are_chosen_as_the_reference_does(
    build: Callable[[Path], None], tmp_path: Path
) -> None:
    build(tmp_path / "t")
    for path in (tmp_path / "t" / "_versions").glob("*.manifest"):
        for fragment in parse_manifest_file(whole(path.read_bytes())).manifest.fragments:
            ids = sequences_of(fragment)[0]
            again = [RowIdSequence.of(segment.to_array()).segments for segment in ids.segments]
            kinds = [type(segment) for segments in again for segment in segments]
            assert kinds == [type(segment) for segment in ids.segments]
            assert ids.render() == fragment.row_ids.data


def test_row_sets_parse_bitmaps_of_the_reference(tmp_path: Path) -> None:
    values = pa.table({"v": pa.array([1, 2, None, 1, 2, 2, None])})
    ds = lance.write_dataset(values, tmp_path / "t", max_rows_per_file=4)
    ds.create_scalar_index("v", "BITMAP")
    (path,) = (tmp_path / "t" / "_indices").rglob("bitmap_page_lookup.lance")
    table = lance.file.LanceFileReader(str(path)).read_all().to_table()
    found = dict(zip(*(table[name].to_pylist() for name in ("keys", "bitmaps")), strict=True))
    rows = {value: RowSet.parse(data).addresses({}).tolist() for value, data in found.items()}
    assert rows == {1: [0, 3], 2: [1, 1 << 32, (1 << 32) + 1], None: [2, (1 << 32) + 2]}
    assert [RowSet.parse(data).render() for data in found.values()] == list(found.values())


def test_the_reference_reads_no_sequence_in_a_file(tmp_path: Path) -> None:
    """If this fails, sequences above 200 KB can be put into files, as the format asks."""
    uri = str(tmp_path / "t.lance")
    lancelet.write_dataset(numbers(9), uri, enable_stable_row_ids=True)
    snapshot = lancelet.dataset(uri).snapshot
    (fragment,) = snapshot.fragments
    assert isinstance(fragment.row_ids, Inline)
    data = fragment.row_ids.data
    snapshot.location.store.put("_sequences/one", data)
    stored = replace(fragment, row_ids=External("_sequences/one", 0, len(data)))
    manifest = replace(snapshot.manifest, fragments=FragmentList.of([stored]))
    snapshot.location.store.put(
        snapshot.entry.path, render_manifest_file(manifest, snapshot.indices, None)
    )
    assert lancelet.dataset(uri).to_table(["_rowid"])["_rowid"].to_pylist() == list(range(9))
    with pytest.raises(ValueError, match="must have row ids"):
        lance.dataset(uri)


@pytest.mark.slow
def test_a_sequence_of_any_size_is_in_the_manifest_and_read_by_both(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    rows = 60_000
    lancelet.write_dataset(numbers(2 * rows), uri, enable_stable_row_ids=True)
    keys = np.random.default_rng(0).permutation(2 * rows)[:rows]
    moved = pa.table({"a": keys, "b": np.ones(rows, np.int64)})
    lancelet.dataset(uri).merge_insert("a").when_matched_update_all().execute(moved)
    found = lancelet.dataset(uri).snapshot.fragments[-1].row_ids
    assert isinstance(found, Inline)
    assert len(found.data) > 200_000
    shown = [library.dataset(uri).to_table(SHOWN[:2]) for library in (lancelet, lance)]
    assert shown[0].sort_by("a") == shown[1].sort_by("a")
