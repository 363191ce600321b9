"""The files of one shard: its states, its log and its flushed tables.

    claim     read the last state, publish one with the next epoch; write a fence to the log
    append    write a log entry at the next position, which must be free
    publish   write the next state, unless another writer has claimed the shard

A shard has a single writer. A new writer that claims the shard writes a fence at the next log
position of the previous writer, so that the next write of the previous writer fails.

If the response to a write is lost, the write is retried. If the object already exists with the same
bytes, the write was successful, since states and entries contain the epoch of their writer. Claims
are repeated instead, because concurrent claimers write identical bytes.

A claimer that is interrupted before it writes the fence may write it late, at a position of a later
writer. The later writer ignores fences of earlier epochs and continues at the next position.
"""

from __future__ import annotations

import itertools
import json
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from lancelet import surroundings
from lancelet.errors import (
    AlreadyExistsError,
    CommitError,
    CommitOutcomeUnknownError,
    CorruptDataError,
    InvalidInputError,
    ObjectNotFoundError,
    StorageError,
    StorageUnavailableError,
    corrupt_within,
)
from lancelet.format.paths import MEM_WAL
from lancelet.format.shard_manifest import (
    ACTIVE,
    HINT_PATH,
    SEALED,
    ShardManifest,
    shard_folder,
    shard_manifest_path,
    wal_entry_path,
)
from lancelet.format.trailer import strip_trailer, with_trailer
from lancelet.format.wire import parse_number
from lancelet.io.pool import run_requests
from lancelet.io.store import Store
from lancelet.table.location import TableLocation
from lancelet.values import dataclass

_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_FENCE: Final = b"fence_sentinel"
_EPOCH: Final = b"writer_epoch"
_GENERATION: Final = b"generation"


class FencedError(CommitError):
    """Another writer has claimed the shard; open a new writer, which replays the log."""


class SealedError(InvalidInputError, OSError):
    """The shard is sealed and cannot be written."""


@dataclass(frozen=True, slots=True)
class Persistence:
    """The number of retries after a lost response, and the initial delay."""

    retries: int = 3
    delay_ms: int = 50


@dataclass(frozen=True, slots=True, eq=False)
class WalEntry:
    """The contents of a log entry; a fence has no rows."""

    position: int
    batches: tuple[pa.RecordBatch, ...]
    schema: pa.Schema

    @property
    def is_fence(self) -> bool:
        """Whether the entry is a fence of another writer."""
        return _FENCE in (self.schema.metadata or {})

    @property
    def writer_epoch(self) -> int:
        """The epoch of the writer of the entry, 0 if it is not recorded."""
        return self._noted(_EPOCH) or 0

    @property
    def generation(self) -> int | None:
        """The generation of the rows, None if it is not recorded."""
        return self._noted(_GENERATION)

    def _noted(self, key: bytes) -> int | None:
        return parse_number((self.schema.metadata or {}).get(key))


class Shard:
    """The files of a shard."""

    def __init__(
        self,
        location: TableLocation,
        shard_id: uuid.UUID,
        *,
        scan_batch_size: int = 2,
        persistence: Persistence | None = None,
    ) -> None:
        """Access a shard, without reading anything.

        Args:
            location: The location of the table.
            shard_id: The id of the shard.
            scan_batch_size: The number of concurrent requests when searching for the last state.
            persistence: The retries of requests without a response.
        """
        self.shard_id = shard_id
        self.folder = shard_folder(shard_id)
        self.store: Store = location.store.at(self.folder)
        self.location = location
        self._scan_batch_size = max(1, scan_batch_size)
        self._persistence = persistence or Persistence()

    def latest(self) -> ShardManifest | None:
        """Return the last state, or None if the shard was never written."""
        version = self._hint()
        found = self._state(version) if version else None
        if found is None:
            version, found = 0, None
        while True:
            versions = range(version + 1, version + 1 + self._scan_batch_size)
            states = run_requests([partial(self._state, each) for each in versions])
            for state in states:
                if state is None:
                    return found
                version, found = version + 1, state

    def claim(self, spec_id: int, *, first_generation: int = 1) -> ShardManifest:
        """Claim the shard, and return its state.

        The generation in memory is at least `first_generation`: the table may have recorded merged
        generations of an earlier shard with this id, and would skip lower generations.
        """
        try:
            claimed = self._claim(spec_id, first_generation)
        except CommitOutcomeUnknownError:
            claimed = self._claim(spec_id, first_generation)
        if claimed.version == 1:
            return claimed
        position = self._write_fence(claimed)
        return self.publish(replace(claimed, version=claimed.version + 1, last_seen=position))

    def publish(self, manifest: ShardManifest) -> ShardManifest:
        """Publish a state as the writer of the shard, and return the state."""
        return self._publish(manifest, self._put)

    def reopen(self) -> None:
        """Reopen a sealed shard; its epochs and log positions continue."""
        latest = self.latest()
        if latest is not None and latest.status == SEALED:
            self.publish(replace(latest, version=latest.version + 1, status=ACTIVE))

    def check_active(self, manifest: ShardManifest) -> None:
        """Raise if the shard is sealed."""
        if manifest.status != ACTIVE:
            raise SealedError(
                "the shard is sealed", shard=str(self.shard_id), status=manifest.status
            )

    def _claim(self, spec_id: int, first_generation: int) -> ShardManifest:
        latest = self.latest()
        if latest is None:
            claim = ShardManifest(
                self.shard_id, spec_id=spec_id, current_generation=first_generation
            )
        else:
            self.check_active(latest)
            claim = replace(
                latest,
                version=latest.version + 1,
                writer_epoch=latest.writer_epoch + 1,
                current_generation=max(latest.current_generation, first_generation),
            )
        return self._publish(claim, self.store.put_if_absent)

    def _publish(self, manifest: ShardManifest, put: Callable[[str, bytes], None]) -> ShardManifest:
        try:
            put(shard_manifest_path(manifest.version), manifest.render())
        except AlreadyExistsError as error:
            raise self.fenced(manifest.writer_epoch) from error
        # The state is valid from here on; a missing or stale hint only costs additional requests.
        with suppress(StorageError):
            self.store.put_best_effort(
                HINT_PATH, json.dumps({"version": manifest.version}).encode()
            )
        return manifest

    def append(
        self,
        position: int,
        batches: Sequence[pa.RecordBatch],
        schema: pa.Schema,
        *,
        epoch: int,
        generation: int,
    ) -> tuple[int, int]:
        """Write a log entry, and return its position and its size in bytes.

        `schema` contains the field ids of the columns; the batches have the same types.
        """
        notes = {_EPOCH: str(epoch).encode(), _GENERATION: str(generation).encode()}
        data = _stream(schema.with_metadata({**(schema.metadata or {}), **notes}), batches)
        while True:
            try:
                self._put(wal_entry_path(position), data)
            except AlreadyExistsError as error:
                if not self._is_late_fence(position, epoch):
                    raise self.fenced(epoch) from error
                position += 1
            else:
                return position, len(data)

    def _is_late_fence(self, position: int, epoch: int) -> bool:
        """Return whether the fence at a position was written late, by an earlier claimer."""
        entry = self._entry(position)
        if entry is None or not entry.is_fence or entry.writer_epoch >= epoch:
            return False
        latest = self.latest()
        return latest is not None and latest.writer_epoch == epoch

    def entries(self, after: int) -> Iterator[WalEntry]:
        """Yield the entries after a position."""
        position = after + 1
        while (entry := self._entry(position)) is not None:
            yield entry
            position += 1

    def is_fence(self, position: int) -> bool:
        """Return whether the entry at a position is a fence."""
        entry = self._entry(position)
        return entry is not None and entry.is_fence

    def _write_fence(self, manifest: ShardManifest) -> int:
        """Write a fence at the next free position, and return the position."""
        position = max(manifest.last_seen, manifest.replay_after) + 1
        notes = {_FENCE: b"true", _EPOCH: str(manifest.writer_epoch).encode()}
        data = _stream(pa.schema([], metadata=notes), ())
        while True:
            try:
                self._put(wal_entry_path(position), data)
            except AlreadyExistsError:
                position += 1
            else:
                return position

    def _put(self, path: str, data: bytes) -> None:
        """Create an object if the name is free; retry while the store does not respond."""
        is_unknown = False
        for attempt in itertools.count():
            try:
                self._put_if_absent(path, data, is_again=is_unknown)
            except (CommitOutcomeUnknownError, StorageUnavailableError) as error:
                is_unknown = is_unknown or isinstance(error, CommitOutcomeUnknownError)
                if attempt < self._persistence.retries:
                    surroundings.sleep(self._persistence.delay_ms * (1 << attempt) / 1000)
                elif is_unknown:
                    raise CommitOutcomeUnknownError(
                        "the store did not answer, so it is unknown whether the object exists",
                        path=path,
                        shard=str(self.shard_id),
                    ) from error
                else:
                    raise
            else:
                return

    def _put_if_absent(self, path: str, data: bytes, *, is_again: bool) -> None:
        try:
            self.store.put_if_absent(path, data)
        except (CommitOutcomeUnknownError, AlreadyExistsError) as lost:
            if isinstance(lost, AlreadyExistsError) and not is_again:
                raise
            try:
                found = self.store.read(path)
            except ObjectNotFoundError:
                raise lost from None
            except StorageError as error:
                raise CommitOutcomeUnknownError("the existing object cannot be read") from error
            if found != data:
                raise AlreadyExistsError("another writer created the object", path=path) from lost

    def _entry(self, position: int) -> WalEntry | None:
        path = wal_entry_path(position)
        try:
            data = self.store.read(path)
        except ObjectNotFoundError:
            return None
        with corrupt_within(path=path, shard=str(self.shard_id)):
            return _parsed(position, data)

    def _state(self, version: int) -> ShardManifest | None:
        path = shard_manifest_path(version)
        try:
            data = self.store.read(path)
        except ObjectNotFoundError:
            return None
        with corrupt_within(path=path, shard=str(self.shard_id)):
            return ShardManifest.parse(data)

    def _hint(self) -> int:
        try:
            return int(json.loads(self.store.read(HINT_PATH))["version"])
        except (
            ObjectNotFoundError,
            ValueError,
            KeyError,
            TypeError,
            OverflowError,
            RecursionError,
        ):
            return 0

    def fenced(self, epoch: int) -> FencedError:
        """Return the error for the writer of an epoch that was replaced."""
        latest = self.latest()
        return FencedError(
            "Writer fenced: another writer has claimed the shard",
            shard=str(self.shard_id),
            epoch=epoch,
            latest_epoch=None if latest is None else latest.writer_epoch,
        )


def list_shards(location: TableLocation) -> list[uuid.UUID]:
    """Return the shards with files in a table; other folders are ignored."""
    found = location.store.list_delimited(MEM_WAL)
    names = [folder.rstrip("/").rpartition("/")[2] for folder in found.folders]
    return sorted(uuid.UUID(name) for name in names if _UUID.fullmatch(name))


def _stream(schema: pa.Schema, batches: Sequence[pa.RecordBatch]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return with_trailer(sink.getvalue().to_pybytes())


def _parsed(position: int, data: bytes) -> WalEntry:
    content = strip_trailer(np.frombuffer(data, np.uint8))
    try:
        with pa.ipc.open_stream(pa.py_buffer(content)) as reader:
            _decode_names(reader.schema)
            entry = WalEntry(position, tuple(reader), reader.schema)
        for batch in entry.batches:
            batch.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptDataError("a log entry is not an Arrow stream") from error
    return entry


def _decode_names(fields: Iterable[pa.Field]) -> None:
    """Raise `ValueError` if the name of a field is not UTF-8."""
    for field in fields:
        field.name  # noqa: B018 - is decoded
        kind = field.type
        if pa.types.is_nested(kind):
            _decode_names(kind.field(number) for number in range(kind.num_fields))
