"""Compaction with the API of pylance: plans, tasks and results that can be serialized.

    plan = Compaction.plan(dataset, {"target_rows_per_fragment": 500_000})
    results = [task.execute(dataset) for task in plan.tasks]     on any machine, in any order
    Compaction.commit(dataset, results)

`lancelet.upkeep.compact` implements the steps; this module wraps their values.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from lancelet import upkeep
from lancelet.dataset.dry_runs import previews_function
from lancelet.dataset.write.metadata import FragmentMetadata, fragment_to_user
from lancelet.errors import InvalidInputError
from lancelet.format.fragment import Fragment
from lancelet.values import dataclass

if TYPE_CHECKING:
    from lancelet.change.dry_run import ChangeReport
    from lancelet.dataset.dataset import LanceDataset
    from lancelet.upkeep import compact


class CompactionOptions(TypedDict, total=False):
    """Options of a compaction: a dict with these optional keys.

    See `lancelet.upkeep.compact.CompactionOptions` for their meanings and defaults.
    """

    target_rows_per_fragment: int | None
    max_rows_per_group: int | None
    max_bytes_per_file: int | None
    materialize_deletions: bool | None
    materialize_deletions_threshold: float | None
    num_threads: int | None
    batch_size: int | None
    io_buffer_size: int | None
    defer_index_remap: bool | None
    compaction_mode: Literal["reencode", "try_binary_copy", "force_binary_copy"] | None
    binary_copy_read_batch_bytes: int | None
    max_source_fragments: int | None
    max_source_rows: int | None
    max_source_bytes: int | None
    excluded_fragment_ids: list[int] | None
    max_overlays_per_fragment: int | None
    data_storage_version: str | None


@dataclass(frozen=True)
class CompactionTask:
    """Fragments to rewrite together."""

    _task: compact.CompactionTask

    @property
    def read_version(self) -> int:
        """The version that the task was planned for."""
        return self._task.read_version

    @property
    def fragments(self) -> list[FragmentMetadata]:
        """The fragments to rewrite."""
        return _to_user(self._task.fragments)

    def execute(self, dataset: LanceDataset) -> RewriteResult:
        """Rewrite the fragments; the result must be committed."""
        return RewriteResult(upkeep.compact.execute_task(dataset.snapshot, self._task))

    def json(self) -> str:
        """Serialize the task to JSON."""
        return _dump(self._task.to_json())

    @staticmethod
    def from_json(json: str) -> CompactionTask:
        """Deserialize a task from JSON."""
        return CompactionTask(_load(upkeep.compact.CompactionTask, json))

    def __repr__(self) -> str:
        return f"CompactionTask(read_version={self.read_version}, fragments={self.fragments})"


@dataclass(frozen=True)
class CompactionPlan:
    """The tasks of a compaction."""

    _plan: compact.CompactionPlan

    @property
    def read_version(self) -> int:
        """The version that was planned."""
        return self._plan.read_version

    @property
    def tasks(self) -> list[CompactionTask]:
        """The independent tasks of the plan."""
        return list(map(CompactionTask, self._plan.tasks))

    def num_tasks(self) -> int:
        """Return the number of tasks."""
        return len(self._plan.tasks)

    def json(self) -> str:
        """Serialize the plan to JSON."""
        return _dump(self._plan.to_json())

    @staticmethod
    def from_json(json: str) -> CompactionPlan:
        """Deserialize a plan from JSON."""
        return CompactionPlan(_load(upkeep.compact.CompactionPlan, json))

    def __repr__(self) -> str:
        tasks = f"<{self.num_tasks()} compaction tasks>"
        return f"CompactionPlan(read_version={self.read_version}, tasks={tasks})"


@dataclass(frozen=True)
class RewriteResult:
    """The result of a task, for `Compaction.commit`."""

    _result: compact.RewriteResult

    @property
    def read_version(self) -> int:
        """The version that the task was planned for."""
        return self._result.read_version

    @property
    def metrics(self) -> compact.CompactionMetrics:
        """The metrics of committing the result."""
        return self._result.metrics

    @property
    def original_fragments(self) -> list[FragmentMetadata]:
        """The rewritten fragments."""
        return _to_user(self._result.original_fragments)

    @property
    def new_fragments(self) -> list[FragmentMetadata]:
        """The replacement fragments; the commit assigns their ids."""
        return _to_user(self._result.new_fragments)

    def json(self) -> str:
        """Serialize the result to JSON."""
        return _dump(self._result.to_json())

    @staticmethod
    def from_json(json: str) -> RewriteResult:
        """Deserialize a result from JSON."""
        return RewriteResult(_load(upkeep.compact.RewriteResult, json))

    def __repr__(self) -> str:
        return (
            f"RewriteResult(read_version={self.read_version}, "
            f"new_fragments={self.new_fragments}, old_fragments={self.original_fragments})"
        )


class Compaction:
    """The steps of a compaction; `DatasetOptimizer.compact_files` combines them."""

    @staticmethod
    def plan(dataset: LanceDataset, options: Mapping[str, Any]) -> CompactionPlan:
        """Plan a compaction. Its tasks can run on several machines.

        Args:
            dataset: The dataset.
            options: See `DatasetOptimizer.compact_files`.

        Returns:
            The plan.

        Raises:
            InvalidInputError: If an argument is invalid.

        Example:
            ```python
            from lancelet.optimize import Compaction

            plan = Compaction.plan(dataset, {"target_rows_per_fragment": 100})
            results = [task.execute(dataset) for task in plan.tasks]
            Compaction.commit(dataset, results)
            ```
        """
        return CompactionPlan(
            upkeep.compact.plan_compaction(dataset.snapshot, options_of(dataset, options))
        )

    @staticmethod
    @previews_function
    def execute(
        dataset: LanceDataset,
        options: Mapping[str, Any],
        *,
        dry_run: bool = False,
    ) -> compact.CompactionMetrics | ChangeReport:
        """Plan, run and commit a compaction.

        Args:
            dataset: The dataset; its new version is checked out.
            options: See `DatasetOptimizer.compact_files`.
            dry_run: If True, return a `ChangeReport` without committing.

        Returns:
            The metrics; with `dry_run`, the `ChangeReport`.

        Raises:
            CommitConflictError: If a concurrent commit made a conflicting change.
            InvalidInputError: If an argument is invalid.

        Example:
            ```python
            from lancelet.optimize import Compaction

            Compaction.execute(dataset, {"target_rows_per_fragment": 100})
            ```
        """
        combined = options_of(dataset, options)
        if dry_run:
            return dataset.run_compaction(combined, dry_run=True)
        return dataset.run_compaction(combined)

    @staticmethod
    @previews_function
    def commit(
        dataset: LanceDataset,
        rewrites: Iterable[RewriteResult],
        options: Mapping[str, Any] | None = None,
        *,
        dry_run: bool = False,
    ) -> compact.CompactionMetrics | ChangeReport:
        """Commit the results of compaction tasks, except those that conflict with other commits.

        Args:
            dataset: The dataset; its new version is checked out.
            rewrites: The results of the tasks.
            options: The options used to plan the compaction.
            dry_run: If True, return a `ChangeReport` without committing.

        Returns:
            The metrics; with `dry_run`, the `ChangeReport`.

        Raises:
            CommitConflictError: If a concurrent commit made a conflicting change.

        Example:
            ```python
            from lancelet.optimize import Compaction

            plan = Compaction.plan(dataset, {"target_rows_per_fragment": 100})
            Compaction.commit(dataset, [task.execute(dataset) for task in plan.tasks])
            ```
        """
        results = [rewrite._result for rewrite in rewrites]  # noqa: SLF001 - the wrapped value
        combined = options_of(dataset, options or {})
        if dry_run:
            return dataset.commit_compaction(results, combined, dry_run=True)
        return dataset.commit_compaction(results, combined)


def options_of(dataset: LanceDataset, options: Mapping[str, Any]) -> compact.CompactionOptions:
    """Combine options of the caller with the config of the table."""
    return upkeep.compact.CompactionOptions.parse(options, dataset.snapshot.manifest.config)


def _to_user(fragments: Iterable[Fragment]) -> list[FragmentMetadata]:
    return list(map(fragment_to_user, fragments))


def _dump(form: dict[str, Any]) -> str:
    return json.dumps(form, separators=(",", ":"))


def _load(kind: Any, text: str) -> Any:
    try:
        return kind.from_json(json.loads(text))
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise InvalidInputError("invalid JSON of a compaction step", kind=kind.__name__) from error
