"""Find fragments whose overlays are newer than an index segment.

For example:

    index on price, built from version 3   fragment 7 has an overlay of price from version 5
    search on price                        fragment 7 is searched as if it were not indexed
"""

from __future__ import annotations

import numpy as np

from lancelet.format.index_metadata import IndexMetadata
from lancelet.table.snapshot import Snapshot


def overlaid_since(snapshot: Snapshot, index: IndexMetadata) -> frozenset[int]:
    """Return the fragments with newer values of an indexed field than an index segment has."""
    fragments = snapshot.fragments
    if not fragments.has_overlays.any():
        return frozenset()
    indexed = set(map(int, index.fields))
    fragment_indices = np.flatnonzero(fragments.has_overlays).tolist()
    return frozenset(
        int(fragment.id)
        for fragment in map(fragments.__getitem__, fragment_indices)
        if any(
            overlay.committed_version > index.dataset_version
            and _touches(snapshot, overlay.data_file.fields, indexed)
            for overlay in fragment.overlays
        )
    )


def _touches(snapshot: Snapshot, overlaid: tuple[int, ...], indexed: set[int]) -> bool:
    """Return whether any of these fields, or a parent of one, is indexed."""
    return any(
        int(node.id) in overlaid
        for field in snapshot.schema.walk()
        if int(field.id) in indexed
        for node in field.walk()
    )
