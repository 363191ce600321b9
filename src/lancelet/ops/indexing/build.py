"""Building an index: its files first, then one commit that lists them.

columns      id                       field 0
fragments    0, 1, 2                  all, or those that were named
segment      _indices/5f0c.../...     files under a name nobody else has
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
from lancelet.ops.indexing.rows import rows_to_index
from lancelet.ops.publish import publish
from lancelet.query.indexing.segments import loses_rows
from lancelet.rowids.address import UInt64s
from lancelet.table.commit import CommitOptions, check_table_exists
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

_LOADING: Final = "load_data"

ReportProgress: TypeAlias = Callable[[str, str, int, int], None]
"""Is told an event (start, progress, complete), a stage, and how many rows are done of how many."""


class IndexNameTakenError(AlreadyExistsError, RuntimeError):
    """An index has that name."""


class IndexNameReservedError(InvalidInputError, RuntimeError):
    """No index of a column can have that name."""


class UnknownColumnError(FieldNotFoundError, KeyError, RuntimeError):
    """No column has that name."""


@dataclass(frozen=True, slots=True)
class IndexRequest:
    """What index to build.

    `fragments` is None for all. Without `is_trained` the index is made with no rows, to be
    filled when it is optimised.
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
    """Build an index and commit it, in place of one of the same name if there is any."""
    check_table_exists(snapshot)
    name = name_of(snapshot, request)
    replaced = replaced_by(snapshot, name, request.column, replaces=request.replaces)
    if request.progress is None:
        built = build_segment(snapshot, request)
        return publish(snapshot, CreateIndex((built,), replaced))
    last = LastEvent(request.progress)
    built = build_segment(snapshot, replace(request, progress=last.report))
    created = publish(snapshot, CreateIndex((built,), replaced))
    last.tell(name)
    return created


class LastEvent:
    """Tells how far a build is, and holds the end of a stage back until it is known what follows.

    The end of the last stage is told once the index is there, and cannot undo it any more.
    """

    def __init__(self, report: ReportProgress) -> None:
        """Tell a function."""
        self._report = report
        self._held: tuple[str, str, int, int] | None = None

    def report(self, event: str, stage: str, done: int, total: int) -> None:
        """Tell what was held back, and then this unless it is the end of a stage."""
        if self._held is not None:
            self._report(*self._held)
            self._held = None
        if event == "complete":
            self._held = (event, stage, done, total)
        else:
            self._report(event, stage, done, total)

    def tell(self, name: str) -> None:
        """Tell the end of the last stage; an error of who is told is only warned of."""
        if self._held is None:
            return
        try:
            self._report(*self._held)
        except Exception as error:  # noqa: BLE001 - of a function of the user
            warnings.warn(
                f"the index {name} is built, but the callback of its progress raised "
                f"{type(error).__name__}: {error}",
                RuntimeWarning,
                stacklevel=4,
            )


def replaced_by(
    snapshot: Snapshot, name: str, column: str, *, replaces: bool
) -> tuple[IndexMetadata, ...]:
    """Return the segments of a column in whose place an index of that name comes."""
    return replaced_on(snapshot, name, fields_to(snapshot, column)[-1], replaces=replaces)


def replaced_on(
    snapshot: Snapshot, name: str, leaf: Field, *, replaces: bool
) -> tuple[IndexMetadata, ...]:
    """Return the segments of a field in whose place an index of that name comes."""
    replaced = _of_name(snapshot, name, leaf)
    if replaced and not replaces:
        raise IndexNameTakenError(
            "an index of that name already exists; choose another or replace it", index=name
        )
    return replaced


def _of_name(snapshot: Snapshot, name: str, leaf: Field) -> tuple[IndexMetadata, ...]:
    """Return the segments of an index, all of which must be of one field."""
    if name in SYSTEM_INDICES:
        raise IndexNameReservedError(
            "the format keeps that name for itself; choose another", index=name
        )
    found = tuple(index for index in snapshot.indices.indices if index.name == name)
    others = [
        index
        for index in found
        if tuple(index.fields) != (int(leaf.id),)
        and not index.missing_fields(snapshot.schema.by_id)
    ]
    if others:
        raise IndexNameTakenError(
            "an index of that name already exists with different fields; choose another name",
            index=name,
            column=snapshot.schema.path_of(leaf.id),
            fields=list(others[0].fields),
        )
    return found


def commit_segments(
    snapshot: Snapshot, name: str, column: str, segments: Sequence[IndexMetadata]
) -> Snapshot:
    """Make segments that were written the index of a column, in place of one of that name."""
    leaf = snapshot.schema.field_by_path(column)
    covered: set[int] = set()
    for segment in segments:
        own = set(segment.fragment_bitmap or ())
        if tuple(segment.fields) != (int(leaf.id),) or own & covered:
            raise InvalidInputError(
                "the segments of an index are of one column and cover different fragments",
                name=name,
                column=column,
                segment=str(segment.uuid),
            )
        covered |= own
    replaced = tuple(
        index
        for index in _of_name(snapshot, name, leaf)
        if not covered or covered & set(index.fragment_bitmap or ())
    )
    named = tuple(replace(segment, name=name) for segment in segments)
    return publish(snapshot, CreateIndex(named, replaced), CommitOptions(checks_files=True))


def build_segment(
    snapshot: Snapshot, request: IndexRequest, folder: SegmentFolder | None = None
) -> IndexMetadata:
    """Write the files of an index segment, which no version lists yet.

    They go to a folder of their own unless one is given.
    """
    parameters = Parameters(request.parameters)
    kind = kind_by_name(request.kind).with_parameters(parameters)
    fields = fields_to(snapshot, request.column)
    leaf = fields[-1]
    if not kind.accepts_nested_lists and any(each.is_list for each in fields[:-1]):
        raise UnknownColumnError(
            f"{kind.name} indices are not of values within lists", column=request.column
        )
    kind.check_type(kind.indexed_type(leaf.arrow_type), request.column)
    fragments = fragments_to_index(snapshot, request)
    path = tuple(each.name for each in fields)
    stable = snapshot.manifest.uses_stable_row_ids
    version = kind.version(parameters, stable_row_ids=stable)
    if loses_rows(snapshot, kind, version):
        raise UnsupportedError(
            "an index of JSON with that target is not kept up to date by every writer where rows "
            "have stable ids; choose another target",
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
        name=name_of(snapshot, request),
        leaf=leaf,
        details=details,
        covered=fragments,
        version=version,
    )


def _train(kind: AnyKind, rows: IndexedRows, folder: SegmentFolder, request: IndexRequest) -> bytes:
    """Write the files of a segment, and say how far it is."""
    parameters = Parameters(request.parameters)
    report = request.progress
    if report is None:
        return kind.train(rows, folder, parameters)
    if kind.reports_progress:
        report("start", _LOADING, 0, rows.num_rows)
        report("complete", _LOADING, 0, rows.num_rows)
        return kind.train(replace(rows, progress=_by_stages(report)), folder, parameters)
    stage, total = f"train_{kind.name.lower()}", rows.num_rows
    watched = _Watched(rows.parts, total, report)
    report("start", stage, 0, total)
    details = kind.train(replace(rows, parts=watched), folder, parameters)
    report("complete", stage, total, total)
    return details


def _by_stages(report: ReportProgress) -> Progress:
    """Return what says that a stage starts if nothing of it is done, and is complete if all is."""

    def tell(stage: str, done: int, total: int) -> None:
        report("progress" if done else "start", stage, done, total)
        if done == total:
            report("complete", stage, done, total)

    return tell


@dataclass(frozen=True, slots=True, eq=False)
class _Watched:
    """Rows that are counted as they pass."""

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
    """Return the metadata of a segment whose files were just written."""
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


def fields_to(snapshot: Snapshot, column: str) -> tuple[Field, ...]:
    """Return the fields on the way to a column; the last is the column itself."""
    try:
        return snapshot.schema.fields_on_path(column, folds_case=True, passes_lists=True)
    except FieldNotFoundError as error:
        raise UnknownColumnError(error.message, **error.facts) from error


def path_to(snapshot: Snapshot, column: str) -> str:
    """Return the path of a column as the schema has it, whatever the case it was written in.

    Elements of lists that are passed on the way are not named.
    """
    fields = fields_to(snapshot, column)
    passed = {id(below) for field, below in pairwise(fields[:-1]) if field.is_list}
    return format_path([each.name for each in fields if id(each) not in passed])


def name_of(snapshot: Snapshot, request: IndexRequest) -> str:
    """Return the name of the index that is asked for."""
    if request.name:
        return request.name
    ending = kind_by_name(request.kind).name_suffix(Parameters(request.parameters))
    return default_name(path_to(snapshot, request.column), ending)


def default_name(column: str, ending: str = "idx") -> str:
    """Return the name of an index that was given none; only quotes that are needed are in it.

    >>> default_name("a.`b-c`")
    'a.b-c_idx'
    """
    return f"{format_path(parse_path(column))}_{ending}"


def fragments_to_index(snapshot: Snapshot, request: IndexRequest) -> list[int]:
    """Return the fragments that an index is asked for, in the order of the table."""
    if not request.is_trained:
        return []
    known: list[int] = snapshot.fragments.ids.tolist()
    if request.fragments is None:
        return known
    unknown = sorted(set(request.fragments) - set(known))
    if unknown:
        raise InvalidInputError("the table has no such fragments", fragments=unknown[:10])
    return sorted(set(request.fragments))
