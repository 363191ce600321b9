"""A table with a log has the newest row of each key from any writer, and loses none."""

import uuid
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import lance
import lance.mem_wal
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lancelet
import lancelet.mem_wal
import lancelet.memwal.shard
import lancelet.memwal.state
from lancelet.errors import CommitError, InvalidInputError
from lancelet.format.shard_manifest import reversed_bits
from lancelet.memwal.keys import key_hashes, ordered_keys, sip_hashes
from lancelet.memwal.shard import SealedError
from lancelet.memwal.upkeep import CollectedLog

KEY = {"lance-schema:unenforced-primary-key": "true"}
SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), nullable=False, metadata=KEY), pa.field("v", pa.string())]
)
SHARD = str(uuid.UUID(int=7))


def _rows(pairs):
    ids, values = zip(*pairs, strict=True) if pairs else ((), ())
    return pa.table({"id": pa.array(ids, pa.int64()), "v": pa.array(values, pa.string())}, SCHEMA)


def _new(uri, pairs=((1, "a"), (2, "b"), (3, "c"))):
    dataset = lancelet.write_dataset(_rows(pairs), uri)
    dataset.initialize_mem_wal(unsharded=True)
    return dataset


def _dict(table):
    return dict(zip(table["id"].to_pylist(), table["v"].to_pylist(), strict=True))


def _snapshot(module, uri):
    """Return the flushed tables of a shard, as one library lists them."""
    found = module.mem_wal.ShardSnapshot(SHARD)
    shard = lancelet.memwal.shard.Shard(lancelet.dataset(uri).handle.location, uuid.UUID(SHARD))
    for table in shard.latest().sstables:
        found = found.with_sstable(table.generation, table.path)
    return found.with_current_generation(shard.latest().current_generation)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.lists(st.integers(0, 9), min_size=1, max_size=6)),
        st.tuples(st.just("delete"), st.lists(st.integers(0, 9), min_size=1, max_size=3)),
        st.tuples(st.sampled_from(["reopen", "crash", "compact"]), st.just([])),
    ),
    max_size=12,
)


@settings(max_examples=15, deadline=None)
@given(steps=STEPS)
def test_any_life_of_a_shard_reads_as_a_dict(tmp_path_factory, steps):
    """Reopening flushes first; after a crash, the log restores the rows in memory."""
    uri = str(tmp_path_factory.mktemp("wal") / "t")
    dataset = _new(uri, [(0, "0"), (5, "5")])
    model = {0: "0", 5: "5"}
    writer = dataset.mem_wal_writer(SHARD)
    for number, (step, keys) in enumerate(steps):
        if step == "put":
            rows = [(key, f"{key}.{number}") for key in keys]
            writer.put(_rows(rows))
            model |= dict(rows)
        elif step == "delete":
            writer.delete(pa.table({"id": pa.array(keys, pa.int64())}))
            model = {key: own for key, own in model.items() if key not in keys}
        elif step == "compact":
            writer.close()
            dataset = _compacted(uri)
            writer = dataset.mem_wal_writer(SHARD)
        else:
            if step == "reopen":
                writer.close()
            writer = dataset.mem_wal_writer(SHARD)
        assert _dict(writer.lsm_scanner().to_table()) == model
        assert writer.lsm_scanner().count_rows() == len(model)
    writer.close()
    dataset = lancelet.dataset(uri)
    if not steps:
        return
    snapshot = _snapshot(lancelet, uri)
    assert (
        _dict(lancelet.mem_wal.LsmScanner.from_snapshots(dataset, [snapshot]).to_table()) == model
    )
    theirs = lance.mem_wal.LsmScanner.from_snapshots(lance.dataset(uri), [_snapshot(lance, uri)])
    assert _dict(theirs.to_table()) == model
    planner = lancelet.mem_wal.LsmPointLookupPlanner(dataset, [snapshot])
    for key in range(10):
        found = planner.plan_lookup(pa.array([key], pa.int64())).to_table()
        assert _dict(found) == {own: value for own, value in model.items() if own == key}


def test_flushed_tables_whose_filter_has_not_the_key_are_not_opened(tmp_path):
    uri = str(tmp_path / "t")
    dataset = _new(uri)
    for pairs in ([(1, "A")], [(20, "t")]):
        with dataset.mem_wal_writer(SHARD) as writer:
            writer.put(_rows(pairs))
    with dataset.mem_wal_writer(SHARD) as writer:
        writer.delete(pa.table({"id": pa.array([2], pa.int64())}))
    snapshot = _snapshot(lancelet, uri)
    for manifest in Path(uri, "_mem_wal", SHARD).glob("*_gen_[23]/_versions/*"):
        manifest.unlink()
    planner = lancelet.mem_wal.LsmPointLookupPlanner(lancelet.dataset(uri), [snapshot])

    def found(key):
        return _dict(planner.plan_lookup(pa.array([key], pa.int32())).to_table())

    assert (found(1), found(3), found(4)) == ({1: "A"}, {3: "c"}, {})
    for key in (2, 20):
        with pytest.raises(FileNotFoundError):
            found(key)


def _compacted(uri):
    """Merge the flushed tables into the table, oldest first, and return the table."""
    dataset = lancelet.dataset(uri)
    shard = lancelet.memwal.shard.Shard(dataset.handle.location, uuid.UUID(SHARD))
    done = lancelet.memwal.state.mem_wal_state(dataset.snapshot).compacted
    for table in shard.latest().sstables:
        if table.generation <= done.get(uuid.UUID(SHARD), 0):
            continue
        rows = lancelet.dataset(f"{uri}/_mem_wal/{SHARD}/{table.path}").to_table()
        gone = rows.filter(pa.compute.field("_tombstone"))["id"].to_pylist()
        if gone:
            dataset.delete(f"id IN ({', '.join(map(str, gone))})")
        live = rows.filter(~pa.compute.field("_tombstone")).drop_columns(["_tombstone"])
        compacted = [lancelet.mem_wal.CompactedSsTable(SHARD, table.generation)]
        merge = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        merge.mark_sstables_as_compacted(compacted).execute(live)
    return dataset


def _merge(module, dataset, generations, pairs):
    done = [module.mem_wal.CompactedSsTable(SHARD, each) for each in generations]
    merge = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    merge.mark_sstables_as_compacted(done).execute(_rows(pairs))


def test_a_merge_that_comes_late_or_twice_changes_nothing(tmp_path):
    """Generation 2 is newer than 1, so merging 1 after it would restore replaced rows."""
    for module in (lance, lancelet):
        uri = str(tmp_path / module.__name__)
        _new(uri)
        for value in ("older", "newest"):
            with module.dataset(uri).mem_wal_writer(SHARD) as writer:
                writer.put(_rows([(1, value)]))
        before = module.dataset(uri)
        _merge(module, module.dataset(uri), [2], [(1, "newest")])
        version = module.dataset(uri).version
        for stale in (module.dataset(uri), before):
            for generation in (1, 2):
                with pytest.raises(OSError, match=r"(?i)stale|in the table already"):
                    _merge(module, stale, [generation], [(1, "older")])
        with pytest.raises(OSError, match=r"(?i)once"):
            _merge(module, module.dataset(uri), [3, 4], [(1, "older")])
        assert module.dataset(uri).version == version
        assert _dict(module.dataset(uri).to_table())[1] == "newest"


def test_two_that_merge_at_once_merge_once(tmp_path):
    """Both read the version before; the second one finds that its generation is there."""
    uri = str(tmp_path / "t")
    dataset = _new(uri)
    with dataset.mem_wal_writer(SHARD) as writer:
        writer.put(_rows([(9, "n")]))
    first, second = lancelet.dataset(uri), lancelet.dataset(uri)
    _merge(lancelet, first, [1], [(9, "n")])
    with pytest.raises(CommitError):
        _merge(lancelet, second, [1], [(9, "n")])
    assert sorted(_dict(lancelet.dataset(uri).to_table())) == [1, 2, 3, 9]


def test_each_implementation_continues_the_work_of_the_other(tmp_path):
    uri = str(tmp_path / "t")
    dataset = _new(uri)
    mine = dataset.mem_wal_writer(SHARD)
    mine.put(_rows([(2, "B"), (4, "d")]))
    mine.delete(pa.table({"id": [1]}))

    theirs = lance.dataset(uri).mem_wal_writer(SHARD)
    assert _dict(theirs.lsm_scanner().to_table()) == {2: "B", 3: "c", 4: "d"}
    with pytest.raises(CommitError, match="fenced"):
        mine.put(_rows([(9, "lost")]))
    theirs.put(_rows([(5, "e"), (2, "BB"), (5, "E")]))
    theirs.close()

    again = lancelet.dataset(uri).mem_wal_writer(SHARD)
    assert _dict(again.lsm_scanner().to_table()) == {2: "BB", 3: "c", 4: "d", 5: "E"}
    again.delete(pa.table({"id": [3]}))
    again.close()
    last = lance.dataset(uri).mem_wal_writer(SHARD)
    assert _dict(last.lsm_scanner().to_table()) == {2: "BB", 4: "d", 5: "E"}
    last.close()


def test_the_reference_sees_the_same_settings(tmp_path):
    for number, options in enumerate(
        [
            {},
            {"unsharded": True, "max_memtable_rows": 5},
            {"bucket_column": "id", "num_buckets": 4},
            {"identity_column": "v"},
            {"maintained_indexes": []},
        ]
    ):
        uris = [str(tmp_path / f"{name}{number}") for name in ("ours", "theirs")]
        for uri, module in zip(uris, (lancelet, lance), strict=True):
            module.write_dataset(_rows([(1, "a")]), uri).initialize_mem_wal(**options)
        told = [
            module.dataset(uri).mem_wal_index_details()
            for uri in uris
            for module in (lancelet, lance)
        ]
        assert told[0] == told[1] == told[2] == told[3]
    assert lancelet.write_dataset(_rows([]), "memory://wal/none").mem_wal_index_details() is None


@pytest.mark.parametrize(
    "values",
    [
        pa.array([1, 2, 3, -5, None], pa.int32()),
        pa.array([1, 2, 2**40, -5, None], pa.int64()),
        pa.array(["a", "b", "", "longer text", "ü", None]),
        pa.array([True, False, None]),
        pa.array([1.25, -0.0, 0.0, float("nan"), None], pa.float64()),
        pa.array([date(2024, 1, 1), None, date(1960, 1, 1)]),
        pa.array([datetime(2024, 1, 1, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
        pa.array([None, None], pa.large_string()),
    ],
    ids=str,
)
def test_rows_belong_to_the_shards_of_the_reference(values):
    table = pa.record_batch({"x": values})
    dataset = lance.write_dataset(pa.table({"x": values}), "memory://wal-shards")
    ours = lancelet.write_dataset(pa.table({"x": values}), "memory://wal-shards")
    for transform, kind in (("bucket", "int32"), ("identity", "int64"), ("unsharded", "int32")):
        parameters = {"num_buckets": "8"} if transform == "bucket" else {}
        source = [] if transform == "unsharded" else [0]
        spec = lancelet.mem_wal.ShardingSpec(
            1, [lancelet.mem_wal.ShardingField("f", source, transform, None, kind, parameters)]
        )
        found = lancelet.mem_wal.evaluate_sharding_spec(table, spec, ours.lance_schema)
        if transform != "identity":
            form = {"spec_id": 1, "fields": [vars(spec.fields[0])]}
            expected = lance.mem_wal.evaluate_sharding_spec(table, form, dataset.lance_schema)
            assert found == expected
        else:
            assert str(found.column(0)) == str(values)


def test_the_limits_of_memory_flush(tmp_path):
    dataset = _new(str(tmp_path / "t"))
    with dataset.mem_wal_writer(SHARD, max_memtable_rows=3) as writer:
        for key in range(7):
            writer.put(_rows([(key, "x")]))
        assert writer.stats()["memtable_flush_count"] == 2
        assert writer.memtable_stats()["row_count"] == 1
        assert writer.stats()["put_count"] == 7
        assert len(_dict(writer.lsm_scanner().to_table())) == 7
    with pytest.raises(OSError, match="closed"):
        writer.put(_rows([(1, "x")]))


def test_columns_filters_and_windows_are_as_requested(tmp_path):
    dataset = _new(str(tmp_path / "t"))
    with dataset.mem_wal_writer(SHARD) as writer:
        writer.put(_rows([(2, "B"), (4, "d")]))
        scanner = writer.lsm_scanner().project(["v"]).filter("id > 1").with_memtable_gen()
        found = scanner.with_row_address().to_table()
        assert found.schema.names == ["v", "id", "_rowaddr", "_memtable_gen"]
        assert sorted(
            zip(found["id"].to_pylist(), found["_memtable_gen"].to_pylist(), strict=True)
        ) == [
            (2, 1),
            (3, 0),
            (4, 1),
        ]
        assert found["_rowaddr"].null_count == 2
        assert sum(map(len, writer.lsm_scanner().limit(2, 1).to_batches())) == 2
        assert writer.lsm_scanner().limit(0).to_batch().num_rows == 0


def test_vectors_of_shards_are_searched_too(tmp_path):
    kind = pa.list_(pa.float32(), 2)
    schema = pa.schema([SCHEMA.field("id"), pa.field("vec", kind)])
    rows = pa.table({"id": [1, 2, 3], "vec": [[0, 0], [5, 5], [9, 9]]}, schema)
    dataset = lancelet.write_dataset(rows, str(tmp_path / "t"))
    dataset.initialize_mem_wal(unsharded=True)
    with dataset.mem_wal_writer(SHARD) as writer:
        writer.put(pa.table({"id": [2, 4], "vec": [[90, 90], [1, 1]]}, schema))
    snapshot = _snapshot(lancelet, dataset.uri)
    planner = lancelet.mem_wal.LsmVectorSearchPlanner(dataset, [snapshot], "vec")
    plan = planner.plan_search(np.array([0, 0], np.float32), k=3, columns=["id"])
    found = plan.to_reader().read_all()
    assert found["id"].to_pylist() == [1, 4, 3]
    assert plan.schema.names == ["id", "_distance"]
    assert "KNNVectorDistance" in plan.explain()
    assert plan.dataset_schema == schema


def test_several_columns_may_be_the_key(tmp_path):
    second = {**KEY, "lance-schema:unenforced-primary-key:position": "2"}
    first = {**KEY, "lance-schema:unenforced-primary-key:position": "1"}
    schema = pa.schema(
        [
            pa.field("a", pa.int32(), nullable=False, metadata=first),
            pa.field("b", pa.string(), nullable=False, metadata=second),
            pa.field("v", pa.int8()),
        ]
    )
    rows = pa.table({"a": [1, 1], "b": ["x", "y"], "v": [1, 2]}, schema)
    uri = str(tmp_path / "t")
    dataset = lancelet.write_dataset(rows, uri)
    dataset.initialize_mem_wal()
    with dataset.mem_wal_writer(SHARD) as writer:
        writer.put(pa.table({"a": [1, 2], "b": ["y", "x"], "v": [20, 30]}, schema))
    for module in (lancelet, lance):
        opened = module.dataset(uri)
        planner = module.mem_wal.LsmPointLookupPlanner(opened, [_snapshot(module, uri)])
        key = pa.StructArray.from_arrays([pa.array([1], pa.int32()), pa.array(["y"])], ["a", "b"])
        assert planner.plan_lookup(key).to_table()["v"].to_pylist() == [20]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.float64(), [1.25, 1.75, 1.5]),
        (pa.decimal128(6, 2), [Decimal("1.25"), Decimal("1.75"), Decimal("1.5")]),
        (pa.binary(2), [b"aa", b"ab", b"ac"]),
        (pa.date32(), [date(2024, 1, 1), date(2024, 1, 2), date(1969, 1, 1)]),
    ],
    ids=str,
)
@pytest.mark.parametrize("is_alone", [True, False])
def test_keys_of_types_without_an_order_are_looked_up(tmp_path, kind, values, is_alone):
    marked = {**KEY, "lance-schema:unenforced-primary-key:position": "2"}
    fields = [pa.field("b", kind, False, marked), pa.field("v", pa.string())]
    first = {**KEY, "lance-schema:unenforced-primary-key:position": "1"}
    schema = pa.schema([] if is_alone else [pa.field("a", pa.int8(), False, first)])
    schema = pa.schema([*schema, *fields])

    def table(text, *keys):
        columns = {"a": [1] * len(keys), "b": pa.array(keys, kind), "v": [text] * len(keys)}
        return pa.table([columns[name] for name in schema.names], schema=schema)

    dataset = lancelet.write_dataset(table("base", *values), str(tmp_path / "t"))
    dataset.initialize_mem_wal(unsharded=True)
    with dataset.mem_wal_writer(SHARD) as writer:
        writer.put(table("old", *values[:2]))
        writer.put(table("new", values[0]))
    planner = lancelet.mem_wal.LsmPointLookupPlanner(dataset, dataset.mem_wal_shards())
    found = []
    for value in values:
        key = pa.array([value], kind)
        if not is_alone:
            key = pa.StructArray.from_arrays([pa.array([1], pa.int8()), key], ["a", "b"])
        found += planner.plan_lookup(key).to_table()["v"].to_pylist()
    assert found == ["new", "old", "base"]


def test_a_hash_is_that_of_the_reference():
    """Hashes of 0, 1, 2 ..: that of no bytes is what Rust's default hasher begins with."""
    known = {0: 0xD1FBA762150C532C, 1: 0x68A914128E01E473, 8: 0xEAD411E67EBE2EEA}
    known[15] = 0xF30EB725BB91C9EA
    for length, expected in known.items():
        rows = np.tile(np.arange(length, dtype=np.uint8), (3, 1))
        assert sip_hashes(rows).tolist() == [expected] * 3
    assert reversed_bits(1)[:2] == "10"


def test_keys_of_many_lengths_are_hashed_and_ordered_as_one_by_one():
    keys = pa.table(
        {
            "s": pa.array(["b", None, "", "a\0", "a", "ä"]),
            "n": pa.array([1, -2, None, 4, 5, 2**31 - 1], pa.int32()),
        }
    )
    alone = [key_hashes(keys.slice(at, 1))[0] for at in range(len(keys))]
    assert key_hashes(keys).tolist() == alone
    assert len(set(alone)) == len(keys)
    order = ordered_keys(keys).to_pylist()
    expected = sorted(range(6), key=lambda at: order[at])
    assert expected == [1, 2, 4, 3, 0, 5]
    assert order[3] == b"\x01a\0\xff\0\0\x01\x80\0\0\0\0\0\0\x04"


@pytest.mark.parametrize(
    "kind",
    [
        *(pa.int8(), pa.uint64(), pa.bool_(), pa.string(), pa.large_string(), pa.float32()),
        *(pa.float64(), pa.binary(), pa.date32(), pa.date64(), pa.timestamp("us"), pa.time32("s")),
        *(pa.decimal128(9, 2), pa.binary(3), pa.float16(), pa.duration("s")),
    ],
    ids=str,
)
@pytest.mark.parametrize("transform", ["bucket", "identity"])
def test_columns_split_rows_as_in_the_reference_or_are_rejected_by_both(tmp_path, kind, transform):
    schema = pa.schema([SCHEMA.field("id"), pa.field("c", kind)])
    options = {"identity_column": "c"}
    if transform == "bucket":
        options = {"bucket_column": "c", "num_buckets": 3}
    seen = []
    for module in (lancelet, lance):
        dataset = module.write_dataset(schema.empty_table(), str(tmp_path / module.__name__))
        try:
            dataset.initialize_mem_wal(**options)
        except (OSError, NotImplementedError) as error:
            seen.append("cannot be used as a shard key" in str(error))
        else:
            seen.append(dataset.mem_wal_index_details()["sharding_specs"])
    assert seen[0] == seen[1]
    assert seen[0]


@pytest.mark.parametrize("wrong", [{"max_memtable_rows": 0}, {"max_wal_buffer_size": -1}], ids=str)
def test_invalid_writer_settings_are_rejected(tmp_path, wrong):
    dataset = lancelet.write_dataset(_rows([]), str(tmp_path / "t"))
    with pytest.raises(InvalidInputError, match="at least"):
        dataset.initialize_mem_wal(**wrong)
    assert dataset.mem_wal_index_details() is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bucket_column": "id"}, "requires both"),
        ({"bucket_column": "id", "num_buckets": 2, "unsharded": True}, "at most one"),
        ({"bucket_column": "id", "num_buckets": 2000}, "1 to 1024"),
    ],
)
def test_invalid_combinations_of_arguments_are_rejected(options, message):
    dataset = lancelet.write_dataset(_rows([]), "memory://wal-refused")
    with pytest.raises(InvalidInputError, match=message):
        dataset.initialize_mem_wal(**options)


def test_a_log_is_begun_once_and_needed(tmp_path):
    dataset = lancelet.write_dataset(_rows([(1, "a")]), str(tmp_path / "t"))
    with pytest.raises(OSError, match="not initialized"):
        dataset.mem_wal_writer(SHARD)
    with pytest.raises(OSError, match="not found"):
        dataset.initialize_mem_wal(maintained_indexes=["none"])
    dataset.initialize_mem_wal()
    with pytest.raises(OSError, match="already initialized"):
        dataset.initialize_mem_wal()
    with pytest.raises(ValueError, match="UUID"):
        dataset.mem_wal_writer("shard")
    with dataset.mem_wal_writer(SHARD) as writer, pytest.raises(ValueError, match="null"):
        writer.put(pa.table({"v": ["x"]}))


def test_without_a_key_rows_are_only_added(tmp_path):
    dataset = lancelet.write_dataset(pa.table({"id": [1]}), str(tmp_path / "t"))
    dataset.initialize_mem_wal()
    with dataset.mem_wal_writer(SHARD) as writer:
        writer.put(pa.table({"id": [1, 1]}))
        with pytest.raises(OSError, match="primary key"):
            writer.delete(pa.table({"id": [1]}))
        with pytest.raises(ValueError, match="primary key"):
            writer.lsm_scanner()
    (table,) = _snapshot(lancelet, dataset.uri).tables.sstables.values()
    flushed = lancelet.dataset(f"{dataset.uri}/_mem_wal/{SHARD}/{table}")
    assert flushed.to_table().to_pydict() == {"id": [1, 1]}


def files(uri, what):
    return sorted(Path(uri, "_mem_wal", SHARD).glob(what))


def seen(uri):
    """Return the rows of the table and its shard, for both readers."""
    found = []
    for module in (lancelet, lance):
        read = module.mem_wal.LsmScanner.from_snapshots(
            module.dataset(uri), [_snapshot(module, uri)]
        )
        found.append(_dict(read.to_table()))
    assert found[0] == found[1]
    return found[0]


def test_collection_deletes_data_needed_by_no_version(tmp_path):
    uri = str(tmp_path / "t")
    dataset = _new(uri)
    with dataset.mem_wal_writer(SHARD, max_memtable_batches=1) as writer:
        writer.put(_rows([(2, "B"), (4, "d")]))
        writer.put(_rows([(5, "e")]))
    before = seen(uri)
    assert before == {1: "a", 2: "B", 3: "c", 4: "d", 5: "e"}
    entries, tables = len(files(uri, "wal/*")), len(files(uri, "*_gen_*"))
    assert (entries, tables) == (2, 2)

    done = dataset.collect_mem_wal()
    assert (done.wal_entries, done.sstables) == (2, 0)
    assert seen(uri) == before
    assert dataset.collect_mem_wal() == CollectedLog()

    dataset = _compacted(uri)
    assert dataset.collect_mem_wal().sstables == 0  # older versions need them
    assert seen(uri) == before
    dataset.cleanup_old_versions(timedelta(0), delete_unverified=True)
    assert dataset.collect_mem_wal().sstables == 2
    assert files(uri, "*_gen_*") == []
    assert seen(uri) == before
    assert _dict(lancelet.dataset(uri).to_table()) == before

    # Both can continue: the log starts where it stopped.
    for module, key in ((lancelet, 6), (lance, 7), (lancelet, 8)):
        with module.dataset(uri).mem_wal_writer(SHARD) as writer:
            writer.put(_rows([(key, "n")]))
    assert seen(uri) == before | dict.fromkeys((6, 7, 8), "n")


def test_a_writer_that_was_replaced_finds_its_fence(tmp_path):
    uri = str(tmp_path / "t")
    first = _new(uri).mem_wal_writer(SHARD)
    first.put(_rows([(4, "d")]))
    with lancelet.dataset(uri).mem_wal_writer(SHARD) as second:
        second.put(_rows([(5, "e")]))
    assert lancelet.dataset(uri).collect_mem_wal().wal_entries == 2
    with pytest.raises(CommitError, match="fenced"):
        first.put(_rows([(9, "lost")]))
    assert seen(uri)[5] == "e"
    assert 9 not in seen(uri)


def test_indices_that_may_lack_rows_keep_flushed_tables(tmp_path):
    uri = str(tmp_path / "t")
    dataset = lancelet.write_dataset(_rows([(1, "a")]), uri)
    dataset.create_scalar_index("id", "BTREE", name="by_id")
    dataset.initialize_mem_wal(maintained_indexes=["by_id"])
    with dataset.mem_wal_writer(SHARD) as writer:
        writer.put(_rows([(2, "b")]))
    _compacted(uri).cleanup_old_versions(timedelta(0), delete_unverified=True)
    assert lancelet.dataset(uri).collect_mem_wal().sstables == 0
    assert seen(uri) == {1: "a", 2: "b"}


def test_a_sealed_shard_is_read_and_not_written(tmp_path):
    uri = str(tmp_path / "t")
    dataset = _new(uri)
    writer = dataset.mem_wal_writer(SHARD)
    writer.put(_rows([(4, "d")]))
    with pytest.raises(InvalidInputError, match="rows that are in no table"):
        dataset.seal_mem_wal_shard(SHARD)
    with dataset.mem_wal_writer(SHARD):
        pass  # replays the log, and flushes its rows
    dataset.seal_mem_wal_shard(SHARD)
    for module in (lancelet, lance):
        with pytest.raises((SealedError, OSError, ValueError), match=r"(?i)seal|active"):
            module.dataset(uri).mem_wal_writer(SHARD)
    with pytest.raises(SealedError):
        dataset.seal_mem_wal_shard(SHARD)
    assert seen(uri) == {1: "a", 2: "b", 3: "c", 4: "d"}


def test_there_has_to_be_a_shard(tmp_path):
    dataset = _new(str(tmp_path / "t"))
    with pytest.raises(InvalidInputError, match="the shard does not exist"):
        dataset.seal_mem_wal_shard(SHARD)
    assert dataset.collect_mem_wal().wal_entries == 0


def test_slices_of_nested_lists_are_read_as_they_were_put(tmp_path):
    kind = pa.list_(pa.list_(pa.int16(), 2), 2)
    schema = pa.schema([SCHEMA.field("id"), pa.field("f", kind)])
    values = {key: [[key, key], [key, -key]] for key in range(9)}
    rows = pa.table({"id": list(values), "f": list(values.values())}, schema)
    dataset = lancelet.write_dataset(rows[:4], str(tmp_path / "t"))
    dataset.initialize_mem_wal(unsharded=True)
    with dataset.mem_wal_writer(SHARD) as writer:
        writer.put(rows[3:])
        for scanner in (
            writer.lsm_scanner(),
            writer.lsm_scanner().filter("id > 2"),
            writer.lsm_scanner().limit(3, 4),
        ):
            for row in scanner.to_table().to_pylist():
                assert row["f"] == values[row["id"]]
