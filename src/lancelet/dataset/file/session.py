"""Sessions for reading and writing many files below a base path."""

from __future__ import annotations

import builtins
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

from lancelet.arguments import text, whole_number
from lancelet.buffers import ByteRanges
from lancelet.dataset.file.blob_writers import DedicatedBlobWriter, PackedBlobWriter
from lancelet.dataset.file.reader import (
    LanceFileReader,
    NamespaceClient,
    open_file,
    store_of,
)
from lancelet.dataset.file.writer import LanceFileWriter

_COPY_BYTES: Final = 8 * 1024 * 1024

_POSITION_MAX: Final = (1 << 62) - 1


@dataclass
class ListResult:
    """The direct contents of a directory.

    Attributes:
        common_prefixes: The paths of subdirectories.
        objects: The paths of files.
    """

    common_prefixes: list[str]
    objects: list[str]


class LanceFileSession:
    """Opens files below a base path with a shared store."""

    def __init__(
        self,
        base_path: str | os.PathLike[str],
        storage_options: Mapping[str, str] | None = None,
        namespace_client: NamespaceClient | None = None,
        table_id: Sequence[str] | None = None,
    ) -> None:
        """Open a session; see `LanceFileReader` for the arguments."""
        store, path = store_of(base_path, storage_options, namespace_client, table_id)
        self._store = store.at(path)

    def open_reader(
        self, path: str, columns: Sequence[str] | None = None, *, verify: str = "full"
    ) -> LanceFileReader:
        """Open a data file for reading.

        Args:
            path: The path relative to the base path.
            columns: The columns to read; all by default.
            verify: Whether to verify checksums; see `LanceFileReader`.

        Returns:
            The reader.

        Raises:
            ObjectNotFoundError: If the file does not exist.
            FieldNotFoundError: If a column does not exist.

        Example:
            ```python
            session = LanceFileSession(".")
            with session.open_writer("new.lance", schema=new_books.schema) as writer:
                writer.write_batch(new_books)
            session.open_reader("new.lance", columns=["id"]).num_rows()
            ```
        """
        reader = open_file(self._store, text("path", path), verify=verify)
        return LanceFileReader(None, columns=columns, _inner_reader=reader)

    def open_writer(
        self,
        path: str,
        *,
        schema: pa.Schema | None = None,
        data_cache_bytes: int | None = None,
        version: str | None = None,
        keep_original_array: bool | None = None,
        max_page_bytes: int | None = None,
    ) -> LanceFileWriter:
        """Open a data file for writing.

        Args:
            path: The path relative to the base path.
            schema: The schema; the schema of the first batch by default.
            data_cache_bytes: The bytes to buffer before pages are encoded.
            version: The file version.
            keep_original_array: Ignored; buffered arrays are never copied.
            max_page_bytes: The maximum size of a page.

        Returns:
            The writer.

        Raises:
            InvalidInputError: If an argument is out of range.

        Example:
            ```python
            with LanceFileSession(".").open_writer("new.lance", schema=new_books.schema) as writer:
                writer.write_batch(new_books)
            ```
        """
        return LanceFileWriter(
            None,
            schema,
            data_cache_bytes=data_cache_bytes,
            version=version,
            keep_original_array=keep_original_array,
            max_page_bytes=max_page_bytes,
            _store=(self._store, text("path", path)),
        )

    def open_packed_blob_writer(self, path: str, blob_id: int) -> PackedBlobWriter:
        """Open a sidecar file for many blobs of a data file.

        Args:
            path: The path of the data file.
            blob_id: The id of the sidecar file.

        Returns:
            The writer.

        Example:
            ```python
            writer = LanceFileSession(".").open_packed_blob_writer("data/new.lance", 1)
            writer.write_blobs(pa.array([b"one", b"two"]))
            column = writer.finish_array("image")
            ```
        """
        return PackedBlobWriter(self._store, path, blob_id)

    def open_dedicated_blob_writer(self, path: str, blob_id: int) -> DedicatedBlobWriter:
        """Open a sidecar file for one blob of a data file.

        Args:
            path: The path of the data file.
            blob_id: The id of the sidecar file.

        Returns:
            The writer.

        Example:
            ```python
            writer = LanceFileSession(".").open_dedicated_blob_writer("data/new.lance", 1)
            writer.write(b"one part, ")
            writer.write(b"another part")
            writer.finish()
            ```
        """
        return DedicatedBlobWriter(self._store, path, blob_id)

    def contains(self, path: str) -> bool:
        """Return whether a file exists.

        Args:
            path: The path.

        Returns:
            Whether it exists.

        Example:
            ```python
            LanceFileSession(".").contains("new.lance")  # False
            ```
        """
        return self._store.exists(text("path", path))

    def list(self, path: str | None = None) -> builtins.list[str]:
        """Return the paths of all files below a directory.

        Args:
            path: The directory; the base path by default.

        Returns:
            The paths.

        Example:
            ```python
            LanceFileSession(".").list()
            ```
        """
        return [info.path for info in self._store.list(_folder(path))]

    def list_with_delimiter(self, path: str | None = None) -> ListResult:
        """Return the files and subdirectories of a directory.

        Args:
            path: The directory; the base path by default.

        Returns:
            The files and subdirectories.

        Example:
            ```python
            LanceFileSession(".").list_with_delimiter()
            ```
        """
        listing = self._store.list_delimited(_folder(path))
        return ListResult(builtins.list(listing.folders), [info.path for info in listing.objects])

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """Return a byte range of a file.

        Args:
            path: The path.
            offset: The first byte.
            length: The number of bytes.

        Returns:
            The bytes.

        Raises:
            ObjectNotFoundError: If the file does not exist.

        Example:
            ```python
            session = LanceFileSession(".")
            with session.open_writer("new.lance", schema=new_books.schema) as writer:
                writer.write_batch(new_books)
            session.read_range("new.lance", 0, 16)
            ```
        """
        ranges = ByteRanges.of((_position("offset", offset), _position("length", length)))
        with self._store.open_reader(text("path", path)) as reader:
            return reader.read_ranges(ranges).slice_bytes(0).tobytes()

    def delete_file(self, path: str) -> None:
        """Delete a file.

        Args:
            path: The path.

        Raises:
            ObjectNotFoundError: If the file does not exist.

        Example:
            ```python
            session = LanceFileSession(".")
            with session.open_writer("old.lance", schema=new_books.schema) as writer:
                writer.write_batch(new_books)
            session.delete_file("old.lance")
            ```
        """
        self._store.info(text("path", path))
        self._store.delete(path)

    def upload_file(self, local_path: str | os.PathLike[str], remote_path: str) -> None:
        """Copy a local file into the store.

        Args:
            local_path: The local path.
            remote_path: The path relative to the base path.

        Raises:
            FileNotFoundError: If the local file does not exist.

        Example:
            ```python
            from pathlib import Path

            Path("notes.txt").write_text("checked")
            LanceFileSession("archive").upload_file("notes.txt", "2026/notes.txt")
            ```
        """
        text("remote_path", remote_path)
        with Path(local_path).open("rb") as source, self._store.open_writer(remote_path) as target:
            while part := source.read(_COPY_BYTES):
                target.write(part)

    def download_file(self, remote_path: str, local_path: str | os.PathLike[str]) -> None:
        """Copy a file of the store to a local file.

        Args:
            remote_path: The path relative to the base path.
            local_path: The local path.

        Raises:
            ObjectNotFoundError: If the file does not exist.

        Example:
            ```python
            from pathlib import Path

            session = LanceFileSession("archive")
            Path("notes.txt").write_text("checked")
            session.upload_file("notes.txt", "notes.txt")
            session.download_file("notes.txt", "copy.txt")
            ```
        """
        text("remote_path", remote_path)
        with self._store.open_reader(remote_path) as source, Path(local_path).open("wb") as target:
            for start in range(0, source.size, _COPY_BYTES):
                size = min(_COPY_BYTES, source.size - start)
                target.write(source.read_ranges(ByteRanges.of((start, size))).slice_bytes(0).data)


def _folder(path: str | None) -> str:
    return "" if path is None else text("path", path)


def _position(name: str, value: int) -> int:
    """Return a position or size, limited to the maximum supported file size."""
    return min(whole_number(name, value), _POSITION_MAX)
