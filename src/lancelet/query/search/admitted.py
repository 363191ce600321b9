"""Which rows of a version a search may find: a mask for each fragment.

fragment 0    1 1 0 1     row 2 was deleted
fragment 4    0 0 1       rows 0 and 1 do not pass the filter

Rows that passed a filter, kept with a version for the next search with the same filter.

"g < 50"    fragment 0: offsets 0 1 2 50 ...    looked up once, found by any number of searches

Versions never change, so rows that pass a filter once always do, unless the filter calls a
function; then it is asked again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Int64s
from lancelet.index.vector.segment import IvfSegment
from lancelet.kernels import RowMasks, admit_rows
from lancelet.query.compile import is_deterministic
from lancelet.query.fragment_reader import FragmentReader
from lancelet.query.plan import ScanPlan
from lancelet.rowids.address import UInt64s
from lancelet.table.snapshot import Snapshot

_ROWS_BELIEVED: Final = 1 << 24
"""Of a fragment that is said to have more rows files are asked before a byte is made for each."""

_TEXT_MAX: Final = 4096


class AdmittedRows:
    """Rows that may be found, by their places in a segment; for any thread.

    What was worked out for a partition is kept, as searches come back to it.
    """

    def __init__(self, masks: RowMasks, segment: IvfSegment) -> None:
        """Admit rows of a segment by their fragments."""
        self._masks = masks
        self._segment = segment
        self._admitted = np.zeros(segment.num_row_slots, np.bool_)
        self._counts = np.full(len(segment.lengths), -1, np.int64)

    @property
    def memory_bytes(self) -> int:
        """How much memory the masks take."""
        arrays = self._admitted, self._counts, self._masks.mask
        return sum(each.nbytes for each in arrays)

    def among(self, partitions: Int64s, addresses: UInt64s) -> npt.NDArray[np.bool_]:
        """Return whether each row may be found, for those of some partitions.

        `addresses` are those of all rows of the segment, as far as they are known.
        """
        missing = partitions[self._counts[partitions] < 0]
        if len(missing):
            segment, admitted = self._segment, self._admitted
            own = segment.starts[missing], segment.lengths[missing]
            admit_rows(addresses, *own, self._masks, admitted)
            # Counted last: until then another thread works the same out for itself.
            for number in missing.tolist():
                self._counts[number] = np.count_nonzero(admitted[segment.rows_of(number)])
        return self._admitted

    def count(self, number: int) -> int:
        """Return how many rows of a partition, which was asked for before, may be found."""
        return int(self._counts[number])


def live_masks(snapshot: Snapshot, fragments: Collection[int]) -> RowMasks:
    """Admit the rows of fragments that were not deleted."""
    masks = {}
    for each in fragments:
        fragment = snapshot.fragments.by_id(each)
        rows = snapshot.physical_rows(fragment)
        if rows > _ROWS_BELIEVED:
            rows = snapshot.open_fragment(fragment, FragmentReader).check_rows()
        masks[each] = snapshot.deletions(fragment).live_within(0, rows)
    return _joined(masks)


def masks_of_offsets(rows: Mapping[int, Int64s], covered: Collection[int]) -> RowMasks:
    """Admit rows by their offsets in each fragment, of those that are covered."""
    masks = {}
    for fragment_id, offsets in rows.items():
        if fragment_id in covered and len(offsets):
            masks[fragment_id] = np.zeros(int(offsets.max()) + 1, np.bool_)
            masks[fragment_id][offsets] = True
    return _joined(masks)


def admits(masks: RowMasks, addresses: UInt64s) -> npt.NDArray[np.bool_]:
    """Return for each address whether its row is admitted."""
    found = np.empty(len(addresses), np.bool_)
    whole = np.zeros(1, np.int64), np.array([len(addresses)], np.int64)
    admit_rows(addresses, *whole, masks, found)
    return found


def _joined(masks: Mapping[int, npt.NDArray[np.bool_]]) -> RowMasks:
    fragments = np.array(sorted(masks), np.int64)
    ordered = [masks[each] for each in fragments.tolist()]
    starts = np.cumsum([0, *(len(mask) for mask in ordered)], dtype=np.int64)
    return RowMasks(fragments, starts, np.concatenate([np.empty(0, np.bool_), *ordered]))


class KeptRows(Mapping[int, Int64s]):
    """Offsets of rows by fragment, and the filter that they passed."""

    def __init__(self, text: str, rows: Mapping[int, Int64s]) -> None:
        """Hold the rows of a filter."""
        self.text, self._rows = text, rows
        self.memory_bytes = sum(own.nbytes for own in rows.values())

    def __getitem__(self, fragment_id: int) -> Int64s:
        """Return the offsets of the rows of a fragment."""
        return self._rows[fragment_id]

    def __iter__(self) -> Iterator[int]:
        """Yield the ids of the fragments."""
        return iter(self._rows)

    def __len__(self) -> int:
        """Return how many fragments there are."""
        return len(self._rows)


def rows_passing(plan: ScanPlan, find: Callable[[], Mapping[int, Int64s]]) -> Mapping[int, Int64s]:
    """Return the rows that pass the filter of a plan, from memory if it was asked lately."""
    options = plan.options
    written = options.filter
    is_kept = (
        isinstance(written, str)
        and len(written) <= _TEXT_MAX
        and is_deterministic(written)
        and options.fragments is None
        and options.rows is None
    )
    if not is_kept:
        return find()
    text = str(written)
    return plan.snapshot.version_cache.get_or_make(
        ("rows passing", text), lambda: KeptRows(text, find())
    )
