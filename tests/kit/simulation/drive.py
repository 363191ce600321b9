"""A simulated drive without hard links; each system call is a step of the history.

    open    .lancelet-tmp-lock-5f     a hidden file in the folder of 7.manifest
    lock    .lancelet-tmp-lock-5f     the file is locked; dead actors hold no locks
    put_if_absent  7.manifest         the file is renamed, unless the name exists
    unlink  .lancelet-tmp-lock-5f

The production code that renames files runs unchanged: this class replaces the modules `os` and
`fcntl`.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final, NoReturn, TypeAlias, TypeVar
from unittest import mock

from lancelet import surroundings
from lancelet.io import unfinished
from lancelet.io.memory import MemoryStore
from lancelet.io.store import BytesLike, as_memoryview
from lancelet.io.wrapped import Request

if TYPE_CHECKING:
    from tests.kit.simulation.machine import Machine

T = TypeVar("T")

_File: TypeAlias = tuple[bytes, datetime]
"""The content and time of a named file."""


class DriveWithoutLinks:
    """The files of a bucket, accessed by `unfinished` in place of `os` and `fcntl`."""

    O_CREAT: Final = os.O_CREAT
    O_EXCL: Final = os.O_EXCL
    O_RDWR: Final = os.O_RDWR
    LOCK_EX: Final = fcntl.LOCK_EX
    LOCK_NB: Final = fcntl.LOCK_NB
    strerror = staticmethod(os.strerror)

    def __init__(self, machine: Machine, bucket: str) -> None:
        """Share the files of a bucket."""
        self.path = SimpleNamespace(
            split=os.path.split, join=os.path.join, samestat=lambda a, b: a.file is b.file
        )
        self._machine = machine
        self._named: dict[str, _File] = MemoryStore(bucket)._objects.by_key
        self._hidden: dict[str, _File] = {}
        self._numbers = itertools.count(1)
        self._open: dict[int, _File] = {}
        self._locked: dict[int, _File] = {}

    @contextmanager
    def mounted(self) -> Iterator[None]:
        """Place all files on this drive within a context."""
        with mock.patch.multiple(unfinished, os=self, fcntl=self):
            yield

    def temporary(self, data: BytesLike) -> str:
        """Return the path of an anonymous finished file."""
        name = f"{unfinished.TEMPORARY_PREFIX}{next(self._numbers)}"
        self._hidden[name] = (bytes(as_memoryview(data)), surroundings.now())
        return name

    def link(self, source: str, target: str) -> NoReturn:
        """Raise, as hard links are unsupported."""
        raise OSError(errno.EPERM, os.strerror(errno.EPERM), source, None, target)

    def open(self, native: str, flags: int, mode: int) -> int:
        """Open or create a file."""
        del mode
        files = self._files_of(native)

        def open_file() -> _File:
            if flags & self.O_EXCL and native in files:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), native)
            return files.setdefault(native, (b"", surroundings.now()))

        found = self._step("open", native, open_file)
        handle = next(self._numbers)
        self._open[handle] = found
        return handle

    def flock(self, handle: int, how: int) -> None:
        """Lock a file, or raise if it is locked."""
        del how
        file = self._open[handle]

        def lock() -> None:
            if any(file is other for other in self._locked.values()):
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
            self._locked[handle] = file

        self._step("lock", "", lock)

    def fstat(self, handle: int) -> SimpleNamespace:
        """Describe an open file."""
        return _description(self._open[handle])

    def stat(self, native: str) -> SimpleNamespace:
        """Describe the file with a name."""
        found = self._files_of(native).get(native)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), native)
        return _description(found)

    def replace(self, source: str, native: str) -> None:
        """Rename a finished file."""

        def rename() -> None:
            self._named[native] = (self._hidden.pop(source)[0], surroundings.now())

        self._step("put_if_absent", native, rename)

    def unlink(self, native: str) -> None:
        """Remove a file."""
        self._step("unlink", native, lambda: self._files_of(native).pop(native, None))

    def close(self, handle: int) -> None:
        """Close a file, as the system does for dead processes."""
        self._open.pop(handle, None)
        self._locked.pop(handle, None)

    def _files_of(self, native: str) -> dict[str, _File]:
        return self._hidden if unfinished.TEMPORARY_PREFIX in native else self._named

    def _step(self, call: str, path: str, action: Callable[[], T]) -> T:
        return self._machine.request(Request(call, path), action)


def _description(file: _File) -> SimpleNamespace:
    return SimpleNamespace(st_size=len(file[0]), file=file)
