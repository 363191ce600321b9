"""Pairs of concurrent commits, compared with the same changes one after the other.

    theirs     delete row 0          read version 6, committed as 7
    ours       update rows 1 and 4   read version 6, committed as 8, or rejected

Each change is made once, alone, on the same version; its files and transactions are stored. In a
pair, theirs is committed first, and ours on top of it. If ours is accepted, the table must have the
rows, columns, settings and indices of both changes in this order. Changes of different things must
be accepted, and a rejection must say whether ours can be repeated.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product
from random import Random
from typing import Any, Final, TypeAlias
from unittest import mock
from uuid import UUID

import pyarrow as pa

import lancelet
from lancelet import surroundings
from lancelet.change.mem_wal_guard import MemWalAttachedError
from lancelet.errors import CommitConflictError, FieldNotFoundError, LanceletError
from lancelet.format.operation import (
    CompactedSsTable,
    Operation,
    ReserveFragments,
    Update,
    UpdateMemWalState,
)
from lancelet.format.transaction import Transaction
from lancelet.io.memory import MemoryStore
from lancelet.memwal.state import mem_wal_state
from lancelet.table import commit as commits
from lancelet.table.commit import CommitOptions
from lancelet.table.location import TableLocation
from lancelet.table.snapshot import Snapshot, open_snapshot
from tests.kit.simulation.judge import ViolationError
from tests.kit.simulation.machine import seeded, without_caches

_BUCKET: Final = "compared-commits"
_URI: Final = f"memory://{_BUCKET}/t"
_SCHEMA: Final = pa.schema([("id", pa.int64()), ("a", pa.int64()), ("b", pa.int64())])
_SHARDS: Final = UUID(int=7), UUID(int=8)

_COMMIT: Final = commits._commit

Rows = dict[int, dict[str, Any]]


@dataclass(slots=True)
class State:
    """The content of a table."""

    rows: Rows
    columns: tuple[str, ...] = ("id", "a", "b")
    settings: dict[str, str] = field(default_factory=dict)
    """The config, metadata, metadata of the schema and of fields, with prefixes."""
    indices: frozenset[str] = frozenset()
    bases: frozenset[tuple[str | None, str]] = frozenset()
    merged: dict[int, int] = field(default_factory=dict)
    """The merged generations of shards."""

    def name_of(self, column: str) -> str | None:
        """Return the current name of a column, or None if it was dropped."""
        if column == "b" and "renamed" in self.columns:
            return "renamed"
        return column if column in self.columns else None

    def with_values(self, column: str, values: Mapping[int, Any]) -> State:
        """Return the state with new values of existing rows, unless the column was dropped."""
        name = self.name_of(column)
        if name is None:
            return self
        rows = {
            key: {**row, name: values[key]} if key in values else row
            for key, row in self.rows.items()
        }
        return replace(self, rows=rows)

    def without(self, keys: Iterable[int]) -> State:
        """Return the state without some rows."""
        gone = set(keys)
        return replace(self, rows={key: row for key, row in self.rows.items() if key not in gone})

    def with_rows(self, rows: Mapping[int, Mapping[str, Any]]) -> State:
        """Return the state with new or replaced rows, whose columns may have been renamed."""
        before = {name: "b" if name == "renamed" else name for name in self.columns}
        new = {
            key: {name: row.get(before[name]) for name in self.columns} for key, row in rows.items()
        }
        return replace(self, rows={**self.rows, **new})


Model = Callable[[State], State | None]
"""Returns the state after a change, or None if the change cannot be made."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the table, and its model.

    `touches` has what it reads and changes; a `*` stands for all rows of a fragment or all
    fragments.
    """

    make: Callable[[lancelet.LanceDataset], object]
    model: Model
    touches: frozenset[str]
    needs: frozenset[str] = frozenset()
    """What it relies on without changing it."""


def _row(key: int, number: int = 0) -> dict[str, Any]:
    return {"id": key, "a": key + number, "b": 10 * key + number}


def _table(keys: Iterable[int], number: int = 0) -> pa.Table:
    return pa.Table.from_pylist([_row(key, number) for key in keys], _SCHEMA)


def _base() -> State:
    return State(
        {key: _row(key) for key in range(8)},
        settings={
            "config x": "0",
            "config y": "0",
            "metadata m": "0",
            "metadata n": "0",
            "schema s": "0",
            "field a": "0",
            "field b": "0",
        },
        indices=frozenset({"a_idx"}),
    )


def _update_rows(keys: Iterable[int], column: str, number: int) -> Change:
    chosen = tuple(keys)
    where = f"id IN ({', '.join(map(str, chosen))})"
    return Change(
        lambda dataset: dataset.update({column: f"id + {number}"}, where=where),
        lambda state: state.with_values(column, {key: key + number for key in chosen}),
        _rows_touched(chosen),
    )


def _rows_touched(keys: Iterable[int]) -> frozenset[str]:
    return frozenset(f"fragment {key // 4} row {key}" for key in keys)


def _delete(keys: Iterable[int]) -> Change:
    chosen = tuple(keys)
    where = f"id IN ({', '.join(map(str, chosen))})"
    return Change(
        lambda dataset: dataset.delete(where),
        lambda state: state.without(chosen),
        _rows_touched(chosen),
    )


def _append(keys: Iterable[int]) -> Change:
    chosen = tuple(keys)
    return Change(
        lambda dataset: dataset.insert(_table(chosen)),
        lambda state: state.with_rows({key: _row(key) for key in chosen}),
        frozenset({f"new {chosen}"}),
    )


def _upsert(keys: Iterable[int], number: int) -> Change:
    chosen = tuple(keys)

    def make(dataset: lancelet.LanceDataset) -> object:
        merge = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        return merge.execute(_table(chosen, number))

    return Change(
        make,
        lambda state: state.with_rows({key: _row(key, number) for key in chosen}),
        _rows_touched(each for each in chosen if each in _base().rows)
        | {f"key {each}" for each in chosen},
        frozenset({"new*"}),
    )


def _rewrite_column(fragment_id: int, key: int, column: str, number: int) -> Change:
    def make(dataset: lancelet.LanceDataset) -> object:
        fragment = dataset.get_fragment(fragment_id)
        assert fragment is not None
        values = pa.table(
            {"id": pa.array([key], pa.int64()), column: pa.array([number], pa.int64())}
        )
        metadata, fields, offsets = fragment.update_columns(values, "id", with_offsets=True)
        update = lancelet.LanceOperation.Update(
            updated_fragments=[metadata],
            fields_modified=fields,
            update_mode="rewrite_columns",
            updated_fragment_offsets={fragment_id: offsets},
        )
        return lancelet.LanceDataset.commit(dataset, update, read_version=dataset.version)

    return Change(
        make,
        lambda state: state.with_values(column, {key: number}),
        frozenset({f"fragment {fragment_id} *", f"column {column}"}),
    )


def _merge_column(keys: Iterable[int], column: str, number: int) -> Change:
    """Merge one column of some rows, which rewrites it in place."""
    chosen = tuple(keys)

    def make(dataset: lancelet.LanceDataset) -> object:
        values = [pa.array(each, pa.int64()) for each in (chosen, [k + number for k in chosen])]
        source = pa.table(values, ["id", column])
        return dataset.merge_insert("id").when_matched_update_all().execute(source)

    return Change(
        make,
        lambda state: state.with_values(column, {key: key + number for key in chosen}),
        frozenset({f"fragment {key // 4} *" for key in chosen} | {f"column {column}"}),
    )


def _replace_column(fragment_id: int, column: str, number: int) -> Change:
    keys = range(4 * fragment_id, 4 * fragment_id + 4)

    def make(dataset: lancelet.LanceDataset) -> object:
        values = pa.table({column: pa.array([key + number for key in keys], pa.int64())})
        return dataset.replace_columns({fragment_id: values})

    return Change(
        make,
        lambda state: state.with_values(column, {key: key + number for key in keys}),
        frozenset({f"fragment {fragment_id} column {column}", f"column {column}"}),
        frozenset({f"fragment {fragment_id} row*"}),
    )


def _set(what: str, key: str, value: str | None, *, replaces: bool = False) -> Change:
    def make(dataset: lancelet.LanceDataset) -> object:
        match what:
            case "config":
                return dataset.update_config({key: value}, replace=replaces)
            case "metadata":
                return dataset.update_metadata({key: value}, replace=replaces)
            case "schema":
                return dataset.update_schema_metadata({key: value}, replace=replaces)
            case _:
                return dataset.update_field_metadata({key: {"f": value}})

    def model(state: State) -> State | None:
        settings = dict(state.settings)
        if replaces:
            settings = {k: v for k, v in settings.items() if not k.startswith(f"{what} ")}
        name = state.name_of(key) if what == "field" else key
        if name is None:
            return None
        settings[f"{what} {name}"] = value or ""
        if value is None:
            del settings[f"{what} {key}"]
        return replace(state, settings=settings)

    touched = {
        "metadata": f"metadata {key}",
        "config": f"config {key}",
        "schema": "schema settings",
    }
    name = touched.get(what, f"settings of {key}")
    return Change(
        make,
        model,
        frozenset({f"{what} *"} if replaces else {name})
        | ({"schema"} if what in {"schema", "field"} else set()),
    )


def _index(column: str, name: str | None = None) -> Change:
    called = name or f"{column}_idx"
    return Change(
        lambda dataset: dataset.create_scalar_index(column, "BTREE", name=called, replace=True),
        lambda state: (
            None
            if state.name_of(column) is None
            else replace(state, indices=state.indices | {called})
        ),
        frozenset({f"index {called}", f"column {column}"}),
    )


def _drop_index(name: str) -> Change:
    return Change(
        lambda dataset: dataset.drop_index(name),
        lambda state: (
            replace(state, indices=state.indices - {name}) if name in state.indices else None
        ),
        frozenset({f"index {name}"}),
    )


def _drop_column(name: str) -> Change:
    def model(state: State) -> State | None:
        if name not in state.columns:
            return None
        rows = {key: {k: v for k, v in row.items() if k != name} for key, row in state.rows.items()}
        settings = {k: v for k, v in state.settings.items() if k != f"field {name}"}
        columns = tuple(each for each in state.columns if each != name)
        indices = state.indices - {f"{name}_idx"} - ({"other"} if name == "b" else set())
        return replace(state, rows=rows, columns=columns, settings=settings, indices=indices)

    return Change(
        lambda dataset: dataset.drop_columns([name]),
        model,
        frozenset({"schema", f"index {name}_idx", f"column {name}"}),
    )


def _rename(before: str, after: str) -> Change:
    def model(state: State) -> State | None:
        if before not in state.columns:
            return None
        rows = {
            key: {after if k == before else k: v for k, v in row.items()}
            for key, row in state.rows.items()
        }
        columns = tuple(after if each == before else each for each in state.columns)
        settings = {
            (f"field {after}" if k == f"field {before}" else k): v
            for k, v in state.settings.items()
        }
        return replace(state, rows=rows, columns=columns, settings=settings)

    return Change(
        lambda dataset: dataset.alter_columns({"path": before, "name": after}),
        model,
        frozenset({"schema"}),
    )


def _add_column(name: str) -> Change:
    def model(state: State) -> State | None:
        if name in state.columns:
            return None
        rows = {key: {**row, name: key} for key, row in state.rows.items()}
        return replace(state, rows=rows, columns=(*state.columns, name))

    return Change(
        lambda dataset: dataset.add_columns({name: "id"}), model, frozenset({"schema", "*"})
    )


def _compact() -> Change:
    return Change(
        lambda dataset: dataset.optimize.compact_files(target_rows_per_fragment=100),
        lambda state: state,
        frozenset({"fragment 0 *", "fragment 1 *", "index*"}),
    )


def _overwrite(key: int) -> Change:
    def model(state: State) -> State:
        settings = {k: v for k, v in state.settings.items() if k.startswith(("config", "metadata"))}
        return replace(
            _base(),
            rows={key: _row(key)},
            settings=settings,
            indices=frozenset(),
            bases=state.bases,
            merged={},
        )

    return Change(
        lambda dataset: lancelet.write_dataset(_table([key]), dataset, mode="overwrite"),
        model,
        frozenset({"everything"}),
    )


def _restore(version: int) -> Change:
    return Change(
        lambda dataset: dataset.checkout_version(version).restore(),
        lambda _: replace(_base(), settings={}, indices=frozenset()),
        frozenset({"everything"}),
    )


def _add_base(path: str, name: str | None, number: int | None = None) -> Change:
    base = lancelet.DatasetBasePath(f"memory://{path}", name, id=number)

    def model(state: State) -> State | None:
        if any(
            base_path == path or (name and base_name == name)
            for base_name, base_path in state.bases
        ):
            return None
        return replace(state, bases=state.bases | {(name, path)})

    touches = {f"base {path}", *([f"base name {name}"] if name else ())}
    touches |= {f"base number {number}"} if number else set()
    return Change(lambda dataset: dataset.add_bases([base]), model, frozenset(touches))


def _commit_merged(
    operation: Callable[[tuple[CompactedSsTable, ...]], Operation],
) -> Callable[[int, int], Change]:
    def change(shard: int, generation: int) -> Change:
        merged = (CompactedSsTable(_SHARDS[shard], generation),)

        def make(dataset: lancelet.LanceDataset) -> object:
            made = Transaction(dataset.version, str(surroundings.new_uuid()), operation(merged))
            return commits.commit(dataset.snapshot.location, made)

        def model(state: State) -> State | None:
            if state.merged.get(shard, 0) >= generation:
                return None
            return replace(state, merged={**state.merged, shard: generation})

        rows = {"*", "new*", "schema", "index*", "keys"}
        return Change(make, model, frozenset({f"shard {shard}", "log", *rows}))

    return change


_merge_state: Final = _commit_merged(UpdateMemWalState)
_merge_rows: Final = _commit_merged(lambda merged: Update(compacted_sstables=merged))

CHANGES: Final[Mapping[str, Change]] = {
    "append 20": _append([20, 21]),
    "append 30": _append([30]),
    "delete 0": _delete([0]),
    "delete 1": _delete([1]),
    "delete 4": _delete([4]),
    "delete 0 and 4": _delete([0, 4]),
    "delete a fragment": _delete(range(4)),
    "delete all but one": _delete(range(3)),
    "update 0": _update_rows([0], "a", 100),
    "update b of 0": _update_rows([0], "b", 200),
    "update 1": _update_rows([1], "a", 300),
    "update b of 2": _update_rows([2], "b", 500),
    "update 4 and 1": _update_rows([4, 1], "b", 400),
    "upsert 0 and 40": _upsert([0, 40], 1000),
    "upsert 40": _upsert([40], 2000),
    "upsert 50": _upsert([50], 3000),
    "rewrite a of 2": _rewrite_column(0, 2, "a", 5002),
    "rewrite b of 2": _rewrite_column(0, 2, "b", 6002),
    "rewrite a of 6": _rewrite_column(1, 6, "a", 5006),
    "merge a of 2": _merge_column([2], "a", 9000),
    "merge b of 1 and 6": _merge_column([1, 6], "b", 9000),
    "replace a of 0": _replace_column(0, "a", 7000),
    "replace a of 0 again": _replace_column(0, "a", 8000),
    "replace b of 0": _replace_column(0, "b", 7000),
    "replace a of 1": _replace_column(1, "a", 7000),
    "compact": _compact(),
    "add c": _add_column("c"),
    "add d": _add_column("d"),
    "drop b": _drop_column("b"),
    "drop a": _drop_column("a"),
    "rename b": _rename("b", "renamed"),
    "index a": _index("a"),
    "index b": _index("b"),
    "index b as other": _index("b", "other"),
    "drop the index": _drop_index("a_idx"),
    "config x": _set("config", "x", "1"),
    "config x again": _set("config", "x", "2"),
    "config y": _set("config", "y", "1"),
    "delete config x": _set("config", "x", None),
    "metadata m": _set("metadata", "m", "1"),
    "metadata n": _set("metadata", "n", "1"),
    "replace metadata": _set("metadata", "k", "1", replaces=True),
    "schema metadata": _set("schema", "s", "1"),
    "field metadata a": _set("field", "a", "1"),
    "field metadata b": _set("field", "b", "1"),
    "overwrite": _overwrite(60),
    "overwrite again": _overwrite(70),
    "restore": _restore(1),
    "base p": _add_base("p", "one"),
    "base q": _add_base("q", "one"),
    "base p of another name": _add_base("p", "two"),
    "base r": _add_base("r", None),
    "base s with a number": _add_base("s", "three", 9),
    "base t with its number": _add_base("t", "four", 9),
    "index b again": _index("b"),
    "state of shard 0": _merge_state(0, 1),
    "state of shard 0, later": _merge_state(0, 2),
    "state of shard 1": _merge_state(1, 1),
    "rows of shard 0": _merge_rows(0, 1),
    "rows of shard 0, later": _merge_rows(0, 2),
}


_Made: TypeAlias = list[tuple[Transaction, CommitOptions]]
"""The commits of a change that was made alone."""


def _made_alone(change: Change) -> _Made:
    found: _Made = []

    def recording(
        location: TableLocation, transaction: Transaction, options: CommitOptions
    ) -> Snapshot:
        found.append((transaction, replace(options, snapshot=None, sync=None, keys_are_new=None)))
        return _COMMIT(location, transaction, options)

    with mock.patch.object(commits, "_commit", recording):
        change.make(lancelet.dataset(_URI))
    return found


@dataclass(slots=True)
class Stage:
    """The table of all pairs, and the changes that were made alone."""

    stored: dict[str, Any]
    version: int
    made: dict[str, _Made]

    @staticmethod
    @cache
    def built(*, has_log: bool = False) -> Stage:
        """Create the table with or without a log, and make each change alone that it allows."""
        with seeded(), without_caches(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            MemoryStore.reset(_BUCKET)
            dataset = lancelet.write_dataset(_table(range(8)), _URI, max_rows_per_file=4)
            dataset.update_config({"x": "0", "y": "0"})
            dataset.update_metadata({"m": "0", "n": "0"})
            dataset.update_schema_metadata({"s": "0"})
            dataset.update_field_metadata({"a": {"f": "0"}, "b": {"f": "0"}})
            dataset.create_scalar_index("a", "BTREE")
            if has_log:
                dataset.initialize_mem_wal(unsharded=True)
            store = MemoryStore(_BUCKET)
            base, version = dict(store._objects.by_key), dataset.latest_version
            files, made = dict(base), {}
            for name, change in CHANGES.items():
                if "log" in change.touches and not has_log:
                    continue
                store._objects.by_key.clear()
                store._objects.by_key.update(base)
                try:
                    made[name] = _made_alone(change)
                except MemWalAttachedError:
                    continue
                files.update(
                    (path, entry)
                    for path, entry in store._objects.by_key.items()
                    if "/_versions/" not in path
                )
            return Stage(files, version, made)

    def check_pair(self, theirs: str, ours: str) -> str:
        """Commit two changes of one version; return what became of the second."""
        with seeded(), without_caches(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            MemoryStore.reset(_BUCKET)
            store = MemoryStore(_BUCKET)
            store._objects.by_key.update(self.stored)
            location = TableLocation(_URI, store.at("t"))
            try:
                return self._check_pair(location, theirs, ours)
            except BaseException as error:
                error.add_note(f"{ours} after {theirs}")
                raise

    def _check_pair(self, location: TableLocation, theirs: str, ours: str) -> str:
        *reserving, last = self.made[ours]
        for each in (*reserving, *self.made[theirs]):
            self._commit(location, *each)
        state = CHANGES[theirs].model(_base())
        assert state is not None
        expected = CHANGES[ours].model(state)
        is_disjoint = not _meet(CHANGES[theirs], CHANGES[ours])
        try:
            self._commit(location, *last)
        except CommitConflictError as error:
            if is_disjoint:
                raise ViolationError(f"the changes have nothing in common: {error}") from error
            _check_state(location, state)
            is_final = not error.facts["retryable"]
            _require(is_final != str(error).startswith("Retryable"), "another message", error)
            if is_final != _is_final(theirs, ours):
                text = "cannot be repeated" if is_final else "is repeated in vain"
                raise ViolationError(f"the change {text}: {error}") from error
            return "incompatible" if is_final else "retry"
        except FieldNotFoundError as error:
            _check_state(location, state)
            return type(error).__name__
        except LanceletError as error:
            raise ViolationError(f"the change is not reported as a conflict: {error}") from error
        if expected is None:
            raise ViolationError("a change that cannot be made was accepted")
        _check_state(location, expected)
        return "done"

    def _commit(
        self, location: TableLocation, transaction: Transaction, options: CommitOptions
    ) -> Snapshot:
        made = replace(transaction, uuid=str(surroundings.new_uuid()))
        if isinstance(transaction.operation, ReserveFragments):
            made = replace(made, read_version=open_snapshot(location).version)
        return commits.commit(location, made, options)


def _meet(one: Change, other: Change) -> bool:
    return (
        _share(one.touches, other.touches)
        or _share(one.touches, other.needs)
        or _share(one.needs, other.touches)
    )


def _share(one: frozenset[str], other: frozenset[str]) -> bool:
    for a, b in product(one, other):
        if a == b or "everything" in {a, b}:
            return True
        for x, y in ((a, b), (b, a)):
            if x.endswith("*") and y.startswith(x.removesuffix("*")):
                return True
            if x == "*" and y.startswith("fragment"):
                return True
    return False


def _is_final(theirs: str, ours: str) -> bool:
    """Return whether ours conflicts with theirs in a way that repeating it would not resolve."""

    def kind(name: str, *kinds: str) -> bool:
        return name.startswith(kinds)

    if kind(theirs, "overwrite", "restore"):
        return not kind(ours, "overwrite")
    if kind(theirs, "state", "rows") and kind(ours, "state", "rows"):
        return not ours.endswith("later") or theirs.endswith("later")
    if kind(theirs, "state") or kind(ours, "state"):
        return True
    if kind(ours, "config", "delete config", "metadata", "replace metadata", "base"):
        return True
    if kind(ours, "restore"):
        return kind(theirs, "schema", "field")
    if kind(ours, "add"):
        return kind(theirs, "drop a", "drop b", "rename")
    if kind(ours, "replace"):
        return kind(theirs, "delete a fragment", "drop a", "drop b")
    return False


def _require(condition: object, text: str, *facts: object) -> None:
    if not condition:
        raise ViolationError(f"{text}: {facts}")


def _check_state(location: TableLocation, expected: State) -> None:
    dataset = lancelet.dataset(location.uri)
    manifest = dataset.snapshot.manifest
    _require(
        set(dataset.schema.names) == set(expected.columns), "other columns", dataset.schema.names
    )
    content = _content(dataset)
    found = {row["id"]: row for row in content.rows}
    _require(len(content.rows) == len(found), "a row is there twice")
    _require(found == expected.rows, "other rows", found, expected.rows)
    settings = {f"config {key}": each for key, each in manifest.config.items()}
    settings |= {f"metadata {key}": each for key, each in manifest.table_metadata.items()}
    settings |= {
        f"schema {key.decode()}": each.decode()
        for key, each in (dataset.schema.metadata or {}).items()
        if not key.startswith(b"lancelet:")
    }
    settings |= {
        f"field {each.name}": each.metadata[b"f"].decode()
        for each in dataset.schema
        if b"f" in (each.metadata or {})
    }
    _require(settings == expected.settings, "other settings", settings, expected.settings)
    names = {each.name for each in dataset.snapshot.indices.indices if not each.is_system}
    _require(names == expected.indices, "other indices", names, expected.indices)
    covered = [
        (each.name, number)
        for each in dataset.snapshot.indices.indices
        for number in each.fragment_bitmap or ()
    ]
    _require(len(covered) == len(set(covered)), "segments of an index overlap", covered)
    bases = {(base.name, base.path.removeprefix("memory://")) for base in manifest.bases.values()}
    _require(bases == expected.bases, "other bases", bases, expected.bases)
    state = mem_wal_state(dataset.snapshot)
    merged = {} if state is None else {key.int - 7: each for key, each in state.compacted.items()}
    _require(merged == expected.merged, "other generations", merged, expected.merged)
    for (column, low, high), chosen in content.filtered.items():
        keys = {key for key, row in expected.rows.items() if low <= row[column] < high}
        _require(chosen == keys, "other rows of a filter", column, keys, chosen)


@dataclass(frozen=True, slots=True)
class _Content:
    """The rows of a version, and the keys of rows that filters select with its indices."""

    rows: list[dict[str, Any]]
    filtered: Mapping[tuple[str, int, int], set[int]]


_read: Final[dict[object, _Content]] = {}
"""The content of versions by their files: most pairs differ in other things."""


def _content(dataset: lancelet.LanceDataset) -> _Content:
    manifest = dataset.snapshot.manifest
    indices = [(each.uuid, each.fragment_bitmap) for each in dataset.snapshot.indices.indices]
    stored = MemoryStore(_BUCKET)._objects.by_key.items()
    deleted = [(path, bytes(each[0])) for path, each in stored if "/_deletions/" in path]
    fragments, fields = manifest.fragments.wire.tobytes(), repr(manifest.schema.fields)
    key = fragments, fields, repr(indices), repr(sorted(deleted))
    if key not in _read:
        filtered = {}
        for column in {"a", "b", "renamed"} & set(dataset.schema.names):
            for low, high in ((0, 60), (60, 5000), (5000, 100_000)):
                rows = dataset.to_table(filter=f"{column} >= {low} AND {column} < {high}")
                filtered[column, low, high] = set(rows["id"].to_pylist())
        _read[key] = _Content(dataset.to_table().to_pylist(), filtered)
    return _read[key]


def pairs(count: int | None = None, seed: int = 0) -> list[tuple[Stage, str, str]]:
    """Return all pairs of changes with their tables, or some of them.

    Those that have something in common, and those of rows, come first.
    """
    plain, logged = Stage.built(), Stage.built(has_log=True)
    found = [(plain, one, two) for one, two in product(plain.made, plain.made) if one != two]
    found += [
        (logged, one, two)
        for one, two in product(logged.made, logged.made)
        if one != two and "log" in CHANGES[one].touches | CHANGES[two].touches
    ]
    if count is None:
        return found
    random = Random(seed)
    return sorted(random.sample(found, len(found)), key=lambda pair: not _is_close(*pair[1:]))[
        :count
    ]


def _is_close(theirs: str, ours: str) -> bool:
    one, two = CHANGES[theirs], CHANGES[ours]
    if "everything" in one.touches | two.touches:
        return False
    areas = [{each.partition(" ")[0] for each in change.touches} for change in (one, two)]
    return _meet(one, two) or bool(areas[0] & areas[1])
