"""Columns of wide tables, read together by plans, have the written values."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lancelet import kernels
from lancelet.encodings.base import RowIndices, RowRange
from lancelet.errors import CorruptDataError
from lancelet.file import LanceFileReader, LanceFileWriter

KINDS = {
    "int64": lambda random, rows: pa.array(random.integers(0, 1 << 40, rows)),
    "small": lambda random, rows: pa.array(random.integers(0, 9, rows), pa.int32()),
    "nulls": lambda random, rows: pa.array(
        random.integers(0, 99, rows), mask=random.random(rows) < 0.3
    ),
    "text": lambda random, rows: pa.array([str(n) * 3 for n in random.integers(0, 1 << 20, rows)]),
    "words": lambda random, rows: pa.array(random.choice(["a", "bc", ""], rows)),
    "one": lambda random, rows: pa.array(np.full(rows, random.integers(1 << 30))),
    "null": lambda _, rows: pa.nulls(rows, pa.float64()),
    "flags": lambda random, rows: pa.array(random.random(rows) < 0.5),
    "same flag": lambda _, rows: pa.array(np.ones(rows, np.bool_)),
    "decimal": lambda random, rows: pa.array(random.integers(0, 99, rows)).cast(
        pa.decimal128(25, 2)
    ),
    "vectors": lambda random, rows: pa.FixedSizeListArray.from_arrays(
        pa.array(random.random(rows * 80).astype(np.float32)), 80
    ),
    "lists": lambda random, rows: pa.array([[n] * n for n in random.integers(0, 3, rows).tolist()]),
    "days": lambda random, rows: pa.array(random.integers(0, 9999, rows), pa.int32()).cast(
        pa.date32()
    ),
}


def wide_table(columns, rows, seed=0):
    random = np.random.default_rng(seed)
    makers = [list(KINDS.values())[place % len(KINDS)] for place in range(columns)]
    return pa.table({f"c{place}": make(random, rows) for place, make in enumerate(makers)})


def written(path, table, version="2.2", **options):
    with LanceFileWriter(path, table.schema, version=version, **options) as writer:
        for batch in table.to_batches(max_chunksize=1000):
            writer.write_batch(batch)
    return LanceFileReader(path)


TABLES = {rows: wide_table(60, rows) for rows in (1, 2, 700, 5000)}


@pytest.fixture(scope="module")
def readers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wide")
    options = {"data_cache_bytes": 60 * 4096}
    return {
        (version, rows): written(str(folder / f"{version}.{rows}"), table, version, **options)
        for version in ("2.1", "2.2")
        for rows, table in TABLES.items()
    }


@given(data=st.data())
@settings(deadline=None)
def test_columns_are_those_that_were_written(readers, data):
    version, num_rows = data.draw(st.sampled_from(list(readers)))
    reader, table = readers[version, num_rows], TABLES[num_rows]
    start, stop = sorted(data.draw(st.tuples(*[st.integers(0, num_rows)] * 2)))
    assert (
        reader.read_range(start, stop - start).to_table().equals(table.slice(start, stop - start))
    )
    rows = sorted(data.draw(st.sets(st.integers(0, num_rows - 1), max_size=9)))
    assert reader.take_rows(rows).to_table().equals(table.take(pa.array(rows, pa.int64())))
    any_order = data.draw(st.lists(st.integers(0, num_rows - 1), max_size=9))
    taken = reader._reader.read(
        reader._reader.schema.fields, RowIndices(np.array(any_order, np.int64))
    )
    assert pa.Table.from_arrays(taken, table.column_names).equals(
        table.take(pa.array(any_order, pa.int64())).combine_chunks()
    )


@pytest.mark.parametrize("batch_size", [1, 300, 4096])
def test_batches_have_the_rows_in_order(readers, batch_size):
    reader = readers["2.2", 700]
    batches = reader.read_all(batch_size=batch_size).to_batches().read_all()
    assert batches.combine_chunks().equals(TABLES[700].combine_chunks())


@pytest.mark.skipif(not kernels.NATIVE, reason="the definition makes no plans")
def test_columns_are_read_by_plans(readers):
    names = list(KINDS)
    for (_, num_rows), reader in readers.items():
        inner = reader._reader
        selection = inner._select(inner.schema.fields)
        group = range(len(selection.units))
        arrays = inner._read_planned(selection, RowRange(0, num_rows), group)
        # Lists that are all empty have a constant page.
        general = {names[place % len(names)] for place in group if arrays[place] is None}
        assert general <= {"lists"}


def test_columns_of_other_lengths_are_rejected(readers):
    inner = readers["2.2", 700]._reader
    known = inner._metadata
    shorter = replace(
        known, descriptor=type(known.descriptor)(schema=known.descriptor.schema, length=699)
    )
    inner = LanceFileReader(inner.path if inner.path.startswith("/") else "/" + inner.path)._reader
    inner._metadata, inner._opened = shorter, type(inner._opened)()
    with pytest.raises(CorruptDataError, match="different number of rows than the file"):
        inner.read(inner.schema.fields, RowRange(0, 699))


def test_damage_names_the_column(tmp_path):
    table = pa.table({f"c{place}": np.arange(100) * 7 for place in range(40)})
    path = str(tmp_path / "damaged")
    reader = written(path, table)
    page = reader._reader.column(17).pages[0]
    data = bytearray((tmp_path / "damaged").read_bytes())
    at = int(page.position[0])
    data[at : at + 4] = b"\xff\xff\xff\xff"
    (tmp_path / "damaged").write_bytes(data)
    again = LanceFileReader(path, verify="off")
    with pytest.raises(CorruptDataError) as error:
        again.read_all().to_table()
    assert error.value.facts.get("column", 17) == 17
