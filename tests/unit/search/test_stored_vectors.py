"""Vectors compared in the file have the distances of vectors that are read, for all columns."""

import numpy as np
import pyarrow as pa
import pytest

import lancelet
from lancelet.index.kernels import Metric
from lancelet.scan.plan import projection_of
from lancelet.scan.take import take_addresses
from lancelet.search import vector
from lancelet.search.exact import distances_to
from lancelet.search.vector import StoredVectors

DIMENSION = 96


def vectors_of(count, dtype, *, with_nulls=False):
    values = np.random.default_rng(4).normal(size=count * DIMENSION).astype(dtype)
    array = pa.FixedSizeListArray.from_arrays(values, DIMENSION)
    return (
        pa.array([None if row % 9 == 0 else each for row, each in enumerate(array)], array.type)
        if with_nulls
        else array
    )


def table_at(path, column, **options):
    rows = pa.table({"id": range(len(column)), "v": column})
    return lancelet.write_dataset(rows, str(path), **options)


@pytest.mark.parametrize("metric", [Metric.L2, Metric.COSINE, Metric.DOT])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
@pytest.mark.parametrize("with_nulls", [False, True])
@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_rows_are_as_far_as_if_they_were_read(tmp_path, metric, dtype, with_nulls, version):
    column = vectors_of(500, dtype, with_nulls=with_nulls)
    dataset = table_at(tmp_path, column, max_rows_per_file=200, data_storage_version=version)
    snapshot = dataset._handle.snapshot
    field = snapshot.schema.field_by_path("v")
    rows = np.array([3, (2 << 32) | 7, 199, (1 << 32) | 50, 0, (2 << 32) | 99], np.uint64)
    query = np.random.default_rng(1).normal(size=DIMENSION).astype(dtype)
    found = StoredVectors.of(snapshot, field).distances(snapshot, rows, query, metric)
    read = take_addresses(snapshot, rows, projection_of(snapshot, ("v",)))
    expected = distances_to(read.column(0).combine_chunks(), query, metric)
    np.testing.assert_array_equal(found, expected)


def test_plainly_stored_vectors_are_compared_in_place(tmp_path, monkeypatch):
    dataset = table_at(tmp_path, vectors_of(300, "f4"), data_storage_version="2.1")
    snapshot = dataset._handle.snapshot
    field = snapshot.schema.field_by_path("v")
    monkeypatch.setattr(vector, "take_addresses", None)
    rows = np.array([5, 9, 1], np.uint64)
    query = np.zeros(DIMENSION, np.float32)
    found = StoredVectors.of(snapshot, field).distances(snapshot, rows, query, Metric.L2)
    assert (found > 0).all()


def test_rows_may_be_named_twice_and_columns_be_in_structs(tmp_path):
    column = vectors_of(100, "f4")
    nested = pa.table({"s": pa.StructArray.from_arrays([column], ["v"])})
    dataset = lancelet.write_dataset(nested, str(tmp_path))
    snapshot = dataset._handle.snapshot
    field = snapshot.schema.field_by_path("s.v")
    rows = np.array([5, 9, 5], np.uint64)
    query = np.asarray(column[9].values)
    found = StoredVectors.of(snapshot, field).distances(snapshot, rows, query, Metric.L2)
    assert found[1] == 0
    assert found[0] == found[2] > 0


def test_damaged_vectors_are_found_out(tmp_path):
    dataset = table_at(tmp_path / "t", vectors_of(3000, "f4"), data_storage_version="2.1")
    snapshot = dataset._handle.snapshot
    field = snapshot.schema.field_by_path("v")
    (file,) = (tmp_path / "t" / "data").glob("*.lance")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    damaged = lancelet.dataset(str(tmp_path / "t"))._handle.snapshot
    column = StoredVectors.of(damaged, field)
    with pytest.raises(lancelet.errors.CorruptDataError):
        column.distances(
            damaged, np.arange(3000, dtype=np.uint64), np.zeros(DIMENSION, np.float32), Metric.L2
        )
    assert snapshot.num_rows == 3000
