"""Asynchronous datasets: methods of `LanceDataset` as coroutines, run by a bounded thread pool.

    table = await aio.dataset("books.lance")
    rows = await table.to_table(["name"], filter="price > 3")
    async for batch in table.to_batches():
        ...

An `AsyncDataset` has the methods of `LanceDataset` that read or write, with the same names,
arguments and results. `run` calls any other function. A cancelled call stops at the next batch
or step. A cancelled change stops before its commit, unless it has already committed.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, Protocol, TypeVar

import pyarrow as pa

from lancelet.change.progress import reporting
from lancelet.config import CPU_THREADS
from lancelet.dataset.dataset import LanceDataset
from lancelet.dataset.maintenance.maintenance import DatasetOptimizer
from lancelet.dataset.scan.scanner import LanceScanner
from lancelet.dataset.write.write import dataset as open_dataset
from lancelet.dataset.write.write import write_dataset as write_rows
from lancelet.errors import CancelledError, InvalidInputError

if TYPE_CHECKING:
    from lancelet.dataset.mutation import ExecuteResult, MergeInsertBuilder

__all__ = ["AsyncDataset", "batches", "dataset", "run", "write_dataset"]

P = ParamSpec("P")
T = TypeVar("T")

_END: Final = object()
_IO_THREADS: Final = 4
"""Threads in addition to one per processor, because calls also wait for storage."""

_POOL: ThreadPoolExecutor | None = None
_POOL_LOCK: Final = threading.Lock()


class Streams(Protocol):
    """A source of rows: a dataset, a scanner or a query."""

    def stream(self) -> pa.RecordBatchReader:
        """Return the rows as a stream."""


def _pool() -> ThreadPoolExecutor:
    global _POOL  # noqa: PLW0603 - one pool per process, created at the first use
    with _POOL_LOCK:
        if _POOL is None:
            _POOL = ThreadPoolExecutor(CPU_THREADS + _IO_THREADS, "lancelet-aio")
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
    try:
        return await asyncio.shield(asyncio.wrap_future(done))
    except asyncio.CancelledError:
        stopped.set()
        if not done.cancel():
            await asyncio.wait([asyncio.wrap_future(done)])
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


def _awaited(
    method: Callable[Concatenate[LanceDataset, P], T],
) -> Callable[Concatenate[AsyncDataset, P], Coroutine[Any, Any, T]]:
    """Return a coroutine function for a read method."""

    @wraps(method)
    async def call(self: AsyncDataset, /, *arguments: P.args, **options: P.kwargs) -> T:
        return await _call(self.executor, lambda _: method(self.dataset, *arguments, **options))

    return call


def _change(
    method: Callable[Concatenate[LanceDataset, P], T],
) -> Callable[Concatenate[AsyncDataset, P], Coroutine[Any, Any, T]]:
    """Return a coroutine function for a method that commits; changes of a dataset run in order."""
    awaited = _awaited(method)

    @wraps(method)
    async def call(self: AsyncDataset, /, *arguments: P.args, **options: P.kwargs) -> T:
        async with self.lock:
            return await awaited(self, *arguments, **options)

    return call


def _maintenance(
    method: Callable[Concatenate[DatasetOptimizer, P], T],
) -> Callable[Concatenate[AsyncDataset, P], Coroutine[Any, Any, T]]:
    """Return a coroutine function for a method of `optimize`."""

    @wraps(method)
    async def call(self: AsyncDataset, /, *arguments: P.args, **options: P.kwargs) -> T:
        async with self.lock:
            return await _call(
                self.executor, lambda _: method(self.dataset.optimize, *arguments, **options)
            )

    return call


def _table(
    scanner: Callable[Concatenate[LanceDataset, P], LanceScanner],
) -> Callable[Concatenate[AsyncDataset, P], Coroutine[Any, Any, pa.Table]]:
    """Return `to_table` as a coroutine function that checks for cancellation after each batch."""

    @wraps(LanceDataset.to_table)
    async def call(self: AsyncDataset, /, *arguments: P.args, **options: P.kwargs) -> pa.Table:
        def read(stopped: threading.Event) -> pa.Table:
            scan = scanner(self.dataset, *arguments, **options)
            found = []
            for batch in scan.to_batches():
                if stopped.is_set():
                    raise CancelledError("the task was cancelled")
                found.append(batch)
            return pa.Table.from_batches(found, scan.projected_schema)

        return await _call(self.executor, read)

    return call


def _batches(
    method: Callable[Concatenate[LanceDataset, P], Any],
) -> Callable[Concatenate[AsyncDataset, P], AsyncIterator[pa.RecordBatch]]:
    """Return `to_batches` as an asynchronous generator."""

    @wraps(method)
    async def call(
        self: AsyncDataset, /, *arguments: P.args, **options: P.kwargs
    ) -> AsyncIterator[pa.RecordBatch]:
        iterator = await _call(self.executor, lambda _: method(self.dataset, *arguments, **options))
        async for batch in _each(iterator, self.executor):
            yield batch

    return call


class AsyncDataset:
    """A dataset with asynchronous methods.

    Reads run concurrently; changes made through one `AsyncDataset` run sequentially.

    Attributes:
        dataset: The wrapped dataset, for members that do no I/O, such as `schema` and `version`.
        executor: The pool that runs the calls; None for the pool of this module.
        lock: Serializes changes.

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

    def __init__(self, dataset: LanceDataset, executor: Executor | None = None) -> None:
        """Wrap a dataset; calls run in `executor`."""
        self.dataset = dataset
        self.executor = executor
        self.lock = asyncio.Lock()

    def __repr__(self) -> str:
        """Show the dataset."""
        return f"AsyncDataset({self.dataset!r})"

    to_table = _table(LanceDataset.scanner)
    to_batches = _batches(LanceDataset.to_batches)
    count_rows = _awaited(LanceDataset.count_rows)  # type: ignore[arg-type]  # named arguments may not be called `self`
    head = _awaited(LanceDataset.head)  # type: ignore[arg-type]  # named arguments may not be called `self`
    take = _awaited(LanceDataset.take)
    sample = _awaited(LanceDataset.sample)  # type: ignore[arg-type]  # named arguments may not be called `self`
    hybrid_search = _awaited(LanceDataset.hybrid_search)
    read_blobs = _awaited(LanceDataset.read_blobs)
    versions = _awaited(LanceDataset.versions)
    describe_indices = _awaited(LanceDataset.describe_indices)
    prewarm_index = _awaited(LanceDataset.prewarm_index)
    check = _awaited(LanceDataset.check)

    insert = _change(LanceDataset.insert)  # type: ignore[arg-type]  # named arguments may not be called `self`
    delete = _change(LanceDataset.delete)
    update = _change(LanceDataset.update)
    add_columns = _change(LanceDataset.add_columns)
    alter_columns = _change(LanceDataset.alter_columns)
    drop_columns = _change(LanceDataset.drop_columns)
    create_scalar_index = _change(LanceDataset.create_scalar_index)  # type: ignore[arg-type]  # named arguments may not be called `self`
    create_index = _change(LanceDataset.create_index)
    drop_index = _change(LanceDataset.drop_index)
    restore = _change(LanceDataset.restore)
    checkout_latest = _change(LanceDataset.checkout_latest)
    cleanup_old_versions = _change(LanceDataset.cleanup_old_versions)
    compact_files = _maintenance(DatasetOptimizer.compact_files)
    optimize_indices = _maintenance(DatasetOptimizer.optimize_indices)  # type: ignore[arg-type]  # named arguments may not be called `self`

    async def merge(self, builder: MergeInsertBuilder, data: Any, **options: Any) -> ExecuteResult:
        """Execute an upsert.

        Args:
            builder: A builder of the `dataset`, from `merge_insert`.
            data: The source rows.
            options: Keyword arguments of `MergeInsertBuilder.execute`.

        Returns:
            The numbers of inserted, updated and deleted rows.

        Raises:
            SchemaMismatchError: If the rows do not match the schema.
            CommitConflictError: If a concurrent commit changed the same rows.

        Example:
            ```python
            import asyncio

            table = lance.aio.AsyncDataset(dataset)
            upsert = dataset.merge_insert("id").when_matched_update_all()
            asyncio.run(table.merge(upsert, new_books))
            ```
        """
        async with self.lock:
            return await _call(self.executor, lambda _: builder.execute(data, **options))

    async def checkout_version(self, *arguments: Any, **options: Any) -> AsyncDataset:
        """Return the dataset at another version.

        Args:
            arguments: Positional arguments of `LanceDataset.checkout_version`.
            options: Keyword arguments of `LanceDataset.checkout_version`.

        Returns:
            The dataset at that version.

        Raises:
            VersionNotFoundError: If the version does not exist or was cleaned up.

        Example:
            ```python
            import asyncio

            asyncio.run(lance.aio.AsyncDataset(dataset).checkout_version(1))
            ```
        """
        found = await _call(
            self.executor, lambda _: self.dataset.checkout_version(*arguments, **options)
        )
        return AsyncDataset(found, self.executor)


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
