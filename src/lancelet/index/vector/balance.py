"""Partitions that have grown too large are split, and those that are nearly empty are joined.

    rows      40000 300 9000     of partitions that should have 8192
    split     partition 0 in 5   more than four times as many: new centroids, of its own vectors
    join      partition 1        fewer than a quarter: its rows go where they are nearest
    becomes   8100 9200 8000 7700 7000 9300

Codes depend on the partition of a row, so rows that change it are encoded again, of their vectors.
Rows that stay are not touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.index.folder import SegmentFolder
from lancelet.index.vector.kind import concatenated_codes, graph_settings_of
from lancelet.index.vector.model import IvfModel
from lancelet.index.vector.quantizers.base import Codes, Matrix
from lancelet.index.vector.segment import IvfSegment
from lancelet.index.vector.train import default_target
from lancelet.index.vector.vectors import matrix_of
from lancelet.index.vector.writer import write_segment
from lancelet.rowids.address import UInt64s
from lancelet.values import dataclass

VectorsOf: TypeAlias = Callable[[UInt64s], tuple[pa.Array, UInt64s]]
"""Returns the vectors of rows that there still are, and the numbers of these."""

_SPLIT_ABOVE: Final = 4
_JOIN_BELOW: Final = 0.25
_SAMPLE: Final = 256


@dataclass(frozen=True, slots=True)
class Imbalance:
    """The partitions to split, in how many each, and those to join with others."""

    splits: dict[int, int]
    joins: frozenset[int]

    @staticmethod
    def of(segment: IvfSegment) -> Imbalance:
        """Find out which partitions of a segment have too many rows or too few.

        Where a number of partitions was asked for, none is joined.
        """
        target = segment.details.target_rows or default_target(segment.name)
        sizes = segment.lengths
        splits = {
            int(number): -(-int(sizes[number]) // target)
            for number in np.flatnonzero(sizes > _SPLIT_ABOVE * target)
        }
        if segment.details.partitions or not segment.details.target_rows:
            return Imbalance(splits, frozenset())
        few = np.flatnonzero(sizes < _JOIN_BELOW * target)
        most = len(sizes) - 1 + len(splits)
        smallest = few[np.argsort(sizes[few], kind="stable")][:most]
        return Imbalance(splits, frozenset(smallest.tolist()))

    def __bool__(self) -> bool:
        """Return whether there is anything to do."""
        return bool(self.splits or self.joins)


def write_balanced(
    segment: IvfSegment, imbalance: Imbalance, vectors_of: VectorsOf, folder: SegmentFolder
) -> None:
    """Write a segment of the same rows in other partitions."""
    moved = _Moved.out_of(segment, imbalance, vectors_of)
    write_segment(
        folder,
        segment.name,
        moved.model,
        segment.quantizer,
        moved.parts(segment),
        graph_settings_of(segment),
        segment.left_out,
        segment.origin,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Moved:
    """Where rows of partitions that are no more have gone; `kept` are the partitions that are."""

    model: IvfModel
    kept: tuple[int, ...]
    numbers: UInt64s
    labels: Int64s
    codes: Codes

    @staticmethod
    def out_of(segment: IvfSegment, imbalance: Imbalance, vectors_of: VectorsOf) -> _Moved:
        model = segment.model
        gone = imbalance.joins | imbalance.splits.keys()
        kept = tuple(each for each in range(model.partitions) if each not in gone)
        centroids: list[Matrix] = [model.centroids[list(kept)]]
        found: list[tuple[Matrix, UInt64s]] = []
        for number in sorted(gone):
            values, numbers = vectors_of(segment.codes(number)[0])
            vectors, numbers = matrix_of(values, numbers, model.metric)
            found.append((vectors, numbers))
            if number in imbalance.splits:
                random = np.random.default_rng(number)
                most = _SAMPLE * imbalance.splits[number]
                chosen = random.permutation(len(vectors))[:most]
                centroids.append(
                    IvfModel.train(
                        vectors[chosen],
                        model.metric,
                        model.centroids.dtype,
                        partitions=imbalance.splits[number],
                        seed=number,
                    ).centroids
                )
        changed = IvfModel(model.metric, np.concatenate(centroids))
        labels = [changed.assign(vectors) for vectors, _ in found]
        codes = [
            segment.quantizer.encode(vectors, own, changed.centroids)
            for (vectors, _), own in zip(found, labels, strict=True)
        ]
        return _Moved(
            changed,
            kept,
            np.concatenate([numbers for _, numbers in found]),
            np.concatenate(labels),
            concatenated_codes(codes),
        )

    def parts(self, segment: IvfSegment) -> Iterator[tuple[UInt64s, Codes]]:
        """Yield the rows of each partition that there now is."""
        for place in range(self.model.partitions):
            own = np.flatnonzero(self.labels == place)
            numbers, codes = self.numbers[own], {key: each[own] for key, each in self.codes.items()}
            if place < len(self.kept):
                stayed, stored = segment.codes(self.kept[place])
                numbers = np.concatenate([stayed, numbers])
                codes = concatenated_codes([stored, codes])
            order = np.argsort(numbers, kind="stable")
            yield numbers[order], {key: each[order] for key, each in codes.items()}
