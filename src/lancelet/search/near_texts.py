"""Search for near-duplicate texts by the MinHash signatures of an index.

  indexed        fragments 0 and 1        rows that share a band with the query text
  not indexed    fragment 2               signatures are computed and compared in the same way
  result         row 4: 0.0, row 9: 0.0625   sorted by distance, then by row

Texts that share no band with the query are not returned, indexed or not, however many of their
hashes are equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.errors import (
    CorruptDataError,
    FieldNotFoundError,
    InvalidInputError,
    ObjectNotFoundError,
)
from lancelet.format.field import Field
from lancelet.index.scalar.minhash.kind import MinHash
from lancelet.index.scalar.minhash.search import MinHashSegment
from lancelet.index.scalar.minhash.signatures import Signer, UInt16s, band_keys, distances
from lancelet.io.metered import IoCounts
from lancelet.scan.indexing.column_indices import ColumnIndex, column_indices
from lancelet.scan.indexing.segments import warn_unusable
from lancelet.scan.nodes.source import FragmentSource, sources
from lancelet.scan.plan import ScanPlan
from lancelet.scan.projection import Projection, project
from lancelet.scan.take import take_of_source
from lancelet.search.admitted import admits, live_masks, masks_of_offsets
from lancelet.search.full_text import MinHashQuery
from lancelet.search.hits import Hits
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

_COUNT: Final = 10
"""Default number of returned rows."""
_ROWS: Final = 1 << 14


class NoSignaturesError(InvalidInputError):
    """Raised if a MinHash search is run on a column without a MinHash index."""


@dataclass(frozen=True, slots=True)
class NearTexts:
    """A search for near-duplicate texts."""

    query: MinHashQuery

    is_batch, element_field = False, None

    @property
    def score_field(self) -> pa.Field:
        """The distance column."""
        return pa.field("_distance", pa.float32())

    def find(self, plan: ScanPlan, rows: Mapping[int, Int64s] | None) -> Hits:
        """Return the nearest rows."""
        options = plan.options
        if options.with_deleted:
            raise InvalidInputError("Cannot include deleted rows in a search for similar texts")
        index = self._index(plan.snapshot)
        query_text = _QueryText(self.query.text)
        fragment_ids = plan.snapshot.fragments.ids.tolist()
        missing = (
            set(fragment_ids if options.fragments is None else options.fragments) - index.covered
        )
        found: list[Hits] = []
        for segment in index.segments:
            covered = segment.covered
            if options.fragments is not None:
                covered &= frozenset(options.fragments)
            opened = segment.open()
            assert isinstance(opened, MinHashSegment), "MinHash indices have MinHash segments"
            try:
                numbers, scores = opened.near(query_text.signed_by(_signer(opened)))
                addresses = segment.locate(numbers)
            except (ObjectNotFoundError, CorruptDataError) as error:
                warn_unusable(plan.snapshot, error.with_facts(index=index.name))
                missing |= covered
                continue
            if rows is None:
                masks = live_masks(plan.snapshot, covered)
            else:
                masks = masks_of_offsets(rows, covered)
            shown = admits(masks, addresses)
            found.append(Hits.of_query(addresses[shown], scores[shown]))
        if missing and not options.indexed_only:
            signer = _signer(index.segments[0].open())
            ordered = [each for each in fragment_ids if each in missing]
            found += self._search_unindexed(
                plan, signer, query_text.signed_by(signer), ordered, rows
            )
        limit = _COUNT if options.limit is None else options.limit
        return Hits.join(found).top_k(limit + options.offset)

    def steps(self, plan: ScanPlan) -> list[str]:
        """Return the plan lines of the search, the last step first."""
        index = self._index(plan.snapshot)
        steps = [f"MinHashSearch: column={self.query.column}, segments={len(index.segments)}"]
        if index.num_unindexed_rows and not plan.options.indexed_only:
            steps.append(f"MinHashFlatSearch: column={self.query.column}")
        return steps

    def estimate_reads(self, plan: ScanPlan) -> IoCounts:
        """Estimate the index reads of the search."""
        found, query_text = IoCounts(), _QueryText(self.query.text)
        for segment in self._index(plan.snapshot).segments:
            opened = segment.open()
            assert isinstance(opened, MinHashSegment), "MinHash indices have MinHash segments"
            found += opened.estimate_reads(query_text.signed_by(_signer(opened)))
        return found

    def expected_rows(self, plan: ScanPlan) -> int:
        """Return the maximum number of returned rows."""
        return _COUNT if plan.options.limit is None else plan.options.limit

    def unindexed_fields(self, plan: ScanPlan) -> Sequence[tuple[Field, frozenset[int]]]:
        """Return the column and the fragments not covered by any segment."""
        options, snapshot = plan.options, plan.snapshot
        fragment_ids = options.fragments or snapshot.fragments.ids.tolist()
        missing = frozenset(fragment_ids) - self._index(snapshot).covered
        if options.indexed_only or not missing:
            return ()
        return [(each, missing) for each in project(snapshot.schema, (self.query.column,)).fields]

    def _index(self, snapshot: Snapshot) -> ColumnIndex:
        try:
            fields = snapshot.schema.fields_on_path(self.query.column)
        except FieldNotFoundError as error:
            raise _no_index(self.query.column) from error
        path = tuple(field.name for field in fields)
        for index in column_indices(snapshot).get(path, ()):
            if index.kinds == {MinHash.name}:
                return index
        raise _no_index(self.query.column)

    def _search_unindexed(
        self,
        plan: ScanPlan,
        signer: Signer,
        signature: UInt16s | None,
        fragments: Iterable[int],
        rows: Mapping[int, Int64s] | None,
    ) -> Iterator[Hits]:
        """Yield the rows of fragments that share a band with a signature."""
        if signature is None:
            return
        bands = signer.settings.num_bands
        own = band_keys(signature[None, :], bands)
        projection = project(plan.snapshot.schema, (self.query.column,))
        for source in sources(plan.snapshot, list(fragments)):
            for offsets in _offsets(source, rows):
                texts = _texts(projection, source, offsets)
                signatures, indices = signer.sign(texts)
                shares = (band_keys(signatures, bands) == own).any(axis=1)
                scores = distances(signatures[shares], signature)
                yield Hits.of_query(source.addresses(offsets[indices[shares]]), scores)


class _QueryText:
    """The query text, signed with the settings of each index."""

    def __init__(self, text: str) -> None:
        self._text = pa.array([text])

    def signed_by(self, signer: Signer) -> UInt16s | None:
        """Return the signature, or None if the text has no tokens."""
        signatures, _ = signer.sign(self._text)
        return signatures[0] if len(signatures) else None


def _signer(opened: object) -> Signer:
    assert isinstance(opened, MinHashSegment), "MinHash indices have MinHash segments"
    return Signer(opened.settings)


def _offsets(
    source: FragmentSource, rows: Mapping[int, Int64s] | None
) -> Iterator[npt.NDArray[np.int64]]:
    """Yield batches of the row offsets of a fragment that can be returned."""
    if rows is None:
        chosen = source.without_hidden(np.arange(source.num_rows))
    else:
        chosen = rows.get(int(source.fragment.id), np.empty(0, np.int64))
    for start in range(0, len(chosen), _ROWS):
        yield chosen[start : start + _ROWS]


def _texts(projection: Projection, source: FragmentSource, offsets: Int64s) -> pa.Array:
    return take_of_source(projection, (source, offsets)).column(0)


def _no_index(column: str) -> NoSignaturesError:
    return NoSignaturesError(
        f"No MinHash LSH index found for column {column}; create a MINHASHLSH index on the column "
        "before running a MinHash search"
    )
