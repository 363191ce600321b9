"""Rows of a log are converted to the current columns, and readers know which rows are there."""

import uuid

import numpy as np
import pyarrow as pa
import pytest
from pyroaring import FrozenBitMap

import lancelet
import lancelet.mem_wal
from lancelet.errors import CorruptDataError, SchemaMismatchError
from lancelet.format.schema import Schema
from lancelet.format.trailer import strip_trailer, with_trailer
from lancelet.index.kernels.vectors import Metric
from lancelet.memwal.indices import _metric_of, maintained_indices
from lancelet.memwal.reconcile import reconcile_batch
from lancelet.memwal.shard import Shard
from lancelet.memwal.sharding import ShardingField, ShardingSpec, evaluate_spec
from lancelet.memwal.state import NotInitializedError, require_mem_wal
from lancelet.values import replace
from tests.kit.sharded_rows import SHARD

KEYED = pa.schema(
    [
        pa.field(
            "id",
            pa.int64(),
            nullable=False,
            metadata={"lance-schema:unenforced-primary-key": "true"},
        ),
        pa.field("v", pa.int64(), nullable=False),
    ]
)


def test_deletions_are_found_in_any_column() -> None:
    base = Schema.from_arrow(KEYED)
    batch = pa.record_batch({"_tombstone": [True, False], "id": [1, 2], "v": [None, 5]})
    found = reconcile_batch(batch, base)
    assert found["_tombstone"].to_pylist() == [True, False]
    assert found["id"].to_pylist() == [1, 2]


def test_nulls_of_rows_that_are_not_deleted_are_rejected() -> None:
    base = Schema.from_arrow(KEYED)
    batch = pa.record_batch(
        {"id": [1, 2], "v": pa.array([None, None], pa.int64()), "_tombstone": [True, False]}
    )
    with pytest.raises(SchemaMismatchError):
        reconcile_batch(batch, base)


def test_shards_of_an_expression_have_the_type_of_the_rule() -> None:
    schema = Schema.from_arrow(KEYED)
    rule = ShardingField("shard", (schema.fields[1].id,), None, "v % 4", "int32")
    batch = pa.record_batch({"id": [1, 2], "v": [5, 6]})
    (found,) = evaluate_spec(batch, ShardingSpec(1, (rule,)), schema).columns
    assert found.type == pa.int32()
    assert found.to_pylist() == [1, 2]


def test_logged_rows_of_a_table_without_a_log_are_not_read() -> None:
    uri = f"memory://logged-{uuid.uuid4()}/t"
    dataset = lancelet.write_dataset(KEYED.empty_table(), uri)
    dataset.initialize_mem_wal(unsharded=True)
    dataset.mem_wal_writer(str(SHARD)).put(pa.table({"id": [1], "v": [2]}, KEYED))
    lancelet.write_dataset(KEYED.empty_table(), uri, mode="overwrite")
    with pytest.raises(NotInitializedError):
        lancelet.mem_wal.LsmScanner.fresh(lancelet.dataset(uri))


def test_a_log_that_maintains_no_index_maintains_none() -> None:
    dataset = lancelet.write_dataset(
        pa.table({"id": range(9), "v": range(9)}, KEYED), f"memory://unindexed-{uuid.uuid4()}/t"
    )
    dataset.create_scalar_index("v", "BTREE")
    dataset.initialize_mem_wal(unsharded=True, maintained_indexes=[])
    snapshot = dataset.snapshot
    assert maintained_indices(snapshot, require_mem_wal(snapshot), {}) == ()


def test_the_metric_of_an_index_without_rows_is_recorded() -> None:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(64, dtype=np.float32)), 8)
    dataset = lancelet.write_dataset(
        pa.table({"id": pa.array(range(8), pa.int64()), "x": vectors}),
        f"memory://metric-{uuid.uuid4()}/t",
    )
    dataset.create_index("x", "IVF_FLAT", num_partitions=2, metric="cosine")
    dataset.initialize_mem_wal(unsharded=True)
    snapshot = dataset.snapshot
    (index,) = maintained_indices(snapshot, require_mem_wal(snapshot), {})
    assert _metric_of(index.segment) is Metric.COSINE
    empty = replace(index.segment.metadata, fragment_bitmap=FrozenBitMap())
    assert _metric_of(replace(index.segment, metadata=empty)) is Metric.COSINE


@pytest.mark.parametrize("name", [b"column", b"nested"])
def test_a_name_that_is_not_utf8_is_corrupt_data(name) -> None:
    schema = pa.schema(
        [("id", pa.int64()), ("column", pa.list_(pa.struct([("nested", pa.int8())])))]
    )
    dataset = lancelet.write_dataset(schema.empty_table(), f"memory://names-{uuid.uuid4()}/t")
    dataset.initialize_mem_wal(unsharded=True)
    dataset.mem_wal_writer(str(SHARD)).put(pa.table({"id": [1]}))
    store = Shard(dataset.snapshot.location, SHARD).store
    (path,) = (info.path for info in store.list("wal"))
    content = strip_trailer(np.frombuffer(store.read(path), np.uint8)).tobytes()
    assert name in content
    store.put(path, with_trailer(content.replace(name, b"\xff" + name[1:])))
    with pytest.raises(CorruptDataError, match="not an Arrow stream"):
        dataset.mem_wal_writer(str(SHARD))
