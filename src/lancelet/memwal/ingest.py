"""Write batches of a stream to the log, in order for each shard.

    batch 42    record its start; for each shard: claim it, check for later batches, write the rows
    again       the same rows are written again, which has no effect because of their keys
    batch 41    of a run that was suspended for hours: 42 has started, so nothing is written

If another run records batch 43 after this run has checked, it also claims the shard, and the writes
of this run fail. Therefore, the batches of a shard are in order, even with concurrent runs.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar
from urllib.parse import quote

import numpy as np
import pyarrow as pa

from lancelet.encodings.take import take_from_table
from lancelet.errors import AlreadyExistsError, InvalidInputError, StorageError
from lancelet.io.pool import run_requests
from lancelet.io.store import Store
from lancelet.memwal.discovery import latest_shards
from lancelet.memwal.shard import FencedError, Shard
from lancelet.memwal.sharding import evaluate_spec
from lancelet.memwal.state import MemWalState, require_mem_wal
from lancelet.memwal.writer import MemWalWriter
from lancelet.table.snapshot import Snapshot

T = TypeVar("T")

_BEGUN: Final = "_streams"
_SHARDS: Final = uuid.UUID("5b0e6a0c-6f3e-4d0c-9d53-7c1f3a2a9f60")
"""The namespace of shard ids, which are derived from shard key values."""
_CLAIMS: Final = 20
_CONFIG: Final[Mapping[str, int | bool | None]] = {
    "durable_write": True,
    "max_memtable_batches": 32,
}
"""The options of writers for batches. A batch is complete when its rows are in the log. Each batch
opens the shards again and replays unflushed rows, so the limit on batches in memory is low."""


class NoKeyInLogError(InvalidInputError):
    """Streaming writes require a primary key, and the table has none."""


def check_log(snapshot: Snapshot) -> MemWalState:
    """Return the log of a table that supports streaming writes."""
    if not snapshot.schema.primary_key:
        raise NoKeyInLogError(
            "a stream writes the log of a table with a primary key only, since a batch may come "
            "twice; set lance-schema:unenforced-primary-key on the fields of the key",
            table=snapshot.location.uri,
        )
    return require_mem_wal(snapshot)


def log_batch(snapshot: Snapshot, rows: pa.Table, sequence: str, number: int) -> bool:
    """Write the rows of a batch to the log; return False if a later batch has started.

    The rows are durable on return. After an error, the batch can be written again.

    Args:
        snapshot: The table.
        rows: Columns of the table, without duplicate keys.
        sequence: The name of the stream.
        number: The number of the batch, from 0 and increasing.
    """
    return log_parts(snapshot, (rows,), sequence, number)


def log_parts(snapshot: Snapshot, parts: Iterable[pa.Table], sequence: str, number: int) -> bool:
    """Write a batch like `log_batch`, one part after the other, without holding all rows."""
    state = check_log(snapshot)
    begun = _Begun(snapshot.location.store, sequence, number)
    if not begun.record():
        return False
    for rows in parts:
        shards = list(_by_shard(rows, state, snapshot).items())
        puts = [partial(_put, snapshot, begun, *each) for each in shards]
        if not all(run_requests([partial(_with_claims, each) for each in puts])):
            return False
    begun.forget_earlier()
    return True


def flush_logs(snapshot: Snapshot) -> int:
    """Flush rows that are only in logs, and return the number of shards with such rows.

    Writers of these shards are replaced; a shard that is claimed concurrently is claimed again.
    """
    flushed = 0
    for manifest in latest_shards(snapshot):
        shard = Shard(snapshot.location, manifest.shard_id)
        if any(entry.batches for entry in shard.entries(manifest.replay_after)):
            _with_claims(partial(_flush, snapshot, manifest.shard_id))
            flushed += 1
    return flushed


class _Begun:
    """The started batches of a stream: one object per batch, which is never replaced."""

    def __init__(self, store: Store, sequence: str, number: int) -> None:
        self._store = store
        self._folder = f"{_BEGUN}/{quote(sequence, safe='')}"
        self._number = number

    def record(self) -> bool:
        """Record the start of the batch, unless a later batch has started."""
        if not self.is_last():
            return False
        with suppress(AlreadyExistsError):
            self._store.put_if_absent(self._path(self._number), b"begun")
        return True

    def is_last(self) -> bool:
        return max(self._numbers(), default=-1) <= self._number

    def forget_earlier(self) -> None:
        """Delete records of earlier batches; remaining records have no effect."""
        with suppress(StorageError):
            earlier = [each for each in self._numbers() if each < self._number]
            self._store.delete_many([self._path(each) for each in earlier])

    def _numbers(self) -> list[int]:
        return [int(name) for name in self._store.list_names(self._folder) if name.isdigit()]

    def _path(self, number: int) -> str:
        return f"{self._folder}/{number}"


def _with_claims(work: Callable[[], T]) -> T:
    """Return the result of a function on a claimed shard; retry if another writer claims it."""
    for _ in range(_CLAIMS - 1):
        with suppress(FencedError):
            return work()
    return work()


def _flush(snapshot: Snapshot, shard_id: uuid.UUID) -> None:
    MemWalWriter(snapshot, shard_id, {}).close()


def _put(snapshot: Snapshot, begun: _Begun, shard_id: uuid.UUID, rows: pa.Table) -> bool:
    """Write rows to a shard, unless a later batch has started."""
    writer = MemWalWriter(snapshot, shard_id, _CONFIG)
    if not begun.is_last():
        return False
    for start in range(0, len(rows), writer.rows_max):
        writer.put(rows.slice(start, writer.rows_max).to_batches())
    return True


def _by_shard(rows: pa.Table, state: MemWalState, snapshot: Snapshot) -> dict[uuid.UUID, pa.Table]:
    """Return the rows of each shard, in order."""
    if not len(rows):
        return {}
    if not state.specs or not state.specs[0].fields:
        return {_shard_id(0, []): rows}
    (spec,) = state.specs
    (batch,) = rows.combine_chunks().to_batches()
    values = pa.Table.from_batches([evaluate_spec(batch, spec, snapshot.schema)])
    numbered = values.append_column("__row", pa.array(np.arange(len(rows))))
    grouped = numbered.group_by(values.column_names).aggregate([("__row", "list")])
    keys = zip(*(grouped[name].to_pylist() for name in values.column_names), strict=True)
    found = {}
    for key, row_indices in zip(keys, grouped["__row_list"], strict=True):
        own = np.sort(row_indices.values.to_numpy())
        found[_shard_id(spec.spec_id, key)] = take_from_table(rows, pa.array(own))
    return found


def _shard_id(spec_id: int, values: Iterable[object]) -> uuid.UUID:
    return uuid.uuid5(_SHARDS, json.dumps([spec_id, *map(str, values)]))
