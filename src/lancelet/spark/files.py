"""Steps shared by all writers: planning files, writing them in tasks, and one commit.

    plan_files      the schema and file options of the new rows
    write_task      writes the rows of one task in files with unique names
    publish_rows    commits the fragments of all tasks as one version
    delete_files    deletes files that will not be committed

Plans and fragments are plain values that can be pickled between the driver and its workers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from typing import Final

import pyarrow as pa
from pyspark.sql.types import StructType

from lancelet.change.bases import BaseError, BaseSelection
from lancelet.change.blob_input import BlobPolicy, resolve_blobs
from lancelet.change.fit import fit_to_table
from lancelet.change.publish import CommitProperties, commit_transaction, new_transaction
from lancelet.change.write import FileLimits, FileOptions, Target, write_fragments
from lancelet.dataset.dataset import LanceDataset
from lancelet.errors import AlreadyExistsError, DatasetNotFoundError, StorageError
from lancelet.file.batches import rebatch
from lancelet.format.fragment import Fragment
from lancelet.format.operation import Append, Overwrite
from lancelet.format.schema import Schema
from lancelet.format.version import DEFAULT_VERSION, FileVersion
from lancelet.jobs.table_ref import TableRef
from lancelet.spark.convert import convert_batch, fit_lengths
from lancelet.spark.options import WriteSettings
from lancelet.spark.write_schema import new_fields, schema_for_new_table, schema_for_table
from lancelet.table.apply.state import with_actual_version
from lancelet.table.commit import CommitOptions
from lancelet.table.snapshot import Snapshot, latest_snapshot
from lancelet.table.watermark import BatchWatermark
from lancelet.values import dataclass

_PAGE_ROWS: Final = 65536
_PAGE_BYTES: Final = 16 * 1024 * 1024
STREAM_PROPERTY: Final = "lancelet.stream"
BATCH_PROPERTY: Final = "lancelet.batch"


@dataclass(frozen=True, slots=True)
class FilePlan:
    """How tasks write their rows; `read_version` is 0 for a table that does not exist yet.

    `table` is pinned to the version that was read, so a table created later under the same URI is
    not written to.
    """

    table: TableRef
    read_version: int
    schema: Schema
    arrow: pa.Schema
    version: FileVersion
    limits: FileLimits
    chosen: BaseSelection
    blobs: BlobPolicy

    def targets(self) -> list[Target]:
        """Return the base paths that receive files, in turn."""
        bases = {base.id: base for base in self.blobs.bases}
        return self.chosen.targets(self.table.locate(), bases)


@dataclass(frozen=True, slots=True)
class Publication:
    """Options of a commit of written rows: append or overwrite, and the properties of the version.

    `watermark` identifies the batch of a stream. `config` is added to the config of a new or
    replaced table.
    """

    replaces: bool = False
    stable_row_ids: bool = False
    message: str | None = None
    watermark: BatchWatermark | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)

    @property
    def commit_properties(self) -> CommitProperties:
        """The message and properties of the transaction."""
        properties = dict(self.properties)
        if self.watermark is not None:
            properties |= {
                STREAM_PROPERTY: self.watermark.sequence,
                BATCH_PROPERTY: str(self.watermark.number),
            }
        return CommitProperties(self.message, properties)


def plan_files(
    settings: WriteSettings, latest: Snapshot | None, schema: StructType, *, replaces: bool
) -> FilePlan:
    """Plan how the rows of a data frame are appended to a version or replace it."""
    if latest is not None and not replaces and settings.merge_schema:
        latest = add_new_columns(settings.table, schema, settings)
    current_version = None if latest is None else with_actual_version(latest.manifest).data_version
    if latest is not None and current_version is not None and not replaces:
        arrow = schema_for_table(latest.schema, schema)
        return file_plan(
            settings, latest, arrow, fit_to_table(latest.schema, arrow), current_version
        )
    version = settings.version or current_version or DEFAULT_VERSION
    arrow = schema_for_new_table(schema, settings)
    fields = Schema.from_arrow(arrow, blob_v2=version >= FileVersion.V2_2)
    return file_plan(settings, latest, arrow, fields, version)


def add_new_columns(table: TableRef, schema: StructType, settings: WriteSettings) -> Snapshot:
    """Add the columns of a schema that the latest version does not have, as a version of its own.

    They are null in existing rows. Returns the version with all columns.
    """
    latest = latest_of(table)
    if latest is None:
        raise DatasetNotFoundError("the table to add columns to does not exist", uri=table.uri)
    added = [field.with_nullable(True) for field in new_fields(latest.schema, schema, settings)]
    if not added:
        return latest
    dataset = LanceDataset(table.uri, storage_options=dict(table.options))
    if table.branch is not None:
        dataset = dataset.checkout_version((table.branch, None))
    dataset.add_columns(added)
    return dataset.snapshot


def file_plan(
    settings: WriteSettings,
    latest: Snapshot | None,
    arrow: pa.Schema,
    fields: Schema,
    version: FileVersion,
) -> FilePlan:
    """Plan how rows of an Arrow schema are written with the given fields."""
    if latest is not None and settings.initial_bases:
        raise BaseError(
            "initial bases are allowed only for a new table, but the table exists",
            uri=settings.table.uri,
            version=latest.version,
        )
    blobs = BlobPolicy(
        settings.initial_bases if latest is None else latest.manifest.base_paths,
        settings.allows_blobs_outside,
        settings.ingests_blobs,
        dict(settings.table.options),
    )
    return FilePlan(
        settings.table if latest is None else settings.table.pinned(latest),
        0 if latest is None else latest.version,
        fields,
        arrow,
        version,
        settings.limits,
        BaseSelection(settings.target_bases),
        blobs,
    )


def write_task(plan: FilePlan, batches: Iterable[pa.RecordBatch]) -> tuple[Fragment, ...]:
    """Write the rows of a task in files with unique names."""
    converted = (fit_lengths(convert_batch(batch, plan.arrow), plan.arrow) for batch in batches)
    resolved = resolve_blobs(converted, plan.schema, plan.blobs)
    options = FileOptions(version=plan.version, limits=plan.limits)
    rows = rebatch(resolved, _PAGE_ROWS, bytes_max=_PAGE_BYTES)
    return write_fragments(plan.targets(), rows, plan.schema, options)


def publish_rows(
    plan: FilePlan, fragments: tuple[Fragment, ...], how: Publication
) -> Snapshot | None:
    """Publish fragments as one version; None if there is nothing to publish.

    If another writer created the table first, rows of the same schema are appended to it.
    """
    if plan.read_version and not how.replaces:
        return _append(plan, fragments, how) if fragments else None
    location = plan.table.locate()
    new_bases = () if plan.read_version else plan.blobs.bases
    operation = Overwrite(fragments, plan.schema, dict(how.config), new_bases)
    transaction = new_transaction(plan.read_version, operation, how.commit_properties)
    options = CommitOptions(
        stable_row_ids=how.stable_row_ids,
        data_version=plan.version,
        must_create=not plan.read_version,
        read_identity=plan.table.identity,
        checks_files=True,
        watermark=how.watermark,
    )
    try:
        return commit_transaction(location, transaction, options)
    except AlreadyExistsError:
        latest = latest_snapshot(location)
        has_own_options = how.replaces or bool(how.config) or bool(new_bases)
        if latest is None or has_own_options or latest.schema.fields != plan.schema.fields:
            raise
        existing_plan = replace(plan, table=plan.table.pinned(latest), read_version=latest.version)
        return _append(existing_plan, fragments, how) if fragments else None


def delete_files(plan: FilePlan, fragments: Iterable[Fragment]) -> None:
    """Delete the files of fragments that will not be committed; storage errors are ignored."""
    targets = {target.base_id: target for target in plan.targets()}
    for fragment in fragments:
        for file in fragment.files:
            target = targets[file.base_id]
            with contextlib.suppress(StorageError):
                target.store.delete(f"{target.folder}/{file.path}".lstrip("/"))


def latest_of(table: TableRef) -> Snapshot | None:
    """Return the latest version of a table or branch, or None if it does not exist."""
    return latest_snapshot(replace(table, version=None).locate())


def _append(plan: FilePlan, fragments: tuple[Fragment, ...], how: Publication) -> Snapshot:
    transaction = new_transaction(plan.read_version, Append(fragments), how.commit_properties)
    options = CommitOptions(
        watermark=how.watermark, read_identity=plan.table.identity, checks_files=True
    )
    return commit_transaction(plan.table.locate(), transaction, options)
