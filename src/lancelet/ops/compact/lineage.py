"""Row ids and row versions of rewritten fragments: those of the live rows, in their order.

    fragment 0   ids 0 1 2 (row 1 deleted)    created 1 1 1
    fragment 1   ids 7 3                      created 4 2
    together     ids 0 2 7 3                  created 1 1 4 2

Tables without stable row ids keep neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Protocol, Self, TypeVar

from lancelet.buffers import Int64s
from lancelet.format.fragment import Fragment, Inline
from lancelet.rowids.sequence import RowIdSequence
from lancelet.rowids.versions import VersionSequence
from lancelet.table.lineage import created_versions_of, row_ids_of, updated_versions_of
from lancelet.table.snapshot import Snapshot


class _Sequence(Protocol):
    def without(self, offsets: Int64s) -> Self: ...
    def slice(self, start: int, stop: int) -> Self: ...
    def render(self) -> bytes: ...


_S = TypeVar("_S", bound=_Sequence)


def with_lineage(
    snapshot: Snapshot, old: Sequence[Fragment], new: Sequence[Fragment]
) -> tuple[Fragment, ...]:
    """Return the new fragments with the row ids and versions that the live old rows have."""
    if not snapshot.manifest.uses_stable_row_ids:
        return tuple(new)
    rows = [fragment.physical_rows for fragment in new]

    def carried(
        read: Callable[[Snapshot, Fragment], _S], join: Callable[[list[_S]], _S]
    ) -> Iterator[Inline]:
        whole = join([_live(snapshot, fragment, read(snapshot, fragment)) for fragment in old])
        for start, stop in pairwise(accumulate(rows, initial=0)):
            yield Inline(whole.slice(start, stop).render())

    sequences = zip(
        carried(row_ids_of, RowIdSequence.concat),
        carried(created_versions_of, VersionSequence.concat),
        carried(updated_versions_of, VersionSequence.concat),
        strict=True,
    )
    return tuple(
        replace(
            fragment,
            row_ids=ids,
            created_at_versions=created,
            last_updated_at_versions=updated,
        )
        for fragment, (ids, created, updated) in zip(new, sequences, strict=True)
    )


def _live(snapshot: Snapshot, fragment: Fragment, sequence: _S) -> _S:
    deleted = snapshot.deletions(fragment)
    return sequence.without(deleted.to_array().astype("int64")) if deleted else sequence
