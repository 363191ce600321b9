"""Pages of a few values: one chunk each, as every implementation puts it together."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.errors import CorruptDataError, InvalidInputError
from lancelet.kernels import _native

ROWS = st.integers(1, 130)
VALUES, ONE_VALUE, MORE = range(3)


def framed(agree, values, levels=None, **shape):
    chunks, kinds = agree("frame_few", values, levels, **{"size_bytes": 4, "most": 0, **shape})
    count = len(kinds)
    return [chunks.slice_bytes(page).tobytes() for page in range(count)], kinds.tolist()


def test_a_chunk_is_a_head_and_the_values(agree):
    values = np.array([5, 6, 7], "<i4").view(np.uint8)
    found, kinds = framed(agree, values, bits=32, rows=3, count=1)
    head = bytes([0, 0, 12, 0, 0, 0, 0xFE, 0xFE])
    assert found == [head + values.tobytes() + b"\xfe" * 4]
    assert kinds == [VALUES]


def test_levels_lie_before_the_values_as_runs(agree):
    values, levels = np.arange(9, dtype=np.uint8), np.array([0] * 5 + [1] * 4, np.uint16)
    found, kinds = framed(agree, values, levels, bits=8, rows=9, count=1)
    runs = bytes([4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 5, 4]) + b"\xfe" * 2
    assert found == [bytes([9, 0, 14, 0, 9, 0, 0, 0]) + runs + values.tobytes() + b"\xfe" * 7]
    assert kinds == [VALUES]


def test_levels_that_are_shorter_as_bits_make_no_chunk(agree):
    values, levels = np.zeros(20, np.uint8), np.array([0, 1] * 10, np.uint16)
    assert framed(agree, values, levels, bits=8, rows=20, count=1) == ([b""], [MORE])


def test_texts_have_offsets_from_the_start_of_the_values(agree):
    texts = np.array([2, 4, 4, 5], np.int32), np.frombuffer(b"--abc", np.uint8)
    found, kinds = framed(agree, texts, bits=32, rows=3, count=1, most=3, size_bytes=2)
    offsets = np.array([16, 18, 18, 19], "<i4").tobytes()
    assert found == [bytes([0, 0, 20, 0]) + b"\xfe" * 4 + offsets + b"abc\x48" + b"\xfe" * 4]
    assert kinds == [VALUES]
    assert framed(agree, texts, bits=32, rows=3, count=1, most=2) == ([b""], [MORE])


@given(ROWS, st.integers(1, 5), st.sampled_from([1, 8, 16, 32, 64, 96]), st.randoms())
def test_numbers(agree, rows, count, bits, random):
    rng = np.random.default_rng(random.getrandbits(32))
    values = rng.integers(0, random.choice([1, 2, 256]), (rows * count * bits + 7) // 8, np.uint8)
    levels = None
    if random.random() < 0.5:
        levels = (rng.random(rows * count) < random.random() / 2).astype(np.uint16)
    _, kinds = framed(agree, values, levels, bits=bits, rows=rows, count=count)
    if bits > 1 and levels is None:
        pages = values[: rows * count * bits // 8].reshape(count, rows, -1)
        is_one = (pages == pages[:, :1]).all(axis=(1, 2))
        assert kinds == np.where(is_one, ONE_VALUE, VALUES).tolist()


@given(ROWS, st.integers(1, 5), st.sampled_from([np.int32, np.int64]), st.randoms())
def test_texts(agree, rows, count, kind, random):
    rng = np.random.default_rng(random.getrandbits(32))
    sizes = rng.integers(0, random.choice([1, 2, 30]), rows * count)
    if random.random() < 0.3:
        sizes[:] = sizes[0]
    offsets = np.concatenate([[3], 3 + np.cumsum(sizes)]).astype(kind)
    data = rng.integers(97, 97 + random.choice([1, 26]), int(offsets[-1]) + 2, np.uint8)
    bits, most = offsets.itemsize * 8, random.choice([0, 100, 5000])
    _, kinds = framed(agree, (offsets, data), bits=bits, rows=rows, count=count, most=most)
    for page, found in enumerate(kinds):
        ends = offsets[page * rows : (page + 1) * rows + 1].tolist()
        texts = {data[a:b].tobytes() for a, b in itertools.pairwise(ends)}
        is_more = ends[-1] - ends[0] > most
        assert found == (MORE if is_more else ONE_VALUE if len(texts) == 1 else VALUES)


@pytest.mark.parametrize("offsets", [[0, 4, 2], [0, 2, 9], [-1, 2, 4]])
def test_strings_that_are_none_are_refused(agree, offsets):
    texts = np.array(offsets, np.int32), np.zeros(4, np.uint8)
    shape = {"bits": 32, "rows": 2, "count": 1, "size_bytes": 4, "most": 100}
    assert agree("frame_few", texts, None, **shape) is CorruptDataError


@pytest.mark.parametrize(
    "shape", [{"rows": 0}, {"rows": 256}, {"rows": 9}, {"bits": 12}, {"bits": 64}]
)
def test_pages_of_another_shape_are_refused(agree, shape):
    whole = {"bits": 8, "rows": 8, "count": 1, "size_bytes": 4, "most": 0, **shape}
    assert agree("frame_few", np.zeros(8, np.uint8), None, **whole) is InvalidInputError


def test_the_kernel_trusts_neither_values_nor_its_output():
    nothing, one = np.empty(0, np.uint8), np.zeros(1, np.int64)
    for values, room in ((7, 100), (8, 15)):
        arrays = np.zeros(values, np.uint8), nothing, nothing
        out = np.zeros(room, np.uint8)
        kind = np.zeros(1, np.uint8)
        status = _native.frame_few(*arrays, 8, 8, 4, 0, out, one, one.copy(), kind)
        assert status < 0
