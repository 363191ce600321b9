"""The files of one shard: its states, its log and its flushed tables.

    claim     read the last state, publish one with the next epoch; mark the log for the others
    append    an entry of the log at the next position, which must be free
    publish   the next state, unless another writer has claimed the shard

Only one writer writes a shard. Another one that claims it leaves a mark at the position that the
first would write next, so the first finds out that it was replaced.

A reply that is lost is made up for by looking: an object with the bytes that were to be put is the
one that was put, since states and entries name the epoch of their writer. Only claims are done
again, as who claims at the same time writes the same.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa

from lancelet.errors import (
    AlreadyExistsError,
    CommitError,
    CommitOutcomeUnknownError,
    CorruptDataError,
    InvalidInputError,
    ObjectNotFoundError,
    StorageError,
    corrupt_within,
)
from lancelet.format.seal import sealed, unsealed
from lancelet.format.shard_manifest import (
    HINT_PATH,
    ShardManifest,
    shard_folder,
    shard_manifest_path,
    wal_entry_path,
)
from lancelet.io.store import Store
from lancelet.table.location import TableLocation

_FENCE: Final = b"fence_sentinel"
_EPOCH: Final = b"writer_epoch"
_GENERATION: Final = b"generation"


class FencedError(CommitError):
    """Another writer has claimed the shard; open a writer of its own, which replays the log."""


class SealedError(InvalidInputError, OSError):
    """Nobody may write the shard any more."""


@dataclass(frozen=True, slots=True, eq=False)
class WalEntry:
    """What was put at once; a fence has no rows."""

    position: int
    batches: tuple[pa.RecordBatch, ...]
    schema: pa.Schema

    @property
    def is_fence(self) -> bool:
        """Whether the entry only says that another writer has come."""
        return _FENCE in (self.schema.metadata or {})


class Shard:
    """The files of a shard."""

    def __init__(self, location: TableLocation, shard_id: uuid.UUID) -> None:
        """Look at a shard; nothing is read yet."""
        self.shard_id = shard_id
        self.folder = shard_folder(shard_id)
        self.store: Store = location.store.at(self.folder)
        self.location = location

    def latest(self) -> ShardManifest | None:
        """Return the last state, or None if nobody has written the shard."""
        version = self._hint()
        found = self._state(version) if version else None
        if found is None:
            version, found = 1, self._state(1)
        while found is not None:
            after = self._state(version + 1)
            if after is None:
                return found
            version, found = version + 1, after
        return None

    def claim(self, spec_id: int) -> ShardManifest:
        """Become the writer of the shard, and return its state."""
        try:
            claimed = self._claim(spec_id)
        except CommitOutcomeUnknownError:
            claimed = self._claim(spec_id)
        if claimed.version == 1:
            return claimed
        position = self._mark(claimed)
        return self.publish(replace(claimed, version=claimed.version + 1, last_seen=position))

    def publish(self, manifest: ShardManifest) -> ShardManifest:
        """Publish a state as the writer of the shard, and return it."""
        return self._publish(manifest, self._put)

    def _claim(self, spec_id: int) -> ShardManifest:
        latest = self.latest()
        if latest is None:
            claim = ShardManifest(self.shard_id, spec_id=spec_id)
        elif latest.is_sealed:
            raise SealedError("the shard is sealed", shard=str(self.shard_id))
        else:
            version, epoch = latest.version + 1, latest.writer_epoch + 1
            claim = replace(latest, version=version, writer_epoch=epoch)
        return self._publish(claim, self.store.put_if_absent)

    def _publish(self, manifest: ShardManifest, put: Callable[[str, bytes], None]) -> ShardManifest:
        try:
            put(shard_manifest_path(manifest.version), manifest.render())
        except AlreadyExistsError as error:
            raise self._fenced(manifest.writer_epoch) from error
        # The state counts from here on; a hint that is missing or old does no harm.
        with suppress(StorageError):
            self.store.put_note(HINT_PATH, json.dumps({"version": manifest.version}).encode())
        return manifest

    def append(
        self, position: int, batches: Sequence[pa.RecordBatch], notes: Mapping[bytes, bytes]
    ) -> int:
        """Write an entry of the log, and return how many bytes it has."""
        data = _stream(batches[0].schema.with_metadata(dict(notes)), batches)
        try:
            self._put(wal_entry_path(position), data)
        except AlreadyExistsError as error:
            raise self._fenced(int(notes[_EPOCH])) from error
        return len(data)

    def entries(self, after: int) -> Iterator[WalEntry]:
        """Yield the entries behind a position."""
        position = after + 1
        while (entry := self._entry(position)) is not None:
            yield entry
            position += 1

    def is_fence(self, position: int) -> bool:
        """Return whether the entry at a position is a fence."""
        entry = self._entry(position)
        return entry is not None and entry.is_fence

    def _mark(self, manifest: ShardManifest) -> int:
        """Write a fence at the next free position, and return that."""
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
        """Store an object if the name is free, and look whether it is there if nobody says."""
        try:
            self.store.put_if_absent(path, data)
        except CommitOutcomeUnknownError as lost:
            try:
                found = self.store.read(path)
            except ObjectNotFoundError:
                raise lost from None
            if found != data:
                raise AlreadyExistsError("another writer was first", path=path) from lost

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
        except (ObjectNotFoundError, ValueError, KeyError, TypeError):
            return 0

    def _fenced(self, epoch: int) -> FencedError:
        latest = self.latest()
        return FencedError(
            "Writer fenced: another writer has claimed the shard",
            shard=str(self.shard_id),
            epoch=epoch,
            latest_epoch=None if latest is None else latest.writer_epoch,
        )


def entry_notes(epoch: int, generation: int) -> dict[bytes, bytes]:
    """Return what an entry says of who wrote it."""
    return {_EPOCH: str(epoch).encode(), _GENERATION: str(generation).encode()}


def list_shards(location: TableLocation) -> list[uuid.UUID]:
    """Return the shards that a table has files of."""
    found = location.store.list_delimited(shard_folder(uuid.UUID(int=0)).rpartition("/")[0])
    return sorted(uuid.UUID(folder.rstrip("/").rpartition("/")[2]) for folder in found.folders)


def _stream(schema: pa.Schema, batches: Sequence[pa.RecordBatch]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch.replace_schema_metadata(schema.metadata))
    return sealed(sink.getvalue().to_pybytes())


def _parsed(position: int, data: bytes) -> WalEntry:
    content = unsealed(np.frombuffer(data, np.uint8))
    try:
        with pa.ipc.open_stream(pa.py_buffer(content)) as reader:
            entry = WalEntry(position, tuple(reader), reader.schema)
        for batch in entry.batches:
            batch.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptDataError("an entry of the log is no stream of batches") from error
    return entry
