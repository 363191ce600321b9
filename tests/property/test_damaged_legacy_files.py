"""A damaged 0.1 file, which has no checksums, is read or raises a typed error.

Each round cuts, flips, overwrites or copies bytes of a file with columns of every kind, mostly near
the end, where positions and counts are. What is read then must at least be valid for Arrow.
"""

import random

import numpy as np
import pyarrow as pa
import pytest

from lancelet.encodings.base import RowIndices, RowRange
from lancelet.errors import LanceletError
from lancelet.file.open import open_data_file
from lancelet.file.v0_1 import LegacyWriterOptions, create_file
from lancelet.format.schema import Schema
from lancelet.io.memory import MemoryStore

ROWS = 300
PATH = "f.lance"
HOSTILE = [b"\xff" * 8, b"\0" * 8, (2**63 - 1).to_bytes(8, "little"), (2**40).to_bytes(8, "little")]


@pytest.fixture(scope="module")
def stored():
    count = np.arange(ROWS)
    table = pa.table(
        {
            "i": pa.array(count, pa.int32()),
            "s": [f"abc{n}" for n in range(ROWS)],
            "l": pa.array([[1, 2][: n % 3] for n in range(ROWS)], pa.list_(pa.int16())),
            "st": pa.array([{"a": n, "b": "q" * (n % 9)} for n in range(ROWS)]),
            "d": pa.array(["x", "yy", "zzz"] * (ROWS // 3)).dictionary_encode(),
            "v": pa.array([[1.0, 2.0]] * ROWS, pa.list_(pa.float32(), 2)),
            "b": pa.array(count % 2 == 0),
            "ls": pa.array([["a"] * (n % 3) for n in range(ROWS)]),
        }
    )
    store = MemoryStore("legacy")
    options = LegacyWriterOptions(max_rows_per_group=50)
    writer = create_file(store, PATH, Schema.from_arrow(table.schema), options)
    writer.write(table)
    writer.finish()
    return table, store.read(PATH)


def damaged(whole, chance):
    data = bytearray(whole)
    start = chance.choice([chance.randrange(len(data)), len(data) - chance.randrange(1, 1500)])
    match chance.randrange(5):
        case 0:
            del data[start:]
        case 1:
            data[start] ^= 1 << chance.randrange(8)
        case 2:
            data[start : start + 8] = chance.choice([*HOSTILE, chance.randbytes(8)])
        case 3:
            data[start : start + chance.randrange(1, 40)] = chance.randbytes(chance.randrange(40))
        case 4:
            source = chance.randrange(len(data))
            data[start : start + 100] = data[source : source + 100]
    return bytes(data)


def read(data):
    """Return all columns and some rows of each, each of them valid."""
    store = MemoryStore("damaged")
    store.put(PATH, data)
    reader = open_data_file(store, PATH)
    found = []
    for field in reader.schema.fields:
        for rows in (RowRange(0, min(reader.num_rows, 2 * ROWS)), RowIndices(np.array([0, 7]))):
            (array,) = reader.read([field], rows)
            array.validate(full=True)
            assert len(array) == len(rows)
            found.append(array)
        reader.zone_statistics(field)
    return found


def test_the_whole_file_is_read(stored):
    table, whole = stored
    assert read(whole)[0].to_pylist() == table["i"].to_pylist()


@pytest.mark.parametrize("seed", range(4))
def test_damage_ends_in_valid_values_or_a_typed_error(stored, seed):
    _, whole = stored
    chance = random.Random(seed)
    refused = 0
    for _ in range(250):
        try:
            read(damaged(whole, chance))
        except LanceletError:
            refused += 1
    assert 50 < refused < 250
