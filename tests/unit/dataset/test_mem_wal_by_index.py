"""Reads of flushed tables through their indices and keys have the same results."""

import shutil
import warnings

import lance
import lance.mem_wal
import numpy as np
import pyarrow as pa
import pytest

import lancelet
import lancelet.mem_wal
from lancelet.memwal import lookup, nearest
from lancelet.memwal.shard import Shard
from lancelet.search.vector import VectorSearch
from tests.kit.sharded_rows import SHARD
from tests.kit.sharded_rows import sharded_rows as rows


@pytest.fixture
def written(tmp_path):
    """A table and its shard with three flushed tables; each overrides some rows."""
    dataset = lancelet.write_dataset(rows(list(range(300))), str(tmp_path / "t"))
    dataset.create_scalar_index("id", "BTREE", name="keys")
    dataset.create_scalar_index("s", "INVERTED", name="words")
    dataset.create_index("x", "IVF_FLAT", num_partitions=4, metric="l2", name="places")
    dataset.initialize_mem_wal(unsharded=True)
    for number, ids in enumerate(([5, 400, 401, 5], [400, 7, 402], [401, 8])):
        with dataset.mem_wal_writer(str(SHARD)) as shard:
            shard.put(rows(ids, far=100.0 * (number + 1)))
            shard.delete(pa.table({"id": pa.array([ids[1], 9], pa.int64())}))
    return dataset, Shard(dataset.handle.location, SHARD).latest().sstables


def shown(module, tables):
    snapshot = module.mem_wal.ShardSnapshot(str(SHARD))
    for table in tables:
        snapshot = snapshot.with_sstable(table.generation, table.path)
    return [snapshot]


def without(dataset, tables, folder):
    for table in tables:
        shutil.rmtree(f"{dataset.uri}/_mem_wal/{SHARD}/{table.path}/{folder}")


def test_a_key_is_looked_up_in_the_key_file_of_a_table(written, monkeypatch):
    dataset, tables = written
    scanned = set()
    scan = lookup.execute_to_table

    def noted(plan):
        scanned.add(plan.snapshot.location.uri)
        return scan(plan)

    monkeypatch.setattr(lookup, "execute_to_table", noted)

    def found(module):
        opened = module.dataset(dataset.uri)
        planner = module.mem_wal.LsmPointLookupPlanner(opened, shown(module, tables))
        return [
            planner.plan_lookup(pa.array([key], pa.int64()), ["id", "x"]).to_table().to_pylist()
            for key in (4, 5, 7, 8, 9, 400, 401, 402, 403)
        ]

    by_keys = found(lancelet)
    assert len(scanned) == 1  # the base
    assert [len(each) for each in by_keys] == [1, 1, 0, 0, 0, 1, 1, 1, 0]
    assert found(lance) == by_keys
    without(dataset, tables, "_pk_index")
    assert found(lancelet) == by_keys
    assert len(scanned) == 1 + len(tables)


@pytest.mark.parametrize("condition", [None, "id < 8", "s = 'tree w401'", "x[1] > 100"])
def test_scans_return_the_same_with_and_without_indices(written, condition):
    dataset, tables = written

    def found(module):
        opened = module.dataset(dataset.uri)
        scanner = module.mem_wal.LsmScanner.from_snapshots(opened, shown(module, tables))
        scanner = scanner.with_memtable_gen().project(["id", "x"])
        scanner = scanner if condition is None else scanner.filter(condition)
        return scanner.to_table().select(["id", "x", "_memtable_gen"]).to_pylist()

    by_index = found(lancelet)
    assert sorted(by_index, key=str) == sorted(found(lance), key=str)
    without(dataset, tables, "_indices")
    with warnings.catch_warnings(action="ignore"):
        assert found(lancelet) == by_index


def test_many_flushed_vectors_are_found_by_their_index(written, monkeypatch):
    dataset, tables = written
    planner = lancelet.mem_wal.LsmVectorSearchPlanner(dataset, shown(lancelet, tables), "x")
    query = np.array([200, 0, 0, 0], np.float32)
    exact = planner.plan_search(query, k=8, nprobes=4, columns=["id"]).to_table()
    monkeypatch.setattr(nearest, "_INDEXED_ROWS", 0)
    searched = set()
    through = VectorSearch._through_index

    def noted(self, snapshot, *given, **options):
        searched.add(snapshot.location.uri)
        return through(self, snapshot, *given, **options)

    monkeypatch.setattr(VectorSearch, "_through_index", noted)
    assert planner.plan_search(query, k=8, nprobes=4, columns=["id"]).to_table() == exact
    assert len(searched) == 1 + len(tables)
