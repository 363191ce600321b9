"""Bundles: columns read together have the values of columns read separately."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lancelet.encodings.base import RowIndices, RowRange
from lancelet.encodings.v2_1 import fields
from lancelet.errors import CorruptDataError, UnsupportedError
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
    reader = LanceFileReader(path)
    # A few rows of a map would be read by plans.
    reader._reader._mapped_file = None
    return reader


def bundles_of(reader):
    inner = reader._reader
    return inner._select(inner.schema.fields).bundles


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
def test_columns_of_bundles_are_those_that_were_written(readers, data):
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
def test_batches_of_bundles_have_the_rows_in_order(readers, batch_size):
    reader = readers["2.2", 700]
    batches = reader.read_all(batch_size=batch_size).to_batches().read_all()
    assert batches.combine_chunks().equals(TABLES[700].combine_chunks())


def test_most_columns_are_in_bundles_and_others_are_not(readers):
    names = list(KINDS)
    for (_, num_rows), reader in readers.items():
        places = {place for bundle in bundles_of(reader) for place in bundle.field_indices}
        kinds = {names[place % len(names)] for place in places}
        assert len(places) > (30 if num_rows > 1 else 15)
        assert "lists" not in kinds
        assert "same flag" in kinds
        for bundle in bundles_of(reader):
            assert len({TABLES[2].schema.field(place).type for place in bundle.field_indices}) == 1


def test_columns_of_different_lengths_are_not_bundled(readers):
    inner = readers["2.2", 700]._reader
    known = inner._metadata
    shorter = replace(
        known, descriptor=type(known.descriptor)(schema=known.descriptor.schema, length=699)
    )
    inner = LanceFileReader(inner.path if inner.path.startswith("/") else "/" + inner.path)._reader
    inner._metadata, inner._opened = shorter, type(inner._opened)()
    assert not inner._bundle(inner.schema.fields)
    with pytest.raises(CorruptDataError, match="different number of rows than the file"):
        inner.read(inner.schema.fields, RowRange(0, 699))


def test_damage_in_a_bundle_names_the_column(tmp_path):
    table = pa.table({f"c{place}": np.arange(100) * 7 for place in range(40)})
    path = str(tmp_path / "damaged")
    reader = written(path, table)
    assert len(bundles_of(reader)) == 1
    page = reader._reader.column(17).pages[0]
    data = bytearray((tmp_path / "damaged").read_bytes())
    at = int(page.position[0])
    data[at : at + 4] = b"\xff\xff\xff\xff"
    (tmp_path / "damaged").write_bytes(data)
    again = LanceFileReader(path, verify="off")
    with pytest.raises(CorruptDataError) as error:
        again.read_all().to_table()
    assert error.value.facts.get("column", 17) == 17


@pytest.mark.parametrize("error", [CorruptDataError, UnsupportedError])
def test_columns_that_a_bundle_rejects_are_read_one_by_one(tmp_path, monkeypatch, error):
    reader = written(str(tmp_path / "wide.lance"), TABLES[2])

    def refuse(*_):
        raise error("no such pages")

    monkeypatch.setattr(fields, "open_bundle", refuse)
    assert reader.read_all().to_table().equals(TABLES[2])
