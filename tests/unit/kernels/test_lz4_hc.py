"""LZ4 by the longer search: any decompressor undoes it, and it pays."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lancelet import kernels
from lancelet.buffers import Slices


def slices_of(parts: list[bytes]) -> Slices:
    sizes = np.array([len(part) for part in parts], np.int64)
    return Slices(np.frombuffer(b"".join(parts), np.uint8), np.cumsum(sizes) - sizes, sizes)


@given(parts=st.lists(st.binary(max_size=300), max_size=5), level=st.integers(2, 12))
def test_what_was_compressed_comes_back(parts: list[bytes], level: int) -> None:
    packed = kernels.lz4_hc_compress_chunks(slices_of(parts), level=level, sized=True)
    plain = kernels.lz4_decompress_chunks(packed)
    assert [plain.slice_bytes(i).tobytes() for i in range(len(parts))] == parts


def test_plain_sizes_may_be_kept_elsewhere() -> None:
    parts = slices_of([b"ab" * 100, b""])
    packed = kernels.lz4_hc_compress_chunks(parts, level=3, sized=False)
    plain = kernels.lz4_decompress_chunks(packed, parts.size)
    assert plain.source.tobytes() == parts.source.tobytes()


def test_the_longer_search_finds_more() -> None:
    words = np.array([b"carefully", b"final", b"deposits", b"sleep", b"quickly", b"foxes"])
    text = b" ".join(np.random.default_rng(1).choice(words, 4000))
    fast = kernels.lz4_compress_chunks(slices_of([text]), sized=True)
    slow = kernels.lz4_hc_compress_chunks(slices_of([text]), level=9, sized=True)
    assert int(slow.size[0]) < 0.9 * int(fast.size[0])
