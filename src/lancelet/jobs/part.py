"""A part of a version: some of its fragments, presented as a snapshot for one task.

    version 7    fragments 0 1 2 3 4 5
    tasks        {0 1 2}   {3 4 5}       each writes the files for its own fragments
    commit       the results of both are one operation on version 7

A part is never committed; its files are written to the folders of the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lancelet.format.fragment_list import FragmentList
from lancelet.jobs.split import plan_splits
from lancelet.jobs.table_ref import TableRef
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass


@dataclass(frozen=True, slots=True)
class Part:
    """Fragments of a version, as a picklable value."""

    table: TableRef
    fragments: tuple[int, ...]

    def open(self) -> Snapshot:
        """Return the version, restricted to these fragments."""
        snapshot = self.table.open()
        fragments = [snapshot.fragments.by_id(number) for number in self.fragments]
        manifest = replace(snapshot.manifest, fragments=FragmentList.of(fragments))
        return replace(snapshot, stored=replace(snapshot.stored, manifest=manifest))


def plan_parts(
    table: TableRef,
    snapshot: Snapshot,
    *,
    fragments: Sequence[int] | None = None,
    bytes_per_task: int | None = None,
) -> list[Part]:
    """Split a version into parts of about the same size, of whole fragments."""
    splits = plan_splits(snapshot, fragments=fragments, split_bytes=bytes_per_task, can_cut=False)
    pinned = table.pinned(snapshot)
    return [Part(pinned, split.fragments) for split in splits]
