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
from lancelet.change.publish import publish
from lancelet.dataset.write.operation_forms import operation_from_user
from lancelet.errors import StorageError
from lancelet.file import LanceFileWriter
from lancelet.fragment import DataFile, write_fragments
from lancelet.jobs import table_ref
from lancelet.jobs.build_index import BuildOptions, create_index
from lancelet.jobs.change_rows import ChangeOptions, delete_rows, update_rows
from lancelet.jobs.compact import compact
from lancelet.jobs.engine import Job, Outcome, PhaseControl, TaskFunction, run_task
from lancelet.jobs.table_ref import TableRef
from lancelet.optimize import Compaction, CompactionTask
from lancelet.table.commit import CommitOptions
from lancelet.table.watermark import BatchWatermark
from lancelet.upkeep.compact.options import CompactionOptions
from lancelet.upkeep.indexing.build import IndexRequest
from tests.kit.simulation.judge import BUCKET, MAIN, Effect, Rows, text_of, unchanged, vector_of

T = TypeVar("T")
R = TypeVar("R")

SCHEMA: Final = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])

WIDE: Final = pa.schema([*SCHEMA, ("s", pa.string()), ("x", pa.list_(pa.float32(), 8))])
"""The schema of tables with text and vector indices; their values follow from the id."""


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

FINE: Final = {
    "rewrite column": 4,
    "replace column": 3,
    "overlay": 3,
    "delete in fragment": 3,
    "add column": 2,
    "drop column": 1,
    "separate compact": 4,
    "stream batch": 5,
    "any index": 3,
    "look up": 4,
}
"""Operations on single fragments and columns, by several handles, and batches of a stream."""

FINE_PUBLISHES: Final = {
    "rewrite column": None,
    "replace column": None,
    "overlay": None,
    "delete in fragment": None,
    "stream batch": None,
}

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

CHANGES_ROWS: Final = frozenset(PUBLISHES | FINE_PUBLISHES)

_INDICES: Final = (
    ("id", "BTREE"),
    ("v", "BTREE"),
    ("v", "BITMAP"),
    ("id", "ZONEMAP"),
    ("v", "BLOOMFILTER"),
    ("s", "INVERTED"),
    ("s", "NGRAM"),
    ("x", "IVF_FLAT"),
    ("x", "IVF_HNSW_SQ"),
)
"""The column and the kind of indices; the last ones only in wide tables."""


def table(rows: Rows, schema: pa.Schema = SCHEMA) -> pa.Table:
    """Return model rows as a table."""
    columns: dict[str, list[object]] = {"id": list(rows), "v": list(rows.values())}
    if "s" in schema.names:
        columns |= {"s": list(map(text_of, rows)), "x": list(map(vector_of, rows))}
        return pa.table(columns, WIDE)
    return pa.table(columns, SCHEMA)


def new_rows(step: Step) -> Rows:
    """Return rows with keys that no other operation writes."""
    return {1000 + 10 * step.number + each: 0 for each in range(1 + step.amount % 3)}


def is_meant(step: Step, key: int) -> bool:
    """Return whether a delete or an update selects a row."""
    return key % 5 == step.amount % 5 and key < _BATCHES


def batch_key(step: Step) -> int:
    """Return the key of the row of a batch, which several drivers may write."""
    return _BATCHES + step.number // 4


def upserted(step: Step) -> Rows:
    """Return rows with existing keys, and with keys that other upserts may also insert."""
    return dict.fromkeys((step.amount % 7, 900 + step.amount % 4), step.number)


def effect_of(step: Step, reported: Callable[[], Rows | None]) -> Effect:
    """Return the effect of an operation on rows.

    `reported` are the rows of the version to restore, or the rows to change with their old values.
    """

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
            return lambda _read, _newest: reported()
        case "rewrite column" | "replace column":
            return lambda _, newest: _rewritten(reported() or {}, newest)
        case "overlay":
            return lambda _, newest: _overlaid(reported() or {}, newest)
        case "delete in fragment":
            return lambda _, newest: _deleted(reported() or {}, newest)
        case "stream batch":
            key = batch_key(step)
            return lambda _, newest: None if key in newest else {**newest, key: 0}
        case _:
            return unchanged


def _rewritten(meant: Rows, newest: Rows) -> Rows | None:
    """Return the rows after new values of the rows that still exist; None after other changes."""
    if any(newest.get(key, v) != v for key, v in meant.items()):
        return None
    return _overlaid(meant, newest)


def _overlaid(meant: Rows, newest: Rows) -> Rows:
    """Return the rows after new values of the rows that still exist; the last overlay counts."""
    return {**newest, **{key: v + 1 for key, v in meant.items() if key in newest}}


def _deleted(meant: Rows, newest: Rows) -> Rows | None:
    if any(newest.get(key, v) != v for key, v in meant.items()):
        return None
    return {key: v for key, v in newest.items() if key not in meant}


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


def perform(
    step: Step,
    dataset: lancelet.LanceDataset,
    reported: list[Rows],
    reopen: Callable[[], lancelet.LanceDataset],
) -> None:
    """Run a step; the actor itself runs reads and restores.

    Steps on single fragments add the rows that they change to `reported`. `reopen` returns a handle
    of another process.
    """
    condition = f"id % 5 = {step.amount % 5} AND id < {_BATCHES}"
    schema = dataset.schema
    match step.kind:
        case kind if kind in JOBS:
            _perform_job(step, dataset, condition)
        case kind if kind in FINE:
            _perform_fine(step, dataset, reported, reopen)
        case "append":
            dataset.insert(table(new_rows(step), schema))
        case "delete":
            dataset.delete(condition)
        case "update":
            dataset.update({"v": "v + 1"}, where=condition)
        case "upsert":
            merge = dataset.merge_insert("id")
            merge.when_matched_update_all().when_not_matched_insert_all().execute(
                table(upserted(step), schema)
            )
        case "overwrite":
            lancelet.write_dataset(table(new_rows(step), schema), dataset, mode="overwrite")
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


def _perform_fine(
    step: Step,
    dataset: lancelet.LanceDataset,
    reported: list[Rows],
    reopen: Callable[[], lancelet.LanceDataset],
) -> None:
    match step.kind:
        case "rewrite column":
            fragment, meant = _rows_of_fragment(step, dataset)
            reported.append({key: v for key, v in meant.items() if is_meant(step, key)})
            if not reported[-1]:
                return
            changed = {key: v + 1 for key, v in reported[-1].items()}
            metadata, fields, offsets = fragment.update_columns(
                table(changed), "id", with_offsets=True
            )
            update = lancelet.LanceOperation.Update(
                updated_fragments=[metadata],
                fields_modified=fields,
                update_mode="rewrite_columns",
                updated_fragment_offsets={fragment.fragment_id: offsets},
            )
            lancelet.LanceDataset.commit(dataset, update, read_version=dataset.version)
        case "replace column":
            fragment, meant = _rows_of_fragment(step, dataset)
            reported.append(meant)
            if meant:
                values = pa.table(
                    {"v": [v + 1 for v in meant.values()]}, pa.schema([SCHEMA.field("v")])
                )
                dataset.replace_columns({fragment.fragment_id: values})
        case "overlay":
            _overlay(step, dataset, reported)
        case "delete in fragment":
            fragment, meant = _rows_of_fragment(step, dataset)
            reported.append({key: v for key, v in meant.items() if is_meant(step, key)})
            if not reported[-1]:
                return
            left = fragment.delete(f"id % 5 = {step.amount % 5} AND id < {_BATCHES}")
            delete = lancelet.LanceOperation.Delete(
                [] if left is None else [left],
                [fragment.fragment_id] if left is None else [],
                "of one fragment",
            )
            lancelet.LanceDataset.commit(dataset, delete, read_version=dataset.version)
        case "add column":
            dataset.add_columns({f"c{step.number}": f"v - v + id + {step.number}"})
        case "drop column":
            added = [name for name in dataset.schema.names if name.startswith("c")]
            if added:
                dataset.drop_columns([added[step.amount % len(added)]])
        case "separate compact":
            plan = Compaction.plan(
                dataset,
                {
                    "target_rows_per_fragment": 1 << (step.amount % 6),
                    "materialize_deletions_threshold": 0.0,
                },
            )
            results = []
            for task in plan.tasks:
                results.append(CompactionTask.from_json(task.json()).execute(reopen()))
                pause(step.amount % 3 / 10)
            if results:
                Compaction.commit(reopen(), results)
        case "stream batch":
            _commit_batch(step, dataset)
        case "any index":
            present = [each for each in _INDICES if each[0] in dataset.schema.names]
            column, kind = present[step.amount % len(present)]
            if column == "x":
                dataset.create_index(column, kind, num_partitions=2)
            else:
                dataset.create_scalar_index(column, kind)
        case kind:
            raise ValueError(kind)


def _rows_of_fragment(
    step: Step, dataset: lancelet.LanceDataset
) -> tuple[lancelet.LanceFragment, Rows]:
    """Return a fragment and its rows with their values of `v`, in order."""
    fragments = dataset.get_fragments()
    fragment = fragments[step.amount // 5 % len(fragments)]
    found = fragment.to_table(columns=["id", "v"])
    return fragment, dict(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))


def _overlay(step: Step, dataset: lancelet.LanceDataset, reported: list[Rows]) -> None:
    fragments = dataset.get_fragments()
    fragment = fragments[step.amount // 5 % len(fragments)]
    found = fragment.to_table(columns=["id", "v"], with_row_address=True)
    rows = [
        row
        for row in zip(*(found[name].to_pylist() for name in found.column_names), strict=True)
        if is_meant(step, row[0])
    ]
    reported.append({key: v for key, v, _ in rows})
    if not rows:
        return
    name = f"{surroundings.new_uuid()}.lance"
    with LanceFileWriter(f"{dataset.uri}/data/{name}") as writer:
        writer.write_batch(pa.table({"v": pa.array([v + 1 for _, v, _ in rows], pa.int64())}))
    like, field = fragment.metadata.files[0], dataset.lance_schema.field("v")
    assert field is not None
    file = DataFile(
        path=name,
        fields=[field.id()],
        column_indices=[0],
        file_major_version=like.file_major_version,
        file_minor_version=like.file_minor_version,
    )
    offsets = [address & 0xFFFFFFFF for *_, address in rows]
    overlay = lancelet.LanceOperation.DataOverlayFile(file, offsets=offsets)
    group = lancelet.LanceOperation.DataOverlayGroup(fragment.fragment_id, [overlay])
    operation = lancelet.LanceOperation.DataOverlay([group])
    lancelet.LanceDataset.commit(dataset, operation, read_version=dataset.version)


def _commit_batch(step: Step, dataset: lancelet.LanceDataset) -> None:
    """Commit a batch as a driver of a stream does."""
    watermark = BatchWatermark("simulated", step.number // 4)
    if watermark.is_reached(dataset.snapshot.manifest.config):
        return
    made = write_fragments(table({batch_key(step): 0}, dataset.schema), dataset)
    assert isinstance(made, list)
    operation = operation_from_user(lancelet.LanceOperation.Append(made))
    publish(dataset.snapshot, operation, CommitOptions(watermark=watermark, checks_files=True))


_BATCHES: Final = 5000
"""The first key of batches, whose rows are not changed."""

_SMALL: Final = ChangeOptions(bytes_per_task=1)


def _perform_job(step: Step, dataset: lancelet.LanceDataset, condition: str) -> None:
    match step.kind:
        case "job append":
            rows = table(new_rows(step), dataset.schema)
            tried = [write_fragments(rows, dataset) for _ in range(2)]
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


def look_up(dataset: lancelet.LanceDataset, step: Step) -> pa.Table:
    """Return the rows that a filter selects, with the indices of the version."""
    return dataset.to_table(filter=lookup_filter(step)[0])


def lookup_filter(step: Step) -> tuple[str, Callable[[int, int], bool]]:
    """Return a filter and whether it selects a row with a key and a value."""
    number = step.amount // 4
    match step.amount % 4:
        case 0:
            return f"v = {number % 9}", lambda _, v: v == number % 9
        case 1:
            return f"v > {number % 4}", lambda _, v: v > number % 4
        case 2:
            low = 900 + number % 200
            return f"id >= {low}", lambda key, _: key >= low
        case _:
            keys = (number % 8, 900 + number % 4, 1000 + number % 300)
            return f"id IN {keys}", lambda key, _: key in keys


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
