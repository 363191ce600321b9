"""Column plans of any metadata never access bytes outside of the file.

That rows by plans are the rows of the general way is checked by the tests of files
(`tests/unit/file/test_mapped_reads.py`).
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pyarrow as pa
import pytest

from lancelet import kernels
from lancelet.buffers import ByteSlices, run
from lancelet.encodings.levels import nest
from lancelet.encodings.pages.planned import NestedLayout, layout_of
from lancelet.file.open import create_data_file, open_data_file
from lancelet.file.v2.writer import WriterOptions
from lancelet.format.schema import Schema
from lancelet.format.version import FileVersion
from lancelet.io.memory import MemoryStore
from lancelet.kernels import MappedFile

pytestmark = pytest.mark.skipif(not kernels.NATIVE, reason="the definition makes no plans")

COUNT = 300
PLAIN = (
    *("packed", "plain", "runs", "items", "codes", "zipped", "bits", "same"),
    *("levels", "same bit", "same text"),
)
ROWS = np.array([0, 5, 299, 150], np.int64)
WISHES = {
    "packed": {},
    "plain": {"compression": "none"},
    "runs": {"rle-threshold": "0.9"},
    "items": {"dict-divisor": "2"},
    "codes": {"compression": "fsst"},
    "zipped": {"structural-encoding": "fullzip"},
}


@cache
def stored():
    """Return the bytes of a file, its metadata of columns, and the numbers of their forms."""
    rng = np.random.default_rng(1)
    mask = np.arange(COUNT) % 5 == 0
    arrays = {
        "packed": pa.array(rng.integers(0, 1000, COUNT), mask=mask),
        "plain": pa.array(rng.integers(-(2**62), 2**62, COUNT)),
        "runs": pa.array(np.repeat(np.arange(COUNT // 50), 50)),
        "items": pa.array((np.arange(COUNT) % 3) * 10**15, mask=mask),
        "codes": pa.array([f"the value of row {n % 50} is text" for n in range(COUNT)], mask=mask),
        "zipped": pa.array([f"row {n}" * 40 for n in range(COUNT)], mask=mask),
        "bits": pa.array(mask),
        "same": pa.array(np.full(COUNT, 7)),
        "levels": pa.array(rng.integers(0, 1000, COUNT), mask=np.arange(COUNT) % 100 < 30),
        "same bit": pa.array(np.ones(COUNT, np.bool_)),
        "same text": pa.array(["the same"] * COUNT),
        "runs of lists": pa.array([None if n % 100 < 50 else [n] for n in range(COUNT)]),
        "numbers": pa.array([None if n % 9 == 4 else [n] * (n % 5) for n in range(COUNT)]),
        "texts": pa.array([[f"text {n}", None][: n % 3] for n in range(COUNT)]),
        "deep": pa.array([[[True] * (n % 3), None] for n in range(COUNT)]),
    }
    fields = [
        pa.field(
            name,
            array.type,
            metadata={f"lance-encoding:{k}": v for k, v in WISHES.get(name, {}).items()},
        )
        for name, array in arrays.items()
    ]
    table = pa.table(list(arrays.values()), pa.schema(fields))
    store = MemoryStore()
    options = WriterOptions(checksums=False, zone_rows=None)
    writer = create_data_file(store, "f", Schema.from_arrow(table.schema), options)
    writer.write(table)
    writer.finish()
    reader = open_data_file(store, "f")
    metadata = run(reader.metadata.read_stored(list(range(len(arrays)))), reader.fetch)
    trees = [nest(field, FileVersion.V2_2) for field in reader.schema.fields]
    each = [layout_of(tree.data_type) or NestedLayout.of(tree) for tree in trees]
    forms = np.array([form.numbers[0] for form in each], np.int64)
    return np.frombuffer(store.read("f"), np.uint8), metadata, forms.reshape(-1), table


def plans_of(metadata, forms, num_rows=COUNT, file_bytes=1 << 30):
    return kernels.plan_columns(metadata, forms, num_rows=num_rows, file_bytes=file_bytes)


def take(plans, data, rows=ROWS):
    known = np.ones(-(-len(data) // 4096), np.uint8)
    return kernels.take_rows(
        MappedFile.unverified(data, known), rows, plans, 1 << 14, is_range=False
    )


def test_every_column_has_a_plan_and_its_rows():
    data, metadata, forms, table = stored()
    plans = plans_of(metadata, forms)
    before = [plan.memory_bytes for plan in plans]
    found = take(plans, data)
    assert None not in found.outputs
    assert found.bytes_added == sum(plan.memory_bytes for plan in plans) - sum(before)
    again = take(plans, data)
    assert again.bytes_added == 0
    nulls = [table[name].combine_chunks().take(pa.array(ROWS)).null_count for name in PLAIN]
    assert [place[0] for place in again.outputs[: len(PLAIN)]] == nulls


@pytest.mark.parametrize("plans", [None, 7, [None], ["plan"], [np.array([1 << 40])]])
def test_nothing_but_plans_is_read(plans):
    with pytest.raises((TypeError, ValueError)):
        take(plans, stored()[0])


@pytest.mark.parametrize(
    ("position", "size", "forms"),
    [
        ([0], [1 << 40], [0, 8, 0, 2, 0]),
        ([-1], [4], [0, 8, 0, 2, 0]),
        ([1 << 62], [1 << 62], [0, 8, 0, 2, 0]),
        ([0], [4], [4, 8, 0, 2, 0]),
        ([0], [4], [0, -8, 0, 2, 0]),
        ([0], [4], [0, 8, 0, 1, 0]),
        ([0], [4], [0, 8, 0, 1 << 9, 0]),
        ([0], [4], [0, 8]),
        ([0, 0], [4], [0, 8, 0, 2, 0]),
    ],
)
def test_columns_must_be_within_their_source_and_have_a_form(position, size, forms):
    places = ByteSlices(np.zeros(16, np.uint8), np.array(position), np.array(size))
    with pytest.raises(ValueError, match=r"column"):
        plans_of(places, np.array(forms))


@pytest.mark.parametrize("row", [-1, COUNT, 1 << 62])
def test_rows_must_be_those_of_the_columns(row):
    data, metadata, forms, _ = stored()
    with pytest.raises(ValueError, match="row"):
        take(plans_of(metadata, forms), data, np.array([0, row]))


def test_a_column_of_other_rows_or_beyond_the_file_has_no_plan():
    _, metadata, forms, table = stored()
    assert plans_of(metadata, forms, num_rows=COUNT + 1) == [None] * len(metadata)
    assert plans_of(metadata, forms, num_rows=COUNT - 1) == [None] * len(metadata)
    short = plans_of(metadata, forms, file_bytes=1)
    assert [plan is None for plan in short] == [
        name not in ("same", "same bit") for name in table.column_names
    ]


def test_damaged_metadata_and_pages_are_declined_or_read_within_the_file():
    data, metadata, forms, _ = stored()
    rng = np.random.default_rng(0)
    odd = np.array([0, 1, 2, 7, 8, 9, 127, 128, 129, 254, 255], np.uint8)
    for _ in range(3000):
        source, file = metadata.source.copy(), data.copy()
        which = int(rng.integers(len(metadata)))
        start, size = int(metadata.position[which]), int(metadata.size[which])
        for _ in range(int(rng.integers(0, 4))):
            source[start + int(rng.integers(size))] = rng.choice(odd)
        for _ in range(int(rng.integers(0, 3))):
            file[int(rng.integers(len(file)))] = rng.choice(odd)
        if rng.random() < 0.1:
            size = int(rng.integers(size))
        one = ByteSlices(source, np.array([start]), np.array([size]))
        own = forms[5 * which : 5 * which + 5]
        if rng.random() < 0.1:
            path = rng.choice([2, 4, 6])
            own = np.array([rng.integers(0, 4), rng.choice([1, 4, 8, 16]), 1, path, 0])
        plans = plans_of(one, own, file_bytes=int(rng.choice([len(file), 1 << 62])))
        found = take([plan for plan in plans if plan is not None], file)
        for place in () if found is None else found.outputs:
            assert place is None or max(place) <= max(len(found.data), 1 << 20)
