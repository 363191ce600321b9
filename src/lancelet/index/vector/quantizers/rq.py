"""RQ: the residual is turned by a rotation, and each element of it kept in 1 to 9 bits.

    rotated residual   [0.3 -0.1 ...]     sign bits 1 0 ..., then `extra` bits of how much
    value              (sign << extra) + code             5 bits: 0 .. 31
    stands for         f = value - (2^extra - 0.5)        -15.5 .. 15.5, in the direction of r
    distance           base + add + scale * <rotated query, f>

`add` and `scale` are kept with each row, and are such that the estimate is right on average: with
n = |r|^2, A = <r, f>, K = <rotated centroid, f> it is add = n + 2nK/A and scale = -2n/A, base the
squared distance of query and centroid. How bits lie in a file is told in `rq_layout`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.errors import CorruptDataError, UnsupportedError
from lancelet.format.protos import index_pb
from lancelet.format.wire import parse_message
from lancelet.index.parts.tensor import parse_tensor
from lancelet.index.vector.quantizers import rq_layout
from lancelet.index.vector.quantizers.base import (
    Codes,
    GraphQuery,
    GraphView,
    Matrix,
    StorageNotes,
    list_field,
    number_of,
)
from lancelet.index.vector.quantizers.rotation import FastRotation, MatrixRotation, Rotation
from lancelet.kernels import CodeKind, CodeQuery, Metric, PackedCodes, scaled_codes
from lancelet.kernels.metric import Floats
from lancelet.values import cached_property, dataclass

BITS_MAX: Final = 9
DEFAULT_BITS: Final = 5
_CODES: Final = "_rabit_codes"
_EXTRA: Final = "__blocked_ex_codes"
_FACTORS: Final = ("__add_factors", "__scale_factors", "__error_factors")
_EXTRA_FACTORS: Final = ("__add_factors_ex", "__scale_factors_ex")
_START: Final = (15, 20, 52, 59, 71, 75, 77, 81)
"""From how many percent of the greatest scale on codes are looked for, by the number of bits."""
_ERROR: Final = 1.9
_MATRIX_MAX: Final = 2048
_BLOCK_VALUES: Final = 1 << 20


@dataclass(frozen=True, eq=False)
class RotatedCodes:
    """A rotation, and how many bits each element has; signs of 32 rows may be packed together."""

    metric: Metric
    dimension: int
    bits: int
    rotation: Rotation
    packed: bool = True

    @staticmethod
    def parse(notes: StorageNotes, metric: Metric, columns: Sequence[pa.Field]) -> RotatedCodes:
        """Read from a file."""
        bits = number_of(notes, "num_bits", 1, BITS_MAX)
        dimension = number_of(notes, "code_dim", 8, 1 << 20)
        expected = {field.name for field in _fields(dimension, bits)}
        is_current = (
            notes.values.get("query_estimator") == "raw_query"
            and isinstance(notes.values.get("packed"), bool)
            and expected <= {field.name for field in columns}
        )
        if not is_current or dimension % 8:
            raise UnsupportedError(
                "RQ codes of an older layout cannot be read; build the index again",
                columns=[field.name for field in columns],
                estimator=notes.values.get("query_estimator"),
                dimension=dimension,
            )
        packed = bool(notes.values["packed"])
        return RotatedCodes(metric, dimension, bits, _rotation(notes, dimension), packed)

    @staticmethod
    def train(
        dimension: int, metric: Metric, *, bits: int, seed: int, packed: bool = True
    ) -> RotatedCodes:
        """Choose a rotation by chance; there is nothing to learn from the vectors."""
        signs = np.random.default_rng(seed).integers(0, 256, 4 * (dimension // 8), np.uint8)
        return RotatedCodes(metric, dimension, bits, FastRotation(dimension, signs), packed)

    @property
    def extra(self) -> int:
        """How many bits an element has beside its sign."""
        return self.bits - 1

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        """Signs and factors, then what there is beyond signs."""
        return _fields(self.dimension, self.bits)

    def encode(self, vectors: Matrix, partitions: Int64s, centroids: Matrix) -> Codes:
        """Return values and factors of vectors."""
        step = max(64, _BLOCK_VALUES // self.dimension)
        turned = self.rotation.turn(centroids.astype(np.float32))
        parts = [
            self._encode(
                vectors[first : first + step].astype(np.float32),
                centroids[partitions[first : first + step]].astype(np.float32),
                turned[partitions[first : first + step]],
            )
            for first in range(0, max(len(vectors), 1), step)
        ]
        return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}

    def store(self, codes: Codes) -> list[npt.NDArray[Any]]:
        """Return the columns of one partition, with bits where the file has them."""
        values = codes["values"]
        signs = np.packbits(values >> self.extra, axis=1, bitorder="little")
        signs = rq_layout.pack_signs(signs) if self.packed else signs
        columns = [signs, *(codes[name] for name in _FACTORS)]
        if self.extra:
            low = (values & ((1 << self.extra) - 1)).astype(np.uint8)
            columns.append(rq_layout.pack_extra(low, self.extra))
            columns.extend(codes[name] for name in _EXTRA_FACTORS)
        return columns

    def load(self, columns: Sequence[npt.NDArray[Any]]) -> Codes:
        """Return values row by row, and the factors."""
        stored = rq_layout.unpack_signs(columns[0]) if self.packed else columns[0]
        signs = np.unpackbits(stored, axis=1, bitorder="little")
        values = self._shifted(signs)
        codes: Codes = dict(zip(_FACTORS, columns[1:4], strict=True))
        if self.extra:
            values |= rq_layout.unpack_extra(columns[4], self.extra, self.dimension)
            codes |= dict(zip(_EXTRA_FACTORS, columns[5:7], strict=True))
        codes["values"] = values
        return codes

    def searchable(self, codes: Codes, center: Floats) -> PackedCodes:  # noqa: ARG002
        """Return the values, and the two factors that estimate best."""
        add, scale = _EXTRA_FACTORS if self.extra else _FACTORS[:2]
        values = codes["values"]
        row_bytes = self.dimension * values.itemsize
        factors = codes[add].reshape(-1), codes[scale].reshape(-1)
        return PackedCodes(values.reshape(-1), row_bytes, *factors)

    def ask(self, query: Matrix) -> CodeQuery:
        """Return the rotated query, whose products with values estimate distances."""
        turned = self._turned(query.astype(np.float32))
        kind = CodeKind.ROTATED_WIDE if self.bits == BITS_MAX else CodeKind.ROTATED
        shift = -self._middle * float(turned.sum(dtype=np.float64))
        return CodeQuery(kind, turned, self.dimension, factor=self._middle, base=shift)

    def graph_view(self, codes: Codes) -> GraphView:  # noqa: ARG002
        """Refuse: no kind of index has graphs of these codes."""
        raise UnsupportedError("no kind of index has graphs of RQ codes")

    def graph_query(self, query: Matrix, centroid: Matrix) -> GraphQuery:  # noqa: ARG002
        """Refuse: no kind of index has graphs of these codes."""
        raise UnsupportedError("no kind of index has graphs of RQ codes")

    def graph_codes(self, codes: Codes) -> npt.NDArray[Any]:  # noqa: ARG002
        """Refuse: no kind of index has graphs of these codes."""
        raise UnsupportedError("no kind of index has graphs of RQ codes")

    def notes(self, add_buffer: Callable[[bytes], int]) -> dict[str, Any]:
        """Return the rotation and the number of bits."""
        return {
            **self.rotation.notes(add_buffer),
            "code_dim": self.dimension,
            "num_bits": self.bits,
            "packed": self.packed,
            "query_estimator": "raw_query",
        }

    def settings(self) -> dict[str, Any]:
        """Return how many bits an element has."""
        return {"num_bits": self.bits, "skip_transpose": not self.packed}

    def same_codes(self, other: Any) -> bool:
        """Return whether the other turns vectors the same way and keeps as many bits."""
        if not isinstance(other, RotatedCodes):
            return False
        return self.bits == other.bits and self.rotation.is_same(other.rotation)

    def _turned(self, query: Floats) -> Floats:
        """Return one vector turned; for one a product is less work than many small steps."""
        if self.dimension > _MATRIX_MAX:
            found: Floats = self.rotation.turn(query[None, :])[0]
            return found
        return query @ self._matrix

    @cached_property
    def _matrix(self) -> Floats:
        """What turns a vector that it is multiplied with."""
        found: Floats = self.rotation.turn(np.eye(self.dimension, dtype=np.float32))
        return found

    @cached_property
    def _middle(self) -> float:
        return float((1 << self.extra) - 0.5)

    def _shifted(self, signs: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return signs where they are in values, with room below for the other bits."""
        values: npt.NDArray[Any] = signs.astype(np.uint16) << self.extra
        return values.astype(np.uint16 if self.bits == BITS_MAX else np.uint8)

    def _encode(self, vectors: Matrix, centers: Matrix, turned: Matrix) -> Codes:
        residual = vectors - centers
        rotated = self.rotation.turn(residual)
        norms = (residual * residual).sum(axis=1)
        is_positive = ~np.signbit(rotated)
        signs = is_positive.astype(np.float32) - np.float32(0.5)
        factors = self._factors(norms, rotated, turned, signs)
        codes: Codes = dict(zip(_FACTORS, factors, strict=True))
        values = self._shifted(is_positive)
        if self.extra:
            top = (1 << self.extra) - 1
            low = nearest_directions(np.abs(rotated), self.extra)
            values |= np.where(is_positive, low, top - low).astype(values.dtype)
            full = values.astype(np.float32) - np.float32(self._middle)
            extra = self._factors(norms, rotated, turned, full)
            codes |= dict(zip(_EXTRA_FACTORS, extra[:2], strict=True))
        codes["values"] = values
        return {key: own if own.ndim == 2 else own[:, None] for key, own in codes.items()}

    def _factors(
        self, norms: Matrix, rotated: Matrix, turned: Matrix, full: Matrix
    ) -> tuple[Floats, Floats, Floats]:
        """Return what is added, the scale, and how far the estimate may be off."""
        along = (rotated * full).sum(axis=1)
        center = (turned * full).sum(axis=1)
        share = _ratio(norms, along)
        size = self.dimension
        spread = np.maximum(_ratio(norms * (size / 4), along * along) - 1, 0) / (size - 1)
        error = np.sqrt(norms) * _ERROR * np.sqrt(spread)
        if self.metric is Metric.DOT:
            add = 1 - (rotated * turned).sum(axis=1) + share * center
            return add.astype(np.float32), (-share).astype(np.float32), error.astype(np.float32)
        add = norms + 2 * share * center
        return (
            add.astype(np.float32),
            (-2 * share).astype(np.float32),
            (2 * error).astype(np.float32),
        )


def nearest_directions(sizes: Matrix, extra: int) -> npt.NDArray[np.uint8]:
    """Return whole numbers of so many bits, such that 0.5 more points as `sizes` do, nearly."""
    lengths = np.sqrt((sizes * sizes).sum(axis=1))
    unit = sizes / np.where(lengths > 0, lengths, 1)[:, None]
    return scaled_codes(unit.astype(np.float32), extra, _START[extra - 1])


def _ratio(above: Matrix, below: Matrix) -> Matrix:
    return np.divide(above, below, out=np.zeros_like(above), where=below != 0)


def _fields(dimension: int, bits: int) -> tuple[pa.Field, ...]:
    factors = [pa.field(name, pa.float32()) for name in _FACTORS]
    signs = list_field(_CODES, pa.uint8(), dimension // 8)
    if bits == 1:
        return (signs, *factors)
    width = -(-dimension // 64) * 8 * (bits - 1)
    extra = [pa.field(name, pa.float32()) for name in _EXTRA_FACTORS]
    return (signs, *factors, list_field(_EXTRA, pa.uint8(), width), *extra)


def _rotation(notes: StorageNotes, dimension: int) -> Rotation:
    kind = notes.values.get("rotation_type", "matrix")
    if kind == "fast":
        signs = np.array(notes.values.get("fast_rotation_signs") or (), np.uint8)
        if len(signs) != 4 * (dimension // 8):
            raise CorruptDataError("a rotation has not as many signs as it needs", found=len(signs))
        return FastRotation(dimension, signs)
    position = number_of(notes, "rotate_mat_position", 0, 1 << 20)
    matrix = parse_tensor(parse_message(index_pb.Tensor, notes.buffer(position)))
    if matrix.shape != (dimension, dimension):
        raise CorruptDataError("a rotation is not a square matrix", shape=list(matrix.shape))
    return MatrixRotation(matrix.astype(np.float32))
