"""Layout of early releases: an IVF_PQ index in a single file, which is not a Lance data file.

    codes of partition 0 by row | row ids of partition 0 | codes of partition 1 | ...
    message     u32 length, then metric, centroids, codebook and partition offsets
    16 bytes    u64 position of the message, u16 0, u16 1, "LANC"

Current writers still support it with the index file version `LEGACY`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from lancelet.buffers import ByteRanges, Bytes
from lancelet.errors import CorruptDataError, UnsupportedError
from lancelet.format.index_metadata import IndexFile
from lancelet.format.protos import index_pb
from lancelet.format.wire import parse_message, render_message
from lancelet.index.folder import SegmentFolder
from lancelet.index.kernels import Metric
from lancelet.index.parts.tensor import parse_tensor, render_tensor
from lancelet.index.vector import layout
from lancelet.index.vector.model import IvfModel
from lancelet.index.vector.quantizers.base import Codes, Matrix, Quantizer
from lancelet.index.vector.quantizers.pq import ProductCodes
from lancelet.io.metered import IoCounts
from lancelet.io.store import ObjectReader
from lancelet.rowids.address import UInt64s
from lancelet.values import dataclass

NAME: Final = "IVF_PQ"
_FOOTER: Final = np.dtype([("message", "<u8"), ("major", "<u2"), ("minor", "<u2"), ("magic", "S4")])
_MAGIC: Final = b"LANC"
_VERSION: Final = (0, 1)
_ID_BYTES: Final = 8
_LENGTH_BYTES: Final = 4
_CODE_BITS: Final = (4, 8)


@dataclass(frozen=True, slots=True)
class Origin:
    """Index name, columns and dataset version recorded in the file."""

    name: str
    columns: tuple[str, ...]
    dataset_version: int


class LegacyFile:
    """An open file in this layout. Models are in memory, partitions are read on demand."""

    graphs = None
    num_skipped = None
    version_name = "Legacy"

    def __init__(self, folder: SegmentFolder) -> None:
        """Read the message at the end of the file."""
        self.name = NAME
        self._path = f"{folder.path}/{layout.INDEX_FILE}"
        self._reader = folder.store.open_reader(self._path)
        message, end = _read_message(self._reader, self._path)
        self.origin = Origin(message.name, tuple(message.columns), message.dataset_version)
        ivf, pq = _stages_of(message.vector_index, self._path)
        metric = Metric(message.vector_index.metric_type)
        codes = _parse_quantizer(pq, metric, self._path)
        self.quantizer: Quantizer = codes
        self.storage_metadata = _make_storage_metadata(codes)
        self._width = codes.width
        dimension = int(pq.dimension)
        centroids = _parse_centroids(ivf, dimension, self._path)
        self.model = IvfModel(metric, centroids, ivf.loss if ivf.HasField("loss") else None)
        self.lengths = np.array(ivf.lengths, np.int64)
        self.starts = np.cumsum(self.lengths) - self.lengths
        self._row_bytes = codes.width + _ID_BYTES
        offsets = np.array(ivf.offsets, np.uint64)
        bytes_after = np.uint64(end) - np.minimum(offsets, np.uint64(end))
        if not len(offsets) == len(self.lengths) == len(centroids) or bool(
            (self.lengths > (bytes_after // np.uint64(self._row_bytes)).astype(np.int64)).any()
        ):
            raise CorruptDataError(
                "partitions of a vector index exceed its file",
                path=self._path,
                partitions=len(self.lengths),
                centroids=len(centroids),
                file_bytes=self._reader.size,
            )
        self._offsets = offsets.astype(np.int64)

    def read(self, number: int) -> tuple[UInt64s, Codes]:
        """Return the row numbers and codes of a partition."""
        rows, width = int(self.lengths[number]), self._width
        byte_range = self._range(number)
        stored = self._reader.read_ranges(ByteRanges.of(byte_range)).slice_bytes(0)
        numbers = np.frombuffer(stored[rows * width :].tobytes(), "<u8")
        return numbers.astype(np.uint64), {"code": stored[: rows * width].reshape(rows, width)}

    def estimate_reads(self, numbers: Sequence[int]) -> IoCounts:
        """Estimate the reads of partitions."""
        return IoCounts(len(numbers), sum(self._range(number)[1] for number in numbers))

    def _range(self, number: int) -> tuple[int, int]:
        return int(self._offsets[number]), int(self.lengths[number]) * self._row_bytes


def is_legacy_file(folder: SegmentFolder) -> bool:
    """Return whether the file of a segment has the footer of this layout."""
    reader = folder.store.open_reader(f"{folder.path}/{layout.INDEX_FILE}")
    try:
        return _parse_footer(reader.read_tail(_FOOTER.itemsize)) is not None
    finally:
        reader.close()


def write_legacy_file(
    folder: SegmentFolder,
    model: IvfModel,
    quantizer: Quantizer,
    parts: Iterable[tuple[UInt64s, Codes]],
    origin: Origin,
) -> None:
    """Write a segment from the row numbers and codes of each partition."""
    if not isinstance(quantizer, ProductCodes):
        raise UnsupportedError(
            "only IVF_PQ indices can be written in the legacy layout", expected=[NAME]
        )
    offsets: list[int] = []
    lengths: list[int] = []
    path = f"{folder.path}/{layout.INDEX_FILE}"
    with folder.store.open_writer(path) as file:
        for numbers, codes in parts:
            offsets.append(file.position)
            lengths.append(len(numbers))
            file.write(np.ascontiguousarray(codes["code"]).reshape(-1).view(np.uint8))
            file.write(np.ascontiguousarray(numbers, "<u8").view(np.uint8))
        message = render_message(_build_message(model, quantizer, offsets, lengths, origin))
        footer = np.array([(file.position, *_VERSION, _MAGIC)], _FOOTER)
        file.write(len(message).to_bytes(_LENGTH_BYTES, "little"), message, footer.tobytes())
        size = file.close()
    folder.written.append(IndexFile(layout.INDEX_FILE, size))


def _build_message(
    model: IvfModel,
    quantizer: ProductCodes,
    offsets: Sequence[int],
    lengths: Sequence[int],
    origin: Origin,
) -> index_pb.Index:
    num_sub_vectors, num_codewords, size = quantizer.codebook.shape
    message = index_pb.Index(
        name=origin.name,
        columns=list(origin.columns),
        dataset_version=origin.dataset_version,
        index_type="VECTOR",
        vector_index=index_pb.VectorIndex(
            spec_version=1,
            dimension=num_sub_vectors * size,
            metric_type=index_pb.VectorMetricType.Name(int(model.metric)),
        ),
    )
    vectors = message.vector_index
    ivf = vectors.stages.add().ivf
    ivf.offsets.extend(offsets)
    ivf.lengths.extend(lengths)
    ivf.centroids_tensor.CopyFrom(render_tensor(model.centroids))
    if model.loss is not None:
        ivf.loss = model.loss
    pq = vectors.stages.add().pq
    pq.num_bits, pq.num_sub_vectors, pq.dimension = (
        quantizer.bits,
        num_sub_vectors,
        num_sub_vectors * size,
    )
    book = quantizer.codebook.reshape(num_codewords, num_sub_vectors * size)
    pq.codebook_tensor.CopyFrom(render_tensor(book))
    return message


def _parse_footer(tail: Bytes) -> tuple[int, Bytes] | None:
    """Return the position of the message, or None if the file has another layout."""
    if len(tail) < _FOOTER.itemsize:
        return None
    (footer,) = np.frombuffer(tail[-_FOOTER.itemsize :].tobytes(), _FOOTER)
    if footer["magic"] != _MAGIC or (int(footer["major"]), int(footer["minor"])) != _VERSION:
        return None
    return int(footer["message"]), tail


def _read_message(reader: ObjectReader, path: str) -> tuple[index_pb.Index, int]:
    """Return the message at the end of a file and its position."""
    footer = _parse_footer(reader.read_tail(_FOOTER.itemsize))
    if footer is None:
        raise UnsupportedError(
            "unknown vector index layout; drop the index and create it again",
            path=path,
        )
    position, size = footer[0], reader.size
    bytes_max = size - _FOOTER.itemsize - _LENGTH_BYTES - position
    if bytes_max < 0:
        raise CorruptDataError("the message position of a vector index exceeds its file", path=path)
    stored = reader.read_ranges(ByteRanges.of((position, bytes_max + _LENGTH_BYTES))).slice_bytes(0)
    length = int.from_bytes(stored[:_LENGTH_BYTES].tobytes(), "little")
    if length > bytes_max:
        raise CorruptDataError(
            "the message of a vector index exceeds its file",
            path=path,
            message_bytes=length,
            room=bytes_max,
        )
    data = stored[_LENGTH_BYTES : _LENGTH_BYTES + length].tobytes()
    return parse_message(index_pb.Index, data), position


def _stages_of(index: index_pb.VectorIndex, path: str) -> tuple[index_pb.IVF, index_pb.PQ]:
    names = [stage.WhichOneof("stage") for stage in index.stages]
    if names != ["ivf", "pq"]:
        raise UnsupportedError(
            (
                "vector indices in the legacy layout are supported for IVF_PQ only; create the "
                "index again"
            ),
            path=path,
            found=[str(name) for name in names][:8],
        )
    return index.stages[0].ivf, index.stages[1].pq


def _parse_quantizer(pq: index_pb.PQ, metric: Metric, path: str) -> ProductCodes:
    if pq.HasField("codebook_tensor"):
        book: Matrix = parse_tensor(pq.codebook_tensor)
    else:
        book = np.array(pq.codebook, np.float32)
    bits, num_sub_vectors, dimension = int(pq.num_bits), int(pq.num_sub_vectors), int(pq.dimension)
    is_valid = (
        bits in _CODE_BITS
        and num_sub_vectors > 0
        and dimension > 0
        and not dimension % num_sub_vectors
    )
    if not is_valid or book.size != dimension << bits or bits * num_sub_vectors % 8:
        raise CorruptDataError(
            "the codebook of a vector index does not match its codes",
            path=path,
            bits=bits,
            num_sub_vectors=num_sub_vectors,
            dimension=dimension,
            values=book.size,
        )
    codebook = book.reshape(num_sub_vectors, 1 << bits, dimension // num_sub_vectors)
    return ProductCodes(metric, codebook, bits, transposed=False)


def _make_storage_metadata(codes: ProductCodes) -> Mapping[str, Any]:
    """Return the metadata of the codes under the names used by pylance."""
    num_sub_vectors, _, size = codes.codebook.shape
    return {
        "nbits": codes.bits,
        "num_sub_vectors": num_sub_vectors,
        "dimension": num_sub_vectors * size,
    }


def _parse_centroids(ivf: index_pb.IVF, dimension: int, path: str) -> Matrix:
    if ivf.HasField("centroids_tensor"):
        centroids: Matrix = parse_tensor(ivf.centroids_tensor)
    else:
        centroids = np.array(ivf.centroids, np.float32)
    if centroids.size != len(ivf.lengths) * dimension:
        raise CorruptDataError(
            "the centroids and the codebook of a vector index have different dimensions",
            path=path,
            partitions=len(ivf.lengths),
            dimension=dimension,
            values=centroids.size,
        )
    return centroids.reshape(-1, dimension)
