"""Compaction as pylance shows it: plans, tasks and results that travel as JSON or pickled.

    plan = Compaction.plan(dataset, {"target_rows_per_fragment": 500_000})
    results = [task.execute(dataset) for task in plan.tasks]     anywhere, in any order
    Compaction.commit(dataset, results)

What the steps do is in `lancelet.ops.compact`; here their values get pylance's methods.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from lancelet import ops
from lancelet.dataset.arguments import previews_function
from lancelet.dataset.write.metadata import FragmentMetadata, fragment_to_user
from lancelet.errors import InvalidInputError
from lancelet.format.fragment import Fragment
from lancelet.values import dataclass

if TYPE_CHECKING:
    from lancelet.dataset.dataset import LanceDataset
    from lancelet.ops import compact
    from lancelet.ops.dry_run import ChangeReport


class CompactionOptions(TypedDict, total=False):
    """Options of a compaction: a dict with these keys, all optional.

    `lancelet.ops.compact.CompactionOptions` says what each means, and the defaults.
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
    """Fragments that are to be rewritten together."""

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
        """Write the rows of the fragments anew; the result is still to be committed."""
        return RewriteResult(ops.compact.execute_task(dataset.snapshot, self._task))

    def json(self) -> str:
        """Return the task as JSON text."""
        return _dump(self._task.to_json())

    @staticmethod
    def from_json(json: str) -> CompactionTask:
        """Return the task of JSON text."""
        return CompactionTask(_load(ops.compact.CompactionTask, json))

    def __repr__(self) -> str:
        return f"CompactionTask(read_version={self.read_version}, fragments={self.fragments})"


@dataclass(frozen=True)
class CompactionPlan:
    """The tasks of a compaction."""

    _plan: compact.CompactionPlan

    @property
    def read_version(self) -> int:
        """The version that the plan is for."""
        return self._plan.read_version

    @property
    def tasks(self) -> list[CompactionTask]:
        """The tasks, which do not depend on each other."""
        return list(map(CompactionTask, self._plan.tasks))

    def num_tasks(self) -> int:
        """Return how many tasks there are."""
        return len(self._plan.tasks)

    def json(self) -> str:
        """Return the plan as JSON text."""
        return _dump(self._plan.to_json())

    @staticmethod
    def from_json(json: str) -> CompactionPlan:
        """Return the plan of JSON text."""
        return CompactionPlan(_load(ops.compact.CompactionPlan, json))

    def __repr__(self) -> str:
        tasks = f"<{self.num_tasks()} compaction tasks>"
        return f"CompactionPlan(read_version={self.read_version}, tasks={tasks})"


@dataclass(frozen=True)
class RewriteResult:
    """What a task made; to be committed by `Compaction.commit`."""

    _result: compact.RewriteResult

    @property
    def read_version(self) -> int:
        """The version that the task was planned for."""
        return self._result.read_version

    @property
    def metrics(self) -> compact.CompactionMetrics:
        """What committing the result counts as."""
        return self._result.metrics

    @property
    def original_fragments(self) -> list[FragmentMetadata]:
        """The fragments that were rewritten."""
        return _to_user(self._result.original_fragments)

    @property
    def new_fragments(self) -> list[FragmentMetadata]:
        """What they became; ids are given at the commit."""
        return _to_user(self._result.new_fragments)

    def json(self) -> str:
        """Return the result as JSON text."""
        return _dump(self._result.to_json())

    @staticmethod
    def from_json(json: str) -> RewriteResult:
        """Return the result of JSON text."""
        return RewriteResult(_load(ops.compact.RewriteResult, json))

    def __repr__(self) -> str:
        return (
            f"RewriteResult(read_version={self.read_version}, "
            f"new_fragments={self.new_fragments}, old_fragments={self.original_fragments})"
        )


class Compaction:
    """The steps of a compaction; see `DatasetOptimizer.compact_files` for all at once."""

    @staticmethod
    def plan(dataset: LanceDataset, options: Mapping[str, Any]) -> CompactionPlan:
        """Plan a compaction, whose tasks can run on several machines.

        Args:
            dataset: The dataset.
            options: See `DatasetOptimizer.compact_files`.

        Returns:
            The plan.

        Raises:
            InvalidInputError: If an argument has a value that it cannot have.

        Example:
            ```python
            from lancelet.optimize import Compaction

            plan = Compaction.plan(dataset, {"target_rows_per_fragment": 100})
            results = [task.execute(dataset) for task in plan.tasks]
            Compaction.commit(dataset, results)
            ```
        """
        return CompactionPlan(
            ops.compact.plan_compaction(dataset.snapshot, options_of(dataset, options))
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
            dataset: The dataset; it then is at the new version.
            options: See `DatasetOptimizer.compact_files`.
            dry_run: Preview: commit nothing and return a `ChangeReport` of what would change.

        Returns:
            The metrics; with `dry_run`, the `ChangeReport`.

        Raises:
            CommitConflictError: If a concurrent commit changed the same thing first.
            InvalidInputError: If an argument has a value that it cannot have.

        Example:
            ```python
            from lancelet.optimize import Compaction

            Compaction.execute(dataset, {"target_rows_per_fragment": 100})
            ```
        """
        wanted = options_of(dataset, options)
        if dry_run:
            return dataset.run_compaction(wanted, dry_run=True)
        return dataset.run_compaction(wanted)

    @staticmethod
    @previews_function
    def commit(
        dataset: LanceDataset,
        rewrites: Iterable[RewriteResult],
        options: Mapping[str, Any] | None = None,
        *,
        dry_run: bool = False,
    ) -> compact.CompactionMetrics | ChangeReport:
        """Commit the results of compaction tasks, but those that conflict with other commits.

        Args:
            dataset: The dataset; it then is at the new version.
            rewrites: The results of the tasks.
            options: The options that the compaction was planned with.
            dry_run: Preview: commit nothing and return a `ChangeReport` of what would change.

        Returns:
            The metrics; with `dry_run`, the `ChangeReport`.

        Raises:
            CommitConflictError: If a concurrent commit changed the same thing first.

        Example:
            ```python
            from lancelet.optimize import Compaction

            plan = Compaction.plan(dataset, {"target_rows_per_fragment": 100})
            Compaction.commit(dataset, [task.execute(dataset) for task in plan.tasks])
            ```
        """
        results = [rewrite._result for rewrite in rewrites]  # noqa: SLF001 - the value of a facade
        wanted = options_of(dataset, options or {})
        if dry_run:
            return dataset.commit_compaction(results, wanted, dry_run=True)
        return dataset.commit_compaction(results, wanted)


def options_of(dataset: LanceDataset, wishes: Mapping[str, Any]) -> compact.CompactionOptions:
    """Return options made of the caller's arguments and the config of the table."""
    return ops.compact.CompactionOptions.parse(wishes, dataset.snapshot.manifest.config)


def _to_user(fragments: Iterable[Fragment]) -> list[FragmentMetadata]:
    return list(map(fragment_to_user, fragments))


def _dump(form: dict[str, Any]) -> str:
    return json.dumps(form, separators=(",", ":"))


def _load(kind: Any, text: str) -> Any:
    try:
        return kind.from_json(json.loads(text))
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise InvalidInputError(
            "the text is not what a step of a compaction returned", kind=kind.__name__
        ) from error
