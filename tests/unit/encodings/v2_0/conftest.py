"""A file of one field in memory, without a container."""

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pytest

from lancelet.buffers import ByteSlices, run
from lancelet.encodings import v2_0
from lancelet.encodings.base import FileVersion, RowRange, StoredColumn, StoredPage
from lancelet.errors import CorruptDataError
from lancelet.format.schema import Schema


@dataclass
class StoredField:
    """A field whose pages lie in `data`."""

    node: object
    data: bytearray = field(default_factory=bytearray)
    columns: list = field(default_factory=list)
    rounds: int = 0

    def write_inline(self, data) -> int:
        self.data += b"H" * (-len(self.data) % 64)
        self.data += bytes(data)
        return len(self.data) - len(bytes(data))

    def write(self, array) -> "StoredField":
        encodings = v2_0.column_encodings(self.node, FileVersion.V2_0)
        pages = [[] for _ in encodings]
        for page in v2_0.encode_field(array, self.node, FileVersion.V2_0, blobs=self):
            first_row = sum(other.length for other in pages[page.column])
            buffers = [buffer.slice_bytes(0) for buffer in page.buffers]
            positions = [self.write_inline(buffer) for buffer in buffers]
            pages[page.column].append(
                StoredPage(
                    first_row,
                    page.length,
                    np.array(positions, np.int64),
                    np.array([len(buffer) for buffer in buffers], np.int64),
                    page.encoding,
                    priority=0,
                )
            )
        none = np.empty(0, np.int64)
        self.columns = [
            StoredColumn(index, encoding, tuple(own), none, none)
            for index, (encoding, own) in enumerate(zip(encodings, pages, strict=True))
        ]
        return self

    def open(self, header_cache=None):
        return v2_0.open_field(self.node, self.columns, FileVersion.V2_0, header_cache)

    def read(self, rows=None, header_cache=None):
        reader = self.open(header_cache)
        rows = RowRange(0, reader.num_rows) if rows is None else rows
        self.rounds = 0
        array = run(reader.read(rows), self.fetch)
        array.validate(full=True)
        assert array.type == reader.data_type
        assert len(array) == len(rows)
        return array

    def fetch(self, ranges):
        self.rounds += 1
        source = np.frombuffer(bytes(self.data), np.uint8)
        outside = (ranges.position < 0) | (ranges.position + ranges.size > len(source))
        if outside.any() or (ranges.size < 0).any():
            raise CorruptDataError("a range lies outside of the file")
        return ByteSlices(source, ranges.position, ranges.size)


@pytest.fixture
def store():
    """Return a function that stores an array as a field of its type."""

    def store_array(array, *, metadata=None):
        arrow = pa.field("x", array.type, metadata=metadata)
        return StoredField(Schema.from_arrow(pa.schema([arrow])).fields[0]).write(array)

    return store_array
