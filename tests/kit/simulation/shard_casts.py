"""Small scenarios of the log of a shard whose interleavings are all executed.

    two claims        A and B each open a writer and put a row; the later claim fences the earlier
    a flush, merge    A puts and closes, which flushes; M merges the flushed tables
    two merges        M and N merge one flushed table
    merge, collect    M merges the flushed tables, C deletes unreferenced files
    drop, claim       D drops the log, X and Y open writers of a new shard, I creates a log

Others have threads of one writer, whose locks are steps of the search as well:

    put, put          P and Q put rows at the same time, and may share an entry of the log
    put, flush        F flushes while P puts; memory holds two rows
    put, read         V reads the rows while P puts and F flushes

Initially, one writer flushed row 0, and another put row 1 and died. The table has no key, so rows
that are replayed or merged twice are detected. Dropped logs have no shards.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

import lancelet
from lancelet.errors import CommitError, InvalidInputError, NotFoundError, StorageError
from lancelet.io.memory import MemoryStore
from lancelet.memwal.writer import WriterView
from tests.kit.simulation.casts import Scene
from tests.kit.simulation.interleavings import Cast
from tests.kit.simulation.judge import BUCKET, MAIN
from tests.kit.simulation.machine import seeded

_SHARD: Final = str(uuid.UUID(int=7))
_NEW: Final = str(uuid.UUID(int=8))
_BEFORE: Final = (0, 1)
"""The initial rows."""
_OUTCOMES: Final = (CommitError, StorageError, NotFoundError)


def _rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def _open() -> lancelet.LanceDataset:
    session = lancelet.Session(1 << 20, 1 << 20)
    return lancelet.dataset(f"memory://{BUCKET}/{MAIN}", session=session)


@dataclass(slots=True)
class ShardStage:
    """A table whose log has a flushed and an unflushed row, or no shard."""

    stored: dict[str, Any]
    rows: tuple[int, ...]

    @staticmethod
    @seeded()
    def built(rows: tuple[int, ...] = _BEFORE) -> ShardStage:
        """Create the table in the environment of the machine."""
        MemoryStore.reset(BUCKET)
        dataset = lancelet.write_dataset(_rows(), f"memory://{BUCKET}/{MAIN}")
        dataset.initialize_mem_wal(unsharded=True)
        for row in rows[:1]:
            with _open().mem_wal_writer(_SHARD) as writer:
                writer.put(_rows(row))
        for row in rows[1:]:
            _open().mem_wal_writer(_SHARD).put(_rows(row))
        return ShardStage(dict(MemoryStore(BUCKET)._objects.by_key), rows)

    def scene(self, names: Iterable[str]) -> Scene:
        """Return the scenario of some actors.

        `a` and `b` write, `f` flushes, `m` and `n` merge, `c` collects, `d` drops the log, and `i`
        creates one; `x` and `y` write a new shard.
        """

        def make() -> tuple[Cast, Callable[[Cast], None]]:
            cast = Cast()
            acknowledged: list[int] = []
            begun: list[int] = []

            def put(row: int, shard: str = _SHARD) -> None:
                writer = _open().mem_wal_writer(shard)
                begun.append(row)
                writer.put(_rows(row))
                acknowledged.append(row)

            def flush() -> None:
                with _open().mem_wal_writer(_SHARD) as writer:
                    begun.append(12)
                    writer.put(_rows(12))
                    acknowledged.append(12)

            tasks: dict[str, Callable[[], object]] = {
                "a": lambda: put(10),
                "b": lambda: put(11),
                "f": flush,
                "m": lambda: _open().compact_mem_wal(),
                "n": lambda: _open().compact_mem_wal(),
                "c": lambda: _open().collect_mem_wal(),
                "x": lambda: put(13, _NEW),
                "y": lambda: put(14, _NEW),
                "d": lambda: _open().drop_mem_wal(),
                "i": lambda: _open().initialize_mem_wal(unsharded=True),
            }
            for name in names:
                cast.add(name, tasks[name])

            def judge(cast: Cast) -> None:
                for name, outcome in cast.outcomes.items():
                    may_be = (*_OUTCOMES, InvalidInputError) if name in "dixy" else _OUTCOMES
                    assert not isinstance(outcome, Exception) or isinstance(outcome, may_be), (
                        name,
                        outcome,
                    )
                # The content of the log is replayed, flushed and merged; a dropped log has none.
                if _open().mem_wal_index_details() is not None:
                    _open().compact_mem_wal(flush=True)
                    _open().collect_mem_wal()
                found = Counter(_open().to_table()["id"].to_pylist())
                least, most = Counter([*self.rows, *acknowledged]), Counter([*self.rows, *begun])
                assert least <= found <= most, f"{found} after {acknowledged} of {begun}"

            return cast, judge

        return make

    def scene_of_threads(self, names: Iterable[str], *, is_durable: bool = True) -> Scene:
        """Return the scenario of threads of one writer, whose memory has room for two rows.

        `p` and `q` put a row, `f` flushes, `v` reads, and `l` writes pending rows to the log.
        """

        def make() -> tuple[Cast, Callable[[Cast], None]]:
            cast = Cast()
            writer = _open().mem_wal_writer(
                _SHARD,
                durable_write=is_durable,
                max_memtable_rows=2,
                max_wal_flush_interval_ms=0,
            )
            acknowledged: list[int] = []
            begun: list[int] = []
            views: list[tuple[list[int], WriterView, list[int]]] = []

            def put(row: int) -> None:
                begun.append(row)
                writer.put(_rows(row))
                acknowledged.append(row)

            def view() -> None:
                before = list(acknowledged)
                found = writer._writer.view()
                views.append((before, found, list(begun)))

            tasks: dict[str, Callable[[], object]] = {
                "p": lambda: put(20),
                "q": lambda: put(21),
                "f": lambda: _flushed(writer),
                "v": view,
                "l": writer._writer.log_pending,
            }
            for name in names:
                cast.add(name, tasks[name])

            def judge(cast: Cast) -> None:
                for name, outcome in cast.outcomes.items():
                    is_failure = isinstance(outcome, Exception)
                    assert not is_failure or isinstance(outcome, _OUTCOMES), (name, outcome)
                for before, seen, after in views:
                    _check_between(self.rows, before, _ids_of(seen), after)
                if not is_durable and not _flushed(writer):
                    acknowledged.clear()  # they may be in memory only
                _open().compact_mem_wal(flush=True)
                found = _open().to_table()["id"].to_pylist()
                _check_between(self.rows, acknowledged, found, begun)

            return cast, judge

        return make


def _flushed(writer: Any) -> bool:
    try:
        writer._writer.flush()
    except _OUTCOMES:
        return False
    return True


def _ids_of(view: WriterView) -> list[int]:
    """Return the ids of the flushed tables and of the rows in memory."""
    found: list[int] = view.rows["id"].to_pylist()
    for table in view.manifest.sstables:
        uri = f"memory://{BUCKET}/{MAIN}/_mem_wal/{_SHARD}/{table.path}"
        found += lancelet.dataset(uri).to_table()["id"].to_pylist()
    return found


def _check_between(
    rows: Iterable[int], least: Iterable[int], found: Iterable[int], most: Iterable[int]
) -> None:
    at_least, at_most = Counter([*rows, *least]), Counter([*rows, *most])
    assert at_least <= Counter(found) <= at_most, f"{found} after {at_least} of {at_most}"
