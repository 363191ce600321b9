"""Numbers of a page are claims: none sizes an allocation before the bytes could hold so much.

A page of some kilobytes uses some megabytes at most, for all numbers in it.
Method: write claims that were believed once, and watch both allocators while they are read.
"""

from __future__ import annotations

import dataclasses
import tracemalloc
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pytest

from lancelet.buffers import ByteSlices
from lancelet.encodings.base import FileVersion, RowRange
from lancelet.encodings.codecs import registry
from lancelet.encodings.codecs.flat import flat_encoding
from lancelet.encodings.pages.envelope import unpack_any
from lancelet.encodings.v2_1.messages import PAGE_LAYOUT_URL, pack_layout
from lancelet.errors import CorruptDataError, UnsupportedError
from lancelet.format.protos import encodings21_pb as pb
from tests.kit.field_file import append, field_file

MB = 1 << 20
LZ4, ZSTD = 1, 2


@contextmanager
def at_most(num_bytes):
    """Fail if NumPy or Arrow allocate more than `most` bytes inside."""
    before = pa.default_memory_pool()
    watched = pa.proxy_memory_pool(before)
    pa.set_memory_pool(watched)
    tracemalloc.start()
    try:
        yield
        held = tracemalloc.get_traced_memory()[1] + watched.max_memory()
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(before)
    assert held <= num_bytes, f"{held >> 20} MiB were held"


def runs(length_bits=32, values=None):
    return pb.CompressiveEncoding(
        rle=pb.Rle(values=values or flat_encoding(64), run_lengths=flat_encoding(length_bits))
    )


def one_run(length):
    """A block of one run of a number of 64 bits."""
    head, value = np.array([8], "<i8"), np.array([7], "<i8")
    return np.concatenate([x.view(np.uint8) for x in (head, value, np.array([length], "<u4"))])


def compressed(scheme, inner):
    compression = pb.BufferCompression(scheme=scheme)
    return pb.CompressiveEncoding(general=pb.General(compression=compression, values=inner))


def frames(count, size, claimed, width):
    """Chunks that claim more values than they have."""
    one = np.zeros(size, np.uint8)
    one[:width] = np.array([claimed], f"<u{width}").view(np.uint8)
    # The frame of a single segment of 64 bytes, with one block, the last, which is compressed.
    one[width : width + 9] = [
        0x28,
        0xB5,
        0x2F,
        0xFD,
        0x20,
        64,
        *((50 << 3 | 5).to_bytes(3, "little")),
    ]
    position = np.arange(count, dtype=np.int64) * size
    return ByteSlices(np.tile(one, count), position, np.full(count, size, np.int64))


@pytest.mark.parametrize("length", [1 << 27, (1 << 32) - 1])
def test_a_run_is_not_believed_to_be_any_number_of_values(length):
    with at_most(8 * MB), pytest.raises(CorruptDataError, match="more values"):
        registry.decode_block(runs(), one_run(length), length)


@pytest.mark.parametrize(("scheme", "claimed"), [(ZSTD, 8_700_000_000), (LZ4, 50_000_000)])
def test_a_chunk_of_numbers_decompresses_to_no_more_than_its_numbers(scheme, claimed):
    width = 8 if scheme == ZSTD else 4
    chunk = frames(1, 200_000, claimed, width)
    one_length = ByteSlices.whole(np.array([1], "<u4").view(np.uint8))
    numbers = compressed(scheme, flat_encoding(64))
    for encoding, parts in ((numbers, [chunk]), (runs(values=numbers), [chunk, one_length])):
        with at_most(8 * MB), pytest.raises(CorruptDataError):
            registry.decode_chunks(encoding, parts, np.array([1]))


def test_strings_decompress_to_no_more_than_the_blocks_of_their_frames_could_hold():
    encoding = compressed(
        ZSTD, pb.CompressiveEncoding(variable=pb.Variable(offsets=flat_encoding(32)))
    )
    chunks = frames(4096, 64, 64 // 3 * 128 * 1024, 8)
    with at_most(8 * MB), pytest.raises(CorruptDataError):
        registry.decode_chunks(encoding, [chunks], np.ones(4096, np.int64))


def test_compressed_values_are_not_compressed_again():
    encoding = compressed(ZSTD, compressed(ZSTD, flat_encoding(64)))
    with pytest.raises(UnsupportedError, match="more than once"):
        registry.decode_chunks(encoding, [frames(1, 64, 8, 8)], np.array([1]))


@pytest.mark.parametrize("items", [1 << 24, 1 << 27, (1 << 32) - 1])
def test_a_dictionary_has_no_more_items_than_its_bytes_could_hold(items):
    words = pa.array([f"name {i % 5}" for i in range(400)])
    file = field_file(words.dictionary_encode(), FileVersion.V2_1)
    page = file.columns[0].pages[0]
    layout = unpack_any(page.encoding, PAGE_LAYOUT_URL, pb.PageLayout)
    block = layout.mini_block_layout
    block.num_dictionary_items = items
    block.dictionary.CopyFrom(runs())
    data = one_run(items)
    position, size = page.position.copy(), page.size.copy()
    position[2], size[2] = append(file.data, data), len(data)
    changed = dataclasses.replace(page, position=position, size=size, encoding=pack_layout(layout))
    file.columns[0] = dataclasses.replace(file.columns[0], pages=(changed,))
    with at_most(8 * MB), pytest.raises(CorruptDataError, match="dictionary"):
        file.read(RowRange(0, 10))
