"""The judge of a history: a model of each table, checked after every change of the store.

    put     t/_versions/..7.manifest    version 7 has the rows of version 6 after its operation
    put     t/_versions/..5.manifest    late, as version 8 exists; its writer must detect this
    delete  t/_versions/..6.manifest    must not be the latest, tagged, or the start of a branch
    delete  t/data/a.lance              must not be needed by an existing version
    an append is acknowledged           exactly one version belongs to the operation

The checks do not rely on production code: versions are derived from puts, rows are compared with
the model of the pending operation, and paths with the manifests.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import pyarrow as pa

import lancelet
from lancelet.errors import (
    AlreadyExistsError,
    CommitConflictError,
    CommitContentionError,
    CommitOutcomeUnknownError,
    CommittedFilesMissingError,
    LanceletError,
    NotFoundError,
    RefNotFoundError,
    StorageError,
    VersionRemovedError,
)
from lancelet.format.paths import parse_manifest_name
from lancelet.io.memory import MemoryStore
from lancelet.io.wrapped import Request
from lancelet.table.snapshot import Snapshot
from tests.kit.simulation.machine import Actor, Machine

Rows: TypeAlias = Mapping[int, int]
"""The values of `v` by `id`."""

Effect: TypeAlias = Callable[[Rows, Rows], Rows | None]
"""The rows after an operation, from the rows it read and the latest; None if it must not apply."""

BUCKET: Final = "simulated"
MAIN: Final = "t"
DATABASE: Final = "database"
"""The path prefix of requests of the external manifest store, which is not in the bucket."""

_PARTS: Final = re.compile(
    r"(.*?)/(_versions|data|_deletions|_indices|_transactions|_refs|_mem_wal)/(.*)"
)
_TELLING: Final = (CommitConflictError, CommitContentionError, NotFoundError)
"""Errors that guarantee that nothing was changed."""


def text_of(key: int) -> str:
    """Return the text of a row."""
    return f"word{key % 7} all"


def vector_of(key: int) -> list[float]:
    """Return the vector of a row."""
    return [float(key), *(float(key >> bit & 1) for bit in range(7))]


class FilesRemovedError(Exception):
    """A writer paused for a week, a cleanup deleted its files, and it published a version of them.

    Its commit fails with an error, and the version must be replaced; the history ends there.
    """


class ViolationError(AssertionError):
    """The history violated a guarantee."""


@dataclass(slots=True)
class Version:
    """The model of a version."""

    rows: Rows
    row_ids: Mapping[int, int]
    needs: frozenset[str]
    is_there: bool = True
    lineage: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """The versions that created and last updated each row, by key."""
    added: Mapping[str, Mapping[int, int | None]] = field(default_factory=dict)
    """The values of added columns by key."""
    published_ns: int = 0
    doing: Doing | None = None
    """The operation that published the version."""


@dataclass(slots=True)
class Doing:
    """An operation of an actor."""

    name: str
    root: str
    effect: Effect | None
    since: int = 0
    """The version that its handle had read when it began."""
    published: list[int] = field(default_factory=list)
    began_ns: int = 0
    is_acknowledged: bool = False


def unchanged(read: Rows, newest: Rows) -> Rows:
    """Return the effect of an operation that changes no rows."""
    del read
    return newest


class Judge:
    """Checks every change of the store."""

    def __init__(self) -> None:
        """Start without tables."""
        self.machine: Machine | None = None
        self.bucket = MemoryStore(BUCKET)
        self.histories: dict[str, dict[int, Version]] = {}
        self.late: set[tuple[str, int]] = set()
        self.recorded: dict[tuple[str, int], Doing | None] = {}
        """Versions in a database with their writers; any actor may rename the manifests."""
        self.stable_row_ids = False
        self.allows_missing_files = False
        """Whether writers pause for days, so that cleanups may delete their files."""
        self.session = lancelet.Session(1 << 20, 1 << 20)
        self._born: dict[str, dict[int, tuple[int, int]]] = {}
        """The key and the creating version of each row id of a table, also of removed versions."""
        self._fragments: dict[object, _Found] = {}
        self._created_ns: dict[str, int] = {}
        self._removed_old: set[str] = set()
        """Files that were deleted a week after they were written."""

    # --- requests of the store --------------------------------------------------------------

    def changed(self, actor: Actor | None, request: Request) -> None:
        """Check the latest change."""
        if request.path.startswith(f"{DATABASE}/"):
            self._recorded(actor, request)
            return
        found = _PARTS.fullmatch(request.path)
        if found is None:
            return
        root, folder, rest = found.groups()
        is_delete = request.operation == "delete"
        self._note_age(request.path, is_delete=is_delete)
        if folder == "_versions":
            name = parse_manifest_name(rest)
            if name is None or name.staging_id is not None or name.version >= 1 << 62:
                return
            if is_delete:
                self._removed(root, name.version)
            else:
                self._published(actor, root, name.version)
        elif folder == "_refs" and not is_delete:
            self._referred(request.path)
        elif is_delete:
            self._check_unneeded(actor, request.path)

    def _now_ns(self) -> int:
        return 0 if self.machine is None else self.machine.course.now_ns

    def _note_age(self, path: str, *, is_delete: bool) -> None:
        """Note files that are deleted at an age at which cleanups may delete them."""
        now = self._now_ns()
        if not is_delete:
            self._created_ns.setdefault(path, now)
        elif now - self._created_ns.get(path, now) >= _WEEK_NS:
            self._removed_old.add(path)

    def _recorded(self, actor: Actor | None, request: Request) -> None:
        root, _, number = request.path.removeprefix(f"{DATABASE}/").rpartition("/")
        if request.operation != "put_if_absent" or (root, int(number)) in self.recorded:
            return
        doing = None if actor is None else actor.about
        assert doing is None or isinstance(doing, Doing)
        if int(number) in self.histories.get(root, {}):
            doing = None  # It existed before it was recorded in the database.
        elif doing is not None and doing.root == root:
            doing.published.append(int(number))
        self.recorded[root, int(number)] = doing

    def _published(self, actor: Actor | None, root: str, number: int) -> None:
        history = self.histories.setdefault(root, {})
        newest = max(history, default=0)
        if number <= newest:
            if history.get(number) is not None and history[number].is_there:
                if (root, number) in self.recorded:
                    return  # Any reader of a record may rename the manifest, also repeatedly.
                raise ViolationError(f"version {number} of {root} was written twice")
            self.late.add((root, number))
            return
        doing = None if actor is None else actor.about
        assert doing is None or isinstance(doing, Doing)
        is_recorded = (root, number) in self.recorded
        if is_recorded:
            doing = self.recorded[root, number]
        version = self._read(root, number)
        rows, row_ids = version.rows, version.row_ids
        if doing is not None:
            if root == doing.root and not is_recorded:
                doing.published.append(number)
            effect = doing.effect if root == doing.root else None
            if newest and effect is not None:
                self._check_effect(doing, effect, history, rows, number)
            if newest and doing.root == root:
                self._check_row_ids(doing, history[newest], rows, row_ids)
            if newest and doing.root == root:
                self._check_lineage(doing, history[newest], version, number)
                _check_added(doing, history, version)
        self._check_births(root, version)
        version.published_ns = self._now_ns()
        version.doing = doing
        history[number] = version

    def _check_effect(
        self, doing: Doing, effect: Effect, history: Mapping[int, Version], rows: Rows, number: int
    ) -> None:
        newest = history[max(history)].rows
        since = {each: version for each, version in history.items() if each >= doing.since}
        tried = []
        for version in sorted(since, reverse=True):
            expected = effect(since[version].rows, newest)
            if expected == rows:
                return
            tried.append(expected)
        raise ViolationError(
            f"version {number} of {doing.root} is not what {doing.name} makes of the one before: "
            f"before {dict(newest)}, found {dict(rows)}, expected one of {tried[:3]}"
        )

    def _check_row_ids(
        self, doing: Doing, before: Version, rows: Rows, row_ids: Mapping[int, int]
    ) -> None:
        if not self.stable_row_ids or doing.name.startswith(("overwrite", "restore")):
            return
        for key in rows:
            if key in before.row_ids and before.row_ids[key] != row_ids[key]:
                raise ViolationError(f"{doing.name} changed the row id of {key}")

    def _check_lineage(self, doing: Doing, before: Version, after: Version, number: int) -> None:
        """Check which version created and last updated each row."""
        if not self.stable_row_ids or doing.name.startswith("restore"):
            return
        for key, (created, updated) in after.lineage.items():
            is_same = before.row_ids.get(key) == after.row_ids[key]
            expected = number
            if is_same:
                expected = before.lineage[key][0]
            if created != expected:
                raise ViolationError(
                    f"{doing.name}: row {key} of version {number} was created by version "
                    f"{created}, expected {expected}"
                )
            if doing.name.startswith("overlay"):
                may_be = {before.lineage[key][1]}  # as in pylance
            elif not is_same or after.rows[key] != before.rows[key]:
                may_be = {number}
            elif doing.name.startswith(_CHANGES_VALUES):
                may_be = {number, before.lineage[key][1]}
            else:
                may_be = {before.lineage[key][1]}
            if updated not in may_be:
                raise ViolationError(
                    f"{doing.name}: row {key} of version {number} was updated by version "
                    f"{updated}, expected one of {may_be}"
                )

    def _check_births(self, root: str, version: Version) -> None:
        """Check that a row id belongs to one row for ever."""
        born = self._born.setdefault(root, {})
        for key, row_id in version.row_ids.items():
            row = key, version.lineage[key][0]
            if born.setdefault(row_id, row) != row:
                raise ViolationError(
                    f"row id {row_id} of {root} was row {born[row_id]} and is {row} (the key and "
                    "the creating version)"
                )

    def check_batch(self, doing: Doing, key: int) -> None:
        """Check that an acknowledged batch of a stream, or a later one, is in some version."""
        history = self.histories[doing.root]
        # The rows of a recorded version are checked when its manifest gets its name.
        is_recorded = any(number not in history for number in doing.published)
        if not is_recorded and not any(
            key <= max(version.rows, default=0) for version in history.values()
        ):
            raise ViolationError(f"{doing.name} was acknowledged, and there is no row of it")

    def _removed(self, root: str, number: int) -> None:
        if (root, number) in self.late:
            self.late.discard((root, number))
            return
        history = self.histories.get(root, {})
        version = history.get(number)
        if version is None or not version.is_there:
            return
        if number == max(history):
            raise ViolationError(f"the newest version {number} of {root} was deleted")
        for tag, (branch_root, tagged) in self.tags().items():
            if (branch_root, tagged) == (root, number):
                raise ViolationError(
                    f"version {number} of {root}, which tag {tag} has, was deleted"
                )
        version.is_there = False

    def _referred(self, path: str) -> None:
        if "/_refs/tags/" not in path:
            return
        name = path.rpartition("/")[2].removesuffix(".json")
        root, number = self.tags()[name]
        version = self.histories.get(root, {}).get(number)
        if version is None or not version.is_there:
            raise ViolationError(f"tag {name} has version {number} of {root}, which is not there")

    def _check_unneeded(self, actor: Actor | None, path: str) -> None:
        doing = None if actor is None else actor.about
        began_ns = doing.began_ns if isinstance(doing, Doing) else 0
        for root, history in self.histories.items():
            for number, version in history.items():
                if version.is_there and path in version.needs:
                    is_late = path in self._removed_old and version.published_ns > began_ns
                    is_open = version.doing is not None and not version.doing.is_acknowledged
                    if is_late and is_open:
                        raise FilesRemovedError
                    raise ViolationError(
                        f"{path} was deleted, which version {number} of {root} needs"
                    )
                if version.is_there and any(
                    need.endswith("/") and path.startswith(need) for need in version.needs
                ):
                    raise ViolationError(f"{path} was deleted, an index of version {number}")

    # --- results of actors ---------------------------------------------------------------------

    def begin(self, actor: Actor, name: str, root: str, effect: Effect | None) -> Doing:
        """Record the next operation of an actor."""
        actor.about = doing = Doing(name, root, effect, began_ns=self._now_ns())
        return doing

    def ended(
        self,
        doing: Doing,
        error: BaseException | None,
        *,
        publishes: int | None,
        changes_rows: bool,
    ) -> None:
        """Check the result of an operation.

        `publishes` is the number of versions of a successful operation, None if it depends on the
        rows. An operation that `changes_rows` takes effect once.
        """
        done = doing.published if changes_rows else []
        if len(done) > 1:
            raise ViolationError(f"{doing.name} was done {len(done)} times: versions {done}")
        doing.is_acknowledged = error is None
        if error is None:
            if publishes and not done:
                raise ViolationError(
                    f"{doing.name} was acknowledged, and there is no version of it"
                )
            return
        if isinstance(error, CommitOutcomeUnknownError | StorageError):
            return
        if _is_expected(error):
            return
        is_late = self.allows_missing_files and isinstance(error, CommittedFilesMissingError)
        if not isinstance(error, _TELLING) and not is_late:
            raise ViolationError(f"{doing.name} failed with an unexpected error: {error!r}") from (
                error
            )
        if done:
            raise ViolationError(
                f"{doing.name} was refused, and version {done} is of it: {error!r}"
            ) from error
        if isinstance(error, NotFoundError) and not self._was_cleaned(doing.root):
            raise ViolationError(
                f"{doing.name} did not find an existing object: {error!r}"
            ) from error

    def read(
        self,
        doing: Doing,
        number: int,
        found: pa.Table | BaseException,
        selects: Callable[[int, int], bool] = lambda _, __: True,
    ) -> None:
        """Check the rows that a reader of a version received, all or those of a filter."""
        version = self.histories[doing.root].get(number)
        if isinstance(found, BaseException):
            if isinstance(found, StorageError):
                return
            if isinstance(found, NotFoundError) and (version is None or not version.is_there):
                return
            raise ViolationError(f"{doing.name}: version {number} cannot be read") from found
        rows = _as_rows(found)
        expected = {} if version is None else version.rows
        if version is None or rows != {k: v for k, v in expected.items() if selects(k, v)}:
            raise ViolationError(f"{doing.name}: version {number} reads {rows}, and was {version}")

    def newest(self, root: str) -> int:
        """Return the number of the latest version."""
        return max(self.histories.get(root, {}), default=0)

    def tags(self) -> dict[str, tuple[str, int]]:
        """Return the root of the table and the version of each tag."""
        found = {}
        for info in self.bucket.list(f"{MAIN}/_refs/tags"):
            if not info.size:
                continue  # only its name is claimed
            said = json.loads(self.bucket.read(info.path))
            branch = said.get("branch")
            root = MAIN if branch is None else f"{MAIN}/tree/{branch}"
            found[info.path.rpartition("/")[2].removesuffix(".json")] = (root, said["version"])
        return found

    # --- the end -----------------------------------------------------------------------------

    def at_the_end(self, open_table: Callable[[str, int | None], lancelet.LanceDataset]) -> None:
        """Check that all needed files, and no others, exist after a final cleanup."""
        branches = [
            info.path.rpartition("/")[2].removesuffix(".json")
            for info in self.bucket.list(f"{MAIN}/_refs/branches")
            if info.size
        ]
        roots = [*(f"{MAIN}/tree/{branch}" for branch in branches), MAIN]
        for root, number in sorted(self.recorded):
            if root in roots and number > self.newest(root):
                open_table(root, None)  # which renames the manifest
                self._published(None, root, number)
        for root in roots:
            table = open_table(root, None)
            expected = self.histories[root][self.newest(root)]
            if (table.version, _as_rows(table.to_table())) != (self.newest(root), expected.rows):
                raise ViolationError(f"{root} reads as version {table.version}, and is {expected}")
            wrong = list(table.check("indices"))
            if wrong:
                raise ViolationError(f"{root} has errors: {wrong}")
            for keys in ((0,), (3, 5, 1003)):
                condition = " OR ".join(f"id = {key}" for key in keys)
                found = _as_rows(table.to_table(filter=condition))
                if found != {each: v for each, v in expected.rows.items() if each in keys}:
                    raise ViolationError(f"{root}: {condition} finds {found}")
        for root in roots:
            open_table(root, None).cleanup_old_versions(
                retain_versions=1, delete_unverified=True, error_if_tagged_old_versions=False
            )
        for root, number in self.tags().values():
            if root in roots:
                expected = self.histories[root][number]
                if _as_rows(open_table(root, number).to_table()) != expected.rows:
                    raise ViolationError(f"version {number} of {root} does not read as it did")
        needed = {
            need
            for root in roots
            for version in self.histories[root].values()
            if version.is_there
            for need in version.needs
        }
        for info in self.bucket.list(MAIN):
            parts = _PARTS.fullmatch(info.path)
            if parts is None or parts[1] not in roots or parts[2] not in _CLEANED:
                continue
            folder = "/".join(info.path.split("/")[: parts[1].count("/") + 3]) + "/"
            if info.path not in needed and folder not in needed:
                raise ViolationError(f"{info.path} is unreferenced and was not cleaned up")
        left = [info.path for info in self.bucket.list(MAIN) if "/.hold-" in info.path]
        if any(path.partition("/_versions")[0] in roots for path in left):
            raise ViolationError(f"unreferenced holds were not cleaned up: {left}")
        for root in roots:  # Files of dead actors do not block others.
            open_table(root, None).update_config({"judged": "sound"})

    def _was_cleaned(self, root: str) -> bool:
        return any(not each.is_there for each in self.histories.get(root, {}).values())

    def _read(self, root: str, number: int) -> Version:
        rows: dict[int, int] = {}
        row_ids: dict[int, int] = {}
        lineage: dict[int, tuple[int, int]] = {}
        added: dict[str, dict[int, int | None]] = {}
        uri = f"memory://{BUCKET}/{root}"
        try:
            table = lancelet.dataset(uri, version=number, session=self.session)
        except LanceletError as error:
            raise ViolationError(f"version {number} of {root} cannot be read: {error!r}") from error
        snapshot = table._handle.snapshot
        try:
            names = tuple(table.schema.names)
            added = {name: {} for name in names if name.startswith("c")}
            columns = [*names, *_LINEAGE] if self.stable_row_ids else list(names)
            # Files are immutable, so fragments with equal metadata have equal rows.
            for entry, fragment in zip(snapshot.fragments, table.get_fragments(), strict=True):
                key = (root, entry, names)
                if key not in self._fragments:
                    read = fragment.to_table(columns=columns, with_row_id=self.stable_row_ids)
                    self._fragments[key] = _Found.of(read)
                found = self._fragments[key]
                twice = rows.keys() & found.rows.keys()
                if twice:
                    raise ViolationError(f"rows are there twice: {sorted(twice)}")
                rows |= found.rows
                row_ids |= zip(found.rows, found.row_ids, strict=False)
                lineage |= zip(found.rows, found.lineage, strict=False)
                for name, values in added.items():
                    values.update(zip(found.rows, found.added[name], strict=True))
        except LanceletError as error:
            if isinstance(error, NotFoundError) and _needs(snapshot) & self._removed_old:
                raise FilesRemovedError from error
            raise ViolationError(f"version {number} of {root} cannot be read: {error!r}") from error
        if len(set(row_ids.values())) < len(row_ids):
            raise ViolationError(f"two rows of version {number} have one row id: {row_ids}")
        return Version(rows, row_ids, _needs(snapshot), lineage=lineage, added=added)


_WEEK_NS: Final = 7 * 24 * 3600 * 10**9

_LINEAGE: Final = ("_row_created_at_version", "_row_last_updated_at_version")

_CHANGES_VALUES: Final = ("update", "upsert", "job update", "rewrite", "replace", "overlay", "add")
"""Operations that may write a row with the same values."""


@dataclass(slots=True)
class _Found:
    """The rows of a fragment."""

    rows: Rows
    row_ids: list[int]
    lineage: list[tuple[int, int]]
    added: Mapping[str, list[int | None]]

    @staticmethod
    def of(read: pa.Table) -> _Found:
        rows = _as_rows(read)
        columns = {name: read[name].to_pylist() for name in read.column_names}
        created, updated = (columns.get(name, []) for name in _LINEAGE)
        return _Found(
            rows,
            columns.get("_rowid", []),
            list(zip(created, updated, strict=True)),
            {name: values for name, values in columns.items() if name.startswith("c")},
        )


def _check_added(doing: Doing, history: Mapping[int, Version], after: Version) -> None:
    """Check the columns that were added to the table; `c7` has the values `id + 7`."""
    kind, _, number = doing.name.partition(" #")
    before = history[max(history)]
    names, expected = set(after.added), set(before.added)
    match kind:
        case "overwrite":
            expected = set()
        case "restore":
            expected = names
        case "add column":
            expected = expected | {f"c{number}"}
        case "drop column" if len(names) == len(expected) - 1:
            expected &= names
        case _:
            pass
    if names != expected:
        raise ViolationError(f"{doing.name} leaves the columns {names}, expected {expected}")
    for name, values in after.added.items():
        previous = {} if kind == "restore" else before.added.get(name, {})
        for key, value in values.items():
            may_be: set[int | None] = {key + int(name[1:])}
            if kind == "restore" or previous.get(key) is None:
                may_be.add(None)
            if value not in may_be:
                raise ViolationError(f"{doing.name}: {name} of row {key} is {value}, of {may_be}")


_CLEANED: Final = ("data", "_deletions", "_indices")


def _as_rows(found: pa.Table) -> Rows:
    keys = found["id"].to_pylist()
    rows = dict(zip(keys, found["v"].to_pylist(), strict=True))
    for name, value_of in (("s", text_of), ("x", vector_of)):
        if name in found.column_names and found[name].to_pylist() != list(map(value_of, keys)):
            raise ViolationError(f"the values of {name} are not those of their rows: {found}")
    if len(rows) < len(keys):
        twice = sorted(key for key in rows if keys.count(key) > 1)
        raise ViolationError(f"rows are there twice: {twice}")
    return rows


def _is_expected(error: BaseException) -> bool:
    """Return whether an error explains a rejected operation and needs no further check."""
    expected = (AlreadyExistsError, RefNotFoundError, VersionRemovedError)
    return isinstance(error, expected)


def _needs(snapshot: Snapshot) -> frozenset[str]:
    """Return the paths of the files that a version needs; those of indices end with a slash."""
    bases, location = snapshot.manifest.bases, snapshot.location
    found = set()

    def add(folder: str, path: str, base: int | None, end: str = "") -> None:
        resolved = location.resolve(folder, path, base, bases)
        root = resolved.store.uri.removeprefix(f"memory://{BUCKET}/")
        found.add(f"{root}/{resolved.path}{end}")

    for fragment in snapshot.fragments:
        for file in fragment.files:
            add("data", file.path, file.base_id)
        for overlay in fragment.overlays:
            add("data", overlay.data_file.path, overlay.data_file.base_id)
        deletions = fragment.deletion_file
        if deletions is not None:
            path = deletions.path(fragment.id).removeprefix("_deletions/")
            add("_deletions", path, deletions.base_id)
    for index in snapshot.indices.indices:
        add("_indices", str(index.uuid), index.base_id, "/")
    return frozenset(found)
