"""Asynchronous datasets: methods of `LanceDataset` as coroutines, run by a bounded thread pool.

    table = await aio.dataset("books.lance")
    rows = await table.to_table(["name"], filter="price > 3")
    async for batch in table.to_batches():
        ...

An `AsyncDataset` has the methods of `LanceDataset`, with the same names, arguments and results; so
have its scanners, queries, merges, tags, branches, statistics, plots and optimizer. Properties that
need no I/O are properties here too. `run` calls any other function.

A cancelled call stops at the next batch or step. A cancelled change stops before its commit, unless
it has already committed.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from concurrent.futures import Executor
from contextlib import AbstractAsyncContextManager
from functools import update_wrapper, wraps
from typing import Any, Concatenate, Final, Generic, ParamSpec, Protocol, TypeAlias, TypeVar

import pyarrow as pa

from lancelet import surroundings
from lancelet.change.progress import reporting
from lancelet.config import CPU_THREADS
from lancelet.dataset.dataset import LanceDataset
from lancelet.dataset.history.refs import Branches, Tags
from lancelet.dataset.maintenance.maintenance import DatasetOptimizer
from lancelet.dataset.maintenance.statistics import LanceStats
from lancelet.dataset.mutation import MergeInsertBuilder
from lancelet.dataset.scan.scanner import LanceScanner
from lancelet.dataset.show.plots import Plots
from lancelet.dataset.sql.query import SqlQuery, SqlQueryBuilder
from lancelet.dataset.sql.tables import SqlTable, tables_of_caller
from lancelet.dataset.sql.tables import sql as sql_over
from lancelet.dataset.write.write import dataset as open_dataset
from lancelet.dataset.write.write import write_dataset as write_rows
from lancelet.errors import CancelledError, InvalidInputError

__all__ = [
    "AsyncBranches",
    "AsyncDataset",
    "AsyncMergeInsertBuilder",
    "AsyncOptimizer",
    "AsyncPlots",
    "AsyncScanner",
    "AsyncSqlQuery",
    "AsyncSqlQueryBuilder",
    "AsyncStats",
    "AsyncTags",
    "batches",
    "dataset",
    "run",
    "sql",
    "write_dataset",
]

P = ParamSpec("P")
S = TypeVar("S")
S_co = TypeVar("S_co", covariant=True)
T = TypeVar("T")
W = TypeVar("W")

Lock: TypeAlias = AbstractAsyncContextManager[Any]

_END: Final = object()
_IO_THREADS: Final = 4
"""Threads in addition to one per processor, because calls also wait for storage."""

_POOL: Executor | None = None
_POOL_LOCK: Final = threading.Lock()


class Streams(Protocol):
    """A source of rows: a dataset, a scanner or a query."""

    def stream(self) -> pa.RecordBatchReader:
        """Return the rows as a stream."""


def _pool() -> Executor:
    global _POOL  # noqa: PLW0603 - one pool per process, created at the first use
    with _POOL_LOCK:
        if _POOL is None:
            _POOL = surroundings.executor(CPU_THREADS + _IO_THREADS, "lancelet-aio")
        return _POOL


async def run(function: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
    """Call a function in the thread pool.

    Args:
        function: Any function; functions of datasets check for cancellation.
        arguments: Positional arguments.
        options: Keyword arguments.

    Returns:
        The result of the function.

    Raises:
        asyncio.CancelledError: If the task was cancelled; raised after the function has ended.

    Example:
        ```python
        import asyncio

        asyncio.run(lance.aio.run(dataset.tags.create, "v1"))
        ```
    """
    return await _call(None, lambda _: function(*arguments, **options))


async def _call(executor: Executor | None, work: Callable[[threading.Event], T]) -> T:
    """Run work in a pool. On cancellation, request a stop and wait until the work has ended."""
    stopped = threading.Event()

    def check(_stage: str, _done: int, _total: int) -> None:
        if stopped.is_set():
            raise CancelledError("the task was cancelled")

    def work_and_check() -> T:
        with reporting(check):
            return work(stopped)

    context = contextvars.copy_context()
    done = (executor or _pool()).submit(context.run, work_and_check)
    result = asyncio.wrap_future(done)
    try:
        return await asyncio.shield(result)
    except asyncio.CancelledError:
        stopped.set()
        if not done.cancel():
            await asyncio.wait([result])
            result.exception()  # retrieved, so that the event loop does not report it
        raise


async def batches(
    source: Streams, *, executor: Executor | None = None
) -> AsyncIterator[pa.RecordBatch]:
    """Yield the record batches of a dataset, a scanner or a query.

    Args:
        source: A source of rows.
        executor: The pool to read in; by default the pool of this module.

    Yields:
        Record batches; each is read on demand.

    Example:
        ```python
        import asyncio

        async def count(source):
            return sum([batch.num_rows async for batch in lance.aio.batches(source)])

        asyncio.run(count(dataset.scanner(filter="price > 3")))
        ```
    """
    reader = await _call(executor, lambda _: source.stream())
    async for batch in _each(reader, executor):
        yield batch


async def _each(iterator: Any, executor: Executor | None) -> AsyncIterator[pa.RecordBatch]:
    try:
        while (batch := await _call(executor, lambda _: next(iterator, _END))) is not _END:
            yield batch
    finally:
        iterator.close()


class _LoopLock:
    """A lock of each event loop; an `asyncio.Lock` serves only one.

    Test clients of web frameworks, for example, start an event loop per request.
    """

    def __init__(self) -> None:
        self._locks: dict[asyncio.AbstractEventLoop, asyncio.Lock] = {}

    async def __aenter__(self) -> None:
        for loop in list(self._locks):
            if loop.is_closed():
                self._locks.pop(loop, None)
        await self._locks.setdefault(asyncio.get_running_loop(), asyncio.Lock()).acquire()

    async def __aexit__(self, *_: object) -> None:
        self._locks[asyncio.get_running_loop()].release()


class _Async(Generic[S_co]):
    """An object whose methods run in a thread pool."""

    def __init__(self, wrapped: S_co, executor: Executor | None, lock: Lock) -> None:
        self._wrapped = wrapped
        self.executor = executor
        self.lock = lock

    def __repr__(self) -> str:
        """Show the wrapped object."""
        return f"{type(self).__name__}({self._wrapped!r})"


def _awaited(
    method: Callable[Concatenate[S, P], T],
) -> Callable[Concatenate[_Async[S], P], Coroutine[Any, Any, T]]:
    """Return a coroutine function for a read method."""

    @wraps(method)
    async def call(self: _Async[S], /, *arguments: P.args, **options: P.kwargs) -> T:
        given: Any = map(_unwrapped, arguments)  # other datasets, such as those of a join
        named: Any = {name: _unwrapped(value) for name, value in options.items()}
        return await _call(self.executor, lambda _: method(self._wrapped, *given, **named))

    return call


def _unwrapped(value: Any) -> Any:
    return value._wrapped if isinstance(value, _Async) else value  # noqa: SLF001 - of this module


def _attribute(cls: type, name: str, documentation: str | None = None) -> Any:
    """Return a property that reads an attribute, without I/O."""
    documentation = documentation or getattr(cls, name).__doc__
    return property(lambda self: getattr(self._wrapped, name), doc=documentation)


def _change(
    method: Callable[Concatenate[S, P], T],
) -> Callable[Concatenate[_Async[S], P], Coroutine[Any, Any, T]]:
    """Return a coroutine function for a method that commits; changes of a dataset run in order."""
    awaited = _awaited(method)

    @wraps(method)
    async def call(self: _Async[S], /, *arguments: P.args, **options: P.kwargs) -> T:
        async with self.lock:
            return await awaited(self, *arguments, **options)

    return call


def _chained(
    method: Callable[Concatenate[S, P], S],
) -> Callable[Concatenate[_Async[S], P], Any]:
    """Return a method that sets an option of a builder, without I/O."""

    @wraps(method)
    def call(self: _Async[S], /, *arguments: P.args, **options: P.kwargs) -> _Async[S]:
        changed = method(self._wrapped, *arguments, **options)
        return type(self)(changed, self.executor, self.lock)

    return call


def _built(
    method: Callable[Concatenate[LanceDataset, P], S],
    wrapper: Callable[[S, Executor | None, Lock], W],
) -> Callable[Concatenate[_Async[LanceDataset], P], W]:
    """Return a method that creates a scanner or builder, without I/O."""

    @wraps(method)
    def call(self: _Async[LanceDataset], /, *arguments: P.args, **options: P.kwargs) -> W:
        return wrapper(method(self._wrapped, *arguments, **options), self.executor, self.lock)

    return call


def _table(
    scanner: Callable[Concatenate[S, P], LanceScanner], documented: Callable[..., Any]
) -> Callable[Concatenate[_Async[S], P], Coroutine[Any, Any, pa.Table]]:
    """Return `to_table` as a coroutine function that checks for cancellation after each batch."""

    async def call(self: _Async[S], /, *arguments: P.args, **options: P.kwargs) -> pa.Table:
        def read(stopped: threading.Event) -> pa.Table:
            scan = scanner(self._wrapped, *arguments, **options)
            found = []
            for batch in scan.to_batches():
                if stopped.is_set():
                    raise CancelledError("the task was cancelled")
                found.append(batch)
            return pa.Table.from_batches(found, scan.projected_schema)

        return await _call(self.executor, read)

    update_wrapper(call, documented)
    return call


def _maintenance(
    method: Callable[Concatenate[DatasetOptimizer, P], T],
) -> Callable[Concatenate[_Async[LanceDataset], P], Coroutine[Any, Any, T]]:
    """Return a coroutine function for a method of the optimizer."""

    @wraps(method)
    async def call(self: _Async[LanceDataset], /, *arguments: P.args, **options: P.kwargs) -> T:
        async with self.lock:
            optimizer = self._wrapped.optimize
            return await _call(self.executor, lambda _: method(optimizer, *arguments, **options))

    return call


def _batches(
    method: Callable[Concatenate[S, P], Any],
) -> Callable[Concatenate[_Async[S], P], AsyncIterator[pa.RecordBatch]]:
    """Return a method that yields batches as an asynchronous generator."""

    @wraps(method)
    async def call(
        self: _Async[S], /, *arguments: P.args, **options: P.kwargs
    ) -> AsyncIterator[pa.RecordBatch]:
        iterator = await _call(
            self.executor, lambda _: method(self._wrapped, *arguments, **options)
        )
        async for batch in _each(iterator, self.executor):
            yield batch

    return call


def _reopened(
    method: Callable[Concatenate[LanceDataset, P], Any],
) -> Callable[Concatenate[AsyncDataset, P], Coroutine[Any, Any, Any]]:
    """Return a coroutine function for a method that returns another dataset."""

    @wraps(method)
    async def call(self: AsyncDataset, /, *arguments: P.args, **options: P.kwargs) -> Any:
        found = await _call(self.executor, lambda _: method(self.dataset, *arguments, **options))
        is_dataset = isinstance(found, LanceDataset)
        return AsyncDataset(found, self.executor) if is_dataset else found

    return call


class AsyncScanner(_Async[LanceScanner]):
    """A scanner with asynchronous methods; see `LanceScanner`."""

    to_table = _table(lambda scanner: scanner, LanceScanner.to_table)
    to_batches = _batches(LanceScanner.to_batches)
    to_pandas = _awaited(LanceScanner.to_pandas)  # type: ignore[arg-type]  # named arguments may not be called `self`
    to_polars = _awaited(LanceScanner.to_polars)
    count_rows = _awaited(LanceScanner.count_rows)
    head = _awaited(LanceScanner.head)
    take = _awaited(LanceScanner.take)
    explain_plan = _awaited(LanceScanner.explain_plan)
    analyze_plan = _awaited(LanceScanner.analyze_plan)
    scan_batches = _awaited(LanceScanner.scan_batches)
    stream = _batches(LanceScanner.stream)
    to_arrow = _table(lambda scanner: scanner, LanceScanner.to_arrow)
    to_reader = _awaited(LanceScanner.to_reader)
    dataset_schema = _attribute(LanceScanner, "dataset_schema")
    projected_schema = _attribute(LanceScanner, "projected_schema")


class AsyncSqlQuery(_Async[SqlQuery]):
    """An SQL query with asynchronous methods; see `SqlQuery`."""

    def __repr__(self) -> str:
        """Show the text; a query itself shows its rows."""
        return f"{type(self).__name__}({self._wrapped.text!r})"

    to_table = _awaited(SqlQuery.to_table)
    to_pandas = _awaited(SqlQuery.to_pandas)  # type: ignore[arg-type]  # named arguments may not be called `self`
    to_polars = _awaited(SqlQuery.to_polars)
    to_arrow = _awaited(SqlQuery.to_arrow)
    to_batch_records = _awaited(SqlQuery.to_batch_records)
    to_batches = _batches(SqlQuery.to_stream_reader)
    to_stream_reader = _awaited(SqlQuery.to_stream_reader)
    stream = _batches(SqlQuery.stream)
    batch_size = _attribute(SqlQuery, "batch_size", "The maximum number of rows per batch.")
    batch_size_bytes = _attribute(
        SqlQuery, "batch_size_bytes", "The approximate maximum size of a batch, or None."
    )
    text = _attribute(SqlQuery, "text", "The statement.")


class AsyncSqlQueryBuilder(_Async[SqlQueryBuilder]):
    """The builder of an SQL query; see `SqlQueryBuilder`."""

    def __repr__(self) -> str:
        """Show the text; a builder itself shows the rows."""
        return f"{type(self).__name__}({self._wrapped.text!r})"

    table_name = _chained(SqlQueryBuilder.table_name)
    with_row_id = _chained(SqlQueryBuilder.with_row_id)
    with_row_addr = _chained(SqlQueryBuilder.with_row_addr)
    blob_handling = _chained(SqlQueryBuilder.blob_handling)
    batch_size = _chained(SqlQueryBuilder.batch_size)
    batch_size_bytes = _chained(SqlQueryBuilder.batch_size_bytes)

    def build(self) -> AsyncSqlQuery:
        """Return the query.

        Returns:
            The query, which runs when it is read.

        Example:
            ```python
            import asyncio

            query = lance.aio.AsyncDataset(dataset).sql("SELECT count(*) FROM dataset").build()
            asyncio.run(query.to_table())
            ```
        """
        return AsyncSqlQuery(self._wrapped.build(), self.executor, self.lock)


class AsyncMergeInsertBuilder(_Async[MergeInsertBuilder]):
    """A merge with asynchronous execution; see `MergeInsertBuilder`."""

    conflict_retries = _chained(MergeInsertBuilder.conflict_retries)
    data_storage_version = _chained(MergeInsertBuilder.data_storage_version)
    mark_sstables_as_compacted = _chained(MergeInsertBuilder.mark_sstables_as_compacted)
    memory_limit = _chained(MergeInsertBuilder.memory_limit)
    retry_timeout = _chained(MergeInsertBuilder.retry_timeout)
    skip_auto_cleanup = _chained(MergeInsertBuilder.skip_auto_cleanup)
    source_dedupe_behavior = _chained(MergeInsertBuilder.source_dedupe_behavior)
    target_all_bases = _chained(MergeInsertBuilder.target_all_bases)
    target_bases = _chained(MergeInsertBuilder.target_bases)
    use_index = _chained(MergeInsertBuilder.use_index)
    when_matched_delete = _chained(MergeInsertBuilder.when_matched_delete)
    when_matched_fail = _chained(MergeInsertBuilder.when_matched_fail)
    when_matched_update_all = _chained(MergeInsertBuilder.when_matched_update_all)
    when_not_matched_by_source_delete = _chained(
        MergeInsertBuilder.when_not_matched_by_source_delete
    )
    when_not_matched_insert_all = _chained(MergeInsertBuilder.when_not_matched_insert_all)
    write_mode = _chained(MergeInsertBuilder.write_mode)
    explain_plan = _awaited(MergeInsertBuilder.explain_plan)
    analyze_plan = _awaited(MergeInsertBuilder.analyze_plan)
    analyze_plan_batches = _awaited(MergeInsertBuilder.analyze_plan_batches)
    execute = _change(MergeInsertBuilder.execute)
    execute_batches = _change(MergeInsertBuilder.execute_batches)
    execute_uncommitted = _awaited(MergeInsertBuilder.execute_uncommitted)
    execute_uncommitted_batches = _awaited(MergeInsertBuilder.execute_uncommitted_batches)


class AsyncTags(_Async[Tags]):
    """Tags with asynchronous methods; see `Tags`."""

    list = _awaited(Tags.list)
    list_ordered = _awaited(Tags.list_ordered)
    get_version = _awaited(Tags.get_version)
    create = _change(Tags.create)
    update = _change(Tags.update)
    delete = _change(Tags.delete)
    replace_metadata = _change(Tags.replace_metadata)


class AsyncBranches(_Async[Branches]):
    """Branches with asynchronous methods; see `Branches`."""

    list = _awaited(Branches.list)
    list_ordered = _awaited(Branches.list_ordered)
    delete = _change(Branches.delete)
    fast_forward = _change(Branches.fast_forward)
    replace_metadata = _change(Branches.replace_metadata)


class AsyncOptimizer(_Async[DatasetOptimizer]):
    """The optimizer of a dataset with asynchronous methods; see `DatasetOptimizer`."""

    compact_files = _change(DatasetOptimizer.compact_files)
    optimize_indices = _change(DatasetOptimizer.optimize_indices)  # type: ignore[arg-type]  # named arguments may not be called `self`
    enable_auto_cleanup = _change(DatasetOptimizer.enable_auto_cleanup)  # type: ignore[arg-type]  # named arguments may not be called `self`
    disable_auto_cleanup = _change(DatasetOptimizer.disable_auto_cleanup)  # type: ignore[arg-type]  # named arguments may not be called `self`


class AsyncStats(_Async[LanceStats]):
    """The statistics of a dataset with asynchronous methods; see `LanceStats`."""

    column_stats = _awaited(LanceStats.column_stats)
    data_stats = _awaited(LanceStats.data_stats)
    dataset_stats = _awaited(LanceStats.dataset_stats)
    index_stats = _awaited(LanceStats.index_stats)


class AsyncPlots(_Async[Plots]):
    """The plots of a dataset with asynchronous methods; see `Plots`."""

    fragments = _awaited(Plots.fragments)
    history = _awaited(Plots.history)
    recall = _awaited(Plots.recall)
    sizes = _awaited(Plots.sizes)


class AsyncDataset(_Async[LanceDataset]):
    """A dataset with asynchronous methods.

    Reads run concurrently; changes made through one `AsyncDataset` run sequentially.

    Attributes:
        dataset: The wrapped dataset, for members that do no I/O.
        executor: The pool that runs the calls; None for the pool of this module.
        lock: Serializes the changes of an event loop.

    Example:
        ```python
        import asyncio

        async def main():
            table = lance.aio.AsyncDataset(dataset)
            await table.insert(new_books)
            return await table.count_rows("price > 3")

        asyncio.run(main())
        ```
    """

    def __init__(
        self,
        dataset: LanceDataset,
        executor: Executor | None = None,
        lock: Lock | None = None,
    ) -> None:
        """Wrap a dataset; calls run in `executor`, and changes under `lock`, by default its own."""
        super().__init__(dataset, executor, lock or _LoopLock())

    @property
    def dataset(self) -> LanceDataset:
        """The wrapped dataset."""
        return self._wrapped

    @property
    def stats(self) -> AsyncStats:
        """The statistics of the dataset."""
        return AsyncStats(self.dataset.stats, self.executor, self.lock)

    @property
    def plot(self) -> AsyncPlots:
        """The plots of the dataset."""
        return AsyncPlots(self.dataset.plot, self.executor, self.lock)

    @property
    def tags(self) -> AsyncTags:
        """The tags of the table."""
        return AsyncTags(self.dataset.tags, self.executor, self.lock)

    @property
    def branches(self) -> AsyncBranches:
        """The branches of the table."""
        return AsyncBranches(self.dataset.branches, self.executor, self.lock)

    @property
    def optimize(self) -> AsyncOptimizer:
        """The optimizer of the dataset."""
        return AsyncOptimizer(self.dataset.optimize, self.executor, self.lock)

    async def latest_version(self) -> int:
        """Return the number of the latest version of the table.

        Returns:
            The number; `version` is the one of this dataset.

        Example:
            ```python
            import asyncio

            asyncio.run(lance.aio.AsyncDataset(dataset).latest_version())
            ```
        """
        return await _call(self.executor, lambda _: self.dataset.latest_version)

    scanner = _built(LanceDataset.scanner, AsyncScanner)
    sql = _built(LanceDataset.sql, AsyncSqlQueryBuilder)
    merge_insert = _built(LanceDataset.merge_insert, AsyncMergeInsertBuilder)
    to_table = _table(LanceDataset.scanner, LanceDataset.to_table)
    to_batches = _batches(LanceDataset.to_batches)
    all_files = _awaited(LanceDataset.all_files)
    stale_rows = _awaited(LanceDataset.stale_rows)
    base_paths = _awaited(LanceDataset.base_paths)
    centroids = _awaited(LanceDataset.centroids)
    changes = _awaited(LanceDataset.changes)
    check = _awaited(LanceDataset.check)
    config = _awaited(LanceDataset.config)
    count_rows = _awaited(LanceDataset.count_rows)  # type: ignore[arg-type]  # named arguments may not be called `self`
    delta = _awaited(LanceDataset.delta)
    filter = _awaited(LanceDataset.filter)
    get_fragment = _awaited(LanceDataset.get_fragment)
    join = _awaited(LanceDataset.join)
    join_asof = _awaited(LanceDataset.join_asof)
    mem_wal_writer = _awaited(LanceDataset.mem_wal_writer)
    slice = _awaited(LanceDataset.slice)
    sort_by = _awaited(LanceDataset.sort_by)  # type: ignore[arg-type]  # named arguments may not be called `self`
    stream = _batches(LanceDataset.stream)
    to_arrow = _table(LanceDataset.scanner, LanceDataset.to_arrow)
    describe_indices = _awaited(LanceDataset.describe_indices)
    diff = _awaited(LanceDataset.diff)
    explain_cleanup_old_versions = _awaited(LanceDataset.explain_cleanup_old_versions)
    explain_score = _awaited(LanceDataset.explain_score)
    get_fragments = _awaited(LanceDataset.get_fragments)
    get_ivf_model = _awaited(LanceDataset.get_ivf_model)
    get_transactions = _awaited(LanceDataset.get_transactions)
    get_version = _awaited(LanceDataset.get_version)
    head = _awaited(LanceDataset.head)  # type: ignore[arg-type]  # named arguments may not be called `self`
    highlight = _awaited(LanceDataset.highlight)
    hybrid_search = _awaited(LanceDataset.hybrid_search)
    index_statistics = _awaited(LanceDataset.index_statistics)
    latest_storage_options = _awaited(LanceDataset.latest_storage_options)
    list_indices = _awaited(LanceDataset.list_indices)
    mem_wal_index_details = _awaited(LanceDataset.mem_wal_index_details)
    mem_wal_shards = _awaited(LanceDataset.mem_wal_shards)
    prewarm_index = _awaited(LanceDataset.prewarm_index)
    read_blob_ranges = _awaited(LanceDataset.read_blob_ranges)
    read_blobs = _awaited(LanceDataset.read_blobs)
    read_transaction = _awaited(LanceDataset.read_transaction)
    recall_report = _awaited(LanceDataset.recall_report)
    sample = _awaited(LanceDataset.sample)  # type: ignore[arg-type]  # named arguments may not be called `self`
    take = _awaited(LanceDataset.take)
    take_blobs = _awaited(LanceDataset.take_blobs)
    to_pandas = _awaited(LanceDataset.to_pandas)  # type: ignore[arg-type]  # named arguments may not be called `self`
    to_polars = _awaited(LanceDataset.to_polars)
    tracked_files = _awaited(LanceDataset.tracked_files)
    tune = _awaited(LanceDataset.tune)
    validate = _awaited(LanceDataset.validate)
    version_refs = _awaited(LanceDataset.version_refs)
    versions = _awaited(LanceDataset.versions)

    add_bases = _change(LanceDataset.add_bases)
    add_columns = _change(LanceDataset.add_columns)
    alter_columns = _change(LanceDataset.alter_columns)
    checkout_latest = _change(LanceDataset.checkout_latest)
    cleanup_old_versions = _change(LanceDataset.cleanup_old_versions)
    collect_mem_wal = _change(LanceDataset.collect_mem_wal)
    commit_compaction = _change(LanceDataset.commit_compaction)
    commit_existing_index_segments = _change(LanceDataset.commit_existing_index_segments)
    compact_mem_wal = _change(LanceDataset.compact_mem_wal)
    create_index = _change(LanceDataset.create_index)
    create_index_uncommitted = _change(LanceDataset.create_index_uncommitted)  # type: ignore[arg-type]  # named arguments may not be called `self`
    create_scalar_index = _change(LanceDataset.create_scalar_index)  # type: ignore[arg-type]  # named arguments may not be called `self`
    delete = _change(LanceDataset.delete)
    delete_config_keys = _change(LanceDataset.delete_config_keys)
    drop_columns = _change(LanceDataset.drop_columns)
    drop_index = _change(LanceDataset.drop_index)
    drop_mem_wal = _change(LanceDataset.drop_mem_wal)
    initialize_mem_wal = _change(LanceDataset.initialize_mem_wal)
    insert = _change(LanceDataset.insert)  # type: ignore[arg-type]  # named arguments may not be called `self`
    maintain = _change(LanceDataset.maintain)
    merge = _change(LanceDataset.merge)
    merge_existing_index_segments = _change(LanceDataset.merge_existing_index_segments)
    merge_index_metadata = _change(LanceDataset.merge_index_metadata)
    migrate_manifest_paths_v2 = _change(LanceDataset.migrate_manifest_paths_v2)
    migrate_to_stable_row_ids = _change(LanceDataset.migrate_to_stable_row_ids)
    note_mem_wal_shards = _change(LanceDataset.note_mem_wal_shards)
    remap_row_addrs = _change(LanceDataset.remap_row_addrs)
    repair = _change(LanceDataset.repair)
    replace_columns = _change(LanceDataset.replace_columns)
    refresh_columns = _change(LanceDataset.refresh_columns)
    replace_field_metadata = _change(LanceDataset.replace_field_metadata)
    replace_schema = _change(LanceDataset.replace_schema)
    replace_schema_metadata = _change(LanceDataset.replace_schema_metadata)
    restore = _change(LanceDataset.restore)
    run_compaction = _change(LanceDataset.run_compaction)
    run_optimize_indices = _change(LanceDataset.run_optimize_indices)
    seal_mem_wal_shard = _change(LanceDataset.seal_mem_wal_shard)
    truncate_table = _change(LanceDataset.truncate_table)
    update = _change(LanceDataset.update)
    update_base_paths = _change(LanceDataset.update_base_paths)
    update_config = _change(LanceDataset.update_config)
    update_field_metadata = _change(LanceDataset.update_field_metadata)
    update_metadata = _change(LanceDataset.update_metadata)
    update_schema_metadata = _change(LanceDataset.update_schema_metadata)
    compact_files = _maintenance(DatasetOptimizer.compact_files)
    optimize_indices = _maintenance(DatasetOptimizer.optimize_indices)  # type: ignore[arg-type]  # named arguments may not be called `self`

    checkout_version = _reopened(LanceDataset.checkout_version)
    shallow_clone = _reopened(LanceDataset.shallow_clone)
    deep_clone = _reopened(LanceDataset.deep_clone)
    create_branch = _reopened(LanceDataset.create_branch)
    create_view = _reopened(LanceDataset.create_view)

    data_storage_version = _attribute(LanceDataset, "data_storage_version")
    default_scan_options = _attribute(LanceDataset, "default_scan_options")
    fragment_ids = _attribute(LanceDataset, "fragment_ids")
    has_index = _attribute(LanceDataset, "has_index")
    has_stable_row_ids = _attribute(LanceDataset, "has_stable_row_ids")
    initial_storage_options = _attribute(LanceDataset, "initial_storage_options")
    lance_schema = _attribute(LanceDataset, "lance_schema")
    max_field_id = _attribute(LanceDataset, "max_field_id")
    metadata = _attribute(LanceDataset, "metadata")
    schema = _attribute(LanceDataset, "schema")
    schema_metadata = _attribute(LanceDataset, "schema_metadata")
    uri = _attribute(LanceDataset, "uri")
    version = _attribute(LanceDataset, "version")


def _opening(function: Callable[P, Any]) -> Callable[P, Coroutine[Any, Any, AsyncDataset]]:
    """Return a coroutine function for a function that opens or creates a dataset."""

    @wraps(function)
    async def call(*arguments: P.args, **options: P.kwargs) -> AsyncDataset:
        made = await run(function, *arguments, **options)
        if not isinstance(made, LanceDataset):
            raise InvalidInputError(
                "with `dry_run` no dataset is created; call `aio.run(write_dataset, ...)` instead"
            )
        return AsyncDataset(made)

    return call


dataset = _opening(open_dataset)
write_dataset = _opening(write_rows)


def sql(
    query: str, tables: Mapping[str, SqlTable | AsyncDataset] | None = None
) -> Coroutine[Any, Any, AsyncSqlQuery]:
    """Query several tables with SQL; see `lancelet.sql`.

    Args:
        query: One statement in DuckDB's SQL.
        tables: The tables by name, among them `AsyncDataset`s. By default, table names refer to
            variables of the caller or of its module.

    Returns:
        A coroutine of the query, which runs when its rows are read.

    Example:
        ```python
        import asyncio

        async def names():
            books = lance.aio.AsyncDataset(dataset)
            query = await lance.aio.sql("SELECT name FROM books ORDER BY id LIMIT 2")
            return await query.to_table()

        asyncio.run(names())
        ```
    """
    if tables is None:
        # The variables must be read before the coroutine runs, which has another caller.
        tables = tables_of_caller(query, sys._getframe(1), _unwrapped)  # noqa: SLF001 - as DuckDB
    given = {name: _unwrapped(table) for name, table in tables.items()}
    return _sql_query(query, given)


async def _sql_query(query: str, tables: Mapping[str, SqlTable]) -> AsyncSqlQuery:
    return AsyncSqlQuery(await run(sql_over, query, tables), None, _LoopLock())
