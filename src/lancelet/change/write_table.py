"""Create a table, append to it, or overwrite it.

    create      fails if the table exists
    append      the rows have all or some of the table's fields
    overwrite   replaces schema and rows; older versions are retained

Append and overwrite create the table if it does not exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from enum import Enum
from typing import Final

from lancelet import surroundings
from lancelet.change.bases import BaseError, BaseSelection, number_bases
from lancelet.change.blob_input import BlobPolicy, check_thresholds, resolve_blobs
from lancelet.change.dry_run import ChangeReport, dry_run_write
from lancelet.change.fit import check_new_schema, fit_to_table
from lancelet.change.lossless import fit_rows
from lancelet.change.publish import CommitProperties, commit_transaction, new_transaction
from lancelet.change.rows import RowStream
from lancelet.change.vector_columns import with_vector_columns
from lancelet.change.write import FileOptions, Target, check_batches, write_fragments
from lancelet.errors import (
    AlreadyExistsError,
    CommitConflictError,
    InvalidInputError,
    LanceletError,
    similar_names,
)
from lancelet.format.base_paths import BasePath
from lancelet.format.fragment import Fragment
from lancelet.format.operation import Append, Operation, Overwrite
from lancelet.format.schema import Schema
from lancelet.format.version import DEFAULT_VERSION, FileVersion
from lancelet.io.trace_events import DATASET_EVENTS, EVENT_SINKS
from lancelet.table.apply.state import with_actual_version
from lancelet.table.commit import CommitOptions, refresh_snapshot
from lancelet.table.dictionaries import dictionary_values_of
from lancelet.table.location import TableLocation
from lancelet.table.snapshot import Snapshot, latest_snapshot
from lancelet.values import dataclass, replace

_RETRY_SECONDS: Final = 30.0
"""Maximum time in seconds for retrying an append after conflicts."""


class WriteMode(Enum):
    """The behavior of a write if the table exists."""

    CREATE = "create"
    APPEND = "append"
    OVERWRITE = "overwrite"

    @staticmethod
    def parse(mode: str | None) -> WriteMode:
        """Parse the case-insensitive name of a mode; None means create, as in pylance."""
        if mode is None:
            return WriteMode.CREATE
        try:
            return WriteMode(mode.lower())
        except ValueError:
            modes = [member.value for member in WriteMode]
            hint = similar_names(mode, modes)
            raise InvalidInputError(f"Invalid mode {mode}{hint}", expected=modes) from None


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options for writing a table.

    `version` is the file version; the default is that of the table, or of pylance for a new table.
    `config` and `bases` apply to new tables only.
    """

    files: FileOptions = field(default_factory=FileOptions)
    version: FileVersion | None = None
    commit: CommitOptions = field(default_factory=CommitOptions)
    properties: CommitProperties = field(default_factory=CommitProperties)
    config: Mapping[str, str] = field(default_factory=dict)
    bases: tuple[BasePath, ...] = ()
    targets: BaseSelection = field(default_factory=BaseSelection)
    allows_blobs_outside: bool = True
    """Whether blob URIs outside of the base paths are allowed."""
    ingests_blobs: bool = False
    """Whether the bytes of blobs given by URI are copied into the table."""

    def blob_policy(self, bases: Iterable[BasePath], location: TableLocation) -> BlobPolicy:
        """Return the policy for blobs given by URI."""
        return BlobPolicy(
            tuple(bases),
            self.allows_blobs_outside,
            self.ingests_blobs,
            location.storage_options,
        )


@dataclass(frozen=True, slots=True, eq=False)
class PreparedWrite:
    """Written fragments, and the operation that commits them."""

    operation: Operation
    read_version: int
    options: CommitOptions


def write_table(
    location: TableLocation,
    rows: RowStream,
    mode: WriteMode,
    options: WriteOptions,
    *,
    base: Snapshot | None = None,
) -> Snapshot:
    """Write rows and commit them; see `WriteMode`.

    `base` is a version that the caller has read; it is reused if it is the latest. The write fails
    if its table no longer exists.

    Raises:
        DatasetNotFoundError: The table of `base` was moved or dropped.
        VersionNotFoundError: The table of `base` was deleted and created again.
    """
    EVENT_SINKS.emit(DATASET_EVENTS, event="loading", uri=location.uri)
    EVENT_SINKS.emit(
        DATASET_EVENTS, event="writing", uri=location.uri, mode=mode.value.capitalize()
    )
    latest = (
        latest_snapshot(location)
        if base is None
        else refresh_snapshot(base.with_location(location))
    )
    # No version refers to the new files before the commit, so that they can be flushed in parallel.
    deferred = replace(location, store=location.store.with_deferred_sync())
    deferred_latest = None if latest is None else replace(latest, location=deferred)
    prepared = prepare_write(deferred, deferred_latest, rows, mode, options)
    prepared = replace(prepared, options=replace(prepared.options, sync=deferred.store.flush))
    deadline = surroundings.monotonic() + _RETRY_SECONDS
    while True:
        transaction = new_transaction(prepared.read_version, prepared.operation, options.properties)
        try:
            return commit_transaction(
                location, transaction, replace(prepared.options, snapshot=latest)
            )
        except (CommitConflictError, AlreadyExistsError) as error:
            # Both errors mean that nothing was committed.
            before = latest
            latest = latest_snapshot(location) if before is None else refresh_snapshot(before)
            rebased = (
                None if latest is None else _rebase_append(latest, before, prepared, mode, error)
            )
            if rebased is None or surroundings.monotonic() > deadline:
                raise
            # Cleanup may have deleted the files, which are older than the version of the next
            # transaction.
            prepared = replace(rebased, options=replace(rebased.options, checks_files=True))


def _rebase_append(
    latest: Snapshot,
    before: Snapshot | None,
    prepared: PreparedWrite,
    mode: WriteMode,
    error: LanceletError,
) -> PreparedWrite | None:
    """Rebase a prepared append on the latest version, or return None if that is not possible."""
    if mode is not WriteMode.APPEND:
        return None
    match prepared.operation:
        case Overwrite(fragments, schema) if before is None:
            fit_to_table(latest.schema, schema.to_arrow())
            if latest.schema.fields != schema.fields:
                raise CommitConflictError(
                    "another writer created the table concurrently, with a different column "
                    "order; retry the append",
                    uri=latest.location.uri,
                    retryable=True,
                ) from error
            committing = replace(prepared.options, must_create=False, data_version=None)
            return PreparedWrite(Append(fragments), latest.version, committing)
        case Append() if before is not None and error.facts.get("retryable"):
            same = before.schema == latest.schema
            return replace(prepared, read_version=latest.version) if same else None
        case _:
            return None


def report_write(
    location: TableLocation, rows: RowStream, mode: WriteMode, options: WriteOptions
) -> ChangeReport:
    """Return the effect of a write, using a store that discards writes."""
    without_handler = replace(options, commit=replace(options.commit, handler=None))
    return dry_run_write(location, lambda other: write_table(other, rows, mode, without_handler))


def prepare_write(
    location: TableLocation,
    latest: Snapshot | None,
    rows: RowStream,
    mode: WriteMode,
    options: WriteOptions,
) -> PreparedWrite:
    """Write the data files and return the uncommitted write."""
    if latest is not None and mode is WriteMode.CREATE:
        raise AlreadyExistsError(
            "Dataset already exists; append to it or replace its rows with mode='append' or "
            "mode='overwrite'",
            uri=location.uri,
        )
    if latest is not None and options.bases:
        raise BaseError(
            f"Cannot register new bases in {mode.value.capitalize()} mode. "
            "Only CREATE mode can register new bases."
        )
    if latest is not None and mode is WriteMode.APPEND:
        fragments = append_fragments(latest, rows, options)
        return PreparedWrite(Append(fragments), latest.version, options.commit)
    version = _version_of_table(latest, options)
    rows = with_vector_columns(rows)
    check_new_schema(rows.schema)
    schema = Schema.from_arrow(rows.schema, blob_v2=version >= FileVersion.V2_2)
    files = replace(options.files, version=version)
    new_bases = number_bases(options.bases)
    bases = {base.id: base for base in new_bases} if latest is None else latest.manifest.bases
    targets = options.targets.targets(location, bases)
    policy = options.blob_policy(bases.values(), location)
    rows = RowStream(rows.schema, resolve_blobs(rows.batches, schema, policy))
    fragments = _write(targets, rows, schema, files)
    config = options.config if latest is None else {}
    operation = Overwrite(fragments, schema, config, new_bases)
    committing = replace(options.commit, data_version=version, must_create=latest is None)
    return PreparedWrite(operation, 0 if latest is None else latest.version, committing)


def append_fragments(
    latest: Snapshot, rows: RowStream, options: WriteOptions
) -> tuple[Fragment, ...]:
    """Write rows as fragments that match the schema of a version."""
    rows = fit_rows(rows, latest.schema)
    schema = fit_to_table(latest.schema, rows.schema)
    check_thresholds(latest.schema, rows.schema)
    version = options.version or with_actual_version(latest.manifest).data_version
    files = replace(options.files, version=version, dictionaries=dictionary_values_of(latest))
    targets = options.targets.targets(latest.location, latest.manifest.bases)
    policy = options.blob_policy(latest.manifest.bases.values(), latest.location)
    rows = RowStream(rows.schema, resolve_blobs(rows.batches, schema, policy))
    return _write(targets, rows, schema, files)


def _version_of_table(latest: Snapshot | None, options: WriteOptions) -> FileVersion:
    if options.version is not None:
        return options.version
    return DEFAULT_VERSION if latest is None else with_actual_version(latest.manifest).data_version


def _write(
    targets: Sequence[Target], rows: RowStream, schema: Schema, files: FileOptions
) -> tuple[Fragment, ...]:
    return write_fragments(targets, check_batches(rows.batches, rows.schema), schema, files)
