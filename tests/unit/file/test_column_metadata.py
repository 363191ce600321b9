"""Column metadata: what is written is read, and nothing that lies outside of the file passes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.buffers import Slices, run
from lancelet.errors import CorruptDataError
from lancelet.file.v2.column_metadata import (
    PLAIN_COLUMN_ENCODING,
    WrittenPage,
    decode_column,
    encode_column,
)
from lancelet.format.protos import file2_pb

FILE_BYTES = 1 << 20
buffers = st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), max_size=4)
pages = st.builds(
    lambda places, length, encoding, priority: WrittenPage(
        tuple(position for position, _ in places),
        tuple(size for _, size in places),
        length,
        encoding,
        priority,
    ),
    buffers,
    st.integers(0, 1 << 40),
    st.binary(max_size=20),
    st.integers(0, 1 << 40),
)


def no_fetch(ranges):
    raise AssertionError(f"asked for {ranges}")


def decode(data, fetch=no_fetch):
    return run(decode_column(np.frombuffer(data, np.uint8), index=3, file_bytes=FILE_BYTES), fetch)


@given(st.lists(pages, max_size=5))
def test_columns_read_back_without_a_request(written):
    column = decode(encode_column(written, encoding=PLAIN_COLUMN_ENCODING))
    assert (column.index, column.encoding) == (3, PLAIN_COLUMN_ENCODING)
    first_row = 0
    for found, page in zip(column.pages, written, strict=True):
        assert found.first_row == first_row
        assert (found.length, found.encoding, found.priority) == (
            page.length,
            page.encoding,
            page.priority,
        )
        assert tuple(found.position) == page.positions
        assert tuple(found.size) == page.sizes
        first_row += page.length


@given(st.binary(max_size=200))
def test_random_bytes_decode_or_are_refused(data):
    try:
        column = decode(
            data, lambda ranges: Slices(np.zeros(0, np.uint8), ranges.position, ranges.size)
        )
    except CorruptDataError:
        return
    for page in column.pages:
        assert ((page.position >= 0) & (page.position + page.size <= FILE_BYTES)).all()


@pytest.mark.parametrize(("position", "size"), [(FILE_BYTES, 1), (0, FILE_BYTES + 1), (1 << 63, 8)])
def test_a_buffer_outside_of_the_file_is_refused(position, size):
    page = WrittenPage((position,), (size,), 1, b"", 0)
    with pytest.raises(CorruptDataError, match="outside") as caught:
        decode(encode_column([page], encoding=b""))
    assert caught.value.facts["column"] == 3
    assert caught.value.facts["position"] == position


def test_more_positions_than_sizes_are_refused():
    page = WrittenPage((0, 0), (1,), 1, b"", 0)
    with pytest.raises(CorruptDataError, match="number of positions"):
        decode(encode_column([page], encoding=b""))


def test_absurd_row_counts_are_refused():
    page = WrittenPage((), (), (1 << 64) - 1, b"", 0)
    with pytest.raises(CorruptDataError, match="too many rows"):
        decode(encode_column([page, page], encoding=b""))


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
        return Slices(np.frombuffer(b"..abc..", np.uint8), ranges.position, ranges.size)

    column = decode(message.SerializeToString(), fetch)
    assert len(asked) == 1
    assert column.encoding == b"abc"
    assert [page.encoding for page in column.pages] == [b"here", b"abc"]


def test_an_encoding_elsewhere_but_outside_is_refused():
    elsewhere = file2_pb.Encoding(
        indirect=file2_pb.DeferredEncoding(buffer_location=1 << 63, buffer_length=3)
    )
    message = file2_pb.ColumnMetadata(encoding=elsewhere)
    with pytest.raises(CorruptDataError, match="outside"):
        decode(message.SerializeToString())
