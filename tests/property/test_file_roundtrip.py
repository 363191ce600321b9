"""What one side writes, the other reads: generated tables, both ways, every version.

Each example is written by lancelet and read by lancelet and pylance, then written by pylance and
read by lancelet, all compared with the table itself.
"""

import lance.file
import pyarrow as pa
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

import lancelet.file
from lancelet.format.version import FileVersion
from lancelet.testing.strategies import assert_same_rows, stored_table, tables

VERSIONS = [FileVersion.V2_0, FileVersion.V2_1, FileVersion.V2_2]
FEW = 70
MANY = 700


def write(module, path, table, version):
    with module.LanceFileWriter(str(path), table.schema, version=version.value) as writer:
        writer.write_batch(table)


def read(module, path):
    """Read column by column: pylance cannot read a fixed-size list of structs beside others."""
    names = module.LanceFileReader(str(path)).metadata().schema.names
    columns = [
        module.LanceFileReader(str(path), columns=[name]).read_all().to_table() for name in names
    ]
    return pa.table({name: part[name] for name, part in zip(names, columns, strict=True)})


def compact(table):
    """Return a table as it is stored, without slices, some of which pylance panics over."""
    columns = [
        pa.concat_arrays([chunk for whole in column.chunks for chunk in (whole, whole[:0])])
        if column.num_chunks
        else column
        for column in stored_table(table).columns
    ]
    return pa.table(columns, schema=stored_table(table).schema)


def check(table, version, folder):
    note(f"{version.value} {table.schema} rows={table.num_rows}")
    expected = stored_table(table)
    ours, theirs = folder / "ours.lance", folder / "theirs.lance"
    write(lancelet.file, ours, table, version)
    assert_same_rows(read(lancelet.file, ours), expected)
    assert_same_rows(read(lance.file, ours), expected)
    write(lance.file, theirs, compact(table), version)
    assert_same_rows(read(lancelet.file, theirs), expected)


@pytest.mark.interop
@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=FEW)
@given(data=st.data())
def test_each_side_reads_what_the_other_writes(version, data, tmp_path_factory):
    check(data.draw(tables(version)), version, tmp_path_factory.mktemp("files"))


@pytest.mark.slow
@pytest.mark.interop
@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=MANY)
@given(data=st.data())
def test_each_side_reads_what_the_other_writes_at_length(version, data, tmp_path_factory):
    check(data.draw(tables(version)), version, tmp_path_factory.mktemp("files"))
