"""The bytes that codecs store, written by hand, and rejected input.

The essays of the codecs give the same examples; the laws of `tests/property/test_codecs.py` would
also hold for a format of our own, so here is the one there is.
"""

import numpy as np
import pytest

from lancelet.buffers import ByteSlices
from lancelet.encodings.base import Fields, FixedSizeList, FixedWidth, Variable
from lancelet.encodings.choice.options import Compression
from lancelet.encodings.codecs import registry, variable
from lancelet.encodings.codecs.base import ChunkLimits
from lancelet.encodings.codecs.byte_stream_split import ByteStreamSplit
from lancelet.encodings.codecs.constant import Constant
from lancelet.encodings.codecs.delta import Delta
from lancelet.encodings.codecs.dictionary import split, take_items
from lancelet.encodings.codecs.fixed_size_list import FixedSizeListCodec
from lancelet.encodings.codecs.flat import Flat, flat_encoding
from lancelet.encodings.codecs.fsst import Fsst, SymbolTable, parse_table, stored_table
from lancelet.encodings.codecs.general import General
from lancelet.encodings.codecs.inline_bitpacking import InlineBitpacking
from lancelet.encodings.codecs.out_of_line_bitpacking import OutOfLineBitpacking
from lancelet.encodings.codecs.packed_struct import PackedStruct
from lancelet.encodings.codecs.range import Range
from lancelet.encodings.codecs.rle import Rle
from lancelet.encodings.codecs.unsigned import from_unsigned
from lancelet.encodings.codecs.variable import VariableCodec, variable_encoding
from lancelet.encodings.codecs.variable_packed_struct import VariablePackedStruct
from lancelet.errors import CorruptDataError, InvalidInputError, UnsupportedError
from lancelet.format.protos import encodings21_pb as pb21
from lancelet.format.protos import encodings23_pb as pb23

ONE = np.array([1], np.int64)


def numbers(*values: int, dtype: type = np.uint32) -> FixedWidth:
    return from_unsigned(np.array(values, dtype))


def strings(*values: str) -> Variable:
    offsets = np.cumsum([0, *(len(value) for value in values)]).astype(np.int32)
    return Variable(offsets, np.frombuffer("".join(values).encode(), np.uint8))


def chunk(codec, block) -> list[str]:
    encoded = codec.encode_chunks(block, ChunkLimits())
    assert encoded.counts.tolist() == [block.count]
    return [part.slice_bytes(0).tobytes().hex() for part in encoded.parts]


def block_hex(codec, block) -> str:
    return codec.encode_block(block).data.tobytes().hex()


def test_flat_is_the_values() -> None:
    assert chunk(Flat(), numbers(1, 2, 3, dtype=np.uint16)) == ["010002000300"]
    assert chunk(Flat(), FixedWidth(1, np.array([0b1101], np.uint8), 4)) == ["0d"]


def test_variable_counts_offsets_from_the_start_of_its_chunk() -> None:
    assert chunk(VariableCodec(), strings("ab", "", "c")) == [
        "10000000120000001200000013000000616263" + "48"
    ]


def test_variable_blocks_start_with_the_width_and_the_place_of_the_bytes() -> None:
    assert block_hex(VariableCodec(), strings("ab", "", "c")) == (
        "200000001800000000000000020000000200000003000000616263"
    )


def test_variable_blocks_of_early_writers_are_read() -> None:
    data = bytes.fromhex("200200000015000000000000000100000003000000") + b"abc"
    found = registry.decode_block(variable_encoding(32), np.frombuffer(data, np.uint8), 2)
    assert np.diff(found.offsets).tolist() == [1, 2]
    assert found.data.tobytes() == b"abc"


def test_inline_packing_puts_the_width_in_front() -> None:
    (stored,) = chunk(InlineBitpacking(), numbers(3, 1, 2))
    assert len(stored) == 2 * (4 + 1024 * 2 // 8)
    assert stored[:8] == "02000000"


@pytest.mark.parametrize(("count", "stored"), [(1030, 256 + 6 * 2), (2000, 512)])
def test_out_of_line_packing_keeps_a_short_tail_plain(count: int, stored: int) -> None:
    values = from_unsigned((np.arange(count) % 4).astype(np.uint16))
    encoded = OutOfLineBitpacking().encode_block(values)
    assert encoded.data.nbytes == stored
    assert encoded.encoding.out_of_line_bitpacking.values.flat.bits_per_value == 2


def test_runs_are_values_and_lengths() -> None:
    values = numbers(7, 7, 7, 2, 2, 9, dtype=np.uint8)
    assert chunk(Rle(), values) == ["070209", "030201"]
    assert block_hex(Rle(), values) == "0300000000000000070209030201"


def test_a_long_run_is_stored_as_several() -> None:
    assert chunk(Rle(), from_unsigned(np.full(600, 5, np.uint8))) == ["050505", "ffff5a"]


def test_bytes_are_regrouped_by_their_place() -> None:
    floats = FixedWidth(32, np.array([1.0, 1.5], "<f4").view(np.uint8), 2)
    assert chunk(ByteStreamSplit(), floats) == ["0000000080c03f3f"]


def test_lists_have_the_bits_of_their_items_first() -> None:
    items = numbers(1, 0, 3, 4, 5, 6, dtype=np.uint8)
    lists = FixedSizeList(3, np.array([0b111101], np.uint8), items, 2)
    assert chunk(FixedSizeListCodec(), lists) == ["3d", "010003040506"]
    rows = FixedSizeListCodec().encode_values(lists).rows
    assert rows.data.tobytes().hex() == "0501000307040506"


def test_structs_are_zipped() -> None:
    fields = Fields((numbers(1, 3, dtype=np.uint16), numbers(2, 4)), 2)
    assert chunk(PackedStruct(), fields) == ["010002000000030004000000"]


def test_strings_of_structs_have_their_length_in_front() -> None:
    fields = Fields((numbers(1, 2, dtype=np.uint16), strings("ab", "")), 2)
    rows = VariablePackedStruct().encode_values(fields).rows
    assert rows.data.tobytes().hex() == "0100020000006162020000000000"
    assert rows.offsets.tolist() == [0, 8, 14]


def test_general_compression_puts_the_plain_size_in_front() -> None:
    values = from_unsigned(np.zeros(1000, np.uint32))
    (zstd,) = chunk(General(Flat(), Compression.ZSTD), values)
    (lz4,) = chunk(General(Flat(), Compression.LZ4), values)
    assert zstd.startswith("a00f00000000000028b52ffd")
    assert lz4.startswith("a00f0000")


def test_bare_zstd_frames_are_read() -> None:
    sized = General(Flat(), Compression.ZSTD).encode_block(
        from_unsigned(np.arange(500, dtype="<u4"))
    )
    found = registry.decode_block(sized.encoding, sized.data[8:], 500)
    assert found.data.view("<u4").tolist() == list(range(500))


def test_sequences_are_rules() -> None:
    assert Range().encode_block(numbers(3, 5, 7)).encoding.range.step == 2
    delta = Delta().encode_block(numbers(100, 103, 103, 110))
    assert delta.encoding.delta.base == 100
    assert delta.data.view("<u4").tolist() == [3, 0, 7]
    constant = Constant().encode_block(numbers(7, 7, 7)).encoding
    assert constant.constant.value == b"\x07\0\0\0"
    for encoding in (Range().encode_block(numbers(3, 5)).encoding, constant):
        assert not registry.owns_bytes(encoding)


def test_an_empty_set_has_neither_value_nor_bytes() -> None:
    encoded = Constant().encode_block(numbers())
    assert not encoded.encoding.constant.HasField("value")
    assert registry.decode_block(encoded.encoding, encoded.data, 0).count == 0


def test_symbol_tables_keep_symbols_then_lengths() -> None:
    table = SymbolTable(np.array([0x6261, 0x63], np.uint64), np.array([2, 1], np.uint8))
    stored = stored_table(table)
    assert len(stored) == 2312
    assert stored[:26].hex() == "0200000154535346616200000000000063000000000000000201"
    parsed = parse_table(stored)
    assert parsed is not None
    assert parsed.lengths.tolist() == [2, 1]


def test_a_table_that_is_switched_off_leaves_strings_alone() -> None:
    table = (0x46535354 << 32).to_bytes(8, "little").ljust(2312, b"\0")
    encoding = pb21.CompressiveEncoding(
        fsst=pb21.Fsst(symbol_table=table, values=variable_encoding(32))
    )
    stored = VariableCodec().encode_chunks(strings("ab", "c"), ChunkLimits())
    found = registry.decode_chunks(encoding, stored.parts, stored.counts)
    assert found.data[: int(found.offsets[-1])].tobytes() == b"abc"


def test_a_dictionary_keeps_the_bytes_of_every_value() -> None:
    floats = np.array([0.0, -0.0, np.nan, -np.nan, 0.0])
    parts = split(FixedWidth(64, floats.view(np.uint8), 5), 5)
    assert parts is not None
    indices, items = parts
    assert indices.tolist() == [0, 1, 2, 3, 0]
    assert take_items(items, indices.view(np.uint32)).data.tobytes() == floats.tobytes()


# --- refusals ---------------------------------------------------------------------------------


def decode_chunk(encoding, *buffers: bytes, count: int):
    parts = [ByteSlices.whole(np.frombuffer(buffer, np.uint8)) for buffer in buffers]
    return registry.decode_chunks(encoding, parts, np.array([count], np.int64))


def test_an_unknown_codec_is_named_as_such() -> None:
    with pytest.raises(UnsupportedError, match="unknown codec"):
        decode_chunk(pb21.CompressiveEncoding(), b"", count=1)


def test_a_codec_in_a_place_it_has_no_form_for_is_rejected() -> None:
    dictionary = pb21.CompressiveEncoding(
        dictionary=pb21.Dictionary(indices=flat_encoding(8), items=flat_encoding(8))
    )
    for encoding in (dictionary, Range().encode_block(numbers(1)).encoding):
        with pytest.raises((UnsupportedError, CorruptDataError)):
            decode_chunk(encoding, b"", count=1)
    with pytest.raises(UnsupportedError, match="full-zip"):
        Rle().encode_values(numbers(1))


def test_values_without_bytes_are_not_believed_without_end() -> None:
    encoding = pb21.CompressiveEncoding(constant=pb21.Constant(value=b"\0" * 8))
    wide = pb23.CompressiveEncoding(
        range=pb23.Range(uncompressed_bits_per_value=64, start=0, step=1)
    )
    packed = pb21.CompressiveEncoding(
        out_of_line_bitpacking=pb21.OutOfLineBitpacking(
            uncompressed_bits_per_value=64, values=flat_encoding(0)
        )
    )
    for message in (encoding, wide, packed):
        with pytest.raises(CorruptDataError, match="more values"):
            registry.decode_block(message, np.empty(0, np.uint8), 1 << 31)
        with pytest.raises(CorruptDataError):
            registry.decode_block(message, np.empty(0, np.uint8), 1 << 40)


def test_a_large_constant_is_not_repeated_without_end() -> None:
    encoding = pb21.CompressiveEncoding(constant=pb21.Constant(value=b"x" * 100_000))
    with pytest.raises(CorruptDataError, match="more values"):
        registry.decode_block(encoding, np.empty(0, np.uint8), 1 << 20)


def test_encodings_that_nest_without_end_are_rejected() -> None:
    encoding = flat_encoding(8)
    for _ in range(40):
        compression = pb21.BufferCompression(scheme=pb21.BufferCompression.ZSTD)
        encoding = pb21.CompressiveEncoding(
            general=pb21.General(compression=compression, values=encoding)
        )
    with pytest.raises(CorruptDataError, match="nest"):
        decode_chunk(encoding, b"", count=0)


@pytest.mark.parametrize("bits", [0, 7, 12, 1 << 40])
def test_impossible_widths_are_rejected(bits: int) -> None:
    with pytest.raises(CorruptDataError, match="width"):
        decode_chunk(flat_encoding(bits), b"\0" * 16, count=2)


def test_a_chunk_of_too_many_values_is_rejected() -> None:
    with pytest.raises(CorruptDataError, match="impossible number"):
        decode_chunk(flat_encoding(1), b"\0" * 5000, count=40_000)


def test_the_number_of_buffers_must_fit_the_encoding() -> None:
    with pytest.raises(CorruptDataError, match="buffers"):
        decode_chunk(Rle().encode_block(numbers(1)).encoding, b"\0\0\0\0", count=1)


def test_runs_whose_number_is_nowhere_stored_are_rejected() -> None:
    packed = OutOfLineBitpacking().encode_block(numbers(1, 2)).encoding
    encoding = pb21.CompressiveEncoding(rle=pb21.Rle(values=packed, run_lengths=packed))
    with pytest.raises(UnsupportedError, match="number of runs"):
        decode_chunk(encoding, b"\0" * 8, b"\0" * 8, count=2)


@pytest.mark.parametrize(
    ("encode", "match"),
    [
        (
            lambda: ByteStreamSplit().encode_chunks(numbers(1, dtype=np.uint8), ChunkLimits()),
            "bits",
        ),
        (lambda: Constant().encode_block(numbers(1, 2)), "equal"),
        (lambda: Range().encode_block(numbers(1, 2, 4)), "sequence"),
        (lambda: Delta().encode_block(numbers()), "non-empty"),
        (
            lambda: InlineBitpacking().encode_block(from_unsigned(np.zeros(1025, np.uint8))),
            "single",
        ),
        (lambda: General(Flat(), Compression.FSST), "general"),
        (lambda: Flat().encode_block(strings("a")), "fixed-width"),
        (lambda: VariableCodec().encode_block(numbers(1)), "byte strings"),
        (lambda: Fsst().encode_block(strings("a")), "single buffers"),
        (lambda: chunk(PackedStruct(), numbers(1)), "structs"),
        (lambda: chunk(PackedStruct(), Fields((strings("a"),), 1)), "whole bytes"),
    ],
)
def test_values_unsupported_by_a_codec_are_rejected(encode, match: str) -> None:
    with pytest.raises((InvalidInputError, UnsupportedError), match=match):
        encode()


@pytest.mark.parametrize("offsets", [[0, 2**63 - 1, -2, 5], [0, 2**62, -(2**62) - 1, 5]])
def test_offsets_whose_differences_wrap_around_are_corrupt(offsets):
    bytes_ = ByteSlices(np.zeros(8, np.uint8), np.zeros(1, np.int64), np.array([8], np.int64))
    with pytest.raises(CorruptDataError, match="decrease"):
        variable._join_parts(np.array(offsets), bytes_, np.array([3]))


@pytest.mark.parametrize(
    ("start", "step", "counts"),
    [(3, 3, [9]), (2, 2, [6, 2, 12]), (4, 2**32 - 1, [9, 4, 0]), (5, 0, [10, 5])],
)
def test_runs_by_rules_take_as_many_lengths_as_fill_each_block(start, step, counts):
    decoded = registry.decode_blocks(runs_by_rules(start, step), nothing(counts), np.array(counts))
    expected = []
    for count in counts:
        own = []
        while len(own) < count:
            own += [7 * len(set(own))] * (start + step * len(set(own)) & 0xFFFFFFFF)
        expected += own
    assert decoded.data.view(np.uint32).tolist() == expected


@pytest.mark.parametrize(("start", "step", "count"), [(3, 3, 8), (0, 0, 5), (9, 1, 4)])
def test_runs_by_rules_that_fill_no_block_are_corrupt(start, step, count):
    with pytest.raises(CorruptDataError, match="do not match the size of their blocks"):
        registry.decode_blocks(runs_by_rules(start, step), nothing([count]), np.array([count]))


def runs_by_rules(start, step):
    rule = pb23.Range(uncompressed_bits_per_value=32, start=start, step=step)
    values = pb23.Range(uncompressed_bits_per_value=32, start=0, step=7)
    return pb23.CompressiveEncoding(
        rle=pb23.Rle(
            values=pb23.CompressiveEncoding(range=values),
            run_lengths=pb23.CompressiveEncoding(range=rule),
        )
    )


def nothing(counts):
    zeros = np.zeros(len(counts), np.int64)
    return ByteSlices(np.empty(0, np.uint8), zeros, zeros)


def repeated_lists(has_validity):
    items = numbers(*[7] * 120)
    validity = np.tile(np.array([0b0111], np.uint8), 15) if has_validity else None
    return FixedSizeList(4, validity, items, 30)


@pytest.mark.parametrize("compression", [Compression.LZ4, Compression.ZSTD])
@pytest.mark.parametrize(
    "block",
    [
        repeated_lists(has_validity=True),
        repeated_lists(has_validity=False),
        FixedSizeList(
            2, np.full(2, 0b0111, np.uint8), FixedSizeList(4, None, numbers(*[7] * 64), 16), 8
        ),
    ],
)
def test_compressed_buffers_of_block_context_hold_items_and_their_validity(block, compression):
    encoded = General(FixedSizeListCodec(), compression).encode_block(block)
    decoded = registry.decode_block(encoded.encoding, encoded.data, block.count)
    assert decoded.dimension == block.dimension
    assert FixedSizeListCodec().encode_block(decoded).data.tobytes() == (
        FixedSizeListCodec().encode_block(block).data.tobytes()
    )


@pytest.mark.parametrize("compression", [Compression.LZ4, Compression.ZSTD])
def test_compressed_buffers_of_block_context_hold_values_and_lengths_of_runs(compression):
    block = numbers(*range(100))
    encoded = General(Rle(), compression).encode_block(block)
    decoded = registry.decode_block(encoded.encoding, encoded.data, block.count)
    assert decoded.data.tobytes() == block.data.tobytes()
