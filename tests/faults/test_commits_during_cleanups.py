"""Goal: commits delayed during cleanups lose, duplicate and destroy nothing.

Method: a commit is held up right before or right after the request that publishes it, and may lose
the reply to it; meanwhile others commit and clean up all but the newest version, so that the
number it was about to use is free again. Then what was acknowledged is there exactly once, and
what was refused is not.
"""

from __future__ import annotations

import contextlib
import itertools
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial

import lance
import pyarrow as pa
import pytest

import lancelet
from lancelet.errors import (
    CommitConflictError,
    CommitOutcomeUnknownError,
    NotFoundError,
    VersionNotFoundError,
)
from lancelet.format.operation import Append, Overwrite, ReserveFragments, Restore
from lancelet.io.memory import MemoryStore
from lancelet.io.wrapped import WrappedStore
from lancelet.table.commit import CommitOptions, commit
from lancelet.table.handlers import PutIfAbsent
from lancelet.table.location import TableLocation
from lancelet.table.refs import (
    create_branch,
    create_tag,
    delete_branch,
    delete_tag,
    list_branches,
    list_tags,
    open_reference,
)
from lancelet.table.removals import Removals
from lancelet.table.snapshot import open_snapshot
from lancelet.upkeep.cleanup import CleanupPolicy, cleanup_old_versions, plan_cleanup, run_cleanup
from tests.kit.s3_server import S3Server
from tests.kit.tables import (
    SIMPLE_SCHEMA,
    append_rows,
    create_table,
    new_transaction,
    simple_rows,
    write_fragment,
)

NO_SYNC = {"local_sync": "false"}

STEPS = ("before", "after", "before and lost", "after and lost")


class HeldUp(PutIfAbsent):
    """Publishes, and lets others work first or afterwards, once."""

    step = "before"
    meanwhile: Callable[[], object] | None = None

    def publish(self, store, path, data, *, version):
        meanwhile, HeldUp.meanwhile = HeldUp.meanwhile, None
        if meanwhile is None:
            super().publish(store, path, data, version=version)
            return
        if HeldUp.step.startswith("before"):
            meanwhile()
        super().publish(store, path, data, version=version)
        if HeldUp.step.startswith("after"):
            meanwhile()
        if HeldUp.step.endswith("lost"):
            raise CommitOutcomeUnknownError("this reply was made to be lost")


@pytest.fixture(autouse=True)
def nobody_is_held_up():
    yield
    HeldUp.meanwhile = None


@pytest.fixture(scope="module")
def s3():
    with S3Server("bucket") as server:
        yield server


@pytest.fixture(params=["local", "memory", "s3"])
def location(tmp_path, request):
    if request.param == "local":
        return TableLocation.open(str(tmp_path / "t"), NO_SYNC)
    if request.param == "s3":
        options = request.getfixturevalue("s3").storage_options
        return TableLocation.open(f"s3://bucket/{tmp_path.name}", options)
    return TableLocation(f"memory://{tmp_path.name}/t", MemoryStore(f"{tmp_path}", "t"))


def hold_up(step: str, meanwhile: Callable[[], object]) -> None:
    HeldUp.step, HeldUp.meanwhile = step, meanwhile


def clean_up(location: TableLocation) -> None:
    cleanup_old_versions(open_snapshot(location), CleanupPolicy(error_if_tagged_old_versions=False))


def others_commit(location: TableLocation, count: int, ids: itertools.count[int]) -> None:
    for _ in range(count):
        row = next(ids)
        append_rows(location, open_snapshot(location), simple_rows(row, row + 1))


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("count", [1, 3, 40])
def test_an_append_that_is_held_up_is_there_once_or_rejected(location, step, count) -> None:
    first = create_table(location, SIMPLE_SCHEMA, simple_rows(0, 1))
    others = itertools.count(100)

    def meanwhile() -> None:
        others_commit(location, count, others)
        clean_up(location)

    hold_up(step, meanwhile)
    acknowledged = False
    with contextlib.suppress(CommitConflictError):
        append_rows(replace(location, handler=HeldUp()), first, simple_rows(7, 8))
        acknowledged = True
    assert HeldUp.meanwhile is None
    expected = {0, *range(100, 100 + count)} | ({7} if acknowledged else set())
    snapshot = open_snapshot(location)
    found = [file.path for fragment in snapshot.fragments for file in fragment.files]
    assert len(set(found)) == len(found) == snapshot.num_rows == len(expected)
    assert all(location.store.exists(f"data/{path}") for path in found)
    versions = [entry.version for entry in location.handler.list_versions(location.store)]
    assert max(versions) == snapshot.version >= 1 + count
    # With one version by others, its number is not free again, and the store refuses ours.
    assert acknowledged == (step.startswith("after") or count == 1)


def test_a_commit_returns_the_manifest_that_arrived_of_those_it_put(location) -> None:
    """Both puts lost their reply, and the first arrived before the second."""
    first = create_table(location, SIMPLE_SCHEMA, simple_rows(0, 1))
    sent = []

    class Late(PutIfAbsent):
        def publish(self, store, path, data, *, version):
            del version
            sent.append(data)
            if len(sent) == 2:
                store.put_if_absent(path, sent[0])
            raise CommitOutcomeUnknownError("this reply was made to be lost")

    published = append_rows(replace(location, handler=Late()), first, simple_rows(1, 2))
    assert len(sent) == 2
    assert sent[0] != sent[1]
    stored = open_snapshot(location)
    assert published.identity == stored.identity
    # So that it can be gone on from.
    options = CommitOptions(snapshot=published)
    assert commit(location, new_transaction(2, ReserveFragments(1)), options).version == 3


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("count", [1, 3])
def test_an_update_that_is_held_up_is_made_once(tmp_path, monkeypatch, step, count) -> None:
    """Work that is done again from the latest version must surely not have been done before."""
    uri = str(tmp_path / "t")
    dataset = lancelet.write_dataset(pa.table({"id": [1, 2], "v": [0, 0]}), uri)
    publish = PutIfAbsent.publish

    def meanwhile() -> None:
        for row in range(count):
            lancelet.write_dataset(pa.table({"id": [10 + row], "v": [5]}), uri, mode="append")
        clean_up(TableLocation.open(uri))

    def held_up(handler, store, path, data, *, version):
        monkeypatch.setattr(PutIfAbsent, "publish", publish)
        hold_up(step, meanwhile)
        HeldUp().publish(store, path, data, version=version)

    monkeypatch.setattr(PutIfAbsent, "publish", held_up)
    dataset.update({"v": "v + 1"}, where="id < 10")
    found = dict(lance.dataset(uri).to_table().to_pydict().items())
    expected = {1: 1, 2: 1} | {10 + row: 5 for row in range(count)}
    assert dict(zip(found["id"], found["v"], strict=True)) == expected


@pytest.mark.parametrize("step", STEPS)
def test_delayed_rows_are_appended_to_the_current_version(tmp_path, monkeypatch, step) -> None:
    uri = str(tmp_path / "t")
    dataset = lancelet.write_dataset(pa.table({"id": [0]}), uri)
    publish = PutIfAbsent.publish

    def meanwhile() -> None:
        for row in (1, 2, 3):
            lancelet.write_dataset(pa.table({"id": [row]}), uri, mode="append")
        clean_up(TableLocation.open(uri))

    def held_up(handler, store, path, data, *, version):
        monkeypatch.setattr(PutIfAbsent, "publish", publish)
        hold_up(step, meanwhile)
        HeldUp().publish(store, path, data, version=version)

    monkeypatch.setattr(PutIfAbsent, "publish", held_up)
    dataset.insert(pa.table({"id": [9]}))
    assert sorted(lance.dataset(uri).to_table()["id"].to_pylist()) == [0, 1, 2, 3, 9]


@pytest.mark.parametrize("step", STEPS)
def test_a_compaction_that_is_held_up_destroys_nothing(tmp_path, monkeypatch, step) -> None:
    uri = str(tmp_path / "t")
    for row in range(4):
        lancelet.write_dataset(pa.table({"id": [row]}), uri, mode="append")
    publish, calls = PutIfAbsent.publish, itertools.count()

    def meanwhile() -> None:
        for row in (10, 11, 12):
            lancelet.write_dataset(pa.table({"id": [row]}), uri, mode="append")
        clean_up(TableLocation.open(uri))

    def held_up(handler, store, path, data, *, version):
        if next(calls) != 1:  # the first publishes the reservation of ids
            publish(handler, store, path, data, version=version)
            return
        monkeypatch.setattr(PutIfAbsent, "publish", publish)
        hold_up(step, meanwhile)
        HeldUp().publish(store, path, data, version=version)

    dataset = lancelet.dataset(uri)
    monkeypatch.setattr(PutIfAbsent, "publish", held_up)
    with contextlib.suppress(CommitConflictError):
        dataset.optimize.compact_files()
    assert next(calls) >= 2
    found = lance.dataset(uri)
    found.validate()
    assert sorted(found.to_table()["id"].to_pylist()) == [0, 1, 2, 3, 10, 11, 12]


def test_after_a_cleanup_the_content_decides_or_the_outcome_is_unknown(tmp_path) -> None:
    """Another library leaves no record, and what it writes does not say what it follows."""
    location = TableLocation.open(str(tmp_path / "t"), NO_SYNC)
    first = create_table(location, SIMPLE_SCHEMA, simple_rows(0, 1))

    def meanwhile() -> None:
        for row in (1, 2, 3):
            lance.write_dataset(simple_rows(row, row + 1), location.uri, mode="append")
        lance.dataset(location.uri).cleanup_old_versions(retain_versions=1, delete_unverified=False)

    for step, transaction_lands in (("before", False), ("after", True)):
        base = open_snapshot(location)
        hold_up(step, meanwhile)
        held = replace(location, handler=HeldUp())
        if transaction_lands:
            published = append_rows(held, base, simple_rows(8, 9))
            assert published.version == base.version + 1
        else:
            with pytest.raises(CommitOutcomeUnknownError, match="it is unknown whether"):
                append_rows(held, base, simple_rows(7, 8))
        ids = lance.dataset(location.uri).to_table()["id"].to_pylist()
        assert ids.count(8 if transaction_lands else 7) == transaction_lands
    assert first.version == 1


def test_a_late_manifest_is_no_version_for_anybody(location) -> None:
    """Its writer died before it found out; others neither judge it nor delete its files."""
    first = create_table(location, SIMPLE_SCHEMA, simple_rows(0, 1))
    second = append_rows(location, first, simple_rows(1, 2))
    late = location.store.read(second.entry.path)
    third = append_rows(location, second, simple_rows(2, 3))
    others_commit(location, 2, itertools.count(3))
    clean_up(location)
    recorded = Removals.load(location.store).transactions
    assert recorded[2] == second.manifest.transaction_file
    location.store.put(third.entry.path, late)
    with pytest.raises(CommitConflictError, match="cleaned up"):
        commit(location, new_transaction(2, ReserveFragments(1)))
    plan = plan_cleanup(open_snapshot(location), CleanupPolicy())
    assert [file.path for file in plan.candidates] == [third.entry.path]
    run_cleanup(plan, CleanupPolicy())
    assert not location.store.exists(third.entry.path)
    assert Removals.load(location.store).transactions == recorded


@pytest.mark.parametrize("refer", ["tag", "branch", "restore", "detached"])
@pytest.mark.parametrize("when", ["cleaned up before", "recorded before", "held before"])
def test_references_hold_their_version_or_fail(location, monkeypatch, refer, when) -> None:
    first = create_table(location, SIMPLE_SCHEMA, simple_rows(0, 1))
    old = commit(location, new_transaction(1, ReserveFragments(1)))
    overwrite = new_transaction(2, Restore(1))
    assert commit(location, overwrite).version == 3
    commit(location, new_transaction(3, ReserveFragments(1)))
    policy = CleanupPolicy(error_if_tagged_old_versions=False)

    def do() -> object:
        match refer:
            case "tag":
                return create_tag(location, "x", 2)
            case "branch":
                return create_branch(location, "x", old)
            case "restore":
                return commit(location, new_transaction(4, Restore(2)))
            case _:
                options = CommitOptions(detached=True)
                return commit(location, new_transaction(2, ReserveFragments(1)), options)

    plan = plan_cleanup(open_snapshot(location), policy)
    if when == "cleaned up before":
        run_cleanup(plan, policy)
        with pytest.raises(VersionNotFoundError):
            do()
    elif when == "recorded before":
        from lancelet.upkeep.cleanup import run  # only here

        look = run.referred_since

        def interrupted(plan):
            with pytest.raises(VersionNotFoundError):
                do()
            return look(plan)

        monkeypatch.setattr(run, "referred_since", interrupted)
        run_cleanup(plan, policy)
        assert location.handler.list_versions(location.store)[0].version == 4
    else:
        do()
        run_cleanup(plan, policy)
        kept = {entry.version for entry in location.handler.list_versions(location.store)}
        assert (2 in kept) == (refer == "tag")
        if refer == "tag":
            assert open_reference(location, "x").version == 2
            assert 2 not in Removals.load(location.store).transactions
        open_snapshot(location)
    assert not [info for info in location.store.list("_versions") if ".hold" in info.path]
    assert first.version == 1


@pytest.mark.parametrize("kind", ["tag", "branch"])
def test_a_name_that_is_deleted_while_names_are_listed_is_left_out(location, kind) -> None:
    first = create_table(location, SIMPLE_SCHEMA, simple_rows(0, 1))
    for name in ("a", "b"):
        create_tag(location, name, 1) if kind == "tag" else create_branch(location, name, first)
    delete, names = (delete_tag, list_tags) if kind == "tag" else (delete_branch, list_branches)

    class Meanwhile(WrappedStore):
        def list(self, folder="", start_after=None):
            listed = list(super().list(folder, start_after))
            if folder.startswith("_refs/") and location.store.exists(f"{folder}/a.json"):
                delete(location, "a")
            return iter(listed)

    class Nothing:
        def request(self, _request, action):
            return action()

    assert list(names(replace(location, store=Meanwhile(location.store, Nothing())))) == ["b"]


HANDLE_CHANGES = {
    "insert": lambda dataset: dataset.insert(pa.table({"id": [4]})),
    "delete": lambda dataset: dataset.delete("id = 1"),
    "update": lambda dataset: dataset.update({"id": "id + 1"}),
    "merge": lambda dataset: (
        dataset.merge_insert("id").when_not_matched_insert_all().execute(pa.table({"id": [4]}))
    ),
    "add a column": lambda dataset: dataset.add_columns({"new": "id + 1"}),
    "index": lambda dataset: dataset.create_scalar_index("id", "BTREE"),
    "overwrite": lambda dataset: lancelet.write_dataset(
        pa.table({"id": [4]}), dataset, mode="overwrite"
    ),
    "repair": lambda dataset: dataset.repair(rebuild_counts=True, dry_run=False),
    "commit": lambda dataset: lancelet.LanceDataset.commit(
        dataset, lancelet.LanceOperation.Append([]), read_version=dataset.version
    ),
    "compact": lambda dataset: dataset.optimize.compact_files(),
    "restore": lambda dataset: dataset.restore(),
    "clean up": lambda dataset: dataset.cleanup_old_versions(timedelta(0), delete_unverified=True),
    "tag": lambda dataset: dataset.tags.create("t", 1),
    "delete a tag": lambda dataset: dataset.tags.delete("kept"),
    "branch": lambda dataset: dataset.create_branch("b", 1),
    "delete a branch": lambda dataset: dataset.branches.delete("kept"),
    "delete of a fragment": lambda dataset: dataset.get_fragment(0).delete("id = 1"),
    "delete rows of a fragment": lambda dataset: dataset.get_fragment(0).delete_rows([0]),
    "add columns to a fragment": lambda dataset: dataset.get_fragment(0).merge_columns(
        {"new": "id + 1"}
    ),
    "join columns to a fragment": lambda dataset: dataset.get_fragment(0).merge(
        pa.table({"id": [1], "new": [2]}), "id"
    ),
    "update columns of a fragment": lambda dataset: dataset.get_fragment(0).update_columns(
        pa.table({"key": [1], "id": [2]}), "id", "key"
    ),
    "write fragments": lambda dataset: lancelet.fragment.write_fragments(
        pa.table({"id": [4]}), dataset
    ),
    "create a fragment": lambda dataset: lancelet.LanceFragment.create(
        dataset, pa.table({"id": [4]})
    ),
    "index of a fragment": lambda dataset: dataset.create_index_uncommitted(
        "id", "BTREE", fragment_ids=[0]
    ),
    "part of an index": lambda dataset: dataset.create_scalar_index(
        "text", "INVERTED", fragment_ids=[0], index_uuid=str(uuid.uuid4())
    ),
}


@pytest.mark.parametrize("change", HANDLE_CHANGES)
@pytest.mark.parametrize("fate", ["gone", "made again", "made again and longer"])
def test_a_handle_does_not_change_another_table_at_its_path(tmp_path, change, fate) -> None:
    uri = tmp_path / "t"
    dataset = lancelet.write_dataset(pa.table({"id": [1, 2], "text": ["a", "b"]}), uri)
    dataset.insert(pa.table({"id": [3]}))
    dataset = lancelet.dataset(uri)
    assert dataset.to_table().num_rows == 3  # what is kept of its files can still be read
    uri.rename(tmp_path / "elsewhere")
    if fate != "gone":
        again = lancelet.write_dataset(pa.table({"id": [50]}), uri)
        again.insert(pa.table({"id": [51]}))
        again.tags.create("kept", 1)
        again.create_branch("kept")
    if fate == "made again and longer":
        for _ in range(3):
            lancelet.write_dataset(pa.table({"id": [51]}), uri, mode="append")
    names = set(uri.rglob("*"))
    with pytest.raises(NotFoundError):
        HANDLE_CHANGES[change](dataset)
    assert set(uri.rglob("*")) == names


@pytest.mark.parametrize("operation", [Append, partial(Overwrite, schema=SIMPLE_SCHEMA)])
@pytest.mark.parametrize("fate", ["gone", "made again", "made again and longer", "longer"])
def test_a_commit_goes_to_the_table_whose_version_was_read(location, operation, fate) -> None:
    """Goal: so it is where only the number and the identity of the version travelled."""
    create_table(location, SIMPLE_SCHEMA, simple_rows(0, 1))
    read = append_rows(location, open_snapshot(location), simple_rows(1, 2))
    if fate != "longer":
        location.store.delete_folder("")
    if fate.startswith("made again"):
        create_table(location, SIMPLE_SCHEMA, simple_rows(50, 51))
        append_rows(location, open_snapshot(location), simple_rows(51, 52))
    if fate.endswith("longer"):
        others_commit(location, 33, itertools.count(60))  # more than the nearest ancestors
    fragment = write_fragment(location, simple_rows(2, 3), SIMPLE_SCHEMA)
    transaction = new_transaction(read.version, operation((fragment,)))
    options = CommitOptions(read_identity=read.identity)
    if fate == "longer":
        assert commit(location, transaction, options).version == read.version + 34
        return
    before = list(location.store.list("_versions"))
    with pytest.raises(NotFoundError):
        commit(location, transaction, options)
    assert list(location.store.list("_versions")) == before
