"""Batches of a stream in the log: each shard gets its rows, and no batch follows a later one.

    batch 42    noted as begun, then for each shard: claim it, look what has begun, put its rows
    again       the same rows once more, which by their keys change nothing
    batch 41    of a run that was stopped for hours: 42 has begun, so nothing is put

A run that notes 43 after this one has looked claims the shard after it as well, and this one is
refused by the shard. So the rows of a shard come in the order of batches, whoever brings them.
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
from lancelet.ops.mem_wal.discovery import latest_shards
from lancelet.ops.mem_wal.shard import FencedError, Shard
from lancelet.ops.mem_wal.sharding import evaluate_spec
from lancelet.ops.mem_wal.state import MemWalState, require_mem_wal
from lancelet.ops.mem_wal.writer import MemWalWriter
from lancelet.table.snapshot import Snapshot

T = TypeVar("T")

_BEGUN: Final = "_streams"
_SHARDS: Final = uuid.UUID("5b0e6a0c-6f3e-4d0c-9d53-7c1f3a2a9f60")
"""What ids of shards are derived from, with the values that tell which rows belong to them."""
_CLAIMS: Final = 20
_CONFIG: Final[Mapping[str, int | bool | None]] = {
    "durable_write": True,
    "max_memtable_batches": 32,
}
"""A batch counts as logged when it was put, whatever the table says of other writers. Each opens
its shards anew and replays what was not flushed, so that is kept short."""


class NoKeyInLogError(InvalidInputError):
    """Rows of a stream are told apart by a primary key, and there is none."""


def check_log(snapshot: Snapshot) -> MemWalState:
    """Return the state of a log that takes batches of streams."""
    if not snapshot.schema.primary_key:
        raise NoKeyInLogError(
            "a stream writes the log of a table with a primary key only, since a batch may come "
            "twice; set lance-schema:unenforced-primary-key on the fields of the key",
            table=snapshot.location.uri,
        )
    return require_mem_wal(snapshot)


def log_batch(snapshot: Snapshot, rows: pa.Table, sequence: str, number: int) -> bool:
    """Put the rows of a batch into the log, and return whether a later one had not begun.

    What returned is not lost, and what raised may come again.

    Args:
        snapshot: The table to write for.
        rows: Columns of the table; no key is there twice.
        sequence: What the batch is one of.
        number: Which one, from 0 on; a later one is greater.
    """
    state = check_log(snapshot)
    begun = _Begun(snapshot.location.store, sequence, number)
    if not begun.note():
        return False
    shards = list(_by_shard(rows, state, snapshot).items())
    puts = [partial(_put, snapshot, begun, *each) for each in shards]
    done = run_requests([partial(_with_claims, each) for each in puts])
    if all(done):
        begun.forget_earlier()
    return all(done)


def flush_logs(snapshot: Snapshot) -> int:
    """Flush rows that are in logs alone, and return how many shards had some.

    Their writers have to be opened again; a shard that one claims meanwhile is claimed once more.
    """
    flushed = 0
    for manifest in latest_shards(snapshot):
        shard = Shard(snapshot.location, manifest.shard_id)
        if any(entry.batches for entry in shard.entries(manifest.replay_after)):
            _with_claims(partial(_flush, snapshot, manifest.shard_id))
            flushed += 1
    return flushed


class _Begun:
    """Which batches of a sequence have begun: an object for each, which is never replaced."""

    def __init__(self, store: Store, sequence: str, number: int) -> None:
        self._store = store
        self._folder = f"{_BEGUN}/{quote(sequence, safe='')}"
        self._number = number

    def note(self) -> bool:
        """Note that the batch begins, unless a later one has."""
        if not self.is_last():
            return False
        with suppress(AlreadyExistsError):
            self._store.put_if_absent(self._path(self._number), b"begun")
        return True

    def is_last(self) -> bool:
        return max(self._numbers(), default=-1) <= self._number

    def forget_earlier(self) -> None:
        """Delete what a later batch says as well; what stays does no harm."""
        with suppress(StorageError):
            earlier = [each for each in self._numbers() if each < self._number]
            self._store.delete_many([self._path(each) for each in earlier])

    def _numbers(self) -> list[int]:
        return [int(name) for name in self._store.list_names(self._folder) if name.isdigit()]

    def _path(self, number: int) -> str:
        return f"{self._folder}/{number}"


def _with_claims(work: Callable[[], T]) -> T:
    """Return what work on a claimed shard returns, done again where others claim it meanwhile."""
    for _ in range(_CLAIMS - 1):
        with suppress(FencedError):
            return work()
    return work()


def _flush(snapshot: Snapshot, shard_id: uuid.UUID) -> None:
    MemWalWriter(snapshot, shard_id, {}).close()


def _put(snapshot: Snapshot, begun: _Begun, shard_id: uuid.UUID, rows: pa.Table) -> bool:
    """Put rows into a shard, unless a later batch has begun."""
    writer = MemWalWriter(snapshot, shard_id, _CONFIG)
    if not begun.is_last():
        return False
    for start in range(0, len(rows), writer.rows_max):
        writer.put(rows.slice(start, writer.rows_max).to_batches())
    return True


def _by_shard(rows: pa.Table, state: MemWalState, snapshot: Snapshot) -> dict[uuid.UUID, pa.Table]:
    """Return the rows of each shard, in their order."""
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
    for key, places in zip(keys, grouped["__row_list"], strict=True):
        own = np.sort(places.values.to_numpy())
        found[_shard_id(spec.spec_id, key)] = take_from_table(rows, pa.array(own))
    return found


def _shard_id(spec_id: int, values: Iterable[object]) -> uuid.UUID:
    return uuid.uuid5(_SHARDS, json.dumps([spec_id, *map(str, values)]))
