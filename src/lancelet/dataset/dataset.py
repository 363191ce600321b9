"""The `LanceDataset` class, with the API of pylance: a table at one version.

It is a `pyarrow.dataset.Dataset`, so DuckDB, Polars and pandas can read it. Methods convert their
arguments into values of the lower layers and delegate. They are grouped by subject: reading,
history, settings, and the remaining ones here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.dataset

from lancelet import change, upkeep
from lancelet.bitmap import Bitmap
from lancelet.dataset.arguments import checks_types, with_clear_errors
from lancelet.dataset.blob import BlobMethods
from lancelet.dataset.columns import EvolutionMethods
from lancelet.dataset.fragment import LanceFragment
from lancelet.dataset.handle import (
    Handle,
    OpenOptions,
    VersionLike,
    open_handle,
    text_of,
)
from lancelet.dataset.history.changes import ChangeMethods
from lancelet.dataset.history.refs import RefMethods
from lancelet.dataset.history.versions import HistoryMethods
from lancelet.dataset.index.recall import RecallMethods
from lancelet.dataset.index.scalar import IndexMethods
from lancelet.dataset.index.segments import IndexSegmentMethods
from lancelet.dataset.index.vector import VectorIndexMethods
from lancelet.dataset.maintenance.maintenance import MaintenanceMethods
from lancelet.dataset.maintenance.settings import BaseMethods, SettingsMethods, StorageMethods
from lancelet.dataset.maintenance.statistics import LanceStats
from lancelet.dataset.mem_wal.methods import MemWalMethods
from lancelet.dataset.mutation import MutationMethods
from lancelet.dataset.named_table import named_table
from lancelet.dataset.scan.arrow import ArrowMethods
from lancelet.dataset.scan.ranked import HybridMethods, TextMethods
from lancelet.dataset.session import Session
from lancelet.dataset.show import display
from lancelet.dataset.show.plots import Plots
from lancelet.dataset.show.progress import ProgressOption, shown
from lancelet.dataset.sql.query import SqlMethods
from lancelet.dataset.views import MaterializedView, ViewMethods
from lancelet.dataset.write.committing import CommitMethods
from lancelet.dataset.write.models import ModelMethods
from lancelet.dataset.write.schema import LanceSchema
from lancelet.errors import DatasetNotFoundError, InvalidInputError, NotFoundError
from lancelet.io.metered import IoCounts, IoMeter
from lancelet.scan.indexing.segments import index_loads
from lancelet.scan.row_columns import ROW_FIELDS
from lancelet.table.location import TableLocation
from lancelet.table.manifests import find_latest
from lancelet.table.snapshot import Snapshot

if TYPE_CHECKING:
    from lancelet.change.dry_run import ChangeReport

_ROW_OPTIONS: Final = {"with_row_id": "_rowid", "with_row_address": "_rowaddr"}


@with_clear_errors
class LanceDataset(
    ArrowMethods,
    HistoryMethods,
    ChangeMethods,
    SqlMethods,
    RefMethods,
    BaseMethods,
    BlobMethods,
    CommitMethods,
    SettingsMethods,
    StorageMethods,
    EvolutionMethods,
    MutationMethods,
    MemWalMethods,
    ModelMethods,
    MaintenanceMethods,
    IndexMethods,
    IndexSegmentMethods,
    VectorIndexMethods,
    RecallMethods,
    HybridMethods,
    TextMethods,
    ViewMethods,
):
    """A Lance table at one version: reads, changes, history, indices and maintenance.

    A dataset is pinned to its version. A change made through it checks out the new version;
    `checkout_latest` checks out versions of other writers.
    """

    def __init__(
        self,
        uri: str | os.PathLike[str] | None,
        version: VersionLike = None,
        block_size: int | None = None,  # noqa: ARG002
        index_cache_size: int | None = None,  # noqa: ARG002
        metadata_cache_size: int | None = None,  # noqa: ARG002
        commit_lock: Any = None,
        storage_options: Mapping[str, str] | None = None,
        serialized_manifest: bytes | None = None,  # noqa: ARG002
        default_scan_options: Mapping[str, Any] | None = None,
        metadata_cache_size_bytes: int | None = None,
        index_cache_size_bytes: int | None = None,
        read_params: Mapping[str, Any] | None = None,  # noqa: ARG002
        session: Session | None = None,
        namespace_client: Any = None,
        table_id: Sequence[str] | None = None,
        namespace_client_managed_versioning: bool = False,
        base_store_params: Mapping[str, Mapping[str, str]] | None = None,
        *,
        asof: datetime | None = None,
        _handle: Handle | None = None,
    ) -> None:
        """Open a table.

        Args:
            uri: A local path or a URI.
            version: A number, a tag, or a branch with a number; by default the latest.
            block_size: Has no effect: request sizes are chosen automatically.
            index_cache_size: Has no effect: the cache is limited in bytes.
            metadata_cache_size: Has no effect, for the same reason.
            commit_lock: A lock held during commits, for stores without conditional puts.
            storage_options: Settings of the store, such as credentials.
            serialized_manifest: Has no effect: the manifest is always read.
            default_scan_options: Default options of scans.
            metadata_cache_size_bytes: The size of a separate metadata cache.
            index_cache_size_bytes: The size of a separate index cache.
            read_params: Has no effect.
            session: The session with the caches to use; by default the process-wide session.
            namespace_client: The namespace that provides the location and storage options.
            table_id: The id of the table in the namespace.
            namespace_client_managed_versioning: Whether the namespace manages the versions of a
                table opened by `uri`; without `uri`, the namespace reports it.
            base_store_params: Storage options of base paths, by path.
            asof: Opens the version that was the latest at that time.
        """
        super().__init__()
        named = named_table(uri, namespace_client, table_id)
        if named is not None and uri is None and _handle is None:
            uri, storage_options, named = named.opened(storage_options)
        elif named is not None:
            named = replace(named, is_managed=namespace_client_managed_versioning)
        self._session = session or Session(index_cache_size_bytes, metadata_cache_size_bytes)
        options = OpenOptions(
            storage_options, base_store_params, commit_lock, default_scan_options, named
        )
        assert uri is not None, "validated above, or set by the namespace"
        self._handle = _handle or open_handle(
            text_of(uri), version, options, asof=asof, session=self._session
        )
        self._uri = text_of(uri) if version is None else self._handle.location.uri

    # --- properties ---------------------------------------------------------------------------

    @property
    def uri(self) -> str:
        """The URI that the dataset was opened with."""
        return self._uri

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot of the checked-out version."""
        return self._handle.snapshot

    @property
    def handle(self) -> Handle:
        """The handle used by the methods."""
        return self._handle

    @property
    def default_scan_options(self) -> Mapping[str, Any]:
        """Default options of scans."""
        return self._handle.options.default_scan_options or {}

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the dataset."""
        schema = self.snapshot.schema.to_arrow()
        for option, name in _ROW_OPTIONS.items():
            if self.default_scan_options.get(option):
                schema = schema.append(ROW_FIELDS[name])
        return schema

    @property
    def lance_schema(self) -> LanceSchema:
        """The schema with field ids."""
        return LanceSchema(self.snapshot.schema)

    @property
    def max_field_id(self) -> int:
        """The highest field id in the schema."""
        return self.snapshot.manifest.max_field_id

    @property
    def data_storage_version(self) -> str:
        """The file version of new data files."""
        return self.snapshot.manifest.data_version.value

    @property
    def has_stable_row_ids(self) -> bool:
        """Whether rows have stable row ids."""
        return self.snapshot.manifest.uses_stable_row_ids

    @property
    def stats(self) -> LanceStats:
        """Statistics of the checked-out version."""
        return LanceStats(self)

    def session(self) -> Session:
        """Return the session with the caches; other datasets can share it.

        Returns:
            The session.

        Example:
            ```python
            lance.dataset(dataset.uri, session=dataset.session())
            ```
        """
        return self._session

    def io_stats_snapshot(self) -> IoCounts:
        """Return the number of requests and bytes since the dataset was opened.

        Returns:
            The counts.

        Example:
            ```python
            dataset.to_table()
            dataset.io_stats_snapshot().read_bytes
            ```
        """
        return self._handle.meter.counts

    def io_stats_incremental(self) -> IoCounts:
        """Return the number of requests and bytes since the last call.

        Returns:
            The counts.

        Example:
            ```python
            dataset.io_stats_incremental()
            dataset.count_rows("id = 3")
            dataset.io_stats_incremental().read_iops
            ```
        """
        return self._handle.meter.take()

    # --- fragments ----------------------------------------------------------------------------

    def get_fragments(self, filter: Any = None) -> list[LanceFragment]:  # noqa: A002 - pylance's name
        """Return the fragments.

        Args:
            filter: Must be None.

        Returns:
            The fragments, in the order of the table.

        Example:
            ```python
            [fragment.count_rows() for fragment in dataset.get_fragments()]
            ```
        """
        if filter is not None:
            raise InvalidInputError("get_fragments() does not support filter yet")
        fragments = self.snapshot.fragments
        if len(np.unique(fragments.ids)) == len(fragments):
            return [LanceFragment(self, None, fragment=each) for each in fragments]
        alone = (self.at(self.snapshot.with_single_fragment(each)) for each in fragments)
        return [
            LanceFragment(part, None, fragment=each)
            for part, each in zip(alone, fragments, strict=True)
        ]

    def fragment_ids(self) -> Bitmap:
        """Return the ids of the fragments.

        Returns:
            A bitmap, which can be iterated.

        Example:
            ```python
            list(dataset.fragment_ids())
            ```
        """
        return Bitmap(self.snapshot.fragments.ids.tolist())

    @checks_types
    def get_fragment(self, fragment_id: int) -> LanceFragment | None:
        """Return a fragment by id.

        Args:
            fragment_id: The id.

        Returns:
            The fragment, or None if it does not exist.

        Example:
            ```python
            dataset.get_fragment(0).count_rows()
            ```
        """
        try:
            self.snapshot.fragments.index_of(fragment_id)
        except NotFoundError:
            return None
        return LanceFragment(self, fragment_id)

    # --- table --------------------------------------------------------------------------------

    def validate(self, *, progress: ProgressOption = None) -> None:
        """Verify that the files of the version exist and match the manifest.

        `check` verifies their contents as well.

        Args:
            progress: Whether to show a progress bar, or a function called with `IndexProgress`.

        Raises:
            CorruptDataError: If a file is missing or contradicts the manifest.

        Example:
            ```python
            dataset.validate()
            ```
        """
        with shown(progress):
            upkeep.validate.validate(self.snapshot)

    @staticmethod
    @checks_types
    def drop(
        base_uri: str | os.PathLike[str],
        storage_options: Mapping[str, str] | None = None,
        ignore_not_found: bool | None = None,
        *,
        dry_run: bool = False,
    ) -> ChangeReport | None:
        """Delete a table with all its versions. Other folders are not deleted.

        Args:
            base_uri: The URI of the table.
            storage_options: Options of the object store.
            ignore_not_found: Whether to do nothing if the table does not exist.
            dry_run: Delete nothing and return a report of what would be deleted.

        Returns:
            None; with `dry_run`, the `ChangeReport`.

        Raises:
            DatasetNotFoundError: If the URI contains no dataset.

        Example:
            ```python
            lance.LanceDataset.drop("no-such-table.lance", ignore_not_found=True)
            ```
        """
        location = TableLocation.open(text_of(base_uri), storage_options)
        if find_latest(location.store) is None:
            if not ignore_not_found:
                raise DatasetNotFoundError("the dataset does not exist", uri=text_of(base_uri))
            return change.dry_run.ChangeReport("Drop", 0, 0, 0) if dry_run else None
        if dry_run:
            return change.dry_run.dry_run_without_commit(
                location, "Drop", lambda there: there.store.delete_folder("")
            )
        location.store.delete_folder("")
        return None

    def index_cache_hit_rate(self) -> float:
        """Return the hit rate of the index cache.

        Returns:
            The fraction of cache hits, from 0 to 1.

        Example:
            ```python
            dataset.index_cache_hit_rate()
            ```
        """
        loads = index_loads(self.snapshot)
        needed = loads.cache_hits + loads.parts
        return loads.cache_hits / needed if needed else 0.0

    @property
    def _ds(self) -> LanceDataset:
        """The dataset itself; in pylance, the native object."""
        return self

    @property
    def _storage_options(self) -> Mapping[str, str] | None:
        """The storage options, under pylance's private name."""
        return self._handle.options.storage_options

    @property
    def _default_scan_options(self) -> Mapping[str, Any] | None:
        """`default_scan_options`, under pylance's private name."""
        return self._handle.options.default_scan_options

    @_default_scan_options.setter
    def _default_scan_options(self, options: Mapping[str, Any] | None) -> None:
        handle = self._handle
        handle.options = replace(handle.options, default_scan_options=options)

    @property
    def _namespace_client(self) -> Any:
        """The namespace of the table, or None."""
        named = self._handle.options.named
        return None if named is None else named.client

    @property
    def _table_id(self) -> list[str] | None:
        """The id of the table in its namespace, or None."""
        named = self._handle.options.named
        return None if named is None else list(named.table_id)

    @property
    def _namespace_client_managed_versioning(self) -> bool:
        """Whether the namespace manages the versions of the table."""
        named = self._handle.options.named
        return named is not None and bool(named.is_managed)

    # --- protocols ----------------------------------------------------------------------------

    @property
    def open_options(self) -> OpenOptions:
        """The options used to open the dataset."""
        return self._handle.options

    @property
    def meter(self) -> IoMeter:
        """The request counters of the dataset."""
        return self._handle.meter

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.count_rows()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the URI, the version and the table identity; unpickling opens the version."""
        snapshot = self.snapshot
        options = self._handle.options
        return (_reopened, (type(self), self._uri, self.version, options, snapshot.identity))

    def __copy__(self) -> LanceDataset:
        """Return an independent dataset at the same version."""
        return self.at(self.snapshot)

    def __repr__(self) -> str:
        """Show the URI and the checked-out version."""
        return f"LanceDataset({self._uri!r}, version={self.version})"

    def _repr_html_(self) -> str:
        """Render a summary and the first rows for notebooks."""
        fragments = self.snapshot.fragments
        facts = {
            "version": self.version,
            "rows": self.snapshot.num_rows,
            "fragments": len(fragments),
            "size": display.size_text(self.snapshot.data_bytes),
            "file version": self.data_storage_version,
            "indices": sorted({index.name for index in self.snapshot.indices.indices}) or None,
        }
        columns = ((field.name, field.type) for field in self.schema)
        first = display.preview(self.head(5))
        return display.card(self._uri, facts, display.grid(("column", "type"), columns), first)

    @property
    def plot(self) -> Plots:
        """Plots of the table with matplotlib: sizes, history, fragments, recall."""
        return Plots(self)

    def at(self, snapshot: Snapshot) -> LanceDataset:
        """Return the dataset at another snapshot, with the same options.

        Args:
            snapshot: The snapshot.

        Returns:
            The dataset.

        Example:
            ```python
            old = dataset.at(lance.dataset(dataset.uri, version=1).snapshot)
            old.count_rows()  # 20
            ```
        """
        uri = snapshot.location.uri
        return LanceDataset(uri, session=self._session, _handle=self._handle.at(snapshot))


def open_view(
    uri: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, str] | None = None,
    source_options: Mapping[str, str] | None = None,
    tables: Mapping[str, str | os.PathLike[str]] | None = None,
) -> MaterializedView:
    """Open a view.

    Args:
        uri: The location of the table of the view.
        storage_options: The storage options of the view.
        source_options: The storage options of the source and of joined tables, by default those of
            the view.
        tables: The locations of tables that were moved, by their names in the query; `source` is
            the source. The next refresh that changes the view records them.

    Returns:
        The view.

    Raises:
        InvalidInputError: If the table is no view.

    Example:
        ```python
        import lancelet

        lancelet.write_dataset({"id": [1, 2]}, "memory://numbers", enable_stable_row_ids=True)
        numbers = lancelet.dataset("memory://numbers")
        numbers.create_view("memory://small", "SELECT id FROM source WHERE id < 2")
        lancelet.open_view("memory://small").to_table()
        ```
    """
    handle = open_handle(text_of(uri), None, OpenOptions(storage_options=storage_options))
    moved = {name: text_of(location) for name, location in (tables or {}).items()}
    return MaterializedView(LanceDataset, handle, source_options, moved)


def _reopened(
    kind: type[LanceDataset], uri: str, version: int, options: OpenOptions, identity: str
) -> LanceDataset:
    handle = open_handle(uri, version, options)
    handle.snapshot.check_identity(identity)
    return kind(uri, _handle=handle)
