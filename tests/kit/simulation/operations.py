"""The operations of actors, with the public API, and their effect on the rows of the model.

An operation is a value, so a history can be shrunk by removing some.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from random import Random
from typing import Final, TypeVar

import pyarrow as pa

import lancelet
from lancelet import surroundings
from lancelet.errors import StorageError
from lancelet.fragment import write_fragments
from lancelet.jobs import table_ref
from lancelet.jobs.build_index import BuildOptions, create_index
from lancelet.jobs.change_rows import ChangeOptions, delete_rows, update_rows
from lancelet.jobs.compact import compact
from lancelet.jobs.engine import Job, Outcome, PhaseControl, TaskFunction, run_task
from lancelet.jobs.table_ref import TableRef
from lancelet.upkeep.compact.options import CompactionOptions
from lancelet.upkeep.indexing.build import IndexRequest
from tests.kit.simulation.judge import BUCKET, MAIN, Effect, Rows, unchanged

T = TypeVar("T")
R = TypeVar("R")

SCHEMA: Final = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])


@dataclass(frozen=True, slots=True)
class Step:
    """One operation of an actor, with its rows, branch and base version."""

    kind: str
    number: int
    """The number of the operation in the history, which determines the ids of new rows."""
    amount: int = 0
    """The selected rows, version or age, depending on the kind."""
    branch: str | None = None
    is_stale: bool = False
    """Whether the handle of the previous operation is reused."""

    @property
    def name(self) -> str:
        """The name in reports."""
        return f"{self.kind} #{self.number}"

    @property
    def root(self) -> str:
        """The folder of the changed table."""
        return MAIN if self.branch is None else f"{MAIN}/tree/{self.branch}"


WEIGHTS: Final = {
    "append": 8,
    "delete": 4,
    "update": 6,
    "upsert": 5,
    "overwrite": 1,
    "restore": 2,
    "compact": 3,
    "cleanup": 6,
    "index": 2,
    "optimize": 1,
    "tag": 3,
    "untag": 1,
    "move tag": 1,
    "branch": 1,
    "read": 3,
    "configure": 1,
}
"""The relative frequency of each kind."""

JOBS: Final = {
    "job append": 4,
    "job delete": 4,
    "job update": 4,
    "job compact": 3,
    "job index": 2,
}
"""Jobs whose tasks run twice, as in a cluster."""

PUBLISHES: Final = {
    "append": 1,
    "delete": None,
    "update": None,
    "upsert": None,
    "overwrite": 1,
    "restore": 1,
    "job append": 1,
    "job delete": None,
    "job update": None,
}
"""The number of versions of a successful operation; None for zero or one, depending on the rows."""

CHANGES_ROWS: Final = frozenset(PUBLISHES)


def table(rows: Rows) -> pa.Table:
    """Return model rows as a table."""
    return pa.table({"id": list(rows), "v": list(rows.values())}, SCHEMA)


def new_rows(step: Step) -> Rows:
    """Return rows with keys that no other operation writes."""
    return {1000 + 10 * step.number + each: 0 for each in range(1 + step.amount % 3)}


def is_meant(step: Step, key: int) -> bool:
    """Return whether a delete or an update selects a row."""
    return key % 5 == step.amount % 5


def upserted(step: Step) -> Rows:
    """Return rows with existing keys, and with keys that other upserts may also insert."""
    return dict.fromkeys((step.amount % 7, 900 + step.amount % 4), step.number)


def effect_of(step: Step, restored: Callable[[], Rows | None]) -> Effect:
    """Return the effect of an operation on rows."""

    def changes(apply: Callable[[Rows, Rows], Rows | None]) -> Effect:
        def effect(read: Rows, newest: Rows) -> Rows | None:
            meant = {key: v for key, v in read.items() if is_meant(step, key)}
            if any(newest.get(key, v) != v for key, v in meant.items()):
                return None  # changed concurrently
            return apply(meant, newest)

        return effect

    def upsert(read: Rows, newest: Rows) -> Rows | None:
        brought = upserted(step)
        if any(read.get(key) != newest.get(key) for key in brought):
            return None
        return {**newest, **brought}

    def update(meant: Rows, newest: Rows) -> Rows | None:
        if not newest.keys() >= meant.keys():
            return None
        return {**newest, **{key: v + 1 for key, v in meant.items()}}

    match step.kind.removeprefix("job "):
        case "append":
            return lambda _, newest: {**newest, **new_rows(step)}
        case "delete":
            return changes(lambda meant, all_: {k: v for k, v in all_.items() if k not in meant})
        case "update":
            return changes(update)
        case "upsert":
            return upsert
        case "overwrite":
            return lambda _read, _newest: new_rows(step)
        case "restore":
            return lambda _read, _newest: restored()
        case _:
            return unchanged


def open_table(
    root: str,
    session: lancelet.Session,
    version: int | None = None,
    *,
    options: dict[str, str] | None = None,
) -> lancelet.LanceDataset:
    """Open a table of the history."""
    uri = f"memory://{BUCKET}/{MAIN}"
    if root == MAIN:
        return lancelet.dataset(uri, version=version, session=session, storage_options=options)
    branch = root.removeprefix(f"{MAIN}/tree/")
    main = lancelet.dataset(uri, session=session, storage_options=options)
    return main.checkout_version((branch, version))


def perform(step: Step, dataset: lancelet.LanceDataset) -> None:
    """Run a step; the actor itself runs reads and restores."""
    condition = f"id % 5 = {step.amount % 5}"
    match step.kind:
        case kind if kind in JOBS:
            _perform_job(step, dataset, condition)
        case "append":
            dataset.insert(table(new_rows(step)))
        case "delete":
            dataset.delete(condition)
        case "update":
            dataset.update({"v": "v + 1"}, where=condition)
        case "upsert":
            merge = dataset.merge_insert("id")
            merge.when_matched_update_all().when_not_matched_insert_all().execute(
                table(upserted(step))
            )
        case "overwrite":
            lancelet.write_dataset(table(new_rows(step)), dataset, mode="overwrite")
        case "compact":
            dataset.optimize.compact_files(
                target_rows_per_fragment=1 << (step.amount % 6), materialize_deletions_threshold=0.0
            )
        case "cleanup" if step.amount % 2:
            dataset.cleanup_old_versions(
                retain_versions=1 + step.amount // 2 % 3, error_if_tagged_old_versions=False
            )
        case "cleanup":
            dataset.cleanup_old_versions(
                timedelta(seconds=step.amount // 2 % 3), error_if_tagged_old_versions=False
            )
        case "index":
            dataset.create_scalar_index("id", "BTREE")
        case "optimize":
            dataset.optimize.optimize_indices()
        case "tag":
            dataset.tags.create(f"tag{step.number}", _older(dataset, step.amount))
        case "untag":
            dataset.tags.delete(_some_tag(dataset, step))
        case "move tag":
            dataset.tags.update(_some_tag(dataset, step), _older(dataset, step.amount))
        case "branch":
            dataset.create_branch(_branch_of(step), _older(dataset, step.amount))
        case "configure":
            dataset.update_config(
                {
                    "lance.auto_cleanup.interval": str(1 + step.amount % 3),
                    "lance.auto_cleanup.older_than": f"{step.amount % 4}s",
                }
            )
        case kind:
            raise ValueError(kind)


_SMALL: Final = ChangeOptions(bytes_per_task=1)


def _perform_job(step: Step, dataset: lancelet.LanceDataset, condition: str) -> None:
    match step.kind:
        case "job append":
            tried = [write_fragments(table(new_rows(step)), dataset) for _ in range(2)]
            chosen = tried[step.amount % 2]
            assert isinstance(chosen, list)
            append = lancelet.LanceOperation.Append(chosen)
            lancelet.LanceDataset.commit(dataset, append, read_version=dataset.version)
        case "job delete":
            delete_rows(Job(_Twice()), _table_of(step), condition, _SMALL)
        case "job update":
            update_rows(Job(_Twice()), _table_of(step), {"v": "v + 1"}, condition, _SMALL)
        case "job compact":
            compact(
                Job(_Twice()),
                _table_of(step),
                CompactionOptions(
                    target_rows_per_fragment=1 << (step.amount % 6),
                    materialize_deletions_threshold=0.0,
                ),
            )
        case "job index":
            request = IndexRequest("id", "BTREE")
            options = BuildOptions(bytes_per_task=1, merges=bool(step.amount % 2))
            create_index(Job(_Twice()), _table_of(step), request, options)


class _Twice:
    """Runs each task twice, each time in a separate process, and returns the last result."""

    def run(
        self, function: TaskFunction[T, R], tasks: Sequence[T], watch: PhaseControl
    ) -> Iterator[Outcome]:
        """Run tasks; see `Engine`."""
        del watch
        for task in tasks:
            for tried in range(_TRIES):
                table_ref._locate.cache_clear()
                table_ref._open.cache_clear()
                try:
                    outcome = run_task(function, task)
                except StorageError:
                    if tried == _TRIES - 1:
                        raise
                    continue
                if tried:
                    break
            yield outcome


_TRIES: Final = 4


def _table_of(step: Step) -> TableRef:
    table_ref._locate.cache_clear()
    return replace(TableRef.of(f"memory://{BUCKET}/{MAIN}"), branch=step.branch)


def _older(dataset: lancelet.LanceDataset, amount: int) -> int:
    return max(1, dataset.version - amount % 4)


def _some_tag(dataset: lancelet.LanceDataset, step: Step) -> str:
    tags = sorted(dataset.tags.list())
    return tags[step.amount % len(tags)] if tags else "none"


_OF_MAIN: Final = frozenset({"tag", "untag", "move tag", "branch"})


def _branch_of(step: Step) -> str:
    return f"b{step.number % 2}"


def random_step(random: Random, number: int, kinds: dict[str, int], *, stale: float) -> Step:
    """Return a random operation."""
    kind = random.choices(list(kinds), list(kinds.values()))[0]
    on_branch = kind not in _OF_MAIN and random.random() < 0.15
    branch = random.choice(["b0", "b1"]) if on_branch else None
    return Step(kind, number, random.randrange(1 << 10), branch, random.random() < stale)


def pause(seconds: float) -> None:
    """Wait like user code."""
    surroundings.sleep(seconds)
