"""RQ: RaBitQ quantization. Residuals are rotated, and each element is stored in 1 to 9 bits.

    rotated residual   [0.3 -0.1 ...]     sign bits 1 0 ..., then `extra` magnitude bits
    value              (sign << extra) + code             5 bits: 0 .. 31
    decoded            f = value - (2^extra - 0.5)        -15.5 .. 15.5, in the direction of r
    distance           base + add + scale * <rotated query, f>

`add` and `scale` are stored per row and make the estimate unbiased: with n = |r|^2, A = <r, f> and
K = <rotated centroid, f>, add = n + 2nK/A and scale = -2n/A. `base` is the squared distance between
query and centroid.

Codes are packed for SIMD registers. Signs of 32 rows are interleaved by byte: 16 bytes with the low
halves, then 16 bytes with the high halves.

    byte p of 16    low half of row ORDER[p], and above it that of row ORDER[p] + 16

Magnitude bits are stored in blocks of 64 elements with a bit order that depends on the width, see
`_bit_positions`. Widths 3, 5 and 7 store the next smaller width, then the highest bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.errors import CorruptDataError, UnsupportedError
from lancelet.format.protos import index_pb
from lancelet.format.wire import parse_message
from lancelet.index.kernels import CodeKind, CodeQuery, Metric, PackedCodes, scaled_codes
from lancelet.index.kernels.vectors import Floats
from lancelet.index.parts.tensor import parse_tensor
from lancelet.index.vector.quantizers.base import (
    Codes,
    GraphQuery,
    GraphView,
    Matrix,
    StorageMetadata,
    list_field,
    read_number,
)
from lancelet.index.vector.quantizers.rotation import FastRotation, MatrixRotation, Rotation
from lancelet.values import cached_property, dataclass

BITS_MAX: Final = 9
DEFAULT_BITS: Final = 5
_CODES: Final = "_rabit_codes"
_EXTRA: Final = "__blocked_ex_codes"
_FACTORS: Final = ("__add_factors", "__scale_factors", "__error_factors")
_EXTRA_FACTORS: Final = ("__add_factors_ex", "__scale_factors_ex")
_START: Final = (15, 20, 52, 59, 71, 75, 77, 81)
"""Start of the search for the best scale, in percent of the maximum scale, by number of bits."""
_ERROR: Final = 1.9
_MATRIX_MAX: Final = 2048
_BLOCK_VALUES: Final = 1 << 20

_GROUP: Final = 32
_ORDER: Final = np.array([0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15])
_BLOCK: Final = 64
_STEP_ROWS: Final = 4096
_NIBBLE: Final = 4
"""Codes of 4 bits, the default, are packed without unpacking bits."""
_NIBBLE_RUN: Final = 8
_Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class RotatedCodes:
    """A rotation and the number of bits per element. `packed` interleaves the signs of 32 rows."""

    metric: Metric
    dimension: int
    bits: int
    rotation: Rotation
    packed: bool = True

    @staticmethod
    def parse(
        metadata: StorageMetadata, metric: Metric, columns: Sequence[pa.Field]
    ) -> RotatedCodes:
        """Parse the storage metadata."""
        bits = read_number(metadata, "num_bits", 1, BITS_MAX)
        dimension = read_number(metadata, "code_dim", 8, 1 << 20)
        required = {field.name for field in _fields(dimension, bits)}
        is_current = (
            metadata.values.get("query_estimator") == "raw_query"
            and isinstance(metadata.values.get("packed"), bool)
            and required <= {field.name for field in columns}
        )
        if not is_current or dimension % 8:
            raise UnsupportedError(
                "RQ codes in an older layout are not supported; create the index again",
                columns=[field.name for field in columns],
                estimator=metadata.values.get("query_estimator"),
                dimension=dimension,
            )
        packed = bool(metadata.values["packed"])
        return RotatedCodes(metric, dimension, bits, _rotation(metadata, dimension), packed)

    @staticmethod
    def train(
        dimension: int, metric: Metric, *, bits: int, seed: int, packed: bool = True
    ) -> RotatedCodes:
        """Choose a random rotation. RQ does not train on vectors."""
        signs = np.random.default_rng(seed).integers(0, 256, 4 * (dimension // 8), np.uint8)
        return RotatedCodes(metric, dimension, bits, FastRotation(dimension, signs), packed)

    @property
    def extra(self) -> int:
        """Number of magnitude bits per element."""
        return self.bits - 1

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        """Columns of signs and factors, and of magnitude bits if there are any."""
        return _fields(self.dimension, self.bits)

    def encode(self, vectors: Matrix, partitions: Int64s, centroids: Matrix) -> Codes:
        """Return the values and factors of vectors."""
        step = max(64, _BLOCK_VALUES // self.dimension)
        rotated_centroids = self.rotation.rotate(centroids.astype(np.float32))
        parts = [
            self._encode(
                vectors[first : first + step].astype(np.float32),
                centroids[partitions[first : first + step]].astype(np.float32),
                rotated_centroids[partitions[first : first + step]],
            )
            for first in range(0, max(len(vectors), 1), step)
        ]
        return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}

    def store(self, codes: Codes) -> list[npt.NDArray[Any]]:
        """Return the packed columns of a partition."""
        values = codes["values"]
        signs = np.packbits(values >> self.extra, axis=1, bitorder="little")
        signs = pack_signs(signs) if self.packed else signs
        columns = [signs, *(codes[name] for name in _FACTORS)]
        if self.extra:
            low = (values & ((1 << self.extra) - 1)).astype(np.uint8)
            columns.append(pack_extra(low, self.extra))
            columns.extend(codes[name] for name in _EXTRA_FACTORS)
        return columns

    def load(self, columns: Sequence[npt.NDArray[Any]]) -> Codes:
        """Return the unpacked values and factors of a partition."""
        stored = unpack_signs(columns[0]) if self.packed else columns[0]
        signs = np.unpackbits(stored, axis=1, bitorder="little")
        values = self._shift_signs(signs)
        codes: Codes = dict(zip(_FACTORS, columns[1:4], strict=True))
        if self.extra:
            values |= unpack_extra(columns[4], self.extra, self.dimension)
            codes |= dict(zip(_EXTRA_FACTORS, columns[5:7], strict=True))
        codes["values"] = values
        return codes

    def pack_codes(self, codes: Codes, center: Floats) -> PackedCodes:  # noqa: ARG002
        """Return the values, and the factors of the most precise estimate."""
        add, scale = _EXTRA_FACTORS if self.extra else _FACTORS[:2]
        values = codes["values"]
        row_bytes = self.dimension * values.itemsize
        factors = codes[add].reshape(-1), codes[scale].reshape(-1)
        return PackedCodes(values.reshape(-1), row_bytes, *factors)

    def code_query(self, query: Matrix) -> CodeQuery:
        """Return the rotated query, whose products with the values estimate distances."""
        rotated = self._rotate_query(query.astype(np.float32))
        kind = CodeKind.ROTATED_WIDE if self.bits == BITS_MAX else CodeKind.ROTATED
        shift = -self._middle * float(rotated.sum(dtype=np.float64))
        return CodeQuery(kind, rotated, self.dimension, factor=self._middle, base=shift)

    def graph_view(self, codes: Codes) -> GraphView:  # noqa: ARG002
        """Raise; graphs of RQ codes are not supported."""
        raise UnsupportedError("graphs of RQ codes are not supported")

    def graph_query(self, query: Matrix, centroid: Matrix) -> GraphQuery:  # noqa: ARG002
        """Raise; graphs of RQ codes are not supported."""
        raise UnsupportedError("graphs of RQ codes are not supported")

    def graph_codes(self, codes: Codes) -> npt.NDArray[Any]:  # noqa: ARG002
        """Raise; graphs of RQ codes are not supported."""
        raise UnsupportedError("graphs of RQ codes are not supported")

    def storage_metadata(self, add_buffer: Callable[[bytes], int]) -> dict[str, Any]:
        """Return the rotation and the number of bits."""
        return {
            **self.rotation.storage_metadata(add_buffer),
            "code_dim": self.dimension,
            "num_bits": self.bits,
            "packed": self.packed,
            "query_estimator": "raw_query",
        }

    def settings(self) -> dict[str, Any]:
        """Return the number of bits and the layout of the codes."""
        return {"num_bits": self.bits, "skip_transpose": not self.packed}

    def same_codes(self, other: Any) -> bool:
        """Return whether the other quantizer has the same rotation and number of bits."""
        if not isinstance(other, RotatedCodes):
            return False
        return self.bits == other.bits and self.rotation.is_same(other.rotation)

    def _rotate_query(self, query: Floats) -> Floats:
        """Rotate one vector. Up to `_MATRIX_MAX` dimensions, a matrix product is faster."""
        if self.dimension > _MATRIX_MAX:
            rotated: Floats = self.rotation.rotate(query[None, :])[0]
            return rotated
        return query @ self._matrix

    @cached_property
    def _matrix(self) -> Floats:
        """Rotation matrix, for products with row vectors."""
        matrix: Floats = self.rotation.rotate(np.eye(self.dimension, dtype=np.float32))
        return matrix

    @cached_property
    def _middle(self) -> float:
        return float((1 << self.extra) - 0.5)

    def _shift_signs(self, signs: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return sign bits shifted above the magnitude bits."""
        values: npt.NDArray[Any] = signs.astype(np.uint16) << self.extra
        return values.astype(np.uint16 if self.bits == BITS_MAX else np.uint8)

    def _encode(self, vectors: Matrix, centers: Matrix, rotated_centers: Matrix) -> Codes:
        residual = vectors - centers
        rotated = self.rotation.rotate(residual)
        norms = (residual * residual).sum(axis=1)
        is_positive = ~np.signbit(rotated)
        signs = is_positive.astype(np.float32) - np.float32(0.5)
        factors = self._factors(norms, rotated, rotated_centers, signs)
        codes: Codes = dict(zip(_FACTORS, factors, strict=True))
        values = self._shift_signs(is_positive)
        if self.extra:
            top = (1 << self.extra) - 1
            low = nearest_directions(np.abs(rotated), self.extra)
            values |= np.where(is_positive, low, top - low).astype(values.dtype)
            full = values.astype(np.float32) - np.float32(self._middle)
            extra = self._factors(norms, rotated, rotated_centers, full)
            codes |= dict(zip(_EXTRA_FACTORS, extra[:2], strict=True))
        codes["values"] = values
        return {key: array if array.ndim == 2 else array[:, None] for key, array in codes.items()}

    def _factors(
        self, norms: Matrix, rotated: Matrix, rotated_centers: Matrix, full: Matrix
    ) -> tuple[Floats, Floats, Floats]:
        """Return the offsets, the scales and the error bounds of the estimates."""
        products = (rotated * full).sum(axis=1)
        center = (rotated_centers * full).sum(axis=1)
        share = _ratio(norms, products)
        size = self.dimension
        variance = np.maximum(_ratio(norms * (size / 4), products * products) - 1, 0) / (size - 1)
        error = np.sqrt(norms) * _ERROR * np.sqrt(variance)
        if self.metric is Metric.DOT:
            add = 1 - (rotated * rotated_centers).sum(axis=1) + share * center
            return add.astype(np.float32), (-share).astype(np.float32), error.astype(np.float32)
        add = norms + 2 * share * center
        return (
            add.astype(np.float32),
            (-2 * share).astype(np.float32),
            (2 * error).astype(np.float32),
        )


def nearest_directions(sizes: Matrix, extra: int) -> npt.NDArray[np.uint8]:
    """Return integers of `extra` bits that, plus 0.5, approximate the direction of `sizes`."""
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


def _rotation(metadata: StorageMetadata, dimension: int) -> Rotation:
    kind = metadata.values.get("rotation_type", "matrix")
    if kind == "fast":
        signs = np.array(metadata.values.get("fast_rotation_signs") or (), np.uint8)
        if len(signs) != 4 * (dimension // 8):
            raise CorruptDataError("wrong number of rotation signs", found=len(signs))
        return FastRotation(dimension, signs)
    position = read_number(metadata, "rotate_mat_position", 0, 1 << 20)
    matrix = parse_tensor(parse_message(index_pb.Tensor, metadata.buffer(position)))
    if matrix.shape != (dimension, dimension):
        raise CorruptDataError("the rotation matrix is not square", shape=list(matrix.shape))
    return MatrixRotation(matrix.astype(np.float32))


def pack_signs(rows: _Bytes) -> _Bytes:
    """Interleave the sign bits of rows in the layout of a partition."""
    count, width = rows.shape
    num_grouped = count // _GROUP * _GROUP
    groups = rows[:num_grouped].reshape(-1, _GROUP, width).transpose(0, 2, 1)
    first, second = groups[:, :, _ORDER], groups[:, :, _ORDER + _GROUP // 2]
    low = (first & 15) | (second & 15) << 4
    high = first >> 4 | (second & 0xF0)
    packed = np.concatenate([low, high], axis=2).reshape(-1)
    return np.concatenate([packed, rows[num_grouped:].T.reshape(-1)]).reshape(count, width)


def unpack_signs(stored: _Bytes) -> _Bytes:
    """Return sign bits row by row; the inverse of `pack_signs`."""
    count, width = stored.shape
    flat = stored.reshape(-1)
    num_grouped = count // _GROUP * _GROUP
    packed = flat[: num_grouped * width].reshape(-1, width, 2, _GROUP // 2)
    low, high = packed[:, :, 0], packed[:, :, 1]
    groups = np.empty((len(packed), width, _GROUP), np.uint8)
    groups[:, :, _ORDER] = (low & 15) | (high & 15) << 4
    groups[:, :, _ORDER + _GROUP // 2] = low >> 4 | (high & 0xF0)
    rest = flat[num_grouped * width :].reshape(width, count - num_grouped).T
    return np.concatenate([groups.transpose(0, 2, 1).reshape(num_grouped, width), rest])


def pack_extra(codes: _Bytes, width: int) -> _Bytes:
    """Pack codes of `width` bits in blocks of 64 elements."""
    count, dimension = codes.shape
    blocks = -(-dimension // _BLOCK)
    positions = _bit_positions(width)
    out = np.empty((count, blocks * width * 8), np.uint8)
    for first in range(0, count, _STEP_ROWS):
        rows = codes[first : first + _STEP_ROWS]
        padded = np.zeros((len(rows), blocks * _BLOCK), np.uint8)
        padded[:, :dimension] = rows
        if width == _NIBBLE:
            halves = padded.reshape(len(rows), -1, 2, _NIBBLE_RUN)
            packed = halves[:, :, 0] | halves[:, :, 1] << _NIBBLE
            out[first : first + _STEP_ROWS] = packed.reshape(len(rows), -1)
            continue
        elements = padded.reshape(len(rows), blocks, _BLOCK, 1)
        bits = np.empty((len(rows), blocks, _BLOCK * width), np.uint8)
        bits[:, :, positions] = elements >> np.arange(width, dtype=np.uint8) & 1
        out[first : first + _STEP_ROWS] = np.packbits(
            bits.reshape(len(rows), -1), axis=1, bitorder="little"
        )
    return out


def unpack_extra(stored: _Bytes, width: int, dimension: int) -> npt.NDArray[Any]:
    """Unpack codes of `width` bits; the inverse of `pack_extra`."""
    positions = _bit_positions(width)
    out = np.empty((len(stored), dimension), np.uint8)
    weights = np.left_shift(1, np.arange(width)).astype(np.uint8)
    for first in range(0, len(stored), _STEP_ROWS):
        rows = stored[first : first + _STEP_ROWS]
        if width == _NIBBLE:
            runs = rows.reshape(len(rows), -1, 1, _NIBBLE_RUN)
            codes = np.concatenate([runs & 15, runs >> _NIBBLE], axis=2)
            out[first : first + _STEP_ROWS] = codes.reshape(len(rows), -1)[:, :dimension]
            continue
        bits = np.unpackbits(rows, axis=1, bitorder="little").reshape(len(rows), -1, _BLOCK * width)
        codes = (bits[:, :, positions] * weights).sum(axis=3, dtype=np.uint8)
        out[first : first + _STEP_ROWS] = codes.reshape(len(rows), -1)[:, :dimension]
    return out


@cache
def _bit_positions(width: int) -> npt.NDArray[np.int64]:
    """Return the position of each bit of each element in a block, with shape (elements, width)."""
    element = np.arange(_BLOCK)[:, None]
    run, within = element // 16, element % 16
    bit = np.arange(width)[None, :]
    match width:
        case 1:
            return element + bit
        case 2:
            return within * 8 + 2 * run + bit
        case 4:
            return (8 * run + within % 8) * 8 + 4 * (within // 8) + bit
        case 6:
            low_positions = element * 8 + bit
            split = (16 * (bit // 2) + within) * 8 + 6 + bit % 2
            return np.where(run < 3, low_positions, split)
        case 8:
            return element * 8 + bit
        case _:
            below = _low_bit_positions(run, within) if width == 5 else _bit_positions(width - 1)
            top = (width - 1) * _BLOCK + 8 * (within % 8) + 2 * run + within // 8
            return np.concatenate([below, top], axis=1)


def _low_bit_positions(
    run: npt.NDArray[np.int64], within: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return the positions of the low four bits of 5-bit codes."""
    return (16 * (run // 2) + within) * 8 + 4 * (run % 2) + np.arange(4)[None, :]
