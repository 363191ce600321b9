"""Pages in every layout, written by one side with the metadata that force it, read by the other.

Generated tables (`tests/property/test_file_roundtrip.py`) cover types; this covers what only a
wish of the field, or an odd shape of the data, brings about: sparse structure, packed structs,
pages that had to be cut, one value all over a page, rows found through the repetition index.
"""

from __future__ import annotations

import lance.file
import numpy as np
import pyarrow as pa
import pytest

import lancelet.file

pytestmark = pytest.mark.interop

SPARSE = {"lance-encoding:structural-encoding": "sparse"}
ZIPPED = {"lance-encoding:structural-encoding": "fullzip"}
MINI_BLOCK = {"lance-encoding:structural-encoding": "miniblock"}
TINY = {"lance-encoding:minichunk-size": "1"}
PACKED = {"lance-encoding:packed": "true"}
BLOB = {"lance-encoding:blob": "true"}
POINT = pa.struct([("x", pa.int32()), ("y", pa.string())])


def some(values, *, every=4):
    return [None if index % every == 0 else value for index, value in enumerate(values)]


def field(data_type, metadata=None):
    """Return a field whose innermost items carry the metadata, where writers look for it."""
    if pa.types.is_list(data_type):
        item = field(data_type.value_type, metadata).with_name("item")
        return pa.field("f", pa.list_(item), metadata=metadata)
    if pa.types.is_struct(data_type) and metadata != PACKED:
        children = [field(child.type, metadata).with_name(child.name) for child in data_type]
        return pa.field("f", pa.struct(children), metadata=metadata)
    return pa.field("f", data_type, metadata=metadata)


def table_of(values, data_type, metadata=None):
    wanted = field(data_type, metadata)
    return pa.table([pa.array(values, wanted.type)], schema=pa.schema([wanted]))


LISTS = some([[i] * (i % 5) for i in range(900)])
STRUCTS = some([{"x": i, "y": f"{i}" * 9} for i in range(900)], every=3)
NESTED = some([some([{"x": i, "y": None}] * (i % 4), every=3) for i in range(900)])
NOISE = [np.random.default_rng(i).bytes(400) for i in range(300)]
LONG = some([f"{i}" * 100 for i in range(300)])

ANY_VERSION = {
    "one value": (table_of([7] * 300, pa.int64()), "2.1"),
    "one string": (table_of(["same"] * 300, pa.string()), "2.1"),
    "one long value": (table_of([b"x" * 40] * 300, pa.binary(40)), "2.1"),
    "one value or null": (table_of(some([7] * 300), pa.int16()), "2.1"),
    "all null structs": (table_of([None, {"x": None, "y": None}] * 9, POINT), "2.1"),
    "all null lists": (table_of([None, [], [None], [None] * 3] * 9, pa.list_(pa.int8())), "2.1"),
    "structs without children": (table_of([{}] * 30, pa.struct([])), "2.1"),
    "one true": (table_of([True] * 30, pa.bool_()), "2.1"),
    "zipped booleans": (table_of(some([True, False, False] * 99), pa.bool_(), ZIPPED), "2.1"),
    "chunks of the fewest values": (
        table_of([f"{i}" for i in range(99)], pa.string(), TINY), "2.1",
    ),
    "zipped ints": (table_of(list(range(300)), pa.int32(), ZIPPED), "2.1"),
    "zipped lists": (table_of(LISTS, pa.list_(pa.int32()), ZIPPED), "2.1"),
    "zipped strings": (table_of(LONG, pa.string(), ZIPPED), "2.1"),
    "zipped nested": (table_of(NESTED, pa.list_(POINT), ZIPPED), "2.1"),
    "a list over many chunks": (
        table_of([list(range(9000)), [], None, [1]], pa.list_(pa.int64())), "2.1",
    ),
    "a null struct over full lists": (
        table_of([[{"l": [1, None]}, None, {"l": [2]}], None, []] * 50,
                 pa.list_(pa.struct([("l", pa.list_(pa.int64()))]))), "2.1",
    ),
    "many empty lists, then one that is not": (
        table_of([[1], *[[]] * 70_000, [2, 3]], pa.list_(pa.int32())), "2.1",
    ),
    "packed": (
        table_of(some([{"a": i, "b": i / 2} for i in range(300)]),
                 pa.struct([("a", pa.int32()), ("b", pa.float64())]), PACKED), "2.1",
    ),
    "packed with strings": (table_of(STRUCTS, POINT, PACKED), "2.2"),
    "lists of two nulls": (
        table_of(some([[None, None]] * 300), pa.list_(pa.null(), 2)), "2.1",
    ),
    "lists of lists of nulls": (
        table_of(some([[[None] * 9] * (i % 3) for i in range(200)]),
                 pa.list_(pa.list_(pa.null(), 9))), "2.1",
    ),
    "vectors in lists": (
        table_of(some([[[i] * 99] * (i % 3) for i in range(200)]),
                 pa.list_(pa.list_(pa.float32(), 99))), "2.1",
    ),
}  # fmt: skip

SPARSE_2_3 = {
    "sparse nulls": table_of(some(range(900)), pa.int64(), SPARSE),
    "sparse lists": table_of(LISTS, pa.list_(pa.int32()), SPARSE),
    "sparse lists of few lengths": table_of(
        [[i % 99] * (5, 9, 30)[i * 7919 % 3] for i in range(200)], pa.list_(pa.int8()), SPARSE
    ),
    "sparse structs": table_of(STRUCTS, POINT, SPARSE),
    "sparse nested": table_of(NESTED, pa.list_(POINT), SPARSE),
    "sparse zipped": table_of(LONG, pa.string(), SPARSE),
    "sparse zipped lists": table_of(
        some([LONG[: i % 4] for i in range(200)]), pa.list_(pa.string()), SPARSE
    ),
    "sparse zipped structs": table_of(
        some([{"s": text} for text in LONG], every=3), pa.struct([("s", pa.string())]), SPARSE
    ),
    "sparse indexed": table_of(
        some([NOISE[i * 7919 % 300] for i in range(2100)]), pa.large_binary(), SPARSE
    ),
    "sparse indexed lists": table_of(
        some([[None, *(NOISE[i * j % 300] for j in (7, 9))][: i % 4] for i in range(1500)]),
        pa.list_(pa.binary()), SPARSE,
    ),
    "sparse one value": table_of(some([7] * 300), pa.int16(), SPARSE),
    "fixed lists of structs": table_of(
        some([[{"x": i, "y": "a"}, None] for i in range(300)]), pa.list_(POINT, 2), SPARSE
    ),
}  # fmt: skip

CASES = [
    (name, version)
    for name, (_, least) in ANY_VERSION.items()
    for version in ("2.1", "2.2", "2.3")
    if version >= least
]


def write(module, path, table, version):
    with module.LanceFileWriter(str(path), table.schema, version=version) as writer:
        writer.write_batch(table)


def check(module, path, table):
    """Compare a whole read, ranges and single rows with the table."""
    expected = table["f"].combine_chunks().to_pylist()
    count = table.num_rows
    assert read(module, path).to_pylist() == expected
    rng = np.random.default_rng(count)
    for _ in range(3):
        start = int(rng.integers(0, count))
        size = int(rng.integers(1, count - start + 1))
        reader = module.LanceFileReader(str(path))
        found = reader.read_range(start, size).to_table()["f"].to_pylist()
        assert found == expected[start : start + size]
        rows = np.unique(rng.integers(0, count, 30)).tolist()
        reader = module.LanceFileReader(str(path))
        found = reader.take_rows(rows).to_table()["f"].to_pylist()
        assert found == [expected[row] for row in rows]


def read(module, path):
    return module.LanceFileReader(str(path)).read_all().to_table()["f"]


WIDE_STRUCT = pa.struct([(f"a{j}", pa.int64()) for j in range(1200)])
WIDE = {
    "a pair too wide for a small chunk": table_of(
        [bytes([i]) * 20_000 for i in range(9)], pa.binary(20_000), MINI_BLOCK
    ),
    "a pair wider than a chunk should be": table_of(
        [bytes([i]) * 9000 for i in range(9)], pa.binary(9000), MINI_BLOCK
    ),
    "packed": table_of(
        some([{f"a{j}": i * j for j in range(1200)} for i in range(9)]), WIDE_STRUCT, PACKED
    ),
}
"""Values that the reference does not put into chunks, which hold two at least."""


@pytest.mark.parametrize("version", ["2.1", "2.2", "2.3"])
@pytest.mark.parametrize("name", WIDE)
def test_the_reference_reads_wide_values(name, version, tmp_path):
    path = tmp_path / "ours.lance"
    write(lancelet.file, path, WIDE[name], version)
    check(lance.file, path, WIDE[name])
    check(lancelet.file, path, WIDE[name])


def test_lancelet_reads_packed_structs_that_are_zipped(tmp_path):
    path = tmp_path / "theirs.lance"
    write(lance.file, path, WIDE["packed"], "2.3")
    check(lancelet.file, path, WIDE["packed"])


@pytest.mark.parametrize(("name", "version"), CASES)
def test_lancelet_reads_what_the_reference_wrote(name, version, tmp_path):
    table, _ = ANY_VERSION[name]
    path = tmp_path / "theirs.lance"
    write(lance.file, path, table, version)
    check(lancelet.file, path, table)


@pytest.mark.parametrize(("name", "version"), CASES)
def test_the_reference_reads_what_lancelet_wrote(name, version, tmp_path):
    table, _ = ANY_VERSION[name]
    path = tmp_path / "ours.lance"
    write(lancelet.file, path, table, version)
    check(lance.file, path, table)
    check(lancelet.file, path, table)


@pytest.mark.parametrize("name", SPARSE_2_3)
def test_lancelet_reads_sparse_structure(name, tmp_path):
    table = SPARSE_2_3[name]
    path = tmp_path / "theirs.lance"
    write(lance.file, path, table, "2.3")
    column = lancelet.file.LanceFileReader(str(path)).metadata().columns[0]
    assert ("Indexed(" in column.pages[0].encoding) == ("indexed" in name)
    check(lancelet.file, path, table)


NO_BYTES = {
    "none": ([None] * 9, pa.binary(0)),
    "all": ([b""] * 9, pa.binary(0)),
    "some": ([b"", None] * 9, pa.binary(0)),
    "lists": ([[b"", None], None, []] * 9, pa.list_(pa.binary(0))),
    "structs": ([{"x": b"", "y": 1}, {"x": None, "y": None}] * 9,
                pa.struct([("x", pa.binary(0)), ("y", pa.int8())])),
    "null in lists": ([[None], []] * 9, pa.list_(pa.binary(0))),
    "lists of two nulls": ([[None, None]] * 9, pa.list_(pa.null(), 2)),
    "some lists of two nulls": ([[None, None], None] * 9, pa.list_(pa.null(), 2)),
    "lists of two of no bytes": ([[None, None], None] * 9, pa.list_(pa.binary(0), 2)),
    "lists of two, all null": ([None] * 9, pa.list_(pa.binary(0), 2)),
    "lists of twos of no bytes": (
        [[[None] * 3, [None] * 3], None] * 9, pa.list_(pa.list_(pa.binary(0), 3), 2)
    ),
    "lists of lists of no bytes": (
        [[[None] * 2, None], None, []] * 9, pa.list_(pa.list_(pa.binary(0), 2))
    ),
    "lists of lists of nulls": (
        [[[None] * 9], None, []] * 9, pa.list_(pa.list_(pa.null(), 9))
    ),
}  # fmt: skip


def holds_bytes(value):
    if isinstance(value, dict):
        value = list(value.values())
    return any(map(holds_bytes, value)) if isinstance(value, list) else isinstance(value, bytes)


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2", "2.3"])
@pytest.mark.parametrize("name", NO_BYTES)
def test_values_of_no_bytes_read_on_both_sides(name, version, tmp_path):
    """Wherever the reference reads what it wrote itself: values that are not null only in 2.2."""
    values, data_type = NO_BYTES[name]
    if holds_bytes(values) and version != "2.2":
        return
    table = table_of(values, data_type)
    ours, theirs = tmp_path / "ours.lance", tmp_path / "theirs.lance"
    write(lancelet.file, ours, table, version)
    write(lance.file, theirs, table, version)
    for module in (lance.file, lancelet.file):
        for path in (ours, theirs):
            check(module, path, table)


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_blobs_in_the_file_read_on_both_sides(version, tmp_path):
    table = table_of(some([b"", b"abc", bytes(70), b"z" * 999] * 9), pa.large_binary(), BLOB)
    ours, theirs = tmp_path / "ours.lance", tmp_path / "theirs.lance"
    write(lancelet.file, ours, table, version)
    write(lance.file, theirs, table, version)
    for module in (lance.file, lancelet.file):
        for path in (ours, theirs):
            assert read(module, path).to_pylist() == table["f"].to_pylist()


@pytest.mark.parametrize(
    "texts",
    [
        [None, None, "v1", None, None],  # offsets 0 0 0 2 2 2: runs of 3
        ["", "v1", "", "", ""],  # offsets 0 0 2 2 2 2: runs of 2 and 4, a range too
        ["", None, "v1", "", None, None, None, None],
    ],
)
def test_offsets_in_runs_made_of_rules_need_no_bytes(tmp_path, texts):
    """In 2.3 the reference stores offsets 0 0 0 2 2 2 as runs of 3 of the range from 0 by 2."""
    struct = pa.struct([("x", pa.int64()), ("y", pa.string())])
    rows = [{"x": place, "y": text} for place, text in enumerate(texts)]
    table = pa.table({"p": pa.array(rows, struct)})
    path = str(tmp_path / "t.lance")
    lance.write_dataset(table, path, data_storage_version="2.3")
    dataset = lancelet.dataset(path)
    assert dataset.to_table().equals(table)
    assert dataset.take([2, 0]).equals(table.take([2, 0]))
