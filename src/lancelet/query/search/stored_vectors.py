"""How far single rows of a column are from a query, by what the column stores.

    rows 7 3 9    fragment 0: 3 7 9    bytes 1536..2048, 3584..4096, 4608..5120 of its file
    compared where they are, if vectors are kept as they are; else they are taken as any column

What is compared in place is not copied and makes no arrays. Checksums are verified for it all the
same, block by block.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.format.field import Field
from lancelet.kernels import Metric, slice_distances
from lancelet.kernels.metric import Floats
from lancelet.query.fragment_reader import FragmentReader
from lancelet.query.nodes.source import FragmentSource
from lancelet.query.plan import projection_of
from lancelet.query.projection import Projection
from lancelet.query.search.exact import distances_to
from lancelet.query.take import take_addresses
from lancelet.rowids.address import UInt64s, fragments_of, offsets_of
from lancelet.table.snapshot import Snapshot


class StoredVectors:
    """The vectors of a column of a version."""

    def __init__(self, projection: Projection, field: Field) -> None:
        """Compare what a projection to one column reads."""
        self._projection = projection
        self._field = field
        self._readers: dict[int, FragmentReader] = {}
        stored = field.storage_type
        self._dtype: np.dtype[Any] | None = None
        if projection.fields == (field,) and pa.types.is_fixed_size_list(stored):
            self._dtype = np.dtype(stored.value_type.to_pandas_dtype())

    @staticmethod
    def of(snapshot: Snapshot, field: Field) -> StoredVectors:
        """Return the vectors of a column; what is known of where they are is kept."""

        def make() -> StoredVectors:
            path = snapshot.schema.path_of(field.id)
            return StoredVectors(projection_of(snapshot, (path,)), field)

        return snapshot.kept.get_or_make(("stored vectors", field.id), make)

    def distances(
        self, snapshot: Snapshot, addresses: UInt64s, query: npt.NDArray[Any], metric: Metric
    ) -> Floats:
        """Return how far rows are, which may be in any order, NaN where they have no vector."""
        # Rows in the order of the table are read in fewer steps.
        order = addresses.argsort()
        ordered = addresses[order]
        found = self._in_place(snapshot, ordered, query, metric)
        if found is None:
            rows = take_addresses(snapshot, ordered, self._projection)
            found = distances_to(rows.column(0).combine_chunks(), query, metric)
        scores = np.empty(len(addresses), np.float32)
        scores[order] = found
        return scores

    def _in_place(
        self, snapshot: Snapshot, ordered: UInt64s, query: npt.NDArray[Any], metric: Metric
    ) -> Floats | None:
        if self._dtype is None or not len(ordered):
            return None
        fragments, offsets = fragments_of(ordered), offsets_of(ordered)
        if (offsets[1:] == offsets[:-1]).any():
            return None
        edges = [0, *(np.flatnonzero(fragments[1:] != fragments[:-1]) + 1).tolist(), len(ordered)]
        found: list[Floats] = []
        for first, stop in pairwise(edges):
            reader = self._reader(snapshot, int(fragments[first]))
            slices = reader.read_in_place(self._field, offsets[first:stop])
            if slices is None:
                self._dtype = None
                return None
            found.append(slice_distances(slices, self._dtype, len(query), query, metric))
        return found[0] if len(found) == 1 else np.concatenate(found)

    def _reader(self, snapshot: Snapshot, fragment_id: int) -> FragmentReader:
        known = self._readers.get(fragment_id)
        if known is None:
            fragment = snapshot.fragments.by_id(fragment_id)
            known = FragmentSource(snapshot, fragment, with_deleted=False).reader
            self._readers[fragment_id] = known
        return known
