"""Tables of very many columns, of very deep types, of more text than offsets can count."""

import numpy as np
import pyarrow as pa
import pytest

from lancelet.encodings.base import RowIndices, RowRange
from lancelet.file.open import create_data_file, open_data_file
from lancelet.file.v2.writer import WriterOptions
from lancelet.format.schema import Schema
from lancelet.format.version import FileVersion
from lancelet.io.local import LocalStore
from lancelet.io.memory import MemoryStore

VERSIONS = [FileVersion.V2_0, FileVersion.V2_1, FileVersion.V2_2]
LEVELS = 100


def write(store, batches, schema, version=FileVersion.V2_2):
    options = WriterOptions(version=version)
    writer = create_data_file(store, "f.lance", Schema.from_arrow(schema), options)
    for batch in batches:
        writer.write(batch)
    writer.finish()
    return open_data_file(store, "f.lance")


def nested(levels, wrap):
    """Return a value and its type, both wrapped again and again."""
    value, data_type = 7, pa.int32()
    for _ in range(levels):
        value, data_type = wrap(value, data_type)
    return value, data_type


WRAPS = {
    "lists": lambda value, inner: ([value], pa.list_(inner)),
    "structs": lambda value, inner: ({"a": value}, pa.struct([("a", inner)])),
}


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.value)
@pytest.mark.parametrize("wrap", WRAPS)
def test_a_hundred_levels_are_stored(version, wrap):
    value, data_type = nested(LEVELS, WRAPS[wrap])
    table = pa.table({"x": pa.array([value, value, value], data_type)})
    reader = write(MemoryStore("deep"), [table], table.schema, version)
    for rows in (RowRange(0, 3), RowIndices(np.array([1]))):
        (found,) = reader.read(reader.schema.fields, rows)
        assert found.to_pylist() == [value] * len(rows)


@pytest.mark.parametrize("version", VERSIONS[::2], ids=lambda version: version.value)
def test_ten_thousand_columns_are_stored(version):
    columns = {f"c{n}": pa.array([n, n + 1], pa.int32()) for n in range(10_000)}
    table = pa.table(columns)
    reader = write(MemoryStore("wide"), [table], table.schema, version)
    wanted = [reader.schema.fields[n] for n in (0, 5_000, 9_999)]
    found = reader.read(wanted, RowRange(0, 2))
    assert [array.to_pylist() for array in found] == [[0, 1], [5_000, 5_001], [9_999, 10_000]]


@pytest.mark.slow
def test_more_text_than_offsets_can_count_is_stored_and_read_in_parts(tmp_path):
    rows, batches = 1_000, 5
    texts = [np.random.default_rng(n).bytes(256 << 10).hex() for n in range(8)]
    batch = pa.table({"s": [texts[row % 8] for row in range(rows)]})
    assert batch.nbytes * batches > 1 << 31
    store = LocalStore(tmp_path, sync=False)
    reader = write(store, [batch] * batches, batch.schema)
    picked = np.array([0, 1, 3_004, rows * batches - 1])
    (found,) = reader.read(reader.schema.fields, RowIndices(picked))
    assert found.to_pylist() == [texts[row % rows % 8] for row in picked.tolist()]
    (found,) = reader.read(reader.schema.fields, RowRange(4_500, 4_510))
    assert found.to_pylist() == [texts[row % rows % 8] for row in range(4_500, 4_510)]


@pytest.mark.parametrize("batch_size", [None, 3, 16])
def test_large_values_are_scanned_in_small_parts(batch_size):
    rows, size = 48, 2_000_000
    data = np.random.default_rng(0).integers(0, 256, (rows, size), np.uint8)
    table = pa.table({"x": [b"%04d" % row + data[row].tobytes() for row in range(rows)]})
    reader = write(MemoryStore("large"), table.to_batches(8), table.schema)
    before = pa.default_memory_pool()
    watched = pa.proxy_memory_pool(before)
    pa.set_memory_pool(watched)
    try:
        starts = []
        for batch in reader.iter_batches(reader.schema.fields, RowRange(0, rows), batch_size):
            assert batch.num_rows <= (batch_size or rows // 4)
            starts += [value.as_py()[:4] for value in batch["x"]]
            del batch
    finally:
        pa.set_memory_pool(before)
    assert starts == [b"%04d" % row for row in range(rows)]
    assert watched.max_memory() < rows * size


@pytest.mark.slow
def test_rows_that_do_not_fit_one_array_are_scanned_in_several():
    # One value for all rows of a page: the size of a row is unknown until it is decoded.
    rows, size = 2300, 1_000_000
    column = pa.chunked_array([pa.array(["x" * size] * 100)] * (rows // 100))
    table = pa.table({"x": column})
    reader = write(MemoryStore("large"), table.to_batches(), table.schema)
    found = 0
    for batch in reader.iter_batches(reader.schema.fields, RowRange(0, rows), 16):
        found += batch.num_rows
        assert batch["x"][0].as_py() == "x" * size
    assert found == rows
