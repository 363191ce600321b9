"""Small files opened together: the same rows as one by one, or None."""

import itertools

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lancelet import kernels
from lancelet.encodings.base import RowIndices, RowRange
from lancelet.encodings.take import take_rows
from lancelet.errors import CorruptDataError, FieldNotFoundError, LanceletError
from lancelet.file.open import StoredFields, create_data_file
from lancelet.file.small_files import SmallFile, open_small_files
from lancelet.file.v2.generation import assign_columns
from lancelet.file.v2.writer import WriterOptions
from lancelet.format.schema import Schema
from lancelet.format.version import FileVersion
from lancelet.io.local import LocalStore
from lancelet.io.memory import MemoryStore
from tests.kit.strategies import assert_same_rows, cut_tables, stored_table

VERSIONS = [FileVersion.V2_1, FileVersion.V2_2, FileVersion.V2_3]
FOLDERS = itertools.count()
IDS = pa.table({"id": pa.array([3, 1, 2], pa.int64()), "name": ["a", None, "ccc"]})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("small")
    return lambda: LocalStore(root / str(next(FOLDERS)), sync=False)


def written(store, parts, version=FileVersion.V2_1):
    """Write a file for each table; return their metadata in a manifest."""
    schema = Schema.from_arrow(parts[0].schema)
    files = []
    for number, part in enumerate(parts):
        path = f"{number}.lance"
        writer = create_data_file(store, path, schema, WriterOptions(version=version))
        writer.write(part)
        writer.finish()
        files.append(SmallFile(path, len(store.read(path)), part.num_rows))
    return files, StoredFields(schema, assign_columns(schema.fields, version))


def read(files, fields, rows):
    arrow = pa.schema([field.to_arrow() for field in fields])
    return pa.Table.from_arrays(files.read(fields, rows), schema=arrow)


@settings(max_examples=30)
@given(cut_tables(VERSIONS), st.data())
def test_files_are_one_after_the_other(folder, cut_table, data):
    version, table, cuts = cut_table
    parts = [table.slice(start, stop - start) for start, stop in itertools.pairwise(cuts)]
    store = folder()
    files, stored = written(store, parts, version)
    opened = open_small_files(store, files, stored)
    assert opened is not None
    assert opened.num_rows == table.num_rows
    expected, fields = stored_table(table), stored.schema.fields
    assert_same_rows(read(opened, fields, RowRange(0, table.num_rows)), expected)
    rows = data.draw(st.lists(st.integers(0, table.num_rows - 1), max_size=20))
    chosen = pa.array(rows, pa.int64())
    columns = [take_rows(column.combine_chunks(), chosen) for column in expected.columns]
    found = read(opened, fields, RowIndices(np.array(rows, np.int64)))
    assert_same_rows(found, pa.Table.from_arrays(columns, schema=expected.schema))


def test_files_of_one_kind_are_decoded_together(folder, monkeypatch):
    calls = []
    plain = kernels.split_chunks
    monkeypatch.setattr(kernels, "split_chunks", lambda *a: calls.append(1) or plain(*a))
    table = pa.table({"id": pa.array(range(640), pa.int64())})
    store = folder()
    files, stored = written(store, [table.slice(start, 10) for start in range(0, 640, 10)])
    (found,) = open_small_files(store, files, stored).read(stored.schema.fields, RowRange(0, 640))
    assert found.equals(table["id"].chunk(0))
    assert len(calls) == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_no_flipped_bit_passes(folder, version):
    store = folder()
    files, stored = written(store, [IDS, IDS, IDS], version)
    sound = store.read("1.lance")
    assert open_small_files(store, files, stored) is not None
    rng = np.random.default_rng(3)
    for position in range(0, len(sound), 5):
        damaged = bytearray(sound)
        damaged[position] ^= 1 << int(rng.integers(8))
        store.put("1.lance", bytes(damaged))
        assert open_small_files(store, files, stored) is None, position


def test_no_flipped_bit_of_a_file_of_several_blocks_passes(folder):
    store = folder()
    table = pa.table({"id": np.random.default_rng(1).integers(0, 1 << 60, 5_000)})
    files, stored = written(store, [table, table])
    assert files[0].size > 32 * 1024
    opened = open_small_files(store, files, stored)
    assert opened.read(stored.schema.fields, RowRange(0, 10_000))[0].equals(
        pa.concat_tables([table, table])["id"].combine_chunks()
    )
    sound = store.read("1.lance")
    for position in range(0, len(sound), 1997):
        damaged = bytearray(sound)
        damaged[position] ^= 4
        store.put("1.lance", bytes(damaged))
        assert open_small_files(store, files, stored) is None, position


@settings(max_examples=100)
@given(st.data())
def test_damage_without_checksums_is_an_error_or_no_answer(folder, unverified, data):
    """For any bytes, no memory outside of the files is accessed."""
    files, stored, sound = unverified
    store = folder()
    for file in files:
        store.put(file.path, sound)
    damaged = bytearray(sound)
    for _ in range(data.draw(st.integers(1, 4))):
        # Most of what could mislead is in the last bytes.
        back = data.draw(st.integers(1, min(400, len(sound))))
        damaged[-back] = data.draw(st.integers(0, 255))
    store.put(files[0].path, bytes(damaged))
    opened = open_small_files(store, files, stored)
    if opened is None:
        return
    try:
        found = opened.read(stored.schema.fields, RowRange(0, opened.num_rows))
    except LanceletError:
        return
    for array in found:
        array.validate(full=True)


@pytest.fixture(scope="module")
def unverified(tmp_path_factory):
    """Files of another writer, which has no checksums."""
    uri = tmp_path_factory.mktemp("theirs")
    lance.write_dataset(IDS, uri, data_storage_version="2.1")
    (path,) = (uri / "data").iterdir()
    data = path.read_bytes()
    files = [SmallFile(f"{number}.lance", len(data), 3) for number in range(3)]
    schema = Schema.from_arrow(IDS.schema)
    return files, StoredFields(schema, assign_columns(schema.fields, FileVersion.V2_1)), data


def test_files_of_other_writers_are_read(folder, unverified):
    files, stored, data = unverified
    store = folder()
    for file in files:
        store.put(file.path, data)
    opened = open_small_files(store, files, stored)
    found = read(opened, stored.schema.fields, RowRange(0, 9))
    assert_same_rows(found, stored_table(pa.concat_tables([IDS, IDS, IDS])))


def test_verified_and_unverified_files_are_opened_one_by_one(folder, unverified):
    theirs, stored, data = unverified
    store = folder()
    files, _ = written(store, [IDS, IDS])
    store.put("2.lance", data)
    assert open_small_files(store, [*files, theirs[2]], stored) is None


def test_files_of_different_versions_are_opened_one_by_one(folder):
    store = folder()
    files, stored = written(store, [IDS], FileVersion.V2_1)
    schema = stored.schema
    writer = create_data_file(store, "b", schema, WriterOptions(version=FileVersion.V2_2))
    writer.write(IDS)
    writer.finish()
    assert (
        open_small_files(store, [*files, SmallFile("b", len(store.read("b")), 3)], stored) is None
    )


def test_files_of_2_0_are_opened_one_by_one(folder):
    store = folder()
    files, stored = written(store, [IDS, IDS], FileVersion.V2_0)
    assert open_small_files(store, files, stored) is None


@pytest.mark.parametrize(("size", "rows"), [(1, 0), (-1, 0), (0, 1), (-10_000, 0)])
def test_files_that_are_not_as_the_table_says_are_opened_one_by_one(folder, size, rows):
    store = folder()
    files, stored = written(store, [IDS, IDS])
    wrong = SmallFile(files[1].path, max(0, files[1].size + size), files[1].num_rows + rows)
    assert open_small_files(store, [files[0], wrong], stored) is None


def test_a_store_that_saves_nothing_opens_one_by_one():
    store = MemoryStore("small-files")
    files, stored = written(store, [IDS, IDS])
    assert open_small_files(store, files, stored) is None


def test_a_field_that_the_files_lack_is_named(folder):
    store = folder()
    files, stored = written(store, [IDS, IDS])
    opened = open_small_files(store, files, StoredFields(stored.schema, {0: 0}))
    with pytest.raises(FieldNotFoundError, match="name"):
        opened.read(stored.schema.fields, RowRange(0, 6))
    opened = open_small_files(store, files, StoredFields(stored.schema, {0: 7, 1: 1}))
    with pytest.raises(CorruptDataError, match="do not have the column"):
        opened.read(stored.schema.fields, RowRange(0, 6))
