"""Writes of uncommitted fragments, with the API of pylance: `write_fragments`.

Many processes can write fragments of one dataset; one of them commits: `LanceDataset.commit`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lancelet import change
from lancelet.change.write import MAX_BYTES_PER_FILE, MAX_ROWS_PER_FILE
from lancelet.dataset.arguments import checks_types
from lancelet.dataset.maintenance.settings import DatasetBasePath
from lancelet.dataset.session import Session
from lancelet.dataset.show.progress import FragmentWriteProgress, ProgressOption
from lancelet.dataset.write.committing import Transaction, transaction_to_user
from lancelet.dataset.write.metadata import FragmentMetadata, fragment_to_user
from lancelet.dataset.write.request import WriteRequest
from lancelet.errors import InternalError
from lancelet.format.fragment import FragmentId
from lancelet.format.operation import Append, Overwrite
from lancelet.table.commit import refresh_snapshot
from lancelet.table.location import TableLocation
from lancelet.table.snapshot import Snapshot, latest_snapshot

if TYPE_CHECKING:
    from lancelet.dataset.dataset import LanceDataset


@checks_types
def write_fragments(
    data: Any,
    dataset_uri: str | os.PathLike[str] | LanceDataset,
    schema: pa.Schema | None = None,
    *,
    return_transaction: bool = False,
    mode: str = "append",
    max_rows_per_file: int = MAX_ROWS_PER_FILE,
    max_rows_per_group: int | None = 1024,
    max_bytes_per_file: int = MAX_BYTES_PER_FILE,
    data_cache_bytes: int | None = None,
    max_page_bytes: int | None = None,
    progress: FragmentWriteProgress | ProgressOption = None,
    data_storage_version: str | None = None,
    use_legacy_format: bool | None = None,
    storage_options: Mapping[str, str] | None = None,
    enable_stable_row_ids: bool = False,
    target_bases: Sequence[str] | None = None,
    target_all_bases: bool | None = None,
    initial_bases: Sequence[DatasetBasePath] | None = None,
    base_store_params: Mapping[str, Mapping[str, str]] | None = None,
    external_blob_mode: str = "reference",
    allow_external_blob_outside_bases: bool = False,
    namespace_client: Any = None,
    table_id: Sequence[str] | None = None,
    session: Session | None = None,
) -> list[FragmentMetadata] | Transaction:
    """Write rows as fragments without committing them.

    See `write_dataset` for the arguments. Rows (`data`) that are appended to an existing
    dataset (`dataset_uri`, or the dataset itself) must match its schema. With
    `return_transaction` the result is a transaction.

    Returns:
        The fragments, for `LanceOperation.Append`, or the transaction.

    Raises:
        SchemaMismatchError: If the rows do not match the schema, or a cast would lose data.

    Example:
        ```python
        from lancelet.fragment import write_fragments

        transaction = write_fragments(new_books, dataset, return_transaction=True)
        dataset = lance.LanceDataset.commit(dataset, transaction)
        ```
    """
    request = WriteRequest(
        dataset_uri,
        mode,
        max_rows_per_file=max_rows_per_file,
        max_rows_per_group=max_rows_per_group,
        max_bytes_per_file=max_bytes_per_file,
        data_cache_bytes=data_cache_bytes,
        max_page_bytes=max_page_bytes,
        progress=progress,
        data_storage_version=data_storage_version,
        use_legacy_format=use_legacy_format,
        storage_options=storage_options,
        enable_stable_row_ids=enable_stable_row_ids,
        target_bases=target_bases,
        target_all_bases=target_all_bases,
        initial_bases=initial_bases,
        base_store_params=base_store_params,
        external_blob_mode=external_blob_mode,
        allow_external_blob_outside_bases=allow_external_blob_outside_bases,
        namespace_client=namespace_client,
        table_id=table_id,
        session=session,
    )
    request.check_session()
    location, latest = _located(request)
    rows = change.rows.read_rows(data, schema)
    with request.showing_progress():
        prepared = change.write_table.prepare_write(
            location, latest, rows, request.write_mode, request.options
        )
    operation = prepared.operation
    if not isinstance(operation, Append | Overwrite):
        raise InternalError("unexpected operation of a write", found=type(operation).__name__)
    fragments = tuple(replace(fragment, id=FragmentId(0)) for fragment in operation.fragments)
    if not return_transaction:
        return [fragment_to_user(fragment) for fragment in fragments]
    operation = replace(operation, fragments=fragments)
    return transaction_to_user(change.publish.new_transaction(prepared.read_version, operation))


def create_fragment(data: Any, schema: pa.Schema | None, request: WriteRequest) -> FragmentMetadata:
    """Write rows as one fragment; see `LanceFragment.create`."""
    location, latest = _located(request)
    rows = change.rows.read_rows(data, schema)
    with request.showing_progress():
        written = change.fragments.write_fragment(
            location, latest, rows, request.write_mode, request.options
        )
    return fragment_to_user(written)


def _located(request: WriteRequest) -> tuple[TableLocation, Snapshot | None]:
    """Return the destination and the latest version of the table, or of the open dataset.

    Called before the rows are read, because they may come from the same table.
    """
    location, _, _ = request.locate()
    snapshot = request.open_snapshot
    return location, latest_snapshot(location) if snapshot is None else refresh_snapshot(snapshot)
