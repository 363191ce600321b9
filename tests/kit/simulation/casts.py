"""Small scenarios whose interleavings are all executed: their actors, and the checks at the end.

    two commits and a cleanup          A and B append to version 3, C deletes old versions
    a commit, a restore, a cleanup     A appends, B restores version 2, C deletes old versions
    an external manifest store         A and B append, R reads the latest version

A paused commit is one whose next request follows those of other actors, so the interleavings
include all pauses. The data files of fragments are never read; a version is what its manifest says.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final
from typing import cast as cast_to

from lancelet import surroundings
from lancelet.errors import (
    CommitConflictError,
    CommitContentionError,
    CommitOutcomeUnknownError,
    NotFoundError,
    ObjectNotFoundError,
    StorageError,
)
from lancelet.format.fragment import Fragment
from lancelet.format.operation import Append, Operation, Overwrite, ReserveFragments, Restore
from lancelet.format.transaction import Transaction
from lancelet.io.memory import MemoryStore
from lancelet.table.commit import commit
from lancelet.table.handlers.external import ExternalStore
from lancelet.table.location import TableLocation
from lancelet.table.refs import branch_location, create_branch, create_tag, get_tag, update_tag
from lancelet.table.removals import Removals
from lancelet.table.snapshot import Snapshot, open_snapshot
from lancelet.upkeep.cleanup import CleanupPolicy, plan_cleanup, run_cleanup
from tests.kit.simulation.interleavings import Cast
from tests.kit.simulation.judge import BUCKET, MAIN
from tests.kit.simulation.machine import SimulatedStore, seeded
from tests.kit.simulation.records import SimulatedRecords
from tests.kit.tables import SIMPLE_SCHEMA, create_table, simple_rows, write_fragment

_REFUSED: Final = (CommitConflictError, CommitContentionError, NotFoundError)
_UNKNOWN: Final = (CommitOutcomeUnknownError, StorageError)

Scene = Callable[[], tuple[Cast, Callable[[Cast], None]]]


@dataclass(slots=True)
class Stage:
    """A table of three versions, and fragments to append to it."""

    stored: dict[str, Any]
    fragments: Mapping[str, Fragment]
    old_file: str
    """A file that only versions 1 and 2 need."""
    latest: int = 3

    @staticmethod
    @seeded()
    def built(num_records: int = 0) -> Stage:
        """Create the table in the environment of the machine.

        With records of removed versions, only the latest version and the one before are left.
        """
        MemoryStore.reset(BUCKET)
        store = MemoryStore(BUCKET)
        location = TableLocation(f"memory://{BUCKET}/{MAIN}", store.at(MAIN))
        first = create_table(location, SIMPLE_SCHEMA, simple_rows(0, 1))
        old_file = first.fragments[0].files[0].path
        commit(location, _transaction(1, ReserveFragments(1), 1))
        commit(location, _transaction(2, Overwrite((), SIMPLE_SCHEMA), 2))
        fragments = {
            name: write_fragment(location, simple_rows(number, number + 1), SIMPLE_SCHEMA)
            for number, name in enumerate("ab", 10)
        }
        for latest in range(4, 4 + num_records):
            commit(location, _transaction(latest - 1, ReserveFragments(1), latest))
            policy = CleanupPolicy(error_if_tagged_old_versions=False)
            run_cleanup(plan_cleanup(open_snapshot(location), policy), policy)
        latest = 3 + num_records
        if num_records:
            latest += 1
            commit(location, _transaction(latest - 1, ReserveFragments(1), latest))
        stored = dict(store._objects.by_key)
        return Stage(
            {path: entry for path, entry in stored.items() if "_latest" not in path},
            fragments,
            old_file,
            latest,
        )

    def location(self) -> TableLocation:
        """Return the table as seen by the actors."""
        store = surroundings.wrap_store(MemoryStore(BUCKET)).at(MAIN)
        return TableLocation(f"memory://{BUCKET}/{MAIN}", store)

    def appending(self, name: str, location: TableLocation | None = None) -> Snapshot:
        """Append a fragment, based on the latest version."""
        operation = Append((self.fragments[name],))
        number = ord(name)
        return commit(location or self.location(), _transaction(self.latest, operation, number))

    def cleaning(self) -> object:
        """Delete all versions but the latest."""
        policy = CleanupPolicy(error_if_tagged_old_versions=False)
        return run_cleanup(plan_cleanup(open_snapshot(self.location()), policy), policy)

    def restoring(self) -> Snapshot:
        """Restore version 2."""
        return commit(self.location(), _transaction(3, Restore(2), 3))

    def files(self, version: int | None = None) -> list[str]:
        """Return the names of the data files of a version, by default the latest."""
        snapshot = open_snapshot(self.location(), version)
        return [file.path for each in snapshot.fragments for file in each.files]

    def check_appended(self, cast: Cast, names: str) -> None:
        """Check that acknowledged fragments exist once and refused ones do not."""
        files = self.files()
        for name in names:
            outcome, path = cast.outcomes[name], self.fragments[name].files[0].path
            count = files.count(path)
            if isinstance(outcome, Snapshot):
                assert count == 1, f"{name} was acknowledged, and is there {count} times"
            elif isinstance(outcome, _REFUSED):
                assert count == 0, f"{name} was refused, and is there: {outcome!r}"
            else:
                assert isinstance(outcome, _UNKNOWN), f"{name}: {outcome!r}"
                assert count <= 1, f"{name} is there {count} times"

    def check_records(self) -> None:
        """Check that all missing versions are recorded as removed."""
        location = self.location()
        present = {each.version for each in location.handler.list_versions(location.store)}
        removed = Removals.load(location.store).transactions
        missing = set(range(1, max(present))) - present - set(removed)
        assert not missing, f"versions {missing} were removed without a record"

    def check_files(self) -> None:
        """Check that the files of all versions exist."""
        location = self.location()
        for entry in location.handler.list_versions(location.store):
            for path in self.files(entry.version):
                assert location.store.exists(f"data/{path}"), f"{entry.version} needs {path}"


def two_commits_and_a_cleanup(stage: Stage) -> Scene:
    """A and B append while C deletes all versions but the latest."""

    def make() -> tuple[Cast, Callable[[Cast], None]]:
        cast = Cast()
        cast.add("a", lambda: stage.appending("a"))
        cast.add("b", lambda: stage.appending("b"))
        cast.add("c", stage.cleaning)

        def judge(cast: Cast) -> None:
            stage.check_appended(cast, "ab")
            stage.check_files()
            _check_outcome(cast, "c")

        return cast, judge

    return make


def a_commit_and_cleanups(stage: Stage) -> Scene:
    """A appends; B appends and cleans up, so it may use and free the version number of A."""

    def make() -> tuple[Cast, Callable[[Cast], None]]:
        cast = Cast()
        cast.add("a", lambda: stage.appending("a"))

        def others() -> Snapshot:
            done = stage.appending("b")
            commit(stage.location(), _transaction(done.version, ReserveFragments(1), 77))
            stage.cleaning()
            return done

        cast.add("b", others)

        def judge(cast: Cast) -> None:
            stage.check_appended(cast, "ab")
            stage.check_files()

        return cast, judge

    return make


def a_restore_and_a_cleanup(stage: Stage) -> Scene:
    """B restores version 2 while C removes it, and A appends to the latest version."""

    def make() -> tuple[Cast, Callable[[Cast], None]]:
        cast = Cast()
        cast.add("restore", stage.restoring)
        cast.add("c", stage.cleaning)

        def judge(cast: Cast) -> None:
            stage.check_files()
            outcome = cast.outcomes["restore"]
            if isinstance(outcome, Snapshot):
                assert stage.old_file in stage.files()
            elif isinstance(outcome, _REFUSED):
                assert stage.old_file not in stage.files()
            _check_outcome(cast, "c")

        return cast, judge

    return make


def a_tag_and_a_cleanup(stage: Stage) -> Scene:
    """B tags version 2 while C removes it."""

    def make() -> tuple[Cast, Callable[[Cast], None]]:
        cast = Cast()
        cast.add("tag", lambda: create_tag(stage.location(), "x", 2))
        cast.add("c", stage.cleaning)

        def judge(cast: Cast) -> None:
            stage.check_files()
            _check_outcome(cast, "c")
            outcome = cast.outcomes["tag"]
            has_tag = stage.location().store.exists("_refs/tags/x.json")
            if not isinstance(outcome, Exception):
                assert has_tag
            elif isinstance(outcome, _REFUSED):
                assert not has_tag
            if has_tag:
                assert stage.old_file in stage.files(2)

        return cast, judge

    return make


def a_moved_tag_and_a_cleanup(stage: Stage) -> Scene:
    """B moves a tag from version 3 to version 2 while C removes it."""

    def make() -> tuple[Cast, Callable[[Cast], None]]:
        cast = Cast()
        create_tag(stage.location(), "x", 3)
        cast.add("tag", lambda: update_tag(stage.location(), "x", 2))
        cast.add("c", stage.cleaning)

        def judge(cast: Cast) -> None:
            stage.check_files()
            _check_outcome(cast, "c")
            outcome, version = cast.outcomes["tag"], get_tag(stage.location(), "x").version
            if not isinstance(outcome, Exception):
                assert version == 2
            elif isinstance(outcome, _REFUSED):
                assert version == 3
            if version == 2:
                assert stage.old_file in stage.files(2)

        return cast, judge

    return make


def a_branch_and_a_cleanup(stage: Stage) -> Scene:
    """B creates a branch from version 2 while C removes it."""

    def make() -> tuple[Cast, Callable[[Cast], None]]:
        cast = Cast()
        main = stage.location()
        cast.add("branch", lambda: create_branch(main, "b", open_snapshot(stage.location(), 2)))
        cast.add("c", stage.cleaning)

        def judge(cast: Cast) -> None:
            stage.check_files()
            _check_outcome(cast, "c")
            outcome = cast.outcomes["branch"]
            has_branch = main.store.exists("_refs/branches/b.json")
            if not isinstance(outcome, Exception):
                assert has_branch
            elif isinstance(outcome, _REFUSED):
                assert not has_branch
            if has_branch:
                snapshot = open_snapshot(branch_location(main, "b"))
                files = [file.path for each in snapshot.fragments for file in each.files]
                assert stage.old_file in files
                assert main.store.exists(f"data/{stage.old_file}")

        return cast, judge

    return make


def a_tag_and_joined_records(stage: Stage) -> Scene:
    """B tags the version before the latest while C removes it; D commits and joins the records."""

    def make() -> tuple[Cast, Callable[[Cast], None]]:
        cast = Cast()
        tagged = stage.latest - 1

        def others() -> object:
            commit(stage.location(), _transaction(stage.latest, ReserveFragments(1), 77))
            return stage.cleaning()

        cast.add("c", stage.cleaning)
        cast.add("d", others)
        cast.add("tag", lambda: create_tag(stage.location(), "x", tagged))

        def judge(cast: Cast) -> None:
            stage.check_files()
            stage.check_records()
            if stage.location().store.exists("_refs/tags/x.json"):
                stage.files(tagged)
            else:
                assert isinstance(cast.outcomes["tag"], Exception)

        return cast, judge

    return make


def two_cleanups(stage: Stage) -> Scene:
    """C and D clean up, so that both may join the records; A appends."""
    return _appends_and_cleanups(stage, {"a": lambda: stage.appending("a"), "d": stage.cleaning})


def a_late_commit_and_joined_records(stage: Stage) -> Scene:
    """A appends; B appends and cleans up twice, so that the records are joined meanwhile."""

    def others() -> Snapshot:
        done = stage.appending("b")
        stage.cleaning()
        commit(stage.location(), _transaction(done.version, ReserveFragments(1), 77))
        stage.cleaning()
        return done

    return _appends_and_cleanups(stage, {"a": lambda: stage.appending("a"), "b": others}, last="")


def a_reader_and_vanishing_versions(stage: Stage) -> Scene:
    """R reads the latest version and its transaction, while B appends and cleans up; A appends."""

    def others() -> Snapshot:
        done = stage.appending("b")
        stage.cleaning()
        return done

    def reading() -> Snapshot:
        snapshot = open_snapshot(stage.location())
        assert snapshot.version >= stage.latest
        return snapshot

    actors: dict[str, Callable[[], object]] = {"b": others, "r": reading}
    return _appends_and_cleanups(stage, actors, last="")


def _appends_and_cleanups(
    stage: Stage, actors: Mapping[str, Callable[[], object]], last: str = "c"
) -> Scene:
    def make() -> tuple[Cast, Callable[[Cast], None]]:
        cast = Cast()
        for name, task in actors.items():
            cast.add(name, task)
        for name in last:
            cast.add(name, stage.cleaning)

        def judge(cast: Cast) -> None:
            stage.check_appended(cast, "".join(set(actors) & {"a", "b"}))
            stage.check_files()
            stage.check_records()
            for name in cast.outcomes.keys() - {"a", "b"}:
                _check_outcome(cast, name)

        return cast, judge

    return make


def an_external_store(stage: Stage, who: str = "abr") -> Scene:
    """A and B append through a database, and R reads the latest version."""

    def make() -> tuple[Cast, Callable[[Cast], None]]:
        cast = Cast()
        location = stage.location()
        records = SimulatedRecords(cast_to("SimulatedStore", location.store).machine)
        location = replace(location, handler=ExternalStore(records, MAIN))
        seen: list[Snapshot] = []
        tasks = {
            "a": lambda: stage.appending("a", location),
            "b": lambda: stage.appending("b", location),
            "r": lambda: seen.append(open_snapshot(location)),
        }
        for name in who:
            cast.add(name, tasks[name])

        def judge(cast: Cast) -> None:
            newest = open_snapshot(location)
            files = [file.path for each in newest.fragments for file in each.files]
            assert len(files) == len(set(files))
            for name in set(who) & {"a", "b"}:
                outcome = cast.outcomes[name]
                is_there = stage.fragments[name].files[0].path in files
                assert is_there or not isinstance(outcome, Snapshot), f"{name}: {outcome!r}"
                assert not (is_there and isinstance(outcome, _REFUSED)), f"{name}: {outcome!r}"
            for each in seen:
                assert each.version <= newest.version, "a reader saw an unknown version"
                assert open_snapshot(location, each.version).identity == each.identity
            # A listing of the folder returns all versions of the database.
            assert open_snapshot(stage.location()).version == newest.version

        return cast, judge

    return make


def _check_outcome(cast: Cast, name: str) -> None:
    outcome = cast.outcomes[name]
    if isinstance(outcome, Exception):
        assert isinstance(outcome, (*_UNKNOWN, ObjectNotFoundError)), repr(outcome)


def _transaction(read_version: int, operation: Operation, number: int) -> Transaction:
    return Transaction(read_version, str(uuid.UUID(int=number)), operation)
