"""A store that reads from another, and what was written through it from a place of its own.

    put("b", ..)      lies in `scratch`; read("b") finds it there
    read("a")         of `inner`, unless "a" was written
    delete("a")       forgets what was written; what is in `inner` stays

For finding out what a change would write that reads files which it wrote itself. What is left in
the scratch in the end is what the change would leave.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lancelet.io.discarding import ReadsOnly
from lancelet.io.store import (
    BytesLike,
    Listing,
    ObjectInfo,
    ObjectReader,
    ObjectWriter,
    Store,
    name_taken,
)
from lancelet.io.wrapped import WrappedStore


class ScratchStore(WrappedStore):
    """Reads from `inner`; what is written goes to another store and is found there."""

    def __init__(self, inner: Store, scratch: Store) -> None:
        """Read from a store, and write to another, which is empty."""
        super().__init__(inner, ReadsOnly())
        self._scratch = scratch

    def at(self, folder: str) -> ScratchStore:
        """Return the same store with a folder as its root."""
        return ScratchStore(self.inner.at(folder), self._scratch.at(folder))

    def lazily(self) -> ScratchStore:
        """Return this store: what is thrown away need not be waited for."""
        return self

    def open_reader(self, path: str, size: int | None = None) -> ObjectReader:
        """Open an object."""
        return self._holder(path).open_reader(path, size)

    def read(self, path: str) -> bytes:
        """Return all bytes of an object."""
        return self._holder(path).read(path)

    def info(self, path: str) -> ObjectInfo:
        """Return size and times of an object."""
        return self._holder(path).info(path)

    def put(self, path: str, data: BytesLike) -> None:
        """Store an object in the scratch."""
        self._scratch.put(path, data)

    def put_note(self, path: str, data: BytesLike) -> None:
        """Store an object that is only advice, as any other."""
        self.put(path, data)

    def put_if_absent(self, path: str, data: BytesLike) -> None:
        """Store an object in the scratch if neither store has the name."""
        if self.inner.exists(path):
            raise name_taken(path)
        self._scratch.put_if_absent(path, data)

    def open_writer(self, path: str) -> ObjectWriter:
        """Start a new object in the scratch."""
        return self._scratch.open_writer(path)

    def list(self, folder: str = "", start_after: str | None = None) -> Iterator[ObjectInfo]:
        """Yield the objects of both stores."""
        found = {info.path: info for info in self.inner.list(folder, start_after)}
        found |= {info.path: info for info in self._scratch.list(folder, start_after)}
        return iter([found[path] for path in sorted(found)])

    @property
    def lists_names(self) -> bool:
        """Names are those of two stores."""
        return False

    def list_delimited(self, folder: str = "") -> Listing:
        """Return what lies directly in a folder of either store."""
        theirs, own = self.inner.list_delimited(folder), self._scratch.list_delimited(folder)
        objects = {info.path: info for info in (*theirs.objects, *own.objects)}
        folders = sorted({*theirs.folders, *own.folders})
        return Listing(tuple(objects[path] for path in sorted(objects)), tuple(folders))

    def delete(self, path: str) -> None:
        """Take an object out of the scratch."""
        self._scratch.delete(path)

    def delete_many(self, paths: Iterable[str]) -> None:
        """Take objects out of the scratch."""
        self._scratch.delete_many(paths)

    def delete_folder(self, folder: str) -> None:
        """Take a folder out of the scratch."""
        self._scratch.delete_folder(folder)

    def copy(self, source: str, target: str) -> None:
        """Copy an object of either store into the scratch."""
        self._scratch.put(target, self.read(source))

    def rename_if_absent(self, source: str, target: str) -> None:
        """Give an object a free name; under the old one it stays if it was there before."""
        if self.exists(target):
            raise name_taken(target)
        self.copy(source, target)
        self.delete(source)

    def _holder(self, path: str) -> Store:
        return self._scratch if self._scratch.exists(path) else self.inner
