"""All kinds of vector indices, which share one layout of IVF partitions.

    train     sample -> centroids -> codebook or bounds; then each row -> partition, code
    merge     codes of segments with the same model, and new rows
    remap     the same codes with new row numbers

The name of the kind, such as `IVF_PQ`, determines the quantizer and whether there are HNSW graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.errors import InvalidInputError
from lancelet.index.base import IndexedRows, Move, Parameters, ScalarKind
from lancelet.index.folder import SegmentFolder
from lancelet.index.vector.details import TYPE_URL, IvfDetails
from lancelet.index.vector.graph import GraphSettings
from lancelet.index.vector.model import AssignedPartitions, IvfModel
from lancelet.index.vector.quantizers.base import Codes, Matrix, Quantizer
from lancelet.index.vector.quantizers.registry import quantizer_name
from lancelet.index.vector.quantizers.sq import ScalarCodes
from lancelet.index.vector.segment import IvfSegment
from lancelet.index.vector.spool import Spool
from lancelet.index.vector.train import IvfRequest, train_models
from lancelet.index.vector.vectors import (
    NotVectorsError,
    matrix_of,
    not_vectors_hint,
    vector_type_of,
)
from lancelet.index.vector.writer import write_segment
from lancelet.rowids.address import NO_ADDRESS, UInt64s
from lancelet.values import dataclass

RQ_VERSION: Final = 2

_Part = TypeVar("_Part")


@dataclass(frozen=True, slots=True, eq=False)
class EncodedRows:
    """Encoded rows: row numbers, partitions and codes.

    `num_skipped` is the number of rows without valid vectors.
    """

    numbers: UInt64s
    labels: Int64s
    codes: Codes
    num_skipped: int = 0


class Ivf(ScalarKind[IvfSegment]):
    """All kinds of vector indices."""

    name = "IVF"
    title = "IVF"
    type_url = TYPE_URL
    newest_version = RQ_VERSION
    addresses_since = None
    can_remap = True

    def version(self, parameters: Parameters, *, stable_row_ids: bool) -> int:  # noqa: ARG002
        """Return the file version: 2 for RQ codes, otherwise 1."""
        return (
            RQ_VERSION if quantizer_name(IvfRequest.from_parameters(parameters).name) == "RQ" else 1
        )

    def describe(self, details: bytes) -> dict[str, Any]:
        """Return the details as a dictionary."""
        return IvfDetails.parse(details).to_dict()

    def supports_type(self, data_type: pa.DataType) -> bool:
        """Return whether the type is a vector type."""
        return vector_type_of(data_type) is not None

    def check_type(self, data_type: pa.DataType, column: str) -> None:
        """Raise if the column does not contain vectors."""
        if not self.supports_type(data_type):
            raise NotVectorsError(
                f"Vector column {column} must be FixedSizeListArray of floats or bytes, or lists "
                f"of them, got {data_type}{not_vectors_hint(data_type, column)}",
                column=column,
            )

    def infer_parameters(self, details: bytes, segment: IvfSegment | None) -> Parameters:
        """Return the request that reproduces a segment, as far as it is recorded."""
        if segment is None:
            request = IvfRequest.with_details(IvfDetails.parse(details))
        else:
            request = IvfRequest.like(segment)
        return Parameters({"request": request})

    def append(
        self,
        segment: IvfSegment,
        rows: IndexedRows,
        folder: SegmentFolder,
        parameters: Parameters,  # noqa: ARG002 - the models of the segment are used again
    ) -> bytes:
        """Write a segment for new rows with the models of an existing segment."""
        return self.merge([segment], [_drop_all], rows, folder)

    def train(self, rows: IndexedRows, folder: SegmentFolder, parameters: Parameters) -> bytes:
        """Train models on a sample and encode all rows. Writes no files if there are no rows."""
        request = IvfRequest.from_parameters(parameters)
        if not rows.num_rows:
            return request.untrained_details(rows.data_type).render()
        model, quantizer = train_models(rows, request)
        with Spool(model.partitions) as spool:
            report_shuffle = partial(request.progress, "shuffle")
            parts_with_progress = _with_progress(
                rows.parts, report_shuffle, rows.num_rows, lambda part: len(part[1])
            )
            rows_with_progress = replace(rows, parts=parts_with_progress)
            num_skipped = fill_spool(spool, rows_with_progress, model, quantizer, request.assigned)
            report_merge = partial(request.progress, "merge_partitions")
            parts = _with_progress(spool.parts(), report_merge, model.partitions, lambda _: 1)
            settings = request.graph_settings
            write_segment(
                folder, request.name, model, quantizer, parts, settings, num_skipped, request.origin
            )
        return request.details(quantizer).render()

    def open(self, folder: SegmentFolder, details: bytes) -> IvfSegment:
        """Open a segment."""
        return IvfSegment(folder, details)

    def merge(
        self,
        segments: Sequence[IvfSegment],
        moves: Sequence[Move],
        rows: IndexedRows,
        folder: SegmentFolder,
    ) -> bytes:
        """Merge segments with the same model, and new rows."""
        first = segments[0]
        quantizer = first.quantizer
        for other in segments[1:]:
            if not first.model.is_same(other.model):
                raise InvalidInputError("segments cannot be merged: centroids mismatch")
            quantizer = _common_quantizer(quantizer, other.quantizer)
        with Spool(first.model.partitions) as spool:
            skipped_counts: list[int | None] = [fill_spool(spool, rows, first.model, quantizer)]
            skipped_counts += [segment.num_skipped for segment in segments]
            write_segment(
                folder,
                first.name,
                first.model,
                quantizer,
                _merge_partitions(segments, moves, spool.parts(), quantizer),
                graph_settings_of(first),
                _sum_or_none(skipped_counts),
            )
        return first.details.render()

    def remap(self, segment: IvfSegment, move: Move, folder: SegmentFolder) -> bytes:
        """Write a segment with new row numbers."""
        write_segment(
            folder,
            segment.name,
            segment.model,
            segment.quantizer,
            _merge_partitions([segment], [move], iter(()), segment.quantizer),
            graph_settings_of(segment),
            segment.num_skipped,
            segment.origin,
        )
        return segment.details.render()


IVF: Final = Ivf()


def graph_settings_of(segment: IvfSegment) -> GraphSettings | None:
    """Return the build settings of the graphs of a segment, or None if it has no graphs."""
    return None if segment.graphs is None else segment.graphs.settings


def _with_progress(
    parts: Iterable[_Part],
    report: Callable[[int, int], None],
    total: int,
    size: Callable[[_Part], int],
) -> Iterator[_Part]:
    """Yield the parts and report their size."""
    done = 0
    report(done, total)
    for part in parts:
        yield part
        done += size(part)
        report(done, total)


def fill_spool(
    spool: Spool,
    rows: IndexedRows,
    model: IvfModel,
    quantizer: Quantizer,
    assigned: AssignedPartitions | None = None,
) -> int:
    """Add all rows with valid vectors to a spool and return the number of skipped rows."""
    num_skipped = 0
    for encoded in encode_parts(rows, model, quantizer, assigned):
        spool.add(encoded.numbers, encoded.labels, encoded.codes)
        num_skipped += encoded.num_skipped
    return num_skipped


def encode_parts(
    rows: IndexedRows,
    model: IvfModel,
    quantizer: Quantizer,
    assigned: AssignedPartitions | None = None,
) -> Iterator[EncodedRows]:
    """Yield the encoded rows with valid vectors, one result per input part."""
    for values, part_numbers in rows.parts:
        vectors, numbers = matrix_of(values, part_numbers, model.metric)
        vectors, numbers, labels = assign_partitions(vectors, numbers, model, assigned)
        codes = quantizer.encode(vectors, labels, model.centroids)
        num_skipped = len(part_numbers) - len(numbers)
        if not pa.types.is_fixed_size_list(rows.data_type):  # A row may contain several vectors.
            num_skipped = len(np.setdiff1d(part_numbers, numbers))
        yield EncodedRows(numbers, labels, codes, num_skipped)


def assign_partitions(
    vectors: Matrix, numbers: UInt64s, model: IvfModel, assigned: AssignedPartitions | None
) -> tuple[Matrix, UInt64s, Int64s]:
    """Return vectors with their partitions, limited to the rows in `assigned` if given."""
    if assigned is None:
        return vectors, numbers, model.assign(vectors)
    assigned.check(model.partitions)
    labels = assigned.labels_of(numbers)
    indices = np.flatnonzero(labels >= 0)
    return vectors[indices], numbers[indices], labels[indices]


def _common_quantizer(first: Quantizer, second: Quantizer) -> Quantizer:
    """Return a quantizer that both kinds of codes can be converted to."""
    if first.same_codes(second):
        return first
    if isinstance(first, ScalarCodes) and isinstance(second, ScalarCodes):
        return first.union(second)
    raise InvalidInputError("segments cannot be merged: their quantizers are incompatible")


def _merge_partitions(
    segments: Sequence[IvfSegment],
    moves: Sequence[Move],
    fresh: Iterator[tuple[UInt64s, Codes]],
    quantizer: Quantizer,
) -> Iterator[tuple[UInt64s, Codes]]:
    """Yield the rows of each partition of the segments, and the new rows if any."""
    for number in range(segments[0].model.partitions):
        numbers: list[UInt64s] = []
        codes: list[Codes] = []
        for segment, move in zip(segments, moves, strict=True):
            stored_numbers, stored = segment.codes(number)
            if isinstance(quantizer, ScalarCodes) and isinstance(segment.quantizer, ScalarCodes):
                stored = quantizer.convert(stored, segment.quantizer)
            moved = move(stored_numbers)
            remaining = np.flatnonzero(moved != NO_ADDRESS)
            numbers.append(moved[remaining])
            codes.append({key: each[remaining] for key, each in stored.items()})
        for stored_numbers, stored in islice(fresh, 1):
            numbers.append(stored_numbers)
            codes.append(stored)
        all_numbers, all_codes = np.concatenate(numbers), concatenate_codes(codes)
        order = np.argsort(all_numbers, kind="stable")
        yield all_numbers[order], {key: each[order] for key, each in all_codes.items()}


def concatenate_codes(codes: Sequence[Codes]) -> Codes:
    """Concatenate codes."""
    return {key: np.concatenate([each[key] for each in codes]) for key in codes[0]} if codes else {}


def _sum_or_none(counts: Sequence[int | None]) -> int | None:
    present = [count for count in counts if count is not None]
    return sum(present) if len(present) == len(counts) else None


def _drop_all(numbers: UInt64s) -> UInt64s:
    return np.full(len(numbers), NO_ADDRESS, np.uint64)
