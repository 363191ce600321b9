import errno
import os
import pickle
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from threading import Barrier, Event
from typing import Any

import numpy as np
import pytest

from lancelet.buffers import ByteRanges
from lancelet.errors import (
    AlreadyExistsError,
    CorruptDataError,
    InvalidInputError,
    StorageError,
    StorageUnavailableError,
)
from lancelet.io import durable, open_folder, unfinished
from lancelet.io.local import LocalStore, native_path
from lancelet.io.memory import MemoryStore
from lancelet.kernels import NATIVE

if sys.platform != "win32":
    import fcntl


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path)


@pytest.mark.skipif(not NATIVE, reason="only the native module guards maps")
def test_a_map_is_read_in_place_and_cached_bytes_are_copies(store: LocalStore):
    store.put("a", bytes(100_000))
    with store.open_reader("a") as reader:
        mapped = reader.mapped()
        assert mapped is not None
        first = mapped.fetch(ByteRanges.of((5, 10)))
        second = mapped.fetch(ByteRanges.of((50_000, 10)))
        kept = reader.read_ranges(ByteRanges.of((5, 10), (50_000, 10)))
    assert first.source is second.source is mapped.source
    assert first.source.nbytes == 100_000
    assert not first.source.flags.writeable
    assert kept.source.nbytes == 20
    assert not np.shares_memory(kept.source, mapped.source)


def test_closed_reader_holds_no_descriptor(store: LocalStore):
    store.put("a", b"x" * 5000)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(20):
        reader = store.open_reader("a")
        reader.read_tail(5)
        reader.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_file_that_shrinks_is_an_error_and_not_a_crash(store: LocalStore, tmp_path: Path):
    store.put("a", bytes(100_000))
    with store.open_reader("a") as reader:
        os.truncate(tmp_path / "a", 10)
        with pytest.raises(CorruptDataError) as caught:
            reader.read_ranges(ByteRanges.of((0, 4)))
        assert caught.value.facts["file_bytes"] == 10
        with pytest.raises(CorruptDataError):
            reader.read_tail(4)


def test_large_cold_ranges_are_read_in_the_background(store: LocalStore, tmp_path: Path):
    data = np.random.default_rng(1).integers(0, 256, 9 << 20, np.uint8)
    store.put("a", data)
    with (tmp_path / "a").open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    with store.open_reader("a") as reader:
        slices = reader.read_ranges(ByteRanges.of((1, len(data) - 1)))
    assert (slices.slice_bytes(0) == data[1:]).all()


@pytest.fixture
def only_hidden(monkeypatch):
    """A system without files that have no name."""
    monkeypatch.setattr(durable, "start_unfinished", unfinished.HiddenFile)


@pytest.mark.usefixtures("only_hidden")
def test_unfinished_files_are_hidden_and_swept(store: LocalStore, tmp_path: Path):
    writer = store.open_writer("data/a")
    writer.write(b"x")
    (hidden,) = [path.name for path in (tmp_path / "data").iterdir()]
    assert re.fullmatch(r"\.lancelet-tmp-[0-9a-f]{32}", hidden)
    assert list(store.list()) == []
    assert store.list_delimited("data").objects == ()
    assert store.sweep_temporaries(older_than_seconds=3600) == 0
    old = time.time() - 7200
    os.utime(tmp_path / "data" / hidden, (old, old))
    assert store.sweep_temporaries("data", older_than_seconds=3600) == 1
    assert list((tmp_path / "data").iterdir()) == []
    writer.abort()


def test_folders_that_stay_empty_are_swept(tmp_path):
    store = LocalStore(str(tmp_path))
    for path in ("_indices/a/b/x", "_indices/c/y"):
        store.put(path, b"1")
    store.delete("_indices/a/b/x")
    store.sweep_temporaries("_indices", older_than_seconds=3600)
    assert (tmp_path / "_indices" / "a" / "b").is_dir()
    store.sweep_temporaries("_indices", older_than_seconds=-1)
    store.sweep_temporaries("_indices", older_than_seconds=-1)
    assert [each.name for each in (tmp_path / "_indices").iterdir()] == ["c"]
    assert store.read("_indices/c/y") == b"1"
    store.delete("_indices/c/y")
    store.sweep_temporaries("_indices", older_than_seconds=-1)
    assert list((tmp_path / "_indices").iterdir()) == []
    assert (tmp_path / "_indices").is_dir()


@pytest.mark.parametrize("has_unnamed", [True, False])
def test_files_appear_whole_and_leave_nothing_else(
    store: LocalStore, tmp_path: Path, monkeypatch, has_unnamed: bool
):
    if not has_unnamed:
        monkeypatch.setattr(durable, "start_unfinished", unfinished.HiddenFile)
    for data in (b"first", b"second"):
        writer = store.open_writer("a")
        writer.write(data)
        assert len(list(tmp_path.iterdir())) == (data == b"second") + (not has_unnamed)
        writer.close()
        assert store.read("a") == data
    with pytest.raises(AlreadyExistsError):
        store.put_if_absent("a", b"third")
    store.open_writer("b").abort()
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert store.read("a") == b"second"
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o666 & ~_umask()


def _umask() -> int:
    """Return the process's mask of permissions, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.parametrize("code", sorted(unfinished._UNNAMED_FILE_ERRORS))
def test_drives_without_unnamed_files_get_hidden_ones(store, tmp_path, monkeypatch, code):
    def without_unnamed(folder: str) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(unfinished, "UnnamedFile", without_unnamed)
    writer = store.open_writer("a")
    assert [path.name[:14] for path in tmp_path.iterdir()] == [unfinished.TEMPORARY_PREFIX]
    writer.close()
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_writer_that_is_killed_leaves_nothing(store: LocalStore, tmp_path: Path):
    program = (
        "import os, sys\n"
        "from lancelet.io.local import LocalStore\n"
        "writer = LocalStore(sys.argv[1]).open_writer('data/a')\n"
        "writer.write(b'x' * (4 << 20))\n"
        "os._exit(9)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    assert ended.returncode == 9
    assert list(store.list()) == []
    left = list((tmp_path / "data").iterdir())
    assert len(left) == (0 if hasattr(os, "O_TMPFILE") else 1)
    assert store.sweep_temporaries(older_than_seconds=-1) == len(left)


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP])
def test_locks_give_names_where_there_are_no_links(store: LocalStore, monkeypatch, code: int):
    def no_links(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(unfinished.os, "link", no_links)

    def attempt(writer: int) -> bool:
        try:
            store.put_if_absent("v/1", b"writer %d" % writer)
        except AlreadyExistsError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(attempt, range(8)))
    assert sum(won) == 1
    assert store.read("v/1") == b"writer %d" % won.index(True)
    assert [info.path for info in store.list()] == ["v/1"]


@pytest.fixture
def no_links(monkeypatch):
    """A drive without hard links and unnamed files."""

    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(unfinished.os, "link", refused)
    monkeypatch.delattr(unfinished.os, "O_TMPFILE", raising=False)


LOCKS_AND_DIES = """
import errno, os, sys
from lancelet.io import unfinished
from lancelet.io.local import LocalStore

def refused(*_, **__):
    raise OSError(errno.EPERM, "no links")

if hasattr(os, "O_TMPFILE"):
    del os.O_TMPFILE
os.link = refused
os.replace = lambda *_: os.kill(os.getpid(), 9)
LocalStore(sys.argv[1]).put_if_absent("v/0", b"dead")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="a name is given in one step there")
def test_a_name_that_a_writer_was_about_to_give_when_it_was_killed_is_free(store, no_links):
    """It died with the lock of the name; others see no file of that name, and one of them wins."""
    died = subprocess.run([sys.executable, "-c", LOCKS_AND_DIES, str(store.root)], check=False)
    assert died.returncode == -9
    (lock,) = (store.root / "v").glob(f"{unfinished.LOCK_PREFIX}*")
    for _ in range(20):
        assert list(store.list()) == []
        lock.parent.mkdir(exist_ok=True)
        lock.touch()
        barrier = Barrier(4)

        def attempt(writer: int, barrier=barrier) -> bool:
            barrier.wait()
            try:
                store.put_if_absent("v/0", b"writer %d" % writer)
            except AlreadyExistsError:
                return False
            return True

        with ThreadPoolExecutor(4) as pool:
            won = list(pool.map(attempt, range(4)))
        assert sum(won) == 1
        assert store.read("v/0") == b"writer %d" % won.index(True)
        store.delete("v/0")
        store.sweep_temporaries(older_than_seconds=-1)
        assert not lock.exists()


@pytest.mark.skipif(sys.platform == "win32", reason="a name is given in one step there")
def test_a_lock_that_was_removed_meanwhile_gives_no_name(store, no_links, monkeypatch):
    """Who opened it was stopped before locking it, and goes on when another had the name."""
    lock, others = fcntl.flock, iter([True])

    def stopped(handle: int, kind: int) -> None:
        if next(others, False):
            store.put_if_absent("v/1", b"other")
        lock(handle, kind)

    monkeypatch.setattr(unfinished.fcntl, "flock", stopped)
    with pytest.raises(AlreadyExistsError):
        store.put_if_absent("v/1", b"first")
    assert store.read("v/1") == b"other"
    assert [path.name for path in (store.root / "v").iterdir()] == ["1"]


@pytest.mark.skipif(sys.platform == "win32", reason="a name is given in one step there")
@pytest.mark.parametrize("fails", [True, False])
def test_a_name_is_available_if_the_lock_owner_fails(store, no_links, monkeypatch, fails):
    """Another one comes while the lock is held, which says nothing of the name yet."""
    replace_, sleeping, second = os.replace, Event(), []

    def told_while_held(source: str, target: str) -> None:
        if second:
            replace_(source, target)
            return
        second.append(pool.submit(store.put_if_absent, "v/1", b"second"))
        assert sleeping.wait(60)
        if fails:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replace_(source, target)

    monkeypatch.setattr(unfinished.os, "replace", told_while_held)
    monkeypatch.setattr(unfinished.surroundings, "sleep", lambda _: sleeping.set())
    monkeypatch.setattr(unfinished, "_TRIES", 1 << 40)
    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(StorageError) if fails else nullcontext():
            store.put_if_absent("v/1", b"first")
        (other,) = second
        assert isinstance(other.exception(), AlreadyExistsError) != fails
    assert store.read("v/1") == (b"second" if fails else b"first")


@pytest.mark.skipif(sys.platform == "win32", reason="a name is given in one step there")
def test_a_lock_timeout_does_not_report_the_name_as_taken(store, no_links, monkeypatch):
    (store.root / "v").mkdir()
    lock = fcntl.flock

    def held(handle: int, kind: int) -> None:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(unfinished.fcntl, "flock", held)
    monkeypatch.setattr(unfinished.surroundings, "sleep", lambda _: None)
    with pytest.raises(StorageUnavailableError, match="holds the lock of the name"):
        store.put_if_absent("v/1", b"first")
    monkeypatch.setattr(unfinished.fcntl, "flock", lock)
    store.put_if_absent("v/1", b"second")


@pytest.mark.skipif(sys.platform == "win32", reason="a name is given in one step there")
def test_a_held_lock_is_not_removed(store, no_links, monkeypatch):
    replace_ = os.replace

    def swept(source: str, target: str) -> None:
        (lock,) = (store.root / "v").glob(f"{unfinished.LOCK_PREFIX}*")
        with pytest.raises(BlockingIOError), unfinished.locked(str(lock)):
            pass
        os.utime(lock, (0, 0))
        assert store.sweep_temporaries(older_than_seconds=3600) == 0
        assert lock.exists()
        replace_(source, target)

    monkeypatch.setattr(unfinished.os, "replace", swept)
    store.put_if_absent("v/1", b"first")
    assert store.read("v/1") == b"first"


@pytest.mark.skipif(sys.platform == "win32", reason="a name is given in one step there")
def test_an_empty_file_by_which_an_earlier_release_claimed_a_name_is_replaced(store, no_links):
    (store.root / "v").mkdir()
    (store.root / "v" / "1").touch()
    store.put_if_absent("v/1", b"later")
    with pytest.raises(AlreadyExistsError):
        store.put_if_absent("v/1", b"too late")
    assert store.read("v/1") == b"later"


def test_a_published_object_is_reported_even_if_syncing_its_folder_fails(store, monkeypatch):
    store.put("v/1", b"x")

    def broken(_: str) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(durable, "flush_directory", broken)
    with pytest.warns(durable.DurabilityWarning, match="v/2 was stored"):
        store.put_if_absent("v/2", b"y")
    assert store.read("v/2") == b"y"
    with pytest.raises(StorageError, match="refused"):
        store.put("v/1", b"z")


def test_put_is_flushed_with_its_folders_before_it_counts(store: LocalStore, monkeypatch):
    """The file first, then its name; every new folder in its parent."""
    done: list[str] = []
    flush, link = os.fsync, os.link

    def spy_flush(handle: int) -> None:
        name = Path(f"/proc/self/fd/{handle}").readlink()
        done.append("flush " + (name.name[:12] if name.is_dir() else "file"))
        flush(handle)

    def spy_link(source: str, target: str, **options: Any) -> None:
        done.append("link")
        link(source, target, **options)

    monkeypatch.setattr(durable.os, "fsync", spy_flush)
    monkeypatch.setattr(unfinished.os, "link", spy_link)
    root = store.root.name[:12]
    store.put_if_absent("v/w/1", b"x")
    assert done == [
        f"flush {root}",
        "flush v",
        "flush file",
        "link",
        "flush w",
    ]


def spy_on_syncs(monkeypatch) -> list[str]:
    """Return a list that records every flush and every new name."""
    done: list[str] = []
    flush, link = os.fsync, os.link

    def spy_flush(handle: int) -> None:
        name = Path(f"/proc/self/fd/{handle}").readlink()
        flush(handle)
        done.append(f"flush {name.name}" if name.is_dir() else "flush file")

    def spy_link(source: str, target: str, **options: Any) -> None:
        link(source, target, **options)
        done.append(f"name {Path(target).name}")

    monkeypatch.setattr(durable.os, "fsync", spy_flush)
    monkeypatch.setattr(unfinished.os, "link", spy_link)
    return done


def test_lazy_files_are_flushed_in_the_background_and_waited_for_once(store, monkeypatch):
    store.put("data/0", b"x")
    done = spy_on_syncs(monkeypatch)
    lazy = store.at("").with_deferred_sync()
    with lazy.at("data").open_writer("a") as writer:
        writer.write(b"x")
    assert store.read("data/a") == b"x"
    lazy.flush()
    assert done[0] == "name a"
    # The folder does not wait for the file: neither counts before both are flushed.
    assert sorted(done[1:]) == ["flush data", "flush file"]
    lazy.flush()
    assert len(done) == 3
    # Data is still flushed before the file gets its name.
    lazy.put_if_absent("data/b", b"y")
    assert done[3:] == ["flush file", "name b", "flush data"]


def test_a_flush_that_fails_is_raised_when_it_is_waited_for(store, monkeypatch):
    def broken(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    lazy = store.with_deferred_sync()
    monkeypatch.setattr(durable.os, "fsync", broken)
    lazy.put("a", b"x")
    with pytest.raises(StorageError) as caught:
        lazy.flush()
    assert (caught.value.facts["path"], caught.value.facts["errno"]) == ("a", errno.EIO)


def test_a_note_is_written_in_place_and_waits_for_nothing(store, tmp_path, monkeypatch):
    def forbidden(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(durable.os, "fsync", forbidden)
    (tmp_path / "notes").mkdir()
    for content in (b"first", b"2", b"third one"):
        store.put_best_effort("notes/a", content)
        assert store.read("notes/a") == content
        assert len(list((tmp_path / "notes").iterdir())) == 1


def test_a_folder_of_notes_is_made(store):
    store.put_best_effort("new/notes/a", b"x")
    assert store.read("new/notes/a") == b"x"


def test_large_file_is_flushed_while_it_is_written(store: LocalStore, monkeypatch):
    flushed: list[int] = []
    monkeypatch.setattr(durable.os, "fdatasync", flushed.append)
    part = bytes(8 << 20)
    with store.open_writer("a") as writer:
        for _ in range(9):
            writer.write(part)
    assert 1 <= len(flushed) <= 2
    assert store.size("a") == 9 * len(part)


def test_error_of_a_flush_in_the_background_is_not_lost(store: LocalStore, monkeypatch):
    def broken(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(durable.os, "fdatasync", broken)
    writer = store.open_writer("a")
    writer.write(bytes(33 << 20))
    with pytest.raises(StorageError) as caught:
        writer.close()
    assert caught.value.facts["errno"] == errno.EIO
    assert list(store.list()) == []


def test_nothing_is_flushed_if_disabled(tmp_path: Path, monkeypatch):
    def forbidden(_: int) -> None:
        raise AssertionError

    monkeypatch.setattr(durable.os, "fsync", forbidden)
    monkeypatch.setattr(durable.os, "fdatasync", forbidden)
    store = pickle.loads(pickle.dumps(open_folder(tmp_path, {"local_sync": "False"})))
    store.at("v").put_if_absent("w/1", b"x")
    store.rename_if_absent("v/w/1", "v/2")
    with store.open_writer("a") as writer:
        writer.write(bytes(33 << 20))
    assert store.read("v/2") == b"x"
    with pytest.raises(InvalidInputError):
        open_folder(tmp_path, {"local_sync": "maybe"})


def test_full_disk_leaves_no_object_and_no_rest(store: LocalStore, tmp_path: Path, monkeypatch):
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(durable.os, "fsync", full)
    with pytest.raises(StorageError) as caught:
        store.put_if_absent("a", b"x")
    assert caught.value.facts["errno"] == errno.ENOSPC
    assert list(tmp_path.iterdir()) == []


def test_listing_follows_links_but_not_in_circles(store: LocalStore, tmp_path: Path):
    store.put("real/a", b"x")
    (tmp_path / "linked").symlink_to(tmp_path / "real")
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    assert [info.path for info in store.list()] == ["linked/a", "real/a"]
    (tmp_path / "real" / "up").symlink_to(tmp_path / "real")
    with pytest.raises(StorageError, match="symbolic link"):
        list(store.list())


def test_a_folder_that_goes_while_it_is_listed_is_left_out(store: LocalStore):
    for folder in "ab":
        store.put(f"{folder}/x", b"x")
    listing = store.list()
    assert next(listing).path == "a/x"
    store.delete_folder("b")
    assert list(listing) == []


def test_listing_reads_sizes_lazily(store: LocalStore, monkeypatch):
    for version in range(50):
        store.put(f"_versions/{version:03}", b"x")
    asked: list[str] = []
    stat = os.stat

    def spy(path: object, *args: object, **kwargs: object) -> os.stat_result:
        asked.append(str(path))
        return stat(path, *args, **kwargs)

    monkeypatch.setattr(os, "stat", spy)
    assert next(iter(store.list("_versions"))).path == "_versions/000"
    assert len(asked) == 1


def test_no_permission_is_a_storage_error(store: LocalStore, monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(unfinished.os, "open", refuse)
    with pytest.raises(StorageError) as caught:
        store.put("a", b"x")
    assert caught.value.facts["reason"] == "Permission denied"


def test_windows_names_are_long_and_shared():
    assert native_path("C:\\", "a/b", windows=True) == "C:\\a\\b"
    long = native_path("C:\\data", "x" * 240, windows=True)
    assert long == "\\\\?\\C:\\data\\" + "x" * 240
    share = native_path("\\\\server\\share", "x" * 240, windows=True)
    assert share == "\\\\?\\UNC\\server\\share\\" + "x" * 240
    assert native_path("\\\\?\\C:\\data", "y" * 300, windows=True).count("?") == 1


def test_store_in_memory_stays_in_its_process(tmp_path: Path):
    store = MemoryStore("shelf")
    store.put("a", b"x")
    (tmp_path / "pickled").write_bytes(pickle.dumps(store))
    program = (
        "import pickle, sys\n"
        "try:\n"
        "    pickle.load(open(sys.argv[1], 'rb'))\n"
        "except ValueError as error:\n"
        "    print(error)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, str(tmp_path / "pickled")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "another process" in ended.stdout


@pytest.mark.parametrize(
    ("options", "flushes"),
    [
        ({}, True),
        ({"durability": "flushed"}, True),
        ({"durability": "written"}, False),
        ({"local_sync": "false"}, False),
    ],
)
def test_durability_controls_syncs(tmp_path, monkeypatch, options, flushes):
    done = spy_on_syncs(monkeypatch)
    open_folder(str(tmp_path), options).put_if_absent("v/1", b"x")
    assert any(each.startswith("flush") for each in done) == flushes
    with pytest.raises(InvalidInputError, match="flushed or written"):
        open_folder(str(tmp_path), {"durability": "maybe"})
