"""The stream of a log reads each entry once, and fails if entries are gone."""

import uuid

import pyarrow as pa
import pytest

import lancelet
from lancelet.errors import VersionNotFoundError
from lancelet.jobs.table_ref import TableRef
from lancelet.memwal.shard import Shard
from lancelet.spark.reader import TaskPartition
from lancelet.spark.stream_log import LogStreamReader, _Entries


def test_entries_that_were_removed_are_missed() -> None:
    uri, shard = f"memory://stream-log-{uuid.uuid4()}/t", uuid.uuid4()
    schema = pa.schema([("id", pa.int64())])
    dataset = lancelet.write_dataset(schema.empty_table(), uri)
    dataset.initialize_mem_wal(unsharded=True)
    writer = dataset.mem_wal_writer(str(shard))
    for number in range(3):
        writer.put(pa.table({"id": [number]}, schema))
    reader = LogStreamReader(TableRef.of(uri), schema)
    whole = TaskPartition(_Entries(shard, 0, 3))
    found = [each for batch in reader.read(whole) for each in batch["id"].to_pylist()]
    assert found == [0, 1, 2]
    store = Shard(dataset.snapshot.location, shard).store
    (*_, last) = sorted(info.path for info in store.list("wal"))
    for info in list(store.list("wal")):
        if info.path == last or "0011" in info.path:
            store.delete(info.path)
    with pytest.raises(VersionNotFoundError, match="removed before the stream read them"):
        list(reader.read(whole))
