"""A store in a bucket of S3, S3-compatible services, Google Cloud Storage or Azure.

    store                       requests
    read_ranges                 one per group of adjacent ranges (`ranged`), concurrently
    read_tail, size unknown     one; the response includes the size
    put_if_absent               one conditional put, never repeated automatically
    open_writer                 one put, or a multipart upload completed by one request

Idempotent requests are retried (`retry`). A conditional put is not: if its response is lost, a
retry would find the object of the first attempt and report a conflict with itself.
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
"""Size of an upload part in bytes; S3 allows ten thousand parts, so files end at 100 GB."""

_SMALL_WRITE_BYTES: Final = 1 << 20
"""Size in bytes below which writes are coalesced; each call of the client costs microseconds."""


class RemoteStore(Store):
    """Objects of a bucket below a directory."""

    def __init__(self, client: Client, folder: str = "") -> None:
        """Create a store for `folder` in the bucket of `client`."""
        self._client = client
        self._folder = check_folder(folder)
        self._prefix = f"{self._folder}/" if self._folder else ""

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by URI and options; connections are recreated."""
        return (RemoteStore, (self._client, self._folder))

    @property
    def uri(self) -> str:
        """The URI of the root."""
        return f"{self._client.url}/{quote_path(self._folder)}".removesuffix("/")

    def at(self, folder: str) -> RemoteStore:
        """Return a store of the same bucket with a directory as its root."""
        return RemoteStore(self._client, self._prefix + check_folder(folder))

    def open_reader(self, path: str, size: int | None = None) -> ObjectReader:
        """Open an object without sending a request."""
        return RemoteReader(self, path, size)

    def read(self, path: str) -> bytes:
        """Return the content of an object."""
        response = self.run_request(path, lambda native, store, key: native.get(store, key).bytes())
        return bytes(response)

    def put(self, path: str, data: BytesLike) -> None:
        """Store an object, replacing an existing one."""
        view = as_memoryview(data)
        self.run_request(
            path, lambda native, store, key: native.put(store, key, view, use_multipart=False)
        )

    def put_if_absent(self, path: str, data: BytesLike) -> None:
        """Store an object unless it exists."""
        view, key = as_memoryview(data), self._key(path)

        def put() -> None:
            with self._client.outcome(path):
                self._client.native.put(self._client.store, key, view, mode="create")

        with_retries(put, self._client.retry)

    def open_writer(self, path: str) -> ObjectWriter:
        """Start writing an object."""
        return RemoteWriter(self._client, path, self._key(path))

    def list(self, folder: str = "", start_after: str | None = None) -> Iterator[ObjectInfo]:
        """Yield the objects below a directory, ordered by path, one page at a time."""
        prefix = self._list_prefix(folder)
        after = None if start_after is None else self._prefix + start_after
        if self._client.lists_in_order:
            infos = self._list_by_page(prefix, after)
        else:
            response = self._request(
                folder, lambda native, store: native.list(store, prefix, offset=after).collect()
            )
            infos = iter(sorted(map(self._info, response), key=lambda info: info.path))
        # The client strips a trailing slash from the offset and would start too early.
        return (info for info in infos if info.path > (start_after or ""))

    def list_delimited(self, folder: str = "") -> Listing:
        """Return the direct children of a directory."""
        prefix = self._list_prefix(folder)
        response = self._request(
            folder, lambda native, store: native.list_with_delimiter(store, prefix)
        )
        return Listing(
            tuple(sorted(map(self._info, response["objects"]), key=lambda info: info.path)),
            tuple(sorted(path.removeprefix(self._prefix) for path in response["common_prefixes"])),
        )

    def info(self, path: str) -> ObjectInfo:
        """Return size and modification time of an object."""
        return self._info(
            self.run_request(path, lambda native, store, key: native.head(store, key))
        )

    def delete(self, path: str) -> None:
        """Delete an object if it exists."""
        self.delete_many([path])

    def delete_many(self, paths: Iterable[str]) -> None:
        """Delete objects that exist, in batches where the store supports them."""
        keys = map(self._key, paths)
        while batch := list(islice(keys, _DELETE_BATCH)):
            try:
                self._request(batch[0], _delete(batch))
            except ObjectNotFoundError:
                # Some stores fail for objects that do not exist, and skip the rest of the batch.
                for key in batch:
                    with contextlib.suppress(ObjectNotFoundError):
                        self._request(key, _delete([key]))

    def copy(self, source: str, target: str) -> None:
        """Copy an object on the server side."""
        target_key = self._key(target)
        self.run_request(source, lambda native, store, key: native.copy(store, key, target_key))

    def rename_if_absent(self, source: str, target: str) -> None:
        """Copy an object to an unused name, then delete it. Intended for small objects."""
        self.put_if_absent(target, self.read(source))
        self.delete(source)

    def run_request(self, path: str, request: Callable[[Any, Any, str], T]) -> T:
        """Run `request(native, store, key)` for an object, with retries."""
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
            # A failed listing cannot be resumed; the next attempt starts after the last page.
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

    def _info(self, entry: Any) -> ObjectInfo:
        return ObjectInfo(
            entry["path"].removeprefix(self._prefix),
            entry["size"],
            entry["last_modified"],
            entry["e_tag"],
        )


class RemoteReader(RangedReader):
    """Fetches ranges of an object in a bucket."""

    def __init__(self, store: RemoteStore, path: str, size: int | None) -> None:
        """Create a reader of the object at `path`; passing its `size` saves a request."""
        super().__init__(store, path, size)
        self._store = store

    def get(self, position: int, size: int) -> object:
        """Return the bytes of a range."""
        return self._store.run_request(
            self._path,
            lambda native, store, key: native.get_range(store, key, start=position, length=size),
        )

    def read_tail(self, size: int) -> Bytes:
        """Fetch the last `size` bytes; the response also includes the object size."""
        if size > 0 and self._size is None:
            # Azure has no suffix ranges, and an empty object has no valid range.
            with contextlib.suppress(CorruptDataError, UnsupportedError):
                self._size, tail = self._store.run_request(self._path, _get_tail(size))
                return tail
        return super().read_tail(size) if size > 0 else np.empty(0, np.uint8)


class RemoteWriter(ObjectWriter):
    """Uploads an object, in parts if it is large; the last request makes it visible."""

    def __init__(self, client: Client, path: str, key: str) -> None:
        """Start writing the object `key`, which has the path `path` in the store."""
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
        """The number of bytes written."""
        return self._position

    def write(self, *buffers: BytesLike) -> None:
        """Append buffers; complete parts are sent."""
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
        """Send the remaining bytes and make the object visible."""
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
        """Abort the upload."""
        if self._upload is None:
            return
        upload, self._upload = self._upload, None
        stop = InterruptedError("the upload was aborted")
        # Leaving the context with an error aborts the upload. A store that is not reachable retains
        # the invisible parts until its lifecycle rules remove them.
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
        response = native.get(store, key, options={"range": {"suffix": size}})
        return response.meta["size"], np.frombuffer(response.bytes(), np.uint8)

    return request
