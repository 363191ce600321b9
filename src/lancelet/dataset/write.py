"""Writing a dataset: `write_dataset` of pylance, and opening one: `dataset`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, overload

import pyarrow as pa

from lancelet import ops
from lancelet.dataset.argument_kinds import checks_kinds
from lancelet.dataset.bases import DatasetBasePath
from lancelet.dataset.dataset import LanceDataset
from lancelet.dataset.handle import Handle, VersionLike
from lancelet.dataset.named_table import namespace_module, refuse_both
from lancelet.dataset.progress import FragmentWriteProgress
from lancelet.dataset.session import Session
from lancelet.dataset.write_request import WriteRequest
from lancelet.errors import AlreadyExistsError
from lancelet.io.open import renew_memory
from lancelet.ops.write import MAX_BYTES_PER_FILE, MAX_ROWS_PER_FILE

if TYPE_CHECKING:
    from lancelet.ops.dry_run import ChangeReport


@checks_kinds
def dataset(
    uri: str | os.PathLike[str] | None = None,
    version: VersionLike = None,
    asof: datetime | str | None = None,
    block_size: int | None = None,
    commit_lock: Any = None,
    index_cache_size: int | None = None,
    storage_options: Mapping[str, str] | None = None,
    default_scan_options: Mapping[str, Any] | None = None,
    metadata_cache_size_bytes: int | None = None,
    index_cache_size_bytes: int | None = None,
    read_params: Mapping[str, Any] | None = None,
    session: Session | None = None,
    namespace_client: Any = None,
    table_id: Sequence[str] | None = None,
    base_store_params: Mapping[str, Mapping[str, str]] | None = None,
) -> LanceDataset:
    """Open a dataset; see `LanceDataset` for the arguments.

    `asof` is a time, or text of one as ISO 8601 has it, and opens the version of that time.
    """
    refuse_both(uri, namespace_client)
    if index_cache_size is not None:
        warnings.warn(
            "The 'index_cache_size' parameter is deprecated, use 'index_cache_size_bytes' instead",
            DeprecationWarning,
            stacklevel=2,
        )
    return LanceDataset(
        uri,
        version,
        block_size,
        index_cache_size,
        None,
        commit_lock,
        storage_options,
        None,
        default_scan_options,
        metadata_cache_size_bytes,
        index_cache_size_bytes,
        read_params,
        session,
        namespace_client,
        table_id,
        base_store_params=base_store_params,
        asof=datetime.fromisoformat(asof) if isinstance(asof, str) else asof,
    )


@overload
def write_dataset(
    data_obj: Any,
    uri: str | os.PathLike[str] | LanceDataset | None = None,
    schema: pa.Schema | None = None,
    mode: str = "create",
    *,
    max_rows_per_file: int = MAX_ROWS_PER_FILE,
    max_rows_per_group: int = 1024,
    max_bytes_per_file: int = MAX_BYTES_PER_FILE,
    data_cache_bytes: int | None = None,
    max_page_bytes: int | None = None,
    commit_lock: Any = None,
    progress: FragmentWriteProgress | None = None,
    storage_options: Mapping[str, str] | None = None,
    data_storage_version: str | None = None,
    use_legacy_format: bool | None = None,
    enable_v2_manifest_paths: bool = True,
    enable_stable_row_ids: bool = False,
    auto_cleanup_options: Mapping[str, int] | None = None,
    commit_message: str | None = None,
    transaction_properties: Mapping[str, str] | None = None,
    initial_bases: Sequence[DatasetBasePath] | None = None,
    target_bases: Sequence[str] | None = None,
    target_all_bases: bool | None = None,
    base_store_params: Mapping[str, Mapping[str, str]] | None = None,
    external_blob_mode: str = "reference",
    allow_external_blob_outside_bases: bool = False,
    blob_pack_file_size_threshold: int | None = None,
    namespace_client: Any = None,
    table_id: Sequence[str] | None = None,
    session: Session | None = None,
    dry_run: Literal[False] = False,
) -> LanceDataset: ...


@overload
def write_dataset(
    data_obj: Any,
    uri: str | os.PathLike[str] | LanceDataset | None = None,
    schema: pa.Schema | None = None,
    mode: str = "create",
    *,
    max_rows_per_file: int = MAX_ROWS_PER_FILE,
    max_bytes_per_file: int = MAX_BYTES_PER_FILE,
    storage_options: Mapping[str, str] | None = None,
    data_storage_version: str | None = None,
    enable_stable_row_ids: bool = False,
    initial_bases: Sequence[DatasetBasePath] | None = None,
    target_bases: Sequence[str] | None = None,
    dry_run: Literal[True],
) -> ChangeReport: ...


@checks_kinds
def write_dataset(
    data_obj: Any,
    uri: str | os.PathLike[str] | LanceDataset | None = None,
    schema: pa.Schema | None = None,
    mode: str = "create",
    *,
    max_rows_per_file: int = MAX_ROWS_PER_FILE,
    max_rows_per_group: int = 1024,
    max_bytes_per_file: int = MAX_BYTES_PER_FILE,
    data_cache_bytes: int | None = None,
    max_page_bytes: int | None = None,
    commit_lock: Any = None,
    progress: FragmentWriteProgress | None = None,
    storage_options: Mapping[str, str] | None = None,
    data_storage_version: str | None = None,
    use_legacy_format: bool | None = None,
    enable_v2_manifest_paths: bool = True,
    enable_stable_row_ids: bool = False,
    auto_cleanup_options: Mapping[str, int] | None = None,
    commit_message: str | None = None,
    transaction_properties: Mapping[str, str] | None = None,
    initial_bases: Sequence[DatasetBasePath] | None = None,
    target_bases: Sequence[str] | None = None,
    target_all_bases: bool | None = None,
    base_store_params: Mapping[str, Mapping[str, str]] | None = None,
    external_blob_mode: str = "reference",
    allow_external_blob_outside_bases: bool = False,
    blob_pack_file_size_threshold: int | None = None,
    namespace_client: Any = None,
    table_id: Sequence[str] | None = None,
    session: Session | None = None,
    dry_run: bool = False,
) -> LanceDataset | ChangeReport:
    """Write rows as a dataset, or to one.

    Args:
        data_obj: Rows in any form: a table, batches, a reader, a scanner, a dataset, a data
            frame, a dict of columns or a list of dicts.
        uri: A path or URI, or a dataset.
        schema: The schema to convert the rows to.
        mode: `create` refuses where there is a dataset, `append` adds rows, `overwrite` replaces
            schema and rows; the last two create a dataset where there is none.
        max_rows_per_file: Rows of a file at most.
        max_rows_per_group: Rows of a batch within a file of version 0.1.
        max_bytes_per_file: Bytes of a file at most, about.
        data_cache_bytes: Bytes that may wait in memory for their page to fill.
        max_page_bytes: Bytes of a page at most; see `LanceFileWriter`.
        commit_lock: Held while the version is published; see `LanceDataset`.
        progress: Told when a fragment is begun and when it is complete.
        storage_options: Settings of the store, such as credentials.
        data_storage_version: The version of data files: `stable`, `2.1` and so on.
        use_legacy_format: An old way to ask for version 0.1.
        enable_v2_manifest_paths: Whether a new dataset has names of manifests that list newest
            first.
        enable_stable_row_ids: Whether rows of a new dataset keep their ids when they move.
        auto_cleanup_options: When a new dataset is to clean up old versions.
        commit_message: A note for the transaction.
        transaction_properties: More notes for the transaction, by key.
        initial_bases: Base paths of a new dataset.
        target_bases: Names or paths of the bases to write files to, in turn; by default the
            folder of the dataset.
        target_all_bases: Writes to all bases in turn: with the folder of the dataset if true,
            without it if false.
        base_store_params: Storage options of base paths, by path.
        external_blob_mode: With `reference` blobs given by URI stay where they are; with `ingest`
            their bytes are copied.
        allow_external_blob_outside_bases: Whether such blobs may lie outside of all bases.
        blob_pack_file_size_threshold: How large files are that many blobs share, if their field
            does not say.
        namespace_client: Knows where a table is by its id, in the place of `uri`.
        table_id: The id.
        session: Holds what is read of the dataset; by default the process does.
        dry_run: Whether to write nothing and return what would be written.
    """
    session = session or Session()
    request = WriteRequest(
        uri,
        mode,
        max_rows_per_file,
        max_rows_per_group,
        max_bytes_per_file,
        data_cache_bytes,
        max_page_bytes,
        commit_lock,
        progress,
        storage_options,
        data_storage_version,
        use_legacy_format,
        enable_v2_manifest_paths,
        enable_stable_row_ids,
        auto_cleanup_options,
        commit_message,
        transaction_properties,
        initial_bases,
        target_bases,
        target_all_bases,
        base_store_params,
        external_blob_mode,
        allow_external_blob_outside_bases,
        blob_pack_file_size_threshold,
        namespace_client,
        table_id,
        session,
    )
    refuse_both(uri, namespace_client)
    if mode == "create" and isinstance(uri, str) and not dry_run:
        renew_memory(uri, storage_options)
    location, meter, options = request.locate()
    known = uri.snapshot if isinstance(uri, LanceDataset) else None
    rows = ops.rows.read_rows_of(data_obj, schema)
    if dry_run:
        return ops.write_table.report_write(location, rows, request.write_mode, request.options)
    try:
        snapshot = ops.write_table.write_table(
            location, rows, request.write_mode, request.options, known=known
        )
    except AlreadyExistsError as error:
        if table_id is None:
            raise
        raise namespace_module().TableAlreadyExistsError(
            f"Table already exists: {'$'.join(table_id)}"
        ) from error
    return LanceDataset(location.uri, session=session, _handle=Handle(snapshot, meter, options))
