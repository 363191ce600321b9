"""A store in a bucket: S3 and what is compatible with it, Google Cloud Storage, Azure.

    store                       requests
    read_ranges                 one for each group of near ranges (`ranged`), side by side
    read_tail, size unknown     one: the answer also says the size
    put_if_absent               one conditional put, never sent twice by itself
    open_writer                 one put, or parts of an upload that ends with one request

Requests that change nothing, or that may be done twice, are tried again (`retry`). A conditional
put is not: if its reply is lost, a second one would meet the first and report that the name was
taken, when it was taken by ourselves.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, TypeVar

import numpy as np

from lancelet.buffers import Bytes
from lancelet.errors import (
    CorruptDataError,
    InvalidInputError,
    LanceletError,
    ObjectNotFoundError,
    UnsupportedError,
)
from lancelet.io.client import Client
from lancelet.io.ranged import RangedReader
from lancelet.io.retry import with_retries
from lancelet.io.store import (
    BytesLike,
    Listing,
    ObjectInfo,
    ObjectReader,
    ObjectWriter,
    Store,
    as_memoryview,
    check_folder,
    check_path,
)
from lancelet.io.uri import quote_path

T = TypeVar("T")

_LIST_PAGE: Final = 1000
_DELETE_BATCH: Final = 1000

_PART_BYTES: Final = 10 << 20
"""Uploads go in parts of this size; S3 allows ten thousand, so files end at 100 GB."""

_SMALL_WRITE_BYTES: Final = 1 << 20
"""Smaller writes are collected, since each hand-over to the client costs microseconds."""


class RemoteStore(Store):
    """Objects of a bucket, below a folder."""

    def __init__(self, client: Client, folder: str = "") -> None:
        """Use what lies below `folder` in the bucket of `client`."""
        self._client = client
        self._folder = check_folder(folder)
        self._prefix = f"{self._folder}/" if self._folder else ""

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by URI and options; connections are made anew."""
        return (RemoteStore, (self._client, self._folder))

    @property
    def uri(self) -> str:
        """The URI of the root."""
        return f"{self._client.url}/{quote_path(self._folder)}".removesuffix("/")

    def at(self, folder: str) -> RemoteStore:
        """Return the same bucket with a folder as its root."""
        return RemoteStore(self._client, self._prefix + check_folder(folder))

    def open_reader(self, path: str, size: int | None = None) -> ObjectReader:
        """Open an object; nothing is sent yet."""
        return RemoteReader(self, path, size)

    def read(self, path: str) -> bytes:
        """Return all bytes of an object."""
        answer = self.ask(path, lambda native, store, key: native.get(store, key).bytes())
        return bytes(answer)

    def put(self, path: str, data: BytesLike) -> None:
        """Store an object whole, in place of whatever had the name."""
        view = as_memoryview(data)
        self.ask(path, lambda native, store, key: native.put(store, key, view, use_multipart=False))

    def put_if_absent(self, path: str, data: BytesLike) -> None:
        """Store an object if the name is free."""
        view, key = as_memoryview(data), self._key(path)

        def put() -> None:
            with self._client.outcome(path):
                self._client.native.put(self._client.store, key, view, mode="create")

        with_retries(put, self._client.retry)

    def open_writer(self, path: str) -> ObjectWriter:
        """Start a new object."""
        return RemoteWriter(self._client, path, self._key(path))

    def list(self, folder: str = "", start_after: str | None = None) -> Iterator[ObjectInfo]:
        """Yield the objects below a folder, ordered by path, a page at a time."""
        prefix = self._list_prefix(folder)
        after = None if start_after is None else self._prefix + start_after
        if self._client.lists_in_order:
            found = self._list_by_page(prefix, after)
        else:
            answer = self._request(
                folder, lambda native, store: native.list(store, prefix, offset=after).collect()
            )
            found = iter(sorted(map(self._info, answer), key=lambda info: info.path))
        # The client takes a slash off the end of an offset, and would start too early.
        return (info for info in found if info.path > (start_after or ""))

    def list_delimited(self, folder: str = "") -> Listing:
        """Return what lies directly in a folder."""
        prefix = self._list_prefix(folder)
        found = self._request(
            folder, lambda native, store: native.list_with_delimiter(store, prefix)
        )
        return Listing(
            tuple(sorted(map(self._info, found["objects"]), key=lambda info: info.path)),
            tuple(sorted(path.removeprefix(self._prefix) for path in found["common_prefixes"])),
        )

    def info(self, path: str) -> ObjectInfo:
        """Return size and times of an object."""
        return self._info(self.ask(path, lambda native, store, key: native.head(store, key)))

    def delete(self, path: str) -> None:
        """See to it that an object is gone."""
        self.delete_many([path])

    def delete_many(self, paths: Iterable[str]) -> None:
        """See to it that objects are gone, many with one request where the store can."""
        keys = map(self._key, paths)
        while batch := list(islice(keys, _DELETE_BATCH)):
            try:
                self._request(batch[0], _delete(batch))
            except ObjectNotFoundError:
                # Some stores refuse what is gone already, and leave the rest undone.
                for key in batch:
                    with contextlib.suppress(ObjectNotFoundError):
                        self._request(key, _delete([key]))

    def copy(self, source: str, target: str) -> None:
        """Copy an object within the store; no bytes pass through this machine."""
        target_key = self._key(target)
        self.ask(source, lambda native, store, key: native.copy(store, key, target_key))

    def rename_if_absent(self, source: str, target: str) -> None:
        """Copy an object to a free name, then delete it; meant for small ones."""
        self.put_if_absent(target, self.read(source))
        self.delete(source)

    def ask(self, path: str, request: Callable[[Any, Any, str], T]) -> T:
        """Run `request(native, store, key)` for an object, again if need be."""
        key = self._key(path)
        return self._request(path, lambda native, store: request(native, store, key))

    def _request(self, path: str, request: Callable[[Any, Any], T]) -> T:
        def attempt() -> T:
            with self._client.errors(path):
                return request(self._client.native, self._client.store)

        return with_retries(attempt, self._client.retry)

    def _list_by_page(self, prefix: str | None, after: str | None) -> Iterator[ObjectInfo]:
        pages: Any = None

        def next_page(native: Any, store: Any) -> Any:
            nonlocal pages
            listing = pages or native.list(store, prefix, offset=after, chunk_size=_LIST_PAGE)
            # A listing that failed cannot go on; the next attempt starts after the last page.
            pages = None
            page = next(listing, ())
            pages = listing
            return page

        while page := self._request(prefix or "", next_page):
            after = page[-1]["path"]
            yield from map(self._info, page)

    def _key(self, path: str) -> str:
        return self._prefix + check_path(path)

    def _list_prefix(self, folder: str) -> str | None:
        return (self._prefix + check_folder(folder)).removesuffix("/") or None

    def _info(self, found: Any) -> ObjectInfo:
        return ObjectInfo(
            found["path"].removeprefix(self._prefix),
            found["size"],
            found["last_modified"],
            found["e_tag"],
        )


class RemoteReader(RangedReader):
    """Fetches ranges of an object of a bucket."""

    def __init__(self, store: RemoteStore, path: str, size: int | None) -> None:
        """Read the object at `path`; a `size` that is known saves a request."""
        super().__init__(store, path, size)
        self._store = store

    def get(self, position: int, size: int) -> object:
        """Return the bytes of one range."""
        return self._store.ask(
            self._path,
            lambda native, store, key: native.get_range(store, key, start=position, length=size),
        )

    def read_tail(self, size: int) -> Bytes:
        """Fetch the last bytes; the answer also says how large the object is."""
        if size > 0 and self._size is None:
            # Azure cannot count from the end, and of an empty object there is no range.
            with contextlib.suppress(CorruptDataError, UnsupportedError):
                self._size, tail = self._store.ask(self._path, _get_tail(size))
                return tail
        return super().read_tail(size) if size > 0 else np.empty(0, np.uint8)


class RemoteWriter(ObjectWriter):
    """Uploads an object, in parts when it is large; the last request makes it visible."""

    def __init__(self, client: Client, path: str, key: str) -> None:
        """Start the object `key` of the bucket, whose path in the store is `path`."""
        self._client = client
        self._path = path
        self._position = 0
        self._pending = bytearray()
        with client.errors(path):
            self._upload = client.native.open_writer(
                client.upload_store, key, buffer_size=_PART_BYTES
            )

    @property
    def position(self) -> int:
        """How many bytes were written so far."""
        return self._position

    def write(self, *buffers: BytesLike) -> None:
        """Append bytes; parts are sent as they fill up."""
        if self._upload is None:
            raise InvalidInputError("the writer is closed", path=self._path)
        for buffer in buffers:
            view = as_memoryview(buffer)
            self._position += view.nbytes
            if view.nbytes < _SMALL_WRITE_BYTES:
                self._pending += view
                if len(self._pending) >= _SMALL_WRITE_BYTES:
                    self._send_pending()
            else:
                self._send_pending()
                self._send(view)

    def close(self) -> int:
        """Send what is left and make the object visible."""
        if self._upload is None:
            return self._position
        try:
            self._send_pending()
            with self._client.errors(self._path):
                self._upload.close()
            self._upload = None
        finally:
            self.abort()
        return self._position

    def abort(self) -> None:
        """Ask the store to forget the parts."""
        if self._upload is None:
            return
        upload, self._upload = self._upload, None
        stop = InterruptedError("the upload was given up")
        # To leave its context with an error is how an upload is given up. A store that cannot
        # be reached keeps the parts, unseen, until its own rules for unfinished uploads.
        with contextlib.suppress(LanceletError), self._client.errors(self._path):
            upload.__exit__(InterruptedError, stop, None)

    def _send_pending(self) -> None:
        if self._pending:
            self._send(memoryview(self._pending))
            self._pending = bytearray()

    def _send(self, view: memoryview) -> None:
        with self._client.errors(self._path):
            self._upload.write(view)


def _delete(keys: Sequence[str]) -> Callable[[Any, Any], None]:
    def request(native: Any, store: Any) -> None:
        native.delete(store, keys)

    return request


def _get_tail(size: int) -> Callable[[Any, Any, str], tuple[int, Bytes]]:
    def request(native: Any, store: Any, key: str) -> tuple[int, Bytes]:
        answer = native.get(store, key, options={"range": {"suffix": size}})
        return answer.meta["size"], np.frombuffer(answer.bytes(), np.uint8)

    return request
