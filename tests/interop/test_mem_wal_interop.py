"""Shards written by one library are read and continued by the other.

Method: one library puts and deletes rows, and dies or flushes; the table changes; then both read,
look up and go on. The rows are those of the reference, or the ones that both can only have.
"""

import uuid
from pathlib import Path

import lance
import lance.mem_wal
import pyarrow as pa
import pytest

import lancelet
import lancelet.mem_wal
from lancelet.errors import InvalidInputError
from lancelet.memwal.reconcile import IrreconcilableError
from lancelet.memwal.shard import Shard

KEY = {"lance-schema:unenforced-primary-key": "true"}
SHARD = str(uuid.UUID(int=7))
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False, metadata=KEY),
        pa.field("v", pa.string()),
        pa.field("x", pa.int32()),
        pa.field("st", pa.struct([pa.field("a", pa.int8()), pa.field("b", pa.string())])),
        pa.field("l", pa.list_(pa.struct([pa.field("c", pa.int16())]))),
    ]
)
LIBRARIES = pytest.mark.parametrize("writer", [lancelet, lance], ids=["ours", "theirs"])


def rows(ids):
    return pa.table(
        {
            "id": ids,
            "v": [f"v{each}" for each in ids],
            "x": ids,
            "st": [{"a": each, "b": f"b{each}"} for each in ids],
            "l": [[{"c": each}] for each in ids],
        },
        SCHEMA,
    )


def begun(uri):
    dataset = lance.write_dataset(rows([0, 1, 2]), uri)
    dataset.initialize_mem_wal(unsharded=True)
    return dataset


def put_and_leave(writer, uri):
    """Write the log of a shard, and return a writer that nobody will hear of again."""
    shard = writer.dataset(uri).mem_wal_writer(SHARD)
    shard.put(rows([2, 3, 4]))
    shard.delete(pa.table({"id": [0]}))
    shard.put(rows([9]))
    shard.delete(pa.table({"id": [9]}))
    return shard


def put_and_flush(writer, uri):
    with writer.dataset(uri).mem_wal_writer(SHARD) as shard:
        shard.put(rows([2, 3, 4]))
        shard.delete(pa.table({"id": [0]}))
        shard.put(rows([9]))
        shard.delete(pa.table({"id": [9]}))


def nulls(name, kind):
    return pa.schema([pa.field(name, kind)])


CHANGES = {
    "none": [],
    "add": [lambda d: d.add_columns(nulls("w", pa.string()))],
    "add with the id of the mark": [
        lambda d: d.add_columns(nulls("w", pa.bool_())),
        lambda d: d.add_columns(nulls("_more", pa.bool_())),
    ],
    "merge": [lambda d: d.merge(pa.table({"id": [0, 1], "w": [1, 2]}), "id")],
    "drop": [lambda d: d.drop_columns(["x"])],
    "drop and add again": [
        lambda d: d.drop_columns(["x"]),
        lambda d: d.add_columns(nulls("x", pa.int32())),
    ],
    "drop and add with another type": [
        lambda d: d.drop_columns(["x"]),
        lambda d: d.add_columns(nulls("x", pa.string())),
    ],
    "drop and add another": [
        lambda d: d.drop_columns(["x"]),
        lambda d: d.add_columns(nulls("w", pa.int32())),
    ],
    "rename": [lambda d: d.alter_columns({"path": "x", "name": "y"})],
    "swap": [
        lambda d: d.alter_columns({"path": "x", "name": "t"}),
        lambda d: d.alter_columns({"path": "v", "name": "x"}),
        lambda d: d.alter_columns({"path": "t", "name": "v"}),
    ],
    "rename within": [lambda d: d.alter_columns({"path": "st.a", "name": "z"})],
    "drop within": [lambda d: d.drop_columns(["st.a"])],
}


def snapshot_of(module, uri):
    found = module.mem_wal.ShardSnapshot(SHARD)
    manifest = Shard(lancelet.dataset(uri).handle.location, uuid.UUID(SHARD)).latest()
    for table in manifest.sstables:
        found = found.with_sstable(table.generation, table.path)
    return found.with_current_generation(manifest.current_generation)


def by_id(table):
    return sorted(table.to_pylist(), key=lambda row: row["id"])


@LIBRARIES
@pytest.mark.parametrize("change", CHANGES)
def test_logs_are_replayed_by_the_ids_of_fields(tmp_path, writer, change):
    found, changer = [], lancelet if writer is lance else lance
    for reader in (lance, lancelet):
        uri = str(tmp_path / reader.__name__)
        begun(uri)
        _ = put_and_leave(writer, uri)
        for step in CHANGES[change]:
            step(changer.dataset(uri))
        with reader.dataset(uri).mem_wal_writer(SHARD) as again:
            found.append(by_id(again.lsm_scanner().to_table()))
    assert [row["id"] for row in found[0]] == [1, 2, 3, 4]
    assert found[1] == found[0]


@LIBRARIES
@pytest.mark.parametrize("change", CHANGES)
def test_flushed_tables_are_read_by_the_ids_of_fields(tmp_path, writer, change):
    uri = str(tmp_path / "t")
    begun(uri)
    put_and_flush(writer, uri)
    for step in CHANGES[change]:
        step(lance.dataset(uri))
    found = []
    for module in (lance, lancelet):
        dataset, snapshot = module.dataset(uri), snapshot_of(module, uri)
        scanner = module.mem_wal.LsmScanner.from_snapshots(dataset, [snapshot])
        planner = module.mem_wal.LsmPointLookupPlanner(dataset, [snapshot])
        one = planner.plan_lookup(pa.array([3], pa.int64())).to_table()
        found.append((by_id(scanner.to_table()), one.to_pylist(), one.schema.names))
        found[-1] += (by_id(scanner.filter("id > 2").to_table()),)
    assert [row["id"] for row in found[0][0]] == [1, 2, 3, 4]
    assert found[1] == found[0]


@LIBRARIES
def test_input_that_cannot_be_replayed_is_rejected_before_the_shard_is_claimed(tmp_path, writer):
    """A column that must not be null, another type, a lost key: the writer before goes on."""
    uri = str(tmp_path / "t")
    begun(uri)
    live = writer.dataset(uri).mem_wal_writer(SHARD)
    live.put(rows([2, 3]))
    live.delete(pa.table({"id": [1]}))
    before = sorted(Path(uri, "_mem_wal").rglob("*"))
    for lost in (["id"], ["x", "id"]):
        lance.dataset(uri).drop_columns(lost)
        with pytest.raises(IrreconcilableError, match="primary key"):
            lancelet.dataset(uri).mem_wal_writer(SHARD)
        lance.dataset(uri, version=2).restore()
    assert sorted(Path(uri, "_mem_wal").rglob("*")) == before
    live.put(rows([5]))
    live.close()
    with lancelet.dataset(uri).mem_wal_writer(SHARD) as again:
        assert [row["id"] for row in by_id(again.lsm_scanner().to_table())] == [0, 2, 3, 5]


REFUSED = {
    "computed": lambda d: d.add_columns({"w": "x + 1"}),
    "function": lambda d: d.add_columns(
        lambda batch: pa.record_batch({"w": pa.array([1] * len(batch))})
    ),
    "rename of a key": lambda d: d.alter_columns({"path": "id", "name": "key"}),
    "cast": lambda d: d.alter_columns({"path": "x", "data_type": pa.int64()}),
    "cast within": lambda d: d.alter_columns({"path": "st.a", "data_type": pa.int64()}),
    "not null": lambda d: d.alter_columns({"path": "x", "nullable": False}),
}


@pytest.mark.parametrize("change", REFUSED)
@pytest.mark.parametrize("module", [lance, lancelet], ids=["theirs", "ours"])
def test_changes_that_rows_in_a_log_cannot_follow_are_rejected(tmp_path, module, change):
    uri = str(tmp_path / "t")
    begun(uri)
    with pytest.raises(OSError, match="MemWAL"):
        REFUSED[change](module.dataset(uri))
    assert module.dataset(uri).version == 2
    if module is lancelet:
        with pytest.raises(InvalidInputError):
            REFUSED[change](module.dataset(uri))


BAD_ROWS = {
    "unknown column": pa.table({"id": [1], "zz": [1]}),
    "no key": pa.table({"v": ["a"]}),
    "null key": pa.table({"id": pa.array([None], pa.int64()), "v": ["a"]}),
    "another type": pa.table({"id": [1], "x": ["no number"]}),
    "the mark": pa.table({"id": [1], "_tombstone": [False]}),
}


@pytest.mark.parametrize("bad", BAD_ROWS)
def test_rows_that_do_not_fit_are_rejected_by_both(tmp_path, bad):
    begun(str(tmp_path / "t"))
    for module in (lance, lancelet):
        with module.dataset(str(tmp_path / "t")).mem_wal_writer(SHARD) as writer:
            with pytest.raises(OSError, match=r"\w"):
                writer.put(BAD_ROWS[bad])
            assert writer.memtable_stats()["row_count"] == 0


def test_entries_name_fields_as_the_reference_does(tmp_path):
    """The mark of deletions has no id: columns that are added later may get any."""
    schemas = []
    for module in (lance, lancelet):
        uri = str(tmp_path / module.__name__)
        begun(uri)
        _ = put_and_leave(module, uri)
        (entry,) = Path(uri, "_mem_wal", SHARD, "wal").glob("1000*")
        schemas.append(pa.ipc.open_stream(entry.read_bytes()).schema)
    assert schemas[0].equals(schemas[1], check_metadata=True)
    assert schemas[0].field("l").type.equals(schemas[1].field("l").type, check_metadata=True)


def test_deletions_need_no_values_of_columns_that_must_not_be_null(tmp_path):
    schema = pa.schema([SCHEMA.field("id"), pa.field("n", pa.int32(), nullable=False)])
    for writer in (lance, lancelet):
        uri = str(tmp_path / writer.__name__)
        table = pa.table({"id": [1, 2], "n": [1, 2]}, schema)
        writer.write_dataset(table, uri).initialize_mem_wal(unsharded=True)
        with writer.dataset(uri).mem_wal_writer(SHARD) as shard:
            shard.delete(pa.table({"id": [1]}))
            with pytest.raises(OSError, match="null"):
                shard.put(pa.table({"id": [3], "n": pa.array([None], pa.int32())}))
            shard.put(pa.table({"id": [4], "n": [4]}, schema))
        for module in (lance, lancelet):
            read = module.mem_wal.LsmScanner.from_snapshots(
                module.dataset(uri), [snapshot_of(module, uri)]
            )
            assert by_id(read.to_table()) == [{"id": 2, "n": 2}, {"id": 4, "n": 4}]
            assert read.to_table().schema.field("n").nullable is False or module is lance


KEYS = {
    pa.int8(): [1, -2, 3],
    pa.int16(): [1, -2, 3],
    pa.int32(): [1, -2, 3],
    pa.int64(): [1, -2, 3],
    pa.uint8(): [1, 200, 3],
    pa.uint16(): [1, 2, 3],
    pa.uint32(): [1, 2, 3],
    pa.uint64(): [1, 1 << 63, 3],
    pa.bool_(): [True, False],
    pa.string(): ["a", "b'", ""],
    pa.large_string(): ["a", "b'", ""],
    pa.binary(): [b"a\0", b"", b"b"],
    pa.large_binary(): [b"a\0", b"", b"b"],
}


@pytest.mark.parametrize("kind", KEYS, ids=str)
def test_keys_of_all_types_are_looked_up_in_what_either_flushed(tmp_path, kind):
    """Filters hash values of few types; the bytes are those of the reference."""
    schema = pa.schema([pa.field("k", kind, False, KEY), pa.field("v", pa.string())])
    keys = KEYS[kind]

    def table(text, *some):
        return pa.table([pa.array(some, kind), [text] * len(some)], schema=schema)

    filters = []
    for number, writer in enumerate([lancelet, lance]):
        uri = str(tmp_path / str(number))
        dataset = writer.write_dataset(table("base", *keys), uri)
        dataset.initialize_mem_wal(unsharded=True)
        with dataset.mem_wal_writer(SHARD) as shard:
            shard.put(table("old", *keys[:2]))
            shard.put(table("new", keys[0]))
        (flushed,) = Path(uri, "_mem_wal", SHARD).glob("*_gen_1")
        filters.append((flushed / "bloom_filter.bin").read_bytes())
        for reader in (lancelet, lance):
            found = reader.mem_wal.ShardSnapshot(SHARD).with_sstable(1, flushed.name)
            planner = reader.mem_wal.LsmPointLookupPlanner(reader.dataset(uri), [found])
            values = [planner.plan_lookup(pa.array([key], kind)).to_table()["v"] for key in keys]
            assert [each.to_pylist() for each in values] == [["new"], ["old"], ["base"]][
                : len(keys)
            ]
    assert filters[0] == filters[1]


def test_the_log_of_a_table_with_metadata_is_replayed(tmp_path):
    """The reference compares the schema of an entry with that of the table, metadata included."""
    key = pa.field("id", pa.int64(), False, {"lance-schema:unenforced-primary-key": "true"})
    schema = pa.schema([key], metadata={"made by": "a test"})
    dataset = lancelet.write_dataset(pa.table({"id": [1]}, schema), tmp_path / "t")
    dataset.initialize_mem_wal(unsharded=True)
    shard = str(uuid.UUID(int=7))
    dataset.mem_wal_writer(shard).put(pa.table({"id": [2]}, schema))
    lance.dataset(dataset.uri).mem_wal_writer(shard).close()
    dataset.compact_mem_wal(flush=True)
    assert sorted(lance.dataset(dataset.uri).to_table()["id"].to_pylist()) == [1, 2]
