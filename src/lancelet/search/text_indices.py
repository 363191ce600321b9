"""The text indices of a version by search target, opened on first use.

  text              segments a (fragments 0 1), b (fragment 2)     fragment 3 is not indexed
  tags by element   segments c

An index created on an empty table covers no rows, but still defines the tokenizer. Segments with
damaged files are excluded, and their rows are read from the table instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, NamedTuple

from lancelet.errors import CorruptDataError, LanceletError, ObjectNotFoundError, UnsupportedError
from lancelet.index.inverted.kind import Inverted, InvertedSegment
from lancelet.index.text.analyzer import Analyzer
from lancelet.index.text.documents import make_analyzer
from lancelet.index.text.options import TextOptions
from lancelet.scan.indexing.segments import TableSegment, table_segment, warn_unusable
from lancelet.table.fragment_reuse import current_coverage
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass


class Target(NamedTuple):
    """The search target: a column whose documents are its rows or its list elements."""

    path: tuple[str, ...]
    by_element: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class TextSegment:
    """A segment in the table, and its open index."""

    table: TableSegment
    opened: InvertedSegment


class BrokenSegmentError(LanceletError):
    """A segment was found to be damaged during a search."""

    def __init__(self, segment: TextSegment, cause: LanceletError) -> None:
        """Create the error for a segment from its cause."""
        super().__init__(cause.message, **cause.facts)
        self.segment, self.cause = segment, cause


@dataclass(slots=True, eq=False)
class TextIndices:
    """The segments of all columns with a text index."""

    snapshot: Snapshot
    listed: Mapping[Target, list[TableSegment]]
    _opened: dict[Target, tuple[TextSegment, ...]] = field(default_factory=dict)
    _analyzers: dict[Target, Analyzer] = field(default_factory=dict)

    def segments(self, target: Target) -> tuple[TextSegment, ...] | None:
        """Return the usable segments of a column, or None if it has no index."""
        if target not in self.listed:
            return None
        if target not in self._opened:
            opened = tuple(filter(None, map(_open, self.listed[target])))
            if opened:
                self._analyzers[target] = opened[0].opened.analyzer
            self._opened[target] = opened
        return self._opened[target]

    def analyzer(self, target: Target) -> Analyzer | None:
        """Return the analyzer of a column, or None if it has no index.

        For damaged segments, it is created from the metadata, without custom stop words.
        """
        if self.segments(target) is None:
            return None
        if target not in self._analyzers:
            self._analyzers[target] = make_analyzer(
                TextOptions.from_params(_said(self.listed[target][0]))
            )
        return self._analyzers[target]

    def leave_out(self, broken: BrokenSegmentError) -> None:
        """Exclude a damaged segment from further searches and warn."""
        table = broken.segment.table
        warn_unusable(table.snapshot, broken.cause.with_facts(index=table.metadata.name))
        for target, segments in self._opened.items():
            self._opened[target] = tuple(each for each in segments if each is not broken.segment)


def text_indices(snapshot: Snapshot, of: Snapshot | None = None) -> TextIndices:
    """Return the cached text indices of a version.

    With `of`, share the open indices of another snapshot of the same version.
    """
    if of is not None:
        return snapshot.version_cache.get_or_make("text indices", lambda: text_indices(of))
    return snapshot.version_cache.get_or_make("text indices", lambda: _find(snapshot))


def _find(snapshot: Snapshot) -> TextIndices:
    listed: dict[Target, list[TableSegment]] = {}
    for metadata in current_coverage(snapshot):
        if len(metadata.fields) != 1 or metadata.fields[0] not in snapshot.schema.by_id:
            continue
        segment = table_segment(snapshot, metadata)
        if segment is None or not isinstance(segment.kind, Inverted):
            continue
        path = snapshot.schema.fields_on_path(snapshot.schema.path_of(metadata.fields[0]))
        by_element = _said(segment)["document_granularity"] != "row"
        own = listed.setdefault(Target(tuple(each.name for each in path), by_element), [])
        if not own or own[0].metadata.name == metadata.name:
            own.append(segment)
    return TextIndices(snapshot, listed)


def _said(segment: TableSegment) -> dict[str, Any]:
    """Return the description of a segment from its metadata."""
    details = segment.metadata.details
    return Inverted().describe(b"" if details is None else details.value)


def _open(segment: TableSegment) -> TextSegment | None:
    try:
        opened = segment.open()
    except (ObjectNotFoundError, CorruptDataError, UnsupportedError) as error:
        warn_unusable(segment.snapshot, error.with_facts(index=segment.metadata.name))
        return None
    assert isinstance(opened, InvertedSegment), "INVERTED indices have inverted segments"
    return TextSegment(segment, opened)
