"""The methods of a dataset that keep it small, quick and sound."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict, overload

import numpy as np
import pyarrow as pa

from lancelet import ops
from lancelet.dataset import display
from lancelet.dataset.argument_kinds import checks_kinds
from lancelet.dataset.compaction import Compaction, options_of
from lancelet.dataset.explanation import CleanupExplanation, explanation_of
from lancelet.dataset.handle import Handle
from lancelet.errors import InvalidInputError
from lancelet.ops.check import Level
from lancelet.rowids.address import NO_ADDRESS
from lancelet.table.commit import CommitOptions
from lancelet.table.fragment_reuse import fragment_reuse_of
from lancelet.table.snapshot import Snapshot, open_snapshot

if TYPE_CHECKING:
    from lancelet.dataset.dataset import LanceDataset
    from lancelet.ops import compact
    from lancelet.ops.check import Findings
    from lancelet.ops.cleanup import CleanupPolicy, CleanupStats
    from lancelet.ops.dry_run import ChangeReport
    from lancelet.ops.repair import RepairReport

_CLEANUP: Final = "lance.auto_cleanup"
_OLDER_THAN: Final = timedelta(days=14)


class AutoCleanupConfig(TypedDict):
    """When a table cleans up by itself: every so many versions, what is older than this."""

    interval: int
    older_than_seconds: int


class MaintenanceMethods:
    """Compacts a table, cleans up its old versions, checks and repairs it."""

    _handle: Handle

    @property
    def optimize(self) -> DatasetOptimizer:
        """What makes reading quicker again after many small changes."""
        return DatasetOptimizer(self)  # type: ignore[arg-type]  # it is the dataset

    def remap_row_addrs(self, addrs: pa.Array) -> pa.Array | None:
        """Return where rows went with compactions that indices do not know of yet.

        Rows that were dropped on the way are null; without such a compaction there is None.
        """
        reuse = fragment_reuse_of(self._handle.snapshot)
        if not reuse.versions:
            return None
        moved = reuse.translate(np.asarray(addrs, np.uint64))
        return pa.array(moved, pa.uint64(), mask=moved == NO_ADDRESS)

    @overload
    def run_compaction(
        self, options: compact.CompactionOptions, *, dry_run: Literal[False] = False
    ) -> compact.CompactionMetrics: ...

    @overload
    def run_compaction(
        self, options: compact.CompactionOptions, *, dry_run: Literal[True]
    ) -> ChangeReport: ...

    def run_compaction(
        self, options: compact.CompactionOptions, *, dry_run: bool = False
    ) -> compact.CompactionMetrics | ChangeReport:
        """Rewrite small fragments and those with many deleted rows, and look at the result."""
        handle = self._handle
        if dry_run:
            return ops.compact.report_compaction(handle.snapshot, options)
        done = ops.compact.compact_files(handle.snapshot, options, self._committing())
        handle.snapshot = done.snapshot
        return done.metrics

    @overload
    def commit_compaction(
        self,
        results: Sequence[compact.RewriteResult],
        options: compact.CompactionOptions,
        *,
        dry_run: Literal[False] = False,
    ) -> compact.CompactionMetrics: ...

    @overload
    def commit_compaction(
        self,
        results: Sequence[compact.RewriteResult],
        options: compact.CompactionOptions,
        *,
        dry_run: Literal[True],
    ) -> ChangeReport: ...

    def commit_compaction(
        self,
        results: Sequence[compact.RewriteResult],
        options: compact.CompactionOptions,
        *,
        dry_run: bool = False,
    ) -> compact.CompactionMetrics | ChangeReport:
        """Commit what tasks of a compaction made, and look at the version with it."""
        handle = self._handle
        if dry_run:
            return ops.compact.report_results(handle.snapshot, results, options)
        done = ops.compact.commit_results(handle.snapshot, results, options, self._committing())
        handle.snapshot = done.snapshot
        return done.metrics

    @overload
    def cleanup_old_versions(
        self,
        older_than: timedelta | None = None,
        retain_versions: int | None = None,
        *,
        delete_unverified: bool = False,
        error_if_tagged_old_versions: bool = True,
        delete_rate_limit: int | None = None,
        versions: Sequence[int] | None = None,
        delete_concurrency: int | None = None,
        clones: Sequence[str] = (),
        dry_run: Literal[False] = False,
    ) -> CleanupStats: ...

    @overload
    def cleanup_old_versions(
        self,
        older_than: timedelta | None = None,
        retain_versions: int | None = None,
        *,
        delete_unverified: bool = False,
        error_if_tagged_old_versions: bool = True,
        versions: Sequence[int] | None = None,
        clones: Sequence[str] = (),
        dry_run: Literal[True],
    ) -> ChangeReport: ...

    @checks_kinds
    def cleanup_old_versions(
        self,
        older_than: timedelta | None = None,
        retain_versions: int | None = None,
        *,
        delete_unverified: bool = False,
        error_if_tagged_old_versions: bool = True,
        delete_rate_limit: int | None = None,
        versions: Sequence[int] | None = None,
        delete_concurrency: int | None = None,
        clones: Sequence[str] = (),
        dry_run: bool = False,
    ) -> CleanupStats | ChangeReport:
        """Delete old versions, and the files that no version needs.

        The version that is looked at stays, and so do those after it and those with a tag; files
        that branches need stay too.

        Args:
            older_than: Only what was committed longer ago; 14 days, if nothing else is said.
            retain_versions: How many of the last versions stay in any case.
            delete_unverified: Whether to delete files that no version mentions even if they are
                newer than 7 days; only for a table that nobody is writing to.
            error_if_tagged_old_versions: Whether it is an error if a tag keeps a version.
            delete_rate_limit: The most files to delete in a second.
            versions: Only these versions.
            delete_concurrency: How many files to delete at a time.
            clones: Shallow clones of this table elsewhere, whose files must stay.
            dry_run: Whether to delete nothing and return how much would be deleted; which files,
                and why, is what `explain_cleanup_old_versions` says.
        """
        snapshot = self._handle.snapshot
        policy = _policy(
            snapshot,
            older_than,
            retain_versions,
            versions,
            ops.cleanup.CleanupPolicy(
                delete_unverified=delete_unverified,
                error_if_tagged_old_versions=error_if_tagged_old_versions,
                delete_rate_limit=delete_rate_limit,
                delete_concurrency=delete_concurrency,
                clones=tuple(clones),
            ),
        )
        if dry_run:
            return ops.cleanup.report_cleanup(snapshot, policy)
        return ops.cleanup.cleanup_old_versions(snapshot, policy)

    @checks_kinds
    def explain_cleanup_old_versions(
        self,
        older_than: timedelta | None = None,
        retain_versions: int | None = None,
        *,
        delete_unverified: bool = False,
        error_if_tagged_old_versions: bool = True,
        delete_rate_limit: int | None = None,  # noqa: ARG002 - pylance's signature
        versions: Sequence[int] | None = None,
        include_files: bool = False,
        max_files: int = 1000,
        clones: Sequence[str] = (),
    ) -> CleanupExplanation:
        """Return what `cleanup_old_versions` would delete and why, without deleting it."""
        if max_files <= 0:
            raise InvalidInputError("max_files must be positive", found=max_files)
        snapshot = self._handle.snapshot
        policy = ops.cleanup.CleanupPolicy(
            delete_unverified=delete_unverified,
            error_if_tagged_old_versions=error_if_tagged_old_versions,
            clones=tuple(clones),
        )
        policy = _policy(snapshot, older_than, retain_versions, versions, policy)
        plan = ops.cleanup.plan_cleanup(snapshot, policy)
        return explanation_of(plan, include_files=include_files, max_files=max_files)

    def check(
        self, level: str | int | Level = Level.DECODE, *, all_versions: bool = False
    ) -> Findings:
        """Return what is wrong with the version that is looked at, or with all versions.

        It is a list, and its `coverage` says how many files were verified by checksums: those of
        other writers have none.

        Args:
            level: How deep to look: `present`, `footers`, `checksums`, `decode` or `indices`.
            all_versions: Whether to check every version; what they share is checked once.
        """
        return ops.check.check(self._handle.snapshot, Level.parse(level), all_versions=all_versions)

    def repair(
        self,
        *,
        drop_fragments: Sequence[int] = (),
        restore_fragments: Sequence[int] = (),
        source: LanceDataset | int | None = None,
        drop_indices: Sequence[str] = (),
        rebuild_counts: bool = False,
        rebuild_indices: Sequence[str] = (),
        dry_run: bool = True,
    ) -> RepairReport:
        """Mend what `check` found, in a new version; by default only say what that would do.

        Args:
            drop_fragments: Fragments to give up, with their rows.
            restore_fragments: Fragments to take from `source`, whose files have to be sound.
            source: An older version of this table, or a dataset that is a copy of it.
            drop_indices: Indices to give up, by name.
            rebuild_counts: Whether to count rows and deleted rows in the files.
            rebuild_indices: Indices to build anew from the rows, by name.
            dry_run: Whether to change nothing.
        """
        handle = self._handle
        if isinstance(source, int):
            source_snapshot: Snapshot | None = open_snapshot(handle.location, source)
        else:
            source_snapshot = None if source is None else source.snapshot
        wishes = ops.repair.RepairWishes(
            tuple(drop_fragments),
            tuple(restore_fragments),
            source_snapshot,
            tuple(drop_indices),
            rebuild_counts,
            tuple(rebuild_indices),
        )
        done = ops.repair.repair(
            handle.snapshot, wishes, dry_run=dry_run, options=self._committing()
        )
        handle.snapshot = done.snapshot
        return done.report

    def _committing(self) -> CommitOptions:
        return CommitOptions(handler=self._handle.options.handler)


def _policy(
    snapshot: Snapshot,
    older_than: timedelta | None,
    retain_versions: int | None,
    versions: Sequence[int] | None,
    policy: CleanupPolicy,
) -> CleanupPolicy:
    if older_than is None and retain_versions is None and versions is None:
        older_than = _OLDER_THAN
    return ops.cleanup.policy_of(
        snapshot,
        older_than=older_than,
        retain_versions=retain_versions,
        versions=versions,
        policy=policy,
    )


class DatasetOptimizer:
    """Joins small files, drops deleted rows, and cleans up by itself if asked to."""

    def __init__(self, dataset: LanceDataset) -> None:
        """Work on a dataset, which follows to the versions made."""
        self._dataset = dataset

    def __repr__(self) -> str:
        """Show what is worked on."""
        return display.line("DatasetOptimizer", self._dataset.uri, version=self._dataset.version)

    @checks_kinds
    def compact_files(
        self,
        *,
        target_rows_per_fragment: int | None = None,
        max_rows_per_group: int | None = None,
        max_bytes_per_file: int | None = None,
        materialize_deletions: bool | None = None,
        materialize_deletions_threshold: float | None = None,
        defer_index_remap: bool | None = None,
        num_threads: int | None = None,
        batch_size: int | None = None,
        compaction_mode: Literal["reencode", "try_binary_copy", "force_binary_copy"] | None = None,
        binary_copy_read_batch_bytes: int | None = None,
        max_source_fragments: int | None = None,
        max_source_rows: int | None = None,
        max_source_bytes: int | None = None,
        excluded_fragment_ids: Sequence[int] | None = None,
        data_storage_version: str | None = None,
        dry_run: bool = False,
    ) -> compact.CompactionMetrics | ChangeReport:
        """Join small fragments and drop deleted rows; the order of rows within fragments stays.

        With `dry_run` nothing changes, and what would be written is returned.

        What is not given is taken from the config of the table (`lance.compaction.` and the name),
        and else is as `lancelet.ops.compact.CompactionOptions` says, which describes each.
        """
        wishes: dict[str, Any] = {
            "target_rows_per_fragment": target_rows_per_fragment,
            "max_rows_per_group": max_rows_per_group,
            "max_bytes_per_file": max_bytes_per_file,
            "materialize_deletions": materialize_deletions,
            "materialize_deletions_threshold": materialize_deletions_threshold,
            "defer_index_remap": defer_index_remap,
            "num_threads": num_threads,
            "batch_size": batch_size,
            "compaction_mode": compaction_mode,
            "binary_copy_read_batch_bytes": binary_copy_read_batch_bytes,
            "max_source_fragments": max_source_fragments,
            "max_source_rows": max_source_rows,
            "max_source_bytes": max_source_bytes,
            "excluded_fragment_ids": excluded_fragment_ids,
            "data_storage_version": data_storage_version,
        }
        if dry_run:
            options = options_of(self._dataset, wishes)
            return ops.compact.report_compaction(self._dataset.snapshot, options)
        return Compaction.execute(
            self._dataset, {name: value for name, value in wishes.items() if value is not None}
        )

    @checks_kinds
    def optimize_indices(
        self,
        *,
        num_indices_to_merge: int | None = None,
        index_names: Sequence[str] | None = None,
        retrain: bool = False,
        dry_run: bool = False,
        **kwargs: Any,
    ) -> ChangeReport | None:
        """Index the rows that indices lack, and merge segments.

        Args:
            num_indices_to_merge: How many of the latest segments to merge with new rows: 0 adds
                a segment, and by default the latest one grows.
            index_names: The indices to bring up to date, by default all.
            retrain: Whether to build them anew from all rows.
            dry_run: Whether to keep nothing of the work and return what would change.
            kwargs: Ignored with a warning, since programs for pylance pass others.
        """
        for name in sorted(kwargs):
            warnings.warn(
                f"optimize_indices has no argument {name!r}, which is ignored",
                UserWarning,
                stacklevel=2,
            )
        names = None if index_names is None else tuple(index_names)
        wanted = ops.indexing.optimize.OptimizeIndices(names, num_indices_to_merge, retrain)
        return self._dataset.run_optimize_indices(wanted, dry_run=dry_run)

    def enable_auto_cleanup(
        self,
        auto_cleanup_config: AutoCleanupConfig,
        *,
        dry_run: bool = False,
        **kwargs: Any,  # noqa: ARG002 - pylance's signature
    ) -> ChangeReport | None:
        """Clean up whenever so many versions were committed."""
        config = {
            f"{_CLEANUP}.interval": str(auto_cleanup_config["interval"]),
            f"{_CLEANUP}.older_than": f"{auto_cleanup_config['older_than_seconds']}s",
        }
        if dry_run:
            return self._dataset.update_config(config, dry_run=True)
        self._dataset.update_config(config)
        return None

    def disable_auto_cleanup(
        self,
        *,
        dry_run: bool = False,
        **kwargs: Any,  # noqa: ARG002 - pylance's signature
    ) -> ChangeReport | None:
        """Clean up only when asked to."""
        keys = [f"{_CLEANUP}.interval", f"{_CLEANUP}.older_than"]
        return self._dataset.delete_config_keys(keys, dry_run=dry_run)
