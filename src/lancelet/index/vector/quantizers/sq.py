"""SQ: scalar quantization of each element to a byte between two bounds.

    bounds -1 and 1    0.0 -> floor(1 / 2 * 255) = 127    squared distance of bytes x (2 / 255)^2

Queries are quantized as well, except for the dot metric.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.errors import CorruptDataError
from lancelet.index.kernels import CodeKind, CodeQuery, Comparison, Metric, PackedCodes
from lancelet.index.kernels.vectors import Floats
from lancelet.index.vector.quantizers.base import (
    Codes,
    GraphQuery,
    GraphView,
    Matrix,
    StorageMetadata,
    list_field,
    read_number,
)
from lancelet.values import dataclass

_STEPS: Final = 255
_BLOCK_VALUES: Final = 1 << 15


@dataclass(frozen=True, slots=True, eq=False)
class ScalarCodes:
    """Elements quantized to bytes between two bounds."""

    metric: Metric
    dimension: int
    start: float
    end: float

    @staticmethod
    def parse(
        metadata: StorageMetadata,
        metric: Metric,
        columns: Sequence[pa.Field],  # noqa: ARG004
    ) -> ScalarCodes:
        """Parse the storage metadata."""
        bounds = metadata.values.get("bounds")
        read_number(metadata, "num_bits", 8, 8)
        try:
            start, end = float(bounds["start"]), float(bounds["end"])  # type: ignore[index]  # checked by the errors
        except (TypeError, KeyError, ValueError) as error:
            raise CorruptDataError(
                "missing quantization bounds in the metadata of a vector index", found=bounds
            ) from error
        return ScalarCodes(metric, read_number(metadata, "dim", 1, 1 << 16), start, end)

    @staticmethod
    def train(sample: Matrix, metric: Metric) -> ScalarCodes:
        """Set the bounds to the minimum and maximum element of a sample."""
        minimum, maximum = (float(sample.min()), float(sample.max())) if sample.size else (0.0, 0.0)
        return ScalarCodes(metric, sample.shape[1], minimum, maximum)

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        """Column of codes."""
        return (list_field("__sq_code", pa.uint8(), self.dimension),)

    def encode(self, vectors: Matrix, partitions: Int64s, centroids: Matrix) -> Codes:  # noqa: ARG002
        """Return the quantized vectors."""
        return {"code": self.quantize(vectors)}

    def quantize(self, vectors: Matrix) -> npt.NDArray[np.uint8]:
        """Quantize elements to bytes, rounding down and clipping to the bounds."""
        codes = np.zeros(vectors.shape, np.uint8)
        if self.end <= self.start:
            return codes
        rows = max(1, _BLOCK_VALUES // max(self.dimension, 1))
        for first in range(0, len(vectors), rows):  # blocks that fit in the CPU cache
            share = vectors[first : first + rows].astype(np.float64)
            share -= self.start
            share /= self.end - self.start
            share *= _STEPS
            codes[first : first + rows] = np.clip(share, 0, _STEPS, out=share)
        return codes

    def union(self, other: ScalarCodes) -> ScalarCodes:
        """Return a quantizer with bounds that include those of both."""
        start, end = min(self.start, other.start), max(self.end, other.end)
        return ScalarCodes(self.metric, self.dimension, start, end)

    def convert(self, codes: Codes, source: ScalarCodes) -> Codes:
        """Convert codes from other bounds, using the center of each quantization step."""
        if (self.start, self.end) == (source.start, source.end):
            return codes
        step = (source.end - source.start) / _STEPS
        return {"code": self.quantize((codes["code"] + 0.5) * step + source.start)}

    def store(self, codes: Codes) -> list[npt.NDArray[Any]]:
        """Return the codes."""
        return [codes["code"]]

    def load(self, columns: Sequence[npt.NDArray[Any]]) -> Codes:
        """Return the codes."""
        return {"code": columns[0]}

    def pack_codes(self, codes: Codes, center: Floats) -> PackedCodes:  # noqa: ARG002
        """Return the codes, and the part of the distance that does not depend on the query."""
        code = np.ascontiguousarray(codes["code"])
        if self.metric is Metric.DOT:
            return PackedCodes(code.reshape(-1), self.dimension)
        step = (self.end - self.start) / _STEPS
        wide = code.astype(np.float32)
        offsets = np.einsum("ij,ij->i", wide, wide - 256) * np.float32(step * step)
        return PackedCodes(code.reshape(-1), self.dimension, offsets)

    def code_query(self, query: Matrix) -> CodeQuery:
        """Return the quantized query, or its elements as weights for the dot metric."""
        factor, base = self._scale(query)
        if self.metric is Metric.DOT:
            weights = query.astype(np.float32)
            return CodeQuery(CodeKind.PRODUCTS, weights, self.dimension, factor=-factor, base=base)
        return CodeQuery(CodeKind.BYTES, self.quantize(query), self.dimension, factor=factor)

    def _scale(self, query: Matrix) -> tuple[float, float]:
        """Return the factor and offset that convert results for bytes to distances."""
        step = (self.end - self.start) / _STEPS
        if self.metric is not Metric.DOT:
            return step * step, 0.0
        return step, 1 - self.start * float(query.sum(dtype=np.float64))

    def graph_view(self, codes: Codes) -> GraphView:
        """Return the codes, or the decoded vectors for the dot metric."""
        scale = (self.end - self.start) / _STEPS
        if self.metric is not Metric.DOT:
            return GraphView(codes["code"], Comparison.BYTE_L2, factor=scale * scale)
        decoded = codes["code"].astype(np.float32) * np.float32(scale) + np.float32(self.start)
        return GraphView(decoded, Comparison.FLOAT_DOT, base=1.0)

    def graph_query(self, query: Matrix, centroid: Matrix) -> GraphQuery:  # noqa: ARG002
        """Return the quantized query, or weights for the dot metric."""
        factor, base = self._scale(query)
        if self.metric is Metric.DOT:
            return GraphQuery(query.astype(np.float32), Comparison.BYTE_DOT, factor, base)
        return GraphQuery(self.quantize(query), Comparison.BYTE_L2, factor)

    def graph_codes(self, codes: Codes) -> npt.NDArray[Any]:
        """Return the codes."""
        return np.ascontiguousarray(codes["code"])

    def storage_metadata(self, add_buffer: Callable[[bytes], int]) -> dict[str, Any]:  # noqa: ARG002
        """Return the bounds."""
        bounds = {"start": self.start, "end": self.end}
        return {"dim": self.dimension, "num_bits": 8, "bounds": bounds}

    def settings(self) -> dict[str, Any]:
        """Return the number of bits."""
        return {"num_bits": 8}

    def same_codes(self, other: Any) -> bool:
        """Return whether the other quantizer has the same bounds."""
        return isinstance(other, ScalarCodes) and (self.start, self.end) == (other.start, other.end)
