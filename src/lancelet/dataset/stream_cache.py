"""A stream of batches that can be read again: the first pass writes what it yields to a file."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa

from lancelet.errors import InvalidInputError
from lancelet.io.spill_folder import SpillFolder

_FILE = "cache.arrow"


class UnfinishedPassError(InvalidInputError, RuntimeError):
    """A stream is read again before its first pass came to an end."""


class CachedDataset:
    """Batches that come from a stream at first, and from a file of Arrow afterwards."""

    def __init__(
        self, stream: Iterable[pa.RecordBatch], cache: str | os.PathLike[str] | bool | None = None
    ) -> None:
        """Keep batches in a folder of its own, made in `cache` if that is a path."""
        if cache is False or not isinstance(cache, str | os.PathLike | bool | None):
            raise InvalidInputError("a cache is a folder, or True", found=repr(cache))
        place = cache if isinstance(cache, str | os.PathLike) else None
        self._folder = SpillFolder("stream", place)
        self._stream = stream
        self._is_begun = False
        self._is_complete = False
        self._close = weakref.finalize(self, self._folder.close)

    def close(self) -> None:
        """Delete the file."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        if not self._is_begun:
            return self._first_pass()
        if not self._is_complete:
            raise UnfinishedPassError("the first pass over the stream has not come to an end")
        return self._later_pass()

    @property
    def _path(self) -> Path:
        return self._folder.path / _FILE

    def _first_pass(self) -> Iterator[pa.RecordBatch]:
        self._is_begun = True
        writer: pa.ipc.RecordBatchStreamWriter | None = None
        try:
            for batch in self._stream:
                if writer is None:
                    writer = pa.ipc.new_stream(self._path, batch.schema)
                writer.write(batch)
                yield batch
        finally:
            if writer is not None:
                writer.close()
        self._is_complete = True

    def _later_pass(self) -> Iterator[pa.RecordBatch]:
        if self._path.exists():
            with pa.memory_map(os.fspath(self._path)) as file:
                yield from pa.ipc.open_stream(file)
