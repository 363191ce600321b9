"""PQ: a vector is cut into pieces, each kept as the number of the nearest word of a codebook.

    dimension 4, 2 pieces     residual [0.9 0.1 | 5 5]
    words of piece 0          [1 0]=0  [0 1]=1  ...        code 0
    words of piece 1          [0 0]=0  [5 5]=1  ...        code 1
    stored                    bytes 0 1, or one byte 0x10 where words have 4 bits

    distance    for each piece, the table of a query says how far each word is; rows add it up

What is cut is the residual, what the centroid does not explain; for products the vector itself.
A file keeps the codes of a partition column by column, unless it says otherwise.
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
from lancelet.index.parts.kmeans import find_clusters
from lancelet.index.parts.tensor import parse_tensor, render_tensor
from lancelet.index.vector.quantizers.base import (
    Codes,
    GraphQuery,
    GraphView,
    Matrix,
    StorageNotes,
    list_field,
    number_of,
    residuals,
    work_type,
)
from lancelet.kernels import (
    BLOCK_ROWS,
    CodeKind,
    CodeQuery,
    Comparison,
    Metric,
    PackedCodes,
    nearest_words,
)
from lancelet.kernels.graph import Floats
from lancelet.values import cached_property, dataclass

_SMALL: Final = 4


@dataclass(frozen=True, eq=False)
class ProductCodes:
    """A codebook, of the shape (pieces, words, dimension of a piece)."""

    metric: Metric
    codebook: Matrix
    bits: int = 8
    transposed: bool = True

    @staticmethod
    def parse(notes: StorageNotes, metric: Metric, columns: Sequence[pa.Field]) -> ProductCodes:  # noqa: ARG004
        """Read from a file."""
        bits = number_of(notes, "nbits", 4, 8)
        pieces = number_of(notes, "num_sub_vectors", 1, 1 << 20)
        dimension = number_of(notes, "dimension", 1, 1 << 24)
        tensor = parse_message(index_pb.Tensor, _codebook_of(notes))
        book = parse_tensor(tensor)
        if bits not in {4, 8} or dimension % pieces or book.size != dimension << bits:
            raise CorruptDataError(
                "a codebook does not fit its codes",
                bits=bits,
                pieces=pieces,
                dimension=dimension,
                values=book.size,
            )
        shaped = book.reshape(pieces, 1 << bits, dimension // pieces)
        return ProductCodes(metric, shaped, bits, notes.values.get("transposed") is True)

    @staticmethod
    def train(
        sample: Matrix,
        metric: Metric,
        dtype: np.dtype[Any],
        *,
        pieces: int,
        bits: int,
        seed: int,
        rounds: int = 50,
        transposed: bool = True,
        progress: Callable[[int], None] | None = None,
    ) -> ProductCodes:
        """Find the words of each piece of a sample of residuals."""
        parts = sample.reshape(len(sample), pieces, sample.shape[1] // pieces)
        words: list[Matrix] = []
        for piece in range(pieces):
            own = np.ascontiguousarray(parts[:, piece], np.float32)
            words.append(
                find_clusters(own, 1 << bits, seed=seed + piece, max_iterations=rounds).centroids
            )
            if progress is not None:
                progress(piece + 1)
        return ProductCodes(metric, np.stack(words).astype(dtype), bits, transposed)

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        """The codes."""
        return (list_field("__pq_code", pa.uint8(), self.width),)

    @property
    def width(self) -> int:
        """How many bytes the codes of a row have."""
        return len(self.codebook) * self.bits // 8

    def encode(self, vectors: Matrix, partitions: Int64s, centroids: Matrix) -> Codes:
        """Return the nearest words of each piece of each vector."""
        rest = residuals(vectors, partitions, centroids, self.metric)
        found, _ = nearest_words(rest.astype(np.float32), self._words.astype(np.float32))
        codes: npt.NDArray[Any] = found
        if self.bits == _SMALL:
            codes = found[:, 0::2] | found[:, 1::2] << 4
        return {"code": codes}

    def store(self, codes: Codes) -> list[npt.NDArray[Any]]:
        """Return the codes, column by column if that is how this file has them."""
        own = codes["code"]
        if not self.transposed:
            return [own]
        return [np.ascontiguousarray(own.T).reshape(own.shape)]

    def load(self, columns: Sequence[npt.NDArray[Any]]) -> Codes:
        """Return the codes row by row; it is a view."""
        own = columns[0]
        return {"code": own.reshape(own.shape[::-1]).T if self.transposed else own}

    def searchable(self, codes: Codes, center: Floats) -> PackedCodes:  # noqa: ARG002
        """Return the codes in blocks of rows, in each column by column."""
        own = codes["code"]
        width, whole = own.shape[1], len(own) // BLOCK_ROWS * BLOCK_ROWS
        packed = np.empty(own.size, np.uint8)
        blocks = own[:whole].reshape(-1, BLOCK_ROWS, width).transpose(0, 2, 1)
        packed[: whole * width].reshape(blocks.shape)[:] = blocks
        packed[whole * width :].reshape(width, -1)[:] = own[whole:].T
        return PackedCodes(packed, width)

    def ask(self, query: Matrix) -> CodeQuery:
        """Return the words that are compared with residuals, or the table of all partitions."""
        pieces, _, size = self.codebook.shape
        own = query.astype(np.float32)
        if self.metric is Metric.DOT:
            table = self.table_of(query, query)
            return CodeQuery(CodeKind.TABLE, own, pieces * size, words=table, base=1.0)
        return CodeQuery(CodeKind.WORDS, own, pieces * size, words=self._lines, pieces=pieces)

    def table_of(self, query: Matrix, centroid: Matrix) -> Floats:
        """Return how far each word is from a query, or its product negated; 256 for each byte."""
        words = self._words
        if self.metric is Metric.DOT:
            return self._table(-(words @ query.reshape(len(words), -1, 1))[..., 0])
        rest = (query - centroid.astype(query.dtype)).reshape(len(words), -1, 1)
        squares = (rest * rest).sum(axis=1)
        return self._table(self._norms - 2 * (words @ rest)[..., 0] + squares)

    def graph_view(self, codes: Codes) -> GraphView:
        """Return what the codes stand for."""
        own = codes["code"]
        if self.bits == _SMALL:
            own = np.stack([own & 15, own >> 4], axis=2).reshape(len(own), -1)
        pieces = [words[own[:, piece]] for piece, words in enumerate(self._words)]
        decoded = np.concatenate(pieces, axis=1).astype(np.float32)
        if self.metric is Metric.DOT:
            return GraphView(decoded, Comparison.FLOAT_DOT, base=1.0)
        return GraphView(decoded, Comparison.FLOAT_L2)

    def graph_query(self, query: Matrix, centroid: Matrix) -> GraphQuery:
        """Return the table of a query, whose entries rows add up."""
        base = 1.0 if self.metric is Metric.DOT else 0.0
        return GraphQuery(self.table_of(query, centroid), Comparison.TABLE, base=base)

    def graph_codes(self, codes: Codes) -> npt.NDArray[Any]:
        """Return the codes row by row."""
        return np.ascontiguousarray(codes["code"])

    def notes(self, add_buffer: Callable[[bytes], int]) -> dict[str, Any]:
        """Return the shape of the codebook, which becomes a buffer."""
        pieces, words, size = self.codebook.shape
        tensor = render_tensor(self.codebook.reshape(words, pieces * size))
        return {
            "codebook_position": add_buffer(render_message(tensor)),
            "nbits": self.bits,
            "num_sub_vectors": pieces,
            "dimension": pieces * size,
            "codebook_tensor": [],
            "transposed": self.transposed,
        }

    def settings(self) -> dict[str, Any]:
        """Return how many pieces and bits there are."""
        return {
            "num_sub_vectors": len(self.codebook),
            "num_bits": self.bits,
            "skip_transpose": not self.transposed,
        }

    def same_codes(self, other: Any) -> bool:
        """Return whether the other has the same codebook."""
        return isinstance(other, ProductCodes) and np.array_equal(self.codebook, other.codebook)

    @cached_property
    def _words(self) -> Matrix:
        return self.codebook.astype(work_type(self.codebook.dtype))

    @cached_property
    def _lines(self) -> Floats:
        """Element 0 of all words of a piece, then element 1, and so on."""
        return np.ascontiguousarray(self.codebook.transpose(0, 2, 1), np.float32).reshape(-1)

    @cached_property
    def _norms(self) -> Matrix:
        norms: Matrix = (self._words * self._words).sum(axis=2)
        return norms

    def _table(self, table: Matrix) -> Floats:
        """Return 256 entries for each byte of codes."""
        if self.bits == _SMALL:
            table = (table[0::2, None, :] + table[1::2, :, None]).reshape(self.width, 256)
        return table.astype(np.float32).reshape(-1)


def _codebook_of(notes: StorageNotes) -> bytes:
    """Return the codebook: a buffer, or in the notes themselves, where old releases had it."""
    try:
        stated = bytes([*notes.values.get("codebook_tensor", ())])
    except (TypeError, ValueError) as error:
        raise CorruptDataError("the notes on the codes of an index are malformed") from error
    return stated or notes.buffer(number_of(notes, "codebook_position", 0, 1 << 20))
