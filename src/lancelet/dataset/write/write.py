"""The functions `write_dataset` and `dataset` of pylance."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lancelet import change
from lancelet.change.write import MAX_BYTES_PER_FILE, MAX_ROWS_PER_FILE
from lancelet.dataset.arguments import checks_types
from lancelet.dataset.dataset import LanceDataset
from lancelet.dataset.dry_runs import previews_new_dataset
from lancelet.dataset.handle import VersionLike
from lancelet.dataset.maintenance.settings import DatasetBasePath
from lancelet.dataset.named_table import refuse_both
from lancelet.dataset.session import Session
from lancelet.dataset.show.progress import FragmentWriteProgress, ProgressOption
from lancelet.dataset.write.request import WriteRequest
from lancelet.errors import InvalidInputError
from lancelet.io.options import Durability, with_durability

if TYPE_CHECKING:
    from lancelet.change.dry_run import ChangeReport


@checks_types
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
    *,
    durability: Durability | None = None,
) -> LanceDataset:
    """Open a dataset.

    Args:
        uri: A path or URI.
        version: A number, a tag, or a pair of a branch and a number; by default the latest.
        asof: A `datetime` or ISO 8601 text: open the latest version as of that time.
        block_size: Has no effect: request sizes are chosen automatically.
        commit_lock: A lock held during commits, for stores without conditional puts.
        index_cache_size: Has no effect: the cache is limited in bytes.
        storage_options: Options of the object store, such as credentials.
        default_scan_options: Defaults for all scans of the dataset.
        metadata_cache_size_bytes: The size of a separate metadata cache.
        index_cache_size_bytes: The size of a separate index cache.
        read_params: Has no effect: reads need no parameters.
        session: The session with the caches to use; by default the process-wide session.
        namespace_client: The namespace of the table, as an alternative to `uri`.
        table_id: The id of the table in the namespace.
        base_store_params: Storage options of base paths, by path.
        durability: For local files: `flushed`, so that commits survive a power loss, or `written`,
            as in pylance. By default the value in the storage options, or `flushed`.

    Returns:
        The dataset at that version.

    Raises:
        DatasetNotFoundError: If the URI contains no dataset.
        VersionNotFoundError: If the version does not exist or was cleaned up.
        RefNotFoundError: If the tag or branch does not exist.

    Example:
        ```python
        dataset = lance.dataset(dataset.uri)
        dataset.count_rows()
        ```
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
        with_durability(storage_options, durability),
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


@previews_new_dataset
@checks_types
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
    progress: FragmentWriteProgress | ProgressOption = None,
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
    durability: Durability | None = None,
    dry_run: bool = False,
) -> LanceDataset | ChangeReport:
    """Write rows to a new dataset, or append to or overwrite an existing one.

    Rows are cast to the types of the table if no data is lost.

    Args:
        data_obj: The rows: an Arrow table, batches, a reader, a scanner, a dataset, a data frame of
            pandas or Polars, a Hugging Face dataset, a dict of columns, or a list of dicts.
        uri: A path or URI, or a dataset.
        schema: The schema to convert the rows to.
        mode: `create` raises if the dataset exists, `append` adds rows, `overwrite` replaces the
            schema and all rows. `append` and `overwrite` create a missing dataset.
        max_rows_per_file: The maximum number of rows per file.
        max_rows_per_group: The rows per row group in files of version 0.1.
        max_bytes_per_file: The approximate maximum size of a file.
        data_cache_bytes: The maximum number of buffered bytes before pages are written.
        max_page_bytes: The maximum size of a page; see `LanceFileWriter`.
        commit_lock: A lock held during the commit, for stores without conditional puts.
        progress: Whether to show a progress bar; or a function called with `IndexProgress` events;
            or a `FragmentWriteProgress`, called when a fragment begins and when it is complete.
        storage_options: Options of the object store, such as credentials.
        data_storage_version: The version of data files: `stable`, `2.1` and so on.
        use_legacy_format: Deprecated: whether to write version 0.1.
        enable_v2_manifest_paths: Whether a new dataset uses manifest names that list the newest
            version first.
        enable_stable_row_ids: Whether a new dataset has stable row ids.
        auto_cleanup_options: The automatic cleanup settings of a new dataset.
        commit_message: A message to record with the transaction.
        transaction_properties: Properties to record with the transaction.
        initial_bases: Base paths of a new dataset.
        target_bases: Names or paths of the base paths to write to, in rotation; by default the
            folder of the dataset.
        target_all_bases: Write to all base paths in rotation; True includes the folder of the
            dataset, False excludes it.
        base_store_params: Storage options of base paths, by path.
        external_blob_mode: `reference` stores the URIs of external blobs; `ingest` copies their
            bytes.
        allow_external_blob_outside_bases: Whether external blobs may be outside of all base paths.
        blob_pack_file_size_threshold: The maximum size of files shared by many blobs; fields may
            override it.
        namespace_client: The namespace of the table, as an alternative to `uri`.
        table_id: The id of the table in the namespace.
        session: The session with the caches to use; by default the process-wide session.
        durability: For local files: `flushed`, so that commits survive a power loss, or `written`,
            as in pylance. By default the value in the storage options, or `flushed`. Fixed for an
            open dataset.
        dry_run: Write nothing and return a report of what would be written.

    Returns:
        The dataset at the new version; with `dry_run`, the `ChangeReport`.

    Raises:
        AlreadyExistsError: If the dataset exists and `mode` is `create`.
        SchemaMismatchError: If the rows do not match the schema, or a cast would lose data.
        CommitConflictError: If a concurrent commit changed the schema or overwrote the table.

    Example:
        ```python
        books = lance.write_dataset({"id": [1, 2], "name": ["Emma", "Ulysses"]}, "new.lance")
        lance.write_dataset({"id": [3], "name": ["Walden"]}, books, mode="append").count_rows()  # 3
        ```
    """
    session = session or Session()
    if durability is not None and isinstance(uri, LanceDataset):
        raise InvalidInputError(
            "the durability of an open dataset is fixed; open it with `durability`", uri=uri.uri
        )
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
        with_durability(storage_options, durability),
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
    rows = change.rows.read_rows(data_obj, schema)
    if dry_run:
        return request.report(rows)
    handle = request.write(rows)
    return LanceDataset(handle.location.uri, session=session, _handle=handle)
