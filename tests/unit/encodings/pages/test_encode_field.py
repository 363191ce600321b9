"""Columns encoded together have the same pages as columns encoded separately."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet import kernels
from lancelet.encodings.base import FileVersion
from lancelet.encodings.choice.options import PLAIN_OPTIONS
from lancelet.encodings.pages.encode_field import encode_plain, is_plain
from lancelet.encodings.v2_1.fields import pack_page
from lancelet.encodings.v2_3.messages import pack_page as seal_page_of_2_3
from lancelet.format.schema import Schema
from lancelet.kernels import reference

VERSIONS = (FileVersion.V2_1, FileVersion.V2_2)
TEXTS = (pa.string(), pa.binary(), pa.large_string(), pa.large_binary())
NUMBERS = (
    *(pa.int8(), pa.uint16(), pa.int32(), pa.int64(), pa.uint64(), pa.float16(), pa.float32()),
    *(pa.float64(), pa.decimal128(10, 2), pa.date32(), pa.timestamp("us"), pa.duration("ms")),
)
ROWS = st.sampled_from(
    [
        *(1, 2, 7, 8, 63, 65, 100, 512, 1000, 1024, 1025, 1500, 2047, 4096, 5000, 9000),
        *(16_385, 20_000, 33_001, 40_000),
    ]
)


class Page(NamedTuple):
    """A page of a column."""

    place: tuple[int, int, int]
    encoding: bytes
    buffers: list[bytes]
    choice: object


def fields_of(arrays):
    names = [(f"c{at}", array.type) for at, array in enumerate(arrays)]
    return Schema.from_arrow(pa.schema(names)).fields


def encoded(arrays, version):
    """The single page of each column, encoded together."""
    fields = fields_of(arrays)
    found = {}
    seal = seal_page_of_2_3 if version is FileVersion.V2_3 else pack_page
    for pages in encode_plain(arrays, fields, version, PLAIN_OPTIONS, seal):
        for at, (field, choice) in enumerate(zip(pages.fields, pages.report(), strict=True)):
            assert field not in found
            assert choice.path == f"c{field}"
            buffers = [buffer.slice_bytes(at).tobytes() for buffer in pages.buffers]
            place = (pages.column, pages.first_row, pages.length)
            found[field] = Page(place, pages.encoding, buffers, replace(choice, path=""))
    return [found[place] for place in range(len(arrays))]


def numbers(rng, data_type, rows):
    """Random bytes, one value, few of them, sorted ones, ones of few bits."""
    width = data_type.bit_width // 8
    words = rng.integers(0, 256, (rows, width), np.uint8)
    kind = rng.integers(0, 6)
    if kind:
        small = rng.integers(0, [1, 2, 7, 100, 1000][kind - 1], rows)
        if rng.random() < 0.3:
            small = np.sort(small)
        words[:] = 0
        words[:, : min(width, 2)] = small.astype("<u2").view(np.uint8).reshape(rows, 2)[:, :width]
        if rng.random() < 0.2:
            words[:, 2:] = (small * 7)[:, None]
    return pa.Array.from_buffers(data_type, rows, [None, pa.py_buffer(words.tobytes())])


def texts(rng, data_type, rows):
    kinds = int(rng.choice([1, 3, rows]))
    longest = int(rng.choice([1, 4, 30, 300]))
    pool = ["x" * int(rng.integers(0, longest)) + str(at) for at in range(kinds)]
    return pa.array([pool[at] for at in rng.integers(0, kinds, rows)]).cast(data_type)


def column(rng, data_type, rows):
    if pa.types.is_boolean(data_type):
        array = pa.array(rng.random(rows) < rng.choice([0, 1, 0.5, 0.01]))
    else:
        array = (texts if data_type in TEXTS else numbers)(rng, data_type, rows)
    if rng.random() < 0.4:
        valid = rng.random(rows) >= rng.choice([0.002, 0.1, 0.5, 1])
        if rng.random() < 0.5:
            valid = np.sort(valid)
        bits = pa.py_buffer(np.packbits(valid, bitorder="little"))
        array = pa.Array.from_buffers(data_type, rows, [bits, *array.buffers()[1:]])
    return pa.concat_arrays([array[:1], array])[1:] if rng.random() < 0.3 else array


@given(
    st.sampled_from((*NUMBERS, *TEXTS, pa.bool_())),
    ROWS,
    st.sampled_from([1, 2, 20]),
    st.sampled_from(VERSIONS),
    st.integers(0, 2**32),
)
def test_pages_equal_those_of_separately_encoded_columns(data_type, rows, count, version, seed):
    rng = np.random.default_rng(seed)
    arrays = [column(rng, data_type, rows) for _ in range(count)]
    for array, page in zip(arrays, encoded(arrays, version), strict=True):
        assert page.place == (0, 0, rows)
        assert page == encoded([array], version)[0]


def test_bits_of_another_column_are_not_written_after_the_last_row(monkeypatch):
    monkeypatch.setattr(kernels, "encode_pages", reference.encode_pages)
    flags, same = pa.array([True, False]), pa.array([True, True])
    beside, _ = encoded([flags, same], FileVersion.V2_2)
    (alone,) = encoded([flags], FileVersion.V2_2)
    assert beside.buffers == alone.buffers


@pytest.mark.skipif(not kernels.NATIVE, reason="the general way is the only one")
@given(
    st.lists(st.sampled_from((*NUMBERS, *TEXTS, pa.bool_())), min_size=1, max_size=8),
    ROWS,
    st.sampled_from((*VERSIONS, FileVersion.V2_3)),
    st.integers(0, 2**32),
)
def test_pages_of_the_kernel_equal_those_of_the_general_encoder(types, rows, version, seed):
    """To the byte, and with the same report of what else they would have cost."""
    rng = np.random.default_rng(seed)
    arrays = [column(rng, data_type, rows) for data_type in types]
    small = encoded(arrays, version)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "encode_pages", reference.encode_pages)
        assert small == encoded(arrays, version)


def test_pages_of_any_kinds_take_one_call(monkeypatch):
    calls = []
    encode = kernels.encode_pages

    def counted(pages, rows, rules, **shape):
        calls.append(len(pages))
        return encode(pages, rows, rules, **shape)

    monkeypatch.setattr(kernels, "encode_pages", counted)
    rng = np.random.default_rng(0)
    encoded([column(rng, data_type, 1000) for data_type in (*NUMBERS, pa.bool_())], VERSIONS[-1])
    assert calls == [len(NUMBERS) + 1]


WANTED = {
    "packed": (np.arange(1000) * 97 % 1013, "inline_bitpacking(64)"),
    "as they are": (-np.arange(1000), "flat(64)"),
    "runs": (np.repeat(np.arange(8, dtype=np.int8), 125), "rle(flat(8), flat(8))"),
    "one value": (np.full(1000, 7), "constant"),
    "few bytes": (np.arange(60), "flat(64)"),
    "few values": (np.arange(1000) * 97 % 7 / 3, "dictionary(7, flat(64)){inline_bitpacking(8)}"),
}


@pytest.mark.parametrize("name", WANTED)
def test_each_page_of_a_batch_has_its_cheapest_encoding(name):
    values, encoding = WANTED[name]
    pages = encoded([pa.array(values)] * 20, FileVersion.V2_2)
    assert [page.choice.encoding for page in pages] == [encoding] * 20


def test_pages_of_a_batch_share_a_message():
    pages = encoded([pa.array(np.arange(1000) * at % 4093) for at in range(1, 9)], VERSIONS[-1])
    assert len({id(page.encoding) for page in pages}) == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_numbers_of_equal_width_are_encoded_together(version):
    rng = np.random.default_rng(0)
    types = (pa.int64(), pa.float64(), pa.timestamp("us"), pa.uint64(), pa.duration("ms"))
    arrays = [column(rng, data_type, 1000) for data_type in types * 4]
    assert all(map(is_plain, fields_of(arrays)))
    for array, page in zip(arrays, encoded(arrays, version), strict=True):
        assert page == encoded([array], version)[0]


def test_pages_with_as_many_items_share_a_message_and_keep_their_own_items():
    words = np.array([f"{at} of few words" for at in range(20)])
    arrays = [pa.array(np.roll(words, at)[np.arange(1000) * 97 % 20]) for at in range(8)]
    pages = encoded(arrays, VERSIONS[-1])
    assert len({id(page.encoding) for page in pages}) == 1
    assert len({page.buffers[2] for page in pages}) == 8
    for array, page in zip(arrays, pages, strict=True):
        assert page == encoded([array], VERSIONS[-1])[0]
