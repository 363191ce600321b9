"""The common request of `write_dataset`, `write_fragments` and `LanceFragment.create`.

Each function converts its arguments, which are those of pylance, to a `WriteRequest`. The request
provides the destination and the options of the lower layers.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, cast

from lancelet import change
from lancelet.change.write import MAX_BYTES_PER_FILE, MAX_ROWS_PER_FILE
from lancelet.dataset.arguments import checks_of
from lancelet.dataset.handle import Handle, OpenOptions, locate, text_of
from lancelet.dataset.maintenance.settings import DatasetBasePath, bases_from_user
from lancelet.dataset.named_table import named_table, namespace_module, refuse_both
from lancelet.dataset.scan.arrow import ArrowMethods
from lancelet.dataset.session import Session
from lancelet.dataset.show.progress import FragmentWriteProgress, ProgressOption, shown
from lancelet.dataset.write.metadata import FragmentMetadata, fragment_to_user
from lancelet.errors import AlreadyExistsError, InvalidInputError
from lancelet.format.fragment import Fragment
from lancelet.format.paths import ManifestNaming
from lancelet.format.version import FileVersion
from lancelet.io.metered import IoMeter
from lancelet.io.open import renew_memory
from lancelet.table.commit import CommitOptions
from lancelet.table.location import TableLocation
from lancelet.values import dataclass

if TYPE_CHECKING:
    from lancelet.change.dry_run import ChangeReport
    from lancelet.change.rows import RowStream
    from lancelet.change.write import FileOptions
    from lancelet.change.write_table import WriteMode, WriteOptions
    from lancelet.dataset.dataset import LanceDataset
    from lancelet.table.snapshot import Snapshot

_CLEANUP: Final = "lance.auto_cleanup"


def auto_cleanup_config(options: Mapping[str, int]) -> dict[str, str]:
    """Return the config that enables automatic cleanup.

    >>> auto_cleanup_config({"interval": 3, "older_than_seconds": 100})
    {'lance.auto_cleanup.interval': '3', 'lance.auto_cleanup.older_than': '1m 40s'}
    """
    unknown = sorted(set(options) - {"interval", "older_than_seconds", "retain_versions"})
    if unknown:
        raise InvalidInputError("unknown auto cleanup option", name=unknown[0])
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


_BLOB_MODES: Final = ("reference", "ingest")


class BaseNameError(InvalidInputError, TypeError):
    """The name of a base path is not text."""


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """The arguments of a write with the names of pylance; see `write_dataset`."""

    uri: str | os.PathLike[str] | LanceDataset | None
    mode: str | None = "create"
    max_rows_per_file: int = MAX_ROWS_PER_FILE
    max_rows_per_group: int | None = 1024
    max_bytes_per_file: int = MAX_BYTES_PER_FILE
    data_cache_bytes: int | None = None
    max_page_bytes: int | None = None
    commit_lock: Any = None
    progress: FragmentWriteProgress | ProgressOption = None
    storage_options: Mapping[str, str] | None = None
    data_storage_version: str | None = None
    use_legacy_format: bool | None = None
    enable_v2_manifest_paths: bool = True
    enable_stable_row_ids: bool = False
    auto_cleanup_options: Mapping[str, int] | None = None
    commit_message: str | None = None
    transaction_properties: Mapping[str, str] | None = None
    initial_bases: Sequence[DatasetBasePath] | None = None
    target_bases: Sequence[str] | None = None
    target_all_bases: bool | None = None
    base_store_params: Mapping[str, Mapping[str, str]] | None = None
    external_blob_mode: str = "reference"
    allow_external_blob_outside_bases: bool = False
    blob_pack_file_size_threshold: int | None = None
    namespace_client: Any = None
    table_id: Sequence[str] | None = None
    session: Session | None = None

    def __post_init__(self) -> None:
        """Validate the arguments."""
        for (name, check), value in zip(_CHECKS.items(), _checked_values(self), strict=True):
            if value is not None:
                check(name, value)
        named_table(self.uri, self.namespace_client, self.table_id)
        if self.external_blob_mode not in _BLOB_MODES:
            raise InvalidInputError(
                "external_blob_mode must be one of " + ", ".join(_BLOB_MODES),
                found=self.external_blob_mode,
            )
        if self.external_blob_mode == "ingest" and self.allow_external_blob_outside_bases:
            raise change.blob_input.BlobInputError(
                'allow_external_blob_outside_bases only applies when external_blob_mode="reference"'
            )
        if self.use_legacy_format is not None:
            warnings.warn(
                "use_legacy_format is deprecated, use data_storage_version instead",
                DeprecationWarning,
                stacklevel=4,
            )

    def check_session(self) -> None:
        """Raise if the session differs from that of the destination dataset."""
        opened = self._opened
        if self.session is None or opened is None:
            return
        if not self.session.is_same_as(opened.session()):
            raise InvalidInputError(
                "the session differs from the session of the destination dataset; omit it or pass "
                "the session of the dataset",
                uri=opened.uri,
            )

    @property
    def _opened(self) -> LanceDataset | None:
        """The destination if it is an open dataset, else None."""
        return cast("LanceDataset", self.uri) if isinstance(self.uri, ArrowMethods) else None

    @property
    def open_snapshot(self) -> Snapshot | None:
        """The snapshot of the destination if it is an open dataset, else None."""
        return None if self._opened is None else self._opened.snapshot

    def write(self, rows: RowStream) -> Handle:
        """Write rows, and return the dataset at the new version."""
        refuse_both(self.uri, self.namespace_client)
        if self.mode == "create" and isinstance(self.uri, str):
            renew_memory(self.uri, self.storage_options)
        location, meter, options = self.locate()
        try:
            with self.showing_progress():
                snapshot = change.write_table.write_table(
                    location, rows, self.write_mode, self.options, base=self.open_snapshot
                )
        except AlreadyExistsError as error:
            if self.table_id is None:
                raise
            raise namespace_module().TableAlreadyExistsError(
                f"Table already exists: {'$'.join(self.table_id)}"
            ) from error
        return Handle(snapshot, meter, options)

    def report(self, rows: RowStream) -> ChangeReport:
        """Report the changes of writing rows."""
        refuse_both(self.uri, self.namespace_client)
        return change.write_table.report_write(
            self.locate()[0], rows, self.write_mode, self.options
        )

    def locate(self) -> tuple[TableLocation, IoMeter, OpenOptions]:
        """Return the destination, its request meter, and the open options."""
        if self._opened is not None:
            handle = self._opened.handle
            return handle.location, handle.meter, handle.options
        named = named_table(self.uri, self.namespace_client, self.table_id)
        options = OpenOptions(
            self.storage_options, self.base_store_params, self.commit_lock, named=named
        )
        uri = cast("str | os.PathLike[str] | None", self.uri)
        if uri is None:
            assert named is not None, "either uri or table_id was validated"
            uri = named.uri_to_write(creates=self.write_mode is change.write_table.WriteMode.CREATE)
        location, meter = locate(text_of(uri), options, self.session)
        return location, meter, options

    @property
    def write_mode(self) -> WriteMode:
        """The behavior for an existing table."""
        return change.write_table.WriteMode.parse(self.mode)

    @property
    def options(self) -> WriteOptions:
        """The options of the lower layers."""
        properties = dict(self.transaction_properties or {})
        return change.write_table.WriteOptions(
            files=self._files(),
            version=self._version(),
            commit=CommitOptions(
                stable_row_ids=self.enable_stable_row_ids,
                naming=ManifestNaming.V2 if self.enable_v2_manifest_paths else ManifestNaming.V1,
            ),
            properties=change.publish.CommitProperties(self.commit_message, properties),
            config=auto_cleanup_config(self.auto_cleanup_options or {}),
            bases=bases_from_user(self.initial_bases),
            allows_blobs_outside=self.allow_external_blob_outside_bases,
            ingests_blobs=self.external_blob_mode == "ingest",
            targets=change.bases.BaseSelection(_names(self.target_bases), self.target_all_bases),
        )

    def showing_progress(self) -> AbstractContextManager[object]:
        """Show the progress of the `with` block according to `progress`."""
        progress = self.progress
        return shown(None if isinstance(progress, FragmentWriteProgress) else progress)

    def _files(self) -> FileOptions:
        progress = self.progress if isinstance(self.progress, FragmentWriteProgress) else None
        return change.write.FileOptions(
            limits=change.write.FileLimits(
                self.max_rows_per_file,
                change.write.FileLimits().max_rows_per_group
                if self.max_rows_per_group is None
                else self.max_rows_per_group,
                self.max_bytes_per_file,
            ),
            data_cache_bytes=self.data_cache_bytes,
            max_page_bytes=self.max_page_bytes,
            pack_file_bytes=self.blob_pack_file_size_threshold,
            on_begin=None if progress is None else _convert_callback(progress.begin),
            on_complete=None if progress is None else _convert_callback(progress.complete),
        )

    def _version(self) -> FileVersion | None:
        if self.use_legacy_format is not None:
            return FileVersion.parse("legacy" if self.use_legacy_format else "stable")
        selector = self.data_storage_version
        return None if selector is None else FileVersion.parse(selector)


_CHECKS: Final = checks_of(WriteRequest.__annotations__)
_checked_values: Final = attrgetter(*_CHECKS)


def _names(bases: Sequence[str] | None) -> tuple[str, ...]:
    names = tuple(bases or ())
    for name in names:
        if not isinstance(name, str):
            raise BaseNameError("the name of a base path must be a string", found=str(type(name)))
    return names


def _convert_callback(
    callback: Callable[[FragmentMetadata], None],
) -> Callable[[Fragment], None]:
    return lambda fragment: callback(fragment_to_user(fragment))
