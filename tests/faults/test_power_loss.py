"""Goal: commits on a local disk survive a power failure at any time.

Method: all that is asked of the system is recorded: bytes, names, folders and flushes. At each
moment the file system may have, of what was not flushed, any names and any bytes: none, half or all
of a file, and any of the names that were given or taken away. Each such state is made, and opened:
it has the rows of the last commit that was acknowledged, or of the one under way.
"""

# ruff: noqa: PTH102, PTH115, PTH116, PTH120, PTH123

import itertools
import os
import stat
import threading
from dataclasses import dataclass, field

import pyarrow as pa
import pytest

import lancelet
from lancelet.errors import DatasetNotFoundError
from lancelet.optimize import Compaction

FEW = 4
"""Of so many names that were not flushed, each choice is made."""


@dataclass
class Disk:
    """What is known to be on a disk, and what may be."""

    root: str
    contents: dict[int, bytes] = field(default_factory=dict)
    flushed: dict[int, bytes] = field(default_factory=dict)
    names: dict[str, object] = field(default_factory=dict)
    pending: list[tuple[str, object]] = field(default_factory=list)
    states: dict[object, tuple[dict, int]] = field(default_factory=dict)
    acknowledged: int = 0
    moments: int = 0

    def name(self, path: str, what: object) -> None:
        self.pending.append((path, what))
        self.look()

    def flush_folder(self, folder: str) -> None:
        here = [(path, what) for path, what in self.pending if os.path.dirname(path) == folder]
        self.pending = [each for each in self.pending if each not in here]
        self.names.update(here)
        self.look()

    def look(self) -> None:
        """Note every state in which the power may go now."""
        self.moments += 1
        for chosen in self.choices():
            names = {**self.names, **dict(chosen)}
            for share in (0.0, 0.5, 1.0):
                state = {}
                for path, what in names.items():
                    if what is None or not self.is_reachable(path, names):
                        continue
                    state[path] = what if what == "folder" else self.bytes_of(what, share)
                self.states.setdefault(
                    (frozenset(state.items()), self.acknowledged), (state, self.acknowledged)
                )

    def choices(self):
        pending = self.pending
        if len(pending) <= FEW:
            for size in range(len(pending) + 1):
                yield from itertools.combinations(pending, size)
            return
        for place in range(len(pending) + 1):
            yield pending[:place]
            yield pending[place : place + 1]
            yield pending[:place] + pending[place + 1 :]

    def bytes_of(self, inode: int, share: float) -> bytes:
        content, flushed = self.contents.get(inode, b""), self.flushed.get(inode)
        if content == flushed:
            return content
        return content[: int(len(content) * share)]

    def is_reachable(self, path: str, names: dict) -> bool:
        folder = os.path.dirname(path)
        return folder == self.root or (
            names.get(folder) == "folder" and self.is_reachable(folder, names)
        )


@pytest.fixture
def disk(tmp_path, monkeypatch):
    disk, lock = Disk(str(tmp_path / "disk")), threading.RLock()
    files, numbers = {}, itertools.count()
    os.mkdir(disk.root)
    real = {
        name: getattr(os, name)
        for name in ("open", "write", "fsync", "link", "replace", "unlink", "mkdir", "truncate")
    }

    def is_ours(path) -> bool:
        return isinstance(path, str) and path.startswith(disk.root + "/")

    def inode_of(where) -> int:
        return files[os.stat(where).st_ino]

    def keep(handle: int) -> int:
        with open(f"/proc/self/fd/{handle}", "rb") as file:
            disk.contents[inode_of(handle)] = file.read()
        return inode_of(handle)

    def open_(path, flags, *more, **words):
        with lock:
            is_new = flags & os.O_CREAT and is_ours(path) and not os.path.lexists(path)
            handle = real["open"](path, flags, *more, **words)
            if is_new or flags & os.O_TMPFILE == os.O_TMPFILE:
                # The system gives the numbers of files again.
                files[os.fstat(handle).st_ino] = next(numbers)
            if is_new:
                disk.name(path, inode_of(handle))
            return handle

    def write(handle, data):
        with lock:
            done = real["write"](handle, data)
            if os.fstat(handle).st_ino in files:
                keep(handle)
                disk.look()
            return done

    def fsync(handle):
        with lock:
            real["fsync"](handle)
            if stat.S_ISDIR(os.fstat(handle).st_mode):
                disk.flush_folder(os.readlink(f"/proc/self/fd/{handle}"))
            else:
                inode = keep(handle)
                disk.flushed[inode] = disk.contents[inode]
                disk.look()

    def link(source, target, **words):
        with lock:
            real["link"](source, target, **words)
            disk.name(target, inode_of(target))

    def replace(source, target):
        with lock:
            real["replace"](source, target)
            # One step of the file system: both names change or neither does.
            disk.pending.append((source, None))
            disk.name(target, inode_of(target))

    def unlink(path, **words):
        with lock:
            real["unlink"](path, **words)
            if is_ours(path):
                disk.name(path, None)

    def mkdir(path, *more, **words):
        with lock:
            real["mkdir"](path, *more, **words)
            if is_ours(path):
                disk.name(path, "folder")

    def truncate(path, size):
        with lock:
            real["truncate"](path, size)
            keep(path)

    for name, own in {
        "open": open_,
        "write": write,
        "fsync": fsync,
        "fdatasync": fsync,
        "link": link,
        "replace": replace,
        "unlink": unlink,
        "mkdir": mkdir,
        "truncate": truncate,
    }.items():
        monkeypatch.setattr(os, name, own)
    yield disk
    monkeypatch.undo()


def live(disk: Disk, uri: str, durability: str, *, is_long: bool) -> list[list[int]]:
    """Change a table, and return the ids after each change; the first are of no table."""
    tables: list[list[int]] = [[]]

    def done(ids) -> None:
        tables.append(sorted(ids))
        disk.acknowledged = len(tables) - 1

    options = {"durability": durability}
    dataset = lancelet.write_dataset(pa.table({"id": [1, 2, 3]}), uri, storage_options=options)
    done([1, 2, 3])
    dataset.delete("id = 2")
    done([1, 3])
    if is_long:
        dataset.insert(pa.table({"id": [5]}))
        done([1, 3, 5])
        dataset.update({"id": "id + 10"}, where="id = 3")
        done([1, 13, 5])
        dataset.optimize.compact_files()
        done([1, 13, 5])
        dataset.cleanup_old_versions(retain_versions=1)
        done([1, 13, 5])
    return tables


def live_together(disk: Disk, uri: str, change: str) -> list[list[int]]:
    """Delete rows by one handle, then change the table by another that has not seen this.

    The second commit is rebased, and writes a deletion file of its own.
    """
    tables: list[list[int]] = [[]]

    def done(ids) -> None:
        tables.append(sorted(ids))
        disk.acknowledged = len(tables) - 1

    dataset = lancelet.write_dataset(
        pa.table({"id": [1, 2, 3, 4]}), uri, max_rows_per_file=2 if change == "compact" else 4
    )
    done([1, 2, 3, 4])
    other = lancelet.dataset(uri)
    results = []
    if change == "compact":
        plan = Compaction.plan(other, {"target_rows_per_fragment": 8})
        results = [task.execute(other) for task in plan.tasks]
    dataset.delete("id = 2")
    done([1, 3, 4])
    match change:
        case "delete":
            other.delete("id = 3")
            done([1, 4])
        case "update":
            other.update({"id": "id + 10"}, where="id = 3")
            done([1, 13, 4])
        case _:
            Compaction.commit(other, results)
            done([1, 3, 4])
    return tables


def restore(state: dict, root: str, at: str) -> None:
    os.mkdir(at)
    for path in sorted(state, key=len):
        if state[path] == "folder":
            os.mkdir(at + path.removeprefix(root))
    for path, content in state.items():
        if content != "folder":
            with open(at + path.removeprefix(root), "wb") as file:
                file.write(content)


def check(uri: str, acknowledged: int, tables: list[list[int]]) -> None:
    try:
        dataset = lancelet.dataset(uri, storage_options={"durability": "written"})
    except DatasetNotFoundError:
        assert acknowledged == 0
        return
    found = sorted(dataset.to_table()["id"].to_pylist())
    assert found in tables[acknowledged : acknowledged + 2]
    dataset.insert(pa.table({"id": [99]}))
    assert sorted(dataset.to_table()["id"].to_pylist()) == [*found, 99]


@pytest.mark.parametrize("is_long", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_commits_survive_a_power_failure(disk, tmp_path, monkeypatch, *, is_long) -> None:
    tables = live(disk, f"{disk.root}/t", "flushed", is_long=is_long)
    monkeypatch.undo()
    assert disk.moments > (80 if is_long else 25)
    assert len(disk.states) > (500 if is_long else 100)
    for number, (state, acknowledged) in enumerate(disk.states.values()):
        at = f"{tmp_path}/{number}"
        restore(state, disk.root, at)
        check(f"{at}/t", acknowledged, tables)


@pytest.mark.parametrize("change", ["delete", "update", "compact"])
def test_rebased_commits_survive_a_power_failure(disk, tmp_path, monkeypatch, change) -> None:
    tables = live_together(disk, f"{disk.root}/t", change)
    monkeypatch.undo()
    for number, (state, acknowledged) in enumerate(disk.states.values()):
        at = f"{tmp_path}/{number}"
        restore(state, disk.root, at)
        check(f"{at}/t", acknowledged, tables)


def test_uncommitted_files_may_be_lost(disk, tmp_path, monkeypatch) -> None:
    """The same look at a table that asked for less finds states in which it is gone."""
    live(disk, f"{disk.root}/t", "written", is_long=False)
    monkeypatch.undo()
    lost = [state for state, acknowledged in disk.states.values() if acknowledged and not state]
    assert lost
