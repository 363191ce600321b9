"""Names are unique, and deleting a branch deletes its own files only."""

from datetime import UTC, datetime, timedelta

import pytest

from lancelet.errors import (
    CorruptDataError,
    InvalidInputError,
    ObjectNotFoundError,
    RefNotFoundError,
    VersionNotFoundError,
)
from lancelet.table.clone import shallow_clone
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
    main_location,
    open_as_of,
    open_reference,
    replace_branch_metadata,
    replace_tag_metadata,
    update_tag,
)
from lancelet.table.snapshot import open_snapshot
from tests.kit.faults import FaultyStore
from tests.kit.tables import SIMPLE_SCHEMA, append_rows, create_table, simple_rows


@pytest.fixture
def main(tmp_path):
    location = TableLocation.open(str(tmp_path / "t.lance"), {"local_sync": "false"})
    first = create_table(location, SIMPLE_SCHEMA, simple_rows(0, 3))
    append_rows(location, first, simple_rows(3, 5))
    return location


def test_a_tag_is_made_moved_and_removed(main):
    made = create_tag(main, "v1", 1)
    assert made.manifest_bytes == open_snapshot(main, 1).entry.size
    assert open_reference(main, "v1").num_rows == 3
    with pytest.raises(RefExistsError):
        create_tag(main, "v1", 2)
    moved = update_tag(main, "v1", 2)
    assert moved.created_at_ns == made.created_at_ns
    assert moved.updated_at_ns > made.updated_at_ns
    assert open_reference(main, "v1").num_rows == 5
    assert replace_tag_metadata(main, "v1", {"why": "release"}).metadata == {"why": "release"}
    assert list_tags(main) == {"v1": get_tag(main, "v1")}
    delete_tag(main, "v1")
    assert list_tags(main) == {}
    for action in (lambda: delete_tag(main, "v1"), lambda: update_tag(main, "v1", 1)):
        with pytest.raises(RefNotFoundError):
            action()
    for name, version, error in (
        ("v2", 9, VersionNotFoundError),
        ("v 2", 1, InvalidInputError),
    ):
        with pytest.raises(error):
            create_tag(main, name, version)
    with pytest.raises(RefNotFoundError):
        create_tag(main, "v2", 1, branch="nowhere")


def test_writes_to_a_branch_do_not_change_the_main_table(main):
    branch = create_branch(main, "dev/x", open_snapshot(main, 1))
    assert (branch.version, branch.num_rows, branch.manifest.branch) == (1, 3, "dev/x")
    latest = append_rows(branch.location, branch, simple_rows(9, 10))
    assert (latest.version, latest.num_rows) == (2, 4)
    assert open_snapshot(main).num_rows == 5
    assert open_reference(main, ("dev/x", None)).version == 2
    assert open_reference(main, ("dev/x", 1)).num_rows == 3
    assert open_reference(main, ("main", 1)).num_rows == 3
    assert main_location(latest) is main
    opened = open_snapshot(TableLocation.open(f"{main.uri}/tree/dev/x"))
    assert main_location(opened).uri == main.uri
    create_tag(main, "on-branch", 2, "dev/x")
    assert open_reference(main, "on-branch").num_rows == 4


def test_branches_of_branches_remember_the_way(main):
    parent = create_branch(main, "a", open_snapshot(main))
    child = create_branch(main, "a/b", parent)
    assert child.num_rows == 5
    found = list_branches(main)
    assert set(found) == {"a", "a/b"}
    assert found["a/b"].parent_branch == "a"
    assert found["a/b"].identifier[:1] == found["a"].identifier
    assert replace_branch_metadata(main, "a", {"k": "v"}).metadata == {"k": "v"}
    with pytest.raises(RefExistsError):
        create_branch(main, "a", parent)
    with pytest.raises(RefNotFoundError):
        open_reference(main, ("missing", None))


def test_a_branch_that_is_needed_stays(main):
    parent = create_branch(main, "a", open_snapshot(main))
    create_branch(main, "b", parent)
    create_tag(main, "v", 2, "b")
    for name in ("a", "b"):
        with pytest.raises(RefInUseError) as caught:
            delete_branch(main, name)
        assert caught.value.facts["branches"] or caught.value.facts["tags"]
    delete_tag(main, "v")
    delete_branch(main, "b")
    delete_branch(main, "a")
    assert not list(main.store.list("tree"))
    with pytest.raises(RefNotFoundError):
        delete_branch(main, "a")
    assert open_snapshot(main).num_rows == 5


def test_deleting_a_branch_retains_nested_branches(main):
    outer = create_branch(main, "dev", open_snapshot(main))
    append_rows(outer.location, outer, simple_rows(7, 8))
    create_branch(main, "dev/x", open_snapshot(main))
    delete_branch(main, "dev")
    assert set(list_branches(main)) == {"dev/x"}
    assert open_reference(main, ("dev/x", None)).num_rows == 5
    assert {info.path.split("/")[2] for info in main.store.list("tree")} == {"x"}
    assert create_branch(main, "dev", open_snapshot(main)).num_rows == 5


def test_a_branch_whose_creator_died_can_be_deleted(main):
    shallow_clone(open_snapshot(main), branch_location(main, "dead"), branch="dead")
    with pytest.raises(RefExistsError, match="interrupted"):
        create_branch(main, "dead", open_snapshot(main))
    with pytest.raises(RefNotFoundError):
        get_branch(main, "dead")
    delete_branch(main, "dead")
    assert create_branch(main, "dead", open_snapshot(main)).num_rows == 5


def test_a_branch_that_was_copied_elsewhere_does_not_guess_its_main_table(main, tmp_path):
    create_branch(main, "dev", open_snapshot(main))
    elsewhere = TableLocation.open(str(tmp_path / "copy"))
    for info in main.store.list("tree/dev/_versions"):
        elsewhere.store.put(info.path.removeprefix("tree/dev/"), main.store.read(info.path))
    with pytest.raises(CorruptDataError, match="does not match its name"):
        main_location(open_snapshot(elsewhere))


def test_the_version_of_a_moment_is_the_last_one_before(main):
    moment = open_snapshot(main, 1).manifest.timestamp
    assert open_as_of(main, moment).version == 1
    assert open_as_of(main, datetime.now(UTC)).version == 2
    with pytest.raises(VersionNotFoundError, match="earlier than the first"):
        open_as_of(main, moment - timedelta(hours=1))


def test_a_fault_while_a_branch_is_made_leaves_all_or_no_name(main):
    source = open_snapshot(main)
    for request in range(40):
        store = FaultyStore(main.store, "refuse", at=request)
        faulty = TableLocation(main.uri, store)
        name = f"b{request}"
        try:
            create_branch(faulty, name, source)
        except OSError:
            assert name not in list_branches(main)
            with pytest.raises((RefNotFoundError, ObjectNotFoundError)):
                open_reference(main, (name, None))
        if not store.fired:
            break
    assert store.requests > 5
    assert open_reference(main, (name, None)).num_rows == 5
