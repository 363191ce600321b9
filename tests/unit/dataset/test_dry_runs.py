"""A dry run changes nothing, and says what the real run then does."""

import inspect
from pathlib import Path

import pyarrow as pa
import pytest

import lancelet
from lancelet.dataset.maintenance import DatasetOptimizer

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
def test_a_dry_run_says_what_the_real_run_does_and_changes_nothing(tmp_path, name):
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


def test_what_stands_in_the_way_is_said(tmp_path):
    uri = str(tmp_path / "t")
    dataset = lancelet.write_dataset(ROWS, uri)
    lancelet.dataset(uri).update_field_metadata({"k": {"a": "b"}})
    report = dataset.update_field_metadata({"k": {"a": "c"}}, dry_run=True)
    assert report.operation == "UpdateConfig"
    assert len(report.conflicts) == 1
    assert "conflict" in report.conflicts[0]


def test_calls_that_change_rows_columns_or_settings_can_be_tried():
    """All but builds of indices, and changes of branches, tags and clones, which copy no rows."""
    beside = {
        *("add_bases", "commit", "commit_batch", "commit_compaction", "create_branch"),
        *("commit_existing_index_segments", "deep_clone", "shallow_clone", "drop"),
        *("cleanup_old_versions", "initialize_mem_wal", "migrate_manifest_paths_v2"),
        *("create_index", "create_scalar_index", "run_optimize_indices", "run_compaction"),
    }
    verbs = ("add", "alter", "commit", "delete", "drop", "insert", "migrate", "replace", "update")
    more = ("merge", "repair", "restore", "truncate_table")
    calls = {
        name: getattr(lancelet.LanceDataset, name)
        for name in dir(lancelet.LanceDataset)
        if (name.startswith(verbs) or name in more) and name not in beside
    }
    assert len(calls) > 18
    calls["write_dataset"] = lancelet.write_dataset
    calls["compact_files"] = DatasetOptimizer.compact_files
    calls["execute"] = lancelet.MergeInsertBuilder.execute
    lacking = [
        n for n, call in calls.items() if "dry_run" not in inspect.signature(call).parameters
    ]
    assert lacking == ["replace_schema"]  # which is always refused
