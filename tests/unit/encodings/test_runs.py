"""Pages with equal encodings are read as one run, with the same results."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lancelet.buffers import ByteSlices, run
from lancelet.encodings import v2_1
from lancelet.encodings.base import FileVersion, RowIndices, RowRange, StoredColumn, StoredPage
from lancelet.encodings.codecs.fsst import message_with_table
from lancelet.encodings.levels import nest
from lancelet.encodings.pages.envelope import unpack_any
from lancelet.encodings.pages.structural import StructuralReader, run_starts
from lancelet.encodings.v2_1.messages import PAGE_LAYOUT_URL, pack_layout
from lancelet.encodings.v2_1.open_page import open_pages, page_key
from lancelet.errors import CorruptDataError
from lancelet.format.protos import encodings21_pb as pb
from lancelet.format.schema import Schema
from tests.kit.field_file import DictHeaderCache

PAGES = (2048, 2048, 3072, 20, 1)
ROWS = sum(PAGES)
WORDS = [f"word {i:03d} of many, so that a dictionary pays" for i in range(60)]


def sentence(row, number):
    """A few words of those that are in use around a row."""
    words = [f"{'abcdefgh'[row // 1000]}{'xyzuvw'[k % 6] * 3}{k % 11}" for k in range(24)]
    return " ".join(words[(number >> k) % 24] for k in range(3 + number % 5))


def arrays():
    rng = np.random.default_rng(0)
    numbers = rng.integers(0, 1 << 20, ROWS, dtype=np.int32)
    lists = [numbers[i : i + i % 4].tolist() for i in range(ROWS)]
    return {
        "numbers": pa.array(numbers),
        "numbers or null": pa.array(numbers, mask=rng.random(ROWS) < 0.1),
        "strings": pa.array([f"text {i}" for i in range(ROWS)]),
        # Each page has a dictionary of its own, and the first ones have fewer items.
        "words": pa.array([WORDS[int(i) % (5 + row // 200)] for row, i in enumerate(numbers)]),
        "words or null": pa.array(
            [None if i % 7 == 0 else WORDS[int(i) % (5 + r // 200)] for r, i in enumerate(numbers)]
        ),
        "lists": pa.array([None if i % 9 == 0 else x for i, x in enumerate(lists)]),
        "lists of words": pa.array(
            [[WORDS[i % (5 + r // 200)] for i in x] for r, x in enumerate(lists)]
        ),
        # Each page has symbols of its own.
        "sentences": pa.array([sentence(row, n) for row, n in enumerate(numbers)]),
        "sentences or null": pa.array(
            [None if n % 7 == 0 else sentence(row, n) for row, n in enumerate(numbers)]
        ),
        "vectors": pa.array(np.repeat(numbers, 300).astype(np.float32)).cast(pa.float32()),
    }


class Column:
    """One column of several pages, read in both ways."""

    def __init__(self, array: pa.Array) -> None:
        if len(array) != ROWS:
            array = pa.FixedSizeListArray.from_arrays(array, 300)
        self.array = array
        self.field = Schema.from_arrow(pa.schema([pa.field("x", array.type)])).fields[0]
        data = bytearray()
        pages = []
        for start, count in zip(np.cumsum([0, *PAGES[:-1]]).tolist(), PAGES, strict=True):
            part = pa.concat_arrays([array.slice(start, count)])
            for page in v2_1.encode_field(part, self.field, FileVersion.V2_2, blobs=None):
                position = []
                buffers = [buffer.slice_bytes(0) for buffer in page.buffers]
                for buffer in buffers:
                    data += bytes(-len(data) % 64)
                    position.append(len(data))
                    data += buffer.tobytes()
                sizes = np.array([len(buffer) for buffer in buffers], np.int64)
                first = start + page.first_row
                pages.append(
                    StoredPage(
                        first, page.length, np.array(position, np.int64), sizes, page.encoding, 0
                    )
                )
        none = np.empty(0, np.int64)
        self.column = StoredColumn(0, b"", tuple(pages), none, none)
        self.source = np.frombuffer(bytes(data), np.uint8)

    def reader(
        self,
        *,
        joins: bool,
        header_cache: DictHeaderCache | None = None,
        column: StoredColumn | None = None,
    ) -> StructuralReader:
        node = nest(self.field, FileVersion.V2_2)
        kind = page_key if joins else None
        columns = [column or self.column]
        return StructuralReader(node, columns, open_pages, header_cache=header_cache, page_key=kind)

    def read(self, reader, rows):
        return run(reader.read(rows), lambda r: ByteSlices(self.source, r.position, r.size))


COLUMNS = {name: Column(array) for name, array in arrays().items()}
ALIKE = ["numbers", "vectors", "words", "sentences", "lists", "lists of words"]


@pytest.mark.parametrize("name", COLUMNS)
@settings(deadline=None, max_examples=15)
@given(data=st.data())
def test_runs_read_as_single_pages_do(name, data):
    column = COLUMNS[name]
    run_reader = column.reader(
        joins=True, header_cache=data.draw(st.sampled_from([None, DictHeaderCache()]))
    )
    page_reader = column.reader(joins=False)
    for _ in range(3):
        start = data.draw(st.integers(0, ROWS - 1))
        rows = RowRange(start, data.draw(st.integers(start + 1, ROWS)))
        if data.draw(st.booleans()):
            picked = data.draw(st.sets(st.integers(0, ROWS - 1), min_size=1, max_size=60))
            rows = RowIndices(np.array(sorted(picked), np.int64))
        found = column.read(run_reader, rows)
        found.validate(full=True)
        assert found.equals(column.read(page_reader, rows))
        if isinstance(rows, RowRange):
            assert found.equals(column.array.slice(rows.start, len(rows)))
        else:
            assert found.equals(column.array.take(pa.array(rows.rows)))


@pytest.mark.parametrize("name", ALIKE)
def test_some_of_the_pages_are_read_as_a_run(name):
    kinds = [page_key(page.encoding) for page in COLUMNS[name].column.pages]
    assert any(one is not None and one == other for one, other in pairwise(kinds))


@pytest.mark.parametrize("name", ["sentences", "sentences or null"])
def test_pages_with_other_symbols_are_read_as_one(name):
    pages = COLUMNS[name].column.pages[:3]
    layouts = [unpack_any(page.encoding, PAGE_LAYOUT_URL, pb.PageLayout) for page in pages]
    found = [message_with_table(each.mini_block_layout.value_compression) for each in layouts]
    assert len({message.symbol_table for message in found}) == len(pages)
    assert len({page_key(page.encoding) for page in pages}) == 1


def test_a_page_without_its_symbols_is_damaged():
    column = COLUMNS["sentences"]
    layout = unpack_any(column.column.pages[0].encoding, PAGE_LAYOUT_URL, pb.PageLayout)
    encoding = layout.mini_block_layout.value_compression
    while encoding.WhichOneof("compression") == "general":
        encoding = encoding.general.values
    encoding.fsst.ClearField("symbol_table")
    damaged = replace(column.column.pages[0], encoding=pack_layout(layout))
    for pages in ([damaged], [damaged, *column.column.pages[1:3]]):
        stored = replace(column.column, pages=tuple(pages))
        with pytest.raises(CorruptDataError):
            column.read(column.reader(joins=True, column=stored), RowRange(0, 10))


def test_a_run_ends_where_its_tables_grow_large():
    starts = run_starts(np.full(4, 200_000), np.zeros(4, np.int64))
    assert starts == [0, 2, 4]


def test_an_item_of_another_page_is_no_item_of_this_one():
    """The indices of a page must not refer to items of the next page."""
    column = COLUMNS["words"]
    first, second = column.column.pages[:2]
    layout = unpack_any(first.encoding, PAGE_LAYOUT_URL, pb.PageLayout)
    layout.mini_block_layout.num_dictionary_items = 1
    damaged = replace(first, encoding=pack_layout(layout))
    stored = replace(column.column, pages=(damaged, second))
    assert page_key(damaged.encoding) == page_key(second.encoding)
    for rows in (RowRange(0, 2000), RowIndices(np.arange(0, 2000, 40))):
        reader = StructuralReader(
            nest(column.field, FileVersion.V2_2),
            [stored],
            open_pages,
            header_cache=None,
            page_key=page_key,
        )
        with pytest.raises(CorruptDataError):
            column.read(reader, rows)


def test_large_pages_of_plain_vectors_are_one_run():
    column = COLUMNS["vectors"]
    assert min(page.size[0] for page in column.column.pages[:3]) > 256 * 1024
    reads = []

    def fetch(ranges):
        reads.append(ranges)
        return ByteSlices(column.source, ranges.position, ranges.size)

    rows = RowIndices(np.array([0, 1, 2048, 7000]))
    found = run(column.reader(joins=True).read(rows), fetch)
    assert found.equals(column.array.take(pa.array(rows.rows)))
    assert [ranges.size.tolist() for ranges in reads] == [[1200] * 4]
