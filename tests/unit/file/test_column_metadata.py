"""Column metadata round trips, and positions outside of the file are rejected."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.buffers import ByteSlices, run
from lancelet.errors import CorruptDataError
from lancelet.file.v2.column_metadata import (
    PLAIN_COLUMN_ENCODING,
    WrittenPages,
    decode_column,
    encode_columns,
)
from lancelet.format.protos import file2_pb

FILE_BYTES = 1 << 20
buffers = st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), max_size=4)
pages = st.builds(
    lambda places, length, encoding, priority: WrittenPages(
        [0],
        [np.array([position]) for position, _ in places],
        [np.array([size]) for _, size in places],
        length,
        encoding,
        [priority],
    ),
    buffers,
    st.integers(0, 1 << 40),
    st.binary(max_size=20),
    st.integers(0, 1 << 40),
)


def encoded(*written):
    """The metadata of a column of some pages."""
    direct = file2_pb.Encoding(direct=file2_pb.DirectEncoding(encoding=b""))
    return file2_pb.ColumnMetadata(
        encoding=direct,
        pages=[
            file2_pb.ColumnMetadata.Page(
                buffer_offsets=positions, buffer_sizes=sizes, length=length, encoding=direct
            )
            for positions, sizes, length in written
        ],
    ).SerializeToString()


def no_fetch(ranges):
    raise AssertionError(f"asked for {ranges}")


def decode(data, fetch=no_fetch):
    data = np.frombuffer(data, np.uint8)
    return run(decode_column(data, index=3, file_bytes=FILE_BYTES), fetch)


@given(st.lists(pages, max_size=5))
def test_columns_read_back_without_a_request(written):
    data, ends = encode_columns(written, [PLAIN_COLUMN_ENCODING])
    assert ends.tolist() == [len(data)]
    column = decode(data)
    assert (column.index, column.encoding) == (3, PLAIN_COLUMN_ENCODING)
    first_row = 0
    for found, page in zip(column.pages, written, strict=True):
        assert found.first_row == first_row
        (priority,) = page.priorities
        assert (found.length, found.encoding, found.priority) == (
            page.length,
            page.encoding,
            priority,
        )
        assert found.position.tolist() == [int(each[0]) for each in page.positions]
        assert found.size.tolist() == [int(each[0]) for each in page.sizes]
        first_row += page.length


@given(st.binary(max_size=200))
def test_random_bytes_decode_or_are_rejected(data):
    try:
        column = decode(
            data, lambda ranges: ByteSlices(np.zeros(0, np.uint8), ranges.position, ranges.size)
        )
    except CorruptDataError:
        return
    for page in column.pages:
        assert ((page.position >= 0) & (page.position + page.size <= FILE_BYTES)).all()


@pytest.mark.parametrize(("position", "size"), [(FILE_BYTES, 1), (0, FILE_BYTES + 1), (1 << 63, 8)])
def test_a_buffer_outside_of_the_file_is_rejected(position, size):
    with pytest.raises(CorruptDataError, match="outside") as caught:
        decode(encoded(([position], [size], 1)))
    assert caught.value.facts["column"] == 3
    assert caught.value.facts["position"] == position


def test_more_positions_than_sizes_are_rejected():
    with pytest.raises(CorruptDataError, match="buffer positions"):
        decode(encoded(([0, 0], [1], 1)))


def test_absurd_row_counts_are_rejected():
    page = ([], [], (1 << 64) - 1)
    with pytest.raises(CorruptDataError, match="too many rows"):
        decode(encoded(page, page))


def test_encodings_stored_elsewhere_are_read_in_one_round():
    elsewhere = file2_pb.Encoding(
        indirect=file2_pb.DeferredEncoding(buffer_location=2, buffer_length=3)
    )
    direct = file2_pb.Encoding(direct=file2_pb.DirectEncoding(encoding=b"here"))
    message = file2_pb.ColumnMetadata(
        encoding=elsewhere,
        pages=[
            file2_pb.ColumnMetadata.Page(length=5, encoding=direct),
            file2_pb.ColumnMetadata.Page(length=5, encoding=elsewhere),
        ],
    )
    asked = []

    def fetch(ranges):
        asked.append(ranges)
        return ByteSlices(np.frombuffer(b"..abc..", np.uint8), ranges.position, ranges.size)

    column = decode(message.SerializeToString(), fetch)
    assert len(asked) == 1
    assert column.encoding == b"abc"
    assert [page.encoding for page in column.pages] == [b"here", b"abc"]


def test_an_encoding_elsewhere_but_outside_is_rejected():
    elsewhere = file2_pb.Encoding(
        indirect=file2_pb.DeferredEncoding(buffer_location=1 << 63, buffer_length=3)
    )
    message = file2_pb.ColumnMetadata(encoding=elsewhere)
    with pytest.raises(CorruptDataError, match="outside"):
        decode(message.SerializeToString())


def test_pages_of_many_columns_go_to_their_columns_in_order():
    first = WrittenPages([2, 0], [np.array([64, 0])], [np.array([9, 5])], 10, b"a", [0, 0])
    rest = WrittenPages([0, 2], [np.array([128, 192])], [np.array([7, 8])], 6, b"b", [10, 11])
    data, ends = encode_columns([first, rest], [PLAIN_COLUMN_ENCODING] * 3)
    found = [decode(part) for part in np.split(np.frombuffer(data, np.uint8), ends[:-1])]
    assert [
        [
            (page.position.tolist(), page.size.tolist(), page.length, page.encoding, page.priority)
            for page in column.pages
        ]
        for column in found
    ] == [
        [([0], [5], 10, b"a", 0), ([128], [7], 6, b"b", 10)],
        [],
        [([64], [9], 10, b"a", 0), ([192], [8], 6, b"b", 11)],
    ]
