"""Writing a dataset: `write_dataset` of pylance, and opening one: `dataset`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import pyarrow as pa

from lancelet.dataset.dataset import LanceDataset
from lancelet.dataset.handle import Handle, OpenOptions, VersionLike, locate, text_of
from lancelet.dataset.metadata import FragmentMetadata, fragment_to_user
from lancelet.dataset.progress import FragmentWriteProgress
from lancelet.dataset.session import Session
from lancelet.errors import InvalidInputError
from lancelet.format.fragment import Fragment
from lancelet.format.paths import ManifestNaming
from lancelet.format.version import FileVersion
from lancelet.ops.publish import Remarks
from lancelet.ops.rows import read_rows_of
from lancelet.ops.write import (
    MAX_BYTES_PER_FILE,
    MAX_ROWS_PER_FILE,
    FileLimits,
    FileOptions,
)
from lancelet.ops.write_table import WriteMode, WriteOptions, write_table
from lancelet.table.commit import CommitOptions

_CLEANUP: Final = "lance.auto_cleanup"


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
    if uri is None:
        raise InvalidInputError("a dataset is opened by its uri")
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
    base_store_params: Mapping[str, Mapping[str, str]] | None = None,
    session: Session | None = None,
) -> LanceDataset:
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
        base_store_params: Storage options of base paths, by path.
        session: Passed on to the dataset.
    """
    if isinstance(uri, LanceDataset):
        text, options = uri.uri, uri.open_options
        location, meter = uri.snapshot.location, uri.meter
    elif uri is None:
        raise InvalidInputError("a dataset is written to a uri")
    else:
        text = text_of(uri)
        options = OpenOptions(storage_options, base_store_params, commit_lock)
        location, meter = locate(text, options)
    selector = "legacy" if use_legacy_format else data_storage_version
    limits = FileLimits(max_rows_per_file, max_rows_per_group, max_bytes_per_file)
    files = FileOptions(
        limits=limits,
        data_cache_bytes=data_cache_bytes,
        max_page_bytes=max_page_bytes,
        on_begin=None if progress is None else _told(progress.begin),
        on_complete=None if progress is None else _told(progress.complete),
    )
    committing = CommitOptions(
        stable_row_ids=enable_stable_row_ids,
        naming=ManifestNaming.V2 if enable_v2_manifest_paths else ManifestNaming.V1,
    )
    snapshot = write_table(
        location,
        read_rows_of(data_obj, schema),
        WriteMode.parse(mode),
        WriteOptions(
            files,
            None if selector is None else FileVersion.parse(selector),
            committing,
            Remarks(commit_message, dict(transaction_properties or {})),
            auto_cleanup_config(auto_cleanup_options or {}),
        ),
    )
    return LanceDataset(text, session=session, _handle=Handle(snapshot, meter, options))


def auto_cleanup_config(options: Mapping[str, int]) -> dict[str, str]:
    """Return the config that makes every so many commits clean up what is old.

    >>> auto_cleanup_config({"interval": 3, "older_than_seconds": 100})
    {'lance.auto_cleanup.interval': '3', 'lance.auto_cleanup.older_than': '1m 40s'}
    """
    unknown = sorted(set(options) - {"interval", "older_than_seconds", "retain_versions"})
    if unknown:
        raise InvalidInputError("no setting of cleaning up has that name", name=unknown[0])
    config: dict[str, str] = {}
    if "interval" in options:
        config[f"{_CLEANUP}.interval"] = str(options["interval"])
    if "older_than_seconds" in options:
        config[f"{_CLEANUP}.older_than"] = _duration(options["older_than_seconds"])
    if "retain_versions" in options:
        config[f"{_CLEANUP}.retain_versions"] = str(options["retain_versions"])
    return config


def _duration(seconds: int) -> str:
    parts = []
    for unit, size in (("days", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, seconds = divmod(seconds, size)
        if count:
            name = "day" if unit == "days" and count == 1 else unit
            parts.append(f"{count}{name}")
    return " ".join(parts) or "0s"


def _told(tell: Callable[[FragmentMetadata], None]) -> Callable[[Fragment], None]:
    return lambda fragment: tell(fragment_to_user(fragment))
