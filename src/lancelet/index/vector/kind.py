"""All kinds of vector indices as one: partitions around centroids, of one layout.

    train     sample -> centroids -> codebook or bounds; then every row -> partition, code
    merge     codes of segments with the same model, and new rows
    remap     the same codes under other numbers

The name of the kind, such as `IVF_PQ`, says how vectors are kept and whether there are graphs.
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
from lancelet.index.vector.model import IvfModel, KnownPartitions
from lancelet.index.vector.quantizers.base import Codes, Matrix, Quantizer
from lancelet.index.vector.quantizers.registry import quantizer_name
from lancelet.index.vector.quantizers.sq import ScalarCodes
from lancelet.index.vector.segment import IvfSegment
from lancelet.index.vector.spool import Spool
from lancelet.index.vector.train import IvfRequest, train_models
from lancelet.index.vector.vectors import NotVectorsError, matrix_of, vector_type_of
from lancelet.index.vector.writer import write_segment
from lancelet.rowids.address import NO_ADDRESS, UInt64s
from lancelet.values import dataclass

RQ_VERSION: Final = 2

_Part = TypeVar("_Part")


@dataclass(frozen=True, slots=True, eq=False)
class EncodedRows:
    """Rows that were encoded: numbers, partitions and codes; others had nothing to encode."""

    numbers: UInt64s
    labels: Int64s
    codes: Codes
    left_out: int = 0


class Ivf(ScalarKind[IvfSegment]):
    """Every kind of vector index."""

    name = "IVF"
    title = "IVF"
    type_url = TYPE_URL
    newest_version = RQ_VERSION
    addresses_since = None
    can_remap = True

    def version(self, parameters: Parameters, *, stable_row_ids: bool) -> int:  # noqa: ARG002
        """Return 1, or 2 where vectors are kept as rotated codes."""
        return RQ_VERSION if quantizer_name(IvfRequest.of(parameters).name) == "RQ" else 1

    def describe(self, details: bytes) -> dict[str, Any]:
        """Return what the details say."""
        return IvfDetails.parse(details).described()

    def supports_type(self, data_type: pa.DataType) -> bool:
        """Return whether the column holds vectors."""
        return vector_type_of(data_type) is not None

    def check_type(self, data_type: pa.DataType, column: str) -> None:
        """Raise unless the column holds vectors."""
        if not self.supports_type(data_type):
            raise NotVectorsError(
                f"Vector column {column} must be FixedSizeListArray of floats or bytes, or lists "
                f"of them, got {data_type}",
                column=column,
            )

    def infer_parameters(self, details: bytes, segment: IvfSegment | None) -> Parameters:
        """Return the request that a segment was made by, as far as it says."""
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
        """Write a segment of new rows with the models of another."""
        return self.merge([segment], [_nowhere], rows, folder)

    def train(self, rows: IndexedRows, folder: SegmentFolder, parameters: Parameters) -> bytes:
        """Train models on a sample of the rows, then encode all of them; no rows, no files."""
        request = IvfRequest.of(parameters)
        if not rows.num_rows:
            return request.untrained_details(rows.data_type).render()
        model, quantizer = train_models(rows, request)
        with Spool(model.partitions) as spool:
            shuffled = partial(request.progress, "shuffle")
            watched = _watched(rows.parts, shuffled, rows.num_rows, lambda part: len(part[1]))
            own = replace(rows, parts=watched)
            left_out = fill(spool, own, model, quantizer, request.known)
            merged = partial(request.progress, "merge_partitions")
            parts = _watched(spool.parts(), merged, model.partitions, lambda _: 1)
            settings = request.graph_settings
            write_segment(
                folder, request.name, model, quantizer, parts, settings, left_out, request.origin
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
        """Put the rows of segments with one model together, and new rows with them."""
        first = segments[0]
        quantizer = first.quantizer
        for other in segments[1:]:
            if not first.model.is_same(other.model):
                raise InvalidInputError("segments cannot be merged: centroids mismatch")
            quantizer = _common(quantizer, other.quantizer)
        with Spool(first.model.partitions) as spool:
            left_out: list[int | None] = [fill(spool, rows, first.model, quantizer)]
            left_out += [segment.left_out for segment in segments]
            write_segment(
                folder,
                first.name,
                first.model,
                quantizer,
                _merged(segments, moves, spool.parts(), quantizer),
                graph_settings_of(first),
                _total(left_out),
            )
        return first.details.render()

    def remap(self, segment: IvfSegment, move: Move, folder: SegmentFolder) -> bytes:
        """Write a segment whose rows have other numbers."""
        write_segment(
            folder,
            segment.name,
            segment.model,
            segment.quantizer,
            _merged([segment], [move], iter(()), segment.quantizer),
            graph_settings_of(segment),
            segment.left_out,
            segment.origin,
        )
        return segment.details.render()


IVF: Final = Ivf()


def graph_settings_of(segment: IvfSegment) -> GraphSettings | None:
    """Return what the graphs of a segment were built with, or None if it has none."""
    return None if segment.graphs is None else segment.graphs.settings


def _watched(
    parts: Iterable[_Part],
    report: Callable[[int, int], None],
    total: int,
    size: Callable[[_Part], int],
) -> Iterator[_Part]:
    """Yield what there is, and say how much of it was used."""
    done = 0
    report(done, total)
    for part in parts:
        yield part
        done += size(part)
        report(done, total)


def fill(
    spool: Spool,
    rows: IndexedRows,
    model: IvfModel,
    quantizer: Quantizer,
    known: KnownPartitions | None = None,
) -> int:
    """Add every row that can be compared, and return how many cannot be."""
    left_out = 0
    for encoded in encoded_parts(rows, model, quantizer, known):
        spool.add(encoded.numbers, encoded.labels, encoded.codes)
        left_out += encoded.left_out
    return left_out


def encoded_parts(
    rows: IndexedRows,
    model: IvfModel,
    quantizer: Quantizer,
    known: KnownPartitions | None = None,
) -> Iterator[EncodedRows]:
    """Yield the rows that can be compared, as many at a time as are read."""
    for values, own in rows.parts:
        vectors, numbers = matrix_of(values, own, model.metric)
        vectors, numbers, labels = placed(vectors, numbers, model, known)
        codes = quantizer.encode(vectors, labels, model.centroids)
        left_out = len(own) - len(numbers)
        if not pa.types.is_fixed_size_list(rows.data_type):  # several vectors are of one row
            left_out = len(np.setdiff1d(own, numbers))
        yield EncodedRows(numbers, labels, codes, left_out)


def placed(
    vectors: Matrix, numbers: UInt64s, model: IvfModel, known: KnownPartitions | None
) -> tuple[Matrix, UInt64s, Int64s]:
    """Return vectors with their partitions, without those that are not among known ones."""
    if known is None:
        return vectors, numbers, model.assign(vectors)
    known.check(model.partitions)
    labels = known.labels_of(numbers)
    there = np.flatnonzero(labels >= 0)
    return vectors[there], numbers[there], labels[there]


def _common(first: Quantizer, second: Quantizer) -> Quantizer:
    """Return what codes of both become."""
    if first.same_codes(second):
        return first
    if isinstance(first, ScalarCodes) and isinstance(second, ScalarCodes):
        return first.around(second)
    raise InvalidInputError("segments cannot be merged: their codes differ in meaning")


def _merged(
    segments: Sequence[IvfSegment],
    moves: Sequence[Move],
    fresh: Iterator[tuple[UInt64s, Codes]],
    quantizer: Quantizer,
) -> Iterator[tuple[UInt64s, Codes]]:
    """Yield the rows of each partition of segments, and of new rows if there are any."""
    for number in range(segments[0].model.partitions):
        numbers: list[UInt64s] = []
        codes: list[Codes] = []
        for segment, move in zip(segments, moves, strict=True):
            own, stored = segment.codes(number)
            if isinstance(quantizer, ScalarCodes) and isinstance(segment.quantizer, ScalarCodes):
                stored = quantizer.recoded(stored, segment.quantizer)
            moved = move(own)
            kept = np.flatnonzero(moved != NO_ADDRESS)
            numbers.append(moved[kept])
            codes.append({key: each[kept] for key, each in stored.items()})
        for own, stored in islice(fresh, 1):
            numbers.append(own)
            codes.append(stored)
        together, joined = np.concatenate(numbers), concatenated_codes(codes)
        order = np.argsort(together, kind="stable")
        yield together[order], {key: each[order] for key, each in joined.items()}


def concatenated_codes(codes: Sequence[Codes]) -> Codes:
    """Return codes one behind the other."""
    return {key: np.concatenate([each[key] for each in codes]) for key in codes[0]} if codes else {}


def _total(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _nowhere(numbers: UInt64s) -> UInt64s:
    return np.full(len(numbers), NO_ADDRESS, np.uint64)
