"""Creating a table, appending to it, replacing what is in it: rows in, a new version out.

    create      refused if a table is there
    append      the rows bring all or some of the table's fields
    overwrite   another schema and other rows; older versions stay

Append and overwrite create the table where there is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from enum import Enum
from typing import Final

from lancelet import surroundings
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
from lancelet.io.trace_events import DATASET_EVENTS, LISTENERS
from lancelet.ops.bases import BaseChoice, BaseError, number_bases
from lancelet.ops.blob_input import BlobPolicy, check_thresholds, resolved_blobs
from lancelet.ops.dry_run import ChangeReport, rehearse_write
from lancelet.ops.fit import check_new_schema, fit_to_table
from lancelet.ops.lossless import fit_rows
from lancelet.ops.publish import Remarks, commit_transaction, new_transaction
from lancelet.ops.rows import RowStream
from lancelet.ops.write import FileOptions, Target, checked_batches, write_fragments
from lancelet.table.apply.state import with_actual_version
from lancelet.table.commit import CommitOptions, refresh_snapshot
from lancelet.table.dictionaries import dictionary_values_of
from lancelet.table.location import TableLocation
from lancelet.table.snapshot import Snapshot, latest_snapshot
from lancelet.values import dataclass, replace

_RETRY_SECONDS: Final = 30.0
"""For how long rows that were written are appended again where others were first."""


class WriteMode(Enum):
    """What a write does with a table that is there."""

    CREATE = "create"
    APPEND = "append"
    OVERWRITE = "overwrite"

    @staticmethod
    def parse(mode: str | None) -> WriteMode:
        """Return the mode of a name, in any case; None creates, as it does for pylance."""
        if mode is None:
            return WriteMode.CREATE
        try:
            return WriteMode(mode.lower())
        except ValueError:
            known = [each.value for each in WriteMode]
            hint = similar_names(mode, known)
            raise InvalidInputError(f"Invalid mode {mode}{hint}", known=known) from None


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How a table is written.

    `version` is that of new files: by default that of the table, or of the reference's choice.
    `config` and `bases` are for a table that is created.
    """

    files: FileOptions = field(default_factory=FileOptions)
    version: FileVersion | None = None
    commit: CommitOptions = field(default_factory=CommitOptions)
    remarks: Remarks = field(default_factory=Remarks)
    config: Mapping[str, str] = field(default_factory=dict)
    bases: tuple[BasePath, ...] = ()
    targets: BaseChoice = field(default_factory=BaseChoice)
    allows_blobs_outside: bool = True
    """Whether blobs given by URI may lie outside of the base paths."""
    ingests_blobs: bool = False
    """Whether the bytes of blobs given by URI are copied into the table."""

    def blob_policy(self, bases: Iterable[BasePath], location: TableLocation) -> BlobPolicy:
        """Return what becomes of blobs given by URI in a table that has some bases."""
        return BlobPolicy(
            tuple(bases),
            self.allows_blobs_outside,
            self.ingests_blobs,
            location.storage_options,
        )


@dataclass(frozen=True, slots=True, eq=False)
class PreparedWrite:
    """Fragments that were written, and the operation that makes them part of the table."""

    operation: Operation
    read_version: int
    options: CommitOptions


def write_table(
    location: TableLocation,
    rows: RowStream,
    mode: WriteMode,
    options: WriteOptions,
    *,
    known: Snapshot | None = None,
) -> Snapshot:
    """Write rows and commit them; see `WriteMode`.

    `known` is a version that was read already, which is not read again if it is the latest. The
    rows go to its table, or nowhere.

    Raises:
        DatasetNotFoundError: The table of `known` was moved or dropped.
        VersionNotFoundError: It was deleted and made again.
    """
    LISTENERS.tell(DATASET_EVENTS, event="loading", uri=location.uri)
    LISTENERS.tell(DATASET_EVENTS, event="writing", uri=location.uri, mode=mode.value.capitalize())
    latest = (
        latest_snapshot(location) if known is None else refresh_snapshot(known.beside(location))
    )
    # Nothing leads to the new files before the commit, so they are flushed beside its work.
    lazy = replace(location, store=location.store.lazily())
    beside = None if latest is None else replace(latest, location=lazy)
    prepared = prepare_write(lazy, beside, rows, mode, options)
    prepared = replace(prepared, options=replace(prepared.options, sync=lazy.store.settle))
    deadline = surroundings.monotonic() + _RETRY_SECONDS
    while True:
        transaction = new_transaction(prepared.read_version, prepared.operation, options.remarks)
        try:
            return commit_transaction(
                location, transaction, replace(prepared.options, snapshot=latest)
            )
        except (CommitConflictError, AlreadyExistsError) as error:
            # Both say that nothing was committed.
            before = latest
            latest = latest_snapshot(location) if before is None else refresh_snapshot(before)
            again = None if latest is None else _appended_to(latest, before, prepared, mode, error)
            if again is None or surroundings.monotonic() > deadline:
                raise
            # The files are older than the version that the next transaction reads.
            prepared = replace(again, options=replace(again.options, checks_files=True))


def _appended_to(
    latest: Snapshot,
    before: Snapshot | None,
    prepared: PreparedWrite,
    mode: WriteMode,
    error: LanceletError,
) -> PreparedWrite | None:
    """Return how rows that were written for one version follow another, if they can."""
    if mode is not WriteMode.APPEND:
        return None
    match prepared.operation:
        case Overwrite(fragments, schema) if before is None:
            fit_to_table(latest.schema, schema.to_arrow())
            if latest.schema.fields != schema.fields:
                raise CommitConflictError(
                    "another writer created the table meanwhile, with its columns in another "
                    "order; append again",
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
    """Return what a write would do, after doing it on a store that keeps nothing."""
    there = replace(options, commit=replace(options.commit, handler=None))
    return rehearse_write(location, lambda other: write_table(other, rows, mode, there))


def prepare_write(
    location: TableLocation,
    latest: Snapshot | None,
    rows: RowStream,
    mode: WriteMode,
    options: WriteOptions,
) -> PreparedWrite:
    """Write the files and return what is left to be committed."""
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
    check_new_schema(rows.schema)
    schema = Schema.from_arrow(rows.schema, blob_v2=version >= FileVersion.V2_2)
    files = replace(options.files, version=version)
    new_bases = number_bases(options.bases)
    bases = {base.id: base for base in new_bases} if latest is None else latest.manifest.bases
    targets = options.targets.targets(location, bases)
    policy = options.blob_policy(bases.values(), location)
    rows = RowStream(rows.schema, resolved_blobs(rows.batches, schema, policy))
    fragments = _write(targets, rows, schema, files)
    config = options.config if latest is None else {}
    operation = Overwrite(fragments, schema, config, new_bases)
    committing = replace(options.commit, data_version=version, must_create=latest is None)
    return PreparedWrite(operation, 0 if latest is None else latest.version, committing)


def append_fragments(
    latest: Snapshot, rows: RowStream, options: WriteOptions
) -> tuple[Fragment, ...]:
    """Write rows as fragments that fit the schema of a version."""
    rows = fit_rows(rows, latest.schema)
    schema = fit_to_table(latest.schema, rows.schema)
    check_thresholds(latest.schema, rows.schema)
    version = options.version or with_actual_version(latest.manifest).data_version
    files = replace(options.files, version=version, dictionaries=dictionary_values_of(latest))
    targets = options.targets.targets(latest.location, latest.manifest.bases)
    policy = options.blob_policy(latest.manifest.bases.values(), latest.location)
    rows = RowStream(rows.schema, resolved_blobs(rows.batches, schema, policy))
    return _write(targets, rows, schema, files)


def _version_of_table(latest: Snapshot | None, options: WriteOptions) -> FileVersion:
    if options.version is not None:
        return options.version
    return DEFAULT_VERSION if latest is None else with_actual_version(latest.manifest).data_version


def _write(
    targets: Sequence[Target], rows: RowStream, schema: Schema, files: FileOptions
) -> tuple[Fragment, ...]:
    return write_fragments(targets, checked_batches(rows.batches, rows.schema), schema, files)
