"""Flushed tables have the indices of their base, and the progress of each index is recorded."""

from datetime import timedelta

import lance
import lance.mem_wal
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lancelet
import lancelet.mem_wal
from lancelet.errors import InvalidInputError, UnsupportedError
from lancelet.memwal.shard import Shard
from lancelet.memwal.state import mem_wal_state
from tests.kit.sharded_rows import SHARD
from tests.kit.sharded_rows import sharded_rows as rows


def indexed(module, uri):
    dataset = module.write_dataset(rows(list(range(300))), uri)
    dataset.create_scalar_index("s", "INVERTED", name="words")
    dataset.create_scalar_index("id", "BTREE", name="keys")
    dataset.create_scalar_index("id", "BITMAP", name="bits")
    dataset.create_index("x", "IVF_FLAT", num_partitions=4, metric="l2", name="places")
    return dataset


def flushed(module, dataset):
    """Return the flushed table of a shard, opened by one library, and its path."""
    shard = Shard(lancelet.dataset(dataset.uri).handle.location, SHARD)
    (table,) = shard.latest().sstables
    return module.dataset(f"{dataset.uri}/_mem_wal/{SHARD}/{table.path}"), table


def merge(module, dataset, generation):
    opened, _ = flushed(module, dataset)
    found = opened.to_table()
    live = found.filter(pc.invert(found["_tombstone"])).drop_columns(["_tombstone"])
    done = module.mem_wal.CompactedSsTable(str(SHARD), generation)
    merging = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    merging.mark_sstables_as_compacted([done]).execute(live)


@pytest.mark.parametrize("writer", [lancelet, lance])
@pytest.mark.parametrize("chosen", [None, ["places", "keys"]])
def test_flushed_tables_have_indices_that_either_library_uses(tmp_path, writer, chosen):
    dataset = indexed(writer, str(tmp_path / "t"))
    dataset.initialize_mem_wal(unsharded=True, maintained_indexes=chosen)
    with dataset.mem_wal_writer(str(SHARD)) as shard:
        shard.put(rows([5, 400, 401, 402]))
        shard.put(rows([400], far=50.0))
        shard.delete(pa.table({"id": pa.array([7], pa.int64())}))
    wanted = {"keys", "places"} if chosen else {"keys", "places", "words"}
    for reader in (lancelet, lance):
        table, _ = flushed(reader, dataset)
        assert table.version == 1
        assert {each.name for each in table.describe_indices()} == wanted
        assert table.to_table(filter="id = 401")["s"].to_pylist() == ["tree w401"]
        near = {"column": "x", "q": np.array([452, 0, 0, 0], np.float32), "k": 2}
        # The older row of 400 is hidden from the index too.
        assert table.to_table(nearest=near)["id"].to_pylist() == [400, 402]
        if chosen is None:
            words = table.to_table(full_text_query="tree")
            assert sorted(words["id"].to_pylist()) == [5, 400, 401, 402]


CHANGES = {
    "keys": lambda d: d.optimize.optimize_indices(index_names=["keys"]),
    "words": lambda d: d.optimize.optimize_indices(index_names=["words"]),
    "rest": lambda d: d.optimize.optimize_indices(),
    "append": lambda d: d.insert(rows([900])),
    "delete": lambda d: d.delete("id = 3"),
    "update": lambda d: d.update({"s": "'all'"}, where="id = 5"),
    "compact": lambda d: d.optimize.compact_files(),
    "new": lambda d: d.create_scalar_index("id", "ZONEMAP", name="zones"),
    "replace": lambda d: d.create_scalar_index("s", "BTREE", name="s"),
    "drop": lambda d: d.drop_index("keys"),
    "config": lambda d: d.update_config({"a": "b"}),
}


@pytest.mark.parametrize(
    "steps",
    [
        ["keys", "append", "words", "compact", "rest", "delete", "update"],
        ["append", "new", "rest", "drop", "update", "compact", "config"],
        ["replace", "delete", "compact", "keys", "append", "replace", "drop"],
    ],
)
def test_index_coverage_is_recorded_like_the_reference_does(tmp_path, steps):
    notes = []
    for module in (lancelet, lance):
        dataset = indexed(module, str(tmp_path / module.__name__))
        dataset.initialize_mem_wal(unsharded=True)
        with dataset.mem_wal_writer(str(SHARD)) as shard:
            shard.put(rows([5, 400]))
        merge(module, dataset, 1)
        own = []
        for step in steps:
            CHANGES[step](dataset)
            state = mem_wal_state(lancelet.dataset(dataset.uri).snapshot)
            own.append({name: list(each.values()) for name, each in state.caught_up.items()})
        notes.append(own)
    assert notes[0] == notes[1]
    assert any(notes[0])


def test_an_index_computed_before_a_merge_does_not_cover_it(tmp_path):
    dataset = indexed(lancelet, str(tmp_path / "t"))
    dataset.initialize_mem_wal(unsharded=True)
    with dataset.mem_wal_writer(str(SHARD)) as shard:
        shard.put(rows([5, 400]))
    early = dataset.create_index_uncommitted("id", "BTREE", "late", fragment_ids=[0])
    before = lancelet.dataset(dataset.uri)
    merge(lancelet, dataset, 1)
    before.commit_existing_index_segments("late", "id", [early])
    state = mem_wal_state(lancelet.dataset(dataset.uri).snapshot)
    assert state.compacted == {SHARD: 1}
    assert "late" not in state.caught_up


def test_a_flushed_table_goes_once_every_index_has_its_rows(tmp_path):
    uri = str(tmp_path / "t")
    dataset = indexed(lancelet, uri)
    dataset.initialize_mem_wal(unsharded=True, maintained_indexes=["keys", "words"])
    with dataset.mem_wal_writer(str(SHARD)) as shard:
        shard.put(rows([5, 400]))
    merge(lancelet, dataset, 1)

    def collected():
        dataset.cleanup_old_versions(timedelta(0), delete_unverified=True)
        return dataset.collect_mem_wal().sstables

    assert collected() == 0
    dataset.optimize.optimize_indices(index_names=["keys"])
    assert collected() == 0
    dataset.optimize.optimize_indices(index_names=["words"])
    assert collected() == 1
    assert dataset.to_table(filter="id = 400").num_rows == 1


@settings(max_examples=15)
@given(st.integers(0, 2**32), st.booleans())
def test_nearest_rows_are_those_of_a_plain_comparison(tmp_path_factory, seed, has_index):
    random = np.random.default_rng(seed)
    dataset = lancelet.write_dataset(rows(list(range(80))), str(tmp_path_factory.mktemp("t")))
    if has_index:
        dataset.create_index("x", "IVF_FLAT", num_partitions=2, name="places")
    dataset.initialize_mem_wal(unsharded=True)
    changed = sorted({int(each) for each in random.integers(0, 100, 30)})
    gone = [each for each in changed if each % 4 == 0]
    with dataset.mem_wal_writer(str(SHARD)) as shard:
        shard.put(rows(changed, far=40.5))
        shard.delete(pa.table({"id": pa.array(gone, pa.int64())}))
    _, table = flushed(lancelet, dataset)
    snapshot = lancelet.mem_wal.ShardSnapshot(str(SHARD)).with_sstable(1, table.path)
    planner = lancelet.mem_wal.LsmVectorSearchPlanner(dataset, [snapshot], "x")
    query, count = random.random(4, np.float32) * 60, int(random.integers(1, 30))
    found = planner.plan_search(query, k=count, nprobes=2, columns=["id"]).to_table()

    everything = lancelet.mem_wal.LsmScanner.from_snapshots(dataset, [snapshot]).to_table()
    vectors = np.array(everything["x"].to_pylist(), np.float32)
    exact = np.sort(((vectors - query) ** 2).sum(1))[:count]
    assert found["_distance"].to_numpy() == pytest.approx(exact, rel=1e-5)
    assert len(set(found["id"].to_pylist())) == len(found)
    assert not {*found["id"].to_pylist()} & {*gone}


def test_input_that_cannot_be_built_of_flushed_rows_is_rejected(tmp_path):
    dataset = indexed(lancelet, str(tmp_path / "t"))
    with pytest.raises(OSError, match="do not support this kind of index") as caught:
        dataset.initialize_mem_wal(unsharded=True, maintained_indexes=["bits"])
    assert isinstance(caught.value, UnsupportedError)
    with pytest.raises(OSError, match="'nope' from maintained_indexes not found"):
        dataset.initialize_mem_wal(unsharded=True, maintained_indexes=["nope"])
    for wrong in ({"places": {"edges": 3}}, {"places": {"num_edges": 0}}):
        with pytest.raises(InvalidInputError):
            dataset.initialize_mem_wal(unsharded=True, hnsw_params=wrong)


def test_graph_settings_are_stored_like_the_reference_does(tmp_path):
    kept = []
    for module in (lancelet, lance):
        dataset = indexed(module, str(tmp_path / module.__name__))
        graph = {"places": {"num_edges": 8}}
        dataset.initialize_mem_wal(unsharded=True, hnsw_params=graph)
        kept.append(dataset.mem_wal_index_details()["writer_config_defaults"])
        with dataset.mem_wal_writer(str(SHARD)) as shard:
            shard.put(rows([5, 400]))
    assert kept[0] == kept[1]
    ours, _ = flushed(lancelet, lancelet.dataset(str(tmp_path / "lancelet")))
    (found,) = (each for each in ours.describe_indices() if each.name == "places")
    assert found.index_type == "IVF_HNSW_SQ"
    assert found.details["hnsw"]["max_connections"] == 8


def test_keys_are_looked_up_in_tables_with_columns_that_arrow_cannot_join(tmp_path):
    dataset = indexed(lancelet, str(tmp_path / "t"))
    dataset.initialize_mem_wal(unsharded=True)
    with dataset.mem_wal_writer(str(SHARD)) as shard:
        shard.put(rows([5, 400], far=9.0))
    _, table = flushed(lancelet, dataset)
    snapshot = lancelet.mem_wal.ShardSnapshot(str(SHARD)).with_sstable(1, table.path)
    planner = lancelet.mem_wal.LsmPointLookupPlanner(dataset, [snapshot])
    for key, place in ((5, 14), (6, 6), (400, 409)):
        found = planner.plan_lookup(pa.array([key], pa.int64())).to_table()
        assert found["x"].to_pylist() == [[place, key % 3, 0, 0]]
