"""Full-zip pages: items side by side as specified, rows found by computing or by the row index."""

from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa
import pytest

from lancelet.encodings.base import FileVersion, RowIndices, RowRange
from lancelet.encodings.fullzip.write import row_index
from lancelet.encodings.pages.envelope import unpack_any
from lancelet.encodings.v2_1.messages import PAGE_LAYOUT_URL, pack_layout
from lancelet.errors import CorruptDataError
from lancelet.format.protos import encodings21_pb as pb
from tests.kit.field_file import field_file

ZIPPED = {"lance-encoding:structural-encoding": "fullzip"}
V = FileVersion.V2_2


def zipped(array):
    return field_file(array, V, metadata=ZIPPED)


def layout_of(file):
    (page,) = file.columns[0].pages
    return unpack_any(page.encoding, PAGE_LAYOUT_URL, pb.PageLayout).full_zip_layout


def buffers_of(file):
    (page,) = file.columns[0].pages
    return [
        bytes(file.data[position : position + size])
        for position, size in zip(page.position.tolist(), page.size.tolist(), strict=True)
    ]


def test_strings_with_a_null_are_laid_out_as_specified():
    file = zipped(pa.array(["abc", None, "de"]))
    items, index = buffers_of(file)
    assert items == b"\0\3\0\0\0abc\1\0\2\0\0\0de"
    assert index == bytes([0, 8, 9, 16])
    layout = layout_of(file)
    assert (layout.bits_rep, layout.bits_def, layout.bits_per_offset) == (0, 1, 32)
    assert (layout.num_items, layout.num_visible_items) == (3, 3)


def test_lists_of_numbers_are_laid_out_as_specified():
    wanted = pa.field("f", pa.list_(pa.field("item", pa.int16(), metadata=ZIPPED)))
    file = field_file(pa.array([[1, None], [], None, [2]], wanted.type), V, arrow_field=wanted)
    items, index = buffers_of(file)
    # One bit of repetition over two of definition: 1 null item, 2 null list, 3 empty list.
    assert items == b"\4\1\0\1\0\0\7\6\4\2\0"
    assert index == bytes([0, 6, 7, 8, 11])
    assert (layout_of(file).num_items, layout_of(file).num_visible_items) == (5, 3)


def test_vectors_without_nulls_are_just_their_bytes():
    vectors = np.arange(12, dtype=np.float32)
    file = zipped(pa.FixedSizeListArray.from_arrays(pa.array(vectors), 4))
    assert buffers_of(file) == [vectors.tobytes()]


@pytest.mark.parametrize(
    ("data_bytes", "width"), [(0, 1), (255, 1), (256, 2), (65535, 2), (65536, 4), (1 << 32, 8)]
)
def test_the_row_index_is_as_narrow_as_the_page_allows(data_bytes, width):
    starts = np.array([0, data_bytes])
    index = row_index(starts, data_bytes)
    assert len(index) == 2 * width
    assert index.view(f"<u{width}").tolist() == [0, data_bytes]


def test_single_rows_read_only_themselves():
    array = pa.array([f"{i:04}" * 100 for i in range(1000)])
    file = zipped(array)
    found = file.read(RowIndices(np.array([3, 4, 999])))
    assert found.to_pylist() == array.take(pa.array([3, 4, 999])).to_pylist()
    assert file.bytes_read < 3 * 420 + 50


def damaged_index(numbers):
    file = zipped(pa.array(["abc", None, "de"]))
    (page,) = file.columns[0].pages
    start = int(page.position[1])
    file.data[start : start + 4] = bytes(numbers)
    return file


@pytest.mark.parametrize(
    ("numbers", "rows"),
    [
        ([9, 8, 9, 16], RowRange(0, 1)),
        ([0, 8, 9, 200], RowRange(0, 3)),
        ([0, 8, 3, 16], RowRange(1, 2)),
        ([0, 16, 0, 16], RowIndices(np.array([0, 2]))),
        ([0, 3, 9, 16], RowRange(0, 1)),
        ([0, 0, 9, 16], RowRange(0, 1)),
    ],
)
def test_a_row_index_that_cannot_be_is_corrupt(numbers, rows):
    with pytest.raises(CorruptDataError):
        damaged_index(numbers).read(rows)


def with_page(file, **changes):
    page = dataclasses.replace(file.columns[0].pages[0], **changes)
    file.columns[0] = dataclasses.replace(file.columns[0], pages=(page,))
    return file


def test_a_row_index_of_another_length_is_corrupt():
    file = zipped(pa.array(["abc", None, "de"]))
    size = file.columns[0].pages[0].size
    with pytest.raises(CorruptDataError, match="row index"):
        with_page(file, size=np.array([size[0], 5])).read(RowRange(0, 1))


def test_a_page_without_its_row_index_is_corrupt():
    file = zipped(pa.array(["abc", None, "de"]))
    page = file.columns[0].pages[0]
    with pytest.raises(CorruptDataError, match="buffers"):
        with_page(file, size=page.size[:1], position=page.position[:1]).read(RowRange(0, 1))


@pytest.mark.parametrize(
    "change",
    [
        {"bits_def": 3},
        {"bits_rep": 2},
        {"bits_per_value": 12},
        {"bits_per_value": 0},
        {"bits_per_offset": 24},
    ],
)
def test_widths_that_cannot_be_are_corrupt(change):
    file = zipped(pa.array([1, None, 3], pa.int32()))
    (page,) = file.columns[0].pages
    layout = unpack_any(page.encoding, PAGE_LAYOUT_URL, pb.PageLayout)
    for name, value in change.items():
        setattr(layout.full_zip_layout, name, value)
    with pytest.raises(CorruptDataError):
        with_page(file, encoding=pack_layout(layout)).read(RowRange(0, 3))
