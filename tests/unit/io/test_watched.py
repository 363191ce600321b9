"""Listings kept current by inotify equal listings read from the directory."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.io import watched
from lancelet.io.watched import WatchedFolders

MANY = 20


@pytest.fixture(autouse=True, scope="module")
def watches_from_few_names() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(watched, "_WATCHED_FROM", MANY)
        yield


@pytest.fixture
def folders() -> Iterator[WatchedFolders]:
    if sys.platform != "linux":
        pytest.skip("inotify is part of Linux")
    folders = WatchedFolders()
    yield folders
    folders._forget()


@pytest.fixture
def listings(monkeypatch) -> list[object]:
    """The directories that were read."""
    read: list[object] = []
    listdir = os.listdir

    def count(folder):
        read.append(folder)
        return listdir(folder)

    monkeypatch.setattr(watched.os, "listdir", count)
    return read


@pytest.fixture
def large(tmp_path):
    for number in range(MANY):
        (tmp_path / f"{number:04}").touch()
    return tmp_path


def start(folders: WatchedFolders, folder) -> None:
    """List a directory until it is watched."""
    for _ in range(2):
        assert folders.list_names(str(folder)) == names_in(folder)


def check(folders: WatchedFolders, folder) -> None:
    assert folders.list_names(str(folder)) == names_in(folder)


def names_in(folder) -> list[str]:
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries)


def test_a_large_directory_is_read_twice(folders, large, listings):
    for _ in range(5):
        folders.list_names(str(large))
    assert len(listings) == 2


def test_a_small_directory_is_not_watched(folders, tmp_path, listings):
    for _ in range(5):
        folders.list_names(str(tmp_path))
    assert len(listings) == 5


def test_a_directory_of_a_network_drive_is_not_watched(folders, large, listings, monkeypatch):
    monkeypatch.setattr(watched, "_LOCAL_FILE_SYSTEMS", frozenset())
    for _ in range(5):
        folders.list_names(str(large))
    assert not folders._folders
    assert large.name in str(listings[-1])


def test_names_follow_changes_without_another_read(folders, large, listings):
    start(folders, large)
    listings.clear()
    (large / "a").touch()
    (large / "0007").unlink()
    (large / "0008").rename(large / "b")
    (large / "0009").rename(large / "0010")
    os.link(large / "a", large / "c")
    (large / "d").mkdir()
    outside = large.parent / "outside"
    (large / "0011").rename(outside)
    names = folders.list_names(str(large))
    assert not listings
    assert names == names_in(large)


def test_lists_that_were_returned_do_not_change(folders, large):
    start(folders, large)
    before = folders.list_names(str(large))
    copy = list(before)
    (large / "a").touch()
    check(folders, large)
    assert before == copy


def test_changes_of_other_processes_are_seen(folders, large):
    start(folders, large)
    code = f"import os; os.chdir({str(large)!r}); os.rename('0001', 'x'); open('y', 'w').close()"
    subprocess.run([sys.executable, "-c", code], check=True)
    check(folders, large)


@pytest.mark.parametrize("moved", ["folder", "parent"])
def test_another_directory_at_the_path_is_listed(folders, tmp_path, moved):
    folder = tmp_path / "parent" / "folder"
    folder.mkdir(parents=True)
    for number in range(MANY):
        (folder / str(number)).touch()
    start(folders, folder)
    target = folder if moved == "folder" else folder.parent
    target.rename(tmp_path / "elsewhere")
    folder.mkdir(parents=True)
    (folder / "new").touch()
    assert folders.list_names(str(folder)) == ["new"]


def test_a_deleted_directory_is_missing(folders, large):
    start(folders, large)
    for file in large.iterdir():
        file.unlink()
    assert folders.list_names(str(large)) == []
    large.rmdir()
    with pytest.raises(FileNotFoundError):
        folders.list_names(str(large))


def test_one_directory_has_several_paths(folders, large, listings):
    start(folders, large)
    link = large.parent / "link"
    link.symlink_to(large)
    listings.clear()
    (large / "a").touch()
    assert "a" in folders.list_names(str(link))
    assert not listings


def test_lost_events_cause_another_read(folders, large, listings, monkeypatch):
    start(folders, large)
    listings.clear()
    (large / "a").touch()
    overflow = watched._EVENT.pack(-1, watched._OVERFLOW, 0, 0)
    events = iter([overflow, b""])
    monkeypatch.setattr(watched, "_read", lambda _: next(events))
    assert "a" in folders.list_names(str(large))
    assert len(listings) == 1


def test_changes_without_events_cause_another_read(folders, large, monkeypatch):
    start(folders, large)
    check(folders, large)
    monkeypatch.setattr(watched, "_read", lambda _: b"")
    (large / "a").touch()
    os.utime(large, ns=(0, 0))
    check(folders, large)


def test_the_least_recently_listed_directories_are_not_watched(folders, tmp_path, monkeypatch):
    monkeypatch.setattr(watched, "_WATCHED_FROM", 0)
    monkeypatch.setattr(watched, "_WATCHED_MAX", 2)
    several = [tmp_path / name for name in "abc"]
    for folder in several:
        folder.mkdir()
        start(folders, folder)
    assert len(folders._folders) == 2
    for folder in several:
        (folder / "file").touch()
        assert folders.list_names(str(folder)) == ["file"]


FORK = """
import os, sys
from pathlib import Path
from lancelet.io import watched

watched._WATCHED_FROM = 0
folder = sys.argv[1]
for _ in range(2):
    watched.WATCHED.list_names(folder)
assert watched.WATCHED._folders
Path(folder, "a").touch()
child = os.fork()
if not child:
    is_fresh = not watched.WATCHED._folders and watched.WATCHED._events < 0
    os._exit(0 if is_fresh and "a" in watched.WATCHED.list_names(folder) else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert watched.WATCHED.list_names(folder) == sorted(os.listdir(folder))
"""


def test_a_forked_child_takes_no_events_of_its_parent(folders, large):
    subprocess.run([sys.executable, "-c", FORK, str(large)], check=True)


def test_threads_see_their_own_changes(folders, large):
    start(folders, large)
    missing: list[str] = []

    def change(name: str) -> None:
        for _ in range(50):
            (large / name).touch()
            if name not in folders.list_names(str(large)):
                missing.append(name)
            (large / name).unlink()
            if name in folders.list_names(str(large)):
                missing.append(name)

    threads = [threading.Thread(target=change, args=(f"t{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not missing
    check(folders, large)


NAMES = st.sampled_from("abcde")
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("put"), NAMES, NAMES),
        st.tuples(st.just("delete"), NAMES, NAMES),
        st.tuples(st.just("move"), NAMES, NAMES),
        st.tuples(st.just("list"), NAMES, NAMES),
    ),
    max_size=30,
)


@given(CHANGES)
def test_any_changes_give_the_names_that_are_there(tmp_path_factory, changes):
    if sys.platform != "linux":
        pytest.skip("inotify is part of Linux")
    folder = tmp_path_factory.mktemp("watched")
    for number in range(MANY):
        (folder / f"{number:04}").touch()
    folders = WatchedFolders()
    try:
        start(folders, folder)
        for kind, name, other in changes:
            if kind == "put":
                (folder / name).touch()
            elif kind == "delete":
                (folder / name).unlink(missing_ok=True)
            elif kind == "move" and (folder / name).exists():
                (folder / name).rename(folder / other)
            elif kind == "list":
                check(folders, folder)
        check(folders, folder)
    finally:
        folders._forget()
