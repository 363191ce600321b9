"""Methods that compact, clean up, check and repair a dataset."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from datetime import timedelta
from html import escape
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict

import numpy as np
import pyarrow as pa

from lancelet import upkeep
from lancelet.arguments import instance
from lancelet.dataset.arguments import checks_types
from lancelet.dataset.dry_runs import previews
from lancelet.dataset.handle import Handle
from lancelet.dataset.maintenance.compaction import Compaction, options_of
from lancelet.dataset.show import display
from lancelet.dataset.show.listing import ROWS_SHOWN, text_table
from lancelet.dataset.show.progress import ProgressOption, shown
from lancelet.errors import InvalidInputError
from lancelet.rowids.address import NO_ADDRESS
from lancelet.table.commit import CommitOptions, refresh_snapshot
from lancelet.table.fragment_reuse import fragment_reuse_of
from lancelet.table.snapshot import Snapshot, open_snapshot
from lancelet.upkeep.check import Level
from lancelet.values import dataclass

if TYPE_CHECKING:
    from lancelet.change.dry_run import ChangeReport
    from lancelet.dataset.dataset import LanceDataset
    from lancelet.dataset.maintenance.maintain import MaintenanceReport
    from lancelet.upkeep import compact
    from lancelet.upkeep.check import Findings
    from lancelet.upkeep.cleanup import (
        CleanupCandidateFile,
        CleanupPlan,
        CleanupPolicy,
        CleanupReferencedBranch,
        CleanupStats,
    )
    from lancelet.upkeep.maintain import MaintenancePolicy
    from lancelet.upkeep.repair import RepairReport


@dataclass(frozen=True, slots=True, repr=False)
class CleanupExplanation:
    """A preview of a cleanup. No files are deleted.

    `stats` counts all files; `candidate_files` lists up to `max_files` of them.
    """

    read_version: int
    stats: CleanupStats
    candidate_files: list[CleanupCandidateFile]
    candidate_files_truncated: bool
    candidate_file_limit: int
    referenced_branches: list[CleanupReferencedBranch]
    warnings: list[str]

    def __repr__(self) -> str:
        """Show the counts, the files and the warnings."""
        parts = [f"cleanup, as of version {self.read_version}", repr(self.stats)]
        if self.candidate_files:
            files = [
                [each.path, each.file_kind.value, display.size_text(each.size_bytes)]
                for each in self.candidate_files[:ROWS_SHOWN]
            ]
            parts.append(text_table(("file", "kind", "size"), files, len(self.candidate_files)))
        return "\n\n".join([*parts, *self.warnings])

    def _repr_html_(self) -> str:
        return f"<pre>{escape(repr(self))}</pre>"


def explanation_of(plan: CleanupPlan, *, include_files: bool, max_files: int) -> CleanupExplanation:
    """Convert a cleanup plan to its explanation."""
    files = plan.candidates
    shown = list(files[:max_files]) if include_files else []
    return CleanupExplanation(
        read_version=plan.read_version,
        stats=upkeep.cleanup.CleanupStats.of(files),
        candidate_files=shown,
        candidate_files_truncated=include_files and len(files) > max_files,
        candidate_file_limit=max_files,
        referenced_branches=list(plan.branches),
        warnings=[
            f"branch {branch.name} started from version {branch.referenced_version}, which is "
            "deleted; its files are retained"
            for branch in plan.branches
            if branch.cleanup_candidate
        ],
    )


_CLEANUP: Final = "lance.auto_cleanup"
_OLDER_THAN: Final = timedelta(days=14)


class AutoCleanupConfig(TypedDict):
    """Automatic cleanup: every `interval` commits, delete versions by age."""

    interval: int
    older_than_seconds: int


class MaintenanceMethods:
    """Methods that compact, clean up, check and repair a table."""

    _handle: Handle

    @property
    def optimize(self) -> DatasetOptimizer:
        """Methods to compact files and update indices."""
        return DatasetOptimizer(self)  # type: ignore[arg-type]  # this mixin is part of the dataset

    def remap_row_addrs(self, addrs: pa.Array) -> pa.Array | None:
        """Map row addresses through compactions that are not yet applied to the indices.

        Args:
            addrs: Row addresses from before the compactions.

        Returns:
            The current addresses, null for deleted rows; None without such compactions.

        Example:
            ```python
            dataset.remap_row_addrs(pa.array([0, 1], pa.uint64()))  # None
            ```
        """
        reuse = fragment_reuse_of(self._handle.snapshot)
        if not reuse.versions:
            return None
        moved = reuse.translate(np.asarray(addrs, np.uint64))
        return pa.array(moved, pa.uint64(), mask=moved == NO_ADDRESS)

    @checks_types
    def maintain(
        self,
        policy: MaintenancePolicy | None = None,
        *,
        progress: ProgressOption = None,
        dry_run: bool = False,
    ) -> MaintenanceReport:
        """Compact files, optimize indices, merge the log and delete old versions, as required.

        The statistics of the latest version decide about the steps. The write-ahead log is merged
        if there is one; rows that its writers have not flushed remain in it. Each step commits
        separately and retries conflicts with concurrent writers. Afterwards, the latest version is
        checked out.

        Args:
            policy: The thresholds and the budget of bytes and seconds, by default those of
                `MaintenancePolicy()`.
            progress: Whether to show a progress bar, or a function called with `IndexProgress`.
            dry_run: If True, return the plan without changes.

        Returns:
            The report, with the steps and the statistics before and after them. Steps that were
            skipped, or failed because of a conflict, have another outcome than `done`.

        Raises:
            InvalidInputError: If a value of the policy is invalid.

        Example:
            ```python
            from lancelet.optimize import MaintenancePolicy

            policy = MaintenancePolicy(min_fragments=2, max_seconds=60)
            print(dataset.maintain(policy, dry_run=True))
            dataset.maintain(policy)
            ```
        """
        from lancelet.dataset.maintenance.maintain import (  # noqa: PLC0415 - imports all operations
            MaintenanceReport,
            TableOperations,
        )

        kind = upkeep.maintain.MaintenancePolicy
        policy = kind() if policy is None else instance("policy", policy, kind)
        operations = TableOperations(self._handle.snapshot, self._committing())
        if dry_run:
            planned = upkeep.maintain.report_maintenance(operations, policy)
            return MaintenanceReport.of(planned, is_dry_run=True)
        with shown(progress):
            done = upkeep.maintain.maintain(operations, policy)
        self._handle.snapshot = operations.latest()
        return MaintenanceReport.of(done, is_dry_run=False)

    @previews
    def run_compaction(
        self, options: compact.CompactionOptions, *, dry_run: bool = False
    ) -> compact.CompactionMetrics | ChangeReport:
        """Compact the dataset; called by `optimize.compact_files`.

        Args:
            options: The options.
            dry_run: If True, return a `ChangeReport` without committing.

        Returns:
            The metrics; with `dry_run`, the `ChangeReport`.

        Example:
            ```python
            from lancelet.upkeep.compact import CompactionOptions

            options = CompactionOptions(target_rows_per_fragment=100)
            dataset.run_compaction(options).fragments_removed  # 2
            ```
        """
        handle = self._handle
        if dry_run:
            return upkeep.compact.report_compaction(handle.snapshot, options)
        done = upkeep.compact.compact_files(handle.snapshot, options, self._committing())
        handle.snapshot = done.snapshot
        return done.metrics

    @previews
    def commit_compaction(
        self,
        results: Sequence[compact.RewriteResult],
        options: compact.CompactionOptions,
        *,
        dry_run: bool = False,
    ) -> compact.CompactionMetrics | ChangeReport:
        """Commit the results of compaction tasks; called by `Compaction.commit`.

        Args:
            results: The results of the tasks.
            options: The options.
            dry_run: If True, return a `ChangeReport` without committing.

        Returns:
            The metrics; with `dry_run`, the `ChangeReport`.

        Example:
            ```python
            from lancelet.upkeep.compact import CompactionOptions, execute_task, plan_compaction

            options = CompactionOptions(target_rows_per_fragment=100)
            plan = plan_compaction(dataset.snapshot, options)
            results = [execute_task(dataset.snapshot, task) for task in plan.tasks]
            dataset.commit_compaction(results, options).fragments_added  # 1
            ```
        """
        handle = self._handle
        if dry_run:
            return upkeep.compact.report_results(handle.snapshot, results, options)
        done = upkeep.compact.commit_results(handle.snapshot, results, options, self._committing())
        handle.snapshot = done.snapshot
        return done.metrics

    @previews
    @checks_types
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
        progress: ProgressOption = None,
        dry_run: bool = False,
    ) -> CleanupStats | ChangeReport:
        """Delete old versions and the files that only those versions need.

        The checked-out version, later versions, tagged versions and the files of branches are
        retained.

        Args:
            older_than: Delete only versions older than this; by default 14 days.
            retain_versions: The minimum number of latest versions to retain.
            delete_unverified: Whether to delete unreferenced files younger than 7 days;
                only safe without concurrent writers.
            error_if_tagged_old_versions: Whether to raise if an old version is tagged.
            delete_rate_limit: The maximum number of deletions per second.
            versions: Delete only these versions.
            delete_concurrency: The number of concurrent deletions.
            clones: URIs of shallow clones of this table; their files are retained.
            progress: Whether to show a progress bar, or a function called with `IndexProgress`.
            dry_run: Delete nothing and return a report of what would be deleted;
                `explain_cleanup_old_versions` lists the files and reasons.

        Returns:
            The deletion counts; with `dry_run`, the `ChangeReport`.

        Raises:
            InvalidInputError: If an old version is tagged and `error_if_tagged_old_versions` is
                set.

        Example:
            ```python
            from datetime import timedelta

            dataset.delete("id < 5")
            stats = dataset.cleanup_old_versions(older_than=timedelta(0))
            print(stats.old_versions, stats.bytes_removed)
            ```
        """
        snapshot = self._handle.snapshot
        refresh_snapshot(snapshot)  # raises if the path contains another table by now
        policy = _policy(
            older_than,
            retain_versions,
            versions,
            delete_unverified=delete_unverified,
            error_if_tagged_old_versions=error_if_tagged_old_versions,
            delete_rate_limit=delete_rate_limit,
            delete_concurrency=delete_concurrency,
            clones=tuple(clones),
        )
        if dry_run:
            return upkeep.cleanup.report_cleanup(snapshot, policy)
        with shown(progress):
            return upkeep.cleanup.cleanup_old_versions(snapshot, policy)

    @checks_types
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
        """Return the files that `cleanup_old_versions` would delete, with reasons.

        Args:
            older_than: Delete only versions older than this; by default 14 days.
            retain_versions: The minimum number of latest versions to retain.
            delete_unverified: Whether to delete unreferenced files younger than 7 days.
            error_if_tagged_old_versions: Whether to raise if an old version is tagged.
            delete_rate_limit: The maximum number of deletions per second.
            versions: Delete only these versions.
            include_files: Whether to list the files.
            max_files: The maximum number of listed files.
            clones: URIs of shallow clones of this table; their files are retained.

        Returns:
            The explanation.

        Example:
            ```python
            from datetime import timedelta

            print(dataset.explain_cleanup_old_versions(timedelta(0), include_files=True))
            ```
        """
        if max_files <= 0:
            raise InvalidInputError("max_files must be positive", found=max_files)
        snapshot = self._handle.snapshot
        policy = _policy(
            older_than,
            retain_versions,
            versions,
            delete_unverified=delete_unverified,
            error_if_tagged_old_versions=error_if_tagged_old_versions,
            clones=tuple(clones),
        )
        plan = upkeep.cleanup.plan_cleanup(snapshot, policy)
        return explanation_of(plan, include_files=include_files, max_files=max_files)

    def check(
        self,
        level: str | int | Level = Level.DECODE,
        *,
        all_versions: bool = False,
        progress: ProgressOption = None,
    ) -> Findings:
        """Verify the dataset and return findings.

        Versions that a concurrent cleanup removes are skipped.

        Args:
            level: The depth of the check: `present`, `footers`, `checksums`, `decode` or `indices`.
            all_versions: Whether to check all versions; shared files are checked once.
            progress: Whether to show a progress bar, or a function called with `IndexProgress`.

        Returns:
            A list of findings, empty if the dataset is valid. Its `coverage` counts the files
            verified by checksums; files of other writers have no checksums.

        Raises:
            InvalidInputError: If an argument is invalid.
            VersionRemovedError: If a concurrent cleanup removed the version.

        Example:
            ```python
            findings = dataset.check("checksums")
            print(len(findings), findings.coverage)
            ```
        """
        with shown(progress):
            return upkeep.check.check(
                self._handle.snapshot, Level.parse(level), all_versions=all_versions
            )

    def repair(
        self,
        *,
        drop_fragments: Sequence[int] = (),
        restore_fragments: Sequence[int] = (),
        source: LanceDataset | int | None = None,
        drop_indices: Sequence[str] = (),
        rebuild_counts: bool = False,
        rebuild_indices: Sequence[str] = (),
        progress: ProgressOption = None,
        dry_run: bool = True,
    ) -> RepairReport:
        """Repair findings of `check` in a new version. By default only report the changes.

        Args:
            drop_fragments: Ids of fragments to remove with their rows.
            restore_fragments: Ids of fragments to restore from `source`; their files must be valid.
            source: An older version of this table, or a dataset that is a copy of the table.
            drop_indices: Names of indices to drop.
            rebuild_counts: Whether to recompute the counts of rows and deleted rows from the files.
            rebuild_indices: Names of indices to rebuild from the rows.
            progress: Whether to show a progress bar, or a function called with `IndexProgress`.
            dry_run: Whether to only report the changes; True by default.

        Returns:
            The report.

        Raises:
            InvalidInputError: If an argument is invalid.
            IndexNotFoundError: If the index does not exist.

        Example:
            ```python
            report = dataset.repair(rebuild_counts=True)
            print(report)
            ```
        """
        handle = self._handle
        if isinstance(source, int):
            source_snapshot: Snapshot | None = open_snapshot(handle.location, source)
        else:
            source_snapshot = None if source is None else source.snapshot
        repairs = upkeep.repair.RepairOptions(
            tuple(drop_fragments),
            tuple(restore_fragments),
            source_snapshot,
            tuple(drop_indices),
            rebuild_counts,
            tuple(rebuild_indices),
        )
        with shown(progress):
            done = upkeep.repair.repair(
                handle.snapshot, repairs, dry_run=dry_run, options=self._committing()
            )
        handle.snapshot = done.snapshot
        return done.report

    def _committing(self) -> CommitOptions:
        return CommitOptions(handler=self._handle.options.handler)


def _policy(
    older_than: timedelta | None,
    retain_versions: int | None,
    versions: Sequence[int] | None,
    **others: Any,
) -> CleanupPolicy:
    if older_than is None and retain_versions is None and versions is None:
        older_than = _OLDER_THAN
    return upkeep.cleanup.CleanupPolicy(
        before=upkeep.cleanup.ago(older_than),
        retain_versions=retain_versions,
        versions=None if versions is None else frozenset(versions),
        **others,
    )


class DatasetOptimizer:
    """Methods that compact files, update indices, and configure automatic cleanup."""

    def __init__(self, dataset: LanceDataset) -> None:
        """Optimize `dataset`; new versions are checked out."""
        self._dataset = dataset

    def __repr__(self) -> str:
        """Show the dataset."""
        return display.line("DatasetOptimizer", self._dataset.uri, version=self._dataset.version)

    @checks_types
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
        progress: ProgressOption = None,
        dry_run: bool = False,
    ) -> compact.CompactionMetrics | ChangeReport:
        """Merge small fragments and drop deleted rows. The order of rows is preserved.

        Missing options are read from the config of the table (`lance.compaction.` and the name of
        the option).

        Args:
            target_rows_per_fragment: The target number of rows per fragment.
            max_rows_per_group: The rows per row group in files of version 0.1.
            max_bytes_per_file: The maximum size of a data file.
            materialize_deletions: Whether to rewrite fragments with many deleted rows.
            materialize_deletions_threshold: The minimum fraction of deleted rows for a rewrite.
            defer_index_remap: Whether `optimize_indices` remaps indices later.
            num_threads: The number of concurrent tasks.
            batch_size: The number of rows per batch.
            compaction_mode: Whether pages are re-encoded or copied.
            binary_copy_read_batch_bytes: The bytes per read of a binary copy.
            max_source_fragments: The maximum number of fragments to rewrite.
            max_source_rows: The maximum number of rows to rewrite.
            max_source_bytes: The maximum number of bytes to rewrite.
            excluded_fragment_ids: Ids of fragments to exclude.
            data_storage_version: The version of new data files; by default the dataset's.
            progress: Whether to show a progress bar, or a function called with `IndexProgress`.
            dry_run: If True, return a `ChangeReport` without committing.

        Returns:
            The metrics; with `dry_run`, the `ChangeReport`.

        Raises:
            CommitConflictError: If a concurrent commit made a conflicting change.
            InvalidInputError: If an argument is invalid.

        Example:
            ```python
            metrics = dataset.optimize.compact_files(target_rows_per_fragment=1_000_000)
            print(metrics.fragments_removed, metrics.fragments_added)
            ```
        """
        arguments: dict[str, Any] = {
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
            options = options_of(self._dataset, arguments)
            return upkeep.compact.report_compaction(self._dataset.snapshot, options)
        given = {name: value for name, value in arguments.items() if value is not None}
        with shown(progress):
            return Compaction.execute(self._dataset, given)

    @checks_types
    def optimize_indices(
        self,
        *,
        num_indices_to_merge: int | None = None,
        index_names: Sequence[str] | None = None,
        retrain: bool = False,
        progress: ProgressOption = None,
        dry_run: bool = False,
        **kwargs: Any,
    ) -> ChangeReport | None:
        """Add unindexed rows to indices, and merge segments.

        Args:
            num_indices_to_merge: The number of latest segments to merge with the new rows. 0 adds a
                segment; by default rows are added to the latest segment.
            index_names: The indices to update, by default all.
            retrain: Whether to rebuild the indices from all rows.
            progress: Whether to show a progress bar, or a function called with `IndexProgress`.
            dry_run: If True, return a `ChangeReport` without committing.
            kwargs: Ignored with a warning.

        Returns:
            None; with `dry_run`, the `ChangeReport`.

        Raises:
            IndexNotFoundError: If the index does not exist.
            CommitConflictError: If a concurrent commit made a conflicting change.

        Example:
            ```python
            dataset.create_scalar_index("id", "BTREE")
            dataset.insert(new_books)
            dataset.optimize.optimize_indices()
            ```
        """
        for name in sorted(kwargs):
            warnings.warn(
                f"optimize_indices ignores the unknown argument {name!r}",
                UserWarning,
                stacklevel=2,
            )
        names = None if index_names is None else tuple(index_names)
        options = upkeep.indexing.optimize.OptimizeIndices(names, num_indices_to_merge, retrain)
        with shown(progress):
            return self._dataset.run_optimize_indices(options, dry_run=dry_run)

    def enable_auto_cleanup(
        self,
        auto_cleanup_config: AutoCleanupConfig,
        *,
        dry_run: bool = False,
        **kwargs: Any,  # noqa: ARG002 - pylance's signature
    ) -> ChangeReport | None:
        """Enable automatic cleanup after every few commits.

        Args:
            auto_cleanup_config: A dict with `interval`, in commits, and `older_than_seconds`.
            dry_run: If True, return a `ChangeReport` without committing.
            kwargs: Ignored with a warning.

        Returns:
            None; with `dry_run`, the `ChangeReport`.

        Raises:
            InvalidInputError: If an argument is invalid.

        Example:
            ```python
            dataset.optimize.enable_auto_cleanup({"interval": 20, "older_than_seconds": 86_400})
            ```
        """
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
        """Disable automatic cleanup.

        Args:
            dry_run: If True, return a `ChangeReport` without committing.
            kwargs: Ignored with a warning.

        Returns:
            None; with `dry_run`, the `ChangeReport`.

        Example:
            ```python
            dataset.optimize.disable_auto_cleanup()
            ```
        """
        keys = [f"{_CLEANUP}.interval", f"{_CLEANUP}.older_than"]
        return self._dataset.delete_config_keys(keys, dry_run=dry_run)
