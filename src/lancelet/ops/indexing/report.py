"""What building indices and bringing them up to date would do.

    report_scalar_index    the index is built, and its files are counted and thrown away
    report_optimize        the same; rows are those of fragments that some index lacks

Bringing indices up to date may read what it has just written, so that is kept until it ends.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from lancelet.ops.dry_run import (
    ChangeReport,
    rehearse,
    rehearse_apart,
    rehearse_reading_back,
)
from lancelet.ops.indexing.build import IndexRequest, create_scalar_index, fragments_to_index
from lancelet.ops.indexing.optimize import (
    OptimizeIndices,
    missing_fragments,
    names_of,
    optimize_indices,
)
from lancelet.ops.indexing.staged import is_staged, stage_segment
from lancelet.ops.indexing.vectors import VectorIndexRequest, create_vector_index
from lancelet.table.snapshot import Snapshot

_NOTHING: Final = "CreateIndex"


def report_scalar_index(snapshot: Snapshot, request: IndexRequest) -> ChangeReport:
    """Return what building an index of scalars or texts would do, or of a part of one."""
    rows = _live_rows(snapshot, fragments_to_index(snapshot, request))
    if not is_staged(request):
        return rehearse(snapshot, lambda current: create_scalar_index(current, request), rows)
    report = rehearse_apart(
        snapshot.location,
        "StageIndex",
        lambda location: stage_segment(replace(snapshot, location=location), request),
    )
    return replace(report, rows=rows)


def report_vector_index(snapshot: Snapshot, request: VectorIndexRequest) -> ChangeReport:
    """Return what building a vector index would do."""
    known: list[int] = snapshot.fragments.ids.tolist()
    covered = known if request.fragments is None else sorted({*request.fragments} & {*known})
    rows = _live_rows(snapshot, covered if request.is_trained else ())
    return rehearse(snapshot, lambda current: create_vector_index(current, request), rows)


def report_optimize(snapshot: Snapshot, wanted: OptimizeIndices) -> ChangeReport:
    """Return what bringing indices up to date would do."""
    lacking: set[int] = set()
    for name in names_of(snapshot, wanted):
        every = snapshot.fragments.ids.tolist() if wanted.retrains else None
        lacking.update(every or missing_fragments(snapshot, name))
    return rehearse_reading_back(
        snapshot,
        lambda current: optimize_indices(current, wanted),
        _live_rows(snapshot, lacking),
        if_nothing=_NOTHING,
    )


def _live_rows(snapshot: Snapshot, fragments: Iterable[int]) -> int:
    return sum(snapshot.live_rows(snapshot.fragments.by_id(each)) for each in fragments)
