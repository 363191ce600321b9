"""Readers discover and follow the shards of a table, and read unindexed rows."""

import shutil
import time
import uuid
import warnings
from dataclasses import replace
from datetime import date, datetime, timedelta
from pathlib import Path

import lance
import lance.mem_wal
import numpy as np
import pyarrow as pa
import pytest

import lancelet
import lancelet.mem_wal
from lancelet.errors import CorruptDataError, FieldNotFoundError, InvalidInputError
from lancelet.format.index_metadata import MEM_WAL_INDEX
from lancelet.format.protos import index_details_pb
from lancelet.format.shard_manifest import ShardManifest, SsTable
from lancelet.memwal import compact, discovery, nearest, upkeep
from lancelet.memwal import writer as shard_writer
from lancelet.memwal.discovery import noted_shards, record_shards
from lancelet.memwal.reconcile import IrreconcilableError
from lancelet.memwal.shard import FencedError, Shard
from lancelet.memwal.state import LeftShardsError
from lancelet.memwal.upkeep import UnmergedShardsError
from lancelet.memwal.writer import MemWalWriter
from lancelet.table.commit import refresh_snapshot
from lancelet.table.location import TableLocation
from lancelet.table.snapshot import open_snapshot
from tests.kit.faults import FaultyStore
from tests.kit.sharded_rows import SHARD
from tests.kit.sharded_rows import sharded_rows as rows

OTHER = uuid.UUID(int=8)


def begun(path, ids=range(50)):
    dataset = lancelet.write_dataset(rows(list(ids)), str(path / "t"))
    dataset.initialize_mem_wal(unsharded=True)
    return dataset


def put(dataset, ids, shard=SHARD, far=0.0):
    with dataset.mem_wal_writer(str(shard)) as writer:
        writer.put(rows(ids, far=far))


def merge(dataset, ids, generation, far=0.0):
    done = lancelet.mem_wal.CompactedSsTable(str(SHARD), generation)
    merging = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    merging.mark_sstables_as_compacted([done]).execute(rows(ids, far=far))


def ids_of(dataset, shards):
    found = lancelet.mem_wal.LsmScanner.from_snapshots(dataset, shards).project(["id"]).to_table()
    return sorted(found["id"].to_pylist())


def test_shards_are_listed_with_what_they_flushed(tmp_path):
    dataset = begun(tmp_path)
    assert dataset.mem_wal_shards() == []
    put(dataset, [100, 101])
    put(dataset, [102], OTHER)
    put(dataset, [103])
    (tmp_path / "t/_mem_wal/notes").mkdir()
    shards = dataset.mem_wal_shards()
    assert [each.shard_id for each in shards] == [str(SHARD), str(OTHER)]
    assert [sorted(each.tables.sstables) for each in shards] == [[1, 2], [1]]
    assert ids_of(dataset, shards) == [*range(50), 100, 101, 102, 103]


def test_recorded_shards_are_listed_without_reading_them(tmp_path):
    dataset = begun(tmp_path)
    assert dataset.mem_wal_shards(noted=True) == []
    put(dataset, [100])
    assert dataset.note_mem_wal_shards(dry_run=True) is not None
    assert noted_shards(dataset.snapshot) is None
    dataset.note_mem_wal_shards()
    put(dataset, [101])
    merge(lancelet.dataset(dataset.uri), [100], 1)
    opened = lancelet.dataset(dataset.uri)
    assert opened.snapshot.indices.indices
    location = opened.snapshot.location
    store = FaultyStore(location.store)
    noted = noted_shards(opened.snapshot.with_location(replace(location, store=store)))
    assert store.requests == 0
    (state,) = noted.shards
    assert (state.shard_id, state.writer_epoch, state.current_generation) == (SHARD, 1, 2)
    assert abs(noted.taken_ms / 1000 - time.time()) < 3600
    # The later row is not there yet, and the merged one is not there twice.
    assert ids_of(opened, opened.mem_wal_shards(noted=True)) == [*range(50), 100]
    assert lance.dataset(dataset.uri).mem_wal_index_details()["num_shards"] == 1
    # The reference retains recorded shards in a merge.
    theirs = lance.mem_wal.CompactedSsTable(str(SHARD), 2)
    merging = lance.dataset(dataset.uri).merge_insert("id").when_not_matched_insert_all()
    merging.mark_sstables_as_compacted([theirs]).execute(rows([101]))
    again = lancelet.dataset(dataset.uri)
    assert ids_of(again, again.mem_wal_shards(noted=True)) == [*range(50), 100, 101]


def test_many_shards_are_noted_in_a_file(tmp_path, monkeypatch):
    dataset = begun(tmp_path)
    states = [
        ShardManifest(uuid.UUID(int=each), sstables=(SsTable(1, "a_gen_1"),))
        for each in range(1, 131)
    ]
    monkeypatch.setattr(discovery, "latest_shards", lambda _: states)
    dataset.note_mem_wal_shards()
    (entry,) = dataset.snapshot.indices.indices
    assert [file.path for file in entry.files] == ["shards.lance"]
    assert len(dataset.mem_wal_shards(noted=True)) == 130
    assert lance.dataset(dataset.uri).mem_wal_index_details() is not None
    theirs = lance.mem_wal.CompactedSsTable(str(SHARD), 2)
    merging = lance.dataset(dataset.uri).merge_insert("id").when_not_matched_insert_all()
    merging.mark_sstables_as_compacted([theirs]).execute(rows([101]))
    # The reference drops the file; missing records do not mean that there are no shards.
    dataset = lancelet.dataset(dataset.uri)
    assert noted_shards(dataset.snapshot) is None
    assert len(dataset.mem_wal_shards(noted=True)) == 130
    monkeypatch.setattr(discovery, "latest_shards", lambda _: states[:3])
    dataset.note_mem_wal_shards()
    (entry,) = dataset.snapshot.indices.indices
    assert entry.files == ()
    assert len(dataset.mem_wal_shards(noted=True)) == 3


def test_noting_shards_does_not_undo_a_merge_at_the_same_time(tmp_path, monkeypatch):
    dataset = begun(tmp_path)
    put(dataset, [100])
    snapshot = open_snapshot(TableLocation.open(dataset.uri))
    seen = []

    def and_merge(current):
        if not seen:
            seen.append(1)
            merge(lancelet.dataset(dataset.uri), [100], 1)
        return []

    monkeypatch.setattr(discovery, "latest_shards", and_merge)
    record_shards(snapshot)
    with pytest.raises(OSError, match="already in the table"):
        merge(lancelet.dataset(dataset.uri), [100], 1)


def test_notes_that_make_no_sense_are_rejected(tmp_path):
    dataset = begun(tmp_path)
    put(dataset, [100])
    dataset.note_mem_wal_shards()
    (entry,) = dataset.snapshot.indices.indices
    details = index_details_pb.MemWalIndexDetails.FromString(entry.details.value)
    assert entry.name == MEM_WAL_INDEX
    schema_of_others = pa.schema(
        [pa.field("shard_id", pa.string()), ("shard_spec_id", pa.uint32())]
    )
    path = str(tmp_path / "x.lance")
    for text, is_sound in ((str(SHARD), True), ("no id", False)):
        with lancelet.file.LanceFileWriter(path, schema_of_others) as file:
            file.write_batch(pa.table({"shard_id": [text], "shard_spec_id": [1]}, schema_of_others))
        details.inline_snapshots = Path(path).read_bytes()
        found = _with_details(dataset.snapshot, details)
        if is_sound:
            assert [each.shard_id for each in noted_shards(found).shards] == [SHARD]
        else:
            with pytest.raises(CorruptDataError, match="no id"):
                noted_shards(found)


def _with_details(snapshot, details):
    (entry,) = snapshot.indices.indices
    changed = replace(entry, details=replace(entry.details, value=details.SerializeToString()))
    other = replace(snapshot)
    vars(other)["indices"] = replace(snapshot.indices, indices=(changed,))
    return other


def test_readers_see_new_shards_and_merges_after_a_while(tmp_path):
    dataset = begun(tmp_path)
    with lancelet.mem_wal.LsmReader(dataset, refresh_interval_ms=5) as reader:
        assert reader.scanner().count_rows() == 50
        put(dataset, [100, 7], far=5.0)
        put(dataset, [101], OTHER)
        while sum(len(each.tables.sstables) for each in reader.shards) < 2:
            time.sleep(0.005)
        assert reader.scanner().count_rows() == 52
        merge(lancelet.dataset(dataset.uri), [100, 7], 1, far=5.0)
        while reader.dataset.version < 3:
            time.sleep(0.005)
        assert reader.scanner().count_rows() == 52
        found = reader.point_lookup_planner().plan_lookup(pa.array([100], pa.int64())).to_table()
        assert found["id"].to_pylist() == [100]
        near = reader.vector_search_planner("x").plan_search(np.array([12, 1, 0, 0], np.float32), 1)
        assert near.to_table()["id"].to_pylist() == [7]
    with pytest.raises(InvalidInputError, match="at least 1"):
        lancelet.mem_wal.LsmReader(dataset, refresh_interval_ms=0)


def test_readers_continue_with_cached_shards_if_discovery_fails(tmp_path, caplog):
    dataset = begun(tmp_path)
    with lancelet.mem_wal.LsmReader(dataset, refresh_interval_ms=1) as reader:
        Path(dataset.uri, "_mem_wal", str(SHARD), "manifest").mkdir(parents=True)
        broken = Path(dataset.uri, "_mem_wal", str(SHARD), "manifest", f"1{'0' * 63}.binpb")
        broken.write_bytes(b"\xff\xff")
        while "refreshing the shards failed" not in caplog.text:
            time.sleep(0.001)
        assert reader.scanner().count_rows() == 50


def indexed(tmp_path):
    dataset = lancelet.write_dataset(rows(list(range(300))), str(tmp_path / "t"))
    dataset.create_scalar_index("id", "BTREE", name="keys")
    dataset.create_index("x", "IVF_FLAT", num_partitions=4, metric="l2", name="near")
    dataset.initialize_mem_wal(unsharded=True)
    put(dataset, [5, 400, 401], far=1000.0)
    put(dataset, [400, 402], far=2000.0)
    opened = lancelet.dataset(dataset.uri)
    merge(opened, [5, 400, 401], 1, far=1000.0)
    merge(opened, [400, 402], 2, far=2000.0)
    return opened


QUERIES = {
    "scan": lambda d, s: (
        lancelet.mem_wal.LsmScanner.from_snapshots(d, s).filter("id >= 299").to_table()
    ),
    "search": lambda d, s: (
        lancelet.mem_wal.LsmVectorSearchPlanner(d, s, "x")
        .plan_search(np.array([2400, 0, 0, 0], np.float32), k=5, nprobes=4)
        .to_table()
    ),
}


@pytest.mark.parametrize("query", QUERIES)
def test_unindexed_rows_are_read_from_flushed_tables(tmp_path, monkeypatch, query):
    """Fragments that the index does not cover do not exist, which is no error."""
    dataset = indexed(tmp_path)
    monkeypatch.setattr(nearest, "_INDEXED_ROWS", 0)
    run = QUERIES[query]
    expected = run(dataset, []).sort_by("id")
    lacking = [f for f in dataset.snapshot.fragments if f.id > 0]
    assert lacking
    for fragment in lacking:
        for file in fragment.files:
            Path(dataset.uri, "data", file.path).unlink()
    fresh = lancelet.dataset(dataset.uri)
    found = run(fresh, fresh.mem_wal_shards()).sort_by("id")
    assert found["id"].to_pylist() == expected["id"].to_pylist()
    assert found["x"].to_pylist() == expected["x"].to_pylist()
    with pytest.raises(FileNotFoundError):
        run(lancelet.dataset(dataset.uri), [])


CHANGED = {
    "delete": lambda d: d.delete("id = 402"),
    "append": lambda d: d.insert(rows([403])),
    "update": lambda d: d.update({"s": "'x'"}, where="id = 402"),
    "compact": lambda d: d.optimize.compact_files(),
    "unmarked merge": lambda d: (
        d.merge_insert("id").when_not_matched_insert_all().execute(rows([404]))
    ),
    "index": lambda d: d.optimize.optimize_indices(),
    "one index": lambda d: d.optimize.optimize_indices(index_names=["keys"]),
    "config": lambda d: d.update_config({"a": "b"}),
}


@pytest.mark.parametrize("change", CHANGED)
@pytest.mark.parametrize("query", QUERIES)
def test_reads_after_changes_match_reads_without_indices(tmp_path, change, query):
    dataset = indexed(tmp_path)
    CHANGED[change](dataset)
    fresh = lancelet.dataset(dataset.uri)
    run = QUERIES[query]
    found, expected = run(fresh, fresh.mem_wal_shards()), run(fresh, [])
    assert found.sort_by("id").to_pylist() == expected.sort_by("id").to_pylist()


def test_tables_of_the_gap_that_are_gone_are_not_missed(tmp_path):
    dataset = indexed(tmp_path)
    (shard,) = dataset.mem_wal_shards()
    half = lancelet.mem_wal.ShardSnapshot(str(SHARD)).with_sstable(2, shard.tables.sstables[2])
    for run in QUERIES.values():
        expected = run(dataset, []).sort_by("id").to_pylist()
        assert run(dataset, [half]).sort_by("id").to_pylist() == expected


@pytest.mark.parametrize("kind", ["branch", "shallow", "deep"])
def test_shards_of_clones_and_branches_are_their_own(tmp_path, kind):
    """A shard id that the source merged up to generation 2 is used again, by either library."""
    for module in (lancelet, lance):
        source = begun(tmp_path / module.__name__)
        for generation, key in ((1, 100), (2, 101)):
            put(source, [key])
            merge(lancelet.dataset(source.uri), [key], generation)
        source = lancelet.dataset(source.uri)
        if kind == "branch":
            source.create_branch("b")
            opened = lambda m, s=source: m.dataset(s.uri).checkout_version(("b", None))  # noqa: E731
        else:
            uri = str(tmp_path / f"{kind}-{module.__name__}")
            make = source.shallow_clone if kind == "shallow" else source.deep_clone
            make(uri, source.version)
            opened = lambda m, u=uri: m.dataset(u)  # noqa: E731
        with opened(module).mem_wal_writer(str(SHARD)) as writer:
            writer.put(rows([200]))
        own = opened(lancelet)
        assert ids_of(own, own.mem_wal_shards()) == [*range(50), 100, 101, 200]
        assert ids_of(source, source.mem_wal_shards()) == [*range(50), 100, 101]


def test_writers_count_generations_after_the_merged_one(tmp_path):
    """A branch of the reference lists generation 1 as merged: that of another shard."""
    dataset = begun(tmp_path)
    put(dataset, [100])
    merge(lancelet.dataset(dataset.uri), [100], 1)
    theirs = lance.dataset(dataset.uri).create_branch("b")
    assert theirs.mem_wal_index_details() is not None
    opened = lancelet.dataset(dataset.uri).checkout_version(("b", None))
    put(opened, [200])
    assert ids_of(opened, opened.mem_wal_shards()) == [*range(50), 100, 200]


def test_parts_of_structs_are_projected(tmp_path):
    key = {"lance-schema:unenforced-primary-key": "true"}
    struct = pa.struct([("x", pa.int32()), ("y", pa.struct([("z", pa.int8()), ("w", pa.int8())]))])
    schema = pa.schema([pa.field("id", pa.int64(), False, key), ("st", struct), ("n", pa.int8())])
    values = [{"x": 1, "y": {"z": 1, "w": 2}}, None, {"x": 3, "y": None}]
    table = pa.table({"id": [1, 2, 3], "st": values, "n": [1, 2, 3]}, schema)
    dataset = lancelet.write_dataset(table[:1], str(tmp_path / "t"))
    dataset.initialize_mem_wal()
    with dataset.mem_wal_writer(str(SHARD)) as writer:
        writer.put(table[1:])
    for columns in (["st.x"], ["st.y.z", "n"], ["st.x", "st"], ["st", "st.x"], ["id", "st.y"]):
        found = []
        for module in (lance, lancelet):
            opened = module.dataset(dataset.uri)
            (shard,) = dataset.mem_wal_shards()
            seen = module.mem_wal.ShardSnapshot(str(SHARD)).with_sstable(
                1, shard.tables.sstables[1]
            )
            scanner = module.mem_wal.LsmScanner.from_snapshots(opened, [seen]).project(columns)
            one = module.mem_wal.LsmPointLookupPlanner(opened, [seen]).plan_lookup(
                pa.array([3], pa.int64()), columns
            )
            whole = scanner.to_table()
            found.append((whole.sort_by("id").to_pylist(), one.to_table().to_pylist()))
            assert whole.schema.names == found_names(columns)
        if columns not in (["st.x", "st"], ["st", "st.x"]):
            assert found[0] == found[1]
        assert found[1][0] == [pruned(row, columns) for row in table.to_pylist()]
    with pytest.raises(FieldNotFoundError):
        lancelet.mem_wal.LsmScanner.from_snapshots(dataset, []).project(["no"]).to_table()


def found_names(columns):
    return list(dict.fromkeys([*(each.partition(".")[0] for each in columns), "id"]))


def pruned(row, columns):
    found = {}
    for name in found_names(columns):
        own = [each.partition(".")[2] for each in columns if each.partition(".")[0] == name]
        whole = not own or "" in own
        value = row[name]
        found[name] = value if whole or value is None else pruned_struct(value, own)
    return found


def pruned_struct(value, paths):
    found = {}
    for path in paths:
        name, _, rest = path.partition(".")
        inner = value[name]
        found[name] = {rest: inner[rest]} if rest and inner is not None else inner
    return found


def test_rows_are_identified_by_the_key_columns_of_the_planner(tmp_path):
    plain = pa.table({"id": [1, 2], "x": pa.array([[0, 0], [5, 5]], pa.list_(pa.float32(), 2))})
    dataset = lancelet.write_dataset(plain, str(tmp_path / "t"))
    dataset.initialize_mem_wal()
    with dataset.mem_wal_writer(str(SHARD)) as writer:
        writer.put(pa.table({"id": [1], "x": pa.array([[9, 9]], pa.list_(pa.float32(), 2))}))
    shards, query = dataset.mem_wal_shards(), np.array([0, 0], np.float32)
    planner = lancelet.mem_wal.LsmVectorSearchPlanner(dataset, shards, "x", pk_columns=["id"])
    found = planner.plan_search(query, k=3, columns=["id"]).to_table()
    assert found.to_pylist() == [{"id": 2, "_distance": 50.0}, {"id": 1, "_distance": 162.0}]
    lookup = lancelet.mem_wal.LsmPointLookupPlanner(dataset, shards, pk_columns=["id"])
    (row,) = lookup.plan_lookup(pa.array([1])).to_table().to_pylist()
    assert row["x"] == [9, 9]
    for wrong in (None, []):
        with pytest.raises(ValueError, match=r"key|column"):
            lancelet.mem_wal.LsmVectorSearchPlanner(dataset, shards, "x", pk_columns=wrong)
    with pytest.raises(FieldNotFoundError):
        lancelet.mem_wal.LsmVectorSearchPlanner(
            dataset, shards, "x", pk_columns=["no"]
        ).plan_search(query)


def test_estimates_of_an_index_are_refined_on_request(tmp_path):
    """Quantized vectors have approximate distances, which suffice without rows of shards."""
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((600, 16)).astype(np.float32)
    key = {"lance-schema:unenforced-primary-key": "true"}
    schema = pa.schema([pa.field("id", pa.int64(), False, key), ("x", pa.list_(pa.float32(), 16))])
    flat = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 16)
    table = pa.Table.from_arrays([pa.array(range(600)), flat], schema=schema)
    dataset = lancelet.write_dataset(table, str(tmp_path / "t"))
    dataset.create_index("x", "IVF_PQ", num_partitions=1, num_sub_vectors=2, metric="l2")
    dataset.initialize_mem_wal()
    exact = ((vectors - vectors[7]) ** 2).sum(axis=1)

    def errors(shards, **how):
        planner = lancelet.mem_wal.LsmVectorSearchPlanner(dataset, shards, "x")
        found = planner.plan_search(vectors[7], k=5, **how).to_table()
        pairs = zip(found["id"].to_pylist(), found["_distance"].to_pylist(), strict=True)
        return [abs(distance - exact[key]) for key, distance in pairs if key < 600]

    assert max(errors([])) > 0.1
    assert max(errors([], refine_base_table=True)) < 1e-3
    with dataset.mem_wal_writer(str(SHARD)) as writer:
        writer.put(table[:1].set_column(0, "id", pa.array([700])))
    assert max(errors(dataset.mem_wal_shards())) < 1e-3


YEAR = lancelet.mem_wal.ShardingField("y", [0], "year", None, "int32")


def test_rows_are_split_by_year_and_by_expressions(tmp_path):
    schema = pa.schema([("at", pa.timestamp("us")), ("d", pa.date32()), ("c", pa.string())])
    moments = [datetime(1999, 12, 31, 23), datetime(2024, 1, 1), None]  # noqa: DTZ001
    table = pa.table(
        {"at": moments, "d": [date(1970, 1, 1), None, date(2001, 2, 3)], "c": ["a", None, "b"]},
        schema,
    )
    dataset = lancelet.write_dataset(table, str(tmp_path / "t"))
    spec = lancelet.mem_wal.ShardingSpec(
        3,
        [
            YEAR,
            lancelet.mem_wal.ShardingField("e", [2], None, "upper(c)", "utf8"),
            lancelet.mem_wal.ShardingField("f", [1], "year", None, "int32"),
        ],
    )
    dataset.initialize_mem_wal(sharding_spec=spec)
    assert dataset.mem_wal_index_details() == lance.dataset(dataset.uri).mem_wal_index_details()
    (batch,) = table.to_batches()
    found = lancelet.mem_wal.evaluate_sharding_spec(batch, spec, dataset.lance_schema)
    assert found.to_pydict() == {
        "y": [1999, 2024, None],
        "e": ["A", None, "B"],
        "f": [1970, None, 2001],
    }
    assert [field.type for field in found.schema] == [pa.int32(), pa.string(), pa.int32()]
    with dataset.mem_wal_writer(str(SHARD)) as writer:
        writer.put(table)
    assert dataset.mem_wal_shards()[0].tables.spec_id == 3


@pytest.mark.parametrize(
    "fields",
    [
        [{"field_id": "a", "source_ids": [1], "transform": "year"}],
        [{"field_id": "a", "source_ids": [9], "transform": "identity"}],
        [{"field_id": "a", "source_ids": [0], "transform": "month"}],
        [{"field_id": "a", "source_ids": [0], "transform": "identity", "expression": "id"}],
        [{"field_id": "a", "source_ids": [], "expression": "nothing + 1"}],
        [],
        [{"field_id": "a", "source_ids": [0], "transform": "identity"}] * 2,
    ],
    ids=str,
)
def test_rules_that_columns_cannot_follow_are_rejected(tmp_path, fields):
    dataset = lancelet.write_dataset(rows([1]), str(tmp_path / "t"))
    with pytest.raises((ValueError, NotImplementedError)):
        dataset.initialize_mem_wal(sharding_spec={"spec_id": 1, "fields": fields})
    with pytest.raises(ValueError, match="at most one"):
        dataset.initialize_mem_wal(sharding_spec={"spec_id": 1, "fields": []}, unsharded=True)
    assert dataset.version == 1


def test_a_log_is_dropped_when_all_of_it_is_in_the_table(tmp_path):
    dataset = begun(tmp_path)
    put(dataset, [100])
    with pytest.raises(UnmergedShardsError):
        dataset.drop_mem_wal()
    assert dataset.mem_wal_index_details() is not None
    merge(lancelet.dataset(dataset.uri), [100], 1)
    fresh = lancelet.dataset(dataset.uri)
    report = fresh.drop_mem_wal(dry_run=True)
    assert report.operation == "DropMemWal"
    assert lancelet.dataset(dataset.uri).mem_wal_index_details() is not None
    assert ids_of(fresh, fresh.mem_wal_shards()) == [*range(50), 100]
    fresh.drop_mem_wal()
    assert fresh.mem_wal_index_details() is None
    assert not list(Path(dataset.uri, "_mem_wal").glob("*/*_gen_*"))
    assert not [
        entry for entry in Shard(fresh.snapshot.location, SHARD).entries(0) if entry.batches
    ]
    fresh.alter_columns({"path": "s", "nullable": False})
    fresh.initialize_mem_wal()
    put(fresh, [101])
    assert ids_of(fresh, fresh.mem_wal_shards()) == [*range(50), 100, 101]


@pytest.mark.parametrize("is_begun_again", [False, True])
def test_a_writer_of_a_log_that_was_dropped_acknowledges_nothing(tmp_path, is_begun_again):
    dataset = begun(tmp_path)
    writer = dataset.mem_wal_writer(str(SHARD))
    writer.put(rows([100]))
    dataset.compact_mem_wal(flush=True)
    waiting = dataset.mem_wal_writer(str(SHARD))
    dataset.drop_mem_wal()
    if is_begun_again:
        dataset.initialize_mem_wal(unsharded=True)
        put(dataset, [101])
    for late in (writer, waiting):
        with pytest.raises(FencedError):
            late.put(rows([102]))
    found = lancelet.mem_wal.LsmScanner.fresh(dataset).project(["id"]).to_table()
    assert sorted(found["id"].to_pylist()) == [*range(50), 100, *([101] if is_begun_again else [])]


def test_dropping_a_log_preserves_tables_flushed_by_the_next_one(tmp_path, monkeypatch):
    """Another writer creates a log and the shard again before the dropped files are deleted."""
    dataset = begun(tmp_path)
    dataset.mem_wal_writer(str(SHARD)).close()
    publish = upkeep.publish

    def and_begun_again(*given):
        dropped = publish(*given)
        other = lancelet.dataset(dataset.uri)
        other.initialize_mem_wal(unsharded=True)
        put(other, [101])
        return dropped

    monkeypatch.setattr(upkeep, "publish", and_begun_again)
    dataset.drop_mem_wal()
    found = lancelet.mem_wal.LsmScanner.fresh(dataset).project(["id"]).to_table()
    assert sorted(found["id"].to_pylist()) == [*range(50), 101]


def test_rows_of_a_log_that_a_table_lost_are_not_read_as_its_own(tmp_path):
    """The ids of fields mean other columns in what replaced the table."""
    dataset = begun(tmp_path)
    put(dataset, [100])
    lance.write_dataset(rows([1]).rename_columns(["id", "t", "y"]), dataset.uri, mode="overwrite")
    opened = lancelet.dataset(dataset.uri)
    with pytest.raises(OSError, match="not initialized"):
        lancelet.mem_wal.LsmScanner.fresh(opened)
    lancelet.dataset(dataset.uri, version=1).restore()
    opened = lancelet.dataset(dataset.uri)
    with pytest.raises(OSError, match="not initialized"):
        lancelet.mem_wal.LsmScanner.fresh(opened)


def test_shards_of_an_earlier_log_are_not_taken_over(tmp_path):
    """Their merged generations are forgotten, so they would restore rows replaced since."""
    dataset = begun(tmp_path)
    put(dataset, [7], far=5.0)
    lance.dataset(dataset.uri).drop_index(MEM_WAL_INDEX)
    opened = lancelet.dataset(dataset.uri)
    with pytest.raises(OSError, match="earlier log"):
        opened.initialize_mem_wal()


def test_unflushed_entries_are_collected_with_the_shard(tmp_path):
    dataset = begun(tmp_path)
    put(dataset, [100])
    merge(lancelet.dataset(dataset.uri), [100], 1)
    left = Path(dataset.uri, "_mem_wal", str(SHARD), "0123abcd_gen_2", "data")
    left.mkdir(parents=True)
    (left / "x.lance").write_bytes(b"x")
    fresh = lancelet.dataset(dataset.uri)
    fresh.cleanup_old_versions(timedelta(0), delete_unverified=True)
    assert left.exists()
    assert fresh.collect_mem_wal().sstables == 1
    assert not (left / "x.lance").exists()
    with warnings.catch_warnings(action="error"):
        assert ids_of(fresh, fresh.mem_wal_shards()) == [*range(50), 100]


def test_ids_of_columns_that_are_gone_are_not_given_again(tmp_path):
    """A column without values in files leaves no trace, but rows of shards have its id."""
    for where in ("flushed", "logged"):
        dataset = begun(tmp_path / where)
        dataset.add_columns(pa.schema([("a", pa.int64())]))
        writer = dataset.mem_wal_writer(str(SHARD))
        writer.put(rows([100]).append_column("a", pa.array([7])))
        if where == "flushed":
            writer.close()
        dataset.drop_columns(["a"])
        dataset.add_columns(pa.schema([("b", pa.int64())]))
        with lancelet.dataset(dataset.uri).mem_wal_writer(str(SHARD)) as again:
            found = again.lsm_scanner().filter("id = 100").to_table()
        assert found["b"].to_pylist() == [None]
        assert lance.dataset(dataset.uri).schema.names == ["id", "s", "x", "b"]
    plain = lancelet.write_dataset(rows([1]), str(tmp_path / "plain"))
    plain.add_columns(pa.schema([("a", pa.int64())]))
    plain.drop_columns(["a"])
    assert plain.schema.metadata is None


@pytest.mark.parametrize("has_key", [True, False])
def test_flushed_tables_are_merged_in_order(tmp_path, has_key):
    schema = rows([]).schema if has_key else rows([]).schema.remove_metadata()
    if not has_key:
        schema = pa.schema([field.remove_metadata() for field in schema])
    uri = str(tmp_path / "t")
    dataset = lancelet.write_dataset(rows(range(3)).cast(schema), uri)
    dataset.initialize_mem_wal(unsharded=True)
    for shard, ids, far in ((SHARD, [2, 3], 1.0), (SHARD, [2, 4], 2.0), (OTHER, [9], 3.0)):
        with dataset.mem_wal_writer(str(shard)) as writer:
            writer.put(rows(ids, far=far).cast(schema))
            if has_key:
                writer.delete(pa.table({"id": [ids[0] - 1]}))
    before = lancelet.dataset(uri)
    report = dataset.compact_mem_wal(dry_run=True)
    assert (report.operation, report.rows) == ("CompactMemWal", 7 if has_key else 5)
    assert lancelet.dataset(uri).version == before.version
    done = before.compact_mem_wal()
    assert (done.sstables, done.rows, done.deletions) == (3, 5, 3 if has_key else 0)
    assert dataset.compact_mem_wal().sstables == 0
    table = lance.dataset(uri).to_table().sort_by("id")
    if has_key:
        assert table["id"].to_pylist() == [0, 2, 3, 4, 9]
        assert [each[0] for each in table["x"].to_pylist()] == [0, 4, 4, 6, 12]
    else:
        assert table["id"].to_pylist() == [0, 1, 2, 2, 2, 3, 4, 9]


def test_concurrent_merges_skip_merged_tables(tmp_path, monkeypatch):
    dataset = begun(tmp_path)
    put(dataset, [100])
    put(dataset, [101])
    merging = compact.merge_rows

    def and_another(*given, **how):
        monkeypatch.setattr(compact, "merge_rows", merging)
        lancelet.dataset(dataset.uri).compact_mem_wal()
        return merging(*given, **how)

    monkeypatch.setattr(compact, "merge_rows", and_another)
    assert lancelet.dataset(dataset.uri).compact_mem_wal().sstables == 0
    assert lancelet.dataset(dataset.uri).count_rows() == 52


def test_a_late_merge_deletes_no_newer_rows(tmp_path, monkeypatch):
    """A row that generation 1 deletes is there again in generation 2, which another merged too."""
    dataset = begun(tmp_path, range(3))
    with dataset.mem_wal_writer(str(SHARD)) as writer:
        writer.delete(pa.table({"id": [1]}))
    put(dataset, [1], far=5.0)
    merging = compact.merge_rows

    def after_another(*given, **how):
        monkeypatch.setattr(compact, "merge_rows", merging)
        assert lancelet.dataset(dataset.uri).compact_mem_wal().sstables == 2
        return merging(*given, **how)

    monkeypatch.setattr(compact, "merge_rows", after_another)
    assert dataset.compact_mem_wal().sstables == 0
    table = lance.dataset(dataset.uri).to_table().sort_by("id")
    assert table["id"].to_pylist() == [0, 1, 2]
    assert table["x"][1].as_py()[0] == 6


def renamed_and_another(dataset):
    dataset.alter_columns({"path": "s", "name": "old"})
    dataset.add_columns(pa.schema([pa.field("s", pa.string())]))


def dropped_and_another(dataset):
    dataset.drop_columns(["s"])
    dataset.add_columns(pa.schema([pa.field("s", pa.string())]))


@pytest.mark.parametrize("change", [renamed_and_another, dropped_and_another])
@pytest.mark.parametrize("step", [0, 1])
@pytest.mark.parametrize("has_key", [True, False])
def test_columns_may_change_during_a_merge_of_flushed_tables(
    tmp_path, monkeypatch, change, step, has_key
):
    """A name may refer to another column later: columns of rows are identified by field ids."""
    schema = rows([]).schema
    if not has_key:
        schema = pa.schema([field.remove_metadata() for field in schema])
    uri = str(tmp_path / "t")
    dataset = lancelet.write_dataset(rows([0, 1]).cast(schema), uri)
    dataset.initialize_mem_wal(unsharded=True)
    with dataset.mem_wal_writer(str(SHARD)) as writer:
        writer.put(rows([7]).cast(schema))
        if has_key:
            writer.delete(pa.table({"id": [1]}))
    name, seen = "merge_rows" if has_key else "write_rows", []
    working = getattr(compact, name)

    def before(*given, **how):
        seen.append(None)
        if len(seen) == step + 1:
            change(lancelet.dataset(uri))
        return working(*given, **how)

    monkeypatch.setattr(compact, name, before)
    assert dataset.compact_mem_wal().sstables == 1
    if not seen[step:]:
        change(lancelet.dataset(uri))
    table = lance.dataset(uri).to_table().sort_by("id")
    assert table["id"].to_pylist() == ([0, 7] if has_key else [0, 1, 7])
    assert table["s"].null_count == len(table)
    if "old" in table.column_names:
        assert table["old"][-1].as_py() == "tree w7"


def with_a_column_that_only_the_log_has_values_of(path):
    """Return a handle from before the column, which a writer that died wrote."""
    stale = begun(path, range(2))
    dataset = lancelet.dataset(stale.uri)
    dataset.add_columns(pa.schema([pa.field("w", pa.string())]))
    added = rows([7]).append_column(dataset.schema.field("w"), pa.array(["logged"]))
    dataset.mem_wal_writer(str(SHARD)).put(added)
    return stale


@pytest.mark.parametrize("flushes", [True, False])
def test_a_stale_handle_flushes_columns_that_it_does_not_know(tmp_path, flushes):
    stale = with_a_column_that_only_the_log_has_values_of(tmp_path)
    if flushes:
        stale.compact_mem_wal(flush=True)
    else:
        stale.mem_wal_writer(str(SHARD)).close()
        stale.compact_mem_wal()
    table = lance.dataset(stale.uri).to_table(filter="id = 7")
    assert table["w"].to_pylist() == ["logged"]


def test_columns_that_come_while_a_writer_is_opened_are_not_flushed_without(tmp_path, monkeypatch):
    stale = with_a_column_that_only_the_log_has_values_of(tmp_path)
    opened = [stale.snapshot, refresh_snapshot(stale.snapshot)]
    monkeypatch.setattr(shard_writer, "refresh_snapshot", lambda _: opened.pop(0))
    with pytest.raises(IrreconcilableError, match="open it again"):
        stale.mem_wal_writer(str(SHARD))
    monkeypatch.undo()
    stale.compact_mem_wal(flush=True)
    assert lance.dataset(stale.uri).to_table(filter="id = 7")["w"].to_pylist() == ["logged"]


def test_a_stale_handle_writes_no_log_that_is_gone(tmp_path):
    stale = begun(tmp_path)
    lancelet.dataset(stale.uri).drop_mem_wal()
    with pytest.raises(OSError, match="not initialized"):
        stale.mem_wal_writer(str(OTHER))


def test_positions_that_were_collected_are_not_free(tmp_path):
    """A writer that paused after its claim finds its entries collected, and must not write."""
    dataset = begun(tmp_path)
    put(dataset, [100])
    location = TableLocation.open(dataset.uri)
    snapshot, shard = open_snapshot(location), Shard(location, SHARD)
    claimed = shard.claim(1)

    def late(self, spec_id, *, first_generation):
        put(lancelet.dataset(dataset.uri), [101])
        put(lancelet.dataset(dataset.uri), [102])
        assert lancelet.dataset(dataset.uri).collect_mem_wal().wal_entries
        return claimed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Shard, "claim", lambda *given, **how: (patch.undo(), late(*given, **how))[1])
        with pytest.raises(FencedError):
            MemWalWriter(snapshot, SHARD, {})


def test_a_shard_that_begins_while_a_log_is_dropped_keeps_the_log(tmp_path, monkeypatch):
    """A drop of a log has listed its shards when another log is created, and lists again."""
    dataset = begun(tmp_path)
    listed = upkeep.list_shards

    def and_another_begins(location):
        found = listed(location)
        monkeypatch.undo()
        lancelet.dataset(dataset.uri).mem_wal_writer(str(OTHER)).put(rows([100]))
        return found

    monkeypatch.setattr(upkeep, "list_shards", and_another_begins)
    with pytest.raises(ValueError, match="rows that are in no table"):
        dataset.drop_mem_wal()
    dataset = lancelet.dataset(dataset.uri)
    dataset.compact_mem_wal(flush=True)
    assert sorted(dataset.to_table()["id"].to_pylist()) == [*range(50), 100]


def test_a_claim_on_a_dropped_log_acknowledges_nothing(tmp_path, monkeypatch):
    dataset = begun(tmp_path)
    claim = Shard.claim

    def and_dropped_before(self, *given, **how):
        monkeypatch.undo()
        lancelet.dataset(dataset.uri).drop_mem_wal()
        return claim(self, *given, **how)

    monkeypatch.setattr(Shard, "claim", and_dropped_before)
    with pytest.raises(OSError, match="not initialized"):
        dataset.mem_wal_writer(str(OTHER))
    assert lancelet.dataset(dataset.uri).mem_wal_index_details() is None


def test_a_drop_reports_a_shard_created_concurrently_by_another_library(tmp_path, monkeypatch):
    """The reference records no shards; its writer is fenced, and its rows are reported."""
    dataset = begun(tmp_path)
    publish, opened = upkeep.publish, []

    def and_another_began(*given):
        opened.append(lance.dataset(dataset.uri).mem_wal_writer(str(OTHER)))
        opened[0].put(rows([100]))
        return publish(*given)

    monkeypatch.setattr(upkeep, "publish", and_another_began)
    with pytest.raises(LeftShardsError, match="Restore a version"):
        dataset.drop_mem_wal()
    with pytest.raises(Exception, match=r"(?i)fenced"):
        opened[0].put(rows([101]))


def test_a_stale_handle_opens_no_sealed_shard_of_a_log_that_others_began(tmp_path):
    stale = lancelet.write_dataset(rows(range(50)), str(tmp_path / "t"))
    other = lancelet.dataset(stale.uri)
    other.initialize_mem_wal()
    put(other, [100])
    other.seal_mem_wal_shard(str(SHARD))
    with pytest.raises(OSError, match="already initialized"):
        stale.initialize_mem_wal()
    manifest = Shard(other.snapshot.location, SHARD).latest()
    assert manifest is not None
    assert not manifest.is_active


def test_a_new_log_fences_writers_of_the_dropped_one(tmp_path):
    """The ids of fields mean other columns in what replaced the table."""
    dataset = begun(tmp_path)
    writer = dataset.mem_wal_writer(str(SHARD))
    lance.write_dataset(rows([1]).rename_columns(["id", "t", "y"]), dataset.uri, mode="overwrite")
    lancelet.dataset(dataset.uri).initialize_mem_wal()
    with pytest.raises(FencedError):
        writer.put(rows([100]))


@pytest.mark.parametrize("lost", ["replaced", "restored", "made anew"])
def test_a_writer_notes_at_a_flush_that_the_table_lost_its_log(tmp_path, lost):
    dataset = begun(tmp_path)
    writer = dataset.mem_wal_writer(str(SHARD))
    match lost:
        case "replaced":
            lance.write_dataset(rows([1]), dataset.uri, mode="overwrite")
        case "restored":
            lancelet.dataset(dataset.uri, version=1).restore()
        case "made anew":
            shutil.rmtree(dataset.uri)
            lancelet.write_dataset(rows([1]), dataset.uri)
    writer.put(rows([100]))
    for late in (writer.close, lambda: writer.put(rows([101]))):
        with pytest.raises(OSError, match=r"lost its log|already closed"):
            late()


def test_a_log_with_rows_is_not_dropped_as_an_index(tmp_path):
    """`drop_index` would leave durable rows in files that are not read."""
    dataset = begun(tmp_path)
    dataset.mem_wal_writer(str(SHARD)).put(rows([100]))
    with pytest.raises(ValueError, match="call drop_mem_wal"):
        lancelet.dataset(dataset.uri).drop_index(MEM_WAL_INDEX)
    lancelet.dataset(dataset.uri).compact_mem_wal(flush=True)
    assert ids_of(lancelet.dataset(dataset.uri), []) == [*range(50), 100]
