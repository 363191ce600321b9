"""What a caller of `write_dataset`, `write_fragments` or `LanceFragment.create` asks for.

Each of them takes the arguments that pylance has and makes one request of them. The request says
where to write and what the layers below need to know.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from lancelet import ops
from lancelet.dataset.bases import DatasetBasePath, bases_from_user
from lancelet.dataset.cleanup_config import auto_cleanup_config
from lancelet.dataset.handle import OpenOptions, locate, text_of
from lancelet.dataset.metadata import FragmentMetadata, fragment_to_user
from lancelet.dataset.named_table import named_table
from lancelet.dataset.progress import FragmentWriteProgress
from lancelet.dataset.session import Session
from lancelet.errors import InvalidInputError
from lancelet.format.fragment import Fragment
from lancelet.format.paths import ManifestNaming
from lancelet.format.version import FileVersion
from lancelet.io.metered import IoMeter
from lancelet.ops.write import MAX_BYTES_PER_FILE, MAX_ROWS_PER_FILE
from lancelet.table.commit import CommitOptions
from lancelet.table.location import TableLocation
from lancelet.values import dataclass

if TYPE_CHECKING:
    from lancelet.dataset.dataset import LanceDataset
    from lancelet.ops.write import FileOptions
    from lancelet.ops.write_table import WriteMode, WriteOptions


_BLOB_MODES: Final = ("reference", "ingest")


class BaseNameError(InvalidInputError, TypeError):
    """A base was named by something else than text."""


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """The arguments of a write, under pylance's names; see `write_dataset` for each."""

    uri: str | os.PathLike[str] | LanceDataset | None
    mode: str | None = "create"
    max_rows_per_file: int = MAX_ROWS_PER_FILE
    max_rows_per_group: int | None = 1024
    max_bytes_per_file: int = MAX_BYTES_PER_FILE
    data_cache_bytes: int | None = None
    max_page_bytes: int | None = None
    commit_lock: Any = None
    progress: FragmentWriteProgress | None = None
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
        """Refuse what is not available, and what cannot be."""
        named_table(self.uri, self.namespace_client, self.table_id)
        if self.external_blob_mode not in _BLOB_MODES:
            raise InvalidInputError(
                "external_blob_mode is one of " + ", ".join(_BLOB_MODES),
                found=self.external_blob_mode,
            )
        if self.external_blob_mode == "ingest" and self.allow_external_blob_outside_bases:
            raise ops.blob_input.BlobInputError(
                'allow_external_blob_outside_bases only applies when external_blob_mode="reference"'
            )
        if self.use_legacy_format is not None:
            warnings.warn(
                "use_legacy_format is deprecated, use data_storage_version instead",
                DeprecationWarning,
                stacklevel=4,
            )

    def check_session(self) -> None:
        """Refuse a session beside a dataset that has another one."""
        from lancelet.dataset.dataset import LanceDataset  # noqa: PLC0415 - it writes too

        if self.session is None or not isinstance(self.uri, LanceDataset):
            return
        if not self.session.is_same_as(self.uri.session()):
            raise InvalidInputError(
                "the session is not the destination dataset's own session; leave it out, or "
                "pass the dataset's",
                uri=self.uri.uri,
            )

    def locate(self) -> tuple[TableLocation, IoMeter, OpenOptions]:
        """Return where to write, what counts the requests, and how the table is opened."""
        from lancelet.dataset.dataset import LanceDataset  # noqa: PLC0415 - it writes too

        if isinstance(self.uri, LanceDataset):
            handle = self.uri.handle
            return handle.location, handle.meter, handle.options
        named = named_table(self.uri, self.namespace_client, self.table_id)
        options = OpenOptions(
            self.storage_options, self.base_store_params, self.commit_lock, named=named
        )
        uri = self.uri
        if uri is None:
            assert named is not None, "one of the two was checked to be there"
            uri = named.uri_to_write(creates=self.write_mode is ops.write_table.WriteMode.CREATE)
        location, meter = locate(text_of(uri), options, self.session)
        return location, meter, options

    @property
    def write_mode(self) -> WriteMode:
        """What to do with a table that is there."""
        return ops.write_table.WriteMode.parse(self.mode)

    @property
    def options(self) -> WriteOptions:
        """What the layers below need to know."""
        properties = dict(self.transaction_properties or {})
        return ops.write_table.WriteOptions(
            files=self._files(),
            version=self._version(),
            commit=CommitOptions(
                stable_row_ids=self.enable_stable_row_ids,
                naming=ManifestNaming.V2 if self.enable_v2_manifest_paths else ManifestNaming.V1,
            ),
            remarks=ops.publish.Remarks(self.commit_message, properties),
            config=auto_cleanup_config(self.auto_cleanup_options or {}),
            bases=bases_from_user(self.initial_bases),
            allows_blobs_outside=self.allow_external_blob_outside_bases,
            ingests_blobs=self.external_blob_mode == "ingest",
            targets=ops.bases.BaseChoice(_names(self.target_bases), self.target_all_bases),
        )

    def _files(self) -> FileOptions:
        progress = self.progress
        return ops.write.FileOptions(
            limits=ops.write.FileLimits(
                self.max_rows_per_file,
                ops.write.FileLimits().max_rows_per_group
                if self.max_rows_per_group is None
                else self.max_rows_per_group,
                self.max_bytes_per_file,
            ),
            data_cache_bytes=self.data_cache_bytes,
            max_page_bytes=self.max_page_bytes,
            pack_file_bytes=self.blob_pack_file_size_threshold,
            on_begin=None if progress is None else _told(progress.begin),
            on_complete=None if progress is None else _told(progress.complete),
        )

    def _version(self) -> FileVersion | None:
        if self.use_legacy_format is not None:
            return FileVersion.parse("legacy" if self.use_legacy_format else "stable")
        selector = self.data_storage_version
        return None if selector is None else FileVersion.parse(selector)


def _names(bases: Sequence[str] | None) -> tuple[str, ...]:
    names = tuple(bases or ())
    for name in names:
        if not isinstance(name, str):
            raise BaseNameError("a base is named by text", found=str(type(name)))
    return names


def _told(tell: Callable[[FragmentMetadata], None]) -> Callable[[Fragment], None]:
    return lambda fragment: tell(fragment_to_user(fragment))
