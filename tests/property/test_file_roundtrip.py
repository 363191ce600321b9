"""Generated tables written by one implementation are read by the other, in every version.

Each example is written by lancelet and read by lancelet and pylance, then written by pylance and
read by lancelet, all compared with the table itself. Lancelet reads all rows, a range and some
rows, both from a mapped file and from memory, which use different readers of pages. Version 0.1 is
in `test_legacy_roundtrip.py`, because pylance reads its files only as parts of tables.
"""

import lance.file
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lancelet.file
from lancelet.encodings.base import RowIndices, RowRange
from lancelet.file.open import open_data_file
from lancelet.format.version import FileVersion
from lancelet.io.local import LocalStore
from lancelet.io.memory import MemoryStore
from tests.kit.strategies import (
    DICTIONARIES,
    EXTENSIONS,
    LEAVES,
    LIST_ITEMS,
    VIEWS,
    Distribution,
    arrays,
    assert_same_rows,
    compacted_table,
    fixed_lists_of_structs,
    holds_struct,
    random_array,
    stored_table,
    tables,
)

VERSIONS = [FileVersion.V2_0, FileVersion.V2_1, FileVersion.V2_2, FileVersion.V2_3]
FEW = 70
MANY = 700


def write(module, path, table, version):
    with module.LanceFileWriter(str(path), table.schema, version=version.value) as writer:
        writer.write_batch(table)


def read(module, path, names=None):
    """Read column by column: pylance cannot read a fixed-size list of structs beside others."""
    if names is None:
        names = module.LanceFileReader(str(path)).metadata().schema.names
    columns = [
        module.LanceFileReader(str(path), columns=[name]).read_all().to_table() for name in names
    ]
    return pa.table({name: part[name] for name, part in zip(names, columns, strict=True)})


def pylance_reads(data_type):
    """Return whether pylance can read a column: no struct has a fixed-size list of structs beside
    another field, not even in a file that pylance wrote."""
    children = [data_type.field(index).type for index in range(data_type.num_fields)]
    if pa.types.is_struct(data_type) and len(children) > 1:
        return not any(
            pa.types.is_fixed_size_list(child) and pa.types.is_struct(child.value_type)
            for child in children
        )
    return all(map(pylance_reads, children))


def check_parts(path, expected):
    """Compare ranges and rows of a file, mapped and in memory, with those of a table."""
    expected = compacted_table(expected)  # Arrow takes wrong rows of slices of nested lists
    count = expected.num_rows
    start, stop = count // 3, count - count // 5
    some = np.unique(np.linspace(0, count - 1, 40, dtype=np.int64)) if count else np.empty(0, int)
    many = np.random.default_rng(count).permutation(count)[:600]
    memory = MemoryStore("roundtrip")
    memory.put(path.name, path.read_bytes())
    for store in (LocalStore(str(path.parent)), memory):
        reader = open_data_file(store, path.name)
        fields, schema = reader.schema.fields, reader.schema.to_arrow()
        for rows, wanted in (
            (RowRange(start, stop), expected.slice(start, stop - start)),
            (RowIndices(some), expected.take(some)),
            (RowIndices(many), expected.take(many)),
        ):
            if len(rows):
                arrays = reader.read(fields, rows)
                assert_same_rows(pa.Table.from_arrays(arrays, schema=schema), wanted)


def check(table, version, folder):
    expected = stored_table(table)
    ours, theirs = folder / "ours.lance", folder / "theirs.lance"
    write(lancelet.file, ours, table, version)
    assert_same_rows(read(lancelet.file, ours), expected)
    check_parts(ours, expected)
    readable = [field.name for field in expected.schema if pylance_reads(field.type)]
    if readable:
        assert_same_rows(read(lance.file, ours, readable), expected.select(readable))
    write(lance.file, theirs, compacted_table(table), version)
    assert_same_rows(read(lancelet.file, theirs), expected)
    check_parts(theirs, expected)


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


@pytest.mark.interop
@settings(max_examples=FEW)
@given(data=st.data())
def test_nested_fixed_size_lists_that_only_pylance_writes_are_read(data, tmp_path_factory):
    """Version 2.3 of pylance puts fixed-size lists of structs into lists, and lists into these."""
    leaves = st.sampled_from(LEAVES[1:])
    fixed = fixed_lists_of_structs(leaves | st.builds(pa.list_, leaves))
    data_type = data.draw(
        fixed | st.builds(pa.list_, fixed) | st.builds(pa.map_, st.just(pa.int32()), fixed)
    )
    array = data.draw(arrays(st.just(data_type), st.sampled_from((1, 7, 100, 1030))))
    table = pa.table({"x": array})
    path = tmp_path_factory.mktemp("files") / "theirs.lance"
    write(lance.file, path, compacted_table(table), FileVersion.V2_3)
    assert_same_rows(read(lancelet.file, path), stored_table(table))
    check_parts(path, stored_table(table))


PLAIN = (*LEAVES, *VIEWS, *EXTENSIONS, *DICTIONARIES, *(pa.list_(item, 3) for item in LIST_ITEMS))
WRAPPERS = {
    "plain": lambda inner: inner,
    "list": pa.list_,
    "large list": pa.large_list,
    "struct": lambda inner: pa.struct([("a", inner), ("b", pa.int32())]),
    "list of structs": lambda inner: pa.list_(pa.struct([("a", inner)])),
}
KNOWN_GAPS: dict[tuple[str, str], str] = {}
"""Types, by version and name, that do not make it both ways, with the error; strict."""


@pytest.mark.interop
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_every_type_makes_it_both_ways(version, wrapper, tmp_path):
    """One column of each type, so that the types that fail are named and no others hide them."""
    rng = np.random.default_rng(11)
    gaps, known = {}, {}
    for inner in PLAIN:
        data_type = WRAPPERS[wrapper](inner)
        key = version.value, str(data_type)
        known |= {key: KNOWN_GAPS[key]} if key in KNOWN_GAPS else {}
        nulls = 0.0 if version is FileVersion.V2_0 and holds_struct(data_type) else 0.2
        array = random_array(rng, data_type, 300, Distribution(50, False, 12, 3, nulls))
        try:
            check(pa.table({"x": array}), version, tmp_path)
        except (AssertionError, ValueError, NotImplementedError, OSError) as error:
            gaps[key] = f"{type(error).__name__}: {error}"
    assert gaps == known
