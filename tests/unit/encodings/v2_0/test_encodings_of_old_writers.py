"""Encodings that released writers used and none uses now, from bytes made by hand."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lancelet.buffers import ByteSlices, run
from lancelet.encodings import v2_0
from lancelet.encodings.base import FileVersion, RowIndices, RowRange, StoredColumn, StoredPage
from lancelet.encodings.v2_0.page import ARRAY_ENCODING_URL, COLUMN_ENCODING_URL, envelope
from lancelet.errors import CorruptDataError, UnsupportedError
from lancelet.format.protos import encodings20_pb as pb
from lancelet.format.protos import wire_pb
from lancelet.format.schema import Schema

VALUES = pb.ColumnEncoding(values=pb.ColumnValues())
INTEGERS = [pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64()]


class Column:
    """A column of one page over buffers made by hand."""

    def __init__(self, data_type, encoding, length, *buffers, column_encoding=VALUES) -> None:
        self.source = np.frombuffer(b"".join(buffers) or b"\0", np.uint8)
        sizes = np.array([len(buffer) for buffer in buffers], np.int64)
        if not isinstance(encoding, bytes):
            encoding = envelope(ARRAY_ENCODING_URL, encoding)
        page = StoredPage(0, length, np.cumsum(sizes) - sizes, sizes, encoding, priority=0)
        own = envelope(COLUMN_ENCODING_URL, column_encoding)
        none = np.empty(0, np.int64)
        columns = [StoredColumn(0, own, (page,), none, none)]
        field = Schema.from_arrow(pa.schema([("x", data_type)])).fields[0]
        self.reader = v2_0.open_field(field, columns, FileVersion.V2_0)

    def read(self, rows):
        return run(
            self.reader.read(rows),
            lambda ranges: ByteSlices(self.source, ranges.position, ranges.size),
        )


def flat(bits, buffer=0):
    return pb.ArrayEncoding(
        flat=pb.Flat(bits_per_value=bits, buffer=pb.Buffer(buffer_index=buffer))
    )


def check_all_ways(column, expected) -> None:
    """Compare all rows, a range, and every third row."""
    count = len(expected)
    assert column.read(RowRange(0, count)).to_pylist() == expected
    assert column.read(RowRange(count // 3, count)).to_pylist() == expected[count // 3 :]
    rows = np.arange(0, count, 3)
    assert column.read(RowIndices(rows)).to_pylist() == expected[::3]


def pack_lowest_bit_first(values, width) -> bytes:
    """Lay the `width` low bits of each value end to end, lowest bit first."""
    number = sum((value & ((1 << width) - 1)) << (width * i) for i, value in enumerate(values))
    return number.to_bytes((width * len(values) + 7) // 8, "little")


@st.composite
def packed_integers(draw):
    data_type = draw(st.sampled_from(INTEGERS))
    signed = pa.types.is_signed_integer(data_type)
    width = draw(st.integers(1, data_type.bit_width))
    if not signed and width == 64:
        width = 63
    least, most = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if signed else (0, (1 << width) - 1)
    values = draw(st.lists(st.integers(least, most), min_size=1, max_size=40))
    return data_type, signed, width, values


@given(packed_integers())
def test_bitpacked_is_values_of_any_width_end_to_end(case) -> None:
    data_type, signed, width, values = case
    encoding = pb.ArrayEncoding(
        bitpacked=pb.Bitpacked(
            compressed_bits_per_value=width,
            uncompressed_bits_per_value=data_type.bit_width,
            buffer=pb.Buffer(buffer_index=0),
            signed=signed,
        )
    )
    data = pack_lowest_bit_first(values, width)
    check_all_ways(Column(data_type, encoding, len(values), data), values)


def test_bitpacked_by_hand() -> None:
    # 5, 2 and 7 in three bits: 0b111_010_101, lowest first.
    encoding = pb.ArrayEncoding(
        bitpacked=pb.Bitpacked(
            compressed_bits_per_value=3,
            uncompressed_bits_per_value=16,
            buffer=pb.Buffer(buffer_index=0),
        )
    )
    column = Column(pa.uint16(), encoding, 3, bytes([0b1101_0101, 0b1]))
    assert column.read(RowRange(0, 3)).to_pylist() == [5, 2, 7]


def pack_fast_lanes(values, width, word_bits) -> bytes:
    """Pack chunks of 1024 values as the definition in the format's notes has it, bit by bit."""
    order = [0, 4, 2, 6, 1, 5, 3, 7]
    lanes = 1024 // word_bits
    out = b""
    for start in range(0, len(values), 1024):
        chunk = values[start : start + 1024] + [0] * 1024
        streams = [0] * lanes
        for row in range(word_bits):
            for lane in range(lanes):
                value = chunk[order[row // 8] * 16 + (row % 8) * 128 + lane]
                streams[lane] |= value << (row * width)
        words = [
            (streams[lane] >> (word * word_bits)) & ((1 << word_bits) - 1)
            for word in range(width)
            for lane in range(lanes)
        ]
        out += np.array(words, f"<u{word_bits // 8}").tobytes()
    return out


@settings(max_examples=12)
@given(
    data_type=st.sampled_from([pa.uint8(), pa.int16(), pa.uint32(), pa.int64()]),
    width=st.integers(1, 8),
    count=st.sampled_from([1, 1000, 1024, 1025, 2500]),
)
def test_bitpacked_for_non_neg_is_whole_fast_lanes_chunks(data_type, width, count) -> None:
    limit = 1 << min(width, data_type.bit_width - 1)
    values = np.random.default_rng(width).integers(0, limit, count).tolist()
    encoding = pb.ArrayEncoding(
        bitpacked_for_non_neg=pb.BitpackedForNonNeg(
            compressed_bits_per_value=width,
            uncompressed_bits_per_value=data_type.bit_width,
            buffer=pb.Buffer(buffer_index=0),
        )
    )
    data = pack_fast_lanes(values, width, data_type.bit_width)
    column = Column(data_type, encoding, count, data)
    check_all_ways(column, values)
    sparse = np.arange(0, count, 700)
    assert column.read(RowIndices(sparse)).to_pylist() == values[::700]


@given(st.lists(st.none() | st.text("abc", min_size=2, max_size=2), min_size=1, max_size=20))
def test_fixed_size_binary_is_bytes_without_offsets(values) -> None:
    fixed = pb.ArrayEncoding(fixed_size_binary=pb.FixedSizeBinary(bytes=flat(8, 1), byte_width=2))
    some = pb.Nullable.SomeNull(validity=flat(1), values=fixed)
    encoding = pb.ArrayEncoding(nullable=pb.Nullable(some_nulls=some))
    validity = np.packbits([value is not None for value in values], bitorder="little").tobytes()
    data = "".join(value or "  " for value in values).encode()
    check_all_ways(Column(pa.string(), encoding, len(values), validity, data), values)


def test_flat_values_may_be_compressed() -> None:
    values = np.arange(500, dtype=np.int32)
    compressed = pa.Codec("zstd").compress(values.tobytes(), asbytes=True)
    encoding = pb.ArrayEncoding(
        flat=pb.Flat(
            bits_per_value=32,
            buffer=pb.Buffer(buffer_index=0),
            compression=pb.Compression(scheme="zstd"),
        )
    )
    framed = len(values.tobytes()).to_bytes(8, "little") + compressed
    check_all_ways(Column(pa.int32(), encoding, 500, framed), values.tolist())


def test_buffers_may_belong_to_the_column() -> None:
    encoding = flat(8)
    encoding.flat.buffer.buffer_type = pb.Buffer.column
    page = StoredPage(
        0,
        3,
        np.empty(0, np.int64),
        np.empty(0, np.int64),
        envelope(ARRAY_ENCODING_URL, encoding),
        priority=0,
    )
    column = StoredColumn(
        0,
        envelope(COLUMN_ENCODING_URL, VALUES),
        (page,),
        np.array([1], np.int64),
        np.array([3], np.int64),
    )
    field = Schema.from_arrow(pa.schema([("x", pa.uint8())])).fields[0]
    reader = v2_0.open_field(field, [column], FileVersion.V2_0)
    source = np.array([9, 1, 2, 3], np.uint8)
    array = run(reader.read(RowRange(0, 3)), lambda r: ByteSlices(source, r.position, r.size))
    assert array.to_pylist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("number", "name"), [(14, "inline_bitpacking"), (19, "rle"), (21, "byte_stream_split")]
)
def test_encodings_that_were_never_released_are_rejected_by_name(number, name) -> None:
    unknown = bytes([(number << 3 | 2) & 0x7F | 0x80, (number << 3 | 2) >> 7, 0])
    if number << 3 | 2 < 128:
        unknown = bytes([number << 3 | 2, 0])
    sealed = wire_pb.Any(type_url=ARRAY_ENCODING_URL, value=unknown).SerializeToString()
    column = Column(pa.int32(), sealed, 1, b"\0\0\0\0")
    with pytest.raises(UnsupportedError, match=name):
        column.read(RowRange(0, 1))


def test_pages_of_another_generation_are_rejected() -> None:
    sealed = wire_pb.Any(type_url="/lance.encodings21.PageLayout").SerializeToString()
    with pytest.raises(UnsupportedError, match="PageLayout"):
        Column(pa.int32(), sealed, 1, b"\0\0\0\0").read(RowRange(0, 1))


def test_zone_indices_are_rejected() -> None:
    zones = pb.ColumnEncoding(zone_index=pb.ZoneIndex(rows_per_zone=7))
    with pytest.raises(UnsupportedError, match="zone index"):
        Column(pa.int32(), flat(32), 1, b"\0\0\0\0", column_encoding=zones)


def test_an_unknown_compression_is_rejected_by_name() -> None:
    encoding = flat(32)
    encoding.flat.compression.scheme = "brotli"
    with pytest.raises(UnsupportedError, match="brotli"):
        Column(pa.int32(), encoding, 1, b"\0\0\0\0").read(RowRange(0, 1))


@pytest.mark.parametrize(
    ("data_type", "encoding"),
    [
        (pa.int64(), flat(32)),
        (pa.int32(), flat(32, buffer=5)),
        (pa.list_(pa.int8(), 3), pb.ArrayEncoding(fixed_size_list=pb.FixedSizeList(dimension=2))),
        (pa.int32(), pb.ArrayEncoding(packed_struct=pb.PackedStruct())),
        (pa.int32(), pb.ArrayEncoding(nullable=pb.Nullable())),
        (pa.int32(), pb.ArrayEncoding()),
        (
            pa.int32(),
            pb.ArrayEncoding(
                bitpacked=pb.Bitpacked(compressed_bits_per_value=40, uncompressed_bits_per_value=32)
            ),
        ),
    ],
)
def test_encodings_that_do_not_fit_the_type_are_corrupt(data_type, encoding) -> None:
    with pytest.raises(CorruptDataError):
        Column(data_type, encoding, 1, b"\0" * 16).read(RowRange(0, 1))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(length=st.integers(2, 2**47))
def test_a_page_never_holds_more_values_than_its_buffer(length) -> None:
    with pytest.raises(CorruptDataError, match="more values than its buffer contains"):
        Column(pa.int32(), flat(32), length, b"\0\0\0\0").read(RowRange(0, 1))


@pytest.mark.parametrize(
    "ends", [[3, 2, 3], [2, 2, 9], [2**63, 2, 3], [2**64 - 1, 2, 3], [0, 2**62, 3]]
)
def test_offsets_that_leave_their_page_are_corrupt(ends) -> None:
    encoding = pb.ArrayEncoding(
        binary=pb.Binary(indices=flat(64), bytes=flat(8, 1), null_adjustment=4)
    )
    indices = np.array(ends, np.uint64).tobytes()
    column = Column(pa.string(), encoding, 3, indices, b"abc")
    with pytest.raises(CorruptDataError, match="offsets"):
        column.read(RowRange(0, 3))


ALL_NULLS = pb.ArrayEncoding(nullable=pb.Nullable(all_nulls=pb.Nullable.AllNull()))


@pytest.mark.parametrize("data_type", [pa.string(), pa.dictionary(pa.uint8(), pa.string())])
def test_a_dictionary_of_nulls_takes_no_memory_for_its_items(data_type) -> None:
    encoding = pb.ArrayEncoding(
        dictionary=pb.Dictionary(indices=flat(8), items=ALL_NULLS, num_dictionary_items=2**32 - 1)
    )
    column = Column(data_type, encoding, 3, bytes([0, 1, 200]))
    assert column.read(RowRange(0, 3)).to_pylist() == [None, None, None]


def test_nulls_of_absurd_size_are_rejected() -> None:
    with pytest.raises((UnsupportedError, CorruptDataError), match="256 MiB"):
        Column(pa.list_(pa.float32(), 2**30), ALL_NULLS, 3).read(RowRange(0, 3))


def test_indices_outside_of_their_dictionary_are_corrupt() -> None:
    items = pb.ArrayEncoding(
        binary=pb.Binary(indices=flat(64, 1), bytes=flat(8, 2), null_adjustment=2)
    )
    encoding = pb.ArrayEncoding(
        dictionary=pb.Dictionary(indices=flat(8), items=items, num_dictionary_items=1)
    )
    item_end = (1).to_bytes(8, "little")
    column = Column(pa.string(), encoding, 3, bytes([0, 1, 1]), item_end, b"a")
    assert column.read(RowRange(0, 3)).to_pylist() == [None, "a", "a"]
    column = Column(pa.string(), encoding, 3, bytes([0, 1, 2]), item_end, b"a")
    with pytest.raises(CorruptDataError, match="dictionary"):
        column.read(RowRange(0, 3))


def listed_bytes(data_type, ends, data, *, adjustment, has_items=True):
    """Return a reader of strings that are stored as lists of bytes."""
    offsets = np.array(ends, "<u8").tobytes()
    lists = pb.ArrayEncoding(
        list=pb.List(offsets=flat(64), null_offset_adjustment=adjustment, num_items=adjustment - 1)
    )
    own, none = envelope(COLUMN_ENCODING_URL, VALUES), np.empty(0, np.int64)

    def stored(index, encoding, length, position, size, items=None):
        where = (np.array([position], np.int64), np.array([size], np.int64))
        page = StoredPage(0, length, *where, envelope(ARRAY_ENCODING_URL, encoding), priority=0)
        return StoredColumn(index, own, (page,), none, none, items)

    items = stored(1, flat(8), len(data), len(offsets), len(data))
    column = stored(0, lists, len(ends), 0, len(offsets), items if has_items else None)
    field = Schema.from_arrow(pa.schema([("x", data_type)])).fields[0]
    reader = v2_0.open_field(field, [column], FileVersion.V2_0)
    source = np.frombuffer(offsets + data, np.uint8)
    return lambda rows: run(
        reader.read(rows), lambda ranges: ByteSlices(source, ranges.position, ranges.size)
    )


@pytest.mark.parametrize("data_type", [pa.string(), pa.large_string(), pa.binary()])
def test_strings_were_lists_of_bytes_once(data_type):
    # null is the end of the value before, and one more than there are bytes.
    read = listed_bytes(data_type, [3, 3, 3 + 8, 7], b"foo" + b"quux", adjustment=8)
    expected = pa.array(["foo", "", None, "quux"], pa.large_string()).cast(data_type)
    assert read(RowRange(0, 4)).equals(expected)
    assert read(RowRange(1, 3)).equals(expected[1:3])
    assert read(RowIndices(np.array([0, 3]))).equals(expected.take(pa.array([0, 3])))


def test_lists_of_bytes_are_strings_only_if_their_bytes_are_there():
    with pytest.raises(CorruptDataError):
        listed_bytes(pa.int64(), [3], b"foo", adjustment=4)
    with pytest.raises(CorruptDataError):
        listed_bytes(pa.string(), [3], b"", adjustment=4)
    with pytest.raises(UnsupportedError):
        listed_bytes(pa.string(), [3], b"foo", adjustment=4, has_items=False)(RowRange(0, 1))
