"""Row masks that limit an index search, one per fragment.

  fragment 0    1 1 0 1     row 2 was deleted
  fragment 4    0 0 1       rows 0 and 1 do not pass the filter

Rows that pass a prefilter are cached with the version and reused by searches with the same filter:

  "g < 50"    fragment 0: offsets 0 1 2 50 ...    evaluated once

Versions are immutable, so cached rows stay valid. Filters with nondeterministic functions are
evaluated for each search.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Int64s
from lancelet.expr.compile import is_deterministic
from lancelet.index.kernels import RowMasks, prefilter_rows
from lancelet.index.vector.segment import IvfSegment
from lancelet.rowids.address import UInt64s
from lancelet.scan.fragment_reader import FragmentReader
from lancelet.scan.plan import ScanPlan
from lancelet.table.snapshot import Snapshot

_ROWS_BELIEVED: Final = 1 << 24
"""Larger row counts are validated against the data files before masks of that size are allocated.
"""

_TEXT_MAX: Final = 4096


class AdmittedRows:
    """Mask of the searchable rows of a segment; thread-safe.

    Masks of partitions are cached because searches probe the same partitions repeatedly.
    """

    def __init__(self, masks: RowMasks, segment: IvfSegment) -> None:
        """Map the masks of fragments to the rows of a segment."""
        self._masks = masks
        self._segment = segment
        self._admitted = np.zeros(segment.num_row_slots, np.bool_)
        self._counts = np.full(len(segment.lengths), -1, np.int64)

    @property
    def memory_bytes(self) -> int:
        """The size of the masks in bytes."""
        arrays = self._admitted, self._counts, self._masks.mask
        return sum(each.nbytes for each in arrays)

    def among(self, partitions: Int64s, addresses: UInt64s) -> npt.NDArray[np.bool_]:
        """Return the mask of all row slots, valid for the given partitions.

        `addresses` holds the addresses of the segment's rows, valid at least for these partitions.
        """
        missing = partitions[self._counts[partitions] < 0]
        if len(missing):
            segment, admitted = self._segment, self._admitted
            own = segment.starts[missing], segment.lengths[missing]
            prefilter_rows(addresses, *own, self._masks, admitted)
            # Counts are set last: until then, other threads compute the same mask again.
            for number in missing.tolist():
                self._counts[number] = np.count_nonzero(admitted[segment.rows_of(number)])
        return self._admitted

    def count(self, number: int) -> int:
        """Return the number of searchable rows of a partition whose mask was computed before."""
        return int(self._counts[number])


def live_masks(snapshot: Snapshot, fragments: Collection[int]) -> RowMasks:
    """Return masks of the rows of fragments that are not deleted."""
    masks = {}
    for each in fragments:
        fragment = snapshot.fragments.by_id(each)
        rows = snapshot.physical_rows(fragment)
        if rows > _ROWS_BELIEVED:
            rows = snapshot.open_fragment(fragment, FragmentReader).check_rows()
        masks[each] = snapshot.deletions(fragment).live_within(0, rows)
    return _joined(masks)


def masks_of_offsets(rows: Mapping[int, Int64s], covered: Collection[int]) -> RowMasks:
    """Return masks of row offsets, limited to the covered fragments."""
    masks = {}
    for fragment_id, offsets in rows.items():
        if fragment_id in covered and len(offsets):
            masks[fragment_id] = np.zeros(int(offsets.max()) + 1, np.bool_)
            masks[fragment_id][offsets] = True
    return _joined(masks)


def admits(masks: RowMasks, addresses: UInt64s) -> npt.NDArray[np.bool_]:
    """Return the mask of admitted addresses."""
    found = np.empty(len(addresses), np.bool_)
    whole = np.zeros(1, np.int64), np.array([len(addresses)], np.int64)
    prefilter_rows(addresses, *whole, masks, found)
    return found


def _joined(masks: Mapping[int, npt.NDArray[np.bool_]]) -> RowMasks:
    fragments = np.array(sorted(masks), np.int64)
    ordered = [masks[each] for each in fragments.tolist()]
    starts = np.cumsum([0, *(len(mask) for mask in ordered)], dtype=np.int64)
    return RowMasks(fragments, starts, np.concatenate([np.empty(0, np.bool_), *ordered]))


class CachedFilterRows(Mapping[int, Int64s]):
    """Row offsets by fragment, with the filter that selected them."""

    def __init__(self, text: str, rows: Mapping[int, Int64s]) -> None:
        """Create the mapping for the text of a filter."""
        self.text, self._rows = text, rows
        self.memory_bytes = sum(own.nbytes for own in rows.values())

    def __getitem__(self, fragment_id: int) -> Int64s:
        """Return the row offsets of a fragment."""
        return self._rows[fragment_id]

    def __iter__(self) -> Iterator[int]:
        """Iterate over the fragment ids."""
        return iter(self._rows)

    def __len__(self) -> int:
        """Return the number of fragments."""
        return len(self._rows)


def rows_passing(plan: ScanPlan, find: Callable[[], Mapping[int, Int64s]]) -> Mapping[int, Int64s]:
    """Return the rows that pass the filter of a plan, cached with the version if possible."""
    options = plan.options
    written = options.filter
    is_cacheable = (
        isinstance(written, str)
        and len(written) <= _TEXT_MAX
        and is_deterministic(written)
        and options.fragments is None
        and options.rows is None
    )
    if not is_cacheable:
        return find()
    text = str(written)
    return plan.snapshot.version_cache.get_or_make(
        ("rows passing", text), lambda: CachedFilterRows(text, find())
    )
