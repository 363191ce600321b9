"""The files of one shard: its states, its log and its flushed tables.

    claim     read the last state, publish one with the next epoch; mark the log for the others
    append    an entry of the log at the next position, which must be free
    publish   the next state, unless another writer has claimed the shard

Only one writer writes a shard. Another one that claims it leaves a mark at the position that the
first would write next, so the first finds out that it was replaced.

A reply that is lost is made up for by trying again and looking: an object with the bytes that were
to be put is the one that was put, since states and entries name the epoch of their writer. Only
claims are done again, as who claims at the same time writes the same.

A claimer that was stopped before it left its mark may leave it late, at a position that belongs to
a later writer. That one finds a mark of an epoch before its own, and goes on behind it.
"""

from __future__ import annotations

import itertools
import json
import re
import uuid
from collections.abc import Callable, Iterator, Sequence
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
    """Another writer has claimed the shard; open a writer of its own, which replays the log."""


class SealedError(InvalidInputError, OSError):
    """Nobody may write the shard any more."""


@dataclass(frozen=True, slots=True)
class Persistence:
    """How often what a store did not answer is put again, and after how long first."""

    retries: int = 3
    delay_ms: int = 50


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

    @property
    def writer_epoch(self) -> int:
        """The epoch of the writer of the entry, 0 where it does not say."""
        return self._noted(_EPOCH) or 0

    @property
    def generation(self) -> int | None:
        """The generation that the rows belong to, None where the entry does not say."""
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
        """Look at a shard; nothing is read yet.

        Args:
            location: Where the table is.
            shard_id: Which shard.
            scan_batch_size: How many states are asked for at once when the last one is looked for.
            persistence: How often requests are repeated that the store did not answer.
        """
        self.shard_id = shard_id
        self.folder = shard_folder(shard_id)
        self.store: Store = location.store.at(self.folder)
        self.location = location
        self._scan_batch_size = max(1, scan_batch_size)
        self._persistence = persistence or Persistence()

    def latest(self) -> ShardManifest | None:
        """Return the last state, or None if nobody has written the shard."""
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
        """Become the writer of the shard, and return its state.

        What is in memory then has at least `first_generation`: a table may count generations as
        merged that a shard of this id had elsewhere, and would pass over lower ones.
        """
        try:
            claimed = self._claim(spec_id, first_generation)
        except CommitOutcomeUnknownError:
            claimed = self._claim(spec_id, first_generation)
        if claimed.version == 1:
            return claimed
        position = self._mark(claimed)
        return self.publish(replace(claimed, version=claimed.version + 1, last_seen=position))

    def publish(self, manifest: ShardManifest) -> ShardManifest:
        """Publish a state as the writer of the shard, and return it."""
        return self._publish(manifest, self._put)

    def reopen(self) -> None:
        """Let a shard be written again that was sealed; its epochs and positions go on."""
        latest = self.latest()
        if latest is not None and latest.status == SEALED:
            self.publish(replace(latest, version=latest.version + 1, status=ACTIVE))

    def check_active(self, manifest: ShardManifest) -> None:
        """Raise if nobody may write the shard."""
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
        # The state counts from here on; a hint that is missing or old does no harm.
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
        """Write an entry of the log, and return its position and how many bytes it has.

        `schema` says of each column which field it is; the batches have the same types.
        """
        notes = {_EPOCH: str(epoch).encode(), _GENERATION: str(generation).encode()}
        data = _stream(schema.with_metadata({**(schema.metadata or {}), **notes}), batches)
        while True:
            try:
                self._put(wal_entry_path(position), data)
            except AlreadyExistsError as error:
                if not self._is_late_mark(position, epoch):
                    raise self.fenced(epoch) from error
                position += 1
            else:
                return position, len(data)

    def _is_late_mark(self, position: int, epoch: int) -> bool:
        """Return whether a claimer left its mark there after another one had claimed the shard."""
        entry = self._entry(position)
        if entry is None or not entry.is_fence or entry.writer_epoch >= epoch:
            return False
        latest = self.latest()
        return latest is not None and latest.writer_epoch == epoch

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
        """Store an object if the name is free, again and again while the store does not answer."""
        is_unknown = False
        for attempt in itertools.count():
            try:
                self._put_once(path, data, is_again=is_unknown)
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

    def _put_once(self, path: str, data: bytes, *, is_again: bool) -> None:
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
                raise CommitOutcomeUnknownError("what is there cannot be read") from error
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
        """Return what the writer of an epoch is told when another one has come."""
        latest = self.latest()
        return FencedError(
            "Writer fenced: another writer has claimed the shard",
            shard=str(self.shard_id),
            epoch=epoch,
            latest_epoch=None if latest is None else latest.writer_epoch,
        )


def list_shards(location: TableLocation) -> list[uuid.UUID]:
    """Return the shards that a table has files of; other folders there are left alone."""
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
            entry = WalEntry(position, tuple(reader), reader.schema)
        for batch in entry.batches:
            batch.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptDataError("an entry of the log is no stream of batches") from error
    return entry
