"""Methods that build, list and drop indices."""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace as replace_fields
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypedDict

import pyarrow as pa

from lancelet import index as kinds
from lancelet import upkeep
from lancelet.arguments import ArgumentTypeError
from lancelet.bitmap import Bitmap
from lancelet.dataset.arguments import checks_types
from lancelet.dataset.handle import Handle
from lancelet.dataset.show import display
from lancelet.dataset.show.listing import Facts, Listing
from lancelet.dataset.show.progress import IndexProgress, ProgressOption, shown
from lancelet.errors import InvalidInputError, UnsupportedError
from lancelet.format.index_metadata import IndexMetadata
from lancelet.query import DocumentGranularity
from lancelet.table.commit import CommitOptions
from lancelet.table.fragment_reuse import remapped_indices
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

if TYPE_CHECKING:
    from lancelet.change.dry_run import ChangeReport
    from lancelet.upkeep.indexing.build import IndexRequest, ReportProgress
    from lancelet.upkeep.indexing.optimize import OptimizeIndices


_UNKNOWN_FIELD: Final = "<unknown>"


class IndexInformation(TypedDict):
    """The description of an index segment in `list_indices`."""

    name: str
    type: str
    uuid: str
    fields: list[str]
    version: int
    fragment_ids: Bitmap
    base_id: int | None


@dataclass(frozen=True)
class IndexSegmentDescription:
    """One segment of an index."""

    uuid: str
    fragment_ids: Bitmap
    dataset_version_at_last_update: int
    index_version: int
    created_at: datetime | None
    size_bytes: int | None
    base_id: int | None
    covering_fields: list[int]


@dataclass(frozen=True)
class IndexDescription:
    """The kind, columns and segments of an index."""

    name: str
    index_type: str
    type_url: str
    fields: list[int]
    field_names: list[str]
    num_rows_indexed: int
    total_size_bytes: int | None
    details: dict[str, Any]
    segments: list[IndexSegmentDescription]

    def _repr_html_(self) -> str:
        """Render the description for notebooks."""
        size = None if self.total_size_bytes is None else display.size_text(self.total_size_bytes)
        facts = {
            "kind": self.index_type,
            "columns": self.field_names,
            "rows": self.num_rows_indexed,
            "size": size,
            "segments": len(self.segments),
        }
        details = display.grid(("detail", "value"), self.details.items())
        return display.card(self.name, facts, details)


_INDEX_COLUMNS: Final = ("name", "kind", "columns", "rows", "size", "segments")
_SEGMENT_COLUMNS: Final = ("name", "kind", "columns", "version", "fragments", "uuid")


def _index_cells(index: IndexDescription) -> list[Any]:
    size = "" if index.total_size_bytes is None else display.size_text(index.total_size_bytes)
    rows, segments = index.num_rows_indexed, len(index.segments)
    return [index.name, index.index_type, index.field_names, rows, size, segments]


def _segment_cells(index: IndexInformation) -> list[Any]:
    fragments = len(index["fragment_ids"])
    columns, version = index["fields"], index["version"]
    return [index["name"], index["type"], columns, version, fragments, index["uuid"]]


class IndexMethods:
    """Methods that build, list and drop indices."""

    _handle: Handle

    @checks_types
    def create_scalar_index(
        self,
        column: str | Sequence[str],
        index_type: Any = None,
        name: str | None = None,
        *,
        replace: bool = True,
        train: bool = True,
        fragment_ids: Sequence[int] | None = None,
        index_uuid: str | None = None,
        progress_callback: Callable[[IndexProgress], None] | None = None,
        format_version: int | str | None = None,
        document_granularity: DocumentGranularity | str = DocumentGranularity.ROW,
        resume: bool = False,
        progress: ProgressOption = None,
        dry_run: bool = False,
        **parameters: Any,
    ) -> ChangeReport | None:
        """Build a scalar or full-text index on a column.

        Args:
            column: The path of the column.
            index_type: The kind, required: `BTREE`, `BITMAP`, `LABEL_LIST`, `NGRAM`, `INVERTED`,
                `ZONEMAP`, `BLOOMFILTER`, `MINHASHLSH`, `RTREE`, or an index on a JSON path.
            name: The name; by default the column path with the suffix `_idx`.
            replace: Whether to replace an index of this name.
            train: Whether to index the existing rows now instead of in `optimize_indices`.
            fragment_ids: The fragments to index, by default all; only for INVERTED. Use
                `create_index_uncommitted` for segments of other kinds.
            index_uuid: The id of the segment, by default a new one. With `fragment_ids`, the
                segment is not committed; see `merge_index_metadata`.
            progress_callback: Called with an `IndexProgress`. An exception of the callback stops
                the build, and no version refers to the files written until then. An exception after
                the commit becomes a warning.
            format_version: The version of the index files, for kinds with several versions.
            document_granularity: Whether a document is a row or an element of a list.
            resume: Whether to build the index in parts of about a million rows each, which outlive
                an interrupted build. Repeating the call writes the missing parts and merges all.
            progress: Whether to show a progress bar, or a function called with `IndexProgress`.
            dry_run: If True, return a `ChangeReport` without committing.
            parameters: Further parameters of the index kind.

        Returns:
            None; with `dry_run`, the `ChangeReport`.

        Raises:
            FieldNotFoundError: If a column does not exist.
            InvalidInputError: If the index kind does not support the type of the column.
            AlreadyExistsError: If the name exists and `replace` is False.
            CommitConflictError: If a concurrent commit changed the same index.

        Example:
            ```python
            dataset.create_scalar_index("id", "BTREE")
            dataset.create_scalar_index("text", "INVERTED", with_position=True)
            ```
        """
        if index_type is None:
            raise _missing_kind(self._handle.snapshot, column)
        granularity = getattr(document_granularity, "value", document_granularity)
        named = {
            "format_version": format_version,
            "document_granularity": None if granularity == "row" else granularity,
        }
        parameters |= {name: value for name, value in named.items() if value is not None}
        request = index_request(column, index_type, name, parameters)
        built = with_scope(request, replace, train, fragment_ids, index_uuid)
        upkeep.indexing.staged.check_parts(built)
        with shown(progress) as called:
            callback = progress_callback or called
            if callback is not None:
                built = replace_fields(built, progress=_reporting(callback))
            if dry_run:
                return upkeep.indexing.staged.report_scalar_index(self._handle.snapshot, built)
            self._build_scalar_index(built, resume=resume)
        return None

    def _build_scalar_index(self, built: IndexRequest, *, resume: bool) -> None:
        if upkeep.indexing.staged.is_staged(built):
            upkeep.indexing.staged.stage_segment(self._handle.snapshot, built)
            return
        build = (
            upkeep.indexing.resume.resume_scalar_index
            if resume
            else upkeep.indexing.build.create_scalar_index
        )
        self._handle.snapshot = build(self._handle.snapshot, built)

    def run_optimize_indices(
        self, request: OptimizeIndices, *, dry_run: bool = False
    ) -> ChangeReport | None:
        """Update indices; called by `optimize.optimize_indices`.

        Args:
            request: The options.
            dry_run: If True, return a `ChangeReport` without committing.

        Returns:
            None; with `dry_run`, the `ChangeReport`.

        Example:
            ```python
            from lancelet.upkeep.indexing.optimize import OptimizeIndices

            dataset.create_scalar_index("id", "BTREE")
            dataset.insert(new_books)
            dataset.run_optimize_indices(OptimizeIndices(names=("id_idx",)))
            ```
        """
        handle = self._handle
        if dry_run:
            return upkeep.indexing.staged.report_optimize(handle.snapshot, request)
        options = CommitOptions(handler=handle.options.handler)
        handle.snapshot = upkeep.indexing.optimize.optimize_indices(
            handle.snapshot, request, options
        )
        return None

    @checks_types
    def drop_index(self, name: str, *, dry_run: bool = False) -> ChangeReport | None:
        """Remove an index.

        Args:
            name: The name of the index.
            dry_run: If True, return a `ChangeReport` without committing.

        Returns:
            None; with `dry_run`, the `ChangeReport`.

        Raises:
            IndexNotFoundError: If the index does not exist.
            CommitConflictError: If a concurrent commit made a conflicting change.

        Example:
            ```python
            dataset.create_scalar_index("id", "BTREE")
            dataset.drop_index("id_idx")
            ```
        """
        return self._handle.change(
            lambda current: upkeep.indexing.drop.drop_index(current, name), dry_run=dry_run
        )

    @property
    def has_index(self) -> bool:
        """Whether the table has an index."""
        return bool(self._handle.snapshot.indices.indices)

    def list_indices(self) -> list[IndexInformation]:
        """Deprecated: use `describe_indices`, with one entry per index instead of per segment.

        Returns:
            A dict per segment.
        """
        warnings.warn(
            "list_indices is deprecated. Use describe_indices() instead.",
            DeprecationWarning,
            stacklevel=2,
        )
        snapshot = self._handle.snapshot
        ordered = sorted(remapped_indices(snapshot), key=lambda index: index.name)
        found = (_index_information(snapshot, index) for index in ordered)
        return Listing(found, _SEGMENT_COLUMNS, _segment_cells)

    def describe_indices(self) -> list[IndexDescription]:
        """Return all indices with their segments.

        Returns:
            An `IndexDescription` per index.

        Example:
            ```python
            dataset.create_scalar_index("id", "BTREE")
            for index in dataset.describe_indices():
                print(index.name, index.index_type, index.num_rows_indexed)
            ```
        """
        snapshot = self._handle.snapshot
        by_name: dict[str, list[IndexMetadata]] = {}
        for index in sorted(remapped_indices(snapshot), key=lambda index: index.name):
            by_name.setdefault(index.name, []).append(index)
        described = (_description(snapshot, name, found) for name, found in by_name.items())
        return Listing(described, _INDEX_COLUMNS, _index_cells)

    @checks_types
    def prewarm_index(
        self,
        name: str,
        *,
        with_position: bool = False,  # noqa: ARG002 - only full-text indices have positions
        index_segments: Iterable[str | uuid.UUID] | None = None,
    ) -> None:
        """Load an index into the cache, to speed up the first query.

        Args:
            name: The name of the index.
            with_position: Whether to load token positions, for full-text indices.
            index_segments: The ids of the segments, by default all.

        Raises:
            IndexNotFoundError: If the index does not exist.

        Example:
            ```python
            dataset.create_scalar_index("text", "INVERTED")
            dataset.prewarm_index("text_idx")
            ```
        """
        chosen = None if index_segments is None else {uuid.UUID(str(one)) for one in index_segments}
        upkeep.indexing.describe.open_segments(self._handle.snapshot, name, chosen)

    @checks_types
    def index_statistics(self, index_name: str) -> dict[str, Any]:
        """Deprecated: use `dataset.stats.index_stats`.

        Args:
            index_name: The name of the index.

        Returns:
            A dict; its keys depend on the index kind.

        Raises:
            IndexNotFoundError: If the index does not exist.
        """
        warnings.warn(
            "index_statistics is deprecated. Use stats.index_stats(name) instead.",
            DeprecationWarning,
            stacklevel=2,
        )
        return Facts(upkeep.indexing.describe.index_statistics(self._handle.snapshot, index_name))


def index_request(
    column: Any, index_type: Any, name: str | None, parameters: Mapping[str, Any]
) -> IndexRequest:
    """Return the request for a scalar index."""
    if isinstance(column, list):
        if len(column) != 1:
            raise UnsupportedError(
                "Scalar indices currently only support a single column", columns=column
            )
        column = column[0]
    if not isinstance(index_type, str):
        config, index_type = index_type, index_type.index_type
        parameters = {**parameters, **config.parameters}
    return upkeep.indexing.build.IndexRequest(column, index_type, name, parameters=dict(parameters))


def _missing_kind(snapshot: Snapshot, column: str | Sequence[str]) -> InvalidInputError:
    """Return the error for a missing index type, with the kinds that fit the column."""
    name = column if isinstance(column, str) else column[0]
    field = upkeep.indexing.build.resolve_column(snapshot, name)[-1]
    suitable = [
        kind.name
        for kind in kinds.registry.SCALAR_KINDS
        if kind.supports_type(kind.indexed_type(field.arrow_type))
    ]
    call = f"create_scalar_index({name!r}, {suitable[0]!r})" if suitable else ""
    if pa.types.is_string(field.arrow_type) or pa.types.is_large_string(field.arrow_type):
        call += f" for filters or create_scalar_index({name!r}, 'INVERTED') for text search"
    elif kinds.vector.vectors.vector_type_of(field.arrow_type) is not None:
        call = f"create_index({name!r}) for vector search"
    return ArgumentTypeError(
        f"create_scalar_index requires an index type; call dataset.{call}",
        column=name,
        expected=suitable,
    )


def with_scope(
    request: IndexRequest,
    replaces: bool,
    train: bool,
    fragment_ids: Sequence[int] | None,
    index_uuid: str | None,
) -> IndexRequest:
    """Return a request with its rows to index."""
    return upkeep.indexing.build.IndexRequest(
        request.column,
        request.kind,
        request.name,
        replaces=replaces,
        is_trained=train,
        fragments=None if fragment_ids is None else tuple(fragment_ids),
        uuid=None if index_uuid is None else parse_uuid(index_uuid),
        parameters=request.parameters,
    )


def _reporting(callback: Callable[[IndexProgress], None]) -> ReportProgress:
    """Return a progress function that calls `callback` with an `IndexProgress`."""

    def report(event: Any, stage: str, completed: int, total: int) -> None:
        callback(IndexProgress(event, stage, completed, total, "rows"))

    return report


def parse_uuid(text: str) -> uuid.UUID:
    """Parse the text of a UUID."""
    try:
        return uuid.UUID(text)
    except ValueError as error:
        raise InvalidInputError(f"Invalid UUID: {text}") from error


def _index_information(snapshot: Snapshot, index: IndexMetadata) -> IndexInformation:
    return IndexInformation(
        name=index.name,
        type=upkeep.indexing.describe.index_title(index),
        uuid=str(index.uuid),
        fields=_field_names(snapshot, index),
        version=index.dataset_version,
        fragment_ids=Bitmap(index.fragment_bitmap or ()),
        base_id=index.base_id,
    )


def _description(
    snapshot: Snapshot, name: str, segments: Sequence[IndexMetadata]
) -> IndexDescription:
    first = segments[0]
    details = first.details
    kind = None if details is None else kinds.registry.kind_by_details_type(details.type_url)
    described = [_segment(segment) for segment in segments]
    sizes = [segment.size_bytes for segment in described]
    recorded = [size for size in sizes if size is not None]
    return IndexDescription(
        name=name,
        index_type=upkeep.indexing.describe.index_title(first),
        type_url="" if details is None else details.type_url,
        fields=[int(field_id) for field_id in first.fields],
        field_names=_field_names(snapshot, first),
        num_rows_indexed=upkeep.indexing.describe.compute_coverage(snapshot, segments).indexed_rows,
        total_size_bytes=sum(recorded) if len(recorded) == len(sizes) else None,
        details={} if kind is None or details is None else kind.describe(details.value),
        segments=described,
    )


def _field_names(snapshot: Snapshot, index: IndexMetadata) -> list[str]:
    """Return the paths of the indexed columns, `<unknown>` for dropped columns."""
    schema = snapshot.schema
    return [
        schema.path_of(field_id) if field_id in schema.by_id else _UNKNOWN_FIELD
        for field_id in index.fields
    ]


def _segment(segment: IndexMetadata) -> IndexSegmentDescription:
    return IndexSegmentDescription(
        uuid=str(segment.uuid),
        fragment_ids=Bitmap(segment.fragment_bitmap or ()),
        dataset_version_at_last_update=segment.dataset_version,
        index_version=segment.index_version or 0,
        created_at=upkeep.indexing.describe.created_at(segment),
        size_bytes=sum(file.size_bytes for file in segment.files) if segment.files else None,
        base_id=segment.base_id,
        covering_fields=list(segment.covering_fields),
    )
