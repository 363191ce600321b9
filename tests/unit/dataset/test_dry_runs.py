"""A dry run changes nothing and reports the effect of the real run."""

import inspect
from pathlib import Path

import pyarrow as pa
import pytest

import lancelet
from lancelet.change.dry_run import ChangeReport
from lancelet.dataset.history.refs import Branches, Tags
from lancelet.dataset.maintenance.maintenance import DatasetOptimizer
from lancelet.fragment import write_fragments
from lancelet.optimize import Compaction

ROWS = pa.table({"k": range(10), "s": [f"row {k}" for k in range(10)]})

CHANGES = {
    "append": ("Append", 10, 2, lambda d, **how: d.insert(ROWS, max_rows_per_file=5, **how)),
    "overwrite": ("Overwrite", 3, 1, lambda d, **how: d.insert(ROWS[:3], mode="overwrite", **how)),
    "truncate": ("Delete", 9, 0, lambda d, **how: d.truncate_table(**how)),
    "config": ("UpdateConfig", 0, 0, lambda d, **how: d.update_config({"a": "b"}, **how)),
    "keys": ("UpdateConfig", 0, 0, lambda d, **how: d.delete_config_keys(["a"], **how)),
    "metadata": ("UpdateConfig", 0, 0, lambda d, **how: d.update_metadata({"a": "b"}, **how)),
    "schema metadata": (
        "UpdateConfig",
        0,
        0,
        lambda d, **how: d.update_schema_metadata({"a": "b"}, **how),
    ),
    "field metadata": (
        "UpdateConfig",
        0,
        0,
        lambda d, **how: d.update_field_metadata({"k": {"a": "b"}}, **how),
    ),
    "replace": (
        "DataReplacement",
        4,
        1,
        lambda d, **how: d.replace_columns({0: ROWS.select(["s"])[:4]}, **how),
    ),
    "restore": ("Restore", 10, 0, lambda d, **how: d.checkout_version(1).restore(**how)),
    "drop index": ("CreateIndex", 0, 0, lambda d, **how: d.drop_index("k_idx", **how)),
}
BESIDE = ("_versions", "_transactions")


def files(uri):
    return {path for path in Path(uri).rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", CHANGES)
def test_a_dry_run_reports_what_the_real_run_does_and_changes_nothing(tmp_path, name):
    operation, rows, num_files, change = CHANGES[name]
    uri = str(tmp_path / "t")
    dataset = lancelet.write_dataset(ROWS, uri, max_rows_per_file=5)
    dataset.create_scalar_index("k", "BTREE")
    dataset.delete("k = 2")
    before, version = files(uri), dataset.version

    report = change(dataset, dry_run=True)
    assert (report.operation, report.rows, report.files) == (operation, rows, num_files)
    assert report.conflicts == ()
    assert files(uri) == before
    assert dataset.version == lancelet.dataset(uri).version == version

    change(dataset)
    written = [path for path in files(uri) - before if path.relative_to(uri).parts[0] not in BESIDE]
    assert lancelet.dataset(uri).version == version + 1
    assert (len(written), sum(path.stat().st_size for path in written)) == (
        report.files,
        report.bytes,
    )


def test_a_table_that_would_be_created_is_not_there(tmp_path):
    uri = str(tmp_path / "t")
    report = lancelet.write_dataset(ROWS, uri, max_rows_per_file=4, dry_run=True)
    assert (report.operation, report.rows, report.files) == ("Overwrite", 10, 3)
    assert report.bytes > 100
    assert not Path(uri).exists()
    lancelet.write_dataset(ROWS, uri)
    with pytest.raises(FileExistsError):
        lancelet.write_dataset(ROWS, uri, dry_run=True)


def test_conflicts_are_reported(tmp_path):
    uri = str(tmp_path / "t")
    dataset = lancelet.write_dataset(ROWS, uri)
    lancelet.dataset(uri).update_field_metadata({"k": {"a": "b"}})
    report = dataset.update_field_metadata({"k": {"a": "c"}}, dry_run=True)
    assert report.operation == "UpdateConfig"
    assert len(report.conflicts) == 1
    assert "conflict" in report.conflicts[0]


VECTORS = pa.FixedSizeListArray.from_arrays(pa.array([k / 7 for k in range(600 * 8)], "float32"), 8)
WORDS = pa.table({"k": range(600), "s": [f"w{k % 9} x{k}" for k in range(600)], "v": VECTORS})
BUILDS = {
    "BTREE": lambda d, **how: d.create_scalar_index("k", "BTREE", **how),
    "BTREE in parts": lambda d, **how: d.create_scalar_index("k", "BTREE", resume=True, **how),
    "INVERTED": lambda d, **how: d.create_scalar_index("s", "INVERTED", **how),
    "NGRAM": lambda d, **how: d.create_scalar_index("s", "NGRAM", **how),
    "IVF_PQ": lambda d, **how: d.create_index(
        "v", "IVF_PQ", num_partitions=2, num_sub_vectors=2, **how
    ),
    "IVF_HNSW_SQ": lambda d, **how: d.create_index("v", "IVF_HNSW_SQ", num_partitions=2, **how),
}


@pytest.mark.parametrize("name", BUILDS)
def test_builds_of_indices_and_bringing_them_up_to_date_can_be_tried(tmp_path, name):
    uri = str(tmp_path / "t")
    dataset = lancelet.write_dataset(WORDS, uri, max_rows_per_file=200)

    def tried(change, rows):
        before = files(uri)
        dataset.io_stats_incremental()
        report = change(dry_run=True)
        assert dataset.io_stats_incremental().write_iops == 0
        assert files(uri) == before
        change()
        written = [path for path in files(uri) - before if "_indices" in path.parts]
        size = sum(path.stat().st_size for path in written)
        assert report == ChangeReport("CreateIndex", rows, len(written), size)

    tried(lambda **how: BUILDS[name](dataset, **how), 600)
    dataset.insert(WORDS[:100])
    tried(dataset.optimize.optimize_indices, 100)
    nothing = ChangeReport("CreateIndex", 0, 0, 0)
    assert dataset.optimize.optimize_indices(dry_run=True) == nothing


@pytest.mark.parametrize("kind", ["BTREE", "BITMAP", "INVERTED", "IVF_FLAT"])
def test_a_compaction_that_is_tried_counts_indices_that_it_moves(tmp_path, kind):
    uri = str(tmp_path / "t")
    dataset = lancelet.write_dataset(WORDS, uri, max_rows_per_file=200)
    if kind == "IVF_FLAT":
        dataset.create_index("v", kind, num_partitions=2)
    else:
        dataset.create_scalar_index("s" if kind == "INVERTED" else "k", kind)
    dataset.delete("k % 3 = 0")
    for change in (Compaction.execute, lambda d, _, **how: d.optimize.compact_files(**how)):
        before = files(uri)
        report = change(dataset, {}, dry_run=True)
        assert files(uri) == before
    dataset.optimize.compact_files()
    written = [path for path in files(uri) - before if path.relative_to(uri).parts[0] not in BESIDE]
    size = sum(path.stat().st_size for path in written)
    assert report == ChangeReport("Rewrite", 400, len(written), size)
    assert len(written) > 1
    nothing = ChangeReport("Rewrite", 0, 0, 0)
    assert dataset.optimize.compact_files(dry_run=True) == nothing


APART = {
    "create tag": ("CreateTag", 1, 0, lambda d, **how: d.tags.create("new", 1, **how)),
    "update tag": ("UpdateTag", 1, 0, lambda d, **how: d.tags.update("old", 2, **how)),
    "delete tag": ("DeleteTag", 0, 1, lambda d, **how: d.tags.delete("old", **how)),
    "note of a tag": (
        "ReplaceTagMetadata",
        1,
        0,
        lambda d, **how: d.tags.replace_metadata("old", {"a": "b"}, **how),
    ),
    "note of a branch": (
        "ReplaceBranchMetadata",
        1,
        0,
        lambda d, **how: d.branches.replace_metadata("dev", {"a": "b"}, **how),
    ),
    "delete branch": ("DeleteBranch", 0, 4, lambda d, **how: d.branches.delete("dev", **how)),
    "drop": (
        "Drop",
        0,
        None,
        lambda d, **how: lancelet.LanceDataset.drop(d.uri, **how),
    ),
    "cleanup": (
        "CleanupOldVersions",
        1,  # the record of what goes
        None,
        lambda d, **how: d.cleanup_old_versions(
            retain_versions=1, error_if_tagged_old_versions=False, **how
        ),
    ),
    "names of manifests": (
        "RenameManifests",
        5,
        5,
        lambda d, **how: d.migrate_manifest_paths_v2(**how),
    ),
    "seal": ("SealMemWalShard", None, 0, lambda d, **how: d.seal_mem_wal_shard(SHARD, **how)),
}
SHARD = "5f0c0000-0000-4000-8000-000000000000"
KEYED = pa.schema(
    [
        pa.field("k", "int64", False, {"lance-schema:unenforced-primary-key": "true"}),
        pa.field("s", "string"),
    ]
)


@pytest.mark.parametrize("name", APART)
def test_dry_runs_without_a_version_report_written_and_deleted_files(tmp_path, name):
    operation, num_files, num_deleted, change = APART[name]
    uri = str(tmp_path / "t")
    dataset = lancelet.write_dataset(
        ROWS.cast(KEYED), uri, enable_v2_manifest_paths=name != "names of manifests"
    )
    dataset.delete("k = 2")
    dataset.delete("k = 3")
    dataset.initialize_mem_wal(unsharded=True)
    dataset.mem_wal_writer(SHARD).close()
    dataset.tags.create("old", 2)
    dataset.create_branch("dev", 2)
    before = {path: path.read_bytes() for path in files(uri)}
    report = change(dataset, dry_run=True)
    assert {path: path.read_bytes() for path in files(uri)} == before
    assert report.operation == operation
    assert num_files in {report.files, None}
    assert num_deleted in {report.deleted_files, None}

    change(dataset)
    after = files(uri)
    gone = [path for path in before if path not in after]
    written = {path: path.read_bytes() for path in after}
    written = {path: data for path, data in written.items() if before.get(path) != data}
    assert report.deleted_files == len(gone)
    assert report.deleted_bytes == sum(len(before[path]) for path in gone)
    # Times of tags differ in length, and a claim of a shard finds what another wrote.
    assert name == "seal" or report.files == len(written)
    assert report.bytes == pytest.approx(sum(map(len, written.values())), abs=400)


CLONES = {
    "branch": ("Clone", 0, 0, lambda d, _, **how: d.create_branch("new", **how)),
    "shallow": ("Clone", 0, 0, lambda d, to, **how: d.shallow_clone(to, 1, **how)),
    "deep": ("Clone", 10, 2, lambda d, to, **how: d.deep_clone(to, 1, **how)),
    "fast-forward": ("Overwrite", 13, 1, lambda d, _, **how: d.branches.fast_forward("dev", **how)),
    "bases": (
        "UpdateBases",
        0,
        0,
        lambda d, to, **how: d.add_bases([lancelet.DatasetBasePath(to, "cold")], **how),
    ),
    "log": ("CreateIndex", 0, 0, lambda d, _, **how: d.initialize_mem_wal(unsharded=True, **how)),
    "commit": (
        "Append",
        4,
        0,
        lambda d, _, **how: lancelet.LanceDataset.commit(d.uri, append(d), read_version=1, **how),
    ),
    "commits": (
        "Append",
        4,
        0,
        lambda d, _, **how: d.commit_batch(d, [lancelet.Transaction(1, append(d))], **how),
    ),
    "segments": (
        "CreateIndex",
        0,
        0,
        lambda d, _, **how: d.commit_existing_index_segments("k_idx", "k", [segment(d)], **how),
    ),
    "compaction": ("Rewrite", 10, 1, lambda d, _, **how: Compaction.execute(d, {}, **how)),
    "compacted": (
        "Rewrite",
        10,
        0,
        lambda d, _, **how: Compaction.commit(d, compacted(d), **how),
    ),
    "auto cleanup": (
        "UpdateConfig",
        0,
        0,
        lambda d, _, **how: d.optimize.enable_auto_cleanup(
            {"interval": 9, "older_than_seconds": 9}, **how
        ),
    ),
}


def append(dataset):
    return lancelet.LanceOperation.Append(write_fragments(ROWS[:4], dataset.uri))


def segment(dataset):
    return dataset.create_index_uncommitted("k", "BTREE", "k_idx", fragment_ids=[0])


def compacted(dataset):
    return [task.execute(dataset) for task in Compaction.plan(dataset, {}).tasks]


@pytest.mark.parametrize("name", CLONES)
def test_dry_runs_of_clones_report_their_version(tmp_path, name):
    operation, rows, num_files, change = CLONES[name]
    uri, to = str(tmp_path / "t"), str(tmp_path / "other")
    dataset = lancelet.write_dataset(ROWS, uri, max_rows_per_file=5)
    dataset.create_branch("dev").insert(ROWS[:3])
    versions = len(dataset.versions())
    before = {path: path.read_bytes() for path in files(tmp_path)}
    report = change(dataset, to, dry_run=True)
    after = {path: path.read_bytes() for path in files(tmp_path)}
    # Files written by workers for a later commit exist before it is tried.
    prepared = {"commit", "commits", "segments", "compacted"}
    assert after == before or (name in prepared and after.items() >= before.items())
    assert (report.operation, report.rows, report.files) == (operation, rows, num_files)
    assert (report.bytes > 0) == (num_files > 0)
    assert len(dataset.versions()) == len(lancelet.dataset(uri).versions()) == versions
    change(dataset, to)
    assert files(to) or len(lancelet.dataset(uri).versions()) > versions or name == "branch"


def test_collecting_a_log_can_be_tried(tmp_path):
    uri = str(tmp_path / "t")
    dataset = lancelet.write_dataset(ROWS.cast(KEYED), uri)
    dataset.initialize_mem_wal(unsharded=True)
    with dataset.mem_wal_writer(SHARD) as writer:
        writer.put(ROWS[:2])
    before = files(uri)
    report = dataset.collect_mem_wal(dry_run=True)
    assert files(uri) == before
    assert (report.operation, report.deleted_files) == ("CollectMemWal", 1)
    assert dataset.collect_mem_wal().wal_entries == 1


LOOKING = {
    lancelet.LanceDataset: {
        *("all_files", "at", "base_paths", "branches", "centroids", "changes", "check", "config"),
        *("checkout_latest", "checkout_version", "count_rows", "data_storage_version", "delta"),
        *("default_scan_options", "describe_indices", "diff", "explain_cleanup_old_versions"),
        *("explain_score", "filter", "fragment_ids", "get_fragment", "get_fragments"),
        *("get_ivf_model", "get_transactions", "get_version", "handle", "has_index"),
        *("has_stable_row_ids", "head", "highlight", "hybrid_search", "index_cache_hit_rate"),
        *("index_statistics", "initial_storage_options", "io_stats_incremental"),
        *("io_stats_snapshot", "join", "join_asof", "lance_schema", "latest_storage_options"),
        *("latest_version", "list_indices", "max_field_id", "mem_wal_index_details"),
        *("mem_wal_shards",),
        *("metadata", "meter", "new_file_session", "open_options", "optimize", "prewarm_index"),
        *("partition_expression", "plot", "read_blob_ranges", "read_blobs", "read_transaction"),
        *("recall_report", "remap_row_addrs", "sample", "scanner", "schema", "schema_metadata"),
        *("session", "set_snapshot", "slice", "snapshot", "sort_by", "sql", "stats"),
        *("storage_options_accessor",),
        *("children", "stream", "to_arrow", "to_polars"),
        *("tags", "take", "take_blobs", "to_batches", "to_pandas", "to_table", "tracked_files"),
        *("stale_rows",),
        *("tune", "uri", "validate", "version", "version_refs", "versions"),
    },
    Tags: {"get_version", "list", "list_ordered"},
    Branches: {"list", "list_ordered"},
    DatasetOptimizer: set(),
    lancelet.MergeInsertBuilder: {
        *(
            "analyze_plan",
            "analyze_plan_batches",
            "explain_plan",
            "conflict_retries",
            "data_storage_version",
        ),
        *("mark_sstables_as_compacted", "memory_limit", "retry_timeout", "skip_auto_cleanup"),
        *("source_dedupe_behavior", "target_all_bases", "target_bases", "use_index"),
        *("when_matched_delete", "when_matched_fail", "when_matched_update_all", "write_mode"),
        *("when_not_matched_by_source_delete", "when_not_matched_insert_all"),
    },
    Compaction: {"plan"},
}
"""Methods that change nothing: they read, or describe another operation."""
FILES_ALONE = {
    *("create_index_uncommitted", "merge_existing_index_segments", "merge_index_metadata"),
    *("execute_uncommitted", "execute_uncommitted_batches"),
}
"""What writes files that no version lists, for a commit, which can be tried."""
OTHERS = {
    "replace_schema",  # always refused
    "merge_insert",  # returns a builder with `execute(dry_run=True)`
    "mem_wal_writer",  # becomes the writer of a shard
    "create_view",  # creates another table
    "refresh_columns",  # `stale_rows` reports the rows
}


def test_every_call_that_changes_a_table_can_be_tried():
    lacking = {
        f"{owner.__name__}.{name}"
        for owner, looking in LOOKING.items()
        for name in dir(owner)
        if not name.startswith("_") and name not in looking | FILES_ALONE | OTHERS
        if "dry_run" not in inspect.signature(getattr(owner, name)).parameters
    }
    assert lacking == set()
    assert "dry_run" in inspect.signature(lancelet.write_dataset).parameters
    unknown = {
        name for owner, names in LOOKING.items() for name in names if not hasattr(owner, name)
    }
    assert unknown == set()


def test_reports_are_shown_with_one_line_per_field():
    report = ChangeReport("Delete", 1500, 1, 512, conflicts=("version 2: a", "version 3: b"))
    assert str(report).splitlines() == [
        "operation      Delete",
        "rows           1,500",
        "files          1",
        "bytes          512",
        "conflicts      version 2: a; version 3: b",
        "deleted files  0",
        "deleted bytes  0",
    ]
