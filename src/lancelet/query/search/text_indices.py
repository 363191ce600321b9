"""The text indices of a version, by column, opened when their column is asked for.

    text    segments a (fragments 0 1), b (fragment 2)     fragment 3 is in none

An index may cover nothing, when it was made of an empty table: how texts are cut is known all the
same. A segment whose files are damaged is left out, so that its rows are read instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lancelet.errors import CorruptDataError, LanceletError, ObjectNotFoundError, UnsupportedError
from lancelet.index.inverted.kind import Inverted, InvertedSegment
from lancelet.index.text.analyzer import Analyzer
from lancelet.index.text.documents import analyzer_of
from lancelet.index.text.options import TextOptions
from lancelet.query.indexing.segments import TableSegment, table_segment, warn_unusable
from lancelet.table.fragment_reuse import current_coverage
from lancelet.table.snapshot import Snapshot


@dataclass(frozen=True, slots=True, eq=False)
class TextSegment:
    """A segment, and where it stands in the table."""

    table: TableSegment
    opened: InvertedSegment


class BrokenSegmentError(LanceletError):
    """A segment turned out to be damaged while it was searched."""

    def __init__(self, segment: TextSegment, cause: LanceletError) -> None:
        """Say which segment it is."""
        super().__init__(cause.message, **cause.facts)
        self.segment, self.cause = segment, cause


@dataclass(slots=True, eq=False)
class TextIndices:
    """The segments of every column that has a text index."""

    snapshot: Snapshot
    listed: Mapping[tuple[str, ...], list[TableSegment]]
    _opened: dict[tuple[str, ...], tuple[TextSegment, ...]] = field(default_factory=dict)
    _analyzers: dict[tuple[str, ...], Analyzer] = field(default_factory=dict)

    def segments(self, path: tuple[str, ...]) -> tuple[TextSegment, ...] | None:
        """Return the segments of a column that can be used, or None if it has no index."""
        if path not in self.listed:
            return None
        if path not in self._opened:
            opened = tuple(filter(None, map(_open, self.listed[path])))
            if opened:
                self._analyzers[path] = opened[0].opened.analyzer
            self._opened[path] = opened
        return self._opened[path]

    def analyzer(self, path: tuple[str, ...]) -> Analyzer | None:
        """Return what makes tokens of the texts of a column, or None if it has no index.

        It is known of a damaged segment too: metadata say it, all but the words to leave out.
        """
        if self.segments(path) is None:
            return None
        if path not in self._analyzers:
            details = self.listed[path][0].metadata.details
            values = {} if details is None else Inverted().describe(details.value)
            self._analyzers[path] = analyzer_of(TextOptions.of(values))
        return self._analyzers[path]

    def leave_out(self, broken: BrokenSegmentError) -> None:
        """Do without a segment from now on, and say so."""
        name = broken.segment.table.metadata.name
        warn_unusable(broken.cause.with_facts(index=name))
        for path, segments in self._opened.items():
            self._opened[path] = tuple(each for each in segments if each is not broken.segment)


def text_indices(snapshot: Snapshot, of: Snapshot | None = None) -> TextIndices:
    """Return the text indices of a version; of two on one column it is the older one.

    With `of` they are from then on those of another snapshot of the same version, which are open.
    """
    if of is not None:
        return snapshot.kept.get_or_make("text indices", lambda: text_indices(of))
    return snapshot.kept.get_or_make("text indices", lambda: _find(snapshot))


def _find(snapshot: Snapshot) -> TextIndices:
    fields = {int(field.id) for field in snapshot.schema.walk()}
    listed: dict[tuple[str, ...], list[TableSegment]] = {}
    for metadata in current_coverage(snapshot):
        if len(metadata.fields) != 1 or int(metadata.fields[0]) not in fields:
            continue
        segment = table_segment(snapshot, metadata)
        if segment is None or not isinstance(segment.kind, Inverted):
            continue
        path = snapshot.schema.fields_on_path(snapshot.schema.path_of(metadata.fields[0]))
        own = listed.setdefault(tuple(each.name for each in path), [])
        if not own or own[0].metadata.name == metadata.name:
            own.append(segment)
    return TextIndices(snapshot, listed)


def _open(segment: TableSegment) -> TextSegment | None:
    try:
        opened = segment.open()
    except (ObjectNotFoundError, CorruptDataError, UnsupportedError) as error:
        warn_unusable(error.with_facts(index=segment.metadata.name))
        return None
    assert isinstance(opened, InvertedSegment), "the kind opens its own segments"
    return TextSegment(segment, opened)
