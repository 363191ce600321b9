"""Fixtures for tests of files: a store that counts requests, and files in it."""

import threading

import numpy as np
import pyarrow as pa
import pytest

from lancelet.buffers import ByteRanges, ByteSlices
from lancelet.encodings.base import RowRange
from lancelet.file.open import create_data_file, open_data_file
from lancelet.file.v2.writer import WriterOptions
from lancelet.format.schema import Schema
from lancelet.io.memory import MemoryStore
from lancelet.io.store import check_ranges


class FetchingReader:
    """Copies requested ranges, as a reader of a remote object does, and counts requests."""

    identity = None

    def __init__(self, path, data, log):
        self.path = path
        self.size = len(data)
        self._data = np.frombuffer(data, np.uint8)
        self._log = log
        self._lock = threading.Lock()

    def mapped(self):
        return None

    def read_ranges(self, ranges):
        check_ranges(ranges, path=self.path, size=self.size)
        if len(ranges):
            with self._lock:
                self._log.append(
                    list(zip(ranges.position.tolist(), ranges.size.tolist(), strict=True))
                )
        parts = [
            self._data[position : position + size]
            for position, size in zip(ranges.position, ranges.size, strict=True)
        ]
        source = np.concatenate([np.empty(0, np.uint8), *parts])
        ends = np.cumsum(ranges.size)
        return ByteSlices(source, ends - ranges.size, ranges.size)

    def read_tail(self, size):
        size = min(size, self.size)
        return self.read_ranges(ByteRanges.of((self.size - size, size))).slice_bytes(0)

    def close(self):
        pass


class FetchingStore(MemoryStore):
    """A store in memory that copies ranges; `requests` has the ranges of each request."""

    def __init__(self, bucket):
        super().__init__(bucket)
        self.requests = []

    def open_reader(self, path, size=None):
        del size
        return FetchingReader(path, self.read(path), self.requests)


@pytest.fixture
def store(request):
    return MemoryStore(request.node.nodeid.replace("/", "-"))


@pytest.fixture
def remote(request):
    return FetchingStore(request.node.nodeid.replace("/", "-"))


@pytest.fixture
def write():
    """Write a table as a file named `f.lance` and return the summary of the writer."""

    def write_file(store, table, **options):
        blob_v2 = WriterOptions(**options).version.value >= "2.2"
        schema = Schema.from_arrow(table.schema, blob_v2=blob_v2)
        writer = create_data_file(store, "f.lance", schema, WriterOptions(**options))
        writer.write(table)
        writer.finish()
        return writer

    return write_file


@pytest.fixture
def read_all():
    """Read every column of `f.lance` as a table."""

    def read(store, **options):
        reader = open_data_file(store, "f.lance", **options)
        fields = reader.schema.fields
        columns = reader.read_chunks(fields, RowRange(0, reader.num_rows))
        return pa.Table.from_arrays(columns, names=[field.name for field in fields])

    return read
