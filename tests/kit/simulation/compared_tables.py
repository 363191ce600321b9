"""Histories of one caller whose tags, branches, commits and cleanups are compared with a model.

    append, overwrite, restore, detached       also of a version that is not the latest
    create, move, annotate, delete tags        also of versions and branches that do not exist
    create, annotate, delete branches          also nested ones, and those of interrupted writers
    clean up                                   with each setting, with remains of writers

Each call must succeed or fail as in the model. After it, the tags, branches, versions and files of
all tables are those of the model, and no other file is left or deleted.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final, TypeVar

from lancelet import surroundings
from lancelet.errors import (
    CommitConflictError,
    CommitContentionError,
    DatasetNotFoundError,
    LanceletError,
    RefNotFoundError,
    UnsupportedError,
    VersionNotFoundError,
    VersionRemovedError,
)
from lancelet.format.manifest_file import write_manifest_file
from lancelet.format.operation import (
    Append,
    Operation,
    Overwrite,
    ReserveFragments,
    Restore,
    UpdateConfig,
    UpdateMap,
)
from lancelet.format.paths import branch_path, branch_root, is_detached, manifest_path
from lancelet.format.refs import RefNameError, render_branch, with_checksum
from lancelet.format.transaction import Transaction
from lancelet.io.memory import MemoryStore
from lancelet.io.wrapped import Request, WrappedStore
from lancelet.table.clone import shallow_clone
from lancelet.table.commit import CommitOptions, commit
from lancelet.table.location import TableLocation
from lancelet.table.refs import (
    RefExistsError,
    RefInUseError,
    branch_location,
    create_branch,
    create_tag,
    delete_branch,
    delete_tag,
    get_branch,
    get_tag,
    list_branches,
    list_tags,
    open_as_of,
    open_reference,
    replace_branch_metadata,
    replace_tag_metadata,
    update_tag,
)
from lancelet.table.removals import Removals, filter_records, held_versions
from lancelet.table.snapshot import Snapshot, open_snapshot
from lancelet.upkeep.cleanup import (
    CleanupInputError,
    CleanupPolicy,
    CleanupWarning,
    auto_cleanup,
    plan_cleanup,
    report_cleanup,
    run_cleanup,
)
from lancelet.upkeep.cleanup.auto import PREFIX
from lancelet.values import replace
from tests.kit.simulation.judge import ViolationError
from tests.kit.simulation.machine import EPOCH_NS, without_caches
from tests.kit.tables import SIMPLE_SCHEMA, create_table, simple_rows, write_fragment

T = TypeVar("T")

_BUCKET: Final = "compared"
_ROOT: Final = "t"
_CLONE: Final = "clone"
_DAY: Final = 24 * 60 * 60.0
_WEEK: Final = timedelta(days=7)

_BRANCHES: Final = ("a", "b", "a/c", "a/c/d")
_BAD_NAMES: Final = ("", "a/", "/a", "a//b", "a..b", "x.lock")
_DURATIONS: Final = {
    "0s": 0.0,
    "3s": 3.0,
    "1m 40s": 100.0,
    " 2days 3h ": 2 * _DAY + 3 * 3600,
    "1week": 7 * _DAY,
    "99999999999999y": 1e12,
    "soon": None,
    "3": None,
    "3 parsecs": None,
    f"{'1' * 5000}s": None,
    "2h x": None,
    "": None,
}


class _Clock(surroundings.Surroundings):
    """Time and random bits that are the same each time."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.now_ns = EPOCH_NS

    def time_ns(self) -> int:
        self.now_ns += 10**6
        return self.now_ns

    def monotonic(self) -> float:
        return self.time_ns() / 1e9

    def sleep(self, seconds: float) -> None:
        self.now_ns += int(seconds * 1e9)

    def random_bits(self, count: int) -> int:
        return self._random.getrandbits(count)

    def uniform(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)


@dataclass(slots=True)
class _Version:
    kind: str
    files: tuple[str, ...]
    """The data files, by name."""
    transaction: str
    time: datetime
    data: bytes
    """The manifest."""


@dataclass(slots=True)
class _Tag:
    branch: str | None
    version: int
    created_ns: int | None
    updated_ns: int | None
    metadata: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Branch:
    parent: str | None
    version: int
    steps: int
    """The number of branches from the main one; 0 if a branch has no identifier."""
    metadata: dict[str, str] = field(default_factory=dict)


def _require(condition: object, text: str, *facts: object) -> None:
    if not condition:
        raise ViolationError(f"{text}: {facts}")


@contextmanager
def _fails(kind: type[BaseException], what: str, *, hides: str = "\0") -> Iterator[None]:
    try:
        yield
    except kind as error:
        _require(hides not in str(error), f"{what} failed with another message", error)
        return
    except LanceletError as error:
        raise ViolationError(f"{what} failed with another error: {error!r}") from error
    raise ViolationError(f"{what} was not rejected")


class _History:
    """A table, its model, and the calls of one history."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.clock = _Clock(Random(seed + 1))
        self.versions: dict[str | None, dict[int, _Version]] = {None: {}}
        self.removed: dict[str | None, set[int]] = {None: set()}
        self.detached: dict[str | None, dict[int, _Version]] = {None: {}}
        self.tags: dict[str, _Tag] = {}
        self.branches: dict[str, _Branch] = {}
        self.unnamed: set[str] = set()
        """Branches whose creation was interrupted: their tables have no reference."""
        self.clone: tuple[str, ...] | None = None
        """The files of a clone."""
        self.late: dict[str, str] = {}
        """Manifests that were put after their number was removed, and their transactions."""
        self.created: dict[str, datetime] = {}
        self.gone: Snapshot | None = None
        """A version of the main branch that was removed since it was opened."""
        self.trace: list[str] = []
        self._numbers = iter(range(1, 1 << 30))

    def run(self, num_steps: int) -> None:
        with surroundings.replaced_by(self.clock), warnings.catch_warnings():
            warnings.simplefilter("error", CleanupWarning)
            MemoryStore.reset(_BUCKET)
            self.store = MemoryStore(_BUCKET)
            self.main = TableLocation(f"memory://{_BUCKET}/{_ROOT}", self.store.at(_ROOT))
            first = create_table(self.main, SIMPLE_SCHEMA, self._rows())
            self._record(None, first, "create")
            calls = dict(_CALLS)
            try:
                for _ in range(num_steps):
                    name = self.random.choices(list(calls), list(calls.values()))[0]
                    self.trace.append(name)
                    getattr(self, f"_{name}")()
                    self._note_new_files()
                    self._check()
                self._at_the_end()
            except BaseException as error:
                error.add_note(" ".join(self.trace))
                raise

    # --- helpers ----------------------------------------------------------------------------------

    def _rows(self) -> Any:
        number = next(self._numbers)
        return simple_rows(number, number + 1)

    def _location(self, branch: str | None) -> TableLocation:
        return branch_location(self.main, branch)

    def _branch(self) -> str | None:
        return self.random.choice([None, None, *self.branches])

    def _latest(self, branch: str | None) -> int:
        return max(self.versions[branch])

    def _record(self, branch: str | None, snapshot: Snapshot, kind: str) -> None:
        files = tuple(sorted(file.path for each in snapshot.fragments for file in each.files))
        data = snapshot.location.store.read(snapshot.entry.path)
        version = _Version(
            kind, files, snapshot.manifest.transaction_file, snapshot.manifest.timestamp, data
        )
        of = self.detached if is_detached(snapshot.version) else self.versions
        of.setdefault(branch, {})[snapshot.version] = version
        self._note_new_files()

    def _note_new_files(self) -> None:
        for info in self.store.list(""):
            self.created.setdefault(info.path, info.modified)

    def _commit(self, branch: str | None, kind: str, **options: Any) -> None:
        """Commit, from a version that may not be the latest."""
        location, versions = self._location(branch), self.versions[branch]
        latest = self._latest(branch)
        read = latest if self.random.random() < 0.6 else self.random.choice(list(versions))
        # A version that other writers committed meanwhile and that a cleanup removed.
        since = range(read + 1, latest + 1)
        expected: type[LanceletError] | None = None
        files = versions[latest].files
        operation: Operation
        options["attempts"] = self.random.choice([0, 1, 20])
        match kind:
            case "append":
                fragment = write_fragment(location, self._rows(), SIMPLE_SCHEMA)
                operation, files = Append((fragment,)), (*files, fragment.files[0].path)
                if any(n in versions and versions[n].kind in _REPLACES for n in since):
                    expected = CommitConflictError
            case "overwrite":
                fragment = write_fragment(location, self._rows(), SIMPLE_SCHEMA)
                operation, files = Overwrite((fragment,), SIMPLE_SCHEMA), (fragment.files[0].path,)
                if any(n in versions and versions[n].kind == "overwrite" for n in since):
                    expected = CommitConflictError
                if options["attempts"] == 0 and since:
                    expected = CommitConflictError
            case "restore":
                old = self.random.choice([*versions, latest + 3, *sorted(self.removed[branch])[:1]])
                operation = Restore(old)
                files = versions[old].files if old in versions else ()
                if old not in versions:
                    expected = VersionNotFoundError
            case "configure":
                key = self.random.choice("xy")
                operation = UpdateConfig(config=UpdateMap({key: str(next(self._numbers))}))
                if any(n in versions and versions[n].kind == f"configure {key}" for n in since):
                    expected = CommitConflictError
                kind = f"configure {key}"
            case _:
                operation = ReserveFragments(1)
                if any(n in versions and versions[n].kind in _REPLACES for n in since):
                    expected = CommitConflictError
        if any(n not in versions for n in since) and expected is not VersionNotFoundError:
            expected = CommitConflictError
        self._note_new_files()
        transaction = Transaction(read, str(surroundings.new_uuid()), operation)
        try:
            done = commit(location, transaction, CommitOptions(**options))
        except LanceletError as error:
            _require(expected is not None, f"{kind} was rejected", read, latest, error)
            assert expected is not None
            _require(isinstance(error, expected), f"{kind} failed with another error", error)
            return
        _require(expected is None, f"{kind} was not rejected", read, latest)
        _require(done.version == latest + 1, "not the next version", done.version, latest)
        self._record(branch, done, kind)
        _require(
            self.versions[branch][done.version].files == tuple(sorted(files)), "other files", kind
        )

    # --- commits ----------------------------------------------------------------------------------

    def _append(self) -> None:
        self._commit(self._branch(), "append")

    def _append_to_main(self) -> None:
        self._commit(None, "append")

    def _overwrite(self) -> None:
        self._commit(self._branch(), "overwrite")

    def _restore(self) -> None:
        self._commit(self._branch(), "restore")

    def _configure(self) -> None:
        self._commit(self._branch(), "configure")

    def _reserve(self) -> None:
        self._commit(self._branch(), "reserve")

    def _commit_detached(self) -> None:
        branch = self._branch()
        location, versions = self._location(branch), self.versions[branch]
        read = self.random.choice(list(versions))
        fragment = write_fragment(location, self._rows(), SIMPLE_SCHEMA)
        transaction = Transaction(read, str(surroundings.new_uuid()), Append((fragment,)))
        options = CommitOptions(detached=True)
        done = commit(location, transaction, options)
        _require(is_detached(done.version), "the version is not detached", done.version)
        self._record(branch, done, "detached")
        missing = sorted(self.removed[branch])
        if missing:
            transaction = Transaction(missing[0], str(surroundings.new_uuid()), Append(()))
            with _fails(VersionNotFoundError, "a detached commit on a removed version"):
                commit(location, transaction, options)

    def _commit_future(self) -> None:
        branch = self._branch()
        read = self._latest(branch) + 1 + self.random.randrange(2)
        transaction = Transaction(read, str(surroundings.new_uuid()), ReserveFragments(1))
        with _fails(VersionNotFoundError, "a commit on a version that does not exist"):
            commit(self._location(branch), transaction)

    def _create_again(self) -> None:
        operation = Overwrite((), SIMPLE_SCHEMA)
        transaction = Transaction(0, str(surroundings.new_uuid()), operation)
        with _fails(LanceletError, "creating the table again"):
            commit(self.main, transaction, CommitOptions(must_create=True))
        nowhere = TableLocation(f"memory://{_BUCKET}/none", self.store.at("none"))
        transaction = Transaction(0, str(surroundings.new_uuid()), ReserveFragments(1))
        with _fails(DatasetNotFoundError, "a commit without a table"):
            commit(nowhere, transaction)

    def _race(self) -> None:
        """Commit while another writer is faster several times."""
        attempts, wins = self.random.randrange(1, 4), self.random.randrange(4)
        branch = self._branch()
        location = self._location(branch)
        read = self._latest(branch)
        won: list[Snapshot] = []

        def rival(request: Request) -> None:
            if request.path.endswith(".manifest") and request.is_change and len(won) < wins:
                number = read + len(won)
                other = Transaction(number, str(surroundings.new_uuid()), ReserveFragments(1))
                won.append(commit(location, other))

        raced = replace(location, store=WrappedStore(location.store, _Before(rival)))
        transaction = Transaction(read, str(surroundings.new_uuid()), ReserveFragments(1))
        options = CommitOptions(attempts=attempts)
        if wins < attempts:
            done = commit(raced, transaction, options)
            _require(done.version == read + wins + 1, "not after the others", done.version)
            won.append(done)
        else:
            with _fails(CommitContentionError, "a commit that always lost"):
                commit(raced, transaction, options)
            _require(len(won) == attempts, "other attempts than allowed", len(won), attempts)
        for each in won:
            self._record(branch, each, "reserve")

    # --- tags -------------------------------------------------------------------------------------

    def _target(self) -> tuple[str | None, int, type[LanceletError] | None]:
        """Return a version to refer to, and the error if it cannot be referred to."""
        branch = self.random.choice([None, "main", "none", *self.branches])
        if branch == "none":
            return branch, 1, RefNotFoundError
        name = None if branch == "main" else branch
        choices = [*self.versions[name]] * 3 + [self._latest(name) + 1, *self.removed[name]]
        version = self.random.choice(choices)
        error: type[LanceletError] | None = None
        if version not in self.versions[name]:
            is_removed = version in self.removed[name]
            error = VersionRemovedError if is_removed else VersionNotFoundError
        return branch, version, error

    def _create_tag(self) -> None:
        name = f"v{self.random.randrange(4)}"
        branch, version, error = self._target()
        if error is None and name in self.tags:
            error = RefExistsError
        if error is not None:
            with _fails(error, f"tag {name} of {branch}:{version}"):
                create_tag(self.main, name, version, branch)
            return
        begun = self.clock.now_ns
        create_tag(self.main, name, version, branch)
        tag = get_tag(self.main, name)
        _require(begun < (tag.created_at_ns or 0) <= self.clock.now_ns, "other time", tag)
        _require(tag.created_at_ns == tag.updated_at_ns, "other time", tag)
        of = None if branch == "main" else branch
        self.tags[name] = _Tag(of, version, tag.created_at_ns, tag.updated_at_ns)

    def _update_tag(self) -> None:
        name = f"v{self.random.randrange(4)}"
        branch, version, error = self._target()
        if name not in self.tags:
            error = RefNotFoundError
        if error is not None:
            with _fails(error, f"moving tag {name} to {branch}:{version}"):
                update_tag(self.main, name, version, branch)
            return
        begun = self.clock.now_ns
        update_tag(self.main, name, version, branch)
        tag, before = get_tag(self.main, name), self.tags[name]
        _require(begun < (tag.updated_at_ns or 0) <= self.clock.now_ns, "other time", tag)
        of = None if branch == "main" else branch
        self.tags[name] = replace(before, branch=of, version=version, updated_ns=tag.updated_at_ns)

    def _annotate_tag(self) -> None:
        name, metadata = f"v{self.random.randrange(4)}", {"x": str(next(self._numbers))}
        if name not in self.tags:
            with _fails(RefNotFoundError, f"annotating tag {name}"):
                replace_tag_metadata(self.main, name, metadata)
            return
        replace_tag_metadata(self.main, name, metadata)
        self.tags[name].metadata = metadata

    def _delete_tag(self) -> None:
        name = f"v{self.random.randrange(4)}"
        if name not in self.tags:
            with _fails(RefNotFoundError, f"deleting tag {name}"):
                delete_tag(self.main, name)
            return
        delete_tag(self.main, name)
        del self.tags[name]

    def _use_bad_names(self) -> None:
        name = self.random.choice(_BAD_NAMES)
        for call in (
            lambda: create_tag(self.main, name, self._latest(None)),
            lambda: get_tag(self.main, name),
            lambda: create_branch(self.main, name, open_snapshot(self.main)),
            lambda: get_branch(self.main, name),
            lambda: delete_branch(self.main, name),
        ):
            with _fails(RefNameError, f"the name {name!r}"):
                call()
        for inside in ("a/data", "b/_versions/x"):
            with _fails(RefNameError, f"the branch {inside!r}"):
                create_branch(self.main, inside, open_snapshot(self.main))

    # --- branches ---------------------------------------------------------------------------------

    def _create_branch(self) -> None:
        name, parent = self.random.choice(_BRANCHES), self._branch()
        version = self.random.choice(list(self.versions[parent]))
        source = open_snapshot(self._location(parent), version)
        if name in self.branches or name in self.unnamed:
            with _fails(RefExistsError, f"creating branch {name} again"):
                create_branch(self.main, name, source)
            return
        created = create_branch(self.main, name, source)
        above = 0 if parent is None else self.branches[parent].steps
        steps = 0 if parent is not None and not above else above + 1
        self.branches[name] = _Branch(parent, version, steps)
        self.versions[name], self.removed[name] = {}, set()
        self.detached[name] = {}
        self._record(name, created, "branch")
        if self.random.random() < 0.4:  # The writer dies before it stores the reference.
            self.main.store.delete(branch_path(name))
            self._forget_branch(name)
            self.unnamed.add(name)

    def _interrupt_branch(self) -> None:
        """Create a branch whose writer dies, and remove the version that it was created from."""
        if "b" in self.branches or "b" in self.unnamed:
            return
        created = create_branch(self.main, "b", open_snapshot(self.main))
        self.main.store.delete(branch_path("b"))
        self.unnamed.add("b")
        self.versions["b"], self.removed["b"], self.detached["b"] = {}, set(), {}
        self._record("b", created, "branch")
        self._commit(None, "overwrite")
        self._commit(None, "overwrite")
        clones = () if self.clone is None else (f"memory://{_BUCKET}/{_CLONE}",)
        policy = CleanupPolicy(error_if_tagged_old_versions=False, clones=clones)
        self._clean_up(None, open_snapshot(self.main), policy)

    def _create_removed_branch(self) -> None:
        """Create a branch of a version that was removed since it was opened."""
        if self.gone is not None and "b" not in self.branches and "b" not in self.unnamed:
            with _fails(VersionRemovedError, "a branch of a removed version"):
                create_branch(self.main, "b", self.gone)

    def _forget_branch(self, name: str) -> None:
        del self.branches[name]

    def _annotate_branch(self) -> None:
        name, metadata = self.random.choice(_BRANCHES), {"x": str(next(self._numbers))}
        if name not in self.branches:
            with _fails(RefNotFoundError, f"annotating branch {name}"):
                replace_branch_metadata(self.main, name, metadata)
            return
        replace_branch_metadata(self.main, name, metadata)
        self.branches[name].metadata = metadata

    def _forget_identifier(self) -> None:
        """Store a branch as an old writer did: it and its new branches have no identifier."""
        name = self.random.choice(_BRANCHES)
        if name in self.branches:
            branch = replace(get_branch(self.main, name), identifier=None)
            self.main.store.put(branch_path(name), with_checksum(render_branch(branch)))
            self.branches[name].steps = 0

    def _delete_branch(self) -> None:
        name = self.random.choice(_BRANCHES)
        is_parent = any(each.parent == name for each in self.branches.values())
        is_tagged = any(each.branch == name for each in self.tags.values())
        below = f"{_ROOT}/{branch_root(name)}/"
        has_files = any(True for _ in self.store.list(below.rstrip("/")))
        if name not in self.branches and not has_files:
            with _fails(RefNotFoundError, f"deleting branch {name}"):
                delete_branch(self.main, name)
            return
        if is_parent or is_tagged:
            with _fails(RefInUseError, f"deleting branch {name}"):
                delete_branch(self.main, name)
            return
        inner = [each for each in self.branches if each.startswith(f"{name}/")]
        others = [f"{_ROOT}/{branch_root(each)}/" for each in inner]
        expected = {
            info.path
            for info in self.store.list("")
            if not info.path.startswith(below) or any(info.path.startswith(o) for o in others)
        }
        delete_branch(self.main, name)
        found = {info.path for info in self.store.list("")}
        expected.discard(f"{_ROOT}/{branch_path(name)}")
        _require(found == expected, f"deleting branch {name}", found ^ expected)
        # Interrupted branches below are deleted, unless they are inside of another branch.
        for each in sorted(self.unnamed):
            is_inside = each == name or each.startswith(f"{name}/")
            if not is_inside or any(each.startswith(f"{other}/") for other in inner):
                continue
            self.unnamed.discard(each)
            self.versions.pop(each), self.removed.pop(each), self.detached.pop(each)
        if name in self.branches:
            self._forget_branch(name)
            self.versions.pop(name), self.removed.pop(name), self.detached.pop(name)
        self.late = {path: each for path, each in self.late.items() if path in found}

    # --- remains ----------------------------------------------------------------------------------

    def _leave_files(self) -> None:
        """Write files as a writer that dies before its commit."""
        location = self._location(self._branch())
        write_fragment(location, self._rows(), SIMPLE_SCHEMA)
        if self.random.random() < 0.3:
            location.store.put(f"_transactions/1-{surroundings.new_uuid()}.txn", b"transaction")
        if self.random.random() < 0.3:
            location.store.put(f"_deletions/0-1-{self.random.getrandbits(60)}.arrow", b"deleted")
        if self.random.random() < 0.3:
            location.store.put("notes.txt", b"is not deleted")

    def _publish_late(self) -> None:
        """Put a manifest whose number was used and removed, as a writer that was paused."""
        if not self.removed[None]:
            return
        number = self.random.choice(sorted(self.removed[None]))
        newest = self.versions[None][self._latest(None)]
        path = f"_versions/{(1 << 64) - 1 - number:020}.manifest"
        full = f"{_ROOT}/{path}"
        if number not in self.versions[None] and full not in self.late:
            self.main.store.put(path, newest.data)
            self.late[full] = newest.transaction

    def _wait(self) -> None:
        self.clock.sleep(self.random.choice([1, 100, 0.6 * _DAY, 3 * _DAY, 8 * _DAY]))

    def _clone(self) -> None:
        target = TableLocation(f"memory://{_BUCKET}/{_CLONE}", self.store.at(_CLONE))
        if self.clone is not None:
            with _fails(LanceletError, "a clone to a table"):
                shallow_clone(open_snapshot(self.main), target)
            return
        clone = shallow_clone(open_snapshot(self.main), target)
        self.clone = tuple(file.path for each in clone.fragments for file in each.files)

    # --- cleanups ---------------------------------------------------------------------------------

    def _policy(self, branch: str | None) -> CleanupPolicy:
        versions, random = self.versions[branch], self.random
        numbers = sorted(versions)
        before = None
        if random.random() < 0.4:
            before = versions[random.choice(numbers)].time + timedelta(
                microseconds=random.choice([-1, 0, 1])
            )
        return CleanupPolicy(
            before=before,
            before_version=random.choice([None, None, *numbers]),
            retain_versions=random.choice([None, None, None, 1, 2, 3]),
            versions=random.choice([None, None, None, frozenset(random.sample(numbers, 1))]),
            delete_unverified=random.random() < 0.3,
            error_if_tagged_old_versions=random.random() < 0.3,
            delete_rate_limit=random.choice([None, None, 100]),
            delete_concurrency=random.choice([None, None, 3]),
            clones=() if self.clone is None else (f"memory://{_BUCKET}/{_CLONE}",),
        )

    def _clean(self) -> None:
        branch = self._branch()
        snapshot = open_snapshot(self._location(branch))
        self._clean_up(branch, snapshot, self._policy(branch))

    def _clean_from_old(self) -> None:
        """Clean up by a handle of an old or detached version."""
        branch = self._branch()
        number = self.random.choice([*self.versions[branch], *self.detached[branch]])
        snapshot = open_snapshot(self._location(branch), number)
        self._clean_up(branch, snapshot, self._policy(branch))

    def _clean_wrongly(self) -> None:
        wrong: list[dict[str, Any]] = [
            {"retain_versions": 0},
            {"delete_rate_limit": 0},
            {"delete_concurrency": 0},
            {"versions": frozenset()},
        ]
        for each in wrong:
            with _fails(CleanupInputError, str(each)):
                CleanupPolicy(**each)
        policy = CleanupPolicy(clones=(f"memory://{_BUCKET}/none",))
        with _fails(CleanupInputError, "a clone that does not exist"):
            plan_cleanup(open_snapshot(self.main), policy)

    def _clean_automatically(self) -> None:
        latest = self._latest(None)
        interval = self.random.choice([0, 1, 2, 3])
        text = self.random.choice(list(_DURATIONS))
        retain = self.random.choice([None, 1, 3])
        config: dict[str, str | None] = {
            f"{PREFIX}interval": str(interval),
            f"{PREFIX}older_than": text,
            f"{PREFIX}retain_versions": None if retain is None else f" {retain} ",
        }
        update = UpdateConfig(config=UpdateMap(config))
        transaction = Transaction(latest, str(surroundings.new_uuid()), update)
        snapshot = commit(self.main, transaction)
        self._record(None, snapshot, "configure cleanup")
        latest = snapshot.version
        if not interval or latest % interval:
            _require(auto_cleanup(snapshot) is None, "a cleanup that was not due")
            return
        if _DURATIONS[text] is None:
            with _fails(CleanupWarning, f"the duration {text!r}", hides="Error:"):
                auto_cleanup(snapshot)
            return
        seconds = _DURATIONS[text]
        assert seconds is not None
        before = self._now() - timedelta(seconds=min(seconds, 1e9))
        policy = CleanupPolicy(
            before=before,
            before_version=latest - 1,
            retain_versions=retain,
            error_if_tagged_old_versions=False,
        )
        if self.clone is None:
            self._clean_up(None, snapshot, policy, lambda: auto_cleanup(snapshot))

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self.clock.now_ns / 1e9, UTC)

    def _clean_up(
        self,
        branch: str | None,
        snapshot: Snapshot,
        policy: CleanupPolicy,
        call: Callable[[], object] | None = None,
    ) -> None:
        versions = self.versions[branch]
        newest = self._latest(branch)
        limit = newest if is_detached(snapshot.version) else snapshot.version
        points = {each.version for each in self.branches.values() if each.parent == branch}
        tagged = {each.version for each in self.tags.values() if each.branch == branch}
        retained_by_count = sorted(versions)[-(policy.retain_versions or 0) :]
        selected = {
            number
            for number, version in versions.items()
            if number < limit
            and number not in points
            and (policy.retain_versions is None or number not in retained_by_count)
            and (policy.before is None or version.time < policy.before)
            and (policy.before_version is None or number < policy.before_version)
            and (policy.versions is None or number in policy.versions)
        }
        if policy.error_if_tagged_old_versions and selected & tagged:
            with _fails(CleanupInputError, "a cleanup of a tagged version"):
                plan_cleanup(snapshot, policy)
            return
        removed = selected - tagged
        before = {info.path: info.size for info in self.store.list("")}
        expected = set(before) - self._deleted_files(branch, removed, policy)
        report = report_cleanup(snapshot, policy)
        if branch is None and removed:
            self.gone = open_snapshot(self.main, max(removed))
        if call is None:
            plan = plan_cleanup(snapshot, policy)
            _require(plan.versions == tuple(sorted(removed)), "other versions", plan.versions)
            stats: Any = run_cleanup(plan, policy)
            children = {
                (name, each.version)
                for name, each in self.branches.items()
                if each.parent == branch
            }
            reported = {(each.name, each.referenced_version) for each in plan.branches}
            _require(reported == children, "other branches", reported, children)
            _require(not any(each.cleanup_candidate for each in plan.branches), "removes a branch")
        else:
            stats = call()
        after = {info.path for info in self.store.list("")}
        own = f"{_ROOT}/" if branch is None else f"{_ROOT}/{branch_root(branch)}/"
        markers = {path for path in after | set(before) if "/_versions/." in path}
        gone = set(before) - after - markers
        _require(after - set(before) <= markers, "new files", after - set(before))
        _require(after - markers == expected - markers, "other files", (after ^ expected) - markers)
        size = sum(before[path] for path in gone)
        _require(stats.bytes_removed == size, "other bytes", stats, size)
        _require(report.deleted_files == len(gone), "other files in the report", report, len(gone))
        _require(report.deleted_bytes == size, "other bytes in the report", report, size)
        _require(stats.old_versions == len(removed), "other number of versions", stats)
        _require(stats.failed_deletes == 0, "failed deletions", stats)
        for folder, count in (
            ("data", stats.data_files_removed),
            ("_transactions", stats.transaction_files_removed),
            ("_deletions", stats.deletion_files_removed),
        ):
            found = sum(path.startswith(f"{own}{folder}/") for path in gone)
            _require(found == count, f"other number of files in {folder}", found, count)
        for number in removed:
            del versions[number]
        self.removed[branch] |= removed
        for path in gone:
            self.created.pop(path, None)
            self.late.pop(path, None)

    def _deleted_files(
        self, branch: str | None, removed: set[int], policy: CleanupPolicy
    ) -> set[str]:
        """Return the files that a cleanup has to delete."""
        own = f"{_ROOT}/" if branch is None else f"{_ROOT}/{branch_root(branch)}/"
        versions = self.versions[branch]
        needed = {
            file
            for of in (self.versions, self.detached)
            for each in of.values()
            for number, version in each.items()
            if each is not versions or number not in removed
            for file in (*version.files, version.transaction)
        } | {*(self.clone or ())}
        only_removed = {
            file
            for number in removed
            for file in (*versions[number].files, versions[number].transaction)
        } - needed
        found = set()
        for info in self.store.list(own.rstrip("/")):
            folder, _, rest = info.path.removeprefix(own).partition("/")
            if folder == "_versions" and rest.endswith(".manifest"):
                number = (
                    (1 << 64) - 1 - int(rest.removesuffix(".manifest")) if "d" not in rest else 0
                )
                if number in removed or info.path in self.late:
                    found.add(info.path)
            elif folder in {"data", "_transactions", "_deletions"}:
                name = rest.rpartition("/")[2]
                is_old = self._now() - self.created[info.path] >= _WEEK
                is_orphan = name not in needed and (is_old or policy.delete_unverified)
                if name in only_removed or is_orphan:
                    found.add(info.path)
        return found

    # --- checks -----------------------------------------------------------------------------------

    def _check(self) -> None:
        tags = list_tags(self.main)
        _require(tags.keys() == self.tags.keys(), "other tags", tags, self.tags)
        for name, tag in tags.items():
            expected = self.tags[name]
            found = (tag.branch, tag.version, tag.created_at_ns, tag.updated_at_ns)
            _require(
                found
                == (expected.branch, expected.version, expected.created_ns, expected.updated_ns),
                "another tag",
                tag,
                expected,
            )
            _require(tag.metadata == expected.metadata, "other metadata", tag, expected)
            version = self.versions[tag.branch][tag.version]
            _require(tag.manifest_bytes == len(version.data), "another size", tag)
            _require(self._files_of(name) == version.files, "other files", name)
        branches = list_branches(self.main)
        _require(branches.keys() == self.branches.keys(), "other branches", branches)
        for name, branch in branches.items():
            of = self.branches[name]
            _require((branch.parent_branch, branch.parent_version) == (of.parent, of.version), name)
            _require(branch.metadata == of.metadata, "other metadata", branch, of)
            _require(len(branch.identifier or ()) == of.steps, "another identifier", branch)
        for each in (None, *self.branches):
            self._check_table(each)

    def _files_of(self, reference: Any) -> tuple[str, ...]:
        snapshot = open_reference(self.main, reference)
        return tuple(sorted(file.path for each in snapshot.fragments for file in each.files))

    def _check_table(self, branch: str | None) -> None:
        location, versions = self._location(branch), self.versions[branch]
        listed = [each.version for each in location.handler.list_versions(location.store)]
        own = f"{_ROOT}/" if branch is None else f"{_ROOT}/{branch_root(branch)}/"
        late = {_number_of(path) for path in self.late if path.startswith(f"{own}_versions/")}
        _require(set(listed) - late == set(versions), "other versions", branch, listed, versions)
        number = self.random.choice(list(versions))
        for each in {number, self._latest(branch), *self.detached[branch]}:
            version = versions[each] if each in versions else self.detached[branch][each]
            _require(self._files_of((branch, each)) == version.files, "other files", branch, each)
        for moment in (versions[number].time, versions[number].time - timedelta(microseconds=1)):
            last = max((n for n, v in versions.items() if v.time <= moment), default=None)
            if last is None:
                with _fails(VersionNotFoundError, "a time before the first version"):
                    open_as_of(location, moment)
            elif not late:
                _require(open_as_of(location, moment).version == last, "another version", last)
        needed = {file for version in versions.values() for file in version.files}
        present = {info.path.rpartition("/")[2] for info in self.store.list(_ROOT)}
        _require(needed <= present, "missing files", needed - present)
        removed = Removals.load(location.store).transactions.keys()
        _require(removed == self.removed[branch], "other records", removed, self.removed[branch])
        names = [info.path.rpartition("/")[2] for info in location.store.list("_versions")]
        _require(len(filter_records(names)) <= 4, "records are not merged", names)
        _require(not held_versions(location.store), "a hold is left", branch)
        swept = [name for name in names if name.startswith(".swept-")]
        _require(len({name[:27] for name in swept}) <= 1, "markers are left", swept)

    def _at_the_end(self) -> None:
        """Check that a table with newer features, or without a folder, is not changed."""
        old = open_snapshot(self.main)
        stored = _publish_with_writer_flag(self.main, old)
        before = {info.path: info.size for info in self.store.list("")}
        calls: dict[str, Callable[[], object]] = {
            "a commit": lambda: commit(
                self.main, Transaction(stored, str(surroundings.new_uuid()), ReserveFragments(1))
            ),
            "a tag": lambda: create_tag(self.main, "new", 1),
            "a moved tag": lambda: update_tag(self.main, "v0", 1),
            "an annotated tag": lambda: replace_tag_metadata(self.main, "v0", {}),
            "a deleted tag": lambda: delete_tag(self.main, "v0"),
            "a branch": lambda: create_branch(self.main, "new", old),
            "an annotated branch": lambda: replace_branch_metadata(self.main, "a", {}),
            "a deleted branch": lambda: delete_branch(self.main, "a"),
            "a cleanup": lambda: plan_cleanup(old, CleanupPolicy()),
        }
        for what, call in calls.items():
            with _fails(UnsupportedError, f"{what} of a table with newer features"):
                call()
        left = {
            info.path: info.size for info in self.store.list("") if "/_versions/." not in info.path
        }
        before = {path: size for path, size in before.items() if "/_versions/." not in path}
        _require(left == before, "changed files", left.keys() ^ before.keys())
        self.store.delete(f"{_ROOT}/{manifest_path(stored, old.entry.naming)}")
        self._drop_during_a_commit(old.version)
        transaction = Transaction(old.version, str(surroundings.new_uuid()), ReserveFragments(1))
        options = CommitOptions(snapshot=old)
        with _fails(DatasetNotFoundError, "a commit to a dropped table"):
            commit(self.main, transaction, options)
        create_table(self.main, SIMPLE_SCHEMA, self._rows())
        for number in range(1, old.version + 2):
            commit(
                self.main, Transaction(number, str(surroundings.new_uuid()), ReserveFragments(1))
            )
        with _fails(VersionNotFoundError, "a commit to a table that was created again"):
            commit(self.main, transaction, options)
        with _fails(VersionNotFoundError, "a commit to a table that was created again"):
            commit(self.main, transaction, CommitOptions(read_identity=old.identity))

    def _drop_during_a_commit(self, version: int) -> None:
        """Delete the table just before a commit puts its manifest, which must not remain."""

        def drop(request: Request) -> None:
            if request.path.endswith(".manifest") and request.is_change:
                for info in list(self.store.list(_ROOT)):
                    self.store.delete(info.path)

        raced = replace(self.main, store=WrappedStore(self.main.store, _Before(drop)))
        transaction = Transaction(version, str(surroundings.new_uuid()), ReserveFragments(1))
        with _fails(VersionNotFoundError, "a commit to a table that was dropped meanwhile"):
            commit(raced, transaction)
        left = [info.path for info in self.store.list(f"{_ROOT}/_versions")]
        _require(not any(path.endswith(".manifest") for path in left), "a manifest is left", left)
        for info in list(self.store.list(_ROOT)):
            self.store.delete(info.path)


def _number_of(path: str) -> int:
    """Return the version of a manifest, 0 of a detached one."""
    digits = path.rpartition("/")[2].removesuffix(".manifest")
    return (1 << 64) - 1 - int(digits) if digits.isdigit() else 0


class _Before:
    """Calls a function before each request."""

    def __init__(self, call: Callable[[Request], None]) -> None:
        self._call = call

    def request(self, request: Request, action: Callable[[], T]) -> T:
        self._call(request)
        return action()


def _publish_with_writer_flag(location: TableLocation, latest: Snapshot) -> int:
    """Publish a version that needs a newer writer, and return its number."""
    manifest = replace(latest.manifest, version=latest.version + 1, writer_flags=1 << 40)
    data, _ = write_manifest_file(manifest, latest.indices, b"")
    location.store.put(manifest_path(manifest.version, latest.entry.naming), data)
    return manifest.version


def run(seed: int, num_steps: int = 40) -> None:
    """Run a history; raise `ViolationError` if a result differs from the model."""
    with without_caches():
        _History(seed).run(num_steps)


_REPLACES: Final = ("overwrite", "restore")

_CALLS: Final = {
    "append": 6,
    "append_to_main": 5,
    "overwrite": 4,
    "restore": 2,
    "configure": 2,
    "reserve": 2,
    "commit_detached": 1,
    "commit_future": 0.5,
    "create_again": 0.3,
    "race": 2,
    "create_tag": 5,
    "update_tag": 3,
    "annotate_tag": 1.5,
    "delete_tag": 1.5,
    "use_bad_names": 0.3,
    "create_branch": 5,
    "create_removed_branch": 0.5,
    "interrupt_branch": 1,
    "annotate_branch": 1.5,
    "forget_identifier": 0.5,
    "delete_branch": 2,
    "leave_files": 3,
    "publish_late": 2,
    "wait": 4,
    "clone": 0.5,
    "clean": 5,
    "clean_from_old": 2,
    "clean_wrongly": 0.3,
    "clean_automatically": 2,
}
