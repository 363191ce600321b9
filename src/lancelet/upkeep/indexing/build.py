"""Build an index: write the files of a segment, then commit them.

For example:

    columns      id                       field 0
    fragments    0, 1, 2                  all, or those requested
    segment      _indices/5f0c.../...     files under a unique id
    commit       CreateIndex              by_id: segment 5f0c covers {0, 1, 2}
"""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import pairwise
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyroaring import FrozenBitMap

from lancelet import surroundings
from lancelet.change.publish import publish
from lancelet.errors import (
    AlreadyExistsError,
    FieldNotFoundError,
    InvalidInputError,
    UnsupportedError,
)
from lancelet.format.field import Field
from lancelet.format.field_path import format_path, parse_path
from lancelet.format.index_metadata import SYSTEM_INDICES, AnyDetails, IndexMetadata
from lancelet.format.operation import CreateIndex
from lancelet.format.paths import index_directory
from lancelet.index.base import AnyKind, IndexedRows, Parameters, Progress
from lancelet.index.folder import SegmentFolder
from lancelet.index.registry import kind_by_name
from lancelet.rowids.address import UInt64s
from lancelet.scan.indexing.segments import loses_rows
from lancelet.table.commit import CommitOptions, check_table_exists
from lancelet.table.snapshot import Snapshot
from lancelet.upkeep.indexing.rows import rows_to_index
from lancelet.values import dataclass

_LOADING: Final = "load_data"

ReportProgress: TypeAlias = Callable[[str, str, int, int], None]
"""Called with an event (start, progress, complete), a stage, the completed rows and the total rows.
"""


class IndexNameTakenError(AlreadyExistsError, RuntimeError):
    """An index with this name exists."""


class IndexNameReservedError(InvalidInputError, RuntimeError):
    """The index name is reserved for system indices."""


class UnknownColumnError(FieldNotFoundError, KeyError, RuntimeError):
    """The column does not exist."""


@dataclass(frozen=True, slots=True)
class IndexRequest:
    """The parameters of a new index.

    `fragments` is None for all. If `is_trained` is false, the index is created without rows and
    filled when it is optimized.
    """

    column: str
    kind: str
    name: str | None = None
    replaces: bool = True
    is_trained: bool = True
    fragments: tuple[int, ...] | None = None
    uuid: uuid.UUID | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict, hash=False)
    progress: ReportProgress | None = None


def create_scalar_index(snapshot: Snapshot, request: IndexRequest) -> Snapshot:
    """Build an index and commit it, replacing an index with the same name."""
    check_table_exists(snapshot)
    name = index_name(snapshot, request)
    replaced = replaced_segments(snapshot, name, request.column, replaces=request.replaces)
    if request.progress is None:
        built = build_segment(snapshot, request)
        return publish(snapshot, CreateIndex((built,), replaced))
    delayed = DelayedProgress(request.progress)
    built = build_segment(snapshot, replace(request, progress=delayed.report))
    created = publish(snapshot, CreateIndex((built,), replaced))
    delayed.flush(name)
    return created


class DelayedProgress:
    """Forwards progress events, and delays each `complete` event until the next event.

    The last `complete` event is sent after the commit, so that the callback cannot cancel it.
    """

    def __init__(self, report: ReportProgress) -> None:
        """Forward events to a callback."""
        self._report = report
        self._pending: tuple[str, str, int, int] | None = None

    def report(self, event: str, stage: str, done: int, total: int) -> None:
        """Forward the delayed event, then this event unless it is `complete`."""
        if self._pending is not None:
            self._report(*self._pending)
            self._pending = None
        if event == "complete":
            self._pending = (event, stage, done, total)
        else:
            self._report(event, stage, done, total)

    def flush(self, name: str) -> None:
        """Forward the last event; exceptions of the callback become warnings."""
        if self._pending is None:
            return
        try:
            self._report(*self._pending)
        except Exception as error:  # noqa: BLE001 - of a function of the user
            warnings.warn(
                f"the index {name} was built, but its progress callback raised "
                f"{type(error).__name__}: {error}",
                RuntimeWarning,
                stacklevel=4,
            )


def replaced_segments(
    snapshot: Snapshot, name: str, column: str, *, replaces: bool
) -> tuple[IndexMetadata, ...]:
    """Return the segments that a new index on a column replaces."""
    return replaced_segments_of_field(
        snapshot, name, resolve_column(snapshot, column)[-1], replaces=replaces
    )


def replaced_segments_of_field(
    snapshot: Snapshot, name: str, leaf: Field, *, replaces: bool
) -> tuple[IndexMetadata, ...]:
    """Return the segments that a new index on a field replaces."""
    replaced = _segments_with_name(snapshot, name, leaf)
    if replaced and not replaces:
        raise IndexNameTakenError(
            "an index with this name already exists; choose another name, or replace it", index=name
        )
    return replaced


def _segments_with_name(snapshot: Snapshot, name: str, leaf: Field) -> tuple[IndexMetadata, ...]:
    """Return the segments of an index; raise if they index another field."""
    if name in SYSTEM_INDICES:
        raise IndexNameReservedError(
            "the index name is reserved for system indices; choose another name", index=name
        )
    segments = tuple(index for index in snapshot.indices.indices if index.name == name)
    conflicting = [
        index
        for index in segments
        if tuple(index.fields) != (int(leaf.id),)
        and not index.missing_fields(snapshot.schema.by_id)
    ]
    if conflicting:
        raise IndexNameTakenError(
            "an index with this name already exists with different fields; choose another name",
            index=name,
            column=snapshot.schema.path_of(leaf.id),
            fields=list(conflicting[0].fields),
        )
    return segments


def commit_segments(
    snapshot: Snapshot, name: str, column: str, segments: Sequence[IndexMetadata]
) -> Snapshot:
    """Commit written segments as the index of a column, replacing an index with the same name."""
    leaf = snapshot.schema.field_by_path(column)
    covered: set[int] = set()
    for segment in segments:
        fragments = set(segment.fragment_bitmap or ())
        if tuple(segment.fields) != (int(leaf.id),) or fragments & covered:
            raise InvalidInputError(
                "the segments of an index must have the same column and cover different fragments",
                name=name,
                column=column,
                segment=str(segment.uuid),
            )
        covered |= fragments
    replaced = tuple(
        index
        for index in _segments_with_name(snapshot, name, leaf)
        if not covered or covered & set(index.fragment_bitmap or ())
    )
    named = tuple(replace(segment, name=name) for segment in segments)
    return publish(snapshot, CreateIndex(named, replaced), CommitOptions(checks_files=True))


def build_segment(
    snapshot: Snapshot, request: IndexRequest, folder: SegmentFolder | None = None
) -> IndexMetadata:
    """Write the files of an uncommitted index segment.

    They are written to `folder`, or to a new folder by default.
    """
    parameters = Parameters(request.parameters)
    kind = kind_by_name(request.kind).with_parameters(parameters)
    fields = resolve_column(snapshot, request.column)
    leaf = fields[-1]
    if not kind.accepts_nested_lists and any(field.is_list for field in fields[:-1]):
        raise UnknownColumnError(
            f"{kind.name} indices do not support values within lists", column=request.column
        )
    kind.check_type(kind.indexed_type(leaf.arrow_type), request.column)
    fragments = fragments_to_index(snapshot, request)
    path = tuple(field.name for field in fields)
    stable = snapshot.manifest.uses_stable_row_ids
    version = kind.version(parameters, stable_row_ids=stable)
    if loses_rows(snapshot, kind, version):
        raise UnsupportedError(
            "other writers do not maintain a JSON index with this target in tables with stable "
            "row ids; choose another target",
            column=request.column,
            target=kind.name,
        )
    by_address = kind.uses_addresses(version) or not stable
    rows = rows_to_index(
        snapshot,
        path,
        fragments,
        by_address=by_address,
        as_text=kind.reads_json_text,
        within=kind.json_path,
    )
    segment_id = request.uuid or surroundings.new_uuid()
    folder = folder or new_folder(snapshot, segment_id)
    details = _train(kind, rows, folder, request)
    return describe_segment(
        snapshot,
        kind,
        folder,
        segment_id,
        name=index_name(snapshot, request),
        leaf=leaf,
        details=details,
        covered=fragments,
        version=version,
    )


def _train(kind: AnyKind, rows: IndexedRows, folder: SegmentFolder, request: IndexRequest) -> bytes:
    """Write the files of a segment, and report progress."""
    parameters = Parameters(request.parameters)
    report = request.progress
    if report is None:
        return kind.train(rows, folder, parameters)
    if kind.reports_progress:
        report("start", _LOADING, 0, rows.num_rows)
        report("complete", _LOADING, 0, rows.num_rows)
        return kind.train(replace(rows, progress=_with_stage_events(report)), folder, parameters)
    stage, total = f"train_{kind.name.lower()}", rows.num_rows
    reporting = _ReportingRows(rows.parts, total, report)
    report("start", stage, 0, total)
    details = kind.train(replace(rows, parts=reporting), folder, parameters)
    report("complete", stage, total, total)
    return details


def _with_stage_events(report: ReportProgress) -> Progress:
    """Return a callback that derives start and complete events from row counts."""

    def report_stage(stage: str, done: int, total: int) -> None:
        report("progress" if done else "start", stage, done, total)
        if done == total:
            report("complete", stage, done, total)

    return report_stage


@dataclass(frozen=True, slots=True, eq=False)
class _ReportingRows:
    """Rows that report progress while they are iterated."""

    parts: Iterable[tuple[pa.Array, UInt64s]]
    total: int
    report: ReportProgress

    def __iter__(self) -> Iterator[tuple[pa.Array, UInt64s]]:
        done = 0
        self.report("start", _LOADING, done, self.total)
        for values, numbers in self.parts:
            yield values, numbers
            done += len(numbers)
            self.report("progress", _LOADING, done, self.total)
        self.report("complete", _LOADING, done, self.total)


def describe_segment(
    snapshot: Snapshot,
    kind: AnyKind,
    folder: SegmentFolder,
    segment_id: uuid.UUID,
    *,
    name: str,
    leaf: Field,
    details: bytes,
    covered: Sequence[int],
    version: int,
    dataset_version: int | None = None,
) -> IndexMetadata:
    """Return the metadata of a written segment."""
    return IndexMetadata(
        uuid=segment_id,
        name=name,
        fields=(int(leaf.id),),
        dataset_version=snapshot.version if dataset_version is None else dataset_version,
        fragment_bitmap=FrozenBitMap(covered),
        details=AnyDetails(kind.type_url, details),
        index_version=version,
        created_at=surroundings.time_ns() // 1_000_000,
        files=tuple(folder.written),
    )


def new_folder(snapshot: Snapshot, segment_id: uuid.UUID) -> SegmentFolder:
    """Return the folder for the files of a new segment."""
    return SegmentFolder(
        snapshot.location.store, index_directory(segment_id), snapshot.manifest.data_version
    )


def resolve_column(snapshot: Snapshot, column: str) -> tuple[Field, ...]:
    """Return the fields on the path to a column, ending with the column."""
    try:
        return snapshot.schema.fields_on_path(column, folds_case=True, passes_lists=True)
    except FieldNotFoundError as error:
        raise UnknownColumnError(error.message, **error.facts) from error


def normalize_path(snapshot: Snapshot, column: str) -> str:
    """Return the path of a column in the spelling of the schema, without list elements."""
    fields = resolve_column(snapshot, column)
    passed = {id(below) for field, below in pairwise(fields[:-1]) if field.is_list}
    return format_path([each.name for each in fields if id(each) not in passed])


def index_name(snapshot: Snapshot, request: IndexRequest) -> str:
    """Return the name of the requested index."""
    if request.name:
        return request.name
    suffix = kind_by_name(request.kind).name_suffix(Parameters(request.parameters))
    return default_name(normalize_path(snapshot, request.column), suffix)


def default_name(column: str, suffix: str = "idx") -> str:
    """Return the default name of an index; only necessary quotes are retained.

    >>> default_name("a.`b-c`")
    'a.b-c_idx'
    """
    return f"{format_path(parse_path(column))}_{suffix}"


def fragments_to_index(snapshot: Snapshot, request: IndexRequest) -> list[int]:
    """Return the fragments to index, in table order."""
    if not request.is_trained:
        return []
    fragment_ids: list[int] = snapshot.fragments.ids.tolist()
    if request.fragments is None:
        return fragment_ids
    unknown = sorted(set(request.fragments) - set(fragment_ids))
    if unknown:
        raise InvalidInputError("the table does not have these fragments", fragments=unknown[:10])
    return sorted(set(request.fragments))
