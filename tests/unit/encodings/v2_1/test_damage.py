"""Reads of pages with damaged bytes or descriptions are valid or raise an error.

Goal: no crash, no hang, no error of another kind, and no array that Arrow would not accept.
Method: encode one array for each layout, then flip bits where they hurt most, near the start of
buffers and in the messages, and lie about the sizes and numbers of what is stored.
"""

from __future__ import annotations

import contextlib
import dataclasses

import numpy as np
import pyarrow as pa
import pytest

from lancelet.encodings.base import FileVersion, RowIndices, RowRange
from lancelet.errors import CorruptDataError, UnsupportedError
from tests.kit.field_file import DictHeaderCache, field_file

ROWS = 400
DAMAGES = 150

POINT = pa.struct([("x", pa.int32()), ("y", pa.list_(pa.int16()))])
BLOB = {"lance-encoding:blob": "true"}


def some(values):
    return [None if index % 5 == 0 else value for index, value in enumerate(values)]


ARRAYS = {
    "ints": pa.array(some(range(ROWS)), pa.int64()),
    "booleans": pa.array(some([i % 3 == 0 for i in range(ROWS)])),
    "strings": pa.array(some([f"text {i}" for i in range(ROWS)])),
    "few strings": pa.array(some([f"name {i % 5}" for i in range(ROWS)])),
    "dictionary": pa.array(some([f"name {i % 5}" for i in range(ROWS)])).dictionary_encode(),
    "long strings": pa.array(some([f"{i}" * 150 for i in range(ROWS)])),
    "vectors": pa.array(some([[i, None] for i in range(ROWS)]), pa.list_(pa.float32(), 2)),
    "wide vectors": pa.array([[float(i)] * 70 for i in range(ROWS)], pa.list_(pa.float32(), 70)),
    "nested": pa.array(
        some([some([{"x": i, "y": some(range(i % 4))}] * (i % 3)) for i in range(ROWS)]),
        pa.list_(POINT),
    ),
    "lists of long strings": pa.array(some([[f"{i}" * 99] * (i % 3) for i in range(ROWS)])),
    "null lists": pa.array(some([[None] * (i % 3) for i in range(ROWS)]), pa.list_(pa.int8())),
    "one string": pa.array(["same"] * ROWS),
    "blobs": pa.array(some([bytes(i) for i in range(ROWS)]), pa.large_binary()),
}


def flip_bits(rng, file):
    """Flip a few bits of buffers, most of them near a start."""
    for _ in range(rng.integers(1, 4)):
        page = file.columns[rng.integers(len(file.columns))].pages[0]
        full = np.flatnonzero(page.size)
        if len(full):
            buffer = rng.choice(full)
            last = int(page.size[buffer]) - 1
            at = min(int(rng.geometric(0.02)) - 1, last)
            if rng.random() < 0.3:
                at = int(rng.integers(last + 1))
            file.data[int(page.position[buffer]) + at] ^= 1 << int(rng.integers(8))


def change_page(rng, file, change):
    """Replace the first page of one column by a changed one."""
    which = int(rng.integers(len(file.columns)))
    column = file.columns[which]
    page = dataclasses.replace(column.pages[0], **change(column.pages[0]))
    file.columns[which] = dataclasses.replace(column, pages=(page, *column.pages[1:]))


def flip_message(rng, file):
    """Flip bits of the message that describes a page."""

    def change(page):
        encoding = bytearray(page.encoding)
        for _ in range(rng.integers(1, 3)):
            encoding[rng.integers(len(encoding))] ^= 1 << int(rng.integers(8))
        return {"encoding": bytes(encoding)}

    change_page(rng, file, change)


def lie_about_length(rng, file):
    """Claim some rows more or less, or a great many."""
    claimed = [int(rng.integers(-5, 6)), int(rng.integers(0, 1 << 50))][rng.integers(2)]
    change_page(rng, file, lambda page: {"length": page.length + claimed})


def lie_about_buffers(rng, file):
    """Claim other sizes of buffers, or fewer of them."""

    def change(page):
        size = np.maximum(page.size + rng.integers(-9, 10, len(page.size)), 0)
        keep = int(rng.integers(0, len(size) + 1)) if rng.random() < 0.3 else len(size)
        return {"size": size[:keep], "position": page.position[:keep]}

    change_page(rng, file, change)


DAMAGE = [flip_bits, flip_message, lie_about_length, lie_about_buffers]


CASES = [
    (name, version)
    for name in ARRAYS
    for version in (FileVersion.V2_1, FileVersion.V2_2, FileVersion.V2_3)
    if (name, version) != ("blobs", FileVersion.V2_3)
]


@pytest.mark.parametrize(("name", "version"), CASES)
def test_a_damaged_page_is_sound_or_rejected(name, version):
    array = ARRAYS[name]
    whole = field_file(array, version, metadata=BLOB if name == "blobs" else None)
    rng = np.random.default_rng(len(name))
    rows = [RowRange(0, 40), RowRange(100, 300), RowIndices(np.array([1, 50, 51, 200, 399]))]
    refused = 0
    for _ in range(DAMAGES):
        file = dataclasses.replace(
            whole,
            data=bytearray(whole.data),
            columns=list(whole.columns),
            header_cache=DictHeaderCache(),
        )
        DAMAGE[rng.integers(len(DAMAGE))](rng, file)
        for wanted in rows:
            with contextlib.suppress(CorruptDataError, UnsupportedError):
                refused += 1
                reader = file.reader()
                if reader.num_rows >= ROWS:
                    file.run(reader.read(wanted)).validate(full=True)
                    refused -= 1
    assert refused, "no damage was noticed at all"
