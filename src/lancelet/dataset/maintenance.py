"""The methods of a dataset that keep it small, quick and sound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from lancelet.dataset.compaction import Compaction
from lancelet.dataset.handle import Handle
from lancelet.errors import UnsupportedError
from lancelet.ops import compact
from lancelet.table.commit import CommitOptions

if TYPE_CHECKING:
    from lancelet.dataset.dataset import LanceDataset

_CLEANUP = "lance.auto_cleanup"


class AutoCleanupConfig(TypedDict):
    """When a table cleans up by itself: every so many versions, what is older than this."""

    interval: int
    older_than_seconds: int


class MaintenanceMethods:
    """Compacts a table."""

    _handle: Handle

    @property
    def optimize(self) -> DatasetOptimizer:
        """What makes reading quicker again after many small changes."""
        return DatasetOptimizer(self)  # type: ignore[arg-type]  # it is the dataset

    def run_compaction(self, options: compact.CompactionOptions) -> compact.CompactionMetrics:
        """Rewrite small fragments and those with many deleted rows, and look at the result."""
        handle = self._handle
        done = compact.compact_files(handle.snapshot, options, self._committing())
        handle.snapshot = done.snapshot
        return done.metrics

    def commit_compaction(
        self, results: Sequence[compact.RewriteResult], options: compact.CompactionOptions
    ) -> compact.CompactionMetrics:
        """Commit what tasks of a compaction made, and look at the version with it."""
        handle = self._handle
        done = compact.commit_results(handle.snapshot, results, options, self._committing())
        handle.snapshot = done.snapshot
        return done.metrics

    def _committing(self) -> CommitOptions:
        return CommitOptions(handler=self._handle.options.handler)


class DatasetOptimizer:
    """Joins small files, drops deleted rows, and cleans up by itself if asked to."""

    def __init__(self, dataset: LanceDataset) -> None:
        """Work on a dataset, which follows to the versions made."""
        self._dataset = dataset

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
    ) -> compact.CompactionMetrics:
        """Join small fragments and drop deleted rows; the order of rows stays.

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
        return Compaction.execute(
            self._dataset, {name: value for name, value in wishes.items() if value is not None}
        )

    def optimize_indices(self, **kwargs: Any) -> None:
        """Bring indices up to the rows of the table; not available without indices to build.

        A table without indices is as it should be.
        """
        names = sorted(
            index.name for index in self._dataset.snapshot.indices.indices if not index.is_system
        )
        if names:
            raise UnsupportedError(
                "this release builds no indices, so it cannot add rows to them",
                indices=names,
                options=sorted(kwargs),
            )

    def enable_auto_cleanup(self, auto_cleanup_config: AutoCleanupConfig, **kwargs: Any) -> None:  # noqa: ARG002 - pylance's signature
        """Clean up whenever so many versions were committed."""
        self._dataset.update_config(
            {
                f"{_CLEANUP}.interval": str(auto_cleanup_config["interval"]),
                f"{_CLEANUP}.older_than": f"{auto_cleanup_config['older_than_seconds']}s",
            }
        )

    def disable_auto_cleanup(self, **kwargs: Any) -> None:  # noqa: ARG002 - pylance's signature
        """Clean up only when asked to."""
        self._dataset.delete_config_keys([f"{_CLEANUP}.interval", f"{_CLEANUP}.older_than"])
