"""Small scenarios of the log of a shard, of which every order is run.

    two claims        A and B each open a writer and put a row; the later claim fences the earlier
    a flush, merge    A puts and closes, which flushes; M merges what is flushed
    two merges        M and N merge one flushed table
    merge, collect    M merges what is flushed, C deletes what nobody will read
    drop, claim       D drops the log, X and Y open writers of a shard that is new, I begins a log

Before, a writer flushed row 0, and another one put row 1 and died. The table has no key, so a row
that was replayed or merged twice would be seen. Logs are dropped that have no shards yet.
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
from tests.kit.simulation.casts import Scene
from tests.kit.simulation.interleavings import Cast
from tests.kit.simulation.judge import BUCKET, MAIN

_SHARD: Final = str(uuid.UUID(int=7))
_NEW: Final = str(uuid.UUID(int=8))
_BEFORE: Final = (0, 1)
"""The rows that are there before."""
_TOLD: Final = (CommitError, StorageError, NotFoundError)


def _rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def _open() -> lancelet.LanceDataset:
    session = lancelet.Session(1 << 20, 1 << 20)
    return lancelet.dataset(f"memory://{BUCKET}/{MAIN}", session=session)


@dataclass(slots=True)
class ShardStage:
    """A table with a log, which has a flushed row, and one that only the log has; or no shard."""

    stored: dict[str, Any]
    rows: tuple[int, ...]

    @staticmethod
    def built(rows: tuple[int, ...] = _BEFORE) -> ShardStage:
        """Build it, under the surroundings of the machine."""
        MemoryStore.renew(BUCKET)
        dataset = lancelet.write_dataset(_rows(), f"memory://{BUCKET}/{MAIN}")
        dataset.initialize_mem_wal(unsharded=True)
        for row in rows[:1]:
            with _open().mem_wal_writer(_SHARD) as writer:
                writer.put(_rows(row))
        for row in rows[1:]:
            _open().mem_wal_writer(_SHARD).put(_rows(row))
        return ShardStage(dict(MemoryStore(BUCKET)._objects.by_key), rows)

    def scene(self, names: Iterable[str]) -> Scene:
        """Return the scenario of some actors: `a`, `b`, `x`, `y` write, `f` flushes, `m`, `n`, `c`.

        `d` drops the log, and `i` begins one; `x` and `y` write a shard that is new.
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
                for name, told in cast.told.items():
                    may_be = (*_TOLD, InvalidInputError) if name in "dixy" else _TOLD
                    assert not isinstance(told, Exception) or isinstance(told, may_be), (name, told)
                # What is in the log is replayed, flushed, and merged; a log that is gone has none.
                if _open().mem_wal_index_details() is not None:
                    _open().compact_mem_wal(flush=True)
                    _open().collect_mem_wal()
                found = Counter(_open().to_table()["id"].to_pylist())
                least, most = Counter([*self.rows, *acknowledged]), Counter([*self.rows, *begun])
                assert least <= found <= most, f"{found} after {acknowledged} of {begun}"

            return cast, judge

        return make
