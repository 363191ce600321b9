"""Some fragments of a version as if they were all of it, which is what one task works on.

    version 7    fragments 0 1 2 3 4 5
    tasks        {0 1 2}   {3 4 5}       each writes what the change needs for its own fragments
    commit       what both made is one operation over version 7

A part is never committed by itself; its files lie in the table's own folders.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lancelet.format.fragment_list import FragmentList
from lancelet.ops.jobs.split import plan_splits
from lancelet.ops.jobs.table_ref import TableRef
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass


@dataclass(frozen=True, slots=True)
class Part:
    """Fragments of a version, as a value that travels to a task."""

    table: TableRef
    fragments: tuple[int, ...]

    def open(self) -> Snapshot:
        """Return the version with these fragments alone."""
        snapshot = self.table.open()
        chosen = [snapshot.fragments.by_id(number) for number in self.fragments]
        manifest = replace(snapshot.manifest, fragments=FragmentList.of(chosen))
        return replace(snapshot, stored=replace(snapshot.stored, manifest=manifest))


def plan_parts(
    table: TableRef,
    snapshot: Snapshot,
    *,
    fragments: Sequence[int] | None = None,
    bytes_per_task: int | None = None,
) -> list[Part]:
    """Cut a version into parts of about the same size, of whole fragments each."""
    splits = plan_splits(snapshot, fragments=fragments, split_bytes=bytes_per_task, can_cut=False)
    at = table.pinned(snapshot)
    return [Part(at, split.fragments) for split in splits]
