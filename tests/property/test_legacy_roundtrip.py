"""Tables of version 0.1 that one side writes, the other reads: generated tables, both ways.

The reference reads such files only as parts of tables, so tables are written. The format cannot
store nulls of most types, so none are generated; it takes empty strings of nullable columns for
null, so these are compared as if they were. The reference cannot write dictionaries of columns
without rows, and reads neither those that hold empty strings nor lists of extensions.
"""

import shutil

import lance
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import lancelet
from lancelet.format.version import FileVersion
from tests.kit.strategies import compacted_table, tables

pytestmark = pytest.mark.interop

FEW = 40
MANY = 700
BATCH_ROWS = st.sampled_from((3, 100, 1024))


def without_blanks(value):
    """Return a value with null in place of empty strings, at any depth."""
    if isinstance(value, dict):
        return {name: without_blanks(part) for name, part in value.items()}
    if isinstance(value, list):
        return [without_blanks(part) for part in value]
    return None if value in ("", b"") else value


def rows_of(table):
    """Return rows that can be compared though NaN equals nothing."""
    return [repr(without_blanks(row)) for row in table.to_pylist()]


def aligned(table):
    """Return a table whose buffers are aligned, those of dictionaries too, as pylance asks."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return pa.ipc.open_stream(sink.getvalue()).read_all()


def is_within_the_reference(table):
    """Say whether the reference can write a table and read what it wrote."""
    types = [str(field.type) for field in table.schema]
    if any("list<item: extension<" in text for text in types):
        return False
    if not any("dictionary<" in text for text in types):
        return True
    rows = table.to_pylist()
    return bool(rows) and repr(rows) == repr([without_blanks(row) for row in rows])


def check(table, batch_rows, folder):
    assume(is_within_the_reference(table))
    shutil.rmtree(folder, ignore_errors=True)
    paths = {module: str(folder / module.__name__) for module in (lancelet, lance)}
    options = {"data_storage_version": "0.1", "max_rows_per_group": batch_rows}
    plain = compacted_table(aligned(table))
    lancelet.write_dataset(table, paths[lancelet], **options)
    lance.write_dataset(plain, paths[lance], **options)
    expected = rows_of(plain)
    for path in paths.values():
        for module in paths:
            found = module.dataset(path).to_table()
            assert found.schema.types == plain.schema.types
            assert rows_of(found) == expected
    picks = list(range(0, table.num_rows, 7))
    assert rows_of(lancelet.dataset(paths[lance]).take(picks)) == expected[::7]


@settings(max_examples=FEW)
@given(tables(FileVersion.V0_1, rows_max=1030), BATCH_ROWS)
def test_each_side_reads_old_tables_of_the_other(tmp_path_factory, table, batch_rows):
    check(table, batch_rows, tmp_path_factory.getbasetemp() / "legacy")


@pytest.mark.slow
@settings(max_examples=MANY)
@given(tables(FileVersion.V0_1), BATCH_ROWS)
def test_each_side_reads_old_tables_of_the_other_at_length(tmp_path_factory, table, batch_rows):
    check(table, batch_rows, tmp_path_factory.getbasetemp() / "legacy")
