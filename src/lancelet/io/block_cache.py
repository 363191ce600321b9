"""A cache of remote objects on a local disk, in blocks, shared by processes.

    storage_options = {"local_cache": "/nvme/lance", "local_cache_bytes": "500000000000"}

Only objects that are never modified are cached: data files, deletion files and indices. Each block
of 1 MiB is a file, named by a hash of store, path and size, with its CRC-32C at the end:

    data/0a1b.lance, 2.5 MiB    ->    3f9c...-0    3f9c...-1    3f9c...-2 (half a block)

Files are created by renaming, so processes need no locks, and a crash leaves no damaged block. The
checksum is compared when a process first reads a block; a damaged block is fetched again. If the
files exceed the limit, those that processes have not opened for the longest time are deleted. Each
process measures the folder after writing a sixteenth of the limit, and may exceed it by as much.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Hashable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final, TypeVar

import numpy as np

from lancelet import surroundings
from lancelet.buffers import ByteRanges, Bytes
from lancelet.errors import InvalidInputError
from lancelet.io.options import LOCAL_CACHE, LOCAL_CACHE_BYTES, get_option
from lancelet.io.ranged import RangedReader
from lancelet.io.store import ObjectReader, Store
from lancelet.io.wrapped import Request, WrappedStore
from lancelet.kernels import crc32c

T = TypeVar("T")

BLOCK_BYTES: Final = 1 << 20
_CHECKSUM_BYTES: Final = 4
_DEFAULT_BYTES: Final = 100 << 30
_CACHED_FOLDERS: Final = frozenset({"data", "_deletions", "_indices"})
_MEASUREMENTS_PER_LIMIT: Final = 16
_FILL_AFTER_EVICTION: Final = 0.9
_VERIFIED_MAX: Final = 1 << 20
"""Maximum number of blocks that a process remembers as verified."""


def with_local_cache(store: Store, storage_options: Mapping[str, str]) -> Store:
    """Return a store with the cache of the options, or the store itself.

    Raises:
        InvalidInputError: The size of the cache is not a positive number.
    """
    folder = get_option(storage_options, LOCAL_CACHE)
    limit = get_option(storage_options, LOCAL_CACHE_BYTES)
    if folder is None:
        if limit is not None:
            raise InvalidInputError(f"{LOCAL_CACHE_BYTES} requires {LOCAL_CACHE}", found=limit)
        return store
    if limit is not None and (not limit.isdecimal() or int(limit) < BLOCK_BYTES):
        raise InvalidInputError(
            f"{LOCAL_CACHE_BYTES} must be a number of bytes", found=limit, minimum=BLOCK_BYTES
        )
    return _CachedStore(store, _open_cache(folder, int(limit or _DEFAULT_BYTES)))


class BlockCache:
    """Blocks in a local folder, limited in size."""

    def __init__(self, folder: str, limit: int) -> None:
        """Use a folder, which is created if necessary."""
        self._folder = Path(folder)
        self._limit = limit
        self._unmeasured = limit  # measures the folder before the first write
        self._verified: set[str] = set()

    def read(self, name: str, size: int, start: int, end: int) -> Bytes | None:
        """Return a part of a block of the given size, or None if it is missing or damaged."""
        path = self._path(name)
        is_verified = name in self._verified
        try:
            if is_verified:
                part: Bytes = np.fromfile(path, np.uint8, end - start, offset=start)
                return part if len(part) == end - start else None
            stored: Bytes = np.fromfile(path, np.uint8)
        except OSError:
            return None
        data, checksum = stored[:-_CHECKSUM_BYTES], stored[-_CHECKSUM_BYTES:].tobytes()
        if len(data) != size or _checksum(data) != checksum:
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        if len(self._verified) >= _VERIFIED_MAX:
            self._verified.clear()
        self._verified.add(name)
        with contextlib.suppress(OSError):
            os.utime(path)  # recently used
        return data[start:end]

    def write(self, name: str, data: Bytes) -> None:
        """Store a block; without effect if the disk is full or read-only."""
        path = self._path(name)
        temporary = path.with_name(f"{name}.{surroundings.new_token()}.tmp")
        try:
            self._make_room(len(data))
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(data.tobytes() + _checksum(data))
            temporary.replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink()

    def _path(self, name: str) -> Path:
        return self._folder / name[:2] / name

    def _make_room(self, size: int) -> None:
        """Delete blocks if the folder, with other processes' blocks, exceeds the limit."""
        self._unmeasured += size
        if self._unmeasured < self._limit // _MEASUREMENTS_PER_LIMIT:
            return
        self._unmeasured = 0
        files = []
        for path in self._folder.glob("*/*"):
            with contextlib.suppress(OSError):
                status = path.stat()
                files.append((status.st_mtime_ns, status.st_size, path))
        total = sum(file_bytes for _, file_bytes, _ in files)
        if total + size <= self._limit:
            return
        for _, file_bytes, path in sorted(files):
            if total <= self._limit * _FILL_AFTER_EVICTION - size:
                return
            with contextlib.suppress(OSError):
                path.unlink()
            self._verified.discard(path.name)
            total -= file_bytes


def _checksum(data: Bytes) -> bytes:
    return crc32c(data).to_bytes(_CHECKSUM_BYTES, "little")


@lru_cache(maxsize=64)
def _open_cache(folder: str, limit: int) -> BlockCache:
    return BlockCache(folder, limit)


class _Direct:
    """An interceptor that runs each request."""

    def request(self, request: Request, action: Callable[[], T]) -> T:
        del request
        return action()


class _CachedStore(WrappedStore):
    """Reads immutable objects through the cache, and passes other requests to the store."""

    def __init__(self, inner: Store, cache: BlockCache) -> None:
        super().__init__(inner, _Direct())
        self._cache = cache

    def _wrap(self, inner: Store) -> _CachedStore:
        return _CachedStore(inner, self._cache)

    def open_reader(self, path: str, size: int | None = None) -> ObjectReader:
        reader = self.inner.open_reader(path, size)
        if _CACHED_FOLDERS.isdisjoint(path.split("/")[:-1]):
            return reader
        return _CachedReader(self, path, size, reader, self._cache)


class _CachedReader(RangedReader):
    """Reads ranges from cached blocks, and fetches consecutive missing blocks together."""

    def __init__(
        self, store: Store, path: str, size: int | None, inner: ObjectReader, cache: BlockCache
    ) -> None:
        super().__init__(store, path, size)
        self._inner = inner
        self._cache = cache
        self._key: str | None = None

    @property
    def size(self) -> int:
        return self._inner.size

    @property
    def identity(self) -> Hashable | None:
        return self._inner.identity

    def get(self, position: int, size: int) -> Bytes:
        end = position + size
        numbers = range(position // BLOCK_BYTES, -(-end // BLOCK_BYTES))
        # The part of each block that is within the range.
        parts = {
            n: (max(position - n * BLOCK_BYTES, 0), min(end - n * BLOCK_BYTES, BLOCK_BYTES))
            for n in numbers
        }
        found = {
            n: self._cache.read(self._name(n), self._size_of(n), *part) for n, part in parts.items()
        }
        for first, last in _runs([n for n, data in found.items() if data is None]):
            begin = first * BLOCK_BYTES
            extent = (begin, min(last * BLOCK_BYTES, self.size) - begin)
            fetched = self._inner.read_ranges(ByteRanges.of(extent)).slice_bytes(0)
            for number in range(first, last):
                block = fetched[number * BLOCK_BYTES - begin :][:BLOCK_BYTES]
                self._cache.write(self._name(number), block)
                found[number] = block[slice(*parts[number])]
        results = [data for data in found.values() if data is not None]
        return results[0] if len(results) == 1 else np.concatenate(results)

    def close(self) -> None:
        self._inner.close()

    def _size_of(self, block: int) -> int:
        return min(BLOCK_BYTES, self.size - block * BLOCK_BYTES)

    def _name(self, block: int) -> str:
        if self._key is None:
            identity = f"{self._object_store.uri}\0{self._path}\0{self.size}"
            self._key = hashlib.blake2b(identity.encode(), digest_size=16).hexdigest()
        return f"{self._key}-{block}"


def _runs(numbers: list[int]) -> list[tuple[int, int]]:
    """Return the ranges of consecutive numbers.

    >>> _runs([1, 2, 5])
    [(1, 3), (5, 6)]
    """
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number:
            runs[-1] = (runs[-1][0], number + 1)
        else:
            runs.append((number, number + 1))
    return runs
