"""SQ: each element becomes a byte, by its place between two bounds.

bounds -1 and 1    0.0 -> floor(1 / 2 * 255) = 127    squared distance of bytes x (2 / 255)^2

A query is made bytes as well, but for products, which take it as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.errors import CorruptDataError
from lancelet.index.vector.quantizers.base import (
    Codes,
    GraphQuery,
    GraphView,
    Matrix,
    StorageNotes,
    list_field,
    number_of,
)
from lancelet.kernels import CodeKind, CodeQuery, Comparison, Metric, PackedCodes
from lancelet.kernels.graph import Floats
from lancelet.values import dataclass

_STEPS: Final = 255
_BLOCK_VALUES: Final = 1 << 15


@dataclass(frozen=True, slots=True, eq=False)
class ScalarCodes:
    """Bytes between two bounds."""

    metric: Metric
    dimension: int
    start: float
    end: float

    @staticmethod
    def parse(notes: StorageNotes, metric: Metric, columns: Sequence[pa.Field]) -> ScalarCodes:  # noqa: ARG004
        """Read from a file."""
        bounds = notes.values.get("bounds")
        number_of(notes, "num_bits", 8, 8)
        try:
            start, end = float(bounds["start"]), float(bounds["end"])  # type: ignore[index]  # checked by the errors
        except (TypeError, KeyError, ValueError) as error:
            raise CorruptDataError("the notes of an index lack bounds", found=bounds) from error
        return ScalarCodes(metric, number_of(notes, "dim", 1, 1 << 16), start, end)

    @staticmethod
    def train(sample: Matrix, metric: Metric) -> ScalarCodes:
        """Take the bounds from the least and the greatest element of a sample."""
        least, most = (float(sample.min()), float(sample.max())) if sample.size else (0.0, 0.0)
        return ScalarCodes(metric, sample.shape[1], least, most)

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        """The bytes."""
        return (list_field("__sq_code", pa.uint8(), self.dimension),)

    def encode(self, vectors: Matrix, partitions: Int64s, centroids: Matrix) -> Codes:  # noqa: ARG002
        """Return the bytes of vectors."""
        return {"code": self.codes_of(vectors)}

    def codes_of(self, vectors: Matrix) -> npt.NDArray[np.uint8]:
        """Return the bytes of elements: rounded down, and held to what a byte can be."""
        found = np.zeros(vectors.shape, np.uint8)
        if self.end <= self.start:
            return found
        rows = max(1, _BLOCK_VALUES // max(self.dimension, 1))
        for first in range(0, len(vectors), rows):  # few enough that they stay near the processor
            share = vectors[first : first + rows].astype(np.float64)
            share -= self.start
            share /= self.end - self.start
            share *= _STEPS
            found[first : first + rows] = np.clip(share, 0, _STEPS, out=share)
        return found

    def around(self, other: ScalarCodes) -> ScalarCodes:
        """Return codes whose bounds hold those of both."""
        start, end = min(self.start, other.start), max(self.end, other.end)
        return ScalarCodes(self.metric, self.dimension, start, end)

    def recoded(self, codes: Codes, source: ScalarCodes) -> Codes:
        """Return the bytes of what stands in the middle of each byte of other bounds."""
        if (self.start, self.end) == (source.start, source.end):
            return codes
        step = (source.end - source.start) / _STEPS
        return {"code": self.codes_of((codes["code"] + 0.5) * step + source.start)}

    def store(self, codes: Codes) -> list[npt.NDArray[Any]]:
        """Return the bytes."""
        return [codes["code"]]

    def load(self, columns: Sequence[npt.NDArray[Any]]) -> Codes:
        """Return the bytes."""
        return {"code": columns[0]}

    def searchable(self, codes: Codes, center: Floats) -> PackedCodes:  # noqa: ARG002
        """Return the bytes, and what the distance of a row has of its own."""
        code = np.ascontiguousarray(codes["code"])
        if self.metric is Metric.DOT:
            return PackedCodes(code.reshape(-1), self.dimension)
        step = (self.end - self.start) / _STEPS
        wide = code.astype(np.float32)
        own = np.einsum("ij,ij->i", wide, wide - 256) * np.float32(step * step)
        return PackedCodes(code.reshape(-1), self.dimension, own)

    def ask(self, query: Matrix) -> CodeQuery:
        """Return the bytes of a query, or its elements as weights where products are compared."""
        factor, base = self._scale(query)
        if self.metric is Metric.DOT:
            own = query.astype(np.float32)
            return CodeQuery(CodeKind.PRODUCTS, own, self.dimension, factor=-factor, base=base)
        return CodeQuery(CodeKind.BYTES, self.codes_of(query), self.dimension, factor=factor)

    def _scale(self, query: Matrix) -> tuple[float, float]:
        """Return what compared bytes are multiplied by, and what then is added."""
        step = (self.end - self.start) / _STEPS
        if self.metric is not Metric.DOT:
            return step * step, 0.0
        return step, 1 - self.start * float(query.sum(dtype=np.float64))

    def graph_view(self, codes: Codes) -> GraphView:
        """Return the bytes, or what they stand for where products are compared."""
        scale = (self.end - self.start) / _STEPS
        if self.metric is not Metric.DOT:
            return GraphView(codes["code"], Comparison.BYTE_L2, factor=scale * scale)
        decoded = codes["code"].astype(np.float32) * np.float32(scale) + np.float32(self.start)
        return GraphView(decoded, Comparison.FLOAT_DOT, base=1.0)

    def graph_query(self, query: Matrix, centroid: Matrix) -> GraphQuery:  # noqa: ARG002
        """Return the bytes of a query, or weights for the bytes of rows."""
        factor, base = self._scale(query)
        if self.metric is Metric.DOT:
            return GraphQuery(query.astype(np.float32), Comparison.BYTE_DOT, factor, base)
        return GraphQuery(self.codes_of(query), Comparison.BYTE_L2, factor)

    def graph_codes(self, codes: Codes) -> npt.NDArray[Any]:
        """Return the bytes."""
        return np.ascontiguousarray(codes["code"])

    def notes(self, add_buffer: Callable[[bytes], int]) -> dict[str, Any]:  # noqa: ARG002
        """Return the bounds."""
        bounds = {"start": self.start, "end": self.end}
        return {"dim": self.dimension, "num_bits": 8, "bounds": bounds}

    def settings(self) -> dict[str, Any]:
        """Return how many bits an element has."""
        return {"num_bits": 8}

    def same_codes(self, other: Any) -> bool:
        """Return whether the other has the same bounds."""
        return isinstance(other, ScalarCodes) and (self.start, self.end) == (other.start, other.end)
