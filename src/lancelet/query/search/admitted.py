"""Which rows of a version a search may find: a mask for each fragment.

fragment 0    1 1 0 1     row 2 was deleted
fragment 4    0 0 1       rows 0 and 1 do not pass the filter
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Int64s
from lancelet.kernels import RowMasks
from lancelet.rowids.address import NO_ADDRESS, UInt64s, fragments_of, offsets_of
from lancelet.table.snapshot import Snapshot


class AdmittedRows:
    """Rows that may be found, and which of each partition of a segment these are; for any thread.

    What was worked out for a partition is kept, as searches come back to it.
    """

    def __init__(self, masks: RowMasks) -> None:
        """Admit rows by their fragments."""
        self.masks = masks
        self._parts: dict[int, tuple[npt.NDArray[np.bool_] | None, int]] = {}

    def among(self, number: int, addresses: UInt64s) -> tuple[npt.NDArray[np.bool_] | None, int]:
        """Return which rows of a partition may be found, None if all, and how many these are."""
        known = self._parts.get(number)
        if known is None:
            found = admits(self.masks, addresses)
            count = int(np.count_nonzero(found))
            known = self._parts[number] = None if count == len(found) else found, count
        return known


def live_masks(snapshot: Snapshot, fragments: Collection[int]) -> RowMasks:
    """Admit the rows of fragments that were not deleted."""
    masks = {}
    for each in fragments:
        fragment = snapshot.fragments.by_id(each)
        physical = snapshot.physical_rows(fragment)
        masks[each] = snapshot.deletions(fragment).live_mask(physical)
    return _joined(masks)


def masks_of_offsets(
    snapshot: Snapshot, rows: Mapping[int, Int64s], covered: Collection[int]
) -> RowMasks:
    """Admit rows by their offsets in each fragment, of those that are covered."""
    masks = {}
    for fragment_id, offsets in rows.items():
        if fragment_id in covered:
            physical = snapshot.physical_rows(snapshot.fragments.by_id(fragment_id))
            masks[fragment_id] = np.zeros(physical, np.bool_)
            masks[fragment_id][offsets] = True
    return _joined(masks)


def admits(masks: RowMasks, addresses: UInt64s) -> npt.NDArray[np.bool_]:
    """Return for each address whether its row is admitted."""
    if not len(masks.fragments):
        return np.zeros(len(addresses), np.bool_)
    fragments, offsets = fragments_of(addresses), offsets_of(addresses)
    at = np.searchsorted(masks.fragments, fragments)
    at = np.minimum(at, len(masks.fragments) - 1)
    places = masks.starts[at] + offsets
    is_known = (masks.fragments[at] == fragments) & (places < masks.starts[at + 1])
    is_known &= addresses != NO_ADDRESS
    found: npt.NDArray[np.bool_] = masks.mask[np.where(is_known, places, -1)] & is_known
    return found


def _joined(masks: Mapping[int, npt.NDArray[np.bool_]]) -> RowMasks:
    fragments = np.array(sorted(masks), np.int64)
    ordered = [masks[each] for each in fragments.tolist()]
    starts = np.cumsum([0, *(len(mask) for mask in ordered)], dtype=np.int64)
    # The last row stands for every address that is of no fragment here.
    return RowMasks(fragments, starts, np.concatenate([*ordered, np.zeros(1, np.bool_)]))
