"""JSON and blobs in every version and place, and buffers as callers have them, both ways.

Files hold these columns in a form of their own (JSON as JSONB, blobs as descriptions of where their
bytes lie), so that what is compared is what datasets of both sides give back.
"""

import itertools

import lance
import numpy as np
import pyarrow as pa
import pytest

import lancelet
from tests.kit.strategies import assert_same_rows

pytestmark = pytest.mark.interop

VERSIONS = ["2.0", "2.1", "2.2"]
MODULES = (lancelet, lance)
ROWS = 1100

DOCUMENTS = ['{"a":1,"b":[true,null]}', "[]", '"é"', "null", "-2.5", '{"k":{"k":[1,2,3]}}']
BLOBS = [b"", b"abc", bytes(70), b"z" * 999]


def repeated(values, nulls):
    """Return values in turn, none, some or all of them null."""
    share = {"full": 0.0, "holes": 0.3, "nulls": 1.0}[nulls]
    is_null = np.random.default_rng(5).random(ROWS) < share
    cycle = itertools.islice(itertools.cycle(values), ROWS)
    return [None if null else value for null, value in zip(is_null.tolist(), cycle, strict=True)]


def write_both(table, folder, version):
    """Write a table with both modules and yield the pairs of a reader and a path."""
    for writer in MODULES:
        writer.write_dataset(table, str(folder / writer.__name__), data_storage_version=version)
    for reader, writer in itertools.product(MODULES, MODULES):
        yield reader, str(folder / writer.__name__)


def json_places(documents, version):
    leaf = pa.array(documents, pa.json_())
    places = {"itself": leaf}
    if version != "0.1":  # where the reference does not read its own lists of them
        places["list"] = list_of(leaf, 3)
    if version != "2.0" or None not in documents:
        places["struct"] = pa.StructArray.from_arrays([leaf, pa.array(range(ROWS))], ["j", "n"])
    return pa.table(places)


def list_of(values, size):
    offsets = [min(start, len(values)) for start in range(0, size * (len(values) + 1), size)]
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values)


@pytest.mark.parametrize("nulls", ["full", "holes", "nulls"])
@pytest.mark.parametrize("version", ["0.1", *VERSIONS])
def test_json_reads_back_both_ways(version, nulls, tmp_path):
    table = json_places(repeated(DOCUMENTS, nulls), version)
    for reader, path in write_both(table, tmp_path, version):
        found = reader.dataset(path).to_table()
        for name in table.column_names:
            assert found[name].to_pylist() == table[name].to_pylist(), (reader.__name__, path)


@pytest.mark.parametrize("nulls", ["full", "holes", "nulls"])
@pytest.mark.parametrize("version", VERSIONS)
def test_blobs_in_the_file_read_back_both_ways(version, nulls, tmp_path):
    field = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    values = repeated(BLOBS, nulls)
    table = pa.table([values, range(ROWS)], schema=pa.schema([field, pa.field("n", pa.int32())]))
    check_blobs(table, values, tmp_path, version)


@pytest.mark.parametrize("nulls", ["full", "holes", "nulls"])
@pytest.mark.parametrize("version", ["2.2"])
def test_blobs_of_the_second_kind_read_back_both_ways(version, nulls, tmp_path):
    values = repeated([*BLOBS, bytes(100_000)], nulls)
    columns = {"b": lance.blob_array(values), "n": pa.array(range(ROWS))}
    schema = pa.schema([lance.blob_field("b"), pa.field("n", pa.int64())])
    check_blobs(pa.table(columns, schema=schema), values, tmp_path, version)


def check_blobs(table, values, folder, version):
    rows = [0, 1, 2, 3, 700, ROWS - 1]
    for reader, path in write_both(table, folder, version):
        dataset = reader.dataset(path)
        found = dataset.scanner(blob_handling="all_binary").to_table()
        assert found["b"].to_pylist() == values, (reader.__name__, path)
        assert found["n"].to_pylist() == list(range(ROWS))
        files = dataset.take_blobs("b", indices=rows)
        found = [None if file is None else file.readall() for file in files]
        assert found == [values[row] for row in rows]


# --- buffers as callers have them -----------------------------------------------------------------


def unaligned(array):
    """Return the same values, with every buffer one byte off whatever it was aligned to."""
    moved = [
        None if b is None else pa.py_buffer(b"~" + b.to_pybytes())[1:] for b in array.buffers()
    ]
    return pa.Array.from_buffers(array.type, len(array), moved, array.null_count, array.offset)


def odd_columns(version):
    nulls = "full" if version == "0.1" else "holes"  # where fixed-width values have no nulls
    numbers = pa.array(repeated([1, 2, 300, -4], nulls), pa.int64())
    texts = pa.array(repeated(["b", "é", "a" * 300], nulls), pa.large_string())
    lists = pa.LargeListArray.from_arrays(
        pa.array(np.minimum(np.arange(0, 2 * ROWS + 1, 2), ROWS)), texts
    )
    decimals = pa.array(range(ROWS), pa.decimal128(38, 3))
    flags = pa.array(repeated([True, False, False], nulls))
    return {
        "numbers": numbers,
        "texts": texts,
        "lists": lists,
        "decimals": decimals,
        "flags": flags,
    }


@pytest.mark.parametrize("version", ["0.1", *VERSIONS])
def test_slices_and_chunks_read_back_both_ways(version, tmp_path):
    """Slices that begin within a byte of a bitmap, in chunks of all sizes, one of them empty."""
    edges = [3, 4, 4, 11, 300, 1024, ROWS - 1]
    table = pa.table(
        {
            name: pa.chunked_array([values[a:b] for a, b in itertools.pairwise(edges)])
            for name, values in odd_columns(version).items()
        }
    )
    for reader, path in write_both(table, tmp_path, version):
        assert_same_rows(reader.dataset(path).to_table(), table.combine_chunks())


@pytest.mark.parametrize("version", ["0.1", *VERSIONS])
def test_unaligned_buffers_are_copied(version, tmp_path):
    columns = odd_columns(version)
    del columns["lists"]
    moved = pa.table({name: unaligned(values)[5:] for name, values in columns.items()})
    lancelet.write_dataset(moved, str(tmp_path / "t"), data_storage_version=version)
    expected = pa.table({name: values[5:] for name, values in columns.items()})
    for reader in MODULES:
        assert_same_rows(reader.dataset(str(tmp_path / "t")).to_table(), expected)
