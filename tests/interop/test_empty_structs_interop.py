"""Structs without children, wherever they may be: what is written is read on both sides.

The reference writes some more of them, which it reads as other values, or not at all. These are
refused here before a byte is written, and read all the same; one that the reference learns to
read fails.
"""

import lance.file
import pyarrow as pa
import pytest

import lancelet.file
from lancelet.errors import UnsupportedError

pytestmark = pytest.mark.interop

EMPTY, INT = pa.struct([]), pa.int8()


def struct(*children):
    return pa.struct([(f"f{index}", child) for index, child in enumerate(children)])


READABLE = [
    EMPTY,
    struct(EMPTY),
    struct(struct(struct(EMPTY))),
    struct(INT, EMPTY),
    struct(EMPTY, EMPTY),
    struct(INT, struct(INT, EMPTY)),
    struct(struct(INT, EMPTY), struct(EMPTY)),
    struct(pa.list_(INT), EMPTY),
]
MISREAD = [
    struct(EMPTY, INT),
    struct(struct(EMPTY, INT)),
    struct(struct(INT, EMPTY), INT),
    struct(INT, EMPTY, INT),
]
VERSIONS = ["2.1", "2.2", "2.3"]


def value(data_type, number):
    if pa.types.is_list(data_type):
        return [value(data_type.value_type, each) for each in range(number % 3)]
    if pa.types.is_struct(data_type):
        return {field.name: value(field.type, number + 1) for field in data_type}
    return None if number % 3 == 1 else number


def table_of(data_type):
    return pa.table({"x": pa.array([value(data_type, number) for number in range(9)], data_type)})


def write(module, path, table, version):
    with module.LanceFileWriter(path, table.schema, version=version) as writer:
        writer.write_batch(table)


def read(module, path):
    return module.LanceFileReader(path).read_all().to_table()["x"].to_pylist()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("data_type", READABLE, ids=str)
def test_both_sides_read_what_either_wrote(data_type, version, tmp_path):
    table = table_of(data_type)
    for writer in (lance.file, lancelet.file):
        path = str(tmp_path / f"{writer.__name__}.lance")
        write(writer, path, table, version)
        for reader in (lance.file, lancelet.file):
            assert read(reader, path) == table["x"].to_pylist()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("data_type", MISREAD, ids=str)
def test_files_misread_by_the_reference_are_read_but_not_written(data_type, version, tmp_path):
    table = table_of(data_type)
    expected = table["x"].to_pylist()
    theirs, ours = tmp_path / "theirs.lance", tmp_path / "ours.lance"
    write(lance.file, str(theirs), table, version)
    if version == "2.3":
        with pytest.raises(ValueError, match="No-values plane"):
            read(lance.file, str(theirs))
    else:
        assert read(lance.file, str(theirs)) != expected
    assert read(lancelet.file, str(theirs)) == expected
    with pytest.raises(UnsupportedError, match="without children"):
        write(lancelet.file, str(ours), table, version)
    assert not ours.exists()
