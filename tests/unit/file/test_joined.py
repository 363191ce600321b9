"""Small files read as one: the same rows, in the same order, as file after file."""

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lancelet import kernels
from lancelet.encodings.base import RowIndices, RowRange
from lancelet.encodings.take import take_rows
from lancelet.errors import CorruptDataError, InternalError
from lancelet.file.joined import JoinedFiles
from lancelet.file.open import create_data_file, open_data_file
from lancelet.file.v2.writer import WriterOptions
from lancelet.format.schema import Schema
from lancelet.format.version import FileVersion
from lancelet.io.memory import MemoryStore
from lancelet.testing.strategies import assert_same_rows, cut_tables, stored_table

VERSIONS = [FileVersion.V2_1, FileVersion.V2_2, FileVersion.V2_3]
NAMES = itertools.count()


def written(parts, schema, version):
    store = MemoryStore(f"joined-{next(NAMES)}")
    for number, part in enumerate(parts):
        writer = create_data_file(store, f"{number}.lance", schema, WriterOptions(version=version))
        writer.write(part)
        writer.finish()
    return store


def joined(store, count):
    return JoinedFiles([open_data_file(store, f"{number}.lance") for number in range(count)])


@settings(max_examples=40)
@given(cut_tables(VERSIONS), st.data())
def test_joined_files_are_one_after_the_other(cut_table, data):
    version, table, cuts = cut_table
    parts = [table.slice(start, stop - start) for start, stop in itertools.pairwise(cuts)]
    schema = Schema.from_arrow(table.schema)
    reader = joined(written(parts, schema, version), len(parts))
    assert reader.num_rows == table.num_rows
    expected = stored_table(table)
    fields = schema.fields
    arrow = pa.schema([field.to_arrow() for field in fields])
    found = pa.Table.from_arrays(reader.read(fields, RowRange(0, table.num_rows)), schema=arrow)
    assert_same_rows(found, expected)
    rows = data.draw(st.lists(st.integers(0, table.num_rows - 1), max_size=20))
    found = pa.Table.from_arrays(
        reader.read(fields, RowIndices(np.array(rows, np.int64))), schema=arrow
    )
    chosen = pa.array(rows, pa.int64())
    columns = [take_rows(column.combine_chunks(), chosen) for column in expected.columns]
    assert_same_rows(found, pa.Table.from_arrays(columns, schema=expected.schema))


def test_files_of_one_kind_are_decoded_together(monkeypatch):
    calls = []
    plain = kernels.split_chunks
    monkeypatch.setattr(kernels, "split_chunks", lambda *a: calls.append(1) or plain(*a))
    table = pa.table({"id": pa.array(range(640), pa.int64())})
    parts = [table.slice(start, 10) for start in range(0, 640, 10)]
    schema = Schema.from_arrow(table.schema)
    reader = joined(written(parts, schema, FileVersion.V2_1), len(parts))
    (found,) = reader.read(schema.fields, RowRange(0, 640))
    assert found.equals(table["id"].chunk(0))
    assert len(calls) == 1


def test_damage_to_any_of_the_files_is_found():
    table = pa.table({"id": pa.array(range(20), pa.int64())})
    schema = Schema.from_arrow(table.schema)
    store = written([table.slice(0, 10), table.slice(10)], schema, FileVersion.V2_1)
    damaged = bytearray(store.read("1.lance"))
    damaged[0] ^= 1
    store.put("1.lance", bytes(damaged))
    with pytest.raises(CorruptDataError):
        joined(store, 2)


def test_files_of_different_versions_are_not_joined():
    table = pa.table({"id": pa.array(range(10), pa.int64())})
    schema = Schema.from_arrow(table.schema)
    first = open_data_file(written([table], schema, FileVersion.V2_1), "0.lance")
    second = open_data_file(written([table], schema, FileVersion.V2_2), "0.lance")
    with pytest.raises(InternalError, match="one version"):
        JoinedFiles([first, second])
