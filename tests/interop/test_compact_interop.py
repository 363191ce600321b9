"""Compaction and cleanup agree with the reference: plans, files, indices, and old tables."""

import shutil
import uuid
from datetime import timedelta
from pathlib import Path

import lance
import lance.optimize
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lancelet
import lancelet.optimize
from lancelet.table.fragment_reuse import fragment_reuse_of

HISTORICAL = Path(__file__).parents[1] / "golden" / "historical"
VERSIONS = ["0.1", "2.0", "2.1", "2.2"]


def rows(start, stop, *, null_structs=True):
    ids = range(start, stop)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "name": pa.array([None if i % 7 == 3 else f"row {i}" for i in ids], pa.string()),
            "s": pa.array(
                [None if null_structs and i % 11 == 5 else {"x": i, "y": str(i % 5)} for i in ids],
                pa.struct([("x", pa.int32()), ("y", pa.string())]),
            ),
            "v": pa.FixedSizeListArray.from_arrays(
                pa.array(np.arange(2 * start, 2 * stop), pa.float32()), 2
            ),
            "tags": pa.array([[str(j) for j in range(i % 3)] for i in ids], pa.list_(pa.string())),
        }
    )


def by_id(table):
    return table.sort_by("id").combine_chunks()


@settings(max_examples=15)
@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(0, 40)), min_size=1, max_size=10),
    st.fixed_dictionaries(
        {"target_rows_per_fragment": st.integers(1, 120)},
        optional={
            "materialize_deletions": st.booleans(),
            "materialize_deletions_threshold": st.sampled_from([0.0, 0.1, 0.5, 1.0]),
            "max_source_fragments": st.integers(1, 6),
            "max_source_rows": st.integers(1, 200),
            "max_source_bytes": st.sampled_from([1000, 2500, 10_000]),
            "excluded_fragment_ids": st.lists(st.integers(0, 9), max_size=3),
        },
    ),
)
def test_plans_and_results_are_those_of_the_reference(tmp_path_factory, fragments, options):
    root = tmp_path_factory.mktemp("plan")
    uri = str(root / "t")
    theirs, start = None, 0
    for size, _ in fragments:
        data = pa.table({"id": range(start, start + size)})
        theirs = lance.write_dataset(data, uri, mode="append" if theirs else "create")
        start += 100
    gone = [
        100 * place + offset
        for place, (size, count) in enumerate(fragments)
        for offset in range(min(count, size) // 2)
    ]
    if gone:
        theirs.delete(f"id IN ({', '.join(map(str, gone))})")
    ours = lancelet.dataset(uri)
    expected = [
        [fragment.id for fragment in task.fragments]
        for task in lance.optimize.Compaction.plan(theirs, options).tasks
    ]
    plan = lancelet.optimize.Compaction.plan(ours, options)
    assert [[f.id for f in task.fragments] for task in plan.tasks] == expected
    copy = str(root / "copy")
    shutil.copytree(uri, copy)
    theirs = lance.dataset(copy)
    metrics = theirs.optimize.compact_files(**options)
    found = ours.optimize.compact_files(**options)
    assert (found.fragments_removed, found.fragments_added) == (
        metrics.fragments_removed,
        metrics.fragments_added,
    )
    assert (found.files_removed, found.files_added) == (metrics.files_removed, metrics.files_added)
    assert ours.version == theirs.version
    ids = [fragment.fragment_id for fragment in ours.get_fragments()]
    assert ids == [fragment.fragment_id for fragment in theirs.get_fragments()]
    assert by_id(lance.dataset(uri).to_table()).equals(by_id(theirs.to_table()))
    assert lance.dataset(uri).max_field_id == theirs.max_field_id


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("stable", [False, True])
def test_the_reference_reads_what_was_compacted_and_continues(tmp_path, version, stable):
    if version == "0.1" and stable:
        version = "2.2"
    uri = str(tmp_path)
    options = {"data_storage_version": version, "enable_stable_row_ids": stable}
    data = rows(0, 140, null_structs=version != "2.0")
    lancelet.write_dataset(data.slice(0, 100), uri, max_rows_per_file=10, **options)
    dataset = lancelet.dataset(uri)
    dataset.delete("id % 9 = 4")
    before = lance.dataset(uri).to_table(with_row_id=stable)
    dataset.optimize.compact_files(target_rows_per_fragment=40)
    theirs = lance.dataset(uri)
    theirs.validate()
    assert theirs.to_table(with_row_id=stable).equals(before)
    # The reference compacts what we did, and we what it did.
    lance.write_dataset(data.slice(100, 30), uri, mode="append", max_rows_per_file=10)
    theirs = lance.dataset(uri)
    theirs.delete("id = 101")
    theirs.optimize.compact_files(target_rows_per_fragment=1000)
    expected = theirs.to_table(with_row_id=stable)
    ours = lancelet.dataset(uri)
    assert ours.to_table(with_row_id=stable).equals(expected)
    assert ours.check("indices", all_versions=True) == []
    lancelet.write_dataset(data.slice(130), uri, mode="append")
    ours = lancelet.dataset(uri)
    ours.optimize.compact_files()
    assert len(ours.get_fragments()) == 1
    assert lance.dataset(uri).to_table(with_row_id=stable).equals(ours.to_table(with_row_id=stable))


def test_tasks_of_one_run_in_the_other(tmp_path):
    uri = str(tmp_path)
    lancelet.write_dataset(rows(0, 60), uri, max_rows_per_file=10)
    ours, theirs = lancelet.dataset(uri), lance.dataset(uri)
    plan = lancelet.optimize.Compaction.plan(ours, {"target_rows_per_fragment": 20})
    results = []
    for number, task in enumerate(plan.tasks):
        if number % 2:
            made = lance.optimize.CompactionTask.from_json(task.json()).execute(theirs)
        else:
            made = task.execute(ours)
        results.append(lancelet.optimize.RewriteResult.from_json(made.json()))
    lancelet.optimize.Compaction.commit(ours, results)
    assert lance.dataset(uri).to_table().equals(rows(0, 60))
    assert len(ours.get_fragments()) == len(plan.tasks)


@pytest.mark.parametrize("defer", [False, True])
def test_indices_of_the_reference_find_rows_after_compaction(tmp_path, defer):
    uri, copy = str(tmp_path / "ours"), str(tmp_path / "theirs")
    lance.write_dataset(rows(0, 400), uri, max_rows_per_file=100)
    theirs = lance.dataset(uri)
    theirs.create_scalar_index("id", "BTREE")
    theirs.create_scalar_index("name", "BITMAP")
    theirs.delete("id % 50 = 1")
    shutil.copytree(uri, copy)
    ours = lancelet.dataset(uri)
    wishes = {"target_rows_per_fragment": 200, "defer_index_remap": defer}
    ours.optimize.compact_files(**wishes)
    for _ in range(2):
        found = lance.dataset(uri)
        for number in (0, 1, 52, 150, 399):
            answer = found.to_table(columns=["id"], filter=f"id = {number}")["id"].to_pylist()
            assert answer == ([] if number % 50 == 1 else [number])
        assert found.to_table(filter="name = 'row 7'")["id"].to_pylist() == [7]
        assert "ScalarIndexQuery" in found.scanner(filter="id = 7").explain_plan()
        # The next commit says what indices cover in today's fragments.
        ours.delete("id = 300")
    if not defer:
        return
    addresses = pa.array([0, 1, (1 << 32) + 5, 3 << 32], pa.uint64())
    translated = fragment_reuse_of(ours.snapshot).translate(addresses.to_numpy())
    expected = found.remap_row_addrs(addresses).fill_null(2**64 - 1).to_numpy()
    assert (translated == expected).all()
    lance.dataset(copy).optimize.compact_files(target_rows_per_fragment=200, defer_index_remap=True)
    entries = [
        next(i for i in lancelet.dataset(each).snapshot.indices.indices if i.is_system)
        for each in (uri, copy)
    ]
    assert entries[0].details == entries[1].details
    assert entries[0].fragment_bitmap == entries[1].fragment_bitmap
    # A second rewrite is recorded behind the first.
    ours.delete("id % 3 = 2")
    ours.optimize.compact_files(defer_index_remap=True)
    assert len(fragment_reuse_of(ours.snapshot).versions) == 2
    assert lance.dataset(uri).to_table(filter="id = 399")["id"].to_pylist() == [399]
    assert lance.dataset(uri).to_table(filter="name = 'row 7'")["id"].to_pylist() == [7]
    assert lance.dataset(uri).to_table(filter="name = 'row 8'").num_rows == 0
    assert ours.check("indices") == []


def test_a_large_record_of_moves_is_a_file_that_the_reference_reads(tmp_path):
    uri = str(tmp_path)
    count = 1_800_000
    random = np.random.default_rng(7)
    ids = np.arange(count)
    lance.write_dataset(
        pa.table({"id": ids, "keep": random.random(count)}), uri, max_rows_per_file=count // 2
    )
    theirs = lance.dataset(uri)
    theirs.create_scalar_index("id", "BTREE")
    theirs.delete("keep < 0.5")
    live = set(theirs.to_table(columns=["id"])["id"].to_pylist())
    dataset = lancelet.dataset(uri)
    dataset.optimize.compact_files(defer_index_remap=True)
    entry = next(i for i in dataset.snapshot.indices.indices if i.is_system)
    assert [file.path for file in entry.files] == ["details.binpb"]
    found = lance.dataset(uri)
    for number in (0, 1, 2, count // 2 + 1, count - 1):
        answer = found.to_table(columns=["id"], filter=f"id = {number}")["id"].to_pylist()
        assert answer == ([number] if number in live else [])
    again = lancelet.dataset(uri)
    assert len(fragment_reuse_of(again.snapshot).versions) == 1
    # Cleaning up keeps the file.
    again.cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)
    assert lance.dataset(uri).to_table(filter=f"id = {max(live)}").num_rows == 1


def historical_tables():
    return sorted(path.parent for path in HISTORICAL.rglob("_versions"))


@pytest.mark.parametrize("source", historical_tables(), ids=lambda p: f"{p.parent.name}/{p.name}")
def test_old_tables_can_be_appended_to_and_compacted(tmp_path, source):
    uri = str(tmp_path / "t")
    shutil.copytree(source, uri)
    reference = lance.dataset(uri)
    before, past = reference.to_table(), {}
    for number in (each["version"] for each in reference.versions()):
        past[number] = reference.checkout_version(number).to_table()
    ours = lancelet.dataset(uri)
    assert ours.to_table().equals(before)
    if before.num_rows:
        lancelet.write_dataset(before.slice(0, 3), uri, mode="append")
    ours = lancelet.dataset(uri)
    expected = pa.concat_tables([before, before.slice(0, 3)])
    ours.optimize.compact_files()
    # Fragments that an index covers are not joined with others.
    assert len(ours.get_fragments()) <= 1 or ours.snapshot.indices.indices
    assert not any(fragment.num_deletions for fragment in ours.get_fragments())
    theirs = lance.dataset(uri)
    if source.name != "bad_index_fragment_bitmap":
        theirs.validate()
    assert theirs.to_table().combine_chunks().equals(expected.combine_chunks())
    assert ours.to_table().combine_chunks().equals(expected.combine_chunks())
    assert [each for each in ours.check("indices") if each.severity.value == "error"] == []
    for number, table in past.items():
        for each in (ours, theirs):
            assert each.checkout_version(number).to_table().equals(table)


def test_cleanup_deletes_the_same_files_as_the_reference(tmp_path):
    ours_uri, theirs_uri = str(tmp_path / "ours"), str(tmp_path / "theirs")
    for number, mode in enumerate(["create", "append", "overwrite", "append"]):
        lance.write_dataset(rows(10 * number, 10 * number + 10), ours_uri, mode=mode)
    dataset = lance.dataset(ours_uri)
    dataset.delete("id = 25")
    dataset.create_scalar_index("id", "BTREE")
    dataset.create_scalar_index("id", "BTREE", replace=True)
    dataset.optimize.compact_files()
    shutil.copytree(ours_uri, theirs_uri)
    for wishes in ({"retain_versions": 6}, {"versions": [6]}, {"older_than": timedelta(0)}):
        theirs = lance.dataset(theirs_uri)
        ours = lancelet.dataset(ours_uri)
        expected = theirs.cleanup_old_versions(**wishes)
        found = ours.cleanup_old_versions(**wishes)
        for name in (
            "bytes_removed",
            "old_versions",
            "data_files_removed",
            "transaction_files_removed",
            "index_files_removed",
            "deletion_files_removed",
        ):
            assert getattr(found, name) == getattr(expected, name), name
        # Ours keeps a record of what was removed, so that its numbers are never versions again.
    ours = {name for name in files_of(ours_uri) if not name.startswith("_versions/.removed-")}
    assert ours == files_of(theirs_uri)


def files_of(root):
    return {str(path.relative_to(root)) for path in Path(root).rglob("*") if path.is_file()}


def test_blobs_are_the_same_after_compaction(tmp_path):
    values = [b"a", None, b"", b"b" * 100_000, b"c" * 5_000_000, b"d"]
    field = pa.field("blob", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    for version in ("2.0", "2.1", "2.2"):
        own = values if version == "2.2" else [v for v in values if v != b""]
        table = pa.table(
            {"id": range(len(own)), "blob": pa.array(own, pa.large_binary())},
            schema=pa.schema([("id", pa.int64()), field]),
        )
        uri = str(tmp_path / f"{version}-{uuid.uuid4()}")
        lance.write_dataset(table, uri, max_rows_per_file=2, data_storage_version=version)
        dataset = lancelet.dataset(uri)
        dataset.delete("id = 0")
        dataset.optimize.compact_files()
        assert len(dataset.get_fragments()) == 1
        blobs = lance.dataset(uri).take_blobs("blob", indices=list(range(len(own) - 1)))
        found = [None if blob is None else blob.readall() for blob in blobs]
        if version == "2.0":
            found = [blob or None for blob in found]
        assert found == own[1:]
        assert dataset.check("decode") == []
