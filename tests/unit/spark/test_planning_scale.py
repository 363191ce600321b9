"""Plans of reads with many fragments, and requests of reads and upserts by number of rows.

Goal: planning and requests do not grow with the number of rows. Method: requests are counted by a
wrapped store; memory is that of Python objects.
"""

import pickle
import tracemalloc
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.datasource import CaseInsensitiveDict, InputPartition

import lancelet
from lancelet.io.wrapped import WrappedStore
from lancelet.jobs import table_ref
from lancelet.spark.reader import LanceReader, read_schema
from lancelet.spark.types import spark_schema
from pyspark_lance import DefaultSource

MANY = 20_000


class Counter:
    def __init__(self):
        self.requests = 0

    def request(self, request, action):
        self.requests += request.reads
        return action()


@pytest.fixture
def counter(monkeypatch):
    """Count the requests to tables that are opened by tasks and commits."""
    found = Counter()
    locate = table_ref._locate

    def located(*arguments):
        location = locate(*arguments)
        return replace(location, store=WrappedStore(location.store, found))

    monkeypatch.setattr(table_ref, "_locate", located)
    return found


def table_of(uri, rows, fragments=8):
    numbers = np.arange(rows)
    made = pa.table({"id": numbers, "x": numbers / 8})
    lancelet.write_dataset(made, uri, max_rows_per_file=rows // fragments)
    return made


def plan(uri, **options):
    given = {"path": uri, **options}
    return LanceReader.plan(given, read_schema(given))


def test_many_fragments_are_planned_by_few_requests_and_little_memory(tmp_path, counter):
    uri = str(tmp_path / "t")
    table_of(uri, 1000, fragments=1)
    fragment = lancelet.dataset(uri).get_fragments()[0].metadata
    append = lancelet.LanceOperation.Append([fragment] * MANY)
    lancelet.LanceDataset.commit(uri, append, read_version=1)
    tracemalloc.start()
    made = plan(uri)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert counter.requests <= 10
    assert peak < 48 * 2**20
    assert len(made.tasks) < 100
    assert len(pickle.dumps(made)) < 2**18
    assert sum(len(task.split.fragments) for task in made.tasks) == MANY + 1


@pytest.mark.parametrize("work", ["scan", "filter", "upsert"])
def test_requests_do_not_grow_with_the_number_of_rows(tmp_path, counter, work):
    found = []
    for rows in (8_000, 160_000):
        uri = str(tmp_path / str(rows))
        made = table_of(uri, rows)
        before = counter.requests
        if work == "upsert":
            changed = made.take(pa.array(np.arange(0, rows, rows // 100)[:100]))
            options = {"path": uri, "upsert_on": "id", "stream_id": "s"}
            source = DefaultSource(CaseInsensitiveDict(options))
            writer = source.streamWriter(spark_schema(changed.schema), False)
            writer.commit([writer.write(iter(changed.to_batches()))], 0)
        else:
            reader = plan(uri, **({"filter": f"id = {rows // 2}"} if work == "filter" else {}))
            for partition in reader.partitions():
                for _ in reader.read(partition):
                    pass
        found.append(counter.requests - before)
    small, large = found
    assert large <= small * 2


def test_a_reader_without_tasks_is_given_no_partition():
    """Spark passes an empty partition, and its release 4.1 passes None."""
    reader = LanceReader((), pa.schema([("x", pa.int64())]))
    assert list(reader.read(InputPartition(None))) == []
    assert list(reader.read(None)) == []
