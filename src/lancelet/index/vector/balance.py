"""Rebalancing of IVF partitions: splits large partitions and joins small ones.

    rows      40000 300 9000     target size 8192
    split     partition 0 in 5   more than four times the target: train new centroids on its vectors
    join      partition 1        less than a quarter: assign its rows to the nearest partitions
    result    8100 9200 8000 7700 7000 9300

Codes depend on the partition, so moved rows are encoded again from their vectors. Other rows are
not changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.index.folder import SegmentFolder
from lancelet.index.vector.kind import concatenate_codes, graph_settings_of
from lancelet.index.vector.model import IvfModel
from lancelet.index.vector.quantizers.base import Codes, Matrix
from lancelet.index.vector.segment import IvfSegment
from lancelet.index.vector.train import default_target
from lancelet.index.vector.vectors import matrix_of
from lancelet.index.vector.writer import write_segment
from lancelet.rowids.address import UInt64s
from lancelet.values import dataclass

FetchVectors: TypeAlias = Callable[[UInt64s], tuple[pa.Array, UInt64s]]
"""Returns the vectors of existing rows, and their row numbers."""

_SPLIT_ABOVE: Final = 4
_JOIN_BELOW: Final = 0.25
_SAMPLE: Final = 256


@dataclass(frozen=True, slots=True)
class Imbalance:
    """The number of new partitions for each partition to split, and the partitions to join."""

    splits: dict[int, int]
    joins: frozenset[int]

    @staticmethod
    def measure(segment: IvfSegment) -> Imbalance:
        """Find the partitions of a segment with too many or too few rows.

        No partitions are joined if the number of partitions was specified.
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
        num_joins_max = len(sizes) - 1 + len(splits)
        smallest = few[np.argsort(sizes[few], kind="stable")][:num_joins_max]
        return Imbalance(splits, frozenset(smallest.tolist()))

    def __bool__(self) -> bool:
        """Return whether any partition is split or joined."""
        return bool(self.splits or self.joins)


def write_balanced(
    segment: IvfSegment, imbalance: Imbalance, fetch_vectors: FetchVectors, folder: SegmentFolder
) -> None:
    """Write a segment with the same rows in rebalanced partitions."""
    rebalanced = _Rebalanced.compute(segment, imbalance, fetch_vectors)
    write_segment(
        folder,
        segment.name,
        rebalanced.model,
        segment.quantizer,
        rebalanced.parts(segment),
        graph_settings_of(segment),
        segment.num_skipped,
        segment.origin,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Rebalanced:
    """Rows of changed partitions with new labels and codes; `unchanged` lists the others."""

    model: IvfModel
    unchanged: tuple[int, ...]
    numbers: UInt64s
    labels: Int64s
    codes: Codes

    @staticmethod
    def compute(
        segment: IvfSegment, imbalance: Imbalance, fetch_vectors: FetchVectors
    ) -> _Rebalanced:
        model = segment.model
        changed_partitions = imbalance.joins | imbalance.splits.keys()
        unchanged = tuple(
            each for each in range(model.partitions) if each not in changed_partitions
        )
        centroids: list[Matrix] = [model.centroids[list(unchanged)]]
        moved: list[tuple[Matrix, UInt64s]] = []
        for number in sorted(changed_partitions):
            values, numbers = fetch_vectors(segment.codes(number)[0])
            vectors, numbers = matrix_of(values, numbers, model.metric)
            moved.append((vectors, numbers))
            if number in imbalance.splits:
                random = np.random.default_rng(number)
                sample_size = _SAMPLE * imbalance.splits[number]
                sample = random.permutation(len(vectors))[:sample_size]
                centroids.append(
                    IvfModel.train(
                        vectors[sample],
                        model.metric,
                        model.centroids.dtype,
                        partitions=imbalance.splits[number],
                        seed=number,
                    ).centroids
                )
        new_model = IvfModel(model.metric, np.concatenate(centroids))
        labels = [new_model.assign(vectors) for vectors, _ in moved]
        codes = [
            segment.quantizer.encode(vectors, own, new_model.centroids)
            for (vectors, _), own in zip(moved, labels, strict=True)
        ]
        return _Rebalanced(
            new_model,
            unchanged,
            np.concatenate([numbers for _, numbers in moved]),
            np.concatenate(labels),
            concatenate_codes(codes),
        )

    def parts(self, segment: IvfSegment) -> Iterator[tuple[UInt64s, Codes]]:
        """Yield the rows of each new partition."""
        for partition in range(self.model.partitions):
            indices = np.flatnonzero(self.labels == partition)
            numbers, codes = (
                self.numbers[indices],
                {key: each[indices] for key, each in self.codes.items()},
            )
            if partition < len(self.unchanged):
                stored_numbers, stored = segment.codes(self.unchanged[partition])
                numbers = np.concatenate([stored_numbers, numbers])
                codes = concatenate_codes([stored, codes])
            order = np.argsort(numbers, kind="stable")
            yield numbers[order], {key: each[order] for key, each in codes.items()}
