"""Goal: dataset operations can be awaited concurrently and cancelled between batches."""

import asyncio
import contextlib
import gc
import threading
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

import lancelet
from lancelet import aio
from lancelet.dataset.history.refs import Branches, Tags
from lancelet.dataset.maintenance.maintenance import DatasetOptimizer
from lancelet.dataset.maintenance.statistics import LanceStats
from lancelet.dataset.mutation import MergeInsertBuilder
from lancelet.dataset.show.plots import Plots
from lancelet.dataset.sql.query import SqlQuery, SqlQueryBuilder
from lancelet.errors import InvalidInputError, SchemaMismatchError

TIMEOUT = 60


@pytest.fixture
def dataset():
    return lancelet.write_dataset({"id": range(100)}, "memory://", max_rows_per_file=10)


@pytest.fixture
def table(dataset):
    return aio.AsyncDataset(dataset)


def test_reads_and_changes_are_those_of_the_dataset(table):
    async def work():
        rows = await table.to_table(["id"], filter="id < 3")
        counts = [batch.num_rows async for batch in table.to_batches(["id"], batch_size=10)]
        await table.insert({"id": [100]})
        deleted = await table.delete("id < 50")
        upsert = table.merge_insert("id").when_not_matched_insert_all()
        merged = await upsert.execute({"id": [7, 60]})
        await table.create_scalar_index("id", "BTREE")
        metrics = await table.compact_files()
        old = await table.checkout_version(1)
        return rows, counts, deleted, merged, metrics, await old.count_rows()

    rows, counts, deleted, merged, metrics, old = asyncio.run(work())
    assert rows == pa.table({"id": [0, 1, 2]})
    assert counts == [10] * 10
    assert deleted["num_deleted_rows"] == 50
    assert merged["num_inserted_rows"] == 1
    assert metrics.fragments_removed > 1
    assert old == 100
    assert table.dataset.count_rows() == 52


def test_datasets_are_written_and_opened(tmp_path):
    async def work():
        written = await aio.write_dataset({"a": [1]}, tmp_path / "t")
        await written.insert({"a": [2]})
        opened = await aio.dataset(tmp_path / "t", version=1)
        return await opened.count_rows(), await aio.run(opened.dataset.tags.list)

    assert asyncio.run(work()) == (1, {})


def test_a_dry_run_makes_no_dataset(tmp_path):
    with pytest.raises(InvalidInputError, match="dry_run"):
        asyncio.run(aio.write_dataset({"a": [1]}, tmp_path / "t", dry_run=True))


def test_errors_are_raised_where_the_call_is_awaited(table):
    with pytest.raises(SchemaMismatchError):
        asyncio.run(table.insert({"id": ["a"]}))


def test_a_query_is_read_in_batches(dataset):
    async def work():
        query = lancelet.sql("SELECT id FROM t WHERE id < 5", {"t": dataset})
        return [batch.num_rows async for batch in aio.batches(query)]

    assert sum(asyncio.run(work())) == 5


def test_changes_of_one_dataset_follow_each_other(table):
    async def work():
        await asyncio.gather(*(table.insert({"id": [number]}) for number in range(8)))

    asyncio.run(work())
    assert table.dataset.version == table.dataset.latest_version == 9
    assert table.dataset.count_rows() == 108


def test_no_more_calls_run_at_once_than_the_pool_has_threads(dataset):
    at_once, most, lock = 0, 0, threading.Lock()
    both = threading.Barrier(2)

    class Counting:
        def count_rows(self):
            nonlocal at_once, most
            with lock:
                at_once += 1
                most = max(most, at_once)
            both.wait(TIMEOUT)
            with lock:
                at_once -= 1

    async def work(pool):
        table = aio.AsyncDataset(dataset, pool)
        await asyncio.gather(
            *(aio._call(table.executor, lambda _: Counting().count_rows()) for _ in range(6))
        )

    with ThreadPoolExecutor(2) as pool:
        asyncio.run(work(pool))
    assert most == 2


def test_a_change_that_is_cancelled_stops_and_leaves_nothing(table):
    begun, cancelled, given = threading.Event(), threading.Event(), []

    def rows():
        for number in range(100):
            given.append(number)
            yield {"id": number}
            if number == 3:
                begun.set()
                assert cancelled.wait(TIMEOUT)

    async def work():
        batches = (pa.RecordBatch.from_pylist([row]) for row in rows())
        reader = pa.RecordBatchReader.from_batches(table.dataset.schema, batches)
        task = asyncio.create_task(table.insert(reader))
        await asyncio.to_thread(begun.wait, TIMEOUT)
        task.cancel()
        await asyncio.sleep(0)
        cancelled.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    before = sorted(table.dataset.all_files().read_all()["path"].to_pylist())
    asyncio.run(work())
    assert len(given) < 100
    assert table.dataset.latest_version == 1
    assert sorted(table.dataset.all_files().read_all()["path"].to_pylist()) == before


def test_a_read_that_is_cancelled_stops_between_batches(table, monkeypatch):
    begun, cancelled, read = threading.Event(), threading.Event(), []
    scan = lancelet.LanceScanner.to_batches

    def slowly(self):
        for batch in scan(self):
            read.append(batch)
            begun.set()
            assert cancelled.wait(TIMEOUT)
            yield batch

    monkeypatch.setattr(lancelet.LanceScanner, "to_batches", slowly)

    async def work():
        task = asyncio.create_task(table.to_table(batch_size=10))
        await asyncio.to_thread(begun.wait, TIMEOUT)
        task.cancel()
        await asyncio.sleep(0)
        cancelled.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(work())
    assert len(read) == 1


def test_a_call_that_waits_for_a_thread_is_cancelled_without_running(dataset):
    release, ran = threading.Event(), []

    async def work(pool):
        table = aio.AsyncDataset(dataset, pool)
        first = asyncio.create_task(aio._call(pool, lambda _: release.wait(TIMEOUT)))
        second = asyncio.create_task(aio._call(table.executor, lambda _: ran.append(1)))
        await asyncio.sleep(0)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        release.set()
        await first

    with ThreadPoolExecutor(1) as pool:
        asyncio.run(work(pool))
    assert ran == []


def test_progress_is_called_and_a_cancelled_call_stops_as_well(table):
    events = []

    async def work():
        await table.compact_files(progress=events.append)

    asyncio.run(work())
    assert events[-1].event == "complete"


OF_SESSIONS = "belongs to the synchronous dataset, which is the attribute `dataset`"
LEFT_OUT = {
    "at": OF_SESSIONS,
    "handle": OF_SESSIONS,
    "index_cache_hit_rate": OF_SESSIONS,
    "io_stats_incremental": OF_SESSIONS,
    "io_stats_snapshot": OF_SESSIONS,
    "meter": OF_SESSIONS,
    "new_file_session": OF_SESSIONS,
    "open_options": OF_SESSIONS,
    "session": OF_SESSIONS,
    "set_snapshot": OF_SESSIONS,
    "snapshot": OF_SESSIONS,
    "storage_options_accessor": OF_SESSIONS,
    "children": "raises",
    "partition_expression": "raises",
    "commit": "a class method, which `aio.run` calls",
    "commit_batch": "a class method, which `aio.run` calls",
    "drop": "a class method, which `aio.run` calls",
    "from_pydantic_model": "a class method, which `aio.run` calls",
}
NO_SCANNERS = dict.fromkeys(("from_batches", "from_dataset", "from_fragment"), "raises")
CLASSES = (
    (aio.AsyncTags, Tags, {}),
    (aio.AsyncBranches, Branches, {}),
    (aio.AsyncOptimizer, DatasetOptimizer, {}),
    (aio.AsyncMergeInsertBuilder, MergeInsertBuilder, {}),
    (aio.AsyncStats, LanceStats, {}),
    (aio.AsyncPlots, Plots, {}),
    (aio.AsyncScanner, lancelet.LanceScanner, NO_SCANNERS),
    (aio.AsyncSqlQuery, SqlQuery, {"engine": "the function that a query calls"}),
    (
        aio.AsyncSqlQueryBuilder,
        SqlQueryBuilder,
        dict.fromkeys(("dataset", "text"), "fields of the builder"),
    ),
    (aio.AsyncDataset, lancelet.LanceDataset, LEFT_OUT),
)


@pytest.mark.parametrize(
    ("own", "synchronous", "left_out"), CLASSES, ids=[each[0].__name__ for each in CLASSES]
)
def test_every_operation_has_an_asynchronous_form(own, synchronous, left_out):
    operations = {name for name in dir(synchronous) if not name.startswith("_")}
    assert operations - set(left_out) == operations & set(dir(own))
    assert set(left_out) <= operations
    for name in operations - set(left_out):
        method = getattr(own, name)
        if callable(method) and hasattr(method, "__wrapped__"):
            assert method.__doc__


def test_datasets_are_joined_sorted_and_described(table):
    async def work():
        other = aio.AsyncDataset(lancelet.write_dataset({"id": [1, 2], "x": [5, 6]}, "memory://"))
        joined = await other.join(table, "id")
        ordered = await table.sort_by([("id", "descending")])
        matching = await table.filter("id < 4")
        counts = await table.stats.dataset_stats()
        fragment = await table.get_fragment(0)
        streamed = sum([batch.num_rows async for batch in table.stream()])
        return joined, ordered, matching, counts, fragment, streamed, await table.to_arrow()

    joined, ordered, matching, counts, fragment, streamed, rows = asyncio.run(work())
    assert joined.count_rows() == 2
    assert ordered.head(1)["id"].to_pylist() == [99]
    assert matching.count_rows() == 4
    assert counts["num_fragments"] == 10
    assert fragment.fragment_id == 0
    assert streamed == rows.num_rows == table.dataset.count_rows() == 100
    assert table.has_index is False
    assert table.schema == rows.schema


def test_scanners_and_queries_are_read_as_streams(table):
    async def work():
        scanner = table.scanner(filter="id < 3")
        reader = await scanner.to_reader()
        streamed = [batch.num_rows async for batch in scanner.stream()]
        fragments = [each.num_rows for each in await scanner.scan_batches()]
        query = await aio.sql("SELECT count(*) AS n FROM t WHERE id < 3", {"t": table})
        books = table
        named = await aio.sql("SELECT max(id) AS most FROM books")
        assert "SELECT max" in repr(named)
        del books
        return (
            (await scanner.to_arrow()).num_rows,
            reader.read_all().num_rows,
            sum(streamed),
            sum(fragments),
            (await query.to_arrow())["n"].to_pylist(),
            [batch["most"].to_pylist() async for batch in named.stream()],
        )

    assert asyncio.run(work()) == (3, 3, 3, 3, [3], [[99]])


def test_tags_branches_queries_scanners_and_merges_are_asynchronous(table):
    async def work():
        await table.tags.create("first", 1)
        upsert = table.merge_insert("id").when_not_matched_insert_all()
        merged = await upsert.execute({"id": [7, 1000]})
        query = table.sql("SELECT max(id) AS most FROM dataset").build()
        most = await query.to_table()
        scanner = table.scanner(filter="id < 3")
        rows = await scanner.to_table()
        frame = await table.to_pandas(columns=["id"], filter="id < 2")
        plan = await scanner.explain_plan()
        branch = await table.create_branch("side")
        await branch.insert({"id": [2000]})
        names = (await table.tags.list()).keys(), (await table.branches.list()).keys()
        latest = await table.latest_version()
        return merged, most, rows, frame, plan, names, latest, await branch.count_rows()

    merged, most, rows, frame, plan, names, latest, count = asyncio.run(work())
    assert merged["num_inserted_rows"] == 1
    assert most["most"].to_pylist() == [1000]
    assert rows.num_rows == 3
    assert frame["id"].tolist() == [0, 1]
    assert "LanceRead" in plan
    assert [list(each) for each in names] == [["first"], ["side"]]
    assert latest == table.version == 2
    assert count == 102


def test_a_cancelled_call_reports_nothing_to_the_event_loop(table):
    reported = []

    async def work():
        asyncio.get_running_loop().set_exception_handler(lambda _, facts: reported.append(facts))
        for _ in range(5):
            call = asyncio.ensure_future(table.to_table(batch_size=1))
            await asyncio.sleep(0)
            call.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await call
        gc.collect()
        await asyncio.sleep(0)

    asyncio.run(work())
    gc.collect()
    assert reported == []


def test_changes_are_serialized_in_each_event_loop(table):
    async def insert_twice():
        await asyncio.gather(*(table.insert({"id": [number]}) for number in range(2)))

    asyncio.run(insert_twice())
    asyncio.run(insert_twice())
    assert table.dataset.count_rows() == 104
