"""PQ: product quantization. Each sub-vector is stored as the number of its nearest codeword.

    dimension 4, 2 sub-vectors    residual [0.9 0.1 | 5 5]
    codebook of sub-vector 0      [1 0]=0  [0 1]=1  ...        code 0
    codebook of sub-vector 1      [0 0]=0  [5 5]=1  ...        code 1
    stored                        bytes 0 1, or one byte 0x10 with 4-bit codes

    distance    the sum over sub-vectors of a table of distances from the query to each codeword

The quantizer encodes residuals, or the vectors themselves for the dot metric. By default, a file
stores the codes of a partition in column-major order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.errors import CorruptDataError
from lancelet.format.protos import index_pb
from lancelet.format.wire import parse_message, render_message
from lancelet.index.kernels import (
    BLOCK_ROWS,
    CodeKind,
    CodeQuery,
    Comparison,
    Metric,
    PackedCodes,
    pq_encode,
)
from lancelet.index.kernels.vectors import Floats
from lancelet.index.parts.kmeans import find_clusters
from lancelet.index.parts.tensor import parse_tensor, render_tensor
from lancelet.index.vector.quantizers.base import (
    Codes,
    GraphQuery,
    GraphView,
    Matrix,
    StorageMetadata,
    list_field,
    read_number,
    residuals,
    work_type,
)
from lancelet.values import cached_property, dataclass

_SMALL: Final = 4


@dataclass(frozen=True, eq=False)
class ProductCodes:
    """A codebook with the shape (sub-vectors, codewords, sub-vector dimension)."""

    metric: Metric
    codebook: Matrix
    bits: int = 8
    transposed: bool = True

    @staticmethod
    def parse(
        metadata: StorageMetadata,
        metric: Metric,
        columns: Sequence[pa.Field],  # noqa: ARG004
    ) -> ProductCodes:
        """Parse the storage metadata and codebook."""
        bits = read_number(metadata, "nbits", 4, 8)
        num_sub_vectors = read_number(metadata, "num_sub_vectors", 1, 1 << 20)
        dimension = read_number(metadata, "dimension", 1, 1 << 24)
        tensor = parse_message(index_pb.Tensor, _read_codebook(metadata))
        book = parse_tensor(tensor)
        if bits not in {4, 8} or dimension % num_sub_vectors or book.size != dimension << bits:
            raise CorruptDataError(
                "the PQ codebook does not match the code parameters",
                bits=bits,
                num_sub_vectors=num_sub_vectors,
                dimension=dimension,
                values=book.size,
            )
        codebook = book.reshape(num_sub_vectors, 1 << bits, dimension // num_sub_vectors)
        return ProductCodes(metric, codebook, bits, metadata.values.get("transposed") is True)

    @staticmethod
    def train(
        sample: Matrix,
        metric: Metric,
        dtype: np.dtype[Any],
        *,
        num_sub_vectors: int,
        bits: int,
        seed: int,
        max_iterations: int = 50,
        transposed: bool = True,
        progress: Callable[[int], None] | None = None,
    ) -> ProductCodes:
        """Train the codebook of each sub-vector on a sample of residuals."""
        parts = sample.reshape(len(sample), num_sub_vectors, sample.shape[1] // num_sub_vectors)
        codebooks: list[Matrix] = []
        for number in range(num_sub_vectors):
            sub_vectors = np.ascontiguousarray(parts[:, number], np.float32)
            codebooks.append(
                find_clusters(
                    sub_vectors, 1 << bits, seed=seed + number, max_iterations=max_iterations
                ).centroids
            )
            if progress is not None:
                progress(number + 1)
        return ProductCodes(metric, np.stack(codebooks).astype(dtype), bits, transposed)

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        """Column of codes."""
        return (list_field("__pq_code", pa.uint8(), self.width),)

    @property
    def width(self) -> int:
        """Bytes per row."""
        return len(self.codebook) * self.bits // 8

    def encode(self, vectors: Matrix, partitions: Int64s, centroids: Matrix) -> Codes:
        """Return the nearest codeword of each sub-vector."""
        residual = residuals(vectors, partitions, centroids, self.metric)
        nearest, _ = pq_encode(residual.astype(np.float32), self._codewords.astype(np.float32))
        codes: npt.NDArray[Any] = nearest
        if self.bits == _SMALL:
            codes = nearest[:, 0::2] | nearest[:, 1::2] << 4
        return {"code": codes}

    def store(self, codes: Codes) -> list[npt.NDArray[Any]]:
        """Return the codes, in column-major order if `transposed`."""
        code = codes["code"]
        if not self.transposed:
            return [code]
        return [np.ascontiguousarray(code.T).reshape(code.shape)]

    def load(self, columns: Sequence[npt.NDArray[Any]]) -> Codes:
        """Return the codes in row-major order, without copying."""
        code = columns[0]
        return {"code": code.reshape(code.shape[::-1]).T if self.transposed else code}

    def pack_codes(self, codes: Codes, center: Floats) -> PackedCodes:  # noqa: ARG002
        """Return the codes in blocks of rows, each block in column-major order."""
        code = codes["code"]
        width, num_blocked = code.shape[1], len(code) // BLOCK_ROWS * BLOCK_ROWS
        packed = np.empty(code.size, np.uint8)
        blocks = code[:num_blocked].reshape(-1, BLOCK_ROWS, width).transpose(0, 2, 1)
        packed[: num_blocked * width].reshape(blocks.shape)[:] = blocks
        packed[num_blocked * width :].reshape(width, -1)[:] = code[num_blocked:].T
        return PackedCodes(packed, width)

    def code_query(self, query: Matrix) -> CodeQuery:
        """Return the codewords to compare with residuals, or a table valid for all partitions."""
        num_sub_vectors, _, size = self.codebook.shape
        converted = query.astype(np.float32)
        if self.metric is Metric.DOT:
            table = self.distance_table(query, query)
            return CodeQuery(
                CodeKind.TABLE, converted, num_sub_vectors * size, codebook=table, base=1.0
            )
        return CodeQuery(
            CodeKind.CODEBOOK,
            converted,
            num_sub_vectors * size,
            codebook=self._transposed_codewords,
            num_sub_vectors=num_sub_vectors,
        )

    def distance_table(self, query: Matrix, centroid: Matrix) -> Floats:
        """Return the distances or negated products of all codewords, 256 per byte of codes."""
        codewords = self._codewords
        if self.metric is Metric.DOT:
            return self._table(-(codewords @ query.reshape(len(codewords), -1, 1))[..., 0])
        residual = (query - centroid.astype(query.dtype)).reshape(len(codewords), -1, 1)
        squares = (residual * residual).sum(axis=1)
        return self._table(self._norms - 2 * (codewords @ residual)[..., 0] + squares)

    def graph_view(self, codes: Codes) -> GraphView:
        """Return the decoded vectors."""
        code = codes["code"]
        if self.bits == _SMALL:
            code = np.stack([code & 15, code >> 4], axis=2).reshape(len(code), -1)
        sub_vectors = [codebook[code[:, number]] for number, codebook in enumerate(self._codewords)]
        decoded = np.concatenate(sub_vectors, axis=1).astype(np.float32)
        if self.metric is Metric.DOT:
            return GraphView(decoded, Comparison.FLOAT_DOT, base=1.0)
        return GraphView(decoded, Comparison.FLOAT_L2)

    def graph_query(self, query: Matrix, centroid: Matrix) -> GraphQuery:
        """Return the distance table of a query."""
        base = 1.0 if self.metric is Metric.DOT else 0.0
        return GraphQuery(self.distance_table(query, centroid), Comparison.TABLE, base=base)

    def graph_codes(self, codes: Codes) -> npt.NDArray[Any]:
        """Return the codes in row-major order."""
        return np.ascontiguousarray(codes["code"])

    def storage_metadata(self, add_buffer: Callable[[bytes], int]) -> dict[str, Any]:
        """Return the shape of the codebook, which is written to a buffer."""
        num_sub_vectors, num_codewords, size = self.codebook.shape
        tensor = render_tensor(self.codebook.reshape(num_codewords, num_sub_vectors * size))
        return {
            "codebook_position": add_buffer(render_message(tensor)),
            "nbits": self.bits,
            "num_sub_vectors": num_sub_vectors,
            "dimension": num_sub_vectors * size,
            "codebook_tensor": [],
            "transposed": self.transposed,
        }

    def settings(self) -> dict[str, Any]:
        """Return the build parameters under the names used by pylance."""
        return {
            "num_sub_vectors": len(self.codebook),
            "num_bits": self.bits,
            "skip_transpose": not self.transposed,
        }

    def same_codes(self, other: Any) -> bool:
        """Return whether the other quantizer has the same codebook."""
        return isinstance(other, ProductCodes) and np.array_equal(self.codebook, other.codebook)

    @cached_property
    def _codewords(self) -> Matrix:
        return self.codebook.astype(work_type(self.codebook.dtype))

    @cached_property
    def _transposed_codewords(self) -> Floats:
        """The codewords of each sub-vector, element by element."""
        return np.ascontiguousarray(self.codebook.transpose(0, 2, 1), np.float32).reshape(-1)

    @cached_property
    def _norms(self) -> Matrix:
        norms: Matrix = (self._codewords * self._codewords).sum(axis=2)
        return norms

    def _table(self, table: Matrix) -> Floats:
        """Return a table with 256 entries per byte of codes."""
        if self.bits == _SMALL:
            table = (table[0::2, None, :] + table[1::2, :, None]).reshape(self.width, 256)
        return table.astype(np.float32).reshape(-1)


def _read_codebook(metadata: StorageMetadata) -> bytes:
    """Read the codebook from a buffer, or from the metadata of early releases."""
    try:
        inline = bytes([*metadata.values.get("codebook_tensor", ())])
    except (TypeError, ValueError) as error:
        raise CorruptDataError("invalid metadata for the codes of a vector index") from error
    return inline or metadata.buffer(read_number(metadata, "codebook_position", 0, 1 << 20))
